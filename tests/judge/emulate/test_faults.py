"""Every fault kind: its status, source line, block and thread; and the honest programs next to each."""

# ruff: noqa: E501  (CUDA sources)

import numpy as np
import pytest

from components.judge.emulate.machine import (
    EmuBuffer,
    Emulation,
    EmulatorLimits,
    EmuLaunch,
    Tampered,
    Unsupported,
    load_ptx,
    run,
)
from tests.judge.emulate.emulator_harness import compile_ptx, execute

X = np.arange(100, dtype=np.float32)
HEAD = 'extern "C" __global__ void k(const float* x, float* y) {\n'
SMALL = EmulatorLimits(instruction_budget=200_000)


def fault(body: str, block: int = 32, grid: int = 1, size: int = 100, shared: int = 0, before: str = "") -> Emulation:
    """The outcome of a kernel whose body starts on line 2."""
    y = np.full(size, np.nan, np.float32)
    return execute(before + HEAD + body + "\n}", {"x": X}, {"y": y}, grid, block, shared, limits=SMALL)


def test_out_of_bounds_read_names_buffer_offset_size_line_block_thread() -> None:
    found = fault("int i = blockIdx.x * 32 + threadIdx.x;\ny[i] = 0;\ny[i] = x[i + 5];", grid=3)
    assert (found.status, found.line, found.block, found.thread) == ("illegal_access", 4, (2, 0, 0), 31)
    assert found.message == "k: out of bounds: 4 bytes at byte 400 of x (400 bytes)"
    assert (found.launch, len(found.traffic)) == (0, 0)


def test_out_of_bounds_write_and_negative_index() -> None:
    found = fault("y[(int)threadIdx.x - 2] = 1;")
    assert (found.status, found.thread) == ("illegal_access", 0)
    assert found.message == "k: out of bounds: 4 bytes at byte -8 of y (400 bytes)"
    assert fault("y[threadIdx.x + 90] = 1;").thread == 10


def test_far_and_null_pointers() -> None:
    assert "no buffer" in fault("*(float*)8 = 1;").message
    assert fault("y[1ll << 35] = 1;").status == "illegal_access"
    assert fault("y[1ll << 39] = 1;").status == "illegal_access"
    assert fault("y[-(1ll << 61)] = 1;").status == "illegal_access"


def test_partly_outside_vector_access() -> None:
    found = fault("((float4*)y)[threadIdx.x] = make_float4(1, 2, 3, 4);", size=10)
    assert (found.status, found.thread) == ("illegal_access", 2)
    assert "16 bytes at byte 32 of y (40 bytes)" in found.message


def test_misaligned_vector() -> None:
    found = fault("float2 v = *(const float2*)(x + 1 + 2 * threadIdx.x); y[threadIdx.x] = v.x + v.y;")
    assert (found.status, found.line) == ("illegal_access", 2)
    assert found.message.startswith("k: misaligned access: 8 bytes at byte 4 of x")


def test_uninitialised_output() -> None:
    found = fault("y[threadIdx.x] += x[threadIdx.x];")
    assert (found.status, found.line, found.thread) == ("illegal_access", 2, 0)
    assert "uninitialised" in found.message
    assert fault("atomicAdd(y, 1.f);").status == "illegal_access"
    assert fault("y[threadIdx.x] = 1; y[threadIdx.x] += x[threadIdx.x];").status == "ok"


def test_uninitialised_shared_memory() -> None:
    found = fault("__shared__ float s[64];\ns[threadIdx.x] = 1; __syncthreads();\ny[threadIdx.x] = s[threadIdx.x + 1];")
    assert (found.status, found.line, found.thread) == ("illegal_access", 4, 31)
    found = fault(
        "__shared__ float s[32]; if (blockIdx.x == 0) s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x];", grid=2
    )
    assert (found.status, found.block) == ("illegal_access", (1, 0, 0))  # not left over from block 0


