"""Loads, stores and atomics of one warp: every lane's address checked, races tracked, traffic counted."""

from numba import njit

from components.judge.emulate import layout as L
from components.judge.emulate.primitives import (
    address32,
    atomic_word,
    find_way,
    gather,
    ld8,
    ld32,
    ld64,
    lowest,
    lowest_address,
    outside,
    popcount,
    scatter,
    st8,
    st32,
    st64,
    unit_map,
)

OPTIONS = {"cache": True, "nogil": True, "boundscheck": False, "error_model": "numpy"}


@njit(**OPTIONS)
def fault(state, code, warp, lane, buffer, address, size):
    """Record the first fault and give its code back."""
    st64(state + L.S_FAULT, code)
    st64(state + L.S_FAULT_WARP, warp)
    st64(state + L.S_FAULT_LANE, lane)
    st64(state + L.S_FAULT_BUFFER, buffer)
    st64(state + L.S_FAULT_ADDR, address)
    st64(state + L.S_FAULT_SIZE, size)
    return code


@njit(**OPTIONS)
def bump(state, counter, amount):
    """Add to a counter."""
    st64(state + counter, ld64(state + counter) + amount)


@njit(**OPTIONS)
def memory_step(state, warp, number, ins, active):
    """OP_LD, OP_ST, OP_ATOM for the active lanes of a warp; a fault code or 0."""
    regs = ld64(warp + L.W_REGS)
    scratch = ld64(state + L.S_SCRATCH)
    flags = ld64(ins + L.I_FLAGS)
    address32(regs + ld64(ins + L.I_A), ld64(ins + L.I_IMM), flags & L.F_ADDR32, scratch)
    space = ld64(ins + L.I_SPACE)
    if space == L.SP_SHARED:
        return shared_access(state, warp, number, ins, active, scratch)
    if space == L.SP_LOCAL:
        return local_access(state, warp, number, ins, active, scratch)
    if space == L.SP_GENERIC:
        shared = 0
        local = 0
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            address = ld64(scratch + 8 * lane)
            if address >= L.LOCAL_WINDOW:
                local |= 1 << lane
                st64(scratch + 8 * lane, address - L.LOCAL_WINDOW)
            elif address >= L.SHARED_WINDOW:
                shared |= 1 << lane
                st64(scratch + 8 * lane, address - L.SHARED_WINDOW)
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


@njit(**OPTIONS)
def global_access(state, warp, number, ins, active, scratch):
    """Check, count and perform an access to buffers; lanes may address different buffers."""
    op = ld64(ins + L.I_OP)
    unit = ld64(ins + L.I_SIZE)
    size = unit * ld64(ins + L.I_VEC)
    left = active
    while left:
        lane = lowest(left)
        address = ld64(scratch + 8 * lane)
        index = (address >> L.WINDOW_BITS) - 1
        if index < 0 or index >= ld64(state + L.S_BUFFER_COUNT):
            return fault(state, L.FAULT_OOB, number, lane, -1, address, size)
        buffer = ld64(state + L.S_BUFFERS) + index * (8 * L.BUF_WORDS)
        base = ld64(buffer + L.B_BASE)
        room = ld64(buffer + L.B_LEN) - size
        bad = outside(scratch, left, base, room, size - 1)
        group = left & ~bad
        if (group >> lane) & 1 == 0:
            code = L.FAULT_MISALIGNED
            if address < base or address - base > room:
                code = L.FAULT_OOB
            return fault(state, code, number, lane, index, address - base, size)
        if op != L.OP_LD and ld64(buffer + L.B_WRITABLE) == 0:
            return fault(state, L.FAULT_READONLY, number, lane, index, address - base, size)
        if ld64(ins + L.I_SPACE) != L.SP_CONST:
            count_traffic(state, warp, ins, group, scratch, buffer, base, size)
        if ld64(buffer + L.B_WSHADOW) != 0:
            code = track(state, warp, number, ins, group, scratch, buffer, index, base, size, 0)
            if code:
                return code
        transfer(state, warp, ins, group, scratch, ld64(buffer + L.B_HOST) - base)
        left &= ~group
    if op == L.OP_LD:
        bump(state, L.S_LOADS, 1)
        bump(state, L.S_LOAD_BYTES, popcount(active) * size)
        st64(warp + L.W_LOADS, ld64(warp + L.W_LOADS) + 1)
    elif op == L.OP_ST:
        bump(state, L.S_STORES, 1)
        bump(state, L.S_STORE_BYTES, popcount(active) * size)
    else:
        bump(state, L.S_ATOMICS, 1)
        bump(state, L.S_ATOMIC_LANES, popcount(active))
    return 0


