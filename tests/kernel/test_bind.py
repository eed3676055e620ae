import numpy as np
import pytest

from components.kernel.bind import bind
from components.kernel.formats import convert
from components.kernel.operators import OPERATORS
from components.kernel.program import parse
from components.kernel.types import ProgramError
from components.matrix.types import SparseMatrix

MATRIX = SparseMatrix("m", "t", 5, 7, np.array([0, 1, 1, 3, 3, 4]), np.array([6, 0, 2, 1], np.int32), np.ones(4))


def _bind(launch: str, parameters: str, operator: str = "spmv", format_line: str = "csr", width: int = 1):
    source = f'// format: {format_line}\n// launch: k {launch}\nextern "C" __global__ void k(\n{parameters}) {{}}\n'
    program = parse(source)
    return bind(program, convert(program.format, MATRIX), OPERATORS[operator], width)


def test_arguments_are_found_by_name_in_any_order():
    (launch,) = _bind(
        "grid=ceil_div(rows,2),max(1,nnz-3) block=min(cols,32) shared=max_row*8",
        "int nnz, float* y, const float* x, int rows, const int* row_ptr, int mean_row",
    )
    assert (launch.grid, launch.block, launch.shared_bytes) == ((3, 1, 1), (7, 1, 1), 16)
    assert launch.arguments == (4, "y", "x", 5, "row_ptr", 1)
    assert isinstance(launch.arguments[0], np.int32)


def test_an_empty_grid_launches_nothing_whatever_the_block():
    (launch,) = _bind("grid=nnz-4 block=min(nnz-4,128)", "float* y")
    assert (launch.grid, launch.block) == ((0, 1, 1), (0, 1, 1))


def test_width_belongs_to_spmm():
    (launch,) = _bind("grid=width block=1", "const float* B, float* C, int width", "spmm", width=33)
    assert launch.grid == (33, 1, 1)
    assert launch.arguments == ("B", "C", 33)
    with pytest.raises(ProgramError, match="unknown parameter width; offered are int\\* row_ptr"):
        _bind("grid=1 block=1", "int width")


@pytest.mark.parametrize(
    ("launch", "parameters", "status", "line", "message"),
    [
        ("grid=1 block=1", "float* y,\n const int* answer", "contract", 5, "unknown parameter answer; offered are"),
        ("grid=1 block=1", "const long long* col_idx", "contract", 4, "long long* col_idx; expected int* col_idx"),
        ("grid=1 block=1", "const unsigned* row_ptr", "contract", 4, "unsigned int* row_ptr; expected int* row_ptr"),
        ("grid=1 block=1", "int* rows", "contract", 4, "int* rows; expected int rows"),
        ("grid=1 block=1", "float y", "contract", 4, "float y; expected float* y"),
        ("grid=columns block=1", "float* y", "contract", 2, "unknown name columns"),
        ("grid=rows//(nnz-4) block=1", "float* y", "contract", 2, "division by zero"),
        ("grid=nnz-rows block=1", "float* y", "contract", 2, "grid=nnz-rows is -1"),
        ("grid=1 block=1 shared=-8", "float* y", "contract", 2, "shared=-8 is -8"),
        ("grid=1 block=1025", "float* y", "launch_error", 2, "block of 1025x1x1 threads; expected 1 to 1024"),
        ("grid=1 block=0", "float* y", "launch_error", 2, "block of 0x1x1"),
        ("grid=1 block=1,1,65", "float* y", "launch_error", 2, "block of 1x1x65"),
        ("grid=1,65536 block=1", "float* y", "launch_error", 2, "grid of 1x65536x1"),
        ("grid=2147483648 block=1", "float* y", "launch_error", 2, "grid of 2147483648x1x1"),
        ("grid=1 block=1 shared=300000", "float* y", "launch_error", 2, "300000 bytes of shared memory"),
    ],
)
def test_errors_say_what_was_expected_and_where(launch, parameters, status, line, message):
    with pytest.raises(ProgramError) as caught:
        _bind(launch, parameters)
    assert (caught.value.status, caught.value.line) == (status, line)
    assert message in caught.value.message


def test_the_index_parameter_decides_the_type():
    assert _bind("grid=1 block=1", "const unsigned short* col_idx", format_line="csr index=u16")[0].arguments == (
        "col_idx",
    )
    with pytest.raises(ProgramError, match="int\\* col_idx; expected unsigned short\\* col_idx"):
        _bind("grid=1 block=1", "const int* col_idx", format_line="csr index=u16")