def test_shared_out_of_bounds() -> None:
    found = fault("__shared__ float s[32];\ns[threadIdx.x * 2] = 1; y[0] = s[0];")
    assert (found.status, found.line, found.thread) == ("illegal_access", 3, 16)
    assert "shared memory (128 bytes a block)" in found.message
    dynamic = "extern __shared__ float s[]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x];"
    assert fault(dynamic, shared=128).status == "ok"
    assert fault(dynamic, shared=64).status == "illegal_access"


def test_local_array_out_of_bounds() -> None:
    found = fault(
        "float a[4] = {1, 2, 3, 4}; a[threadIdx.x & 3] = x[3]; y[threadIdx.x] = a[(int)x[threadIdx.x]] + a[threadIdx.x & 1];"
    )
    assert found.status == "illegal_access"


def test_write_to_input_is_tampering() -> None:
    found = fault("((float*)x)[threadIdx.x] = 1;")
    assert (found.status, found.line) == ("tampered", 2)
    assert "read-only buffer" in found.message
    assert fault("atomicAdd((float*)x, 1.f);").status == "tampered"


REDUCE = """__shared__ float s[64]; int t = threadIdx.x; s[t] = x[t];
{sync}
if (t < 32) s[t] += s[t + 32];
__syncthreads();
if (t == 0) y[0] = s[0] + s[31];"""


def test_missing_barrier_is_a_race() -> None:
    found = fault(REDUCE.replace("{sync}", ""), block=64)
    assert (found.status, found.line) in (("race", 4), ("illegal_access", 4))
    assert fault(REDUCE.replace("{sync}", "__syncthreads();"), block=64).status == "ok"


def test_shared_races_between_warps() -> None:
    start = "__shared__ float s[64]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();\n"
    raw = fault(start + "s[t] = 2 * t;\ny[t] = s[t ^ 32];", block=64)
    assert (raw.status, raw.line) == ("race", 3)  # the first warp reads, then the second overwrites
    assert fault(start + "float v = s[t ^ 32]; s[t] = v;", block=64).status == "race"
    assert fault(start + "float v = s[t ^ 32]; __syncthreads(); s[t] = v;", block=64).status == "ok"
    assert fault(start + "s[t & 31] = t; __syncthreads(); y[t] = s[t];", block=64).status == "race"
    assert fault(start + "s[0] = 5; __syncthreads(); y[t] = s[0];", block=64).status == "ok"  # the same value


def test_race_within_a_warp_needs_syncwarp() -> None:
    start = "__shared__ float s[32]; int t = threadIdx.x; s[t] = x[t];\n"
    found = fault(start + "y[t] = s[t ^ 1];")
    assert (found.status, found.line) == ("race", 3)
    assert fault(start + "__syncwarp(); y[t] = s[t ^ 1];").status == "ok"
    assert fault(start + "y[t] = s[t] + 1;").status == "ok"
    assert fault("__shared__ float s[1]; s[0] = threadIdx.x; y[0] = s[0];").status == "race"


def test_global_races() -> None:
    between = fault("y[0] = blockIdx.x;", grid=2, block=1)
    assert (between.status, between.line, between.block) == ("race", 2, (1, 0, 0))
    assert fault("y[threadIdx.x / 2] = threadIdx.x;").status == "race"
    assert fault("y[0] = 3;", grid=4).status == "ok"  # every thread writes the same value
    assert fault("y[threadIdx.x] = 1; y[threadIdx.x] += y[threadIdx.x ^ 32];", block=64).status in (
        "race",
        "illegal_access",
    )
    assert (
        fault(
            "y[threadIdx.x] = 1; __syncthreads(); x = y; y[64 + threadIdx.x % 36] = x[threadIdx.x ^ 32];", block=36
        ).status
        == "illegal_access"
    )
    ok = "y[threadIdx.x] = threadIdx.x; __syncthreads(); float v = y[threadIdx.x ^ 32]; __syncthreads(); y[threadIdx.x] = v;"
    assert fault(ok, block=64).status == "ok"
    assert fault("y[threadIdx.x] = 1; atomicAdd(y + (threadIdx.x ^ 32), 1.f);", block=64).status in (
        "race",
        "illegal_access",
    )
    assert fault("if (threadIdx.x == 0) y[0] = 0; __syncthreads(); atomicAdd(y, 1.f);", block=64).status == "ok"


