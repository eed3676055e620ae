"""The GPU executor as the judge sees it: one active process with a CUDA context, and warm spares beside it.

A device fault poisons a context and a hung kernel cannot be evicted from within, so either costs the process: it is
killed, a spare that holds a context and the matrices in use takes over, and another is forked in the background. What
the spares do on the device, they do between verdicts, so that nobody's time is disturbed.
"""

import contextlib
import logging
import os
import queue
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
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
_AHEAD, _AHEAD_BYTES = 4, 96 << 10  # requests that lie with the active process; less than a socket holds
_ENVIRONMENT = {"CUPY_CACHE_IN_MEMORY": "1"}


class _Process:
    """One executor process; `device` is what it said of itself once it had its context."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.device: dict[str, Any] | None = None
        self.prepared: set[str] = set()

    def receive(self, wall_s: float) -> dict[str, Any]:
        """Its next message."""
        return self.worker.inbox.receive(time.monotonic() + wall_s)

    def call(self, request: dict[str, Any], wall_s: Mapping[str, float]) -> tuple[dict[str, Any], str]:
        """(the answer, the stage that it was at)."""
        stage, nonce = "start", secrets.token_hex(8)
        wire.send(self.worker.connection, {**request, "nonce": nonce})
        while "stage" in (message := self.receive(wall_s[stage])):
            stage = message["stage"]
        if message.get("nonce") != nonce:
            raise wire.Closed("an answer to another request")
        return message, stage

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


class _Job:
    """A request on its way, and where its answer goes."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = {**request, "nonce": secrets.token_hex(8)}
        self.future: Future[tuple[dict[str, Any], bool]] = Future()
        self.size = sum(len(value) for value in request.values() if isinstance(value, str))  # roughly, in bytes


