"""The numbers that are reported, over every matrix: a miss counts as the baseline, it is never dropped.

A verdict table has one row per sample, with columns `matrix`, `status`, `time_us`, `baseline_us`, `timing` and others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from components.errors import UserError
from components.judge.verdict import Status

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval over matrices."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.3f} (no interval: every resample alike)"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is correct: 1 - C(n-c, k) / C(n, k).

    Source: Chen et al., Evaluating Large Language Models Trained on Code, 2021, equation 1.

    Args:
        samples: n, drawn for this matrix.
        correct: c, of them.
        k: at most n.

    Raises:
        ValueError: k exceeds n, or c is not in 0..n.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@k of n={samples}, c={correct}, k={k}: expected 1 <= k <= n and 0 <= c <= n")
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


def geomean(values: Sequence[float] | Array) -> float:
    """Geometric mean through logarithms; NaN of nothing.

    Raises:
        ValueError: a value is not positive and finite.
    """
    array = np.asarray(values, np.float64)
    if array.size == 0:
        return math.nan
    if not (np.isfinite(array) & (array > 0)).all():
        raise ValueError("geometric mean of values that are not all positive and finite")
    return float(np.exp(np.log(array).mean()))


def bootstrap(values: Sequence[float] | Array, resamples: int, seed: int, *, logs: bool = False) -> Estimate:
    """Mean (or geometric mean, with `logs`) over matrices and its 95 % percentile interval.

    Args:
        values: one per matrix.
        resamples: bootstrap resamples of the matrices, with replacement.
        seed: of the resampling.
        logs: geometric mean of positive values.
    """
    array = np.asarray(values, np.float64)
    if array.size == 0:
        return Estimate(math.nan, math.nan, math.nan)
    point = geomean(array) if logs else float(array.mean())
    work = np.log(array) if logs else array
    rng = np.random.default_rng(seed)
    means = np.sort([work[rng.integers(0, work.size, work.size)].mean() for _ in range(resamples)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(point, float(np.exp(low) if logs else low), float(np.exp(high) if logs else high))


def one_timing(frame: "pd.DataFrame") -> str:
    """The timing kind of a table.

    Raises:
        UserError: measured and modelled times meet in it.
    """
    kinds = sorted(str(kind) for kind in frame["timing"].dropna().unique())
    if len(kinds) > 1:
        raise UserError(f"a table mixes {' and '.join(kinds)} times; expected one kind")
    return kinds[0] if kinds else "none"


def compile_rate(frame: "pd.DataFrame") -> float:
    """Share of samples that the compiler accepted."""
    return float(np.mean([Status(status).compiled for status in frame["status"]])) if len(frame) else math.nan


def pass_rates(frame: "pd.DataFrame", k: int) -> Array:
    """pass@k of each matrix, float64[matrices], in the order of their ids."""
    groups = frame.assign(ok=frame["status"] == Status.CORRECT).groupby("matrix", sort=True)["ok"]
    return np.array([pass_at_k(len(ok), int(ok.sum()), k) for _, ok in groups], np.float64)


def speedups_one(frame: "pd.DataFrame") -> Array:
    """Speed-up of one sample on each matrix: the geometric mean over its samples, a miss counting as 1."""
    return np.array([np.exp(np.log(s).mean()) for s in _per_matrix(frame)], np.float64)


def speedups_best(frame: "pd.DataFrame", k: int) -> Array:
    """Expected speed-up of the fastest of k samples on each matrix (a miss counts as 1), in the mean of logarithms.

    The expectation is over which k of the n samples are drawn: the i-th fastest is the best of k with probability
    C(n-i, k-1) / C(n, k), i from 1. Never below the baseline: the user keeps it when nothing beats it.
    """
    best = []
    for samples in _per_matrix(frame):
        n = len(samples)
        if k > n:
            raise ValueError(f"best of {k} from {n} samples")
        logs = np.sort(np.log(np.maximum(samples, 1.0)))[::-1]
        weights = [math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n + 1)]
        best.append(float(np.exp(np.dot(logs, weights))))
    return np.array(best, np.float64)


def _per_matrix(frame: "pd.DataFrame") -> list[Array]:
    ratio = np.where(frame["status"] == Status.CORRECT, frame["baseline_us"] / frame["time_us"], 1.0)
    groups = frame.assign(ratio=ratio).groupby("matrix", sort=True)["ratio"]
    return [np.asarray(group, np.float64) for _, group in groups]
