import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.judge.pool import Pool, WorkerBug, WorkerDied

WALL = {"start": 10.0, "work": 1.0}
ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.judge.hostile_worker"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(MODULE, 2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("what", "signal_number", "deadline", "by_cpu", "crashed"),
    [
        ("hang", signal.SIGKILL, True, False, False),
        ("crash", signal.SIGSEGV, False, False, True),
        ("exit", None, False, False, False),
        ("killed", signal.SIGKILL, False, False, False),
    ],
)
def test_a_lost_worker_says_what_ended_it_and_the_next_one_answers(
    pool: Pool, what: str, signal_number: int | None, deadline: bool, by_cpu: bool, crashed: bool
) -> None:
    before = pool.restarts
    with pytest.raises(WorkerDied) as caught:
        pool.call({"what": what}, WALL)
    assert (caught.value.stage, caught.value.signal, caught.value.deadline) == ("work", signal_number, deadline)
    assert (caught.value.by_cpu_limit, caught.value.crashed) == (by_cpu, crashed)
    assert pool.restarts == before + 1
    start = time.monotonic()
    assert pool.call({"what": "hello"}, WALL)["echo"] == "hello"
    assert time.monotonic() - start < 10.0


def test_cpu_time_ends_a_busy_worker_whatever_the_wall_clock_says(pool: Pool) -> None:
    with pytest.raises(WorkerDied) as caught:
        pool.call({"what": "burn"}, {"start": 10.0, "work": 60.0})
    assert caught.value.by_cpu_limit
    assert caught.value.how() == "CPU-time limit"


def test_memory_is_bounded(pool: Pool) -> None:
    with pytest.raises(WorkerBug, match="MemoryError"):
        pool.call({"what": "eat"}, {"start": 10.0, "work": 60.0})


def test_a_worker_writes_no_files(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(WorkerBug, match="Permission denied"):
        pool.call({"what": "write", "path": str(tmp_path / "file")}, WALL)


def test_a_bug_in_a_worker_comes_back_with_its_traceback(pool: Pool) -> None:
    with pytest.raises(WorkerBug, match="KeyError: 'a bug'"):
        pool.call({"what": "raise"}, WALL)


def test_a_worker_sees_nothing_of_the_users_environment(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = pool.call({"what": "environment"}, WALL)["names"]
    assert not {"USER", "SSH_AUTH_SOCK", "PWD", "SPARSERL_CACHE", "PIP_INDEX_URL"} & set(names)


def test_a_hang_holds_up_no_neighbour(pool: Pool) -> None:
    lost: list[WorkerDied] = []

    def hang() -> None:
        try:
            pool.call({"what": "hang"}, {"start": 60.0, "work": 6.0})
        except WorkerDied as death:
            lost.append(death)

    thread = threading.Thread(target=hang)
    thread.start()
    answers = [pool.call({"what": str(number)}, WALL)["echo"] for number in range(20)]
    assert not lost  # the hang goes on beside them
    assert answers == [str(number) for number in range(20)]
    thread.join()
    assert lost[0].deadline


def test_workers_and_folder_end_with_a_judge_that_is_killed() -> None:
    program = (
        "import os, time\n"
        "from components.judge.pool import Pool\n"
        f"pool = Pool({MODULE!r}, 1)\n"
        "answer = pool.call({'what': 'hello'}, {'start': 10.0, 'work': 5.0})\n"
        "print(answer['pid'], pool._zygote.process.pid, pool.folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        worker, zygote, folder = process.stdout.readline().split()
        assert Path(folder).is_dir()
        process.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (_alive(int(worker)) or _alive(int(zygote)) or Path(folder).exists()):
        time.sleep(0.05)
    assert not _alive(int(worker))
    assert not _alive(int(zygote))
    assert not Path(folder).exists()


def test_a_lost_warm_process_is_replaced(pool: Pool) -> None:
    pool.call({"what": "hello"}, WALL)
    assert pool._zygote.process is not None
    os.kill(pool._zygote.process.pid, signal.SIGKILL)
    pool._zygote.process.wait()
    deadline = time.monotonic() + 10
    answered = False
    while not answered and time.monotonic() < deadline:
        with contextlib.suppress(WorkerDied):  # the worker that died with its parent
            answered = pool.call({"what": "again"}, WALL)["echo"] == "again"
    assert answered


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_answer_that_was_not_asked_for_is_not_taken(pool: Pool) -> None:
    """Whatever runs in a worker may write to its socket: without the request's nonce it counts as the worker's end."""
    with pytest.raises(WorkerDied):
        pool.call({"what": "forge"}, WALL)
    assert pool.call({"what": "hello"}, WALL)["echo"] == "hello"
