"""What people do to a command line: closed pipes, full disks, empty and absurd inputs, places not to be written."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from components.cli import Exit, main
from components.commands.doctor import _stages
from components.commands.tune import _bar, _folder, _report
from components.errors import SparseRLError
from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from components.settings import load
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("judge", "--help"), "sparserl: the output cannot be written: No space left on device\n"),
        (
            ("matrices", "info", "absent.mtx", "--json"),
            "sparserl: the output cannot be written: No space left on device\n",
        ),
    ],
)
def test_a_full_disk_under_help_or_an_error_object_is_told(arguments: tuple[str, ...], said: str) -> None:
    with open("/dev/full", "wb") as full:
        answer = sparserl(*arguments, stdout=full.fileno())
    assert answer.returncode == Exit.OUTPUT_ERROR
    assert answer.stderr.endswith(said)
    assert "Traceback" not in answer.stderr


def test_an_error_that_cannot_be_told_keeps_its_exit_code() -> None:
    command = [sys.executable, "-m", "components.cli", "matrices", "info", "absent.mtx"]
    with open("/dev/full", "wb") as full:
        answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=full, timeout=120, check=False)
    assert (answer.returncode, answer.stdout) == (Exit.USER_ERROR, b"")


def test_a_failure_of_the_program_itself_is_neither_a_verdict_nor_a_user_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, told in ((SparseRLError("the worker\ndied"), "sparserl: the worker died\n"), (KeyError("bug"), "")):
        monkeypatch.setattr("components.commands.report.run", raises(error))
        assert main(["report"]) == Exit.FAILED
        captured = capsys.readouterr()
        assert captured.err == told or (not told and captured.err.endswith("KeyError: 'bug'\n"))
        with pytest.raises(type(error)):
            main(["--debug", "report"])


def raises(error: Exception) -> Callable[[object], int]:
    def run(arguments: object) -> int:
        raise error

    return run


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


@pytest.mark.parametrize(
    "shape",
    [(0, 0), (5, 5), pytest.param((0, 5), marks=pytest.mark.slow), pytest.param((5, 0), marks=pytest.mark.slow)],
)
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
    assert verdict["message"] == "the matrix has no entries: nothing to time"
    fields = ("timing", "time_us", "baseline_us", "speedup", "convert_us", "break_even")
    assert {verdict[name] for name in fields} == {None}
    assert main(["baseline", str(path)]) == Exit.USER_ERROR
    assert "there is nothing to time" in one_line(capsys)
    assert main(["tune", str(path)]) == Exit.USER_ERROR
    assert "there is nothing to tune" in one_line(capsys)


@pytest.mark.parametrize("width", ["2000000", "3000000000", "9" * 30])
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


def test_noise_behind_a_gzip_header_is_told_without_tarfiles_list_of_guesses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "noise.tar.gz"
    path.write_bytes(b"\x1f\x8b" + bytes(range(256)) * 8)
    assert main(["matrices", "info", str(path)]) == Exit.USER_ERROR
    assert one_line(capsys).endswith("archive damaged or cut off (no archive within), expected a whole tar archive\n")


@pytest.mark.parametrize("details", ['{"foo": 1}', '["name"]', '{"group": 7}', '{"rows": 9}'])
def test_details_in_an_npz_that_are_not_ours_are_told(
    details: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, eye = tmp_path / "odd.npz", sp.eye(3, format="csr")
    arrays = {"indptr": eye.indptr, "indices": eye.indices, "data": eye.data, "details": np.array(details)}
    np.savez(path, format=np.array(b"csr"), shape=np.array([3, 3]), **arrays)
    assert main(["matrices", "info", str(path)]) == Exit.USER_ERROR
    assert "expected those that SparseRL writes" in one_line(capsys)


def test_a_name_too_long_for_a_file_is_told(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrices", "info", "a" * 5000]) == Exit.USER_ERROR
    assert "File name too long" in one_line(capsys)
    assert main(["judge", "a" * 5000, "-m", str(kernel)]) == Exit.USER_ERROR
    assert "File name too long" in one_line(capsys)


def test_a_name_without_its_group_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = pd.DataFrame({"matrix": ["HB/ash219", "Own/ash219", "HB/other"]})
    monkeypatch.setattr("components.matrix.manifest.read_manifest", lambda root: known)
    assert main(["matrices", "info", "ash219"]) == Exit.USER_ERROR
    assert one_line(capsys).endswith("; did you mean HB/ash219 or Own/ash219?\n")


def test_a_pull_is_checked_before_the_network_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrices", "pull", "HB/ash219", "ash219"]) == Exit.USER_ERROR
    assert one_line(capsys) == "sparserl: 'ash219': expected group/name, as in HB/ash219\n"
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert main(["matrices", "pull", "HB/ash219", "--out", str(tmp_path / "file")]) == Exit.USER_ERROR
    assert "expected a folder that can be written" in one_line(capsys)


def test_a_full_disk_under_a_file_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("components.commands.report.run", raises(OSError(28, "No space left on device", "kernel.cu")))
    assert main(["report"]) == Exit.OUTPUT_ERROR
    assert one_line(capsys) == "sparserl: kernel.cu cannot be written: No space left on device\n"


def test_a_kernel_that_never_ends_is_not_read(tmp_path: Path, matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "k.cu")
    (tmp_path / "big.cu").write_bytes(b" " * (1 << 20) + b" ")
    for name, told in (("k.cu", "not a regular file"), ("big.cu", "1048577 bytes; a kernel program has at most")):
        assert main(["judge", str(tmp_path / name), "-m", str(matrix)]) == Exit.USER_ERROR
        assert told in one_line(capsys)


def test_a_folder_where_the_kernel_would_be_written_is_told(
    tmp_path: Path, matrix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "kernel.cu").mkdir(parents=True)
    assert main(["tune", str(matrix), "--out", str(tmp_path / "out")]) == Exit.USER_ERROR
    assert "kernel.cu: is a folder" in one_line(capsys)


def test_a_matrix_cannot_choose_a_folder_elsewhere() -> None:
    assert [_folder(name) for name in ("HB", "..", "../../etc", "a b/c", "x" * 300)] == [
        "HB", "_", "_.._etc", "a_b_c", "x" * 100,
    ]  # fmt: skip


class Gone(io.StringIO):
    """A terminal that went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_bar_works_on_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    done = []
    with _bar(3, shown=True) as advance:
        advance(1)
        done.append(1)
    assert done == [1]


