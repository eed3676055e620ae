"""Worker processes that may be killed at any moment without touching anything else."""

import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from components.errors import SparseRLError
from components.judge import wire
from components.judge.cache import default_folder
from components.judge.limits import CPU_SIGNAL

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[2]
_START_S = 900.0  # the first start on a machine compiles the interpreter
# What a worker may see of the environment: where libraries lie, and nothing of the user's.
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NUMBA_CACHE_DIR")


class WorkerDied(SparseRLError):
    """A worker ended or was ended before it answered.

    `stage` is what it was at, `signal` the number of the signal that ended it (None: it exited), `deadline` whether the
    pool ended it because its wall-clock limit had passed.
    """

    def __init__(self, stage: str, signal_number: int | None, deadline: bool):
        self.stage, self.signal, self.deadline = stage, signal_number, deadline
        super().__init__(f"{stage}: {self.how()}")

    @property
    def by_cpu_limit(self) -> bool:
        """Whether its CPU time ran out: the same request would end the same way on any day."""
        return self.signal == CPU_SIGNAL

    @property
    def crashed(self) -> bool:
        """Whether its own code brought it down, and not somebody from outside."""
        faults = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
        return self.signal in faults

    def how(self) -> str:
        """What ended the worker, in words."""
        if self.deadline:
            return "wall-clock limit"
        if self.signal is None:
            return "worker exited"
        names = {CPU_SIGNAL: "CPU-time limit", signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "abort"}
        return names.get(signal.Signals(self.signal), signal.Signals(self.signal).name)


class WorkerBug(SparseRLError):
    """A worker's own code raised; the message is its traceback."""


class Worker:
    """A forked process and our end of its connection."""

    def __init__(self, pid: int, connection: socket.socket):
        self.pid, self.connection = pid, connection
        self.inbox = wire.Inbox(connection)


