"""The longest chain of waiting in a block: rounds of loads, lines, shared memory and barriers of its slowest warp.

Each warp counts what it waits for; at a barrier every warp takes over the counts of the one that came last, so that the
largest count at the block's end is the block's critical path. Which of two counts is longer is decided with rough costs
in cycles; the model of time prices the counts themselves.
"""

from components.judge.emulate import layout
from components.judge.emulate.faults import bump
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import ld64, st64


@jit
def note_load(state: int, warp: int, ins: int, lines: int, missed: int) -> None:
    """A global load: its lines, its sectors missed in L1, and its round."""
    bump(warp, layout.W_LINES, lines)
    bump(warp, layout.W_SECTORS, missed)
    mark = ld64(ins + layout.I_ROUND)
    bit = 1 << (mark & 3)
    if starts_round(state, warp, mark):
        bump(warp, layout.W_HITS, 1)
        st64(warp + layout.W_MISSING, ld64(warp + layout.W_MISSING) & ~(bit | bit << 4))
    if missed and ld64(warp + layout.W_MISSING) & bit == 0:
        st64(warp + layout.W_MISSING, ld64(warp + layout.W_MISSING) | bit)
        bump(warp, layout.W_MISSES, 1)
    if missed and ld64(ins + layout.I_FLAGS) & layout.F_STREAM and ld64(warp + layout.W_MISSING) & (bit << 4) == 0:
        st64(warp + layout.W_MISSING, ld64(warp + layout.W_MISSING) | bit << 4)
        bump(warp, layout.W_STREAMS, 1)


@jit
def note_shared(state: int, warp: int, ins: int, waves: int) -> None:
    """An access to shared memory: its wavefronts, and the round of a load."""
    bump(warp, layout.W_BANKS, waves)
    if ld64(ins + layout.I_OP) == layout.OP_LD and starts_round(state, warp, ld64(ins + layout.I_ROUND)):
        bump(warp, layout.W_SHARED, 1)


@jit
def starts_round(state: int, warp: int, mark: int) -> bool:
    """Whether the load opens a new round: the first of its level, in the first of the iterations in flight together."""
    if mark & 4 == 0:
        return False
    if mark & 3 == 0:
        phase = 0
        seq = ld64(state + layout.S_SEQ)
        unroll = (mark >> 3) & 7
        if unroll > 1 and seq - ld64(warp + layout.W_LOOPED) <= mark >> layout.ROUND_BODY:
            phase = (ld64(warp + layout.W_PHASE) + 1) % unroll
        st64(warp + layout.W_PHASE, phase)
        st64(warp + layout.W_LOOPED, seq)
    here: bool = ld64(warp + layout.W_PHASE) == 0
    return here


@jit
def cycles(warp: int) -> int:
    """The chain's rough length."""
    length: int = (
        230 * (ld64(warp + layout.W_MISSES) + ld64(warp + layout.W_STREAMS))
        + 40 * ld64(warp + layout.W_HITS)
        + 2 * ld64(warp + layout.W_LINES)
        + 30 * ld64(warp + layout.W_SHARED)
        + 2 * ld64(warp + layout.W_BANKS)
        + 3 * ld64(warp + layout.W_STEPS)
        + 20 * ld64(warp + layout.W_SYNCS)
    )
    return length


@jit
def longest(state: int) -> int:
    """The warp of the block with the longest chain."""
    best: int = ld64(state + layout.S_WARPS)
    length = cycles(best)
    for w in range(1, ld64(state + layout.S_WARP_COUNT)):
        warp = ld64(state + layout.S_WARPS) + w * layout.WARP_BYTES
        other = cycles(warp)
        if other > length:
            length = other
            best = warp
    return best


@jit
def copy_chain(source: int, target: int) -> None:
    """Take over another warp's counts."""
    for k in range(layout.CHAIN_WORDS):
        st64(target + 8 * k, ld64(source + 8 * k))


@jit
def meet(state: int) -> None:
    """A barrier was released: its warps have waited for the slowest. (Of the whole block: named barriers are rare.)"""
    best = longest(state)
    bump(best, layout.W_MEETINGS, 1)
    for w in range(ld64(state + layout.S_WARP_COUNT)):
        warp = ld64(state + layout.S_WARPS) + w * layout.WARP_BYTES
        if warp != best and ld64(warp + layout.W_ALIVE):
            copy_chain(best + layout.W_CHAIN, warp + layout.W_CHAIN)


@jit
def begin_block(state: int) -> None:
    """Before the first warp runs: nothing waited for."""
    for w in range(ld64(state + layout.S_WARP_COUNT)):
        warp = ld64(state + layout.S_WARPS) + w * layout.WARP_BYTES
        for k in range(layout.CHAIN_WORDS):
            st64(warp + layout.W_CHAIN + 8 * k, 0)
        st64(warp + layout.W_LOOPED, -(1 << 40))
    st64(state + layout.S_BLOCK_ISSUED, ld64(state + layout.S_SEQ))
    st64(state + layout.S_BLOCK_LINES, ld64(state + layout.S_WAVEFRONTS) + ld64(state + layout.S_SHARED_WAVEFRONTS))
    st64(state + layout.S_BLOCK_SECTORS, sectors(state))


@jit
def sectors(state: int) -> int:
    """Sectors that went to or came from the L2 cache."""
    found: int = (
        ld64(state + layout.S_L1_MISS) + ld64(state + layout.S_STORE_SECTORS) + ld64(state + layout.S_ATOMIC_SECTORS)
    )
    return found


@jit
def end_block(state: int) -> None:
    """Add the block to its multiprocessor's load, its chain to the sum, and keep the longest."""
    load = ld64(state + layout.S_SM_LOADS) + ld64(state + layout.S_SM) * layout.SM_BYTES
    bump(load, 0, ld64(state + layout.S_SEQ) - ld64(state + layout.S_BLOCK_ISSUED))
    lines = ld64(state + layout.S_WAVEFRONTS) + ld64(state + layout.S_SHARED_WAVEFRONTS)
    bump(load, 8, lines - ld64(state + layout.S_BLOCK_LINES))
    bump(load, 16, sectors(state) - ld64(state + layout.S_BLOCK_SECTORS))
    bump(load, 24, 1)
    best = longest(state)
    for k in range(layout.CHAIN_WORDS):
        bump(state, layout.S_CHAIN_SUM + 8 * k, ld64(best + layout.W_CHAIN + 8 * k))
    length = cycles(best)
    if length >= ld64(state + layout.S_LONGEST):
        st64(state + layout.S_LONGEST, length)
        copy_chain(best + layout.W_CHAIN, state + layout.S_CHAIN_MAX)