class GpuExecutor:
    """Runs checked programs on the first GPU, one at a time. Thread-safe.

    Requests are sent ahead, so that the active process never waits for this one between two of them.

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
        # Seconds by executor processes' own clocks: `all`, and what for.
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self._wall_s = wall_s
        self._closed = False
        self._zygote = Zygote(module, Path(tempfile.mkdtemp(prefix="sparserl-gpu-")), _ENVIRONMENT)
        self._targets: OrderedDict[str, dict[str, Any]] = OrderedDict()  # prepare requests, least recently used first
        self._processes: deque[_Process] = deque()  # the active one first
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._again: deque[_Job] = deque()  # sent to a process that was lost before it began them
        self._chores: deque[Callable[[], None]] = deque()  # what spares are to do on the device, between requests
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
            self._end()
            raise UserError(f"judge.backend: gpu: {error}") from None
        self._thread = threading.Thread(target=self._loop, name="gpu", daemon=True)
        self._thread.start()

    @property
    def identity(self) -> dict[str, Any]:
        """Name and driver of the device: part of a verdict's cache key."""
        return {"gpu": self._device["gpu"], "driver": self._device["driver"]}

    @property
    def device(self) -> dict[str, Any]:
        """What the device says of itself: `gpu`, `driver`, `l2_bytes`, `guards` (around a program's memory)."""
        return dict(self._device)

    def judge(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Verify on all matrices and time against the libraries; (fields of a Verdict, whether they would come again).

        Args:
            request: of `components.judge.executor.Executor.judge`, without `facts` and `baselines`.

        Raises:
            RuntimeError: the executor was closed.
            SparseRLError: no process starts any more.
        """
        if self._closed:
            raise RuntimeError("the GPU executor is closed")
        job = _Job(request)
        self._waiting.put(job)
        answer, lasting = job.future.result()
        return {**answer, **self.identity}, lasting

    def close(self) -> None:
        """End all processes; what waits gets a RuntimeError."""
        self._closed = True
        self._waiting.put(None)
        for process in list(self._processes):
            with contextlib.suppress(OSError):
                os.kill(process.worker.pid, signal.SIGKILL)  # so that the loop is not held up by one
        self._thread.join()
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.worker.connection.close()
        self._zygote.close()
        shutil.rmtree(self._zygote.folder, ignore_errors=True)

    # -- the loop, in a thread of its own: it alone touches processes ------------------------------------------------

    def _loop(self) -> None:
        sent: deque[_Job] = deque()
        while not self._closed:
            try:
                if self._chores and not sent and self._spare_time():
                    self._chores.popleft()()
                    continue
                self._send_ahead(sent)
                if sent:
                    answer, lasting = self._receive(sent)
                    sent.popleft().future.set_result((answer, lasting))
            except Exception as error:  # no process starts any more, say: whoever waits is told
                for job in (*sent, *self._again):
                    job.future.set_exception(error)
                sent.clear()
                self._again.clear()
        while not self._waiting.empty():
            left = self._waiting.get()
            if left is not None:
                sent.append(left)
        for job in (*sent, *self._again):
            job.future.set_exception(RuntimeError("the GPU executor is closed"))

    def _spare_time(self) -> bool:
        """Whether spares may have the device now: nobody waits, or the next fault would find no spare ready."""
        return (self._waiting.empty() and not self._again) or all(p.device is None for p in list(self._processes)[1:])

    def _send_ahead(self, sent: deque[_Job]) -> None:
        """Give the active process its next requests, as many as may lie with it; wait when there is none at all."""
        while len(sent) < _AHEAD and not (sent and self._chores and self._spare_time()):
            job: _Job | None = None
            if self._again:
                job = self._again.popleft()
            else:
                try:
                    job = self._waiting.get(block=not sent)
                except queue.Empty:
                    return
            if job is None or self._closed:
                if job is not None:
                    sent.append(job)
                return
            if sent and job.size + sum(other.size for other in sent) > _AHEAD_BYTES:
                self._again.appendleft(job)  # sent now, it could hold this thread up for as long as the process hangs
                return
            sent.append(job)
            process = self._processes[0]
            process.wait_ready()
            known = self._targets.get(_target_key(job.request), {}).get("baselines")
            try:
                wire.send(
                    process.worker.connection,
                    {**job.request, "op": "judge", "facts": self.facts, "baselines": known},
                )
            except wire.Closed:
                return  # it died: found when its answer is awaited

    def _receive(self, sent: deque[_Job]) -> tuple[dict[str, Any], bool]:
        """The answer to the first of `sent`."""
        process, stage, request = self._processes[0], "start", sent[0].request
        lost: tuple[dict[str, Any], bool] | None = None
        try:
            while "stage" in (message := process.receive(self._wall_s[stage])):
                stage = message["stage"]
            if message.get("nonce") != request["nonce"]:
                raise wire.Closed("an answer to another request")
        except wire.DeadlineExceeded:
            lost = {"status": "timeout", "message": f"no end within {self._wall_s[stage]:.0f} s"}, True
        except wire.Closed:
            lost = {"status": "illegal_access", "message": f"the executor died at {stage}"}, False
        else:
            if "bug" in message:
                _LOG.error("the GPU executor failed at %s\n%s", stage, message["bug"])
                last = str(message["bug"]).strip().splitlines()[-1]
                lost = {"status": "unsupported", "message": f"the GPU executor failed: {last}"}, False
        if lost is not None:
            self._hand_over(sent, hung=lost[0]["status"] == "timeout")
            return lost
        answer: dict[str, Any] = message["result"]
        for what, seconds in answer.pop("spent_s", {}).items():
            self.spent_s[what] += seconds
        if answer.pop("poisoned", False):
            self._hand_over(sent, hung=answer["status"] == "timeout")
        elif answer["status"] == "correct":
            self._remember(process, request, answer.get("baselines"))
        return answer, True

    def _remember(self, process: _Process, request: dict[str, Any], baselines: dict[str, float] | None) -> None:
        """Note a matrix in use; the spares get it too."""
        key = _target_key(request)
        process.prepared.add(key)
        if key in self._targets:
            self._targets.move_to_end(key)
        elif key and baselines:
            self._targets[key] = {
                "op": "prepare",
                "facts": self.facts,
                "matrix": request["matrix"],
                "operator": request["operator"],
                "width": request["width"],
                "precision": request["precision"],
                "baselines": baselines,
            }
            while len(self._targets) > _TARGETS:
                self._targets.popitem(last=False)
            self._chores.append(self._prepare_spares)

    def _prepare_spares(self) -> None:
        """Have the spares make their contexts and the matrices in use resident; one that fails is replaced."""
        for process in list(self._processes)[1:]:
            try:
                process.wait_ready()
                for key, target in self._targets.items():
                    if key not in process.prepared:
                        answer, _ = process.call(target, {"start": _START_S})
                        if "bug" in answer:
                            raise SparseRLError(str(answer["bug"]))
                        process.prepared.add(key)
            except (SparseRLError, wire.Closed, wire.DeadlineExceeded) as error:
                if self._closed:
                    return
                _LOG.warning("a spare GPU executor failed: %s", str(error).strip().splitlines()[-1])
                self._processes.remove(process)
                _kill(process)
                self._reap(process)
                self._processes.append(self._fork())

    def _hand_over(self, sent: deque[_Job], hung: bool) -> None:
        """End the active process, device work and all, and let a spare take its place.

        A kernel that hangs would share the device until its process is gone, so that is waited for; after a fault
        nothing runs, and the driver may take its time to clean up.
        """
        self.restarts += 1
        self._again.extend(list(sent)[1:])
        while len(sent) > 1:
            sent.pop()
        lost = self._processes.popleft()
        _kill(lost)
        if hung:
            self._zygote.reap(lost.worker)
        else:
            self._chores.append(lambda: self._reap(lost))
        self._processes.append(self._fork())
        self._chores.append(self._prepare_spares)

    def _reap(self, process: _Process) -> None:
        self._zygote.reap(process.worker)

    def _fork(self) -> _Process:
        return _Process(self._zygote.spawn())


def _kill(process: _Process) -> None:
    process.worker.connection.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.worker.pid, signal.SIGKILL)


def _target_key(request: dict[str, Any]) -> str:
    matrix = request.get("matrix")
    return f"{matrix['key']} {request['operator']} {request['width']} {request['precision']}" if matrix else ""


def driver_version() -> str:
    """The driver's version as nvidia-smi prints it; empty when it cannot be asked."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.splitlines()[0].strip() if answer.returncode == 0 and answer.stdout.strip() else ""
