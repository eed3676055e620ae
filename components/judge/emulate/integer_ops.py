"""Integer, bit, predicate and register-packing rows of the vector table."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from components.judge.emulate.ir_tools import (
    ELEMENT,
    I1,
    I8,
    I16,
    I32,
    I64,
    Builder,
    Register,
    Value,
    broadcast,
    call,
    splat,
    suffix,
    unary,
    vec,
)


def _bits(kind: str) -> int:
    return int(kind[1:])


def _shift(b: Builder, x: Value, count: Value, operation: str) -> Value:
    """PTX shifts clamp: a count of the width or more gives 0 (or the sign)."""
    element, width = x.type.element, x.type.element.width
    over = b.icmp_unsigned(">=", count, splat(I32, width))
    count = b.select(over, splat(I32, width - 1 if operation == "ashr" else 0), count)
    wide = count if width == 32 else (b.zext if width > 32 else b.trunc)(count, vec(element))
    value = getattr(b, operation)(x, wide)
    return value if operation == "ashr" else b.select(over, splat(element, 0), value)


def _divide(b: Builder, x: Value, y: Value, signed: bool, remainder: bool) -> Value:
    """Division by zero gives all ones (and x as remainder), as the hardware's sequence does; MIN / -1 wraps."""
    element = x.type.element
    zero = b.icmp_signed("==", y, splat(element, 0))
    safe = b.select(zero, splat(element, 1), y)
    if not signed:
        value = (b.urem if remainder else b.udiv)(x, safe)
        return b.select(zero, x if remainder else splat(element, -1), value)
    minus = b.icmp_signed("==", y, splat(element, -1))
    safe = b.select(minus, splat(element, 1), safe)
    value = (b.srem if remainder else b.sdiv)(x, safe)
    value = b.select(minus, splat(element, 0) if remainder else b.neg(x), value)
    return b.select(zero, x if remainder else splat(element, -1), value)


