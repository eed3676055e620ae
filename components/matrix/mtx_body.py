"""Entries of a Matrix Market file, a block of whole lines at a time.

A block goes through a vectorised parser that accepts only what it is sure of; a block that it declines goes line by
line through the strict one, which either reads it or names the line that is wrong. The two agree on what is valid.
"""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.matrix.mtx_header import Header
from components.matrix.text_blocks import TextBlocks, fail, shown

Array = np.ndarray[Any, np.dtype[Any]]

_INDEX = re.compile(rb"[+-]?[0-9]+")
_REAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eEdD][+-]?[0-9]+)?")  # D: Fortran double precision
_NOT_FINITE = re.compile(rb"[+-]?(?:nan.*|inf|infinity)", re.IGNORECASE)
_D_TO_E = bytes.maketrans(b"Dd", b"EE")
_OTHER, _BLANK, _DIGIT, _MARK = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries as stored: 0-based int32 `i` and `j` (empty in array format), float64 or complex128 `values`."""

    i: Array
    j: Array
    values: Array


def read_entries(lines: TextBlocks, header: Header, where: str) -> Entries:
    """Read every entry after the size line.

    Raises:
        UserError: a line that does not fit the header, too many or too few entries; names the line.
    """
    parts: list[Entries] = []
    seen = 0
    while block := lines.block():
        part = _fast(block, header)
        if part is None or seen + len(part.values) > header.entries:
            part = _strict(block, header, lines.line + 1, seen, where)
        parts.append(part)
        seen += len(part.values)
        lines.line += block.count(b"\n")
    if seen < header.entries:
        said = f"{header.entries} entries promised" if header.layout == "coordinate" else f"{header.entries} values due"
        fail(where, header.size_line, f"{said}, expected as many lines but the file ends after {seen}")
    if not parts:
        return _entries([], [], [], header)
    return Entries(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("i", "j", "values")))


def line_of_entry(lines: TextBlocks, header: Header, index: int) -> int:
    """Number of the line that holds entry `index` (0-based) of a stream read anew from its start."""
    while lines.line < header.size_line:
        lines.readline()
    while (line := lines.readline()) is not None:
        text = line.strip()
        if text and not text.startswith(b"%"):
            if index == 0:
                break
            index -= 1
    return lines.line


def _classes(field: str) -> Array:
    table = np.full(256, _OTHER, np.uint8)
    table[list(b" \t\n")] = _BLANK
    table[list(b"0123456789")] = _DIGIT
    table[list({"pattern": b"", "integer": b"+-"}.get(field, b"+-.eEdD"))] = _MARK
    return table


_CLASSES = {field: _classes(field) for field in ("real", "integer", "pattern", "complex")}


def _fast(block: bytes, header: Header) -> Entries | None:
    """The block's entries, or None when anything about it is unusual."""
    text = np.frombuffer(block, np.uint8)
    classes = _CLASSES[header.field][text]
    if not classes.all():
        return None
    token = classes > _BLANK
    starts = np.flatnonzero(token & np.concatenate(([True], ~token[:-1])))
    width = header.line_tokens
    per_line = np.diff(np.searchsorted(starts, np.flatnonzero(text == ord("\n"))), prepend=0)
    if not ((per_line == width) | (per_line == 0)).all():
        return None
    first_value = width - header.value_tokens
    if first_value and header.field != "pattern":
        column = (np.searchsorted(starts, np.flatnonzero(classes == _MARK), side="right") - 1) % width
        if column.size and column.min() < first_value:
            return None
    numbers = _numbers(block.translate(_D_TO_E) if b"D" in block or b"d" in block else block)
    if numbers is None or numbers.size != starts.size or not np.isfinite(numbers).all():
        return None
    table = numbers.reshape(-1, width)
    if header.layout == "coordinate":
        low, high = table[:, :2].min(axis=0, initial=1), table[:, :2].max(axis=0, initial=1)
        if low.min() < 1 or (len(table) and (high[0] > header.rows or high[1] > header.cols)):
            return None
        i, j = (table[:, 0] - 1).astype(np.int32), (table[:, 1] - 1).astype(np.int32)
    else:
        i = j = np.empty(0, np.int32)
    values: Array
    if header.field == "complex":
        values = table[:, -2] + 1j * table[:, -1]
    else:
        values = np.ones(len(table)) if header.field == "pattern" else table[:, -1].copy()
    if header.layout == "coordinate" and _diagonal_faults(i, j, values, header.symmetry).any():
        return None
    return Entries(i, j, values)


