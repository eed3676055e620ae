"""Matrices that stay on the device: every buffer of a (matrix, format, operator) in one arena with guard zones between.

An arena is restored from a pristine copy on the device before each run, so that outputs and guards hold NaN and inputs
hold one of several draws of numbers, always at the same addresses; an audit compares all of it afterwards.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.judge.adversarial import GROUP as ADVERSARIAL
from components.judge.device import Audit, Block, DeviceFault, Drawn, Entry, Pattern
from components.judge.prepare import Case, Job
from components.judge.verify import Mismatch, draw_keys, prepared_draws
from components.kernel.operators import OPERATORS
from components.kernel.types import BoundLaunch
from components.matrix.types import SparseMatrix

GUARD = 512  # bytes before and after each buffer
ALIGN = 256  # what cudaMalloc gives
FILL = 0xFF  # a NaN as float, -1 as int
TRUSTED_S = 30.0  # deadline of work that runs no program


@dataclass(frozen=True)
class Slot:
    """One buffer of an arena: its size and that of its elements, in bytes."""

    nbytes: int
    item: int


class Layout:
    """Where each buffer lies in an arena."""

    def __init__(self, slots: Mapping[str, Slot], output: str) -> None:
        self.slots, self.output = slots, output
        self.offsets: dict[str, int] = {}
        size = GUARD
        for name, slot in slots.items():
            self.offsets[name] = size
            size += -(-(slot.nbytes + GUARD) // ALIGN) * ALIGN
        self.size = size

    def output_words(self) -> tuple[int, int]:
        """(first 4-byte word, words) of the output."""
        return self.offsets[self.output] // 4, self.slots[self.output].nbytes // 4

    def blame(self, word: int) -> DeviceFault:
        """Whose bytes a changed word is."""
        place = 4 * word
        for name, start in self.offsets.items():
            if 0 <= place - start < self.slots[name].nbytes:
                element = (place - start) // self.slots[name].item
                return DeviceFault("tampered", f"wrote element {element} of {name}, an input", False)
        return DeviceFault("illegal_access", "wrote outside of every buffer", False)


class Numbers:
    """The draws of numbers of one (matrix, operator, width, precision), made on the device for every format."""

    def __init__(self, device: Any, job: Job, matrix: SparseMatrix) -> None:
        self._device, self._job, self._matrix = device, job, matrix
        row_ptr = device.upload(matrix.row_ptr.astype(np.int32))
        col_idx = device.upload(np.ascontiguousarray(matrix.col_idx, np.int32))
        self.pattern = Pattern(matrix.rows, matrix.cols, matrix.nnz, row_ptr, col_idx)
        self._drawn: dict[int, Drawn] = {}
        self._prepared = prepared_draws(matrix.nnz * job.width)
        precision, elements = job.precision, matrix.rows * job.width
        one = precision.value_bytes * (matrix.nnz + matrix.cols * job.width) + 16 * elements
        self.nbytes = self._prepared * one + int(row_ptr.nbytes + col_idx.nbytes)  # that it may come to hold

    def draw(self, number: int) -> Drawn:
        """One of the draws that programs get, made when first asked for."""
        if number not in self._drawn:
            self._drawn[number] = self.make(number)
        return self._drawn[number]

    def make(self, number: int) -> Drawn:
        """A draw, made anew."""
        job = self._job
        keys = draw_keys(self._matrix, job.operator, job.width, number)
        drawn: Drawn = self._device.draw(self.pattern, job.width, job.precision, keys)
        return drawn


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
        self._prepared = prepared_draws(case.matrix.nnz * job.width)
        # The adversarial matrices are many and small, and the interpreter has checked every access to them.
        self._alloc = device.alloc if case.matrix.group == ADVERSARIAL else device.alloc_guarded
        operator, precision = OPERATORS[job.operator], job.precision
        slots = {name: Slot(array.nbytes, array.itemsize) for name, array in case.stored.arrays.items()}
        for name, shape in operator.operand_shapes(case.matrix, job.width).items():
            slots[name] = Slot(math.prod(shape) * precision.value_bytes, precision.value_bytes)
        elements = case.matrix.rows * job.width
        slots[operator.output] = Slot(elements * precision.output_bytes, precision.output_bytes)
        self.layout = Layout(slots, operator.output)
        self.input_bytes = sum(slot.nbytes for slot in slots.values())
        (self._operand,) = operator.inputs
        self._base = device.alloc(self.layout.size)
        device.fill(self._base, FILL)
        for name, array in case.stored.arrays.items():
            # Padding holds zero; the slots of entries are written over with each draw's values.
            device.write(self._base, self.layout.offsets[name], np.zeros_like(array) if name == "values" else array)
        self._slots = device.upload(np.ascontiguousarray(case.stored.value_slots))
        self._pristine: dict[int, Block] = {}
        self._arenas: list[Block] = []
        self._places: dict[int, dict[str, np.uint64]] = {}

    @property
    def nbytes(self) -> int:
        """Device memory that it may come to hold."""
        return (3 + self._prepared) * self.layout.size + int(self._slots.nbytes)

    def arena(self, index: int) -> Block:
        """Arena `index`, made when first asked for."""
        while len(self._arenas) <= index:
            self._arenas.append(self._alloc(self.layout.size))
        return self._arenas[index]

    def entry(self, job: Job, index: int, number: int) -> Entry:
        """Arena `index` with draw `number`, for the device's `restore` and `audit`."""
        drawn = self._numbers.draw(number)
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

    def verdict(self, found: Audit, job: Job, index: int, number: int, when: str = "") -> DeviceFault | None:
        """What an audit's answer means, in words; None when all was well."""
        if found.changed_word is not None:
            return self.layout.blame(found.changed_word)
        if found.bad_element is None:
            return None
        precision = job.precision
        place = self.arena(index).ptr + self.layout.offsets[self.layout.output]
        got = self.device.read(place + found.bad_element * precision.output_bytes, precision.output_bytes)
        expected, bound = self.device.answer(self._numbers.draw(number), found.bad_element)
        row, column = divmod(found.bad_element, job.width)
        mismatch = Mismatch(row, column, float(got.view(precision.output_dtype)[0]), expected, bound, found.bad_count)
        return DeviceFault("wrong", mismatch.describe(job.width) + when, False)

    def _make_pristine(self, drawn: Drawn) -> Block:
        """What an arena holds before a run on one draw, put together on the device."""
        block: Block = self.device.alloc(self.layout.size)
        self.device.copy(block, self._base)
        self.device.scatter(block.ptr + self.layout.offsets["values"], drawn.values, self._slots)
        self.device.copy(block, drawn.dense, self.layout.offsets[self._operand])
        return block
