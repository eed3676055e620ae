"""SELL-C-sigma (Kreutzer et al., SIAM J. Sci. Comput. 36(5), 2014): slices of C rows, sorted by length in windows.

Offers `slice_ptr` int[slices + 1] (offset of each slice's first slot), `col_idx` int or unsigned short [slots],
`values` [slots] (both column-major within a slice: slot = slice_ptr[s] + k * C + lane), `row_perm` int[slices * C] (row
of each lane, -1 where a lane has none); rows, cols, nnz, slices, slots, c, max_row. Padding has column 0 and value 0.
"""

import numpy as np

from components.kernel.formats.base import Csr, Layout, StorageFormat, check_padding, check_size, index_array
from components.kernel.types import FormatSpec


def convert(spec: FormatSpec, csr: Csr) -> Layout:
    """Sort rows by falling length within windows of sigma rows, then pad each slice to its longest row."""
    check_size(csr)
    c, sigma = int(spec.get("c")), int(spec.get("sigma"))
    lengths = np.diff(csr.row_ptr)
    slices = -(-csr.rows // c)
    order = np.lexsort((np.arange(csr.rows), -lengths, np.arange(csr.rows) // sigma))
    perm = np.full(slices * c, -1, np.int64)
    perm[: csr.rows] = order
    padded = np.zeros(slices * c, np.int64)
    padded[: csr.rows] = lengths[order]
    width = padded.reshape(slices, c).max(axis=1) if slices else np.zeros(0, np.int64)
    slice_ptr = np.zeros(slices + 1, np.int64)
    np.cumsum(width * c, out=slice_ptr[1:])
    slots = int(slice_ptr[-1])
    check_padding(slots, csr.nnz, str(spec))
    place = np.empty(csr.rows, np.int64)
    place[order] = np.arange(csr.rows)
    row = csr.row_of_entry()
    within = np.arange(csr.nnz, dtype=np.int64) - csr.row_ptr[row]
    value_slots = slice_ptr[place[row] // c] + within * c + place[row] % c
    columns = np.zeros(slots, np.int64)
    columns[value_slots] = csr.col_idx
    arrays = {
        "slice_ptr": slice_ptr.astype(np.int32),
        "col_idx": index_array(columns, spec, csr.cols),
        "row_perm": perm.astype(np.int32),
    }
    scalars = {
        "rows": csr.rows,
        "cols": csr.cols,
        "nnz": csr.nnz,
        "slices": slices,
        "slots": slots,
        "c": c,
        "max_row": int(lengths.max(initial=0)),
    }
    return Layout(arrays, scalars, value_slots, slots)


FORMAT = StorageFormat(
    name="sell",
    parameters={"c": (32, 4, 8, 16, 64, 128), "sigma": (1, 32, 64, 128, 256, 1024, 4096), "index": ("i32", "u16")},
    arrays={"slice_ptr": "int", "col_idx": "index", "values": "value", "row_perm": "int"},
    scalars=("rows", "cols", "nnz", "slices", "slots", "c", "max_row"),
    convert=convert,
)