def test_block_reads_what_another_block_wrote() -> None:
    body = "if (blockIdx.x == 0) y[threadIdx.x] = 1; else y[32 + threadIdx.x] = y[threadIdx.x];"
    assert fault(body, grid=2).status == "race"


def test_two_launches_are_ordered() -> None:
    source = (
        HEAD
        + "y[threadIdx.x] = 0; }\n"
        + 'extern "C" __global__ void second(float* y) { y[threadIdx.x ^ 1] += threadIdx.x; }'
    )
    y = np.full(32, np.nan, np.float32)
    launches = [
        EmuLaunch("k", (1, 1, 1), (32, 1, 1), 0, ("x", "y")),
        EmuLaunch("second", (1, 1, 1), (32, 1, 1), 0, ("y",)),
    ]
    result = run(load_ptx(compile_ptx(source)), launches, [EmuBuffer("x", X), EmuBuffer("y", y, True, False)])
    assert (result.status, len(result.traffic)) == ("ok", 2)
    np.testing.assert_array_equal(y, np.arange(32) ^ 1)


def test_endless_loops_time_out() -> None:
    found = fault("volatile float* p = y;\np[threadIdx.x] = 1;\nwhile (p[threadIdx.x] > 0) {}")
    assert (found.status, found.line) == ("timeout", 4)
    assert (
        fault("__shared__ int f; if (!threadIdx.x) f = 0; __syncthreads(); while (atomicAdd(&f, 0) == 0) {}").status
        == "timeout"
    )


def test_budget_stops_within_a_few_instructions() -> None:
    y = np.zeros(100, np.float32)
    tight = EmulatorLimits(instruction_budget=50)
    source = HEAD + "float s = 0; for (int i = 0; i < 1000000; ++i) s = sqrtf(s + i); y[threadIdx.x] = s; }"
    assert execute(source, {"x": X}, {"y": y}, limits=tight).status == "timeout"


def test_deadlocks_time_out() -> None:
    found = fault(
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");\nelse asm volatile("bar.sync 2, 64;");', block=64
    )
    assert (found.status, found.line) == ("timeout", 2)
    assert "deadlock" in found.message


def test_lane_outside_its_own_mask() -> None:
    found = fault("int v = threadIdx.x;\nif (v < 16) v = __shfl_sync(0xffu, v, 0);\ny[threadIdx.x] = v;")
    assert (found.status, found.line, found.thread) == ("illegal_access", 3, 8)


def test_value_from_a_lane_that_does_not_exist_is_poison() -> None:
    y = np.zeros(16, np.float32)
    source = HEAD + "float s = x[threadIdx.x]; s += __shfl_down_sync(~0u, s, 16); y[threadIdx.x] = s; }"
    assert execute(source, {"x": X}, {"y": y}, block=16).status == "ok"
    assert np.isnan(y).all()


def test_trap_and_assert() -> None:
    found = fault("if (threadIdx.x == 3)\n__trap();\ny[0] = 1;")
    assert (found.status, found.line, found.thread) == ("illegal_access", 3, 3)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "word"),
    [
        ((1, 1, 1), (2048, 1, 1), 0, "2048 threads"),
        ((1, 1, 1), (1, 1, 128), 0, "z at most 64"),
        ((1, 70000, 1), (1, 1, 1), 0, "grid"),
        ((2**31, 1, 1), (1, 1, 1), 0, "grid"),
        ((0, 1, 1), (1, 1, 1), 0, "empty grid"),
        ((1, 1, 1), (32, 1, 1), 300_000, "300000 bytes of shared memory"),
        ((1, 1, 1), (0, 1, 1), 0, "block"),
    ],
)
def test_launch_errors(grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, word: str) -> None:
    found = execute(HEAD + "y[0] = 1; }", {"x": X}, {"y": np.zeros(4, np.float32)}, grid, block, shared)
    assert found.status == "launch_error"
    assert word in found.message


