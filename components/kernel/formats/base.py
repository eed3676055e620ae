"""What a storage format is: its parameters, the arrays and integers it offers by name, and its conversion."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.kernel.types import FormatNotApplicable, FormatSpec

Ints = NDArray[np.int64]
MAX_INDEX = 2**31 - 1  # kernels index with int
MAX_PADDING = 20.0  # slots per non-zero beyond which a padded format is not offered
_FREE_SLOTS = 4096  # small matrices may pad more: they cost nothing


@dataclass(frozen=True)
class Layout:
    """What a conversion returns: see `StoredMatrix`. `slots` is the length of the values array."""

    arrays: Mapping[str, NDArray[Any]]  # all but "values"
    scalars: Mapping[str, int]
    value_slots: Ints
    slots: int


@dataclass(frozen=True)
class StorageFormat:
    """A storage format.

    `parameters` maps each key to its allowed values, the default first. `arrays` maps each array's name to its C
    element type; "index" stands for the type that the format's index parameter chooses, "value" for the operator's
    value type. `scalars` are the names of the integers it publishes.
    """

    name: str
    parameters: Mapping[str, tuple[str | int, ...]]
    arrays: Mapping[str, str]
    scalars: tuple[str, ...]
    convert: Callable[[FormatSpec, "Csr"], Layout]

    def ctype(self, array: str, spec: FormatSpec, value_type: str) -> str:
        """C element type of one array under `spec`."""
        declared = self.arrays[array]
        if declared == "index":
            return {"i32": "int", "u16": "unsigned short"}[str(spec.get("index"))]
        return value_type if declared == "value" else declared


@dataclass(frozen=True, eq=False)
class Csr:
    """The pattern that formats convert from: `row_ptr` int64[rows + 1], `col_idx` int32[nnz] sorted within rows."""

    rows: int
    cols: int
    row_ptr: Ints
    col_idx: NDArray[np.int32]

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return len(self.col_idx)

    def row_of_entry(self) -> Ints:
        """Row of each entry, int64[nnz]."""
        return np.repeat(np.arange(self.rows, dtype=np.int64), np.diff(self.row_ptr))


def index_array(indices: NDArray[Any], spec: FormatSpec, cols: int) -> NDArray[Any]:
    """Column indices in the type that `index=` asks for.

    Raises:
        FormatNotApplicable: 16-bit indices cannot hold `cols` columns.
    """
    if spec.get("index") == "u16":
        if cols > 65_536:
            raise FormatNotApplicable(f"index=u16 holds columns up to 65536; the matrix has {cols}")
        return indices.astype(np.uint16)
    return indices.astype(np.int32)


def check_padding(slots: int, nnz: int, what: str) -> None:
    """Refuse a layout that stores far more slots than entries, or more than an int can index.

    Raises:
        FormatNotApplicable: more than 20 slots per non-zero (beyond the first 4,096), or 2^31 slots.
    """
    if slots > max(_FREE_SLOTS, MAX_PADDING * nnz):
        raise FormatNotApplicable(f"{what} would store {slots} slots for {nnz} non-zeros; at most 20 each")
    if slots > MAX_INDEX:
        raise FormatNotApplicable(f"{what} would store {slots} slots; an int indexes up to {MAX_INDEX}")


def check_size(csr: Csr) -> None:
    """Refuse what an int cannot index.

    Raises:
        FormatNotApplicable: rows, columns or non-zeros of 2^31 or more.
    """
    if max(csr.rows, csr.cols, csr.nnz) > MAX_INDEX:
        raise FormatNotApplicable(f"{csr.rows} x {csr.cols}, {csr.nnz} non-zeros: an int indexes up to {MAX_INDEX}")
