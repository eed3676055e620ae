"""cp.async and matrix instructions misused: each fault is found; the same program with its wait or barrier is clean."""

# ruff: noqa: E501  (CUDA sources)

import numpy as np
import pytest

from components.judge.emulate.machine import Emulation
from tests.judge.emulate.emulator_harness import execute

X = np.arange(128, dtype=np.float32)
HEAD = """extern "C" __global__ void k(const float* x, float* y) { __shared__ __align__(16) float s[128]; int t = threadIdx.x;
unsigned to = (unsigned)__cvta_generic_to_shared(s); """
COPY = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to + 4 * t), "l"(x + t) : "memory"); '
COMMIT = 'asm volatile("cp.async.commit_group;" ::: "memory"); '
WAIT = 'asm volatile("cp.async.wait_group 0;" ::: "memory"); '
LEAVE_ONE = 'asm volatile("cp.async.wait_group 1;" ::: "memory"); '


def outcome(body: str, block: int = 64, grid: int = 1) -> tuple[Emulation, np.ndarray]:
    """Run a body; its result and y."""
    y = np.zeros(64, np.float32)
    return execute(f"{HEAD}\n{body} }}", {"x": X}, {"y": y}, grid, block), y


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (COPY + COMMIT + "y[t] = s[t];", "has not waited for"),
        (COPY + COMMIT + "__syncthreads(); y[t] = s[63 - t];", "has not waited for"),
        (COPY + WAIT + "y[t] = s[t];", "has not waited for"),  # the group was never committed
        (COPY + COMMIT + LEAVE_ONE + "y[t] = s[t];", "has not waited for"),
        (COPY + COMMIT + WAIT + "y[t] = s[63 - t];", "uninitialised"),
        (COPY + COMMIT + WAIT + "y[t] = s[t ^ 1];", "read of another thread's write"),
        (COPY + COMMIT + "s[t] = 1; y[t] = 1;", "has not waited for"),
        (COPY + COPY + COMMIT + WAIT + "y[t] = s[t];", "has not waited for"),  # two copies in flight to one place
        (COPY + COMMIT + "if (t < 32) " + WAIT + "__syncthreads(); y[t] = s[63 - t];", "has not waited for"),
        ("s[t ^ 32] = 1; " + COPY + COMMIT + WAIT + "y[t] = s[t];", "two threads write"),
        ("s[t] = 1; __syncthreads(); if (t < 32) y[t] = s[t]; else { to -= 128; " + COPY + "}", "write after another thread's read"),
        ("atomicAdd(s + t, 1.f);" + COPY, "uninitialised"),
        (COPY.replace("x + t", "x + 100 + t") + COMMIT + WAIT + "y[t] = s[t];", "out of bounds"),
        (COPY.replace("4 * t)", "4 * t + 2)"), "misaligned"),
        (COPY.replace("4 * t)", "8 * t + 256)"), "out of bounds"),
    ],
)  # fmt: skip
def test_fault_of_an_asynchronous_copy(body: str, message: str) -> None:
    found, _ = outcome(body)
    assert found.status in ("race", "illegal_access")
    assert message in found.message
    assert found.line == 3


@pytest.mark.parametrize(
    "body",
    [
        COPY + COMMIT + WAIT + "y[t] = s[t];",
        COPY + COMMIT + WAIT + "__syncthreads(); y[63 - t] = s[63 - t];",
        COPY + COMMIT + COMMIT + LEAVE_ONE + "__syncthreads(); y[63 - t] = s[63 - t];",
        COPY + COMMIT + WAIT + "__syncwarp(); y[t ^ 1] = s[t ^ 1];",
        "s[t] = 1; __syncthreads(); y[t] = s[t ^ 32]; __syncthreads(); " + COPY + COMMIT + WAIT + "y[t] = s[t];",
    ],
)
def test_a_copy_that_is_waited_for(body: str) -> None:
    found, y = outcome(body)
    assert (found.status, found.message) == ("ok", "")
    np.testing.assert_array_equal(y, X[:64])


def test_what_a_block_never_waits_for_does_not_haunt_the_next() -> None:
    found, y = outcome(
        "if (blockIdx.x == 0) {" + COPY + COMMIT + "} else { s[t] = 5; __syncthreads(); y[t] = s[63 - t]; }", grid=2
    )
    assert (found.status, found.message) == ("ok", "")
    assert set(y) == {5.0}


def test_a_copy_is_counted_as_one_load_request_a_warp() -> None:
    found, _ = outcome(
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to + 16 * (t & 31)), "l"(x + 4 * (t & 31)));'
        + COMMIT + WAIT + "y[t] = 1;", block=32)  # fmt: skip
    traffic = found.traffic[0]
    assert (traffic.load_requests, traffic.load_sectors, traffic.load_bytes) == (1, 16, 512)
    assert (traffic.shared_requests, traffic.store_requests, traffic.atomic_requests) == (1, 1, 0)


def test_a_vector_reduction_is_one_request_and_counts_every_element() -> None:
    y = np.zeros(128, np.float32)
    source = """extern "C" __global__ void k(float* y) { asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(y + 4 * threadIdx.x), "f"(1.f)); }"""
    traffic = execute(source, {}, {"y": y}, initialised=True).traffic[0]
    assert (traffic.atomic_requests, traffic.atomic_sectors, traffic.atomic_lanes) == (1, 16, 128)
    assert set(y) == {1.0}


def test_a_matrix_instruction_of_part_of_a_warp() -> None:
    body = """if (t > 40) return; float c[4] = {}; unsigned a = 0; asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a)); y[t] = c[0];"""
    found, _ = outcome(body)
    assert (found.status, found.message) == (
        "illegal_access",
        "k: a matrix instruction needs every lane of its warp; some have ended",
    )


def test_a_parameter_may_not_be_written() -> None:
    source = """struct S { float v[8]; }; extern "C" __global__ void k(const __grid_constant__ S s, float* y) {
      asm volatile("st.f32 [%0], %1;" :: "l"(s.v + (threadIdx.x & 7)), "f"(1.f) : "memory"); y[threadIdx.x] = s.v[threadIdx.x & 7]; }"""
    y = np.zeros(32, np.float32)
    found = execute(source, {"s": bytes(32)}, {"y": y})
    assert found.status == "tampered"
    assert "the kernel's parameters" in found.message
