"""Loads, stores and atomics of one warp: every lane's address checked, races tracked, traffic counted."""

from components.judge.emulate import layout
from components.judge.emulate.chain import note_load, note_shared
from components.judge.emulate.faults import bump, fault
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import (
    address32,
    atomic_word,
    gather,
    ld16,
    ld32,
    ld64,
    lowest,
    lowest_address,
    outside,
    popcount,
    scatter,
    st16,
    st32,
    st64,
    unit_map,
)
from components.judge.emulate.races import track, track_copy
from components.judge.emulate.traffic import bank_conflicts, count_traffic


@jit
def memory_step(state: int, warp: int, number: int, ins: int, active: int) -> int:
    """OP_LD, OP_ST, OP_ATOM for the active lanes of a warp; a fault code or 0."""
    regs = ld64(warp + layout.W_REGS)
    scratch = ld64(state + layout.S_SCRATCH)
    flags = ld64(ins + layout.I_FLAGS)
    address32(regs + ld64(ins + layout.I_A), ld64(ins + layout.I_IMM), flags & layout.F_ADDR32, scratch)
    space = ld64(ins + layout.I_SPACE)
    if space == layout.SP_SHARED:
        return shared_access(state, warp, number, ins, active, scratch)
    if space == layout.SP_LOCAL:
        return local_access(state, warp, number, ins, active, scratch)
    if space == layout.SP_GENERIC:
        shared = 0
        local = 0
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            address = ld64(scratch + 8 * lane)
            if address >= layout.LOCAL_WINDOW:
                local |= 1 << lane
                st64(scratch + 8 * lane, address - layout.LOCAL_WINDOW)
            elif address >= layout.SHARED_WINDOW:
                shared |= 1 << lane
                st64(scratch + 8 * lane, address - layout.SHARED_WINDOW)
        if shared:
            code = shared_access(state, warp, number, ins, shared, scratch)
            if code:
                return code
        if local:
            code = local_access(state, warp, number, ins, local, scratch)
            if code:
                return code
        active &= ~(shared | local)
        if active == 0:
            return 0
    return global_access(state, warp, number, ins, active, scratch)


@jit
def global_access(state: int, warp: int, number: int, ins: int, active: int, scratch: int) -> int:
    """Check, count and perform an access to buffers; lanes may address different buffers."""
    op = ld64(ins + layout.I_OP)
    unit = ld64(ins + layout.I_SIZE)
    size = unit * ld64(ins + layout.I_VEC)
    lines, missed = ld64(state + layout.S_WAVEFRONTS), ld64(state + layout.S_L1_MISS)
    left = active
    while left:
        lane = lowest(left)
        address = ld64(scratch + 8 * lane)
        index = (address >> layout.WINDOW_BITS) - 1
        if index < 0 or index >= ld64(state + layout.S_BUFFER_COUNT):
            return fault(state, layout.FAULT_OOB, number, lane, -1, address, size)
        buffer = ld64(state + layout.S_BUFFERS) + index * (8 * layout.BUF_WORDS)
        base = ld64(buffer + layout.B_BASE)
        room = ld64(buffer + layout.B_LEN) - size
        bad = outside(scratch, left, base, room, size - 1)
        group = left & ~bad
        if (group >> lane) & 1 == 0:
            code = layout.FAULT_MISALIGNED
            if address < base or address - base > room:
                code = layout.FAULT_OOB
            return fault(state, code, number, lane, index, address - base, size)
        if op != layout.OP_LD and ld64(buffer + layout.B_WRITABLE) == 0:
            return fault(state, layout.FAULT_READONLY, number, lane, index, address - base, size)
        if ld64(ins + layout.I_SPACE) != layout.SP_CONST:
            count_traffic(state, warp, ins, group, scratch, buffer, base, size)
        if ld64(buffer + layout.B_WSHADOW) != 0:
            code = track(state, warp, number, ins, group, scratch, buffer, index, base, size, 0)
            if code:
                return code
        transfer(state, warp, ins, group, scratch, ld64(buffer + layout.B_HOST) - base)
        left &= ~group
    if op == layout.OP_LD:
        bump(state, layout.S_LOADS, 1)
        bump(state, layout.S_LOAD_BYTES, popcount(active) * size)
        st64(warp + layout.W_LOADS, ld64(warp + layout.W_LOADS) + 1)
        lines, missed = ld64(state + layout.S_WAVEFRONTS) - lines, ld64(state + layout.S_L1_MISS) - missed
        note_load(state, warp, ins, lines, missed)
    elif op == layout.OP_ST:
        bump(state, layout.S_STORES, 1)
        bump(state, layout.S_STORE_BYTES, popcount(active) * size)
    else:
        bump(state, layout.S_ATOMICS, 1)
        bump(state, layout.S_ATOMIC_LANES, popcount(active) * ld64(ins + layout.I_VEC))
    return 0