def _numbers(block: bytes) -> Array | None:
    """All numbers of the text, correctly rounded; None when it holds anything else (two glued numbers count as two)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(block, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _diagonal_faults(i: Array, j: Array, values: Array, symmetry: str) -> Array:
    if symmetry == "skew-symmetric":
        return np.asarray((i == j) & (values != 0))
    if symmetry == "hermitian":
        return np.asarray((i == j) & (values.imag != 0))
    return np.zeros(0, bool)


def _strict(block: bytes, header: Header, first_line: int, seen: int, where: str) -> Entries:
    """The same, line by line; raises at the first line that is wrong."""
    i: list[int] = []
    j: list[int] = []
    values: list[complex] = []
    for number, line in enumerate(block.split(b"\n")[:-1], first_line):
        tokens = line.split()
        if not tokens or tokens[0].startswith(b"%"):
            continue
        if seen + len(values) >= header.entries:
            fail(where, number, f"one entry more than expected: line {header.size_line} promises {header.entries}")
        if len(tokens) != header.line_tokens:
            form = _form(header)
            fail(where, number, f"{len(tokens)} tokens in {shown(line)}, expected {header.line_tokens} ({form})")
        if header.layout == "coordinate":
            i.append(_index(tokens[0], header.rows, "row", number, where))
            j.append(_index(tokens[1], header.cols, "column", number, where))
        values.append(_value(tokens[header.line_tokens - header.value_tokens :], header.field, number, where))
        if header.layout == "coordinate" and i[-1] == j[-1]:
            _check_diagonal(values[-1], header.symmetry, number, where)
    return _entries(i, j, values, header)


def _entries(i: list[int], j: list[int], values: list[complex], header: Header) -> Entries:
    kind = np.complex128 if header.field == "complex" else np.float64
    return Entries(np.array(i, np.int32), np.array(j, np.int32), np.array(values, kind))


def _form(header: Header) -> str:
    names = ["row", "column"] if header.layout == "coordinate" else []
    return " ".join(names + {"pattern": [], "complex": ["real", "imaginary"]}.get(header.field, ["value"]))


def _index(token: bytes, limit: int, what: str, line: int, where: str) -> int:
    if not _INDEX.fullmatch(token):
        fail(where, line, f"{what} {shown(token)}, expected a whole number from 1 to {limit}")
    index = int(token[:30])
    if not 1 <= index <= limit or len(token) > 30:
        fail(where, line, f"{what} {shown(token)[1:-1]}, expected 1 to {limit}")
    return index - 1


def _value(tokens: list[bytes], field: str, line: int, where: str) -> complex:
    if field == "pattern":
        return 1.0
    numbers = []
    for token in tokens:
        if _NOT_FINITE.fullmatch(token):
            fail(where, line, f"value {shown(token)}, expected a finite number")
        if not (_INDEX if field == "integer" else _REAL).fullmatch(token):
            fail(where, line, f"value {shown(token)}, expected {'a whole' if field == 'integer' else 'a real'} number")
        numbers.append(float(token.translate(_D_TO_E)))
        if not np.isfinite(numbers[-1]):
            fail(where, line, f"value {shown(token)} is not finite as a double, expected at most 1.8e308 in magnitude")
    return complex(*numbers) if field == "complex" else numbers[0]


def _check_diagonal(value: complex, symmetry: str, line: int, where: str) -> None:
    if symmetry == "skew-symmetric" and value != 0:
        fail(where, line, f"diagonal value {value:g} in a skew-symmetric matrix, expected none or 0")
    if symmetry == "hermitian" and value.imag != 0:
        fail(where, line, f"diagonal value {value:g} in a hermitian matrix, expected a real one")
