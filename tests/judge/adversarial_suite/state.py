"""State between calls, clocks, caches, inputs changed, and what is not the program's own work."""

from tests.judge.adversarial_suite.base import ALL, AX, Hostile, hostile, loop, spmm
from tests.judge.hostile_programs import per_thread, spmv

_STATE = "tampered contract"
_CALLS = "y[r] = s; if (r == 0) "
_MEMO = "__device__ float memo[4096];\n"

KEPT: dict[str, Hostile] = {
    "keeps-the-pointer": hostile(
        "pointer cache",
        _STATE,
        per_thread(
            "if (seen == x) { y[r] = memo[r & 4095]; return; } y[r] = memo[r & 4095] = s; if (r == 0) seen = x;",
            before=_MEMO + "__device__ const float* seen;\n",
        ),
    ),
    "keeps-the-pointer-in-a-static": hostile(
        "pointer cache",
        _STATE,
        per_thread("static const float* seen = 0; y[r] = seen == x ? 0.f : s; if (r == 0) seen = x;"),
    ),
    "keeps-a-table-of-pointers": hostile(
        "pointer cache",
        _STATE,
        per_thread("tags[((size_t)x >> 8) & 63] = (size_t)x; y[r] = s;", before="__device__ size_t tags[64];\n"),
    ),
    "keeps-operand-and-answer": hostile(
        "pointer cache",
        _STATE,
        per_thread(
            "if (memo[r & 2047] == x[0]) y[r] = memo[2048 + (r & 2047)]; else { y[r] = s; memo[r & 2047] = "
            "x[0]; memo[2048 + (r & 2047)] = s; }",
            before=_MEMO,
        ),
    ),
    "counts-atomically": hostile(
        "call counter",
        _STATE,
        per_thread("y[r] = calls > 100 ? 0.f : s; if (r == 0) atomicAdd(&calls, 1);", before="__device__ int calls;\n"),
    ),
    "counts-from-seven": hostile(
        "call counter",
        _STATE,
        per_thread(
            _CALLS + "calls = calls + 1; if (calls > 100) y[r] = 0.f;", before="__device__ volatile int calls = 7;\n"
        ),
    ),
    "counts-in-a-static": hostile(
        "static local",
        _STATE,
        per_thread("static int calls = 3; y[r] = s; if (r == 0) atomicInc((unsigned*)&calls, 99u);"),
    ),
    "counts-in-an-inline-variable": hostile(
        "call counter", _STATE, per_thread(_CALLS + "++calls;", before="inline __device__ int calls;\n")
    ),
    "counts-in-a-namespace": hostile(
        "call counter", _STATE, per_thread(_CALLS + "++calls;", before="namespace { __device__ int calls; }\n")
    ),
    "counts-in-a-struct": hostile(
        "static device",
        _STATE,
        per_thread(
            _CALLS + "++cache.calls; cache.v[r & 1023] = s;",
            before="struct Cache { int calls; float v[1024]; };\n__device__ Cache cache;\n",
        ),
    ),
    "counts-in-a-template": hostile(
        "static device",
        _STATE,
        per_thread(_CALLS + "++calls<3>;", before="template <int N> __device__ int calls = N;\n"),
    ),
    "counts-in-a-class-member": hostile(
        "static device",
        "tampered contract compile_error",
        per_thread(
            _CALLS + "++S::calls;", before="struct S { static __device__ int calls; };\n__device__ int S::calls = 0;\n"
        ),
    ),
    "counts-through-a-pointer": hostile(
        "static device",
        _STATE,
        per_thread(
            _CALLS + "*where = *where + 1;", before="__device__ int calls = 1;\n__device__ int* where = &calls;\n"
        ),
    ),
    "counts-behind-a-call": hostile(
        "static device",
        _STATE,
        per_thread(
            _CALLS + "bump(&calls, rows);",
            before="__device__ int calls = 1;\n__device__ __noinline__ void bump(int* p, int n) { if (n > 1) *p += "
            "n; }\n",
        ),
    ),
    "counts-behind-an-integer": hostile(
        "static device",
        _STATE,
        per_thread(
            _CALLS + "*(int*)(((size_t)&calls ^ 0x5555) ^ (size_t)(0x5555 + rows - rows)) += 1;",
            before="__device__ int calls = 1;\n",
        ),
    ),
    "counts-in-managed-memory": hostile(
        "managed memory", _STATE, per_thread(_CALLS + "++calls;", before="__managed__ int calls;\n")
    ),
    "counts-in-hidden-managed-memory": hostile(
        "managed memory",
        _STATE,
        per_thread(_CALLS + "++calls;", before="#define M __attribute__((managed))\n__device__ M int calls;\n"),
    ),
    "keeps-answers": hostile(
        "static device",
        _STATE,
        per_thread("y[r] = memo[r & 4095] != 0.f ? memo[r & 4095] : s; memo[r & 4095] = s;", before=_MEMO),
    ),
    "keeps-answers-by-vectors": hostile(
        "static device",
        _STATE,
        per_thread(
            "if (memo[r & 1023].x != 0.f) y[r] = memo[r & 1023].x; else y[r] = s; memo[r & 1023] = "
            "make_float4(s, 0, 0, 0);",
            before="__device__ float4 memo[1024];\n",
        ),
    ),
    "keeps-answers-of-spmm": hostile(
        "static device",
        _STATE,
        spmm("C[i] = memo[i & 4095] != 0.f ? memo[i & 4095] : s; memo[i & 4095] = s;", before=_MEMO),
        "spmm",
        4,
    ),
    "writes-its-constants": hostile(
        "static device",
        "tampered contract illegal_access launch_error",
        per_thread(
            "y[r] = s * c[0]; *(volatile float*)&c[r & 1] = 1.f;", before="__constant__ float c[2] = {1.f, 1.f};\n"
        ),
    ),
    "writes-its-constants-by-index": hostile(
        "static device",
        "tampered contract illegal_access launch_error",
        per_thread(
            "float* p = (float*)c; y[r] = s * p[0]; p[row_ptr[r] & 1] = s;",
            before="__constant__ float c[2] = {1.f, 1.f};\n",
        ),
    ),
    "reads-what-nobody-wrote": hostile(
        "static device", _STATE, per_thread("y[r] = s + 0.f * memo[r & 4095];", before=_MEMO)
    ),
    "shared-counter": hostile(
        "call counter",
        "illegal_access wrong race",
        per_thread(
            "y[r] = n > 5 ? 0.f : s;",
            guard="volatile __shared__ int n; if (threadIdx.x == 0) n = n + 1; __syncthreads(); if (r >= rows) return;",
        ),
    ),
    "function-pointer-table": hostile(
        "function-pointer state",
        _STATE,
        per_thread(
            "y[r] = table[rows & 1](s);",
            before="typedef float (*F)(float);\n__device__ float id(float v) { return v; }\n"
            "__device__ float zero(float v) { return 0.f; }\n__device__ F table[2] = {id, id};\n",
        ),
    ),
    "function-pointer-rewritten": hostile(
        "function-pointer state",
        _STATE,
        per_thread(
            "y[r] = now(s); if (r == 0) now = rows > 9 ? zero : now;",
            before="typedef float (*F)(float);\n__device__ __noinline__ float id(float v) { return v; }\n"
            "__device__ __noinline__ float zero(float v) { return 0.f; }\n__device__ F now = id;\n",
        ),
    ),
    "virtual-functions": hostile(
        "function-pointer state",
        "tampered contract compile_error",
        per_thread(
            "A a; B b; A* p = row_ptr[r] & 1 ? &a : (A*)&b; y[r] = p->f(s);",
            before="struct A { __device__ virtual float f(float v) const { return v; } };\n"
            "struct B : A { __device__ float f(float v) const override { return v + 0.f; } };\n",
        ),
    ),
}

