"""Statistics of the duel, and when it stops."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from components.judge.timing import Side, doubts, duel, runs_for, summarise


class Clock:
    """A device on which every run takes as long as its own noise says, and every replay 3 us more."""

    replay_us = 3.0

    def __init__(self, noise: float, seed: int = 1) -> None:
        self.rng, self.noise, self.elapsed, self.watched = np.random.default_rng(seed), noise, 0.0, 0

    def side(self, microseconds: float) -> Side:
        def once() -> None:
            self.elapsed += microseconds * (1 + self.noise * self.rng.standard_normal())

        def replay() -> None:
            for _ in range(20):
                once()

        return Side("x", replay, 20, once)

    def stopwatch(
        self,
        runs: Sequence[Callable[[], None]],
        deadline_s: float,
        flush_from: int | None = None,
        held: bool = True,
        then: Callable[[], None] | None = None,
        during: Callable[[], None] | None = None,
    ) -> Any:
        self.held = held
        times = []
        for number, run in enumerate(runs):
            self.elapsed = 5.0 if flush_from is not None and number >= flush_from else 3.0
            run()
            times.append(self.elapsed)
            self.watched += 1
        for work in (then, during):
            if work is not None:
                work()
        return np.array(times)


def test_a_duel_of_equals_is_a_draw_and_a_real_gain_is_seen() -> None:
    rng = np.random.default_rng(1)
    samples = 10.0 * (1 + 0.01 * rng.standard_normal((2, 50)))
    even = summarise(samples[0], samples[1])
    assert even.speedup_interval[0] < 1 < even.speedup_interval[1]
    gain = summarise(samples[0] / 1.2, samples[1])
    assert gain.speedup == pytest.approx(1.2, rel=0.02)
    assert gain.speedup_interval[0] > 1.15
    assert gain.p10_us < gain.time_us < gain.p90_us
    assert gain.samples == 50


def test_the_interval_covers_the_truth() -> None:
    """A ratio of 1.1 lies within the interval about as often as 95 % says."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(200):
        samples = np.array([[10.0], [11.0]]) * (1 + 0.02 * rng.standard_normal((2, 32)))
        low, high = summarise(samples[0], samples[1]).speedup_interval
        inside += low <= 1.1 <= high
    assert inside >= 176


def test_quiet_clocks_need_few_samples_and_noisy_ones_more() -> None:
    quiet, noisy = Clock(0.001), Clock(0.6)
    few = duel(quiet, quiet.side(10.0), quiet.side(20.0), 1.0)
    many = duel(noisy, noisy.side(10.0), noisy.side(20.0), 1.0)
    assert few["samples"] == 8
    assert many["samples"] > few["samples"]
    assert few["speedup"] == pytest.approx(2.0, rel=0.01)
    assert few["time_cold_us"] == pytest.approx(15.0, rel=0.01)
    assert few["speedup_cold"] == pytest.approx(25.0 / 15.0, rel=0.01)


def test_a_program_that_has_surely_lost_is_not_timed_to_the_last_digit() -> None:
    lost, close = Clock(0.3), Clock(0.3)
    assert duel(lost, lost.side(90.0), lost.side(10.0), 1.0)["samples"] == 8
    assert duel(close, close.side(11.0), close.side(10.0), 1.0)["samples"] > 8
    slow, fast = lost.side(90.0), lost.side(10.0)
    told = (dataclasses.replace(slow, estimate_us=90.0), dataclasses.replace(fast, estimate_us=10.0))
    assert duel(lost, *told, 1.0)["samples"] == 4
    misled = [dataclasses.replace(close.side(10.0), estimate_us=us) for us in (90.0, 10.0)]  # estimates decide nothing
    assert duel(close, *misled, 1.0)["samples"] > 8


def test_what_follows_a_batch_follows_every_one() -> None:
    clock, calls = Clock(0.6), []
    fields = duel(
        clock, clock.side(10.0), clock.side(10.0), 1.0, False, lambda: calls.append("then"), lambda: calls.append("on")
    )
    assert calls == ["then", "on"] * (fields["samples"] // 8)


def test_both_sides_warm_up_for_twenty_runs() -> None:
    clock = Clock(0.0)
    duel(clock, clock.side(10.0), clock.side(10.0), 1.0, cold=False)
    assert clock.watched == 2 + 16  # one replay of twenty runs each, then eight pairs


@pytest.mark.parametrize(("estimate", "runs"), [(0.5, 48), (5.0, 8), (13.0, 4), (60.0, 2), (10_000.0, 2)])
def test_short_programs_run_many_times_in_one_graph(estimate: float, runs: int) -> None:
    assert runs_for(estimate) == runs
    assert runs_for(estimate, 1) in (runs, 1)


def test_the_host_s_own_work_counts_where_there_is_no_graph() -> None:
    """An eager product is neither held back until the host is ahead, nor is a replay's own time taken off."""
    clock = Clock(0.0)
    ours, eager = clock.side(10.0), dataclasses.replace(clock.side(20.0), captured=False)
    assert duel(clock, ours, ours, 1.0)["baseline_us"] == pytest.approx(10.0)
    assert clock.held
    assert duel(clock, ours, eager, 1.0)["baseline_us"] == pytest.approx(20.0 + 3.0 / 20)
    assert not clock.held


def test_what_forbids_quoting_a_time() -> None:
    good = {"time_us": 10.0, "cv": 0.01, "speedup_interval": (1.0, 1.01)}
    assert doubts(good, 1.0, "", 0.0) == ""
    assert doubts(good, 12.0, "", 0.0) == "10 us is under the physical floor of 12 us"
    assert doubts(good | {"cv": 0.2}, 1.0, "", 0.0) == "samples vary by 20.0%"
    assert doubts(good | {"speedup_interval": (1.0, 1.3)}, 1.0, "", 0.0) == "the ratio's interval is 30% wide"
    assert doubts(good, 1.0, "power cap", 0.0) == "clocks held down: power cap"
    assert doubts(good, 1.0, "", 0.1) == "the SM clock moved by 10%"
