import dataclasses
import math

import numpy as np
import pytest
import torch

from components.judge.verdict import Status, Verdict
from components.policy.prefix import view
from components.training import rl as stage
from components.training.checkpoint import Checkpoint
from components.training.loop import snapshot, unmoved
from components.training.rollout import Problem
from tests.policy.micro import FEATURES, matrix, micro_policy, params
from tests.training.test_loop import Killed, Run


class ToyJudge:
    """A program is correct when its length is even, and fast when it is short."""

    arch = "sm_90"

    def __init__(self, kill_at=None):
        self.calls, self.kill_at = 0, kill_at

    def judge_many(self, requests, progress=None):
        self.calls += 1
        if self.calls == self.kill_at:
            raise Killed
        return [self.verdict(request.source) for request in requests]

    def verdict(self, source):
        if len(source) % 2:
            return Verdict(Status.WRONG, registers=8)
        return Verdict(Status.CORRECT, time_us=1.0 + len(source) / 20, baseline_us=4.0, registers=8)


PROBLEMS = [Problem(matrix(family, 1000, 1)) for family in ("banded", "uniform", "rmat")]


def settings(tmp_path, **changes):
    base = params()
    chosen = dataclasses.replace(
        base.rl,
        budget_s=1e6,
        max_steps=5,
        problems_per_step=2,
        samples_per_problem=4,
        validation_samples=2,
        validate_every=2,
        min_pass_rate=0.0,
        learning_rate=1e-2,
        **changes,
    )
    return dataclasses.replace(base, root=tmp_path, rl=chosen, policy=dataclasses.replace(base.policy, max_tokens=8))


def trainer_of(chosen, judge, monkeypatch):
    trainer = stage.Trainer(chosen, micro_policy(), judge, "sm_90")
    views = {
        p.matrix.id: view(p.matrix, np.linspace(-1, 1, FEATURES, dtype=np.float32) * k, trainer.policy.settings.prefix)
        for k, p in enumerate(PROBLEMS, 1)
    }
    monkeypatch.setattr(trainer.views, "of", lambda m: views[m.id])
    return trainer


def reinforce(chosen, tmp_path, monkeypatch, kill_at=None):
    trainer = trainer_of(chosen, ToyJudge(kill_at), monkeypatch)
    checkpoint = Checkpoint(tmp_path, "rl", {"k": "1"}, every_s=0.0)
    initial = snapshot(trainer.weights)
    problems = {"train": PROBLEMS, "validation": PROBLEMS[:2]}
    return trainer, initial, stage._reinforce(trainer, problems, checkpoint, checkpoint.load(), Run())


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_a_killed_reinforcement_resumes_to_the_very_weights_of_an_uninterrupted_one(tmp_path, monkeypatch, algorithm):
    chosen = settings(tmp_path, algorithm=algorithm)
    whole, initial, done = reinforce(chosen, tmp_path / "whole", monkeypatch)
    with pytest.raises(Killed):
        reinforce(chosen, tmp_path / "cut", monkeypatch, kill_at=5)
    again, _, resumed = reinforce(chosen, tmp_path / "cut", monkeypatch)
    expected, found = snapshot(whole.weights), snapshot(again.weights)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [row["reward"] for row in resumed.curve] == [row["reward"] for row in done.curve]
    assert resumed.best["step"] == done.best["step"]
    assert unmoved(initial, expected) == []


def test_every_row_says_what_happened_at_each_level(tmp_path, monkeypatch):
    _, _, done = reinforce(settings(tmp_path), tmp_path, monkeypatch)
    assert done.steps == 5
    assert done.stopped_by == "steps"
    assert [row["step"] for row in done.curve if "validation_reward" in row] == [2, 4, 5]
    for row in done.curve:
        assert row["share_rejected"] + row["share_compiled"] + row["share_correct"] == pytest.approx(1.0)
        assert row["share_rejected"] == 0
        assert 0 <= row["duplicates"] < 1
        assert {"kl", "entropy", "clipped", "value", "length", "speedup_correct"} <= set(row)


def test_groups_with_equal_reward_teach_nothing(tmp_path, monkeypatch):
    trainer = trainer_of(settings(tmp_path, algorithm="grpo"), ToyJudge(), monkeypatch)
    drawn = trainer.draw(PROBLEMS[:2], 4, seed=1)
    flat = dataclasses.replace(drawn, rewards=np.array([[1.0] * 4, [1.0] * 4]))
    assert trainer._rollout(flat) is None
    one = trainer._rollout(dataclasses.replace(drawn, rewards=np.array([[1.0] * 4, [0.0, 0.0, 2.0, 2.0]])))
    assert len(one.tokens) == 4
    assert [row[0] for row in one.advantages.tolist()] == [-1.0, -1.0, 1.0, 1.0]


def test_a_policy_that_hardly_ever_passes_is_left_alone(tmp_path, monkeypatch, capsys):
    chosen = dataclasses.replace(settings(tmp_path), rl=dataclasses.replace(settings(tmp_path).rl, min_pass_rate=1.01))
    trainer, initial, done = reinforce(chosen, tmp_path, monkeypatch)
    assert done.stopped_by == "pass_rate"
    assert done.steps == 0
    assert len(unmoved(initial, snapshot(trainer.weights))) == len(initial)
    assert "rl.min_pass_rate = 1.01" in capsys.readouterr().err


def test_what_is_no_better_on_fresh_seeds_is_not_shipped(tmp_path, monkeypatch):
    trainer = trainer_of(settings(tmp_path), ToyJudge(), monkeypatch)
    initial = snapshot(trainer.weights)
    worse = {name: value + 1.0 for name, value in initial.items()}
    rewards = iter([0.9, 0.4])  # of the SFT policy, then of the candidate

    def draw(problems, samples, seed, policy=None):
        value = next(rewards)
        return dataclasses.replace(drawn, rewards=np.full_like(drawn.rewards, value))

    drawn = trainer.draw(PROBLEMS[:2], 2, seed=1)
    monkeypatch.setattr(trainer, "draw", draw)
    progress = stage.Progress(3, 1.0, "steps", 0.5, 0.5, {"reward": 0.8, "step": 3, "weights": worse}, [])
    metrics = stage._compare(trainer, PROBLEMS[:2], progress, initial)
    assert metrics["shipped"] == "sft"
    assert (metrics["validation_reward_sft"], metrics["validation_reward_rl"]) == (0.9, 0.4)
    assert len(unmoved(initial, snapshot(trainer.weights))) == len(initial)


def test_the_summary_counts_over_all_programs(tmp_path, monkeypatch):
    trainer = trainer_of(settings(tmp_path), ToyJudge(), monkeypatch)
    drawn = trainer.draw(PROBLEMS[:1], 3, seed=2)
    times = [Verdict(Status.CORRECT, time_us=t, baseline_us=4.0) for t in (1.0, 4.0)]
    made = dataclasses.replace(
        drawn, verdicts=[[*times, Verdict(Status.CONTRACT)]], rewards=np.array([[2.0, 1.0, 0.0]])
    )
    summary = made.summary()
    assert summary["reward"] == 1.0
    assert summary["share_correct"] == pytest.approx(2 / 3)
    assert summary["share_rejected"] == pytest.approx(1 / 3)
    assert summary["speedup_correct"] == pytest.approx(math.sqrt(4.0))
