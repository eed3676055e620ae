"""What a coverage kernel is, and numpy references of small formats and directed roundings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
N = 64
C_TYPES = {
    "float32": "float", "float64": "double", "float16": "__half", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long",
}  # fmt: skip
HALF = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


@dataclass(frozen=True)
class CoverageKernel:
    """A kernel `k(inputs..., y)` and what it must leave in y.

    Attributes:
        name: of the test.
        source: CUDA C++, or PTX when it begins with `.version`.
        inputs: arrays (read-only buffers), numpy scalars or bytes (a by-value struct), in order.
        expected: the contents of y.
        before: y before the launch; None: uninitialised.
        archs: to compile for.
        grid, block, shared: of the launch.
        rtol: relative (and absolute) tolerance; 0: bit by bit.
        view: the dtype as which the bits of y are compared, with a tolerance.
    """

    name: str
    source: str
    inputs: tuple[Any, ...]
    expected: Array
    before: Array | None = None
    archs: tuple[str, ...] = ("sm_90",)
    grid: int = 1
    block: int = N
    shared: int = 0
    rtol: float = 0.0
    view: str = ""


def cuda(name: str, body: str, inputs: Sequence[Any], expected: Any, *, head: str = "", parameters: str = "",
         **options: Any) -> CoverageKernel:  # fmt: skip
    """A kernel from its body: inputs are a, b, c, d; the output is y; t is the thread's index in the grid."""
    expected = np.ascontiguousarray(expected)
    formal = [parameters] if parameters else []
    for letter, value in zip("abcd", inputs, strict=False):
        if not parameters:
            kind = C_TYPES[value.dtype.name]
            formal.append(f"const {kind}* {letter}" if value.ndim else f"{kind} {letter}")
    formal.append(f"{C_TYPES[expected.dtype.name]}* y")
    text = f'{head}extern "C" __global__ void k({", ".join(formal)}) {{\n'
    text += f"int t = blockIdx.x * blockDim.x + threadIdx.x;\n{body}\n}}\n"
    return CoverageKernel(name, text, tuple(inputs), expected, **options)


def asm(name: str, text: str, output: str, operands: str, inputs: Sequence[Any], expected: Any,
        **options: Any) -> CoverageKernel:  # fmt: skip
    """y[t] = one inline PTX text; `output` is a constraint letter, `operands` the inputs' constraints."""
    expected = np.ascontiguousarray(expected)
    kind = {"r": "unsigned", "h": "unsigned short", "f": "float", "l": "unsigned long long", "d": "double"}[output]
    back = "" if expected.dtype.name in ("float32", "float64") else f"({C_TYPES[expected.dtype.name]})"
    values = ", ".join(f'"{c}"({letter}[t])' for c, letter in zip(operands, "abcd", strict=False))
    body = f'{kind} r; asm volatile("{text}" : "={output}"(r) : {values}); y[t] = {back}r;'
    return cuda(name, body, inputs, expected, **options)


# references
def bf16(x: Any) -> Array:
    """f32 -> bfloat16 bits (uint16), to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: Any) -> Array:
    """bfloat16 bits -> f32."""
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def neighbours(kind: Any, exact: Fraction) -> tuple[Any, Any]:
    """The largest number of a numpy float type that is <= exact, the smallest that is >= exact."""
    near = kind(exact.numerator / exact.denominator)
    value = Fraction(float(near))
    if value == exact:
        return near, near
    other = np.nextafter(near, kind(-np.inf if value > exact else np.inf))
    return (other, near) if value > exact else (near, other)


def directed(kind: Any, mode: str, exact: Sequence[Fraction]) -> Array:
    """Exact values rounded rn, rz, rm or rp to a numpy float type."""
    found = []
    for x in exact:
        low, high = neighbours(kind, x)
        if mode == "rn":
            below, above = x - Fraction(float(low)), Fraction(float(high)) - x
            even = int(np.asarray(low).view(f"u{np.dtype(kind).itemsize}")) % 2 == 0
            found.append(low if below < above or (below == above and even) else high)
        else:
            found.append({"rm": low, "rp": high, "rz": low if x > 0 else high}[mode])
    return np.array(found, kind)


def exactly(operation: Callable[..., Fraction], *arrays: Array) -> list[Fraction]:
    """An operation on exact values, element by element."""
    return [operation(*(Fraction(float(v)) for v in row)) for row in zip(*arrays, strict=True)]


def root(kind: Any, mode: str, x: Array) -> Array:
    """Square roots of positive numbers, rounded in a direction (exact integer square roots)."""
    found = []
    for value in x:
        exact = Fraction(float(value))
        scale = 1 << 400
        whole = math.isqrt(exact.numerator * exact.denominator * scale * scale)
        low = Fraction(whole, exact.denominator * scale)
        if whole * whole != exact.numerator * exact.denominator * scale * scale:
            low += Fraction(1, 2 * exact.denominator * scale)  # strictly between two candidates
        found.append(low)
    return directed(kind, mode, found)


def small_float(code: int, exponent: int, mantissa: int) -> float:
    """The number of an fp8 code (8 bits, e4m3 has no infinity)."""
    sign = -1.0 if code & 0x80 else 1.0
    e, m = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
    if (exponent, code & 0x7F) == (4, 0x7F):
        return math.nan
    if exponent == 5 and e == 31:
        return sign * math.inf if m == 0 else math.nan
    bias = (1 << (exponent - 1)) - 1
    if e == 0:
        return sign * m * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + m / (1 << mantissa)) * 2.0 ** (e - bias)


def to_small_float(x: float, exponent: int, mantissa: int) -> int:
    """The code nearest to x among the finite ones (ties to the even code), by search."""
    largest = small_float(0x7E if exponent == 4 else 0x7B, exponent, mantissa)
    x = max(-largest, min(largest, x))
    codes = [c for c in range(128) if math.isfinite(small_float(c, exponent, mantissa))]
    best = min(codes, key=lambda c: (abs(small_float(c, exponent, mantissa) - abs(x)), c & 1))
    return best | (0x80 if math.copysign(1, x) < 0 else 0)
