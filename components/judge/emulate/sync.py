"""Warp-wide primitives: shuffle, vote, match, reduce, __syncwarp; lanes that their mask names are waited for."""

from components.judge.emulate import layout
from components.judge.emulate.chain import meet
from components.judge.emulate.faults import bump, fault
from components.judge.emulate.jit import jit
from components.judge.emulate.matrix import distribute, multiply
from components.judge.emulate.primitives import equal32, ld32, ld64, lowest, popcount, set32, st32, st64

UNDEFINED = 0x7FC0DEAD  # what a lane outside the shuffle gives: a NaN as f32, far out of range as an index


@jit
def sync_step(state: int, warp: int, number: int, ins: int, pc: int, act: int, active: int) -> int:
    """Run one primitive; 0: every lane of `act` goes on, 1: some wait (pcs are stored), < 0: a fault."""
    regs = ld64(warp + layout.W_REGS)
    masks = regs + ld64(ins + layout.I_V1)
    bump(state, layout.S_WARP_SYNCS, 1)
    bump(warp, layout.W_SYNCS, 1)
    split = 0
    op = ld64(ins + layout.I_OP)
    if (op == layout.OP_MMA or op == layout.OP_LDMATRIX) and ld64(warp + layout.W_ALIVE) != layout.FULL:
        return -fault(state, layout.FAULT_WARP, number, lowest(active), -1, 0, 0)
    left = active
    while left:
        mask = ld32(masks + 4 * lowest(left))
        group = equal32(masks, left, mask)
        left &= ~group
        stranger = group & ~mask
        if stranger:
            return -fault(state, layout.FAULT_MASK, number, lowest(stranger), -1, mask, 0)
        waiting = ld64(warp + layout.W_WAIT)
        joined = equal32(warp + layout.W_PC, equal32(masks, waiting, mask), pc)
        have = group | joined
        if mask & ld64(warp + layout.W_ALIVE) & ~have:
            st64(warp + layout.W_WAIT, waiting | group)
            set32(warp + layout.W_PC, group, pc)
            split = 1
            continue
        if joined:
            st64(warp + layout.W_WAIT, waiting & ~joined)
            set32(warp + layout.W_PC, joined, pc + 1)
            split = 1
        exchange(state, ins, regs, have)
        st64(warp + layout.W_SYNC, ld64(state + layout.S_SEQ))
        set32(warp + layout.W_PC, group, pc + 1)
    if split:
        set32(warp + layout.W_PC, act & ~active, pc + 1)
    return split


@jit
def set_predicate(address: int, have: int, bits: int) -> None:
    """Write the lanes `have` of a predicate register."""
    st32(address, (ld32(address) & ~have) | (bits & have))


@jit
def exchange(state: int, ins: int, regs: int, have: int) -> None:
    """Carry out the primitive among the lanes `have`."""
    op = ld64(ins + layout.I_OP)
    imm = ld64(ins + layout.I_IMM)
    dst = regs + ld64(ins + layout.I_D)
    src = regs + ld64(ins + layout.I_A)
    if op == layout.OP_SHFL:
        shuffle(ins, regs, have)
    elif op == layout.OP_VOTE:
        bits = ld32(src)
        if ld64(ins + layout.I_FLAGS) & layout.F_NEGATE:
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
    elif op == layout.OP_REDUX:
        set32(dst, have, reduce_lanes(src, have, imm))
    elif op == layout.OP_MATCH:
        left = have
        every = have
        while left:
            lane = lowest(left)
            if ld64(ins + layout.I_SIZE) == 8:
                same = 0
                for other in range(layout.LANES):
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
            if ld64(ins + layout.I_V0) >= 0:
                set_predicate(regs + ld64(ins + layout.I_V0), have, have if every == have else 0)
    elif op == layout.OP_MMA:
        multiply(state, ins, regs)
    elif op == layout.OP_LDMATRIX:
        distribute(state, ins, regs)
    elif op == layout.OP_ELECT:
        set32(dst, have, lowest(have))
        if ld64(ins + layout.I_V0) >= 0:
            set_predicate(regs + ld64(ins + layout.I_V0), have, have & -have)


@jit
def reduce_lanes(src: int, have: int, operation: int) -> int:
    """redux.sync: 0 add, 1 min.u32, 2 max.u32, 3 min.s32, 4 max.s32, 5 and, 6 or, 7 xor."""
    result: int = ld32(src + 4 * lowest(have))
    left = have & (have - 1)
    while left:
        value = ld32(src + 4 * lowest(left))
        left &= left - 1
        if operation == 0:
            result = (result + value) & layout.FULL
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


@jit
def shuffle(ins: int, regs: int, have: int) -> None:
    """shfl.sync: up, down, bfly, idx with the segment mask and clamp of PTX."""
    mode = ld64(ins + layout.I_IMM)
    src = regs + ld64(ins + layout.I_A)
    lanes = regs + ld64(ins + layout.I_B)
    clamps = regs + ld64(ins + layout.I_C)
    spare = regs + ld64(ins + layout.I_V2)
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
    dst = regs + ld64(ins + layout.I_D)
    while left:
        lane = lowest(left)
        left &= left - 1
        st32(dst + 4 * lane, ld32(spare + 4 * lane))
    if ld64(ins + layout.I_V0) >= 0:
        set_predicate(regs + ld64(ins + layout.I_V0), have, inside)


