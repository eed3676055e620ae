import dataclasses

import numpy as np
import pytest
import torch

from components.policy import tokenizer as text
from components.training.checkpoint import Checkpoint
from components.training.loop import fit, snapshot, unmoved
from components.training.sft import Example, Sampler, mean_loss, pair_loss
from tests.policy.micro import micro_policy, params, programs, random_view, tokenizer

SCHEDULE = dataclasses.replace(params().sft, budget_s=1e6, max_steps=6, warmup_steps=2, learning_rate=1e-2, batch=4)


class Run:
    run_id = "run-1"

    def __init__(self):
        self.rows = {}

    def log_metrics(self, step, values):
        self.rows[step] = values


class Killed(BaseException):
    pass


def pairs():
    encoded = [[*text.encode(tokenizer(), p)[:30], 2] for p in programs()[:6]]
    return [
        Example(f"m{i // 2}", random_view(i // 2), [1, 5 + i // 2], encoded[i], 1.0 - 0.1 * (i % 2)) for i in range(6)
    ]


def train(tmp_path, kill_at=None, steps=6):
    policy = micro_policy()
    initial = snapshot(dict(policy.trainable()))
    sampler = Sampler(pairs(), 0.05, seed=7)

    def loss_of(step):
        if step == kill_at:
            raise Killed
        torch.manual_seed(step)
        return pair_loss(policy, sampler.batch(step, SCHEDULE.batch), 0.2), 10

    checkpoint = Checkpoint(tmp_path, "sft", {"k": "1"}, every_s=0.0)
    run = Run()
    schedule = dataclasses.replace(SCHEDULE, max_steps=steps)
    outcome = fit(policy, loss_of, lambda: mean_loss(policy, pairs(), 4), schedule, checkpoint, checkpoint.load(), run)
    return outcome, initial, snapshot(dict(policy.trainable())), run


def test_a_killed_training_resumes_to_the_very_weights_of_an_uninterrupted_one(tmp_path):
    whole, _, expected, _ = train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path / "cut", kill_at=3)
    resumed, _, found, run = train(tmp_path / "cut")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [row["loss"] for row in resumed.curve] == [row["loss"] for row in whole.curve]
    assert [row["step"] for row in resumed.curve] == [1, 2, 3, 4, 5, 6]
    assert sorted(run.rows) == [4, 5, 6]  # neither zero nor double work
    assert resumed.tokens == whole.tokens == 60
    assert resumed.first == whole.first


def test_fine_tuning_moves_every_trainable_parameter_and_the_held_out_loss_falls(tmp_path):
    outcome, before, after, _ = train(tmp_path, steps=60)
    assert unmoved(before, after) == []
    assert {name.split(".")[-2] for name in before if "lora" in name} == {"default"}
    assert outcome.best < outcome.first - 0.3  # nats; the base is untrained, adapters alone reach about 0.47
    assert outcome.stopped_by == "steps"


def test_the_best_weights_are_kept_not_the_last(tmp_path):
    policy = micro_policy()
    seen = []
    losses = iter([5.0, 3.0, 1.0, *[9.0] * 20])

    def held_out():
        seen.append(snapshot(dict(policy.trainable())))
        return next(losses)

    sampler = Sampler(pairs(), 0.05, seed=7)
    outcome = fit(
        policy,
        lambda step: (pair_loss(policy, sampler.batch(step, 4)), 1),
        held_out,
        dataclasses.replace(SCHEDULE, max_steps=8),
        Checkpoint(tmp_path, "x", {}, 1e9),
        None,
        Run(),
    )
    assert (outcome.first, outcome.best, outcome.best_step) == (5.0, 1.0, 2)
    now = snapshot(dict(policy.trainable()))
    assert all(torch.equal(now[name], seen[2][name]) for name in now)


def test_the_clock_ends_a_training_and_says_so(tmp_path):
    policy = micro_policy()
    sampler = Sampler(pairs(), 0.05, seed=7)
    outcome = fit(
        policy,
        lambda step: (pair_loss(policy, sampler.batch(step, 4)), 1),
        lambda: 1.0,
        dataclasses.replace(SCHEDULE, max_steps=10**9, budget_s=0.5),
        Checkpoint(tmp_path, "x", {}, 1e9),
        None,
        Run(),
    )
    assert outcome.stopped_by == "clock"
    assert 0.5 <= outcome.seconds < 30


def test_batches_come_from_the_step_alone_and_prefer_the_better_pair():
    sampler = Sampler(pairs(), 0.05, seed=7)
    first = sampler.batch(5, 8)
    assert [id(e) for e in first] == [id(e) for e in sampler.batch(5, 8)]
    drawn = [e for step in range(200) for e in sampler.batch(step, 8)]
    share = np.mean([e.quality == 1.0 for e in drawn])
    assert share == pytest.approx(1 / (1 + np.exp(-0.1 / 0.05)), abs=0.03)
    assert {e.matrix for e in drawn} == {"m0", "m1", "m2"}
    assert np.mean([e.matrix == "m0" for e in drawn]) == pytest.approx(1 / 3, abs=0.04)


def test_the_loss_of_a_batch_is_the_mean_over_its_tokens():
    policy = micro_policy().eval()
    some = pairs()[:3]
    with torch.no_grad():
        whole = float(pair_loss(policy, some))
        alone = [float(pair_loss(policy, [e])) for e in some]
    lengths = [len(e.program) for e in some]
    assert whole == pytest.approx(np.average(alone, weights=lengths), rel=1e-5)
    assert mean_loss(policy, some, 2) == pytest.approx(whole, rel=1e-5)
