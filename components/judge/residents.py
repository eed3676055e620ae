"""Matrices that stay on the device: every buffer of a (matrix, format, operator) in one arena with guard zones between.

An arena is restored from a pristine copy on the device before each run, so that outputs and guards hold NaN and inputs
hold one of several draws of numbers, always at the same addresses; an audit compares all of it afterwards.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge.adversarial import GROUP as ADVERSARIAL
from components.judge.device import Audit, Block, DeviceFault, Entry
from components.judge.prepare import Buffer, Case, Job, numbered_draw
from components.judge.verify import DRAWS, Draw, check_output
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


class Numbers:
    """The draws of numbers of one (matrix, operator, width, precision), on the device; every format takes its own."""

    def __init__(self, device: Any, job: Job, case: Case) -> None:
        self._device = device
        self._drawn: dict[int, _Drawn] = {}
        drawn = numbered_draw(job, case, 0)
        arrays = (drawn.values, *drawn.inputs.values(), drawn.expected, drawn.bound)
        self.nbytes = DRAWS * sum(array.nbytes for array in arrays)  # that it may come to hold

    def draw(self, job: Job, case: Case, number: int) -> "_Drawn":
        """One draw, uploaded when first asked for."""
        if number not in self._drawn:
            numbers, upload = numbered_draw(job, case, number), self._device.upload
            self._drawn[number] = _Drawn(
                numbers,
                upload(np.ascontiguousarray(numbers.values)),
                {name: upload(np.ascontiguousarray(array)) for name, array in numbers.inputs.items()},
                self._device.upload_secret(numbers.expected),
                self._device.upload_secret(numbers.bound),
            )
        return self._drawn[number]


@dataclass(frozen=True, eq=False)
class _Drawn:
    numbers: Draw
    values: Block  # [nnz]
    inputs: dict[str, Block]
    expected: Block  # float64, under a pad
    bound: Block


class Resident:
    """One case on the device.

    Args:
        device: components.judge.device.CudaDevice, or a test's.
        job: says operator, width and precision.
        case: matrix and format.
        numbers: of the same matrix, operator, width and precision.
    """

    def __init__(self, device: Any, job: Job, case: Case, numbers: Numbers) -> None:
        self.device, self._numbers = device, numbers
        # The adversarial matrices are many and small, and the interpreter has checked every access to them.
        self._alloc = device.alloc if case.matrix.group == ADVERSARIAL else device.alloc_guarded
        arrays = [Buffer(name, array, False) for name, array in case.stored.arrays.items()]
        drawn = numbers.draw(job, case, 0).numbers
        arrays += [Buffer(name, np.ascontiguousarray(array).ravel(), False) for name, array in drawn.inputs.items()]
        output: NDArray[Any] = np.empty(case.matrix.rows * job.width, job.precision.output_dtype)
        arrays.append(Buffer(OPERATORS[job.operator].output, output, True))
        self.layout = Layout(arrays)
        self.input_bytes = sum(array.data.nbytes for array in arrays)
        # Padding holds zero; the slots of entries are written over with each draw's values.
        values = next(array.data for array in arrays if array.name == "values")
        blank = [Buffer("values", np.zeros_like(values), False) if array.data is values else array for array in arrays]
        self._base = device.upload(self.layout.image(blank))
        self._slots = device.upload(np.ascontiguousarray(case.stored.value_slots))
        self._pristine: dict[int, Block] = {}
        self._arenas: list[Block] = []
        self._places: dict[int, dict[str, np.uint64]] = {}

    @property
    def nbytes(self) -> int:
        """Device memory that it may come to hold."""
        return (3 + DRAWS) * self.layout.size + int(self._slots.nbytes)

    def arena(self, index: int) -> Block:
        """Arena `index`, made when first asked for."""
        while len(self._arenas) <= index:
            self._arenas.append(self._alloc(self.layout.size))
        return self._arenas[index]

    def entry(self, job: Job, case: Case, index: int, number: int) -> Entry:
        """Arena `index` with draw `number`, for the device's `restore` and `audit`."""
        drawn = self._numbers.draw(job, case, number)
        if number not in self._pristine:
            self._pristine[number] = self._make_pristine(drawn)
        return Entry(
            self.arena(index),
            self._pristine[number],
            self.layout.output_words(),
            job.precision.output_bytes // 4,
            drawn.expected,
            drawn.bound,
        )

    def arguments(self, index: int, launch: BoundLaunch) -> tuple[Any, ...]:
        """A launch's arguments with names turned into addresses of one arena."""
        base = self.arena(index).ptr
        if (places := self._places.get(index)) is None:
            places = {name: np.uint64(base + offset) for name, offset in self.layout.offsets.items()}
            self._places[index] = places
        return tuple([places[a] if isinstance(a, str) else a for a in launch.arguments])

    def verdict(
        self, found: Audit, job: Job, case: Case, index: int, number: int, when: str = ""
    ) -> DeviceFault | None:
        """What an audit's answer means, in words; None when all was well."""
        if found.changed_word is not None:
            return self.layout.blame(found.changed_word)
        if found.bad_element is None:
            return None
        first, words = self.layout.output_words()
        output = self.device.read(self.arena(index).ptr + 4 * first, 4 * words).view(job.precision.output_dtype)
        mismatch = check_output(output, self._numbers.draw(job, case, number).numbers, job.width)
        text = f"element {found.bad_element} is off" if mismatch is None else mismatch.describe(job.width)
        return DeviceFault("wrong", text + when, False)

    def _make_pristine(self, drawn: _Drawn) -> Block:
        """What an arena holds before a run on one draw, put together on the device."""
        block: Block = self.device.alloc(self.layout.size)
        self.device.copy(block, self._base)
        self.device.scatter(block.ptr + self.layout.offsets["values"], drawn.values, self._slots)
        for name, array in drawn.inputs.items():
            self.device.copy(block, array, self.layout.offsets[name], self.layout.sizes[name])
        return block
