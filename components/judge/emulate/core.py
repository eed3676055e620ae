"""The interpreter's core, compiled by numba: a block at a time, a warp at a time, the lowest program counter first.

All arguments are int64: host addresses of records laid out in layout.py. Nothing here allocates; every address that a
program computes is checked before it is used, and every register offset and branch target was checked at load.
"""

from components.judge.emulate import layout
from components.judge.emulate.chain import begin_block, end_block
from components.judge.emulate.faults import bump, fault
from components.judge.emulate.jit import jit
from components.judge.emulate.memory import memory_step
from components.judge.emulate.primitives import (
    equal32,
    ld32,
    ld64,
    lowest,
    min_pc,
    popcount,
    set32,
    st32,
    st64,
    vector_step,
)
from components.judge.emulate.races import copy_group, forget_copies
from components.judge.emulate.sync import forget_arrivals, resolve_barriers, sync_step, threads_of

QUANTUM = 100_000  # instructions before another warp of the block gets a turn (a spin lock must not starve it)
PATIENCE = 4_096  # instructions that some lanes may run while others of the warp wait at a higher address


@jit
def run_warp(state: int, warp: int, number: int) -> int:
    """Run a warp until it ends, waits or has used its turn; a fault code or 0."""
    code = ld64(state + layout.S_CODE)
    regs = ld64(warp + layout.W_REGS)
    pcs = warp + layout.W_PC
    seq = ld64(state + layout.S_SEQ)
    seq_end = ld64(state + layout.S_BUDGET_END)
    turn_end = seq + QUANTUM
    lanes = 0
    st64(warp + layout.W_YIELDED, 0)
    result = 0
    while result == 0:
        runnable = ld64(warp + layout.W_ALIVE) & ~ld64(warp + layout.W_BAR) & ~ld64(warp + layout.W_WAIT)
        if runnable == 0:
            break
        if seq >= turn_end:
            st64(warp + layout.W_YIELDED, 1)
            break
        chosen = runnable & ~ld64(warp + layout.W_LOW)
        if chosen == 0:
            chosen = runnable
            st64(warp + layout.W_LOW, 0)
        pc = min_pc(pcs, chosen)
        act = equal32(pcs, runnable, pc)
        others = runnable & ~act
        limit = 0x7FFFFFFF
        patience = seq_end + 1
        if others:
            above = others & ~ld64(warp + layout.W_LOW)
            if above:
                limit = min_pc(pcs, above)
            patience = seq + PATIENCE
        while True:
            ins = code + pc * layout.INS_BYTES
            active = act & (ld32(regs + ld64(ins + layout.I_GUARD)) ^ ld64(ins + layout.I_GXOR))
            seq += 1
            lanes += popcount(active)
            op = ld64(ins + layout.I_OP)
            if seq > seq_end:
                result = fault(state, layout.FAULT_BUDGET, number, lowest(act), -1, 0, 0)
                break
            if seq > patience or seq > turn_end:
                if seq > patience:
                    st64(warp + layout.W_LOW, act)
                set32(pcs, act, pc)
                seq -= 1
                break
            if op >= layout.FIRST_VECTOR_OP:
                vector_step(ins, regs, active)
            elif op <= layout.OP_EXIT:
                if op == layout.OP_BRA:
                    bump(state, layout.S_BRANCHES, 1)
                    if active == act:
                        pc = ld64(ins + layout.I_IMM)
                        if pc >= limit:
                            set32(pcs, act, pc)
                            break
                        continue
                    if active:
                        bump(state, layout.S_DIVERGED, 1)
                        set32(pcs, active, ld64(ins + layout.I_IMM))
                        set32(pcs, act & ~active, pc + 1)
                        break
                else:
                    st64(warp + layout.W_ALIVE, ld64(warp + layout.W_ALIVE) & ~active)
                    st64(warp + layout.W_WAIT, 0)  # those that wait look again at who is left
                    set32(pcs, act & ~active, pc + 1)
                    break
            elif active:
                st64(state + layout.S_SEQ, seq)
                if op == layout.OP_LD or op == layout.OP_ST or op == layout.OP_ATOM:
                    result = memory_step(state, warp, number, ins, active)
                elif (op >= layout.OP_SHFL and op <= layout.OP_MATCH) or op >= layout.OP_ELECT:
                    waits = sync_step(state, warp, number, ins, pc, act, active)
                    if waits == 1:
                        break
                    result = -waits
                elif op == layout.OP_BAR:
                    arrive(state, warp, ins, regs, active)
                    set32(pcs, act, pc + 1)
                    break
                elif op == layout.OP_TRAP:
                    result = fault(state, layout.FAULT_TRAP, number, lowest(active), -1, 0, 0)
                elif op == layout.OP_ACTIVE:
                    set32(regs + ld64(ins + layout.I_D), active, active)
                elif op == layout.OP_COPYGROUP:
                    copy_group(state, number, ins, active)
                elif op == layout.OP_FENCE:
                    st64(state + layout.S_FENCED, 1)
                elif op == layout.OP_BRX:
                    result = branch_table(state, warp, number, ins, regs, active)
                    set32(pcs, act & ~active, pc + 1)
                    if result == 0:
                        break
                elif op != layout.OP_NOP:
                    result = fault(state, layout.FAULT_INTERNAL, number, lowest(active), -1, op, 0)
                if result:
                    st64(state + layout.S_FAULT_LINE, ld64(ins + layout.I_LINE))
                    break
            pc += 1
            if pc >= limit:
                set32(pcs, act, pc)
                break
        if result:
            st64(state + layout.S_FAULT_LINE, ld64(code + pc * layout.INS_BYTES + layout.I_LINE))
    st64(warp + layout.W_ISSUED, ld64(warp + layout.W_ISSUED) + seq - ld64(warp + layout.W_BARPC))
    bump(warp, layout.W_STEPS, seq - ld64(warp + layout.W_BARPC))
    st64(state + layout.S_SEQ, seq)
    bump(state, layout.S_LANE_INSTRUCTIONS, lanes)
    return result


