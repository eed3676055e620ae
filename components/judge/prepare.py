"""One program on one matrix, ready to run: converted, bound, with numbers drawn. Shared by both backends."""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.files import sha256_text
from components.judge.adversarial import MIN_APPLICABLE, adversarial_matrices
from components.judge.memo import Memo
from components.judge.verify import Draw, chosen_draws, draw, pattern_key
from components.kernel.bind import bind
from components.kernel.formats import convert, fill_values
from components.kernel.operators import OPERATORS
from components.kernel.precision import Precision, get_precision
from components.kernel.program import parse
from components.kernel.types import (
    BoundLaunch,
    FormatNotApplicable,
    FormatSpec,
    KernelProgram,
    ProgramError,
    StoredMatrix,
)
from components.matrix.types import SparseMatrix

NOTHING_TO_TIME = "the matrix has no entries: nothing to time"


@dataclass(frozen=True, eq=False)
class Job:
    """What is judged: a program for one operator on one matrix."""

    program: KernelProgram
    program_hash: str
    operator: str
    width: int
    precision: Precision
    target: SparseMatrix | None  # None: the adversarial set alone
    adversarial: bool  # False: the target alone


@dataclass(frozen=True, eq=False)
class Case:
    """One matrix of a job."""

    matrix: SparseMatrix
    stored: StoredMatrix
    launches: tuple[BoundLaunch, ...]  # those with an empty grid left out: there is nothing to launch
    is_target: bool

    @property
    def name(self) -> str:
        """How messages name the matrix."""
        return self.matrix.id


@dataclass(frozen=True, eq=False)
class Buffer:
    """One array that kernels see by name."""

    name: str
    data: np.ndarray[Any, Any]  # flat, contiguous
    writable: bool


@functools.lru_cache(maxsize=256)
def parsed(source: str) -> KernelProgram:
    """`parse`, remembered; a ProgramError is not."""
    return parse(source)


@functools.lru_cache(maxsize=32)
def load_pattern(path: str, key: str, name: str, group: str) -> SparseMatrix:
    """A matrix that the judge handed over as a file (see components/judge/handover.py); `key` names its pattern."""
    del key
    with np.load(Path(path)) as data:
        rows, cols = (int(number) for number in data["shape"])
        row_ptr, col_idx = data["row_ptr"], data["col_idx"]
    return SparseMatrix(name, group, rows, cols, row_ptr, col_idx, np.ones(len(col_idx)), nnz_stored=len(col_idx))


def job_of(request: dict[str, Any]) -> Job:
    """The job that a check request describes."""
    source = request["source"]
    return Job(
        program=parsed(source),
        program_hash=sha256_text(source),
        operator=request["operator"],
        width=request["width"],
        precision=get_precision(request["precision"]),
        target=None if request["matrix"] is None else load_pattern(**request["matrix"]),
        adversarial=request["adversarial"],
    )


def cases(job: Job) -> Iterator[Case]:
    """The adversarial matrices that the program's format can store, then the target.

    Raises:
        FormatNotApplicable: the target cannot be stored.
        ProgramError: a launch cannot be bound on one of them, or launches nothing where there is work.
    """
    target = _case(job, job.target, True) if job.target is not None else None
    for matrix in adversarial_matrices(job.operator, job.width) if job.adversarial else ():
        try:
            yield _case(job, matrix, False)
        except FormatNotApplicable:
            continue
    if target is not None:
        yield target


def coverage_note(job: Job, checked: int) -> str:
    """What to say of a program whose format fits few of the adversarial matrices; empty when it fits enough."""
    total = len(adversarial_matrices(job.operator, job.width))
    if not job.adversarial or checked >= MIN_APPLICABLE:
        return ""
    return f"format {job.program.format.name} fits {checked} of the {total} adversarial matrices: thinly checked"


def draws(job: Job, case: Case) -> Iterator[Draw]:
    """The program's two draws of numbers for a case."""
    for number in draws_of(job):
        yield numbered_draw(job, case.matrix, number)


def draws_of(job: Job) -> tuple[int, int]:
    """The numbers of the program's two draws."""
    return chosen_draws(job.program_hash, job.target.nnz * job.width if job.target is not None else 0)


def numbered_draw(job: Job, matrix: SparseMatrix, number: int) -> Draw:
    """One of the prepared draws of numbers for a matrix."""
    key = (pattern_key(matrix), job.operator, job.width, job.precision.name, number)
    return _DRAWS.get(key, lambda: draw(matrix, OPERATORS[job.operator], job.width, number, job.precision))


