"""One GPU: programs that are not trusted are planned on the host, verified on the device, and timed there."""

import base64
import contextlib
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any

from components.judge.baselines import Baselines
from components.judge.device import DeviceFault, Facts
from components.judge.memo import Memo
from components.judge.nvml import Clocks
from components.judge.prepare import (
    NOTHING_TO_TIME,
    Case,
    Job,
    cases,
    coverage_note,
    draws_of,
    job_of,
    load_pattern,
    shuffled_case,
)
from components.judge.residents import TRUSTED_S, Numbers, Resident
from components.judge.timing import Side, doubts, duel, runs_for
from components.judge.verify import DRAWS, pattern_key
from components.kernel.operators import OPERATORS
from components.kernel.precision import get_precision
from components.kernel.types import FormatNotApplicable, ProgramError

_RESIDENT_BYTES = 24 << 30
_PASSED = 65_536  # programs of which it is known that they passed the adversarial set
_MODULES = 128  # loaded programs
_BASELINE_DRAWS = (DRAWS, DRAWS + 1)  # none that programs get: what libraries leave behind is no answer for them
_L2_SHARE = 0.5  # of the L2 that both copies of a rotated working set may fill


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


def plan(request: dict[str, Any], passed: Container[str] = ()) -> Plan:
    """Work out what a request asks of the device.

    Args:
        request: of `Executor.judge`.
        passed: programs (see `passing_key`) that need not run on the adversarial set again.
    """
    if request["adversarial"] and passing_key(request) in passed:
        request = {**request, "adversarial": False}
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


def passing_key(request: dict[str, Any]) -> str:
    """Names what the adversarial set was run with."""
    return f"{request['code_hash']} {request['operator']} {request['width']} {request['precision']}"