@jit
def threads_of(lanes: int, alive: int) -> int:
    """What lanes of a warp that arrive count: a warp that is there as a whole counts 32, even a partial last one."""
    return layout.LANES if lanes == alive else popcount(lanes)


@jit
def forget_arrivals(state: int, barrier: int) -> None:
    """The barrier starts anew."""
    st64(state + layout.S_ARRIVED + 8 * barrier, 0)
    met = ld64(state + layout.S_ORDER) + layout.ORDER_MET + 8 * barrier * layout.LANES
    for w in range(layout.LANES):
        st64(met + 8 * w, 0)


@jit
def order_named(state: int, barrier: int) -> None:
    """A barrier of some warps: those that wait may take as done what each participant did before it came.

    Row w of S_ORDER holds, for each warp v, a sequence number: what v did before it is ordered before what w does now.
    """
    warps = ld64(state + layout.S_WARPS)
    order = ld64(state + layout.S_ORDER)
    met = order + layout.ORDER_MET + 8 * barrier * layout.LANES
    count = ld64(state + layout.S_WARP_COUNT)
    now = ld64(state + layout.S_SEQ) + 1
    for w in range(count):
        warp = warps + w * layout.WARP_BYTES
        if equal32(warp + layout.W_BARID, ld64(warp + layout.W_BAR), barrier):
            st64(met + 8 * w, now)
    for w in range(count):
        warp = warps + w * layout.WARP_BYTES
        if equal32(warp + layout.W_BARID, ld64(warp + layout.W_BAR), barrier) == 0:
            continue
        row = order + 8 * w * layout.ORDER_ROW
        for v in range(count):
            came = ld64(met + 8 * v)
            if came == 0:
                continue
            for u in range(layout.ORDER_ROW):
                place = row + 8 * u
                st64(place, max(ld64(place), ld64(order + 8 * (v * layout.ORDER_ROW + u))))
            st64(row + 8 * v, max(ld64(row + 8 * v), came))
            st64(row + 8 * layout.LANES, max(ld64(row + 8 * layout.LANES), came))


@jit
def resolve_barriers(state: int) -> int:
    """Release every barrier that is complete; the number of barriers released."""
    released = 0
    whole = 0
    warps = ld64(state + layout.S_WARPS)
    count = ld64(state + layout.S_WARP_COUNT)
    alive = 0
    for w in range(count):
        alive += popcount(ld64(warps + w * layout.WARP_BYTES + layout.W_ALIVE))
    for barrier in range(16):
        arrived = 0
        counted = ld64(state + layout.S_ARRIVED + 8 * barrier)
        expected = 0
        votes = 0
        for w in range(count):
            warp = warps + w * layout.WARP_BYTES
            here = equal32(warp + layout.W_BARID, ld64(warp + layout.W_BAR), barrier)
            arrived += popcount(here)
            if here:
                if here == ld64(
                    warp + layout.W_ALIVE
                ):  # a warp counts when all of it is there, even a partial last one
                    counted += layout.LANES
                expected = max(expected, ld32(warp + layout.W_BARCOUNT + 4 * lowest(here)))
                ins = ld64(state + layout.S_CODE) + (ld32(warp + layout.W_PC + 4 * lowest(here)) - 1) * layout.INS_BYTES
                if ld64(ins + layout.I_IMM) != 0:
                    bits = ld32(ld64(warp + layout.W_REGS) + ld64(ins + layout.I_C))
                    if ld64(ins + layout.I_FLAGS) & layout.F_NEGATE:
                        bits = ~bits
                    votes += popcount(bits & here)
        if arrived == 0 or (arrived < alive if expected == 0 else counted < expected):
            continue
        released += 1
        if expected == 0 or arrived == ld64(state + layout.S_THREADS):
            whole = 1
        else:
            order_named(state, barrier)
        forget_arrivals(state, barrier)
        for w in range(count):
            warp = warps + w * layout.WARP_BYTES
            here = equal32(warp + layout.W_BARID, ld64(warp + layout.W_BAR), barrier)
            left = here
            while left:
                lane = lowest(left)
                pc = ld32(warp + layout.W_PC + 4 * lane)
                same = equal32(warp + layout.W_PC, left, pc)
                left &= ~same
                ins = ld64(state + layout.S_CODE) + (pc - 1) * layout.INS_BYTES
                kind = ld64(ins + layout.I_IMM)
                dst = ld64(warp + layout.W_REGS) + ld64(ins + layout.I_D)
                if kind == 1:
                    set32(dst, same, votes)
                elif kind == 2:
                    set_predicate(dst, same, same if votes == arrived else 0)
                elif kind == 3:
                    set_predicate(dst, same, same if votes else 0)
            st64(warp + layout.W_BAR, ld64(warp + layout.W_BAR) & ~here)
            if here:
                st64(warp + layout.W_SYNC, ld64(state + layout.S_SEQ) + 1)
    if whole:
        st64(state + layout.S_EPOCH, ld64(state + layout.S_SEQ) + 1)
    if released:
        meet(state)
    return released
