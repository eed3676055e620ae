"""What people in this job ran into: crashes, hangs, repeats, parallel use, read-only caches."""

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from components.judge.cache import FILE
from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from components.judge.verdict import Status
from tests.judge.forgetting import forget
from tests.judge.hostile_programs import DISHONEST, HONEST, TARGET, matrix, per_thread

GOOD = HONEST["thread-per-row"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARSERL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSERL_CACHE", str(tmp_path_factory.mktemp("cache")))
        with Judge(judge_defaults(backend="emulator", compile_cpu_s=1.0), "sm_90", workers=2) as judge:
            yield judge


@pytest.fixture
def judge(warm: Judge, cache: Path) -> Judge:
    """A judge that remembers nothing; its worker processes are warm."""
    forget(warm, cache)
    return warm


def unique(number: int) -> str:
    """An honest program that is like no other."""
    return per_thread(f"y[r] = s; if (r == {1_000_000 + number}) y[r] = {number}.f;")


def test_a_good_program_after_one_that_writes_far_out_of_bounds(judge: Judge) -> None:
    bad = judge.judge(JudgeRequest(DISHONEST["writes-far-away"][1], TARGET))
    assert bad.status is Status.ILLEGAL_ACCESS
    assert judge.judge(JudgeRequest(GOOD, TARGET)).correct


def test_a_bomb_costs_one_worker_and_a_few_seconds(judge: Judge) -> None:
    before, start = judge.restarts, time.monotonic()
    bomb = judge.judge(JudgeRequest(DISHONEST["bomb"][1], TARGET))
    assert (bomb.status, bomb.message) == (Status.COMPILE_ERROR, "stopped at compile: CPU-time limit")
    assert time.monotonic() - start < 60
    assert judge.restarts == before + 1
    start = time.monotonic()
    assert judge.judge(JudgeRequest(GOOD, TARGET)).correct
    assert time.monotonic() - start < 10


def test_the_third_of_ten_is_a_bomb_and_nine_verdicts_are_right(judge: Judge) -> None:
    sources = [unique(number) for number in range(10)]
    sources[2] = DISHONEST["bomb"][1]
    done: list[int] = []
    verdicts = judge.judge_many([JudgeRequest(source, TARGET) for source in sources], progress=done.append)
    expected = [Status.CORRECT] * 10
    expected[2] = Status.COMPILE_ERROR
    assert [verdict.status for verdict in verdicts] == expected
    assert sum(done) == 10


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_no_lasting_verdict(judge: Judge, cache: Path) -> None:
    """The host's memory killer, say: the program is judged anew the next time."""
    victim = JudgeRequest(DISHONEST["bomb"][1], TARGET)
    with Judge(judge_defaults(backend="emulator", compile_cpu_s=600.0, compile_memory_mb=16_000), "sm_90") as patient:
        future = patient._submit(victim)
        while not (burning := _children_burning(patient)):
            assert not future.done(), future.result()
            time.sleep(0.02)
        os.kill(burning[0], signal.SIGKILL)
        assert future.result().message == "stopped at compile: SIGKILL"
    assert not list(cache.rglob("verdict/*/*.json"))
    again = judge.judge(victim)
    assert not again.from_cache
    assert again.message == "stopped at compile: CPU-time limit"


def test_the_same_hang_is_answered_from_the_cache(judge: Judge) -> None:
    first = judge.judge(JudgeRequest(DISHONEST["spins"][1], TARGET))
    again = []
    for _ in range(5):
        start = time.monotonic()
        second = judge.judge(JudgeRequest(DISHONEST["spins"][1], TARGET))
        again.append(time.monotonic() - start)
    assert min(again) < 0.05
    assert (first.status, first.from_cache) == (Status.TIMEOUT, False)
    assert (second.status, second.from_cache) == (Status.TIMEOUT, True)


def test_a_fixed_program_is_judged_anew(judge: Judge) -> None:
    broken = GOOD.replace("y[r] = s;", "y[r] = s")
    assert judge.judge(JudgeRequest(broken, TARGET)).status is Status.COMPILE_ERROR
    assert judge.judge(JudgeRequest(GOOD, TARGET)).correct
    assert judge.judge(JudgeRequest(broken, TARGET)).from_cache


def test_a_cached_verdict_is_the_one_that_was_given(judge: Judge) -> None:
    first = judge.judge(JudgeRequest(GOOD, TARGET))
    assert judge.judge(JudgeRequest(GOOD, TARGET)).with_(from_cache=False) == first
    assert judge.judge(JudgeRequest(GOOD, matrix(40, 40, 3, 9))).from_cache is False


def test_a_slow_one_does_not_serialise_the_rest(judge: Judge) -> None:
    judge.judge(JudgeRequest(unique(99), TARGET))
    slow = judge._submit(JudgeRequest(DISHONEST["bomb"][1], TARGET))
    others = [judge._submit(JudgeRequest(unique(number), TARGET)) for number in range(8)]
    assert others[0].result().correct
    assert not slow.done()  # asked for later, answered earlier
    assert all(other.result().correct for other in others)
    assert slow.result().status is Status.COMPILE_ERROR


def entries(folder: Path, kind: str) -> int:
    """How many of a kind the cache holds; those put `soon` were taken along by the verdicts."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        (count,) = database.execute("SELECT count(*) FROM entries WHERE name LIKE ?", (f"{kind}/%",)).fetchone()
    return int(count)


def test_equal_requests_at_once_are_judged_once(judge: Judge, cache: Path) -> None:
    verdicts = judge.judge_many([JudgeRequest(GOOD, TARGET)] * 16)
    assert len({verdict.to_dict()["compile_ms"] for verdict in verdicts}) == 1
    assert entries(cache, "compile") == 2  # the program and the baseline


def test_the_adversarial_set_is_run_once_for_each_program(judge: Judge, cache: Path) -> None:
    matrices = [matrix(40 + number, 40, 3, number) for number in range(3)]
    assert all(verdict.correct for verdict in judge.judge_many([JudgeRequest(GOOD, target) for target in matrices]))
    assert entries(cache, "gate") == 2  # the program and the baseline
    bad = judge.judge_many([JudgeRequest(DISHONEST["skips-empty-rows"][1], target) for target in matrices])
    assert {(verdict.status, verdict.failed_on) for verdict in bad} == {(Status.WRONG, "adversarial/mixed")}
    assert entries(cache, "gate") == 3


_ONE = """
from tests.judge.hostile_programs import HONEST, TARGET
from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
with Judge(judge_defaults(backend="emulator"), "sm_90", workers=1) as judge:
    verdict = judge.judge(JudgeRequest(HONEST["thread-per-row"], TARGET))
print(verdict.status, verdict.compile_ms)
"""


@pytest.mark.slow
def test_the_same_program_from_eight_processes_is_compiled_once(cache: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", _ONE], stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(8)
    ]
    answers = [process.communicate(timeout=200)[0].split() for process in started]
    assert {answer[0] for answer in answers} == {"correct"}
    assert len({answer[1] for answer in answers}) == 1


def test_a_read_only_cache_gives_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setenv("SPARSERL_CACHE", str(blocked / "cache"))
    monkeypatch.setenv("HOME", str(blocked))
    with caplog.at_level(logging.WARNING), Judge(judge_defaults(backend="emulator"), "sm_90", workers=1) as judge:
        verdicts = [judge.judge(JudgeRequest(GOOD, TARGET)) for _ in range(2)]
    assert [verdict.correct for verdict in verdicts] == [True, True]
    assert [record.name for record in caplog.records] == ["components.judge.cache"]


def test_values_changed_in_place_give_a_new_answer(judge: Judge) -> None:
    """A program that reuses what it saw at the same addresses must not pass (state has no place to live)."""
    source = DISHONEST["keeps-answers"][1]
    assert judge.judge(JudgeRequest(source, TARGET)).status in (Status.TAMPERED, Status.CONTRACT)


def test_the_baseline_has_a_name_and_a_time(judge: Judge) -> None:
    name, time_us = judge.baseline(TARGET)
    assert name == "reference:csr_vector"
    verdict = judge.judge(JudgeRequest(GOOD, TARGET))
    assert (verdict.baseline, verdict.baseline_us) == (name, time_us)
    _, wide_us = judge.baseline(TARGET, "spmm", 64)
    assert wide_us > time_us


def test_a_judge_that_closes_leaves_no_process_behind(cache: Path) -> None:
    judge = Judge(judge_defaults(backend="emulator"), "sm_90", workers=2)
    judge.judge_many([JudgeRequest(unique(number), TARGET) for number in range(4)])
    process = judge._pool._zygote.process
    folder = judge._pool.folder
    judge.close()
    assert process is not None
    assert process.poll() is not None
    assert not folder.exists()


def _children_burning(judge: Judge) -> list[int]:
    """Workers of the judge that have used over half a second of CPU time, user and system, since their birth."""
    if judge._pool._zygote.process is None:
        return []
    parent = judge._pool._zygote.process.pid
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and int(fields[11]) + int(fields[12]) > 0.5 * os.sysconf("SC_CLK_TCK"):
            found.append(int(folder.name))
    return found


assert np.count_nonzero(np.diff(TARGET.row_ptr) == 0) == 0  # the target is friendly
