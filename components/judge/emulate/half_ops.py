"""f16, bf16, their packed pairs, tf32 and fp8: rows of the vector table, each result rounded once.

A scalar is the low half of a 4-byte slot (b16); a pair is a 4-byte word, its first element in the low half.
"""

from collections.abc import Callable
from typing import Any

from components.judge.emulate.float_ops import hyperbolic_tangent
from components.judge.emulate.ir_tools import (
    F32,
    F64,
    I32,
    Builder,
    Register,
    Value,
    outlined,
    splat,
    unary,
    vec,
)
from components.judge.emulate.rounding import FORMATS, encode, odd_sum

LOW = 0xFFFF
KINDS = ("f16", "bf16")
COMPARES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
Lanes = Callable[..., Value]


def from_half(b: Builder, h: Value) -> Value:
    """binary16 bits in the low half of i32 lanes -> f32, exactly, by integer arithmetic (no F16C needed)."""
    return outlined(b, "from_half", vec(F32), _from_half, h)


def _from_half(b: Builder, h: Value) -> Value:
    sign = b.shl(b.and_(h, splat(I32, 0x8000)), splat(I32, 16))
    shifted = b.shl(b.and_(h, splat(I32, 0x7FFF)), splat(I32, 13))
    scaled = b.bitcast(b.fmul(b.bitcast(shifted, vec(F32)), splat(F32, 2.0**112)), vec(I32))
    special = b.icmp_unsigned(">=", b.and_(h, splat(I32, 0x7FFF)), splat(I32, 0x7C00))
    bits = b.select(special, b.or_(shifted, splat(I32, 0x7F800000)), scaled)
    return b.bitcast(b.or_(bits, sign), vec(F32))


def to_half(b: Builder, x: Value) -> Value:
    """f32 -> binary16 bits in i32 lanes, to nearest even."""
    return outlined(b, "to_half", vec(I32), _to_half, x)


def _to_half(b: Builder, x: Value) -> Value:
    bits = b.bitcast(x, vec(I32))
    sign = b.and_(b.lshr(bits, splat(I32, 16)), splat(I32, 0x8000))
    magnitude = b.and_(bits, splat(I32, 0x7FFFFFFF))
    small = b.fadd(b.bitcast(magnitude, vec(F32)), splat(F32, 0.5))  # aligns a subnormal's bits at the bottom
    subnormal = b.sub(b.bitcast(small, vec(I32)), splat(I32, 0x3F000000))
    odd = b.and_(b.lshr(magnitude, splat(I32, 13)), splat(I32, 1))
    rounded = b.add(b.add(magnitude, splat(I32, 0xFFF - (112 << 23))), odd)
    normal = b.lshr(rounded, splat(I32, 13))
    value = b.select(b.icmp_unsigned("<", magnitude, splat(I32, 113 << 23)), subnormal, normal)
    value = b.select(b.icmp_unsigned(">=", magnitude, splat(I32, 143 << 23)), splat(I32, 0x7C00), value)
    value = b.select(b.icmp_unsigned(">", magnitude, splat(I32, 0x7F800000)), splat(I32, 0x7FFF), value)
    return b.or_(value, sign)


def from_bfloat(b: Builder, h: Value) -> Value:
    """bfloat16 bits in the low half of i32 lanes -> f32."""
    return b.bitcast(b.shl(h, splat(I32, 16)), vec(F32))


def to_bfloat(b: Builder, x: Value) -> Value:
    """f32 -> bfloat16 bits in i32 lanes, to nearest even; NaN becomes 0x7fff."""
    bits = b.bitcast(x, vec(I32))
    odd = b.and_(b.lshr(bits, splat(I32, 16)), splat(I32, 1))
    value = b.lshr(b.add(b.add(bits, splat(I32, 0x7FFF)), odd), splat(I32, 16))
    magnitude = b.and_(bits, splat(I32, 0x7FFFFFFF))
    return b.select(b.icmp_unsigned(">", magnitude, splat(I32, 0x7F800000)), splat(I32, 0x7FFF), value)


CODECS = {"f16": (from_half, to_half), "bf16": (from_bfloat, to_bfloat)}


def register(op: Register) -> None:
    """Add every row through `op(name, dst, src, make)`."""
    for kind in KINDS:
        _conversions(op, kind)
        _arithmetic(op, kind)
        _comparisons(op, kind)
    _tensor_float(op)
    _eight_bits(op)


