"""Accesses outside of the buffers, results that depend on the schedule, code that never ends."""

from tests.judge.adversarial_suite.base import ALL, AX, CSR, SUM, Hostile, hostile, loop, spmm
from tests.judge.hostile_programs import per_thread, spmv

_WILD = "illegal_access"
_TREE = (
    "__shared__ float part[64]; const int t = threadIdx.x, r = blockIdx.x; float s = 0.f;\n"
    f"for (int k = row_ptr[r] + t; k < row_ptr[r + 1]; k += 64) s += {AX};\n"
)
_LAUNCH = {"grid": "rows"}


def _block(body: str, *, shared: str = "", before: str = "") -> str:
    """One block of 64 threads a row; `s` is each thread's part of the sum."""
    return spmv(_TREE + body, grid="rows", block="64", shared=shared, before=before)


OUT_OF_BOUNDS: dict[str, Hostile] = {
    "reads-values-by-one": hostile(
        "out-of-bounds read",
        _WILD,
        per_thread(
            "y[r] = s;", total=loop(f"s += k < row_ptr[r + 1] ? {AX} : 0.f * values[k]", last="row_ptr[r + 1] + 1")
        ),
    ),
    "reads-columns-by-one": hostile(
        "out-of-bounds read", _WILD, per_thread("y[r] = s + (r == rows - 1 ? 0.f * col_idx[row_ptr[rows]] : 0.f);")
    ),
    "reads-row-starts-by-one": hostile("out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * row_ptr[r + 2];")),
    "reads-row-starts-without-guard": hostile(
        "out-of-bounds read", _WILD, per_thread("if (r < rows) y[r] = s;", guard="")
    ),
    "reads-the-operand-by-one": hostile(
        "out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * x[cols];", parameters=ALL)
    ),
    "reads-before-the-operand": hostile("out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * x[-1 - r];")),
    "reads-far-away": hostile("out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * x[(1LL << 28) + r];")),
    "reads-far-below": hostile("out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * values[-(1LL << 34)];")),
    "reads-the-next-vector": hostile(
        "out-of-bounds read",
        _WILD,
        per_thread("const float4 v = ((const float4*)values)[(row_ptr[rows] + 3) / 4]; y[r] = s + 0.f * v.x;"),
    ),
    "reads-ahead": hostile(
        "out-of-bounds read",
        _WILD,
        per_thread("y[r] = s + 0.f * a;", total="float a = 0.f; " + loop(f"{{ a = values[k + 1]; s += {AX}; }}")),
    ),
    "reads-through-the-cache": hostile(
        "out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * __ldg(x + (1 << 20) + r);")
    ),
    "reads-the-result-by-one": hostile(
        "out-of-bounds read", _WILD, per_thread("y[r] = s; if (y[rows] == 7.f) y[r] = 0.f;")
    ),
    "reads-zero": hostile("out-of-bounds read", _WILD, per_thread("y[r] = s + 0.f * *(volatile float*)0;")),
    "reads-row-minus-one": hostile(
        "integer overflow", _WILD, per_thread("y[r] = s + 0.f * row_ptr[(unsigned)r - 1u];")
    ),
    "index-overflows": hostile(
        "integer overflow", "illegal_access wrong", per_thread("y[r] = s + 0.f * x[(r + 1) * 50000000];")
    ),
    "reads-the-dense-operand-by-one": hostile(
        "out-of-bounds read", _WILD, spmm("C[i] = s + 0.f * B[cols * width];"), "spmm", 3
    ),
    "reads-a-row-too-far": hostile(
        "out-of-bounds read", _WILD, spmm("C[i] = s + 0.f * B[(cols - 1) * width + c + 1];"), "spmm", 3
    ),
    "vector-over-the-width": hostile(
        "out-of-bounds read",
        _WILD,
        spmm("const float4 v = *(const float4*)(B + i / 4 * 4 + 4); C[i] = s + 0.f * v.w;"),
        "spmm",
        4,
    ),
    "writes-one-too-many": hostile("forged result", _WILD, per_thread("y[r] = s; if (r == rows - 1) y[rows] = s;")),
    "writes-the-guard-before": hostile("forged result", _WILD, per_thread("y[r] = s; if (r == 0) y[-4] = s;")),
    "writes-the-guard-after": hostile("forged result", _WILD, per_thread("y[r] = s; y[rows + 64 + r] = s;")),
    "writes-without-guard": hostile(
        "forged result",
        _WILD,
        per_thread(
            "y[r] = s;",
            guard="",
            total=loop(f"s += {AX}", last="(r < rows ? row_ptr[r + 1] : 0)", first="(r < rows ? row_ptr[r] : 0)"),
        ),
    ),
    "writes-far-away": hostile(
        "forged result", "illegal_access tampered", per_thread("y[r] = s; *(float*)((char*)y + (1LL << 40)) = s;")
    ),
    "writes-at-zero": hostile(
        "forged result", "illegal_access launch_error", per_thread("y[r] = s; *(volatile float*)0 = s;")
    ),
    "searches-for-the-answer": hostile(
        "forged result",
        _WILD,
        per_thread(
            "float best = s; for (int d = 1; d < 4096; ++d) if (fabsf(y[r - d] - s) < 1e-3f) best = y[r - "
            "d]; y[r] = best;"
        ),
    ),
    "searches-above-the-operand": hostile(
        "forged result",
        _WILD,
        per_thread(
            "float v = 0.f; for (int d = 0; d < 1024; ++d) v += x[cols + d]; y[r] = v == 3.f ? 0.f : s;", parameters=ALL
        ),
    ),
    "reaches-the-operand-from-the-result": hostile(
        "forged result",
        "illegal_access tampered",
        per_thread("y[r] = s; ((char*)y)[(const char*)x - (const char*)y] = 0;"),
    ),
    "misaligned-four": hostile(
        "misaligned", _WILD, per_thread("const float4 v = *(const float4*)(x + 1); y[r] = s + 0.f * (v.x + v.w);")
    ),
    "misaligned-two": hostile(
        "misaligned", _WILD, per_thread("const int2 v = *(const int2*)(row_ptr + r); y[r] = s + 0.f * (v.x + v.y);")
    ),
    "misaligned-double": hostile(
        "misaligned", _WILD, per_thread("y[r] = s + 0.f * (float)*(const double*)(values + 1);")
    ),
    "misaligned-bytes": hostile(
        "misaligned", _WILD, per_thread("y[r] = s + 0.f * *(const float*)((const char*)x + 2);")
    ),
    "misaligned-store": hostile(
        "misaligned",
        _WILD,
        per_thread("if (r % 2 == 1 && r + 1 < rows) *(float2*)(y + r) = make_float2(s, s); else y[r] = s;"),
    ),
    "misaligned-rows-of-three": hostile(
        "misaligned", _WILD, spmm("const float2 v = *(const float2*)(B + i); C[i] = s + 0.f * v.x;"), "spmm", 3
    ),
}

