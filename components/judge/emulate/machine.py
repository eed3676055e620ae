"""Run PTX on the CPU with every access checked: `load_ptx`, then `run`.

The machine owns the memory of one run: buffers (copied in, copied back when writable), shared and local memory,
shadow words for races and initialisation, and a small model of each multiprocessor's L1. A run is deterministic.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.judge.emulate import layout as L
from components.judge.emulate.ptx_text import Parameter, Refused, Tampered, Unsupported, Variable, split_module
from components.judge.emulate.translate import EntryCode, Translator

__all__ = ["EmuBuffer", "EmuLaunch", "Emulation", "EmulatorLimits", "PtxModule", "Refused", "Tampered", "Traffic",
           "Unsupported", "load_ptx", "run", "warm_up"]  # fmt: skip

EmulationStatus = Literal[
    "ok", "illegal_access", "race", "timeout", "tampered", "launch_error", "unsupported"
]  # fmt: skip
MAX_BLOCK, MAX_GRID_X, MAX_GRID_YZ = 1024, 2**31 - 1, 65535  # CUDA C++ Programming Guide, compute capabilities
MAX_BLOCK_Z = 64
MAX_STATIC_SHARED = 48 * 1024
L1_PER_SM_LIMIT = 160  # multiprocessors with an L1 of their own


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
class Traffic:
    """Counts of one launch. Sectors are 32 bytes, lines 128 bytes, a request is one warp instruction."""

    warp_instructions: int
    lane_instructions: int
    load_requests: int
    load_sectors: int
    load_bytes: int  # asked for by lanes
    l1_missed_sectors: int
    cold_sectors: int  # distinct sectors touched, by any access
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


@dataclass(frozen=True)
class PtxModule:
    """A loaded module: bytecode of every entry and its read-only module variables."""

    entries: Mapping[str, EntryCode]
    variables: tuple[Variable, ...]  # const and initialised global ones, in window order


def load_ptx(ptx: str) -> PtxModule:
    """Translate PTX (compiled with -lineinfo for source lines).

    Raises:
        Unsupported: an instruction or form that the interpreter does not run.
        Tampered: clocks, writable module-scope state, printf or malloc, L2 pinning.
    """
    variables, functions, entries = split_module(ptx)
    if not entries:
        raise Unsupported("no entry in the PTX")
    tables = [v for v in variables if v.space in ("const", "global") and v.initial is not None]
    places: dict[str, tuple[str, int]] = {}
    for index, variable in enumerate(tables):
        places[variable.name] = (variable.space, _window(index))
    shared = 0
    for variable in variables:
        if variable.space == "shared" and variable.size:
            shared = -(-shared // variable.align) * variable.align
            places[variable.name] = ("shared", shared)
            shared += variable.size
    stateful = {v.name for v in variables if v.space == "global" and v.initial is None}
    dynamic = [v for v in variables if v.space == "shared" and not v.size]
    code = {}
    for name, entry in entries.items():
        code[name] = _entry(entry, functions, places, shared, stateful, dynamic)
    return PtxModule(code, tuple(tables))


def _entry(entry: Any, functions: Any, places: dict[str, tuple[str, int]], shared: int, stateful: set[str],
           dynamic: list[Variable]) -> EntryCode:  # fmt: skip
    """Translate twice when dynamic shared memory must start after static variables found on the way."""
    start = shared
    for _ in range(2):
        known = dict(places)
        for variable in dynamic:
            align = max(variable.align, 16)
            known[variable.name] = ("shared", -(-start // align) * align)
        translator = _Translator(entry, functions, known, shared)
        translator.stateful = stateful
        code = translator.run()
        if not dynamic or code.shared_static == start:
            break
        start = code.shared_static
    return code


class _Translator(Translator):
    """Refuses module-scope memory that could carry state from one launch to the next."""

    stateful: set[str] = set()  # noqa: RUF012  (replaced per instance)

    def literal(self, token: str, kind: str) -> Any:
        self._refuse(token)
        return super().literal(token, kind)

    def address(self, token: str) -> tuple[int, int, int]:
        self._refuse(token.strip("[] ").split("+")[0].strip())
        return super().address(token)

    def _refuse(self, name: str) -> None:
        if name in self.stateful:
            raise Tampered(f"uses the writable module-scope variable {name}", self.line)


def _window(index: int) -> int:
    return ((index + 1) << L.WINDOW_BITS) + L.WINDOW_BASE


_warm = threading.Lock()


def warm_up() -> None:
    """Compile the core, or load it from the cache, ahead of the first run."""
    _core()


def _core() -> Any:
    with _warm:
        from components.judge.emulate.compiled import run_grid

        return run_grid


def _address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


class _Memory:
    """Host memory of a run; keeps every array alive."""

    def __init__(self, module: PtxModule, buffers: Sequence[EmuBuffer], limits: EmulatorLimits) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.names = [v.name for v in module.variables] + [b.name for b in buffers]
        self.lengths: list[int] = []
        rows = np.zeros((len(self.names) + 1, L.BUF_WORDS), np.int64)
        self.copies: list[tuple[EmuBuffer, NDArray[np.uint8]]] = []
        self.base: dict[str, int] = {}
        for index, variable in enumerate(module.variables):
            data = np.frombuffer(variable.initial or b"", np.uint8)
            self._row(rows[index], index, data, writable=False, initialised=True)
        for index, buffer in enumerate(buffers, len(module.variables)):
            if buffer.data.ndim != 1 or not buffer.data.flags.c_contiguous:
                raise ValueError(f"buffer {buffer.name}: expected a contiguous 1-D array")
            copy = self._row(rows[index], index, buffer.data.view(np.uint8), buffer.writable, buffer.initialised)
            self.base[buffer.name] = _window(index)
            if buffer.writable:
                self.copies.append((buffer, copy))
        self.buffers = rows
        self.slots = L.L1_SETS * L.L1_SET_BYTES
        self.sms = max(1, min(limits.multiprocessors, L1_PER_SM_LIMIT))

    def keep(self, size: int, dtype: Any = np.uint8) -> NDArray[Any]:
        """A zeroed array whose address stays valid, 64-byte aligned."""
        raw = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
        start = -_address(raw) % 64
        self.arrays.append(raw)
        return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)

    def _row(self, row: NDArray[np.int64], index: int, data: NDArray[np.uint8], writable: bool,
             initialised: bool) -> NDArray[np.uint8]:  # fmt: skip
        copy = self.keep(data.size + 64)
        copy[: data.size] = data
        words = (data.size + 35) // 4
        shadow = [0, 0]
        if writable or not initialised:
            shadow = [_address(self.keep(words, np.int64)) for _ in range(2)]
        seen = self.keep(data.size // 128 + 2)
        row[:] = (_window(index), data.size, _address(copy), int(writable), int(initialised), *shadow, _address(seen))
        self.lengths.append(data.size)
        return copy[: data.size]

    def copy_back(self) -> None:
        """Give writable buffers their new contents."""
        for buffer, copy in self.copies:
            buffer.data.view(np.uint8)[:] = copy


def run(
    module: PtxModule,
    launches: Sequence[EmuLaunch],
    buffers: Sequence[EmuBuffer],
    limits: EmulatorLimits | None = None,
) -> Emulation:
    """Run launches in order until the first fault.

    Args:
        module: from `load_ptx`.
        launches: executed one after another; each sees what the previous wrote.
        buffers: by name; writable ones are changed in place.
        limits: of the run.

    Returns:
        The status with source line, block and thread of a fault, and one `Traffic` per completed launch.

    Raises:
        ValueError: a launch names an unknown buffer or a buffer is not 1-D contiguous (the caller's mistake).
    """
    limits = limits or EmulatorLimits()
    core = _core()
    memory = _Memory(module, buffers, limits)
    state = memory.keep(L.STATE_WORDS, np.int64)
    traffic: list[Traffic] = []
    try:
        for number, launch in enumerate(launches):
            code = module.entries.get(launch.entry)
            problem = _launch_problem(code, launch, limits, module)
            if problem or code is None:
                return Emulation("launch_error", problem, traffic=tuple(traffic), launch=number)
            before = int(state[L.S_SEQ // 8])
            if 0 in launch.grid:
                return Emulation("launch_error", "empty grid", traffic=tuple(traffic), launch=number)
            _prepare(memory, state, code, launch, limits)
            fault = int(core(_address(state)))
            if fault:
                return _explain(fault, state, memory, launch, number, tuple(traffic))
            traffic.append(_traffic(state, before, code, launch))
    finally:
        memory.copy_back()
    return Emulation("ok", traffic=tuple(traffic))


def _launch_problem(code: EntryCode | None, launch: EmuLaunch, limits: EmulatorLimits, module: PtxModule) -> str:
    if code is None:
        return f"no kernel {launch.entry}; the program has {', '.join(module.entries)}"
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if min(launch.block) < 1 or threads > MAX_BLOCK or launch.block[2] > MAX_BLOCK_Z:
        return f"block of {threads} threads {launch.block}: at most {MAX_BLOCK}, z at most {MAX_BLOCK_Z}"
    if code.max_threads is not None and threads > code.max_threads:
        return f"block of {threads} threads: the kernel declares at most {code.max_threads}"
    if min(launch.grid) < 0 or launch.grid[0] > MAX_GRID_X or max(launch.grid[1:]) > MAX_GRID_YZ:
        return f"grid {launch.grid}: at most ({MAX_GRID_X}, {MAX_GRID_YZ}, {MAX_GRID_YZ})"
    if code.shared_static > MAX_STATIC_SHARED:
        return f"{code.shared_static} bytes of static shared memory: at most {MAX_STATIC_SHARED}"
    if launch.shared_bytes < 0 or code.shared_static + launch.shared_bytes > limits.max_shared_bytes:
        total = code.shared_static + launch.shared_bytes
        return f"{total} bytes of shared memory a block: at most {limits.max_shared_bytes}"
    if len(launch.args) != len(code.parameters):
        return f"{launch.entry} takes {len(code.parameters)} arguments, {len(launch.args)} given"
    warps = -(-threads // L.LANES)
    if warps * (code.register_bytes + L.LANES * code.local_bytes) > limits.max_threads_memory:
        return f"{code.local_bytes} bytes of local memory a thread"
    return ""


def _prepare(memory: _Memory, state: NDArray[np.int64], code: EntryCode, launch: EmuLaunch,
             limits: EmulatorLimits) -> None:  # fmt: skip
    """Lay out registers, shared and local memory for a launch and fill the state."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    warps = -(-threads // L.LANES)
    files = memory.keep(warps * code.register_bytes)
    image = _image(memory, code, launch)
    files.reshape(warps, -1)[:] = image
    lanes = np.arange(warps * L.LANES, dtype=np.int64).reshape(warps, L.LANES)
    bx, by, _ = launch.block
    per_thread = {
        "%tid.x": lanes % bx, "%tid.y": lanes // bx % by, "%tid.z": lanes // (bx * by), "%warpid": lanes // L.LANES,
    }  # fmt: skip
    for name, values in per_thread.items():
        if name in code.special:
            offset = code.special[name]
            files.reshape(warps, -1)[:, offset : offset + 128] = values.astype(np.uint32).view(np.uint8)
    records = memory.keep(warps * L.WARP_BYTES)
    registers = records.view(np.int64).reshape(warps, -1)[:, L.W_REGS // 8]
    registers[:] = _address(files) + code.register_bytes * np.arange(warps)
    shared = code.shared_static + launch.shared_bytes
    words = shared // 4 + 16
    row = memory.buffers[-1]
    shadows = [_address(memory.keep(words, np.int64)) for _ in range(2)]
    row[:] = (0, shared, _address(memory.keep(shared + 64)), 1, 0, *shadows, 0)
    rows = np.array(code.rows, np.int64)
    memory.arrays.append(rows)
    scratch, table = memory.keep(L.SCRATCH_BYTES), memory.keep(3 * L.HASH_SLOTS, np.int64)
    cache = memory.keep(memory.sms * memory.slots)
    before = int(state[L.S_SEQ // 8])
    budget = int(state[L.S_BUDGET_END // 8]) or limits.instruction_budget
    state[:] = 0
    values = {
        L.S_CODE: _address(rows), L.S_CODE_LEN: len(rows), L.S_BUFFERS: _address(memory.buffers),
        L.S_BUFFER_COUNT: len(memory.names), L.S_SHARED_BUFFER: _address(row), L.S_SHARED_LEN: shared,
        L.S_LOCAL: _address(memory.keep(max(1, warps * L.LANES * code.local_bytes))), L.S_LOCAL_LEN: code.local_bytes,
        L.S_WARPS: _address(records), L.S_WARP_COUNT: warps, L.S_THREADS: threads,
        L.S_BX: launch.block[0], L.S_BY: launch.block[1], L.S_BZ: launch.block[2],
        L.S_GX: launch.grid[0], L.S_GY: launch.grid[1], L.S_GZ: launch.grid[2],
        L.S_SMS: memory.sms, L.S_L1: _address(cache), L.S_SCRATCH: _address(scratch), L.S_HASH: _address(table),
        L.S_CTAID_X: code.special["%ctaid.x"], L.S_CTAID_Y: code.special["%ctaid.y"],
        L.S_CTAID_Z: code.special["%ctaid.z"],
        L.S_SEQ: before, L.S_LAUNCH0: before + 1, L.S_BUDGET_END: budget,
    }  # fmt: skip
    for offset, value in values.items():
        state[offset // 8] = value


def _image(memory: _Memory, code: EntryCode, launch: EmuLaunch) -> NDArray[np.uint8]:
    """The register file before the first instruction."""
    image = np.zeros(code.register_bytes, np.uint8)
    image[:4] = 255  # the predicate that is always true
    for offset, slot, value in code.constants:
        _fill(image, offset, slot, value)
    shape = {"%ntid": launch.block, "%nctaid": launch.grid}
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    lanes = np.arange(L.LANES, dtype=np.uint64)
    one = np.uint64(1)
    masks = {"eq": one << lanes, "lt": (one << lanes) - one, "le": (one << lanes << one) - one}
    masks["ge"], masks["gt"] = ~masks["lt"], ~masks["le"]
    for name, offset in code.special.items():
        base, _, axis = name.partition(".")
        if base in shape:
            _fill(image, offset, 4, shape[base]["xyz".index(axis)])
        elif name == "%laneid":
            image[offset : offset + 128] = lanes.astype(np.uint32).view(np.uint8)
        elif name == "%nwarpid":
            _fill(image, offset, 4, -(-threads // L.LANES))
        elif name.startswith("%lanemask"):
            image[offset : offset + 128] = (masks[name[-2:]] & np.uint64(L.FULL)).astype(np.uint32).view(np.uint8)
        elif name.endswith("smem_size"):
            static = code.shared_static if name.startswith("%total") else 0
            _fill(image, offset, 4, static + launch.shared_bytes)
    block = bytearray()
    for parameter, argument in zip(code.parameters, launch.args, strict=True):
        block += bytes(-len(block) % parameter.align) + _argument(memory, parameter, argument)
    for offset, slot, place, size, signed in code.parameter_registers:
        value = int.from_bytes(block[place : place + size], "little", signed=signed)
        _fill(image, offset, slot, value)
    return image


def _fill(image: NDArray[np.uint8], offset: int, slot: int, value: int) -> None:
    word = np.uint64(value & ((1 << (8 * slot)) - 1)).astype(np.uint32 if slot == 4 else np.uint64)
    image[offset : offset + L.LANES * slot] = np.full(L.LANES, word).view(np.uint8)


def _argument(memory: _Memory, parameter: Parameter, argument: Any) -> bytes:
    """The bytes of one kernel argument."""
    if isinstance(argument, str):
        if argument not in memory.base:
            raise ValueError(f"unknown buffer {argument}")
        data = memory.base[argument].to_bytes(8, "little")
    else:
        data = bytes(argument) if isinstance(argument, bytes) else np.asarray(argument).tobytes()
    if len(data) != parameter.size:
        raise ValueError(f"argument for {parameter.name}: {len(data)} bytes, the kernel takes {parameter.size}")
    return data


def _traffic(state: NDArray[np.int64], before: int, code: EntryCode, launch: EmuLaunch) -> Traffic:
    def count(offset: int) -> int:
        return int(state[offset // 8])

    return Traffic(
        warp_instructions=count(L.S_SEQ) - before,
        lane_instructions=count(L.S_LANE_INSTRUCTIONS),
        load_requests=count(L.S_LOADS),
        load_sectors=count(L.S_LOAD_SECTORS),
        load_bytes=count(L.S_LOAD_BYTES),
        l1_missed_sectors=count(L.S_L1_MISS),
        cold_sectors=count(L.S_COLD),
        store_requests=count(L.S_STORES),
        store_sectors=count(L.S_STORE_SECTORS),
        store_bytes=count(L.S_STORE_BYTES),
        atomic_requests=count(L.S_ATOMICS),
        atomic_sectors=count(L.S_ATOMIC_SECTORS),
        atomic_lanes=count(L.S_ATOMIC_LANES),
        wavefronts=count(L.S_WAVEFRONTS),
        shared_requests=count(L.S_SHARED_REQUESTS),
        shared_wavefronts=count(L.S_SHARED_WAVEFRONTS),
        local_requests=count(L.S_LOCAL_REQUESTS),
        branches=count(L.S_BRANCHES),
        divergent_branches=count(L.S_DIVERGED),
        barriers=count(L.S_BARRIERS),
        warp_syncs=count(L.S_WARP_SYNCS),
        warps=count(L.S_WARPS_RUN),
        blocks=launch.grid[0] * launch.grid[1] * launch.grid[2],
        max_warp_loads=count(L.S_MAX_WARP_LOADS),
        sum_warp_loads=count(L.S_SUM_WARP_LOADS),
        max_warp_instructions=count(L.S_MAX_WARP_ISSUED),
        max_block_instructions=count(L.S_MAX_BLOCK_ISSUED),
        shared_static_bytes=code.shared_static,
    )


_FAULTS: dict[int, tuple[EmulationStatus, str]] = {
    L.FAULT_OOB: ("illegal_access", "out of bounds"),
    L.FAULT_MISALIGNED: ("illegal_access", "misaligned access"),
    L.FAULT_UNINIT: ("illegal_access", "read of uninitialised memory"),
    L.FAULT_READONLY: ("tampered", "write to a read-only buffer"),
    L.FAULT_RACE_WAW: ("race", "two threads write different values without synchronising"),
    L.FAULT_RACE_RAW: ("race", "read of another thread's write without synchronising"),
    L.FAULT_RACE_WAR: ("race", "write after another thread's read without synchronising"),
    L.FAULT_RACE_ATOMIC: ("race", "atomic and plain access by two threads without synchronising"),
    L.FAULT_MASK: ("illegal_access", "a warp primitive's mask does not name the lane that executes it"),
    L.FAULT_BUDGET: ("timeout", "instruction budget used up (endless loop?)"),
    L.FAULT_DEADLOCK: ("timeout", "deadlock: threads wait at a barrier or warp primitive that others never reach"),
    L.FAULT_TRAP: ("illegal_access", "trap or failed assertion"),
    L.FAULT_LOCAL: ("illegal_access", "out of bounds of the thread's local memory"),
    L.FAULT_BRX: ("illegal_access", "jump table index out of range"),
    L.FAULT_INTERNAL: ("unsupported", "the interpreter met an instruction it cannot run"),
}
_MEMORY_FAULTS = {
    L.FAULT_OOB, L.FAULT_MISALIGNED, L.FAULT_UNINIT, L.FAULT_READONLY, L.FAULT_RACE_WAW, L.FAULT_RACE_RAW,
    L.FAULT_RACE_WAR, L.FAULT_RACE_ATOMIC,
}  # fmt: skip


def _explain(fault: int, state: NDArray[np.int64], memory: _Memory, launch: EmuLaunch, number: int,
             traffic: tuple[Traffic, ...]) -> Emulation:  # fmt: skip
    """Put the core's fault into words."""

    def get(offset: int) -> int:
        return int(state[offset // 8])

    status, text = _FAULTS[fault]
    index, address, size = get(L.S_FAULT_BUFFER), get(L.S_FAULT_ADDR), get(L.S_FAULT_SIZE)
    if fault in _MEMORY_FAULTS:
        if index == -2:
            where = f"shared memory ({get(L.S_SHARED_LEN)} bytes a block)"
        elif index < 0:
            where = f"no buffer (address {address & (2**64 - 1):#x})"
        else:
            where = f"{memory.names[index]} ({memory.lengths[index]} bytes)"
        offset = "" if index == -1 else f" at byte {address}"
        text = f"{text}: {size} bytes{offset} of {where}"
    line = get(L.S_FAULT_LINE) or None
    block = (get(L.S_FAULT_BX), get(L.S_FAULT_BY), get(L.S_FAULT_BZ))
    thread = get(L.S_FAULT_WARP) * L.LANES + get(L.S_FAULT_LANE)
    return Emulation(status, f"{launch.entry}: {text}", line, block, thread, traffic, number)
