"""What each PTX instruction becomes. An instruction or modifier that is not listed is Unsupported, never guessed."""

from collections.abc import Callable, Sequence

from components.judge.emulate import layout
from components.judge.emulate.async_copy import copy_async
from components.judge.emulate.bit_instructions import (
    absolute_differences,
    dot,
    extract,
    funnel,
    insert,
    logic3,
    mask_or_extend,
    nth_set,
    pack_bytes,
    packed,
    permute,
    product24,
    unpack_bytes,
)
from components.judge.emulate.compare import compare_name, set_value, setp
from components.judge.emulate.convert import convert
from components.judge.emulate.half_instructions import HALVES, half
from components.judge.emulate.matrix_instructions import ldmatrix, mma
from components.judge.emulate.ptx_text import Tampered, Unsupported
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator, type_parts
from components.judge.emulate.transport import atomic, load, store
from components.judge.emulate.warp_instructions import active, barrier, elect, fence, match, redux, shfl, vote

Handler = Callable[[Translator, list[str], list[str]], None]
KIND = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}
ROUNDING = ("rz", "rm", "rp")


def translate(t: Translator, parts: list[str], operands: list[str]) -> None:
    """Emit the rows of one instruction.

    Args:
        t: where to emit.
        parts: the opcode split at its dots.
        operands: as text.
    """
    handler = HANDLERS.get(parts[0])
    if handler is None:
        raise Unsupported(".".join(parts), t.line)
    try:
        handler(t, parts, operands)
    except (IndexError, KeyError, ValueError):
        raise Unsupported(f"{'.'.join(parts)} {', '.join(operands)}"[:120], t.line) from None


def _refuse(t: Translator, parts: list[str], allowed: set[str]) -> None:
    for part in parts[1:-1]:
        if part not in allowed:
            raise Unsupported(".".join(parts), t.line)


def _float(t: Translator, parts: list[str], o: list[str]) -> None:
    """f32 and f64 arithmetic with its rounding, .ftz and .sat."""
    base, kind = parts[0], parts[-1]
    base = "fma" if base == "mad" else base
    _refuse(t, parts, {"rn", "ftz", "sat", "approx", "full", *ROUNDING, "NaN"})
    mode = next((m for m in ROUNDING if m in parts), "")
    name = f"{base}.{mode}.{kind}" if mode else f"{base}nan.{kind}" if "NaN" in parts else f"{base}.{kind}"
    t.vector(name, o[0], *_inputs(t, parts, o[1:]))
    if "sat" in parts:
        t.vector(f"saturate.{kind}", o[0], o[0])
    if "ftz" in parts and kind == "f32":
        t.vector("ftz.f32", o[0], o[0])


def _inputs(t: Translator, parts: list[str], sources: list[str]) -> Sequence[str | Register]:
    """The operands; .ftz takes a subnormal f32 as a zero of its sign."""
    if "ftz" in parts and parts[-1] == "f32":
        return [t.temporary("ftz.f32", s) for s in sources]
    return sources


def _binary(t: Translator, parts: list[str], o: list[str]) -> None:
    """add, sub, mul, mad, fma, div, rem, min, max, neg, abs over every type."""
    base, kind = parts[0], parts[-1]
    if kind in HALVES:
        half(t, parts, o)
        return
    if kind in ("f32x2", "s16x2", "u16x2"):
        packed(t, parts, o)
        return
    if kind == "relu":
        _relu(t, parts, o)
        return
    letter, size = type_parts(kind, t.line)
    if letter == "f":
        _float(t, parts, o)
        return
    width = 8 * size
    if "cc" in parts or base.endswith("c"):
        _carry(t, parts, o, width)
    elif base in ("mul", "mad") and "wide" in parts:
        _refuse(t, parts, {"wide"})
        t.vector(f"{base}wide.{letter}{width}", o[0], *o[1:])
    elif base in ("mul", "mad") and "hi" in parts:
        _refuse(t, parts, {"hi"})
        if base == "mul":
            t.vector(f"mulhi.{letter}{width}", o[0], o[1], o[2])
        else:
            high = t.temporary(f"mulhi.{letter}{width}", o[1], o[2])
            t.vector(f"add.b{width}", o[0], high, o[3])
    elif base in ("add", "sub") and "sat" in parts:
        t.vector(f"{base}sat.{letter}{width}", o[0], o[1], o[2])
    elif base in ("div", "rem", "min", "max"):
        _refuse(t, parts, set())
        t.vector(f"{base}.{letter}{width}", o[0], o[1], o[2])
    else:
        _refuse(t, parts, {"lo"})
        t.vector(f"{base}.b{width}", o[0], *o[1:])


def _relu(t: Translator, parts: list[str], o: list[str]) -> None:
    """min.s32.relu, max.s32.relu and the same of s16x2."""
    if parts[0] not in ("min", "max") or len(parts) != 3 or parts[1] not in ("s32", "s16x2"):
        raise Unsupported(".".join(parts), t.line)
    value = t.temporary(f"{parts[0]}.{parts[1]}", o[1], o[2])
    t.vector(f"max.{parts[1]}", o[0], value, t.constant(0, 4))


