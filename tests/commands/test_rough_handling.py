"""What people do to a command line: closed pipes, full disks, empty and absurd inputs, places not to be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from components.cli import Exit, main
from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from tests.judge.hostile_programs import HONEST, TARGET

ROOT = Path(__file__).resolve().parents[2]
KERNEL = HONEST["thread-per-row"]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "m.npz"
    sp.save_npz(path, sp.random(50, 40, 0.1, "csr", random_state=1))
    return path


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL, encoding="utf-8")
    return path


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("sparserl: ")
    return captured.err


def sparserl(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False)


def test_a_full_disk_under_stdout_is_one_line_and_no_verdict(matrix: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    answer = sparserl("matrices", "info", str(matrix), stdout=full)
    os.close(full)
    assert answer.returncode == Exit.OUTPUT_ERROR
    assert answer.stderr == "sparserl: the output cannot be written: No space left on device\n"


def test_a_reader_that_went_away_is_no_verdict(matrix: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    answer = sparserl("matrices", "info", str(matrix), stdout=writer)
    os.close(writer)
    assert (answer.returncode, answer.stderr) == (Exit.READER_GONE, "")


def test_a_bar_that_cannot_be_drawn_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSERL_CACHE", str(tmp_path / "cache"))

    def broken(done: int) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with Judge(judge_defaults(backend="emulator"), "sm_90", workers=1) as judge:
        verdicts = judge.judge_many([JudgeRequest(KERNEL, TARGET)] * 2, progress=broken)
    assert [verdict.correct for verdict in verdicts] == [True, True]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_a_matrix_without_rows_columns_or_entries_is_judged_and_claims_no_time(
    shape: tuple[int, int],
    tmp_path: Path,
    kernel: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARSERL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "empty.npz"
    sp.save_npz(path, sp.csr_matrix(shape, dtype=np.float64))
    assert main(["judge", str(kernel), "-m", str(path), "--json"]) == Exit.GOOD
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["status"] == "correct"
    if shape[0] == 0:
        assert (verdict["time_us"], verdict["speedup"]) == (None, None)
        assert main(["baseline", str(path)]) == Exit.USER_ERROR
        assert "nothing to time" in one_line(capsys)
    assert main(["tune", str(path)]) == Exit.USER_ERROR
    assert "there is nothing to tune" in one_line(capsys)


@pytest.mark.parametrize("width", ["100001000", "3000000000"])
def test_a_width_that_no_memory_holds_is_told_before_anything_runs(
    width: str, matrix: Path, kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", str(kernel), "-m", str(matrix), "--op", "spmm", "--width", width]) == Exit.USER_ERROR
    assert f"width {width}: a dense operand of" in one_line(capsys)


@pytest.mark.parametrize("place", ["file", "file/under", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_told_before_anything_is_judged(
    place: str, tmp_path: Path, matrix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert main(["tune", str(matrix), "--out", str(tmp_path / place)]) == Exit.USER_ERROR
    assert "expected a folder that can be written" in one_line(capsys)


def test_a_pipe_is_no_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "a.mtx")
    assert main(["matrices", "info", str(tmp_path / "a.mtx")]) == Exit.USER_ERROR
    assert "not a regular file" in one_line(capsys)


def test_an_npz_that_holds_objects_is_told_without_numpys_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, data=np.array([{}], dtype=object))
    assert main(["matrices", "info", str(path)]) == Exit.USER_ERROR
    assert "pickle" not in one_line(capsys)


def test_noise_named_as_an_archive_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise.tar.gz"
    path.write_bytes(bytes(range(256)) * 8)
    assert main(["matrices", "info", str(path)]) == Exit.USER_ERROR
    assert "not gzip data, expected a gzipped tar archive" in one_line(capsys)


def test_tunes_of_two_operators_lie_side_by_side(
    tmp_path: Path, matrix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARSERL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARSERL_ROOT", str(ROOT))
    monkeypatch.chdir(tmp_path)
    kernels = set()
    for more in ([], ["--op", "spmm", "--width", "4"]):
        assert main(["tune", str(matrix), "--candidates", "2", "--json", *more]) == Exit.GOOD
        summary = json.loads(capsys.readouterr().out)
        assert Path(summary["kernel"]).is_file()
        assert summary["judged"] == 2 < summary["known"]
        kernels.add(summary["kernel"])
    assert kernels == {"tuned/local/m/spmv-1/kernel.cu", "tuned/local/m/spmm-4/kernel.cu"}
