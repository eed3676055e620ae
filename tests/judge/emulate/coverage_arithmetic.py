"""Coverage kernels: integers, bits, directed roundings, f16 and bf16, fp8, packed floats."""

# ruff: noqa: E501  (CUDA sources)

from fractions import Fraction
from typing import Any

import numpy as np

from tests.judge.emulate.coverage_base import (
    HALF,
    CoverageKernel,
    N,
    asm,
    bf16,
    cuda,
    directed,
    exactly,
    from_bf16,
    root,
    small_float,
    to_small_float,
)

RNG = np.random.default_rng(3)
U = RNG.integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32)
V = RNG.integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32)
W = RNG.integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32)
U64 = RNG.integers(0, 2**63, N, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
V64 = RNG.integers(0, 2**63, N, dtype=np.uint64)
POSITION = RNG.integers(0, 70, N).astype(np.uint32)
LENGTH = RNG.integers(0, 70, N).astype(np.uint32)
F = (RNG.standard_normal(N) * 10).astype(np.float32)
G = (RNG.standard_normal(N) * np.exp2(RNG.integers(-30, 30, N))).astype(np.float32)
P = (np.abs(RNG.standard_normal(N)) * 10 + 0.1).astype(np.float32)
D = RNG.standard_normal(N) * np.exp2(RNG.integers(-40, 40, N))
E = RNG.standard_normal(N)
H = RNG.standard_normal(N).astype(np.float16)
K = (RNG.standard_normal(N) * 3).astype(np.float16)
L, M = RNG.standard_normal((2, N)).astype(np.float16)
H[:4] = [0.0, -0.0, np.inf, np.nan]
K[2:6] = [1.0, 2.0, np.nan, 6e-8]
HB, KB, LB = bf16(H), bf16(K), bf16(L)
HX, KX, LX = (x.view(np.uint32) for x in (H, K, L))  # pairs, N / 2
HBX, KBX, LBX = (x.view(np.uint32) for x in (HB, KB, LB))


def bits(x: int, position: int, length: int, width: int, signed: bool) -> int:
    """bfe by its definition in the PTX ISA, bit by bit."""
    position, length = position & 255, length & 255
    sign_place = min(position + length - 1, width - 1)
    sign = (x >> sign_place) & 1 if signed and length else 0
    result = 0
    for i in range(width):
        inside = i < length and position + i < width
        result |= ((x >> (position + i)) & 1 if inside else sign) << i
    return result


def insert(x: int, into: int, position: int, length: int, width: int) -> int:
    """bfi by its definition, bit by bit."""
    for i in range(length & 255):
        if (position & 255) + i < width:
            place = (position & 255) + i
            into = (into & ~(1 << place)) | ((x >> i) & 1) << place
    return into


def nth_set(mask: int, base: int, offset: int) -> int:
    """fns by its definition."""
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    place, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += step
    return 0xFFFFFFFF


def permute(x: int, y: int, selector: int) -> int:
    """prmt by its definition."""
    source = (x | y << 32).to_bytes(8, "little")
    out = []
    for k in range(4):
        nibble = selector >> (4 * k) & 15
        byte = source[nibble & 7]
        out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def each(function: Any, *arrays: Any, kind: Any = np.uint32) -> Any:
    """A Python function element by element."""
    mask = (1 << (8 * np.dtype(kind).itemsize)) - 1
    unsigned = f"u{np.dtype(kind).itemsize}"
    return np.array([function(*(int(v) for v in row)) & mask for row in zip(*arrays, strict=True)], unsigned).view(kind)


def signed_bytes(x: int) -> list[int]:
    """Four signed bytes of a word."""
    return [b - 256 if b > 127 else b for b in (x & 0xFFFFFFFF).to_bytes(4, "little")]


def halves(x: int, signed: bool) -> list[int]:
    """Two 16-bit integers of a word."""
    parts = [x & 0xFFFF, x >> 16 & 0xFFFF]
    return [p - 65536 if signed and p > 32767 else p for p in parts]


def mask_of(start: int, width: int, clamp: bool) -> int:
    """bmsk."""
    if not clamp:
        start, width = start & 31, width & 31
    return sum(1 << k for k in range(32) if start <= k < start + width)


def extended(x: int, width: int, clamp: bool, signed: bool) -> int:
    """szext."""
    width = min(width, 32) if clamp else width & 31
    value = x & ((1 << width) - 1)
    return value - (1 << width) if signed and width and value >> (width - 1) else value


MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123), "rc8": (0, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip
BASE32 = (POSITION % 32).astype(np.uint32)
OFFSET = RNG.integers(-6, 7, N).astype(np.int32)

INTEGERS: list[CoverageKernel] = [
    asm("bfe_u64", "bfe.u64 %0, %1, %2, %3;", "l", "lrr", (U64, POSITION, LENGTH), each(lambda x, p, n: bits(x, p, n, 64, False), U64, POSITION, LENGTH, kind=np.uint64)),
    asm("bfe_s64", "bfe.s64 %0, %1, %2, %3;", "l", "lrr", (U64, POSITION, LENGTH), each(lambda x, p, n: bits(x, p, n, 64, True), U64, POSITION, LENGTH, kind=np.uint64)),
    asm("bfe_s32", "bfe.s32 %0, %1, %2, %3;", "r", "rrr", (U, POSITION, LENGTH), each(lambda x, p, n: bits(x, p, n, 32, True), U, POSITION, LENGTH)),
    asm("bfi_b64", "bfi.b64 %0, %1, %2, %3, %4;", "l", "llrr", (U64, V64, POSITION, LENGTH), each(lambda x, y, p, n: insert(x, y, p, n, 64), U64, V64, POSITION, LENGTH, kind=np.uint64)),
    asm("bfi_b32", "bfi.b32 %0, %1, %2, %3, %4;", "r", "rrrr", (U, V, POSITION, LENGTH), each(lambda x, y, p, n: insert(x, y, p, n, 32), U, V, POSITION, LENGTH)),
    cuda("dp4a_signed", "y[t] = __dp4a(a[t], b[t], 7);", (U.view(np.int32), V.view(np.int32)), each(lambda x, z: sum(p * q for p, q in zip(signed_bytes(x), signed_bytes(z), strict=True)) + 7, U, V, kind=np.int32), archs=("sm_80", "sm_100")),
    cuda("dp4a_unsigned", "y[t] = __dp4a(a[t], b[t], 7u);", (U, V), each(lambda x, z: sum(p * q for p, q in zip(x.to_bytes(4), z.to_bytes(4), strict=True)) + 7, U, V)),
    asm("dp4a_mixed", "dp4a.u32.s32 %0, %1, %2, %3;", "r", "rrr", (U, V, W), each(lambda x, z, c: sum(p * q for p, q in zip(x.to_bytes(4, "little"), signed_bytes(z), strict=True)) + c, U, V, W)),
    asm("dp2a_lo", "dp2a.lo.s32.s32 %0, %1, %2, %3;", "r", "rrr", (U, V, W), each(lambda x, z, c: sum(p * q for p, q in zip(halves(x, True), signed_bytes(z)[:2], strict=True)) + c, U, V, W)),
    asm("dp2a_hi", "dp2a.hi.u32.u32 %0, %1, %2, %3;", "r", "rrr", (U, V, W), each(lambda x, z, c: sum(p * q for p, q in zip(halves(x, False), z.to_bytes(4, "little")[2:], strict=True)) + c, U, V, W)),
    cuda("fns", "y[t] = __fns(a[t], b[t], c[t]);", (U, BASE32, OFFSET), each(nth_set, U, BASE32, OFFSET), archs=("sm_80", "sm_90")),
    asm("bmsk_clamp", "bmsk.clamp.b32 %0, %1, %2;", "r", "rr", (POSITION, LENGTH), each(lambda p, n: mask_of(p, n, True), POSITION, LENGTH)),
    asm("bmsk_wrap", "bmsk.wrap.b32 %0, %1, %2;", "r", "rr", (POSITION, LENGTH), each(lambda p, n: mask_of(p, n, False), POSITION, LENGTH)),
    asm("szext_clamp_s32", "szext.clamp.s32 %0, %1, %2;", "r", "rr", (U, LENGTH), each(lambda x, n: extended(x, n, True, True), U, LENGTH)),
    asm("szext_wrap_u32", "szext.wrap.u32 %0, %1, %2;", "r", "rr", (U, LENGTH), each(lambda x, n: extended(x, n, False, False), U, LENGTH)),
    asm("lop3_or_predicate", "{ .reg .pred p, q; .reg .b32 d; setp.gt.u32 q, %3, 2147483648; lop3.or.b32 d|p, %1, %2, 255, 0x80, q; selp.b32 %0, d, 77, p; }", "r", "rrr", (U, V, W),
        np.where(((U & V & 255) != 0) | (W > 2**31), U & V & 255, 77)),
    *(asm(f"prmt_{mode}", f"prmt.b32.{mode} %0, %1, %2, %3;", "r", "rrr", (U, V, W), each(lambda x, z, s, m=mode: permute(x, z, MODES[m][s & 3]), U, V, W)) for mode in MODES),
    asm("prmt_signs", "prmt.b32 %0, %1, %2, %3;", "r", "rrr", (U, V, W), each(lambda x, z, s: permute(x, z, s & 0xFFFF), U, V, W)),
    cuda("vabsdiff4", "y[t] = __vabsdiffu4(a[t], b[t]);", (U, V), each(lambda x, z: int.from_bytes(bytes(abs(p - q) for p, q in zip(x.to_bytes(4), z.to_bytes(4), strict=True))), U, V)),
    cuda("vsads4", "y[t] = __vsads4(a[t], b[t]);", (U, V), each(lambda x, z: sum(abs(p - q) for p, q in zip(signed_bytes(x), signed_bytes(z), strict=True)), U, V)),
    cuda("vmin_vmax_s16x2", "y[t] = __vmaxs2(a[t], b[t]) ^ __vminu2(a[t], b[t]);", (U, V),
         (np.maximum(U.view(np.int16), V.view(np.int16)).view(np.uint32) ^ np.minimum(U.view(np.uint16), V.view(np.uint16)).view(np.uint32)), archs=("sm_80", "sm_90", "sm_100")),
    cuda("relu_integers", "y[t] = __viaddmax_s32_relu(a[t], b[t], -5) + __vimax_s16x2_relu(a[t], b[t]);", (U.view(np.int32) >> 2, V.view(np.int32) >> 2),
         np.maximum(np.maximum((U.view(np.int32) >> 2) + (V.view(np.int32) >> 2), -5), 0)
         + np.maximum(np.maximum((U.view(np.int32) >> 2).view(np.int16), (V.view(np.int32) >> 2).view(np.int16)), 0).view(np.int32)),
    cuda("mul24", "y[t] = __mul24(a[t], b[t]);", (U.view(np.int32), V.view(np.int32)), each(lambda x, z: (x << 8 >> 8) * (z << 8 >> 8), (U << 8).view(np.int32) >> 8, (V << 8).view(np.int32) >> 8, kind=np.int32)),
    cuda("funnel_shifts", "y[t] = __funnelshift_rc(a[t], b[t], c[t]) ^ __funnelshift_lc(a[t], b[t], c[t]) ^ __funnelshift_l(a[t], b[t], c[t]);", (U, V, POSITION),
         each(lambda x, z, n: ((x | z << 32) >> min(n, 32)) ^ (((x | z << 32) << min(n, 32)) >> 32) ^ (((x | z << 32) << (n & 31)) >> 32), U, V, POSITION)),
    asm("cvt_saturating", "{ .reg .s32 q; cvt.sat.s32.s64 q, %1; mov.b32 %0, q; }", "r", "l", (U64,), each(lambda x: max(-(2**31), min(2**31 - 1, x)), U64.view(np.int64))),
    asm("unpack_bytes", "{ .reg .b8 p, q, r, s; mov.b32 {p, q, r, s}, %1; mov.b32 %0, {s, r, q, p}; }", "r", "r", (U,), U.byteswap(), archs=("sm_100",)),
    asm("set_with_boolean", "{ .reg .pred p; setp.lt.u32 p, %1, 2147483648; set.gt.or.u32.s32 %0, %2, %1, !p; }", "r", "rr", (U, V), np.where((V.view(np.int32) > U.view(np.int32)) | (U >= 2**31), 0xFFFFFFFF, 0).astype(np.uint32)),
]  # fmt: skip


def _directed_cases() -> list[CoverageKernel]:
    found = []
    sources = {np.float32: (F, G, P), np.float64: (D, E, np.abs(D))}
    for kind, (x, z, positive) in sources.items():
        name, letter = ("f32", "f") if kind is np.float32 else ("f64", "d")
        for mode in ("rz", "rm", "rp"):
            rows: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
                "add": ("%1, %2", lambda p, q: p + q, (x, z)),
                "mul": ("%1, %2", lambda p, q: p * q, (x, z)),
                "div": ("%1, %2", lambda p, q: p / q, (x, z)),
                "fma": ("%1, %2, %3", lambda p, q, r: p * q + r, (x, z, positive)),
                "rcp": ("%1", lambda p: 1 / p, (x,)),
            }
            values = [directed(kind, mode, exactly(function, *arrays)) for _, function, arrays in rows.values()]
            body = f"{C[name]} r;\n"
            for k, (operation, (operands, _, arrays)) in enumerate(rows.items()):
                inputs = ", ".join(f'"{letter}"({v}[t])' for v in "abc"[: len(arrays)])
                body += f'asm volatile("{operation}.{mode}.{name} %0, {operands};" : "={letter}"(r) : {inputs}); y[{k * N} + t] = r;\n'
            body += f'asm volatile("sqrt.{mode}.{name} %0, %1;" : "={letter}"(r) : "{letter}"(c[t])); y[{len(rows) * N} + t] = r;'
            values.append(root(kind, mode, positive))
            found.append(cuda(f"directed_{mode}_{name}", body, (x, z, positive), np.concatenate(values)))
    return found


