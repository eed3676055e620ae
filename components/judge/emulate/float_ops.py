"""Floating-point rows of the vector table: f32 and f64 arithmetic, conversions, f16 and bf16.

Rounding is to nearest even unless a row's name says otherwise. Directed f32 roundings are computed in f64 and then
moved by one unit where needed. approx functions return the correctly rounded result of the C library: closer than
the hardware's, never outside its documented error.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from components.judge.emulate.ir_tools import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    Builder,
    Register,
    Value,
    call,
    splat,
    suffix,
    unary,
    vec,
)


def register(op: Register) -> None:
    """Add every floating-point row through `op(name, dst, src, make)`."""
    _arithmetic(op)
    _conversions(op)
    _halves(op)


def _arithmetic(op: Register) -> None:
    for kind in ("f32", "f64"):
        two = f"{kind} {kind}"
        for name in ("add", "sub", "mul", "div"):
            op(f"{name}.{kind}", kind, two, lambda b, x, y, m="f" + name: getattr(b, m)(x, y))
        op(
            f"fma.{kind}",
            kind,
            f"{two} {kind}",
            lambda b, x, y, z: call(b, f"llvm.fma.{suffix(x.type.element)}", x.type, x, y, z),
        )
        for name in ("min", "max"):
            op(
                f"{name}.{kind}",
                kind,
                two,
                lambda b, x, y, m=name: call(b, f"llvm.{m}num.{suffix(x.type.element)}", x.type, x, y),
            )
            op(
                f"{name}nan.{kind}",
                kind,
                two,
                lambda b, x, y, m=name: b.select(
                    b.fcmp_unordered("uno", x, y),
                    splat(x.type.element, float("nan")),
                    call(b, f"llvm.{m}num.{suffix(x.type.element)}", x.type, x, y),
                ),
            )
        op(f"neg.{kind}", kind, kind, lambda b, x: b.fneg(x))
        op(f"abs.{kind}", kind, kind, unary("fabs"))
        op(f"sqrt.{kind}", kind, kind, unary("sqrt"))
        op(f"rcp.{kind}", kind, kind, lambda b, x: b.fdiv(splat(x.type.element, 1.0), x))
        op(f"rsqrt.{kind}", kind, kind, lambda b, x: b.fdiv(splat(x.type.element, 1.0), unary("sqrt")(b, x)))
        for name, intrinsic in (("rni", "rint"), ("rmi", "floor"), ("rpi", "ceil"), ("rzi", "trunc")):
            op(f"{name}.{kind}", kind, kind, unary(intrinsic))
        op(
            f"saturate.{kind}",
            kind,
            kind,
            lambda b, x: call(
                b,
                f"llvm.minnum.{suffix(x.type.element)}",
                x.type,
                splat(x.type.element, 1.0),
                call(b, f"llvm.maxnum.{suffix(x.type.element)}", x.type, splat(x.type.element, 0.0), x),
            ),
        )
        op(
            f"copysign.{kind}",
            kind,
            two,
            lambda b, x, y: call(b, f"llvm.copysign.{suffix(x.type.element)}", x.type, y, x),
        )
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            text = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[name]
            op(f"setp.{name}.{kind}", "p", two, lambda b, x, y, c=text: b.fcmp_ordered(c, x, y))
            op(f"setp.{name}u.{kind}", "p", two, lambda b, x, y, c=text: b.fcmp_unordered(c, x, y))
        op(f"setp.num.{kind}", "p", two, lambda b, x, y: b.fcmp_ordered("ord", x, y))
        op(f"setp.nan.{kind}", "p", two, lambda b, x, y: b.fcmp_unordered("uno", x, y))
        bits = 32 if kind == "f32" else 64
        integer, exponent = ir.IntType(bits), 0x7F800000 if bits == 32 else 0x7FF0000000000000

        def testp(b: Builder, x: Value, compare: str, t: Any = integer, e: int = exponent, width: int = bits) -> Value:
            magnitude = b.and_(b.bitcast(x, vec(t)), splat(t, (1 << (width - 1)) - 1))
            return b.icmp_unsigned(compare, magnitude, splat(t, e))

        op(f"testp.finite.{kind}", "p", kind, lambda b, x, f=testp: f(b, x, "<"))
        op(f"testp.infinite.{kind}", "p", kind, lambda b, x, f=testp: f(b, x, "=="))
        op(f"testp.notanumber.{kind}", "p", kind, lambda b, x, f=testp: f(b, x, ">"))
        op(f"testp.number.{kind}", "p", kind, lambda b, x, f=testp: f(b, x, "<="))
    for name, intrinsic in (("ex2", "exp2"), ("lg2", "log2"), ("sin", "sin"), ("cos", "cos")):
        op(f"{name}.f32", "f32", "f32", unary(intrinsic))
    op("tanh.f32", "f32", "f32", _tanh)
    op("ftz.f32", "f32", "f32", _flush)
    for mode in ("rz", "rm", "rp"):
        op(
            f"add.{mode}.f32",
            "f32",
            "f32 f32",
            lambda b, x, y, m=mode: _directed(b, b.fadd(_wide(b, x), _wide(b, y)), m),
        )
        op(
            f"mul.{mode}.f32",
            "f32",
            "f32 f32",
            lambda b, x, y, m=mode: _directed(b, b.fmul(_wide(b, x), _wide(b, y)), m),
        )
        op(
            f"fma.{mode}.f32",
            "f32",
            "f32 f32 f32",
            lambda b, x, y, z, m=mode: _directed(b, b.fadd(b.fmul(_wide(b, x), _wide(b, y)), _wide(b, z)), m),
        )
        op(
            f"div.{mode}.f32",
            "f32",
            "f32 f32",
            lambda b, x, y, m=mode: _directed(b, b.fdiv(_wide(b, x), _wide(b, y)), m),
        )
        op(f"narrow.{mode}.f32", "f32", "f64", lambda b, x, m=mode: _directed(b, x, m))


def _wide(b: Builder, x: Value) -> Value:
    return b.fpext(x, vec(F64))


def _directed(b: Builder, exact: Value, mode: str) -> Value:
    """Round an (almost) exact f64 to f32 towards zero (rz), minus (rm) or plus infinity (rp)."""
    near = b.fptrunc(exact, vec(F32))
    back = b.fpext(near, vec(F64))
    bits = b.bitcast(near, vec(I32))
    negative = b.icmp_signed("<", bits, splat(I32, 0))
    too_high, too_low = b.fcmp_ordered(">", back, exact), b.fcmp_ordered("<", back, exact)
    toward_zero, away = b.sub(bits, splat(I32, 1)), b.add(bits, splat(I32, 1))
    down = b.select(
        negative, away, b.select(b.icmp_signed("==", bits, splat(I32, 0)), splat(I32, -0x7FFFFFFF), toward_zero)
    )
    up = b.select(
        negative, b.select(b.icmp_signed("==", bits, splat(I32, -0x80000000)), splat(I32, 1), toward_zero), away
    )
    if mode == "rm":
        bits = b.select(too_high, down, bits)
    elif mode == "rp":
        bits = b.select(too_low, up, bits)
    else:
        positive = b.fcmp_ordered(">", exact, splat(F64, 0.0))
        bits = b.select(b.and_(positive, too_high), down, b.select(b.and_(b.not_(positive), too_low), up, bits))
    return b.bitcast(bits, vec(F32))


def _flush(b: Builder, x: Value) -> Value:
    """.ftz: a subnormal result becomes a zero of its sign."""
    bits = b.bitcast(x, vec(I32))
    small = b.icmp_unsigned("<", b.and_(bits, splat(I32, 0x7F800000)), splat(I32, 0x00800000))
    return b.bitcast(b.select(small, b.and_(bits, splat(I32, -0x80000000)), bits), vec(F32))


def _tanh(b: Builder, x: Value) -> Value:
    """(e - 1) / (e + 1) with e = exp(2x) in f64, clamped where it has saturated."""
    wide = b.fpext(x, vec(F64))
    wide = call(b, f"llvm.minnum.{suffix(F64)}", vec(F64), splat(F64, 20.0), wide)
    wide = call(b, f"llvm.maxnum.{suffix(F64)}", vec(F64), splat(F64, -20.0), wide)
    e = call(b, f"llvm.exp.{suffix(F64)}", vec(F64), b.fmul(wide, splat(F64, 2.0)))
    return b.fptrunc(b.fdiv(b.fsub(e, splat(F64, 1.0)), b.fadd(e, splat(F64, 1.0))), vec(F32))


def _conversions(op: Register) -> None:
    element = {"f32": F32, "f64": F64}
    integer = {8: I8, 16: I16, 32: I32, 64: I64}
    for sign in "su":
        extend = "sext" if sign == "s" else "zext"
        for bits in (8, 16):  # the low bits of a 4-byte slot, extended over the slot
            op(
                f"extend.{sign}{bits}",
                "b32",
                "b32",
                lambda b, x, t=integer[bits], e=extend: getattr(b, e)(b.trunc(x, vec(t)), vec(I32)),
            )
        op(f"widen.{sign}32", "b64", "b32", lambda b, x, e=extend: getattr(b, e)(x, vec(I64)))
        for kind, target in element.items():
            for bits in (32, 64):
                to_float = "sitofp" if sign == "s" else "uitofp"
                op(
                    f"{kind}.{sign}{bits}",
                    kind,
                    f"b{bits}",
                    lambda b, x, t=target, m=to_float: getattr(b, m)(x, vec(t)),
                )
                name = f"llvm.fpto{'s' if sign == 's' else 'u'}i.sat.{suffix(integer[bits])}.{suffix(target)}"
                op(
                    f"{sign}{bits}.{kind}",
                    f"b{bits}",
                    kind,
                    lambda b, x, n=name, t=integer[bits]: call(b, n, vec(t), x),
                )
    op("narrow.b64", "b32", "b64", lambda b, x: b.trunc(x, vec(I32)))
    op("f64.f32", "f64", "f32", lambda b, x: b.fpext(x, vec(F64)))
    op("f32.f64", "f32", "f64", lambda b, x: b.fptrunc(x, vec(F32)))


def from_half(b: Builder, h: Value) -> Value:
    """binary16 bits in the low half of i32 lanes -> f32, exactly, by integer arithmetic (no F16C needed)."""
    sign = b.shl(b.and_(h, splat(I32, 0x8000)), splat(I32, 16))
    shifted = b.shl(b.and_(h, splat(I32, 0x7FFF)), splat(I32, 13))
    scaled = b.bitcast(b.fmul(b.bitcast(shifted, vec(F32)), splat(F32, 2.0**112)), vec(I32))
    special = b.icmp_unsigned(">=", b.and_(h, splat(I32, 0x7FFF)), splat(I32, 0x7C00))
    bits = b.select(special, b.or_(shifted, splat(I32, 0x7F800000)), scaled)
    return b.bitcast(b.or_(bits, sign), vec(F32))


def to_half(b: Builder, x: Value) -> Value:
    """f32 -> binary16 bits in i32 lanes, to nearest even."""
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


def _halves(op: Register) -> None:
    """f16, bf16 and their packed pairs; every product and sum is exact in f64, so each result is rounded once."""

    def exact(b: Builder, name: str, values: list[Value]) -> Value:
        if name in ("add", "sub", "mul"):
            return getattr(b, "f" + name)(values[0], values[1])
        if name in ("min", "max"):
            return call(b, f"llvm.{name}num.{suffix(F32)}", vec(F32), *values)
        if name == "neg":
            return b.fneg(values[0])
        if name == "abs":
            return call(b, f"llvm.fabs.{suffix(F32)}", vec(F32), values[0])
        wide = [b.fpext(v, vec(F64)) for v in values]  # f16 and bf16 products and their sum fit f64 (f16 exactly)
        return b.fptrunc(b.fadd(b.fmul(wide[0], wide[1]), wide[2]), vec(F32))

    for kind, decode, encode in (("f16", from_half, to_half), ("bf16", from_bfloat, to_bfloat)):
        low = splat(I32, 0xFFFF)
        op(f"f32.{kind}", "f32", "b32", lambda b, x, f=decode: f(b, b.and_(x, splat(I32, 0xFFFF))))
        op(f"{kind}.f32", "b32", "f32", lambda b, x, f=encode: f(b, x))
        op(
            f"{kind}x2.f32",
            "b32",
            "f32 f32",
            lambda b, hi, lo, f=encode: b.or_(b.shl(f(b, hi), splat(I32, 16)), f(b, lo)),
        )
        for name, count in (
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("min", 2),
            ("max", 2),
            ("neg", 1),
            ("abs", 1),
        ):
            sources = " ".join(["b32"] * count)

            def one(b: Builder, *x: Value, n: str = name, d: Any = decode, e: Any = encode, m: Any = low) -> Value:
                return e(b, exact(b, n, [d(b, b.and_(v, m)) for v in x]))

            def two(b: Builder, *x: Value, f: Any = one) -> Value:
                high = f(b, *[b.lshr(v, splat(I32, 16)) for v in x])
                return b.or_(b.shl(high, splat(I32, 16)), f(b, *x))

            op(f"{name}.{kind}", "b32", sources, one)
            op(f"{name}.{kind}x2", "b32", sources, two)
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            text = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[name]
            for unordered in ("", "u"):

                def compare(
                    b: Builder, x: Value, y: Value, c: str = text, u: str = unordered, d: Any = decode, m: Any = low
                ) -> Value:
                    return (b.fcmp_unordered if u else b.fcmp_ordered)(c, d(b, b.and_(x, m)), d(b, b.and_(y, m)))

                op(f"setp.{name}{unordered}.{kind}", "p", "b32 b32", compare)
