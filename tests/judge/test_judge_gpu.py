"""The GPU executor's own logic on a stand-in for cupy that runs Python functions as kernels, on the CPU's memory."""

import base64
import ctypes
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from components.errors import UserError
from components.judge import gpu_worker
from components.judge.gpu import GpuExecutor
from components.judge.gpu_worker import Executor
from components.judge.handover import Handover
from components.matrix.types import SparseMatrix

SOURCE = """// format: csr
// launch: spmv grid=ceil_div(rows, 64) block=64
extern "C" __global__ void spmv(const int* row_ptr, const int* col_idx, const float* values, const float* x, float* y,
                                int rows) {
}
"""


class DeviceArray(np.ndarray):
    @property
    def data(self) -> Any:  # type: ignore[override]
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def set(self, host: Any) -> None:
        self[...] = host


class Stream:
    current: "Stream"
    ptr = 0

    def __init__(self, non_blocking: bool = False) -> None:
        self.recorded: list[Callable[[], None]] | None = None

    def __enter__(self) -> "Stream":
        Stream.current = self
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...

    def begin_capture(self) -> None:
        self.recorded = []

    def end_capture(self) -> Any:
        recorded, self.recorded = self.recorded or [], None
        return types.SimpleNamespace(launch=lambda stream: [work() for work in recorded])


class Event:
    status = 0
    ptr = 0
    ticks = 0

    def __init__(self, disable_timing: bool = False) -> None: ...

    def record(self, stream: Stream) -> None: ...

    def synchronize(self) -> None: ...


class CudaError(RuntimeError):
    status = 1


class Kernel:
    """Called as cupy's functions are; hands numpy views of its pointer arguments to `body`."""

    ptr = 0

    def __init__(self, body: Callable[..., None]) -> None:
        self.body = body

    def __call__(self, grid: Any, block: Any, arguments: Any, shared: int) -> None:
        row_ptr, col_idx, values, x, y, rows = arguments

        def run() -> None:
            bounds = view(row_ptr, int(rows) + 1, np.int32)
            count = int(bounds[-1])
            columns = view(col_idx, count, np.int32)
            width = int(columns.max()) + 1 if count else 0
            operands = (view(values, count, np.float32), view(x, width, np.float32), view(y, int(rows) + 1, np.float32))
            self.body(bounds, columns, *operands)

        stream = Stream.current
        if stream.recorded is None:
            run()
        else:
            stream.recorded.append(run)


def view(address: Any, count: int, dtype: Any) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype)


def product(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    for row in range(len(bounds) - 1):
        part = slice(bounds[row], bounds[row + 1])
        y[row] = np.sum(values[part].astype(np.float64) * x[columns[part]])


def fake_cupy(kernel: Callable[..., None], status: int = 0) -> Any:
    module = types.SimpleNamespace(load=lambda cubin: None, get_function=lambda name: Kernel(kernel))
    runtime = types.SimpleNamespace(
        eventQuery=lambda pointer: status,
        CUDARuntimeError=CudaError,
        getDeviceProperties=lambda number: {"l2CacheSize": 50_000_000, "name": b"Stand-in"},
        deviceGetAttribute=lambda attribute, number: {36: 3_201_000, 37: 6_144}[attribute],
    )
    cuda = types.SimpleNamespace(
        Device=lambda number: types.SimpleNamespace(use=lambda: None),
        Stream=Stream,
        Event=Event,
        runtime=runtime,
        driver=types.SimpleNamespace(CUDADriverError=CudaError, funcSetAttribute=lambda *_: None),
        function=types.SimpleNamespace(Module=lambda: module),
        get_elapsed_time=lambda begin, end: 0.2,
        alloc=lambda size: types.SimpleNamespace(ptr=0),
    )
    return types.SimpleNamespace(
        cuda=cuda,
        empty=lambda size, dtype: np.empty(size, dtype).view(DeviceArray),
        asarray=lambda array: np.array(array).view(DeviceArray),
        asnumpy=lambda array: np.array(array).view(np.ndarray),
    )


def judge(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    kernel: Callable[..., None],
    status: int = 0,
    deadline_s: float = 1.0,
) -> tuple[dict[str, Any], list[str]]:
    def products(arrays: dict[str, Any], shape: Any, width: int, stream: int, allocate: Any) -> list[Any]:
        def launch() -> None:
            product(arrays["row_ptr"], arrays["col_idx"], arrays["values"], arrays["x"], arrays["y"])

        return [types.SimpleNamespace(name="cusparse:csr_alg2", launch=launch, close=lambda: None)]

    monkeypatch.setattr(gpu_worker, "products", products)
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 6, 50)
    columns = [np.sort(rng.choice(40, length, replace=False)) for length in lengths]
    matrix = SparseMatrix(
        "m", "test", 50, 40, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate(columns).astype(np.int32), np.ones(int(lengths.sum())),
    )  # fmt: skip
    request = {
        "source": SOURCE,
        "cubin": base64.b64encode(b"cubin").decode(),
        "operator": "spmv",
        "width": 1,
        "matrix": Handover(tmp_path).describe(matrix),
        "adversarial": True,
        "deadline_s": deadline_s,
    }
    stages: list[str] = []
    return Executor(fake_cupy(kernel, status)).judge(request, stages.append), stages