def _pair(one: Lanes) -> Lanes:
    """An operation on scalars, done on both halves of packed pairs."""

    def two(b: Builder, *x: Value) -> Value:
        high = one(b, *[b.lshr(v, splat(I32, 16)) for v in x])
        return b.or_(b.shl(high, splat(I32, 16)), one(b, *[b.and_(v, splat(I32, LOW)) for v in x]))

    return two


def _scalar(one: Lanes) -> Lanes:
    """An operation on scalars whose slots may hold anything in their upper half."""
    return lambda b, *x: one(b, *[b.and_(v, splat(I32, LOW)) for v in x])


def _conversions(op: Register, kind: str) -> None:
    decode, near = CODECS[kind]
    form = FORMATS[kind]
    op(f"f32.{kind}", "f32", "b32", lambda b, x: decode(b, b.and_(x, splat(I32, LOW))))
    op(f"{kind}.f32", "b32", "f32", near)
    for mode in ("rn", "rz", "rm", "rp"):
        op(f"{kind}.{mode}.f64", "b32", "f64", lambda b, x, m=mode: encode(b, x, form, m))
    op(f"{kind}x2.f32", "b32", "f32 f32", lambda b, hi, lo: b.or_(b.shl(near(b, hi), splat(I32, 16)), near(b, lo)))
    op(
        f"pack.{kind}x2",
        "b32",
        "b32 b32",
        lambda b, hi, lo: b.or_(b.shl(hi, splat(I32, 16)), b.and_(lo, splat(I32, LOW))),
    )


def _arithmetic(op: Register, kind: str) -> None:
    """A sum of two goes through f32 (2 * 11 + 2 <= 24 bits: rounding twice is harmless), the rest through f64."""
    decode, near = CODECS[kind]
    form = FORMATS[kind]
    infinity, sign = form.largest + 1, 0x8000

    def through(name: str) -> Lanes:
        def make(b: Builder, *x: Value) -> Value:
            narrow = [decode(b, v) for v in x]
            if name in ("add", "sub"):
                return near(b, getattr(b, "f" + name)(*narrow))
            wide = [b.fpext(v, vec(F64)) for v in narrow]
            product = b.fmul(wide[0], wide[1])
            value = product if name == "mul" else odd_sum(b, product, wide[2])
            return encode(b, value, form, "rn")

        return make

    def function(f: Callable[[Builder, Value], Value]) -> Lanes:
        return lambda b, x: near(b, f(b, decode(b, x)))

    def extreme(name: str, propagate: bool) -> Lanes:
        def order(b: Builder, x: Value) -> Value:  # integers in the order of the numbers, -0 below +0
            magnitude = b.and_(x, splat(I32, 0x7FFF))
            return b.select(b.icmp_unsigned(">=", x, splat(I32, sign)), b.sub(splat(I32, -1), magnitude), magnitude)

        def make(b: Builder, x: Value, y: Value) -> Value:
            x_nan, y_nan = (b.icmp_unsigned(">", b.and_(v, splat(I32, 0x7FFF)), splat(I32, infinity)) for v in (x, y))
            test = b.icmp_signed("<" if name == "min" else ">", order(b, x), order(b, y))
            value = b.select(test, x, y)
            nan = splat(I32, form.nan)
            if propagate:
                return b.select(b.or_(x_nan, y_nan), nan, value)
            value = b.select(x_nan, y, b.select(y_nan, x, value))
            return b.select(b.and_(x_nan, y_nan), nan, value)

        return make

    def is_nan(b: Builder, x: Value) -> Value:
        return b.icmp_unsigned(">", b.and_(x, splat(I32, 0x7FFF)), splat(I32, infinity))

    def relu(b: Builder, x: Value) -> Value:
        negative = b.and_(b.icmp_unsigned(">=", x, splat(I32, sign)), b.not_(is_nan(b, x)))
        return b.select(is_nan(b, x), splat(I32, form.nan), b.select(negative, splat(I32, 0), x))

    def saturate(b: Builder, x: Value) -> Value:
        one = form.bias << form.mantissa
        value = b.select(b.icmp_unsigned(">", x, splat(I32, one)), splat(I32, one), x)
        zero = b.or_(b.icmp_unsigned(">=", x, splat(I32, sign)), is_nan(b, x))
        return b.select(zero, splat(I32, 0), value)

    def flush(b: Builder, x: Value) -> Value:
        tiny = b.icmp_unsigned("<", b.and_(x, splat(I32, 0x7FFF)), splat(I32, 1 << form.mantissa))
        return b.select(tiny, b.and_(x, splat(I32, sign)), x)

    rows: dict[str, tuple[int, Lanes]] = {
        "neg": (1, lambda b, x: b.xor(x, splat(I32, sign))),
        "abs": (1, lambda b, x: b.and_(x, splat(I32, 0x7FFF))),
        "ex2": (1, function(unary("exp2"))),
        "tanh": (1, function(hyperbolic_tangent)),
        "relu": (1, relu),
        "saturate": (1, saturate),
        "ftz": (1, flush),
    }
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        rows[name] = (count, through(name))
    for name in ("min", "max"):
        rows[name] = (2, extreme(name, False))
        rows[f"{name}nan"] = (2, extreme(name, True))
    for name, (count, one) in rows.items():
        sources = " ".join(["b32"] * count)
        op(f"{name}.{kind}", "b32", sources, _scalar(one))
        op(f"{name}.{kind}x2", "b32", sources, _pair(one))


