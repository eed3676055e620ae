"""Kernel source to PTX and cubin through NVRTC, in this process.

Call it in a worker that may be killed: templates and macros can make a compiler run for ever (components/judge/pool.py
sets the limits). About 45 ms for a small kernel.
"""

import functools
import importlib
import re
from dataclasses import dataclass
from typing import Any, Protocol

from components.errors import UserError
from components.judge.headers import headers_for, unknown_include

_FILE = "kernel.cu"
# -minimal leaves out textures, device-side launches and the runtime API: 5 ms faster, and none of it is allowed anyway.
# `--no-cache`: NVRTC keeps a cache of its own beside a driver, and what comes out of it has no resource report.
OPTIONS = ("--std=c++17", "-lineinfo", "--minimal", "--no-source-include", "--no-cache", "--ptxas-options=-v")
_MESSAGE = re.compile(rf"^{re.escape(_FILE)}\((\d+)\): (?:catastrophic )?error\s*(?:#\S+)?:?\s*(.*)$")


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """What ptxas reports of one kernel: registers per thread, bytes spilled per thread, static shared bytes."""

    registers: int
    spill_bytes: int  # stores + loads
    shared_bytes: int


class CompileError(Exception):
    """The compiler rejects a program; `line` is the first error's line in the source."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message)
        self.message, self.line = message, line


@dataclass(frozen=True)
class Compiled:
    """PTX text (with its line table), the cubin for one architecture, and what each kernel needs."""

    arch: str
    compiler: str
    ptx: str
    cubin: bytes
    resources: dict[str, Resources]


class _Nvrtc(Protocol):
    """What is needed of NVRTC, whichever package brings it."""

    name: str

    def version(self) -> tuple[int, int]: ...

    def architectures(self) -> list[int]: ...

    def compile(self, source: str, options: list[str], headers: dict[str, str]) -> tuple[bool, str, bytes, bytes]: ...


class _CudaBindings:
    """NVRTC through cuda-bindings and the nvidia-cuda-nvrtc wheel."""

    name = "cuda-bindings"

    def __init__(self) -> None:
        self._nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        self.version()  # loads the library, so that a missing one shows here

    def _get(self, result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise UserError(f"NVRTC: {self._nvrtc.nvrtcGetErrorString(result[0])[1].decode()}")
        return result[1] if len(result) == 2 else result[1:]

    def version(self) -> tuple[int, int]:
        major, minor = self._get(self._nvrtc.nvrtcVersion())
        return int(major), int(minor)

    def architectures(self) -> list[int]:
        return [int(arch) for arch in self._get(self._nvrtc.nvrtcGetSupportedArchs())]

    def compile(self, source: str, options: list[str], headers: dict[str, str]) -> tuple[bool, str, bytes, bytes]:
        nvrtc = self._nvrtc
        texts, names = [text.encode() for text in headers.values()], [name.encode() for name in headers]
        program = self._get(nvrtc.nvrtcCreateProgram(source.encode(), _FILE.encode(), len(names), texts, names))
        try:
            (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
            size = self._get(nvrtc.nvrtcGetProgramLogSize(program))
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            text = log.rstrip(b"\0 ").decode(errors="replace")
            if int(error) != 0:
                return False, text or nvrtc.nvrtcGetErrorString(error)[1].decode(), b"", b""
            ptx = b" " * self._get(nvrtc.nvrtcGetPTXSize(program))
            nvrtc.nvrtcGetPTX(program, ptx)
            cubin = b" " * self._get(nvrtc.nvrtcGetCUBINSize(program))
            nvrtc.nvrtcGetCUBIN(program, cubin)
            return True, text, ptx, cubin
        finally:
            nvrtc.nvrtcDestroyProgram(program)


class _Cupy:
    """NVRTC through cupy's own bindings: a GPU host that has cupy but not cuda-bindings."""

    name = "cupy"

    def __init__(self) -> None:
        self._nvrtc: Any = importlib.import_module("cupy_backends.cuda.libs.nvrtc")

    def version(self) -> tuple[int, int]:
        major, minor = self._nvrtc.getVersion()
        return int(major), int(minor)

    def architectures(self) -> list[int]:
        return [int(arch) for arch in self._nvrtc.getSupportedArchs()]

    def compile(self, source: str, options: list[str], headers: dict[str, str]) -> tuple[bool, str, bytes, bytes]:
        nvrtc = self._nvrtc
        program = nvrtc.createProgram(source, _FILE, list(headers.values()), list(headers))
        try:
            try:
                nvrtc.compileProgram(program, options)
            except nvrtc.NVRTCError as error:
                return False, nvrtc.getProgramLog(program) or str(error), b"", b""
            ptx = nvrtc.getPTX(program)
            data = ptx.encode() if isinstance(ptx, str) else ptx
            return True, nvrtc.getProgramLog(program), data, nvrtc.getCUBIN(program)
        finally:
            nvrtc.destroyProgram(program)


