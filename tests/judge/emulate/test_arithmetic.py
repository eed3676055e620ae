"""What lanes compute, against numpy: one small kernel a row, on three architectures."""

# ruff: noqa: E501  (CUDA sources)

import math
from typing import Any

import numpy as np
import pytest

from tests.judge.emulate.emulator_harness import execute

N = 64
RNG = np.random.default_rng(7)
I32 = RNG.integers(-(2**31), 2**31, N, dtype=np.int64).astype(np.int32)
J32 = np.where(np.arange(N) % 5 == 0, RNG.integers(1, 9, N), RNG.integers(-(2**31), 2**31, N)).astype(np.int32)
J32[J32 == 0] = 3
U32 = I32.view(np.uint32)
I64 = RNG.integers(-(2**62), 2**62, N, dtype=np.int64)
J64 = RNG.integers(1, 2**20, N, dtype=np.int64)
F = (RNG.standard_normal(N) * 10).astype(np.float32)
G = (RNG.standard_normal(N) + 3).astype(np.float32)
D = RNG.standard_normal(N) * 10
SMALL = RNG.integers(0, 200, N).astype(np.int32)

with np.errstate(all="ignore"):
    ROWS: list[tuple[str, str, str, str, Any, Any, Any]] = [
        # name, type of a, type of b, type of y, expression, (a, b), expected
        ("add", "int", "int", "int", "a + b", (I32, J32), I32 + J32),
        ("sub_mul", "int", "int", "int", "a * b - a", (I32, J32), I32 * J32 - I32),
        ("mul_wide", "int", "int", "long long", "(long long)a * b", (I32, J32), I32.astype(np.int64) * J32),
        ("mul_wide_u", "unsigned", "int", "unsigned long long", "(unsigned long long)a * (unsigned)b",
         (U32, J32), U32.astype(np.uint64) * J32.view(np.uint32)),
        ("mulhi", "int", "int", "int", "__mulhi(a, b)", (I32, J32), ((I32.astype(np.int64) * J32) >> 32).astype(np.int32)),
        ("umulhi64", "unsigned long long", "unsigned long long", "unsigned long long", "__umul64hi(a, b)",
         (I64.view(np.uint64), J64.view(np.uint64)),
         np.array([(int(x) * int(z)) >> 64 for x, z in zip(I64.view(np.uint64), J64, strict=True)], np.uint64)),
        ("div", "int", "int", "int", "a / b", (I32, J32),
         np.array([math.trunc(int(x) / int(z)) for x, z in zip(I32, J32, strict=True)], np.int64).astype(np.int32)),
        ("rem_u", "unsigned", "unsigned", "unsigned", "a % b", (U32, J32.view(np.uint32)), U32 % J32.view(np.uint32)),
        ("div64", "long long", "long long", "long long", "a / b", (I64, J64),
         np.array([int(abs(int(x)) // int(z)) * (1 if x > 0 else -1) for x, z in zip(I64, J64, strict=True)], np.int64)),
        ("rem64", "long long", "long long", "long long", "a % b", (I64, J64), np.fmod(I64, J64)),
        ("shifts", "int", "int", "int", "(a >> (b & 31)) ^ (a << (b & 15))", (I32, SMALL),
         (I32 >> (SMALL & 31)) ^ (I32 << (SMALL & 15))),
        ("shift64", "unsigned long long", "int", "unsigned long long", "(a >> (b & 63)) + (a << (b & 63))",
         (I64.view(np.uint64), SMALL),
         (I64.view(np.uint64) >> (SMALL & 63).astype(np.uint64)) + (I64.view(np.uint64) << (SMALL & 63).astype(np.uint64))),
        ("minmax", "int", "int", "int", "min(a, b) - max(a, 5)", (I32, J32), np.minimum(I32, J32) - np.maximum(I32, 5)),
        ("logic", "int", "int", "int", "(a & b) | (~a ^ 0x55)", (I32, J32), (I32 & J32) | (~I32 ^ 0x55)),
        ("popc", "unsigned", "int", "int", "__popc(a) + __clz(a) * 100 + __ffs(a) * 10000", (U32, J32),
         np.array([bin(x).count("1") + (32 - int(x).bit_length()) * 100 + ((int(x) & -int(x)).bit_length()) * 10000
                   for x in U32], np.int32)),
        ("popc64", "unsigned long long", "int", "int", "__popcll(a) + 100 * __clzll(a)", (I64.view(np.uint64), J32),
         np.array([bin(x).count("1") + 100 * (64 - int(x).bit_length()) for x in I64.view(np.uint64)], np.int32)),
        ("brev", "unsigned", "int", "unsigned", "__brev(a)", (U32, J32),
         np.array([int(f"{x:032b}"[::-1], 2) for x in U32], np.uint32)),
        ("prmt", "unsigned", "unsigned", "unsigned", "__byte_perm(a, b, 0x7610)", (U32, J32.view(np.uint32)),
         (U32 & 0xFFFF) | (J32.view(np.uint32) & 0xFFFF0000)),
        ("funnel", "unsigned", "unsigned", "unsigned", "__funnelshift_l(a, b, 7)", (U32, J32.view(np.uint32)),
         (J32.view(np.uint32) << 7) | (U32 >> 25)),
        ("sad", "int", "int", "unsigned", "__sad(a, b, 7u)", (SMALL, J32 % 100),
         (np.abs(SMALL - J32 % 100) + 7).astype(np.uint32)),
        ("select", "int", "int", "int", "a < b ? a + 1 : b * 3", (I32, J32), np.where(I32 < J32, I32 + 1, J32 * 3)),
        ("char", "int", "int", "int", "(signed char)a + (unsigned char)b", (I32, J32),
         I32.astype(np.int8).astype(np.int32) + J32.astype(np.uint8).astype(np.int32)),
        ("short", "int", "int", "int", "(short)a * (unsigned short)b", (I32, J32),
         I32.astype(np.int16).astype(np.int32) * J32.astype(np.uint16).astype(np.int32)),
        ("abs64", "long long", "long long", "long long", "llabs(a) - b", (I64, J64), np.abs(I64) - J64),
        ("fadd", "float", "float", "float", "a + b", (F, G), F + G),
        ("fmul_add", "float", "float", "float", "__fadd_rn(__fmul_rn(a, b), a)", (F, G), (F * G) + F),
        ("fma", "float", "float", "float", "fmaf(a, b, a)", (F, G),
         (F.astype(np.longdouble) * G + F).astype(np.float32)),
        ("fdiv", "float", "float", "float", "a / b", (F, G), F / G),
        ("sqrt", "float", "float", "float", "sqrtf(fabsf(a))", (F, G), np.sqrt(np.abs(F))),
        ("minmax_f", "float", "float", "float", "fminf(a, b) + fmaxf(a, -b)", (F, G),
         np.minimum(F, G) + np.maximum(F, -G)),
        ("round", "float", "float", "float", "floorf(a) + ceilf(b) + rintf(a) + truncf(b)", (F, G),
         ((np.floor(F) + np.ceil(G)) + np.rint(F)) + np.trunc(G)),
        ("double", "double", "double", "double", "a * b + a / b", (D, D[::-1].copy()), None),
        ("cvt_f2i", "float", "float", "int", "(int)a + __float2int_rn(b)", (F, G),
         F.astype(np.int32) + np.rint(G).astype(np.int32)),
        ("cvt_saturate", "float", "float", "int", "(int)(a * 1e12f)", (F, G),
         np.where(F > 0, 2**31 - 1, -(2**31)).astype(np.int32)),
        ("cvt_i2f", "int", "int", "float", "(float)a", (I32, J32), I32.astype(np.float32)),
        ("cvt_u64", "unsigned long long", "int", "float", "(float)a", (I64.view(np.uint64), J32),
         I64.view(np.uint64).astype(np.float32)),
        ("cvt_d", "double", "double", "float", "(float)a", (D, D), D.astype(np.float32)),
        ("cvt_rz", "int", "int", "float", "__int2float_rz(a)", (I32, J32),
         np.where(np.abs(I32.astype(np.float32).astype(np.float64)) > np.abs(I32.astype(np.float64)),
                  np.nextafter(I32.astype(np.float32), np.float32(0)), I32.astype(np.float32))),
        ("fadd_rd", "float", "float", "float", "__fadd_rd(a, b)", (F, G),
         np.where((F + G).astype(np.float64) > F.astype(np.float64) + G, np.nextafter(F + G, np.float32(-np.inf)), F + G)),
        ("compare_nan", "float", "float", "int", "(a < b) + 2 * !(a >= b) + 4 * isnan(a / (b - b))", (F, G),
         (F < G) * 1 + 2 * ~(F >= G) + 4 * 0),
        ("bits", "float", "float", "int", "__float_as_int(a) ^ __float_as_int(b)", (F, G),
         F.view(np.int32) ^ G.view(np.int32)),
        ("hilo", "double", "double", "double", "__hiloint2double(__double2hiint(a), __double2loint(b))", (D, D), D),
    ]  # fmt: skip
ROWS = [r if r[6] is not None else (*r[:6], D * D[::-1] + D / D[::-1]) for r in ROWS]
TYPES = {"int": np.int32, "unsigned": np.uint32, "long long": np.int64, "unsigned long long": np.uint64,
         "float": np.float32, "double": np.float64}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize("row", ROWS, ids=[r[0] for r in ROWS])
def test_expression(row: Any, arch: str) -> None:
    name, ta, tb, ty, expression, (a, b), expected = row
    source = (
        f'extern "C" __global__ void k(const {ta}* A, const {tb}* B, {ty}* Y) {{ int i = blockIdx.x * blockDim.x + '
        f"threadIdx.x; {ta} a = A[i]; {tb} b = B[i]; Y[i] = {expression}; }}"
    )
    y = np.zeros(N, TYPES[ty])
    result = execute(source, {"A": a.astype(TYPES[ta]), "B": b.astype(TYPES[tb])}, {"Y": y}, grid=2, arch=arch)
    assert (result.status, result.message) == ("ok", "")
    if name == "double":  # contracted to an fma by the compiler
        np.testing.assert_allclose(y, expected, rtol=1e-14)
    elif name == "compare_nan":
        np.testing.assert_array_equal(y & 3, expected)
    else:
        np.testing.assert_array_equal(y, np.asarray(expected).astype(TYPES[ty]))


FUNCTIONS = [
    ("expf(a * 0.1f)", lambda a: np.exp(a * np.float32(0.1)), 3e-6),
    ("logf(fabsf(a))", lambda a: np.log(np.abs(a)), 1e-5),
    ("sinf(a) + cosf(a)", lambda a: np.sin(a) + np.cos(a), 1e-5),
    ("sinf(a * 1e6f)", lambda a: np.sin((a * np.float32(1e6)).astype(np.float64)), 1e-5),
    ("tanhf(a)", np.tanh, 1e-5),
    ("powf(fabsf(a), 1.5f)", lambda a: np.abs(a.astype(np.float64)) ** 1.5, 1e-5),
    ("rsqrtf(fabsf(a))", lambda a: 1 / np.sqrt(np.abs(a)), 1e-6),
    ("__expf(a * 0.1f)", lambda a: np.exp(a * np.float32(0.1)), 1e-5),
    ("__fdividef(a, 3.f)", lambda a: a / np.float32(3), 1e-6),
    ("erff(a)", lambda a: np.array([math.erf(v) for v in a]), 1e-5),
]


@pytest.mark.parametrize(("expression", "reference", "tolerance"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_math_function(expression: str, reference: Any, tolerance: float) -> None:
    source = f'extern "C" __global__ void k(const float* A, float* Y) {{ int i = threadIdx.x; float a = A[i]; Y[i] = {expression}; }}'
    y = np.zeros(N, np.float32)
    assert execute(source, {"A": F}, {"Y": y}, block=N).status == "ok"
    np.testing.assert_allclose(y, reference(F), rtol=tolerance, atol=tolerance)


def test_fma_rounds_once_and_mul_add_is_not_contracted() -> None:
    a, b = np.float32(1 + 2**-12), np.float32(1 - 2**-12)
    source = """extern "C" __global__ void k(float a, float b, float* Y) {
      Y[0] = fmaf(a, b, -1.f); Y[1] = __fadd_rn(__fmul_rn(a, b), -1.f); }"""
    y = np.zeros(2, np.float32)
    assert execute(source, {"a": a, "b": b}, {"Y": y}, block=1).status == "ok"
    assert y[0] == np.float32(-(2.0**-24))
    assert y[1] == np.float32(a * b) - np.float32(1)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 65504.0, 65520.0, 6e-8, 3e-5, 1e-9, np.inf, -np.inf, 0.1, 1234.567])
def test_half_conversions(value: float) -> None:
    source = """extern "C" __global__ void k(float a, unsigned short* Y, float* Z) { unsigned short h, b; float f, g;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a)); asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(a));
      asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); asm("cvt.f32.bf16 %0, %1;" : "=f"(g) : "h"(b));
      Y[0] = h; Y[1] = b; Z[0] = f; Z[1] = g; }"""
    y, z = np.zeros(2, np.uint16), np.zeros(2, np.float32)
    assert execute(source, {"a": np.float32(value)}, {"Y": y, "Z": z}, block=1).status == "ok"
    with np.errstate(over="ignore"):
        half = np.float16(np.float32(value))
    bits = int(np.float32(value).view(np.uint32))
    bfloat = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    assert y[0] == half.view(np.uint16)
    assert z[0] == np.float32(half)
    assert y[1] == bfloat
    assert z[1] == np.array(bfloat << 16, np.uint32).view(np.float32)


def test_half_pairs() -> None:
    x = RNG.standard_normal(64).astype(np.float16)
    source = """extern "C" __global__ void k(const unsigned* A, unsigned* Y) { unsigned a = A[threadIdx.x], r, s, o = 0x3c003c00;
      asm("fma.rn.f16x2 %0, %1, %1, %2;" : "=r"(r) : "r"(a), "r"(o)); asm("add.f16x2 %0, %1, %2;" : "=r"(s) : "r"(r), "r"(a));
      Y[threadIdx.x] = s; }"""
    y = np.zeros(32, np.uint32)
    assert execute(source, {"A": x.view(np.uint32)}, {"Y": y}).status == "ok"
    fused = (x.astype(np.float64) * x + 1).astype(np.float16)
    np.testing.assert_array_equal(y.view(np.float16), (fused.astype(np.float32) + x).astype(np.float16))


def test_bit_fields_and_carries() -> None:
    source = """extern "C" __global__ void k(unsigned a, unsigned long long b, unsigned long long c, unsigned* Y, unsigned long long* Z) {
      unsigned r, s; asm("bfe.u32 %0, %1, 5, 9;" : "=r"(r) : "r"(a)); asm("bfe.s32 %0, %1, 20, 12;" : "=r"(s) : "r"(a));
      unsigned i; asm("bfi.b32 %0, %1, %2, 8, 4;" : "=r"(i) : "r"(a), "r"(0xffffffffu));
      unsigned l, h; asm("add.cc.u32 %0, %2, %3; addc.u32 %1, 7, 0;" : "=r"(l), "=r"(h) : "r"(a), "r"(a));
      unsigned m; asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(m) : "r"(a), "r"(12345u), "r"(999u));
      unsigned long long w; asm("bfi.b64 %0, %1, %2, 40, 16;" : "=l"(w) : "l"(b), "l"(c));
      Y[0] = r; Y[1] = s; Y[2] = i; Y[3] = l; Y[4] = h; Y[5] = m; Z[0] = w; }"""
    a, b, c = 0xDEADBEEF, 0x123456789ABCDEF0, 0x0FEDCBA987654321
    y, z = np.zeros(6, np.uint32), np.zeros(1, np.uint64)
    assert (
        execute(source, {"a": np.uint32(a), "b": np.uint64(b), "c": np.uint64(c)}, {"Y": y, "Z": z}, block=1).status
        == "ok"
    )
    signed = (a >> 20) - 4096
    assert list(y) == [(a >> 5) & 511, signed & 0xFFFFFFFF, 0xFFFFF0FF | (a & 15) << 8, (2 * a) & 0xFFFFFFFF, 8,
                       a ^ 12345 ^ 999]  # fmt: skip
    mask = 0xFFFF << 40
    assert int(z[0]) == (c & ~mask) | (b & 0xFFFF) << 40
