import numpy as np
import pytest

from components.errors import UserError
from components.kernel.operators import OPERATORS, get_operator
from components.kernel.operators.base import vector_threads
from components.kernel.program import parse
from components.matrix.types import SparseMatrix

MATRIX = SparseMatrix("m", "t", 3, 2, np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32), np.array([2.0, -3.0, 0.5]))


def test_references_by_hand():
    y = OPERATORS["spmv"].reference(MATRIX, {"x": np.array([1, 10], np.float32)})
    assert y.tolist() == [-28.0, 0.0, 5.0]
    c = OPERATORS["spmm"].reference(MATRIX, {"B": np.array([[1, 2], [10, 20]], np.float32)})
    assert c.tolist() == [[-28.0, -56.0], [0.0, 0.0], [5.0, 10.0]]


def test_the_bound_is_4_n_u_times_the_magnitudes():
    u = 2.0**-24
    bound = OPERATORS["spmv"].error_bound(MATRIX, {"x": np.array([1, -10], np.float32)})
    assert bound.tolist() == [4 * 2 * u * 32.0, 0.0, 4 * 1 * u * 5.0]
    bound = OPERATORS["spmm"].error_bound(MATRIX, {"B": np.array([[1, 2], [-10, 20]], np.float32)})
    assert bound.tolist() == [[4 * 2 * u * 32, 4 * 2 * u * 64], [0, 0], [4 * u * 5, 4 * u * 10]]


def test_operands_have_the_shapes_that_kernels_are_told():
    assert OPERATORS["spmv"].operand_shapes(MATRIX, 1) == {"x": (2,)}
    assert OPERATORS["spmm"].operand_shapes(MATRIX, 50) == {"B": (2, 50)}


def test_bytes_by_hand():
    assert OPERATORS["spmv"].bytes_min(MATRIX, 1) == 8 * 3 + 4 * 4 + 4 * 2 + 4 * 3
    assert OPERATORS["spmm"].bytes_min(MATRIX, 8) == 8 * 3 + 4 * 4 + 4 * 8 * 5


@pytest.mark.parametrize(("mean", "threads"), [(0, 2), (1, 2), (3, 4), (4, 4), (5, 8), (500, 32)])
def test_the_baseline_fits_its_group_to_the_rows(mean, threads):
    cols = np.tile(np.arange(mean), 4).astype(np.int32)
    matrix = SparseMatrix("m", "t", 4, 600, np.arange(5) * mean, cols, np.ones(len(cols)))
    assert vector_threads(matrix) == threads
    assert f"{threads} threads each" in OPERATORS["spmv"].reference_program(matrix, 1)


def test_reference_programs_keep_the_contract():
    for name, operator in OPERATORS.items():
        assert operator.name == name
        assert parse(operator.reference_program(MATRIX, 3)).format.name == "csr"


def test_an_unknown_operator_lists_the_known():
    with pytest.raises(UserError, match="expected one of spmv, spmm"):
        get_operator("gemm")
