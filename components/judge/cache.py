"""Results on disk, addressed by what they were made of; safe under parallel processes and kill -9."""

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.errors import UserError
from components.files import project_root, replacing

_LOG = logging.getLogger(__name__)
_TRIM_EVERY = 200  # writes between two looks at the folder's size
_STALE_LOCK_S = 86400.0
_TRIM_TO = 0.8  # of the limit


def content_key(*parts: Any) -> str:
    """SHA-256 of plain JSON values."""
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


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
    """JSON objects by (kind, key), bounded in size, least recently used out first.

    Args:
        folder: where entries lie; None keeps nothing. A folder that cannot be written turns the cache off with one
            warning.
        max_bytes: the size that it is trimmed under.
    """

    def __init__(self, folder: Path | None, max_bytes: int):
        self.folder, self.max_bytes = folder, max_bytes
        self._writes = 0
        self._lock = threading.Lock()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError("not writable")
                self._probe()
            except OSError as error:
                self._give_up(error)

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """The entry, or None; an entry that is damaged is removed and counts as missing."""
        if self.folder is None:
            return None
        path = self._path(kind, key)
        try:
            with open(path, encoding="utf-8") as file:
                value = json.load(file)
            os.utime(path)  # recently used
        except FileNotFoundError:
            return None
        except ValueError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            return None
        except OSError:
            return None
        return value if isinstance(value, dict) else None

    def put(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Keep an entry; on a full disk or a read-only folder the cache goes off with one warning."""
        if self.folder is None:
            return
        try:
            _write(self._path(kind, key), json.dumps(value).encode())
        except OSError as error:
            self._give_up(error)
            return
        with self._lock:
            self._writes += 1
            due = self._writes % _TRIM_EVERY == 1
        if due:
            self.trim()

    @contextlib.contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Exclude every other thread and process from the same key; the kernel frees the lock of one that dies."""
        if self.folder is None:
            yield
            return
        path = self._path(kind, key).removesuffix(".json") + ".lock"
        handle = self._acquire(path)
        try:
            yield
        finally:
            if handle is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.close(handle)

    def trim(self) -> None:
        """Remove the least recently used entries until the folder is under its limit."""
        if self.folder is None:
            return
        entries = []
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                if path.suffix == ".json":
                    entries.append((stat.st_mtime_ns, stat.st_size, path))
                elif path.suffix == ".lock" and time.time() - stat.st_mtime > _STALE_LOCK_S:
                    path.unlink()  # of a process that was killed
        total = sum(size for _, size, _ in entries)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            if total <= self.max_bytes * _TRIM_TO:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def _path(self, kind: str, key: str) -> str:
        """As text: an entry's path is made many hundred times a second."""
        return f"{self.folder}/{kind}/{key[:2]}/{key}.json"

    @staticmethod
    def _acquire(path: str) -> int | None:
        """An exclusive lock on `path`; None where the file system cannot lock."""
        while True:
            try:
                handle = _open(path, os.O_RDWR | os.O_CREAT)
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError:
                return None
            # Its last holder removes the file: a lock on a removed file excludes nobody, so take the new one.
            try:
                if os.stat(path).st_ino == os.fstat(handle).st_ino:
                    return handle
            except FileNotFoundError:
                pass
            os.close(handle)

    def _probe(self) -> None:
        assert self.folder is not None
        with replacing(self.folder / "writable.json") as temporary:
            temporary.write_text("{}", encoding="utf-8")

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            if self.folder is not None:
                _LOG.warning(
                    "%s: cannot be written (%s); judging without a cache", self.folder, error.strerror or error
                )
                self.folder = None


def _open(path: str, flags: int) -> int:
    """Open a file whose folder may not exist yet."""
    for _ in range(3):  # another process may remove the folder in between
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    return os.open(path, flags | os.O_CLOEXEC, 0o666)


def _write(path: str, data: bytes) -> None:
    """`components.files.replacing` for many small files: the temporary's name is this thread's own."""
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name}.{os.getpid()}-{threading.get_ident()}.json"
    handle = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(data)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
