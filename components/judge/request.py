"""What a judge is asked, and what makes no sense to ask."""

from dataclasses import dataclass

from components.errors import UserError
from components.judge.options import Backend
from components.kernel.operators import get_operator
from components.kernel.precision import get_precision
from components.matrix.types import SparseMatrix

# Elements of a dense operand: what the interpreter gets through, and what an int of a kernel can index.
_MAX_DENSE: dict[Backend, int] = {"emulator": 50_000_000, "gpu": 2**31 - 1}
_ADVERSARIAL_SIDE = 2_300  # the longest side of the adversarial matrices that every width is tried on


@dataclass(frozen=True, eq=False)
class JudgeRequest:
    """What is to be judged: a program's text, on a matrix, as an operator with `width` dense columns (1 for spmv).

    `precision` names an entry of components.kernel.precision.PRECISIONS.
    """

    source: str
    matrix: SparseMatrix
    operator: str = "spmv"
    width: int = 1
    precision: str = "float32"


def check_request(request: JudgeRequest, backend: Backend = "emulator") -> None:
    """Raise UserError for an unknown operator or precision, or a width that does not fit it or this machine."""
    operator = get_operator(request.operator)
    get_precision(request.precision)
    if request.width < 1 or ("width" not in operator.scalars and request.width != 1):
        expected = "at least 1" if "width" in operator.scalars else "1"
        raise UserError(f"width {request.width}: {request.operator} takes {expected}")
    elements = max(request.matrix.rows, request.matrix.cols, _ADVERSARIAL_SIDE) * request.width
    if request.width > 1 and elements > _MAX_DENSE[backend]:
        raise UserError(
            f"width {request.width}: a dense operand of {elements} elements; at most {_MAX_DENSE[backend]} "
            f"with the {backend}"
        )
