"""Binds a program to a stored matrix: every size evaluated, every parameter found by name and type."""

from collections.abc import Mapping, Sequence

import numpy as np

from components.kernel.expression import ExpressionError, parse_expression
from components.kernel.formats import get_format
from components.kernel.operators.base import Operator
from components.kernel.precision import FLOAT32, Precision
from components.kernel.types import BoundLaunch, KernelProgram, LaunchSpec, Parameter, ProgramError, StoredMatrix

MAX_THREADS = 1024
MAX_SHARED_BYTES = 232_448  # 227 KiB, the most a block may ask for on sm_90; less elsewhere is the launch's business
_MAX_GRID = (2**31 - 1, 65_535, 65_535)
_MAX_BLOCK = (1024, 1024, 64)


def bind(
    program: KernelProgram, stored: StoredMatrix, operator: Operator, width: int, precision: Precision = FLOAT32
) -> tuple[BoundLaunch, ...]:
    """Resolve every launch of `program` on a stored matrix.

    Args:
        program: parsed.
        stored: the matrix in the program's format.
        operator: what is computed.
        width: dense columns; 1 for spmv.
        precision: of values, operands and result.

    Returns:
        One entry a launch, in order. A grid may be 0 (nothing to launch) on a matrix without rows or entries.

    Raises:
        ProgramError: `contract` for a parameter that is not offered or has another type, or a size that cannot be
            evaluated or is negative; `launch_error` for sizes no GPU accepts.
    """
    integers = {**stored.scalars, **({"width": width} if "width" in operator.scalars else {})}
    offered = offered_parameters(program.format.name, operator, stored, precision)
    return tuple(_bind(program, launch, integers, offered) for launch in program.launches)


def offered_parameters(
    format_name: str, operator: Operator, stored: StoredMatrix, precision: Precision
) -> Mapping[str, tuple[str, bool]]:
    """Name to (C element type, is a pointer) of all that kernels may ask for."""
    storage = get_format(format_name)
    offered = {name: (storage.ctype(name, stored.format, precision.value), True) for name in storage.arrays}
    offered |= dict.fromkeys(operator.inputs, (precision.value, True))
    offered[operator.output] = precision.output, True
    offered |= dict.fromkeys((*storage.scalars, *operator.scalars), ("int", False))
    return offered


def _bind(
    program: KernelProgram,
    launch: LaunchSpec,
    integers: Mapping[str, int],
    offered: Mapping[str, tuple[str, bool]],
) -> BoundLaunch:
    grid = _sizes(launch.grid, integers, launch, "grid")
    block = _sizes(launch.block, integers, launch, "block")
    shared = _value(launch.shared, integers, launch)
    if shared < 0:
        raise ProgramError("contract", f"shared={launch.shared} is {shared}; expected at least 0", launch.line)
    if 0 not in grid:  # else there is nothing to launch, whatever the block
        _check_limits(grid, block, shared, launch)
    arguments = tuple(_argument(parameter, integers, offered) for parameter in program.kernels[launch.kernel])
    return BoundLaunch(launch.kernel, grid, block, shared, arguments)


def _sizes(texts: Sequence[str], integers: Mapping[str, int], launch: LaunchSpec, what: str) -> tuple[int, int, int]:
    values = [_value(text, integers, launch) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value < 0:
            raise ProgramError("contract", f"{what}={text} is {value}; expected at least 0", launch.line)
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _value(text: str, integers: Mapping[str, int], launch: LaunchSpec) -> int:
    try:
        return parse_expression(text).evaluate(integers)
    except ExpressionError as error:
        raise ProgramError("contract", str(error), launch.line) from None


def _check_limits(grid: Sequence[int], block: Sequence[int], shared: int, launch: LaunchSpec) -> None:
    threads = block[0] * block[1] * block[2]
    if threads < 1 or threads > MAX_THREADS or any(size > most for size, most in zip(block, _MAX_BLOCK, strict=True)):
        shape = "x".join(map(str, block))
        raise ProgramError("launch_error", f"block of {shape} threads; expected 1 to {MAX_THREADS}", launch.line)
    if any(size > most for size, most in zip(grid, _MAX_GRID, strict=True)):
        shape = "x".join(map(str, grid))
        limits = "x".join(map(str, _MAX_GRID))
        raise ProgramError("launch_error", f"grid of {shape} blocks; expected at most {limits}", launch.line)
    if shared > MAX_SHARED_BYTES:
        most = MAX_SHARED_BYTES
        raise ProgramError("launch_error", f"{shared} bytes of shared memory; expected at most {most}", launch.line)


def _argument(
    parameter: Parameter, integers: Mapping[str, int], offered: Mapping[str, tuple[str, bool]]
) -> str | np.generic:
    if parameter.name not in offered:
        known = ", ".join(_shown(name, *kind) for name, kind in offered.items())
        raise ProgramError("contract", f"unknown parameter {parameter.name}; offered are {known}", parameter.line)
    ctype, pointer = offered[parameter.name]
    if (parameter.ctype, parameter.pointer) != (ctype, pointer):
        found = _shown(parameter.name, parameter.ctype, parameter.pointer)
        raise ProgramError("contract", f"{found}; expected {_shown(parameter.name, ctype, pointer)}", parameter.line)
    return parameter.name if pointer else np.int32(integers[parameter.name])


def _shown(name: str, ctype: str, pointer: bool) -> str:
    return f"{ctype}{'*' if pointer else ''} {name}"
