"""The campaign with the real judge on the interpreter: the command, its ends, and fresh measurements."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.campaign.__main__ import main
from components.campaign.plan import Problem, programs_of, representatives, request_of
from components.campaign.remeasure import RemeasuringJudge
from components.campaign.shards import read_table
from components.judge.options import judge_defaults
from components.matrix.features import structure_features
from components.matrix.generate import generate

ROOT = Path(__file__).resolve().parents[2]
FEW = [
    "--representatives",
    "1",
    "--rounds",
    "1",
    "--per-problem",
    "6",
    "--batch",
    "4",
    "--workers",
    "2",
    "--window",
    "2",
]
SPECS = ["uniform,rmat,stencil2d:1000:0"]
NOT_ON_A_GPU_HOST = (
    "pandas", "pyarrow", "dvc", "mlflow", "prefect", "great_expectations", "sklearn", "torch", "transformers", "ruamel",
    "matplotlib", "requests", "tqdm",
)  # fmt: skip
GUARDED = f"""
import sys
from components.campaign.__main__ import main
code = main(sys.argv[1:])
heavy = [name for name in {NOT_ON_A_GPU_HOST!r} if name in sys.modules]
sys.exit(f"imported {{heavy}}" if heavy else code)
"""


def command(out, *more, problems="spmv:float32"):
    generated = ["--generated", *SPECS, "--backend", "emulator"]
    return ["run", "--out", str(out), "--problems", problems, *generated, *FEW, *more]


def start(tmp_path, words):
    environment = {**os.environ, "SPARSERL_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", GUARDED, *words],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def rows(path, table="measurements"):
    return [line.row for line in read_table(path, table)]


def identity(row):
    return row["matrix"], row["operator"], row["width"], row["dtype"], row["phase"], row["round"], row["program_hash"]


def wait_for_rows(process, out, count):
    deadline = time.monotonic() + 120
    while len(rows(out)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_run_ingest_summary(tmp_path, capsys):
    process = start(tmp_path, command(tmp_path / "c", problems="spmv:float32,spmv:float64,spmm8:float32"))
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    tally = json.loads(out)
    assert (tally["done"], tally["failed"], tally["gpu_seconds"]) == (9, [], None)
    found = rows(tmp_path / "c")
    assert len(found) == tally["judged"] + tally["finals"] + tally["pruned"]
    assert {row["timing"] for row in found if row["status"] == "correct"} == {"modelled"}
    assert {row["dtype"] for row in found} == {"float32", "float64"}
    assert main(["ingest", "--shards", str(tmp_path / "c"), "--out", str(tmp_path / "k.parquet")]) == 0
    json_path = tmp_path / "kernels.json"
    assert main(["summary", "--measurements", str(tmp_path / "k.parquet"), "--out", str(json_path)]) == 0
    assert "modelled for sm_90" in capsys.readouterr().out
    result = json.loads(json_path.read_text())
    assert (result["gpu"], result["timing"]) == (None, "modelled")
    for part in (result["spmv"]["float32"], result["spmv"]["float64"], result["spmm"]["float32"]["8"]):
        assert part["n"] == 3
        assert part["geomean"] >= 1.0
        assert part["programs"] <= 18


def test_a_spent_budget_is_a_good_end(tmp_path):
    process = start(tmp_path, command(tmp_path / "c", "--budget-s", "0"))
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert json.loads(out)["judged"] == 0


def test_user_errors_are_one_line(tmp_path, capsys):
    assert main(["run", "--out", str(tmp_path / "c"), "--problems", "spmv"]) == 2
    assert main(["run", "--out", str(tmp_path / "c"), "--families", "csr_none"]) == 2
    assert main(["ingest", "--shards", str(tmp_path / "none"), "--out", str(tmp_path / "k.parquet")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)


def test_a_fresh_measurement_asks_the_backend_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSERL_CACHE", str(tmp_path))
    matrix = generate("uniform", 1000, 0)
    features = structure_features(matrix)
    problem = Problem("spmv", 1, "float32")
    programs = programs_of(problem, matrix, features)
    chosen = representatives(programs, features, 1, 1)[0][:2]
    requests = [request_of(problem, programs[digest], matrix) for digest in chosen]
    with RemeasuringJudge(judge_defaults(), "sm_90", "emulator", workers=1) as judge:
        asked = []
        run_check = judge._run_check
        monkeypatch.setattr(judge, "_run_check", lambda request: asked.append(request["matrix"]) or run_check(request))
        first = judge.judge_many(requests)
        before = len(asked)
        assert [verdict.time_us for verdict in judge.judge_many(requests)] == [verdict.time_us for verdict in first]
        assert len(asked) == before  # from the cache
        again = judge.measure_again(requests)
        assert [matrix is not None for matrix in asked[before:]] == [True, True]  # the targets, not the gate
        assert [verdict.time_us for verdict in again] == [verdict.time_us for verdict in first]
        assert not any(verdict.from_cache for verdict in again)
        assert judge.judge_many(requests)[0].from_cache


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 3, 6])
def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(tmp_path, batches):
    whole = start(tmp_path / "..", command(tmp_path / "whole"))
    _, errors = whole.communicate(timeout=200)
    assert whole.returncode == 0, errors
    expected = {identity(row): row["time_us"] for row in rows(tmp_path / "whole")}
    killed = start(tmp_path, command(tmp_path / "c"))
    wait_for_rows(killed, tmp_path / "c", 4 * batches)
    killed.kill()
    killed.communicate()
    kept = {identity(row): row["time_us"] for row in rows(tmp_path / "c")}
    assert kept.items() <= expected.items()
    again = start(tmp_path, command(tmp_path / "c"))
    out, errors = again.communicate(timeout=200)
    assert again.returncode == 0, errors
    tally = json.loads(out)
    found = rows(tmp_path / "c")
    assert {identity(row): row["time_us"] for row in found} == expected
    assert len(found) == len(expected)  # nothing twice
    assert tally["judged"] + tally["finals"] + tally["pruned"] == len(expected) - len(kept)


@pytest.mark.slow
def test_sigterm_ends_after_the_batches_under_way(tmp_path):
    process = start(tmp_path, command(tmp_path / "c"))
    wait_for_rows(process, tmp_path / "c", 4)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    tally = json.loads(out)
    assert tally["done"] < 3
    assert len(rows(tmp_path / "c")) == tally["judged"] + tally["finals"] + tally["pruned"]
