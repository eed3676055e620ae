"""Bit fields, permutes, three-input logic, packed products and packed floats -> bytecode."""

from components.judge.emulate.bit_ops import PRMT_MODES
from components.judge.emulate.ptx_text import Unsupported, integer
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator


def _only(t: Translator, parts: list[str], *forms: str) -> None:
    if ".".join(parts) not in forms:
        raise Unsupported(".".join(parts), t.line)


def logic3(t: Translator, parts: list[str], o: list[str]) -> None:
    """lop3.b32 d, a, b, c, lut and lop3.and/or.b32 d|p, a, b, c, lut, q with p = (d != 0) op q."""
    _only(t, parts, "lop3.b32", "lop3.and.b32", "lop3.or.b32")
    table = integer(o[4])
    if not 0 <= table <= 255 or len(o) != (5 if len(parts) == 2 else 6):
        raise Unsupported(f"{'.'.join(parts)} {', '.join(o)}"[:80], t.line)
    if len(parts) == 2:
        t.vector("lop3.b32", o[0], o[1], o[2], o[3], imm=table)
        return
    dst, _, predicate = o[0].partition("|")
    value = t.temporary("lop3.b32", o[1], o[2], o[3], imm=table)
    some = t.temporary("setp.ne.u32", value, t.constant(0, 4))
    other = t.temporary("not.p", o[5][1:]) if o[5].startswith("!") else t.operand(o[5], "p")
    t.vector(f"{parts[1]}.p", predicate, some, other)
    t.vector("mov.b32", dst, value)


def permute(t: Translator, parts: list[str], o: list[str]) -> None:
    """prmt.b32{.mode}: the modes pick their selector from the two low bits of the third operand."""
    _only(t, parts, "prmt.b32", *(f"prmt.b32.{mode}" for mode in PRMT_MODES))
    selector = t.temporary(f"select.{parts[2]}", o[3]) if len(parts) == 3 else t.operand(o[3], "b32")
    t.vector("prmt.b32", o[0], o[1], o[2], selector)


def funnel(t: Translator, parts: list[str], o: list[str]) -> None:
    """shf.l/r.wrap/clamp.b32."""
    _only(t, parts, *(f"shf.{side}.{mode}.b32" for side in "lr" for mode in ("wrap", "clamp")))
    t.vector(f"shf.{parts[1]}.{parts[2]}", o[0], o[1], o[2], o[3])


def extract(t: Translator, parts: list[str], o: list[str]) -> None:
    """bfe.u32/s32/u64/s64."""
    _only(t, parts, "bfe.u32", "bfe.s32", "bfe.u64", "bfe.s64")
    t.vector(f"bfe.{parts[1]}", o[0], o[1], o[2], o[3])


def insert(t: Translator, parts: list[str], o: list[str]) -> None:
    """bfi.b32/b64."""
    _only(t, parts, "bfi.b32", "bfi.b64")
    t.vector(f"bfi.{parts[1]}", o[0], o[1], o[2], o[3], o[4])


def mask_or_extend(t: Translator, parts: list[str], o: list[str]) -> None:
    """bmsk.mode.b32 d, start, width and szext.mode.type d, a, width."""
    modes = ("clamp", "wrap")
    _only(t, parts, *(f"bmsk.{m}.b32" for m in modes), *(f"szext.{m}.{k}32" for m in modes for k in "su"))
    t.vector(".".join(parts), o[0], o[1], o[2])


def nth_set(t: Translator, parts: list[str], o: list[str]) -> None:
    """fns.b32 d, mask, base, offset."""
    _only(t, parts, "fns.b32")
    t.vector("fns.b32", o[0], o[1], o[2], o[3])


def dot(t: Translator, parts: list[str], o: list[str]) -> None:
    """dp4a.atype.btype and dp2a.lo/hi.atype.btype."""
    kinds = [f"{a}32.{b}32" for a in "su" for b in "su"]
    _only(t, parts, *(f"dp4a.{k}" for k in kinds), *(f"dp2a.{m}.{k}" for m in ("lo", "hi") for k in kinds))
    t.vector(".".join(parts), o[0], o[1], o[2], o[3])


def absolute_differences(t: Translator, parts: list[str], o: list[str]) -> None:
    """vabsdiff4.type.type.type{.add} d, a, b, c without masks (c counts for .add only)."""
    kinds = ("s32", "u32")
    if parts[1] not in kinds or parts[2] not in kinds or parts[2] != parts[3] or parts[4:] not in ([], ["add"]):
        raise Unsupported(".".join(parts), t.line)
    if parts[4:]:
        t.vector(f"vabsdiff4add.{parts[2]}", o[0], o[1], o[2], o[3])
    else:
        t.vector(f"vabsdiff4.{parts[2]}", o[0], o[1], o[2])


def product24(t: Translator, parts: list[str], o: list[str]) -> None:
    """mul24.lo and mad24.lo: the low 32 bits of a product of 24-bit integers."""
    _only(t, parts, *(f"{base}.lo.{k}32" for base in ("mul24", "mad24") for k in "su"))
    if parts[0] == "mul24":
        t.vector(f"mul24.{parts[2]}", o[0], o[1], o[2])
    else:
        t.vector("add.b32", o[0], t.temporary(f"mul24.{parts[2]}", o[1], o[2]), o[3])


def packed(t: Translator, parts: list[str], o: list[str]) -> None:
    """add, sub, mul, fma of f32x2 (sm_100, round to nearest only); add, min, max of pairs of 16-bit integers."""
    if parts[-1] != "f32x2":
        if parts[0] not in ("add", "min", "max") or len(parts) != 2:
            raise Unsupported(".".join(parts), t.line)
        t.vector(f"{parts[0]}.{parts[-1]}", o[0], o[1], o[2])
        return
    if not set(parts[1:-1]) <= {"rn"} or parts[0] not in ("add", "sub", "mul", "fma"):
        raise Unsupported(".".join(parts), t.line)
    t.vector(f"{parts[0]}.f32x2", o[0], *o[1:])


def unpack_bytes(t: Translator, source: Register, names: list[str]) -> None:
    """mov.b32 {a, b, c, d}, x and mov.b16 {a, b}, x: bytes, the lowest first."""
    values = [t.temporary("bfe.u32", source, t.constant(8 * k, 4), t.constant(8, 4)) for k in range(len(names))]
    for name, value in zip(names, values, strict=True):
        t.vector("mov.b32", name, value)


def pack_bytes(t: Translator, dst: str, names: list[str]) -> None:
    """mov.b32 x, {a, b, c, d} and mov.b16 x, {a, b}."""
    value: str | Register = t.constant(0, 4)
    for k, name in enumerate(names):
        value = t.temporary("bfi.b32", name, value, t.constant(8 * k, 4), t.constant(8, 4))
    t.vector("mov.b32", dst, value)
