"""Matrix Market text to `SparseMatrix`: strict, with the line of whatever is wrong.

Accepted beyond the letter of the format, because it can mean only one thing: any letter case, blank and comment lines
anywhere after the banner, tabs, CRLF or CR line ends, a UTF-8 byte order mark, `%MatrixMarket` with one percent sign,
fields `double` and `unsigned-integer`, Fortran `D` exponents, entries of either triangle in a symmetric file.
Refused: everything else, including values that are not finite and an entry whose mirror image is stored as well.
"""

import io
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import numpy as np

from components.matrix.assemble import Array, assemble
from components.matrix.mtx_body import Entries, line_of_entry, read_entries
from components.matrix.mtx_header import Header, read_header
from components.matrix.text_blocks import TextBlocks, fail
from components.matrix.types import SparseMatrix


def read_matrix_market(
    source: Path | bytes | Callable[[], BinaryIO], *, where: str = "", name: str = "matrix", group: str = ""
) -> SparseMatrix:
    """Read one Matrix Market file that is not compressed (`load.load_matrix` opens archives).

    Args:
        source: a path, the text itself, or a function that opens the stream (called again to find a line).
        where: what messages call the file; the path by default.
        name: of the matrix.
        group: of the matrix; when empty, what a `name: group/name` comment says (the SuiteSparse collection writes
            one), else `local`.

    Returns:
        The matrix with its symmetric half mirrored and duplicates summed. Zeros of an array file are not stored.

    Raises:
        UserError: `where: line N: what, expected what`.
        OSError: the path cannot be opened.
    """
    opener = _opener(source)
    where = where or (str(source) if isinstance(source, Path) else name)
    with closing(opener()) as file:
        lines = TextBlocks(file, where)
        header = read_header(lines, where)
        _check_room(header, source, where)
        entries = read_entries(lines, header, where)
    i, j, values = entries.i, entries.j, entries.values
    if header.layout == "array":
        i, j, values = _positions(entries, header)
    whole = assemble(header.rows, header.cols, i, j, values, header.symmetry)
    if whole.mirrored_twice >= 0:
        with closing(opener()) as file:
            line = line_of_entry(TextBlocks(file, where), header, whole.mirrored_twice)
        pair = f"({i[whole.mirrored_twice] + 1}, {j[whole.mirrored_twice] + 1})"
        fail(
            where,
            line,
            f"entry {pair} and its mirror are both stored, expected one of them in a {header.symmetry} file",
        )
    return SparseMatrix(
        name=name,
        group=group or _group_of(header, name),
        rows=header.rows,
        cols=header.cols,
        row_ptr=whole.row_ptr,
        col_idx=whole.col_idx,
        values=whole.values,
        field=header.field,
        symmetry=header.symmetry,
        nnz_stored=header.entries,
        duplicates=whole.duplicates,
        explicit_zeros=int(np.count_nonzero(whole.values == 0)),
        source=where,
    )


def _opener(source: Path | bytes | Callable[[], BinaryIO]) -> Callable[[], BinaryIO]:
    if isinstance(source, Path):
        return lambda: source.open("rb")
    if isinstance(source, bytes):
        return lambda: io.BytesIO(source)
    return source


def _check_room(header: Header, source: object, where: str) -> None:
    """Refuse a promise that the file's own size rules out, before reading on."""
    size = source.stat().st_size if isinstance(source, Path) else len(source) if isinstance(source, bytes) else None
    if size is not None and header.entries * 2 * header.line_tokens > size + 1:
        unit = "entries" if header.layout == "coordinate" else "values"
        fail(where, header.size_line, f"{header.entries} {unit} promised, expected no more than {size} bytes can hold")


def _positions(entries: Entries, header: Header) -> tuple[Array, Array, Array]:
    """Row and column of each value of an array file: column by column, from the diagonal down if symmetric."""
    rows, cols = header.rows, header.cols
    if header.symmetry == "general":
        order = np.arange(rows * cols, dtype=np.int64)
        i, j = (order % rows, order // rows) if rows else (order, order)
    else:
        skip = 1 if header.symmetry == "skew-symmetric" else 0
        lengths = np.arange(cols, 0, -1, dtype=np.int64) - skip
        j = np.repeat(np.arange(cols, dtype=np.int64), lengths)
        starts = np.cumsum(lengths) - lengths
        i = np.arange(len(j), dtype=np.int64) - starts[j] + j + skip
    keep = entries.values != 0
    return i[keep].astype(np.int32), j[keep].astype(np.int32), entries.values[keep]


def _group_of(header: Header, name: str) -> str:
    for comment in header.comments:
        key, _, value = comment.partition(":")
        group, slash, named = value.strip().partition("/")
        if key.strip().lower() == "name" and slash and named == name and re.fullmatch(r"[\w.+-]+", group):
            return group
    return "local"
