"""The arithmetic of reinforcement: advantages, the clipped objective, the critic. No judge and no files here.

PPO: Schulman et al. 2017, with generalised advantage estimation (Schulman et al. 2015), discount 1, one reward at the
end of a program. GRPO: Shao et al. 2024, the group's mean in place of the critic. The divergence from the SFT policy is
the non-negative low-variance estimator k3 of Schulman 2020, `exp(d) - d - 1` with `d = log p_ref - log p`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from components.policy.model import Policy
from components.policy.prefix import ViewBatch
from components.settings import RlSettings


class Critic(nn.Module):
    """Expected return from the state in which each token is about to be written; float32[B, n]."""

    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.normal_(last.weight, std=0.01)
        nn.init.zeros_(last.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Values from hidden states float32[B, n, width], which the critic's loss does not reach."""
        values: Tensor = self.layers(hidden.detach())[..., 0]
        return values


@dataclass(frozen=True, eq=False)
class Rollout:
    """Sampled programs of one step and what they earned.

    The tensors are float32[B, n] over the programs' tokens, right-padded: log-probability when sampled and under the
    SFT policy; what the policy's loss weighs; what the critic should have said, and what it said.
    """

    views: ViewBatch
    prompts: Sequence[Sequence[int]]
    tokens: Sequence[Sequence[int]]
    logprobs: Tensor
    reference: Tensor
    advantages: Tensor
    returns: Tensor
    values: Tensor

    def take(self, index: Tensor) -> "Rollout":
        """The rows that `index` int64[m] names."""
        rows = index.tolist()
        parts = (self.logprobs, self.reference, self.advantages, self.returns, self.values)
        return Rollout(
            self.views.take(index),
            [self.prompts[i] for i in rows],
            [self.tokens[i] for i in rows],
            *(part[index] for part in parts),
        )


def gae(values: Tensor, mask: Tensor, reward: Tensor, decay: float) -> Tensor:
    """Advantages with one reward at the last token and discount 1.

    Args:
        values: float32[B, n], the critic's.
        mask: float32[B, n], 1 on real tokens, which come first.
        reward: float32[B].
        decay: lambda; 1 gives `reward - values`, 0 the one-step error.

    Returns:
        float32[B, n], 0 outside the mask.
    """
    length = mask.sum(1).long()
    advantage = torch.zeros_like(values)
    running = torch.zeros_like(reward)
    following = torch.zeros_like(reward)
    for t in reversed(range(values.shape[1])):
        here = mask[:, t]
        error = torch.where(length - 1 == t, reward, following) - values[:, t]
        running = (error + decay * running) * here
        advantage[:, t] = running
        following = values[:, t] * here
    return advantage


@dataclass(frozen=True, eq=False)
class Loss:
    """The scalar to minimise, and numbers to log."""

    total: Tensor
    entropy: float  # nats a token
    kl: float  # nats a token, from the SFT policy
    clipped: float  # share of tokens whose ratio left the clip range
    value: float


def loss(policy: Policy, critic: Critic | None, rollout: Rollout, settings: RlSettings) -> Loss:
    """Clipped policy loss + value loss - entropy bonus + divergence from the SFT policy, means over tokens."""
    scores = policy.score(rollout.views, rollout.prompts, rollout.tokens, settings.temperature, entropy=True)
    width = scores.mask.shape[1]
    mask, count = scores.mask, scores.mask.sum()
    old, reference, advantages = (part[:, :width] for part in (rollout.logprobs, rollout.reference, rollout.advantages))
    ratio = (scores.logprobs - old).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    gap = (reference - scores.logprobs).clamp(-10, 10)
    kl = ((gap.exp() - gap - 1) * mask).sum() / count
    entropy = (scores.entropy * mask).sum() / count
    total = -(surrogate * mask).sum() / count - settings.entropy_coefficient * entropy + settings.kl_coefficient * kl
    value = torch.zeros(())
    if critic is not None:
        error = (critic(scores.hidden) - rollout.returns[:, :width]) ** 2
        value = (error * mask).sum() / count
        total = total + settings.value_coefficient * value
    outside = (((ratio - 1).abs() > settings.clip).float() * mask).sum() / count
    return Loss(total, float(entropy.detach()), float(kl.detach()), float(outside), float(value.detach()))


def update(
    policy: Policy,
    critic: Critic | None,
    rollout: Rollout,
    optimiser: torch.optim.Optimizer,
    settings: RlSettings,
    minibatch: int = 32,
    seed: int = 0,
) -> dict[str, float]:
    """`epochs` passes over the rollout in shuffled minibatches; returns the means of what `Loss` logs."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    logged: list[Loss] = []
    size = len(rollout.tokens)
    for epoch in range(settings.epochs):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed * 1000 + epoch))
        for start in range(0, size, minibatch):
            index = order[start : start + minibatch].to(policy.device)
            result = loss(policy, critic, rollout.take(index), settings)
            optimiser.zero_grad(set_to_none=True)
            result.total.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            logged.append(result)
    names = ("entropy", "kl", "clipped", "value")
    return {name: sum(getattr(item, name) for item in logged) / len(logged) for name in names}