def _comparisons(op: Register, kind: str) -> None:
    decode, _ = CODECS[kind]

    def test(compare: str, ordered: bool) -> Lanes:
        def make(b: Builder, x: Value, y: Value) -> Value:
            return (b.fcmp_ordered if ordered else b.fcmp_unordered)(compare, decode(b, x), decode(b, y))

        return make

    rows = {name: test(text, True) for name, text in COMPARES.items()}
    rows |= {f"{name}u": test(text, False) for name, text in COMPARES.items()}
    rows |= {"num": test("ord", True), "nan": test("uno", False)}
    for name, one in rows.items():

        def mask(b: Builder, x: Value, y: Value, f: Lanes = one) -> Value:
            return b.select(f(b, x, y), splat(I32, LOW), splat(I32, 0))

        op(f"setp.{name}.{kind}", "p", "b32 b32", _scalar(one))
        op(f"mask.{name}.{kind}x2", "b32", "b32 b32", _pair(mask))


def _tensor_float(op: Register) -> None:
    """f32 -> tf32: ten bits of mantissa in an f32's place (the rest 0)."""

    def make(b: Builder, x: Value, mode: str) -> Value:
        bits = b.bitcast(x, vec(I32))
        keep = splat(I32, ~0x1FFF)
        if mode == "rna":
            bits = b.add(bits, splat(I32, 0x1000))
        elif mode == "rn":
            odd = b.and_(b.lshr(bits, splat(I32, 13)), splat(I32, 1))
            bits = b.add(b.add(bits, splat(I32, 0xFFF)), odd)
        return b.select(b.fcmp_unordered("uno", x, x), splat(I32, 0x7FFFFFFF), b.and_(bits, keep))

    for mode in ("rna", "rn", "rz"):
        op(f"tf32.{mode}.f32", "b32", "f32", lambda b, x, m=mode: make(b, x, m))


def _eight_bits(op: Register) -> None:
    """fp8 pairs: two codes in the low 16 bits of a slot, the first element in the low byte."""

    def to_half_bits(b: Builder, code: Value, kind: str) -> Value:
        """A code (8 bits) -> f16 bits; every fp8 number is an f16 number."""
        if kind == "e5m2":
            return b.shl(code, splat(I32, 8))
        magnitude = b.and_(code, splat(I32, 0x7F))
        value = b.fmul(b.bitcast(b.shl(magnitude, splat(I32, 20)), vec(F32)), splat(F32, 2.0**120))
        half = to_half(b, value)
        half = b.select(b.icmp_unsigned("==", magnitude, splat(I32, 0x7F)), splat(I32, 0x7FFF), half)
        return b.or_(half, b.shl(b.and_(code, splat(I32, 0x80)), splat(I32, 8)))

    byte: Any = splat(I32, 255)
    for kind in ("e4m3", "e5m2"):
        form = FORMATS[kind]

        def pack(b: Builder, hi: Value, lo: Value, f: Any = form) -> Value:
            codes = [encode(b, b.fpext(v, vec(F64)), f, "rn", finite=True) for v in (hi, lo)]
            return b.or_(b.shl(codes[0], splat(I32, 8)), codes[1])

        def widen(b: Builder, x: Value, k: str = kind) -> Value:
            high = to_half_bits(b, b.and_(b.lshr(x, splat(I32, 8)), byte), k)
            return b.or_(b.shl(high, splat(I32, 16)), to_half_bits(b, b.and_(x, byte), k))

        op(f"{kind}x2.f32", "b32", "f32 f32", pack)
        op(
            f"{kind}x2.f16x2",
            "b32",
            "b32",
            lambda b, x, p=pack: p(
                b, from_half(b, b.lshr(x, splat(I32, 16))), from_half(b, b.and_(x, splat(I32, LOW)))
            ),
        )
        op(f"f16x2.{kind}x2", "b32", "b32", widen)