def test_the_report_never_hides_who_won() -> None:
    summary = {
        "operator": "spmv", "precision": "float32", "matrix": "HB/a", "rows": 3, "cols": 3, "nnz": 4,
        "timing": "measured", "gpu": "NVIDIA H200", "judged": 1, "known": 9, "correct": 1,
        "winner": "csr_vector", "parameters": {}, "kernel": "t/kernel.cu",
        "baseline": "cusparse:csr_alg2", "baseline_us": 2.0, "candidates": [],
        "verdict": {"time_us": 4.0, "speedup": 0.5, "speedup_interval": [0.4, 0.6], "convert_us": None},
    }  # fmt: skip
    told = "Nothing beat cusparse:csr_alg2; the fastest program: csr_vector {}, written to t/kernel.cu"
    assert told in _report(summary)
    assert "4.00 us against 2.00 us of cusparse:csr_alg2: 0.50x [0.40, 0.60]" in _report(summary)
    modelled = {**summary, "verdict": None, "timing": "modelled", "gpu": None, "arch": "sm_90", "model": "m"}
    own = "The library's plain CSR-vector program was written to t/kernel.cu."
    assert own in _report({**modelled, "baseline": "reference:csr_vector"})


def test_doctor_says_when_stages_would_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    state, told = _stages(load())
    assert (state, "`python` is not on PATH" in told) == ("absent", True)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin")
    assert _stages(load())[0] == "ok"


@pytest.mark.slow
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