@njit(**OPTIONS)
def transfer(state, warp, ins, active, scratch, delta):
    """Move the data, now that every address is known to be good."""
    op = ld64(ins + L.I_OP)
    regs = ld64(warp + L.W_REGS)
    unit = ld64(ins + L.I_SIZE)
    kind = ld64(ins + L.I_KIND)
    if op == L.OP_ATOM:
        wide = unit == 8
        operation = ld64(ins + L.I_V0)
        b_reg = regs + ld64(ins + L.I_B)
        c_reg = regs + ld64(ins + L.I_C)
        d_reg = ld64(ins + L.I_D)
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            host = ld64(scratch + 8 * lane) + delta
            if wide:
                old = ld64(host)
                st64(host, atomic_word(operation, kind, old, ld64(b_reg + 8 * lane), ld64(c_reg + 8 * lane)))
                if d_reg >= 0:
                    st64(regs + d_reg + 8 * lane, old)
            else:
                old = ld32(host)
                st32(host, atomic_word(operation, kind, old, ld32(b_reg + 4 * lane), ld32(c_reg + 4 * lane)))
                if d_reg >= 0:
                    st32(regs + d_reg + 4 * lane, old)
        return
    for part in range(ld64(ins + L.I_VEC)):
        register = ld64(ins + L.I_V0 + 8 * part)
        if register < 0:
            continue
        if op == L.OP_LD:
            gather(scratch, delta + part * unit, active, regs + register, kind)
        else:
            scatter(scratch, delta + part * unit, active, regs + register, unit)


@njit(**OPTIONS)
def local_access(state, warp, number, ins, active, scratch):
    """Per-thread memory (stack arrays, spills): bounds and alignment only."""
    size = ld64(ins + L.I_SIZE) * ld64(ins + L.I_VEC)
    length = ld64(state + L.S_LOCAL_LEN)
    bad = outside(scratch, active, 0, length - size, size - 1)
    if bad:
        lane = lowest(bad)
        return fault(state, L.FAULT_LOCAL, number, lane, -1, ld64(scratch + 8 * lane), size)
    bump(state, L.S_LOCAL_REQUESTS, 1)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        st64(scratch + 8 * lane, ld64(scratch + 8 * lane) + (number * L.LANES + lane) * length)
    transfer(state, warp, ins, active, scratch, ld64(state + L.S_LOCAL))
    return 0


@njit(**OPTIONS)
def shared_access(state, warp, number, ins, active, scratch):
    """Shared memory: bounds, alignment, initialisation, races, bank conflicts."""
    size = ld64(ins + L.I_SIZE) * ld64(ins + L.I_VEC)
    buffer = ld64(state + L.S_SHARED_BUFFER)
    bad = outside(scratch, active, 0, ld64(buffer + L.B_LEN) - size, size - 1)
    if bad:
        lane = lowest(bad)
        address = ld64(scratch + 8 * lane)
        code = L.FAULT_MISALIGNED
        if address < 0 or address + size > ld64(buffer + L.B_LEN):
            code = L.FAULT_OOB
        return fault(state, code, number, lane, -2, address, size)
    bump(state, L.S_SHARED_REQUESTS, 1)
    waves = 1
    if (
        size > 4
        or unit_map(scratch, active, lowest_address(scratch, active) & -4, 2) >> 32 != 0
        or (unit_map(scratch, active, lowest_address(scratch, active) & -4, 2) == 0)
    ):
        waves = bank_conflicts(scratch, active)
    bump(state, L.S_SHARED_WAVEFRONTS, waves)
    code = track(state, warp, number, ins, active, scratch, buffer, -2, 0, size, 1)
    if code:
        return code
    transfer(state, warp, ins, active, scratch, ld64(buffer + L.B_HOST))
    return 0