def test_unknown_kernel_and_wrong_argument_count_are_launch_errors() -> None:
    module = load_ptx(compile_ptx(HEAD + "y[0] = 1; }"))
    assert run(module, [EmuLaunch("other", (1, 1, 1), (1, 1, 1), 0, ())], []).status == "launch_error"
    assert run(module, [EmuLaunch("k", (1, 1, 1), (1, 1, 1), 0, ())], []).status == "launch_error"


TAMPERING = {
    "clock": ("y[0] = clock64() == 0;", ""),
    "clock32": ("y[0] = clock() == 0;", ""),
    "timer": ('unsigned long long t;\nasm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); y[0] = t;', ""),
    "smid": ('unsigned t; asm volatile("mov.u32 %0, %%smid;" : "=r"(t)); y[0] = t;', ""),
    "counter": ("if (threadIdx.x == 0) calls++; y[0] = calls;", "__device__ int calls;\n"),
    "memo": ("memo[threadIdx.x] = 1; y[0] = memo[3];", "__device__ float memo[64];\n"),
    "static": ("static __device__ int n; y[0] = atomicAdd(&n, 1);", ""),
    "printf": ('printf("%d", threadIdx.x);', ""),
    "malloc": ("float* p = (float*)malloc(8); y[0] = *p;", ""),
    "evict_last": ('asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(x));', ""),
    "policy": ('unsigned long long p; asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p)); y[0] = p;', ""),
    "initialised state": ("started = 1; y[0] = started;", "__device__ int started = 5;\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERING)
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_tampering_is_seen_at_load(name: str, arch: str) -> None:
    body, before = TAMPERING[name]
    source = before + HEAD + body + "\n}"
    with pytest.raises(Tampered) as caught:
        load_ptx(compile_ptx(source, arch))
    assert caught.value.line is not None
    assert 1 < caught.value.line <= source.count("\n") + 1


def test_tampering_behind_a_pointer_is_seen_at_run_time() -> None:
    body = "int* p = threadIdx.x < 40 ? &state[0] : &state[1];\np[x[3] > 100] = 1; y[0] = 1;"
    try:
        found = fault(body, before="__device__ int state[2] = {1, 2};\n")
    except Tampered:
        return
    assert found.status == "tampered"


UNSUPPORTED = [
    'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%0];" :: "r"(0), "l"(x));',
    'asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(0));',
    'asm volatile("discard.global.L2 [%0], 128;" :: "l"(y));',
    'asm volatile("barrier.cluster.arrive;");',
    'asm volatile("griddepcontrol.wait;");',
    'unsigned r; asm volatile("vadd.u32.u32.u32 %0, %1, %1;" : "=r"(r) : "r"(3)); y[0] = r;',
]


@pytest.mark.parametrize("body", UNSUPPORTED)
def test_unknown_instructions_are_refused_with_their_line(body: str) -> None:
    with pytest.raises(Unsupported) as caught:
        load_ptx(compile_ptx(HEAD + body + "\n}"))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "text",
    ["", "garbage", ".visible .entry k() { ld.global.f32 %f1, [%rd1]; }", ".visible .entry k() { bra NOWHERE; }",
     ".visible .entry k() { .reg .b32 %r<2>; add.s32 %r1, %r1; }", ".visible .entry k() { .reg .b32 %r<2>; add.s32 %r5, %r1, 1; }",
     ".visible .entry k() { .reg .b64 %d<2>; .reg .b32 %r<2>; add.s32 %r1, %d1, 1; }", ".visible .entry k() { {",
     ".visible .entry k(.param .u64 p) { .reg .b64 %d<2>; ld.param.u64 %d1, [p+8]; }", ".visible .entry k() { shfl.sync.b32; }",
     ".visible .entry k() { .reg .pred %p<2>; bar.red.pred %p1, 0, %p1; }", ".visible .entry k() { @%p1 exit; }", ".visible .entry k() { .reg .b32 %r<99999999>; mov.u32 %r1, 0f00; }"],
)  # fmt: skip
def test_malformed_ptx_is_refused_never_run(text: str) -> None:
    with pytest.raises(Unsupported):
        load_ptx(text)
