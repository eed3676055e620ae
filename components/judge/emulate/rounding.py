"""Rounding by integer arithmetic over 32 lanes: to small formats, in a chosen direction, and sums rounded to odd.

A value rounded to odd (von Neumann rounding: truncate, then set the last bit when anything was cut off) keeps enough
to be rounded once more, to a format with two bits fewer, as if it were exact (Boldo and Melquiond, "Emulation of a FMA
and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008).
"""

from dataclasses import dataclass
from typing import Any

from components.judge.emulate.ir_tools import F32, F64, I32, I64, Builder, Value, call, outlined, splat, suffix, vec


@dataclass(frozen=True)
class Format:
    """A small binary format.

    Attributes:
        exponent, mantissa: widths in bits.
        nan: code of its NaN.
        largest: code of its largest finite value; the next code is infinity unless `infinite` is False.
        infinite: whether it has an infinity.
    """

    exponent: int
    mantissa: int
    nan: int
    largest: int
    infinite: bool = True

    @property
    def bias(self) -> int:
        """What is added to an exponent."""
        return (1 << (self.exponent - 1)) - 1


FORMATS = {
    "f16": Format(5, 10, 0x7FFF, 0x7BFF),
    "bf16": Format(8, 7, 0x7FFF, 0x7F7F),
    "e4m3": Format(4, 3, 0x7F, 0x7E, infinite=False),
    "e5m2": Format(5, 2, 0x7F, 0x7B),
}


def encode(b: Builder, wide: Value, form: Format, mode: str, finite: bool = False) -> Value:
    """f64 lanes -> codes of a small format in i32 lanes, rounded once.

    Args:
        b: builder.
        wide: f64 lanes, exact or rounded to odd.
        form: the format.
        mode: rn (ties to even), rz, rm (down), rp (up).
        finite: a value too large (or infinite) becomes the largest finite one (.satfinite).
    """
    name = f"encode.{form.exponent}.{form.mantissa}.{mode}.{int(finite)}"
    return outlined(b, name, vec(I32), lambda inner, x: _encode(inner, x, form, mode, finite), wide)


def _encode(b: Builder, wide: Value, form: Format, mode: str, finite: bool) -> Value:
    def c(value: int) -> Value:
        return splat(I64, value)

    bits = b.bitcast(wide, vec(I64))
    negative = b.icmp_signed("<", bits, c(0))
    magnitude = b.and_(bits, c((1 << 63) - 1))
    exponent = b.sub(b.lshr(magnitude, c(52)), c(1023 - form.bias + 1))  # 0: the smallest normal of the format
    significand = b.or_(b.and_(magnitude, c((1 << 52) - 1)), c(1 << 52))
    significand = b.select(b.icmp_unsigned("<", magnitude, c(1 << 52)), magnitude, significand)
    below = b.select(b.icmp_signed("<", exponent, c(0)), b.sub(c(0), exponent), c(0))
    shift = b.add(below, c(52 - form.mantissa))
    shift = b.select(b.icmp_signed(">", shift, c(62)), c(62), shift)
    ones = b.sub(b.shl(c(1), shift), c(1))
    odd = b.and_(b.lshr(significand, shift), c(1))
    even = b.add(b.lshr(ones, c(1)), odd)
    if mode == "rn":
        extra = even
    elif mode == "rz":
        extra = c(0)
    else:
        extra = b.select(negative if mode == "rm" else b.not_(negative), ones, c(0))
    code = b.lshr(b.add(significand, extra), shift)
    code = b.add(code, b.shl(b.select(b.icmp_signed(">", exponent, c(0)), exponent, c(0)), c(form.mantissa)))
    over = b.icmp_signed(">", code, c(form.largest))
    if finite:
        limit = c(form.largest)
    elif mode == "rn":
        limit = c(form.largest + 1)
    elif mode == "rz":
        limit = c(form.largest)
    else:
        limit = b.select(negative if mode == "rm" else b.not_(negative), c(form.largest + 1), c(form.largest))
    code = b.select(over, limit, code)
    infinity = c(0x7FF << 52)
    if not finite:
        code = b.select(b.icmp_signed("==", magnitude, infinity), c(form.largest + 1), code)
    sign = b.select(negative, c(1 << (form.exponent + form.mantissa)), c(0))
    code = b.or_(code, sign)
    code = b.select(b.icmp_signed(">", magnitude, infinity), c(form.nan), code)
    return b.trunc(code, vec(I32))


