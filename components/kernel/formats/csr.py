"""Compressed sparse row.

Offers `row_ptr` int[rows + 1], `col_idx` int or unsigned short [nnz], `values` [nnz]; rows, cols, nnz, max_row (longest
row), mean_row (ceil(nnz / rows)).
"""

import numpy as np

from components.kernel.formats.base import Csr, Layout, StorageFormat, check_size, index_array
from components.kernel.types import FormatSpec


def convert(spec: FormatSpec, csr: Csr) -> Layout:
    """CSR as it is, with the index type asked for."""
    check_size(csr)
    lengths = np.diff(csr.row_ptr)
    arrays = {"row_ptr": csr.row_ptr.astype(np.int32), "col_idx": index_array(csr.col_idx, spec, csr.cols)}
    scalars = {
        "rows": csr.rows,
        "cols": csr.cols,
        "nnz": csr.nnz,
        "max_row": int(lengths.max(initial=0)),
        "mean_row": -(-csr.nnz // max(1, csr.rows)),
    }
    return Layout(arrays, scalars, np.arange(csr.nnz, dtype=np.int64), csr.nnz)


FORMAT = StorageFormat(
    name="csr",
    parameters={"index": ("i32", "u16")},
    arrays={"row_ptr": "int", "col_idx": "index", "values": "value"},
    scalars=("rows", "cols", "nnz", "max_row", "mean_row"),
    convert=convert,
)
