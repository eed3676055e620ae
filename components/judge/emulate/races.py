"""Initialisation and races: shadow words of buffers that may be written and of shared memory."""

from components.judge.emulate import layout
from components.judge.emulate.faults import fault
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import ld32, ld64, lowest, st64


@jit
def track(
    state: int,
    warp: int,
    number: int,
    ins: int,
    active: int,
    scratch: int,
    buffer: int,
    index: int,
    base: int,
    size: int,
    shared: int,
) -> int:
    """Initialisation and races, one 4-byte word at a time.

    A word's shadow is (sequence number << 11 | flag << 10 | thread) of its last writer (flag: atomic) and of its last
    reader (flag: more than one warp). Warp instructions are numbered through a run, so comparing a number with the
    block's start, its last barrier and the warp's last synchronisation says whether the two accesses are ordered. A
    plain store of the value that is already there does not race (the outcome is the same in any order); stores
    under 4 bytes only mark the word as written.
    """
    op = ld64(ins + layout.I_OP)
    strong = ld64(ins + layout.I_FLAGS) & layout.F_STRONG
    writers = ld64(buffer + layout.B_WSHADOW)
    readers = ld64(buffer + layout.B_RSHADOW)
    host = ld64(buffer + layout.B_HOST)
    given = ld64(buffer + layout.B_INIT)
    seq = ld64(state + layout.S_SEQ)
    block0 = ld64(state + layout.S_BLOCK0)
    launch0 = ld64(state + layout.S_LAUNCH0)
    epoch = ld64(state + layout.S_EPOCH)
    order = ld64(state + layout.S_ORDER) + 8 * number * layout.ORDER_ROW
    synced = ld64(warp + layout.W_SYNC)
    fenced = ld64(state + layout.S_FENCED)
    unit = ld64(ins + layout.I_SIZE)
    regs = ld64(warp + layout.W_REGS)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        me = number * layout.LANES + lane
        offset = ld64(scratch + 8 * lane) - base
        for k in range((size + 3) >> 2):
            word = (offset >> 2) + k
            last = ld64(writers + 8 * word)
            when = last >> 11
            if when == layout.PENDING:
                return fault(state, layout.FAULT_ASYNC, number, lane, index, offset, size)
            who = last & 1023
            atomic = (last >> 10) & 1
            if op != layout.OP_ST:  # a load or the load of an atomic
                missing = last == 0
                if shared:
                    missing = when < block0
                if missing and given == 0:
                    return fault(state, layout.FAULT_UNINIT, number, lane, index, offset, size)
            ordered = when < launch0 or last == 0
            if not ordered:
                if when < block0:
                    ordered = shared != 0
                else:
                    ordered = who == me or when < epoch or ((who >> 5) == number and when < synced)
                    ordered = ordered or when < ld64(order + 8 * (who >> 5))
            if not ordered and atomic and op == layout.OP_ST:
                return fault(state, layout.FAULT_RACE_ATOMIC, number, lane, index, offset, size)
            if not ordered and not atomic:
                if op == layout.OP_LD:
                    harmless = strong != 0 and (shared == 0 or (who >> 5) == number)
                    if not harmless and not (when < block0 and fenced):
                        return fault(state, layout.FAULT_RACE_RAW, number, lane, index, offset, size)
                elif op == layout.OP_ATOM:
                    return fault(state, layout.FAULT_RACE_ATOMIC, number, lane, index, offset, size)
                elif unit >= 4 and not (strong != 0 and shared != 0 and (who >> 5) == number and when != seq):
                    register = ld64(ins + layout.I_V0 + 8 * ((4 * k) // unit))
                    if unit == 8:
                        value = ld32(regs + register + 8 * lane + ((4 * k) & 7))
                    else:
                        value = ld32(regs + register + 4 * lane)
                    if when == seq:  # the other lane's value of this very instruction is not in memory yet
                        first = who & 31
                        shift = ld64(scratch + 8 * first) - base
                        part = (4 * word - (shift & -4)) >> 2
                        other = ld64(ins + layout.I_V0 + 8 * ((4 * part) // unit))
                        if unit == 8:
                            old = ld32(regs + other + 8 * first + ((4 * part) & 7))
                        else:
                            old = ld32(regs + other + 4 * first)
                    else:
                        old = ld32(host + 4 * word)
                    if value != old:
                        return fault(state, layout.FAULT_RACE_WAW, number, lane, index, offset, size)
            reader = ld64(readers + 8 * word)
            when = reader >> 11
            if op == layout.OP_LD:
                many = 0
                if when >= epoch and when >= block0 and ((reader & 1023) >> 5 != number or (reader >> 10) & 1):
                    many = 1
                st64(readers + 8 * word, seq << 11 | many << 10 | me)
            else:
                if op == layout.OP_ST and reader != 0 and when >= launch0 and unit >= 4:
                    clash = False
                    if when < block0:
                        clash = shared == 0 and not fenced
                    elif when >= epoch:
                        clash = unordered_reader(reader, number, order)
                    if clash and strong == 0:
                        return fault(state, layout.FAULT_RACE_WAR, number, lane, index, offset, size)
                flag = 1 if op == layout.OP_ATOM else 0
                if flag and not atomic and last != 0 and last >> 11 >= block0:
                    # A plain store of this block stays on record, so that the atomic of a thread that it is not ordered
                    # with is found; this atomic counts as a read, so that a later plain store is.
                    many = 0
                    if when >= epoch and when >= block0 and ((reader & 1023) >> 5 != number or (reader >> 10) & 1):
                        many = 1
                    st64(readers + 8 * word, seq << 11 | many << 10 | me)
                else:
                    st64(writers + 8 * word, seq << 11 | flag << 10 | me)
    return 0


@jit
def unordered_reader(reader: int, number: int, order: int) -> bool:
    """Whether a warp's store meets a read of another warp that no named barrier orders before it.

    Of several warps that have read only the last is known; a named barrier after that read is taken to order them all.
    """
    when = reader >> 11
    warp = (reader & 1023) >> 5
    many = (reader >> 10) & 1
    known: int = ld64(order + 8 * (layout.LANES if many else warp))
    return (many != 0 or warp != number) and when >= known


@jit
def track_copy(state: int, warp: int, number: int, active: int, scratch: int, buffer: int, size: int) -> int:
    """The shared side of a cp.async: its words are pending until their thread waits for the copy's group.

    Nobody may touch a pending word. Waiting makes the thread that copied their writer, at the time of the wait, so that
    the other threads need a barrier (or, in the warp, a __syncwarp) after it.
    """
    writers = ld64(buffer + layout.B_WSHADOW)
    readers = ld64(buffer + layout.B_RSHADOW)
    block0 = ld64(state + layout.S_BLOCK0)
    epoch = ld64(state + layout.S_EPOCH)
    order = ld64(state + layout.S_ORDER) + 8 * number * layout.ORDER_ROW
    synced = ld64(warp + layout.W_SYNC)
    copies = ld64(state + layout.S_COPIES)
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        me = number * layout.LANES + lane
        offset = ld64(scratch + 8 * lane)
        for k in range(size >> 2):
            word = (offset >> 2) + k
            last = ld64(writers + 8 * word)
            when = last >> 11
            who = last & 1023
            if when == layout.PENDING:
                return fault(state, layout.FAULT_ASYNC, number, lane, -2, offset, size)
            same = ((who >> 5) == number and when < synced) or when < ld64(order + 8 * (who >> 5))
            if when >= block0 and when >= epoch and who != me and not same:
                return fault(state, layout.FAULT_RACE_WAW, number, lane, -2, offset, size)
            reader = ld64(readers + 8 * word)
            when = reader >> 11
            if when >= block0 and when >= epoch and unordered_reader(reader, number, order):
                return fault(state, layout.FAULT_RACE_WAR, number, lane, -2, offset, size)
            st64(writers + 8 * word, layout.PENDING << 11 | me)
            count = ld64(state + layout.S_COPY_COUNT)
            entry = copies + count * layout.COPY_BYTES
            st64(entry, writers + 8 * word)
            st64(entry + 8, me)
            st64(entry + 16, ld64(ld64(state + layout.S_GROUPS) + 8 * me))
            st64(state + layout.S_COPY_COUNT, count + 1)
    return 0


@jit
def copy_group(state: int, number: int, ins: int, active: int) -> None:
    """cp.async.commit_group, wait_group n (all but the n newest groups are done) and wait_all."""
    wanted = ld64(ins + layout.I_IMM)
    groups = ld64(state + layout.S_GROUPS) + 8 * number * layout.LANES
    if wanted < 0:  # wait_all is a commit and a wait for every group
        left = active
        while left:
            lane = lowest(left)
            left &= left - 1
            st64(groups + 8 * lane, ld64(groups + 8 * lane) + 1)
    if wanted == layout.COPY_COMMIT:
        return
    if wanted < 0:
        wanted = 0
    seq = ld64(state + layout.S_SEQ)
    copies = ld64(state + layout.S_COPIES)
    kept = 0
    for k in range(ld64(state + layout.S_COPY_COUNT)):
        entry = copies + k * layout.COPY_BYTES
        thread = ld64(entry + 8)
        lane = thread & 31
        done = (thread >> 5) == number and (active >> lane) & 1 != 0
        if done and ld64(entry + 16) < ld64(groups + 8 * lane) - wanted:
            st64(ld64(entry), seq << 11 | thread)
            continue
        other = copies + kept * layout.COPY_BYTES
        st64(other, ld64(entry))
        st64(other + 8, thread)
        st64(other + 16, ld64(entry + 16))
        kept += 1
    st64(state + layout.S_COPY_COUNT, kept)


@jit
def forget_copies(state: int) -> None:
    """At the start of a block: what the block before never waited for."""
    copies = ld64(state + layout.S_COPIES)
    for k in range(ld64(state + layout.S_COPY_COUNT)):
        st64(ld64(copies + k * layout.COPY_BYTES), 0)
    st64(state + layout.S_COPY_COUNT, 0)