@njit(**OPTIONS)
def bank_conflicts(scratch, active):
    """The largest number of distinct words that fall into one of 32 banks (up to 8 are told apart)."""
    banks = scratch + L.SCRATCH_BANKS
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


@njit(**OPTIONS)
def track(state, warp, number, ins, active, scratch, buffer, index, base, size, shared):
    """Initialisation and races, one 4-byte word at a time.

    A word's shadow is (sequence number << 11 | flag << 10 | thread) of its last writer (flag: atomic) and of its last
    reader (flag: more than one warp). Warp instructions are numbered through a run, so comparing a number with the
    block's start, its last barrier and the warp's last synchronisation says whether the two accesses are ordered. A
    plain store of the value that is already there does not race (the outcome is the same in any order); stores
    under 4 bytes only mark the word as written.
    """
    op = ld64(ins + L.I_OP)
    strong = ld64(ins + L.I_FLAGS) & L.F_STRONG
    writers = ld64(buffer + L.B_WSHADOW)
    readers = ld64(buffer + L.B_RSHADOW)
    host = ld64(buffer + L.B_HOST)
    given = ld64(buffer + L.B_INIT)
    seq = ld64(state + L.S_SEQ)
    block0 = ld64(state + L.S_BLOCK0)
    launch0 = ld64(state + L.S_LAUNCH0)
    epoch = ld64(state + L.S_EPOCH)
    synced = ld64(warp + L.W_SYNC)
    fenced = ld64(state + L.S_FENCED)
    unit = ld64(ins + L.I_SIZE)
    regs = ld64(warp + L.W_REGS)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        me = number * L.LANES + lane
        offset = ld64(scratch + 8 * lane) - base
        for k in range((size + 3) >> 2):
            word = (offset >> 2) + k
            last = ld64(writers + 8 * word)
            when = last >> 11
            who = last & 1023
            atomic = (last >> 10) & 1
            if op != L.OP_ST:  # a load or the load of an atomic
                missing = last == 0
                if shared:
                    missing = when < block0
                if missing and given == 0:
                    return fault(state, L.FAULT_UNINIT, number, lane, index, offset, size)
            ordered = when < launch0 or last == 0
            if not ordered:
                if when < block0:
                    ordered = shared != 0
                else:
                    ordered = who == me or when < epoch or ((who >> 5) == number and when < synced)
            if not ordered and atomic and op == L.OP_ST:
                return fault(state, L.FAULT_RACE_ATOMIC, number, lane, index, offset, size)
            if not ordered and not atomic:
                if op == L.OP_LD:
                    harmless = strong != 0 and (shared == 0 or (who >> 5) == number)
                    if not harmless and not (when < block0 and fenced):
                        return fault(state, L.FAULT_RACE_RAW, number, lane, index, offset, size)
                elif op == L.OP_ATOM:
                    return fault(state, L.FAULT_RACE_ATOMIC, number, lane, index, offset, size)
                elif unit >= 4 and not (strong != 0 and shared != 0 and (who >> 5) == number and when != seq):
                    register = ld64(ins + L.I_V0 + 8 * ((4 * k) // unit))
                    if unit == 8:
                        value = ld32(regs + register + 8 * lane + ((4 * k) & 7))
                    else:
                        value = ld32(regs + register + 4 * lane)
                    if when == seq:  # the other lane's value of this very instruction is not in memory yet
                        first = number * 0 + (who & 31)
                        shift = ld64(scratch + 8 * first) - base
                        part = (4 * word - (shift & -4)) >> 2
                        other = ld64(ins + L.I_V0 + 8 * ((4 * part) // unit))
                        if unit == 8:
                            old = ld32(regs + other + 8 * first + ((4 * part) & 7))
                        else:
                            old = ld32(regs + other + 4 * first)
                    else:
                        old = ld32(host + 4 * word)
                    if value != old:
                        return fault(state, L.FAULT_RACE_WAW, number, lane, index, offset, size)
            reader = ld64(readers + 8 * word)
            when = reader >> 11
            if op == L.OP_LD:
                many = 0
                if when >= epoch and when >= block0 and ((reader & 1023) >> 5 != number or (reader >> 10) & 1):
                    many = 1
                st64(readers + 8 * word, seq << 11 | many << 10 | me)
            else:
                if op == L.OP_ST and reader != 0 and when >= launch0 and unit >= 4:
                    clash = False
                    if when < block0:
                        clash = shared == 0 and not fenced
                    elif when >= epoch:
                        clash = (reader & 1023) >> 5 != number or (reader >> 10) & 1 != 0
                    if clash and strong == 0:
                        return fault(state, L.FAULT_RACE_WAR, number, lane, index, offset, size)
                flag = 1 if op == L.OP_ATOM else 0
                st64(writers + 8 * word, seq << 11 | flag << 10 | me)
    return 0


@njit(**OPTIONS)
def count_traffic(state, warp, ins, active, scratch, buffer, base, size):
    """Distinct 32-byte sectors and 128-byte lines of a request, first touches, and an approximate L1."""
    op = ld64(ins + L.I_OP)
    lines = scratch + L.SCRATCH_LINES
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
        table = ld64(state + L.S_HASH)
        stamp = ld64(state + L.S_HASH_GEN) + 1
        st64(state + L.S_HASH_GEN, stamp)
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            sector = (ld64(scratch + 8 * lane) - base) >> 5
            line = sector >> 2
            slot = (line ^ (line >> 8)) & (L.HASH_SLOTS - 1)
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
                slot = (slot + 1) & (L.HASH_SLOTS - 1)
    bump(state, L.S_WAVEFRONTS, count)
    if op == L.OP_LD:
        bump(state, L.S_LOAD_SECTORS, sectors)
    elif op == L.OP_ST:
        bump(state, L.S_STORE_SECTORS, sectors)
    else:
        bump(state, L.S_ATOMIC_SECTORS, sectors)
    seen = ld64(buffer + L.B_SEEN)
    cold = 0
    missed = 0
    cached = op == L.OP_LD and ld64(state + L.S_L1) != 0
    sets = ld64(state + L.S_L1) + ld64(state + L.S_SM) * (L.L1_SETS * L.L1_SET_BYTES)
    tick = ld64(state + L.S_L1_TICK) + 1
    st64(state + L.S_L1_TICK, tick)
    window = base >> L.WINDOW_BITS
    for k in range(count):
        line = ld64(lines + 16 * k)
        mask = ld64(lines + 16 * k + 8)
        known = ld8(seen + line)
        if mask & ~known:
            cold += popcount(mask & ~known)
            st8(seen + line, known | mask)
        if cached:
            tag = window << 33 | line
            row = sets + ((line ^ (line >> 8) ^ (window * 37)) & (L.L1_SETS - 1)) * L.L1_SET_BYTES
            way = find_way(row, tag)
            if way == L.L1_WAYS:
                way = 0
                oldest = ld64(row + 16 * L.L1_WAYS)
                for w in range(1, L.L1_WAYS):
                    used = ld64(row + 16 * L.L1_WAYS + 8 * w)
                    if used < oldest:
                        oldest = used
                        way = w
                st64(row + 8 * way, tag)
                st64(row + 8 * L.L1_WAYS + 8 * way, 0)
            have = ld64(row + 8 * L.L1_WAYS + 8 * way)
            missed += popcount(mask & ~have)
            st64(row + 8 * L.L1_WAYS + 8 * way, have | mask)
            st64(row + 16 * L.L1_WAYS + 8 * way, tick)
    bump(state, L.S_COLD, cold)
    bump(state, L.S_L1_MISS, missed)
