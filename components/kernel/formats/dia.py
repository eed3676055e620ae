"""Diagonals, for matrices whose entries lie on few of them; needs no column index.

Offers `offsets` int[diagonals] (column - row, rising), `values` [diagonals * rows] (diagonal-major: entry of row r on
diagonal k at k * rows + r, 0 where there is none or it leaves the matrix); rows, cols, nnz, diagonals.
"""

import numpy as np

from components.kernel.formats.base import Csr, Layout, StorageFormat, check_padding, check_size
from components.kernel.types import FormatSpec


def convert(spec: FormatSpec, csr: Csr) -> Layout:
    """One dense array per diagonal that holds an entry."""
    check_size(csr)
    row = csr.row_of_entry()
    offset = csr.col_idx.astype(np.int64) - row
    present = np.zeros(csr.rows + csr.cols, bool)
    present[offset + csr.rows] = True
    offsets = np.flatnonzero(present) - csr.rows
    slots = len(offsets) * csr.rows
    check_padding(slots, csr.nnz, str(spec))
    value_slots = np.searchsorted(offsets, offset) * csr.rows + row
    scalars = {"rows": csr.rows, "cols": csr.cols, "nnz": csr.nnz, "diagonals": len(offsets)}
    return Layout({"offsets": offsets.astype(np.int32)}, scalars, value_slots.astype(np.int64), slots)


FORMAT = StorageFormat(
    name="dia",
    parameters={},
    arrays={"offsets": "int", "values": "value"},
    scalars=("rows", "cols", "nnz", "diagonals"),
    convert=convert,
)