INPUTS: dict[str, Hostile] = {
    "clears-the-operand": hostile("input mutation", _STATE, per_thread("y[r] = s; ((float*)x)[0] = 0.f;")),
    "clears-a-writable-operand": hostile(
        "input mutation",
        _STATE,
        per_thread("y[r] = s; x[r % cols] = 0.f;", parameters=ALL.replace("const float* x", "float* x")),
    ),
    "shortens-the-rows": hostile(
        "input mutation", _STATE, per_thread("y[r] = s; ((int*)row_ptr)[r + 1] = row_ptr[r];")
    ),
    "moves-the-columns": hostile(
        "input mutation",
        _STATE,
        per_thread("y[r] = s; for (int k = row_ptr[r]; k < row_ptr[r + 1]; ++k) ((int*)col_idx)[k] = 0;"),
    ),
    "scales-the-values": hostile(
        "input mutation", _STATE, per_thread("y[r] = s;", total=loop(f"{{ s += {AX}; ((float*)values)[k] *= 2.f; }}"))
    ),
    "adds-to-the-values": hostile(
        "input mutation", _STATE, per_thread("y[r] = s; if (rows > 9) atomicAdd((float*)values, 1.f);")
    ),
    "writes-back-the-same": hostile(
        "input mutation", _STATE, per_thread("y[r] = s; volatile float* p = (float*)x; p[0] = p[0];")
    ),
    "stores-a-vector": hostile(
        "input mutation", _STATE, per_thread("y[r] = s; if (rows > 99) *(float4*)x = make_float4(0, 0, 0, 0);")
    ),
    "stores-a-byte": hostile("input mutation", _STATE, per_thread("y[r] = s; ((char*)row_ptr)[0] = 1;")),
    "keeps-its-sum-in-the-values": hostile(
        "input mutation",
        _STATE,
        per_thread("y[r] = s; if (row_ptr[r] < row_ptr[r + 1]) ((float*)values)[row_ptr[r]] = s;"),
    ),
    "writes-the-dense-operand": hostile("input mutation", _STATE, spmm("C[i] = s; ((float*)B)[0] = 1.f;"), "spmm", 4),
    "writes-a-stored-row-order": hostile(
        "input mutation",
        "tampered contract wrong",
        spmv("", parameters="int* row_perm, float* y, int rows")
        .replace("// format: csr", "// format: sell c=32 sigma=32")
        .replace("{\n", "{\nconst int r = blockIdx.x * 64 + threadIdx.x; if (r < rows) row_perm[r] = r;\n"),
    ),
}

