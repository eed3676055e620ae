"""Banner, comments and size line of a Matrix Market file.

References:
    Boisvert, Pozo, Remington. The Matrix Market Exchange Formats: Initial Design. NISTIR 5935, 1996.
"""

import re
from dataclasses import dataclass

from components.matrix.text_blocks import TextBlocks, fail, shown

MAX_DIMENSION = 2**31 - 1  # column indices are int32 everywhere downstream
FIELDS = {
    "real": "real",
    "double": "real",
    "integer": "integer",
    "unsigned-integer": "integer",  # what scipy.io.mmwrite calls unsigned types
    "pattern": "pattern",
    "complex": "complex",
}
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_HB_TYPE = re.compile(rb"\s*[RCPIQ][SUHZR][AE]\s", re.IGNORECASE)
_KEPT_COMMENTS = 200


@dataclass(frozen=True)
class Header:
    """What the lines before the first entry say.

    `entries` is the number of data lines to come: as the size line says (coordinate) or as the shape asks (array).
    """

    layout: str  # coordinate, array
    field: str  # real, integer, pattern, complex
    symmetry: str  # general, symmetric, skew-symmetric, hermitian
    rows: int
    cols: int
    entries: int
    size_line: int
    comments: tuple[str, ...]

    @property
    def value_tokens(self) -> int:
        """Numbers per entry besides its two indices."""
        return {"pattern": 0, "complex": 2}.get(self.field, 1)

    @property
    def line_tokens(self) -> int:
        """Tokens on each data line."""
        return self.value_tokens + (2 if self.layout == "coordinate" else 0)


def read_header(lines: TextBlocks, where: str) -> Header:
    """Read up to and including the size line.

    Raises:
        UserError: banner or size line missing, malformed, contradictory or too large; names the line.
    """
    first = lines.readline()
    if first is None:
        fail(where, 1, "empty file, expected '%%MatrixMarket matrix ...'")
    layout, field, symmetry = _banner(first, lines, where)
    comments: list[str] = []
    while (line := lines.readline()) is not None:
        text = line.strip()
        if text.startswith(b"%"):
            if len(comments) < _KEPT_COMMENTS:
                comments.append(text.lstrip(b"%").strip().decode("utf-8", "replace"))
        elif text:
            rows, cols, entries = _size(text, layout, symmetry, lines.line, where)
            return Header(layout, field, symmetry, rows, cols, entries, lines.line, tuple(comments))
    wanted = "'rows columns entries'" if layout == "coordinate" else "'rows columns'"
    fail(where, lines.line + 1, f"the file ends before its size line, expected {wanted}")


def _banner(line: bytes, lines: TextBlocks, where: str) -> tuple[str, str, str]:
    tokens = line.removeprefix(b"\xef\xbb\xbf").split()
    if not tokens or tokens[0].lower() not in (b"%%matrixmarket", b"%matrixmarket"):
        fail(where, 1, f"{_looks_like(line, lines)}, expected '%%MatrixMarket matrix ...'")
    words = [token.decode("ascii", "backslashreplace").lower() for token in tokens[1:]]
    if len(words) != 4:
        fail(where, 1, f"{len(words)} words after %%MatrixMarket, expected 'matrix <format> <field> <symmetry>'")
    kind, layout, field, symmetry = words
    if kind != "matrix":
        fail(where, 1, f"object {kind!r}, expected matrix")
    if layout not in ("coordinate", "array"):
        fail(where, 1, f"format {layout!r}, expected coordinate or array")
    if field not in FIELDS:
        fail(where, 1, f"field {field!r}, expected real, integer, pattern or complex")
    if symmetry not in SYMMETRIES:
        fail(where, 1, f"symmetry {symmetry!r}, expected {', '.join(SYMMETRIES)}")
    if field == "pattern" and layout == "array":
        fail(where, 1, "array format without values (pattern), expected real, integer or complex")
    if field == "pattern" and symmetry not in ("general", "symmetric"):
        fail(where, 1, f"pattern cannot be {symmetry}, expected general or symmetric")
    if symmetry == "hermitian" and field != "complex":
        fail(where, 1, f"hermitian with field {field}, expected complex (or symmetric)")
    return layout, FIELDS[field], symmetry


def _looks_like(line: bytes, lines: TextBlocks) -> str:
    start = line.lstrip()[:200]
    if start.startswith(b"\x1f\x8b"):
        return "gzip data (name it .mtx.gz or .tar.gz)"
    if start.startswith(b"PK\x03\x04"):
        return "a zip archive (or .npz)"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16 text (save it as ASCII or UTF-8)"
    if start.startswith(b"MATLAB"):
        return "a MATLAB .mat file"
    if start.lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "an HTML or XML page, perhaps a saved error message"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself"
    if b"\0" in line:
        return "binary data"
    for _ in range(3):  # Harwell-Boeing: the type (RSA, RUA, ...) opens the third line
        if (following := lines.readline()) is None:
            break
        if _HB_TYPE.match(following):
            return "Harwell-Boeing or Rutherford-Boeing text"
    return f"no banner but {shown(line)}" if start else "a blank line"


def _size(text: bytes, layout: str, symmetry: str, line: int, where: str) -> tuple[int, int, int]:
    tokens = text.split()
    wanted = 3 if layout == "coordinate" else 2
    form = "'rows columns entries'" if wanted == 3 else "'rows columns'"
    if len(tokens) != wanted or not all(_INTEGER.fullmatch(token) for token in tokens):
        fail(where, line, f"size line {shown(text)}, expected {form} as {wanted} whole numbers")
    if max(len(token) for token in tokens) > 30:
        fail(where, line, f"size line {shown(text)}, expected dimensions of at most {MAX_DIMENSION}")
    numbers = [int(token) for token in tokens]
    if min(numbers) < 0:
        fail(where, line, f"size line {shown(text)} holds a negative number, expected {form}")
    rows, cols = numbers[:2]
    if max(rows, cols) > MAX_DIMENSION:
        fail(where, line, f"shape {rows} x {cols}, expected at most {MAX_DIMENSION} rows and columns")
    if symmetry != "general" and rows != cols:
        fail(where, line, f"{symmetry} but {rows} x {cols}, expected a square shape")
    if layout == "coordinate":
        if numbers[2] > 0 and rows * cols == 0:
            fail(where, line, f"{numbers[2]} entries promised in a {rows} x {cols} matrix, expected 0")
        return rows, cols, numbers[2]
    if symmetry == "general":
        return rows, cols, rows * cols
    return rows, cols, rows * (rows - 1) // 2 if symmetry == "skew-symmetric" else rows * (rows + 1) // 2
