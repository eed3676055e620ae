import json
import os
import subprocess
import sys
import time

import pytest

from components.cli import Exit, build_parser, main


def test_the_set_of_commands_is_pinned():
    actions = build_parser()._subparsers._group_actions[0].choices
    assert sorted(actions) == [
        "baseline",
        "champions",
        "doctor",
        "judge",
        "matrices",
        "promote",
        "report",
        "rollback",
        "tune",
    ]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["judge", "a.cu"], "the following arguments are required: --matrix/-m"),
        (["judge", "a.cu", "-m", "x", "--op", "gemm"], "invalid choice: 'gemm'"),
        (["tune", "x", "--seed", "-1"], "expected a whole number of at least 0, found '-1'"),
        (["tune", "x", "--candidates", "0"], "expected a whole number of at least 1, found '0'"),
        (["tune", "x", "--op", "spmm", "--width", "1.5"], "expected a whole number of at least 1, found '1.5'"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(argv, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    captured = capsys.readouterr()
    assert caught.value.code == Exit.USER_ERROR
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["judge", "no-such.cu", "-m", "x.mtx"], "no-such.cu: No such file"),
        (["judge", ".", "-m", "x.mtx"], ".: is a folder"),
        (["matrices", "info", "no-such.mtx"], "no-such.mtx"),
        (["matrices", "info", ""], "a matrix with no name"),
        (["matrices", "info", "/dev/null.mtx"], "no such file"),
        (["tune", "no-such.mtx", "--json"], "no-such.mtx"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(argv, expected, capsys):
    assert main(argv) == Exit.USER_ERROR
    captured = capsys.readouterr()
    assert captured.err.startswith("sparserl: ")
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    if "--json" in argv:
        assert json.loads(captured.out) == {"error": captured.err.removeprefix("sparserl: ").strip()}
    else:
        assert captured.out == ""


def test_a_width_for_spmv_is_refused(tmp_path, capsys):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 3\n")
    assert main(["baseline", str(path), "--width", "4"]) == Exit.USER_ERROR
    assert "--width belongs to --op spmm" in capsys.readouterr().err


def test_matrices_info_json_is_one_object(tmp_path, capsys):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate integer symmetric\n3 3 3\n1 1 3\n2 1 0\n3 3 1\n")
    assert main(["matrices", "info", str(path), "--json"]) == Exit.GOOD
    info = json.loads(capsys.readouterr().out)
    assert (info["rows"], info["cols"], info["nnz"], info["nnz_stored"]) == (3, 3, 4, 3)
    assert (info["field"], info["symmetry"]) == ("integer", "symmetric")
    assert (info["duplicates"], info["explicit_zeros"]) == (0, 2)


def test_help_is_quick():
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "components.cli", "--help"], check=True, capture_output=True, env=os.environ)
    first = time.perf_counter() - start
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "components.cli", "--help"], check=True, capture_output=True, env=os.environ)
    assert min(first, time.perf_counter() - start) < 0.3