class Executor:
    """One GPU, one context.

    Args:
        device: components.judge.device.CudaDevice, or a test's.
        make_baselines: as `Baselines`.
    """

    def __init__(self, device: Any, make_baselines: Callable[..., Any] = Baselines) -> None:
        self.device, self._make_baselines = device, make_baselines
        self._residents: Memo[Resident] = Memo(_RESIDENT_BYTES, lambda resident: resident.nbytes)
        self._numbers: Memo[Numbers] = Memo(_RESIDENT_BYTES // 2, lambda numbers: numbers.nbytes)
        self._baselines: Memo[Any] = Memo(_RESIDENT_BYTES // 2, lambda baselines: int(baselines.nbytes))
        self._modules: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.passed: OrderedDict[str, str] = OrderedDict()  # the adversarial set, by `passing_key`: what to say of it
        self._clocks: Clocks | None = None  # the latest reading, of an earlier duel
        self.spent: defaultdict[str, float] = defaultdict(float)  # seconds by what they went to, since the last answer

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the baselines of a matrix resident."""
        self.device.replay_us = request["facts"]["replay_us"]
        matrix = load_pattern(**request["matrix"])
        if matrix.nnz:
            precision = get_precision(request["precision"])
            source = OPERATORS[request["operator"]].reference_program(matrix, request["width"], precision)
            job = job_of({**request, "source": source, "adversarial": False})
            self._baselines_of(job, next(iter(cases(job))), request.get("baselines"))
        return {}

    def judge(self, request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
        """Fields of a Verdict; see components/judge/interpret.py for the same without a GPU.

        Args:
            request: `cubin` (base64), `code_hash`, `source`, `operator`, `width`, `precision`, `matrix`, `adversarial`
                (whether to run the adversarial set too), `deadline_s`, `facts`,
                `baselines` (times known in this session, or None),
                `self_duel` (time the program against itself, for the noise of the clock).
            announce: told the stage.
        """
        announce("check")
        return self.run(plan(request, self.passed), announce)

    def run(self, planned: "Plan", announce: Callable[[str], None]) -> dict[str, Any]:
        """What the device has to do for a request; see `judge`."""
        request, job = planned.request, planned.job
        if planned.refused is not None:
            return planned.refused
        assert job is not None
        self.device.replay_us = request["facts"]["replay_us"]
        where = ""
        try:
            with self._spending("load"):
                functions = self._load(request, job)
            batch: list[tuple[Case, Resident, int, int]] = []
            target: tuple[Case, Resident] | None = None
            draws = draws_of(job)
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
            coverage = self._covered(planned)
            timed: dict[str, Any] = {}
            if target is not None:
                announce("time")
                timed = self._time(job, *target, functions, request)
        except DeviceFault as fault:
            return {
                "status": fault.status, "message": fault.message, "poisoned": fault.poisoned, "failed_on": where or None
            }  # fmt: skip
        note = "; ".join(filter(None, [timed.pop("note", ""), coverage]))
        return {"status": "correct", "message": note, "format": str(job.program.format), **timed}

    @contextlib.contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] += time.perf_counter() - start

    def _covered(self, planned: Plan) -> str:
        """Remember that a program passed the adversarial set; what to say of it."""
        assert planned.job is not None
        key = passing_key(planned.request)
        if planned.job.adversarial:
            self.passed[key] = coverage_note(planned.job, len(planned.adversarial))
            while len(self.passed) > _PASSED:
                self.passed.popitem(last=False)
        return self.passed.get(key, "")

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
        def make() -> Resident:
            with self._spending("resident"):
                return Resident(self.device, job, case, self._numbers_of(job, case))

        return self._residents.get((*_problem_key(job, case), str(job.program.format)), make)

    def _numbers_of(self, job: Job, case: Case) -> Numbers:
        return self._numbers.get(_problem_key(job, case), lambda: Numbers(self.device, job, case.matrix))

    def _verify(
        self,
        job: Job,
        functions: dict[str, Any],
        batch: list[tuple[Case, Resident, int, int]],
        deadline_s: float,
    ) -> dict[str, Any] | None:
        """Run every (case, resident, arena, draw) and audit each; the first failure as fields of a Verdict."""
        # The last run is apart: it takes an arena that an earlier one had, and is timed roughly.
        groups = [group for group in (batch[:-1], batch[-1:]) if group]
        self.device.reset_audits()
        at = 0
        try:
            for group in groups:
                slots = self.device.enter([resident.entry(job, *which) for _, resident, *which in group])
                self.device.restore(slots)
                last = slots.stop == len(batch)
                if last:
                    self.device.hold()
                    self.device.stamp(0)
                for at, (case, resident, arena, _) in zip(slots, group, strict=True):
                    self._launch(case, functions, resident, arena)
                    if not last:
                        self.device.mark(at + 1)
                if last:
                    self.device.stamp(1)
                    self.device.mark(len(batch))
                    self.device.release()
                self.device.audit(slots)
            self.device.wait(deadline_s)
        except DeviceFault as fault:
            if not fault.poisoned:  # the driver refused a launch
                self.device.release()
                self.device.wait(TRUSTED_S)
                return {"status": fault.status, "message": fault.message, "failed_on": batch[at][0].name}
            at = min(self.device.marked(), len(batch) - 1)
            return {
                "status": fault.status, "message": fault.message, "poisoned": True, "failed_on": batch[at][0].name
            }  # fmt: skip
        for found, (case, resident, arena, number) in zip(self.device.audits(len(batch)), batch, strict=True):
            wrong = resident.verdict(found, job, arena, number)
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
        slots = self.device.enter([resident.entry(job, arena, number)])
        self.device.restore(slots)
        self._launch(case, functions, resident, arena)
        self.device.audit(slots)
        self.device.wait(deadline_s)
        return resident.verdict(self.device.audits(1)[0], job, arena, number)

    def _launch(self, case: Case, functions: dict[str, Any], resident: Resident, arena: int) -> None:
        self._enqueue(case, functions, [resident.arguments(arena, launch) for launch in case.launches])

    def _enqueue(self, case: Case, functions: dict[str, Any], arguments: list[tuple[Any, ...]]) -> None:
        for launch, values in zip(case.launches, arguments, strict=True):
            try:
                self.device.launch(functions[launch.kernel], launch.grid, launch.block, values, launch.shared_bytes)
            except DeviceFault as fault:
                raise DeviceFault(fault.status, f"{launch.kernel}: {fault.message}", fault.poisoned) from None

    # -- timing --------------------------------------------------------------------------------------------------

    def _time(
        self, job: Job, case: Case, resident: Resident, functions: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        """The duel with the fastest baseline. Arena 0 holds the program's second draw, arena 1 its first."""
        if case.matrix.nnz == 0:
            return {"note": NOTHING_TO_TIME}
        first, second = draws_of(job)
        rotate = self._rotation(resident)

        arguments = [[resident.arguments(arena, launch) for launch in case.launches] for arena in range(rotate)]

        def enqueue(run: int) -> None:
            self._enqueue(case, functions, arguments[run % rotate])

        deadline_s = request["deadline_s"]
        estimate_us = self.device.stamped_us()  # some 2 us more than a short program takes in a graph
        with self._spending("capture"):
            ours = self._side(enqueue, estimate_us, rotate)
        if request.get("self_duel"):
            theirs, named = self._side(enqueue, estimate_us, rotate), {"baseline": "itself"}
        else:
            with self._spending("baselines"):
                baselines = self._baselines_of(job, case, request.get("baselines"))
            theirs, named = baselines.best, {"baseline": baselines.best.name, "baselines": baselines.times}
        checks = _TimedChecks(self.device, job, resident, ours, rotate, (second, first))
        readings = [self._clocks] if self._clocks is not None else []
        with self._spending("duel"):
            fields = duel(
                self.device,
                ours,
                theirs,
                deadline_s * 20,
                then=checks.enqueue,
                during=lambda: readings.append(self.device.clocks()),
            )
        self._clocks = readings[-1]
        with self._spending("recheck"):
            checks.verify()
        floor_us = self._floor_us(job, case, Facts(**request["facts"]))
        throttle = ", ".join(sorted({reading.throttle for reading in readings if reading.throttle}))
        speeds = [reading.sm_mhz for reading in readings]
        why = doubts(fields, floor_us, throttle, max(speeds) / max(1, min(speeds)) - 1)
        return {
            "timing": "measured",
            "convert_us": case.stored.convert_us,
            "bytes_moved": resident.input_bytes,
            **named,
            **fields,
            "floor_us": floor_us,
            "reliable": not why,
            "unreliable_because": why or None,
            "clocks": readings[-1].to_dict(),
        }

    def _side(self, enqueue: Callable[[int], None], estimate_us: float, rotate: int) -> Side:
        runs = runs_for(estimate_us, rotate)
        return Side("program", self.device.graph(enqueue, runs), runs, lambda: enqueue(0), estimate_us=estimate_us)

    def _baselines_of(self, job: Job, case: Case, known: dict[str, float] | None) -> Any:
        def make() -> Any:
            numbers = self._numbers_of(job, case)
            draws = tuple(numbers.make(number) for number in _BASELINE_DRAWS)
            problem = job.operator, job.width, job.precision
            return self._make_baselines(
                self.device, case.matrix, *problem, pattern=numbers.pattern, draws=draws, known=known
            )

        return self._baselines.get(_problem_key(job, case), make)

    def _floor_us(self, job: Job, case: Case, facts: Facts) -> float:
        """No program can be faster: its least bytes over the measured bandwidth of where they lie, or an empty launch.

        A compressed format moves fewer bytes than CSR; its own size counts where that is smaller.
        """
        precision, matrix = job.precision, case.matrix
        least = OPERATORS[job.operator].bytes_min(matrix, job.width, precision)
        dense = precision.output_bytes * matrix.rows + precision.value_bytes * matrix.cols
        own = case.stored.bytes + job.width * dense
        fits = least <= self.device.l2_bytes
        bandwidth = max(facts.l2_bandwidth, facts.copy_bandwidth) if fits else facts.copy_bandwidth
        moved_us = min(least, own) / bandwidth if bandwidth else 0.0
        return max(moved_us, facts.launch_us * len(case.launches))


def _problem_key(job: Job, case: Case) -> tuple[str | int, ...]:
    return pattern_key(case.matrix), job.operator, job.width, job.precision.name


class _TimedChecks:
    """Checks of timed runs, enqueued behind every batch: what they left is audited, then the very graph that was timed
    is replayed on other numbers and that is audited too.

    Args:
        numbers: the draws that arenas 0 and 1 hold.
    """

    def __init__(
        self, device: Any, job: Job, resident: Resident, ours: Side, rotate: int, numbers: tuple[int, int]
    ) -> None:
        self._device, self._job, self._resident, self._ours = device, job, resident, ours
        self._held = list(numbers[:rotate])
        self._other = dict(zip(numbers, reversed(numbers), strict=True))
        self._audited: list[tuple[int, int]] = []  # (arena, draw) by slot
        device.reset_audits()

    def enqueue(self) -> None:
        """Enqueue one round of checks."""
        self._device.audit(self._enter())
        self._held = [self._other[number] for number in self._held]
        slots = self._enter()
        self._device.restore(slots)
        self._ours.replay()
        self._device.audit(slots)

    def _enter(self) -> range:
        pairs = list(enumerate(self._held))
        self._audited += pairs
        slots: range = self._device.enter([self._resident.entry(self._job, *pair) for pair in pairs])
        return slots

    def verify(self) -> None:
        """Look at the audits, once the device has ended.

        Raises:
            DeviceFault: a timed run, or a run of what was timed, was wrong.
        """
        for found, (arena, number) in zip(self._device.audits(len(self._audited)), self._audited, strict=True):
            wrong = self._resident.verdict(found, self._job, arena, number, " (after timing)")
            if wrong is not None:
                raise wrong
