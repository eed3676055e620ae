"""The duel: candidate and baseline timed in turn until the interval of their ratio is narrow, L2-warm and L2-cold.

Warm: replays of a CUDA graph of many runs, after at least 20 runs of warm-up. Cold: single runs between two events, the
L2 written over before each (the events' own cost, about 1.6 us on an H200, is in both sides). No GPU in the statistics.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WARM_UPS = 20  # runs
RUNS = 48  # at most, in one graph
_LONG_US = 100.0  # a replay needs not be longer than this
_BATCH, _MAX_SAMPLES = 8, 64  # pairs
_COLD_BATCH, _MAX_COLD = 6, 24  # pairs
# Upper over lower end of the ratio's interval: enough. A short program's launches alone vary by more.
_NARROW, _NARROW_SHORT, _NARROW_COLD = 1.02, 1.05, 1.10
_SHORT_US = 10.0
_BUDGET_US = 50_000.0  # of one side's replays
_RESAMPLES = 200
_MAX_CV = 0.05  # coefficient of variation above which a time is not quoted
_MAX_INTERVAL = 1.10  # upper over lower end of the ratio's interval, likewise
_FLOOR_SHARE = 0.9  # of the floor: bandwidths were measured by kernels that may not reach the very last percent


@dataclass(frozen=True)
class Side:
    """One contestant: `replay` enqueues `runs` runs, `once` enqueues one."""

    name: str
    replay: Callable[[], None]
    runs: int
    once: Callable[[], None]


@dataclass(frozen=True)
class Statistics:
    """Interleaved samples of two sides, summarised. Times in microseconds per run."""

    time_us: float  # median
    p10_us: float
    p90_us: float
    cv: float  # coefficient of variation: standard deviation over mean
    baseline_us: float  # median
    speedup: float  # ratio of the medians
    speedup_interval: tuple[float, float]  # 95 %, bootstrap over pairs
    samples: int


@functools.lru_cache(maxsize=64)
def _picks(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, count, (_RESAMPLES, count))


def summarise(candidate: NDArray[np.float64], baseline: NDArray[np.float64], seed: int = 0) -> Statistics:
    """Summarise interleaved samples.

    Args:
        candidate: float64[n] microseconds, in the order taken.
        baseline: float64[n], taken in turn with them.
        seed: of the bootstrap (percentile method, Efron and Tibshirani 1993), which resamples pairs so that a drift
            common to both cancels.
    """
    picks = _picks(len(candidate), seed)
    ratios = np.sort(_medians(baseline[picks]) / _medians(candidate[picks]))
    low, high = ratios[round(0.025 * _RESAMPLES)], ratios[round(0.975 * _RESAMPLES) - 1]
    middle, base = float(np.median(candidate)), float(np.median(baseline))
    p10, p90 = np.percentile(candidate, (10, 90))
    return Statistics(
        time_us=middle,
        p10_us=float(p10),
        p90_us=float(p90),
        cv=float(np.std(candidate) / np.mean(candidate)),
        baseline_us=base,
        speedup=base / middle,
        speedup_interval=(float(low), float(high)),
        samples=len(candidate),
    )


def _medians(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of each row; np.median without its overhead, which counts here."""
    ordered = np.sort(samples, axis=1)
    count = samples.shape[1]
    middle: NDArray[np.float64] = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle


def runs_for(estimate_us: float) -> int:
    """Runs in one graph, even: short programs need many, or the replay's own start is timed."""
    return max(2, min(RUNS, 2 * math.ceil(_LONG_US / max(estimate_us, 1e-3) / 2)))


