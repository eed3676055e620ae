"""Named barriers order the warps that take part and no others; incomplete ones are deadlocks."""

# ruff: noqa: E501  (CUDA sources)

import numpy as np
import pytest

from components.judge.emulate.machine import Emulation, EmulatorLimits
from tests.judge.emulate.emulator_harness import execute

HEAD = 'extern "C" __global__ void k(int* y) { __shared__ int s[256]; int t = threadIdx.x, w = t / 32;\n'


def outcome(body: str, block: int = 128) -> tuple[Emulation, np.ndarray]:
    """Run a body; `bar(op, id, threads)` in it is a barrier instruction."""
    y = np.zeros(block, np.int32)
    before = '#define bar(op, id, n) asm volatile("bar." op " " #id ", " #n ";" ::: "memory")\n'
    limits = EmulatorLimits(instruction_budget=200_000)
    return execute(f"{before}{HEAD}{body} }}", {}, {"y": y}, 1, block, limits=limits, initialised=True), y


RACES = {
    "the barrier is of two warps, the data of the third": 's[t] = t; if (w == 0 || w == 1) { bar("sync", 1, 64); y[t] = s[64 + t % 32]; }',
    "written after the arrival": 'if (w == 0) { bar("arrive", 1, 64); s[t] = 1; } else if (w == 1) { bar("sync", 1, 64); y[t] = s[t - 32]; }',
    "overwritten while a third warp reads": 'if (w == 3) y[t] = s[t - 96] = 5; __syncthreads(); if (w == 2) y[t] = s[t - 64]; if (w == 0) bar("arrive", 1, 64); if (w == 1) { bar("sync", 1, 64); s[t - 32] = 7; }',
}  # fmt: skip
CLEAN = {
    "each half": 's[t] = t; if (t < 64) bar("sync", 1, 64); else bar("sync", 2, 64); y[t] = s[t ^ 32];',
    "handed on: 0 to 1, 1 to 2": """if (w == 0) { s[t] = 1; bar("arrive", 1, 64); } else if (w == 1) { bar("sync", 1, 64); bar("arrive", 2, 64); }
       else if (w == 2) { bar("sync", 2, 64); y[t] = s[t - 64]; }""",
    "two buffers, three consumers": """int sum = 0; for (int i = 0; i < 6; ++i) { if (w == 0) { if (i & 1) { if (i > 1) bar("sync", 4, 128); s[32 + t] = i; bar("arrive", 2, 128); }
       else { if (i > 1) bar("sync", 3, 128); s[t] = i; bar("arrive", 1, 128); } }
       else if (i & 1) { bar("sync", 2, 128); sum += s[32 + t % 32]; if (i < 4) bar("arrive", 4, 128); } else { bar("sync", 1, 128); sum += s[t % 32]; if (i < 4) bar("arrive", 3, 128); } } y[t] = sum;""",
    "the block's barrier after a named one": 's[t] = t; if (t < 64) bar("sync", 1, 64); __syncthreads(); y[t] = s[127 - t];',
    "again and again": 'for (int i = 0; i < 5; ++i) { if (t < 64) { s[t] = i; bar("sync", 1, 64); y[t] += s[63 - t]; bar("sync", 1, 64); } }',
}  # fmt: skip
EXPECTED = {
    "each half": np.arange(128) ^ 32,
    "handed on: 0 to 1, 1 to 2": np.repeat([0, 0, 1, 0], 32),
    "two buffers, three consumers": np.repeat([0, 15, 15, 15], 32),
    "the block's barrier after a named one": np.arange(127, -1, -1),
    "again and again": np.repeat([10, 10, 0, 0], 32),
}
DEADLOCKS = {
    "the producer does not wait for its consumer": """for (int i = 0; i < 2; ++i) { if (w == 0) { s[t] = i; bar("arrive", 1, 64); }
       else if (w == 1) { bar("sync", 1, 64); y[t] += s[t - 32]; } }""",
    "too few warps": 'if (t < 64) bar("sync", 1, 96); y[t] = 1;',
    "half warps do not count": 's[t] = 0; if (t % 32 < 16) bar("sync", 1, 64); else { while (((volatile int*)s)[t] != 99999) s[t] = 1; }',
    "nobody arrives twice": 'if (w == 0) bar("arrive", 1, 96); if (w == 1) bar("sync", 1, 96); y[t] = 1;',
}


@pytest.mark.parametrize("name", RACES)
def test_race(name: str) -> None:
    assert outcome(RACES[name])[0].status == "race"


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name: str) -> None:
    found, y = outcome(CLEAN[name])
    assert (found.status, found.message) == ("ok", "")
    np.testing.assert_array_equal(y, EXPECTED[name])


@pytest.mark.parametrize("name", DEADLOCKS)
def test_deadlock(name: str) -> None:
    assert outcome(DEADLOCKS[name])[0].status == "timeout"
