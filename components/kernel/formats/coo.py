"""Coordinates, sorted by row and then column.

Offers `row_idx` int[nnz], `col_idx` int or unsigned short [nnz], `values` [nnz]; rows, cols, nnz.
"""

import numpy as np

from components.kernel.formats.base import Csr, Layout, StorageFormat, check_size, index_array
from components.kernel.types import FormatSpec


def convert(spec: FormatSpec, csr: Csr) -> Layout:
    """One row index per entry."""
    check_size(csr)
    arrays = {"row_idx": csr.row_of_entry().astype(np.int32), "col_idx": index_array(csr.col_idx, spec, csr.cols)}
    scalars = {"rows": csr.rows, "cols": csr.cols, "nnz": csr.nnz}
    return Layout(arrays, scalars, np.arange(csr.nnz, dtype=np.int64), csr.nnz)


FORMAT = StorageFormat(
    name="coo",
    parameters={"index": ("i32", "u16")},
    arrays={"row_idx": "int", "col_idx": "index", "values": "value"},
    scalars=("rows", "cols", "nnz"),
    convert=convert,
)
