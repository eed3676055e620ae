"""The constants of the modelled time, in one place. Written by hand from what benchmarks/model_fit.py prints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Shared by all programs; cycles are of the multiprocessor's clock."""

    launch_us: float  # an empty kernel in a replayed graph
    next_launch_us: float  # each further kernel of a program
    # the critical path of a warp
    l1_cycles: float  # a round of loads that hits L1
    l2_share: float  # a round that misses L1, over the machine's L2 latency
    dram_share: float  # what a miss of L2 adds, over the machine's memory latency
    line_cycles: float  # each line of a load
    sector_cycles: float  # each sector filled from L2
    shared_cycles: float  # a round of loads from shared memory
    bank_cycles: float  # each wavefront of shared memory
    step_cycles: float  # an instruction
    sync_cycles: float  # a shuffle or vote
    barrier_cycles: float
    tail: float  # of the longest block, on top of the even share of blocks in waves
    # a multiprocessor's throughputs
    issue_cycles: float  # an instruction
    lookup_cycles: float  # a line
    fill_cycles: float  # a sector from or to L2
    block_cycles: float  # starting a block
    warp_cycles: float  # starting each of its warps
    # the chip's
    l2_rate: float  # over the machine's L2 bandwidth
    dram_rate: float  # over the machine's memory bandwidth
    atomic_cycles: float  # an atomic's sector, spread over the multiprocessors
    lost: float  # of the L1 hits that other warps' lines push out
    norm: float  # p of the smooth maximum


CALIBRATED = Constants(
    launch_us=0.9182,
    next_launch_us=0.4944,
    l1_cycles=36.26,
    l2_share=0.9199,
    dram_share=0.1001,
    line_cycles=0.05,
    sector_cycles=2.174,
    shared_cycles=5.0,
    bank_cycles=0.1757,
    step_cycles=2.429,
    sync_cycles=5.0,
    barrier_cycles=171.5,
    tail=0.9386,
    issue_cycles=0.2527,
    lookup_cycles=0.6349,
    fill_cycles=1.436,
    block_cycles=153.6,
    warp_cycles=0.5,
    l2_rate=0.6019,
    dram_rate=0.5024,
    atomic_cycles=0.05,
    lost=0.5,
    norm=2.612,
)
