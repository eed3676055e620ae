"""What a campaign asks: its problems, the programs that apply to one, and in which order they are tried.

The one place where the campaign meets the library of kernel families and the judge's requests.
"""

import functools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import UserError
from components.judge.request import JudgeRequest
from components.kernel.families import FAMILIES, RenderedProgram, enumerate_programs, program_hash
from components.kernel.operators import OPERATORS
from components.kernel.precision import PRECISIONS, get_precision
from components.matrix.features import StructureFeatures
from components.matrix.types import SparseMatrix

_PROBLEM = re.compile(r"([a-z]+)(\d*):([a-z0-9]+)")


@dataclass(frozen=True)
class Problem:
    """An operator, its dense columns (1 for spmv) and the precision of the numbers."""

    operator: str
    width: int
    precision: str

    def __str__(self) -> str:
        """As on the command line: `spmv:float32`, `spmm8:float32`."""
        return f"{self.operator}{self.width if self.operator != 'spmv' else ''}:{self.precision}"

    def operand_bytes(self, rows: int, cols: int) -> int:
        """Bytes of the dense operand and of the result on a matrix."""
        precision = get_precision(self.precision)
        return self.width * (cols * precision.value_bytes + rows * precision.output_bytes)


def parse_problems(text: str) -> list[Problem]:
    """`spmv:float32,spmm8:float32` as problems.

    Raises:
        UserError: another operator or precision, or a width where there is none.
    """
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = _PROBLEM.fullmatch(word)
        operator, width, precision = match.groups() if match else ("", "", "")
        if operator not in OPERATORS or precision not in PRECISIONS or (operator == "spmv") == bool(width):
            raise UserError(f"problem {word!r}: expected spmv:PRECISION or spmmWIDTH:PRECISION, as spmm8:float32")
        found.append(Problem(operator, int(width or 1), precision))
    if not found or len(set(found)) < len(found):
        raise UserError(f"problems {text!r}: expected different ones, separated by commas")
    return found


def programs_of(
    problem: Problem, matrix: SparseMatrix, features: StructureFeatures, families: Collection[str] = ()
) -> dict[str, RenderedProgram]:
    """The programs that apply to a matrix, by the hash of their text: equal ones once, the first family's.

    Args:
        families: only these; all when empty.
    """
    found: dict[str, RenderedProgram] = {}
    for program in enumerate_programs(problem.operator, matrix, features, problem.precision):
        if not families or program.family in families:
            found.setdefault(program_hash(program.source), program)
    return found


def request_of(problem: Problem, program: RenderedProgram, matrix: SparseMatrix) -> JudgeRequest:
    """What the judge is asked of a program."""
    return JudgeRequest(program.source, matrix, problem.operator, problem.width, problem.precision)


def check_families(names: Sequence[str]) -> None:
    """Raise UserError for a name that no family has."""
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"family {unknown[0]!r}: expected one of {', '.join(FAMILIES)}")


# -- rounds 0 and 1: representatives ----------------------------------------------------------------------------------


def representatives(
    programs: dict[str, RenderedProgram], features: StructureFeatures, width: int, count: int
) -> list[list[str]]:
    """Up to `count` programs of each family to begin with, by hash: the first of every family, the second, and so on.

    The first is the one whose parameters are nearest to what the structure suggests (see `_suggested`), the others are
    each as far as possible from those taken before (farthest-point sampling: Gonzalez, Theor. Comput. Sci. 38, 1985).
    Distance is the sum over parameters of the difference in place within the family's list of values, each list scaled
    to 1.
    """
    families: dict[str, list[str]] = {}
    for digest, program in programs.items():
        families.setdefault(program.family, []).append(digest)
    layers: list[list[str]] = [[] for _ in range(count)]
    for name, members in families.items():
        places = np.array([_place(name, programs[digest]) for digest in members])
        target = np.array([_suggested(name, key, features, width) for key in FAMILIES[name].parameters])
        nearest = int(np.abs(places - target).sum(axis=1).argmin())
        away: NDArray[Any] = np.full(len(members), np.inf)
        for layer in layers[: len(members)]:
            layer.append(members[nearest])
            away = np.minimum(away, np.abs(places - places[nearest]).sum(axis=1))
            nearest = int(away.argmax())
    return layers


def neighbours(programs: dict[str, RenderedProgram], digest: str) -> list[str]:
    """The programs of the same family that differ in exactly one parameter."""
    centre = programs[digest]
    return [
        other
        for other, program in programs.items()
        if program.family == centre.family
        and sum(program.parameters[key] != value for key, value in centre.parameters.items()) == 1
    ]


def _place(family: str, program: RenderedProgram) -> list[float]:
    """Where each parameter's value stands in its list, in [0, 1]."""
    return [_scaled(family, key, str(program.parameters[key])) for key in FAMILIES[family].parameters]


@functools.cache
def _scaled(family: str, key: str, value: str) -> float:
    values = [str(known) for known in FAMILIES[family].parameters[key]]
    return values.index(value) / max(1, len(values) - 1)


def _suggested(family: str, key: str, features: StructureFeatures, width: int) -> float:
    """Where the value stands that the structure suggests; the middle for a parameter that is not known here."""
    values = FAMILIES[family].parameters[key]
    last = max(1, len(values) - 1)
    wanted = _wanted(key, features, width)
    if isinstance(wanted, str):
        return values.index(wanted) / last if wanted in values else 0.0
    numbers = [value for value in values if isinstance(value, int) and value > 0]
    if wanted is None or len(numbers) < len(values):
        return (len(values) // 2) / last
    return min(range(len(values)), key=lambda at: abs(math.log2(numbers[at] / wanted))) / last


def _wanted(key: str, features: StructureFeatures, width: int) -> float | str | None:
    mean = max(1.0, features.row_len_mean)
    if key == "threads":  # a row's: one for each entry or two (Bell and Garland, SC'09)
        return min(32.0, mean)
    if key == "lanes":  # one for each dense column
        return float(min(32, width))
    if key == "sigma":  # sorted where neighbouring rows differ
        return 1.0 if features.warp_fill >= 0.9 * features.sorted_warp_fill else 256.0
    if key == "b":
        fills = {2: features.block2_fill, 3: features.block3_fill, 4: features.block4_fill}
        return float(max((b for b, fill in fills.items() if fill >= 0.75), default=max(fills, key=fills.__getitem__)))
    usual: dict[str, float | str] = {"block": 256.0, "unroll": 2.0, "c": 32.0, "load": "ldg", "index": "u16"}
    return usual.get(key)
