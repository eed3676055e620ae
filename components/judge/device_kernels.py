"""The judge's own kernels: draws of numbers and their answers, the audit of an arena, and what measures a device."""

from components.judge.compile import compile_program

KERNELS = ("restore", "audit", "mark", "hold", "scatter", "draw_values", "draw_dense", "answer", "nothing", "sweep")
CHECKS = r"""
// As components/judge/splitmix.py.
__device__ unsigned long long mix(unsigned long long key, unsigned long long index) {
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
    const double right = __longlong_as_double(entry.expected[i] ^ mix(key, i));
    if (!(fabs(got - right) <= __longlong_as_double(entry.bound[i] ^ mix(key, i)))) {
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

NUMBERS = r"""
enum Kind : unsigned long long { FLOAT, DOUBLE, HALF, BFLOAT };  // as in components/judge/device.py

// As `Precision.encode` and `.decode` of components/kernel/precision.py.
__device__ void store(void* array, unsigned long long i, double number, unsigned long long kind) {
  const float single = __double2float_rn(number);
  const unsigned bits = __float_as_uint(single);
  unsigned short* halves = static_cast<unsigned short*>(array);
  if (kind == FLOAT) static_cast<float*>(array)[i] = single;
  if (kind == DOUBLE) static_cast<double*>(array)[i] = number;
  if (kind == HALF) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(halves[i]) : "f"(single));
  if (kind == BFLOAT) halves[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

__device__ double load(const void* array, unsigned long long i, unsigned long long kind) {
  if (kind == FLOAT) return static_cast<const float*>(array)[i];
  if (kind == DOUBLE) return static_cast<const double*>(array)[i];
  const unsigned short bits = static_cast<const unsigned short*>(array)[i];
  float number = __uint_as_float(static_cast<unsigned>(bits) << 16);
  if (kind == HALF) asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
  return number;
}

__device__ double signed_number(unsigned long long key, unsigned long long i) {
  const unsigned long long bits = mix(key, i);
  const double magnitude = __dadd_rn(0.25, __dmul_rn(0.75, static_cast<double>(bits >> 11) * 0x1p-53));
  return bits & 1 ? -magnitude : magnitude;
}

// A matrix's values, a warp a row; half of the rows are scaled by `tiny`.
extern "C" __global__ void draw_values(void* values, const int* row_ptr, int rows, double tiny, unsigned long long key,
                                       unsigned long long row_key, unsigned long long kind) {
  const int lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
  for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    const double scale = mix(row_key, row) & 1 ? tiny : 1;
    for (int j = row_ptr[row] + lane; j < row_ptr[row + 1]; j += 32)
      store(values, j, signed_number(key, j) * scale, kind);
  }
}

extern "C" __global__ void draw_dense(void* dense, unsigned long long count, unsigned long long key,
                                      unsigned long long kind) {
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
       i += (unsigned long long)gridDim.x * blockDim.x)
    store(dense, i, signed_number(key, i), kind);
}

// The product with a dense operand of `width` columns and its error bound, both under a pad. A warp a row: `lanes` of
// them (a power of two) take the dense columns, the others more entries of the row.
extern "C" __global__ void answer(unsigned long long* expected, unsigned long long* bound, const int* row_ptr,
                                  const int* col_idx, const void* values, const void* dense, int rows, int width,
                                  int lanes, double roundoff, unsigned long long key, unsigned long long kind) {
  const int lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
  for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    const int begin = row_ptr[row], end = row_ptr[row + 1];
    for (int base = 0; base < width; base += lanes) {
      const int column = base + lane % lanes;
      double sum = 0, magnitude = 0;
      if (column < width)
        for (int j = begin + lane / lanes; j < end; j += 32 / lanes) {
          const double product = load(values, j, kind) *
                                 load(dense, col_idx[j] * (unsigned long long)width + column, kind);
          sum += product;
          magnitude += fabs(product);
        }
      for (int step = 16; step >= lanes; step /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, step);
        magnitude += __shfl_xor_sync(0xffffffff, magnitude, step);
      }
      if (lane < lanes && column < width) {
        const unsigned long long i = row * (unsigned long long)width + column;
        expected[i] = __double_as_longlong(sum) ^ mix(key, i);
        bound[i] = __double_as_longlong(roundoff * (end - begin) * magnitude) ^ mix(key, i);
      }
    }
  }
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


_CUBINS: dict[str, bytes] = {}


def own_cubin(arch: str) -> bytes:
    """The judge's own kernels for `arch`, compiled once in this process."""
    if arch not in _CUBINS:
        _CUBINS[arch] = compile_program(CHECKS + NUMBERS + _CLOCKS, arch).cubin
    return _CUBINS[arch]
