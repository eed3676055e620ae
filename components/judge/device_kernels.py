"""The judge's own kernels: the audit of an arena, and what measures a device."""

import numpy as np
from numpy.typing import NDArray

from components.judge.compile import compile_program

KERNELS = ("restore", "audit", "mark", "hold", "scatter", "nothing", "sweep")
CHECKS = r"""
// The pad of word `index`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at key + index.
__device__ unsigned long long pad(unsigned long long key, unsigned long long index) {
  unsigned long long z = (key + index) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// What is to be restored and audited: one arena each, blockIdx.y says which. Written by components/judge/device.py.
struct Entry {
  unsigned* arena;
  const unsigned* pristine;
  unsigned long long words, out_first, out_words;
  const unsigned long long *expected, *bound;
  unsigned long long slot, element_words;
};

extern "C" __global__ void restore(const Entry* table) {
  const Entry entry = table[blockIdx.y];
  const uint4* from = reinterpret_cast<const uint4*>(entry.pristine);
  uint4* to = reinterpret_cast<uint4*>(entry.arena);
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < entry.words / 4;
       i += (unsigned long long)gridDim.x * blockDim.x)
    to[i] = from[i];
}

// One pass over an arena: every 4-byte word outside of the output must be as in `pristine`, every output element within
// `bound` of `expected`, which are kept under a pad. results: first changed word, first bad element, how many are bad.
__device__ void audit_arena(const Entry& entry, unsigned long long key, unsigned long long* results) {
  unsigned long long* result = results + 3 * entry.slot;
  const unsigned long long start = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = start; i < entry.words; i += step) {
    if (i - entry.out_first < entry.out_words) continue;
    if (entry.arena[i] != entry.pristine[i]) atomicMin(result, i);
  }
  const unsigned* out = entry.arena + entry.out_first;
  const bool wide = entry.element_words == 2;
  for (unsigned long long i = start; i < entry.out_words / entry.element_words; i += step) {
    const double got = wide ? reinterpret_cast<const double*>(out)[i] : __uint_as_float(out[i]);
    const double right = __longlong_as_double(entry.expected[i] ^ pad(key, i));
    if (!(fabs(got - right) <= __longlong_as_double(entry.bound[i] ^ pad(key, i)))) {
      atomicMin(result + 1, i);
      atomicAdd(result + 2, 1ull);
    }
  }
}

extern "C" __global__ void audit(const Entry* table, unsigned long long key, unsigned long long* results) {
  audit_arena(table[blockIdx.y], key, results);
}

template <class Value>
__device__ void scatter_values(void* target, const void* values, const long long* slots, unsigned long long count) {
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
       i += (unsigned long long)gridDim.x * blockDim.x)
    static_cast<Value*>(target)[slots[i]] = static_cast<const Value*>(values)[i];
}

extern "C" __global__ void scatter(void* target, const void* values, const long long* slots, unsigned long long count,
                                   unsigned long long value_bytes) {
  if (value_bytes == 2) scatter_values<unsigned short>(target, values, slots, count);
  if (value_bytes == 4) scatter_values<unsigned>(target, values, slots, count);
  if (value_bytes == 8) scatter_values<unsigned long long>(target, values, slots, count);
}
"""

_CLOCKS = r"""
// What was launched before this has ended.
extern "C" __global__ void mark(volatile unsigned long long* progress, unsigned long long count) { *progress = count; }

// Keeps the stream from going on until the host has written `ticket`, or for `most_ns` at the longest.
extern "C" __global__ void hold(const volatile unsigned long long* gate, unsigned long long ticket,
                                unsigned long long most_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*gate < ticket && now - start < most_ns);
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
        _CUBINS[arch] = compile_program(CHECKS + _CLOCKS, arch).cubin
    return _CUBINS[arch]
