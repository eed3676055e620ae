import itertools
import math

import numpy as np
import pandas as pd
import pytest

from components.errors import UserError
from components.evaluation.metrics import (
    bootstrap,
    compile_rate,
    geomean,
    one_timing,
    pass_at_k,
    pass_rates,
    speedups_best,
    speedups_one,
)


def _frame(rows):
    """(matrix, status, time_us) with a baseline of 10 us."""
    frame = pd.DataFrame(rows, columns=["matrix", "status", "time_us"])
    return frame.assign(baseline_us=10.0, timing="modelled")


TWO = _frame(
    [
        ("a", "correct", 5.0),  # 2x
        ("a", "wrong", None),  # counts as 1
        ("a", "correct", 20.0),  # 0.5x
        ("b", "unparsable", None),
        ("b", "compile_error", None),
        ("b", "correct", 2.5),  # 4x
    ]
)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"), [(4, 1, 1, 0.25), (4, 2, 2, 5 / 6), (5, 0, 3, 0.0), (5, 5, 1, 1.0), (8, 6, 3, 1.0)]
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected)


def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one():
    for n, c, k in [(6, 2, 3), (7, 1, 4), (5, 3, 2)]:
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_pass_at_k_refuses_nonsense(n, c, k):
    with pytest.raises(ValueError, match="expected 1 <= k <= n"):
        pass_at_k(n, c, k)


def test_geomean_goes_through_logarithms():
    assert geomean([1e-200, 1e200]) == pytest.approx(1.0)
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geomean([]))
    with pytest.raises(ValueError, match="not all positive"):
        geomean([1.0, 0.0])


def test_misses_count_as_the_baseline():
    assert speedups_one(TWO).tolist() == pytest.approx([1.0, 4 ** (1 / 3)])
    assert pass_rates(TWO, 1).tolist() == pytest.approx([2 / 3, 1 / 3])
    assert compile_rate(TWO) == pytest.approx(4 / 6)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_best_of_k_is_the_mean_over_all_subsets(k):
    ratios = {"a": [2.0, 1.0, 0.5], "b": [1.0, 1.0, 4.0]}
    expected = [
        np.exp(np.mean([np.log(max(1.0, *subset, 1.0)) for subset in itertools.combinations(values, k)]))
        for values in ratios.values()
    ]
    assert speedups_best(TWO, k).tolist() == pytest.approx(expected)


def test_bootstrap_is_seeded_and_brackets_the_value():
    values = np.random.default_rng(0).lognormal(0.3, 0.5, 40)
    first = bootstrap(values, 500, seed=1, logs=True)
    assert first == bootstrap(values, 500, seed=1, logs=True)
    assert first.value == pytest.approx(geomean(values))
    assert first.low < first.value < first.high
    assert first.high / first.low == pytest.approx(np.exp(2 * 1.96 * np.log(values).std() / np.sqrt(40)), rel=0.15)
    same = bootstrap([2.0] * 5, 100, seed=0, logs=True)
    assert (same.value, same.low, same.high) == pytest.approx((2.0, 2.0, 2.0))


def test_measured_and_modelled_never_meet():
    assert one_timing(TWO) == "modelled"
    mixed = TWO.assign(timing=["measured"] + ["modelled"] * 5)
    with pytest.raises(UserError, match="mixes measured and modelled"):
        one_timing(mixed)


def test_no_interval_is_not_called_one_matrix():
    misses = bootstrap([1.0] * 20, 50, seed=0, logs=True)
    assert str(misses) == "1.000 (no interval: every resample alike)"