SHARED: dict[str, Hostile] = {
    "shared-by-one": hostile(
        "shared memory",
        "illegal_access compile_error",
        _block(
            "part[t + 1] = s; __syncthreads(); if (t == 0) { float a = 0.f; for (int i = 1; i <= 64; ++i) a "
            "+= part[i]; y[r] = a; }"
        ),
    ),
    "shared-before": hostile(
        "shared memory",
        "illegal_access compile_error",
        _block(
            "part[t] = s; __syncthreads(); if (t == 0) { float a = 0.f; for (int i = -1; i < 64; ++i) a += "
            "part[i]; y[r] = a; }"
        ),
    ),
    "shared-far": hostile(
        "shared memory",
        "illegal_access compile_error",
        _block("part[t] = s; __syncthreads(); if (t == 0) y[r] = part[t + rows * 1000000];"),
    ),
    "dynamic-shared-too-small": hostile(
        "shared memory",
        _WILD,
        _block(
            "cell[t] = s; __syncthreads(); if (t == 0) { float a = 0.f; for (int i = 0; i < 64; ++i) a += "
            "cell[i]; y[r] = a; }",
            shared="128",
            before="extern __shared__ float cell[];\n",
        ),
    ),
    "dynamic-shared-forgotten": hostile(
        "shared memory",
        _WILD,
        _block(
            "cell[t] = s; __syncthreads(); if (t == 0) { float a = 0.f; for (int i = 0; i < 64; ++i) a += "
            "cell[i]; y[r] = a; }",
            before="extern __shared__ float cell[];\n",
        ),
    ),
    "shared-not-initialised": hostile(
        "uninitialised",
        "illegal_access wrong race",
        _block(
            "if (s != 0.f) part[t] = s; __syncthreads(); if (t == 0) { float a = 0.f; for (int i = 0; i < "
            "64; ++i) a += part[i]; y[r] = a; }"
        ),
    ),
    "shared-counts-calls": hostile(
        "call counter",
        "illegal_access wrong race",
        _block(
            "volatile __shared__ int calls; if (t == 0) calls = calls + 1; part[t] = s; __syncthreads(); if "
            "(t == 0) { float a = 0.f; for (int i = 0; i < 64; ++i) a += part[i]; y[r] = calls > 20 ? 0.f : "
            "a; }"
        ),
    ),
    "shared-keeps-the-answer": hostile(
        "stale output", "illegal_access wrong race", _block("if (part[0] == part[0]) y[r] = part[0];")
    ),
    "local-not-initialised": hostile(
        "uninitialised",
        "illegal_access wrong",
        per_thread("float a[8]; a[r & 3] += s; y[r] = a[r & 3] + a[(r + rows) & 7];"),
    ),
}

