"""Batched generation with the KV cache: one forward step per token for all rows, finished rows dropped on the way.

Each row draws from its own uniform stream by inverse CDF, so that what a row says depends on the seed and its index,
not on who shares the batch or when a neighbour ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from components.policy import tokenizer as text
from components.policy.model import Policy
from components.policy.prefix import ViewBatch

SHRINK_BELOW = 0.75  # drop finished rows from the cache once so few are left of the last dropping


@dataclass(frozen=True)
class Sample:
    """One generated program: its text, token ids (end token included) and their log-probabilities as sampled."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool  # ended by itself rather than at the length limit


@torch.no_grad()
def generate(
    policy: Policy,
    views: ViewBatch,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    temperature: float,
    seed: int,
    batch: int = 64,
    progress: Callable[[int], object] | None = None,
) -> list[Sample]:
    """Sample one continuation per row.

    Args:
        policy: best `merged()`, which is faster.
        views: one view per row.
        prompts: token ids per row, starting with the begin token.
        max_tokens: of each continuation.
        temperature: 0 is greedy.
        seed: of the uniform streams; row i's stream depends on (seed, i) alone.
        batch: rows that are generated together.
        progress: called with the number of rows that were done.

    Returns:
        One sample per row, in order.
    """
    samples: list[Sample] = []
    for start in range(0, len(prompts), batch):
        rows = range(start, min(start + batch, len(prompts)))
        uniform = np.stack([np.random.default_rng([seed, row]).random(max_tokens, dtype=np.float32) for row in rows])
        samples += _generate(
            policy,
            views.take(torch.tensor(list(rows), device=policy.device)),
            [prompts[row] for row in rows],
            torch.from_numpy(uniform).to(policy.device),
            temperature,
        )
        if progress:
            progress(len(rows))
    return samples


def _generate(
    policy: Policy, views: ViewBatch, prompts: Sequence[Sequence[int]], uniform: Tensor, temperature: float
) -> list[Sample]:
    from transformers import DynamicCache

    was_training = policy.training
    policy.eval()
    special = policy.tokenizer
    embeddings, mask = _left_padded(policy, views, prompts)
    position = mask.sum(1, keepdim=True)  # of the next token
    cache: Any = DynamicCache(config=policy.causal_lm.config)
    count, limit = uniform.shape
    tokens = torch.full((count, limit), special.pad_token_id, dtype=torch.long)
    logprobs = torch.zeros(count, limit)
    alive = torch.arange(count, device=policy.device)  # output row of each row still in the cache
    running = torch.ones(count, dtype=torch.bool, device=policy.device)
    inputs: dict[str, Any] = {"inputs_embeds": embeddings, "position_ids": (mask.cumsum(1) - 1).clamp_min(0)}
    full = bool(mask.all())
    for step in range(limit):
        out = policy.body(**inputs, attention_mask=None if full else mask, past_key_values=cache, use_cache=True)
        token, log = choose(policy.head(out.last_hidden_state[:, -1]), uniform[alive, step], temperature)
        token = torch.where(running, token, special.pad_token_id)
        rows = alive[running].cpu()
        tokens[rows, step], logprobs[rows, step] = token[running].cpu(), log[running].cpu()
        running = running & (token != special.eos_token_id)
        left = int(running.sum())
        if left == 0:
            break
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        if left <= SHRINK_BELOW * len(alive):
            keep = running.nonzero()[:, 0]
            cache.batch_select_indices(keep)
            token, mask, position, alive, running = (item[keep] for item in (token, mask, position, alive, running))
            full = bool(mask.all())
        inputs = {"input_ids": token[:, None], "position_ids": position}
        position = position + 1
    policy.train(was_training)
    return [_sample(special, row, log) for row, log in zip(tokens.tolist(), logprobs.tolist(), strict=True)]


def choose(logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Next tokens by inverse CDF.

    Args:
        logits: float32[B, vocabulary].
        uniform: float32[B] in [0, 1).
        temperature: 0 takes the most likely token.

    Returns:
        tokens int64[B] and their log-probabilities float32[B] at that temperature (at 1 when greedy).
    """
    log = (logits / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        token = log.argmax(-1)
    else:
        cumulative = log.exp().cumsum(-1)
        token = torch.searchsorted(cumulative, (uniform[:, None] * cumulative[:, -1:]), right=True)[:, 0]
        token = token.clamp_max(logits.shape[-1] - 1)
    return token, log.gather(-1, token[:, None])[:, 0]


def _left_padded(policy: Policy, views: ViewBatch, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Embeddings of prefix + prompt with the padding between the two, and the attention mask int64[B, n]."""
    longest = max(map(len, prompts))
    pad = policy.tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=policy.device)
    embeddings = policy.embed(views, ids)
    mask = torch.ones(embeddings.shape[:2], dtype=torch.long, device=policy.device)
    for index, prompt in enumerate(prompts):
        prefix = embeddings.shape[1] - longest
        mask[index, prefix : prefix + longest - len(prompt)] = 0
    return embeddings, mask


def _sample(tokenizer: Any, tokens: list[int], logprobs: list[float]) -> Sample:
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    finished = end in tokens
    length = tokens.index(end) + 1 if finished else next((i for i, t in enumerate(tokens) if t == pad), len(tokens))
    kept = tokens[:length]
    return Sample(text.decode(tokenizer, kept), tuple(kept), tuple(logprobs[:length]), finished)
