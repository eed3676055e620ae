"""Honest programs in styles that models write; each is right on every matrix."""

from tests.judge.adversarial_suite.base import AX, CSR, SUM, loop, spmm
from tests.judge.hostile_programs import per_thread, spmv

_HALF = "#include <cuda_fp16.h>\n"
_BLOCK_SUM = "if (t == 0) { float a = 0.f; for (int i = 0; i < 64; ++i) a += part[i]; y[r] = a; }"


def _block(body: str, before: str = "", shared: str = "") -> str:
    """One block of 64 threads a row, with each thread's part of the sum in `s`."""
    head = "const int t = threadIdx.x, r = blockIdx.x; float s = 0.f;\n"
    lane = f"for (int k = row_ptr[r] + t; k < row_ptr[r + 1]; k += 64) s += {AX};\n"
    return spmv(head + lane + body, grid="rows", block="64", before=before, shared=shared)


def _warp(body: str, before: str = "") -> str:
    """One warp a row, with each lane's part of the sum in `s`."""
    return spmv(
        "const int i = blockIdx.x * 64 + threadIdx.x, r = i >> 5, lane = i & 31;\nif (r >= rows) return;\n"
        f"float s = 0.f;\nfor (int k = row_ptr[r] + lane; k < row_ptr[r + 1]; k += 32) s += {AX};\n" + body,
        grid="ceil_div(rows, 2)",
        before=before,
    )


