"""The arithmetic of a check: which numbers go in, what must come out, and how far off is wrong."""

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge.splitmix import coins, signed
from components.kernel.precision import FLOAT32, Precision
from components.matrix.types import SparseMatrix

DRAWS = 4  # prepared draws of each matrix at the most; a program gets two that its hash picks
_FEWER = ((100_000_000, 2), (4_000_000, 3))  # products of one run, and how many draws are prepared beyond that


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of numbers for one pattern: values [nnz], operands by name, both as kernels see them; the float64 answer.

    Half of the rows, picked at random, are scaled by 2^-20 (float16: 2^-10): the bound is per row, so that tiny answers
    are checked as strictly as large ones, and a kernel that writes zeros does not pass as close enough.
    """

    values: NDArray[Any]
    inputs: Mapping[str, NDArray[Any]]
    expected: NDArray[np.float64]  # flat
    bound: NDArray[np.float64]  # flat; 0 for an empty row, whose answer must be exactly 0


@dataclass(frozen=True)
class Mismatch:
    """The first element that is off by more than its bound."""

    row: int
    column: int
    got: float
    expected: float
    bound: float
    count: int  # elements that are off

    def describe(self, width: int) -> str:
        """`row 3: got 0, expected 1.5 within 2e-07 (17 elements off)`."""
        where = f"row {self.row}" if width == 1 else f"row {self.row} column {self.column}"
        element = "element" if self.count == 1 else "elements"
        return (
            f"{where}: got {self.got:.9g}, expected {self.expected:.9g} within {self.bound:.3g} "
            f"({self.count} {element} off)"
        )


def draw(matrix: SparseMatrix, operator: Any, width: int, number: int, precision: Precision = FLOAT32) -> Draw:
    """Draw `number` for a matrix: signed values in +-[0.25, 1], new operands, float64 reference.

    Args:
        matrix: its values are ignored.
        operator: an entry of components.kernel.operators.OPERATORS.
        width: dense columns.
        number: other numbers give other values for the same pattern; programs get those from 0 to DRAWS - 1.
        precision: of the numbers.
    """
    of_values, of_rows, *of_operands = draw_keys(matrix, operator.name, width, number)
    scale = np.repeat(np.where(coins(of_rows, matrix.rows), precision.tiny, 1.0), np.diff(matrix.row_ptr))
    values = precision.encode(signed(of_values, matrix.nnz) * scale)
    valued = replace(matrix, values=precision.decode(values))
    inputs = {
        name: precision.encode(signed(key, math.prod(shape))).reshape(shape)
        for (name, shape), key in zip(operator.operand_shapes(matrix, width).items(), of_operands, strict=False)
    }
    seen = {name: precision.decode(array) for name, array in inputs.items()}
    expected = np.asarray(operator.reference(valued, seen), np.float64).ravel()
    bound = np.asarray(operator.error_bound(valued, seen, precision), np.float64).ravel()
    return Draw(values, inputs, expected, bound)


def draw_keys(matrix: SparseMatrix, operator: str, width: int, number: int) -> tuple[np.uint64, ...]:
    """The keys of a draw's numbers: of the values, of the choice of tiny rows, of up to two dense operands."""
    seed = f"{pattern_key(matrix)} {operator} {width} {number}"
    return tuple(np.frombuffer(hashlib.sha256(seed.encode()).digest(), np.uint64))


def check_output(output: NDArray[Any], numbers: Draw, width: int) -> Mismatch | None:
    """Compare one output with the reference: within the bound everywhere, no NaN, exactly 0 in empty rows.

    Args:
        output: float32 or float64, flat or rows x width, row-major.
        numbers: the draw that it was computed from.
        width: dense columns.
    """
    got = output.astype(np.float64).ravel()
    off = ~(np.abs(got - numbers.expected) <= numbers.bound)  # a NaN compares false, and so is off
    count = int(np.count_nonzero(off))
    if count == 0:
        return None
    index = int(np.argmax(off))
    row, column = divmod(index, width)
    return Mismatch(row, column, float(got[index]), float(numbers.expected[index]), float(numbers.bound[index]), count)


def prepared_draws(work: int) -> int:
    """How many draws programs share: where there is much to compute and to keep, fewer."""
    return next((draws for products, draws in _FEWER if work > products), DRAWS)


def chosen_draws(program_hash: str, work: int = 0) -> tuple[int, int]:
    """Two different draws, picked by the program.

    Args:
        program_hash: sha256 of its source.
        work: products of one run, entries times dense columns.
    """
    count = prepared_draws(work)
    first = int(program_hash[:8], 16) % count
    return first, (first + 1 + int(program_hash[8:16], 16) % (count - 1)) % count


def pattern_key(matrix: SparseMatrix) -> str:
    """SHA-256 of a matrix's shape and pattern; its values play no part in a verdict."""
    return _pattern_key(_ById(matrix))


class _ById:
    """A matrix as a dictionary key: equal only to itself."""

    def __init__(self, matrix: SparseMatrix):
        self.matrix = matrix

    def __hash__(self) -> int:
        return id(self.matrix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.matrix is self.matrix


@functools.lru_cache(maxsize=4096)
def _pattern_key(key: _ById) -> str:
    matrix = key.matrix
    digest = hashlib.sha256(f"{matrix.rows} {matrix.cols} {matrix.nnz}\n".encode())
    digest.update(np.ascontiguousarray(matrix.row_ptr, np.int64).tobytes())
    digest.update(np.ascontiguousarray(matrix.col_idx, np.int32).tobytes())
    return digest.hexdigest()
