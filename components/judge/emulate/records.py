"""What goes into a run of the interpreter and what comes out."""

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

EmulationStatus = Literal[
    "ok", "illegal_access", "race", "timeout", "tampered", "launch_error", "unsupported"
]  # fmt: skip


@dataclass(frozen=True)
class EmuBuffer:
    """A global buffer.

    Attributes:
        name: as launches refer to it and messages name it.
        data: 1-D contiguous array; when writable the run changes it in place.
        writable: False: a store to it is tampering.
        initialised: False: reading an element before writing it is an illegal access.
    """

    name: str
    data: NDArray[Any]
    writable: bool = False
    initialised: bool = True


@dataclass(frozen=True)
class EmuLaunch:
    """One kernel launch; args are buffer names or numpy scalars of the parameters' widths, in order."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int  # dynamic
    args: tuple[Any, ...]


@dataclass(frozen=True)
class EmulatorLimits:
    """What a run may use."""

    instruction_budget: int = 50_000_000  # warp instructions, over all launches
    max_shared_bytes: int = 227 * 1024  # static + dynamic, opt-in limit of sm_90 and sm_100 (sm_80: 163 KB)
    multiprocessors: int = 132  # whose L1 are modelled; blocks go round robin
    max_threads_memory: int = 1 << 30  # bytes of registers and local memory


@dataclass(frozen=True)
class Chain:
    """What a warp waits for, one after the other."""

    rounds: int  # of global loads in flight together
    missed_rounds: int  # those of which a load missed L1
    streamed_rounds: int  # those of which a load with an evict-first hint missed L1
    lines: int
    missed_sectors: int
    shared_rounds: int
    shared_wavefronts: int
    instructions: int
    warp_syncs: int
    barriers: int


@dataclass(frozen=True)
class Traffic:
    """Counts of one launch. Sectors are 32 bytes, lines 128 bytes, a request is one warp instruction."""

    warp_instructions: int
    lane_instructions: int
    load_requests: int
    load_sectors: int
    load_bytes: int  # asked for by lanes
    l1_missed_sectors: int
    cold_sectors: int  # distinct sectors touched, by any access
    cold_streamed: int  # those that a load with an evict-first hint touched first
    missed_streamed: int  # sectors that such loads missed in L1
    store_requests: int
    store_sectors: int
    store_bytes: int
    atomic_requests: int
    atomic_sectors: int
    atomic_lanes: int
    wavefronts: int  # distinct lines, summed over requests
    shared_requests: int
    shared_wavefronts: int  # 1 a request without bank conflicts
    local_requests: int
    branches: int
    divergent_branches: int
    barriers: int
    warp_syncs: int
    warps: int
    blocks: int
    max_warp_loads: int  # load requests of the busiest warp
    sum_warp_loads: int
    max_warp_instructions: int
    max_block_instructions: int
    shared_static_bytes: int
    longest: Chain  # of the block with the longest chain
    blocks_sum: Chain  # of each block's longest, summed
    # most that one multiprocessor got, blocks dealt out in turn
    sm_instructions: int
    sm_lines: int  # and wavefronts of shared memory
    sm_sectors: int  # to and from L2
    sm_blocks: int


@dataclass(frozen=True)
class Emulation:
    """What a run found: the first fault, or "ok"."""

    status: EmulationStatus
    message: str = ""
    line: int | None = None  # of the CUDA source, when the PTX carries -lineinfo
    block: tuple[int, int, int] | None = None
    thread: int | None = None  # linear index in the block
    traffic: tuple[Traffic, ...] = ()  # of the launches that ran to their end
    launch: int | None = None  # index of the launch that failed
