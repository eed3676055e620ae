"""The GPU executor as the judge sees it: a disposable process with its own CUDA context, and warm spares beside it.

A device fault poisons a context and a hung kernel cannot be evicted from within, so either costs the process: it is
killed, a spare takes over, and another one starts in the background.
"""

import contextlib
import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from components.errors import SparseRLError, UserError
from components.judge import wire
from components.judge.pool import worker_environment

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[2]
_START_S = 120.0  # importing cupy and making a context
WALL_S = {"start": 30.0, "upload": 60.0, "check": 20.0, "time": 60.0}
_DEADLINE_S = 5.0  # one launch of a program on one matrix


class _Process:
    """One executor process; `ready` is set once it has its context."""

    def __init__(self, module: str) -> None:
        self.connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
                env=worker_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.device: dict[str, Any] | None = None

    def wait_ready(self) -> dict[str, Any]:
        if self.device is None:
            try:
                self.device = wire.receive(self.connection, time.monotonic() + _START_S)
            except (wire.Closed, wire.DeadlineExceeded):
                self.kill()
                raise SparseRLError("the GPU executor does not start; see the message above") from None
        return self.device

    def kill(self) -> None:
        self.process.kill()
        self.connection.close()
        self.process.wait()


class GpuExecutor:
    """Runs checked programs on the first GPU, one at a time.

    Args:
        module: what an executor process runs.
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
        self._module, self._wall_s = module, wall_s
        self._lock = threading.Lock()
        self._closed = False
        self._processes = deque(_Process(module) for _ in range(1 + spares))  # the active one first
        try:
            self._device = self._processes[0].wait_ready()
        except SparseRLError as error:
            self.close()
            raise UserError(f"judge.backend: gpu: {error}") from None

    @property
    def identity(self) -> dict[str, Any]:
        """Name, driver and CUDA version of the device: part of a verdict's cache key."""
        return {"gpu": self._device["gpu"], "driver": self._device["driver"]}

    def judge(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Verify on all matrices and time against cuSPARSE; (fields of a Verdict, whether they would come again)."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the GPU executor is closed")
            process = self._processes[0]
            process.wait_ready()
            stage = "start"
            try:
                wire.send(process.connection, request | {"deadline_s": _DEADLINE_S})
                while "stage" in (message := wire.receive(process.connection, time.monotonic() + self._wall_s[stage])):
                    stage = message["stage"]
            except wire.DeadlineExceeded:
                self._hand_over()
                return self._named({"status": "timeout", "message": f"no end within {self._wall_s[stage]:.0f} s"}), True
            except wire.Closed:
                self._hand_over()
                return self._named({"status": "illegal_access", "message": f"the executor died at {stage}"}), False
            if "bug" in message:
                self._hand_over()
                _LOG.error("the GPU executor failed\n%s", message["bug"])
                last = str(message["bug"]).strip().splitlines()[-1]
                return self._named({"status": "unsupported", "message": f"the GPU executor failed: {last}"}), False
            answer = message["result"]
            if answer.pop("poisoned", False):
                self._hand_over()
            return self._named(answer), True

    def close(self) -> None:
        """End both processes."""
        self._closed = True
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.kill()

    def _named(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "gpu": self._device["gpu"], "driver": self._device["driver"]}

    def _hand_over(self) -> None:
        self.restarts += 1
        lost = self._processes.popleft()
        threading.Thread(target=lost.kill, daemon=True).start()  # the driver may take a while to end a hung kernel
        self._processes.append(_Process(self._module))


def driver_version() -> str:
    """The driver's version as nvidia-smi prints it; empty when it cannot be asked."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.splitlines()[0].strip() if answer.returncode == 0 and answer.stdout.strip() else ""
