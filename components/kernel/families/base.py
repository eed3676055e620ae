"""What a kernel family is: a way of computing an operator, its parameters, and the text it renders."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from components.kernel.precision import Precision
from components.matrix.features import StructureFeatures

Value = int | str
Parameters = Mapping[str, Value]
LOADS = ("plain", "ldg", "ldcs")  # default, read-only cache, evict-first
SPMV_PRECISIONS = ("float32", "float64", "float16", "bfloat16")
INDEX_TYPES = {"i32": "int", "u16": "unsigned short"}


@dataclass(frozen=True)
class Family:
    """A family of kernel programs.

    Every program of a family is right on every matrix that its format can store; `sensible` only says where it may
    be fast. `render` takes a precision and the parameters by name; `allowed` says which combinations exist.
    """

    name: str
    operator: str
    summary: str  # one line: which structure it is for
    parameters: Mapping[str, tuple[Value, ...]]  # every value it can be rendered with
    render: Callable[..., str]
    sensible: Callable[[Parameters, StructureFeatures], bool]
    allowed: Callable[[Parameters], bool] = lambda parameters: True
    precisions: tuple[str, ...] = ("float32", "float64")

    def combinations(self) -> Iterator[Parameters]:
        """Every allowed combination of parameters, in a stable order."""
        for values in itertools.product(*self.parameters.values()):
            parameters = dict(zip(self.parameters, values, strict=True))
            if self.allowed(parameters):
                yield parameters

    def program(self, precision: Precision, parameters: Parameters) -> "RenderedProgram":
        """The program with these parameters."""
        return RenderedProgram(self.name, parameters, self.render(precision, **parameters), precision.name)


@dataclass(frozen=True)
class RenderedProgram:
    """One program of a family."""

    family: str
    parameters: Parameters
    source: str
    precision: str = "float32"


def load(array: str, index: str, hint: str) -> str:
    """The text of a load from a matrix array with a cache hint."""
    return {"plain": f"{array}[{index}]", "ldg": f"__ldg({array} + {index})", "ldcs": f"__ldcs({array} + {index})"}[
        hint
    ]


def widened(text: str, precision: Precision) -> str:
    """A value as a number of the type that sums are kept in."""
    return text if precision.value == precision.output else f"{precision.output}({text})"


def product(index: str, hint: str, precision: Precision, operand: str = "x") -> str:
    """`values[j] * x[col_idx[j]]` with the hint on both matrix arrays."""
    column = load("col_idx", index, hint)
    return f"{widened(load('values', index, hint), precision)} * {widened(f'{operand}[{column}]', precision)}"


def unroll_line(unroll: int, indent: str) -> str:
    """A `#pragma unroll` line, or nothing for 1."""
    return f"#pragma unroll {unroll}\n{indent}" if unroll > 1 else ""


def pointer(ctype: str, name: str) -> str:
    """A read-only array parameter."""
    return f"const {ctype}* __restrict__ {name}"


def signature(kernel: str, *parameters: str) -> str:
    """The head of a kernel, three parameters a line."""
    lines = [", ".join(parameters[start : start + 3]) for start in range(0, len(parameters), 3)]
    inner = ",\n    ".join(lines)
    return f'extern "C" __global__ void {kernel}({inner}) {{\n'


def header(format_line: str, launches: tuple[str, ...], comment: str, precision: Precision) -> str:
    """The contract, the line that says which structure is exploited, and the include that the precision needs."""
    lines = [f"// format: {format_line}", *(f"// launch: {launch}" for launch in launches), f"// {comment}"]
    if precision.include:
        lines.append(f"#include <{precision.include}>")
    return "\n".join(lines) + "\n"


def index_fits(parameters: Parameters, features: StructureFeatures) -> bool:
    """16-bit indices are for up to 65,536 columns."""
    return parameters.get("index") != "u16" or features.cols <= 65_536
