"""Check a compiled program with the PTX interpreter: right on every matrix, and how long it would take on a GPU."""

from typing import Any

import numpy as np

from components.judge.compile import Resources, compile_program, compiler_version
from components.judge.emulate.machine import (
    EmuBuffer,
    Emulation,
    EmulatorLimits,
    EmuLaunch,
    PtxModule,
    Tampered,
    Unsupported,
    load_ptx,
    run,
    warm_up,
)
from components.judge.memo import Memo
from components.judge.model_time import (
    ARCHITECTURES,
    LaunchShape,
    architecture,
    bytes_moved,
    estimate_us,
    launch_problem,
)
from components.judge.prepare import NOTHING_TO_TIME, Buffer, Case, Job, buffers, cases, coverage_note, draws
from components.judge.verify import Draw, check_output
from components.kernel.operators import OPERATORS
from components.kernel.types import FormatNotApplicable, ProgramError

_MIN_INSTRUCTIONS = 300_000  # warp instructions that every program may take, however small its matrix
_SECOND_DRAW = 20_000  # warp instructions up to which a matrix is run with both draws of numbers
_TWICE = 1  # adversarial matrices that are; a program has no place to keep state in, so the rest need one
_MODULES: Memo[PtxModule] = Memo(64, lambda module: 1)

_WARM = """extern "C" __global__ void warm(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __shfl_xor_sync(0xffffffffu, x[i], 1) + 1.f;
}
"""


def preload_interpreter() -> None:
    """Compile or load the interpreter's own code by running one small kernel."""
    compiler_version()
    arch = next(iter(ARCHITECTURES))
    module = load_ptx(compile_program(_WARM, arch).ptx)
    arrays = [
        EmuBuffer("x", np.ones(32, np.float32), False, True),
        EmuBuffer("y", np.full(32, np.nan, np.float32), True, False),
    ]
    warm_up()
    launch = EmuLaunch("warm", (1, 1, 1), (32, 1, 1), 0, ("x", "y", np.int32(32)))
    answer = run(module, [launch], arrays, EmulatorLimits(10_000))
    if answer.status != "ok" or not np.array_equal(arrays[1].data, np.full(32, 2, np.float32)):
        raise RuntimeError(f"the interpreter is broken: {answer.status} {answer.message}")


def check(job: Job, ptx: str, resources: dict[str, Resources], arch: str, limits: dict[str, Any]) -> dict[str, Any]:
    """Run a program on the adversarial set, on its target, or on both.

    Args:
        job: says which.
        ptx: what NVRTC made of it.
        resources: by kernel.
        arch: `sm_XX` to model.
        limits: `instructions` per run, and `per_nonzero` per row, column and entry of the matrix.

    Returns:
        Fields of a Verdict as plain JSON types; the first failure ends the check.
    """
    try:
        module = _MODULES.get(ptx, lambda: load_ptx(ptx))  # the whole text: its line table tells equal code apart
    except Tampered as error:
        return {"status": "tampered", "message": str(error)}
    except Unsupported as error:
        return {"status": "unsupported", "message": str(error)}
    checked, target = 0, {}
    try:
        for case in cases(job):
            problem = _launch_problem(case, resources, arch)
            if problem is not None:
                return {"status": "launch_error", "message": problem, "failed_on": case.name}
            twice = case.is_target or checked < _TWICE
            answer = _check_case(job, case, module, resources, arch, limits, twice)
            if answer["status"] != "correct":
                return answer
            if case.is_target:
                target = answer
            else:
                checked += 1
    except ProgramError as error:
        return {"status": error.status, "message": error.message, "line": error.line}
    except FormatNotApplicable as error:
        return {"status": "contract", "message": f"format {job.program.format} does not fit this matrix: {error}"}
    note = "; ".join(filter(None, [target.pop("note", ""), coverage_note(job, checked)]))
    return {"status": "correct", "format": str(job.program.format), **target, "message": note}


