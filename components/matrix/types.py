"""The one form in which a matrix travels between rooms."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix after symmetric expansion and summing of duplicates, in canonical CSR.

    `row_ptr` int64[rows + 1] and `col_idx` int32[nnz] (columns sorted and distinct within each row); `values`
    float64[nnz] or complex128[nnz], explicit zeros kept.
    """

    name: str
    group: str
    rows: int
    cols: int
    row_ptr: np.ndarray[Any, np.dtype[np.int64]]
    col_idx: np.ndarray[Any, np.dtype[np.int32]]
    values: np.ndarray[Any, np.dtype[Any]]
    field: str = "real"  # real, integer, pattern, complex: as in the file's banner
    symmetry: str = "general"  # general, symmetric, skew-symmetric, hermitian
    nnz_stored: int = 0  # entries in the file, before expansion
    duplicates: int = 0  # entries that were summed into another
    explicit_zeros: int = 0  # entries of the expanded matrix whose value is zero
    source: str = ""  # where it came from: a path, an address, a generator call
    sha256: str = ""  # of the file it was read from; empty for a matrix made in memory

    @property
    def id(self) -> str:
        """`group/name`: unique within a manifest."""
        return f"{self.group}/{self.name}"

    @property
    def nnz(self) -> int:
        """Entries after expansion, explicit zeros included."""
        return len(self.col_idx)

    def to_scipy(self) -> Any:
        """The same matrix as scipy.sparse.csr_array; shares the value array."""
        from scipy.sparse import csr_array

        return csr_array((self.values, self.col_idx, self.row_ptr), shape=(self.rows, self.cols))
