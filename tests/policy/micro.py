"""A policy so small that a test may train it."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from components.kernel.families import all_programs
from components.matrix.generate import generate
from components.matrix.types import SparseMatrix
from components.policy import tokenizer as text
from components.policy.model import Policy, new_language_model
from components.policy.prefix import MatrixView
from components.settings import PolicySettings, PrefixSettings, ProfileSettings, Settings, load

FEATURES = 5
VOCABULARY = 500


@cache
def params() -> Settings:
    return load(Path(__file__).resolve().parents[2] / "params.yaml")


def policy_settings(**prefix: Any) -> PolicySettings:
    shipped = params().policy
    profile = ProfileSettings(hidden=32, layers=2, heads=2, feed_forward=64)
    small: PrefixSettings = dataclasses.replace(
        shipped.prefix, **{"coordinates": 16, "latents": 2, "scales": 4, **prefix}
    )
    lora = dataclasses.replace(shipped.lora, rank=4, alpha=8.0)
    return dataclasses.replace(shipped, profiles={shipped.profile: profile}, prefix=small, lora=lora)


@cache
def programs() -> tuple[str, ...]:
    return tuple(p.source for p in all_programs("spmv") if p.family == "csr_scalar")


@cache
def tokenizer() -> Any:
    return text.train(programs(), VOCABULARY)


def micro_policy(lora: bool = True, **prefix: Any) -> Policy:
    torch.manual_seed(0)
    settings = policy_settings(**prefix)
    policy = Policy(new_language_model(settings, tokenizer()), settings, FEATURES, tokenizer())
    if lora:
        policy.add_lora(settings.lora)
    return policy


def stir(policy: Policy, scale: float = 0.3) -> Policy:
    """Give the adapters weights, which start as no change at all."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in policy.named_parameters():
            if "lora_B" in name:
                value.normal_(0.0, scale)
    return policy


def random_view(seed: int, count: int = 16) -> MatrixView:
    rng = np.random.default_rng(seed)
    relative = rng.random((count, 2), dtype=np.float32)
    return MatrixView(relative, np.floor(relative * 100), rng.standard_normal(FEATURES).astype(np.float32))


def matrix(family: str = "banded", nnz: int = 600, seed: int = 0) -> SparseMatrix:
    return generate(family, nnz, seed)
