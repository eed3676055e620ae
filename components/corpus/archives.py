"""Members of a downloaded archive as bytes, in memory: nothing is unpacked to disk, so no name can escape."""

import lzma
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from components.errors import UserError


@dataclass(frozen=True)
class Member:
    """A regular file: its path inside the archive, size in bytes, and content (None when it was larger than asked)."""

    path: str
    size: int
    data: bytes | None


def members(archive: Path, wanted: Callable[[str], bool], max_bytes: int) -> Iterator[Member]:
    """The regular files whose path is `wanted`, in the archive's order; links, devices and folders are passed over.

    Args:
        archive: .whl, .zip, or .tar with gzip, xz or bzip2.
        wanted: called with the path as stored.
        max_bytes: content of larger files is not read.

    Raises:
        UserError: the archive is damaged.
    """
    reader = _zip_members if re.search(r"\.(whl|zip)$", archive.name) else _tar_members
    try:
        yield from reader(archive, wanted, max_bytes)
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{archive}: damaged archive ({text}); delete the file and run again") from None


def inner_path(path: str) -> str | None:
    """The path below the archive's top folder in a normal form, or None for one that points outside."""
    if path.startswith("/") or "\\" in path or "\0" in path or re.match(r"[A-Za-z]:", path):
        return None
    if ".." in path.split("/"):
        return None
    clean = posixpath.normpath(path)
    return clean if clean != "." else None


def _zip_members(archive: Path, wanted: Callable[[str], bool], max_bytes: int) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            kind = info.external_attr >> 28  # 8: regular, 10: symbolic link, 0: not said
            if info.is_dir() or kind not in (0, 8) or not wanted(info.filename):
                continue
            data = file.read(info) if info.file_size <= max_bytes else None
            yield Member(info.filename, info.file_size, data)


def _tar_members(archive: Path, wanted: Callable[[str], bool], max_bytes: int) -> Iterator[Member]:
    with tarfile.open(archive, "r|*") as file:
        for info in file:
            if not info.isreg() or not wanted(info.name):
                continue
            stream = file.extractfile(info) if info.size <= max_bytes else None
            data = stream.read() if stream is not None else None
            if data is not None and len(data) != info.size:
                raise tarfile.ReadError(f"{info.name}: ends early")
            yield Member(info.name, info.size, data)
