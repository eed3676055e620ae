"""ld, st, atom, red: state spaces, vectors, cache operators, parameters of kernels and of calls."""

import re

from components.judge.emulate import layout
from components.judge.emulate.primitives import ATOMIC_KINDS, ATOMIC_OPERATIONS, HALF_KINDS
from components.judge.emulate.ptx_text import Tampered, Unsupported
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator, type_parts

SPACES = {"global": layout.SP_GLOBAL, "shared": layout.SP_SHARED, "local": layout.SP_LOCAL, "const": layout.SP_CONST}
STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
IGNORED = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "gpu", "sys", "cta", "weak", "noftz", "uni"}
STREAMED = {"cs", "lu", "L1::no_allocate", "L1::evict_first", "L2::evict_first"}
VECTORS = {2: ("f32", *HALF_KINDS), 4: ("f32", *HALF_KINDS), 8: ("f16", "bf16")}  # lengths of a vector atomic
MAX_PIECES = 4096  # of one call parameter
HALF_BYTES = {"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4}
HINTS = re.compile(r"L1::(no_allocate|evict_\w+)$|L2::(64B|128B|256B|cache_hint|evict_(normal|first))$")


def _modifiers(t: Translator, parts: list[str]) -> tuple[int, int, int]:
    """(space, vector length, flags); unknown modifiers are refused."""
    space, vector, flags = layout.SP_GENERIC, 1, 0
    for part in parts[1:-1]:
        base = part.split("::")[0]
        flags |= layout.F_STREAM if part in STREAMED else 0
        if base in SPACES and part in (base, "shared::cta"):
            space = SPACES[base]
        elif part in ("v2", "v4", "v8"):
            vector = int(part[1])
        elif part in STRONG:
            flags |= layout.F_STRONG
        elif "evict_last" in part and part.startswith("L2"):
            raise Tampered(f"pins L2: {'.'.join(parts)}", t.line)
        elif part not in IGNORED and not HINTS.match(part) and part not in ATOMIC_OPERATIONS:
            raise Unsupported(".".join(parts), t.line)
    return space, vector, flags


def _values(token: str, count: int) -> list[str]:
    names = [n.strip() for n in token[1:-1].split(",")] if token.startswith("{") else [token]
    if len(names) != count:
        raise ValueError(token)
    return names


def load(t: Translator, parts: list[str], o: list[str]) -> None:
    """ld: from a parameter it is a move, otherwise a checked gather."""
    letter, size = type_parts(parts[-1], t.line)
    if any(p.split("::")[0] == "param" for p in parts):
        _load_parameter(t, parts, o, letter, size)
        return
    space, count, flags = _modifiers(t, parts)
    names = _values(o[0], count)
    kind = {1: 0, 2: 2, 4: 4, 8: 5}[size] + (1 if letter == "s" and size < 4 else 0)
    place, offset, narrow = t.address(o[1])
    if count > 4:
        place = _keep(t, place, narrow)
    targets: list[tuple[Register, str]] = []
    registers: list[int] = []
    for name in names:
        wanted = 8 if size == 8 else 4
        found = t.find(name) if name != "_" else None
        if name != "_" and (found is None or found.slot == 1 or found.slot < wanted):
            raise Unsupported(f"destination {name}", t.line)
        if found is not None and found.slot != wanted:
            temporary = t.allocate(4)
            targets.append((temporary, name))
            found = temporary
        registers.append(-1 if found is None else found.offset)
    for start in range(0, count, 4):
        fields = {f"V{k}": r for k, r in enumerate(registers[start : start + 4])}
        t.emit(layout.OP_LD, A=place, IMM=offset + start * size, SIZE=size, VEC=min(4, count), SPACE=space, KIND=kind,
               FLAGS=flags | narrow, **fields)  # fmt: skip
    for temporary, name in targets:
        t.vector(f"widen.{'s' if letter == 's' else 'u'}32", name, temporary)


def _keep(t: Translator, place: int, narrow: int) -> int:
    """A copy of an address register, for accesses made in two halves."""
    slot = 4 if narrow else 8
    return t.vector(f"mov.b{8 * slot}", t.allocate(slot), Register(place, slot)).offset


def store(t: Translator, parts: list[str], o: list[str]) -> None:
    """st: to a call's parameter it is a move, otherwise a checked scatter."""
    size = type_parts(parts[-1], t.line)[1]
    if any(p.split("::")[0] == "param" for p in parts):
        _store_parameter(t, parts, o, size)
        return
    space, count, flags = _modifiers(t, parts)
    if space == layout.SP_CONST:
        raise Unsupported(".".join(parts), t.line)
    _own_memory(t, o[0])
    place, offset, narrow = t.address(o[0])
    registers = []
    for name in _values(o[1], count):
        found = t.find(name)
        if found is None:
            found = t.operand(name, "b64" if size == 8 else "b32")
        if found.slot == 8 and size < 8:
            found = t.temporary("narrow.b64", found)
        if found.slot != (8 if size == 8 else 4):
            raise Unsupported(f"source {name}", t.line)
        registers.append(found.offset)
    for start in range(0, count, 4):
        fields = {f"V{k}": r for k, r in enumerate(registers[start : start + 4])}
        t.emit(layout.OP_ST, A=place, IMM=offset + start * size, SIZE=size, VEC=min(4, count), SPACE=space,
               FLAGS=flags | narrow, **fields)  # fmt: skip


def _own_memory(t: Translator, address: str) -> None:
    """A store straight to a module-scope variable keeps state between launches."""
    name = re.match(r"\[\s*([\w$.]+)", address)
    if name and t.variables.get(name.group(1), ("", 0))[0] in ("global", "const"):
        raise Tampered(f"writes the module-scope variable {name.group(1)}", t.line)


def atomic(t: Translator, parts: list[str], o: list[str]) -> None:
    """atom and red: 4 and 8 bytes, f16 and bf16 sums, cas.b16, and vectors of sums (sm_90)."""
    operation = next((p for p in parts[1:-1] if p in ATOMIC_OPERATIONS), None)
    space, count, _ = _modifiers(t, parts)
    kind, size = _atomic_kind(t, parts, operation or "")
    if operation is None or space not in (layout.SP_GLOBAL, layout.SP_SHARED, layout.SP_GENERIC):
        raise Unsupported(".".join(parts), t.line)
    if count > 1 and (operation != "add" or parts[-1] not in VECTORS.get(count, ()) or space == layout.SP_SHARED):
        raise Unsupported(".".join(parts), t.line)
    if parts[0] == "red":
        o = ["_", *o]
    wanted = 4 if operation == "cas" else 3
    if len(o) > wanted and not any("cache_hint" in p for p in parts):
        raise Unsupported(f"{'.'.join(parts)} with {len(o)} operands", t.line)
    _own_memory(t, o[1])
    place, offset, narrow = t.address(o[1])
    word = "b64" if size == 8 else "b32"
    sources = [t.operand(name, word).offset for name in _values(o[2], count)]
    names = _values(o[0], count) if o[0] != "_" else ["_"] * count
    targets = [-1 if name == "_" else t.target(name, word).offset for name in names]
    swap = t.operand(o[3], word) if operation == "cas" else t.constant(0, 8)
    side = {}
    if count > 1:
        spare = [-1] * (layout.ATOMIC_PARTS - count)
        side = {"V3": t.side_row([*sources, *spare, *targets])}
    t.emit(
        layout.OP_ATOM,
        D=targets[0],
        A=place,
        B=sources[0],
        C=swap.offset,
        IMM=offset,
        SIZE=size,
        VEC=count,
        SPACE=space,
        KIND=kind,
        FLAGS=narrow,
        V0=ATOMIC_OPERATIONS.index(operation),
        **side,
    )


def _atomic_kind(t: Translator, parts: list[str], operation: str) -> tuple[int, int]:
    """(number of the kind, bytes) of an atomic operation on a type."""
    if parts[-1] in HALF_KINDS and operation == "add" and "noftz" in parts:
        return ATOMIC_KINDS.index(parts[-1]), HALF_BYTES[parts[-1]]
    if parts[-1] == "b16" and operation == "cas":
        return 0, 2
    letter, size = type_parts(parts[-1], t.line)
    allowed = ("add", "exch", "min", "max") if letter == "f" else ATOMIC_OPERATIONS
    if size < 4 or operation not in allowed or (operation in ("inc", "dec") and parts[-1] != "u32"):
        raise Unsupported(".".join(parts), t.line)
    return {"f": 4 + (size == 8)}.get(letter, (2 if size == 8 else 0) + (letter == "s")), size


def _load_parameter(t: Translator, parts: list[str], o: list[str], letter: str, size: int) -> None:
    if o[1].lstrip("[ ").startswith("%"):  # an address in a register: the parameters as constant memory
        load(t, ["const" if p.split("::")[0] == "param" else p for p in parts], o)
        return
    match = re.fullmatch(r"\[([\w$]+)(?:\+(-?\d+))?\]", o[1].replace(" ", ""))
    count = next((int(p[1]) for p in parts if p in ("v2", "v4")), 1)
    if match is None or any(p not in ("v2", "v4") and p.split("::")[0] != "param" for p in parts[1:-1]):
        raise Unsupported(f"{'.'.join(parts)} {o[1]}", t.line)
    for k, name in enumerate(_values(o[0], count)):
        if name == "_":
            continue
        place, offset = t.find(name), int(match.group(2) or 0) + k * size
        if place is None or place.slot == 1 or (size == 8 and place.slot != 8):
            raise Unsupported(f"destination {name}", t.line)
        kind = "mov.b64" if place.slot == 8 else "mov.b32"
        if match.group(1) in t.slots:
            source = _slot(t, t.slots[match.group(1)], offset, size)
            sign = "s" if letter == "s" else "u"
            if size < 4:
                source = t.temporary(f"extend.{sign}{8 * size}", source)
            if source.slot < place.slot:
                source = t.temporary(f"widen.{sign}32", source)
        else:
            source = t.kernel_parameter(match.group(1), offset, size, letter == "s", place.slot)
        t.vector(kind, name, source)


def _slot(t: Translator, name: str, offset: int, size: int) -> Register:
    """Bytes of a call's parameter; other pieces than were written are put together (padding is 0)."""
    pieces = t.slot_registers.get(name, {})
    written = pieces.get(offset)
    if written is not None and written[1] == size:
        return written[0]
    words = []
    for start in range(offset, offset + size, 4):
        word: Register = t.constant(0, 4)
        for k in range(min(4, size)):
            for first, (place, length) in pieces.items():
                shift = start + k - first
                if not 0 <= shift < length:
                    continue
                piece = place
                if place.slot == 8:
                    piece = t.temporary("low.b64" if shift < 4 else "high.b64", place)
                at = t.constant(8 * (shift % 4), 4)
                byte = t.temporary("bfe.u32", piece, at, t.constant(8, 4))
                word = t.temporary("bfi.b32", byte, word, t.constant(8 * k, 4), t.constant(8, 4))
                break
        words.append(word)
    return words[0] if size <= 4 else t.temporary("pack.b64", *words)


def _store_parameter(t: Translator, parts: list[str], o: list[str], size: int) -> None:
    match = re.fullmatch(r"\[([\w$]+)(?:\+(-?\d+))?\]", o[0].replace(" ", ""))
    count = next((int(p[1]) for p in parts if p in ("v2", "v4")), 1)
    if match is None or match.group(1) not in t.slots:
        raise Unsupported(f"{'.'.join(parts)} {o[0]}", t.line)
    for k, name in enumerate(_values(o[1], count)):
        pieces = t.slot_registers.setdefault(t.slots[match.group(1)], {})
        offset = int(match.group(2) or 0) + k * size
        if offset not in pieces:
            overlap = any(first < offset + size and offset < first + length for first, (_, length) in pieces.items())
            if overlap or len(pieces) >= MAX_PIECES:
                raise Unsupported(f"parameter {match.group(1)} written in two widths or too many pieces", t.line)
            pieces[offset] = (t.allocate(8 if size == 8 else 4), size)
        place, length = pieces[offset]
        if length != size:
            raise Unsupported(f"parameter {match.group(1)} written in two widths", t.line)
        source = t.operand(name, "b64" if size == 8 else "b32")
        t.vector("mov.b64" if size == 8 else "mov.b32", place, source)