def duel(device: Any, ours: Side, theirs: Side, deadline_s: float, cold: bool = True) -> dict[str, Any]:
    """Fields of a Verdict: warm and cold times of `ours`, the baseline's and their ratio.

    Args:
        device: has `stopwatch(runs, deadline_s, flush_from)` and `replay_us`, which is taken off each replay.
        ours: the candidate.
        theirs: the baseline.
        deadline_s: for one batch.
        cold: whether to time with a flushed L2 too.
    """
    sides, per = (ours, theirs), (ours.runs, theirs.runs)
    warm_up = [side.replay for side in sides for _ in range(math.ceil(WARM_UPS / side.runs))]
    replays, singles = (ours.replay, theirs.replay), (ours.once, theirs.once)
    # The first batches of both kinds are enqueued at once, so that the device waits for nobody.
    first = warm_up + [replays[side] for side in _turns(_BATCH)]
    chilled = [singles[side] for side in _turns(_COLD_BATCH)] if cold else []
    times = device.stopwatch([*first, *chilled], deadline_s, flush_from=len(first))
    warm_pairs = _paired(times[len(warm_up) : len(first)] - device.replay_us, per)
    cold_pairs = _paired(times[len(first) :], (1, 1))
    warm = summarise(*warm_pairs)
    while not _enough(warm, _NARROW_SHORT if warm.time_us < _SHORT_US else _NARROW, _MAX_SAMPLES, per):
        times = device.stopwatch([replays[side] for side in _turns(_BATCH)], deadline_s) - device.replay_us
        warm_pairs = np.concatenate([warm_pairs, _paired(times, per)], axis=1)
        warm = summarise(*warm_pairs)
    fields: dict[str, Any] = {
        "time_us": warm.time_us,
        "p10_us": warm.p10_us,
        "p90_us": warm.p90_us,
        "cv": warm.cv,
        "baseline_us": warm.baseline_us,
        "speedup": warm.speedup,
        "speedup_interval": warm.speedup_interval,
        "samples": warm.samples,
    }
    if cold:
        chill = summarise(*cold_pairs)
        while not _enough(chill, _NARROW_COLD, _MAX_COLD, (1, 1)):
            times = device.stopwatch([singles[side] for side in _turns(_COLD_BATCH)], deadline_s, flush_from=0)
            cold_pairs = np.concatenate([cold_pairs, _paired(times, (1, 1))], axis=1)
            chill = summarise(*cold_pairs)
        fields |= {
            "time_cold_us": chill.time_us,
            "speedup_cold": chill.speedup,
            "speedup_cold_interval": chill.speedup_interval,
        }
    return fields


def _turns(pairs: int) -> list[int]:
    """Which side runs when: 0 1, 1 0, 0 1, ..."""
    return [side for pair in range(pairs) for side in ((0, 1) if pair % 2 == 0 else (1, 0))]


def _paired(times: NDArray[np.float64], per: tuple[int, int]) -> NDArray[np.float64]:
    """float64[2, pairs] per run, from times in the order of `_turns`."""
    which = np.array(_turns(len(times) // 2), np.int64)
    return np.stack([times[which == 0] / per[0], times[which == 1] / per[1]])


def _enough(found: Statistics, narrow: float, most: int, per: tuple[int, int]) -> bool:
    """Whether the interval is narrow, the samples are many or the budget is spent."""
    low, high = found.speedup_interval
    spent = found.samples * max(found.time_us * per[0], found.baseline_us * per[1])
    return high / low <= narrow or found.samples >= most or spent >= _BUDGET_US


def doubts(fields: dict[str, Any], floor_us: float, throttle: str, clock_drift: float) -> str:
    """Why a time should not be quoted; empty when nothing speaks against it.

    Args:
        fields: of `duel`.
        floor_us: no program can be faster.
        throttle: what held the clocks down, as NVML names it.
        clock_drift: largest over smallest SM clock seen, minus one.
    """
    found = []
    if fields["time_us"] < _FLOOR_SHARE * floor_us:
        found.append(f"{fields['time_us']:.3g} us is under the physical floor of {floor_us:.3g} us")
    if fields["cv"] > _MAX_CV:
        found.append(f"samples vary by {fields['cv']:.1%}")
    low, high = fields["speedup_interval"]
    if high / low > _MAX_INTERVAL:
        found.append(f"the ratio's interval is {high / low - 1:.0%} wide")
    if throttle:
        found.append(f"clocks held down: {throttle}")
    if clock_drift > 0.02:
        found.append(f"the SM clock moved by {clock_drift:.0%}")
    return "; ".join(found)
