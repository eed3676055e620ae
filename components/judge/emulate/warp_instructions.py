"""Barriers, warp primitives and fences -> bytecode."""

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.translate import Translator, type_parts

KIND = {4: "b32", 8: "b64"}


def barrier(t: Translator, parts: list[str], o: list[str]) -> None:
    """bar.sync, bar.arrive, bar.red, the barrier.* spellings, bar.warp.sync."""
    if "warp" in parts:
        t.emit(layout.OP_WARPSYNC, V1=t.operand(o[0], "b32").offset)
        return
    flags, fields = 0, {}
    kinds = {"popc": 1, "and": 2, "or": 3}
    known = {"cta", "aligned", "sync", "red", "arrive", "pred", "u32", *kinds}
    if not set(parts[1:]) <= known or len({"sync", "red", "arrive"} & set(parts)) != 1:
        raise Unsupported(".".join(parts), t.line)
    if "arrive" in parts:
        flags = layout.F_ARRIVE
        if len(o) != 2:
            raise Unsupported(f"{'.'.join(parts)} without a thread count", t.line)
    if "red" in parts:
        kind = next((p for p in parts if p in kinds), "")
        if parts[-1] != ("u32" if kind == "popc" else "pred") or not kind or len(o) not in (3, 4):
            raise Unsupported(".".join(parts), t.line)
        flags = layout.F_NEGATE if o[-1].startswith("!") else 0
        fields = {
            "D": t.target(o[0], "b32" if kind == "popc" else "p").offset,
            "C": t.operand(o[-1].lstrip("!"), "p").offset,
            "IMM": kinds[kind],
        }
        o = o[1:-1]
    count = t.operand(o[1], "b32") if len(o) > 1 else t.constant(0, 4)
    t.emit(layout.OP_BAR, A=t.operand(o[0] if o else "0", "b32").offset, B=count.offset, FLAGS=flags, **fields)


def shfl(t: Translator, parts: list[str], o: list[str]) -> None:
    """shfl.sync."""
    if parts[1] != "sync" or parts[-1] != "b32":
        raise Unsupported(".".join(parts), t.line)
    dst, _, predicate = o[0].partition("|")
    fields = {name: t.operand(token, "b32").offset for name, token in zip(("A", "B", "C", "V1"), o[1:], strict=True)}
    if predicate and predicate != "_":
        fields["V0"] = t.target(predicate, "p").offset
    t.emit(layout.OP_SHFL, D=t.target(dst, "b32").offset, IMM=("up", "down", "bfly", "idx").index(parts[2]),
           V2=t.allocate(4).offset, **fields)  # fmt: skip


def vote(t: Translator, parts: list[str], o: list[str]) -> None:
    """vote.sync."""
    if parts[1] != "sync":
        raise Unsupported(".".join(parts), t.line)
    mode = ("ballot", "any", "all", "uni").index(parts[2])
    dst = t.target(o[0], "b32" if mode == 0 else "p").offset
    negate = layout.F_NEGATE if o[1].startswith("!") else 0
    source = t.operand(o[1].lstrip("!"), "p").offset
    t.emit(layout.OP_VOTE, D=dst, A=source, IMM=mode, FLAGS=negate, V1=t.operand(o[2], "b32").offset)


def redux(t: Translator, parts: list[str], o: list[str]) -> None:
    """redux.sync."""
    name = parts[2] if parts[-1] not in ("s32",) or parts[2] not in ("min", "max") else f"{parts[2]}s"
    if parts[-1] not in ("u32", "s32", "b32"):
        raise Unsupported(".".join(parts), t.line)
    code = {"add": 0, "min": 1, "max": 2, "mins": 3, "maxs": 4, "and": 5, "or": 6, "xor": 7}[name]
    t.emit(layout.OP_REDUX, D=t.target(o[0], "b32").offset, A=t.operand(o[1], "b32").offset, IMM=code,
           V1=t.operand(o[2], "b32").offset)  # fmt: skip


def match(t: Translator, parts: list[str], o: list[str]) -> None:
    """match.sync."""
    size = type_parts(parts[-1], t.line)[1]
    dst, _, predicate = o[0].partition("|")
    fields = {"V0": t.target(predicate, "p").offset} if predicate and predicate != "_" else {}
    t.emit(layout.OP_MATCH, D=t.target(dst, "b32").offset, A=t.operand(o[1], KIND[size]).offset, SIZE=size,
           IMM=("any", "all").index(parts[1]), V1=t.operand(o[2], "b32").offset, **fields)  # fmt: skip


def elect(t: Translator, parts: list[str], o: list[str]) -> None:
    """elect.sync."""
    dst, _, predicate = o[0].partition("|")
    fields = {"V0": t.target(predicate, "p").offset} if predicate and predicate != "_" else {}
    t.emit(layout.OP_ELECT, D=t.target(dst, "b32").offset, A=t.constant(0, 4).offset, V1=t.operand(o[1], "b32").offset,
           **fields)  # fmt: skip


def active(t: Translator, parts: list[str], o: list[str]) -> None:
    """activemask."""
    t.emit(layout.OP_ACTIVE, D=t.target(o[0], "b32").offset)


def fence(t: Translator, parts: list[str], o: list[str]) -> None:
    """membar and fence: a block fence orders nothing that the interpreter reorders."""
    if "proxy" in parts or "cluster" in parts:
        raise Unsupported(".".join(parts), t.line)
    t.emit(layout.OP_NOP if "cta" in parts else layout.OP_FENCE)
