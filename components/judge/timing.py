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
_LONG_US, _LONG_SHORT_US = 50.0, 40.0  # a replay needs not be longer than this; the second with short programs
_BATCH, _MAX_SAMPLES = 8, 48  # pairs
_COLD_BATCH, _MAX_COLD = 6, 18  # pairs
# Upper over lower end of the ratio's interval: enough. A short program's launches alone vary by more.
_NARROW, _NARROW_SHORT, _NARROW_COLD = 1.015, 1.05, 1.25
_LOST = 0.5  # a ratio that is surely below this needs no further digits
_HOPELESS, _BATCH_HOPELESS = 3.0, 4  # an estimate of so many times the baseline's gets so few pairs at first
_SHORT_US = 10.0
_BUDGET_US = 20_000.0  # of one side's replays
_RESAMPLES = 200
_MAX_CV = 0.05  # coefficient of variation above which a time is not quoted
_MAX_INTERVAL = 1.10  # upper over lower end of the ratio's interval, likewise
_FLOOR_SHARE = 0.9  # of the floor: bandwidths were measured by kernels that may not reach the very last percent


@dataclass(frozen=True)
class Side:
    """One contestant: `replay` enqueues `runs` runs, `once` enqueues one.

    `captured`: from a graph; otherwise the host's own work is part of every run. `estimate_us`: of one run, roughly.
    """

    name: str
    replay: Callable[[], None]
    runs: int
    once: Callable[[], None]
    captured: bool = True
    estimate_us: float = 0.0


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
    ordered, theirs = np.sort(candidate), np.sort(baseline)
    middle, base = _quantile(ordered, 0.5), _quantile(theirs, 0.5)
    mean = float(candidate.sum()) / len(candidate)
    off = candidate - mean
    return Statistics(
        time_us=middle,
        p10_us=_quantile(ordered, 0.1),
        p90_us=_quantile(ordered, 0.9),
        cv=math.sqrt(float(off @ off) / len(candidate)) / mean,
        baseline_us=base,
        speedup=base / middle,
        speedup_interval=(float(low), float(high)),
        samples=len(candidate),
    )


def _quantile(ordered: NDArray[np.float64], share: float) -> float:
    """The quantile of sorted samples, linear between neighbours, as np.quantile's default, without its overhead."""
    place = share * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return float(ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower))


def _medians(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of each row; np.median without its overhead, which counts here."""
    ordered = np.sort(samples, axis=1)
    count = samples.shape[1]
    middle: NDArray[np.float64] = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle


def runs_for(estimate_us: float, step: int = 2) -> int:
    """Runs in one graph: short programs need many, or the replay's own start is timed.

    Args:
        estimate_us: of one run.
        step: a multiple of this; what runs take in turn.
    """
    enough_us = _LONG_SHORT_US if estimate_us < _SHORT_US else _LONG_US
    return max(step, min(RUNS, step * math.ceil(enough_us / max(estimate_us, 1e-3) / step)))


def duel(
    device: Any,
    ours: Side,
    theirs: Side,
    deadline_s: float,
    cold: bool = True,
    then: Callable[[], None] | None = None,
    during: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Fields of a Verdict: warm and cold times of `ours`, the baseline's and their ratio.

    Args:
        device: has `stopwatch` and `replay_us`, which is taken off each replay of a graph.
        ours: the candidate.
        theirs: the baseline.
        deadline_s: for one batch.
        cold: whether to time with a flushed L2 too.
        then: enqueues what follows each batch.
        during: what the host does while the device is at a batch.
    """
    sides, per = (ours, theirs), (ours.runs, theirs.runs)
    held = ours.captured and theirs.captured
    watch = functools.partial(device.stopwatch, deadline_s=deadline_s, held=held, then=then, during=during)
    warm_up = [side.replay for side in sides for _ in range(math.ceil(WARM_UPS / side.runs))]
    replays, singles = (ours.replay, theirs.replay), (ours.once, theirs.once)
    # What a replay takes beside its runs; without a graph there is no such thing.
    own = np.array([[device.replay_us if side.captured else 0.0] for side in sides])
    # The first batches of both kinds are enqueued at once, so that the device waits for nobody.
    hopeless = ours.estimate_us > _HOPELESS * theirs.estimate_us > 0
    first = warm_up + [replays[side] for side in _turns(_BATCH_HOPELESS if hopeless else _BATCH)]
    chilled = [singles[side] for side in _turns(_COLD_BATCH)] if cold else []
    times = watch([*first, *chilled], flush_from=len(first))
    warm_pairs = _paired(times[len(warm_up) : len(first)], own, per)
    cold_pairs = _paired(times[len(first) :])
    warm = summarise(*warm_pairs)
    while not _enough(warm, _NARROW_SHORT if warm.time_us < _SHORT_US else _NARROW, _MAX_SAMPLES, per):
        times = watch([replays[side] for side in _turns(_BATCH)])
        warm_pairs = np.concatenate([warm_pairs, _paired(times, own, per)], axis=1)
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
            times = watch([singles[side] for side in _turns(_COLD_BATCH)], flush_from=0)
            cold_pairs = np.concatenate([cold_pairs, _paired(times)], axis=1)
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


def _paired(
    times: NDArray[np.float64], own: NDArray[np.float64] | float = 0.0, per: tuple[int, int] = (1, 1)
) -> NDArray[np.float64]:
    """float64[2, pairs] per run, from times in the order of `_turns`, less what is no run's."""
    pairs = times.reshape(-1, 2).copy()
    pairs[1::2] = pairs[1::2, ::-1]
    per_run: NDArray[np.float64] = (pairs.T - own) / np.array([[per[0]], [per[1]]])
    return per_run


def _enough(found: Statistics, narrow: float, most: int, per: tuple[int, int]) -> bool:
    """Whether the interval is narrow or wholly below what counts, the samples are many or the budget is spent."""
    low, high = found.speedup_interval
    spent = found.samples * max(found.time_us * per[0], found.baseline_us * per[1])
    return high / low <= narrow or high < _LOST or found.samples >= most or spent >= _BUDGET_US


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
