"""Warp-wide primitives: shuffle, vote, match, reduce, __syncwarp; lanes that their mask names are waited for."""

from numba import njit

from components.judge.emulate import layout as L
from components.judge.emulate.memory import OPTIONS, bump, fault
from components.judge.emulate.primitives import equal32, ld32, ld64, lowest, popcount, set32, st32, st64

UNDEFINED = 0x7FC0DEAD  # what a lane outside the shuffle gives: a NaN as f32, far out of range as an index


@njit(**OPTIONS)
def sync_step(state, warp, number, ins, pc, act, active):
    """Run one primitive; 0: every lane of `act` goes on, 1: some wait (pcs are stored), < 0: a fault."""
    regs = ld64(warp + L.W_REGS)
    masks = regs + ld64(ins + L.I_V1)
    bump(state, L.S_WARP_SYNCS, 1)
    split = 0
    left = active
    while left:
        mask = ld32(masks + 4 * lowest(left))
        group = equal32(masks, left, mask)
        left &= ~group
        stranger = group & ~mask
        if stranger:
            return -fault(state, L.FAULT_MASK, number, lowest(stranger), -1, mask, 0)
        waiting = ld64(warp + L.W_WAIT)
        joined = equal32(warp + L.W_PC, equal32(masks, waiting, mask), pc)
        have = group | joined
        if mask & ld64(warp + L.W_ALIVE) & ~have:
            st64(warp + L.W_WAIT, waiting | group)
            set32(warp + L.W_PC, group, pc)
            split = 1
            continue
        if joined:
            st64(warp + L.W_WAIT, waiting & ~joined)
            set32(warp + L.W_PC, joined, pc + 1)
            split = 1
        exchange(ins, regs, have)
        st64(warp + L.W_SYNC, ld64(state + L.S_SEQ))
        set32(warp + L.W_PC, group, pc + 1)
    if split:
        set32(warp + L.W_PC, act & ~active, pc + 1)
    return split


@njit(**OPTIONS)
def set_predicate(address, have, bits):
    """Write the lanes `have` of a predicate register."""
    st32(address, (ld32(address) & ~have) | (bits & have))


@njit(**OPTIONS)
def exchange(ins, regs, have):
    """Carry out the primitive among the lanes `have`."""
    op = ld64(ins + L.I_OP)
    imm = ld64(ins + L.I_IMM)
    dst = regs + ld64(ins + L.I_D)
    src = regs + ld64(ins + L.I_A)
    if op == L.OP_SHFL:
        shuffle(ins, regs, have)
    elif op == L.OP_VOTE:
        bits = ld32(src)
        if ld64(ins + L.I_FLAGS) & L.F_NEGATE:
            bits = ~bits
        bits &= have
        if imm == 0:
            set32(dst, have, bits)
        else:
            good = bits != 0
            if imm == 2:
                good = bits == have
            elif imm == 3:
                good = bits == have or bits == 0
            set_predicate(dst, have, have if good else 0)
    elif op == L.OP_REDUX:
        set32(dst, have, reduce_lanes(src, have, imm))
    elif op == L.OP_MATCH:
        left = have
        every = have
        while left:
            lane = lowest(left)
            if ld64(ins + L.I_SIZE) == 8:
                same = 0
                for other in range(L.LANES):
                    if (have >> other) & 1 and ld64(src + 8 * other) == ld64(src + 8 * lane):
                        same |= 1 << other
            else:
                same = equal32(src, have, ld32(src + 4 * lane))
            every &= same
            left &= ~same
            if imm == 0:
                set32(dst, same, same)
        if imm == 1:
            set32(dst, have, every if every == have else 0)
            if ld64(ins + L.I_V0) >= 0:
                set_predicate(regs + ld64(ins + L.I_V0), have, have if every == have else 0)
    elif op == L.OP_ELECT:
        set32(dst, have, lowest(have))
        if ld64(ins + L.I_V0) >= 0:
            set_predicate(regs + ld64(ins + L.I_V0), have, have & -have)


@njit(**OPTIONS)
def reduce_lanes(src, have, operation):
    """redux.sync: 0 add, 1 min.u32, 2 max.u32, 3 min.s32, 4 max.s32, 5 and, 6 or, 7 xor."""
    result = ld32(src + 4 * lowest(have))
    left = have & (have - 1)
    while left:
        value = ld32(src + 4 * lowest(left))
        left &= left - 1
        if operation == 0:
            result = (result + value) & L.FULL
        elif operation == 1:
            result = min(result, value)
        elif operation == 2:
            result = max(result, value)
        elif operation == 3:
            result = min(result ^ 0x80000000, value ^ 0x80000000) ^ 0x80000000
        elif operation == 4:
            result = max(result ^ 0x80000000, value ^ 0x80000000) ^ 0x80000000
        elif operation == 5:
            result &= value
        elif operation == 6:
            result |= value
        else:
            result ^= value
    return result