C = {"f32": "float", "f64": "double"}
EXTREMES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 65504, 65519.9, 65520, 6e-8, 2.9e-8, 2.98e-8, 6.1e-5, 1e-40, 448, 464, 464.1, 480, 57344, 61440, 61441, 0.0009765625, 0.00146484375, 1.5, -1.0625],
                    np.float32)  # fmt: skip
WIDE = np.concatenate([EXTREMES, G[: N - len(EXTREMES)]]).astype(np.float32)
LONGS = np.concatenate([U64[:32].view(np.int64), -(U64[32:].view(np.int64) >> np.arange(32))])


def _exact(x: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in x]


def _f16(x: Any, mode: str) -> Any:
    """Finite values within f16's range, rounded in a direction (numpy's nextafter works on float16)."""
    found = []
    for exact in x:
        low, high = (np.float16(v) for v in _half_neighbours(exact))
        found.append({"rm": low, "rp": high, "rz": low if exact > 0 else high}[mode])
    return np.array(found, np.float16)


def _half_neighbours(exact: Fraction) -> tuple[Any, Any]:
    near = np.float16(float(exact))
    value = Fraction(float(near))
    if value == exact:
        return near, near
    other = np.nextafter(near, np.float16(-np.inf if value > exact else np.inf))
    return (other, near) if value > exact else (near, other)