@jit
def arrive(state: int, warp: int, ins: int, regs: int, active: int) -> None:
    """Lanes reach a barrier: note its number and how many threads it wants (0: all of the block).

    bar.arrive only adds its threads to the barrier's count: its lanes do not wait.
    """
    bump(state, layout.S_BARRIERS, 1)
    first = lowest(active)
    if ld64(ins + layout.I_FLAGS) & layout.F_ARRIVE:
        barrier = ld32(regs + ld64(ins + layout.I_A) + 4 * first) & 15
        bump(state, layout.S_ARRIVED + 8 * barrier, threads_of(active, ld64(warp + layout.W_ALIVE)))
        number = (warp - ld64(state + layout.S_WARPS)) // layout.WARP_BYTES
        met = ld64(state + layout.S_ORDER) + layout.ORDER_MET
        st64(met + 8 * (barrier * layout.LANES + number), ld64(state + layout.S_SEQ) + 1)
        return
    set32(warp + layout.W_BARID, active, ld32(regs + ld64(ins + layout.I_A) + 4 * first) & 15)
    set32(warp + layout.W_BARCOUNT, active, ld32(regs + ld64(ins + layout.I_B) + 4 * first))
    st64(warp + layout.W_BAR, ld64(warp + layout.W_BAR) | active)


@jit
def branch_table(state: int, warp: int, number: int, ins: int, regs: int, active: int) -> int:
    """brx.idx: the table is a run of OP_BRA instructions at I_IMM, I_SIZE entries long."""
    left = active
    while left:
        lane = lowest(left)
        left &= left - 1
        index = ld32(regs + ld64(ins + layout.I_A) + 4 * lane)
        if index >= ld64(ins + layout.I_SIZE):
            return fault(state, layout.FAULT_BRX, number, lane, -1, index, 0)
        st32(warp + layout.W_PC + 4 * lane, ld64(ins + layout.I_IMM) + index)
    return 0


