"""Floating-point rows of the vector table: f32 and f64 arithmetic and conversions.

Rounding is to nearest even unless a row's name says otherwise. approx functions return the correctly rounded result of
the C library: closer than the hardware's, never outside its documented error.
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
    outlined,
    splat,
    suffix,
    unary,
    vec,
)
from components.judge.emulate.rounding import (
    finite_error,
    fma,
    fma_error,
    nudge,
    odd_integer,
    odd_sum,
    two_sum,
)


def register(op: Register) -> None:
    """Add every floating-point row through `op(name, dst, src, make)`."""
    _arithmetic(op)
    _conversions(op)


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
    op("tanh.f32", "f32", "f32", hyperbolic_tangent)
    op("ftz.f32", "f32", "f32", _flush)
    for kind in ("f32", "f64"):
        for mode in ("rz", "rm", "rp"):
            _directed_arithmetic(op, kind, mode)
    for mode in ("rz", "rm", "rp"):
        op(f"narrow.{mode}.f32", "f32", "f64", lambda b, x, m=mode: _directed(b, x, m))


def _directed_arithmetic(op: Register, kind: str, mode: str) -> None:
    """add, sub, mul, div, fma, rcp and sqrt of one type, rounded in one direction.

    The nearest result is moved by one unit where the sign of its error asks for it. f32: the error is that of an f64
    result (rounded to odd where f64 does not hold it). f64: the error comes from error-free transformations; below
    2^-1000 those are not exact, so that a product there may stay on its nearest neighbour.
    """
    two = f"{kind} {kind}"

    def add(b: Builder, x: Value, y: Value) -> Value:
        near, error = two_sum(b, x, y)
        return nudge(b, near, finite_error(b, near, error, x, y), mode)

    def fused(b: Builder, x: Value, y: Value, z: Value) -> Value:
        near = fma(b, x, y, z)
        return nudge(b, near, finite_error(b, near, fma_error(b, x, y, z, near), x, y, z), mode)

    def multiply(b: Builder, x: Value, y: Value) -> Value:
        near = b.fmul(x, y)
        return nudge(b, near, finite_error(b, near, fma(b, x, y, b.fneg(near)), x, y), mode)

    def divide(b: Builder, x: Value, y: Value) -> Value:
        near = b.fdiv(x, y)
        rest = fma(b, b.fneg(near), y, x)
        negative = b.fcmp_ordered("<", y, splat(y.type.element, 0.0))
        return nudge(b, near, b.select(negative, b.fneg(rest), rest), mode)

    def root(b: Builder, x: Value) -> Value:
        near = unary("sqrt")(b, x)
        return nudge(b, near, fma(b, b.fneg(near), near, x), mode)

    if kind == "f32":
        op(f"add.{mode}.f32", kind, two, lambda b, x, y: _directed(b, odd_sum(b, _wide(b, x), _wide(b, y)), mode))
        op(
            f"fma.{mode}.f32",
            kind,
            f"{two} {kind}",
            lambda b, x, y, z: _directed(b, odd_sum(b, b.fmul(_wide(b, x), _wide(b, y)), _wide(b, z)), mode),
        )
        op(f"mul.{mode}.f32", kind, two, lambda b, x, y: _directed(b, b.fmul(_wide(b, x), _wide(b, y)), mode))
        op(f"div.{mode}.f32", kind, two, lambda b, x, y: _directed(b, b.fdiv(_wide(b, x), _wide(b, y)), mode))
        op(f"sqrt.{mode}.f32", kind, kind, lambda b, x: _directed(b, unary("sqrt")(b, _wide(b, x)), mode))
        op(f"rcp.{mode}.f32", kind, kind, lambda b, x: _directed(b, b.fdiv(splat(F64, 1.0), _wide(b, x)), mode))
        op(
            f"sub.{mode}.f32",
            kind,
            two,
            lambda b, x, y: _directed(b, odd_sum(b, _wide(b, x), b.fneg(_wide(b, y))), mode),
        )
        return
    op(f"add.{mode}.f64", kind, two, add)
    op(f"sub.{mode}.f64", kind, two, lambda b, x, y: add(b, x, b.fneg(y)))
    op(f"mul.{mode}.f64", kind, two, multiply)
    op(f"div.{mode}.f64", kind, two, divide)
    op(f"fma.{mode}.f64", kind, f"{two} {kind}", fused)
    op(f"sqrt.{mode}.f64", kind, kind, root)
    op(f"rcp.{mode}.f64", kind, kind, lambda b, x: divide(b, splat(F64, 1.0), x))


def _wide(b: Builder, x: Value) -> Value:
    return b.fpext(x, vec(F64))


def _directed(b: Builder, exact: Value, mode: str) -> Value:
    """Round an f64 (exact, or rounded to odd) to f32 towards zero (rz), minus (rm) or plus infinity (rp)."""
    return outlined(b, f"directed.{mode}", vec(F32), lambda inner, x: _directed_once(inner, x, mode), exact)


def _directed_once(b: Builder, exact: Value, mode: str) -> Value:
    near = b.fptrunc(exact, vec(F32))
    back = b.fpext(near, vec(F64))
    infinite = b.fcmp_ordered("==", call(b, f"llvm.fabs.{suffix(F64)}", vec(F64), exact), splat(F64, float("inf")))
    difference = b.select(infinite, splat(F64, 0.0), b.fsub(exact, back))
    sign = call(b, f"llvm.copysign.{suffix(F64)}", vec(F64), splat(F64, 1.0), difference)
    sign = b.select(b.fcmp_unordered("==", difference, splat(F64, 0.0)), splat(F64, 0.0), sign)
    return nudge(b, near, b.fptrunc(sign, vec(F32)), mode)


def _flush(b: Builder, x: Value) -> Value:
    """.ftz: a subnormal result becomes a zero of its sign."""
    bits = b.bitcast(x, vec(I32))
    small = b.icmp_unsigned("<", b.and_(bits, splat(I32, 0x7F800000)), splat(I32, 0x00800000))
    return b.bitcast(b.select(small, b.and_(bits, splat(I32, -0x80000000)), bits), vec(F32))


def hyperbolic_tangent(b: Builder, x: Value) -> Value:
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
    for sign in "su":
        op(f"odd.{sign}64", "f64", "b64", lambda b, x, s=sign == "s": odd_integer(b, x, s))
    op("narrow.b64", "b32", "b64", lambda b, x: b.trunc(x, vec(I32)))
    op("f64.f32", "f64", "f32", lambda b, x: b.fpext(x, vec(F64)))
    op("f32.f64", "f32", "f64", lambda b, x: b.fptrunc(x, vec(F32)))