with np.errstate(all="ignore"):
    FUSED = np.where(np.isfinite(H.astype(np.float64)), H.astype(np.float64) * K + L, np.nan).astype(np.float16)
    FUSED[2] = np.float16(np.inf)
    X32, Z32 = from_bf16(HB), from_bf16(KB)
    SMALL = np.where(np.isfinite(WIDE), WIDE, 1).astype(np.float32)
    FITS = np.where((np.abs(SMALL) < 65504) & (SMALL != 0), SMALL, 3.3).astype(np.float32)


def _bf16_of(x: int) -> int:
    """An integer -> bfloat16 code: one rounding, to nearest even."""
    low = int(directed(np.float32, "rz", [Fraction(x)])[0].view(np.uint32)) >> 16
    values = [Fraction(float(from_bf16(np.uint16(c)))) for c in (low, low + 1)]
    below, above = (abs(v - x) for v in values)
    return low if below < above or (below == above and low % 2 == 0) else low + 1


def _canonical(x: Any, nan: int = 0x7FFF) -> Any:
    """uint16 codes with one NaN."""
    codes = np.asarray(x).view(np.uint16)
    big = 0x7C00 if np.asarray(x).dtype == np.float16 else 0x7F80
    return np.where((codes & 0x7FFF) > big, nan, codes).astype(np.uint16)


