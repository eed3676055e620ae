"""What an access costs: sectors, lines, first touches, an approximate L1, bank conflicts."""

from components.judge.emulate import layout
from components.judge.emulate.faults import bump
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import (
    find_way,
    ld8,
    ld64,
    lowest,
    lowest_address,
    popcount,
    st8,
    st64,
    unit_map,
)


@jit
def count_traffic(
    state: int, warp: int, ins: int, active: int, scratch: int, buffer: int, base: int, size: int
) -> None:
    """Distinct 32-byte sectors and 128-byte lines of a request, first touches, and an approximate L1."""
    op = ld64(ins + layout.I_OP)
    lines = scratch + layout.SCRATCH_LINES
    origin = base + ((lowest_address(scratch, active) - base) & -128)
    bits = unit_map(scratch, active, origin, 5)
    count = 0
    sectors = 0
    if size > 32 or bits < 0:
        bits = 0
    if bits:
        sectors = popcount(bits)
        first = (origin - base) >> 7
        while bits:
            step = lowest(bits) >> 2
            st64(lines + 16 * count, first + step)
            st64(lines + 16 * count + 8, (bits >> (4 * step)) & 15)
            count += 1
            bits &= ~(15 << (4 * step))
    else:
        table = ld64(state + layout.S_HASH)
        stamp = ld64(state + layout.S_HASH_GEN) + 1
        st64(state + layout.S_HASH_GEN, stamp)
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            sector = (ld64(scratch + 8 * lane) - base) >> 5
            line = sector >> 2
            slot = (line ^ (line >> 8)) & (layout.HASH_SLOTS - 1)
            while True:
                row = table + 24 * slot
                if ld64(row + 8) != stamp:
                    st64(row, line)
                    st64(row + 8, stamp)
                    st64(row + 16, count)
                    st64(lines + 16 * count, line)
                    st64(lines + 16 * count + 8, 1 << (sector & 3))
                    count += 1
                    sectors += 1
                    break
                if ld64(row) == line:
                    entry = lines + 16 * ld64(row + 16) + 8
                    mask = ld64(entry)
                    bit = 1 << (sector & 3)
                    if mask & bit == 0:
                        st64(entry, mask | bit)
                        sectors += 1
                    break
                slot = (slot + 1) & (layout.HASH_SLOTS - 1)
    bump(state, layout.S_WAVEFRONTS, count)
    if op == layout.OP_LD:
        bump(state, layout.S_LOAD_SECTORS, sectors)
    elif op == layout.OP_ST:
        bump(state, layout.S_STORE_SECTORS, sectors)
    else:
        bump(state, layout.S_ATOMIC_SECTORS, sectors)
    seen = ld64(buffer + layout.B_SEEN)
    cold = 0
    missed = 0
    cached = op == layout.OP_LD and ld64(state + layout.S_L1) != 0
    sets = ld64(state + layout.S_L1) + ld64(state + layout.S_SM) * (layout.L1_SETS * layout.L1_SET_BYTES)
    tick = ld64(state + layout.S_L1_TICK) + 1
    st64(state + layout.S_L1_TICK, tick)
    window = base >> layout.WINDOW_BITS
    for k in range(count):
        line = ld64(lines + 16 * k)
        mask = ld64(lines + 16 * k + 8)
        known = ld8(seen + line)
        if mask & ~known:
            cold += popcount(mask & ~known)
            st8(seen + line, known | mask)
        if cached:
            tag = window << 33 | line
            row = sets + ((line ^ (line >> 8) ^ (window * 37)) & (layout.L1_SETS - 1)) * layout.L1_SET_BYTES
            way = find_way(row, tag)
            if way == layout.L1_WAYS:
                way = 0
                oldest = ld64(row + 16 * layout.L1_WAYS)
                for w in range(1, layout.L1_WAYS):
                    used = ld64(row + 16 * layout.L1_WAYS + 8 * w)
                    if used < oldest:
                        oldest = used
                        way = w
                st64(row + 8 * way, tag)
                st64(row + 8 * layout.L1_WAYS + 8 * way, 0)
            have = ld64(row + 8 * layout.L1_WAYS + 8 * way)
            missed += popcount(mask & ~have)
            st64(row + 8 * layout.L1_WAYS + 8 * way, have | mask)
            st64(row + 16 * layout.L1_WAYS + 8 * way, tick)
    bump(state, layout.S_COLD, cold)
    bump(state, layout.S_L1_MISS, missed)
    if ld64(ins + layout.I_FLAGS) & layout.F_STREAM:
        bump(state, layout.S_STREAM_COLD, cold)
        bump(state, layout.S_STREAM_MISS, missed)


@jit
def bank_conflicts(scratch: int, active: int) -> int:
    """The largest number of distinct words that fall into one of 32 banks (up to 8 are told apart)."""
    banks = scratch + layout.SCRATCH_BANKS
    for bank in range(32):
        st64(banks + bank * 72, 0)
    most = 1
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        word = ld64(scratch + 8 * lane) >> 2
        row = banks + (word & 31) * 72
        count = ld64(row)
        seen = False
        for k in range(min(count, 8)):
            if ld64(row + 8 + 8 * k) == word:
                seen = True
        if not seen:
            if count < 8:
                st64(row + 8 + 8 * count, word)
            st64(row, count + 1)
            most = max(most, count + 1)
    return most