class Zygote:
    """The warm process that workers of one module are forked from; see components/judge/zygote.py.

    Not thread-safe: its users hold a lock.

    Args:
        module: whose `preload()` runs once and whose `handle(request, announce)` answers requests in the workers.
        folder: removed by the warm process when this one is gone.
        environment: variables besides those of `worker_environment`.
    """

    def __init__(self, module: str, folder: Path, environment: Mapping[str, str] | None = None):
        self.module, self.folder = module, folder
        self._environment = dict(environment or {})
        self._control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and not lost."""
        return self._control is not None

    def start(self) -> socket.socket:
        """Start it unless it runs.

        Raises:
            SparseRLError: it does not come up.
        """
        if self._control is not None:
            return self._control
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.folder.mkdir(exist_ok=True)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "components.judge.zygote", str(theirs.fileno()), str(self.folder), self.module],
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
                env=worker_environment() | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        control.settimeout(_START_S)
        if control.recv(64) != b"ready":
            code = self.process.wait()
            control.close()
            raise SparseRLError(f"the judge's workers do not start (exit code {code}); see the message above")
        control.settimeout(60)
        self._control = control
        return control

    def spawn(self) -> Worker:
        """Fork a worker; OSError when the warm process is gone."""
        control = self.start()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(control, [b"spawn"], [theirs.fileno()])
            answer = control.recv(64)
        if not answer:
            ours.close()
            raise OSError("the warm process ended")
        return Worker(int(answer), ours)

    def reap(self, worker: Worker) -> int | None:
        """Wait for a worker that is ending; the number of the signal that ended it, if one did."""
        assert self._control is not None
        self._control.send(f"reap {worker.pid}".encode())
        status = int(self._control.recv(64) or b"0")
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None

    def kill(self) -> None:
        """End it, and with it its workers."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """Have it end its workers and itself."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.process is not None:
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class Pool:
    """Up to `size` workers forked on demand from one warm process.

    Args:
        module: the module whose `preload()` runs once and whose `handle(request, announce)` answers requests.
        size: workers that may run at once; further callers wait.

    Thread-safe. Use as a context manager, or call `close`.
    """

    def __init__(self, module: str, size: int):
        self.module, self.size = module, size
        self.restarts = 0  # workers lost so far
        self.folder = Path(tempfile.mkdtemp(prefix="sparserl-judge-"))  # the zygote removes it, even after kill -9
        self._slots = threading.BoundedSemaphore(size)
        self._idle: list[Worker] = []
        self._lock = threading.Lock()  # of the control socket and the idle list
        self._zygote = Zygote(module, self.folder)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(self, request: dict[str, Any], wall_s: Mapping[str, float]) -> dict[str, Any]:
        """Have a worker answer one request.

        Args:
            request: plain JSON types.
            wall_s: seconds that each stage the worker announces may take; `start` holds until the first announcement.

        Raises:
            WorkerDied: the worker was lost; the next call gets a new one.
            WorkerBug: its code raised.
        """
        with self._slots:
            worker = self._take()
            stage = "start"
            nonce = secrets.token_hex(8)
            try:
                wire.send(worker.connection, {**request, "nonce": nonce})
                while True:
                    message = worker.inbox.receive(time.monotonic() + wall_s[stage])
                    if "stage" not in message:
                        break
                    stage = message["stage"]
                if message.get("nonce") != nonce:
                    raise wire.Closed("an answer to another request")
            except (wire.Closed, wire.DeadlineExceeded) as error:
                raise WorkerDied(stage, *self._bury(worker, isinstance(error, wire.DeadlineExceeded))) from None
            except BaseException:
                self._bury(worker, True)
                raise
            with self._lock:
                self._idle.append(worker)
        if "bug" in message:
            raise WorkerBug(str(message["bug"]))
        result = message["result"]
        assert isinstance(result, dict)
        return result

    def start(self) -> None:
        """Start the warm process now instead of at the first call."""
        with self._lock:
            self._started()

    def cpu_seconds(self) -> float:
        """CPU time that the idle workers have used so far, user and system."""
        ticks = 0
        with self._lock:
            for worker in self._idle:
                fields = Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End all workers and remove the pool's folder."""
        with self._lock:
            self._closed = True
            for worker in self._idle:
                worker.connection.close()
            self._idle.clear()
            self._zygote.close()
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

    def _take(self) -> Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            try:
                return self._started().spawn()
            except (OSError, ValueError):  # the warm process is gone (out of memory, say): start another, once
                self._stop_zygote()
                return self._started().spawn()

    def _bury(self, worker: Worker, kill: bool) -> tuple[int | None, bool]:
        """End a lost worker; (signal, whether we killed it)."""
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        worker.connection.close()
        with self._lock:
            self.restarts += 1
            if not self._zygote.running:
                return None, kill
            try:
                return self._zygote.reap(worker), kill
            except (OSError, ValueError):
                self._stop_zygote()
                return None, kill

    def _started(self) -> Zygote:
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._zygote.start()
        return self._zygote

    def _stop_zygote(self) -> None:
        _LOG.warning("the judge's warm process was lost; starting another")
        self._zygote.kill()
        for worker in self._idle:
            worker.connection.close()
        self._idle.clear()


def worker_environment() -> dict[str, str]:
    """The environment of a worker: library paths and thread counts only."""
    kept = {key: os.environ[key] for key in (*_KEPT, "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if key in os.environ}
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMBA")}
    kept["SPARSERL_HEADERS"] = str(default_folder() / "headers")
    kept |= {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "PYTHONNOUSERSITE": "1"} | threads
    compiled = _ROOT / "components" / "judge" / "emulate" / "__pycache__"
    place = compiled if compiled.exists() else compiled.parent
    if "NUMBA_CACHE_DIR" not in kept and not os.access(place, os.W_OK):
        kept["NUMBA_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"sparserl-numba-{os.getuid()}")
    return kept
