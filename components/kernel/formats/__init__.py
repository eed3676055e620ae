"""Storage formats: a registry, `format_spec` for the contract's format line, and `convert` with its cost."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.kernel.formats import bsr, coo, csr, dia, sell
from components.kernel.formats.base import Csr, StorageFormat
from components.kernel.types import FormatSpec, ProgramError, StoredMatrix
from components.matrix.types import SparseMatrix

FORMATS: Mapping[str, StorageFormat] = {m.FORMAT.name: m.FORMAT for m in (csr, coo, sell, dia, bsr)}


def get_format(name: str) -> StorageFormat:
    """A format by name; KeyError when there is none."""
    return FORMATS[name]


def format_spec(name: str, parameters: Mapping[str, str], line: int = 1) -> FormatSpec:
    """Check a format line's words and fill in the defaults.

    Raises:
        ProgramError: `contract`: an unknown format or parameter, or a value the format does not allow.
    """
    if name not in FORMATS:
        raise ProgramError("contract", f"unknown format {name[:40]!r}; expected one of {', '.join(FORMATS)}", line)
    allowed = FORMATS[name].parameters
    filled: dict[str, str | int] = {key: values[0] for key, values in allowed.items()}
    for key, text in parameters.items():
        if key not in allowed:
            known = ", ".join(allowed) or "none"
            raise ProgramError("contract", f"format {name} has no parameter {key[:40]!r}; it takes {known}", line)
        match = [value for value in allowed[key] if str(value) == text]
        if not match:
            known = ", ".join(map(str, sorted(allowed[key], key=str)))
            raise ProgramError("contract", f"format {name}: {key}={text[:40]}; expected one of {known}", line)
        filled[key] = match[0]
    return FormatSpec(name, tuple(sorted(filled.items())), line)


def convert(spec: FormatSpec, matrix: SparseMatrix, dtype: type[np.generic] = np.float32) -> StoredMatrix:
    """Store `matrix` as `spec` asks, with its own values.

    Args:
        spec: from `format_spec`.
        matrix: real.
        dtype: of the stored values.

    Raises:
        FormatNotApplicable: the matrix does not fit the format.
    """
    start = time.perf_counter()
    pattern = Csr(matrix.rows, matrix.cols, matrix.row_ptr, matrix.col_idx)
    layout = FORMATS[spec.name].convert(spec, pattern)
    values: NDArray[Any] = np.zeros(layout.slots, dtype)
    values[layout.value_slots] = matrix.values
    convert_us = (time.perf_counter() - start) * 1e6
    return StoredMatrix(spec, {**layout.arrays, "values": values}, layout.scalars, layout.value_slots, convert_us)


def fill_values(stored: StoredMatrix, values: NDArray[Any]) -> NDArray[Any]:
    """The values array of `stored` for other values of the same pattern.

    Args:
        stored: a conversion.
        values: [nnz], in CSR order.

    Returns:
        An array of the stored type and length; padding is 0.
    """
    filled = np.zeros_like(stored.arrays["values"])
    filled[stored.value_slots] = values
    return filled
