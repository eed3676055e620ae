"""Modelled kernel time on a named GPU from what the interpreter counted: uncalibrated, it orders kernels.

A roofline with latency terms, after Williams, Waterman and Patterson, "Roofline" (CACM 52(4), 2009), and Little's law
for latency-bound kernels (Volkov, "Understanding Latency Hiding on GPUs", UC Berkeley, 2016). The time of a launch is
its slowest resource, plus a part of the second slowest for imperfect overlap, plus the launch itself. Figures of the
machines are NVIDIA's published ones; the efficiency constants below are common measured shares of peak and have not
been fitted.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from components.errors import UserError

if TYPE_CHECKING:  # the judge's own process never loads the interpreter
    from components.judge.emulate.machine import Traffic

LAUNCH_US = 2.0  # a kernel in a replayed graph, with its dependency on the one before
_SECTOR = 32  # bytes, the unit of cache traffic since Volta
_DRAM_SHARE, _L2_SHARE, _ISSUE_SHARE = 0.88, 0.80, 0.70  # of peak that real kernels reach
_OVERLAP = 0.25  # of the second slowest resource that does not hide behind the slowest
_PARALLEL_LOADS = 2.5  # independent loads in flight per warp
_SATURATING_WARPS = 32  # resident warps per SM that reach full bandwidth
_L2_USABLE = 0.8  # of the L2 before re-read data falls out
_ATOMICS_PER_SM_CLOCK = 0.5  # sectors


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


def estimate_launch_us(machine: Architecture, counts: "Traffic", shape: LaunchShape) -> float:
    """Modelled time of one launch with warm caches, in microseconds.

    Args:
        machine: from `architecture`.
        counts: traffic of that launch.
        shape: its blocks and resources.
    """
    resident = resident_blocks(machine, shape)
    warps_per_block = math.ceil(shape.threads / 32)
    busy_sms = max(1, min(machine.sms, shape.blocks))
    footprint = counts.cold_sectors * _SECTOR
    l2_bytes = (counts.l1_missed_sectors + counts.store_sectors + 2 * counts.atomic_sectors) * _SECTOR
    usable_l2 = machine.l2_mb * 1e6 * _L2_USABLE
    evicted = max(0.0, 1.0 - usable_l2 / footprint) if footprint else 0.0
    dram_bytes = (footprint if footprint > usable_l2 else 0) + evicted * max(0, l2_bytes - footprint)
    # Too few warps cannot pull the whole bandwidth.
    filling = shape.blocks * warps_per_block / (machine.sms * min(resident * warps_per_block, _SATURATING_WARPS))
    parallel = min(1.0, max(0.05, filling))
    waves = max(1.0, shape.blocks / (machine.sms * resident))
    loads_per_warp = counts.sum_warp_loads / max(1, counts.warps)
    latency_us = (machine.dram_latency if dram_bytes else machine.l2_latency) / machine.clock_mhz
    cycles_us = 1.0 / (busy_sms * machine.clock_mhz)
    costs = sorted(
        (
            dram_bytes / (machine.dram_gbps * 1e3 * _DRAM_SHARE * parallel),
            l2_bytes / (machine.l2_gbps * 1e3 * _L2_SHARE * parallel),
            (counts.wavefronts + counts.shared_wavefronts) * cycles_us,
            counts.warp_instructions * cycles_us / 4 / _ISSUE_SHARE,
            counts.atomic_sectors / (machine.sms * _ATOMICS_PER_SM_CLOCK * machine.clock_mhz),
            waves * loads_per_warp / _PARALLEL_LOADS * latency_us,
            counts.max_warp_loads / _PARALLEL_LOADS * latency_us,
        )
    )
    return LAUNCH_US + costs[-1] + _OVERLAP * costs[-2]


def bytes_moved(counts: "Traffic") -> int:
    """Bytes between the SMs and the L2 cache: 32-byte sectors missed in L1, stored, and read and written by atomics."""
    return (counts.l1_missed_sectors + counts.store_sectors + 2 * counts.atomic_sectors) * _SECTOR


def _registers_per_warp(shape: LaunchShape) -> int:
    """Registers are handed out per warp in units of 256."""
    return max(256, math.ceil(shape.registers * 32 / 256) * 256)
