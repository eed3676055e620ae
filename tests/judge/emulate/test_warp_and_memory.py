"""Warp primitives, barriers, atomics, memory forms, control flow: exact results against numpy."""

# ruff: noqa: E501  (CUDA sources)

import numpy as np
import pytest

from components.judge.emulate.machine import EmulatorLimits
from tests.judge.emulate.emulator_harness import execute

X = np.random.default_rng(3).standard_normal(256).astype(np.float32)
HEAD = 'extern "C" __global__ void k'
ARCHES = ["sm_90", "sm_100"]


def run_one(body: str, size: int, dtype: type = np.float32, block: int = 32, grid: int = 1, arch: str = "sm_90",
            shared: int = 0, before: str = "") -> np.ndarray:  # fmt: skip
    """Run a kernel of (const float* x, <dtype>* y); the result y."""
    kind = {np.float32: "float", np.int32: "int", np.uint32: "unsigned", np.float64: "double", np.int64: "long long"}[
        dtype
    ]
    y = np.zeros(size, dtype)
    result = execute(f"{before}\n{HEAD}(const float* x, {kind}* y) {{ {body} }}", {"x": X}, {"y": y}, grid, block, shared,
                     arch, initialised="atomic" in body)  # fmt: skip
    assert (result.status, result.message) == ("ok", "")
    return y


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
def test_shuffle_reduction_in_segments(width: int, arch: str) -> None:
    body = f"float s = x[threadIdx.x]; for (int o = {width // 2}; o; o >>= 1) s += __shfl_down_sync(~0u, s, o, {width});" \
           f"if (threadIdx.x % {width} == 0) y[threadIdx.x / {width}] = s;"  # fmt: skip
    y = run_one(body, 32 // width, arch=arch)
    np.testing.assert_allclose(y, X[:32].reshape(-1, width).sum(1), rtol=1e-5, atol=1e-6)


def test_shuffle_modes() -> None:
    body = """int l = threadIdx.x; y[l] = __shfl_up_sync(~0u, l, 3); y[32 + l] = __shfl_down_sync(~0u, l, 5, 16);
      y[64 + l] = __shfl_xor_sync(~0u, l, 7); y[96 + l] = __shfl_sync(~0u, l, 2, 8);"""
    y = run_one(body, 128, np.int32).reshape(4, 32)
    lane = np.arange(32)
    np.testing.assert_array_equal(y[0], np.where(lane < 3, lane, lane - 3))
    np.testing.assert_array_equal(y[1], np.where(lane % 16 + 5 < 16, lane + 5, lane))
    np.testing.assert_array_equal(y[2], lane ^ 7)
    np.testing.assert_array_equal(y[3], lane // 8 * 8 + 2)


def test_shuffle_of_doubles_and_inclusive_scan() -> None:
    body = """int l = threadIdx.x; double v = x[l]; for (int o = 1; o < 32; o <<= 1) { double u = __shfl_up_sync(~0u, v, o);
      if (l >= o) v += u; } y[l] = v;"""
    np.testing.assert_allclose(run_one(body, 32, np.float64), np.cumsum(X[:32].astype(np.float64)), rtol=1e-12)


def test_votes_match_and_redux() -> None:
    body = """int l = threadIdx.x; y[l] = __ballot_sync(~0u, l % 3 == 0); y[32 + l] = __any_sync(~0u, l == 7) + 2 * __all_sync(~0u, l < 32);
      y[64 + l] = __match_any_sync(~0u, l / 5); y[96 + l] = __reduce_add_sync(~0u, l) + __reduce_max_sync(~0u, -l) + __reduce_xor_sync(~0u, 1u << l);
      int p; y[128 + l] = __match_all_sync(~0u, 5, &p) + p; y[160 + l] = __activemask();"""
    y = run_one(body, 192, np.int32).reshape(6, 32)
    lane = np.arange(32)
    assert set(y[0].view(np.uint32)) == {sum(1 << k for k in range(0, 32, 3))}
    assert set(y[1]) == {3}
    same = [int(sum(1 << k for k in lane if k // 5 == m // 5)) for m in lane]
    np.testing.assert_array_equal(y[2].view(np.uint32), np.array(same, np.uint32))
    assert set(y[3]) == {496 + 0 - 1}
    assert set(y[4]) == {0}
    assert set(y[5]) == {-1}


def test_primitive_under_a_partial_mask_and_divergence() -> None:
    body = """int l = threadIdx.x; int v = l; if (l < 8) { v = __reduce_add_sync(0xffu, l); } else { v = __reduce_add_sync(0xffffff00u, l); }
      y[l] = v;"""
    y = run_one(body, 32, np.int32)
    np.testing.assert_array_equal(y, np.where(np.arange(32) < 8, 28, 496 - 28))


def test_lanes_that_come_late_are_waited_for() -> None:
    body = """int l = threadIdx.x, n = 0; unsigned b = 0; for (int r = 0; r < 3; ++r) { b = b * 3 + __ballot_sync(~0u, (l ^ r) & 1);
      if (l & 1) { for (int i = 0; i < 10 * l; ++i) n += (i * l) ^ n; } } y[l] = b + (n == -12345);"""
    y = run_one(body, 32, np.uint32)
    odd, even = 0xAAAAAAAA, 0x55555555
    assert set(y) == {((odd * 3 + even) * 3 + odd) & 0xFFFFFFFF}


@pytest.mark.parametrize("arch", ARCHES)
def test_block_reduction_in_static_and_dynamic_shared_memory(arch: str) -> None:
    body = """extern __shared__ float d[]; __shared__ float s[128]; int t = threadIdx.x; s[t] = x[t]; d[t] = 2 * x[t]; __syncthreads();
      for (int o = 64; o; o >>= 1) { if (t < o) { s[t] += s[t + o]; d[t] += d[t + o]; } __syncthreads(); } if (t == 0) { y[0] = s[0]; y[1] = d[0]; }"""
    y = run_one(body, 2, block=128, shared=512, arch=arch)
    np.testing.assert_allclose(y, [X[:128].sum(), 2 * X[:128].sum()], rtol=1e-4)


def test_barrier_reductions_and_named_barriers() -> None:
    body = """int t = threadIdx.x; int c = __syncthreads_count(t % 3 == 0), o = __syncthreads_or(t == 99), a = __syncthreads_and(t >= 0);
      __shared__ int s[128]; if (t < 64) { s[t] = t; asm volatile("bar.sync 1, 64;" ::: "memory"); y[t] = s[63 - t]; }
      else { s[t] = 2 * t; asm volatile("bar.sync 2, 64;" ::: "memory"); y[t] = s[191 - t] + c + 1000 * (o != 0) + 10000 * (a != 0); }"""
    y = run_one(body, 128, np.int32, block=128)
    t = np.arange(128)
    np.testing.assert_array_equal(y, np.where(t < 64, 63 - t, 2 * (191 - t) + 43 + 11000))


@pytest.mark.parametrize("arch", ARCHES)
def test_atomics(arch: str) -> None:
    body = """int t = blockIdx.x * 64 + threadIdx.x; atomicAdd(y, t); atomicMax(y + 1, t); atomicMin(y + 2, -t); atomicOr(y + 3, 1 << (t & 7));
      atomicXor(y + 4, t); atomicInc((unsigned*)y + 5, 9); atomicExch(y + 6, 5); atomicCAS(y + 7, 0, 42); atomicSub(y + 8, 1); int o = atomicAdd(y + 9, 1); y[16 + o] = 1;"""
    y = run_one(body, 16 + 128, np.int32, block=64, grid=2, arch=arch)
    assert list(y[:10]) == [127 * 64, 127, -127, 255, 0, 128 % 10, 5, 42, -128, 128]
    assert y[16:].sum() == 128


def test_float_and_double_atomics_and_the_cas_idiom() -> None:
    before = """__device__ void add(float* p, float v) { int* q = (int*)p; int o = *q, a; do { a = o; o = atomicCAS(q, a, __float_as_int(v + __int_as_float(a))); } while (o != a); }"""
    y = run_one("atomicAdd(y, x[threadIdx.x]); add(y + 1, x[threadIdx.x]);", 2, block=64, before=before)
    np.testing.assert_allclose(y, [X[:64].sum()] * 2, rtol=1e-4)
    z = run_one("atomicAdd(y, (double)x[threadIdx.x]);", 1, np.float64, block=64)
    np.testing.assert_allclose(z, [X[:64].astype(np.float64).sum()], rtol=1e-12)


def test_shared_histogram() -> None:
    body = """__shared__ int h[8]; int t = threadIdx.x; if (t < 8) h[t] = 0; __syncthreads(); atomicAdd(&h[t % 5], 1); __syncthreads(); if (t < 8) y[t] = h[t];"""
    assert list(run_one(body, 8, np.int32, block=96)) == [20, 19, 19, 19, 19, 0, 0, 0]


def test_vector_loads_and_stores() -> None:
    body = "int t = threadIdx.x; float4 a = ((const float4*)x)[t]; float2 b = ((const float2*)x)[t]; ((float4*)y)[t] = make_float4(a.w, a.z + b.x, a.y, a.x + b.y);"
    y = run_one(body, 128).reshape(32, 4)
    a, b = X[:128].reshape(32, 4), X[:64].reshape(32, 2)
    np.testing.assert_array_equal(y, np.stack([a[:, 3], a[:, 2] + b[:, 0], a[:, 1], a[:, 0] + b[:, 1]], 1))


def test_narrow_loads_and_stores() -> None:
    body = """int t = threadIdx.x; const unsigned char* u = (const unsigned char*)x; const short* s = (const short*)x;
      y[t] = u[t] + ((const signed char*)x)[t] * 1000 + s[t]; """
    y = run_one(body, 32, np.int32)
    u = X.view(np.uint8)[:32].astype(np.int32)
    np.testing.assert_array_equal(
        y, u + u.astype(np.uint8).view(np.int8).astype(np.int32) * 1000 + X.view(np.int16)[:32]
    )


def test_cache_operators_and_hints() -> None:
    body = """int t = threadIdx.x; float a; asm volatile("ld.global.nc.L1::no_allocate.L2::128B.f32 %0, [%1];" : "=f"(a) : "l"(x + t));
      float s = a + __ldcs(x + t) + __ldcg(x + t) + __ldg(x + t) + __ldlu(x + t) + __ldcv(x + t); __stcs(y + t, s); __stcg(y + 32 + t, s); __stwt(y + 64 + t, s);"""
    np.testing.assert_allclose(run_one(body, 96).reshape(3, 32), np.tile(X[:32] * 6, (3, 1)), rtol=1e-6)


@pytest.mark.parametrize("arch", ARCHES)
def test_local_arrays_constants_and_calls(arch: str) -> None:
    before = """__constant__ float c[4] = {1.f, 2.f, 3.f, 4.f}; __device__ const int perm[4] = {2, 0, 3, 1}; struct P { int a; float b; double c; };
      __device__ __noinline__ P twist(P p, int k) { p.a += k; p.b *= 2; p.c += p.b; return p; }
      __device__ __noinline__ float total(const float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }"""
    body = """int t = threadIdx.x; float a[8]; for (int i = 0; i < 8; ++i) a[i] = x[i]; a[t & 7] += 1; a[(t * 3) & 7] *= 2; P p = {t, x[t], 0.5}; p = twist(p, perm[t & 3]);
      y[t] = a[(t + 1) & 7] + c[t & 3] + p.a + p.b + (float)p.c + total(x, t & 3);"""
    y = run_one(body, 32, before=before, arch=arch)
    expected = []
    for t in range(32):
        a = X[:8].copy()
        a[t & 7] += 1
        a[(t * 3) & 7] *= 2
        b = 2 * X[t]
        expected.append(
            a[(t + 1) & 7] + (t & 3) + 1 + t + [2, 0, 3, 1][t & 3] + b + (0.5 + float(b)) + X[: t & 3].sum()
        )
    np.testing.assert_allclose(y, np.array(expected, np.float32), rtol=1e-5, atol=1e-5)


def test_switch_loops_and_early_exit() -> None:
    body = """int t = threadIdx.x; if (t == 31) return; int v = 0; switch (t % 7) { case 0: v = 5; break; case 1: v = t * 3; break; case 2: v = -t; break;
      case 3: v = t ^ 9; break; case 4: v = t << 2; break; case 5: v = 77; break; default: v = 1; } for (int i = 0; i < t; ++i) { if (i == 11) break; v += i & 1 ? i : -1; } y[t] = v;"""
    y = run_one(body, 32, np.int32)
    for t in range(31):
        v = [5, t * 3, -t, t ^ 9, t << 2, 77, 1][t % 7]
        for i in range(min(t, 11)):
            v += i if i & 1 else -1
        assert y[t] == v, t
    assert y[31] == 0


def test_jump_table() -> None:
    body = """int t = threadIdx.x & 3, r; asm volatile("{ .reg .u32 q; ts: .branchtargets A0, A1, A2, A3; brx.idx %1, ts; A0: mov.u32 %0, 10; bra DONE; "
      "A1: mov.u32 %0, 20; bra DONE; A2: mov.u32 %0, 30; bra DONE; A3: mov.u32 %0, 40; DONE: }" : "=r"(r) : "r"(t)); y[threadIdx.x] = r;"""
    np.testing.assert_array_equal(run_one(body, 32, np.int32), (np.arange(32) % 4 + 1) * 10)


def test_generic_addresses_of_every_space() -> None:
    before = "__device__ __noinline__ float get(const float* p, int i) { return p[i]; }"
    body = """__shared__ float s[32]; int t = threadIdx.x; s[t] = 10 + t; float l[4] = {1, 2, 3, (float)t}; __syncwarp();
      const float* p = t < 8 ? (const float*)s : t < 16 ? (const float*)l : x; y[t] = get(p, t & 3); y[32 + t] = __isShared(s) + 2 * __isShared(x) + 4 * __isGlobal(x) + 8 * __isLocal(l);"""
    y = run_one(body, 64, before=before)
    expected = [10 + t % 4 if t < 8 else [1, 2, 3, t][t % 4] if t < 16 else X[t % 4] for t in range(32)]
    np.testing.assert_array_equal(y[:32], np.array(expected, np.float32))
    assert set(y[32:]) == {13.0}


def test_grid_and_block_indices_in_three_dimensions() -> None:
    body = """int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      y[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;"""
    y = np.zeros(2 * 3 * 2 * 4 * 3 * 5, np.int32)
    assert execute(f"{HEAD}(int* y) {{ {body} }}", {}, {"y": y}, (2, 3, 2), (4, 3, 5)).status == "ok"
    np.testing.assert_array_equal(y, (np.arange(12)[:, None] * 1000 + np.arange(60)).ravel())


def test_lane_masks_and_partial_last_warp() -> None:
    body = """unsigned lt, ge; asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt)); asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge)); y[threadIdx.x] = lt ^ ge ^ __activemask();"""
    y = run_one(body, 40, np.uint32, block=40)
    assert set(y[:32]) == {0}
    assert set(y[32:]) == {0xFFFFFF00}


def test_decoupled_spin_on_an_earlier_warp_does_not_starve_it() -> None:
    body = """__shared__ volatile int flag; if (threadIdx.x == 0) flag = 0; __syncthreads(); if (threadIdx.x == 0) { while (atomicAdd((int*)&flag, 0) == 0); y[0] = 7; }
      if (threadIdx.x == 63) atomicExch((int*)&flag, 1);"""
    assert run_one(body, 1, np.int32, block=64)[0] == 7


def test_spin_lock_inside_a_warp() -> None:
    source = (
        HEAD
        + """(int* lock, int* y) { bool done = false; while (!done) { if (atomicCAS(lock, 0, 1) == 0) { __threadfence();
      atomicAdd(y, 1); __threadfence(); atomicExch(lock, 0); done = true; } } }"""
    )
    lock, y = np.zeros(1, np.int32), np.zeros(1, np.int32)
    assert execute(source, {}, {"lock": lock, "y": y}, block=64, initialised=True).status == "ok"
    assert (lock[0], y[0]) == (0, 64)


def test_same_input_same_result_and_same_traffic() -> None:
    source = HEAD + "(const float* x, float* y) { atomicAdd(y + threadIdx.x % 3, x[threadIdx.x * 7 % 256]); }"
    seen = []
    for _ in range(2):
        y = np.zeros(3, np.float32)
        result = execute(source, {"x": X}, {"y": y}, 4, 128, initialised=True)
        seen.append((y.tobytes(), result.traffic))
    assert seen[0] == seen[1]


def test_traffic_of_known_patterns() -> None:
    coalesced = HEAD + "(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    y = np.zeros(256, np.float32)
    t = execute(coalesced, {"x": X}, {"y": y}, 1, 256).traffic[0]
    assert (t.load_requests, t.load_sectors, t.load_bytes, t.l1_missed_sectors) == (8, 32, 1024, 32)
    assert (t.store_requests, t.store_sectors, t.cold_sectors, t.wavefronts) == (8, 32, 64, 16)
    assert (t.warps, t.blocks, t.max_warp_loads, t.sum_warp_loads) == (8, 1, 1, 8)
    strided = HEAD + "(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x * 8]; }"
    t = execute(strided, {"x": X}, {"y": y}, 1, 32).traffic[0]
    assert (t.load_sectors, t.l1_missed_sectors, t.wavefronts) == (32, 32, 8 + 1)
    scattered = HEAD + "(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x * 1000]; }"
    t = execute(scattered, {"x": np.zeros(32000, np.float32)}, {"y": y}, 1, 32).traffic[0]
    assert (t.load_sectors, t.wavefronts) == (32, 32 + 1)
    repeated = (
        HEAD + "(const float* x, float* y) { y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x] + x[threadIdx.x + 32]; }"
    )
    one = execute(repeated, {"x": X}, {"y": y}, 8, 32, limits=EmulatorLimits(multiprocessors=1)).traffic[0]
    many = execute(repeated, {"x": X}, {"y": y}, 8, 32).traffic[0]
    assert (one.load_sectors, one.l1_missed_sectors, many.l1_missed_sectors) == (64, 8, 64)


@pytest.mark.parametrize(("stride", "waves"), [(1, 1), (2, 2), (4, 4), (3, 1), (32, 8 + 1)])
def test_bank_conflicts(stride: int, waves: int) -> None:
    body = f"__shared__ float s[1024]; int t = threadIdx.x; for (int i = t; i < 1024; i += 32) s[i] = 1; __syncwarp(); y[t] = s[t * {stride}];"
    y = np.zeros(32, np.float32)
    t = execute(f"{HEAD}(float* y) {{ {body} }}", {}, {"y": y}).traffic[0]
    assert t.shared_requests == 33
    assert t.shared_wavefronts == 32 + (32 if stride == 32 else waves)
