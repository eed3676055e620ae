"""A judge that knows each program's time by a formula of its parameters, and what it was asked."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from components.campaign.rows import Session
from components.campaign.sizes import Machine
from components.judge.verdict import Status, Verdict
from components.kernel.families import all_programs, program_hash

MACHINE = Machine(copy_bandwidth=4e6, l2_bandwidth=8e6, l2_bytes=50_000_000, launch_us=1.6)
SESSION = Session("s", "sm_90", "Fake GPU", "580", MACHINE)
BASELINE_US = 10.0


def parameters_of(operator: str = "spmv") -> dict[str, tuple[str, dict[str, Any]]]:
    return {program_hash(p.source): (p.family, dict(p.parameters)) for p in all_programs(operator)}


class FakeJudge:
    """Times are `time_us(family, parameters, matrix)`; None is a wrong program. A fresh measurement adds `fresh_us`."""

    arch, compiler = "sm_90", "nvrtc fake"

    def __init__(
        self,
        time_us: Callable[[str, dict[str, Any], Any], float | None],
        fresh_us: float = 0.0,
        before: Callable[[int], None] = lambda batch: None,
    ):
        self.time_us, self.fresh_us, self.before = time_us, fresh_us, before
        self.asked: list[str] = []
        self.again: list[str] = []
        self.batches = 0
        self.unreliable: list[str] = []  # hashes whose next fresh measurement is noise
        self._known = {**parameters_of("spmv"), **parameters_of("spmm")}
        self._lock = threading.Lock()

    gpu = {"gpu": "Fake GPU", "driver": "580"}  # noqa: RUF012 - never changed
    machine = MACHINE

    def gpu_seconds(self) -> float:
        return 0.5 * (len(self.asked) + len(self.again))

    def judge_many(self, requests):
        return self._answers(requests, self.asked, 0.0)

    def measure_again(self, requests):
        return self._answers(requests, self.again, self.fresh_us)

    def _answers(self, requests, noted, more):
        with self._lock:
            self.batches += 1
            self.before(self.batches)
            noted += [program_hash(request.source) for request in requests]
            return [self._verdict(request, more) for request in requests]

    def _verdict(self, request, more) -> Verdict:
        digest = program_hash(request.source)
        family, parameters = self._known[digest]
        found = {"arch": self.arch, "compiler": self.compiler, "operator": request.operator, "width": request.width}
        found |= {"program_hash": digest, "code_hash": hashlib.sha256(request.source.encode()).hexdigest()}
        time_us = self.time_us(family, parameters, request.matrix)
        if time_us is None:
            return Verdict(Status.WRONG, "row 0 is off", failed_on="adversarial/empty", **found)
        time_us += more
        noise = bool(more) and digest in self.unreliable
        if noise:
            self.unreliable.remove(digest)
        return Verdict(
            Status.CORRECT,
            timing="measured",
            gpu="Fake GPU",
            driver="580",
            time_us=time_us,
            p10_us=time_us,
            p90_us=time_us,
            cv=0.01,
            samples=40,
            baseline="cusparse:csr_alg2",
            baseline_us=BASELINE_US,
            baselines={"cusparse:csr_alg2": BASELINE_US, "cupy": 12.0},
            speedup=BASELINE_US / time_us,
            speedup_interval=(0.99 * BASELINE_US / time_us, 1.01 * BASELINE_US / time_us),
            time_cold_us=2 * time_us,
            speedup_cold=BASELINE_US / time_us / 2,
            speedup_cold_interval=(0.4, 0.6),
            convert_us=1000.0,
            break_even=None,
            bytes_moved=8 * request.matrix.nnz
            + 4 * (request.matrix.rows + 1)
            + 4 * request.width * (request.matrix.rows + request.matrix.cols),
            floor_us=1.6,
            registers=32,
            spill_bytes=0,
            shared_bytes=0,
            compile_ms=30.0,
            reliable=not noise,
            unreliable_because="samples vary by 9 %" if noise else None,
            clocks={"sm_mhz": 1980.0, "memory_mhz": 3201.0, "temperature_c": 40.0, "throttle": ""},
            **found,
        ).with_break_even()