@jit
def transfer(state: int, warp: int, ins: int, active: int, scratch: int, delta: int) -> None:
    """Move the data, now that every address is known to be good."""
    op = ld64(ins + layout.I_OP)
    regs = ld64(warp + layout.W_REGS)
    unit = ld64(ins + layout.I_SIZE)
    kind = ld64(ins + layout.I_KIND)
    if op == layout.OP_ATOM:
        side = ld64(state + layout.S_CODE) + ld64(ins + layout.I_V3) * layout.INS_BYTES
        for part in range(ld64(ins + layout.I_VEC)):
            source = ld64(ins + layout.I_B)
            target = ld64(ins + layout.I_D)
            if ld64(ins + layout.I_V3) >= 0:  # a vector: its registers are in a row of their own
                source = ld64(side + 8 * part)
                target = ld64(side + 8 * (layout.ATOMIC_PARTS + part))
            atomic_lanes(ins, regs, active, scratch, delta + part * unit, source, target)
        return
    for part in range(ld64(ins + layout.I_VEC)):
        register = ld64(ins + layout.I_V0 + 8 * part)
        if register < 0:
            continue
        if op == layout.OP_LD:
            gather(scratch, delta + part * unit, active, regs + register, kind)
        else:
            scatter(scratch, delta + part * unit, active, regs + register, unit)


@jit
def atomic_lanes(ins: int, regs: int, active: int, scratch: int, delta: int, source: int, target: int) -> None:
    """One atomic operation a lane, in lane order; `target` < 0: the old value is not wanted."""
    unit = ld64(ins + layout.I_SIZE)
    kind = ld64(ins + layout.I_KIND)
    operation = ld64(ins + layout.I_V0)
    b_reg = regs + source
    c_reg = regs + ld64(ins + layout.I_C)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        host = ld64(scratch + 8 * lane) + delta
        if unit == 8:
            old = ld64(host)
            value = ld64(b_reg + 8 * lane)
            swap = ld64(c_reg + 8 * lane)
        else:
            old = ld32(host) if unit == 4 else ld16(host)
            mask = layout.FULL if unit == 4 else 0xFFFF
            value = ld32(b_reg + 4 * lane) & mask
            swap = ld32(c_reg + 4 * lane) & mask
        new = atomic_word(operation, kind, old, value, swap)
        if unit == 8:
            st64(host, new)
        elif unit == 4:
            st32(host, new)
        else:
            st16(host, new)
        if target >= 0:
            if unit == 8:
                st64(regs + target + 8 * lane, old)
            else:
                st32(regs + target + 4 * lane, old)


@jit
def local_access(state: int, warp: int, number: int, ins: int, active: int, scratch: int) -> int:
    """Per-thread memory (stack arrays, spills): bounds and alignment only."""
    size = ld64(ins + layout.I_SIZE) * ld64(ins + layout.I_VEC)
    length = ld64(state + layout.S_LOCAL_LEN)
    bad = outside(scratch, active, 0, length - size, size - 1)
    if bad:
        lane = lowest(bad)
        return fault(state, layout.FAULT_LOCAL, number, lane, -1, ld64(scratch + 8 * lane), size)
    bump(state, layout.S_LOCAL_REQUESTS, 1)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        st64(scratch + 8 * lane, ld64(scratch + 8 * lane) + (number * layout.LANES + lane) * length)
    transfer(state, warp, ins, active, scratch, ld64(state + layout.S_LOCAL))
    return 0


@jit
def shared_access(state: int, warp: int, number: int, ins: int, active: int, scratch: int) -> int:
    """Shared memory: bounds, alignment, initialisation, races, bank conflicts."""
    size = ld64(ins + layout.I_SIZE) * ld64(ins + layout.I_VEC)
    buffer = ld64(state + layout.S_SHARED_BUFFER)
    bad = outside(scratch, active, 0, ld64(buffer + layout.B_LEN) - size, size - 1)
    if bad:
        lane = lowest(bad)
        address = ld64(scratch + 8 * lane)
        code = layout.FAULT_MISALIGNED
        if address < 0 or address + size > ld64(buffer + layout.B_LEN):
            code = layout.FAULT_OOB
        return fault(state, code, number, lane, -2, address, size)
    bump(state, layout.S_SHARED_REQUESTS, 1)
    waves = 1
    if (
        size > 4
        or unit_map(scratch, active, lowest_address(scratch, active) & -4, 2) >> 32 != 0
        or (unit_map(scratch, active, lowest_address(scratch, active) & -4, 2) == 0)
    ):
        waves = bank_conflicts(scratch, active)
    bump(state, layout.S_SHARED_WAVEFRONTS, waves)
    note_shared(state, warp, ins, waves)
    if ld64(ins + layout.I_FLAGS) & layout.F_ASYNC:
        code = track_copy(state, warp, number, active, scratch, buffer, size)
    else:
        code = track(state, warp, number, ins, active, scratch, buffer, -2, 0, size, 1)
    if code:
        return code
    transfer(state, warp, ins, active, scratch, ld64(buffer + layout.B_HOST))
    return 0