@functools.cache
def _nvrtc() -> _Nvrtc:
    reasons = []
    for kind in (_CudaBindings, _Cupy):
        try:
            return kind()
        except (ImportError, RuntimeError, OSError) as error:  # cuda-pathfinder raises a RuntimeError
            reasons.append(f"{kind.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    raise UserError(f"NVRTC was not found ({'; '.join(reasons)}); install nvidia-cuda-nvrtc and cuda-bindings")


def compiler_version() -> str:
    """`nvrtc 13.5 (cuda-bindings)`: the compiler and the package it was reached through."""
    nvrtc = _nvrtc()
    major, minor = nvrtc.version()
    return f"nvrtc {major}.{minor} ({nvrtc.name})"


def known_architectures() -> tuple[str, ...]:
    """The architectures that this NVRTC compiles for, `sm_XX`, oldest first."""
    return tuple(f"sm_{number}" for number in _nvrtc().architectures())


def check_architecture(arch: str) -> None:
    """Raise UserError, naming the known ones, when NVRTC does not know `arch`."""
    if arch not in known_architectures():
        known = ", ".join(known_architectures())
        raise UserError(f"architecture {arch!r}: {compiler_version()} knows {known}")


def compile_program(source: str, arch: str) -> Compiled:
    """Compile device code for one architecture.

    Args:
        source: CUDA C++; may include the headers of components/judge/headers.py and no others.
        arch: `sm_90` and the like, one of `known_architectures()`.

    Raises:
        CompileError: the source does not compile, or has no kernel.
        UserError: NVRTC or the architecture is not there.
    """
    nvrtc = _nvrtc()
    if (bad := unknown_include(source)) is not None:
        raise CompileError(f"#include of {bad[1]}: not among the headers offered", bad[0])
    options = [f"--gpu-architecture={arch}", *OPTIONS]
    good, log, ptx, cubin = nvrtc.compile(source, options, headers_for(source))
    if not good:
        raise _compile_error(log)
    resources = read_resources(log)
    if not resources:
        raise CompileError('no kernel in the compiled code; expected an extern "C" __global__ function')
    return Compiled(arch, compiler_version(), ptx.rstrip(b"\0 ").decode(), cubin, resources)


def read_resources(log: str) -> dict[str, Resources]:
    """Resources by kernel name, from what `ptxas -v` prints.

    Raises:
        ValueError: a kernel is named without its registers or spills: ptxas prints something else than expected.
    """
    found: dict[str, Resources] = {}
    for section in re.split(r"(?=Compiling entry function)", log)[1:]:
        entry, spills, registers = _ENTRY.match(section), _SPILLS.search(section), _REGISTERS.search(section)
        if entry is None or spills is None or registers is None:
            raise ValueError(f"ptxas -v: expected registers and spills, found {section.splitlines()[0]!r}")
        shared = _SHARED.search(section)
        found[entry.group(1)] = Resources(
            int(registers.group(1)), int(spills.group(1)) + int(spills.group(2)), int(shared.group(1)) if shared else 0
        )
    return found


def _compile_error(log: str) -> CompileError:
    """The first error in the program's own lines; of any other file nothing is told but that it did not compile."""
    for text in log.splitlines():
        if match := _MESSAGE.match(text.strip()):
            return CompileError(match.group(2).strip() or "does not compile", int(match.group(1)))
    if match := re.search(r"^(?:ptxas|nvrtc)\b.*?error\s*:\s*(.*)$", log, re.MULTILINE):
        return CompileError(match.group(1).strip())
    return CompileError("does not compile")
