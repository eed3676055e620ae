"""From the core's counters and fault words to `Traffic` and `Emulation`."""

import numpy as np
from numpy.typing import NDArray

from components.judge.emulate import layout
from components.judge.emulate.arena import Memory
from components.judge.emulate.records import Chain, Emulation, EmulationStatus, EmuLaunch, Traffic
from components.judge.emulate.translate import EntryCode


def traffic_of(
    state: NDArray[np.int64], before: int, code: EntryCode, launch: EmuLaunch, loads: NDArray[np.int64]
) -> Traffic:
    """The counters of a launch that ended; `before` is the sequence number at its start, `loads` what each SM got."""

    def count(offset: int) -> int:
        return int(state[offset // 8])

    def chain(offset: int) -> Chain:
        return Chain(*(int(word) for word in state[offset // 8 : offset // 8 + layout.CHAIN_WORDS]))

    most = loads.max(axis=0)
    return Traffic(
        warp_instructions=count(layout.S_SEQ) - before,
        lane_instructions=count(layout.S_LANE_INSTRUCTIONS),
        load_requests=count(layout.S_LOADS),
        load_sectors=count(layout.S_LOAD_SECTORS),
        load_bytes=count(layout.S_LOAD_BYTES),
        l1_missed_sectors=count(layout.S_L1_MISS),
        cold_sectors=count(layout.S_COLD),
        cold_streamed=count(layout.S_STREAM_COLD),
        missed_streamed=count(layout.S_STREAM_MISS),
        store_requests=count(layout.S_STORES),
        store_sectors=count(layout.S_STORE_SECTORS),
        store_bytes=count(layout.S_STORE_BYTES),
        atomic_requests=count(layout.S_ATOMICS),
        atomic_sectors=count(layout.S_ATOMIC_SECTORS),
        atomic_lanes=count(layout.S_ATOMIC_LANES),
        wavefronts=count(layout.S_WAVEFRONTS),
        shared_requests=count(layout.S_SHARED_REQUESTS),
        shared_wavefronts=count(layout.S_SHARED_WAVEFRONTS),
        local_requests=count(layout.S_LOCAL_REQUESTS),
        branches=count(layout.S_BRANCHES),
        divergent_branches=count(layout.S_DIVERGED),
        barriers=count(layout.S_BARRIERS),
        warp_syncs=count(layout.S_WARP_SYNCS),
        warps=count(layout.S_WARPS_RUN),
        blocks=launch.grid[0] * launch.grid[1] * launch.grid[2],
        max_warp_loads=count(layout.S_MAX_WARP_LOADS),
        sum_warp_loads=count(layout.S_SUM_WARP_LOADS),
        max_warp_instructions=count(layout.S_MAX_WARP_ISSUED),
        max_block_instructions=count(layout.S_MAX_BLOCK_ISSUED),
        shared_static_bytes=code.shared_static,
        longest=chain(layout.S_CHAIN_MAX),
        blocks_sum=chain(layout.S_CHAIN_SUM),
        sm_instructions=int(most[0]),
        sm_lines=int(most[1]),
        sm_sectors=int(most[2]),
        sm_blocks=int(most[3]),
    )


_FAULTS: dict[int, tuple[EmulationStatus, str]] = {
    layout.FAULT_OOB: ("illegal_access", "out of bounds"),
    layout.FAULT_MISALIGNED: ("illegal_access", "misaligned access"),
    layout.FAULT_UNINIT: ("illegal_access", "read of uninitialised memory"),
    layout.FAULT_READONLY: ("tampered", "write to a read-only buffer"),
    layout.FAULT_RACE_WAW: ("race", "two threads write different values without synchronising"),
    layout.FAULT_RACE_RAW: ("race", "read of another thread's write without synchronising"),
    layout.FAULT_RACE_WAR: ("race", "write after another thread's read without synchronising"),
    layout.FAULT_RACE_ATOMIC: ("race", "atomic and plain access by two threads without synchronising"),
    layout.FAULT_MASK: ("illegal_access", "a warp primitive's mask does not name the lane that executes it"),
    layout.FAULT_BUDGET: ("timeout", "instruction budget used up (endless loop?)"),
    layout.FAULT_DEADLOCK: ("timeout", "deadlock: threads wait at a barrier or warp primitive that others never reach"),
    layout.FAULT_TRAP: ("illegal_access", "trap or failed assertion"),
    layout.FAULT_LOCAL: ("illegal_access", "out of bounds of the thread's local memory"),
    layout.FAULT_BRX: ("illegal_access", "jump table index out of range"),
    layout.FAULT_ASYNC: ("race", "access to the target of a cp.async that its thread has not waited for"),
    layout.FAULT_WARP: ("illegal_access", "a matrix instruction needs every lane of its warp; some have ended"),
    layout.FAULT_INTERNAL: ("unsupported", "the interpreter met an instruction it cannot run"),
}
_MEMORY_FAULTS = {
    layout.FAULT_OOB,
    layout.FAULT_MISALIGNED,
    layout.FAULT_UNINIT,
    layout.FAULT_READONLY,
    layout.FAULT_RACE_WAW,
    layout.FAULT_RACE_RAW,
    layout.FAULT_RACE_WAR,
    layout.FAULT_RACE_ATOMIC,
    layout.FAULT_ASYNC,
}


def explain(fault: int, state: NDArray[np.int64], memory: Memory, launch: EmuLaunch, number: int,
             traffic: tuple[Traffic, ...]) -> Emulation:  # fmt: skip
    """Put the core's fault into words."""

    def get(offset: int) -> int:
        return int(state[offset // 8])

    status, text = _FAULTS[fault]
    index, address, size = get(layout.S_FAULT_BUFFER), get(layout.S_FAULT_ADDR), get(layout.S_FAULT_SIZE)
    if fault in _MEMORY_FAULTS:
        if index == -2:
            where = f"shared memory ({get(layout.S_SHARED_LEN)} bytes a block)"
        elif index < 0:
            where = f"no buffer (address {address & (2**64 - 1):#x})"
        else:
            where = f"{memory.names[index]} ({memory.lengths[index]} bytes)"
        offset = "" if index == -1 else f" at byte {address}"
        text = f"{text}: {size} bytes{offset} of {where}"
    line = get(layout.S_FAULT_LINE) or None
    block = (get(layout.S_FAULT_BX), get(layout.S_FAULT_BY), get(layout.S_FAULT_BZ))
    thread = get(layout.S_FAULT_WARP) * layout.LANES + get(layout.S_FAULT_LANE)
    return Emulation(status, f"{launch.entry}: {text}", line, block, thread, traffic, number)
