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
    stream_room: float  # of the L2 for data read with an evict-first hint
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
    # the chip's
    l2_rate: float  # over the machine's L2 bandwidth
    dram_rate: float  # over the machine's memory bandwidth
    atomic_cycles: float  # an atomic's sector, spread over the multiprocessors
    lost: float  # of the L1 hits that other warps' lines push out
    norm: float  # p of the smooth maximum


CALIBRATED = Constants(
    launch_us=0.9647,
    next_launch_us=0.4541,
    l1_cycles=35.84,
    l2_share=0.9631,
    stream_room=0.0538,
    dram_share=0.2877,
    line_cycles=0.1676,
    sector_cycles=1.31,
    shared_cycles=20.0,
    bank_cycles=1.076,
    step_cycles=1.81,
    sync_cycles=15.0,
    barrier_cycles=226.0,
    tail=1.0,
    issue_cycles=0.2474,
    lookup_cycles=0.6475,
    fill_cycles=1.817,
    block_cycles=150.6,
    l2_rate=0.8,
    dram_rate=0.8,
    atomic_cycles=0.9989,
    lost=0.5,
    norm=2.652,
)
