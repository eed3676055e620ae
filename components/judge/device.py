"""What the executor needs of a GPU, on cupy: memory, launches with a deadline, audits of whole arenas, event timing.

Everything runs on one non-blocking stream. Nothing here waits without a deadline while a program that is not trusted
may be running.
"""

import contextlib
import importlib
import importlib.util
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.judge.device_kernels import KERNELS, own_cubin
from components.judge.guarded import GuardedMemory, GuardsMissing
from components.judge.nvml import Clocks, Nvml
from components.judge.splitmix import mix
from components.kernel.operators.base import BOUND_FACTOR
from components.kernel.precision import Precision

NOT_READY = 600  # cudaErrorNotReady
# Numbers that cudaError_t and CUresult share: the context is lost with any of them.
ACCESS_FAULTS = {
    700: "illegal address",
    714: "hardware stack error",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failure",
}
OTHER_FAULTS = {
    702: "launch timeout",
    709: "context lost",
    710: "assertion",
    715: "illegal instruction",
}
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEVICE_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_DEVICE = 2, 1, 3  # cudaMemcpyKind
_SLOTS = 256  # audits between two resets
_KINDS = {"float": 0, "double": 1, "__half": 2, "__nv_bfloat16": 3}  # `Kind` in device_kernels.py
_ENTRY_BYTES = 72  # of `Entry` in device_kernels.py
_HOLD_NS = 20_000_000  # the device waits no longer for the host
_HEAD_START = 4  # runs enqueued before the device may begin: from then on the host stays ahead
_FLUSH_SHARE = 1.25  # of the L2 that is written over to empty it
_NOTHING = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_TRUSTED_S = 30.0  # deadline of our own kernels
_SPIN_S, _POLL_S = 0.02, 2e-4  # poll without sleeping at first: a sleep costs 70 us at the least


class DeviceFault(Exception):
    """A program failed on the device; `poisoned` when the context is lost with it."""

    def __init__(self, status: str, message: str, poisoned: bool):
        super().__init__(message)
        self.status, self.message, self.poisoned = status, message, poisoned


class Block(Protocol):
    """Device memory, freed with the object."""

    @property
    def ptr(self) -> int:
        """Device address."""
        ...

    @property
    def nbytes(self) -> int:
        """Size."""
        ...


@dataclass(frozen=True)
class Audit:
    """What `Device.audit` found in one arena; None where all is well."""

    changed_word: int | None  # index of the first 4-byte word outside of the output that changed
    bad_element: int | None  # index of the first output element that is off
    bad_count: int


@dataclass(frozen=True, eq=False)
class Pattern:
    """A matrix's pattern on the device: int32 row pointers [rows + 1] and column indices [nnz]."""

    rows: int
    cols: int
    nnz: int
    row_ptr: Block
    col_idx: Block


@dataclass(frozen=True, eq=False)
class Drawn:
    """One draw of numbers on the device, made there; components/judge/verify.py makes the same on the host."""

    values: Block  # [nnz], in CSR order
    dense: Block  # [cols * width]
    expected: Block  # float64 [rows * width], under a pad that only the judge's own kernels take off
    bound: Block  # likewise

    @property
    def nbytes(self) -> int:
        """Device memory held."""
        return self.values.nbytes + self.dense.nbytes + self.expected.nbytes + self.bound.nbytes


@dataclass(frozen=True)
class Entry:
    """One arena to restore and to audit; every size a multiple of 16 bytes."""

    arena: Block
    pristine: Block  # as large as the arena
    output: tuple[int, int]  # first 4-byte word, words
    element_words: int  # of the output: 1 for float, 2 for double
    expected: Block  # of `CudaDevice.draw`
    bound: Block


@dataclass(frozen=True)
class Facts:
    """What this GPU was measured to do, once a session. Bandwidths in bytes per microsecond, times in microseconds."""

    copy_bandwidth: float  # memory, read + write
    l2_bandwidth: float  # reads that hit the L2
    launch_us: float  # an empty kernel in a replayed graph
    replay_us: float = 0.0  # what a replay takes beside its kernels: two events and the graph's start

    def to_dict(self) -> dict[str, float]:
        """Plain JSON types."""
        return asdict(self)