def test_a_right_kernel_is_timed_against_cusparse(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    answer, stages = judge(monkeypatch, tmp_path, product)
    assert answer["status"] == "correct", answer
    assert answer["timing"] == "measured"
    assert answer["baseline"] == "cusparse:csr_alg2"
    assert answer["time_us"] == pytest.approx(10.0)  # 0.2 ms over 20 runs
    assert answer["speedup"] == pytest.approx(1.0)
    assert answer["reliable"]
    assert stages[-1] == "time"


def test_faults_of_every_kind_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def nothing(*_: Any) -> None: ...

    def zeros(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        y[: len(bounds) - 1] = 0

    def outside(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        product(bounds, columns, values, x, y)
        y[len(bounds) - 1] = 1

    def input_written(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        product(bounds, columns, values, x, y)
        values[:1] = 0

    expected = {nothing: "wrong", zeros: "wrong", outside: "illegal_access", input_written: "tampered"}
    for kernel, status in expected.items():
        answer, _ = judge(monkeypatch, tmp_path, kernel)
        assert (answer["status"], answer["poisoned"]) == (status, False), answer
        assert answer["failed_on"]
    answer, _ = judge(monkeypatch, tmp_path, input_written)
    assert answer["message"] == "wrote element 0 of values, an input"


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        (700, "illegal_access", "illegal address on the device"),
        (716, "illegal_access", "misaligned address on the device"),
        (701, "launch_error", "device error 701 on the device"),
        (600, "timeout", "still running after 0.1 s"),
    ],
)
def test_device_errors_cost_the_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, status: int, expected: str, message: str
) -> None:
    answer, _ = judge(monkeypatch, tmp_path, product, status, deadline_s=0.1)
    assert (answer["status"], answer["message"], answer["poisoned"]) == (expected, message, True)


def test_state_between_calls_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The second run finds other values at the same addresses."""
    memory: dict[int, Any] = {}

    def remembers(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        key = y.ctypes.data
        if key not in memory:
            product(bounds, columns, values, x, y)
            memory[key] = y[: len(bounds) - 1].copy()
        y[: len(bounds) - 1] = memory[key][: len(bounds) - 1]

    answer, _ = judge(monkeypatch, tmp_path, remembers)
    assert answer["status"] == "wrong"


def test_whatever_a_program_does_to_an_executor_the_next_verdict_comes_within_two_seconds() -> None:
    wall_s = {"start": 5.0, "check": 0.5, "time": 5.0}
    executor = GpuExecutor("tests.judge.hostile_executor", wall_s)
    try:
        assert executor.identity == {"gpu": "Stand-in", "driver": "1.0"}
        expected = {
            "hang": ("timeout", True),
            "crash": ("illegal_access", False),  # nobody knows why it died: not remembered
            "bug": ("unsupported", False),
            "poison": ("illegal_access", True),
        }
        for round_, what in enumerate([*expected, *expected]):
            answer, lasting = executor.judge({"what": what})
            assert (answer["status"], lasting) == expected[what]
            assert answer["gpu"] == "Stand-in"
            start = time.monotonic()
            answer, lasting = executor.judge({"what": "good"})
            assert (answer["status"], lasting) == ("correct", True)
            assert time.monotonic() - start < 2.0
            assert executor.restarts == round_ + 1
        first = executor.judge({"what": "good"})[0]["pid"]
        assert executor.judge({"what": "good"})[0]["pid"] == first
    finally:
        executor.close()


def test_a_machine_without_a_gpu_is_a_users_error() -> None:
    with pytest.raises(UserError, match="the GPU executor does not start"):
        GpuExecutor("tests.judge.no_such_module")
