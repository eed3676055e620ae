"""What an operator is: its operands, its reference, its tolerance, its byte count and its modelled baseline."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from components.kernel.precision import FLOAT32, Precision
from components.matrix.types import SparseMatrix

BOUND_FACTOR = 4.0
Inputs = Mapping[str, NDArray[Any]]


class Operator(ABC):
    """One product with a sparse matrix A (rows x cols).

    A further operator is one new file that fills this in and is named in the registry.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]  # dense operands, by the name that kernels ask for
    output: ClassVar[str]
    scalars: ClassVar[tuple[str, ...]]  # integers it publishes besides the format's

    @abstractmethod
    def operand_shapes(self, matrix: SparseMatrix, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the dense operands by name."""

    @abstractmethod
    def reference(self, matrix: SparseMatrix, inputs: Inputs) -> NDArray[np.float64]:
        """The product in float64, from the very numbers that the kernel sees."""

    @abstractmethod
    def bytes_min(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> int:
        """Bytes that CSR must move at the least: every array once, every output once."""

    @abstractmethod
    def reference_program(self, matrix: SparseMatrix, width: int, precision: Precision = FLOAT32) -> str:
        """The modelled baseline: stands in for the vendor library, which cannot run without a GPU.

        Named `reference:csr_vector`: CSR, with a group of threads per row as wide as the mean row asks for.
        """

    def error_bound(self, matrix: SparseMatrix, inputs: Inputs, precision: Precision = FLOAT32) -> NDArray[np.float64]:
        """`4 n_row u sum |a| |x|` for each output element, u the result's unit roundoff; 0 for an empty row.

        The forward error of a sum of n products in any order is at most n u / (1 - n u) times the sum of their
        magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1). Of float64 the
        reference has as large an error of its own: the factor leaves room for both.
        """
        magnitudes = self.reference(_absolute(matrix), {name: np.abs(array) for name, array in inputs.items()})
        lengths = np.diff(matrix.row_ptr).astype(np.float64)
        scale = BOUND_FACTOR * precision.unit_roundoff * lengths
        return magnitudes * (scale if magnitudes.ndim == 1 else scale[:, None])


def vector_threads(matrix: SparseMatrix) -> int:
    """Threads per row of the baseline: the mean row length as a power of two, 2 to 32 (Bell and Garland, SC'09)."""
    mean = -(-matrix.nnz // max(1, matrix.rows))
    return min(32, max(2, 1 << max(0, mean - 1).bit_length()))


def _absolute(matrix: SparseMatrix) -> SparseMatrix:
    from dataclasses import replace

    return replace(matrix, values=np.abs(matrix.values))
