"""Block sparse row: dense b x b blocks, row-major, of an aligned grid; one column index per block.

Offers `block_ptr` int[block_rows + 1], `block_col` int or unsigned short [blocks], `values` [blocks * b * b]; rows,
cols, nnz, block_rows, blocks, b. Blocks that stick out of the matrix are padded with zeros: a kernel checks its row and
column against rows and cols.
"""

import numpy as np

from components.kernel.formats.base import Csr, Layout, StorageFormat, check_padding, check_size, index_array
from components.kernel.types import FormatSpec


def convert(spec: FormatSpec, csr: Csr) -> Layout:
    """Number the non-empty blocks in row-major order and place every entry in its block."""
    check_size(csr)
    b = int(spec.get("b"))
    block_rows, block_cols = -(-csr.rows // b), -(-csr.cols // b)
    row, col = csr.row_of_entry(), csr.col_idx.astype(np.int64)
    key = (row // b) * block_cols + col // b
    blocks, of_entry = np.unique(key, return_inverse=True)
    slots = len(blocks) * b * b
    check_padding(slots, csr.nnz, str(spec))
    block_ptr = np.zeros(block_rows + 1, np.int64)
    if block_cols:
        np.cumsum(np.bincount(blocks // block_cols, minlength=block_rows), out=block_ptr[1:])
    block_col = blocks % block_cols if block_cols else blocks
    value_slots = of_entry.astype(np.int64) * (b * b) + (row % b) * b + col % b
    arrays = {"block_ptr": block_ptr.astype(np.int32), "block_col": index_array(block_col, spec, block_cols)}
    scalars = {
        "rows": csr.rows,
        "cols": csr.cols,
        "nnz": csr.nnz,
        "block_rows": block_rows,
        "blocks": len(blocks),
        "b": b,
    }
    return Layout(arrays, scalars, value_slots, slots)


FORMAT = StorageFormat(
    name="bsr",
    parameters={"b": (2, 3, 4, 5, 6, 7, 8), "index": ("i32", "u16")},
    arrays={"block_ptr": "int", "block_col": "index", "values": "value"},
    scalars=("rows", "cols", "nnz", "block_rows", "blocks", "b"),
    convert=convert,
)
