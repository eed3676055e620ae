"""The process that holds a CUDA context and runs programs which are not trusted.

Forked by components/judge/gpu.py from a process that has imported everything and made no context. Requests: `identify`
makes the context, `facts` measures the device, `prepare` makes a matrix resident, `judge` verifies a program and times
it.
"""

import base64
import contextlib
import select
import socket
import time
import traceback
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from components.judge import wire
from components.judge.baselines import Baselines
from components.judge.compile import known_architectures
from components.judge.device import CudaDevice, DeviceFault, Facts, own_cubin, preload_device
from components.judge.memo import Memo
from components.judge.prepare import (
    Case,
    Job,
    cases,
    coverage_note,
    job_of,
    load_pattern,
    numbered_draw,
    remember,
    shuffled_case,
)
from components.judge.residents import TRUSTED_S, Numbers, Resident
from components.judge.sandbox import Level, confine
from components.judge.timing import Side, doubts, duel, runs_for
from components.judge.verify import DRAWS, chosen_draws, pattern_key
from components.kernel.operators import OPERATORS
from components.kernel.types import FormatNotApplicable, ProgramError

CONFINEMENT: Level = "gpu"  # read by components/judge/zygote.py
_RESIDENT_BYTES = 24 << 30
_HOST_BYTES = 6 << 30  # of converted matrices and of numbers, each
_MODULES = 128  # loaded programs
_BASELINE_DRAWS = (DRAWS, DRAWS + 1)  # none that programs get: what libraries leave behind is no answer for them
_L2_SHARE = 0.5  # of the L2 that both copies of a rotated working set may fill


def preload() -> None:
    """Import and compile everything that an executor needs, before the first fork; no context is made."""
    preload_device()
    for arch in known_architectures():
        if arch == _own_architecture():
            own_cubin(arch)


def _own_architecture() -> str | None:
    from components.judge.options import gpu_architecture

    return gpu_architecture()


@dataclass(frozen=True, eq=False)
class Plan:
    """A request as far as the host alone can take it: converted, bound, nothing on the device."""

    request: dict[str, Any]
    job: Job | None = None
    adversarial: tuple[Case, ...] = ()
    shuffled: Case | None = None
    target: Case | None = None
    refused: dict[str, Any] | None = None  # the verdict on a program that comes no further
    bug: str | None = None  # a traceback of our own


def plan(request: dict[str, Any]) -> Plan:
    """Work out what a request asks of the device."""
    job = job_of(request)
    try:
        found = list(cases(job))
        shuffled = shuffled_case(job)
    except ProgramError as error:
        return Plan(request, refused={"status": error.status, "message": error.message, "line": error.line})
    except FormatNotApplicable as error:
        message = f"format {job.program.format} does not fit this matrix: {error}"
        return Plan(request, refused={"status": "contract", "message": message})
    target = next((case for case in found if case.is_target), None)
    return Plan(request, job, tuple(case for case in found if not case.is_target), shuffled, target)


