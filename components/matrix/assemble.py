"""Stored entries to the whole matrix: duplicates summed, symmetric half mirrored, canonical CSR."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Assembled:
    """Canonical CSR (int64 `row_ptr`, int32 `col_idx`) with what was met on the way.

    `mirrored_twice` is the position among the stored entries of the first one whose mirror was stored too, or -1.
    """

    row_ptr: Array
    col_idx: Array
    values: Array
    duplicates: int
    mirrored_twice: int = -1


def assemble(rows: int, cols: int, i: Array, j: Array, values: Array, symmetry: str = "general") -> Assembled:
    """Sum duplicates, then mirror off-diagonal entries as the symmetry says; explicit zeros stay.

    Args:
        i, j: 0-based indices, int32, in any order.
        values: float64 or complex128, same length.
        symmetry: general, symmetric, skew-symmetric (mirror negated), hermitian (mirror conjugated).
    """
    check_memory(rows, cols, len(i))
    half = _csr(rows, cols, i, j, values)
    duplicates = len(i) - half.nnz
    if symmetry == "general":
        return Assembled(half.indptr.astype(np.int64), half.indices.astype(np.int32), half.data, duplicates)
    coo = half.tocoo()
    r, c, v = coo.coords[0], coo.coords[1], coo.data
    off = r != c
    mirror = {"symmetric": v, "skew-symmetric": -v, "hermitian": np.conj(v)}[symmetry][off]
    whole = _csr(rows, cols, np.concatenate((r, c[off])), np.concatenate((c, r[off])), np.concatenate((v, mirror)))
    twice = _first_mirrored(i, j, cols) if whole.nnz < half.nnz + int(off.sum()) else -1
    return Assembled(whole.indptr.astype(np.int64), whole.indices.astype(np.int32), whole.data, duplicates, twice)


def check_memory(rows: int, cols: int, nnz: int) -> None:
    """UserError when pointers and entries alone would not fit this machine, before anything is allocated."""
    needed = 24 * (rows + cols) + 48 * nnz
    if needed < 1 << 30 or not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise UserError(
            f"matrix of {rows} x {cols} with {nnz} entries: about {needed >> 30} GiB needed, "
            f"expected to fit in this machine's {memory >> 30} GiB"
        )


def _csr(rows: int, cols: int, i: Array, j: Array, values: Array) -> Any:
    from scipy.sparse import coo_array

    csr = coo_array((values, (i, j)), shape=(rows, cols)).tocsr()
    csr.sum_duplicates()
    return csr


def _first_mirrored(i: Array, j: Array, cols: int) -> int:
    key, mirror = i.astype(np.int64) * cols + j, j.astype(np.int64) * cols + i
    lower = np.minimum(key, mirror)
    upper_side = key > mirror
    seen_lower, seen_upper = lower[~upper_side & (i != j)], lower[upper_side]
    clash = np.isin(lower, np.intersect1d(seen_lower, seen_upper))
    positions = np.flatnonzero(clash)
    first_side = upper_side[positions[0]]
    same_pair = lower[positions] == lower[positions[0]]
    return int(positions[same_pair & (upper_side[positions] != first_side)][0])