def shuffled_case(job: Job) -> Case | None:
    """The target with its rows in another order: what a program knows of the first order does not help it.

    None where the format cannot store it, or where the order is what makes the format fit (diagonals, blocks).
    """
    if job.target is None or job.program.format.name not in _ORDER_FREE:
        return None
    target = job.target
    try:
        return _case(job, _SHUFFLED.get(pattern_key(target), lambda: _shuffled(target)), False)
    except FormatNotApplicable:
        return None


def buffers(job: Job, case: Case, numbers: Draw) -> list[Buffer]:
    """Every array by name; the output holds NaN."""
    operator = OPERATORS[job.operator]
    values = _filled(case.stored, numbers)
    found = [Buffer(name, values if name == "values" else array, False) for name, array in case.stored.arrays.items()]
    found += [Buffer(name, np.ascontiguousarray(array).ravel(), False) for name, array in numbers.inputs.items()]
    output = np.full(case.matrix.rows * job.width, np.nan, job.precision.output_dtype)
    found.append(Buffer(operator.output, output, True))
    return found


def _filled(stored: StoredMatrix, numbers: Draw) -> np.ndarray[Any, Any]:
    """A draw's values in a format's slots; nobody writes to it."""
    return _FILLED.get((id(stored), id(numbers)), lambda: (fill_values(stored, numbers.values), stored, numbers))[0]


def _case(job: Job, matrix: SparseMatrix, is_target: bool) -> Case:
    stored = _converted(matrix, job.program.format, job.precision)
    if isinstance(stored, FormatNotApplicable):
        raise FormatNotApplicable(str(stored))
    launches = bind(job.program, stored, OPERATORS[job.operator], job.width, job.precision)
    _check_grids(job.program, launches, matrix)
    return Case(matrix, stored, tuple(launch for launch in launches if 0 not in launch.grid), is_target)


def _check_grids(program: KernelProgram, launches: tuple[BoundLaunch, ...], matrix: SparseMatrix) -> None:
    """A grid of no blocks is an error of CUDA; it is left out only where the matrix leaves nothing to do.

    Raises:
        ProgramError: `launch_error` with the launch's line.
    """
    if matrix.rows == 0 or matrix.nnz == 0:
        return
    for launch, spec in zip(launches, program.launches, strict=True):
        if 0 in launch.grid:
            size = f"{matrix.rows} rows and {matrix.nnz} entries"
            message = f"grid={','.join(spec.grid)} is empty on {matrix.id} of {size}; expected at least one block"
            raise ProgramError("launch_error", message, spec.line)


def remember(max_bytes: int) -> None:
    """Let this process keep so many bytes of converted matrices, and as many of numbers (256 MiB unless told)."""
    _STORED.max_bytes = _DRAWS.max_bytes = max_bytes


def _shuffled(matrix: SparseMatrix) -> SparseMatrix:
    rng = np.random.default_rng(int(pattern_key(matrix)[:16], 16))
    order = rng.permutation(matrix.rows)
    lengths = np.diff(matrix.row_ptr)[order]
    row_ptr: NDArray[np.int64] = np.zeros(matrix.rows + 1, np.int64)
    np.cumsum(lengths, out=row_ptr[1:])
    source = np.repeat(matrix.row_ptr[:-1][order] - row_ptr[:-1], lengths) + np.arange(matrix.nnz)
    return dataclasses.replace(
        matrix, name=f"{matrix.name} (rows shuffled)", row_ptr=row_ptr, col_idx=matrix.col_idx[source]
    )


def _converted(matrix: SparseMatrix, spec: FormatSpec, precision: Precision) -> StoredMatrix | FormatNotApplicable:
    def make() -> StoredMatrix | FormatNotApplicable:
        try:
            return convert(spec, matrix, precision.value_dtype)
        except FormatNotApplicable as error:
            return error

    return _STORED.get((pattern_key(matrix), str(spec), precision.name), make)


def _bytes_of_draw(numbers: Draw) -> int:
    own = numbers.values.nbytes + numbers.expected.nbytes + numbers.bound.nbytes
    return own + sum(array.nbytes for array in numbers.inputs.values())


_ORDER_FREE = ("csr", "coo", "sell")
_SHUFFLED: Memo[SparseMatrix] = Memo(256 << 20, lambda matrix: matrix.nnz * 20)
_STORED: Memo[StoredMatrix | FormatNotApplicable] = Memo(
    256 << 20, lambda stored: stored.bytes + stored.value_slots.nbytes if isinstance(stored, StoredMatrix) else 64
)
# Keyed by identity: an entry keeps what it was made of alive, so that no other can take its place.
_FILLED: Memo[tuple[np.ndarray[Any, Any], StoredMatrix, Draw]] = Memo(64 << 20, lambda entry: entry[0].nbytes)
_DRAWS: Memo[Draw] = Memo(256 << 20, _bytes_of_draw)
