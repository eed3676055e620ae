"""Run `dvc repro` from a flow: its own process group, its log streamed, nothing left behind when the flow dies."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from components.errors import SparseRLError

_USER_ERROR = re.compile(r"exited with 2\b")
_BUSY = re.compile(r"is busy, it is being blocked|Unable to acquire lock")


class StageFailed(SparseRLError):
    """A DVC stage did not succeed.

    Args:
        message: the last lines that tell why.
        user_error: the stage ended with exit code 2, so trying again cannot help.
    """

    def __init__(self, message: str, user_error: bool):
        super().__init__(message)
        self.user_error = user_error


def dvc_repro(targets: Sequence[str], root: Path, log: Callable[[str], None], arguments: Sequence[str] = ()) -> None:
    """Bring `targets` up to date.

    DVC leaves its stage running as an orphan when it is killed, so it gets a session of its own, and the whole group
    is ended when this call does not return normally (an exception, SIGTERM, a cancelled flow run).

    Args:
        targets: stage names; none means all.
        root: the project's folder.
        log: told each line of output; progress bars are passed on once, when finished.
        arguments: further arguments of `dvc repro`.

    Raises:
        StageFailed: DVC's exit code was not 0.
    """
    command = [sys.executable, "-m", "dvc", "repro", *arguments, *targets]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    tail: list[str] = []
    try:
        with _terminating(process):
            assert process.stdout is not None
            for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip("\n").rsplit("\r", 1)[-1].rstrip()
                if line:
                    log(line)
                    tail = [*tail[-30:], line]
            code = process.wait()
    finally:
        end_group(process)
    if code != 0:
        text = "\n".join(tail)
        reasons = [line for line in tail if line.startswith(("ERROR", "sparserl:", "error:"))] or tail[-3:]
        if _BUSY.search(text):
            reasons = ["another `dvc repro` is running in this project; wait for it or stop it"]
        raise StageFailed("; ".join(reasons), user_error=bool(_USER_ERROR.search(text)))


def end_group(process: "subprocess.Popen[bytes]", grace_s: float = 10.0) -> None:
    """SIGTERM to the process's group, then SIGKILL to what is still there after `grace_s`."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _terminating(process: "subprocess.Popen[bytes]"):  # type: ignore[no-untyped-def]
    """While the block runs, SIGTERM to this process ends the group first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: object) -> None:
        end_group(process)
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
