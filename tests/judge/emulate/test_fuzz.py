"""Damaged PTX is refused or runs to a status; it never crashes, hangs or raises anything else."""

# ruff: noqa: E501  (CUDA sources)

import random
import re

import numpy as np
import pytest

from components.judge.emulate.machine import EmuBuffer, EmulatorLimits, EmuLaunch, Refused, load_ptx, run
from tests.judge.emulate.emulator_harness import compile_ptx

SOURCE = """
__device__ __noinline__ float f(const float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }
extern "C" __global__ void k(const float* x, const int* c, float* y, int n) {
  __shared__ float s[64]; float a[4] = {1, 2, 3, 4}; int t = threadIdx.x; s[t] = x[c[t] & 63]; a[t & 3] += n;
  __syncthreads(); float v = s[t ^ 1] + a[(t + n) & 3] + f(x, t & 3); double d = v * 0.5; long long q = (long long)t * n;
  for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o); if (t % 3 == 0) v = sqrtf(v) / (float)d;
  unsigned b = __ballot_sync(~0u, v > 1); atomicAdd(y + (b & 7), v + (float)(q % 7)); float4 w = ((const float4*)x)[t & 7]; y[8 + t] = w.x * w.w; }
"""


def mutate(text: str, rng: random.Random) -> str:
    """One to three small damages to the PTX."""
    for _ in range(rng.randint(1, 3)):
        lines = text.split("\n")
        at = rng.randrange(12, len(lines))
        choice = rng.randrange(7)
        if choice == 0:
            del lines[at]
        elif choice == 1:
            lines.insert(at, lines[rng.randrange(12, len(lines))])
        elif choice == 2:
            lines[at] = re.sub(r"\d+", lambda m: str(rng.choice([0, 1, 7, 64, 2**31, -1, 2**63])), lines[at], count=1)
        elif choice == 3:
            lines[at] = re.sub(
                r"%[a-z]+\d+",
                lambda m: f"%{rng.choice(['r', 'rd', 'f', 'fd', 'p', 'rs'])}{rng.randrange(40)}",
                lines[at],
                count=1,
            )
        elif choice == 4:
            lines[at] = re.sub(
                r"\.([busf])(8|16|32|64)\b",
                lambda m: f".{rng.choice('busf')}{rng.choice([8, 16, 32, 64])}",
                lines[at],
                count=1,
            )
        elif choice == 5:
            other = rng.randrange(12, len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            place = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + rng.choice("{}[]();,%.@!x0") + lines[at][place + 1 :]
        text = "\n".join(lines)
    return text


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_damaged_ptx(arch: str, seed: int) -> None:
    original, rng = compile_ptx(SOURCE, arch), random.Random(seed)
    ran = 0
    for _ in range(40):
        try:
            module = load_ptx(mutate(original, rng))
        except Refused:
            continue
        y = np.zeros(80, np.float32)
        buffers = [
            EmuBuffer("x", np.ones(64, np.float32)),
            EmuBuffer("c", np.arange(64, dtype=np.int32)),
            EmuBuffer("y", y, True, True),
        ]
        launch = EmuLaunch("k", (2, 1, 1), (64, 1, 1), 0, ("x", "c", "y", np.int32(5)))
        try:
            result = run(module, [launch], buffers, EmulatorLimits(instruction_budget=20_000))
        except ValueError:  # the mutated signature no longer fits the launch
            continue
        assert result.status in ("ok", "illegal_access", "race", "timeout", "tampered", "launch_error", "unsupported")
        ran += 1
    assert ran > 0