def _pairs(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint32)


def _maximum(x: Any, z: Any, propagate: bool) -> Any:
    with np.errstate(all="ignore"):
        value = np.where(propagate & (np.isnan(x) | np.isnan(z)), np.float16(np.nan), np.fmax(x, z))
    return np.where((x == 0) & (z == 0) & ~(np.signbit(x) & np.signbit(z)), np.float16(0), value).astype(np.float16)


with np.errstate(all="ignore"):
    HALVES: list[CoverageKernel] = [
        asm("f16_add_sub_mul", "{ .reg .b16 p, q; add.f16 p, %1, %2; sub.f16 q, p, %1; mul.f16 q, q, %2; max.f16 %0, q, q; }", "h", "hh", (H.view(np.uint16), K.view(np.uint16)), _canonical(((H + K) - H) * K)),
        asm("f16_fma", "{ .reg .b16 p; fma.rn.f16 p, %1, %2, %3; max.f16 %0, p, p; }", "h", "hhh", (H.view(np.uint16), K.view(np.uint16), L.view(np.uint16)), _canonical(FUSED)),
        asm("f16_fma_relu", "fma.rn.relu.f16 %0, %1, %2, %3;", "h", "hhh", (H.view(np.uint16), K.view(np.uint16), L.view(np.uint16)), _canonical(np.where(FUSED <= 0, np.float16(0), FUSED))),
        asm("f16_fma_sat", "fma.rn.sat.f16 %0, %1, %2, %3;", "h", "hhh", (H.view(np.uint16), K.view(np.uint16), L.view(np.uint16)), np.where(np.isnan(FUSED), np.float16(0), np.clip(FUSED, 0, 1)).astype(np.float16).view(np.uint16)),
        asm("f16x2_max", "max.f16x2 %0, %1, %2;", "r", "rr", (HX, KX), _pairs(_canonical(_maximum(H, K, False))), block=N // 2),
        asm("f16x2_max_nan", "max.NaN.f16x2 %0, %1, %2;", "r", "rr", (HX, KX), _pairs(_canonical(_maximum(H, K, True))), block=N // 2),
        asm("f16x2_neg_abs", "{ .reg .b32 p; abs.f16x2 p, %1; neg.f16x2 %0, p; }", "r", "r", (HX,), HX | np.uint32(0x80008000), block=N // 2),
        asm("f16_setp", "{ .reg .pred p; setp.ltu.f16 p, %1, %2; selp.u16 %0, 3, 5, p; }", "h", "hh", (H.view(np.uint16), K.view(np.uint16)), np.where(~(H >= K), 3, 5).astype(np.uint16)),
        asm("f16x2_setp", "{ .reg .pred p, q; .reg .b32 c; setp.gt.f16x2 p|q, %1, %2; selp.u32 c, 1, 0, p; @q add.u32 c, c, 2; mov.u32 %0, c; }", "r", "rr", (HX, KX), ((H > K)[::2] + 2 * (H > K)[1::2]).astype(np.uint32), block=N // 2),
        asm("f16x2_set", "set.le.f16x2.f16x2 %0, %1, %2;", "r", "rr", (HX, KX), _pairs((H <= K).astype(np.float16)), block=N // 2),
        asm("f16x2_mask", "set.neu.u32.f16x2 %0, %1, %2;", "r", "rr", (HX, KX), _pairs(np.where((H != K) | np.isnan(H) | np.isnan(K), 0xFFFF, 0).astype(np.uint16)), block=N // 2),
        cuda("half_intrinsics", "__half2 p = ((const __half2*)a)[t], q = ((const __half2*)b)[t]; __half2 r = __hfma2(p, q, __hadd2_sat(p, q)); y[2 * t] = __low2float(r); y[2 * t + 1] = __high2float(r);", (M, L),
             (M.astype(np.float64) * L + np.clip(M + L, 0, 1)).astype(np.float16).astype(np.float32), head=HALF, block=N // 2, archs=("sm_80", "sm_90", "sm_100")),
        cuda("half_functions", "__half h = a[t]; y[t] = __half2float(hexp(h)); y[64 + t] = __half2float(hsqrt(__habs(h))); y[128 + t] = __half2float(hlog2(__habs(h))); y[192 + t] = __half2float(hcos(h)); y[256 + t] = __half2float(hrcp(h));", (L,),
             np.concatenate([np.exp(L.astype(np.float64)), np.sqrt(np.abs(L.astype(np.float64))), np.log2(np.abs(L.astype(np.float64))), np.cos(L.astype(np.float64)), 1 / L.astype(np.float64)]).astype(np.float32), head=HALF, rtol=2e-3),
        asm("f16_ex2_tanh", "{ .reg .b16 p, q; ex2.approx.f16 p, %1; tanh.approx.f16 q, %1; mov.b32 %0, {p, q}; }", "r", "h", (L.view(np.uint16),),
            _pairs(np.stack([np.exp2(L.astype(np.float64)), np.tanh(L.astype(np.float64))], 1).astype(np.float16)).ravel(), rtol=4e-3, view="float16"),
        asm("bf16_mul", "mul.bf16 %0, %1, %2;", "h", "hh", (bf16(F), bf16(G)), bf16(from_bf16(bf16(F)) * from_bf16(bf16(G)))),
        asm("bf16_fma", "fma.rn.bf16 %0, %1, %2, %3;", "h", "hhh", (bf16(F), bf16(G), bf16(P)),
            bf16(directed(np.float32, "rn", [Fraction(float(v)) for v in from_bf16(bf16(F)).astype(np.float64) * from_bf16(bf16(G)) + from_bf16(bf16(P))])), archs=("sm_80", "sm_90")),
        asm("bf16x2_min_abs", "{ .reg .b32 p; min.bf16x2 p, %1, %2; abs.bf16x2 %0, p; }", "r", "rr", (HBX, KBX), _pairs(_canonical(bf16(np.fmin(X32, Z32))) & 0x7FFF), block=N // 2),
        asm("bf16x2_set", "set.gt.bf16x2.bf16x2 %0, %1, %2;", "r", "rr", (HBX, KBX), _pairs(np.where(X32 > Z32, 0x3F80, 0).astype(np.uint16)), block=N // 2),
        cuda("bfloat_intrinsics", "__nv_bfloat162 p = ((const __nv_bfloat162*)a)[t]; float2 f = __bfloat1622float2(__hmul2(p, p)); y[2 * t] = f.x; y[2 * t + 1] = f.y;", (bf16(F),),
             from_bf16(bf16(from_bf16(bf16(F)) ** 2)), head=HALF, block=N // 2, archs=("sm_80", "sm_90", "sm_100")),
        asm("cvt_f16_nearest", "{ .reg .b16 p; cvt.rn.f16.f32 p, %1; mov.b16 %0, p; }", "h", "f", (WIDE,), _canonical(WIDE.astype(np.float16))),
        *(asm(f"cvt_{mode}_f16", f"cvt.{mode}.f16.f32 %0, %1;", "h", "f", (FITS,), _f16(_exact(FITS), mode).view(np.uint16)) for mode in ("rz", "rm", "rp")),
        asm("cvt_f16_f64", "cvt.rn.f16.f64 %0, %1;", "h", "d", (np.where(np.arange(N) % 2 == 0, 1 + 2.0**-11 + 2.0**-40, D),), np.where(np.arange(N) % 2 == 0, 1 + 2.0**-11 + 2.0**-40, D).astype(np.float16).view(np.uint16)),
        asm("cvt_relu_f16", "cvt.rn.relu.f16.f32 %0, %1;", "h", "f", (SMALL,), np.where(SMALL <= 0, np.float16(0), SMALL.astype(np.float16)).view(np.uint16)),
        asm("cvt_bf16_s64", "cvt.rn.bf16.s64 %0, %1;", "h", "l", (LONGS,), np.array([_bf16_of(int(x)) for x in LONGS], np.uint16)),
        asm("cvt_f32_s64_down", "cvt.rm.f32.s64 %0, %1;", "f", "l", (LONGS,), directed(np.float32, "rm", [Fraction(int(x)) for x in LONGS])),
        asm("cvt_f64_u64_up", "cvt.rp.f64.u64 %0, %1;", "d", "l", (U64,), directed(np.float64, "rp", [Fraction(int(x)) for x in U64])),
        asm("cvt_pack_f16x2", "cvt.rz.f16x2.f32 %0, %1, %2;", "r", "ff", (FITS, F), _pairs(np.stack([_f16(_exact(F), "rz"), _f16(_exact(FITS), "rz")], 1)).ravel()),
        asm("cvt_tf32_away", "cvt.rna.tf32.f32 %0, %1;", "r", "f", (F,), (F.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000), archs=("sm_80", "sm_90")),
        asm("cvt_tf32_even", "cvt.rn.tf32.f32 %0, %1;", "r", "f", (F,), (F.view(np.uint32) + np.uint32(0xFFF) + (F.view(np.uint32) >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)),
        *(asm(f"cvt_{name}_pack", f"cvt.rn.satfinite.{name}x2.f32 %0, %1, %2;", "h", "ff", (SMALL, F), np.array([to_small_float(p, e, m) << 8 | to_small_float(q, e, m) for p, q in zip(SMALL, F, strict=True)], np.uint16)) for name, e, m in (("e4m3", 4, 3), ("e5m2", 5, 2))),
        *(asm(f"cvt_{name}_unpack", f"{{ .reg .b32 p; cvt.rn.f16x2.{name}x2 p, %1; max.f16x2 %0, p, p; }}", "r", "h", (np.arange(256, dtype=np.uint16) * 257,),
              _pairs(_canonical(np.repeat(np.array([small_float(c, e, m) for c in range(256)]), 2).astype(np.float16))), block=256) for name, e, m in (("e4m3", 4, 3), ("e5m2", 5, 2))),
        asm("f32x2_fma", "fma.rn.f32x2 %0, %1, %2, %3;", "l", "lll", tuple(x.view(np.uint64) for x in (F, P, F)), (F.astype(np.longdouble) * P + F).astype(np.float32).view(np.uint64), block=N // 2, archs=("sm_100",)),
        cuda("f32x2_intrinsics", "float2 p = ((const float2*)a)[t], q = ((const float2*)b)[t]; ((float2*)y)[t] = __fadd2_rn(__fmul2_rn(p, q), p);", (F, P), F * P + F, block=N // 2, archs=("sm_100",)),
    ]  # fmt: skip
KERNELS = [*INTEGERS, *_directed_cases(), *HALVES]