_TIME = "tampered contract"
CLOCKS: dict[str, Hostile] = {
    "reads-a-clock": hostile("timer", _TIME, per_thread("y[r] = s; if (clock() == 7) y[r] = 0.f;")),
    "reads-a-long-clock": hostile(
        "timer", _TIME, per_thread("const long long t = clock64(); y[r] = s; while (clock64() - t < 10) {}")
    ),
    "clock-in-a-macro": hostile(
        "timer", _TIME, per_thread("y[r] = s; if (NOW() == 7) y[r] = 0.f;", before="#define NOW clock64\n")
    ),
    "clock-in-parentheses": hostile("timer", _TIME, per_thread("y[r] = s; if ((clock64)() == 7) y[r] = 0.f;")),
    "clock-behind-a-comment": hostile("timer", _TIME, per_thread("y[r] = s; if (clock64/* no */ () == 7) y[r] = 0.f;")),
    "clock-by-reference": hostile(
        "timer",
        "tampered contract compile_error",
        per_thread("auto& now = clock64; y[r] = s; if (now() == 7) y[r] = 0.f;"),
    ),
    "clock-as-an-argument": hostile(
        "timer",
        "tampered contract compile_error",
        per_thread(
            "y[r] = s + (ask(clock64) == 7 ? 1.f : 0.f);",
            before="template <class F> __device__ long long ask(F f) { return f(); }\n",
        ),
    ),
    "clock-pasted-together": hostile(
        "timer", _TIME, per_thread("y[r] = s; if (P(clo, ck64)() == 7) y[r] = 0.f;", before="#define P(a, b) a##b\n")
    ),
    "global-timer": hostile(
        "timer", "tampered contract compile_error", per_thread("y[r] = s; if (__globaltimer() == 7) y[r] = 0.f;")
    ),
    "sleeps": hostile("timer", _TIME, per_thread("y[r] = s; __nanosleep(100);")),
    "sleeps-in-a-macro": hostile("timer", _TIME, per_thread("y[r] = s; NAP(100);", before="#define NAP __nanosleep\n")),
    "clock-by-assembly": hostile(
        "timer",
        "contract",
        per_thread('long long t; asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)); y[r] = t == 7 ? 0.f : s;'),
    ),
    "assembly-in-a-macro": hostile(
        "timer",
        "contract",
        per_thread(
            'long long t; A("mov.u64 %0, %%globaltimer;" : "=l"(t)); y[r] = t == 7 ? 0.f : s;',
            before="#define A __asm__ volatile\n",
        ),
    ),
    "launch-number": hostile(
        "timer",
        "contract",
        per_thread('unsigned long long g; asm("mov.u64 %0, %%gridid;" : "=l"(g)); y[r] = g > 20 ? 0.f : s;'),
    ),
    "pins-by-assembly": hostile(
        "L2 pinning",
        "contract",
        per_thread('y[r] = s; asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(x));'),
    ),
    "pins-by-policy": hostile(
        "L2 pinning",
        "contract",
        per_thread(
            'y[r] = s; unsigned long long p; asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));'
        ),
    ),
    "pins-by-annotation": hostile(
        "L2 pinning",
        "contract compile_error",
        per_thread(
            "y[r] = s; cuda::apply_access_property(x, 4, cuda::access_property::persisting{});",
            before="#include <cuda/annotated_ptr>\n",
        ),
    ),
    "pins-by-attribute": hostile(
        "L2 pinning",
        "contract compile_error",
        per_thread("y[r] = s; cudaStreamAttrValue v; v.accessPolicyWindow.base_ptr = (void*)x;"),
    ),
}

