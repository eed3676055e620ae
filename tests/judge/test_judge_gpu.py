"""The GPU executor's own logic on a stand-in for the device that runs Python functions as kernels."""

import base64
import time
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from components.errors import UserError
from components.judge.compile import compile_program
from components.judge.device_kernels import CHECKS, NUMBERS
from components.judge.emulate.machine import EmuBuffer, EmulatorLimits, EmuLaunch, load_ptx, run
from components.judge.executor import Executor
from components.judge.gpu import GpuExecutor
from components.judge.handover import Handover
from components.judge.prepare import job_of, shuffled_case
from components.judge.splitmix import mix
from components.judge.timing import Side
from components.judge.verify import draw, draw_keys
from components.kernel.operators import OPERATORS
from components.kernel.precision import PRECISIONS
from components.matrix.types import SparseMatrix
from tests.judge.device_stand_in import StandIn

SOURCE = """// format: csr
// launch: spmv grid=ceil_div(rows, 64) block=64
extern "C" __global__ void spmv(const int* row_ptr, const int* col_idx, const float* values, const float* x, float* y,
                                int rows) {
}
"""
FACTS = MappingProxyType({"copy_bandwidth": 4e6, "l2_bandwidth": 8e6, "launch_us": 1.0, "replay_us": 0.0})


def product(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    for row in range(len(bounds) - 1):
        part = slice(bounds[row], bounds[row + 1])
        y[row] = np.sum(values[part].astype(np.float64) * x[columns[part]])


class Library:
    """One library product that takes 20 us."""

    nbytes = 1
    made = 0

    def __init__(self, device: Any, matrix: Any, *problem: Any, pattern: Any, draws: Any, known: Any) -> None:
        Library.made += 1

        def once() -> None:
            device.elapsed += 20.0

        def replay() -> None:
            for _ in range(20):
                once()

        self.times = known or {"cusparse:csr_alg2": 20.0, "cupy:csr_dot": 60.0}
        self.best = Side("cusparse:csr_alg2", replay, 20, once)


def target(rows: int = 50, seed: int = 3) -> SparseMatrix:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, rows)
    columns = [np.sort(rng.choice(40, length, replace=False)) for length in lengths]
    return SparseMatrix(
        "m", "test", rows, 40, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate(columns).astype(np.int32), np.ones(int(lengths.sum())),
    )  # fmt: skip


def request(tmp_path: Any, **changes: Any) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "cubin": base64.b64encode(b"cubin").decode(),
        "code_hash": "0" * 64,
        "operator": "spmv",
        "width": 1,
        "precision": "float32",
        "matrix": Handover(tmp_path).describe(target()),
        "adversarial": True,
        "deadline_s": 1.0,
        "facts": dict(FACTS),
        "baselines": None,
        **changes,
    }