_SUM_UP = "if (t == 0) { float a = 0.f; for (int i = 0; i < 64; ++i) a += part[i]; y[r] = a; }"
_HALVES = "for (int h = 32; h; h >>= 1) {{ if (t < h) part[t] += part[t + h]; {0} }} if (t == 0) y[r] = part[0];"
_NOW_AND_THEN = "race wrong illegal_access"
RACES: dict[str, Hostile] = {
    "no-barrier": hostile("missing barrier", _NOW_AND_THEN, _block("part[t] = s; " + _SUM_UP)),
    "no-barrier-in-the-tree": hostile(
        "missing barrier", _NOW_AND_THEN, _block("part[t] = s; __syncthreads(); " + _HALVES.format(""))
    ),
    "no-barrier-before-the-tree": hostile(
        "missing barrier", _NOW_AND_THEN, _block("part[t] = s; " + _HALVES.format("__syncthreads();"))
    ),
    "warp-barrier-for-a-block": hostile(
        "missing barrier", _NOW_AND_THEN, _block("part[t] = s; __syncwarp(); " + _SUM_UP)
    ),
    "fence-for-a-barrier": hostile(
        "missing barrier", _NOW_AND_THEN, _block("part[t] = s; __threadfence_block(); " + _SUM_UP)
    ),
    "reused-without-barrier": hostile(
        "missing barrier",
        _NOW_AND_THEN,
        _block(
            "for (int p = 0; p < 2; ++p) { part[t] = s; __syncthreads(); if (t == p * 40) { float a = 0.f; "
            "for (int i = 0; i < 64; ++i) a += part[i]; y[r] = a; } }"
        ),
    ),
    "barrier-for-half": hostile(
        "divergent barrier",
        "illegal_access race timeout wrong launch_error",
        _block(
            "volatile __shared__ int go; part[t] = s; if (t == 0) go = 0; __syncthreads(); if (t < 32) { "
            "__syncthreads(); if (t == 0) go = 1; } else while (!go) {} " + _SUM_UP
        ),
    ),
    "adds-after-the-barrier": hostile(
        "divergent barrier",
        "illegal_access race timeout wrong launch_error",
        _block(
            "part[t] = 0.f; __syncthreads(); if (t < 32) { part[t] = s; __syncthreads(); } else { "
            "__syncthreads(); part[t] = s; } " + _SUM_UP
        ),
    ),
    "barrier-by-lane": hostile(
        "divergent barrier",
        "illegal_access race timeout wrong launch_error",
        _block("part[t] = s; if (t % 2) __syncthreads(); else { part[t] += 0.f; } " + _SUM_UP),
    ),
    "unequal-barrier-counts": hostile(
        "divergent barrier",
        "illegal_access race timeout wrong launch_error",
        _block(
            "part[t] = 0.f; __syncthreads(); for (int i = 0; i <= t / 32; ++i) { if (i == t / 32) part[t] = "
            "s; __syncthreads(); } if (t < 32) " + _SUM_UP[:-1] + " }"
        ),
    ),
    "shuffle-outside-of-the-mask": hostile(
        "divergent barrier",
        "illegal_access race timeout wrong unsupported",
        per_thread("y[r] = s + 0.f * __shfl_down_sync(0xffffffffu, s, 1);"),
    ),
    "two-threads-a-row": hostile(
        "inter-block race",
        _NOW_AND_THEN,
        spmv(
            "const int r = (blockIdx.x * 64 + threadIdx.x) / 2; if (r >= rows) return; float s = 0.f; for "
            f"(int k = row_ptr[r] + threadIdx.x % 2; k < row_ptr[r + 1]; k += 2) s += {AX}; if (threadIdx.x % "
            "2 == 0) y[r] = 0.f; y[r] += s;",
            grid="ceil_div(2 * rows, 64)",
        ),
    ),
    "two-blocks-a-row": hostile(
        "inter-block race",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x / 2; if (threadIdx.x) return; float s = 0.f; for (int k = row_ptr[r] + "
            f"blockIdx.x % 2; k < row_ptr[r + 1]; k += 2) s += {AX}; if (blockIdx.x % 2) y[r] += s; else y[r] "
            "= s;",
            grid="2 * rows",
            block="32",
        ),
    ),
    "clears-while-others-add": hostile(
        "inter-block race",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x / 2; if (threadIdx.x) return; float s = 0.f; for (int k = row_ptr[r] + "
            f"blockIdx.x % 2; k < row_ptr[r + 1]; k += 2) s += {AX}; if (blockIdx.x % 2 == 0) y[r] = 0.f; "
            "atomicAdd(y + r, s);",
            grid="2 * rows",
            block="32",
        ),
    ),
    "cleared-without-barrier": hostile(
        "missing barrier",
        _NOW_AND_THEN,
        _block("__shared__ float a; if (t == 0) a = 0.f; atomicAdd(&a, s); __syncthreads(); if (t == 0) y[r] = a;"),
    ),
    "read-without-barrier": hostile(
        "missing barrier",
        _NOW_AND_THEN,
        _block("__shared__ float a; if (t == 0) a = 0.f; __syncthreads(); atomicAdd(&a, s); if (t == 0) y[r] = a;"),
    ),
    "result-cleared-without-barrier": hostile(
        "missing barrier", _NOW_AND_THEN, _block("if (t == 0) y[r] = 0.f; if (s != 0.f) atomicAdd(&y[r], s);")
    ),
    "last-writer-wins": hostile(
        "inter-block race",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x; for (int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) "
            f"y[r] = {AX}; if (row_ptr[r] == row_ptr[r + 1] && threadIdx.x == 0) y[r] = 0.f;",
            grid="rows",
            block="32",
        ),
    ),
    "needs-the-row-before": hostile(
        "order dependence", _NOW_AND_THEN, per_thread("y[r] = r ? s + 0.f * y[r - 1] : s;")
    ),
    "needs-the-row-after": hostile(
        "order dependence",
        _NOW_AND_THEN,
        per_thread("y[r] = s; __syncthreads(); if (r + 1 < rows && y[r + 1] == 12345.f) y[r] = 0.f;"),
    ),
    "running-sum": hostile(
        "order dependence",
        _NOW_AND_THEN,
        per_thread("y[r] = s + (r ? y[r - 1] : 0.f); __syncthreads(); y[r] -= r ? y[r - 1] : 0.f;"),
    ),
    "exchanges-instead-of-adding": hostile(
        "atomics misuse",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x; if (threadIdx.x == 0) y[r] = 0.f; __syncthreads(); float s = 0.f; for "
            f"(int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) s += {AX}; atomicExch(y + r, s);",
            grid="rows",
            block="32",
        ),
    ),
    "adds-as-integers": hostile(
        "atomics misuse",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x; if (threadIdx.x == 0) y[r] = 0.f; __syncthreads(); for (int k = "
            "row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) atomicAdd((int*)y + r, "
            f"__float_as_int({AX}));",
            grid="rows",
            block="32",
        ),
    ),
    "takes-the-largest": hostile(
        "atomics misuse",
        _NOW_AND_THEN,
        spmv(
            "const int r = blockIdx.x; if (threadIdx.x == 0) y[r] = 0.f; __syncthreads(); for (int k = "
            "row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) atomicMax((int*)y + r, "
            f"__float_as_int({AX}));",
            grid="rows",
            block="32",
        ),
    ),
    "adds-before-it-is-cleared": hostile(
        "atomics misuse",
        _NOW_AND_THEN,
        "// format: csr\n// launch: add grid=rows block=32\n"
        "// launch: clear grid=ceil_div(rows, 128) block=128\n"
        f'extern "C" __global__ void clear(float* y, int rows) {{ const int i = blockIdx.x * 128 + '
        f"threadIdx.x; if (i < rows) y[i] = 0.f; }}\n"
        f'extern "C" __global__ void add({CSR}, const float* x, float* y) {{ const int r = blockIdx.x; '
        f"for (int k = row_ptr[r] + threadIdx.x; k < row_ptr[r + 1]; k += 32) atomicAdd(y + r, {AX}); }}\n",
    ),
    "adds-at-the-wrong-row": hostile(
        "atomics misuse", _NOW_AND_THEN, per_thread("y[r] = 0.f; __syncthreads(); atomicAdd(y + (r + 1) % rows, s);")
    ),
    "same-sum-twice": hostile(
        "atomics misuse", _NOW_AND_THEN, spmm("C[i] = 0.f; atomicAdd(C + i, s); atomicAdd(C + i, s);"), "spmm", 2
    ),
}

