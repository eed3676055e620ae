"""One row of the measurements: a program on a matrix, what the judge said, and where and when it was asked."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from components.campaign.plan import Problem
from components.campaign.search import PRUNED, Phase
from components.campaign.sizes import Machine, Sizes, format_of
from components.judge.verdict import Verdict
from components.kernel.families import RenderedProgram
from components.matrix.features import StructureFeatures, structure_class
from components.matrix.types import SparseMatrix

_MESSAGE = 240  # characters


@dataclass(frozen=True)
class Session:
    """One start of the campaign, and the machine it runs on."""

    name: str
    arch: str
    gpu: str | None  # None: times are modelled
    driver: str | None
    machine: Machine


@dataclass(frozen=True, eq=False)
class Subject:
    """A matrix and what is known of it."""

    matrix: SparseMatrix
    features: StructureFeatures
    sizes: Sizes

    @property
    def structure_class(self) -> str:
        """As the features say."""
        return structure_class(self.features)


def problem_columns(subject: Subject, problem: Problem, session: Session) -> dict[str, Any]:
    """What names a problem on a matrix and a machine."""
    matrix = subject.matrix
    return {
        "matrix": matrix.id,
        "rows": matrix.rows,
        "cols": matrix.cols,
        "nnz": matrix.nnz,
        "structure_class": subject.structure_class,
        "operator": problem.operator,
        "width": problem.width,
        "dtype": problem.precision,
        "arch": session.arch,
        "gpu": session.gpu,
    }


def verdict_row(
    subject: Subject,
    problem: Problem,
    session: Session,
    digest: str,
    program: RenderedProgram,
    verdict: Verdict,
    phase: Phase,
    number: int,
    seconds: float,
    gpu_seconds: float | None,
) -> dict[str, Any]:
    """The row of a judged program.

    Args:
        seconds: wall-clock share of its batch.
        gpu_seconds: share of the executor's time; None without a GPU.
    """
    format_line = str(format_of(program.source))
    stored = _bytes_stored(subject, problem, verdict)
    if stored is not None:
        subject.sizes.learn(format_line, problem.precision, stored)
    correct = verdict.correct
    low, high = verdict.speedup_interval or (None, None)
    cold_low, cold_high = verdict.speedup_cold_interval or (None, None)
    clocks = verdict.clocks or {}
    return {
        **_program_columns(subject, problem, session, digest, program),
        "status": str(verdict.status),
        "message": None if correct else verdict.message[:_MESSAGE],
        "failed_on": verdict.failed_on,
        "code_hash": verdict.code_hash,
        "timing": verdict.timing if correct else None,
        "driver": session.driver,
        "compiler": verdict.compiler,
        "time_us": verdict.time_us if correct else None,
        "p10_us": verdict.p10_us,
        "p90_us": verdict.p90_us,
        "cv": verdict.cv,
        "samples": verdict.samples,
        "time_cold_us": verdict.time_cold_us,
        "baseline": verdict.baseline,
        "baseline_us": verdict.baseline_us,
        "baselines": json.dumps(verdict.baselines, sort_keys=True) if verdict.baselines else None,
        "speedup": verdict.speedup,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_cold": verdict.speedup_cold,
        "speedup_cold_low": cold_low,
        "speedup_cold_high": cold_high,
        "convert_us": verdict.convert_us,
        "break_even": verdict.break_even,
        "bytes_stored": stored,
        "bytes_moved": verdict.bytes_moved,
        "floor_us": verdict.floor_us,
        "registers": verdict.registers,
        "spill_bytes": verdict.spill_bytes,
        "shared_bytes": verdict.shared_bytes,
        "compile_ms": verdict.compile_ms,
        "reliable": verdict.reliable,
        "unreliable_because": verdict.unreliable_because,
        "sm_mhz": clocks.get("sm_mhz"),
        "memory_mhz": clocks.get("memory_mhz"),
        "temperature_c": clocks.get("temperature_c"),
        "throttle": clocks.get("throttle") or None,
        "from_cache": verdict.from_cache,
        "phase": phase,
        "round": number,
        "seconds": round(seconds, 4),
        "gpu_seconds": None if gpu_seconds is None else round(gpu_seconds, 4),
        "session": session.name,
    }


def pruned_row(
    subject: Subject,
    problem: Problem,
    session: Session,
    digest: str,
    program: RenderedProgram,
    floor_us: float,
    number: int,
) -> dict[str, Any]:
    """The row of a program that cannot win and was not judged; `floor_us` is the time that it cannot be under."""
    empty = Verdict.from_dict({"status": "correct"})
    row = verdict_row(subject, problem, session, digest, program, empty, "search", number, 0.0, None)
    return {**row, "status": PRUNED, "driver": None, "from_cache": None, "floor_us": floor_us}


def matrix_row(subject: Subject) -> dict[str, Any]:
    """A matrix with all its features."""
    matrix = subject.matrix
    return {
        "matrix": matrix.id,
        "name": matrix.name,
        "group": matrix.group,
        "source": matrix.source,
        "sha256": matrix.sha256,
        "field": matrix.field,
        "symmetry": matrix.symmetry,
        "structure_class": subject.structure_class,
        **asdict(subject.features),
    }


def _program_columns(
    subject: Subject, problem: Problem, session: Session, digest: str, program: RenderedProgram
) -> dict[str, Any]:
    return {
        **problem_columns(subject, problem, session),
        "family": program.family,
        "parameters": json.dumps(dict(program.parameters)),
        "format": str(format_of(program.source)),
        "program_hash": digest,
    }


def _bytes_stored(subject: Subject, problem: Problem, verdict: Verdict) -> int | None:
    """Bytes of the matrix in its format: on a GPU, all that the program's arrays take less the dense ones.

    The interpreter counts traffic, which says nothing of them.
    """
    if verdict.timing != "measured" or verdict.bytes_moved is None:
        return None
    return verdict.bytes_moved - problem.operand_bytes(subject.matrix.rows, subject.matrix.cols)