def judge(device: StandIn, tmp_path: Any, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    stages: list[str] = []
    return Executor(device, Library).judge(request(tmp_path, **changes), stages.append), stages


def test_a_right_kernel_is_timed_against_the_fastest_library(tmp_path: Any) -> None:
    answer, stages = judge(StandIn(product), tmp_path)
    assert answer["status"] == "correct", answer
    assert stages == ["check", "time"]
    assert (answer["timing"], answer["baseline"]) == ("measured", "cusparse:csr_alg2")
    assert answer["baselines"] == {"cusparse:csr_alg2": 20.0, "cupy:csr_dot": 60.0}
    assert answer["time_us"] == pytest.approx(10.0)
    assert answer["speedup"] == pytest.approx(2.0)
    assert answer["speedup_interval"] == pytest.approx((2.0, 2.0))
    assert answer["time_cold_us"] == pytest.approx(13.0)
    assert answer["speedup_cold"] == pytest.approx(23.0 / 13.0)
    assert answer["reliable"]
    assert answer["unreliable_because"] is None
    assert answer["clocks"]["sm_mhz"] == 1980
    assert answer["floor_us"] == pytest.approx(1.0)


def test_the_adversarial_set_is_run_once_for_each_code(tmp_path: Any) -> None:
    runs = 0

    def counted(*arrays: Any) -> None:
        nonlocal runs
        runs += 1
        product(*arrays)

    executor, took = Executor(StandIn(counted), Library), []
    for changes in ({}, {}, {"code_hash": "1" * 64}, {"width": 1, "adversarial": False}):
        before = runs
        assert executor.judge(request(tmp_path, **changes), lambda stage: None)["status"] == "correct"
        took.append(runs - before)
    assert took[1] == took[3] < took[0] == took[2]


def test_a_time_under_the_floor_or_on_a_throttled_gpu_is_not_reliable(tmp_path: Any) -> None:
    answer, _ = judge(StandIn(product, program_us=0.5), tmp_path)
    assert not answer["reliable"]
    assert answer["unreliable_because"] == "0.5 us is under the physical floor of 1 us"
    device = StandIn(product)
    device.throttle = "power cap"
    answer, _ = judge(device, tmp_path)
    assert answer["unreliable_because"] == "clocks held down: power cap"


def test_faults_of_every_kind_are_told_apart(tmp_path: Any) -> None:
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
        answer, _ = judge(StandIn(kernel), tmp_path)
        assert answer["status"] == status, answer
        assert not answer.get("poisoned")
        assert answer["failed_on"]
    answer, _ = judge(StandIn(input_written), tmp_path)
    assert answer["message"] == "wrote element 0 of values, an input"
    answer, _ = judge(StandIn(zeros), tmp_path)
    assert "got 0, expected" in answer["message"]


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        (700, "illegal_access", "device error 700 on the device"),
        (600, "timeout", "still running after 0.1 s"),
    ],
)
def test_device_errors_cost_the_context(tmp_path: Any, status: int, expected: str, message: str) -> None:
    answer, _ = judge(StandIn(product, status), tmp_path, deadline_s=0.1)
    assert (answer["status"], answer["message"], answer["poisoned"]) == (expected, message, True)
    assert answer["failed_on"] == "adversarial/mixed"


