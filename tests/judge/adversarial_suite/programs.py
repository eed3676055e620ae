"""All entries of the suite, and the honest programs beside them."""

from collections.abc import Mapping
from dataclasses import dataclass

from components.kernel.families import RenderedProgram, all_programs, spread
from components.kernel.formats import convert
from components.kernel.program import parse
from components.kernel.types import FormatNotApplicable
from tests.judge.adversarial_suite import compiler, honest, memory, outputs, state
from tests.judge.adversarial_suite.base import TARGET, Hostile, merged

HOSTILE: Mapping[str, Hostile] = merged(
    outputs.STALE,
    outputs.TRICKS,
    outputs.SPECIAL_CASED,
    outputs.PRECISION,
    outputs.SKIPS,
    memory.OUT_OF_BOUNDS,
    memory.SHARED,
    memory.RACES,
    memory.ENDLESS,
    state.KEPT,
    state.INPUTS,
    state.CLOCKS,
    state.OTHERS_WORK,
    compiler.INCLUDES,
    compiler.BOMBS,
    compiler.LAUNCHES,
    compiler.CONTRACT,
)
_WIDTHS = (1, 3, 8, 33)  # of spmm, in turn


@dataclass(frozen=True)
class Honest:
    """A program that is right everywhere; `family` is `by hand` or one of the library's."""

    name: str
    family: str
    source: str
    operator: str = "spmv"
    width: int = 1


def honest_programs(count: int, seed: int = 20_261_201) -> list[Honest]:
    """The programs written by hand, then the library's, spread over families and parameters: `count` in all.

    Programs whose format cannot store the target are left out: that is a `contract` verdict and no false alarm.
    """
    found = [Honest(name, "by hand", source) for name, source in honest.SPMV.items()]
    found += [Honest(name, "by hand", source, "spmm", 5) for name, source in honest.SPMM.items()]
    left = max(0, count - len(found))
    for operator, share in (("spmv", left - left // 4), ("spmm", left // 4)):
        fitting = [program for program in all_programs(operator) if _fits(program)]
        for number, program in enumerate(spread(fitting, share, seed) if share else []):
            width = _WIDTHS[number % len(_WIDTHS)] if operator == "spmm" else 1
            name = " ".join([program.family, *(f"{key}={value}" for key, value in program.parameters.items())])
            found.append(Honest(name, program.family, program.source, operator, width))
    return found[:count]


def _fits(program: RenderedProgram) -> bool:
    try:
        convert(parse(program.source).format, TARGET)
    except FormatNotApplicable:
        return False
    return True
