"""One job at a time on a device, also between hand-run commands and flows of different processes."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from components.errors import UserError
from components.files import project_root


@contextlib.contextmanager
def device_lock(
    device: str,
    *,
    wait_s: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    folder: Path | None = None,
) -> Iterator[Path]:
    """Hold the operating system's lock of one device; the kernel frees it when the process dies, however it dies.

    The lock is re-entrant across a process tree: a stage that a flow started under the lock sees the device's name in
    `SPARSERL_HELD_DEVICES` and goes on.

    Args:
        device: `gpu-0`, `cpu`, ...
        wait_s: give up after this long; None waits for ever.
        on_wait: told once who holds the lock, when there is somebody.
        folder: where lock files lie; `.cache/locks` under the project's root by default.

    Raises:
        UserError: the lock was not free within `wait_s`; the message names the holder's process.
    """
    held = os.environ.get("SPARSERL_HELD_DEVICES", "").split(",")
    path = (folder or project_root() / ".cache" / "locks") / f"{device}.lock"
    if device in held:
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _acquire(file.fileno(), path, device, wait_s, on_wait)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        os.environ["SPARSERL_HELD_DEVICES"] = ",".join(filter(None, [*held, device]))
        try:
            yield path
        finally:
            if previous := ",".join(filter(None, held)):
                os.environ["SPARSERL_HELD_DEVICES"] = previous
            else:
                os.environ.pop("SPARSERL_HELD_DEVICES", None)


def _acquire(handle: int, path: Path, device: str, wait_s: float | None, on_wait: Callable[[str], None] | None) -> None:
    deadline = None if wait_s is None else time.monotonic() + wait_s
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
            if not told and on_wait is not None:
                on_wait(f"{device} is in use by process {holder}; waiting")
                told = True
            if deadline is not None and time.monotonic() >= deadline:
                raise UserError(f"{device} is in use by process {holder}; wait for it or stop it") from None
            time.sleep(0.1)
