"""The dataclasses that pass between parsing, conversion, binding and the judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.errors import SparseRLError


class ProgramError(SparseRLError):
    """A program breaks its contract; becomes the verdict, never a crash.

    Args:
        status: `unparsable`, `contract` or `launch_error`.
        message: one line, what was found and what was expected.
        line: 1-based line of the source, when one is to blame.
    """

    def __init__(self, status: str, message: str, line: int | None = None):
        super().__init__(message)
        self.status, self.message, self.line = status, message, line


class FormatNotApplicable(SparseRLError):
    """A matrix cannot be stored in a format (16-bit index over 65,536 columns, too much padding, ...)."""


@dataclass(frozen=True)
class FormatSpec:
    """The `format:` line: `sell c=32 sigma=256 index=u16`."""

    name: str
    parameters: tuple[tuple[str, str | int], ...] = ()  # sorted by key, defaults filled in
    line: int = 1

    def get(self, key: str) -> str | int:
        """The value of one parameter; KeyError when the format has none of that name."""
        return dict(self.parameters)[key]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.parameters)])


@dataclass(frozen=True)
class Parameter:
    """One parameter of a `__global__` function."""

    name: str
    ctype: str  # canonical element type: int, unsigned short, float, double, ...
    pointer: bool
    const: bool  # pointee is const
    line: int


@dataclass(frozen=True)
class LaunchSpec:
    """One `launch:` line, unevaluated; dimensions are expression texts already checked by the expression parser."""

    kernel: str
    grid: tuple[str, ...]  # 1 to 3 expressions
    block: tuple[str, ...]
    shared: str
    line: int


@dataclass(frozen=True)
class KernelProgram:
    """A parsed kernel program: the text and its contract."""

    source: str
    format: FormatSpec
    launches: tuple[LaunchSpec, ...]
    kernels: Mapping[str, tuple[Parameter, ...]]  # by kernel name


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """A matrix converted to a storage format.

    `arrays` are 1-D contiguous and bound by name, `scalars` are the integers that launch expressions and kernels may
    ask for. `value_slots` int64[nnz] says where each CSR entry lies in `arrays["values"]`, so that values can be
    redrawn without converting again; every other slot is padding and holds zero.
    """

    format: FormatSpec
    arrays: Mapping[str, np.ndarray[Any, Any]]
    scalars: Mapping[str, int]
    value_slots: np.ndarray[Any, np.dtype[np.int64]]
    convert_us: float

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


@dataclass(frozen=True)
class BoundLaunch:
    """One kernel launch with every size evaluated and every argument resolved, in the kernel's parameter order."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int  # dynamic
    arguments: tuple[str | np.generic, ...]  # a buffer's name, or a numpy scalar of the parameter's exact type
