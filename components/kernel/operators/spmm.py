"""C = A B: `B` float[cols * width] row-major in, `C` float[rows * width] row-major out, `width` dense columns."""

import numpy as np
from numpy.typing import NDArray

from components.kernel.operators.base import Inputs, Operator, signed
from components.matrix.types import SparseMatrix


class Spmm(Operator):
    """Sparse matrix times dense matrix, float32."""

    name, summary = "spmm", "C = A B"
    inputs, output, scalars = ("B",), "C", ("width",)

    def make_inputs(self, matrix: SparseMatrix, width: int, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        """`B` float32[cols, width]."""
        return {"B": signed(rng, matrix.cols, width)}

    def reference(self, matrix: SparseMatrix, inputs: Inputs) -> NDArray[np.float64]:
        """float64[rows, width]."""
        return np.asarray(matrix.to_scipy() @ inputs["B"].astype(np.float64), np.float64)

    def bytes_min(self, matrix: SparseMatrix, width: int) -> int:
        """8 bytes an entry, 4 a row pointer, 4 an element of B and of C."""
        return 8 * matrix.nnz + 4 * (matrix.rows + 1) + 4 * width * (matrix.cols + matrix.rows)

    def reference_program(self, matrix: SparseMatrix, width: int) -> str:
        """CSR with a group of lanes per row, each lane one dense column at a time."""
        from components.kernel.families.spmm_csr import render_row_lanes

        lanes = min(32, max(2, 1 << max(0, width - 1).bit_length()))
        return render_row_lanes(lanes=lanes, block=128, unroll=1, load="plain", index="i32")
