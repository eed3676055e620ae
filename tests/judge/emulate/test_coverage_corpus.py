"""Every coverage kernel leaves what numpy computed, bit by bit unless a tolerance is given."""

import functools
from typing import Any

import numpy as np
import pytest

from components.judge.compile import compile_program
from components.judge.emulate.machine import EmuBuffer, Emulation, EmulatorLimits, EmuLaunch, load_ptx, run
from tests.judge.emulate.coverage_base import CoverageKernel
from tests.judge.emulate.coverage_kernels import KERNELS


@functools.cache
def ptx_of(source: str, arch: str) -> str:
    """The PTX of a coverage kernel; what is PTX already stays."""
    return source if source.startswith(".version") else compile_program(source, arch).ptx


def run_ptx(kernel: CoverageKernel, ptx: str, limits: EmulatorLimits | None = None) -> tuple[Emulation, Any]:
    """Run PTX as the kernel's launch says; the outcome and y."""
    y = np.zeros_like(kernel.expected) if kernel.before is None else kernel.before.copy()
    buffers, args = [], []
    for number, value in enumerate(kernel.inputs):
        if isinstance(value, np.ndarray) and value.ndim:
            buffers.append(EmuBuffer(f"a{number}", value))
            args.append(f"a{number}")
        else:
            args.append(value)
    buffers.append(EmuBuffer("y", y, writable=True, initialised=kernel.before is not None))
    launch = EmuLaunch("k", (kernel.grid, 1, 1), (kernel.block, 1, 1), kernel.shared, (*args, "y"))
    return run(load_ptx(ptx), [launch], buffers, limits), y


CASES = [
    pytest.param(kernel, arch, id=f"{kernel.name}-{arch}", marks=[pytest.mark.slow] if number else [])
    for kernel in KERNELS
    for number, arch in enumerate(kernel.archs)
]


@pytest.mark.parametrize(("kernel", "arch"), CASES)
def test_kernel(kernel: CoverageKernel, arch: str) -> None:
    result, y = run_ptx(kernel, ptx_of(kernel.source, arch))
    assert (result.status, result.message) == ("ok", "")
    if kernel.rtol:
        kind = kernel.view or y.dtype
        found, expected = (v.view(kind).astype(np.float64) for v in (y, kernel.expected))
        np.testing.assert_allclose(found, expected, rtol=kernel.rtol, atol=kernel.rtol)
    else:
        size = y.dtype.itemsize
        np.testing.assert_array_equal(y.view(f"u{size}"), kernel.expected.view(f"u{size}"))


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [kernel.name for kernel in KERNELS]
    assert len(names) == len(set(names)) >= 60
