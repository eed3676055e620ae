"""cp.async (not the bulk forms) -> bytecode: a checked load of global memory, a pending write to shared memory.

The data moves at once, but nobody may look at it: races.track_copy marks the words as pending until their thread waits.
"""

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import Unsupported, integer
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator

HINTS = ("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B")


def copy_async(t: Translator, parts: list[str], o: list[str]) -> None:
    """cp.async.ca/cg [shared], [global], size{, source size | ignore}{, policy}; commit_group, wait_group, wait_all."""
    name = ".".join(parts)
    if name == "cp.async.commit_group":
        t.emit(layout.OP_COPYGROUP, IMM=layout.COPY_COMMIT)
    elif name == "cp.async.wait_all":
        t.emit(layout.OP_COPYGROUP, IMM=layout.COPY_WAIT_ALL)
    elif name == "cp.async.wait_group":
        wanted = integer(o[0])
        if wanted < 0:
            raise Unsupported(f"{name} {wanted}", t.line)
        t.emit(layout.OP_COPYGROUP, IMM=min(wanted, 1 << 30))
    else:
        _copy(t, parts, o)


def _copy(t: Translator, parts: list[str], o: list[str]) -> None:
    hints = [p for p in parts[5:] if p in HINTS]
    form = [p.removesuffix("::cta") for p in parts[: len(parts) - len(hints)]]
    size = integer(o[2]) if len(o) > 2 else 0
    if (
        form not in (["cp", "async", "ca", "shared", "global"], ["cp", "async", "cg", "shared", "global"])
        or size not in ((4, 8, 16) if form[2] == "ca" else (16,))
        or len(o) > 4 + ("L2::cache_hint" in hints)
    ):
        raise Unsupported(".".join(parts), t.line)
    limit = o[3] if len(o) > 3 + ("L2::cache_hint" in hints) else None
    guard = _guard_register(t)
    words = [t.vector("mov.b32", t.allocate(4), t.constant(0, 4)) for _ in range(size // 4)]
    whole = guard
    if limit is not None:
        place = t.find(limit)
        if place is not None and place.slot == 1:
            whole = t.temporary("andn.p", guard, place)
        elif place is None and limit.startswith("!"):
            whole = t.temporary("and.p", guard, limit[1:])
        else:
            source = t.operand(limit, "b32")
            whole = t.temporary("and.p", guard, t.temporary("setp.ge.u32", source, t.constant(size, 4)))
            _part(t, o[1], size, source, t.temporary("andn.p", guard, whole), words)
    _load(t, o[1], 0, 4, words, whole)
    t.guard = (guard.offset, 0)
    place_offset, offset, narrow = t.address(o[0])
    fields = {f"V{k}": word.offset for k, word in enumerate(words)}
    t.emit(layout.OP_ST, A=place_offset, IMM=offset, SIZE=4, VEC=len(words), SPACE=layout.SP_SHARED,
           FLAGS=narrow | layout.F_ASYNC, **fields)  # fmt: skip


def _guard_register(t: Translator) -> Register:
    """The instruction's guard as a predicate; what follows runs unguarded."""
    (offset, negated), t.guard = t.guard, (t.true.offset, 0)
    place = Register(offset, 1)
    return t.temporary("not.p", place) if negated else place


def _load(t: Translator, address: str, extra: int, unit: int, targets: list[Register], guard: Register) -> None:
    """A guarded load of units of 1 or 4 bytes."""
    t.guard = (guard.offset, 0)
    place, offset, narrow = t.address(address)
    fields = {f"V{k}": target.offset for k, target in enumerate(targets)}
    t.emit(layout.OP_LD, A=place, IMM=offset + extra, SIZE=unit, VEC=len(targets), SPACE=layout.SP_GLOBAL,
           KIND=4 if unit == 4 else 0, FLAGS=narrow, **fields)  # fmt: skip
    t.guard = (t.true.offset, 0)


def _part(t: Translator, address: str, size: int, source: Register, guard: Register, words: list[Register]) -> None:
    """Fewer bytes than the copy's size: words, then bytes; the rest stays 0. Skipped where no lane needs it."""
    some = t.temporary("setp.ne.u32", source, t.constant(0, 4))
    guard = t.temporary("and.p", guard, some)
    t.guard = (guard.offset, layout.FULL)
    skip = f"{t.prefix}copy{len(t.rows)}"
    t.branch(skip)
    t.guard = (t.true.offset, 0)
    for k, word in enumerate(words):
        inside = t.temporary("setp.ge.u32", source, t.constant(4 * k + 4, 4))
        _load(t, address, 4 * k, 4, [word], inside)
        for j in range(3):
            above = t.temporary("setp.gt.u32", source, t.constant(4 * k + j, 4))
            alone = t.temporary("andn.p", above, inside)
            byte = t.allocate(4)
            _load(t, address, 4 * k + j, 1, [byte], alone)
            t.guard = (alone.offset, 0)
            t.vector("bfi.b32", word, byte, word, t.constant(8 * j, 4), t.constant(8, 4))
            t.guard = (t.true.offset, 0)
    t.labels[skip] = len(t.rows)
