"""Modelled kernel time on a named GPU from what the interpreter counted, with constants fitted to measurements.

Calibrated on H200 measurements (benchmarks/model_fit.py; the figures on pairs that were held out are in
benchmarks/results/nvidia-h200/model_fit.json). sm_80 and sm_100 are transferred, not measured: their published clocks,
latencies and bandwidths with the efficiencies that the H200 reached.

What a launch takes is the empty launch plus a smooth maximum (a p-norm) of what can hold it up:

* the critical path: the longest chain of dependent loads, instructions and barriers of a block, or of all the blocks
  that one place on a multiprocessor gets in turn. Latency-bound time is latency times rounds of loads in flight
  together (Little's law; Volkov, "Understanding Latency Hiding on GPUs", UC Berkeley, 2016); blocks in waves follow
  the makespan of list scheduling (Graham, SIAM J. Appl. Math. 17(2), 1969);
* each throughput of the busiest multiprocessor: instructions issued, lines looked up in L1, sectors exchanged with L2,
  blocks started; and of the whole chip: bytes through L2 and DRAM, atomics. This is a roofline (Williams, Waterman and
  Patterson, CACM 52(4), 2009) with ceilings for the multiprocessor added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from components.errors import UserError
from components.judge.model_constants import CALIBRATED, Constants

if TYPE_CHECKING:  # the judge's own process never loads the interpreter
    from components.judge.emulate.machine import Traffic

LAUNCH_US = CALIBRATED.launch_us  # of an empty kernel in a replayed graph
_SECTOR = 32  # bytes, the unit of cache traffic since Volta
_LINE = 128  # bytes
_L2_USABLE = 0.8  # of the L2 before re-read data falls out
_L1_BYTES = 256 * 1024  # L1 and shared memory of a multiprocessor


@dataclass(frozen=True)
class Architecture:
    """One GPU of an architecture, by its published figures."""

    gpu: str
    sms: int
    clock_mhz: float  # boost
    dram_gbps: float
    l2_mb: float
    l2_gbps: float  # no published figure
    shared_kb_per_sm: int
    shared_bytes_per_block: int  # opt-in limit
    dram_latency: float  # cycles
    l2_latency: float  # cycles
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    registers_per_sm: int = 65_536


# Units, clocks, bandwidths, cache and shared sizes: NVIDIA's A100 80GB, H200 and B200 data sheets and the CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability". L2 latencies of sm_80 and sm_90 are near those
# that Luo et al. measured (arXiv:2402.13499); memory latencies, L2 rates and all of B200's are estimates.
ARCHITECTURES: dict[str, Architecture] = {
    "sm_80": Architecture("A100-SXM4-80GB", 108, 1410, 2039, 40, 5100, 164, 163 * 1024, 600, 260),
    "sm_90": Architecture("H200", 132, 1980, 4800, 50, 5600, 228, 227 * 1024, 650, 270),
    "sm_100": Architecture("B200", 148, 1965, 8000, 126, 10000, 228, 227 * 1024, 750, 350),
}


@dataclass(frozen=True)
class LaunchShape:
    """What occupancy depends on."""

    blocks: int
    threads: int  # per block
    registers: int  # per thread
    shared_bytes: int  # per block, static + dynamic


def architecture(arch: str) -> Architecture:
    """The machine that `arch` is modelled as; UserError, naming the known ones, for any other."""
    if arch not in ARCHITECTURES:
        known = ", ".join(f"{name} ({machine.gpu})" for name, machine in ARCHITECTURES.items())
        raise UserError(f"architecture {arch!r}: a modelled time is known for {known}; measure others on their GPU")
    return ARCHITECTURES[arch]


def launch_problem(machine: Architecture, shape: LaunchShape) -> str | None:
    """Why the driver would refuse the launch, or None."""
    if shape.shared_bytes > machine.shared_bytes_per_block:
        return (
            f"{shape.shared_bytes} bytes of shared memory per block; {machine.gpu} has {machine.shared_bytes_per_block}"
        )
    if _registers_per_warp(shape) * math.ceil(shape.threads / 32) > machine.registers_per_sm:
        wanted = f"{shape.threads} threads of {shape.registers} registers"
        return f"{wanted}; {machine.gpu} has {machine.registers_per_sm} registers a block"
    return None


def resident_blocks(machine: Architecture, shape: LaunchShape) -> int:
    """Blocks of one launch that fit on one SM at a time (at least 1)."""
    warps = math.ceil(shape.threads / 32)
    limits = [machine.warps_per_sm // warps, machine.blocks_per_sm]
    # Registers are split over four schedulers; the runtime keeps 1 KB of shared memory a block (programming guide).
    limits.append(4 * (machine.registers_per_sm // 4 // _registers_per_warp(shape)) // warps)
    limits.append(machine.shared_kb_per_sm * 1024 // (shape.shared_bytes + 1024))
    return max(1, min(limits))


@dataclass(frozen=True)
class Work:
    """What a launch asks of the machine: numbers, or float64 arrays of one length for many launches at once."""

    blocks: Any
    resident: Any  # blocks on a multiprocessor at a time
    # totals, then what the busiest multiprocessor gets when blocks are dealt out in turn
    instructions: Any
    lines: Any  # distinct 128-byte lines of each request, and wavefronts of shared memory
    sectors: Any  # 32 bytes, between L1 and L2
    sm_instructions: Any
    sm_lines: Any
    sm_sectors: Any
    sm_blocks: Any
    footprint: Any  # distinct sectors
    streamed: Any  # those read with an evict-first hint
    missed_streamed: Any  # sectors so read that missed L1
    atomic_sectors: Any
    lost_sectors: Any  # found in L1 by a warp that runs alone, pushed out by its neighbours
    longest: Any  # of the block with the longest chain: the fields of records.Chain
    chains: Any  # of each block's longest, summed; likewise


def work_of(machine: Architecture, counts: "Traffic", shape: LaunchShape) -> Work:
    """What one launch asks of `machine`."""
    warps = math.ceil(shape.threads / 32)
    resident = resident_blocks(machine, shape)
    here = min(resident, math.ceil(shape.blocks / machine.sms))
    # A warp comes back to the lines of its last loads (of two arrays), if its neighbours' have not pushed them out.
    requests = counts.load_requests + counts.store_requests + counts.atomic_requests
    wanted = 2 * here * warps * counts.wavefronts / max(1, requests) * _LINE
    room = _L1_BYTES - here * (shape.shared_bytes + 1024)
    pushed_out = max(0.0, 1 - room / wanted) if wanted else 0.0
    return Work(
        blocks=shape.blocks,
        resident=resident,
        instructions=counts.warp_instructions,
        lines=counts.wavefronts + counts.shared_wavefronts,
        sectors=counts.l1_missed_sectors + counts.store_sectors + counts.atomic_sectors,
        sm_instructions=counts.sm_instructions,
        sm_lines=counts.sm_lines,
        sm_sectors=counts.sm_sectors,
        sm_blocks=counts.sm_blocks,
        footprint=counts.cold_sectors,
        streamed=counts.cold_streamed,
        missed_streamed=counts.missed_streamed,
        atomic_sectors=counts.atomic_sectors,
        lost_sectors=pushed_out * max(0, counts.load_sectors - counts.l1_missed_sectors),
        longest=tuple(getattr(counts.longest, name) for name in CHAIN),
        chains=tuple(getattr(counts.blocks_sum, name) for name in CHAIN),
    )


CHAIN = (
    "rounds", "missed_rounds", "streamed_rounds", "lines", "missed_sectors", "shared_rounds", "shared_wavefronts",
    "instructions", "warp_syncs", "barriers",
)  # fmt: skip


def hold_ups(machine: Architecture, work: Work, k: Constants = CALIBRATED) -> dict[str, Any]:
    """What can hold a launch up, each in cycles of the multiprocessor's clock.

    Args:
        machine: from `architecture`.
        work: numbers or arrays; what comes back is of the same kind.
        k: the fitted constants.
    """
    footprint = work.footprint * _SECTOR
    usable = machine.l2_mb * 1e6 * _L2_USABLE
    evicted = np.clip(footprint / usable - 1, 0, 1)  # share of the L2's reads that go on to DRAM
    # Evict-first data live in a small part of the L2, which is full of older data of normal priority.
    streamed_out = np.clip(work.streamed * _SECTOR / (k.stream_room * machine.l2_mb * 1e6) - 1, 0, 1)
    missed_cycles = k.l2_share * machine.l2_latency + evicted * k.dram_share * machine.dram_latency
    streamed_cycles = np.maximum(0, streamed_out - evicted) * k.dram_share * machine.dram_latency

    def path(chain: Any) -> Any:
        rounds, missed, streamed, lines, sectors, shared, banks, steps, syncs, barriers = chain
        return (
            k.l1_cycles * (rounds - missed)
            + missed_cycles * missed
            + streamed_cycles * streamed
            + k.line_cycles * lines
            + k.sector_cycles * sectors
            + k.shared_cycles * shared
            + k.bank_cycles * banks
            + k.step_cycles * steps
            + k.sync_cycles * syncs
            + k.barrier_cycles * barriers
        )

    places = work.resident * machine.sms
    waves = work.blocks > places  # blocks then go where there is room: every multiprocessor gets its share

    def busiest(total: Any, most: Any) -> Any:
        return np.where(waves, total / machine.sms, most)

    longest = path(work.longest)
    in_turn = path(work.chains) / places + k.tail * longest
    sectors = work.sectors + k.lost * work.lost_sectors
    more = sectors / np.maximum(1, work.sectors)
    bytes_per_cycle = 1e3 / machine.clock_mhz  # of a rate in GB/s
    return {
        "path": np.where(waves, np.maximum(longest, in_turn), longest),
        "issue": k.issue_cycles * busiest(work.instructions, work.sm_instructions),
        "lookup": k.lookup_cycles * busiest(work.lines, work.sm_lines),
        "fill": k.fill_cycles * more * busiest(work.sectors, work.sm_sectors),
        "blocks": k.block_cycles * busiest(work.blocks, work.sm_blocks),
        "l2": sectors * _SECTOR / (k.l2_rate * machine.l2_gbps * bytes_per_cycle),
        "dram": np.maximum(evicted * sectors, streamed_out * work.missed_streamed)
        * _SECTOR
        / (k.dram_rate * machine.dram_gbps * bytes_per_cycle),
        "atomics": k.atomic_cycles * work.atomic_sectors / machine.sms,
    }


def launch_us(machine: Architecture, work: Work, first: Any = True, k: Constants = CALIBRATED) -> Any:
    """Modelled time of a launch (or of many) with warm caches, in microseconds.

    Args:
        machine: from `architecture`.
        work: numbers or arrays.
        first: whether it is its program's first kernel; bool or bool array.
        k: the fitted constants.
    """
    parts = np.stack([np.asarray(part, np.float64) for part in hold_ups(machine, work, k).values()])
    cycles = np.sum(parts**k.norm, axis=0) ** (1 / k.norm)
    return np.where(first, k.launch_us, k.next_launch_us) + cycles / machine.clock_mhz


def estimate_us(machine: Architecture, launches: "Sequence[tuple[Traffic, LaunchShape]]") -> float:
    """Modelled time of a program's launches, one after the other, with warm caches, in microseconds."""
    return float(
        sum(
            launch_us(machine, work_of(machine, counts, shape), number == 0)
            for number, (counts, shape) in enumerate(launches)
        )
    )


def bytes_moved(counts: "Traffic") -> int:
    """Bytes between the SMs and the L2 cache: 32-byte sectors missed in L1, stored, and read and written by atomics."""
    return (counts.l1_missed_sectors + counts.store_sectors + 2 * counts.atomic_sectors) * _SECTOR


def _registers_per_warp(shape: LaunchShape) -> int:
    """Registers are handed out per warp in units of 256."""
    return max(256, math.ceil(shape.registers * 32 / 256) * 256)