def nudge(b: Builder, near: Value, error: Value, mode: str) -> Value:
    """The nearest result of an operation -> its directed one.

    Args:
        b: builder.
        near: f32 or f64 lanes, rounded to nearest.
        error: lanes of the same type whose sign is that of (exact - near); 0 when near is exact.
        mode: rz, rm, rp.
    """
    element = near.type.element
    integer = I32 if element == F32 else I64
    width = integer.width
    bits = b.bitcast(near, vec(integer))
    negative = b.icmp_signed("<", bits, splat(integer, 0))
    zero = splat(element, 0.0)
    too_high, too_low = b.fcmp_ordered("<", error, zero), b.fcmp_ordered(">", error, zero)
    inward, outward = b.sub(bits, splat(integer, 1)), b.add(bits, splat(integer, 1))
    smallest_negative, smallest = splat(integer, 1 - (1 << (width - 1))), splat(integer, 1)
    plus_zero = b.icmp_signed("==", bits, splat(integer, 0))
    minus_zero = b.icmp_signed("==", bits, splat(integer, -(1 << (width - 1))))
    down = b.select(negative, outward, b.select(plus_zero, smallest_negative, inward))
    down = b.select(minus_zero, smallest_negative, down)
    up = b.select(negative, b.select(minus_zero, smallest, inward), outward)
    if mode == "rm":
        bits = b.select(too_high, down, bits)
    elif mode == "rp":
        bits = b.select(too_low, up, bits)
    else:
        magnitude_up = b.or_(b.and_(b.not_(negative), too_high), b.and_(negative, too_low))
        is_zero = b.or_(plus_zero, minus_zero)
        bits = b.select(b.and_(magnitude_up, b.not_(is_zero)), inward, bits)
    return b.bitcast(bits, vec(element))


def two_sum(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """(x + y rounded, the error of that rounding), exactly (Knuth)."""
    total = b.fadd(x, y)
    part = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, part)), b.fsub(y, part))


def odd_sum(b: Builder, x: Value, y: Value) -> Value:
    """x + y in f64 lanes, rounded to odd."""
    return outlined(b, "odd_sum", vec(F64), _odd_sum, x, y)


def _odd_sum(b: Builder, x: Value, y: Value) -> Value:
    total, error = two_sum(b, x, y)
    bits = b.bitcast(total, vec(I64))
    even = b.icmp_signed("==", b.and_(bits, splat(I64, 1)), splat(I64, 0))
    inexact = b.fcmp_ordered("!=", error, splat(F64, 0.0))  # false for NaN: an infinite sum stays
    finite = b.icmp_unsigned("<", b.and_(bits, splat(I64, (1 << 63) - 1)), splat(I64, 0x7FF << 52))
    same = b.icmp_signed(">=", b.xor(bits, b.bitcast(error, vec(I64))), splat(I64, 0))
    moved = b.select(same, b.add(bits, splat(I64, 1)), b.sub(bits, splat(I64, 1)))
    chosen = b.select(b.and_(b.and_(even, inexact), finite), moved, bits)
    return b.bitcast(chosen, vec(F64))


def odd_integer(b: Builder, x: Value, signed: bool) -> Value:
    """64-bit integer lanes -> f64 lanes, rounded to odd (16 low bits at most are folded into one)."""
    low = b.and_(x, splat(I64, 0xFFFF))
    sticky = b.select(b.icmp_signed("==", low, splat(I64, 0)), splat(I64, 0), splat(I64, 1 << 16))
    coarse = b.or_(b.and_(x, splat(I64, ~0xFFFF)), sticky)
    top = b.ashr(x, splat(I64, 52)) if signed else b.lshr(x, splat(I64, 52))
    fits = b.icmp_signed("==", top, splat(I64, 0))
    if signed:
        fits = b.or_(fits, b.icmp_signed("==", top, splat(I64, -1)))
    value = b.select(fits, x, coarse)
    return (b.sitofp if signed else b.uitofp)(value, vec(F64))


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """llvm.fma."""
    return call(b, f"llvm.fma.{suffix(x.type.element)}", x.type, x, y, z)


def fma_error(b: Builder, x: Value, y: Value, z: Value, near: Value) -> Value:
    """The sign of x * y + z - near (ErrFmaNearest of Boldo and Muller, IEEE Trans. Computers 60(2), 2011)."""
    high = b.fmul(x, y)
    low = fma(b, x, y, b.fneg(high))
    first, first_low = two_sum(b, z, low)
    second, second_low = two_sum(b, high, first)
    rest = b.fadd(b.fsub(second, near), second_low)
    total, total_low = two_sum(b, rest, first_low)
    zero: Any = splat(x.type.element, 0.0)
    return b.select(b.fcmp_ordered("==", total, zero), total_low, total)


def finite_error(b: Builder, near: Value, error: Value, *inputs: Value) -> Value:
    """`error`, or towards zero where finite inputs overflowed to an infinity."""
    element = near.type.element
    infinity = splat(element, float("inf"))

    def size(x: Value) -> Value:
        return call(b, f"llvm.fabs.{suffix(element)}", x.type, x)

    over = b.fcmp_ordered("==", size(near), infinity)
    for x in inputs:
        over = b.and_(over, b.fcmp_ordered("<", size(x), infinity))
    inward = call(b, f"llvm.copysign.{suffix(element)}", near.type, splat(element, 1.0), b.fneg(near))
    return b.select(over, inward, error)
