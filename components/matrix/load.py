"""Any way a user names a matrix to a `SparseMatrix`: .mtx, .mtx.gz, .tar.gz, .npz, or `group/name` of the manifest."""

import dataclasses
import gzip
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from components.errors import UserError
from components.files import project_root, sha256_of
from components.matrix.mtx_header import Header, read_header
from components.matrix.mtx_reader import read_matrix_market
from components.matrix.storage import load_npz
from components.matrix.text_blocks import DAMAGE, TextBlocks, fail
from components.matrix.types import SparseMatrix

SUFFIXES = (".mtx", ".mtx.gz", ".tar.gz", ".tgz", ".tar", ".npz")
_TAR = (".tar.gz", ".tgz", ".tar")


def load_matrix(spec: str | Path, root: Path | None = None, name: str | None = None, group: str = "") -> SparseMatrix:
    """Load the matrix that `spec` names.

    Args:
        spec: a file (one of `SUFFIXES`; a path wins over an id that looks like it), or `group/name` of the manifest.
        root: the project whose manifest is searched; found by itself when a manifest is needed.
        name: instead of the file's own name.
        group: instead of the one that the file's comments give (`local` without any).

    Raises:
        UserError: `file: line N: what, expected what`, or no such file or matrix.
    """
    if not str(spec).strip():
        raise UserError(f"a matrix with no name, expected a file ({', '.join(SUFFIXES)}) or group/name")
    path = Path(spec)
    stem = matrix_name(path)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise UserError(f"{str(path)[:60]}...: {error.strerror}, expected a file or group/name") from None
    if is_folder:
        raise UserError(f"{path}: a folder, expected a file ({', '.join(SUFFIXES)}) or group/name")
    if stem is None or not path.exists():
        return _from_manifest(str(spec), root, stem is not None)
    if not path.is_file():
        raise UserError(f"{path}: not a regular file, expected one ({', '.join(SUFFIXES)})")
    name = name or stem
    try:
        if path.name.lower().endswith(".npz"):
            return load_npz(path, name, group or "local")
        opener, where = _open_text(path, stem)
        matrix = read_matrix_market(opener, where=where, name=name, group=group)
        return dataclasses.replace(matrix, source=str(path), sha256=sha256_of(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}, expected a readable file") from None
    except MemoryError:
        raise UserError(f"{path}: does not fit in memory, expected a smaller matrix") from None


def read_header_of(path: Path) -> Header:
    """Banner, comments and size line of a .mtx, .mtx.gz or .tar.gz file, without reading on.

    Raises:
        UserError: as `load_matrix`.
    """
    try:
        opener, where = _open_text(path, matrix_name(path) or path.name)
        with closing(path.open("rb") if isinstance(opener, Path) else opener()) as file:
            return read_header(TextBlocks(file, where, block_bytes=1 << 16), where)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}, expected a readable file") from None


def matrix_name(path: Path) -> str | None:
    """The file's name without the suffix that says it is a matrix; None when it has no such suffix."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix) and len(path.name) > len(suffix):
            return path.name[: -len(suffix)]
    return None


def _from_manifest(spec: str, root: Path | None, is_file_name: bool) -> SparseMatrix:
    from components.matrix.manifest import load_by_id

    parts = spec.split("/")
    if is_file_name or len(parts) != 2 or not all(parts):
        hint = "" if is_file_name or len(parts) != 1 else _with_group(root, spec)
        raise UserError(f"{spec}: no such file, expected {', '.join(SUFFIXES)} or group/name of the manifest{hint}")
    return load_by_id(root or project_root(), spec)


def _with_group(root: Path | None, name: str) -> str:
    """A hint for a name that lacks its group."""
    from components.matrix.manifest import read_manifest

    try:
        ids = [str(known) for known in read_manifest(root or project_root())["matrix"]]
    except UserError:
        return ""
    found = [known for known in ids if known.split("/")[1] == name]
    return f"; did you mean {' or '.join(found[:3])}?" if found else ""


def _open_text(path: Path, stem: str) -> tuple[Path | Callable[[], BinaryIO], str]:
    """What opens the Matrix Market text within `path`, and what messages call it."""
    lower = path.name.lower()
    if lower.endswith(".mtx"):
        return path, str(path)
    if lower.endswith((".gz", ".tgz")):
        with path.open("rb") as file:
            start = file.read(2)
        if start != b"\x1f\x8b":
            seen = "empty file" if not start else "not gzip data"
            wanted = (
                "a gzipped tar archive" if lower.endswith(_TAR) else "gzip (a plain Matrix Market file is named .mtx)"
            )
            fail(str(path), 1, f"{seen}, expected {wanted}")
    if not lower.endswith(_TAR):
        return lambda: cast(BinaryIO, gzip.open(path, "rb")), str(path)
    member = _member(path, stem)
    return lambda: _open_member(path, member), f"{path}!{member}"


def _member(path: Path, stem: str) -> str:
    """The archive's matrix: `A/A.mtx` or `A.mtx`, not its right-hand sides `A_b.mtx`, coordinates `A_coord.mtx`."""
    try:
        with tarfile.open(path) as archive:
            names = [m.name for m in archive if m.isfile() and m.name.lower().endswith(".mtx")]
    except DAMAGE as error:
        why = "no archive within" if isinstance(error, tarfile.ReadError) else str(error)
        fail(str(path), 1, f"archive damaged or cut off ({why}), expected a whole tar archive")
    names = [n for n in names if not PurePosixPath(n).name.startswith(".")]
    stems = {n: PurePosixPath(n).name[:-4] for n in names}
    rules: list[Callable[[str], bool]] = [
        lambda n: stems[n] == stem,
        lambda n: stems[n] == PurePosixPath(n).parent.name,
        lambda n: all(stems[other].startswith(stems[n]) for other in names),
    ]
    for rule in rules:
        if len(found := [n for n in names if rule(n)]) == 1:
            return found[0]
    seen = f"{len(names)} .mtx files ({', '.join(sorted(names)[:5])})" if names else "no .mtx file"
    raise UserError(f"{path}: {seen} in the archive, expected {stem}/{stem}.mtx")


def _open_member(path: Path, member: str) -> BinaryIO:
    archive = tarfile.open(path)  # noqa: SIM115 - closed with the member below
    try:
        file = archive.extractfile(member)
        if file is None:
            raise UserError(f"{path}: {member} is not a plain file in the archive, expected one")
    except DAMAGE as error:
        archive.close()
        raise UserError(f"{path}: archive damaged or cut off ({error}), expected a whole tar archive") from None
    close = file.close

    def close_both() -> None:
        close()
        archive.close()

    file.close = close_both  # type: ignore[method-assign]
    return cast(BinaryIO, file)
