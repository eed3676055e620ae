"""Matrices that stay on the device: every buffer of a (matrix, format, operator) in one arena with guard zones between.

An arena is restored from a pristine copy on the device before each run, so that outputs and guards hold NaN and inputs
hold one of several draws of numbers, always at the same addresses; an audit compares all of it afterwards.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge.device import Audit, Block, DeviceFault
from components.judge.prepare import Buffer, Case, Job, buffers, numbered_draw
from components.judge.verify import Draw, check_output
from components.kernel.operators import OPERATORS
from components.kernel.types import BoundLaunch

GUARD = 512  # bytes before and after each buffer
ALIGN = 256  # what cudaMalloc gives
FILL = 0xFF  # a NaN as float, -1 as int
TRUSTED_S = 30.0  # deadline of work that runs no program


class Layout:
    """Where each buffer lies in an arena."""

    def __init__(self, arrays: list[Buffer]) -> None:
        self.sizes = {array.name: array.data.nbytes for array in arrays}
        self.items = {array.name: array.data.itemsize for array in arrays}
        self.offsets: dict[str, int] = {}
        self.output = next(array.name for array in arrays if array.writable)
        size = GUARD
        for array in arrays:
            self.offsets[array.name] = size
            size += -(-(array.data.nbytes + GUARD) // ALIGN) * ALIGN
        self.size = size

    def image(self, arrays: list[Buffer]) -> NDArray[np.uint8]:
        """The bytes of an arena before a run."""
        host: NDArray[np.uint8] = np.full(self.size, FILL, np.uint8)
        for array in arrays:
            if not array.writable:
                start = self.offsets[array.name]
                host[start : start + array.data.nbytes] = array.data.view(np.uint8)
        return host

    def output_words(self) -> tuple[int, int]:
        """(first 4-byte word, words) of the output."""
        return self.offsets[self.output] // 4, self.sizes[self.output] // 4

    def blame(self, word: int) -> DeviceFault:
        """Whose bytes a changed word is."""
        place = 4 * word
        for name, start in self.offsets.items():
            if 0 <= place - start < self.sizes[name]:
                element = (place - start) // self.items[name]
                return DeviceFault("tampered", f"wrote element {element} of {name}, an input", False)
        return DeviceFault("illegal_access", "wrote outside of every buffer", False)


class Resident:
    """One case on the device.

    Args:
        device: components.judge.device.CudaDevice, or a test's.
        job: says operator and width.
        case: matrix and format.
    """

    def __init__(self, device: Any, job: Job, case: Case) -> None:
        self.device = device
        self._draws: dict[int, tuple[Draw, Block, Block, Block]] = {}
        arrays = buffers(job, case, numbered_draw(job, case, 0))
        self.layout = Layout(arrays)
        self._arenas: list[Block] = []
        self.input_bytes = sum(array.data.nbytes for array in arrays)

    @property
    def nbytes(self) -> int:
        """Device memory that it may come to hold."""
        return 6 * self.layout.size + 64 * (self.layout.output_words()[1] + 1)

    def arena(self, index: int) -> Block:
        """Arena `index`, made when first asked for."""
        while len(self._arenas) <= index:
            self._arenas.append(self.device.alloc(self.layout.size))
        return self._arenas[index]

    def restore(self, index: int, job: Job, case: Case, number: int) -> None:
        """Enqueue the reset of an arena to draw `number`."""
        self.device.copy(self.arena(index), self._draw(job, case, number)[1])

    def audit(self, slot: int, index: int, number: int) -> None:
        """Enqueue the audit of an arena that was restored to draw `number`."""
        _, pristine, expected, bound = self._draws[number]
        self.device.audit(slot, self.arena(index), pristine, self.layout.output_words(), expected, bound)

    def arguments(self, index: int, launch: BoundLaunch) -> tuple[Any, ...]:
        """A launch's arguments with names turned into addresses of one arena."""
        base = self.arena(index).ptr
        return tuple(np.uint64(base + self.layout.offsets[a]) if isinstance(a, str) else a for a in launch.arguments)

    def verdict(self, found: Audit, index: int, number: int, width: int, when: str = "") -> DeviceFault | None:
        """What an audit's answer means, in words; None when all was well."""
        if found.changed_word is not None:
            return self.layout.blame(found.changed_word)
        if found.bad_element is None:
            return None
        first, words = self.layout.output_words()
        output = self.device.read(self.arena(index).ptr + 4 * first, 4 * words).view(np.float32)
        mismatch = check_output(output, self._draws[number][0], width)
        text = f"element {found.bad_element} is off" if mismatch is None else mismatch.describe(width)
        return DeviceFault("wrong", text + when, False)

    def _draw(self, job: Job, case: Case, number: int) -> tuple[Draw, Block, Block, Block]:
        if number not in self._draws:
            numbers = numbered_draw(job, case, number)
            image = self.layout.image(buffers(job, case, numbers))
            uploads = (image, np.ascontiguousarray(numbers.expected), np.ascontiguousarray(numbers.bound))
            pristine, expected, bound = (self.device.upload(array) for array in uploads)
            self._draws[number] = (numbers, pristine, expected, bound)
        return self._draws[number]


def output_name(job: Job) -> str:
    """The buffer that a job's program writes."""
    return OPERATORS[job.operator].output
