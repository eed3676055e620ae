"""The collection's own index (ssstats.csv), and the selection of matrices from it.

References:
    Kolodziej et al. The SuiteSparse Matrix Collection Website Interface. JOSS 4(35):1244, 2019.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from components.errors import UserError
from components.matrix.choose import stratified_choice
from components.settings import CollectionSettings

_COLUMNS = 13
_HEADER_LINES = 2  # number of matrices, date


@dataclass(frozen=True)
class IndexRow:
    """One matrix of the collection; `nnz` leaves explicit zeros out, `entries` counts them."""

    group: str
    name: str
    rows: int
    cols: int
    nnz: int
    is_real: bool
    kind: str
    entries: int

    @property
    def id(self) -> str:
        """`group/name`."""
        return f"{self.group}/{self.name}"


def parse_index(text: str, where: str) -> list[IndexRow]:
    """Read ssstats.csv: two header lines, then 13 columns (the last, entries, is missing in copies before 2018).

    Raises:
        UserError: `where: line N: ...` for a line that does not fit, or fewer rows than the first line promises.
    """
    lines = text.splitlines()
    if len(lines) < _HEADER_LINES or not lines[0].strip().isdigit():
        raise UserError(f"{where}: line 1: expected the number of matrices; this is not the collection's index")
    rows = []
    for number, line in enumerate(lines[_HEADER_LINES:], _HEADER_LINES + 1):
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip():
            continue
        try:
            if len(cells) not in (_COLUMNS - 1, _COLUMNS):
                raise ValueError(f"{len(cells)} columns, expected {_COLUMNS}")
            n_rows, n_cols, nnz = (int(cell) for cell in cells[2:5])
            if not cells[0] or not cells[1] or {"..", "."} & set(cells[:2]) or set(cells[0] + cells[1]) & set("/\\"):
                raise ValueError(f"group {cells[0]!r} and name {cells[1]!r}, expected plain names")
            entries = int(cells[12]) if len(cells) == _COLUMNS else nnz
            rows.append(IndexRow(cells[0], cells[1], n_rows, n_cols, nnz, cells[5] == "1", cells[11], entries))
        except ValueError as error:
            raise UserError(f"{where}: line {number}: {error}") from None
    if len(rows) != int(lines[0]):
        raise UserError(f"{where}: {len(rows)} matrices, expected {lines[0].strip()} as its first line says")
    return rows


def select(rows: Sequence[IndexRow], settings: CollectionSettings, seed: int) -> tuple[list[IndexRow], Counter[str]]:
    """The matrices that the settings ask for, and how many were left out for which reason.

    `names` are taken as they stand; without any, the other rules apply together and `max_count` are drawn, spread
    over kinds.

    Raises:
        UserError: a name, group or kind that the index does not hold, or nothing left.
    """
    skipped: Counter[str] = Counter()
    if settings.names:
        known = {row.id: row for row in rows}
        for name in settings.names:
            _check_known("names", name, list(known))
        wanted = [known[name] for name in dict.fromkeys(settings.names)]
        real = [row for row in wanted if row.is_real]
        skipped["complex"] = len(wanted) - len(real)
        return real, +skipped
    groups = {row.group for row in rows}
    for group in settings.groups:
        _check_known("groups", group, sorted(groups))
    for kind in settings.kinds:
        if not any(kind.lower() in row.kind.lower() for row in rows):
            raise UserError(f"matrices.collection.kinds: {kind!r}: no such kind in the index")
    found = []
    for row in rows:
        if settings.groups and row.group not in settings.groups:
            continue
        if settings.kinds and not any(kind.lower() in row.kind.lower() for kind in settings.kinds):
            continue
        if not settings.min_nnz <= row.nnz <= settings.max_nnz:
            skipped["outside min_nnz to max_nnz"] += 1
        elif not row.is_real:
            skipped["complex"] += 1
        else:
            found.append(row)
    if not found:
        raise UserError("matrices.collection: no matrix fits groups, kinds, min_nnz and max_nnz, expected at least one")
    chosen = stratified_choice(found, [row.kind for row in found], settings.max_count, seed)
    skipped["not drawn"] = len(found) - len(chosen)
    return chosen, +skipped


def _check_known(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        close = ", ".join(difflib.get_close_matches(name, known, n=3)) or "see ssstats.csv"
        raise UserError(f"matrices.collection.{what}: {name}: not in the collection's index, expected e.g. {close}")
