"""Operators: y = A x and C = A B; a further one is one new file named here."""

from collections.abc import Mapping

from components.errors import UserError
from components.kernel.operators.base import Operator
from components.kernel.operators.spmm import Spmm
from components.kernel.operators.spmv import Spmv

OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in (Spmv(), Spmm())}


def get_operator(name: str) -> Operator:
    """An operator by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in OPERATORS:
        raise UserError(f"operator {name!r}: expected one of {', '.join(OPERATORS)}")
    return OPERATORS[name]
