"""Structure of a matrix in numbers: one pass over its pattern, O(nnz), and the class that follows from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.matrix.types import SparseMatrix

Array = np.ndarray[Any, np.dtype[Any]]

STRUCTURE_CLASSES = (
    "tiny",
    "diagonal",
    "hypersparse",
    "rectangular",
    "dense-rows",
    "power-law",
    "stencil",
    "block",
    "banded",
    "uniform",
    "other",
)
WARP = 32


@dataclass(frozen=True)
class StructureFeatures:
    """Counts and shares that describe where the entries lie; every one is finite, whatever the matrix.

    Lengths are entries per row (or column); shares lie in [0, 1].
    """

    rows: int
    cols: int
    nnz: int
    density: float  # nnz / (rows * cols)
    row_len_mean: float
    row_len_min: int
    row_len_max: int
    row_len_cv: float  # standard deviation / mean
    row_len_median: float
    row_len_p99: float
    col_len_max: int
    col_len_cv: float
    empty_rows: int
    bandwidth: int  # max |i - j|
    mean_distance: float  # mean |i - j|
    distinct_diagonals: int  # different j - i
    diagonal_fill: float  # nnz / (rows * distinct_diagonals): the fill of DIA storage
    main_diagonal: float  # share of the main diagonal that is there
    run_len_mean: float  # mean length of a run of consecutive columns in a row
    block2_fill: float  # nnz / (4 * aligned 2 x 2 blocks that hold an entry)
    block3_fill: float
    block4_fill: float
    pattern_symmetry: float  # share of off-diagonal entries whose mirror is there; 0 unless square, 1 without any
    top_rows_share: float  # share of the entries in the longest 1 % of the rows
    warp_fill: float  # nnz / slots when 32 neighbouring rows are padded to the longest of them
    sorted_warp_fill: float  # the same after sorting the rows by length

    def vector(self) -> Array:
        """float32[len(FEATURE_NAMES)], every component in about [-1, 1]: logarithms, ratios, class membership."""
        wide = max(self.rows, self.cols, 1)
        numbers = {
            "log_rows": math.log10(1 + self.rows) / 8,
            "log_cols": math.log10(1 + self.cols) / 8,
            "log_nnz": math.log10(1 + self.nnz) / 8,
            "log_density": math.log10(self.density + 1e-10) / 10,
            "aspect": math.tanh(math.log10((1 + self.rows) / (1 + self.cols))),
            "log_row_len_mean": math.log10(1 + self.row_len_mean) / 4,
            "log_row_len_max": math.log10(1 + self.row_len_max) / 6,
            "min_over_mean": self.row_len_min / max(self.row_len_mean, 1e-9),
            "mean_over_max": self.row_len_mean / max(self.row_len_max, 1),
            "median_over_max": self.row_len_median / max(self.row_len_max, 1),
            "p99_over_max": self.row_len_p99 / max(self.row_len_max, 1),
            "row_len_cv": math.log1p(self.row_len_cv) / 3,
            "col_len_cv": math.log1p(self.col_len_cv) / 3,
            "empty_rows": self.empty_rows / max(self.rows, 1),
            "bandwidth": self.bandwidth / wide,
            "mean_distance": self.mean_distance / wide,
            "log_distinct_diagonals": math.log10(1 + self.distinct_diagonals) / 8,
            "diagonal_fill": self.diagonal_fill,
            "main_diagonal": self.main_diagonal,
            "log_run_len_mean": math.log10(1 + self.run_len_mean) / 3,
            "block2_fill": self.block2_fill,
            "block3_fill": self.block3_fill,
            "block4_fill": self.block4_fill,
            "pattern_symmetry": self.pattern_symmetry,
            "top_rows_share": self.top_rows_share,
            "warp_fill": self.warp_fill,
            "sorted_warp_fill": self.sorted_warp_fill,
            "fits_u16": float(self.cols <= 1 << 16),
        }
        own = structure_class(self)
        return np.array([*numbers.values(), *(float(own == name) for name in STRUCTURE_CLASSES)], np.float32)


FEATURE_NAMES: tuple[str, ...] = (
    "log_rows",
    "log_cols",
    "log_nnz",
    "log_density",
    "aspect",
    "log_row_len_mean",
    "log_row_len_max",
    "min_over_mean",
    "mean_over_max",
    "median_over_max",
    "p99_over_max",
    "row_len_cv",
    "col_len_cv",
    "empty_rows",
    "bandwidth",
    "mean_distance",
    "log_distinct_diagonals",
    "diagonal_fill",
    "main_diagonal",
    "log_run_len_mean",
    "block2_fill",
    "block3_fill",
    "block4_fill",
    "pattern_symmetry",
    "top_rows_share",
    "warp_fill",
    "sorted_warp_fill",
    "fits_u16",
    *(f"is_{name}" for name in STRUCTURE_CLASSES),
)


def structure_features(matrix: SparseMatrix) -> StructureFeatures:
    """Describe the pattern of `matrix` (explicit zeros count as entries); O(nnz + rows + cols) time and memory."""
    rows, cols, nnz = matrix.rows, matrix.cols, matrix.nnz
    lengths = np.diff(matrix.row_ptr)
    row_of = np.repeat(np.arange(rows, dtype=np.int32), lengths)
    offset = matrix.col_idx.astype(np.int64) - row_of
    diagonals = np.flatnonzero(np.bincount(offset + (rows - 1), minlength=1)) - (rows - 1) if nnz else np.empty(0, int)
    breaks = (np.diff(matrix.col_idx) != 1) | (np.diff(row_of) != 0)
    col_len = np.bincount(matrix.col_idx, minlength=cols) if nnz else np.zeros(cols, np.int64)
    descending = np.sort(lengths)[::-1]
    return StructureFeatures(
        rows=rows,
        cols=cols,
        nnz=nnz,
        density=_ratio(nnz, rows * cols),
        row_len_mean=_ratio(nnz, rows),
        row_len_min=int(descending[-1]) if rows else 0,
        row_len_max=int(descending[0]) if rows else 0,
        row_len_cv=_cv(lengths),
        row_len_median=float(np.median(lengths)) if rows else 0.0,
        row_len_p99=float(np.percentile(lengths, 99)) if rows else 0.0,
        col_len_max=int(col_len.max()) if cols else 0,
        col_len_cv=_cv(col_len),
        empty_rows=int(np.count_nonzero(lengths == 0)),
        bandwidth=int(np.abs(diagonals).max()) if nnz else 0,
        mean_distance=float(np.abs(offset).mean()) if nnz else 0.0,
        distinct_diagonals=len(diagonals),
        diagonal_fill=_ratio(nnz, rows * len(diagonals)),
        main_diagonal=_ratio(int(np.count_nonzero(offset == 0)), min(rows, cols)),
        run_len_mean=_ratio(nnz, 1 + int(np.count_nonzero(breaks))) if nnz else 0.0,
        block2_fill=_block_fill(matrix, 2),
        block3_fill=_block_fill(matrix, 3),
        block4_fill=_block_fill(matrix, 4),
        pattern_symmetry=_pattern_symmetry(matrix, int(np.count_nonzero(offset == 0))),
        top_rows_share=_ratio(int(descending[: max(1, rows // 100)].sum()), nnz),
        warp_fill=_ratio(nnz, _padded(lengths)),
        sorted_warp_fill=_ratio(nnz, _padded(descending)),
    )


def structure_class(of: SparseMatrix | StructureFeatures) -> str:
    """The first class, in the order of `STRUCTURE_CLASSES`, whose rule holds.

    Few entries or rows: tiny. A square matrix with its main diagonal alone: diagonal. Under 0.75 entries a row, or half
    the rows empty: hypersparse. Then rectangular; a few very long rows: dense-rows; row lengths as spread as their
    mean: power-law; few, well filled diagonals: stencil; full little blocks or long runs: block; entries near the
    diagonal: banded; rows of about one length: uniform; other.
    """
    f = structure_features(of) if isinstance(of, SparseMatrix) else of
    if f.nnz < 300 or max(f.rows, f.cols) <= 40:
        return "tiny"
    if f.rows == f.cols and f.bandwidth == 0:
        return "diagonal"
    if f.nnz < 0.75 * f.rows or f.empty_rows > f.rows / 2:
        return "hypersparse"
    if f.rows != f.cols:
        return "rectangular"
    longest = f.row_len_max
    if longest >= max(0.1 * f.cols, 10 * f.row_len_mean) and f.row_len_p99 < longest / 2 and f.cols >= 200:
        return "dense-rows"
    if f.row_len_cv >= 1:
        return "power-law"
    if f.distinct_diagonals <= 40 and f.diagonal_fill >= 0.5:
        return "stencil"
    if f.block3_fill >= 0.75 or f.block2_fill >= 0.85 or f.block4_fill >= 0.7 or f.run_len_mean >= 3:
        return "block"
    if f.bandwidth <= max(3, 0.1 * f.cols) or f.mean_distance <= 0.03 * f.cols:
        return "banded"
    return "uniform" if f.row_len_cv <= 0.35 else "other"


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _cv(lengths: Array) -> float:
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return float(lengths.std()) / mean if mean else 0.0


def _padded(lengths: Array) -> int:
    """Slots when each 32 neighbouring rows are padded to the longest of them."""
    if not len(lengths):
        return 0
    return int(np.maximum.reduceat(lengths, np.arange(0, len(lengths), WARP)).sum()) * WARP


def _block_fill(matrix: SparseMatrix, size: int) -> float:
    """nnz / (size^2 * aligned blocks that hold an entry): rows merge, distinct block columns are counted."""
    from scipy.sparse import csr_array

    if not matrix.nnz:
        return 0.0
    row_ptr = np.append(matrix.row_ptr[: matrix.rows : size], matrix.row_ptr[-1])
    shape = (len(row_ptr) - 1, -(-matrix.cols // size))
    blocks = csr_array((np.ones(matrix.nnz, np.int8), matrix.col_idx // size, row_ptr), shape=shape)
    blocks.sum_duplicates()
    return float(matrix.nnz / (size * size * blocks.nnz))


def _pattern_symmetry(matrix: SparseMatrix, on_diagonal: int) -> float:
    from scipy.sparse import csr_array

    if matrix.rows != matrix.cols or not matrix.nnz:
        return 0.0
    off = matrix.nnz - on_diagonal
    if not off:
        return 1.0
    ones = np.ones(matrix.nnz, np.int8)
    pattern = csr_array((ones, matrix.col_idx, matrix.row_ptr), shape=(matrix.rows, matrix.cols))
    union = (pattern + pattern.T.tocsr()).nnz
    return float((2 * matrix.nnz - union - on_diagonal) / off)
