"""The GPU executor as the judge sees it: one active process with a CUDA context, and warm spares beside it.

A device fault poisons a context and a hung kernel cannot be evicted from within, so either costs the process: it is
killed, a spare that holds a context and the matrices in use takes over, and another is forked in the background. What
the spares do on the device, they do between verdicts, so that nobody's time is disturbed.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from components.errors import SparseRLError, UserError
from components.judge import wire
from components.judge.pool import Worker, Zygote

_LOG = logging.getLogger(__name__)
_START_S = 120.0  # making a context
WALL_S = {"start": 60.0, "check": 120.0, "time": 120.0}  # deadlines on the device are the executor's own, and shorter
_TARGETS = 8  # matrices that spares hold too
_ENVIRONMENT = {"CUPY_CACHE_IN_MEMORY": "1"}


class _Process:
    """One executor process; `device` is what it said of itself once it had its context."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.device: dict[str, Any] | None = None
        self.prepared: set[str] = set()

    def call(self, request: dict[str, Any], wall_s: Mapping[str, float]) -> tuple[dict[str, Any], str]:
        """(the answer, the stage that it was at)."""
        stage = "start"
        wire.send(self.worker.connection, request)
        while True:
            try:
                message = wire.receive(self.worker.connection, time.monotonic() + wall_s[stage])
            except (wire.Closed, wire.DeadlineExceeded) as error:
                error.args = (stage,)
                raise
            if "stage" not in message:
                return message, stage
            stage = message["stage"]

    def wait_ready(self) -> dict[str, Any]:
        """Have it make its context, unless it has one."""
        if self.device is None:
            try:
                answer, _ = self.call({"op": "identify"}, {"start": _START_S})
            except (wire.Closed, wire.DeadlineExceeded):
                raise SparseRLError("the GPU executor does not start; see the message above") from None
            if "bug" in answer:
                raise SparseRLError(f"the GPU executor does not start: {str(answer['bug']).strip().splitlines()[-1]}")
            self.device = answer["result"]
        return self.device


