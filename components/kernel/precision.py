"""Precisions: in which types values, dense operands and results are stored, and how exact sums are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import UserError


@dataclass(frozen=True)
class Precision:
    """One precision.

    In the 16-bit ones the matrix's values and the dense operands have 16 bits, sums and the result 32: products of two
    such numbers are exact in float32 (11 + 11 and 8 + 8 significant bits of 24), so that float32's bound holds.
    """

    name: str
    value: str  # C type of the matrix's values and of the dense operands
    output: str  # C type of the result, and of sums
    value_dtype: type[np.generic]  # as arrays hold it; bfloat16 as the upper half of a float32
    output_dtype: type[np.generic]
    unit_roundoff: float  # of `output`
    tiny: float  # what half of the rows of a draw are scaled by; still a normal number of `value`
    include: str = ""  # the header that declares `value`

    @property
    def value_bytes(self) -> int:
        """Bytes of one value."""
        return int(np.dtype(self.value_dtype).itemsize)

    @property
    def output_bytes(self) -> int:
        """Bytes of one element of the result."""
        return int(np.dtype(self.output_dtype).itemsize)

    def encode(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """The nearest numbers of this precision (ties to even, 16 bits by way of float32), as `value_dtype`.

        Args:
            numbers: finite and in range.
        """
        if self.name == "float64":
            return np.ascontiguousarray(numbers, np.float64)
        singles = np.ascontiguousarray(numbers, np.float32)
        if self.name != "bfloat16":
            return singles.astype(self.value_dtype, copy=False)
        bits = singles.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)

    def decode(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        """The stored numbers, exactly."""
        if self.name != "bfloat16":
            return stored.astype(np.float64)
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


FLOAT32 = Precision("float32", "float", "float", np.float32, np.float32, 2.0**-24, 2.0**-20)
FLOAT64 = Precision("float64", "double", "double", np.float64, np.float64, 2.0**-53, 2.0**-20)
FLOAT16 = Precision("float16", "__half", "float", np.float16, np.float32, 2.0**-24, 2.0**-10, "cuda_fp16.h")
BFLOAT16 = Precision("bfloat16", "__nv_bfloat16", "float", np.uint16, np.float32, 2.0**-24, 2.0**-20, "cuda_bf16.h")
PRECISIONS: Mapping[str, Precision] = {p.name: p for p in (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)}


def get_precision(name: str) -> Precision:
    """A precision by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PRECISIONS:
        raise UserError(f"precision {name!r}: expected one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]
