"""Rows for packed and odd operations: f32x2, integer pairs, dp4a, dp2a, vabsdiff4, fns, szext, bmsk, prmt modes."""

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from components.judge.emulate.ir_tools import F32, I16, I32, I64, Builder, Register, Value, call, splat, vec
from components.judge.emulate.layout import LANES

PRMT_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # selectors by the two low bits of the third operand, PTX ISA 9.7.9.7


def register(op: Register) -> None:
    """Add every row through `op(name, dst, src, make)`."""
    _packed_floats(op)
    _integer_pairs(op)
    _dot_products(op)
    _fields(op)
    for mode, table in PRMT_MODES.items():
        op(f"select.{mode}", "b32", "b32", lambda b, x, t=table: _choose(b, b.and_(x, splat(I32, 3)), t))


def _choose(b: Builder, index: Value, table: tuple[int, ...]) -> Value:
    value = splat(I32, table[-1])
    for k, entry in enumerate(table[:-1]):
        value = b.select(b.icmp_signed("==", index, splat(I32, k)), splat(I32, entry), value)
    return value


def _packed_floats(op: Register) -> None:
    """Two f32 in a 64-bit register; each half rounds on its own."""
    twice, lanes = ir.VectorType(F32, 2 * LANES), 2 * LANES

    def make(f: Callable[..., Value]) -> Callable[..., Value]:
        return lambda b, *x: b.bitcast(f(b, *[b.bitcast(v, twice) for v in x]), vec(I64))

    op("add.f32x2", "b64", "b64 b64", make(lambda b, x, y: b.fadd(x, y)))
    op("sub.f32x2", "b64", "b64 b64", make(lambda b, x, y: b.fsub(x, y)))
    op("mul.f32x2", "b64", "b64 b64", make(lambda b, x, y: b.fmul(x, y)))
    op("fma.f32x2", "b64", "b64 b64 b64", make(lambda b, x, y, z: call(b, f"llvm.fma.v{lanes}f32", twice, x, y, z)))


def _integer_pairs(op: Register) -> None:
    twice = ir.VectorType(I16, 2 * LANES)

    def make(f: Callable[..., Value]) -> Callable[..., Value]:
        return lambda b, *x: b.bitcast(f(b, *[b.bitcast(v, twice) for v in x]), vec(I32))

    for sign in "su":
        op(f"add.{sign}16x2", "b32", "b32 b32", make(lambda b, x, y: b.add(x, y)))
        for name, compare in (("min", "<"), ("max", ">")):

            def pick(b: Builder, x: Value, y: Value, c: str = compare, s: bool = sign == "s") -> Value:
                return b.select((b.icmp_signed if s else b.icmp_unsigned)(c, x, y), x, y)

            op(f"{name}.{sign}16x2", "b32", "b32 b32", make(pick))


