import logging
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from components.judge.cache import FILE, Cache, content_key

KEY = content_key("a", 1)
HELD = "SELECT count(*) FROM entries WHERE name = ?"


def execute(folder: Path, statement: str, *values: Any) -> Any:
    """The first column of a statement's first row, from a connection of its own."""
    with sqlite3.connect(folder / FILE, isolation_level=None) as database:
        row = database.execute(statement, values).fetchone()
    database.close()
    return row[0] if row else None


def test_keeps_what_was_put_and_tells_kinds_apart(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    cache.put("verdict", KEY, {"status": "wrong"})
    assert Cache(tmp_path, 1 << 20).get("verdict", KEY) == {"status": "wrong"}
    assert cache.get("compile", KEY) is None
    assert cache.get("verdict", content_key("b", 1)) is None


def test_a_damaged_entry_counts_as_missing_and_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    cache.put("verdict", KEY, {"status": "wrong"})
    for damaged in ('{"status": "wr', "[1]", None):
        cache.put("verdict", KEY, {"status": "wrong"})
        execute(tmp_path, "UPDATE entries SET value = ?", damaged)
        assert cache.get("verdict", KEY) is None
        assert execute(tmp_path, "SELECT count(*) FROM entries") == 0


@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
def test_a_damaged_file_is_replaced_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    cache = Cache(tmp_path, 1 << 20)
    for number in range(200):
        cache.put("verdict", content_key(number), {"text": "x" * 2_000})
    if when == "before it is opened":
        cache.close()
        (tmp_path / FILE).write_bytes(b"no database" * 1_000)
        cache = Cache(tmp_path, 1 << 20)
    else:
        execute(tmp_path, "PRAGMA wal_checkpoint(TRUNCATE)")
        with open(tmp_path / FILE, "r+b") as file:
            file.write(b"no database" * 1_000)
    for _ in range(2):
        assert cache.get("verdict", content_key(0)) is None
    cache.put("verdict", KEY, {"status": "wrong"})
    assert Cache(tmp_path, 1 << 20).get("verdict", KEY) == {"status": "wrong"}
    assert len(caplog.records) == 1
    assert "damaged" in caplog.text


def test_trims_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    keys = [content_key("x", number) for number in range(120)]
    for key in keys:
        cache.put("verdict", key, {"text": "x" * 3_000})
    execute(tmp_path, "UPDATE entries SET used = rowid")
    assert cache.get("verdict", keys[0]) is not None  # used just now, so it stays
    cache.max_bytes = 400_000
    cache.trim()
    left = [number for number, key in enumerate(keys) if execute(tmp_path, HELD, f"verdict/{key}")]
    assert left == [0, *range(120 - len(left) + 1, 120)]
    assert 60 < len(left) < 110  # 80 % of the limit, in pages of 4 KB


def test_the_file_stays_bounded_however_much_is_put(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1_000_000)
    for number in range(2_000):
        cache.put("compile", content_key(number), {"text": "x" * 5_000})
    assert cache.get("compile", content_key(1_999)) is not None
    cache.close()
    assert 500_000 < (tmp_path / FILE).stat().st_size < 1_700_000  # 50 writes between two looks
    smaller = Cache(tmp_path, 200_000)
    smaller.trim()
    smaller.close()
    assert (tmp_path / FILE).stat().st_size <= 200_000


def test_what_is_put_soon_is_there_at_once_and_goes_with_the_next(tmp_path: Path) -> None:
    cache, other = Cache(tmp_path, 1 << 20), Cache(tmp_path, 1 << 20)
    cache.put("gate", KEY, {"status": "correct"}, soon=True)
    assert cache.get("gate", KEY) == {"status": "correct"}
    assert other.get("gate", KEY) is None
    cache.put("verdict", KEY, {"status": "wrong"})
    assert other.get("gate", KEY) == {"status": "correct"}
    cache.put("gate", KEY, {"status": "wrong"}, soon=True)
    cache.close()
    assert other.get("gate", KEY) == {"status": "wrong"}
    assert cache.get("gate", KEY) is None


def test_a_folder_that_cannot_be_written_warns_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        cache = Cache(blocked / "cache", 1 << 20)
        for number in range(3):
            cache.put("verdict", content_key(number), {"status": "correct"})
            assert cache.get("verdict", content_key(number)) is None
            with cache.lock("verdict", KEY):
                pass
    assert len(caplog.records) == 1
    assert "judging without a cache" in caplog.text


def test_a_full_disk_warns_once_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path, 1 << 20)
    cache.put("verdict", KEY, {"status": "wrong"})
    assert cache._database is not None
    cache._database.execute("PRAGMA max_page_count = 20")  # SQLite's error is that of a full disk
    for number in range(3):
        cache.put("compile", content_key(number), {"text": "x" * 200_000})
        with cache.lock("compile", KEY):
            assert cache.get("compile", content_key(number)) is None
    assert len(caplog.records) == 1
    assert "full" in caplog.text
    assert Cache(tmp_path, 1 << 20).get("verdict", KEY) == {"status": "wrong"}


def test_a_lock_excludes_other_threads(tmp_path: Path) -> None:
    cache, inside, most = Cache(tmp_path, 1 << 20), [0], [0]

    def work() -> None:
        for _ in range(20):
            with cache.lock("verdict", KEY):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_locks_of_other_keys_are_free(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    with cache.lock("verdict", KEY), cache.lock("compile", KEY), cache.lock("verdict", content_key("b", 1)):
        assert cache.folder == tmp_path


def _hold(folder: str, ready: "multiprocessing.Queue[int]") -> None:
    with Cache(Path(folder), 1 << 20).lock("verdict", KEY):
        ready.put(os.getpid())
        time.sleep(60)


def _write(folder: str, number: int) -> None:
    cache = Cache(Path(folder), 1 << 20)
    for value in range(200):
        cache.put("verdict", KEY, {"writer": number, "value": value, "text": "x" * 2_000})


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    process = context.Process(target=_hold, args=(str(tmp_path), ready))
    process.start()
    os.kill(ready.get(timeout=60), signal.SIGKILL)
    process.join()
    start = time.monotonic()
    with Cache(tmp_path, 1 << 20).lock("verdict", KEY):
        pass
    assert time.monotonic() - start < 1.0


def test_parallel_writers_and_kill_9_leave_whole_entries(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(tmp_path), number)) for number in range(3)]
    for writer in writers:
        writer.start()
    cache = Cache(tmp_path, 1 << 20)
    deadline = time.monotonic() + 60
    while cache.get("verdict", KEY) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    for _ in range(100):
        entry = cache.get("verdict", KEY)
        assert entry is not None
        assert len(entry["text"]) == 2_000
    writers[0].kill()
    for writer in writers:
        writer.join()
    entry = Cache(tmp_path, 1 << 20).get("verdict", KEY)
    assert entry is not None
    assert set(entry) == {"writer", "value", "text"}
    assert execute(tmp_path, "PRAGMA integrity_check") == "ok"
