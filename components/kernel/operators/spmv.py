"""y = A x: `x` [cols] in, `y` [rows] out."""

import numpy as np
from numpy.typing import NDArray

from components.kernel.operators.base import Inputs, Operator, vector_threads
from components.kernel.precision import FLOAT32, Precision
from components.matrix.types import SparseMatrix


class Spmv(Operator):
    """Sparse matrix times vector."""

    name, summary = "spmv", "y = A x"
    inputs, output, scalars = ("x",), "y", ()

    def operand_shapes(self, matrix: SparseMatrix, width: int) -> dict[str, tuple[int, ...]]:
        """`x` [cols]."""
        return {"x": (matrix.cols,)}

    def reference(self, matrix: SparseMatrix, inputs: Inputs) -> NDArray[np.float64]:
        """float64[rows]."""
        return np.asarray(matrix.to_scipy() @ inputs["x"].astype(np.float64), np.float64)

    def bytes_min(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> int:
        """An index and a value an entry, 4 bytes a row pointer, and the elements of x and of y."""
        value, output = precision.value_bytes, precision.output_bytes
        return (4 + value) * matrix.nnz + 4 * (matrix.rows + 1) + value * matrix.cols + output * matrix.rows

    def reference_program(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> str:
        """CSR vector with 128-thread blocks and plain loads."""
        from components.kernel.families.spmv_csr import render_vector

        return render_vector(precision, threads=vector_threads(matrix), block=128, unroll=1, load="plain", index="i32")