def _parts(b: Builder, x: Value, bits: int, signed: bool) -> list[Value]:
    """The `bits`-wide parts of 32-bit lanes, lowest first, extended."""
    found = []
    for k in range(32 // bits):
        up = b.shl(x, splat(I32, 32 - bits * (k + 1)))
        found.append((b.ashr if signed else b.lshr)(up, splat(I32, 32 - bits)))
    return found


def _dot_products(op: Register) -> None:
    def dot(b: Builder, x: list[Value], y: list[Value], z: Value) -> Value:
        for u, v in zip(x, y, strict=True):
            z = b.add(z, b.mul(u, v))
        return z

    for a in "su":
        for c in "su":

            def four(b: Builder, x: Value, y: Value, z: Value, s: str = a, t: str = c) -> Value:
                return dot(b, _parts(b, x, 8, s == "s"), _parts(b, y, 8, t == "s"), z)

            op(f"dp4a.{a}32.{c}32", "b32", "b32 b32 b32", four)
            for place, start in (("lo", 0), ("hi", 2)):

                def two(b: Builder, x: Value, y: Value, z: Value, s: str = a, t: str = c, k: int = start) -> Value:
                    return dot(b, _parts(b, x, 16, s == "s"), _parts(b, y, 8, t == "s")[k : k + 2], z)

                op(f"dp2a.{place}.{a}32.{c}32", "b32", "b32 b32 b32", two)

    def differences(b: Builder, x: Value, y: Value, signed: bool) -> list[Value]:
        found = []
        for u, v in zip(_parts(b, x, 8, signed), _parts(b, y, 8, signed), strict=True):
            d = b.sub(u, v)
            found.append(b.select(b.icmp_signed("<", d, splat(I32, 0)), b.sub(splat(I32, 0), d), d))
        return found

    for sign in "su":

        def packed(b: Builder, x: Value, y: Value, s: bool = sign == "s") -> Value:
            value = splat(I32, 0)
            for k, d in enumerate(differences(b, x, y, s)):
                value = b.or_(value, b.shl(b.and_(d, splat(I32, 255)), splat(I32, 8 * k)))
            return value

        def total(b: Builder, x: Value, y: Value, z: Value, s: bool = sign == "s") -> Value:
            for d in differences(b, x, y, s):
                z = b.add(z, d)
            return z

        op(f"vabsdiff4.{sign}32", "b32", "b32 b32", packed)
        op(f"vabsdiff4add.{sign}32", "b32", "b32 b32 b32", total)


def _fields(op: Register) -> None:
    def ones_above(b: Builder, count: Value) -> Value:
        """All ones shifted left; none from 32 on."""
        count = b.select(b.icmp_unsigned(">", count, splat(I32, 32)), splat(I32, 32), count)
        wide = b.shl(splat(I64, 0xFFFFFFFF), b.zext(count, vec(I64)))
        return b.trunc(wide, vec(I32))

    def fit(b: Builder, count: Value, clamp: bool) -> Value:
        if not clamp:
            return b.and_(count, splat(I32, 31))
        return b.select(b.icmp_unsigned(">", count, splat(I32, 32)), splat(I32, 32), count)

    for clamp in (True, False):
        mode = "clamp" if clamp else "wrap"

        def mask(b: Builder, start: Value, width: Value, c: bool = clamp) -> Value:
            start, width = fit(b, start, c), fit(b, width, c)
            return b.and_(ones_above(b, start), b.not_(ones_above(b, b.add(start, width))))

        op(f"bmsk.{mode}.b32", "b32", "b32 b32", mask)
        for sign in "su":

            def extend(b: Builder, x: Value, width: Value, c: bool = clamp, s: bool = sign == "s") -> Value:
                width = fit(b, width, c)
                above = ones_above(b, width)
                value = b.and_(x, b.not_(above))
                if not s:
                    return value
                empty = b.icmp_signed("==", width, splat(I32, 0))
                top = b.select(empty, splat(I32, 0), b.sub(width, splat(I32, 1)))
                bit = b.and_(b.lshr(value, top), splat(I32, 1))
                return b.or_(value, b.select(b.icmp_signed("==", bit, splat(I32, 0)), splat(I32, 0), above))

            op(f"szext.{mode}.{sign}32", "b32", "b32 b32", extend)
    op("fns.b32", "b32", "b32 b32 b32", _find_nth_set)
    op("mul24.s32", "b32", "b32 b32", lambda b, x, y: b.mul(*[_low24(b, v, True) for v in (x, y)]))
    op("mul24.u32", "b32", "b32 b32", lambda b, x, y: b.mul(*[_low24(b, v, False) for v in (x, y)]))


def _low24(b: Builder, x: Value, signed: bool) -> Value:
    return (b.ashr if signed else b.lshr)(b.shl(x, splat(I32, 8)), splat(I32, 8))


def _find_nth_set(b: Builder, mask: Value, base: Value, offset: Value) -> Value:
    """fns: the |offset|-th set bit from `base` upwards (offset > 0) or downwards; offset 0: `base` itself if set."""
    zero, one = splat(I32, 0), splat(I32, 1)
    down = b.icmp_signed("<", offset, zero)
    wanted = b.select(down, b.sub(zero, offset), offset)
    wanted = b.select(b.icmp_signed("==", offset, zero), one, wanted)
    step = b.select(down, splat(I32, -1), one)
    still = b.icmp_unsigned("<", base, splat(I32, 32))
    only_one = b.icmp_signed("==", offset, zero)
    position, found = base, splat(I32, -1)
    for k in range(LANES):
        inside = b.icmp_unsigned("<", position, splat(I32, 32))
        bit = b.and_(b.lshr(mask, b.and_(position, splat(I32, 31))), one)
        hit = b.and_(b.icmp_signed("==", bit, one), b.and_(inside, still))
        if k:
            hit = b.and_(hit, b.not_(only_one))
        wanted = b.select(hit, b.sub(wanted, one), wanted)
        now = b.and_(hit, b.icmp_signed("==", wanted, zero))
        found = b.select(now, position, found)
        position = b.add(position, step)
    return found