@jit
def run_block(state: int) -> int:
    """Run the warps of one block to their end; a fault code or 0."""
    warps = ld64(state + layout.S_WARPS)
    count = ld64(state + layout.S_WARP_COUNT)
    while True:
        yielded = 0
        for w in range(count):
            warp = warps + w * layout.WARP_BYTES
            if ld64(warp + layout.W_ALIVE) == 0:
                continue
            st64(warp + layout.W_BARPC, ld64(state + layout.S_SEQ))
            code = run_warp(state, warp, w)
            if code:
                return code
            yielded |= ld64(warp + layout.W_YIELDED)
        alive = 0
        for w in range(count):
            alive |= ld64(warps + w * layout.WARP_BYTES + layout.W_ALIVE)
        if alive == 0:
            return 0
        if resolve_barriers(state) or yielded:
            continue
        for w in range(count):
            warp = warps + w * layout.WARP_BYTES
            stuck = ld64(warp + layout.W_ALIVE)
            if stuck & (ld64(warp + layout.W_BAR) | ld64(warp + layout.W_WAIT)):
                lane = lowest(stuck)
                pc = ld32(warp + layout.W_PC + 4 * lane)
                if (ld64(warp + layout.W_BAR) >> lane) & 1:
                    pc -= 1
                st64(
                    state + layout.S_FAULT_LINE,
                    ld64(ld64(state + layout.S_CODE) + pc * layout.INS_BYTES + layout.I_LINE),
                )
                return fault(state, layout.FAULT_DEADLOCK, w, lane, -1, 0, 0)
        return fault(state, layout.FAULT_INTERNAL, 0, 0, -1, -1, 0)


@jit
def run_grid(state: int) -> int:
    """Run every block of the launch in order; a fault code or 0."""
    warps = ld64(state + layout.S_WARPS)
    count = ld64(state + layout.S_WARP_COUNT)
    threads = ld64(state + layout.S_THREADS)
    gx = ld64(state + layout.S_GX)
    gy = ld64(state + layout.S_GY)
    block = 0
    for z in range(ld64(state + layout.S_GZ)):
        for y in range(gy):
            for x in range(gx):
                start = ld64(state + layout.S_SEQ) + 1
                st64(state + layout.S_BLOCK0, start)
                st64(state + layout.S_EPOCH, start)
                st64(state + layout.S_FENCED, 0)
                forget_copies(state)
                for barrier in range(16):
                    if ld64(state + layout.S_ARRIVED + 8 * barrier):
                        forget_arrivals(state, barrier)
                st64(state + layout.S_SM, block % ld64(state + layout.S_SMS))
                for w in range(count):
                    warp = warps + w * layout.WARP_BYTES
                    regs = ld64(warp + layout.W_REGS)
                    here = min(threads - w * layout.LANES, layout.LANES)
                    st64(warp + layout.W_ALIVE, (1 << here) - 1)
                    st64(warp + layout.W_BAR, 0)
                    st64(warp + layout.W_WAIT, 0)
                    st64(warp + layout.W_LOW, 0)
                    st64(warp + layout.W_SYNC, start)
                    st64(warp + layout.W_LOADS, 0)
                    st64(warp + layout.W_ISSUED, 0)
                    set32(warp + layout.W_PC, layout.FULL, 0)
                    set32(regs + ld64(state + layout.S_CTAID_X), layout.FULL, x)
                    set32(regs + ld64(state + layout.S_CTAID_Y), layout.FULL, y)
                    set32(regs + ld64(state + layout.S_CTAID_Z), layout.FULL, z)
                begin_block(state)
                code = run_block(state)
                if code:
                    st64(state + layout.S_FAULT_BX, x)
                    st64(state + layout.S_FAULT_BY, y)
                    st64(state + layout.S_FAULT_BZ, z)
                    return code
                issued = 0
                for w in range(count):
                    warp = warps + w * layout.WARP_BYTES
                    loads = ld64(warp + layout.W_LOADS)
                    issued += ld64(warp + layout.W_ISSUED)
                    st64(state + layout.S_MAX_WARP_LOADS, max(ld64(state + layout.S_MAX_WARP_LOADS), loads))
                    st64(
                        state + layout.S_MAX_WARP_ISSUED,
                        max(ld64(state + layout.S_MAX_WARP_ISSUED), ld64(warp + layout.W_ISSUED)),
                    )
                    bump(state, layout.S_SUM_WARP_LOADS, loads)
                st64(state + layout.S_MAX_BLOCK_ISSUED, max(ld64(state + layout.S_MAX_BLOCK_ISSUED), issued))
                bump(state, layout.S_WARPS_RUN, count)
                end_block(state)
                block += 1
    return 0