class GpuExecutor:
    """Runs checked programs on the first GPU, one at a time. Thread-safe.

    Args:
        module: what executor processes run; see components/judge/zygote.py.
        wall_s: seconds that each stage a process announces may take; `start` holds until the first announcement.
        spares: warm processes beside the active one.

    Raises:
        UserError: there is no usable GPU.
    """

    def __init__(
        self,
        module: str = "components.judge.gpu_worker",
        wall_s: Mapping[str, float] = MappingProxyType(WALL_S),
        spares: int = 2,
    ):
        self.restarts = 0
        self.busy_s = 0.0  # that the active process worked
        self.waited_s = 0.0  # from a request's coming to its turn, over all requests
        self._wall_s = wall_s
        self._lock = threading.Lock()  # of the device: one user at a time
        self._forks = threading.Lock()  # of the zygote
        self._closed = False
        self._zygote = Zygote(module, Path(tempfile.mkdtemp(prefix="sparserl-gpu-")), _ENVIRONMENT)
        self._targets: OrderedDict[str, dict[str, Any]] = OrderedDict()  # prepare requests, least recently used first
        self._processes: deque[_Process] = deque()  # the active one first
        try:
            self._processes.append(self._fork())
            self._device = {**self._processes[0].wait_ready(), "driver": driver_version()}
            facts, _ = self._processes[0].call({"op": "facts"}, {"start": _START_S})
            if "bug" in facts:
                raise SparseRLError(str(facts["bug"]).strip().splitlines()[-1])
            self.facts: dict[str, float] = facts["result"]
            self._processes += [self._fork() for _ in range(spares)]
            for spare in list(self._processes)[1:]:
                spare.wait_ready()
        except (SparseRLError, OSError) as error:
            self.close()
            raise UserError(f"judge.backend: gpu: {error}") from None

    @property
    def identity(self) -> dict[str, Any]:
        """Name and driver of the device: part of a verdict's cache key."""
        return {"gpu": self._device["gpu"], "driver": self._device["driver"]}

    def judge(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Verify on all matrices and time against the libraries; (fields of a Verdict, whether they would come again).

        Args:
            request: of `gpu_worker.Executor.judge`, without `facts` and `baselines`.
        """
        came = time.monotonic()
        with self._lock:
            start = time.monotonic()
            self.waited_s += start - came
            try:
                answer, lasting = self._judge(request)
            finally:
                self.busy_s += time.monotonic() - start
        return {**answer, **self.identity}, lasting

    def close(self) -> None:
        """End all processes."""
        self._closed = True
        for process in self._processes:
            process.worker.connection.close()
            with contextlib.suppress(OSError):
                os.kill(process.worker.pid, signal.SIGKILL)
        with self._forks:
            self._zygote.close()
        shutil.rmtree(self._zygote.folder, ignore_errors=True)

    # -- the active process --------------------------------------------------------------------------------------

    def _judge(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        if self._closed:
            raise RuntimeError("the GPU executor is closed")
        process = self._processes[0]
        process.wait_ready()
        key = _target_key(request)
        known = self._targets.get(key, {}).get("baselines")
        full = {**request, "op": "judge", "facts": self.facts, "baselines": known}
        try:
            message, stage = process.call(full, self._wall_s)
        except wire.DeadlineExceeded as error:
            self._hand_over()
            return {"status": "timeout", "message": f"no end within {self._wall_s[error.args[0]]:.0f} s"}, True
        except wire.Closed as error:
            self._hand_over()
            return {"status": "illegal_access", "message": f"the executor died at {error.args[0]}"}, False
        if "bug" in message:
            self._hand_over()
            _LOG.error("the GPU executor failed at %s\n%s", stage, message["bug"])
            last = str(message["bug"]).strip().splitlines()[-1]
            return {"status": "unsupported", "message": f"the GPU executor failed: {last}"}, False
        answer: dict[str, Any] = message["result"]
        answer.pop("busy_s", None)
        if answer.pop("poisoned", False):
            self._hand_over()
        elif answer["status"] == "correct" and key:
            process.prepared.add(key)
            self._remember(key, request, answer.get("baselines"))
        return answer, True

    def _remember(self, key: str, request: dict[str, Any], baselines: dict[str, float] | None) -> None:
        """Note a matrix in use and make it resident in the spares that are ready."""
        if key in self._targets:
            self._targets.move_to_end(key)
        elif baselines:
            self._targets[key] = {
                "op": "prepare",
                "matrix": request["matrix"],
                "operator": request["operator"],
                "width": request["width"],
                "baselines": baselines,
            }
            while len(self._targets) > _TARGETS:
                self._targets.popitem(last=False)
            for spare in list(self._processes)[1:]:
                if spare.device is not None:
                    self._prepare(spare)

    def _prepare(self, process: _Process) -> None:
        """Make the matrices in use resident, with the device's lock held; one that fails is found at its turn."""
        for key, target in self._targets.items():
            if key not in process.prepared:
                try:
                    process.call(target | {"adversarial": False}, {"start": _START_S})
                except (wire.Closed, wire.DeadlineExceeded):
                    return
                process.prepared.add(key)

    def _hand_over(self) -> None:
        """End the active process, device work and all, and let a spare take its place."""
        self.restarts += 1
        lost = self._processes.popleft()
        lost.worker.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(lost.worker.pid, signal.SIGKILL)
        with self._forks:
            self._zygote.reap(lost.worker)  # a kernel that hangs ends with it: until then it would share the device
            fresh = self._fork_locked()
        self._processes.append(fresh)
        threading.Thread(target=self._warm, args=(fresh,), daemon=True).start()

    def _warm(self, process: _Process) -> None:
        with self._lock, contextlib.suppress(SparseRLError):
            if not self._closed and process.device is None:
                process.wait_ready()
                self._prepare(process)

    def _fork(self) -> _Process:
        with self._forks:
            return self._fork_locked()

    def _fork_locked(self) -> _Process:
        return _Process(self._zygote.spawn())


def _target_key(request: dict[str, Any]) -> str:
    matrix = request.get("matrix")
    return f"{matrix['key']} {request['operator']} {request['width']}" if matrix else ""


def driver_version() -> str:
    """The driver's version as nvidia-smi prints it; empty when it cannot be asked."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.splitlines()[0].strip() if answer.returncode == 0 and answer.stdout.strip() else ""
