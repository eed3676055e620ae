import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from components.settings import load
from components.tracking.runs import stage_run, sweep
from components.tracking.store import open_store, process_started

ROOT = Path(__file__).resolve().parents[2]
_HEAD = """
import dataclasses, os, sys, time
from pathlib import Path
from components.settings import load
from components.tracking.runs import stage_run
settings = dataclasses.replace(load(), root=Path(sys.argv[1]))
"""


def _start(code: str, root: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", _HEAD + code, str(root)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_run_holds_parameters_tags_metrics_and_artifacts(settings, tmp_path):
    (tmp_path / "note.txt").write_text("x")
    with stage_run("sft", settings, tags={"arch": "sm_90"}) as run:
        for step in range(3):
            run.log_metrics(step, {"loss": 3.0 - step, "odd": float("nan"), "far": float("inf")})
        run.log_params({"nested": {"a": 1}, "text": "t" * 900})
        run.log_artifact(tmp_path / "note.txt", "notes")
        run.log_table(pd.DataFrame({"k": [1, 2]}), "table")
    client, experiment = open_store(settings)
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "sft"
    assert [m.value for m in client.get_metric_history(run.run_id, "loss")] == [3.0, 2.0, 1.0]
    assert set(found.data.metrics) == {"loss"}
    assert found.data.params["sft.batch"] == str(settings.sft.batch)
    assert found.data.params["nested.a"] == "1"
    assert len(found.data.params["text"]) == 500
    assert (found.data.tags["stage"], found.data.tags["arch"]) == ("sft", "sm_90")
    assert (found.data.tags["op"], found.data.tags["timing"]) == ("spmv1,spmm8", "modelled")
    assert len(found.data.tags["git_commit"]) >= 4
    assert [f.path for f in client.list_artifacts(run.run_id, "notes")] == ["notes/note.txt"]
    assert client.load_table(experiment, "table.json", run_ids=[run.run_id])["k"].tolist() == [1, 2]


def test_logging_400_steps_of_12_metrics_is_batched(settings):
    with stage_run("rl", settings) as run:
        started = time.perf_counter()
        calls = []
        log_batch = run.client.log_batch
        run.client.log_batch = lambda *a, **k: (calls.append(1), log_batch(*a, **k))
        for step in range(400):
            run.log_metrics(step, {f"m{k}": step * k for k in range(12)})
        run.flush()
        seconds = time.perf_counter() - started
    assert len(calls) <= 7
    assert seconds < 10
    assert len(run.client.get_metric_history(run.run_id, "m11")) == 400


def test_an_exception_marks_the_run_failed(settings):
    with pytest.raises(ZeroDivisionError), stage_run("label", settings) as run:
        raise ZeroDivisionError
    assert run.client.get_run(run.run_id).info.status == "FAILED"


def test_a_resumed_stage_continues_its_run(settings):
    first = _interrupted(settings)
    assert first.client.get_run(first.run_id).info.status == "KILLED"
    with stage_run("rl", settings, resume_run_id=first.run_id) as second:
        second.log_metrics(2, {"reward": 0.75})
    assert second.run_id == first.run_id
    history = second.client.get_metric_history(second.run_id, "reward")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.75)]
    _, experiment = open_store(settings)
    assert len(second.client.search_runs([experiment])) == 1


def _interrupted(settings):
    try:
        with stage_run("rl", settings) as run:
            run.log_metrics(1, {"reward": 0.5})
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return run


def test_a_run_that_the_store_lost_is_begun_anew(settings):
    with stage_run("rl", settings, resume_run_id="0" * 32) as run:
        pass
    assert run.run_id != "0" * 32


@pytest.mark.slow
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, "KILLED"), (signal.SIGKILL, "KILLED")])
def test_a_killed_stage_is_not_left_running(settings, number, expected):
    process = _start(
        "with stage_run('rl', settings) as run: print(run.run_id, flush=True); time.sleep(60)", settings.root
    )
    run_id = process.stdout.readline().strip()
    client, experiment = open_store(settings)
    assert client.get_run(run_id).info.status == "RUNNING"
    assert sweep(client, experiment) == []
    process.send_signal(number)
    code = process.wait(timeout=20)
    if number == signal.SIGTERM:
        assert code == 143
    else:
        assert sweep(client, experiment) == [run_id]
    assert client.get_run(run_id).info.status == expected


def test_process_identity_survives_pid_reuse():
    assert process_started(os.getpid()) == process_started(os.getpid())
    assert process_started(2**22 + 1) is None


@pytest.mark.slow
def test_six_processes_start_on_an_empty_store(tmp_path):
    processes = [_start("with stage_run('rl', settings) as run: print(run.run_id)", tmp_path) for _ in range(6)]
    codes = [process.wait(timeout=120) for process in processes]
    assert codes == [0] * 6
    client, experiment = open_store(dataclasses.replace(load(), root=tmp_path))
    assert [run.info.status for run in client.search_runs([experiment])] == ["FINISHED"] * 6


def test_a_moved_project_keeps_its_artifacts(settings, tmp_path):
    (tmp_path / "note.txt").write_text("kept")
    with stage_run("sft", settings) as run:
        run.log_artifact(tmp_path / "note.txt")
    target = tmp_path / "elsewhere"
    settings.root.rename(target)
    client, _ = open_store(dataclasses.replace(settings, root=target))
    assert Path(client.download_artifacts(run.run_id, "note.txt", str(tmp_path))).read_text() == "kept"
    assert str(settings.root) not in client.get_run(run.run_id).info.artifact_uri
