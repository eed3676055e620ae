"""The fixed set of matrices that every program must get right besides its own.

Small on purpose: together about 2,300 rows and 9,000 entries, so that the interpreter is done with a simple kernel in
some ten milliseconds. Each stands for a mistake that a program can hide on one friendly matrix; its name says which.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from components.matrix.types import SparseMatrix

GROUP = "adversarial"
MIN_APPLICABLE = 8  # of the set; a format that applies to fewer is checked too little to be trusted silently
_WIDE = 70_001  # more columns than a 16-bit index holds
_WIDEST_16_BIT = 65_536  # as many as it holds; half of them look negative to code that takes it for signed
_MAX_WIDE_WIDTH = 16  # dense columns up to which the wide matrix is worth its dense operand


def adversarial_matrices(operator: str, width: int) -> tuple[SparseMatrix, ...]:
    """The set for one operator; structure only (every value is 1), the same at every call.

    Args:
        operator: `spmv` or `spmm`.
        width: dense columns; the matrices of 65,536 columns and more are left out above 16.
    """
    del operator  # the patterns are hostile to both
    return tuple(matrix for matrix in _all() if matrix.cols < _WIDEST_16_BIT or width <= _MAX_WIDE_WIDTH)


@functools.cache
def _all() -> tuple[SparseMatrix, ...]:
    rng = np.random.default_rng(20_261_201)
    lengths = [0] * 33 + [3, 1, 0, 0, 7, 2] + [0] * 18 + [5] * 12 + [0, 1] * 4 + [0] * 20
    skewed = np.minimum(200, (3.0 / (1.0 - rng.random(80)) ** 1.1)).astype(np.int64)
    long_row = np.where(np.arange(40) == 17, 2_100, rng.integers(0, 3, 40))
    fixed = [
        _from_lengths("mixed", 61, lengths, rng),
        _from_lengths("no-rows", 5, [], rng),
        _from_lengths("no-entries", 7, [0] * 5, rng),
        _from_lengths("one-by-one", 1, [1], rng),
        _from_lengths("one-row", 300, [131], rng),
        _from_lengths("one-column", 1, [1, 0, 1] * 20, rng),
        # Rows of every length up to nine whose columns are all high: no branch of an unrolled loop may narrow them.
        _from_columns("wide", _WIDE, [[0, 65_535, 65_536, 70_000], [], [3, 70_000], *_high(65_536, _WIDE)]),
        _from_columns("wide-16-bit", _WIDEST_16_BIT, [[0, 32_767, 32_768, 65_535], [], *_high(32_768, _WIDEST_16_BIT)]),
        _from_columns("one-entry-rows", 66, [[int(c)] for c in rng.permutation(66)]),
        _from_lengths("long-row", 2_300, long_row.tolist(), rng),
        _from_lengths("partial-warps", 64, list(range(35)), rng),
        _from_columns("dense", 12, [list(range(12))] * 12),
        _from_columns("tridiagonal", 45, [[c for c in (r - 1, r, r + 1) if 0 <= c < 45] for r in range(45)]),
        _from_lengths("skewed", 400, skewed.tolist(), rng),
    ]
    # Sizes at and beside the boundaries of warps, blocks and unrolled loops: rows and entries alike.
    sized = [
        (32, 31), (33, 257), (63, 256), (65, 1_025), (127, 512), (129, 1_023), (256, 255), (1_025, 1_024),
    ]  # fmt: skip
    for rows, nnz in sized:
        spread = np.bincount(rng.integers(0, rows, nnz), minlength=rows)
        fixed.append(_from_lengths(f"{rows}-rows-{nnz}-entries", rows + 1, spread.tolist(), rng))
    return tuple(fixed)


def _high(first: int, end: int) -> list[list[int]]:
    """Rows of one to nine entries, spread over the columns from `first` to `end`."""
    return [[end - 1 - (end - 1 - first) * k // length for k in range(length)][::-1] for length in range(1, 10)]


def _from_lengths(name: str, cols: int, lengths: list[int], rng: np.random.Generator) -> SparseMatrix:
    return _from_columns(name, cols, [sorted(rng.permutation(cols)[:length].tolist()) for length in lengths])


def _from_columns(name: str, cols: int, columns: list[list[int]]) -> SparseMatrix:
    row_ptr: NDArray[np.int64] = np.zeros(len(columns) + 1, np.int64)
    np.cumsum([len(row) for row in columns], out=row_ptr[1:])
    col_idx = np.array([column for row in columns for column in row], np.int32)
    return SparseMatrix(
        name=name,
        group=GROUP,
        rows=len(columns),
        cols=cols,
        row_ptr=row_ptr,
        col_idx=col_idx,
        values=np.ones(len(col_idx)),
        field="pattern",
        nnz_stored=len(col_idx),
        source="built in",
    )
