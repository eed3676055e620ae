"""The judge's own kernels: the audit of an arena, and what measures a device."""

import numpy as np
from numpy.typing import NDArray

from components.judge.compile import compile_program

KERNELS = r"""
// The pad of word `index`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at key + index.
__device__ unsigned long long pad(unsigned long long key, unsigned long long index) {
  unsigned long long z = (key + index) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// One pass over an arena: every 4-byte word outside of the output must be as in `pristine`, every output element within
// `bound` of `expected`, which are kept under a pad. result: first changed word, first bad element, number of bad ones.
extern "C" __global__ void audit(const unsigned* arena, const unsigned* pristine, unsigned long long words,
                                 unsigned long long out_first, unsigned long long out_words,
                                 const unsigned long long* expected, const unsigned long long* bound,
                                 unsigned long long key, unsigned long long* result,
                                 volatile unsigned long long* progress, unsigned long long slot) {
  const unsigned long long start = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  if (start == 0) *progress = slot + 1;  // what was launched before this has ended
  for (unsigned long long i = start; i < words; i += step) {
    if (i - out_first < out_words) continue;
    if (arena[i] != pristine[i]) atomicMin(result, i);
  }
  for (unsigned long long i = start; i < out_words; i += step) {
    const double got = __uint_as_float(arena[out_first + i]);
    const double right = __longlong_as_double(expected[i] ^ pad(key, i));
    if (!(fabs(got - right) <= __longlong_as_double(bound[i] ^ pad(key, i)))) {
      atomicMin(result + 1, i);
      atomicAdd(result + 2, 1ull);
    }
  }
}

extern "C" __global__ void scatter(float* target, const float* values, const long long* slots,
                                   unsigned long long count) {
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
       i += (unsigned long long)gridDim.x * blockDim.x)
    target[slots[i]] = values[i];
}

extern "C" __global__ void nothing() {}

// Reads `count` 16-byte words `rounds` times over.
extern "C" __global__ void sweep(const uint4* data, unsigned long long count, int rounds, unsigned* out) {
  unsigned sum = 0;
  for (int r = 0; r < rounds; ++r)
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x) {
      const uint4 word = __ldcg(data + i);
      sum += word.x ^ word.y ^ word.z ^ word.w;
    }
  if (sum == 0x9e3779b9u) *out = sum;
}
"""


def pad(key: np.uint64, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The pad of `audit`, uint64 like `index`."""
    with np.errstate(over="ignore"):
        z = (key + index) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


_CUBINS: dict[str, bytes] = {}


def own_cubin(arch: str) -> bytes:
    """The judge's own kernels for `arch`, compiled once in this process."""
    if arch not in _CUBINS:
        _CUBINS[arch] = compile_program(KERNELS, arch).cubin
    return _CUBINS[arch]