@njit(**OPTIONS)
def shuffle(ins, regs, have):
    """shfl.sync: up, down, bfly, idx with the segment mask and clamp of PTX."""
    mode = ld64(ins + L.I_IMM)
    src = regs + ld64(ins + L.I_A)
    lanes = regs + ld64(ins + L.I_B)
    clamps = regs + ld64(ins + L.I_C)
    spare = regs + ld64(ins + L.I_V2)
    inside = 0
    left = have
    while left:
        lane = lowest(left)
        left &= left - 1
        amount = ld32(lanes + 4 * lane) & 31
        clamp = ld32(clamps + 4 * lane)
        segment = (clamp >> 8) & 31
        highest = (lane & segment) | (clamp & 31 & ~segment)
        lowest_lane = lane & segment
        if mode == 0:
            other = lane - amount
            good = other >= highest
        elif mode == 1:
            other = lane + amount
            good = other <= highest
        elif mode == 2:
            other = lane ^ amount
            good = other <= highest
        else:
            other = lowest_lane | (amount & ~segment)
            good = other <= highest
        if good:
            inside |= 1 << lane
        else:
            other = lane
        value = UNDEFINED
        if (have >> other) & 1:
            value = ld32(src + 4 * other)
        st32(spare + 4 * lane, value)
    left = have
    dst = regs + ld64(ins + L.I_D)
    while left:
        lane = lowest(left)
        left &= left - 1
        st32(dst + 4 * lane, ld32(spare + 4 * lane))
    if ld64(ins + L.I_V0) >= 0:
        set_predicate(regs + ld64(ins + L.I_V0), have, inside)


@njit(**OPTIONS)
def resolve_barriers(state):
    """Release every barrier that is complete; the number of barriers released."""
    released = 0
    warps = ld64(state + L.S_WARPS)
    count = ld64(state + L.S_WARP_COUNT)
    alive = 0
    for w in range(count):
        alive += popcount(ld64(warps + w * L.WARP_BYTES + L.W_ALIVE))
    for barrier in range(16):
        arrived = 0
        expected = 0
        votes = 0
        for w in range(count):
            warp = warps + w * L.WARP_BYTES
            here = equal32(warp + L.W_BARID, ld64(warp + L.W_BAR), barrier)
            arrived += popcount(here)
            if here:
                expected = max(expected, ld32(warp + L.W_BARCOUNT + 4 * lowest(here)))
                ins = ld64(state + L.S_CODE) + (ld32(warp + L.W_PC + 4 * lowest(here)) - 1) * L.INS_BYTES
                if ld64(ins + L.I_IMM) != 0:
                    bits = ld32(ld64(warp + L.W_REGS) + ld64(ins + L.I_C))
                    if ld64(ins + L.I_FLAGS) & L.F_NEGATE:
                        bits = ~bits
                    votes += popcount(bits & here)
        if arrived == 0 or arrived < (expected if expected else alive):
            continue
        released += 1
        for w in range(count):
            warp = warps + w * L.WARP_BYTES
            here = equal32(warp + L.W_BARID, ld64(warp + L.W_BAR), barrier)
            left = here
            while left:
                lane = lowest(left)
                pc = ld32(warp + L.W_PC + 4 * lane)
                same = equal32(warp + L.W_PC, left, pc)
                left &= ~same
                ins = ld64(state + L.S_CODE) + (pc - 1) * L.INS_BYTES
                kind = ld64(ins + L.I_IMM)
                dst = ld64(warp + L.W_REGS) + ld64(ins + L.I_D)
                if kind == 1:
                    set32(dst, same, votes)
                elif kind == 2:
                    set_predicate(dst, same, same if votes == arrived else 0)
                elif kind == 3:
                    set_predicate(dst, same, same if votes else 0)
            st64(warp + L.W_BAR, ld64(warp + L.W_BAR) & ~here)
            if here:
                st64(warp + L.W_SYNC, ld64(state + L.S_SEQ) + 1)
    if released:
        st64(state + L.S_EPOCH, ld64(state + L.S_SEQ) + 1)
    return released
