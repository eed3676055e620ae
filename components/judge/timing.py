"""Statistics of interleaved samples of two kernels; no GPU in here."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BOOTSTRAP = 1000  # resamples
_MAX_CV = 0.05  # coefficient of variation above which a time is not quoted
_MAX_INTERVAL = 1.10  # upper over lower end of the ratio's interval, likewise


@dataclass(frozen=True)
class Duel:
    """Candidate against baseline. Times in microseconds per run of the whole program."""

    time_us: float  # median
    p10_us: float
    p90_us: float
    cv: float
    baseline_us: float  # median
    speedup: float
    speedup_interval: tuple[float, float]  # 95 %, bootstrap of the ratio of medians
    reliable: bool


def summarise(candidate: NDArray[np.float64], baseline: NDArray[np.float64], floor_us: float, seed: int = 0) -> Duel:
    """Summarise interleaved samples.

    Args:
        candidate: samples in microseconds, in the order taken.
        baseline: as many, taken in turn with them.
        floor_us: a time below it is physically impossible and never reliable.
        seed: of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(candidate), (_BOOTSTRAP, len(candidate)))  # pairs, so that a common drift cancels
    ratios = np.median(baseline[picks], axis=1) / np.median(candidate[picks], axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5))
    middle = float(np.median(candidate))
    cv = float(np.std(candidate) / np.mean(candidate))
    base = float(np.median(baseline))
    return Duel(
        time_us=middle,
        p10_us=float(np.percentile(candidate, 10)),
        p90_us=float(np.percentile(candidate, 90)),
        cv=cv,
        baseline_us=base,
        speedup=base / middle,
        speedup_interval=(float(low), float(high)),
        reliable=bool(cv <= _MAX_CV and high / low <= _MAX_INTERVAL and middle >= floor_us),
    )
