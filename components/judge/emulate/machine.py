"""Run PTX on the CPU with every access checked: `load_ptx`, then `run`.

The machine owns the memory of one run: buffers (copied in, copied back when writable), shared and local memory,
shadow words for races and initialisation, and a small model of each multiprocessor's L1. A run is deterministic.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.judge.emulate import layout
from components.judge.emulate.arena import Memory, address_of, prepare, window
from components.judge.emulate.outcome import explain, traffic_of
from components.judge.emulate.ptx_text import Refused, Tampered, Unsupported, Variable, split_module
from components.judge.emulate.records import EmuBuffer, Emulation, EmulatorLimits, EmuLaunch, Traffic
from components.judge.emulate.translate import EntryCode, Translator

__all__ = ["EmuBuffer", "EmuLaunch", "Emulation", "EmulatorLimits", "PtxModule", "Refused", "Tampered", "Traffic",
           "Unsupported", "load_ptx", "run", "warm_up"]  # fmt: skip

MAX_BLOCK, MAX_GRID_X, MAX_GRID_YZ = 1024, 2**31 - 1, 65535  # CUDA C++ Programming Guide, compute capabilities
MAX_BLOCK_Z = 64
MAX_STATIC_SHARED = 48 * 1024


@dataclass(frozen=True)
class PtxModule:
    """A loaded module: bytecode of every entry and its read-only module variables."""

    entries: Mapping[str, EntryCode]
    variables: tuple[Variable, ...]  # const and initialised global ones, in window order


def load_ptx(ptx: str) -> PtxModule:
    """Translate PTX (compiled with -lineinfo for source lines).

    Raises:
        Unsupported: an instruction or form that the interpreter does not run.
        Tampered: clocks, writable module-scope state, printf or malloc, L2 pinning.
    """
    try:
        return _load(ptx)
    except (ArithmeticError, LookupError, ValueError) as error:  # text that no compiler writes
        raise Unsupported(f"malformed PTX ({type(error).__name__}: {' '.join(str(error).split())[:80]})") from error


def _load(ptx: str) -> PtxModule:
    variables, functions, entries = split_module(ptx)
    if not entries:
        raise Unsupported("no entry in the PTX")
    tables = [v for v in variables if v.space in ("const", "global") and v.initial is not None]
    places: dict[str, tuple[str, int]] = {}
    for index, variable in enumerate(tables):
        places[variable.name] = (variable.space, window(index))
    shared = 0
    for variable in variables:
        if variable.space == "shared" and variable.size:
            shared = -(-shared // variable.align) * variable.align
            places[variable.name] = ("shared", shared)
            shared += variable.size
    stateful = {v.name for v in variables if v.space == "global" and v.initial is None}
    dynamic = [v for v in variables if v.space == "shared" and not v.size]
    code = {}
    for name, entry in entries.items():
        code[name] = _entry(entry, functions, places, shared, stateful, dynamic)
    return PtxModule(code, tuple(tables))


def _entry(entry: Any, functions: Any, places: dict[str, tuple[str, int]], shared: int, stateful: set[str],
           dynamic: list[Variable]) -> EntryCode:  # fmt: skip
    """Translate twice when dynamic shared memory must start after static variables found on the way."""
    start = shared
    for _ in range(2):
        known = dict(places)
        for variable in dynamic:
            align = max(variable.align, 16)
            known[variable.name] = ("shared", -(-start // align) * align)
        translator = _Translator(entry, functions, known, shared)
        translator.stateful = stateful
        code = translator.run()
        if not dynamic or code.shared_static == start:
            break
        start = code.shared_static
    return code


class _Translator(Translator):
    """Refuses module-scope memory that could carry state from one launch to the next."""

    stateful: set[str] = set()  # noqa: RUF012  (replaced per instance)

    def literal(self, token: str, kind: str) -> Any:
        self._refuse(token)
        return super().literal(token, kind)

    def address(self, token: str) -> tuple[int, int, int]:
        self._refuse(token.strip("[] ").split("+")[0].strip())
        return super().address(token)

    def _refuse(self, name: str) -> None:
        if name in self.stateful:
            raise Tampered(f"uses the writable module-scope variable {name}", self.line)


_warm = threading.Lock()


def warm_up() -> None:
    """Compile the core, or load it from the cache, ahead of the first run."""
    _core()


def _core() -> Any:
    with _warm:
        from components.judge.emulate.compiled import run_grid

        return run_grid


def run(
    module: PtxModule,
    launches: Sequence[EmuLaunch],
    buffers: Sequence[EmuBuffer],
    limits: EmulatorLimits | None = None,
) -> Emulation:
    """Run launches in order until the first fault.

    Args:
        module: from `load_ptx`.
        launches: executed one after another; each sees what the previous wrote.
        buffers: by name; writable ones are changed in place.
        limits: of the run.

    Returns:
        The status with source line, block and thread of a fault, and one `Traffic` per completed launch.

    Raises:
        ValueError: a launch names an unknown buffer or a buffer is not 1-D contiguous (the caller's mistake).
    """
    limits = limits or EmulatorLimits()
    core = _core()
    memory = Memory(module.variables, buffers, limits)
    state = memory.keep(layout.STATE_WORDS, np.int64)
    traffic: list[Traffic] = []
    try:
        for number, launch in enumerate(launches):
            code = module.entries.get(launch.entry)
            problem = _launch_problem(code, launch, limits, module)
            if problem or code is None:
                return Emulation("launch_error", problem, traffic=tuple(traffic), launch=number)
            before = int(state[layout.S_SEQ // 8])
            if 0 in launch.grid:
                return Emulation("launch_error", "empty grid", traffic=tuple(traffic), launch=number)
            prepare(memory, state, code, launch, limits)
            fault = int(core(address_of(state)))
            if fault:
                return explain(fault, state, memory, launch, number, tuple(traffic))
            traffic.append(traffic_of(state, before, code, launch, memory.loads))
    finally:
        memory.copy_back()
    return Emulation("ok", traffic=tuple(traffic))


def _launch_problem(code: EntryCode | None, launch: EmuLaunch, limits: EmulatorLimits, module: PtxModule) -> str:
    if code is None:
        return f"no kernel {launch.entry}; the program has {', '.join(module.entries)}"
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if min(launch.block) < 1 or threads > MAX_BLOCK or launch.block[2] > MAX_BLOCK_Z:
        return f"block of {threads} threads {launch.block}: at most {MAX_BLOCK}, z at most {MAX_BLOCK_Z}"
    if code.max_threads is not None and threads > code.max_threads:
        return f"block of {threads} threads: the kernel declares at most {code.max_threads}"
    if min(launch.grid) < 0 or launch.grid[0] > MAX_GRID_X or max(launch.grid[1:]) > MAX_GRID_YZ:
        return f"grid {launch.grid}: at most ({MAX_GRID_X}, {MAX_GRID_YZ}, {MAX_GRID_YZ})"
    if code.shared_static > MAX_STATIC_SHARED:
        return f"{code.shared_static} bytes of static shared memory: at most {MAX_STATIC_SHARED}"
    if launch.shared_bytes < 0 or code.shared_static + launch.shared_bytes > limits.max_shared_bytes:
        total = code.shared_static + launch.shared_bytes
        return f"{total} bytes of shared memory a block: at most {limits.max_shared_bytes}"
    if len(launch.args) != len(code.parameters):
        return f"{launch.entry} takes {len(code.parameters)} arguments, {len(launch.args)} given"
    warps = -(-threads // layout.LANES)
    if warps * (code.register_bytes + layout.LANES * code.local_bytes) > limits.max_threads_memory:
        return f"{code.local_bytes} bytes of local memory a thread"
    return ""
