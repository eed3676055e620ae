"""The modelled time: occupancy, what holds a launch up, and that its constants still give the published figures."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from components.errors import UserError
from components.judge.emulate.records import Chain, Traffic
from components.judge.model_constants import CALIBRATED, Constants
from components.judge.model_time import (
    ARCHITECTURES,
    CHAIN,
    LAUNCH_US,
    LaunchShape,
    architecture,
    estimate_us,
    hold_ups,
    launch_problem,
    resident_blocks,
    work_of,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/nvidia-h200"
sys.path.insert(0, str(ROOT / "benchmarks"))

from model_figures import figures, load_table, read_pairs  # noqa: E402

SHAPE = LaunchShape(blocks=4_000, threads=256, registers=32, shared_bytes=0)
H200 = architecture("sm_90")
NO_CHAIN = Chain(**dict.fromkeys((field.name for field in fields(Chain)), 0))


def counted(**changes: int | Chain) -> Traffic:
    """A small launch of 100 warps with four loads each; what is not named is 0."""
    zero: dict[str, int | Chain] = dict.fromkeys((field.name for field in fields(Traffic)), 0)
    zero |= {"longest": NO_CHAIN, "blocks_sum": NO_CHAIN}
    small = {"warp_instructions": 1_000, "l1_missed_sectors": 1_000, "cold_sectors": 1_000, "wavefronts": 1_000}
    return Traffic(**{**zero, **small, **changes})  # type: ignore[arg-type]


def time_of(counts: Traffic, shape: LaunchShape = SHAPE, arch: str = "sm_90") -> float:
    return estimate_us(architecture(arch), [(counts, shape)])


def test_occupancy_follows_the_tightest_resource() -> None:
    assert resident_blocks(H200, SHAPE) == 8  # 64 warps over 8 a block
    assert resident_blocks(H200, replace(SHAPE, threads=32)) == 32  # blocks
    assert resident_blocks(H200, replace(SHAPE, registers=128)) == 2  # 65,536 registers over 32,768 a block
    assert resident_blocks(H200, replace(SHAPE, shared_bytes=100_000)) == 2


def test_launches_that_no_driver_accepts() -> None:
    assert launch_problem(H200, SHAPE) is None
    assert launch_problem(H200, replace(SHAPE, shared_bytes=232_449)) is not None
    assert launch_problem(architecture("sm_80"), replace(SHAPE, shared_bytes=200_000)) is not None
    assert launch_problem(H200, replace(SHAPE, threads=1_024, registers=65)) is not None
    assert launch_problem(H200, replace(SHAPE, threads=1_024, registers=64)) is None


def test_an_architecture_without_a_model_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"sm_80.*sm_90.*sm_100"):
        architecture("sm_70")


def test_memory_bound_time_approaches_bytes_over_bandwidth() -> None:
    sectors = 10**9 // 32 * 4  # 4 GB, far over any L2
    counts = counted(
        load_sectors=sectors, load_requests=sectors // 4, l1_missed_sectors=sectors, cold_sectors=sectors,
        wavefronts=sectors // 4,
    )  # fmt: skip
    shape = replace(SHAPE, blocks=100_000)
    for name, machine in ARCHITECTURES.items():
        least = 4e9 / (machine.dram_gbps * 1e3)
        assert least < time_of(counts, shape, name) < 3 * least, name
    times = [time_of(counts, shape, name) for name in ARCHITECTURES]
    assert times == sorted(times, reverse=True)  # each generation is faster


def test_more_work_never_takes_less_time_and_nothing_takes_a_launch() -> None:
    base = time_of(counted())
    assert LAUNCH_US < base < LAUNCH_US + 3
    for field in ("warp_instructions", "l1_missed_sectors", "atomic_sectors", "wavefronts", "shared_wavefronts"):
        assert time_of(replace(counted(), **{field: 10**7})) > base
    nothing = replace(counted(), warp_instructions=0, l1_missed_sectors=0, cold_sectors=0, wavefronts=0)
    assert time_of(nothing, replace(SHAPE, blocks=1)) == LAUNCH_US


def test_every_link_of_the_chain_takes_time() -> None:
    one = replace(SHAPE, blocks=1)
    for name in CHAIN:
        # An evict-first hint costs something where there is more such data than its share of the L2.
        base = counted(cold_streamed=10**6)
        longer = replace(base, longest=replace(NO_CHAIN, **{name: 10_000}))
        assert time_of(longer, one) > time_of(base, one) + 0.1, name


def test_a_further_kernel_costs_less_than_a_program_of_its_own() -> None:
    alone = estimate_us(H200, [(counted(), SHAPE)])
    assert alone + CALIBRATED.next_launch_us <= estimate_us(H200, [(counted(), SHAPE)] * 2) < 2 * alone


def test_one_block_waits_for_its_chain_and_many_blocks_for_their_turn() -> None:
    chain = replace(NO_CHAIN, rounds=10, missed_rounds=10)
    sums = replace(NO_CHAIN, rounds=10 * 10**6, missed_rounds=10 * 10**6)
    cycles = 10 * CALIBRATED.l2_share * H200.l2_latency
    few = hold_ups(H200, work_of(H200, counted(longest=chain, blocks_sum=chain), replace(SHAPE, blocks=1)))
    assert float(few["path"]) == pytest.approx(cycles)
    many = hold_ups(H200, work_of(H200, counted(longest=chain, blocks_sum=sums), replace(SHAPE, blocks=10**6)))
    places = 132 * 8
    assert float(many["path"]) == pytest.approx(cycles * (10**6 / places + CALIBRATED.tail))


def test_the_committed_constants_give_the_committed_figures() -> None:
    """Both were written by benchmarks/model_fit.py from the same measurements; neither may change alone."""
    published = json.loads((RESULTS / "model_fit.json").read_text(encoding="utf-8"))
    assert Constants(**published["constants"]) == CALIBRATED
    pairs = read_pairs(load_table(RESULTS / "model_pairs.json"))
    held = np.isin(pairs.matrix, published["held_out_matrices"])
    assert 0.4 < held.mean() < 0.6
    found = figures(pairs, pairs.modelled(), held)
    assert found == pytest.approx(published["held_out"], rel=1e-9)
    assert (found["ordered_1_5x"] or 0) >= 0.98
    assert (found["kendall_tau"] or 0) >= 0.85
    assert found["regret"] is not None
    assert found["regret"] <= 0.03


def test_the_committed_constants_give_the_committed_figures_of_the_second_set() -> None:
    published = json.loads((RESULTS / "model_check.json").read_text(encoding="utf-8"))
    pairs = read_pairs(load_table(RESULTS / "model_check_pairs.json"))
    known = pairs.family != "outside"
    assert figures(pairs, pairs.modelled(), np.ones_like(known)) == pytest.approx(published["all"], rel=1e-9)
    found = figures(pairs, pairs.modelled(), known)
    assert found == pytest.approx(published["without_outside"], rel=1e-9)
    assert (found["ordered_1_5x"] or 0) >= 0.98


def test_figures_of_a_perfect_a_reversed_and_a_doubled_model() -> None:
    pairs = read_pairs(load_table(RESULTS / "model_pairs.json"))
    chosen = np.zeros(len(pairs.program), bool)
    chosen[np.flatnonzero(pairs.group == pairs.group[0])[:40]] = True
    right = figures(pairs, pairs.time_us, chosen)
    assert (right["kendall_tau_b"], right["ordered_1_5x"], right["regret"], right["median_error"]) == (1, 1, 0, 0)
    wrong = figures(pairs, 1 / pairs.time_us, chosen)
    assert (wrong["kendall_tau_b"], wrong["ordered_1_5x"]) == (-1, 0)
    slowest = pairs.time_us[chosen].max() / pairs.time_us[chosen].min() - 1
    assert wrong["regret"] == pytest.approx(slowest)
    doubled = figures(pairs, 2 * pairs.time_us, chosen)
    assert (doubled["kendall_tau_b"], doubled["bias"], doubled["median_error"]) == pytest.approx((1, 2, 1))
