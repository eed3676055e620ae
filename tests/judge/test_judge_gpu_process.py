"""The GPU executor's processes and their dispatcher, end to end, on a stand-in for the device."""

import base64
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.judge.gpu import GpuExecutor
from components.judge.handover import Handover
from components.matrix.generate import generate
from components.matrix.types import SparseMatrix

SOURCE = """// format: csr
// launch: spmv grid=ceil_div(rows, 64) block=64
extern "C" __global__ void spmv(const int* row_ptr, const int* col_idx, const float* values, const float* x, float* y,
                                int rows) {
}
"""


@pytest.fixture
def executor() -> Iterator[GpuExecutor]:
    executor = GpuExecutor("tests.judge.gpu_stand_in_worker")
    yield executor
    executor.close()


def request(folder: Path, what: str, matrix: SparseMatrix, source: str = SOURCE) -> dict[str, Any]:
    return {
        "source": source,
        "cubin": base64.b64encode(what.encode()).decode(),
        "code_hash": what,
        "operator": "spmv",
        "width": 1,
        "precision": "float32",
        "matrix": Handover(folder).describe(matrix),
        "adversarial": True,
        "deadline_s": 1.0,
    }


def test_many_requests_at_once_get_their_own_verdicts(executor: GpuExecutor, tmp_path: Path) -> None:
    """Three kinds of programs from eight threads: sent ahead, planned ahead, lost with a context and sent again."""
    matrices = [generate("uniform", 1000, seed) for seed in (1, 2)]
    kinds = {"right": "correct", "zeros": "wrong", "fault": "illegal_access"}
    work = [
        (what, matrices[n % 2]) for n, what in enumerate(["right", "zeros", "right", "fault", "right", "right"] * 4)
    ]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda pair: executor.judge(request(tmp_path, *pair))[0], work))
    assert [answer["status"] for answer in answers] == [kinds[what] for what, _ in work]
    right = [answer for answer, (what, _) in zip(answers, work, strict=True) if what == "right"]
    assert {answer["gpu"] for answer in right} == {"Stand-in"}
    assert np.allclose([answer["speedup"] for answer in right], 2.0)
    assert executor.restarts == 4
    assert executor.spent_s["all"] > executor.spent_s["duel"] > 0


def test_a_program_that_cannot_be_bound_is_told_so(executor: GpuExecutor, tmp_path: Path) -> None:
    matrix = generate("uniform", 1000, 1)
    source = SOURCE.replace("grid=ceil_div(rows, 64)", "grid=nnz - 1000000")
    answer, _ = executor.judge(request(tmp_path, "right", matrix, source))
    assert answer["status"] == "contract"
    answer, _ = executor.judge(request(tmp_path, "right", matrix))
    assert answer["status"] == "correct"
    assert executor.restarts == 0


def test_large_requests_behind_one_that_hangs_are_judged_by_the_next_process() -> None:
    """More bytes than a socket holds: a dispatcher that sent them ahead would wait for a process that reads no more."""
    executor = GpuExecutor("tests.judge.hostile_executor", {"start": 60.0, "check": 1.5})
    try:
        with ThreadPoolExecutor(6) as threads:
            all_there = threading.Event()

            def hold() -> None:
                assert all_there.wait(30)

            executor._chores.append(hold)
            assert executor.judge({"what": "good"})[0]["status"] == "correct"  # and now the dispatcher is at the chore
            hanging = threads.submit(executor.judge, {"what": "hang"})
            while executor._waiting.qsize() < 1:
                time.sleep(0.01)
            large = [threads.submit(executor.judge, {"what": "good", "cubin": "x" * 1_000_000}) for _ in range(5)]
            while executor._waiting.qsize() < 6:
                time.sleep(0.01)
            all_there.set()
            assert hanging.result(timeout=30)[0]["status"] == "timeout"
            assert [future.result(timeout=30)[0]["status"] for future in large] == ["correct"] * 5
        assert executor.restarts == 1
    finally:
        executor.close()


def test_what_waits_when_it_is_closed_is_told(tmp_path: Path) -> None:
    executor = GpuExecutor("tests.judge.gpu_stand_in_worker", spares=0)
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.judge(request(tmp_path, "right", generate("uniform", 1000, 1)))