class Executor:
    """One GPU, one context.

    Args:
        device: components.judge.device.CudaDevice, or a test's.
        make_baselines: as `Baselines`.
    """

    def __init__(self, device: Any, make_baselines: Callable[..., Any] = Baselines) -> None:
        self.device, self._make_baselines = device, make_baselines
        self._residents: Memo[Resident] = Memo(_RESIDENT_BYTES, lambda resident: resident.nbytes)
        self._numbers: Memo[Numbers] = Memo(_RESIDENT_BYTES // 4, lambda numbers: numbers.nbytes)
        self._baselines: Memo[Any] = Memo(_RESIDENT_BYTES // 4, lambda baselines: int(baselines.nbytes))
        self._modules: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.spent: defaultdict[str, float] = defaultdict(float)  # seconds by what they went to, since the last answer

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the baselines of a matrix resident."""
        self.device.replay_us = request["facts"]["replay_us"]
        matrix = load_pattern(**request["matrix"])
        if matrix.nnz:
            source = OPERATORS[request["operator"]].reference_program(matrix, request["width"])
            job = job_of({**request, "source": source, "adversarial": False})
            self._baselines_of(job, next(iter(cases(job))), request.get("baselines"))
        return {}

    def judge(self, request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
        """Fields of a Verdict; see components/judge/interpret.py for the same without a GPU.

        Args:
            request: `cubin` (base64), `code_hash`, `source`, `operator`, `width`, `matrix`, `adversarial` (whether to
                run the adversarial set too), `deadline_s`, `facts`, `baselines` (times known in this session, or None),
                `self_duel` (time the program against itself, for the noise of the clock).
            announce: told the stage.
        """
        announce("check")
        return self.run(plan(request), announce)

    def run(self, planned: "Plan", announce: Callable[[str], None]) -> dict[str, Any]:
        """What the device has to do for a request; see `judge`."""
        request, job = planned.request, planned.job
        if planned.refused is not None or job is None:
            return planned.refused or {}
        self.device.replay_us = request["facts"]["replay_us"]
        where = ""
        try:
            with self._spending("load"):
                functions = self._load(request, job)
            batch: list[tuple[Case, Resident, int, int]] = []
            target: tuple[Case, Resident] | None = None
            draws = chosen_draws(job.program_hash)
            for number, case in enumerate(planned.adversarial):
                where = case.name
                batch.append((case, self._resident(job, case), 0, draws[number % 2]))
            if planned.shuffled is not None:
                where = planned.shuffled.name
                batch.append((planned.shuffled, self._resident(job, planned.shuffled), 0, draws[1]))
            if planned.target is not None:
                where = planned.target.name
                target = (planned.target, self._resident(job, planned.target))
                if self._rotation(target[1]) == 2:
                    batch.append((*target, 1, draws[0]))
                batch += [(*target, 0, draws[0]), (*target, 0, draws[1])]
            with self._spending("verify"):
                fault = self._verify(job, functions, batch, request["deadline_s"])
            if fault is not None:
                return fault
            timed: dict[str, Any] = {}
            if target is not None:
                announce("time")
                timed = self._time(job, *target, functions, request)
        except DeviceFault as fault:
            return {
                "status": fault.status, "message": fault.message, "poisoned": fault.poisoned, "failed_on": where or None
            }  # fmt: skip
        note = "; ".join(filter(None, [coverage_note(job, len(planned.adversarial)), timed.pop("note", "")]))
        return {"status": "correct", "message": note, "format": str(job.program.format), **timed}

    @contextlib.contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] += time.perf_counter() - start

    # -- verifying -----------------------------------------------------------------------------------------------

    def _load(self, request: dict[str, Any], job: Job) -> dict[str, Any]:
        names = sorted({launch.kernel for launch in job.program.launches})
        key = " ".join([request["code_hash"], *names])
        if key not in self._modules:
            self._modules[key] = self.device.load(base64.b64decode(request["cubin"]), names)
            if len(self._modules) > _MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(key)
        return self._modules[key]

    def _rotation(self, resident: Resident) -> int:
        """Arenas that timed runs take in turn: two, with other numbers in each, where both stay in the L2."""
        return 2 if 2 * resident.input_bytes <= _L2_SHARE * self.device.l2_bytes else 1

    def _resident(self, job: Job, case: Case) -> Resident:
        pattern = (pattern_key(case.matrix), job.operator, job.width)

        def make() -> Resident:
            with self._spending("resident"):
                numbers = self._numbers.get(pattern, lambda: Numbers(self.device, job, case))
                return Resident(self.device, job, case, numbers)

        return self._residents.get((*pattern, str(job.program.format)), make)

    def _verify(
        self,
        job: Job,
        functions: dict[str, Any],
        batch: list[tuple[Case, Resident, int, int]],
        deadline_s: float,
    ) -> dict[str, Any] | None:
        """Run every (case, resident, arena, draw) and audit each; the first failure as fields of a Verdict."""
        self.device.reset_audits()
        at = 0
        try:
            for at, (case, resident, arena, number) in enumerate(batch):
                resident.restore(arena, job, case, number)
                if at == len(batch) - 1:  # the target, once it has run before: how long it takes, about
                    self.device.stamp(0)
                self._launch(case, functions, resident, arena)
                if at == len(batch) - 1:
                    self.device.stamp(1)
                resident.audit(at, job, case, arena, number)
            self.device.wait(deadline_s)
        except DeviceFault as fault:
            if not fault.poisoned:  # the driver refused a launch
                self.device.wait(TRUSTED_S)
                return {"status": fault.status, "message": fault.message, "failed_on": batch[at][0].name}
            at = min(self.device.audited(), len(batch) - 1)
            return {
                "status": fault.status, "message": fault.message, "poisoned": True, "failed_on": batch[at][0].name
            }  # fmt: skip
        for found, (case, resident, arena, number) in zip(self.device.audits(len(batch)), batch, strict=True):
            wrong = resident.verdict(found, job, case, arena, number)
            if wrong is not None:
                again = self._once_more(job, case, functions, resident, arena, number, deadline_s)
                return {"status": (again or wrong).status, "message": (again or wrong).message, "failed_on": case.name}
        return None

    def _once_more(
        self,
        job: Job,
        case: Case,
        functions: dict[str, Any],
        resident: Resident,
        arena: int,
        number: int,
        deadline_s: float,
    ) -> DeviceFault | None:
        """What is wrong, told of a run whose output still lies there (a later case may have used the arena)."""
        self.device.reset_audits()
        resident.restore(arena, job, case, number)
        self._launch(case, functions, resident, arena)
        resident.audit(0, job, case, arena, number)
        self.device.wait(deadline_s)
        return resident.verdict(self.device.audits(1)[0], job, case, arena, number)

    def _launch(self, case: Case, functions: dict[str, Any], resident: Resident, arena: int) -> None:
        for launch in case.launches:
            arguments = resident.arguments(arena, launch)
            try:
                self.device.launch(functions[launch.kernel], launch.grid, launch.block, arguments, launch.shared_bytes)
            except DeviceFault as fault:
                raise DeviceFault(fault.status, f"{launch.kernel}: {fault.message}", fault.poisoned) from None

    # -- timing --------------------------------------------------------------------------------------------------

    def _time(
        self, job: Job, case: Case, resident: Resident, functions: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        """The duel with the fastest baseline. Arena 0 holds the program's second draw, arena 1 its first."""
        result: dict[str, Any] = {
            "timing": "measured", "convert_us": case.stored.convert_us, "bytes_moved": resident.input_bytes
        }  # fmt: skip
        if not case.launches or case.matrix.nnz == 0:
            return {**result, "note": "nothing to time: the matrix has no entries"}
        first, second = chosen_draws(job.program_hash)
        rotate = self._rotation(resident)

        def enqueue(run: int) -> None:
            self._launch(case, functions, resident, run % rotate)

        deadline_s = request["deadline_s"]
        estimate_us = self.device.stamped_us()  # some 2 us more than a short program takes in a graph
        with self._spending("capture"):
            ours = self._side(enqueue, estimate_us)
        if request.get("self_duel"):
            theirs, named = self._side(enqueue, estimate_us), {"baseline": "itself"}
        else:
            with self._spending("baselines"):
                baselines = self._baselines_of(job, case, request.get("baselines"))
            theirs, named = baselines.best, {"baseline": baselines.best.name, "baselines": baselines.times}
        before = self.device.clocks()
        with self._spending("duel"):
            fields = duel(self.device, ours, theirs, deadline_s * 20)
        after = self.device.clocks()
        with self._spending("recheck"):
            self._verify_timed(job, case, resident, ours, rotate, (second, first), deadline_s)
        floor_us = self._floor_us(job, case, Facts(**request["facts"]))
        throttle = ", ".join(sorted({clock.throttle for clock in (before, after) if clock.throttle}))
        speeds = (before.sm_mhz, after.sm_mhz)
        why = doubts(fields, floor_us, throttle, max(speeds) / max(1, min(speeds)) - 1)
        return {
            **result,
            **named,
            **fields,
            "floor_us": floor_us,
            "reliable": not why,
            "unreliable_because": why or None,
            "clocks": after.to_dict(),
        }

    def _side(self, enqueue: Callable[[int], None], estimate_us: float) -> Side:
        runs = runs_for(estimate_us)
        return Side("program", self.device.graph(enqueue, runs), runs, lambda: enqueue(0))

    def _verify_timed(
        self,
        job: Job,
        case: Case,
        resident: Resident,
        ours: Side,
        rotate: int,
        numbers: tuple[int, int],
        deadline_s: float,
    ) -> None:
        """Audit what the timed runs left, then replay the very graph that was timed on other numbers and audit that."""
        self.device.reset_audits()
        for arena in range(rotate):
            resident.audit(arena, job, case, arena, numbers[arena])
        for arena in range(rotate):
            resident.restore(arena, job, case, numbers[1 - arena])
        ours.replay()
        for arena in range(rotate):
            resident.audit(rotate + arena, job, case, arena, numbers[1 - arena])
        self.device.wait(deadline_s * 5)
        for slot, found in enumerate(self.device.audits(2 * rotate)):
            arena = slot % rotate
            number = numbers[arena] if slot < rotate else numbers[1 - arena]
            wrong = resident.verdict(found, job, case, arena, number, " (after timing)")
            if wrong is not None:
                raise wrong

    def _baselines_of(self, job: Job, case: Case, known: dict[str, float] | None) -> Any:
        key = (pattern_key(case.matrix), job.operator, job.width)
        draws = tuple(numbered_draw(job, case, number) for number in _BASELINE_DRAWS)
        return self._baselines.get(
            key, lambda: self._make_baselines(self.device, case.matrix, job.operator, job.width, draws, known)
        )

    def _floor_us(self, job: Job, case: Case, facts: Facts) -> float:
        """No program can be faster: its least bytes over the measured bandwidth of where they lie, or an empty launch.

        A compressed format moves fewer bytes than CSR; its own size counts where that is smaller.
        """
        least = OPERATORS[job.operator].bytes_min(case.matrix, job.width)
        own = case.stored.bytes + 4 * job.width * (case.matrix.rows + case.matrix.cols)
        fits = least <= self.device.l2_bytes
        bandwidth = max(facts.l2_bandwidth, facts.copy_bandwidth) if fits else facts.copy_bandwidth
        moved_us = min(least, own) / bandwidth if bandwidth else 0.0
        return max(moved_us, facts.launch_us * len(case.launches))


def _on_this_gpu() -> Executor:
    executor = Executor(CudaDevice())
    confine(CONFINEMENT)  # a context cannot be made in confinement
    return executor


def serve(connection: socket.socket, make: Callable[[], Executor] = _on_this_gpu) -> None:
    """Answer requests until the connection closes.

    While the device times one program, the host plans what the next request asks for.

    Args:
        connection: to components/judge/gpu.py.
        make: called at the first request; by default makes the context and then confines this process.
    """
    remember(_HOST_BYTES)
    executor: Executor | None = None
    planned: deque[Plan] = deque()

    def look_ahead() -> None:
        if not planned and select.select([connection], [], [], 0)[0]:
            planned.append(_received(connection))

    while True:
        current = planned.popleft() if planned else _received(connection)
        try:
            if executor is None:
                executor = make()
                executor.device.meanwhile = look_ahead
            result = _answer(executor, current, lambda stage: wire.send(connection, {"stage": stage}))
            answer: dict[str, Any] = {"result": result}
        except wire.Closed:
            raise
        except Exception:
            answer = {"bug": traceback.format_exc()}
        wire.send(connection, {**answer, "nonce": current.request.get("nonce")})


def _received(connection: socket.socket) -> Plan:
    request = wire.receive(connection)
    if request["op"] != "judge":
        return Plan(request)
    try:
        return plan(request)
    except Exception:
        return Plan(request, bug=traceback.format_exc())


def _answer(executor: Executor, planned: Plan, announce: Callable[[str], None]) -> dict[str, Any]:
    start = time.perf_counter()
    operation = planned.request["op"]
    if operation == "identify":
        device = executor.device
        return {"gpu": device.name, "l2_bytes": device.l2_bytes, "guards": device.guards}
    if operation == "facts":
        facts: dict[str, Any] = executor.device.measure_facts().to_dict()
        return facts
    if operation == "prepare":
        return executor.prepare(planned.request)
    announce("check")
    if planned.bug is not None:
        raise RuntimeError(planned.bug)
    answer = executor.run(planned, announce)
    spent, executor.spent = dict(executor.spent), defaultdict(float)
    return {**answer, "spent_s": spent | {"all": time.perf_counter() - start}}
