"""Coverage kernels: barriers, warp primitives, asynchronous copies, matrix instructions, atomics, parameters."""

# ruff: noqa: E501  (CUDA and PTX sources)

from typing import Any

import numpy as np

from tests.judge.emulate.coverage_base import HALF, CoverageKernel, N, bf16, cuda, from_bf16

RNG = np.random.default_rng(11)
T = np.arange(128)
X = RNG.standard_normal(256).astype(np.float32)
INTS = RNG.integers(-(2**31), 2**31, N).astype(np.int32)
SHARED = "__shared__ __align__(16) float s[1024]; unsigned to = (unsigned)__cvta_generic_to_shared(s);"
WAIT = 'asm volatile("cp.async.wait_all;" ::: "memory"); __syncthreads();'


def copy(operator: str, size: int, target: str, source: str, more: str = "") -> str:
    """One cp.async statement."""
    return (f'asm volatile("cp.async.{operator}.shared.global [%0], [%1], {size}{", %2" if more else ""};" '
            f':: "r"({target}), "l"({source}){", " + more if more else ""} : "memory");')  # fmt: skip


BARRIERS: list[CoverageKernel] = [
    cuda("bar_red_popc", 'int n; asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 4; bar.red.popc.u32 %0, 1, 96, p; }" : "=r"(n) : "r"(t % 7) : "memory"); y[t] = n;',
         (), np.full(96, (T[:96] % 7 > 4).sum(), np.int32), block=96),
    cuda("barrier_red_and_or_negated", """int n, m; asm volatile("{ .reg .pred p, q, r; setp.lt.s32 p, %2, 95; barrier.cta.red.or.aligned.pred q, 3, !p; barrier.cta.red.and.aligned.pred r, 4, p;
         selp.b32 %0, 1, 0, q; selp.b32 %1, 1, 0, r; }" : "=r"(n), "=r"(m) : "r"(t) : "memory"); y[t] = n + 2 * m;""".replace("\n         ", " "), (), np.full(96, 1, np.int32), block=96),
    cuda("named_barriers_two_halves", """__shared__ int s[128]; s[t] = t; if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory"); else asm volatile("barrier.sync 2, 64;" ::: "memory"); y[t] = s[t ^ 63];""", (), (T ^ 63).astype(np.int32), block=128),
    cuda("barrier_number_in_a_register", """__shared__ int s[128]; s[t] = 3 * t; asm volatile("barrier.sync %0, %1;" :: "r"(1 + t / 64), "r"(64) : "memory"); y[t] = s[t ^ 63];""", (), (3 * (T ^ 63)).astype(np.int32), block=128),
    cuda("bar_arrive_producer_consumer", """__shared__ int s[64]; if (t < 64) { s[t] = t * t; asm volatile("bar.arrive 5, 128;" ::: "memory"); y[t] = -1; }
         else { asm volatile("bar.sync 5, 128;" ::: "memory"); y[t] = s[127 - t]; }""", (), np.where(T < 64, -1, (127 - T) ** 2).astype(np.int32), block=128),
    cuda("bar_arrive_and_back", """__shared__ int s[32]; int sum = 0; for (int i = 0; i < 3; ++i) { if (t < 32) { s[t] = 10 * i + t; asm volatile("bar.arrive 1, 64; bar.sync 2, 64;" ::: "memory"); }
         else { asm volatile("bar.sync 1, 64;" ::: "memory"); sum += s[63 - t]; asm volatile("bar.arrive 2, 64;" ::: "memory"); } } y[t] = sum;""",
         (), np.where(T[:64] < 32, 0, 30 + 3 * (63 - T[:64])).astype(np.int32)),
    cuda("named_barrier_counts_whole_warps", """__shared__ int s[40]; s[t] = t; asm volatile("bar.sync 3, 64;" ::: "memory"); y[t] = s[39 - t];""", (), np.arange(39, -1, -1).astype(np.int32), block=40),
]  # fmt: skip


