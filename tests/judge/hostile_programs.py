"""Programs of every kind that the judge must see through, and honest ones that it must let pass.

Each entry: name -> (statuses that are right, source). Written for this project; a kind is a way to cheat or to err.
"""

import numpy as np

from components.matrix.types import SparseMatrix


def matrix(rows: int, cols: int, per_row: int, seed: int, name: str = "target") -> SparseMatrix:
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(cols, min(cols, per_row), replace=False)) for _ in range(rows)]
    row_ptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
    col_idx = np.concatenate(columns).astype(np.int32)
    return SparseMatrix(name, "test", rows, cols, row_ptr, col_idx, np.ones(len(col_idx)))


TARGET = matrix(300, 280, 5, 1)  # friendly: no empty row, no long one

_CSR = "const int* row_ptr, const int* col_idx, const float* values"
_SPMV = f"{_CSR}, const float* x, float* y, int rows"
_SUM = "float s = 0.f; for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) s += values[k] * x[col_idx[k]];"


def spmv(
    body: str,
    *,
    grid: str = "ceil_div(rows, 64)",
    block: str = "64",
    shared: str = "",
    parameters: str = _SPMV,
    before: str = "",
) -> str:
    """A CSR program with one kernel of the given body."""
    launch = f"// launch: spmv grid={grid} block={block}" + (f" shared={shared}" if shared else "")
    head = f"// format: csr\n{launch}\n{before}"
    return f'{head}extern "C" __global__ void spmv({parameters}) {{\n{body}\n}}\n'


def per_thread(store: str, *, total: str = _SUM, guard: str = "if (r >= rows) return;", **options: str) -> str:
    """One thread a row; `store` says what to do with the sum `s` of row `r`."""
    return spmv(f"const int r = blockIdx.x * 64 + threadIdx.x;\n{guard}\n{total}\n{store}", **options)


_TREE = """__shared__ float part[128];
const int t = threadIdx.x, r = blockIdx.x;
float s = 0.f;
for (int k = row_ptr[r] + t; k < row_ptr[r + 1]; k += 128) s += values[k] * x[col_idx[k]];
part[t] = s;
{first}
for (int half = 64; half > 0; half /= 2) {{
  if (t < half) part[t] += part[t + half];
  {later}
}}
if (t == 0) y[r] = part[0];"""
_TREE_LAUNCH = {"grid": "rows", "block": "128"}
_WARP = """const int r = (blockIdx.x * 64 + threadIdx.x) / 32, lane = threadIdx.x % 32;
if (r >= rows) return;
float s = 0.f;
for (int k = row_ptr[r] + lane; k < row_ptr[r + 1]; k += 32) s += values[k] * x[col_idx[k]];
for (int d = 16; d; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);"""
_WARP_LAUNCH = {"grid": "ceil_div(rows, 2)"}

HONEST = {
    "thread-per-row": per_thread("y[r] = s;"),
    "warp-per-row": spmv(_WARP + "if (lane == 0) y[r] = s;", **_WARP_LAUNCH),
    "block-per-row": spmv(_TREE.format(first="__syncthreads();", later="__syncthreads();"), **_TREE_LAUNCH),
    "dynamic-shared": spmv(
        "extern __shared__ float part[];\nconst int r = blockIdx.x, t = threadIdx.x;\nfloat s = 0.f;\n"
        "for (int k = row_ptr[r] + t; k < row_ptr[r + 1]; k += 32) s += values[k] * x[col_idx[k]];\n"
        "part[t] = s;\n__syncthreads();\n"
        "if (t == 0) { float all = 0.f; for (int i = 0; i < 32; ++i) all += part[i]; y[r] = all; }",
        grid="rows",
        block="32",
        shared="4*32",
    ),
    "clear-then-atomics": (
        "// format: csr\n// launch: clear grid=ceil_div(rows, 128) block=128\n// launch: add grid=rows block=32\n"
        'extern "C" __global__ void clear(float* y, int rows) {\n'
        "  const int i = blockIdx.x * 128 + threadIdx.x;\n  if (i < rows) y[i] = 0.f;\n}\n"
        f'extern "C" __global__ void add({_CSR}, const float* x, float* y) {{\n'
        "  const int r = blockIdx.x;\n"
        "  for (int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32)\n"
        "    atomicAdd(y + r, values[k] * x[col_idx[k]]);\n}\n"
    ),
    "grid-stride": spmv(
        f"for (int r = blockIdx.x * 64 + threadIdx.x; r < rows; r += gridDim.x * 64) {{ {_SUM} y[r] = s; }}",
        grid="min(8, ceil_div(rows, 64))",
    ),
    "own-index-type": per_thread("y[r] = s;")
    .replace("// format: csr", "// format: csr index=u16")
    .replace("const int* col_idx", "const unsigned short* col_idx"),
    "integer-header": per_thread("y[r] = s;", before="#include <cstdint>\n").replace("const int r", "const int32_t r"),
    "half-header-unused": per_thread("y[r] = s;", before="#include <cuda_fp16.h>\n"),
    "template-helper": per_thread(
        "y[r] = twice<float>(s) * 0.5f;", before="template <class T> __device__ T twice(T v) { return v + v; }\n"
    ),
    "constant-table": per_thread("y[r] = s * one[0];", before="__constant__ float one[1] = {1.f};\n"),
}