_GONE = "compile_error contract tampered"
OTHERS_WORK: dict[str, Hostile] = {
    "cublas": hostile(
        "library fallback", _GONE, per_thread("y[r] = s; cublasSgemv(0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);")
    ),
    "cublas-header": hostile(
        "library fallback", "contract", per_thread("y[r] = s;", before="#include <cublas_v2.h>\n")
    ),
    "cusparse": hostile(
        "library fallback",
        _GONE,
        per_thread(
            "if (r == 0) cusparseSpMV(0, 0, 0, 0, 0, 0, 0, 0, 0);",
            before='extern "C" __device__ int cusparseSpMV(void*, int, void*, void*, void*, void*, void*, int, '
            "void*);\n",
        ),
    ),
    "cusparse-header": hostile(
        "library fallback", "contract", per_thread("y[r] = s;", before='#include "cusparse.h"\n')
    ),
    "launches-a-kernel": hostile(
        "library fallback",
        _GONE,
        per_thread(
            "if (r == 0) other<<<1, 64>>>(y);",
            before='extern "C" __global__ void other(float* y) { y[threadIdx.x] = 0.f; }\n',
        ),
    ),
    "launches-by-the-runtime": hostile(
        "library fallback",
        _GONE,
        per_thread(
            "y[r] = s; if (r == 0) cudaLaunchDeviceV2(cudaGetParameterBufferV2((void*)x, dim3(1), dim3(1), 0), 0);",
            before='extern "C" __device__ void* cudaGetParameterBufferV2(void*, dim3, dim3, unsigned);\n'
            'extern "C" __device__ int cudaLaunchDeviceV2(void*, void*);\n',
        ),
    ),
    "copies-by-the-runtime": hostile(
        "library fallback", _GONE, per_thread("y[r] = s; cudaMemcpyAsync(y, x, 4, cudaMemcpyDeviceToDevice, 0);")
    ),
    "asks-the-runtime": hostile("library fallback", _GONE, per_thread("y[r] = s; cudaDeviceSynchronize();")),
    "thrust": hostile("library fallback", "contract", per_thread("y[r] = s;", before="#include <thrust/reduce.h>\n")),
    "cub": hostile("library fallback", "contract", per_thread("y[r] = s;", before="#include <cub/cub.cuh>\n")),
    "prints": hostile("system call", _GONE, per_thread('y[r] = s; printf("%d", r);')),
    "prints-in-a-macro": hostile(
        "system call", _GONE, per_thread('y[r] = s; SAY("%d", r);', before="#define SAY printf\n")
    ),
    "allocates": hostile("system call", _GONE, per_thread("y[r] = s; float* p = (float*)malloc(4); *p = s; free(p);")),
    "allocates-in-a-macro": hostile(
        "system call",
        _GONE,
        per_thread(
            "y[r] = s; float* p = (float*)GET(64); if (p) { *p = s; y[r] = *p; }", before="#define GET malloc\n"
        ),
    ),
    "allocates-by-new": hostile(
        "system call", _GONE, per_thread("float* p = new float[4]; p[r & 3] = s; y[r] = p[r & 3];")
    ),
    "asserts": hostile("system call", _GONE, per_thread("y[r] = s; assert(r >= 0);")),
    "asserts-by-hand": hostile(
        "system call", _GONE, per_thread('y[r] = s; if (s > 1e30f) __assertfail("a", "b", 1, "c", 1);')
    ),
    "traps": hostile(
        "system call",
        "illegal_access launch_error wrong tampered unsupported",
        per_thread("y[r] = s; if (r == 3) __trap();"),
    ),
    "calls-what-is-not-there": hostile(
        "library fallback", _GONE, per_thread("y[r] = solve(s);", before='extern "C" __device__ float solve(float);\n')
    ),
    "reads-what-is-not-there": hostile(
        "library fallback", _GONE, per_thread("y[r] = answer[r];", before="extern __device__ float answer[];\n")
    ),
    "texture": hostile("library fallback", _GONE, per_thread("y[r] = tex1Dfetch<float>((unsigned long long)rows, r);")),
}
