"""Rounds of dependent loads, the longest chain of a block, and what each multiprocessor gets, on known patterns."""

import numpy as np
import pytest
from emulator_harness import execute

from components.judge.emulate.records import Chain, EmulatorLimits, Traffic

X = np.arange(4096, dtype=np.float32)
LINKS = ((np.arange(4096) * 97 + 31) % 4096).astype(np.int32)


def counted(body: str, blocks: int = 1, threads: int = 32, outputs: int = 32, sms: int = 132) -> Traffic:
    """The traffic of a kernel with x (floats), p (a permutation's links), y and n = 16."""
    y = np.zeros(outputs, np.float32)
    parameters = "const float* __restrict__ x, const int* __restrict__ p, int n, float* __restrict__ y"
    source = f'extern "C" __global__ void k({parameters}) {{ {body} }}'
    limits = EmulatorLimits(multiprocessors=sms)
    found = execute(source, {"x": X, "p": LINKS, "n": np.int32(16)}, {"y": y}, blocks, threads, limits=limits)
    assert found.status == "ok", found.message
    return found.traffic[0]


def chain(body: str) -> Chain:
    return counted(body).longest


def test_loads_of_known_addresses_are_one_round() -> None:
    found = chain("int t = threadIdx.x; y[t] = x[t] + x[t + 512] + x[t + 1024] + x[t + 2048];")
    assert (found.rounds, found.missed_rounds, found.lines, found.missed_sectors) == (1, 1, 4, 16)


def test_each_link_of_a_list_is_a_round_of_its_own() -> None:
    assert chain("int t = threadIdx.x; y[t] = x[p[p[t]]];").rounds == 3
    follow = '_Pragma("unroll 1") for (int k = 0; k < n; ++k) j = p[j];'
    assert chain(f"int j = threadIdx.x; {follow} y[threadIdx.x] = j;").rounds == 16


def test_a_round_of_data_in_l1_does_not_count_as_missed() -> None:
    found = chain("int t = threadIdx.x; float a = x[t]; y[t] = a + x[p[t] & 31];")
    assert (found.rounds - found.missed_rounds, found.missed_rounds) == (1, 1)


@pytest.mark.parametrize(("unroll", "rounds"), [('_Pragma("unroll 1")', 16), ('_Pragma("unroll 4")', 4)])
def test_iterations_of_an_unrolled_loop_share_their_rounds(unroll: str, rounds: int) -> None:
    body = f"int t = threadIdx.x; float s = 0; {unroll} for (int k = 0; k < n; ++k) s += x[t + k * 64]; y[t] = s;"
    assert chain(body).rounds == rounds


def test_evict_first_loads_are_told_apart() -> None:
    plain, streamed = (counted(f"int t = threadIdx.x; y[t] = {load};") for load in ("x[t]", "__ldcs(x + t)"))
    assert (plain.longest.streamed_rounds, plain.cold_streamed, plain.missed_streamed) == (0, 0, 0)
    assert (streamed.longest.streamed_rounds, streamed.cold_streamed, streamed.missed_streamed) == (1, 4, 4)
    assert streamed.longest.missed_rounds == plain.longest.missed_rounds == 1


def test_a_barrier_hands_the_slowest_warps_chain_on() -> None:
    work = 'int t = threadIdx.x, j = t; if (t < 32) _Pragma("unroll 1") for (int k = 0; k < n; ++k) j = p[j];'
    apart = counted(f"{work} y[t] = j; if (t >= 32) y[t] = x[p[t]];", threads=64, outputs=64)
    assert (apart.longest.rounds, apart.longest.barriers) == (16, 0)
    after = f"__shared__ int s[64]; {work} s[t] = j; __syncthreads(); if (t >= 32) y[t] = x[p[s[t - 32]]];"
    together = counted(after, threads=64, outputs=64)
    assert (together.longest.rounds, together.longest.barriers) == (18, 1)
    assert together.longest.shared_rounds >= 1


def test_chains_of_blocks_add_up_and_blocks_go_round() -> None:
    body = "int t = blockIdx.x * 32 + threadIdx.x; y[t] = x[p[t]];"
    found = counted(body, blocks=10, outputs=320, sms=4)
    assert found.blocks_sum.rounds == 10 * found.longest.rounds == 20
    assert (found.sm_blocks, found.blocks) == (3, 10)
    assert found.sm_instructions * 10 == found.warp_instructions * 3


def test_shuffles_and_bank_conflicts_are_on_the_chain() -> None:
    found = chain(
        "float s = x[threadIdx.x]; for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d); y[threadIdx.x] = s;"
    )
    assert found.warp_syncs == 5
    spread = "__shared__ float s[1024]; int t = threadIdx.x; s[t * 32] = x[t]; __syncwarp(); y[t] = s[(t ^ 1) * 32];"
    assert chain(spread).shared_wavefronts == 2 * 32
