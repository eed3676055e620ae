import dataclasses

import pytest
import torch

from components.training.checkpoint import Budget, Checkpoint, fingerprint, learning_rate
from tests.policy.micro import params


def rooted(tmp_path, **changes):
    return dataclasses.replace(params(), root=tmp_path, **changes)


def test_state_comes_back_for_the_same_key(tmp_path):
    Checkpoint(tmp_path, "sft", {"a": "1"}, 1).save({"step": 3, "w": torch.arange(3)})
    state = Checkpoint(tmp_path, "sft", {"a": "1"}, 1).load()
    assert state["step"] == 3
    assert state["w"].tolist() == [0, 1, 2]


def test_state_of_other_data_is_dropped_and_the_reason_is_printed(tmp_path, capsys):
    Checkpoint(tmp_path, "sft", {"a": "1", "b": "2", "c": "3"}, 1).save({"step": 3})
    other = Checkpoint(tmp_path, "sft", {"a": "1", "b": "9", "d": "4"}, 1)
    assert other.load() is None
    assert capsys.readouterr().err == "sft: starting over: changed since the interrupted run: b, c, d\n"
    assert not other.path.exists()


def test_half_a_file_is_dropped_and_the_reason_is_printed(tmp_path, capsys):
    checkpoint = Checkpoint(tmp_path, "rl", {}, 1)
    checkpoint.save({"step": 3})
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:100])
    assert checkpoint.load() is None
    assert "cannot be read" in capsys.readouterr().err


def test_a_finished_stage_leaves_nothing(tmp_path):
    checkpoint = Checkpoint(tmp_path, "rl", {}, 1)
    checkpoint.save({"step": 3})
    checkpoint.clear()
    assert not (tmp_path / ".cache/state/rl").exists()
    assert checkpoint.load() is None


def test_the_fingerprint_names_parameters_and_inputs_but_not_how_long(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x.txt").write_text("1")
    one = fingerprint(rooted(tmp_path), ("seed", "sft"), [tmp_path / "in"])
    assert one["seed"] == str(params().seed)
    assert "sft.learning_rate" in one
    assert "sft.budget_s" not in one
    assert "rl.clip" not in one
    longer = rooted(tmp_path, sft=dataclasses.replace(params().sft, budget_s=1.0, checkpoint_s=9.0))
    assert fingerprint(longer, ("seed", "sft"), [tmp_path / "in"]) == one
    faster = rooted(tmp_path, sft=dataclasses.replace(params().sft, learning_rate=9.0))
    assert {k for k, v in fingerprint(faster, ("seed", "sft"), [tmp_path / "in"]).items() if one[k] != v} == {
        "sft.learning_rate"
    }
    (tmp_path / "in/x.txt").write_text("2")
    assert fingerprint(rooted(tmp_path), ("seed", "sft"), [tmp_path / "in"])["in"] != one["in"]


def test_the_budget_counts_what_was_spent_before(tmp_path):
    assert Budget(100, 10, spent_s=100).over(0)
    assert Budget(100, 10, spent_s=100).stopped_by(0) == "clock"
    assert not Budget(100, 10, spent_s=50).over(9)
    assert Budget(100, 10).over(10)
    assert Budget(100, 10).stopped_by(10) == "steps"
    assert Budget(1e9, 10).progress(5) == 0.5
    assert Budget(100, 10, spent_s=80).progress(5) == pytest.approx(0.8, abs=1e-3)


def test_the_rate_warms_up_and_falls_along_a_cosine():
    assert learning_rate(1.0, 10, 0, 0.0) == pytest.approx(0.1)
    assert learning_rate(1.0, 10, 9, 0.0) == 1.0
    assert learning_rate(1.0, 10, 50, 0.5) == pytest.approx(0.525)
    assert learning_rate(1.0, 10, 99, 1.0) == pytest.approx(0.05)
