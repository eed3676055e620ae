"""y = A x: `x` float[cols] in, `y` float[rows] out."""

import numpy as np
from numpy.typing import NDArray

from components.kernel.operators.base import Inputs, Operator, signed, vector_threads
from components.matrix.types import SparseMatrix


class Spmv(Operator):
    """Sparse matrix times vector, float32."""

    name, summary = "spmv", "y = A x"
    inputs, output, scalars = ("x",), "y", ()

    def make_inputs(self, matrix: SparseMatrix, width: int, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        """`x` float32[cols]."""
        return {"x": signed(rng, matrix.cols)}

    def reference(self, matrix: SparseMatrix, inputs: Inputs) -> NDArray[np.float64]:
        """float64[rows]."""
        return np.asarray(matrix.to_scipy() @ inputs["x"].astype(np.float64), np.float64)

    def bytes_min(self, matrix: SparseMatrix, width: int) -> int:
        """8 bytes an entry, 4 a row pointer, 4 an element of x and of y."""
        return 8 * matrix.nnz + 4 * (matrix.rows + 1) + 4 * matrix.cols + 4 * matrix.rows

    def reference_program(self, matrix: SparseMatrix, width: int) -> str:
        """CSR vector with 128-thread blocks and plain loads."""
        from components.kernel.families.spmv_csr import render_vector

        return render_vector(threads=vector_threads(matrix), block=128, unroll=1, load="plain", index="i32")