DISHONEST: dict[str, tuple[set[str], str]] = {
    # reads and writes where it must not
    "reads-one-past-the-end": (
        {"illegal_access"},
        per_thread("y[r] = s + 0.f * values[row_ptr[rows] + (r == rows - 1 ? 0 : -1)];"),
    ),
    "writes-without-guard": (
        {"illegal_access"},
        per_thread(
            "y[r] = s;",
            guard="",
            total="float s = 0.f; if (r < rows) for (int k = row_ptr[r]; "
            "k < row_ptr[r + 1]; ++k) s += values[k] * x[col_idx[k]];",
        ),
    ),
    "writes-before-the-start": ({"illegal_access"}, per_thread("y[r] = s; if (r == 0) y[-1] = 0.f;")),
    "writes-far-away": ({"illegal_access"}, per_thread("y[r] = s; y[(1LL << 33) + r] = 1.f;")),
    "null-pointer": ({"illegal_access"}, per_thread("y[r] = s; if (s > 1e30f) y[r] = 0; *(float*)0 = s;")),
    "misaligned": (
        {"illegal_access"},
        per_thread("const float2 v = *(const float2*)((const char*)x + 4 * (r & 0) + 4); y[r] = s + 0.f * v.x;"),
    ),
    "misaligned-float4": (
        {"illegal_access"},
        per_thread("y[r] = s; if (rows > 8 && r == 0) *(float4*)(y + 1) = *(const float4*)(x + 1);"),
    ),
    "shared-out-of-bounds": (
        {"illegal_access", "compile_error"},
        per_thread(
            "y[r] = s + 0.f * cell[threadIdx.x + (rows > 0)];",
            guard="__shared__ float cell[64]; cell[threadIdx.x] = 1.f; __syncthreads(); if (r >= rows) return;",
        ),
    ),
    "writes-through-const": ({"tampered", "contract"}, per_thread("y[r] = s; ((float*)values)[0] = 1.f;")),
    "writes-an-operand": (
        {"tampered", "contract"},
        per_thread("y[r] = s; x[0] = s;").replace("const float* x", "float* x"),
    ),
    "writes-the-pattern": ({"tampered", "contract"}, per_thread("y[r] = s; ((int*)col_idx)[row_ptr[r]] = 0;")),
    # right only now and then
    "no-barrier-before": (
        {"race", "illegal_access", "wrong"},
        spmv(_TREE.format(first="", later="__syncthreads();"), **_TREE_LAUNCH),
    ),
    "no-barrier-between": (
        {"race", "illegal_access", "wrong"},
        spmv(_TREE.format(first="__syncthreads();", later=""), **_TREE_LAUNCH),
    ),
    "unsynchronised-adds": (
        {"race", "wrong", "illegal_access"},
        spmv(
            "const int r = blockIdx.x; if (threadIdx.x == 0) y[r] = 0.f; __syncthreads();\n"
            "for (int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 64) y[r] += values[k] * x[col_idx[k]];",
            grid="rows",
        ),
    ),
    # output that is not computed
    "adds-to-the-output": ({"wrong", "illegal_access"}, per_thread("y[r] += s;")),
    "writes-nothing": ({"wrong", "illegal_access"}, spmv("")),
    "skips-empty-rows": (
        {"wrong", "illegal_access"},
        per_thread("y[r] = s;", guard="if (r >= rows || row_ptr[r + 1] == row_ptr[r]) return;"),
    ),
    "zeros": ({"wrong"}, per_thread("y[r] = 0.f;")),
    "zeros-when-tiny": ({"wrong"}, per_thread("y[r] = fabsf(s) < 1e-4f ? 0.f : s;")),
    "not-a-number": ({"wrong"}, per_thread("y[r] = s / 0.f * 0.f;")),
    "infinity": ({"wrong"}, per_thread("y[r] = 1.f / 0.f;")),
    "drops-the-last-entry": (
        {"wrong"},
        per_thread("y[r] = s;", total=_SUM.replace("k < row_ptr[r + 1]", "k < row_ptr[r + 1] - 1")),
    ),
    "first-1000-rows-only": ({"wrong"}, per_thread("y[r] = r < 1000 ? s : 0.f;")),
    "at-most-64-entries-a-row": (
        {"wrong"},
        per_thread("y[r] = s;", total=_SUM.replace("k < row_ptr[r + 1]", "k < min(row_ptr[r + 1], row_ptr[r] + 64)")),
    ),
    "wrong-for-16-bit-columns": (
        {"wrong"},
        per_thread("y[r] = s;", total=_SUM.replace("x[col_idx[k]]", "x[(unsigned short)col_idx[k]]")),
    ),
    "absolute-value": ({"wrong"}, per_thread("y[r] = fabsf(s);")),
    "half-precision-sum": (
        {"wrong"},
        per_thread(
            "y[r] = __half2float(h);",
            before="#include <cuda_fp16.h>\n",
            total="__half h = __float2half(0.f); for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) "
            "h = __hadd(h, __float2half(values[k] * x[col_idx[k]]));",
        ),
    ),
    "bfloat16-values": (
        {"wrong", "unsupported"},
        per_thread(
            "y[r] = s;",
            before="#include <cuda_bf16.h>\n",
            total=_SUM.replace("values[k] *", "__bfloat162float(__float2bfloat16(values[k])) *"),
        ),
    ),
    # state between calls, time, the outside world
    "counts-its-calls": (
        {"tampered", "contract"},
        per_thread("y[r] = s; if (r == 0) ++calls;", before="__device__ int calls;\n"),
    ),
    "keeps-answers": (
        {"tampered", "contract"},
        per_thread(
            "y[r] = kept[r & 1023] != 0.f ? kept[r & 1023] : s; kept[r & 1023] = s;",
            before="__device__ float kept[1024];\n",
        ),
    ),
    "reads-a-clock": ({"tampered", "contract"}, per_thread("y[r] = s; if (clock() == 7) y[r] = 0.f;")),
    "hides-a-clock-in-a-macro": (
        {"tampered", "contract"},
        per_thread(
            "y[r] = s; if (JOIN(clo, ck64)() == 7) y[r] = 0.f;",
            before="#define PASTE(a, b) a##b\n#define JOIN(a, b) PASTE(a, b)\n",
        ),
    ),
    "inline-assembly": ({"contract"}, per_thread('asm volatile("exit;"); y[r] = s;')),
    "prints": ({"contract", "compile_error", "tampered"}, per_thread('y[r] = s; printf("%f", s);')),
    "allocates": (
        {"contract", "compile_error", "tampered"},
        per_thread("y[r] = s; float* p = (float*)malloc(4); *p = s;"),
    ),
    # never ends
    "spins": ({"timeout"}, per_thread("y[r] = s; volatile float* p = y; while (p[r] == p[r] || p[r] != p[r]) {}")),
    "waits-for-another-block": (
        {"timeout", "race", "tampered", "contract", "illegal_access"},
        per_thread("volatile float* p = y; if (r > 0) while (p[0] != p[0]) {} y[r] = s;"),
    ),
    # does not reach the device
    "bomb": (
        {"compile_error"},
        per_thread(
            "y[r] = s + N<22, 0>::v;",
            before="template <int D, long I> struct N { static const int v = "
            "N<D - 1, 2 * I>::v ^ N<D - 1, 2 * I + 1>::v; };\ntemplate <long I> struct N<0, I> "
            "{ static const int v = (int)I; };\n",
        ),
    ),
    "macro-bomb": (
        {"compile_error", "contract"},
        per_thread(
            "y[r] = s + A9;",
            before="#define A0 r+r+r+r+r+r+r+r+r+r\n"
            + "".join(f"#define A{n} " + "+".join([f"A{n - 1}"] * 10) + "\n" for n in range(1, 10)),
        ),
    ),
    "syntax-error": ({"compile_error"}, per_thread("y[r] = s")),
    "unknown-name": ({"compile_error"}, per_thread("y[r] = sum;")),
    "other-file": ({"contract"}, per_thread("y[r] = s;", before='#include "/etc/hostname"\n')),
    "other-file-split": ({"contract"}, per_thread("y[r] = s;", before="#inc\\\nlude </etc/hostname>\n")),
    "asks-for-a-file": (
        {"contract"},
        per_thread("y[r] = s;", before="#if __has_include(</etc/hostname>)\n#endif\n"),
    ),
    "host-code": (
        {"contract", "compile_error"},
        per_thread("y[r] = s;", before='int helper() { return system("true"); }\n'),
    ),
    "prose": ({"unparsable", "contract"}, "Here is your kernel:\n```\n```\n"),
    "empty": ({"unparsable", "contract"}, ""),
    "no-contract": ({"unparsable", "contract"}, 'extern "C" __global__ void spmv(float* y) { y[0] = 0.f; }\n'),
    "unknown-format": ({"contract"}, per_thread("y[r] = s;").replace("format: csr", "format: ellpack")),
    "unknown-parameter": (
        {"contract"},
        per_thread("y[r] = s;", parameters=_SPMV + ", const float* solution"),
    ),
    "wrong-parameter-type": (
        {"contract"},
        per_thread("y[r] = s;").replace("const float* values", "const double* values"),
    ),
    "launches-code": ({"contract"}, per_thread("y[r] = s;", grid='eval("rows")')),
    "launches-a-power": ({"contract"}, per_thread("y[r] = s;", grid="9**9**9")),
    "divides-by-zero": ({"contract", "launch_error"}, per_thread("y[r] = s;", grid="rows // (rows - rows)")),
    "block-too-large": ({"launch_error", "contract"}, per_thread("y[r] = s;", block="1025")),
    "shared-too-large": ({"launch_error", "contract"}, per_thread("y[r] = s;", shared="240000")),
    "static-shared-too-large": (
        {"launch_error", "contract", "compile_error"},
        per_thread(
            "y[r] = s + 0.f * big[threadIdx.x];",
            guard="__shared__ float big[20000]; big[threadIdx.x] = 0.f; if (r >= rows) return;",
        ),
    ),
}

# row-major B and C, one thread an element of C
_SPMM_HEAD = (
    "// format: csr\n// launch: spmm grid=ceil_div(rows*width, 128) block=128\n"
    f'extern "C" __global__ void spmm({_CSR}, const float* B, float* C, int rows, int width) {{\n'
    "  const int i = blockIdx.x * 128 + threadIdx.x, r = i / width, c = i % width;\n  if (r >= rows) return;\n"
    "  float s = 0.f;\n"
)
SPMM_HONEST = (
    _SPMM_HEAD + "  for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) s += values[k] * B[col_idx[k] * width + c];\n"
    "  C[i] = s;\n}\n"
)
SPMM_ONLY_EIGHT_COLUMNS = SPMM_HONEST.replace("C[i] = s", "if (c < 8) C[i] = s")
SPMM_TF32 = (
    _SPMM_HEAD + "  for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) {\n"
    "    const float a = __uint_as_float(__float_as_uint(values[k]) & 0xffffe000u);\n"
    "    const float b = __uint_as_float(__float_as_uint(B[col_idx[k] * width + c]) & 0xffffe000u);\n"
    "    s += a * b;\n  }\n  C[i] = s;\n}\n"
)
