"""The process that holds a CUDA context and runs programs which are not trusted.

Run by components/judge/gpu.py as `python -m components.judge.gpu_worker FD`. Every buffer lies in one allocation with
guard zones between; output and guards hold NaN before each run; after it everything but the output must be as it was.
"""

import base64
import contextlib
import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.judge import wire
from components.judge.cusparse import products
from components.judge.gpu import driver_version
from components.judge.prepare import Buffer, Case, Job, buffers, cases, coverage_note, draws, job_of
from components.judge.timing import summarise
from components.judge.verify import Draw, check_output
from components.kernel.operators import OPERATORS
from components.kernel.types import FormatNotApplicable, ProgramError

_GUARD = 512  # bytes before and after each buffer
_ALIGN = 256  # what cudaMalloc gives
_FILL = 0xFF  # a NaN as float, -1 as int
_NOT_READY = 600  # cudaErrorNotReady
_ACCESS_FAULTS = {
    700: "illegal address",
    716: "misaligned address",
    717: "invalid address space",
    719: "launch failure",
}
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MEMORY_CLOCK, _BUS_WIDTH = 36, 37  # cudaDevAttrMemoryClockRate, cudaDevAttrGlobalMemoryBusWidth
_WARM_UPS, _SAMPLES, _INNER = 20, 50, 20  # graph replays; the last: runs of the program in one graph
_L2_HEADROOM = 3.0  # an L2 hit is at most this much faster than memory: the floor of a working set that fits


class Fault(Exception):
    """A program failed on the device; `poisoned` when the context is lost with it."""

    def __init__(self, status: str, message: str, poisoned: bool):
        super().__init__(message)
        self.status, self.message, self.poisoned = status, message, poisoned


