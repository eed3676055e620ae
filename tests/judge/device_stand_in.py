"""A device whose kernels are Python functions on the CPU's memory, for the executor's own logic."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from components.judge.device import Audit, DeviceFault, Drawn, Entry, Pattern
from components.judge.nvml import Clocks
from components.judge.splitmix import coins, signed
from components.kernel.precision import Precision


class Block:
    def __init__(self, nbytes: int) -> None:
        self.bytes = np.zeros(max(nbytes, 16) + 256, np.uint8)
        self.nbytes = nbytes
        self.ptr = (self.bytes.ctypes.data + 255) // 256 * 256

    def view(self, dtype: Any = np.uint8) -> np.ndarray:
        return view(self.ptr, self.nbytes // np.dtype(dtype).itemsize, dtype)


def view(address: Any, count: int, dtype: Any) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype)


class StandIn:
    """What `CudaDevice` offers; a run of a program takes `program_us`, one of a baseline 10 us, on a clock of its own.

    Args:
        kernel: called with (row_ptr, col_idx, values, x, y) as numpy views.
        status: what the device's next wait finds: 0, or an error number.
        program_us: time of one run.
    """

    l2_bytes = 50_000_000
    name = "Stand-in"
    replay_us = 0.0
    meanwhile: Callable[[], None] | None = None

    def __init__(self, kernel: Callable[..., None], status: int = 0, program_us: float = 10.0) -> None:
        self.kernel, self.status, self.program_us = kernel, status, program_us
        self.entries: list[Any] = []
        self.found: dict[int, Audit] = {}
        self.held = False
        self.elapsed = 0.0
        self.stamps = [0.0, 0.0]
        self.noted = 0
        self.throttle = ""

    def alloc(self, nbytes: int) -> Block:
        return Block(nbytes)

    alloc_guarded = alloc
    guards = "none: a stand-in"

    def upload(self, array: np.ndarray) -> Block:
        block = Block(array.nbytes)
        block.view()[: array.nbytes] = array.ravel().view(np.uint8)
        return block

    def fill(self, block: Block, byte: int) -> None:
        block.view()[:] = byte

    def write(self, block: Block, offset: int, array: np.ndarray) -> None:
        block.view()[offset : offset + array.nbytes] = array.ravel().view(np.uint8)

    def draw(self, pattern: Pattern, width: int, precision: Precision, keys: Sequence[np.uint64]) -> Drawn:
        row_ptr = pattern.row_ptr.view(np.int32)
        scale = np.repeat(np.where(coins(keys[1], pattern.rows), precision.tiny, 1.0), np.diff(row_ptr))
        values = precision.encode(signed(keys[0], pattern.nnz) * scale)
        dense = precision.encode(signed(keys[2], pattern.cols * width))
        shape = (pattern.rows, pattern.cols)
        csr = scipy.sparse.csr_array((precision.decode(values), pattern.col_idx.view(np.int32), row_ptr), shape)
        operand = precision.decode(dense).reshape(pattern.cols, width)
        factor = 4 * precision.unit_roundoff * np.diff(row_ptr)[:, None]
        answers = (csr @ operand, factor * (abs(csr) @ abs(operand)))
        return Drawn(self.upload(values), self.upload(dense), *map(self.upload, answers))

    def answer(self, drawn: Drawn, index: int) -> tuple[float, float]:
        return float(drawn.expected.view(np.float64)[index]), float(drawn.bound.view(np.float64)[index])

    def copy(self, target: Block, source: Block, offset: int = 0, nbytes: int | None = None) -> None:
        size = source.nbytes if nbytes is None else nbytes
        target.view()[offset : offset + size] = source.view()[:size]

    def scatter(self, target: int, values: Block, slots: Block) -> None:
        places = slots.view(np.int64)
        if len(places):
            kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.nbytes // len(places)]
            view(target, int(places.max()) + 1, kind)[places] = values.view(kind)

    def read(self, pointer: int, nbytes: int) -> np.ndarray:
        return view(pointer, nbytes, np.uint8).copy()

    def load(self, cubin: bytes, names: Sequence[str]) -> dict[str, Any]:
        return dict.fromkeys(names, self.kernel)

    def launch(self, function: Any, grid: Any, block: Any, arguments: tuple[Any, ...], shared_bytes: int) -> None:
        row_ptr, col_idx, values, x, y, rows = arguments
        bounds = view(row_ptr, int(rows) + 1, np.int32)
        count = int(bounds[-1])
        columns = view(col_idx, count, np.int32)
        width = int(columns.max()) + 1 if count else 0
        operands = (view(values, count, np.float32), view(x, width, np.float32), view(y, int(rows) + 1, np.float32))
        function(bounds, columns, *operands)
        self.elapsed += self.program_us

    def wait(self, deadline_s: float) -> None:
        assert not self.held, "a wait for a device that waits for the host"
        if self.status == 600:
            raise DeviceFault("timeout", f"still running after {deadline_s:.2g} s", True)
        if self.status:
            raise DeviceFault("illegal_access", f"device error {self.status} on the device", True)

    def reset_audits(self) -> None:
        self.entries, self.found, self.noted = [], {}, 0

    def enter(self, entries: Sequence[Entry]) -> range:
        slots = range(len(self.entries), len(self.entries) + len(entries))
        self.entries += entries
        return slots

    def restore(self, slots: range) -> None:
        assert len({self.entries[slot].arena.ptr for slot in slots}) == len(slots)
        for slot in slots:
            self.copy(self.entries[slot].arena, self.entries[slot].pristine)

    def audit(self, slots: range) -> None:
        for slot in slots:
            assert slot not in self.found
            self.found[slot] = self._audited(self.entries[slot])

    def _audited(self, entry: Entry) -> Audit:
        now, before = entry.arena.view(np.uint32), entry.pristine.view(np.uint32)
        first, words = entry.output
        changed = now != before
        changed[first : first + words] = False
        got = now[first : first + words].view({1: np.float32, 2: np.float64}[entry.element_words]).astype(np.float64)
        count = len(got)
        off = ~(np.abs(got - entry.expected.view(np.float64)[:count]) <= entry.bound.view(np.float64)[:count])
        return Audit(
            int(np.argmax(changed)) if changed.any() else None,
            int(np.argmax(off)) if off.any() else None,
            int(off.sum()),
        )

    def mark(self, count: int) -> None:
        if not self.status:
            self.noted = count

    def marked(self) -> int:
        return self.noted

    def hold(self) -> None:
        assert not self.held
        self.held = True

    def release(self) -> None:
        self.held = False

    def audits(self, count: int) -> list[Audit]:
        assert count == len(self.found)
        return [self.found[slot] for slot in range(count)]

    def graph(self, enqueue: Callable[[int], None], runs: int) -> Callable[[], None]:
        def replay() -> None:
            for run in range(runs):
                enqueue(run)

        return replay

    def stopwatch(
        self,
        runs: Sequence[Callable[[], None]],
        deadline_s: float,
        flush_from: int | None = None,
        held: bool = True,
        then: Callable[[], None] | None = None,
        during: Callable[[], None] | None = None,
    ) -> np.ndarray:
        times = []
        for number, run in enumerate(runs):
            self.elapsed = 0.0
            run()
            cold = flush_from is not None and number >= flush_from
            times.append(self.elapsed + (3.0 if cold else 0.0))
        for work in (then, during):
            if work is not None:
                work()
        self.wait(deadline_s)
        return np.array(times)

    def stamp(self, index: int) -> None:
        self.stamps[index] = self.elapsed

    def stamped_us(self) -> float:
        return self.stamps[1] - self.stamps[0]

    def clocks(self) -> Clocks:
        return Clocks(1980, 3201, 40, self.throttle)
