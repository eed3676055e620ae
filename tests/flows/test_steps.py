import json

import pytest
from prefect import flow
from prefect.testing.utilities import prefect_test_harness

import flows.steps as steps
from flows.dvc_repro import StageFailed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def server():
    with prefect_test_harness():
        yield


@flow
def one(step):
    return steps.run_step(step)


def _step(retries):
    return steps.Step("try", ("evaluate",), retries=retries, uses_device=False)


def test_a_failure_that_may_pass_is_tried_again(monkeypatch):
    calls = []

    def flaky(stages, root, log, arguments):
        calls.append(stages)
        if len(calls) == 1:
            raise StageFailed("connection reset", user_error=False)

    monkeypatch.setattr(steps, "dvc_repro", flaky)
    one(_step(1))
    assert calls == [("evaluate",), ("evaluate",)]


def test_a_user_error_is_not_tried_again(monkeypatch):
    calls = []

    def broken(stages, root, log, arguments):
        calls.append(stages)
        raise StageFailed("row 3 is bad", user_error=True)

    monkeypatch.setattr(steps, "dvc_repro", broken)
    with pytest.raises(StageFailed, match="row 3 is bad"):
        one(_step(3))
    assert len(calls) == 1


def test_metrics_of_the_step_come_back(monkeypatch, tmp_path):
    folder = tmp_path / "data" / "metrics"
    folder.mkdir(parents=True)
    (folder / "evaluate.json").write_text(json.dumps({"run_id": "r", "rl_spmv_pass_at_1": 0.5, "nested": {"a": 1}}))

    @flow
    def publishing():
        return steps.publish(_step(0), tmp_path)

    assert publishing()["evaluate"]["rl_spmv_pass_at_1"] == 0.5


def test_every_stage_of_the_graph_belongs_to_one_step():
    from ruamel.yaml import YAML

    from components.files import project_root

    graph = YAML(typ="safe").load((project_root() / "dvc.yaml").read_text())
    assert sorted(stage for step in steps.CYCLE for stage in step.stages) == sorted(graph["stages"])
