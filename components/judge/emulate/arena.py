"""The memory of one run: buffers, shadows, registers, shared and local memory, and the state that the core reads."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import Parameter, Variable
from components.judge.emulate.records import EmuBuffer, EmulatorLimits, EmuLaunch
from components.judge.emulate.translate import PARAMETER_BASE, EntryCode, fill

_CHUNK = 1 << 17  # bytes; larger ones cost their clearing
MAX_MODELLED_L1 = 160  # multiprocessors with an L1 of their own


def address_of(array: NDArray[Any]) -> int:
    """The host address of an array's first byte."""
    return int(array.__array_interface__["data"][0])


def window(index: int) -> int:
    """The virtual address of a buffer's first byte."""
    return ((index + 1) << layout.WINDOW_BITS) + layout.WINDOW_BASE


class Memory:
    """Host memory of a run; keeps every array alive."""

    def __init__(self, variables: Sequence[Variable], buffers: Sequence[EmuBuffer], limits: EmulatorLimits) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._chunk: NDArray[np.uint8] = np.zeros(0, np.uint8)  # zeroed memory to give away, and where it lies
        self._chunk_address = self._used = 0
        self.names = [v.name for v in variables] + [b.name for b in buffers]
        self.lengths: list[int] = []
        rows = np.zeros((len(self.names) + 2, layout.BUF_WORDS), np.int64)  # then the parameters, then shared memory
        self.copies: list[tuple[EmuBuffer, NDArray[np.uint8]]] = []
        self.base: dict[str, int] = {}
        for index, variable in enumerate(variables):
            data = np.frombuffer(variable.initial or b"", np.uint8)
            self._row(rows[index], index, data, writable=False, initialised=True)
            self.lengths.append(data.size)
        for index, buffer in enumerate(buffers, len(variables)):
            if buffer.data.ndim != 1 or not buffer.data.flags.c_contiguous:
                raise ValueError(f"buffer {buffer.name}: expected a contiguous 1-D array")
            copy = self._row(rows[index], index, buffer.data.view(np.uint8), buffer.writable, buffer.initialised)
            self.base[buffer.name] = window(index)
            self.lengths.append(copy.size)
            if buffer.writable:
                self.copies.append((buffer, copy))
        self.names.append("the kernel's parameters")
        self.lengths.append(0)
        self.buffers = rows
        self.loads: NDArray[np.int64] = np.zeros((0, layout.SM_WORDS), np.int64)
        self.slots = layout.L1_SETS * layout.L1_SET_BYTES
        self.sms = max(1, min(limits.multiprocessors, MAX_MODELLED_L1))

    def keep(self, size: int, dtype: Any = np.uint8) -> NDArray[Any]:
        """A zeroed array whose address stays valid, 64-byte aligned."""
        return self.place(size * np.dtype(dtype).itemsize)[0].view(dtype)

    def place(self, size: int) -> tuple[NDArray[np.uint8], int]:
        """`size` zeroed bytes that stay where they are, 64-byte aligned, and their address.

        Out of large chunks: a run needs some thirty arrays, and NumPy takes microseconds for each of its own.
        """
        needed = (size + 127) // 64 * 64
        if self._used + needed > len(self._chunk):
            raw = np.zeros(max(_CHUNK, needed) + 64, np.uint8)
            self.arrays.append(raw)
            start = -address_of(raw) % 64
            self._chunk, self._used = raw[start:], 0
            self._chunk_address = address_of(self._chunk)
        at, self._used = self._used, self._used + needed
        return self._chunk[at : at + size], self._chunk_address + at

    def place_words(self, words: int) -> int:
        """The address of so many zeroed 8-byte words."""
        return self.place(8 * words)[1]

    def sm_loads(self, count: int) -> NDArray[np.int64]:
        """Zeroed rows of what each multiprocessor gets in the next launch, kept as `loads`."""
        self.loads = self.keep(count * layout.SM_WORDS, np.int64).reshape(count, layout.SM_WORDS)
        return self.loads

    def _row(self, row: NDArray[np.int64], index: int, data: NDArray[np.uint8], writable: bool,
             initialised: bool) -> NDArray[np.uint8]:  # fmt: skip
        copy, address = self.place(data.size + 64)
        copy[: data.size] = data
        words = (data.size + 35) // 4
        shadow = [0, 0]
        if writable or not initialised:
            shadow = [self.place_words(words) for _ in range(2)]
        seen = self.place(data.size // 128 + 2)[1]
        row[:] = (window(index), data.size, address, int(writable), int(initialised), *shadow, seen)
        return copy[: data.size]

    def set_parameters(self, block: bytes) -> None:
        """The parameters of the next launch, as a read-only buffer (by-value structs are indexed through addresses)."""
        index = len(self.names) - 1
        self._row(self.buffers[index], index, np.frombuffer(block, np.uint8), writable=False, initialised=True)
        self.lengths[index] = len(block)

    def copy_back(self) -> None:
        """Give writable buffers their new contents."""
        for buffer, copy in self.copies:
            buffer.data.view(np.uint8)[:] = copy


def prepare(memory: Memory, state: NDArray[np.int64], code: EntryCode, launch: EmuLaunch,
             limits: EmulatorLimits) -> None:  # fmt: skip
    """Lay out registers, shared and local memory for a launch and fill the state."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    warps = -(-threads // layout.LANES)
    files, files_address = memory.place(warps * code.register_bytes)
    image = _image(memory, code, launch)
    files.reshape(warps, -1)[:] = image
    for name, offset in code.special.items():
        if name in _PER_THREAD:
            files.reshape(warps, -1)[:, offset : offset + 128] = _per_thread(name, warps, launch.block[:2])
    records, records_address = memory.place(warps * layout.WARP_BYTES)
    registers = records.view(np.int64).reshape(warps, -1)[:, layout.W_REGS // 8]
    registers[:] = files_address + code.register_bytes * np.arange(warps)
    shared = code.shared_static + launch.shared_bytes
    words = shared // 4 + 16
    row = memory.buffers[-1]
    shadows = [memory.place_words(words) for _ in range(2)]
    row[:] = (0, shared, memory.place(shared + 64)[1], 1, 0, *shadows, 0)
    rows = code.rows
    memory.arrays.append(rows)
    sms = min(memory.sms, launch.grid[0] * launch.grid[1] * launch.grid[2])
    before = int(state[layout.S_SEQ // 8])
    budget = int(state[layout.S_BUDGET_END // 8]) or limits.instruction_budget
    state[:] = 0
    state_values = {
        layout.S_CODE: address_of(rows),
        layout.S_CODE_LEN: len(rows),
        layout.S_BUFFERS: address_of(memory.buffers),
        layout.S_BUFFER_COUNT: len(memory.names),
        layout.S_SHARED_BUFFER: address_of(row),
        layout.S_SHARED_LEN: shared,
        layout.S_LOCAL: memory.place(max(1, warps * layout.LANES * code.local_bytes))[1],
        layout.S_LOCAL_LEN: code.local_bytes,
        layout.S_WARPS: records_address,
        layout.S_WARP_COUNT: warps,
        layout.S_THREADS: threads,
        layout.S_BX: launch.block[0],
        layout.S_BY: launch.block[1],
        layout.S_BZ: launch.block[2],
        layout.S_GX: launch.grid[0],
        layout.S_GY: launch.grid[1],
        layout.S_GZ: launch.grid[2],
        layout.S_SMS: sms,
        layout.S_L1: memory.place(sms * memory.slots)[1],
        layout.S_SCRATCH: memory.place(layout.SCRATCH_BYTES)[1],
        layout.S_HASH: memory.place_words(3 * layout.HASH_SLOTS),
        layout.S_SM_LOADS: address_of(memory.sm_loads(sms)),
        layout.S_CTAID_X: code.special["%ctaid.x"],
        layout.S_CTAID_Y: code.special["%ctaid.y"],
        layout.S_CTAID_Z: code.special["%ctaid.z"],
        layout.S_ORDER: memory.place_words(layout.ORDER_WORDS),
        layout.S_COPIES: memory.place((shared // 4 + 16) * layout.COPY_BYTES)[1],
        layout.S_GROUPS: memory.place_words(warps * layout.LANES),
        layout.S_SEQ: before,
        layout.S_LAUNCH0: before + 1,
        layout.S_BUDGET_END: budget,
    }
    for offset, value in state_values.items():
        state[offset // 8] = value


_PER_THREAD = ("%tid.x", "%tid.y", "%tid.z", "%warpid")


@functools.lru_cache(maxsize=256)
def _per_thread(name: str, warps: int, block: tuple[int, int]) -> NDArray[np.uint8]:
    """A special register that differs between threads, as bytes: uint8[warps, 128]."""
    lanes = np.arange(warps * layout.LANES, dtype=np.int64).reshape(warps, layout.LANES)
    bx, by = block
    values = {
        "%tid.x": lanes % bx,
        "%tid.y": lanes // bx % by,
        "%tid.z": lanes // (bx * by),
        "%warpid": lanes // layout.LANES,
    }[name]
    return values.astype(np.uint32).view(np.uint8)


@functools.cache
def _lane_masks() -> dict[str, NDArray[np.uint64]]:
    """%lanemask_eq and its kin by their last two letters, before they are cut to 32 bits."""
    lanes, one = np.arange(layout.LANES, dtype=np.uint64), np.uint64(1)
    masks = {"eq": one << lanes, "lt": (one << lanes) - one, "le": (one << lanes << one) - one}
    masks["ge"], masks["gt"] = ~masks["lt"], ~masks["le"]
    return masks


def _image(memory: Memory, code: EntryCode, launch: EmuLaunch) -> NDArray[np.uint8]:
    """The register file before the first instruction."""
    image = code.image.copy()
    shape = {"%ntid": launch.block, "%nctaid": launch.grid}
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    for name, offset in code.special.items():
        base, _, axis = name.partition(".")
        if base in shape:
            fill(image, offset, 4, shape[base]["xyz".index(axis)])
        elif name == "%laneid":
            image[offset : offset + 128] = np.arange(layout.LANES, dtype=np.uint32).view(np.uint8)
        elif name == "%nwarpid":
            fill(image, offset, 4, -(-threads // layout.LANES))
        elif name.startswith("%lanemask"):
            image[offset : offset + 128] = (
                (_lane_masks()[name[-2:]] & np.uint64(layout.FULL)).astype(np.uint32).view(np.uint8)
            )
        elif name.endswith("smem_size"):
            static = code.shared_static if name.startswith("%total") else 0
            fill(image, offset, 4, static + launch.shared_bytes)
        elif name == PARAMETER_BASE:
            fill(image, offset, 8, window(len(memory.names) - 1))
    block = bytearray()
    for parameter, argument in zip(code.parameters, launch.args, strict=True):
        block += bytes(-len(block) % parameter.align) + _argument(memory, parameter, argument)
    memory.set_parameters(bytes(block))
    for offset, slot, place, size, signed in code.parameter_registers:
        value = int.from_bytes(block[place : place + size], "little", signed=signed)
        fill(image, offset, slot, value)
    return image


def _argument(memory: Memory, parameter: Parameter, argument: Any) -> bytes:
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
