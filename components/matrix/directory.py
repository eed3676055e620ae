"""Matrices of a user's folder: .mtx, .mtx.gz or .tar.gz files, with or without a manifest.csv beside them."""

import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from components.errors import UserError
from components.matrix.choose import stratified_choice
from components.matrix.features import structure_class
from components.matrix.load import load_matrix, matrix_name, read_header_of
from components.matrix.types import SparseMatrix
from components.settings import DirectorySettings

_SUFFIXES = (".mtx", ".mtx.gz", ".tar.gz")


@dataclass(frozen=True)
class Candidate:
    """A file that may be chosen; `sha256` is what a manifest promises, or empty."""

    path: Path
    name: str
    group: str  # empty: what the file or its name says
    structure_class: str
    sha256: str = ""

    def load(self) -> SparseMatrix:
        """Read the file.

        Raises:
            UserError: it cannot be read, or is not the file that the manifest describes.
        """
        matrix = load_matrix(self.path, name=self.name, group=self.group)
        if self.sha256 and matrix.sha256 != self.sha256:
            raise UserError(f"{self.path}: sha256 {matrix.sha256}, expected {self.sha256} as manifest.csv says")
        return matrix if matrix.group != "local" else dataclasses.replace(matrix, group=_group_of_name(self.name))


def choose(settings: DirectorySettings, seed: int, root: Path) -> tuple[list[Candidate], Counter[str]]:
    """The files to take, spread over structure classes, and how many were left out for which reason.

    With a manifest.csv (columns name, group; path, nnz_expanded or nnz, field, structure_class, sha256 where known)
    classes and sizes come from it; otherwise every file of a fitting size is read once.

    Raises:
        UserError: no such folder, a manifest row that does not fit, an unreadable file, nothing to choose from.
    """
    folder = (root / settings.path).resolve() if settings.path else root
    if not settings.path or not folder.is_dir():
        shown = settings.path or "(empty)"
        raise UserError(f"matrices.directory.path: {shown}: no such folder, expected one that holds .mtx[.gz] files")
    skipped: Counter[str] = Counter()
    manifest = folder / "manifest.csv"
    found = list(
        _from_manifest(manifest, settings, skipped) if manifest.is_file() else _scan(folder, settings, skipped)
    )
    if not found:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "no .mtx[.gz] file"
        raise UserError(f"{folder}: no matrix to take ({reasons}), expected real ones within min_nnz and max_nnz")
    chosen = stratified_choice(found, [c.structure_class for c in found], settings.max_count, seed)
    if len(chosen) < len(found):
        skipped["not drawn"] = len(found) - len(chosen)
    return chosen, skipped


def _from_manifest(path: Path, settings: DirectorySettings, skipped: Counter[str]) -> Iterator[Candidate]:
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        missing = {"name", "group"} - set(table.fieldnames or ())
        if missing:
            raise UserError(f"{path}: line 1: no column {min(missing)}, expected name and group")
        for row in table:
            where = f"{path}: line {table.line_num}"
            relative = row.get("path") or _usual_path(path.parent, row["group"], row["name"])
            target = path.parent / relative
            if not target.is_file():
                raise UserError(f"{where}: {relative} is not there, expected the matrix {row['group']}/{row['name']}")
            size = row.get("nnz_expanded") or row.get("nnz") or ""
            if row.get("field") == "complex":
                skipped["complex"] += 1
            elif size and not size.isdigit():
                raise UserError(f"{where}: nnz {size!r}, expected a whole number")
            elif size and row.get("structure_class"):
                if settings.min_nnz <= int(size) <= settings.max_nnz:
                    known = row["structure_class"], row.get("sha256") or ""
                    yield Candidate(target, row["name"], row["group"], *known)
                else:
                    skipped["outside min_nnz to max_nnz"] += 1
            else:
                candidate = Candidate(target, row["name"], row["group"], "", row.get("sha256") or "")
                yield from _looked_at(candidate, settings, skipped)


def _usual_path(folder: Path, group: str, name: str) -> str:
    relative = [f"{group}/{name}{suffix}" for suffix in _SUFFIXES]
    return next((r for r in relative if (folder / r).is_file()), relative[0])


def _scan(folder: Path, settings: DirectorySettings, skipped: Counter[str]) -> Iterator[Candidate]:
    seen: set[tuple[str, str]] = set()
    for path in sorted(p for p in folder.rglob("*") if p.name.lower().endswith(_SUFFIXES) and p.is_file()):
        name = matrix_name(path)
        if name is None or path.name.startswith("."):
            continue
        home = path.parent
        if home.name == name and home != folder:  # an unpacked archive of the collection: group/name/name.mtx
            home = home.parent
        elif home != folder and name.startswith(home.name + "_") and (home / f"{home.name}.mtx").exists():
            skipped["companion of another matrix"] += 1
            continue
        group = "-".join(home.relative_to(folder).parts)
        if (group, name) in seen:
            skipped["same group and name"] += 1
            continue
        seen.add((group, name))
        yield from _looked_at(Candidate(path, name, group, ""), settings, skipped)


def _looked_at(candidate: Candidate, settings: DirectorySettings, skipped: Counter[str]) -> Iterator[Candidate]:
    """The candidate with its class, if it is one to take."""
    header = read_header_of(candidate.path)
    most = header.entries * (1 if header.symmetry == "general" else 2)
    if header.layout == "array":
        skipped["dense (array format)"] += 1
    elif header.field == "complex":
        skipped["complex"] += 1
    elif most < settings.min_nnz or header.entries > settings.max_nnz:
        skipped["outside min_nnz to max_nnz"] += 1
    else:
        matrix = candidate.load()
        if settings.min_nnz <= matrix.nnz <= settings.max_nnz:
            yield dataclasses.replace(candidate, structure_class=structure_class(matrix))
        else:
            skipped["outside min_nnz to max_nnz"] += 1


def _group_of_name(name: str) -> str:
    """Numbered siblings (bcsstk01, bcsstk02) belong together where nothing else names a group."""
    stem = re.match(r"[A-Za-z]+", name)
    return stem.group() if stem else name