def _reduce(operation: str, values: Any, mask: int) -> int:
    chosen = [int(v) for k, v in enumerate(values) if mask >> k & 1]
    result = chosen[0]
    for v in chosen[1:]:
        result = {"add": result + v, "min": min(result, v), "max": max(result, v), "and": result & v, "or": result | v,
                  "xor": result ^ v}[operation]  # fmt: skip
    return result & 0xFFFFFFFF


def _redux(operation: str, kind: str) -> CoverageKernel:
    values = INTS[:32] if kind == "s32" else INTS[:32].view(np.uint32)
    odd, even = 0xAAAAAAAA, 0x55555555
    expected = [_reduce(operation, values, odd if k & 1 else even) for k in range(32)]
    body = (f'int r; if (t & 1) asm volatile("redux.sync.{operation}.{kind} %0, %1, 0xaaaaaaaa;" : "=r"(r) : "r"(a[t])); '
            f'else asm volatile("redux.sync.{operation}.{kind} %0, %1, 0x55555555;" : "=r"(r) : "r"(a[t])); y[t] = r;')  # fmt: skip
    return cuda(f"redux_{operation}_{kind}", body, (INTS,), np.array(expected, np.uint32), block=32)


KEYS = (np.arange(32) * 7 % 5).astype(np.int64) << 33
SAME = np.array([sum(1 << k for k in range(32) if KEYS[k] == KEYS[m]) for m in range(32)], np.uint32)
WARP: list[CoverageKernel] = [
    *(_redux(operation, kind) for operation, kind in (("add", "s32"), ("min", "s32"), ("max", "s32"), ("min", "u32"), ("max", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"))),
    cuda("match_any_64", "y[t] = __match_any_sync(~0u, a[t]);", (KEYS,), SAME, block=32),
    cuda("match_all_64", "int p, q; unsigned m = __match_all_sync(~0u, a[5] + (t > 40), &p), n = __match_all_sync(~0u, a[t], &q); y[t] = (m & 0xffff) + 65536 * p + 131072 * q + n;", (KEYS,), np.full(32, 0x1FFFF, np.uint32), block=32),
    cuda("elect_and_activemask", 'int e; asm volatile("{ .reg .pred p; .reg .b32 r; elect.sync r|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(e)); if (t < 7) e += __popc(__activemask()); y[t] = e;', (),
         np.where(T[:32] < 7, 7 + (T[:32] == 0), 0).astype(np.int32), block=32),
    cuda("cluster_registers_without_a_cluster", "y[t] = __clusterRelativeBlockRank() + 10 * __clusterSizeInBlocks() + 100 * __clusterDimIsSpecified() + 1000 * __clusterIdx().x + 10000 * __clusterGridDimInClusters().x;", (),
         (10 + 1000 * (T // 32) + 20000).astype(np.int32)[:64], grid=2, block=32),
    cuda("address_spaces", """__shared__ float s[4]; float l[4]; l[t & 3] = 1; s[t & 3] = 1; __syncthreads(); y[t] = __isGlobal(a) + 2 * __isShared(s) + 4 * __isLocal(l) + 8 * __isShared(a) + 16 * __isGlobal(s + (int)l[t & 3]);""", (X,), np.full(32, 7, np.int32), block=32),
    cuda("harmless_hints", 'asm volatile("prefetch.global.L1 [%0]; prefetch.global.L2 [%0]; applypriority.global.L2::evict_normal [%0], 128;" :: "l"(a)); __nanosleep(10); y[t] = a[t];', (X,), X[:64]),
]  # fmt: skip

STAGES = """__shared__ __align__(16) float s[2][256]; float sum = 0; unsigned to[2] = {(unsigned)__cvta_generic_to_shared(s[0]), (unsigned)__cvta_generic_to_shared(s[1])};
for (int i = 0; i < 2; ++i) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to[i] + 16 * t), "l"(a + 256 * i + 4 * t) : "memory"); asm volatile("cp.async.commit_group;" ::: "memory"); }
for (int i = 0; i < 6; ++i) { asm volatile("cp.async.wait_group 1;" ::: "memory"); __syncthreads(); for (int k = 0; k < 4; ++k) sum += s[i & 1][(4 * t + 4 + k) % 256]; __syncthreads();
  if (i < 4) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(to[i & 1] + 16 * t), "l"(a + 256 * (i + 2) + 4 * t) : "memory"); asm volatile("cp.async.commit_group;" ::: "memory"); }
y[t] = sum;"""
LONG = RNG.integers(-8, 8, 6 * 256).astype(np.float32)
PARTIAL = np.zeros((32, 16), np.uint8)
for _lane in range(32):
    PARTIAL[_lane, : _lane % 17] = X.view(np.uint8).reshape(-1, 16)[_lane, : _lane % 17]
COPIES: list[CoverageKernel] = [
    *(cuda(f"cp_async_{operator}_{size}", f"{SHARED} {copy(operator, size, f'to + {size} * t', f'(const char*)a + {size} * t')} {WAIT} for (int k = t; k < {size * 16}; k += 64) y[k] = s[{size * 16 - 1} - k];",
           (X,), X[: size * 16][::-1]) for operator, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16))),
    cuda("cp_async_source_size", f"{SHARED} {copy('ca', 16, 'to + 16 * t', 'a + 4 * t', chr(34) + 'r' + chr(34) + '(t % 17)')} {WAIT} for (int k = t; k < 128; k += 32) y[k] = s[k];", (X,), PARTIAL.view(np.float32).ravel(), block=32),
    cuda("cp_async_source_size_zero_reads_nothing", f"{SHARED} {copy('cg', 16, 'to + 16 * t', 'a + 4 * t + (t > 15 ? 1 << 20 : 0)', chr(34) + 'r' + chr(34) + '(t > 15 ? 0 : 16)')} {WAIT} for (int k = t; k < 128; k += 32) y[k] = s[k];",
         (X,), np.where(np.arange(128) < 64, X[:128], 0).astype(np.float32), block=32),
    cuda("cp_async_ignore_source", f'{SHARED} asm volatile("{{ .reg .pred p; setp.gt.s32 p, %2, 9; cp.async.ca.shared.global [%0], [%1], 4, p; }}" :: "r"(to + 4 * t), "l"(a + t), "r"(t) : "memory"); {WAIT} y[t] = s[t];',
         (X,), np.where(T[:32] > 9, 0, X[:32]).astype(np.float32), block=32),
    cuda("cp_async_guarded", f'{SHARED} s[t] = -1; __syncthreads(); asm volatile("{{ .reg .pred p; setp.gt.s32 p, %2, 9; @p cp.async.ca.shared.global [%0], [%1], 4; }}" :: "r"(to + 4 * t), "l"(a + t), "r"(t) : "memory"); {WAIT} y[t] = s[t];',
         (X,), np.where(T[:32] > 9, X[:32], -1).astype(np.float32), block=32),
    cuda("cp_async_two_stages", STAGES, (LONG,), np.array([LONG.reshape(6, 256)[:, (4 * t + 4 + np.arange(4)) % 256].sum() for t in range(64)], np.float32), archs=("sm_80", "sm_90")),
    cuda("cp_async_own_data_needs_no_barrier", f"{SHARED} {copy('ca', 4, 'to + 4 * t', 'a + t')} asm volatile(\"cp.async.wait_all;\" ::: \"memory\"); y[t] = s[t];", (X,), X[:64]),
]  # fmt: skip


def _mma(
    name: str, shape: str, kind: str, out: str, a: Any, b: Any, c: Any, expected: Any, **options: Any
) -> CoverageKernel:
    """y = a b + c through one mma.sync; a: rows x k, b: k x 8, c: rows x 8, as codes of their types."""
    rows, inner = (int(v) for v in (shape[1:].split("n")[0], shape.split("k")[1]))
    each = 4 // a.dtype.itemsize if a.dtype.itemsize < 8 else 1
    word, constraint = ("double", "d") if kind == "f64" else ("unsigned", "r")
    bits = 8 * a.dtype.itemsize
    count_b = inner // (4 * each)
    count_a = count_b * rows // 8
    count_c = rows // 4 // (2 if out == "f16" else 1)
    acc, acc_constraint = {
        "f32": ("float", "f"),
        "f64": ("double", "d"),
        "s32": ("int", "r"),
        "f16": ("unsigned", "r"),
    }[out]

    def gather(place: str) -> str:
        if kind == "f64":
            return f"double v = {place};"
        return f"unsigned v = 0; for (int e = 0; e < {each}; ++e) v |= (unsigned){place} << ({bits} * e);"

    part = "" if kind == "f64" else " + e"
    row = "g" if rows == 8 else "(g + 8 * (r % 2))"
    at_a = f"a[{row} * {inner} + {each} * q + {4 * each} * (r / {rows // 8}){part}]"
    at_b = f"b[({each} * q + {4 * each} * r{part}) * 8 + g]"
    body = f"""int g = t / 4, q = t % 4; {word} A[{count_a}], B[{count_b}]; {acc} C[{count_c}];
for (int r = 0; r < {count_a}; ++r) {{ {gather(at_a)} A[r] = v; }}
for (int r = 0; r < {count_b}; ++r) {{ {gather(at_b)} B[r] = v; }}
"""
    if out == "f16":
        body += (
            "for (int r = 0; r < 2; ++r) C[r] = c[(g + 8 * r) * 8 + 2 * q] | c[(g + 8 * r) * 8 + 2 * q + 1] << 16;\n"
        )
    else:
        body += f"for (int i = 0; i < {count_c}; ++i) C[i] = c[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2];\n"
    names, start = [], 0
    for count in (count_c, count_a, count_b):
        names.append("{" + ", ".join(f"%{start + k}" for k in range(count)) + "}")
        start += count
    outputs = ", ".join(f'"+{acc_constraint}"(C[{k}])' for k in range(count_c))
    inputs = ", ".join(
        [f'"{constraint}"(A[{k}])' for k in range(count_a)] + [f'"{constraint}"(B[{k}])' for k in range(count_b)]
    )
    body += f'asm volatile("mma.sync.aligned.{shape}.row.col.{out}.{kind}.{kind}.{out} {names[0]}, {names[1]}, {names[2]}, {names[0]};" : {outputs} : {inputs});\n'
    if out == "f16":
        body += "for (int r = 0; r < 2; ++r) { y[(g + 8 * r) * 8 + 2 * q] = C[r] & 0xffff; y[(g + 8 * r) * 8 + 2 * q + 1] = C[r] >> 16; }"
    else:
        body += f"for (int i = 0; i < {count_c}; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2] = C[i];"
    return cuda(name, body, (a.ravel(), b.ravel(), c.ravel()), expected.ravel(), block=32, **options)


def _matrices(rows: int, inner: int) -> tuple[Any, Any, Any]:
    return tuple(RNG.standard_normal(shape) for shape in ((rows, inner), (inner, 8), (rows, 8)))  # type: ignore[return-value]


def _float_mma(shape: str, kind: str, out: str) -> CoverageKernel:
    rows, inner = (int(v) for v in (shape[1:].split("n")[0], shape.split("k")[1]))
    a, b, c = _matrices(rows, inner)
    encode = {
        "f16": lambda x: x.astype(np.float16).view(np.uint16),
        "bf16": bf16,
        "tf32": lambda x: x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000),
        "f64": lambda x: x,
    }[kind]
    decode = {
        "f16": lambda x: x.view(np.float16).astype(np.float64),
        "bf16": lambda x: from_bf16(x).astype(np.float64),
        "tf32": lambda x: x.view(np.float32).astype(np.float64),
        "f64": lambda x: x,
    }[kind]
    a, b = encode(a), encode(b)
    c = c.astype({"f32": np.float32, "f16": np.float16, "f64": np.float64}[out])
    expected = decode(a) @ decode(b) + c
    if out == "f16":
        return _mma(
            f"mma_{shape}_{kind}_{out}",
            shape,
            kind,
            out,
            a,
            b,
            c.view(np.uint16),
            expected.astype(np.float16).view(np.uint16),
            rtol=2e-3,
            view="float16",
        )
    return _mma(
        f"mma_{shape}_{kind}_{out}",
        shape,
        kind,
        out,
        a,
        b,
        c,
        expected.astype(c.dtype),
        rtol=1e-13 if out == "f64" else 2e-6,
    )


def _integer_mma(shape: str, kind: str) -> CoverageKernel:
    inner = int(shape.split("k")[1])
    low, high = (-128, 128) if kind == "s8" else (0, 256)
    a, b = RNG.integers(low, high, (16, inner)), RNG.integers(low, high, (inner, 8))
    c = RNG.integers(-1000, 1000, (16, 8)).astype(np.int32)
    return _mma(
        f"mma_{shape}_{kind}",
        shape,
        kind,
        "s32",
        a.astype(np.uint8),
        b.astype(np.uint8),
        c,
        (a @ b + c).astype(np.int32),
    )


TILE = RNG.standard_normal((16, 16)).astype(np.float16)
OTHER = RNG.standard_normal((16, 8)).astype(np.float16)
LDMATRIX = """__shared__ __align__(16) unsigned short s[16 * 16], z[16 * 8]; for (int k = t; k < 256; k += 32) s[k] = a[k]; for (int k = t; k < 128; k += 32) z[k] = b[k]; __syncwarp();
unsigned p = (unsigned)__cvta_generic_to_shared(s + (t % 16) * 16 + 8 * (t / 16)), w = (unsigned)__cvta_generic_to_shared(z + (t % 16) * 8), A[4], B[2]; float C[4] = {0, 0, 0, 0};
asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(A[0]), "=r"(A[1]), "=r"(A[2]), "=r"(A[3]) : "r"(p) : "memory");
asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(B[0]), "=r"(B[1]) : "r"(w) : "memory");
asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]) : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
for (int i = 0; i < 4; ++i) y[(t / 4 + 8 * (i / 2)) * 8 + 2 * (t % 4) + i % 2] = C[i];"""
MATRICES: list[CoverageKernel] = [
    *(_float_mma(*row) for row in (("m16n8k8", "f16", "f32"), ("m16n8k16", "f16", "f32"), ("m16n8k16", "f16", "f16"), ("m16n8k8", "bf16", "f32"), ("m16n8k16", "bf16", "f32"), ("m16n8k4", "tf32", "f32"), ("m16n8k8", "tf32", "f32"), ("m8n8k4", "f64", "f64"))),
    *(_integer_mma(*row) for row in (("m16n8k16", "s8"), ("m16n8k32", "s8"), ("m16n8k32", "u8"))),
    cuda("ldmatrix_and_mma", LDMATRIX, (TILE.view(np.uint16).ravel(), OTHER.view(np.uint16).ravel()), (TILE.astype(np.float64) @ OTHER).astype(np.float32).ravel(), block=32, rtol=1e-6, archs=("sm_80", "sm_90")),
]  # fmt: skip

SMALL = RNG.integers(-4, 5, 64).astype(np.float32)
HALVES = SMALL.astype(np.float16)


def _sums(buckets: int, values: Any) -> Any:
    return np.array([values[k::buckets].sum() for k in range(buckets)], np.float32)


ZERO16 = np.zeros(8, np.uint16)
ATOMICS: list[CoverageKernel] = [
    cuda("atomic_add_half2", "atomicAdd((__half2*)y + t % 4, __floats2half2_rn(a[t], -a[t]));", (SMALL,), np.stack([_sums(4, SMALL), -_sums(4, SMALL)], 1).astype(np.float16).ravel().view(np.uint16), before=ZERO16, head=HALF, archs=("sm_80", "sm_90")),
    cuda("atomic_add_bfloat162", "atomicAdd((__nv_bfloat162*)y + t % 4, __floats2bfloat162_rn(a[t], 2 * a[t]));", (SMALL,), bf16(np.stack([_sums(4, SMALL), 2 * _sums(4, SMALL)], 1)).ravel(), before=ZERO16, head=HALF),
    cuda("atomic_add_half_returns_the_old_value", "__half o = atomicAdd((__half*)y + t, __float2half(a[t])); o = atomicAdd((__half*)y + t, o);", (SMALL,), (2 * 3.0 + SMALL).astype(np.float16).view(np.uint16), before=np.full(64, 3, np.float16).view(np.uint16), head=HALF),
    cuda("atomic_add_bfloat16", "atomicAdd((__nv_bfloat16*)y + t % 8, __float2bfloat16(a[t]));", (SMALL,), bf16(_sums(8, SMALL)), before=ZERO16, head=HALF),
    cuda("red_shared_half2", '__shared__ unsigned s[4]; if (t < 4) s[t] = 0; __syncthreads(); __half2 v = __float2half2_rn(a[t]); asm volatile("red.shared.add.noftz.f16x2 [%0], %1;" :: "r"((unsigned)__cvta_generic_to_shared(s + t % 4)), "r"(*(unsigned*)&v) : "memory"); __syncthreads(); if (t < 4) ((unsigned*)y)[t] = s[t];',
         (SMALL,), np.repeat(_sums(4, SMALL), 2).astype(np.float16).view(np.uint16), head=HALF),
    cuda("red_v2_f32", 'asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" :: "l"(y + 2 * (t % 4)), "f"(a[t]), "f"(1.f) : "memory");', (SMALL,), np.stack([_sums(4, SMALL), np.full(4, 16)], 1).astype(np.float32).ravel(), before=np.zeros(8, np.float32)),
    cuda("red_v4_f32", 'asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %1, %2};" :: "l"(y + 4 * (t % 2)), "f"(a[t]), "f"(1.f) : "memory");', (SMALL,), np.repeat(np.stack([_sums(2, SMALL), np.full(2, 32)], 1)[:, None], 2, 1).astype(np.float32).ravel(), before=np.zeros(8, np.float32)),
    cuda("red_v4_f16x2", 'unsigned h; asm volatile("{ .reg .b16 p; cvt.rn.f16.f32 p, %1; mov.b32 %0, {p, p}; }" : "=r"(h) : "f"(a[t])); asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %1, %1, %1};" :: "l"(y), "r"(h) : "memory");', (SMALL,), np.repeat(SMALL.sum(), 8).astype(np.float16).view(np.uint16), before=ZERO16),
    cuda("atomic_float4_returns_the_old_values", "float4 o = atomicAdd((float4*)y + t, make_float4(1, 2, 3, a[t])); o = atomicAdd((float4*)y + t, o);", (SMALL,),
         np.stack([np.full(64, 1.0), np.full(64, 4.0), np.full(64, 7.0), 6 + SMALL], 1).astype(np.float32).ravel(), before=np.tile(np.array([0, 1, 2, 3], np.float32), 64), archs=("sm_90", "sm_100")),
    cuda("atomic_cas_16", "unsigned short old = atomicCAS(y + t, (unsigned short)(t & 1), (unsigned short)(1000 + t)); if (old == 0) atomicCAS(y + t, (unsigned short)1000, (unsigned short)7);", (), np.where(T[:64] & 1, 0, np.where(T[:64] == 0, 7, 1000 + T[:64])).astype(np.uint16), before=np.zeros(64, np.uint16)),
    cuda("atomic_minmax_and_or_64", "atomicMax((unsigned long long*)y, (unsigned long long)t << 40); atomicMin((long long*)y + 1, -((long long)t << 40)); atomicOr((unsigned long long*)y + 2, 1ull << t); atomicExch((unsigned long long*)y + 3, 5ull); atomicAdd((unsigned long long*)y + 4, 1ull << 40);", (),
         np.array([63 << 40, -(63 << 40), -1, 5, 64 << 40], np.int64), before=np.zeros(5, np.int64)),
]  # fmt: skip

STRUCT = "struct S { float v[8]; int n; double d; short2 h; };\n"
VALUES = np.arange(1, 9, dtype=np.float32)
PACKED = (
    VALUES.tobytes()
    + np.int32(5).tobytes()
    + bytes(4)
    + np.float64(0.25).tobytes()
    + np.array([7, -9], np.int16).tobytes()
    + bytes(4)
)
PTX_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
PTX_VECTORS = (
    PTX_HEAD
    + """.visible .entry k(.param .align 16 .b8 s[48], .param .u64 out) {
.reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .b16 %h<5>;
ld.param.v4.u32 {%r1, _, %r2, %r3}, [s+16]; ld.param.v2.u16 {%h1, %h2}, [s+2]; ld.param.s8 %r4, [s+47]; ld.param.u64 %rd1, [out];
mov.u32 %r5, %tid.x; mul.wide.u32 %rd2, %r5, 4; add.s64 %rd1, %rd1, %rd2;
mov.b64 %rd3, {%r1, %r2}; mov.b64 {_, %r6}, %rd3; mov.b64 {%r7, %r8}, %rd3;
mov.b32 %r9, {%h2, %h1}; xor.b32 %r6, %r6, %r3; add.u32 %r6, %r6, %r4; add.u32 %r6, %r6, %r7; xor.b32 %r6, %r6, %r9; st.global.u32 [%rd1], %r6; ret; }
"""
)
PTX_REGISTER_PARAMETER = (
    PTX_HEAD
    + """.visible .entry k(.param .align 8 .b8 s[64], .param .u64 out) {
.reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f64 %d<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; mov.b64 %rd3, s; add.s64 %rd4, %rd3, %rd2; ld.param.f64 %d1, [%rd4];
cvta.param.u64 %rd5, %rd4; ld.f64 %d2, [%rd5]; add.f64 %d1, %d1, %d2; cvta.to.global.u64 %rd6, %rd1; add.s64 %rd6, %rd6, %rd2; st.global.f64 [%rd6], %d1; ret; }
"""
)
BYTES = RNG.integers(0, 256, 48).astype(np.uint8)


def _vectors() -> Any:
    words, shorts = BYTES.view(np.uint32), BYTES.view(np.uint16)
    last = int(BYTES[47].view(np.int8))
    value = (int(words[6]) ^ int(words[7])) + last + int(words[4]) & 0xFFFFFFFF
    return np.full(32, value ^ (int(shorts[2]) | int(shorts[1]) << 16), np.uint32)


def _struct(name: str, body: str, expected: Any, qualifier: str = "", more: str = "", **options: Any) -> CoverageKernel:
    return cuda(
        name,
        body,
        (PACKED,),
        np.asarray(expected, np.float32),
        head=STRUCT + more,
        parameters=f"const {qualifier} S s",
        block=32,
        **options,
    )


LANE = np.arange(32)
PARAMETERS: list[CoverageKernel] = [
    _struct("struct_by_value", "y[t] = s.v[3] + s.n + (float)s.d + s.h.y;", np.full(32, 4 + 5 + 0.25 - 9), archs=("sm_80", "sm_90", "sm_100")),
    _struct("struct_indexed", "y[t] = s.v[t & 7] * s.n;", VALUES[LANE & 7] * 5, archs=("sm_80", "sm_100")),
    _struct("struct_grid_constant", "const S* p = &s; y[t] = p->v[t & 7] + get(p, t);", VALUES[LANE & 7] + VALUES[(LANE + 1) & 7], qualifier="__grid_constant__", more="__device__ __noinline__ float get(const S* p, int i) { return p->v[(i + 1) & 7]; }\n", archs=("sm_80", "sm_90", "sm_100")),
    _struct("struct_through_a_call", "y[t] = f(s, t).v[1];", VALUES[1] + VALUES[LANE & 7] * 5, more="__device__ __noinline__ S f(S s, int i) { s.v[1] += s.v[i & 7] * s.n; return s; }\n", archs=("sm_90",)),
    CoverageKernel("ptx_parameter_vectors", PTX_VECTORS, (BYTES.tobytes(),), _vectors(), block=32),
    CoverageKernel("ptx_parameter_through_a_register", PTX_REGISTER_PARAMETER, (np.arange(8.0).tobytes(),), 2 * np.arange(8.0), block=8),
]  # fmt: skip
KERNELS = [*BARRIERS, *WARP, *COPIES, *MATRICES, *ATOMICS, *PARAMETERS]