def _carry(t: Translator, parts: list[str], o: list[str], width: int) -> None:
    """add.cc, addc, sub.cc, subc, mad.cc, madc."""
    base, out = parts[0], "cc" in parts
    takes = base in ("addc", "subc", "madc")
    carry = t.carry if takes else t.false
    x: str | Register = o[1]
    y: str | Register = o[2]
    if base.startswith("mad"):
        high = "hi" in parts
        x = t.temporary(f"mulhi.{parts[-1]}" if high else f"mul.b{width}", o[1], o[2])
        y = o[3]
    subtract = base.startswith("sub")
    new = t.temporary(f"{'borrow' if subtract else 'carry'}.b{width}", x, y, carry) if out else None
    t.vector(f"{'subc' if subtract else 'addc'}.b{width}", o[0], x, y, carry)
    if new is not None:
        t.vector("mov.p", t.carry, new)


def _bitwise(t: Translator, parts: list[str], o: list[str]) -> None:
    kind = "p" if parts[-1] == "pred" else parts[-1]
    t.vector(f"{parts[0]}.{kind}", o[0], *o[1:])


def _shift(t: Translator, parts: list[str], o: list[str]) -> None:
    letter, size = type_parts(parts[-1], t.line)
    kind = f"b{8 * size}" if parts[0] == "shl" else f"{'s' if letter == 's' else 'u'}{8 * size}"
    t.vector(f"{parts[0]}.{kind}", o[0], o[1], o[2])


def _function(t: Translator, parts: list[str], o: list[str]) -> None:
    """sqrt, rcp, rsqrt, ex2, lg2, sin, cos, tanh."""
    if parts[-1] in HALVES:
        half(t, parts, o)
        return
    _refuse(t, parts, {"approx", "rn", "ftz", "full", *ROUNDING})
    mode = next((f"{m}." for m in ROUNDING if m in parts), "")
    t.vector(f"{parts[0]}.{mode}{parts[-1]}", o[0], *_inputs(t, parts, o[1:]))
    if "ftz" in parts and parts[-1] == "f32":
        t.vector("ftz.f32", o[0], o[0])


def _count(t: Translator, parts: list[str], o: list[str]) -> None:
    if parts[0] == "bfind":
        name = "bfindshift" if "shiftamt" in parts else "bfind"
        t.vector(f"{name}.{parts[-1]}", o[0], o[1])
    else:
        t.vector(f"{parts[0]}.{parts[-1]}", o[0], *o[1:])


def _mov(t: Translator, parts: list[str], o: list[str]) -> None:
    kind = parts[-1]
    if kind == "pred":
        t.vector("mov.p", o[0], o[1])
        return
    size = type_parts(kind, t.line)[1]
    if o[0].startswith("{"):
        names = [n.strip() for n in o[0][1:-1].split(",")]
        source = t.operand(o[1], KIND[size])
        if size == len(names) and size < 8:
            unpack_bytes(t, source, names)
            return
        if len(names) == 4:
            halves: list[tuple[Register, list[str]]] = [
                (t.temporary("low.b64", source), names[:2]),
                (t.temporary("high.b64", source), names[2:]),
            ]
            for word, (low, high) in halves:
                t.vector("low.b32", low, word)
                t.vector("high.b32", high, word)
            return
        low_value = t.temporary(f"low.b{8 * size}", source)  # the source may be one of the targets
        t.vector(f"high.b{8 * size}", names[1], source)
        t.vector("mov.b32" if size == 8 else "mov.b16", names[0], low_value)
    elif o[1].startswith("{"):
        names = [n.strip() for n in o[1][1:-1].split(",")]
        if size == len(names) and size < 8:
            pack_bytes(t, o[0], names)
        elif len(names) == 4:
            words = [t.temporary("pack.b32", names[k], names[k + 1]) for k in (0, 2)]
            t.vector("pack.b64", o[0], *words)
        else:
            t.vector(f"pack.b{8 * size}", o[0], *names)
    else:
        t.vector(f"mov.b{8 * size}", o[0], o[1])


def _select(t: Translator, parts: list[str], o: list[str]) -> None:
    size = type_parts(parts[-1] if parts[0] == "selp" else parts[1], t.line)[1]
    if parts[0] == "selp":
        t.vector(f"selp.{KIND[size]}", o[0], o[1], o[2], o[3])
        return
    _refuse(t, [parts[0], *parts[2:]], {"ftz"})
    zero = t.constant(0, 4)
    chosen = t.temporary(compare_name(t, "ge", parts[-1]), o[3], zero)
    t.vector(f"selp.{KIND[size]}", o[0], o[1], o[2], chosen)


def _cvta(t: Translator, parts: list[str], o: list[str]) -> None:
    space = next((p for p in parts if p in ("global", "shared", "local", "const", "param")), None)
    if space is None or parts[-1] not in ("u64", "b64"):
        raise Unsupported(".".join(parts), t.line)
    base = {"shared": layout.SHARED_WINDOW, "local": layout.LOCAL_WINDOW}.get(space, 0)
    t.vector("add64lo", o[0], o[1], imm=-base if "to" in parts else base)


