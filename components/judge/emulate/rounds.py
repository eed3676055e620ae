"""Which loads wait for which: the rounds of memory latency that a basic block costs, marked on its load instructions.

The assembler reorders a block's loads so that all whose addresses are known are in flight together; one whose address
hangs on another load's result waits for it. It turns short conditional jumps into predicates, and it unrolls a loop of
one block four times unless the compiler said `.pragma "nounroll"`. Of many loads, those that no address hangs on come
last, next to their use. All this was seen in the SASS of NVRTC 13. What follows those habits; it knows nothing of
registers beyond a bound on the loads of one round.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from components.judge.emulate import layout
from components.judge.emulate.vector_ops import OPS

IN_FLIGHT, IN_FLIGHT_CRAMPED = 16, 12  # loads of one round; an outer loop and predicates hold registers
UNROLL = 4  # iterations of a small loop in flight together
MANY = 8  # loads of a block whose order the assembler changes for registers
HAMMOCK = 16  # rows that a jump may skip and still become predicates
_LEVELS = 4
_ENDS = (layout.OP_BRA, layout.OP_BRX, layout.OP_EXIT, layout.OP_TRAP, layout.OP_BAR)
_SOURCES: Final = tuple(len(row.registers) for row in OPS.values())
_OPERANDS: Final = (layout.I_A // 8, layout.I_B // 8, layout.I_C // 8, layout.I_V0 // 8)
_OP, _D, _A, _IMM = layout.I_OP // 8, layout.I_D // 8, layout.I_A // 8, layout.I_IMM // 8
_GUARD, _SPACE, _VEC, _V0, _ROUND = (
    layout.I_GUARD // 8, layout.I_SPACE // 8, layout.I_VEC // 8, layout.I_V0 // 8, layout.I_ROUND // 8
)  # fmt: skip


def mark_rounds(rows: list[list[int]], sealed: set[int], always: int) -> None:
    """Set I_ROUND of every load from global or shared memory.

    Args:
        rows: the bytecode of an entry, branch targets resolved.
        sealed: rows in front of which `.pragma "nounroll"` stands.
        always: register offset of the guard of rows that always run.
    """
    loops = [
        (row[_IMM], number) for number, row in enumerate(rows) if row[_OP] == layout.OP_BRA and row[_IMM] <= number
    ]
    for start, end in _blocks(rows, always):
        last = rows[end - 1]
        jumps = any(row[_OP] == layout.OP_BRA for row in rows[start : end - 1])
        loop = last[_OP] == layout.OP_BRA and last[_IMM] == start and start not in sealed
        nested = any(low < start and high >= end for low, high in loops)
        bound = IN_FLIGHT_CRAMPED if nested or jumps else IN_FLIGHT
        for shared in (False, True):
            loads = _levels(rows, start, end, always, shared)
            if not loads:
                continue
            loads = _sunk(rows, start, end, always, loads, loop)
            counts = [0] * _LEVELS
            for _, level in loads:
                counts[level] += 1
            unroll = max(1, min(UNROLL, bound // max(counts))) if loop else 1
            seen = [0] * _LEVELS
            for row, level in loads:
                first = seen[level] % bound == 0
                seen[level] += 1
                rows[row][_ROUND] = level | first << 2 | unroll << 3 | (end - start) << layout.ROUND_BODY


def _blocks(rows: list[list[int]], always: int) -> Iterator[tuple[int, int]]:
    """(first row, row after the last) of every basic block, predicated jumps inside counted as straight code."""
    jumps: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if row[_OP] == layout.OP_BRA:
            jumps.setdefault(row[_IMM], []).append(number)
    straight = {
        number
        for target, sources in jumps.items()
        if all(_hammock(rows, source, target, jumps, always) for source in sources)
        for number in sources
    }
    leaders = {0, len(rows)}
    leaders |= {target for target, sources in jumps.items() if not set(sources) <= straight}
    leaders |= {n + 1 for n, row in enumerate(rows) if row[_OP] in _ENDS and n not in straight}
    order = sorted(leaders)
    yield from itertools.pairwise(order)


def _hammock(rows: list[list[int]], source: int, target: int, jumps: dict[int, list[int]], always: int) -> bool:
    """Whether the jump only skips a few rows that nothing else jumps into."""
    if rows[source][_GUARD] == always or not source < target <= source + 1 + HAMMOCK:
        return False
    return all(
        rows[n][_OP] not in (*_ENDS, layout.OP_ATOM) and not any(j < source or j >= target for j in jumps.get(n, ()))
        for n in range(source + 1, target)
    )


def _levels(rows: list[list[int]], start: int, end: int, always: int, shared: bool) -> list[tuple[int, int]]:
    """(row, how many loads before it it hangs on) of the block's loads from one of the memories."""
    after: dict[int, int] = {}  # register offset -> rounds until it is there
    found = []
    skipped_until, skip_level = 0, 0
    for number in range(start, end):
        row = rows[number]
        op = row[_OP]
        waits = max(after.get(row[_GUARD], 0), skip_level if number < skipped_until else 0)
        if op == layout.OP_BRA and row[_GUARD] != always:
            skipped_until, skip_level = max(skipped_until, row[_IMM]), waits
        if op == layout.OP_LD or (op == layout.OP_ATOM and row[_D] >= 0):
            waits = max(waits, after.get(row[_A], 0))
            ours = row[_SPACE] == layout.SP_SHARED if shared else row[_SPACE] in (layout.SP_GLOBAL, layout.SP_GENERIC)
            if ours:
                level = min(waits, _LEVELS - 1)
                if op == layout.OP_LD:
                    found.append((number, level))
                waits = level + 1
            targets = row[_V0 : _V0 + row[_VEC]] if op == layout.OP_LD else [row[_D]]
            for target in targets:
                after[target] = max(waits, after.get(target, 0) if row[_GUARD] != always else 0)
        elif op >= layout.FIRST_VECTOR_OP or op in (layout.OP_SHFL, layout.OP_VOTE, layout.OP_REDUX, layout.OP_MATCH):
            count = _SOURCES[op - layout.FIRST_VECTOR_OP] if op >= layout.FIRST_VECTOR_OP else 2
            waits = max([waits, *(after.get(row[place], 0) for place in _OPERANDS[:count])])
            after[row[_D]] = max(waits, after.get(row[_D], 0) if row[_GUARD] != always else 0)
    return found


def _sunk(
    rows: list[list[int]], start: int, end: int, always: int, loads: list[tuple[int, int]], unrolls: bool
) -> list[tuple[int, int]]:
    """The loads, those that no address hangs on moved to the last round of a block that has many."""
    last = max(level for _, level in loads)
    if last == 0 or not (unrolls or len(loads) >= MANY):
        return loads
    numbers = {number for number, _ in loads}
    wanted: set[int] = set()  # registers that an address or a predicate of a load hangs on
    sunk = set()
    for number in range(end - 1, start - 1, -1):
        row = rows[number]
        op = row[_OP]
        if op == layout.OP_LD:
            if number in numbers and not wanted.intersection(row[_V0 : _V0 + row[_VEC]]):
                sunk.add(number)
            wanted.add(row[_A])
        elif op >= layout.FIRST_VECTOR_OP and row[_D] in wanted:
            wanted.update(row[place] for place in _OPERANDS[: _SOURCES[op - layout.FIRST_VECTOR_OP]])
        if row[_GUARD] != always and (op == layout.OP_LD or number != end - 1):
            wanted.add(row[_GUARD])
    return [(number, last if number in sunk else level) for number, level in loads]