def _check_case(
    job: Job,
    case: Case,
    module: PtxModule,
    resources: dict[str, Resources],
    arch: str,
    limits: dict[str, Any],
    twice: bool,
) -> dict[str, Any]:
    """One draw of numbers on one matrix, or two if `twice` and cheap."""
    size = case.matrix.rows + case.matrix.cols + case.matrix.nnz * job.width
    budget = min(limits["instructions"], _MIN_INSTRUCTIONS + limits["per_nonzero"] * size)
    result: dict[str, Any] = {"status": "correct"}
    for number, numbers in enumerate(draws(job, case)):
        arrays = buffers(job, case, numbers)
        emulated = run_case(module, case, arrays, limits_of(arch, budget, case))
        if emulated.status != "ok":
            return {
                "status": emulated.status,
                "message": emulated.message,
                "line": emulated.line,
                "block": emulated.block,
                "thread": emulated.thread,
                "failed_on": case.name,
            }
        problem = _mismatch(job, arrays, numbers)
        if problem is not None:
            return {"status": "wrong", "message": problem, "failed_on": case.name}
        instructions = sum(counts.warp_instructions for counts in emulated.traffic)
        if number == 0 and case.is_target:
            result |= _times(case, emulated, resources, arch)
        if not twice or instructions > _SECOND_DRAW:
            break
    return result


def limits_of(arch: str, budget: int, case: Case) -> EmulatorLimits:
    """The interpreter's limits for an architecture; one without a model counts as an H200.

    Multiprocessors that would get no block are left out: each costs the memory of its cache.
    """
    machine = ARCHITECTURES.get(arch, ARCHITECTURES["sm_90"])
    blocks = max((launch.grid[0] * launch.grid[1] * launch.grid[2] for launch in case.launches), default=1)
    return EmulatorLimits(budget, machine.shared_bytes_per_block, min(machine.sms, blocks))


def run_case(module: PtxModule, case: Case, arrays: list[Buffer], limits: EmulatorLimits) -> Emulation:
    """Run a program's launches on one matrix; writable arrays are changed in place."""
    launches = [
        EmuLaunch(launch.kernel, launch.grid, launch.block, launch.shared_bytes, launch.arguments)
        for launch in case.launches
    ]
    # The output holds NaN and counts as not initialised: a kernel that reads it before it writes it is found.
    views = [EmuBuffer(array.name, array.data, array.writable, not array.writable) for array in arrays]
    return run(module, launches, views, limits)


def _mismatch(job: Job, arrays: list[Buffer], numbers: Draw) -> str | None:
    name = OPERATORS[job.operator].output
    output = next(array.data for array in arrays if array.name == name)
    found = check_output(output, numbers, job.width)
    return None if found is None else found.describe(job.width)


def launch_shapes(case: Case, resources: dict[str, Resources]) -> list[LaunchShape]:
    """What each launch takes of a multiprocessor."""
    return [
        LaunchShape(
            blocks=launch.grid[0] * launch.grid[1] * launch.grid[2],
            threads=launch.block[0] * launch.block[1] * launch.block[2],
            registers=resources[launch.kernel].registers,
            shared_bytes=resources[launch.kernel].shared_bytes + launch.shared_bytes,
        )
        for launch in case.launches
    ]


def _launch_problem(case: Case, resources: dict[str, Resources], arch: str) -> str | None:
    if arch not in ARCHITECTURES:  # on a GPU its driver says
        return None
    machine = architecture(arch)
    return next(
        (problem for shape in launch_shapes(case, resources) if (problem := launch_problem(machine, shape))), None
    )


def _times(case: Case, emulated: Emulation, resources: dict[str, Resources], arch: str) -> dict[str, Any]:
    """The target's modelled time and what goes with it, or a note that there is nothing to time."""
    if case.matrix.nnz == 0:
        return {"note": NOTHING_TO_TIME}
    machine = architecture(arch)
    shapes = launch_shapes(case, resources)
    counted = list(zip(emulated.traffic, shapes, strict=True))
    return {
        "timing": "modelled",
        "time_us": estimate_us(machine, counted),
        "bytes_moved": sum(bytes_moved(counts) for counts, _ in counted),
        "shared_bytes": max((shape.shared_bytes for shape in shapes), default=0),
        "convert_us": case.stored.convert_us,
    }