def _isspacep(t: Translator, parts: list[str], o: list[str]) -> None:
    shared, local = t.constant(layout.SHARED_WINDOW, 8), t.constant(layout.LOCAL_WINDOW, 8)
    if parts[1].startswith("shared"):
        low = t.temporary("setp.ge.u64", o[1], shared)
        t.vector("and.p", o[0], low, t.temporary("setp.lt.u64", o[1], local))
    elif parts[1] == "global":
        t.vector("setp.lt.u64", o[0], o[1], shared)
    elif parts[1] == "local":
        t.vector("setp.ge.u64", o[0], o[1], local)
    else:
        raise Unsupported(".".join(parts), t.line)


def _bra(t: Translator, parts: list[str], o: list[str]) -> None:
    t.branch(t.prefix + o[0])


def _brx(t: Translator, parts: list[str], o: list[str]) -> None:
    """A jump table is laid out as a run of branches right after it."""
    targets = t.tables.get(t.prefix + o[1])
    if targets is None:
        raise Unsupported(f"branch table {o[1]}", t.line)
    index = t.operand(o[0], "b32").offset
    row = t.emit(layout.OP_BRX, A=index, SIZE=len(targets))
    if t.guard != (t.true.offset, 0):
        t.guard = (t.guard[0], t.guard[1] ^ layout.FULL)
        skip = f"{t.prefix}brx{row}"
        t.branch(skip)
        t.labels[skip] = len(t.rows) + len(targets)
        t.guard = (t.true.offset, 0)
    t.rows[row][layout.I_IMM // 8] = len(t.rows)
    for target in targets:
        t.branch(target)


def _return(t: Translator, parts: list[str], o: list[str]) -> None:
    if parts[0] == "ret" and t.prefix:
        t.branch(f"{t.prefix}end")
    else:
        t.emit(layout.OP_EXIT)


def _call(t: Translator, parts: list[str], o: list[str]) -> None:
    groups = [[n.strip() for n in x[1:-1].split(",") if n.strip()] for x in o if x.startswith("(")]
    names = [x for x in o if not x.startswith("(")]
    if len(names) != 1 or names[0].startswith("%"):
        raise Unsupported("indirect call", t.line)
    name = names[0]
    if name in ("vprintf", "printf", "malloc", "free", "__assertfail"):
        if name == "__assertfail":
            t.emit(layout.OP_TRAP)
            return
        raise Tampered(f"calls {name.removeprefix('v')}", t.line)
    results = groups[0] if o[0].startswith("(") else []
    arguments = groups[-1] if len(groups) > (1 if results else 0) else []
    t.inline(name, results, arguments)


def _hint(t: Translator, parts: list[str], o: list[str]) -> None:
    """Cache hints: pinning lines in L2 outlives the launch, so it is tampering; the rest does nothing here."""
    if any("evict_last" in p for p in parts):
        raise Tampered(f"pins a cache: {'.'.join(parts)}", t.line)
    if parts[0] == "createpolicy":
        if "fractional" not in parts and "range" not in parts:
            raise Unsupported(".".join(parts), t.line)
        t.vector("mov.b64", o[0], t.constant(0, 8))
    elif parts[0] in ("discard", "prefetchu"):
        raise Unsupported(".".join(parts), t.line)
    else:
        t.emit(layout.OP_NOP)


def _testp(t: Translator, parts: list[str], o: list[str]) -> None:
    t.vector(".".join(parts), o[0], o[1])


def _trap(t: Translator, parts: list[str], o: list[str]) -> None:
    t.emit(layout.OP_TRAP)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs"), _binary),
    **dict.fromkeys(("addc", "subc", "madc"), _binary),
    **dict.fromkeys(("and", "or", "xor", "not", "cnot"), _bitwise),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), _function),
    **dict.fromkeys(("popc", "clz", "brev", "bfind", "sad", "copysign"), _count),
    **dict.fromkeys(("selp", "slct"), _select),
    **dict.fromkeys(("ret", "exit"), _return),
    **dict.fromkeys(("bar", "barrier"), barrier),
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(("prefetch", "prefetchu", "discard", "createpolicy", "applypriority", "nanosleep"), _hint),
    **dict.fromkeys(("dp4a", "dp2a"), dot), **dict.fromkeys(("bmsk", "szext"), mask_or_extend),
    **dict.fromkeys(("mul24", "mad24"), product24),
    "mov": _mov, "setp": setp, "set": set_value, "lop3": logic3, "prmt": permute, "shf": funnel, "bfe": extract,
    "bfi": insert, "fns": nth_set, "vabsdiff4": absolute_differences,
    "cvta": _cvta, "isspacep": _isspacep, "bra": _bra, "brx": _brx, "call": _call, "shfl": shfl, "vote": vote,
    "redux": redux, "match": match, "elect": elect, "activemask": active, "testp": _testp, "cvt": convert,
    "cp": copy_async, "mma": mma, "ldmatrix": ldmatrix,
    "ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic,
    "trap": _trap,
}  # fmt: skip