def test_state_between_calls_is_seen(tmp_path: Any) -> None:
    """The second run finds other numbers at the same addresses."""
    memory: dict[int, Any] = {}

    def remembers(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        key = y.ctypes.data
        if key not in memory:
            product(bounds, columns, values, x, y)
            memory[key] = y[: len(bounds) - 1].copy()
        y[: len(bounds) - 1] = memory[key][: len(bounds) - 1]

    answer, _ = judge(StandIn(remembers), tmp_path)
    assert answer["status"] == "wrong"


@pytest.mark.parametrize("honest_runs", [40, 60, 80])
def test_a_program_that_stops_working_once_it_is_timed_is_caught(tmp_path: Any, honest_runs: int) -> None:
    """Right while it is checked, then the stale output is left: the timed output is audited on redrawn numbers."""
    calls = 0

    def lazy(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        nonlocal calls
        calls += 1
        if calls <= honest_runs:
            product(bounds, columns, values, x, y)

    answer, _ = judge(StandIn(lazy), tmp_path)
    assert answer["status"] == "wrong"
    assert answer["message"].endswith("(after timing)")


def test_a_program_that_knows_the_order_of_the_rows_is_caught(tmp_path: Any) -> None:
    bounds_known = target().row_ptr.astype(np.int32)

    def knows(bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        if len(bounds) == len(bounds_known):
            bounds = bounds_known
        product(bounds, columns, values, x, y)

    answer, _ = judge(StandIn(knows), tmp_path)
    assert (answer["status"], answer["failed_on"]) == ("wrong", "test/m (rows shuffled)")


def test_the_shuffled_target_has_the_same_rows(tmp_path: Any) -> None:
    job = job_of(request(tmp_path))
    case = shuffled_case(job)
    assert case is not None
    matrix = target()
    rows = {tuple(matrix.col_idx[a:b]) for a, b in zip(matrix.row_ptr, matrix.row_ptr[1:], strict=False)}
    mixed = case.matrix
    found = [tuple(mixed.col_idx[a:b]) for a, b in zip(mixed.row_ptr, mixed.row_ptr[1:], strict=False)]
    assert set(found) == rows
    assert not np.array_equal(np.diff(mixed.row_ptr), np.diff(matrix.row_ptr))


def test_a_program_against_itself_is_even(tmp_path: Any) -> None:
    answer, _ = judge(StandIn(product), tmp_path, self_duel=True)
    assert (answer["baseline"], answer["speedup"]) == ("itself", pytest.approx(1.0))


def test_a_matrix_is_made_resident_once(tmp_path: Any) -> None:
    executor = Executor(StandIn(product), Library)
    Library.made = 0
    executor.prepare(request(tmp_path) | {"source": None})
    assert Library.made == 1
    for _ in range(3):
        assert executor.judge(request(tmp_path), lambda stage: None)["status"] == "correct"
    assert Library.made == 1


def test_whatever_a_program_does_to_an_executor_the_next_verdict_comes() -> None:
    wall_s = {"start": 60.0, "check": 1.5, "time": 60.0}
    executor = GpuExecutor("tests.judge.hostile_executor", wall_s)
    try:
        assert executor.identity["gpu"] == "Stand-in"
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
            assert time.monotonic() - start < 10.0
            assert executor.restarts == round_ + 1
        first = executor.judge({"what": "good"})[0]["pid"]
        assert executor.judge({"what": "good"})[0]["pid"] == first
        assert executor.spent_s["all"] > 0
    finally:
        executor.close()


def test_baselines_are_measured_once_a_session() -> None:
    executor = GpuExecutor("tests.judge.hostile_executor")
    try:
        described = {"matrix": {"key": "k"}, "operator": "spmv", "width": 1, "precision": "float32"} | {"what": "good"}
        assert executor.judge(dict(described))[0]["known"] is None
        assert executor.judge(dict(described))[0]["known"] == {"library": 1.0}
        assert executor.judge(described | {"what": "poison"})[0]["status"] == "illegal_access"
        assert executor.judge(dict(described))[0]["known"] == {"library": 1.0}  # of the next process too
    finally:
        executor.close()


def test_a_gpu_that_is_not_there_is_a_users_error() -> None:
    with pytest.raises(UserError, match="gpu"):
        GpuExecutor("components.judge.gpu_worker", spares=0)


# The entry comes by value: the interpreter follows no address that lies in memory.
AUDIT_ONE = """
extern "C" __global__ void audit_one(unsigned* arena, const unsigned* pristine, unsigned long long words,
    unsigned long long out_first, unsigned long long out_words, const unsigned long long* expected,
    const unsigned long long* bound, unsigned long long element_words, unsigned long long key,
    unsigned long long* results) {
  audit_arena({arena, pristine, words, out_first, out_words, expected, bound, 1, element_words}, key, results);
}
"""


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_answers_lie_on_the_device_under_a_pad_that_its_audit_takes_off(kind: Any) -> None:
    """The judge's own audit kernel, run by the interpreter: right, wrong, changed and unreadable arenas."""
    module = load_ptx(compile_program(CHECKS + AUDIT_ONE, "sm_90").ptx)
    key = np.uint64(0xFEDCBA9876543210)
    expected, bound = np.array([1.5, -2.0, 0.0]), np.array([1e-6, 1e-6, 0.0])
    index = np.arange(3, dtype=np.uint64)
    assert not np.isclose((expected.view(np.uint64) ^ mix(key, index)).view(np.float64), expected).any()
    pristine = np.full(16, 0xFFFFFFFF, np.uint32)
    pristine[:4] = [1, 2, 3, 4]

    nothing = 2**64 - 1

    def audit(output: list[float], change: int | None = None) -> list[int]:
        arena = pristine.copy()
        words = np.array(output, kind).view(np.uint32)
        arena[8 : 8 + len(words)] = words
        if change is not None:
            arena[change] ^= 1
        results = np.array([2**64 - 1, 2**64 - 1, 0] * 2, np.uint64)
        arrays = {
            "arena": arena, "pristine": pristine, "expected": expected.view(np.uint64) ^ mix(key, index),
            "bound": bound.view(np.uint64) ^ mix(key, index), "results": results,
        }  # fmt: skip
        buffers = [EmuBuffer(n, a, n == "results", True) for n, a in arrays.items()]
        numbers = (np.uint64(16), np.uint64(8), np.uint64(len(words)))
        element_words = np.uint64(len(words) // 3)
        arguments = ("arena", "pristine", *numbers, "expected", "bound", element_words, key, "results")
        launch = EmuLaunch("audit_one", (2, 1, 1), (256, 1, 1), 0, arguments)
        answer = run(module, [launch], buffers, EmulatorLimits(100_000))
        assert answer.status == "ok", answer.message
        assert list(results[:3]) == [nothing, nothing, 0]  # of another slot
        return [int(word) for word in results[3:]]

    assert audit([1.5, -2.0, 0.0]) == [nothing, nothing, 0]
    assert audit([1.5, -2.1, 0.0]) == [nothing, 1, 1]
    assert audit([float("nan"), -2.0, 1e-30]) == [nothing, 0, 2]
    assert audit([1.5, -2.0, 0.0], change=2) == [2, nothing, 0]
    assert audit([1.5, -2.0, 0.0], change=15) == [15, nothing, 0]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_values_of_every_size_are_scattered(kind: Any) -> None:
    """The judge's own scatter kernel, run by the interpreter."""
    module = load_ptx(compile_program(CHECKS, "sm_90").ptx)
    values = np.arange(1, 701).astype(kind)
    slots = np.random.default_rng(2).permutation(1000)[:700]
    target = np.zeros(1000, kind)
    buffers = [EmuBuffer("target", target, True, True), EmuBuffer("values", values, False, True)]
    buffers.append(EmuBuffer("slots", slots, False, True))
    sizes = np.uint64(len(values)), np.uint64(values.itemsize)
    launch = EmuLaunch("scatter", (2, 1, 1), (256, 1, 1), 0, ("target", "values", "slots", *sizes))
    answer = run(module, [launch], buffers, EmulatorLimits(100_000))
    assert answer.status == "ok", answer.message
    right = np.zeros(1000, kind)
    right[slots] = values
    assert np.array_equal(target, right)


@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
def test_the_device_draws_what_the_host_draws(precision: Any, width: int) -> None:
    """The judge's own kernels that make numbers and answers, run by the interpreter: equal to the last bit."""
    matrix, operator = target(), OPERATORS["spmv" if width == 1 else "spmm"]
    host = draw(matrix, operator, width, 2, precision)
    of_values, of_rows, of_dense, _ = draw_keys(matrix, operator.name, width, 2)
    module = load_ptx(compile_program(CHECKS + NUMBERS, "sm_90").ptx)
    secret, kind = np.uint64(0xFEDCBA9876543210), np.uint64(list(PRECISIONS).index(precision.name))
    elements, count = matrix.rows * width, matrix.cols * width
    arrays = {
        "row_ptr": matrix.row_ptr.astype(np.int32), "col_idx": matrix.col_idx,
        "values": np.zeros(matrix.nnz, precision.value_dtype), "dense": np.zeros(count, precision.value_dtype),
        "expected": np.zeros(elements, np.uint64), "bound": np.zeros(elements, np.uint64),
    }  # fmt: skip
    rows, lanes = np.int32(matrix.rows), np.int32(min(32, 1 << (width - 1).bit_length()))
    roundoff = np.float64(4 * precision.unit_roundoff)
    operands = ("row_ptr", "col_idx", "values", "dense", rows, np.int32(width), lanes, roundoff, secret, kind)
    launches = [
        EmuLaunch(kernel, (2, 1, 1), (256, 1, 1), 0, arguments)
        for kernel, arguments in {
            "draw_values": ("values", "row_ptr", rows, np.float64(precision.tiny), of_values, of_rows, kind),
            "draw_dense": ("dense", np.uint64(count), of_dense, kind),
            "answer": ("expected", "bound", *operands),
        }.items()
    ]
    buffers = [EmuBuffer(name, array, name not in ("row_ptr", "col_idx"), True) for name, array in arrays.items()]
    answer = run(module, launches, buffers, EmulatorLimits(10_000_000))
    assert answer.status == "ok", answer.message
    assert np.array_equal(arrays["values"], host.values)
    assert np.array_equal(arrays["dense"], next(iter(host.inputs.values())).ravel())
    pad = mix(secret, np.arange(elements, dtype=np.uint64))
    expected, bound = ((arrays[name] ^ pad).view(np.float64) for name in ("expected", "bound"))
    assert np.allclose(expected, host.expected, rtol=1e-13, atol=1e-15)
    assert np.allclose(bound, host.bound, rtol=1e-13)
