"""Append-only tables of JSON lines: a crash loses what was being written, never what was written before.

The table `measurements` is `measurements-00000.jsonl.gz`, `measurements-00001.jsonl.gz`, ... in one folder. Every batch
is a gzip member of its own (RFC 1952, section 2.2), so that a file cut off within one still gives all the others.
"""

import fcntl
import gzip
import json
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from components.errors import UserError

MAX_BYTES = 16 << 20  # of a shard
_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True)
class Line:
    """One row and where it stands."""

    shard: Path
    number: int  # 1-based
    row: dict[str, Any]


class Folder:
    """A folder of tables that one process at a time appends to. Thread-safe; use as a context manager.

    Args:
        path: made when it is not there.
        max_bytes: of a shard; a batch that is larger gets a shard of its own.

    Raises:
        UserError: another process writes to it.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES):
        self.path, self._max_bytes = path, max_bytes
        path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._files: dict[str, BinaryIO] = {}  # the shard that each table is at
        self._held = os.open(path, os.O_RDONLY)  # its lock leaves no file behind
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._held)
            raise UserError(f"{path}: another campaign is writing there; wait for it or choose another --out") from None

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for file in self._files.values():
                file.close()
            os.close(self._held)

    def append(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a batch and wait until it is on the disk; NaN and infinities are refused (ValueError)."""
        if not rows:
            return
        text = "".join(json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in rows)
        member = gzip.compress(text.encode(), mtime=0)
        with self._lock:
            file = self._file(table, len(member))
            file.write(member)
            file.flush()
            os.fsync(file.fileno())

    def _file(self, table: str, nbytes: int) -> BinaryIO:
        """The table's shard, if it takes `nbytes` more and ends well, else a new one: nothing is rewritten."""
        if (file := self._files.get(table)) is not None:
            if file.tell() + nbytes <= self._max_bytes:
                return file
            file.close()
        shards = shards_of(self.path, table)
        last = shards[-1] if shards else None
        if last is None:
            number = 0
        elif file is None and last.stat().st_size + nbytes <= self._max_bytes and not _torn(last):
            self._files[table] = last.open("ab")
            return self._files[table]
        else:
            number = int(last.name[len(table) + 1 : -len(_SUFFIX)]) + 1
        self._files[table] = (self.path / f"{table}-{number:05d}{_SUFFIX}").open("xb")
        return self._files[table]


def shards_of(folder: Path, table: str) -> list[Path]:
    """The shards of a table, in the order in which they were written."""
    return sorted(folder.glob(f"{table}-[0-9][0-9][0-9][0-9][0-9]{_SUFFIX}"))


def read_table(folder: Path, table: str) -> Iterator[Line]:
    """Every row of a table, in the order in which they were written; a torn last batch of a shard is left out.

    Raises:
        UserError: a shard is damaged in another way than by being cut off, or a line is no JSON object.
    """
    for shard in shards_of(folder, table):
        number = 0
        for content, _ in _members(shard):
            for text in content.decode("utf-8").splitlines():
                number += 1
                try:
                    row = json.loads(text)
                except ValueError as error:
                    raise UserError(f"{shard}: line {number}: not JSON ({error})") from None
                if not isinstance(row, dict):
                    raise UserError(f"{shard}: line {number}: {text[:40]}, expected a JSON object")
                yield Line(shard, number, row)


def _members(shard: Path) -> Iterator[tuple[bytes, int]]:
    """The whole gzip members of a file: (content, byte after it)."""
    data = shard.read_bytes()
    size = len(data)
    while data:
        stream = zlib.decompressobj(wbits=31)
        try:
            content = stream.decompress(data)
        except zlib.error as error:
            raise UserError(f"{shard}: byte {size - len(data)}: damaged ({error}), expected gzip members") from None
        if not stream.eof:
            return  # cut off while it was written
        data = stream.unused_data
        yield content, size - len(data)


def _torn(shard: Path) -> bool:
    """Whether a file ends within a member."""
    *_, (_, end) = [(b"", 0), *_members(shard)]
    return end < shard.stat().st_size