def _high(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    element = x.type.element
    wide = vec(ir.IntType(2 * element.width))
    extend = b.sext if signed else b.zext
    product = b.mul(extend(x, wide), extend(y, wide))
    return b.trunc(b.lshr(product, splat(wide.element, element.width)), vec(element))


def _pick(b: Builder, x: Value, y: Value, compare: str, signed: bool) -> Value:
    test = (b.icmp_signed if signed else b.icmp_unsigned)(compare, x, y)
    return b.select(test, x, y)


def register(op: Register) -> None:
    """Add every integer and predicate row through `op(name, dst, src, make)`."""
    for kind in ("b16", "b32", "b64"):
        width = _bits(kind)
        two = f"{kind} {kind}"
        for name in ("add", "sub", "mul", "and", "or", "xor"):
            method = name + "_" if name in ("and", "or") else name
            op(f"{name}.{kind}", kind, two, lambda b, x, y, m=method: getattr(b, m)(x, y))
        op(f"mad.{kind}", kind, f"{two} {kind}", lambda b, x, y, z: b.add(b.mul(x, y), z))
        op(f"not.{kind}", kind, kind, lambda b, x: b.not_(x))
        op(f"neg.{kind}", kind, kind, lambda b, x: b.neg(x))
        op(f"abs.{kind}", kind, kind, lambda b, x: b.select(b.icmp_signed("<", x, x.type(None)), b.neg(x), x))
        op(f"mov.{kind}", kind, kind, lambda b, x: x)
        op(f"selp.{kind}", kind, f"{two} p", lambda b, x, y, p: b.select(p, x, y))
        op(f"shl.{kind}", kind, f"{kind} b32", lambda b, x, n: _shift(b, x, n, "shl"))
        op(f"cnot.{kind}", kind, kind, lambda b, x: b.zext(b.icmp_signed("==", x, x.type(None)), x.type))
        for sign in "su":
            signed = sign == "s"
            typed = f"{sign}{width}"
            op(f"shr.{typed}", kind, f"{kind} b32", lambda b, x, n, o="ashr" if signed else "lshr": _shift(b, x, n, o))
            op(f"div.{typed}", kind, two, lambda b, x, y, s=signed: _divide(b, x, y, s, False))
            op(f"rem.{typed}", kind, two, lambda b, x, y, s=signed: _divide(b, x, y, s, True))
            op(f"min.{typed}", kind, two, lambda b, x, y, s=signed: _pick(b, x, y, "<", s))
            op(f"max.{typed}", kind, two, lambda b, x, y, s=signed: _pick(b, x, y, ">", s))
            op(f"mulhi.{typed}", kind, two, lambda b, x, y, s=signed: _high(b, x, y, s))
            op(
                f"sad.{typed}",
                kind,
                f"{two} {kind}",
                lambda b, x, y, z, s=signed: b.add(b.sub(_pick(b, x, y, ">", s), _pick(b, x, y, "<", s)), z),
            )
            for name, compare in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
                op(
                    f"setp.{name}.{typed}",
                    "p",
                    two,
                    lambda b, x, y, c=compare, s=signed: (b.icmp_signed if s else b.icmp_unsigned)(c, x, y),
                )
        if width < 64:
            wide = f"b{2 * width}"
            for sign in "su":
                extend = "sext" if sign == "s" else "zext"

                def widen(b: Builder, x: Value, y: Value, e: str = extend, w: str = wide) -> Value:
                    return b.mul(getattr(b, e)(x, vec(ELEMENT[w])), getattr(b, e)(y, vec(ELEMENT[w])))

                op(f"mulwide.{sign}{width}", wide, two, widen)
                op(f"madwide.{sign}{width}", wide, f"{two} {wide}", lambda b, x, y, z, m=widen: b.add(m(b, x, y), z))
    op("subsat.s32", "b32", "b32 b32", lambda b, x, y: call(b, "llvm.ssub.sat.v32i32", x.type, x, y))
    op("addsat.s32", "b32", "b32 b32", lambda b, x, y: call(b, "llvm.sadd.sat.v32i32", x.type, x, y))
    op("add64lo", "b64", "i b64", lambda b, imm, x: b.add(x, broadcast(b, imm)))  # cvta
    _carries(op)
    _bit_operations(op)


def _carries(op: Register) -> None:
    """Extended-precision arithmetic; the carry is an ordinary predicate (for subtraction: the borrow)."""

    def one(b: Builder, p: Value, t: Any) -> Value:
        return b.zext(p, t)

    for kind in ("b32", "b64"):
        three, wide = f"{kind} {kind} p", vec(ir.IntType(2 * _bits(kind)))

        def carry(b: Builder, x: Value, y: Value, p: Value, w: Any = wide) -> Value:
            total = b.add(b.add(b.zext(x, w), b.zext(y, w)), b.zext(p, w))
            return b.trunc(b.lshr(total, splat(w.element, w.element.width // 2)), vec(I1))

        def borrow(b: Builder, x: Value, y: Value, p: Value, w: Any = wide) -> Value:
            total = b.sub(b.sub(b.zext(x, w), b.zext(y, w)), b.zext(p, w))
            return b.trunc(b.lshr(total, splat(w.element, w.element.width // 2)), vec(I1))

        op(f"addc.{kind}", kind, three, lambda b, x, y, p: b.add(b.add(x, y), one(b, p, x.type)))
        op(f"carry.{kind}", "p", three, carry)
        op(f"subc.{kind}", kind, three, lambda b, x, y, p: b.sub(b.sub(x, y), one(b, p, x.type)))
        op(f"borrow.{kind}", "p", three, borrow)


def _field(b: Builder, x: Value, position: Value, length: Value, signed: bool) -> Value:
    """bfe: `length` bits from `position`; beyond the top the sign (or 0) continues."""
    element, width = x.type.element, x.type.element.width

    def fit(count: Value) -> Value:
        return count if width == 32 else b.zext(count, vec(element))

    byte = splat(I32, 255)
    position, length = b.and_(position, byte), b.and_(length, byte)
    down = _shift(b, x, position, "ashr" if signed else "lshr")
    spare = b.sub(splat(I32, width), length)
    whole = b.icmp_signed("<=", spare, splat(I32, 0))
    spare = b.select(whole, splat(I32, 0), spare)
    empty = b.icmp_signed("==", length, splat(I32, 0))
    count = fit(b.select(empty, splat(I32, 0), spare))
    value = b.shl(down, count)
    value = b.ashr(value, count) if signed else b.lshr(value, count)
    if signed:  # a field that passes the top repeats the operand's sign: the arithmetic shift already did
        value = b.select(whole, down, value)
    return b.select(empty, splat(element, 0), value)


def _insert(b: Builder, x: Value, into: Value, position: Value, length: Value) -> Value:
    element, width = x.type.element, x.type.element.width
    byte = splat(I32, 255)
    position, length = b.and_(position, byte), b.and_(length, byte)
    ones = splat(element, -1)
    mask = b.not_(_shift(b, ones, length, "shl"))
    mask = b.select(b.icmp_unsigned(">=", length, splat(I32, width)), ones, mask)
    mask = _shift(b, mask, position, "shl")
    return b.or_(b.and_(_shift(b, x, position, "shl"), mask), b.and_(into, b.not_(mask)))


def _lop3(b: Builder, imm: Value, x: Value, y: Value, z: Value) -> Value:
    result = splat(I32, 0)
    for term in range(8):
        chosen = b.sub(ir.Constant(I32, 0), b.and_(b.trunc(b.lshr(imm, ir.Constant(I64, term)), I32), I32(1)))
        product = b.and_(x if term & 4 else b.not_(x), y if term & 2 else b.not_(y))
        product = b.and_(product, z if term & 1 else b.not_(z))
        result = b.or_(result, b.and_(product, broadcast(b, chosen)))
    return result


def _prmt(b: Builder, x: Value, y: Value, selector: Value) -> Value:
    both = b.or_(b.zext(x, vec(I64)), b.shl(b.zext(y, vec(I64)), splat(I64, 32)))
    result = splat(I32, 0)
    for k in range(4):
        nibble = b.and_(b.lshr(selector, splat(I32, 4 * k)), splat(I32, 15))
        amount = b.shl(b.zext(b.and_(nibble, splat(I32, 7)), vec(I64)), splat(I64, 3))
        byte = b.trunc(b.lshr(both, amount), vec(I8))
        sign = b.ashr(byte, splat(I8, 7))
        replicate = b.icmp_unsigned(">", nibble, splat(I32, 7))
        byte = b.select(replicate, sign, byte)
        result = b.or_(result, b.shl(b.zext(byte, vec(I32)), splat(I32, 8 * k)))
    return result


def _funnel(b: Builder, low: Value, high: Value, count: Value, left: bool, wrap: bool) -> Value:
    count = b.and_(count, splat(I32, 31)) if wrap else _pick(b, count, splat(I32, 32), "<", False)
    wide, amount = vec(I64), b.zext(count, vec(I64))
    both = b.or_(b.shl(b.zext(high, wide), splat(I64, 32)), b.zext(low, wide))
    if left:
        return b.trunc(b.lshr(b.shl(both, amount), splat(I64, 32)), vec(I32))
    return b.trunc(b.lshr(both, amount), vec(I32))


def _bfind(b: Builder, x: Value, signed: bool, shift: bool) -> Value:
    element, width = x.type.element, x.type.element.width
    if signed:
        x = b.select(b.icmp_signed("<", x, x.type(None)), b.not_(x), x)
    zeros = call(b, f"llvm.ctlz.{suffix(element)}", x.type, x, I1(0))
    zeros = zeros if width == 32 else b.trunc(zeros, vec(I32))
    value = zeros if shift else b.sub(splat(I32, width - 1), zeros)
    return b.select(b.icmp_signed("==", x, x.type(None)), splat(I32, -1), value)


def _bit_operations(op: Register) -> None:
    def narrow(b: Builder, x: Value) -> Value:
        return x if x.type.element.width == 32 else b.trunc(x, vec(I32))

    for kind in ("b32", "b64"):
        op(f"popc.{kind}", "b32", kind, lambda b, x: narrow(b, unary("ctpop")(b, x)))
        op(
            f"clz.{kind}",
            "b32",
            kind,
            lambda b, x: narrow(b, call(b, f"llvm.ctlz.{suffix(x.type.element)}", x.type, x, I1(0))),
        )
        op(f"brev.{kind}", kind, kind, unary("bitreverse"))
        op(f"bfi.{kind}", kind, f"{kind} {kind} b32 b32", _insert)
        for sign in "su":
            typed = f"{sign}{_bits(kind)}"
            op(f"bfe.{typed}", kind, f"{kind} b32 b32", lambda b, x, p, n, s=sign == "s": _field(b, x, p, n, s))
            op(f"bfind.{typed}", "b32", kind, lambda b, x, s=sign == "s": _bfind(b, x, s, False))
            op(f"bfindshift.{typed}", "b32", kind, lambda b, x, s=sign == "s": _bfind(b, x, s, True))
    op("lop3.b32", "b32", "i b32 b32 b32", _lop3)
    op("prmt.b32", "b32", "b32 b32 b32", _prmt)
    for left in (True, False):
        for wrap in (True, False):
            name = f"shf.{'l' if left else 'r'}.{'wrap' if wrap else 'clamp'}"
            op(name, "b32", "b32 b32 b32", lambda b, x, y, n, f=left, w=wrap: _funnel(b, x, y, n, f, w))
    for name in ("and", "or", "xor"):
        method = name + "_" if name != "xor" else name
        op(f"{name}.p", "p", "p p", lambda b, x, y, m=method: getattr(b, m)(x, y))
    op("andn.p", "p", "p p", lambda b, x, y: b.and_(x, b.not_(y)))
    op("not.p", "p", "p", lambda b, x: b.not_(x))
    op("mov.p", "p", "p", lambda b, x: x)
    op("selp.p", "p", "p p p", lambda b, x, y, p: b.select(p, x, y))
    for name, lo, hi in (("pack.b64", I32, I64), ("pack.b32", I16, I32)):
        source = f"b{lo.width}"
        op(
            name,
            f"b{hi.width}",
            f"{source} {source}",
            lambda b, x, y, t=hi: b.or_(b.zext(x, vec(t)), b.shl(b.zext(y, vec(t)), splat(t, t.width // 2))),
        )
    op("low.b64", "b32", "b64", lambda b, x: b.trunc(x, vec(I32)))
    op("high.b64", "b32", "b64", lambda b, x: b.trunc(b.lshr(x, splat(I64, 32)), vec(I32)))
    op("low.b32", "b16", "b32", lambda b, x: b.trunc(x, vec(I16)))
    op("high.b32", "b16", "b32", lambda b, x: b.trunc(b.lshr(x, splat(I32, 16)), vec(I16)))
