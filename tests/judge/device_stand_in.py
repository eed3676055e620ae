"""A device whose kernels are Python functions on the CPU's memory, for the executor's own logic."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from components.judge.device import Audit, DeviceFault
from components.judge.nvml import Clocks


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
        self.found: list[Audit] = []
        self.elapsed = 0.0
        self.stamps = [0.0, 0.0]
        self.begun = 0
        self.throttle = ""

    def alloc(self, nbytes: int) -> Block:
        return Block(nbytes)

    alloc_guarded = alloc
    guards = "none: a stand-in"

    def upload(self, array: np.ndarray) -> Block:
        block = Block(array.nbytes)
        block.view()[: array.nbytes] = array.ravel().view(np.uint8)
        return block

    def upload_secret(self, array: np.ndarray) -> Block:
        return self.upload(np.ascontiguousarray(array))

    def copy(self, target: Block, source: Block, offset: int = 0, nbytes: int | None = None) -> None:
        size = source.nbytes if nbytes is None else nbytes
        target.view()[offset : offset + size] = source.view()[:size]

    def scatter(self, target: int, values: Block, slots: Block) -> None:
        places = slots.view(np.int64)
        if len(places):
            view(target, int(places.max()) + 1, np.float32)[places] = values.view(np.float32)

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
        if self.status == 600:
            raise DeviceFault("timeout", f"still running after {deadline_s:.2g} s", True)
        if self.status:
            raise DeviceFault("illegal_access", f"device error {self.status} on the device", True)

    def reset_audits(self) -> None:
        self.found, self.begun = [], 0

    def audit(self, slot: int, arena: Block, pristine: Block, output: Any, expected: Block, bound: Block) -> None:
        assert slot == len(self.found)
        self.begun += 1
        now, before = arena.view(np.uint32), pristine.view(np.uint32)
        first, words = output
        changed = now != before
        changed[first : first + words] = False
        got = now[first : first + words].view(np.float32).astype(np.float64)
        off = ~(np.abs(got - expected.view(np.float64)[:words]) <= bound.view(np.float64)[:words])
        self.found.append(
            Audit(
                int(np.argmax(changed)) if changed.any() else None,
                int(np.argmax(off)) if off.any() else None,
                int(off.sum()),
            )
        )

    def audited(self) -> int:
        return 0 if self.status else self.begun

    def audits(self, count: int) -> list[Audit]:
        assert count == len(self.found)
        return self.found

    def graph(self, enqueue: Callable[[int], None], runs: int) -> Callable[[], None]:
        def replay() -> None:
            for run in range(runs):
                enqueue(run)

        return replay

    def stopwatch(
        self, runs: Sequence[Callable[[], None]], deadline_s: float, flush_from: int | None = None
    ) -> np.ndarray:
        times = []
        for number, run in enumerate(runs):
            self.elapsed = 0.0
            run()
            cold = flush_from is not None and number >= flush_from
            times.append(self.elapsed + (3.0 if cold else 0.0))
        self.wait(deadline_s)
        return np.array(times)

    def stamp(self, index: int) -> None:
        self.stamps[index] = self.elapsed

    def stamped_us(self) -> float:
        return self.stamps[1] - self.stamps[0]

    def clocks(self) -> Clocks:
        return Clocks(1980, 3201, 40, self.throttle)
