"""Small helpers that build LLVM IR over 32-lane vectors; the vector tables and the core's intrinsics use them."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from components.judge.emulate.layout import LANES

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
I128 = ir.IntType(128)
F32, F64 = ir.FloatType(), ir.DoubleType()
ELEMENT = {"b16": I16, "b32": I32, "b64": I64, "f32": F32, "f64": F64, "p": I1}
Builder = Any
Value = Any
Make = Callable[..., Value]
Register = Callable[[str, str, str, Make], None]  # (name, destination kind, source kinds, function)


def vec(element: Any) -> Any:
    """<32 x element>."""
    return ir.VectorType(element, LANES)


def splat(element: Any, value: float | int) -> Value:
    """A constant in every lane."""
    return ir.Constant(vec(element), [value] * LANES)


def broadcast(b: Builder, scalar: Value) -> Value:
    """A run-time scalar in every lane."""
    kind = vec(scalar.type)
    one = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(vec(I32), [0] * LANES))


def call(b: Builder, name: str, result: Any, *arguments: Value) -> Value:
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, arguments)


def outlined(b: Builder, name: str, result: Any, body: Callable[..., Value], *arguments: Value) -> Value:
    """Call a function made once a module by `body(builder, *arguments)`: a long sequence that many rows use."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(body(inner, *function.args))
    return b.call(function, arguments)


def suffix(element: Any) -> str:
    """v32i32, v32f64, ..."""
    return f"v{LANES}" + {F32: "f32", F64: "f64"}.get(element, "") if element in (F32, F64) else f"v32i{element.width}"


def unary(name: str) -> Callable[..., Value]:
    """An intrinsic T -> T over a vector."""
    return lambda b, x: call(b, f"llvm.{name}.{suffix(x.type.element)}", x.type, x)


def load(b: Builder, base: Value, offset: Value, kind: str) -> Value:
    """The register at base + offset as a vector of its kind."""
    address = b.add(base, offset)
    if kind == "p":
        return b.bitcast(b.load(b.inttoptr(address, I32.as_pointer()), align=4), vec(I1))
    slot = I32 if kind == "b16" else ELEMENT[kind]
    value = b.load(b.inttoptr(address, vec(slot).as_pointer()), align=4)
    return b.trunc(value, vec(I16)) if kind == "b16" else value


def store(b: Builder, base: Value, offset: Value, kind: str, value: Value, mask: Value, bits: Value) -> None:
    """Write the active lanes of a register."""
    address = b.add(base, offset)
    if kind == "p":
        pointer = b.inttoptr(address, I32.as_pointer())
        new, old = b.bitcast(value, I32), b.load(pointer, align=4)
        b.store(b.or_(b.and_(new, bits), b.and_(old, b.not_(bits))), pointer, align=4)
        return
    if kind == "b16":
        value = b.zext(value, vec(I32))
    pointer = b.inttoptr(address, value.type.as_pointer())
    b.store(b.select(mask, value, b.load(pointer, align=4)), pointer, align=4)
