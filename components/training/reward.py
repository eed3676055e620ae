"""The hierarchical reward: what the compiler, the checker and the clock say, in that order.

R = +-compile + (+-test, if compiled) + (efficiency * g(t_base / t), if correct) - resource_penalty * violation

After the reward of the ICLR 2026 paper; g is the clipped natural logarithm by default and `t_base / t - 1` in its
ablation. Every constant is in params.yaml.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.judge.verdict import Verdict
from components.settings import RewardSettings

MAX_REGISTERS = 128  # a thread; beyond, fewer than half of an SM's warps fit (65,536 registers, 64 warps of 32)
LEVELS = ("rejected", "compiled", "correct")


def reward(verdict: Verdict, settings: RewardSettings) -> float:
    """The reward of one program.

    Args:
        verdict: with `time_us` and `baseline_us` when correct.
        settings: the constants.
    """
    if not verdict.status.compiled:
        return -settings.compile
    total = settings.compile + (settings.test if verdict.correct else -settings.test)
    if verdict.correct and verdict.time_us and verdict.baseline_us:
        total += settings.efficiency * gain(verdict.baseline_us / verdict.time_us, settings)
    return total - settings.resource_penalty * violation(verdict)


def gain(speedup: float, settings: RewardSettings) -> float:
    """g of the reward: clipped logarithm, plain ratio, or nothing."""
    match settings.shape:
        case "clipped_log":
            return min(settings.clip_high, max(settings.clip_low, math.log(speedup)))
        case "ratio":
            return speedup - 1.0
        case "none":
            return 0.0


def violation(verdict: Verdict) -> float:
    """1 when the program spills registers or takes more than 128 a thread, else 0."""
    return float(bool(verdict.spill_bytes) or (verdict.registers or 0) > MAX_REGISTERS)


def level(verdict: Verdict) -> str:
    """How far the program came: rejected, compiled, correct."""
    if verdict.correct:
        return "correct"
    return "compiled" if verdict.status.compiled else "rejected"


def group_advantages(rewards: Sequence[float], normalise: bool) -> NDArray[np.float64]:
    """Rewards of one problem's samples, centred, and of deviation 1 when `normalise`; 0 when all are equal."""
    values: NDArray[np.float64] = np.asarray(rewards, np.float64)
    centred = values - values.mean()
    deviation = values.std()
    if deviation < 1e-9:
        return np.zeros_like(values)
    scaled: NDArray[np.float64] = centred / deviation if normalise else centred
    return scaled
