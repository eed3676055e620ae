"""Raw memory and vector instructions that the numba core calls: one intrinsic each, int64 in and out.

Addresses are host addresses as int64. Masks hold one bit a lane in the low 32 bits. `scratch` holds 32 int64
virtual addresses, one a lane.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from components.judge.emulate import layout
from components.judge.emulate.ir_tools import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    Builder,
    Value,
    broadcast,
    call,
    splat,
    vec,
)
from components.judge.emulate.vector_ops import OPS, switch


def _intrinsic(arity: int, emit: Callable[..., Any], returns: bool = True) -> Any:
    """An intrinsic of `arity` int64 arguments; `emit(builder, *args)` gives an i64 or nothing."""
    result = types.int64 if returns else types.void

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        value = emit(builder, *arguments)
        return value if returns else context.get_dummy_value()

    def typed() -> Any:
        return result(*[types.int64] * arity), codegen

    # numba reads the number of arguments from the signature
    functions: dict[int, Any] = {
        1: lambda typingctx, a: typed(),
        2: lambda typingctx, a, b: typed(),
        3: lambda typingctx, a, b, c: typed(),
        4: lambda typingctx, a, b, c, d: typed(),
        5: lambda typingctx, a, b, c, d, e: typed(),
    }
    return intrinsic(functions[arity])


def _pointer(b: Builder, address: Value, kind: Any) -> Value:
    return b.inttoptr(address, kind.as_pointer())


def _load(kind: Any) -> Any:
    def emit(b: Builder, address: Value) -> Value:
        value = b.load(_pointer(b, address, kind), align=1)
        return value if kind == I64 else b.zext(value, I64)

    return _intrinsic(1, emit)


def _store(kind: Any) -> Any:
    def emit(b: Builder, address: Value, value: Value) -> None:
        b.store(value if kind == I64 else b.trunc(value, kind), _pointer(b, address, kind), align=1)

    return _intrinsic(2, emit, returns=False)


ld8, ld16, ld32, ld64 = _load(I8), _load(I16), _load(I32), _load(I64)
st8, st16, st32, st64 = _store(I8), _store(I16), _store(I32), _store(I64)
popcount = _intrinsic(1, lambda b, x: call(b, "llvm.ctpop.i64", I64, x))
lowest = _intrinsic(1, lambda b, x: call(b, "llvm.cttz.i64", I64, x, I1(0)))


def _mask(b: Builder, active: Value) -> Value:
    return b.bitcast(b.trunc(active, I32), vec(I1))


def _bits(b: Builder, mask: Value) -> Value:
    return b.zext(b.bitcast(mask, I32), I64)


def _lanes32(b: Builder, address: Value) -> Value:
    return b.load(_pointer(b, address, vec(I32)), align=4)


def _lanes64(b: Builder, address: Value) -> Value:
    return b.load(_pointer(b, address, vec(I64)), align=8)


def _min_pc(b: Builder, address: Value, active: Value) -> Value:
    pcs = b.select(_mask(b, active), _lanes32(b, address), splat(I32, 0x7FFFFFFF))
    return b.zext(call(b, "llvm.vector.reduce.umin.v32i32", I32, pcs), I64)


def _equal_pc(b: Builder, address: Value, active: Value, pc: Value) -> Value:
    same = b.icmp_signed("==", _lanes32(b, address), broadcast(b, b.trunc(pc, I32)))
    return b.and_(_bits(b, same), active)


def _set32(b: Builder, address: Value, active: Value, value: Value) -> None:
    pointer = _pointer(b, address, vec(I32))
    b.store(b.select(_mask(b, active), broadcast(b, b.trunc(value, I32)), b.load(pointer, align=4)), pointer, align=4)


min_pc = _intrinsic(2, _min_pc)  # (lanes, mask): smallest of the masked lanes
equal32 = _intrinsic(3, _equal_pc)  # (lanes, mask, value): masked lanes that equal the value
set32 = _intrinsic(3, _set32, returns=False)  # (lanes, mask, value)


def _address(b: Builder, register: Value, offset: Value, narrow: Value, scratch: Value) -> None:
    """scratch[lane] = register[lane] + offset; `narrow` 1: a 32-bit register, 0: 64-bit."""
    then, other, done = (b.append_basic_block(n) for n in ("narrow", "wide", "addressed"))
    step = broadcast(b, offset)
    out = _pointer(b, scratch, vec(I64))
    b.cbranch(b.icmp_signed("==", narrow, I64(0)), other, then)
    b.position_at_end(then)
    wrapped = b.add(_lanes32(b, register), broadcast(b, b.trunc(offset, I32)))  # a 32-bit address wraps
    b.store(b.zext(wrapped, vec(I64)), out, align=8)
    b.branch(done)
    b.position_at_end(other)
    b.store(b.add(_lanes64(b, register), step), out, align=8)
    b.branch(done)
    b.position_at_end(done)


def _outside(b: Builder, scratch: Value, active: Value, base: Value, room: Value, align: Value) -> Value:
    """Active lanes whose address is not in [base, base + room] or has a bit of `align` set; room < 0: all of them."""
    addresses = _lanes64(b, scratch)
    offset = b.sub(addresses, broadcast(b, base))
    far = b.icmp_unsigned(">", offset, broadcast(b, room))
    odd = b.icmp_signed("!=", b.and_(addresses, broadcast(b, align)), splat(I64, 0))
    bad = b.and_(_bits(b, b.or_(far, odd)), active)
    return b.select(b.icmp_signed("<", room, I64(0)), active, bad)


address32 = _intrinsic(4, _address, returns=False)
outside = _intrinsic(5, _outside)


def _gather(b: Builder, scratch: Value, delta: Value, active: Value, register: Value, kind: Value) -> None:
    """register[lane] = host[scratch[lane] + delta]; kind 0 u8, 1 s8, 2 u16, 3 s16, 4 b32, 5 b64."""
    mask = _mask(b, active)
    hosts = b.add(_lanes64(b, scratch), broadcast(b, delta))
    done = b.append_basic_block("gathered")
    chooser = b.switch(kind, done)
    table = ((I8, "zext"), (I8, "sext"), (I16, "zext"), (I16, "sext"), (I32, ""), (I64, ""))
    for number, (element, extend) in enumerate(table):
        block = b.append_basic_block("gather")
        chooser.add_case(I64(number), block)
        b.position_at_end(block)
        pointers = b.inttoptr(hosts, vec(element.as_pointer()))
        slot = vec(I64 if element == I64 else I32)
        name = f"llvm.masked.gather.v32i{element.width}.v32p0"
        value = call(b, name, vec(element), pointers, I32(1), mask, splat(element, 0))
        value = getattr(b, extend)(value, slot) if extend else value
        out = _pointer(b, register, slot)
        b.store(b.select(mask, value, b.load(out, align=4)), out, align=4)
        b.branch(done)
    b.position_at_end(done)


def _scatter(b: Builder, scratch: Value, delta: Value, active: Value, register: Value, size: Value) -> None:
    """host[scratch[lane] + delta] = the low `size` bytes of register[lane]; of equal addresses the last lane wins."""
    mask = _mask(b, active)
    hosts = b.add(_lanes64(b, scratch), broadcast(b, delta))
    done = b.append_basic_block("scattered")
    chooser = b.switch(size, done)
    for element in (I8, I16, I32, I64):
        block = b.append_basic_block("scatter")
        chooser.add_case(I64(element.width // 8), block)
        b.position_at_end(block)
        value = _lanes64(b, register) if element == I64 else _lanes32(b, register)
        value = b.trunc(value, vec(element)) if element.width < 32 else value
        pointers = b.inttoptr(hosts, vec(element.as_pointer()))
        name = f"llvm.masked.scatter.v32i{element.width}.v32p0"
        call(b, name, ir.VoidType(), value, pointers, I32(1), mask)
        b.branch(done)
    b.position_at_end(done)


gather = _intrinsic(5, _gather, returns=False)
scatter = _intrinsic(5, _scatter, returns=False)


def _lowest_address(b: Builder, scratch: Value, active: Value) -> Value:
    far = splat(I64, 0x7FFFFFFFFFFFFFFF)
    values = b.select(_mask(b, active), _lanes64(b, scratch), far)
    return call(b, "llvm.vector.reduce.umin.v32i64", I64, values)


def _unit_map(b: Builder, scratch: Value, active: Value, origin: Value, shift: Value) -> Value:
    """A bit map of the units (1 << shift bytes) touched, counted from `origin`; 0 when one is 64 or more units away."""
    offset = b.sub(_lanes64(b, scratch), broadcast(b, origin))
    unit = b.lshr(offset, broadcast(b, shift))
    unit = b.select(_mask(b, active), unit, splat(I64, 0))
    far = call(b, "llvm.vector.reduce.umax.v32i64", I64, unit)
    one = b.select(_mask(b, active), b.shl(splat(I64, 1), b.and_(unit, splat(I64, 63))), splat(I64, 0))
    bits = call(b, "llvm.vector.reduce.or.v32i64", I64, one)
    return b.select(b.icmp_unsigned(">", far, I64(63)), I64(0), bits)


lowest_address = _intrinsic(2, _lowest_address)
unit_map = _intrinsic(4, _unit_map)


def _find_way(b: Builder, tags: Value, tag: Value) -> Value:
    """The way (0-7) of an L1 set that holds the tag; 8 when none does."""
    kind = ir.VectorType(I64, layout.L1_WAYS)
    have = b.load(_pointer(b, tags, kind), align=8)
    want = b.insert_element(ir.Constant(kind, ir.Undefined), tag, I32(0))
    want = b.shuffle_vector(want, want, ir.Constant(ir.VectorType(I32, layout.L1_WAYS), [0] * layout.L1_WAYS))
    same = b.zext(b.bitcast(b.icmp_signed("==", have, want), I8), I64)
    return call(b, "llvm.cttz.i64", I64, b.or_(same, I64(1 << layout.L1_WAYS)), I1(0))


find_way = _intrinsic(2, _find_way)


def _atomic(b: Builder, operation: Value, kind: Value, old: Value, value: Value, swap: Value) -> Value:
    """The new memory word; kind as in ATOMIC_KINDS, operation as in ATOMIC_OPERATIONS."""
    slot = b.alloca(I64)
    b.store(old, slot)
    done = b.append_basic_block("atomic.done")
    chooser = b.switch(b.add(b.mul(kind, I64(16)), operation), done)
    table = ((I32, False), (I32, True), (I64, False), (I64, True), (F32, True), (F64, True))
    for number, name in enumerate(HALF_KINDS, len(table)):
        block = b.append_basic_block("atomic")
        chooser.add_case(I64(number * 16 + ATOMIC_OPERATIONS.index("add")), block)
        b.position_at_end(block)
        lanes = [broadcast(b, b.trunc(word, I32)) for word in (old, value)]  # the same row as add.f16 and the others
        b.store(b.zext(b.extract_element(OPS[f"add.{name}"].make(b, *lanes), I32(0)), I64), slot)
        b.branch(done)
    for number, (element, signed) in enumerate(table):
        for code, name in enumerate(ATOMIC_OPERATIONS):
            real = element in (F32, F64)
            if real and name not in ("add", "exch", "min", "max"):
                continue
            block = b.append_basic_block("atomic")
            chooser.add_case(I64(number * 16 + code), block)
            b.position_at_end(block)
            b.store(_atomic_case(b, name, element, signed, (old, value, swap)), slot)
            b.branch(done)
    b.position_at_end(done)
    return b.load(slot)


HALF_KINDS = ("f16", "bf16", "f16x2", "bf16x2")
ATOMIC_KINDS = ("u32", "s32", "u64", "s64", "f32", "f64", *HALF_KINDS)
ATOMIC_OPERATIONS = ("add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec")


def _atomic_case(b: Builder, name: str, element: Any, signed: bool, words: tuple[Value, ...]) -> Value:
    real = element in (F32, F64)
    bits = {F32: I32, F64: I64}.get(element, element)
    old, value, swap = (w if bits == I64 else b.trunc(w, bits) for w in words)
    if real:
        old, value = b.bitcast(old, element), b.bitcast(value, element)
        suffix = "f32" if element == F32 else "f64"
        if name == "add":
            new = b.fadd(old, value)
        elif name == "exch":
            new = value
        else:
            new = call(b, f"llvm.{name}num.{suffix}", element, old, value)
        new = b.bitcast(new, bits)
    elif name in ("min", "max"):
        less = (b.icmp_signed if signed else b.icmp_unsigned)("<" if name == "min" else ">", old, value)
        new = b.select(less, old, value)
    elif name == "cas":
        new = b.select(b.icmp_signed("==", old, value), swap, old)
    elif name == "inc":
        new = b.select(b.icmp_unsigned(">=", old, value), bits(0), b.add(old, bits(1)))
    elif name == "dec":
        wrap = b.or_(b.icmp_signed("==", old, bits(0)), b.icmp_unsigned(">", old, value))
        new = b.select(wrap, value, b.sub(old, bits(1)))
    elif name == "exch":
        new = value
    else:
        new = getattr(b, {"add": "add", "and": "and_", "or": "or_", "xor": "xor"}[name])(old, value)
    return new if bits == I64 else b.zext(new, I64)


atomic_word = _intrinsic(5, _atomic)


def _through_row(name: str, before: Any, after: Callable[[Builder, Value], Value]) -> Any:
    """A row of the vector table as a scalar function of one integer: its bits in, the bits that `after` makes out."""

    def emit(b: Builder, word: Value) -> Value:
        bits = I64 if before == F64 else I32
        value = word if bits == I64 else b.trunc(word, I32)
        value = b.bitcast(value, before) if before in (F32, F64) else value
        return after(b, b.extract_element(OPS[name].make(b, broadcast(b, value)), I32(0)))

    return _intrinsic(1, emit)


def _wide_bits(b: Builder, value: Value) -> Value:
    return b.bitcast(b.fpext(value, F64), I64)


def _multiply_add(b: Builder, total: Value, x: Value, y: Value) -> Value:
    total, x, y = (b.bitcast(v, F64) for v in (total, x, y))
    return b.bitcast(call(b, "llvm.fma.f64", F64, x, y, total), I64)


# f16, bf16, f32 and s32 numbers <-> f64, as integers that hold their bits
f16_wide = _through_row("f32.f16", I32, _wide_bits)
bf16_wide = _through_row("f32.bf16", I32, _wide_bits)
f16_code = _through_row("f16.rn.f64", F64, lambda b, value: b.zext(value, I64))
f32_wide = _intrinsic(1, lambda b, x: _wide_bits(b, b.bitcast(b.trunc(x, I32), F32)))
f32_code = _intrinsic(1, lambda b, x: b.zext(b.bitcast(b.fptrunc(b.bitcast(x, F64), F32), I32), I64))
s32_wide = _intrinsic(1, lambda b, x: b.bitcast(b.sitofp(x, F64), I64))
s32_code = _intrinsic(1, lambda b, x: b.fptosi(b.bitcast(x, F64), I64))
multiply_add = _intrinsic(3, _multiply_add)  # (total, x, y): total + x * y, one rounding


def _vector_step(b: Builder, instruction: Value, registers: Value, active: Value) -> None:
    def field(offset: int) -> Value:
        return b.load(_pointer(b, b.add(instruction, I64(offset)), I64), align=8)

    fields = tuple(field(o) for o in (layout.I_D, layout.I_A, layout.I_B, layout.I_C, layout.I_V0))
    switch(b, field(layout.I_OP), registers, fields, field(layout.I_IMM), active)


vector_step = _intrinsic(3, _vector_step, returns=False)  # (instruction, registers, mask)