ENDLESS: dict[str, Hostile] = {
    "spins": hostile(
        "endless loop",
        "timeout",
        per_thread("y[r] = s; volatile float* p = y; while (p[r] == p[r] || p[r] != p[r]) {}"),
    ),
    "spins-on-one-row": hostile(
        "endless loop", "timeout wrong", per_thread("y[r] = s; volatile int i = 1; if (r == 7) while (i) {}")
    ),
    "never-steps": hostile(
        "endless loop", "timeout wrong", per_thread("y[r] = s;", total=loop(f"s += {AX}", step="k += (rows < 0)"))
    ),
    "endless-atomics": hostile(
        "endless loop", "timeout", per_thread("y[r] = s; while (atomicAdd(y + r, 0.f) < 1e30f) {}")
    ),
    "waits-for-the-first-block": hostile(
        "spin on other block",
        "timeout race illegal_access",
        per_thread("volatile float* p = y; if (blockIdx.x == 0) while (p[rows - 1] != p[rows - 1]) {} y[r] = s;"),
    ),
    "waits-for-the-last-block": hostile(
        "spin on other block",
        "timeout race illegal_access wrong",
        spmv(
            f"const int r = blockIdx.x; if (threadIdx.x) return; volatile float* p = y; {SUM} if (r < rows - "
            f"1) while (p[r + 1] != p[r + 1]) {{}} y[r] = s;",
            grid="rows",
            block="32",
        ),
    ),
    "takes-a-lock": hostile(
        "spin on other block",
        "timeout race illegal_access wrong",
        per_thread(
            "unsigned* lock = (unsigned*)y; while (atomicCAS(lock, 0xffffffffu, 0u) != 0xffffffffu) {} y[r] = s;"
        ),
    ),
    "barrier-across-blocks": hostile(
        "spin on other block",
        "timeout race illegal_access wrong",
        per_thread(
            "y[r] = s; __syncthreads(); if (threadIdx.x == 0) { atomicAdd((int*)y, 1); while (*(volatile "
            "int*)y < 1 << 30) {} }"
        ),
    ),
    "recurses": hostile(
        "stack overflow",
        "timeout unsupported illegal_access launch_error tampered compile_error",
        per_thread(
            "y[r] = s + 0.f * down(rows + r);",
            before="__device__ __noinline__ float down(int n) { volatile float a[64]; a[n & 63] = n; return n < -5 "
            "? a[0] : down(n + 1) + a[n & 63]; }\n",
        ),
    ),
    "giant-local-memory": hostile(
        "stack overflow",
        "launch_error compile_error illegal_access unsupported wrong",
        per_thread(
            "float a[100000]; for (int i = 0; i < 100000; i += 999) a[i] = s * i; y[r] = a[(r * 999) % "
            "99000] - a[(r * 999) % 99000];"
        ),
    ),
}
