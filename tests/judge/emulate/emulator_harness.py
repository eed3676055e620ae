"""Compile a small CUDA kernel with NVRTC and run it on the interpreter."""

from functools import cache
from typing import Any

import numpy as np

from components.judge.emulate.machine import EmuBuffer, Emulation, EmulatorLimits, EmuLaunch, load_ptx, run


@cache
def compile_ptx(source: str, arch: str = "sm_90") -> str:
    """PTX with line information."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture=compute_{arch[3:]}".encode(), b"-lineinfo", b"--std=c++17", b"-default-device"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.rstrip(b"\0").decode()


def execute(
    source: str,
    inputs: dict[str, Any],
    outputs: dict[str, np.ndarray[Any, Any]],
    grid: int | tuple[int, int, int] = 1,
    block: int | tuple[int, int, int] = 32,
    shared: int = 0,
    arch: str = "sm_90",
    limits: EmulatorLimits | None = None,
    initialised: bool = False,
) -> Emulation:
    """Run kernel `k`; its parameters are the inputs (arrays or scalars), then the outputs, in dictionary order."""
    module = load_ptx(compile_ptx(source, arch))
    buffers, args = [], []
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and value.ndim:
            buffers.append(EmuBuffer(name, value))
            args.append(name)
        else:
            args.append(value)
    for name, value in outputs.items():
        buffers.append(EmuBuffer(name, value, writable=True, initialised=initialised))
        args.append(name)
    grid3 = grid if isinstance(grid, tuple) else (grid, 1, 1)
    block3 = block if isinstance(block, tuple) else (block, 1, 1)
    return run(module, [EmuLaunch("k", grid3, block3, shared, tuple(args))], buffers, limits)
