"""Results on disk, addressed by what they were made of; safe under parallel processes and kill -9.

One SQLite file: an entry of its own file costs several times as much, and the judge makes hundreds a second. The folder
has to be on a disk of this machine: SQLite's write-ahead log does not work across a network.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.errors import UserError
from components.files import project_root

_LOG = logging.getLogger(__name__)
FILE, _LOCKS = "judge.sqlite", "locks"
_TRIM_EVERY = 50  # writes between two looks at the file's size
_TRIM_TO = 0.8  # of the limit
_TRIM_AT_ONCE = 500  # entries in one transaction: other processes wait for it
_SOON = 100  # entries that wait for another's write, at most
_USED_WITHIN_S = 60.0  # an entry's time of use is this exact
_BUSY_S = 30.0  # to wait for other processes' writes
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


def content_key(*parts: Any) -> str:
    """SHA-256 of plain JSON values."""
    return hashlib.sha256(_COMPACT.encode(parts).encode()).hexdigest()


@functools.cache
def code_version() -> str:
    """Hash of the code that makes verdicts, so that a changed judge never answers with an older one's results."""
    digest = hashlib.sha256()
    rooms = Path(__file__).resolve().parents[1]
    for room in ("matrix", "kernel", "judge"):
        for path in sorted((rooms / room).rglob("*.py")):
            digest.update(path.relative_to(rooms).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def default_folder() -> Path:
    """`SPARSERL_CACHE`, or .cache/judge under the project's root."""
    if value := os.environ.get("SPARSERL_CACHE"):
        return Path(value)
    try:
        return project_root() / ".cache" / "judge"
    except UserError:
        return Path(__file__).resolve().parents[2] / ".cache" / "judge"


class Cache:
    """JSON objects by (kind, key), bounded in size, least recently used out first. Thread-safe.

    Args:
        folder: where the file lies; None keeps nothing. A folder that cannot be written turns the cache off with one
            warning.
        max_bytes: the size that it is trimmed under.
    """

    def __init__(self, folder: Path | None, max_bytes: int):
        self.folder, self.max_bytes = folder, max_bytes
        self._writes = 0
        self._lock = threading.RLock()  # of all below
        self._soon: dict[str, str] = {}  # entries that the next write takes along
        self._used: dict[str, int] = {}  # and times of use
        self._database: sqlite3.Connection | None = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError("not writable")
                self._database = _opened(folder / FILE)
            except (OSError, sqlite3.Error) as error:
                self._give_up(error)

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """The entry, or None; an entry that is damaged is removed and counts as missing."""
        name = f"{kind}/{key}"
        with self._lock:
            if self._database is None:
                return None
            if (text := self._soon.get(name)) is None:
                try:
                    row = self._database.execute("SELECT value, used FROM entries WHERE name = ?", (name,)).fetchone()
                except sqlite3.Error as error:
                    self._failed(error)
                    return None
                if row is None:
                    return None
                text, now = row[0], time.time_ns()
                if now - row[1] > _USED_WITHIN_S * 1e9:
                    self._used[name] = now
        try:
            value = json.loads(text)
        except (ValueError, TypeError):
            value = None
        if not isinstance(value, dict):
            self._remove(name)
            return None
        return value

    def put(self, kind: str, key: str, value: dict[str, Any], soon: bool = False) -> None:
        """Keep an entry; on a full disk or a read-only folder the cache goes off with one warning.

        Args:
            soon: write it with the next entry that is not `soon`; until then other processes do not see it, and who is
                killed loses it.
        """
        with self._lock:
            if self._database is None:
                return
            self._soon[f"{kind}/{key}"] = json.dumps(value)
            if not soon or len(self._soon) >= _SOON:
                self._flush()

    @contextlib.contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Exclude every other thread and process from the same key; the kernel frees the lock of one that dies."""
        handle = self._acquire(int(content_key(kind, key)[:15], 16))
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def trim(self) -> None:
        """Remove the least recently used entries until the file is under its limit."""
        with self._lock:
            if self._database is None:
                return
            try:
                self._flush()
                self._trim(self._database)
            except sqlite3.Error as error:
                self._failed(error)

    def close(self) -> None:
        """Write what is to be written and keep nothing from then on."""
        with self._lock:
            if self._database is not None:
                self._flush()
            if self._database is not None:
                self._database.close()
                self._database = None

    def _flush(self) -> None:
        assert self._database is not None
        now = time.time_ns()
        try:
            if self._soon:  # one statement: each gives other threads the interpreter, and is waited for again
                rows = ", ".join(["(?, ?, ?)"] * len(self._soon))
                values = [part for name, text in self._soon.items() for part in (name, now, text)]
                self._database.execute(f"INSERT OR REPLACE INTO entries VALUES {rows}", values)
                self._soon.clear()
            for name, used in self._used.items():
                self._database.execute("UPDATE entries SET used = ? WHERE name = ?", (used, name))
            self._used.clear()
            self._writes += 1
            if self._writes % _TRIM_EVERY == 1:
                self._trim(self._database)
        except sqlite3.Error as error:
            self._failed(error)

    def _trim(self, database: sqlite3.Connection) -> None:
        in_use = _bytes_in_use(database)
        if in_use <= self.max_bytes:
            return
        oldest = database.execute("SELECT rowid, length(value) FROM entries ORDER BY used, rowid").fetchall()
        per_byte = in_use / max(1, sum(length for _, length in oldest))  # of a value: pages are not full
        at = 0
        while (excess := _bytes_in_use(database) - self.max_bytes * _TRIM_TO) > 0 and at < len(oldest):
            leaving: list[tuple[int]] = []
            while excess > 0 and at < len(oldest) and len(leaving) < _TRIM_AT_ONCE:
                excess -= oldest[at][1] * per_byte
                leaving.append((oldest[at][0],))
                at += 1
            database.execute("BEGIN IMMEDIATE")
            database.executemany("DELETE FROM entries WHERE rowid = ?", leaving)
            database.execute("COMMIT")
        if _pragma(database, "page_count") * _pragma(database, "page_size") > self.max_bytes:
            database.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after a page

    def _remove(self, name: str) -> None:
        with self._lock:
            if self._database is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("DELETE FROM entries WHERE name = ?", (name,))

    def _acquire(self, place: int) -> int | None:
        """An exclusive lock on one byte of the file of locks; None without a cache, or where nothing can be locked.

        Locks of an open file description (Linux): every call opens the file, so threads exclude each other too.
        """
        if self._database is None:
            return None
        handle = None
        try:
            handle = os.open(f"{self.folder}/{_LOCKS}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.fcntl(handle, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        except OSError:
            if handle is not None:
                os.close(handle)
            return None
        return handle

    def _failed(self, error: sqlite3.Error) -> None:
        """Start anew where the file is damaged; do without where it cannot be written."""
        assert self._database is not None
        assert self.folder is not None
        if isinstance(error, sqlite3.OperationalError):
            self._give_up(error)
            return
        self._database.close()
        try:
            self._database = _anew(self.folder / FILE, error)
        except (OSError, sqlite3.Error) as second:
            self._give_up(second)

    def _give_up(self, error: OSError | sqlite3.Error) -> None:
        with self._lock:
            why = getattr(error, "strerror", None) or error
            _LOG.warning("%s: cannot be written (%s); judging without a cache", self.folder, why)
            if self._database is not None:
                self._database.close()
            self._database = self.folder = None
            self._soon.clear()
            self._used.clear()


def _opened(path: Path) -> sqlite3.Connection:
    """The database, made when it is not there, and made anew when it is damaged."""
    try:
        return _connected(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return _anew(path, error)


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is written
        database.execute("PRAGMA journal_mode = WAL")
        # Whole after a loss of power too; the latest entries may be missing then.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("CREATE TABLE IF NOT EXISTS entries (name TEXT PRIMARY KEY, used INTEGER, value TEXT)")
    except BaseException:
        database.close()
        raise
    return database


def _anew(path: Path, error: sqlite3.Error) -> sqlite3.Connection:
    _LOG.warning("%s: damaged (%s); starting with an empty one", path, error)
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return _connected(path)


def _bytes_in_use(database: sqlite3.Connection) -> int:
    pages = _pragma(database, "page_count") - _pragma(database, "freelist_count")
    return pages * _pragma(database, "page_size")


def _pragma(database: sqlite3.Connection, name: str) -> int:
    (value,) = database.execute(f"PRAGMA {name}").fetchone()
    return int(value)
