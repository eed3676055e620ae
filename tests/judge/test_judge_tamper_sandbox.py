"""What a worker that runs untrusted programs can no longer do, tried from inside one."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.judge import sandbox
from components.judge.pool import Pool
from components.judge.sandbox import Confinement, probe

WALL = {"start": 10.0, "work": 10.0}
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not probe("compile").complete, reason=f"this kernel confines only in part: {probe('compile').describe()}"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool("tests.judge.hostile_worker", 1) as pool:
        yield pool


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text("hunter2", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["read", "read-by-system-call", "list"])
@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/1/environ", "/proc/self/environ", str(ROOT / "params.yaml")])
def test_a_worker_opens_no_file(pool: Pool, name: str, path: str) -> None:
    place = str(Path(path).parent) if name == "list" else path
    assert pool.call({"what": "attempt", "name": name, "path": place}, WALL)["errno"] == errno.EACCES


@pytest.mark.parametrize("name", ["write", "create", "unlink", "chmod", "rename"])
def test_a_worker_changes_no_file(pool: Pool, secret: Path, name: str) -> None:
    answer = pool.call({"what": "attempt", "name": name, "path": str(secret)}, WALL)
    assert answer["errno"] in (errno.EACCES, errno.EPERM)
    assert [path.name for path in secret.parent.iterdir()] == ["secret.txt"]
    assert secret.read_text(encoding="utf-8") == "hunter2"


def test_a_worker_reads_the_matrices_that_it_is_handed_and_changes_none(pool: Pool) -> None:
    pool.start()
    path = pool.folder / "matrix.npz"
    path.write_bytes(b"numbers")
    try:
        assert pool.call({"what": "attempt", "name": "read", "path": str(path)}, WALL)["errno"] is None
        for name in ("write", "create", "unlink", "rename"):
            answer = pool.call({"what": "attempt", "name": name, "path": str(path)}, WALL)
            assert answer["errno"] in (errno.EACCES, errno.EPERM), name
    finally:
        path.unlink()


@pytest.mark.parametrize(
    "name", ["socket", "unix-socket", "udp", "exec", "run", "fork", "kill-the-judge", "trace", "ring"]
)
def test_a_worker_reaches_no_network_and_no_process(pool: Pool, name: str) -> None:
    answer = pool.call({"what": "attempt", "name": name, "pid": os.getpid()}, WALL)
    assert answer["errno"] in (errno.EPERM, errno.EACCES), name


def test_threads_still_start(pool: Pool) -> None:
    """NVRTC may start some; `clone3` is said not to exist, so that the C library takes the call that can be checked."""
    assert pool.call({"what": "attempt", "name": "clone3"}, WALL)["errno"] == errno.ENOSYS
    assert pool.call({"what": "thread"}, WALL)["threads"] == 1


def test_a_probe_leaves_its_caller_as_it_was(tmp_path: Path) -> None:
    for level in ("compile", "gpu"):
        state = probe(level)
        assert state.complete
        assert state.describe().startswith("files on (Landlock version ")
    (tmp_path / "still").write_text("writable", encoding="utf-8")
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def test_a_missing_part_is_reported_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.platform, "machine", lambda: "riscv64")
    state = probe("compile")
    assert state.system_calls == "off: no table of system calls for riscv64"
    assert state.files.startswith("on")
    assert not state.complete
    assert not Confinement("gpu", "on", "off: why", "on").complete


def test_the_softer_level_for_a_gpu_process(tmp_path: Path) -> None:
    """Reading stays; writing goes but where it is allowed; no process, no connection, no network socket."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    program = f"""
import json, os, socket, subprocess, threading
from components.judge.sandbox import confine
state = confine("gpu", writable=[{str(allowed)!r}])
def attempt(work):
    try:
        work()
    except OSError as error:
        return error.errno
    return 0
ran = []
thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
open({str(allowed / "file")!r}, "w").write("yes")
print(json.dumps({{
    "complete": state.complete,
    "read": attempt(lambda: open("/etc/passwd").read()),
    "write": attempt(lambda: open({str(other / "file")!r}, "w")),
    "null": attempt(lambda: open("/dev/null", "w")),
    "network": attempt(lambda: socket.socket(socket.AF_INET)),
    "local": attempt(lambda: socket.socket(socket.AF_UNIX)),
    "connect": attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/x")),
    "exec": attempt(lambda: os.execv("/bin/true", ["true"])),
    "fork": attempt(os.fork),
    "threads": len(ran),
}}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "complete": True,
        "read": 0,
        "write": errno.EACCES,
        "null": 0,
        "network": errno.EPERM,
        "local": 0,
        "connect": errno.EPERM,
        "exec": errno.EPERM,
        "fork": errno.EPERM,
        "threads": 1,
    }
    assert (allowed / "file").read_text(encoding="utf-8") == "yes"
