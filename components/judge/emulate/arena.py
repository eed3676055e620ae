"""The memory of one run: buffers, shadows, registers, shared and local memory, and the state that the core reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import Parameter, Variable
from components.judge.emulate.records import EmuBuffer, EmulatorLimits, EmuLaunch
from components.judge.emulate.translate import PARAMETER_BASE, EntryCode, fill

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
        raw = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
        start = -address_of(raw) % 64
        self.arrays.append(raw)
        return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)

    def sm_loads(self, count: int) -> NDArray[np.int64]:
        """Zeroed rows of what each multiprocessor gets in the next launch, kept as `loads`."""
        self.loads = self.keep(count * layout.SM_WORDS, np.int64).reshape(count, layout.SM_WORDS)
        return self.loads

    def _row(self, row: NDArray[np.int64], index: int, data: NDArray[np.uint8], writable: bool,
             initialised: bool) -> NDArray[np.uint8]:  # fmt: skip
        copy = self.keep(data.size + 64)
        copy[: data.size] = data
        words = (data.size + 35) // 4
        shadow = [0, 0]
        if writable or not initialised:
            shadow = [address_of(self.keep(words, np.int64)) for _ in range(2)]
        seen = self.keep(data.size // 128 + 2)
        row[:] = (
            window(index),
            data.size,
            address_of(copy),
            int(writable),
            int(initialised),
            *shadow,
            address_of(seen),
        )
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
    files = memory.keep(warps * code.register_bytes)
    image = _image(memory, code, launch)
    files.reshape(warps, -1)[:] = image
    lanes = np.arange(warps * layout.LANES, dtype=np.int64).reshape(warps, layout.LANES)
    bx, by, _ = launch.block
    per_thread = {
        "%tid.x": lanes % bx,
        "%tid.y": lanes // bx % by,
        "%tid.z": lanes // (bx * by),
        "%warpid": lanes // layout.LANES,
    }
    for name, values in per_thread.items():
        if name in code.special:
            offset = code.special[name]
            files.reshape(warps, -1)[:, offset : offset + 128] = values.astype(np.uint32).view(np.uint8)
    records = memory.keep(warps * layout.WARP_BYTES)
    registers = records.view(np.int64).reshape(warps, -1)[:, layout.W_REGS // 8]
    registers[:] = address_of(files) + code.register_bytes * np.arange(warps)
    shared = code.shared_static + launch.shared_bytes
    words = shared // 4 + 16
    row = memory.buffers[-1]
    shadows = [address_of(memory.keep(words, np.int64)) for _ in range(2)]
    row[:] = (0, shared, address_of(memory.keep(shared + 64)), 1, 0, *shadows, 0)
    rows = code.rows
    memory.arrays.append(rows)
    scratch, table = memory.keep(layout.SCRATCH_BYTES), memory.keep(3 * layout.HASH_SLOTS, np.int64)
    sms = min(memory.sms, launch.grid[0] * launch.grid[1] * launch.grid[2])
    cache = memory.keep(sms * memory.slots)
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
        layout.S_LOCAL: address_of(memory.keep(max(1, warps * layout.LANES * code.local_bytes))),
        layout.S_LOCAL_LEN: code.local_bytes,
        layout.S_WARPS: address_of(records),
        layout.S_WARP_COUNT: warps,
        layout.S_THREADS: threads,
        layout.S_BX: launch.block[0],
        layout.S_BY: launch.block[1],
        layout.S_BZ: launch.block[2],
        layout.S_GX: launch.grid[0],
        layout.S_GY: launch.grid[1],
        layout.S_GZ: launch.grid[2],
        layout.S_SMS: sms,
        layout.S_L1: address_of(cache),
        layout.S_SCRATCH: address_of(scratch),
        layout.S_HASH: address_of(table),
        layout.S_SM_LOADS: address_of(memory.sm_loads(sms)),
        layout.S_CTAID_X: code.special["%ctaid.x"],
        layout.S_CTAID_Y: code.special["%ctaid.y"],
        layout.S_CTAID_Z: code.special["%ctaid.z"],
        layout.S_ORDER: address_of(memory.keep(layout.ORDER_WORDS, np.int64)),
        layout.S_COPIES: address_of(memory.keep((shared // 4 + 16) * layout.COPY_BYTES)),
        layout.S_GROUPS: address_of(memory.keep(warps * layout.LANES, np.int64)),
        layout.S_SEQ: before,
        layout.S_LAUNCH0: before + 1,
        layout.S_BUDGET_END: budget,
    }
    for offset, value in state_values.items():
        state[offset // 8] = value


def _image(memory: Memory, code: EntryCode, launch: EmuLaunch) -> NDArray[np.uint8]:
    """The register file before the first instruction."""
    image = code.image.copy()
    shape = {"%ntid": launch.block, "%nctaid": launch.grid}
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    lanes = np.arange(layout.LANES, dtype=np.uint64)
    one = np.uint64(1)
    masks = {"eq": one << lanes, "lt": (one << lanes) - one, "le": (one << lanes << one) - one}
    masks["ge"], masks["gt"] = ~masks["lt"], ~masks["le"]
    for name, offset in code.special.items():
        base, _, axis = name.partition(".")
        if base in shape:
            fill(image, offset, 4, shape[base]["xyz".index(axis)])
        elif name == "%laneid":
            image[offset : offset + 128] = lanes.astype(np.uint32).view(np.uint8)
        elif name == "%nwarpid":
            fill(image, offset, 4, -(-threads // layout.LANES))
        elif name.startswith("%lanemask"):
            image[offset : offset + 128] = (masks[name[-2:]] & np.uint64(layout.FULL)).astype(np.uint32).view(np.uint8)
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
