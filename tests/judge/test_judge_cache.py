import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from components.judge.cache import Cache, content_key

KEY = content_key("a", 1)


def test_keeps_what_was_put_and_tells_kinds_apart(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    cache.put("verdict", KEY, {"status": "wrong"})
    assert Cache(tmp_path, 1 << 20).get("verdict", KEY) == {"status": "wrong"}
    assert cache.get("compile", KEY) is None
    assert cache.get("verdict", content_key("b", 1)) is None


def test_a_damaged_entry_counts_as_missing_and_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    cache.put("verdict", KEY, {"status": "wrong"})
    path = tmp_path / "verdict" / KEY[:2] / f"{KEY}.json"
    path.write_text('{"status": "wr', encoding="utf-8")
    assert cache.get("verdict", KEY) is None
    assert not path.exists()


def test_trims_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 40_000)
    keys = [content_key("x", number) for number in range(10)]
    for age, key in enumerate(keys):
        cache.put("verdict", key, {"text": "x" * 5_000})
        stamp = time.time() - 1_000 + age
        os.utime(tmp_path / "verdict" / key[:2] / f"{key}.json", (stamp, stamp))
    assert cache.get("verdict", keys[0]) is not None  # used just now, so it stays
    cache.trim()
    left = [number for number, key in enumerate(keys) if cache.get("verdict", key) is not None]
    assert left == [0, 5, 6, 7, 8, 9]  # 80 % of the limit holds six of 5 KB


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
    assert not list(tmp_path.rglob("*.lock"))


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
    path = tmp_path / "verdict" / KEY[:2] / f"{KEY}.json"
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for _ in range(100):
        entry = cache.get("verdict", KEY)
        assert entry is not None
        assert len(entry["text"]) == 2_000
    writers[0].kill()
    for writer in writers:
        writer.join()
    assert set(json.loads(path.read_text(encoding="utf-8"))) == {"writer", "value", "text"}