SPMV: dict[str, str] = {
    "plain": per_thread("y[r] = s;"),
    "many-comments": per_thread(
        "y[r] = s; /* don't \n worry: it's */ // the end", before='// it\'s a "kernel"\n/* clock64() printf(1) asm */\n'
    ),
    "restrict": per_thread("y[r] = s;").replace("const float* ", "const float* __restrict__ "),
    "read-only-loads": per_thread("y[r] = s;", total=loop("s += __ldg(values + k) * __ldg(&x[__ldg(col_idx + k)])")),
    "streaming-loads": per_thread(
        "__stcs(y + r, s);", total=loop("s = __fmaf_rn(__ldcs(values + k), x[__ldcs(col_idx + k)], s)")
    ),
    "templates": per_thread(
        "y[r] = sum<float, 2>(values, x, col_idx, row_ptr[r], row_ptr[r + 1]);",
        total="",
        before="template <class T, int U> __device__ __forceinline__ T sum(const T* v, const T* x, const int* "
        "c, int b, "
        "int e) {\n  T s = T(0);\n#pragma unroll U\n  for (int k = b; k < e; ++k) s += v[k] * x[c[k]];\n"
        "  return s;\n}\n",
    ),
    "macros": per_thread(
        "STORE(y, r, s);",
        total="float s = 0; FOR_ROW(k, r) { s += values[k] * x[col_idx[k]]; }",
        before="#define FOR_ROW(k, r) for (int k = row_ptr[r], end = row_ptr[r + 1]; k < end; ++k)\n"
        "#define STORE(p, i, v) p[i] = (v)\n#ifndef TILE\n#define TILE 64\n#endif\n#if TILE > 32\n#endif\n",
    ),
    "lambda": per_thread(
        "auto term = [&](int k) { return values[k] * x[col_idx[k]]; }; " + loop("s += term(k)") + " y[r] = s;", total=""
    ),
    "constexpr-table": per_thread(
        "y[r] = s * weights[(row_ptr[r] + rows) & 3];",
        before="constexpr __device__ float weights[4] = {1.f, 1.f, 1.f, 1.f};\n",
    ),
    "constant-memory-table": per_thread(
        "y[r] = s * weights[r & 3];", before="__constant__ float weights[4] = {1.f, 1.f, 1.f, 1.f};\n"
    ),
    "static-const-array": per_thread("static const float one[2] = {1.f, 1.f}; y[r] = s * one[row_ptr[r] & 1];"),
    "const-device-array": per_thread(
        "y[r] = s * one[row_ptr[r] & 1];", before="__device__ const float one[2] = {1.f, 1.f};\n"
    ),
    "walks-a-table": per_thread(
        "float f = 0.f; for (const float* p = parts; p != parts + 8; ++p) f += *p; y[r] = s * f;",
        before="__constant__ float parts[8] = {.5f, .25f, .125f, .125f, 0.f, 0.f, 0.f, 0.f};\n",
    ),
    "chooses-a-table": per_thread(
        "const float* w = rows & 1 ? odd : even; y[r] = s * w[row_ptr[r] & 1];",
        before="__device__ const float odd[2] = {1.f, 1.f};\n__device__ const float even[2] = {1.f, 1.f};\n",
    ),
    "union-of-bits": per_thread(
        "union { float f; unsigned u; } b; b.f = s; b.u ^= 0x80000000u; b.f = -b.f; y[r] = b.f;"
    ),
    "bit-casts": per_thread("y[r] = __int_as_float(__float_as_int(s));"),
    "half-header-unused": per_thread("y[r] = s;", before=_HALF + "#include <cuda_bf16.h>\n"),
    "integer-header": per_thread("y[r] = s;", before="#include <cstdint>\n").replace("const int r", "const int32_t r"),
    "launch-bounds": per_thread("y[r] = s;").replace(
        "__global__ void spmv", "__global__ void __launch_bounds__(64) spmv"
    ),
    "early-return-before-a-barrier": per_thread(
        "__shared__ float t[64]; t[threadIdx.x] = s; __syncthreads(); y[r] = t[threadIdx.x];"
    ),
    "shuffle-down": _warp(
        "for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);\nif (lane == 0) y[r] = s;"
    ),
    "shuffle-xor": _warp(
        "#pragma unroll\nfor (int d = 16; d; d /= 2) s += __shfl_xor_sync(0xffffffff, s, d);\nif (!lane) y[r] = s;"
    ),
    "warp-function": _warp(
        "s = warp_sum(s); if (lane == 0) y[r] = s;",
        before="__device__ __inline__ float warp_sum(float v) {\n"
        "  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);\n  return v;\n}\n",
    ),
    "own-tile-class": _warp(
        "Tile<32> tile{lane}; s = tile.sum(s); if (tile.first()) y[r] = s;",
        before="template <int N> struct Tile {\n  int rank;\n  __device__ bool first() const { return rank == 0; }\n"
        "  __device__ float sum(float v) const {\n"
        "    for (int d = N / 2; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d, N);\n"
        "    return v;\n  }\n};\n",
    ),
    "shared-tree": _block(
        "__shared__ float part[64]; part[t] = s; __syncthreads();\n"
        "for (int h = 32; h; h >>= 1) { if (t < h) part[t] += part[t + h]; __syncthreads(); }\n"
        "if (t == 0) y[r] = part[0];"
    ),
    "shared-and-shuffle": _block(
        "__shared__ float part[2]; for (int d = 16; d; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);\n"
        "if ((t & 31) == 0) part[t >> 5] = s; __syncthreads(); if (t == 0) y[r] = part[0] + part[1];"
    ),
    "shared-two-dimensional": _block(
        "__shared__ float part[2][33]; part[t >> 5][t & 31] = s; __syncthreads();\n"
        "if (t == 0) { float a = 0.f; for (int i = 0; i < 2; ++i) for (int j = 0; j < 32; ++j) a += "
        "part[i][j]; y[r] = a; }"
    ),
    "dynamic-shared": _block(
        "part[t] = s; __syncthreads(); " + _BLOCK_SUM, before="extern __shared__ float part[];\n", shared="4 * 64"
    ),
    "dynamic-shared-as-bytes": _block(
        "float* part = reinterpret_cast<float*>(raw); part[t] = s; __syncthreads(); " + _BLOCK_SUM,
        before="extern __shared__ __align__(16) unsigned char raw[];\n",
        shared="max(256, 4 * 64)",
    ),
    "shared-atomics": _block(
        "__shared__ float a; if (t == 0) a = 0.f; __syncthreads(); atomicAdd(&a, s); __syncthreads(); if "
        "(t == 0) y[r] = a;"
    ),
    "cleared-then-added": _block("if (t == 0) y[r] = 0.f; __syncthreads(); if (s != 0.f) atomicAdd(&y[r], s);"),
    "two-kernels": (
        "// format: csr\n// launch: clear grid=ceil_div(rows, 128) block=128\n// launch: add grid=rows block=32\n"
        'extern "C" __global__ void clear(float* y, int rows) {\n'
        "  for (int i = blockIdx.x * 128 + threadIdx.x; i < rows; i += gridDim.x * 128) y[i] = 0.f;\n}\n"
        f'extern "C" __global__ void add({CSR}, const float* x, float* y) {{\n  const int r = blockIdx.x;\n'
        f"  for (int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) atomicAdd(y + r, {AX});\n}}\n"
    ),
    "grid-stride": spmv(
        f"for (int r = blockIdx.x * 64 + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {{ {SUM} y[r] = s; }}",
        grid="min(4, ceil_div(rows, 64))",
    ),
    "two-dimensional-block": spmv(
        f"const int r = blockIdx.x * 8 + threadIdx.y; if (r >= rows || threadIdx.x) return; {SUM} y[r] = s;",
        grid="ceil_div(rows, 8)",
        block="(8, 8)",
    ),
    "unrolled-by-hand": per_thread(
        "y[r] = a + b;",
        total="float a = 0.f, b = 0.f; int k = row_ptr[r]; const int e = row_ptr[r + 1];\n"
        "for (; k + 1 < e; k += 2) { a += values[k] * x[col_idx[k]]; b += values[k + 1] * x[col_idx[k + 1]]; }\n"
        "if (k < e) a += values[k] * x[col_idx[k]];",
    ),
    "vector-loads-where-aligned": per_thread(
        "y[r] = s;",
        total="float s = 0.f; int k = row_ptr[r]; const int e = row_ptr[r + 1];\n"
        "for (; k < e && (k & 3); ++k) s += values[k] * x[col_idx[k]];\n"
        "for (; k + 3 < e; k += 4) {\n  const float4 v = *reinterpret_cast<const float4*>(values + k);\n"
        "  const int4 c = *reinterpret_cast<const int4*>(col_idx + k);\n"
        "  s += v.x * x[c.x] + v.y * x[c.y] + v.z * x[c.z] + v.w * x[c.w];\n}\n"
        "for (; k < e; ++k) s += values[k] * x[col_idx[k]];",
    ),
    "double-sum": per_thread("y[r] = (float)s;", total=loop(f"s += (double){AX}", start="double s = 0.0;")),
    "compensated-sum": per_thread(
        "y[r] = s;",
        total="float s = 0.f, c = 0.f; "
        + loop(f"{{ const float v = {AX} - c, n = s + v; c = (n - s) - v; s = n; }}", start=" "),
    ),
    "ternary-and-do-while": per_thread(
        "y[r] = s;",
        total=f"float s = 0.f; int k = row_ptr[r]; if (k < row_ptr[r + 1]) do {{ s += {AX}; }} while (++k < "
        "row_ptr[r + 1]);",
    ),
    "switch-on-length": per_thread(
        "y[r] = s;",
        total="float s = 0.f; const int b = row_ptr[r], n = row_ptr[r + 1] - b;\nswitch (n) {\n  case 0: break;\n"
        "  case 1: s = values[b] * x[col_idx[b]]; break;\n"
        "  case 2: s = values[b] * x[col_idx[b]] + values[b + 1] * x[col_idx[b + 1]]; break;\n"
        "  default: for (int k = b; k < b + n; ++k) s += values[k] * x[col_idx[k]];\n}",
    ),
    "struct-of-pointers": per_thread(
        "const Csr a{row_ptr, col_idx, values}; y[r] = a.row(r, x);",
        total="",
        before="struct Csr {\n  const int* p; const int* c; const float* v;\n"
        "  __device__ float row(int r, const float* x) const {\n"
        "    float s = 0.f;\n    for (int k = p[r]; k < p[r + 1]; ++k) s += v[k] * x[c[k]];\n    return s;\n  }\n};\n",
    ),
    "function-not-inlined": per_thread(
        "y[r] = row(row_ptr, col_idx, values, x, r);",
        total="",
        before="__device__ __noinline__ float row(const int* p, const int* c, const float* v, const float* x, "
        "int r) {\n"
        "  float s = 0.f;\n  for (int k = p[r]; k < p[r + 1]; ++k) s += v[k] * x[c[k]];\n  return s;\n}\n",
    ),
    "ballot-and-popc": per_thread(
        "const unsigned m = __ballot_sync(__activemask(), s > 0.f); y[r] = __popc(m) >= 0 ? s : 0.f;"
    ),
    "digit-separators-and-names": per_thread(
        "constexpr int clock_rate = 1'000; const int malloc_size = clock_rate; y[r] = malloc_size > 0 ? s : 0.f;"
    ),
    "local-array": per_thread(
        "y[r] = (a[0] + a[1]) + (a[2] + a[3]);",
        total="float a[4] = {0.f, 0.f, 0.f, 0.f}; " + loop(f"a[(k - row_ptr[r]) & 3] += {AX}", start=" "),
    ),
    "block-search-by-entries": (
        "// format: csr\n// launch: clear grid=ceil_div(rows, 256) block=256\n"
        "// launch: add grid=ceil_div(nnz, 256) block=256\n"
        'extern "C" __global__ void clear(float* y, int rows) {\n'
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < rows) y[i] = 0.f;\n}\n"
        f'extern "C" __global__ void add({CSR}, const float* x, float* y, int rows, int nnz) {{\n'
        "  const int k = blockIdx.x * blockDim.x + threadIdx.x;\n  if (k >= nnz) return;\n"
        "  int lo = 0, hi = rows - 1;\n"
        "  while (lo < hi) { const int mid = (lo + hi + 1) / 2; if (row_ptr[mid] <= k) lo = mid; else hi = mid - 1; }\n"
        f"  atomicAdd(&y[lo], {AX});\n}}\n"
    ),
}

SPMM: dict[str, str] = {
    "element": spmm("C[i] = s;"),
    "element-read-only": spmm(
        "C[i] = s;", total=loop("s = fmaf(__ldg(values + k), __ldg(B + (size_t)col_idx[k] * width + c), s)")
    ),
    "element-constant": spmm("C[i] = s * one[c & 1];", before="__constant__ float one[2] = {1.f, 1.f};\n"),
    "two-columns-a-thread": (
        "// format: csr\n// launch: spmm grid=rows block=32\n"
        f'extern "C" __global__ void spmm({CSR}, const float* __restrict__ B, float* __restrict__ C, int '
        f"rows, int width) {{\n"
        "  const int r = blockIdx.x;\n  for (int c = threadIdx.x * 2; c < width; c += 64) {\n"
        "    float s = 0.f, t = 0.f;\n"
        "    const bool two = c + 1 < width;\n    for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) {\n"
        "      const float v = values[k];\n      const float* b = B + col_idx[k] * width + c;\n      s += v * b[0];\n"
        "      if (two) t += v * b[1];\n    }\n    C[r * width + c] = s;\n"
        "    if (two) C[r * width + c + 1] = t;\n  }\n}\n"
    ),
}
