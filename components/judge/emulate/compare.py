"""setp and set over every type -> bytecode."""

from components.judge.emulate.half_instructions import HALVES
from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator, type_parts

LOGIC = ("and", "or", "xor")
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
PAIRS = ("f16x2", "bf16x2")
TRUE_WORD = {  # what set writes for true
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f16x2": 0x3C003C00,
    "bf16x2": 0x3F803F80,
}


def compare_name(t: Translator, compare: str, kind: str) -> str:
    """The vector operation of a comparison."""
    if kind in HALVES:
        return f"setp.{compare}.{kind}"
    letter, size = type_parts(kind, t.line)
    if letter != "f":
        kind = f"{'s' if letter == 's' else 'u'}{8 * size}"
        compare = UNSIGNED.get(compare, compare)
    return f"setp.{compare}.{kind}"


def _predicate(t: Translator, token: str) -> Register:
    """A predicate operand, possibly negated."""
    if token.startswith("!"):
        return t.temporary("not.p", token[1:])
    return t.operand(token, "p")


def _operands(t: Translator, parts: list[str], kind: str, tokens: list[str]) -> list[Register]:
    """The two sides, .ftz applied."""
    if kind in HALVES:
        places = [t.operand(x, "b32") for x in tokens]
    else:
        size = type_parts(kind, t.line)[1]
        places = [t.operand(x, {8: "b64", 2: "b16"}.get(size, "b32")) for x in tokens]
    if "ftz" not in parts:
        return places
    if kind not in ("f32", *HALVES):
        raise Unsupported(".".join(parts), t.line)
    return [t.temporary(f"ftz.{kind}", x) for x in places]


def setp(t: Translator, parts: list[str], o: list[str]) -> None:
    """setp.cmp{.bool}{.ftz}.type p{|q}, a, b{, {!}c}: q is the opposite, or (pairs) the upper half's outcome."""
    compare, kind, modes = parts[1], parts[-1], parts[2:-1]
    logic = next((m for m in LOGIC if m in modes), None)
    if any(m not in (*LOGIC, "ftz") for m in modes) or len(o) != (4 if logic else 3):
        raise Unsupported(".".join(parts), t.line)
    first, _, second = o[0].partition("|")
    x, y = _operands(t, parts, kind, o[1:3])
    if kind in PAIRS:
        one = kind.removesuffix("x2")
        high = [t.temporary("shr.u32", v, t.constant(16, 4)) for v in (x, y)]
        results = [t.temporary(compare_name(t, compare, one), *v) for v in ((x, y), high)]
    else:
        results = [t.temporary(compare_name(t, compare, kind), x, y)]
        if second:
            results.append(t.temporary("not.p", results[0]))
    other = _predicate(t, o[3]) if logic else None  # read before a target that may be the same register
    if other is not None:
        results = [t.temporary(f"{logic}.p", value, other) for value in results]
    for name, value in zip((first, second), results, strict=False):
        if name:
            t.vector("mov.p", name, value)


def set_value(t: Translator, parts: list[str], o: list[str]) -> None:
    """set.cmp{.bool}{.ftz}.dtype.stype d, a, b{, {!}c}."""
    compare, dst, src, modes = parts[1], parts[-2], parts[-1], parts[2:-2]
    logic = next((m for m in LOGIC if m in modes), None)
    if any(m not in (*LOGIC, "ftz") for m in modes) or len(o) != (4 if logic else 3):
        raise Unsupported(".".join(parts), t.line)
    x, y = _operands(t, parts, src, o[1:3])
    if src in PAIRS:
        if logic or dst not in ("u32", "s32", src):
            raise Unsupported(".".join(parts), t.line)
        t.vector("and.b32", o[0], t.temporary(f"mask.{compare}.{src}", x, y), t.constant(TRUE_WORD[dst], 4))
        return
    if dst not in TRUE_WORD or dst in PAIRS:
        raise Unsupported(".".join(parts), t.line)
    result = t.temporary(compare_name(t, compare, src), x, y)
    if logic:
        result = t.temporary(f"{logic}.p", result, _predicate(t, o[3]))
    t.vector("selp.b32", o[0], t.constant(TRUE_WORD[dst], 4), t.constant(0, 4), result)
