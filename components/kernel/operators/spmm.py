"""C = A B: `B` [cols * width] row-major in, `C` [rows * width] row-major out, `width` dense columns."""

import numpy as np
from numpy.typing import NDArray

from components.kernel.operators.base import Inputs, Operator
from components.kernel.precision import FLOAT32, Precision
from components.matrix.types import SparseMatrix


class Spmm(Operator):
    """Sparse matrix times dense matrix."""

    name, summary = "spmm", "C = A B"
    inputs, output, scalars = ("B",), "C", ("width",)

    def operand_shapes(self, matrix: SparseMatrix, width: int) -> dict[str, tuple[int, ...]]:
        """`B` [cols, width]."""
        return {"B": (matrix.cols, width)}

    def reference(self, matrix: SparseMatrix, inputs: Inputs) -> NDArray[np.float64]:
        """float64[rows, width]."""
        return np.asarray(matrix.to_scipy() @ inputs["B"].astype(np.float64), np.float64)

    def bytes_min(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> int:
        """An index and a value an entry, 4 bytes a row pointer, and the elements of B and of C."""
        dense = width * (precision.value_bytes * matrix.cols + precision.output_bytes * matrix.rows)
        return (4 + precision.value_bytes) * matrix.nnz + 4 * (matrix.rows + 1) + dense

    def reference_program(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> str:
        """CSR with a group of lanes per row, each lane one dense column at a time."""
        from components.kernel.families.spmm_csr import render_row_lanes

        lanes = min(32, max(2, 1 << max(0, width - 1).bit_length()))
        return render_row_lanes(precision, lanes=lanes, block=128, unroll=1, load="plain", index="i32")