class Arena:
    """All buffers of one run in one device allocation."""

    def __init__(self, cupy: Any, arrays: list[Buffer]):
        self.cupy, self.arrays = cupy, arrays
        self.offsets: dict[str, int] = {}
        size = _GUARD
        for array in arrays:
            self.offsets[array.name] = size
            size += -(-(array.data.nbytes + _GUARD) // _ALIGN) * _ALIGN
        self.host: NDArray[np.uint8] = np.full(size, _FILL, np.uint8)
        self.device = cupy.empty(size, np.uint8)
        self.fill(arrays)

    def fill(self, arrays: list[Buffer]) -> None:
        """Put new numbers at the same addresses; outputs are poisoned."""
        self.arrays = arrays
        for array in arrays:
            start = self.offsets[array.name]
            content = np.full(array.data.nbytes, _FILL, np.uint8) if array.writable else array.data.view(np.uint8)
            self.host[start : start + array.data.nbytes] = content
        self.device.set(self.host)

    def pointer(self, name: str) -> np.uint64:
        """Device address of one buffer."""
        return np.uint64(int(self.device.data.ptr) + self.offsets[name])

    def view(self, name: str, dtype: Any) -> Any:
        """One buffer as a device array."""
        size = next(array.data.nbytes for array in self.arrays if array.name == name)
        return self.device[self.offsets[name] : self.offsets[name] + size].view(dtype)

    def collect(self) -> dict[str, NDArray[Any]]:
        """The outputs after a run; Fault when anything else changed."""
        after = self.cupy.asnumpy(self.device)
        outputs: dict[str, NDArray[Any]] = {}
        for array in self.arrays:
            if array.writable:
                where = slice(self.offsets[array.name], self.offsets[array.name] + array.data.nbytes)
                outputs[array.name] = after[where].view(array.data.dtype).copy()
                after[where] = _FILL
        changed = np.flatnonzero(after != self.host)
        if len(changed):
            place = int(changed[0])
            for array in self.arrays:
                if 0 <= place - self.offsets[array.name] < array.data.nbytes:
                    element = (place - self.offsets[array.name]) // array.data.itemsize
                    raise Fault("tampered", f"wrote element {element} of {array.name}, an input", False)
            raise Fault("illegal_access", "wrote outside of every buffer", False)
        return outputs


class Executor:
    """One GPU, one context.

    Args:
        cupy: the module; anything with its interface in a test.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        device = cupy.cuda.Device(0)
        device.use()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        clock_khz, bus_bits = self._attribute(_MEMORY_CLOCK), self._attribute(_BUS_WIDTH)
        self.l2_bytes = int(properties["l2CacheSize"])
        self.peak_bytes_per_us = 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e6  # double data rate
        name = properties["name"]
        self.identity = {"gpu": name.decode() if isinstance(name, bytes) else str(name), "driver": driver_version()}

    def _attribute(self, number: int) -> int:
        """A device attribute; 0 where the driver no longer tells."""
        runtime = self.cupy.cuda.runtime
        try:
            return int(runtime.deviceGetAttribute(number, 0))
        except runtime.CUDARuntimeError:
            return 0

    def judge(self, request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
        """Fields of a Verdict; see components/judge/interpret.py for the same without a GPU."""
        announce("check")
        job = job_of(request)
        try:
            functions = self._load(base64.b64decode(request["cubin"]), job)
            checked, target = 0, {}
            with self.stream:
                for case in cases(job):
                    announce("check")
                    try:
                        arena, numbers = self._check(job, case, functions, request["deadline_s"])
                        if case.is_target:
                            announce("time")
                            target = self._time(job, case, functions, arena, numbers)
                        else:
                            checked += 1
                    except Fault as fault:
                        answer = {"status": fault.status, "message": fault.message, "poisoned": fault.poisoned}
                        return {**answer, "failed_on": case.name}
        except Fault as fault:
            return {"status": fault.status, "message": fault.message, "poisoned": fault.poisoned}
        except ProgramError as error:
            return {"status": error.status, "message": error.message, "line": error.line}
        except FormatNotApplicable as error:
            return {"status": "contract", "message": f"format {job.program.format} does not fit this matrix: {error}"}
        note = "; ".join(filter(None, [coverage_note(job, checked), target.pop("note", "")]))
        return {"status": "correct", "message": note, "format": str(job.program.format), **target}

    def _load(self, cubin: bytes, job: Job) -> dict[str, Any]:
        module = self.cupy.cuda.function.Module()
        try:
            module.load(cubin)
            return {launch.kernel: module.get_function(launch.kernel) for launch in job.program.launches}
        except self.cupy.cuda.driver.CUDADriverError as error:
            raise Fault("launch_error", f"the driver refuses the program: {error}", True) from None

    def _check(self, job: Job, case: Case, functions: dict[str, Any], deadline_s: float) -> tuple[Arena, Draw]:
        """Both draws at the same addresses; the arena as the second left it."""
        arena: Arena | None = None
        for numbers in draws(job, case):
            arrays = buffers(job, case, numbers)
            if arena is None:
                arena = Arena(self.cupy, arrays)
            else:
                arena.fill(arrays)
            self.stream.synchronize()
            self._launch(case, functions, arena)
            self._wait(deadline_s)
            self._compare(job, arena, numbers, "")
        assert arena is not None
        return arena, numbers

    def _compare(self, job: Job, arena: Arena, numbers: Draw, when: str) -> None:
        outputs = arena.collect()
        found = check_output(outputs[OPERATORS[job.operator].output], numbers, job.width)
        if found is not None:
            raise Fault("wrong", found.describe(job.width) + when, False)

    def _launch(self, case: Case, functions: dict[str, Any], arena: Arena) -> None:
        driver = self.cupy.cuda.driver
        for launch in case.launches:
            function = functions[launch.kernel]
            arguments = tuple(arena.pointer(a) if isinstance(a, str) else a for a in launch.arguments)
            try:
                if launch.shared_bytes > 48 * 1024:  # above that a kernel must opt in
                    driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, launch.shared_bytes)
                function(launch.grid, launch.block, arguments, launch.shared_bytes)  # on the current stream
            except driver.CUDADriverError as error:
                raise Fault("launch_error", f"{launch.kernel}: {error}", False) from None

    def _wait(self, deadline_s: float) -> None:
        """Wait for the stream by polling, so that a hang is noticed; only killing this process ends one."""
        runtime = self.cupy.cuda.runtime
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(self.stream)
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                status = int(runtime.eventQuery(event.ptr))
            except runtime.CUDARuntimeError as error:
                status = int(error.status)
            if status == 0:
                return
            if status != _NOT_READY:
                known = _ACCESS_FAULTS.get(status)
                fault = known or f"device error {status}"
                raise Fault("illegal_access" if known else "launch_error", f"{fault} on the device", True)
            if time.monotonic() > deadline:
                raise Fault("timeout", f"still running after {deadline_s:g} s", True)
            time.sleep(2e-5)

    # -- timing --------------------------------------------------------------------------------------------------

    def _time(self, job: Job, case: Case, functions: dict[str, Any], arena: Arena, numbers: Draw) -> dict[str, Any]:
        """Interleaved graph replays of the program and of the fastest cuSPARSE algorithm, L2 warm."""
        result: dict[str, Any] = {
            "timing": "measured",
            "convert_us": case.stored.convert_us,
            "bytes_moved": case.stored.bytes
            + sum(a.nbytes for a in numbers.inputs.values())
            + numbers.expected.size * 4,
        }
        matrix = case.matrix
        if not case.launches or matrix.nnz == 0:
            return {**result, "note": "nothing to time: the matrix has no entries"}
        ours = self._graph(lambda: self._launch(case, functions, arena))
        best_name, theirs, keep = self._fastest_baseline(job, case, numbers)
        for _ in range(_WARM_UPS):
            ours.launch(self.stream)
            theirs.launch(self.stream)
        samples = np.empty((2, _SAMPLES))
        for index in range(_SAMPLES):
            order = (0, 1) if index % 2 == 0 else (1, 0)
            for side in order:
                samples[side, index] = self._replay(ours if side == 0 else theirs)
        floor_us = self._floor_us(job, case)
        duel = summarise(samples[0], samples[1], floor_us)
        self._compare(job, arena, numbers, " (after timing)")
        for product in keep:
            product.close()
        note = (
            ""
            if duel.time_us >= floor_us
            else f"{duel.time_us:.3g} us is under the physical floor of {floor_us:.3g} us"
        )
        return {**result, "baseline": best_name, "note": note, **asdict(duel)}

    def _fastest_baseline(self, job: Job, case: Case, numbers: Draw) -> tuple[str, Any, list[Any]]:
        matrix, cupy = case.matrix, self.cupy
        arrays = {
            "row_ptr": cupy.asarray(matrix.row_ptr.astype(np.int32)),
            "col_idx": cupy.asarray(matrix.col_idx),
            "values": cupy.asarray(numbers.values),
            "x": cupy.asarray(np.ascontiguousarray(next(iter(numbers.inputs.values())))),
            "y": cupy.empty(matrix.rows * job.width, np.float32),
        }
        width = 0 if job.operator == "spmv" else job.width
        shape = (matrix.rows, matrix.cols, matrix.nnz)
        ready = products(arrays, shape, width, self.stream.ptr, cupy.cuda.alloc)
        timed = []
        for product in ready:
            graph = self._graph(product.launch)
            graph.launch(self.stream)
            timed.append((min(self._replay(graph) for _ in range(5)), product.name, graph))
            found = check_output(cupy.asnumpy(arrays["y"]), numbers, job.width)
            if found is not None:
                raise RuntimeError(f"{product.name} on {case.name}: {found.describe(job.width)}")
        _, name, graph = min(timed, key=lambda row: row[0])
        return name, graph, ready

    def _graph(self, enqueue: Callable[[], None]) -> Any:
        """A graph of `_INNER` runs, after one outside of it (lazy loading must not be captured)."""
        enqueue()
        self.stream.synchronize()
        self.stream.begin_capture()
        for _ in range(_INNER):
            enqueue()
        return self.stream.end_capture()

    def _replay(self, graph: Any) -> float:
        """Microseconds of one run in one replay."""
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        begin.record(self.stream)
        graph.launch(self.stream)
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / _INNER

    def _floor_us(self, job: Job, case: Case) -> float:
        """No program can be faster: CSR's least bytes over peak bandwidth, or over L2 where the working set fits.

        A compressed format moves fewer bytes than CSR; its own size counts where that is smaller.
        """
        if self.peak_bytes_per_us == 0:
            return 0.0
        least = OPERATORS[job.operator].bytes_min(case.matrix, job.width)
        own = case.stored.bytes + 4 * job.width * (case.matrix.rows + case.matrix.cols)
        peak = self.peak_bytes_per_us * (1.0 if least > 2 * self.l2_bytes else _L2_HEADROOM)
        return min(least, own) / peak


def main(arguments: list[str]) -> None:
    """Serve requests until the socket closes."""
    connection = socket.socket(fileno=int(arguments[0]))
    executor = Executor(importlib.import_module("cupy"))
    wire.send(connection, executor.identity)
    with contextlib.suppress(wire.Closed):
        while True:
            request = wire.receive(connection)
            try:
                result = executor.judge(request, lambda stage: wire.send(connection, {"stage": stage}))
                answer: dict[str, Any] = {"result": result}
            except Exception:
                answer = {"bug": traceback.format_exc()}
            wire.send(connection, answer)
    os._exit(0)  # a poisoned context must not run destructors


if __name__ == "__main__":
    main(sys.argv[1:])
