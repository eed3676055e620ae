import dataclasses

import numpy as np
import pytest
import torch

from components.policy.prefix import collate
from components.policy.sampling import generate
from components.training.ppo import Critic, Rollout, gae, loss, update
from components.training.reward import group_advantages
from tests.policy.micro import micro_policy, params, random_view

VIEWS = collate([random_view(0)] * 16)
PROMPTS = [[1, 5]] * 16


def test_one_reward_at_the_end_discounts_by_lambda():
    values = torch.tensor([[0.5, 0.25, 0.0], [0.1, 0.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    reward = torch.tensor([2.0, 1.0])
    found = gae(values, mask, reward, 0.5)
    # errors of the first row: 0.25 - 0.5, 0 - 0.25, 2 - 0; each carries half of what follows it
    np.testing.assert_allclose(
        found, [[-0.25 + 0.5 * (-0.25 + 0.5 * 2), -0.25 + 0.5 * 2, 2.0], [0.9, 0.0, 0.0]], rtol=1e-6
    )
    np.testing.assert_allclose(gae(values, mask, reward, 1.0), (reward[:, None] - values) * mask, rtol=1e-6)


def settings(algorithm="ppo"):
    return dataclasses.replace(
        params().rl,
        algorithm=algorithm,
        kl_coefficient=0.0,
        entropy_coefficient=0.0,
        epochs=2,
        clip=0.2,
        temperature=1.0,
    )


def rollout_of(policy, critic, samples, rewards):
    tokens = [sample.tokens for sample in samples]
    with torch.no_grad():
        scores = policy.score(VIEWS, PROMPTS, tokens)
        earned = torch.tensor(group_advantages(rewards, True), dtype=torch.float32)
        values = critic(scores.hidden) * scores.mask if critic else torch.zeros_like(scores.mask)
        advantages = gae(values, scores.mask, earned, 0.95) if critic else earned[:, None] * scores.mask
    return Rollout(VIEWS, PROMPTS, tokens, scores.logprobs, scores.logprobs, advantages, advantages + values, values)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_policy_learns_a_toy_reward_and_every_parameter_moves(algorithm):
    policy = micro_policy()
    chosen = settings(algorithm)
    torch.manual_seed(3)
    words = policy.causal_lm.get_input_embeddings().weight.detach()
    words *= 6  # as large as training makes them: the frozen output head must be able to tell tokens apart
    good = words @ torch.randn(policy.width) > 0  # half of the tokens, on one side of a plane
    critic = Critic(policy.width) if algorithm == "ppo" else None
    weights = dict(policy.trainable())
    before = {name: value.detach().clone() for name, value in weights.items()}
    groups = [{"params": list(weights.values()), "lr": 1e-2}]
    if critic:
        before |= {f"critic.{n}": v.detach().clone() for n, v in critic.named_parameters()}
        groups.append({"params": list(critic.parameters()), "lr": 1e-2})
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    means = []
    for step in range(36):
        samples = generate(policy.merged(), VIEWS, PROMPTS, max_tokens=6, temperature=1.0, seed=step)
        rewards = [float(good[list(sample.tokens)].float().mean()) for sample in samples]
        means.append(np.mean(rewards))
        update(policy, critic, rollout_of(policy, critic, samples, rewards), optimiser, chosen, seed=step)
    draws = 16 * 6  # tokens a step, each good or not
    error = 0.5 * np.sqrt(1 / (3 * draws) + 1 / (12 * draws))  # of the difference, if nothing were learnt
    assert np.mean(means[-12:]) - np.mean(means[:3]) > 4 * error
    after = {**weights, **({f"critic.{n}": v for n, v in critic.named_parameters()} if critic else {})}
    assert [name for name in before if torch.equal(before[name], after[name])] == []


def test_the_clip_stops_the_gradient_where_the_ratio_has_left_the_range():
    policy = micro_policy()
    samples = generate(policy.merged(), VIEWS, PROMPTS, max_tokens=4, temperature=1.0, seed=0)
    made = rollout_of(policy, None, samples, list(range(16)))
    up = dataclasses.replace(made, logprobs=made.logprobs - 1.0, advantages=made.advantages.abs() + 0.1)
    result = loss(policy, None, up, settings("grpo"))  # every ratio is e > 1.2 and every advantage positive
    result.total.backward()
    assert result.clipped == 1.0
    assert all(p.grad is None or p.grad.abs().max() == 0 for _, p in policy.trainable())


def test_the_divergence_is_zero_at_the_reference_and_positive_elsewhere():
    policy = micro_policy()
    samples = generate(policy.merged(), VIEWS, PROMPTS, max_tokens=4, temperature=1.0, seed=0)
    made = rollout_of(policy, None, samples, list(range(16)))
    assert loss(policy, None, made, settings()).kl == pytest.approx(0.0, abs=1e-6)
    away = dataclasses.replace(made, reference=made.reference - 0.5)
    assert loss(policy, None, away, settings()).kl == pytest.approx(np.exp(-0.5) + 0.5 - 1, rel=1e-3)


def test_the_critics_loss_does_not_reach_the_policy():
    policy, critic = micro_policy(), Critic(32)
    hidden = policy.score(VIEWS, PROMPTS, [[5, 2]] * 16).hidden
    critic(hidden).sum().backward()
    assert all(p.grad is None for p in policy.parameters())
    assert all(p.grad is not None for p in critic.parameters())
