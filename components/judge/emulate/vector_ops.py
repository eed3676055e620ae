"""The interpreter's vector operations: each works on the 32 lanes of a warp at once, as one table row of LLVM IR.

A row says the kinds of the destination and sources and how the value is made; `switch` turns the whole table into one
LLVM `switch`, so that no compiler is needed (numba brings LLVM; it takes some twenty seconds, once). Lanes outside the
execution mask keep their old value. No fast-math flag is ever set: add and mul round once each and are never
contracted; fma is llvm.fma (one rounding).

Kinds: b16 (low half of a 4-byte slot), b32, b64, f32, f64, p (predicate, one bit a lane), i (the
instruction's immediate, a scalar; always first).
"""

from dataclasses import dataclass

from components.judge.emulate import bit_ops, float_ops, half_ops, integer_ops
from components.judge.emulate.ir_tools import I1, I32, I64, Builder, Make, Value, load, store, vec
from components.judge.emulate.layout import FIRST_VECTOR_OP


@dataclass(frozen=True)
class VectorOp:
    """A row of the table: kinds and the function (builder, *sources) -> value."""

    dst: str
    src: tuple[str, ...]
    make: Make

    @property
    def registers(self) -> tuple[str, ...]:
        """Kinds of the sources that are registers."""
        return tuple(k for k in self.src if k != "i")


OPS: dict[str, VectorOp] = {}


def _op(name: str, dst: str, src: str, make: Make) -> None:
    OPS[name] = VectorOp(dst, tuple(src.split()), make)


def switch(b: Builder, op: Value, regs: Value, fields: tuple[Value, ...], imm: Value, active: Value) -> None:
    """Emit the switch over every vector operation; `fields` are the offsets d, a, b, c and the extra operand."""
    bits = b.trunc(active, I32)
    done = b.append_basic_block("vector.done")
    chooser = b.switch(op, done)
    for number, row in enumerate(OPS.values(), FIRST_VECTOR_OP):
        block = b.append_basic_block(f"vector.{number}")
        chooser.add_case(I64(number), block)
        b.position_at_end(block)
        sources = [load(b, regs, o, k) for o, k in zip(fields[1:], row.registers, strict=False)]
        value = row.make(b, *([imm] if row.src[0] == "i" else []), *sources)
        store(b, regs, fields[0], row.dst, value, b.bitcast(bits, vec(I1)), bits)
        b.branch(done)
    b.position_at_end(done)


def opcode(name: str) -> int | None:
    """The number of a vector operation, or None."""
    return _NUMBER.get(name)


integer_ops.register(_op)
float_ops.register(_op)
half_ops.register(_op)
bit_ops.register(_op)
_NUMBER = {name: number for number, name in enumerate(OPS, FIRST_VECTOR_OP)}