def _fault(status: int) -> DeviceFault | None:
    """The fault that an error number of the driver or the runtime stands for; None for one that harms no context."""
    if status in ACCESS_FAULTS:
        return DeviceFault("illegal_access", f"{ACCESS_FAULTS[status]} on the device", True)
    if status in OTHER_FAULTS:
        return DeviceFault("launch_error", f"{OTHER_FAULTS[status]} on the device", True)
    return None


class _CupyBlock:
    def __init__(self, memory: Any, nbytes: int) -> None:
        self._memory = memory  # keeps it alive
        self.ptr, self.nbytes = int(memory.ptr), nbytes


class CudaDevice:
    """The first visible GPU, with a context of its own."""

    def __init__(self) -> None:
        self.cupy: Any = importlib.import_module("cupy")
        self._runtime, self._driver = self.cupy.cuda.runtime, self.cupy.cuda.driver
        self.cupy.cuda.Device(0).use()
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        properties = self._runtime.getDeviceProperties(0)
        name = properties["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.l2_bytes = int(properties["l2CacheSize"])
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.arch = f"sm_{properties['major']}{properties['minor']}"
        self._guarded: GuardedMemory | None = None
        self.guards = "unmapped"  # or why there are none but the poisoned zones
        try:
            self._guarded = GuardedMemory()
        except GuardsMissing as error:
            self.guards = f"poisoned only ({error})"
        self._nvml = Nvml(self._runtime.deviceGetPCIBusId(0))
        self._own = self.load(own_cubin(self.arch), KERNELS)
        self._key = np.uint64(secrets.randbits(64))  # given to the judge's own kernels alone
        self._results = self.alloc(_SLOTS * 24)
        self._pristine_results = np.tile(np.array([_NOTHING, _NOTHING, 0], np.uint64), _SLOTS)
        self._empty_results = self.upload(self._pristine_results)
        self._table = self.alloc(_SLOTS * _ENTRY_BYTES)
        self._pinned = self.cupy.cuda.alloc_pinned_memory(_SLOTS * _ENTRY_BYTES + 16)
        words = np.frombuffer(self._pinned, np.uint64, _SLOTS * _ENTRY_BYTES // 8 + 2)
        self._host_table = words[:-2].reshape(_SLOTS, -1)
        self._progress, self._gate = words[-2:-1], words[-1:]
        self._progress[0] = self._gate[0] = 0
        self._progress_ptr = self._pinned.ptr + _SLOTS * _ENTRY_BYTES
        self._gate_ptr = self._progress_ptr + 8
        self._tickets = self._entries = 0
        self._flusher = self.alloc(int(self.l2_bytes * _FLUSH_SHARE))
        self.replay_us = 0.0  # of `Facts`, once they are known
        self._done = self.cupy.cuda.Event(disable_timing=True)
        self._events: list[Any] = []
        self._stamps = (self.cupy.cuda.Event(), self.cupy.cuda.Event())
        self.meanwhile: Callable[[], None] | None = None  # what the host may do while the device times

    # -- memory --------------------------------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> Block:
        """Device memory, 256-byte aligned, contents undefined."""
        with self._faults(), self.stream:
            return _CupyBlock(self.cupy.cuda.alloc(max(nbytes, 16)), nbytes)

    def alloc_guarded(self, nbytes: int) -> Block:
        """Device memory for a program's arena, `nbytes` a multiple of 256; nothing is mapped around it if `guards`."""
        return self.alloc(nbytes) if self._guarded is None else self._guarded.alloc(nbytes)

    def upload(self, array: NDArray[Any]) -> Block:
        """A copy of a contiguous host array."""
        block = self.alloc(array.nbytes)
        if array.nbytes:
            with self._faults():
                self._runtime.memcpy(block.ptr, array.ctypes.data, array.nbytes, _HOST_TO_DEVICE)
        return block

    def fill(self, block: Block, byte: int) -> None:
        """Enqueue setting every byte of a block."""
        with self._faults():
            self._runtime.memsetAsync(block.ptr, byte, block.nbytes, self.stream.ptr)

    def write(self, block: Block, offset: int, array: NDArray[Any]) -> None:
        """Copy a contiguous host array into a block, once what is enqueued has ended."""
        if array.nbytes:
            with self._faults():
                self.stream.synchronize()
                self._runtime.memcpy(block.ptr + offset, array.ctypes.data, array.nbytes, _HOST_TO_DEVICE)

    def copy(self, target: Block, source: Block, offset: int = 0, nbytes: int | None = None) -> None:
        """Enqueue a copy of the first `nbytes` (None: all) of `source` to `offset` bytes into `target`."""
        size = source.nbytes if nbytes is None else nbytes
        if size:
            with self._faults():
                place = target.ptr + offset
                self._runtime.memcpyAsync(place, source.ptr, size, _DEVICE_TO_DEVICE, self.stream.ptr)

    def scatter(self, target: int, values: Block, slots: Block) -> None:
        """Enqueue target[slots[i]] = values[i]: values of 2, 4 or 8 bytes, int64 slots, which say how many."""
        count = slots.nbytes // 8
        if count == 0:
            return
        sizes = np.uint64(count), np.uint64(values.nbytes // count)
        arguments = (np.uint64(target), np.uint64(values.ptr), np.uint64(slots.ptr), *sizes)
        self._launch_own("scatter", count, *arguments)

    def draw(self, pattern: Pattern, width: int, precision: Precision, keys: Sequence[np.uint64]) -> Drawn:
        """Enqueue the making of a draw of numbers: what `verify.draw` makes on the host, with the answer under a pad.

        Args:
            pattern: of the matrix.
            width: dense columns.
            precision: of the numbers.
            keys: of `verify.draw_keys`.
        """
        elements = pattern.rows * width
        drawn = Drawn(
            self.alloc(precision.value_bytes * pattern.nnz),
            self.alloc(precision.value_bytes * pattern.cols * width),
            self.alloc(8 * elements),
            self.alloc(8 * elements),
        )
        kind = np.uint64(_KINDS[precision.value])
        values, dense = np.uint64(drawn.values.ptr), np.uint64(drawn.dense.ptr)
        row_ptr, rows = np.uint64(pattern.row_ptr.ptr), np.int32(pattern.rows)
        of_values, of_rows, of_dense = keys[:3]
        scale = (np.float64(precision.tiny), of_values, of_rows, kind)
        self._launch_own("draw_values", 32 * pattern.rows, values, row_ptr, rows, *scale)
        count = pattern.cols * width
        self._launch_own("draw_dense", count, dense, np.uint64(count), of_dense, kind)
        lanes = min(32, 1 << (width - 1).bit_length())
        operands = (row_ptr, np.uint64(pattern.col_idx.ptr), values, dense, rows, np.int32(width), np.int32(lanes))
        roundoff = np.float64(BOUND_FACTOR * precision.unit_roundoff)
        places = np.uint64(drawn.expected.ptr), np.uint64(drawn.bound.ptr)
        self._launch_own("answer", 32 * pattern.rows, *places, *operands, roundoff, self._key, kind)
        return drawn

    def answer(self, drawn: Drawn, index: int) -> tuple[float, float]:
        """(expected, bound) of one element; call `wait` first."""
        pad = mix(self._key, np.array([index], np.uint64))
        found = [self.read(block.ptr + 8 * index, 8).view(np.uint64) ^ pad for block in (drawn.expected, drawn.bound)]
        expected, bound = (float(bits.view(np.float64)[0]) for bits in found)
        return expected, bound

    def _launch_own(self, kernel: str, threads: int, *arguments: Any) -> None:
        """Enqueue one of the judge's kernels, whose threads take items in strides."""
        blocks = max(1, min(self.multiprocessors * 8, -(-threads // 256)))
        self.launch(self._own[kernel], (blocks, 1, 1), (256, 1, 1), arguments, 0)

    def read(self, pointer: int, nbytes: int) -> NDArray[np.uint8]:
        """Device memory as it is now; call `wait` first."""
        host: NDArray[np.uint8] = np.empty(nbytes, np.uint8)
        if nbytes:
            with self._faults():
                self._runtime.memcpy(host.ctypes.data, pointer, nbytes, _DEVICE_TO_HOST)
        return host

    # -- programs ------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes, names: Sequence[str]) -> dict[str, Any]:
        """The kernels of a cubin by name."""
        module = self.cupy.cuda.function.Module()
        try:
            module.load(cubin)
            return {name: module.get_function(name) for name in names}
        except self._driver.CUDADriverError as error:
            raise DeviceFault("launch_error", f"the driver refuses the program: {error}", False) from None

    def launch(self, function: Any, grid: Any, block: Any, arguments: tuple[Any, ...], shared_bytes: int) -> None:
        """Enqueue a kernel; DeviceFault when the driver refuses it."""
        try:
            if shared_bytes > 48 * 1024:  # above that a kernel must opt in
                self._driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, shared_bytes)
            function(grid, block, arguments, shared_bytes, self.stream)
        except self._driver.CUDADriverError as error:
            raise _fault(int(error.status)) or DeviceFault("launch_error", str(error), False) from None

    def wait(self, deadline_s: float) -> None:
        """Wait by polling, so that a hang is noticed; only the end of this process ends one."""
        self._done.record(self.stream)
        start = time.monotonic()
        while (status := self._status()) != 0:
            if status != NOT_READY:
                raise _fault(status) or DeviceFault("launch_error", f"device error {status}", True)
            waited = time.monotonic() - start
            if waited > deadline_s:
                raise DeviceFault("timeout", f"still running after {deadline_s:.2g} s", True)
            if waited > _SPIN_S:
                time.sleep(_POLL_S)

    def _status(self) -> int:
        try:
            return int(self._runtime.eventQuery(self._done.ptr))
        except self._runtime.CUDARuntimeError as error:
            return int(error.status)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """What an earlier launch did to the context shows at any later call: tell it as that."""
        try:
            yield
        except self._runtime.CUDARuntimeError as error:
            fault = _fault(int(error.status))
            if fault is None:
                raise
            raise fault from None

    # -- audits --------------------------------------------------------------------------------------------------

    def reset_audits(self) -> None:
        """Forget what audits found and which entries there were."""
        self._progress[0] = 0
        self._entries = 0
        self.copy(self._results, self._empty_results)

    def enter(self, entries: Sequence[Entry]) -> range:
        """Give arenas their slots, in order; `restore` and `audit` take such a range. At most 256 between resets."""
        slots = range(self._entries, self._entries + len(entries))
        for slot, entry in zip(slots, entries, strict=True):
            self._host_table[slot] = (
                entry.arena.ptr, entry.pristine.ptr, entry.arena.nbytes // 4, *entry.output,
                entry.expected.ptr, entry.bound.ptr, slot, entry.element_words,
            )  # fmt: skip
        self._entries = slots.stop
        place, nbytes = slots.start * _ENTRY_BYTES, len(slots) * _ENTRY_BYTES
        with self._faults():
            self._runtime.memcpyAsync(
                self._table.ptr + place, self._pinned.ptr + place, nbytes, _HOST_TO_DEVICE, self.stream.ptr
            )
        return slots

    def restore(self, slots: range) -> None:
        """Enqueue the reset of arenas to what they hold before a run; each arena once."""
        self._over_table("restore", slots, 16, ())

    def audit(self, slots: range) -> None:
        """Enqueue the audit of arenas."""
        self._over_table("audit", slots, 4, (self._key, np.uint64(self._results.ptr)))

    def _over_table(self, kernel: str, slots: range, item: int, more: tuple[Any, ...]) -> None:
        largest = int(self._host_table[slots.start : slots.stop, 2].max()) * 4
        blocks = max(1, min(self.multiprocessors * 8, -(-largest // (256 * item))))
        table = np.uint64(self._table.ptr + slots.start * _ENTRY_BYTES)
        self.launch(self._own[kernel], (blocks, len(slots), 1), (256, 1, 1), (table, *more), 0)

    def mark(self, count: int) -> None:
        """Enqueue the note that `count` runs have ended."""
        self.launch(self._own["mark"], (1, 1, 1), (1, 1, 1), (np.uint64(self._progress_ptr), np.uint64(count)), 0)

    def marked(self) -> int:
        """The latest note that the device came to since the reset; readable even when the context is lost."""
        return int(self._progress[0])

    def audits(self, count: int) -> list[Audit]:
        """What the first `count` slots hold; call `wait` first."""
        found = self.read(self._results.ptr, count * 24).view(np.uint64).reshape(count, 3)
        return [
            Audit(None if a == _NOTHING else int(a), None if b == _NOTHING else int(b), int(n)) for a, b, n in found
        ]

    # -- time ----------------------------------------------------------------------------------------------------

    def graph(self, enqueue: Callable[[int], None], runs: int) -> Callable[[], None]:
        """Capture `enqueue(0) .. enqueue(runs - 1)`; the answer enqueues a replay of them all."""
        self.stream.begin_capture()
        try:
            for run in range(runs):
                enqueue(run)
        except BaseException:
            self.stream.end_capture()
            raise
        graph = self.stream.end_capture()
        return lambda: graph.launch(self.stream)

    def hold(self) -> None:
        """Enqueue a wait for `release`: what is enqueued in between then runs without gaps."""
        self._tickets += 1
        arguments = (np.uint64(self._gate_ptr), np.uint64(self._tickets), np.uint64(_HOLD_NS))
        self.launch(self._own["hold"], (1, 1, 1), (1, 1, 1), arguments, 0)

    def release(self) -> None:
        """Let the device go on."""
        self._gate[0] = self._tickets

    def stopwatch(
        self,
        runs: Sequence[Callable[[], None]],
        deadline_s: float,
        flush_from: int | None = None,
        held: bool = True,
        then: Callable[[], None] | None = None,
        during: Callable[[], None] | None = None,
    ) -> NDArray[np.float64]:
        """Microseconds that each run takes between two events, all enqueued before the first wait.

        Args:
            runs: each enqueues work.
            deadline_s: for all of them together.
            flush_from: write over the L2 before each run from this one on.
            held: the device begins when the host is ahead of it, so that no run waits for the host; False where the
                host's own work is part of a run, or waits for the device.
            then: enqueues what follows the last run.
            during: what the host does while the device is at it.
        """
        while len(self._events) < 2 * len(runs):
            self._events.append(self.cupy.cuda.Event())
        if held:
            self.hold()
        try:
            for number, run in enumerate(runs):
                if number == _HEAD_START:
                    self.release()
                if flush_from is not None and number >= flush_from:
                    self._runtime.memsetAsync(self._flusher.ptr, number & 0xFF, self._flusher.nbytes, self.stream.ptr)
                self._events[2 * number].record(self.stream)
                run()
                self._events[2 * number + 1].record(self.stream)
        finally:
            self.release()
        if then is not None:
            then()
        for work in (during, self.meanwhile):
            if work is not None:
                work()
        self.wait(deadline_s)
        elapsed = self.cupy.cuda.get_elapsed_time
        return np.array(
            [1e3 * elapsed(self._events[2 * n], self._events[2 * n + 1]) for n in range(len(runs))], np.float64
        )

    def stamp(self, index: int) -> None:
        """Enqueue time stamp 0 or 1; `stamped_us` tells the time between the two, after a wait."""
        self._stamps[index].record(self.stream)

    def stamped_us(self) -> float:
        """Microseconds between the two stamps."""
        return 1e3 * float(self.cupy.cuda.get_elapsed_time(*self._stamps))

    def clocks(self) -> Clocks:
        """Clocks and what holds them down, now."""
        return self._nvml.read()

    def measure_facts(self) -> Facts:
        """Copy bandwidth of memory, read bandwidth of the L2 and the launch floor; takes some ten milliseconds."""
        large = 8 * self.l2_bytes
        one, other = self.alloc(large), self.alloc(large)
        copies = self.stopwatch([lambda: self.copy(other, one)] * 8, _TRUSTED_S)
        small, rounds = self.l2_bytes // 4, 20
        arguments = (np.uint64(one.ptr), np.uint64(small // 16), np.int32(rounds), np.uint64(other.ptr))
        grid = (self.multiprocessors * 8, 1, 1)
        sweeps = self.stopwatch(
            [lambda: self.launch(self._own["sweep"], grid, (256, 1, 1), arguments, 0)] * 8, _TRUSTED_S
        )
        few, many = (self.graph(self._launch_nothing, runs) for runs in (10, 50))
        self.stopwatch([few, many] * 4, _TRUSTED_S)
        few_us, many_us = (float(np.median(self.stopwatch([graph] * 24, _TRUSTED_S))) for graph in (few, many))
        launch_us = (many_us - few_us) / 40
        return Facts(
            copy_bandwidth=2 * large / float(copies.min()),
            l2_bandwidth=small * rounds / float(sweeps.min()),
            launch_us=launch_us,
            replay_us=max(0.0, few_us - 10 * launch_us),
        )

    def _launch_nothing(self, run: int) -> None:
        del run
        self.launch(self._own["nothing"], (1, 1, 1), (32, 1, 1), (), 0)


def preload_device() -> None:
    """Import what a device and its baselines need, without making a context: before a fork."""
    importlib.import_module("cupy")
    importlib.import_module("cupyx.scipy.sparse")
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch")
