"""`sparserl doctor`: what works on this machine."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from components.cli import Exit, emit
from components.settings import Settings, load


@dataclass(frozen=True)
class Check:
    """One line of the examination."""

    name: str
    state: str  # ok, absent (fine without), broken
    detail: str


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine; exit 1 when something that every command needs is broken."""
    settings = load()
    checks = [_check(name, function, settings) for name, function in _CHECKS]
    width = max(len(check.name) for check in checks)
    text = "\n".join(f"{c.name.ljust(width)}  {c.state.ljust(6)}  {c.detail}" for c in checks)
    healthy = all(check.state != "broken" for check in checks)
    emit(arguments, {"healthy": healthy, "checks": [asdict(check) for check in checks]}, text)
    return Exit.GOOD if healthy else Exit.BAD_VERDICT


def _check(name: str, function: Callable[[Settings], tuple[str, str]], settings: Settings) -> Check:
    try:
        return Check(name, *function(settings))
    except Exception as error:  # an examination reports every fault, of whatever kind
        return Check(name, "broken", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _python(settings: Settings) -> tuple[str, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    return ("ok" if sys.version_info >= (3, 11) else "broken"), f"{version} at {sys.prefix}"


def _compiler(settings: Settings) -> tuple[str, str]:
    from components.judge.compile import compiler_version, known_architectures

    return "ok", f"{compiler_version()}, knows {' '.join(known_architectures())}"


def _interpreter(settings: Settings) -> tuple[str, str]:
    from components.judge.judge import Judge, JudgeRequest
    from components.kernel.operators import get_operator
    from components.matrix.generate import generate

    start = time.perf_counter()
    matrix = generate("uniform", 2000, seed=0)
    source = get_operator("spmv").reference_program(matrix, 1)
    arch = settings.judge.default_arch
    with Judge(settings.judge, arch, "emulator", workers=1) as judge:
        verdict = judge.judge(JudgeRequest(source, matrix))
    state = "ok" if verdict.correct else "broken"
    return (
        state,
        f"reference kernel on {arch}: {verdict.status} in {time.perf_counter() - start:.1f} s {verdict.message}",
    )


def _sandbox(settings: Settings) -> tuple[str, str]:
    from components.judge.sandbox import probe

    found = probe("compile")
    return ("ok" if found.complete else "absent"), f"workers that compile and check: {found.describe()}"


def _gpu(settings: Settings) -> tuple[str, str]:
    from components.judge.options import gpu_architecture

    arch = gpu_architecture()
    if arch is None:
        return "absent", "none found: programs run in the interpreter, times are modelled"
    import importlib

    cupy = importlib.import_module("cupy")
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(0)["name"].decode()
    return "ok", f"{name}, {arch}, driver {runtime.driverGetVersion()}, cupy {cupy.__version__}"


def _stages(settings: Settings) -> tuple[str, str]:
    found = shutil.which("python")
    if found is not None and Path(found).parent == Path(sys.prefix) / "bin":
        return "ok", f"`dvc repro` runs its stages with {found}"
    return "absent", (
        f"`python` is {found or 'not on PATH'}, not this environment's: run `make repro`, or activate the environment "
        f"(`. {sys.prefix}/bin/activate`) before `dvc repro`"
    )


def _record(settings: Settings) -> tuple[str, str]:
    from components.tracking.store import tracking_uri

    return "ok", tracking_uri(settings)


def _cache(settings: Settings) -> tuple[str, str]:
    import os

    folder = settings.root / ".cache"
    folder = folder if folder.exists() else settings.root
    if not os.access(folder, os.W_OK):
        return "absent", f"{folder} cannot be written: the judge runs uncached"
    return "ok", f"{folder}, {shutil.disk_usage(folder).free / 2**30:.0f} GiB free"


def _tools(settings: Settings) -> tuple[str, str]:
    import importlib.metadata as metadata

    names = ("torch", "transformers", "peft", "mlflow", "dvc", "prefect", "great-expectations", "cupy-cuda13x")
    return "ok", ", ".join(f"{name} {metadata.version(name)}" for name in names)


_CHECKS: tuple[tuple[str, Callable[[Settings], tuple[str, str]]], ...] = (
    ("python", _python),
    ("packages", _tools),
    ("stages", _stages),
    ("compiler", _compiler),
    ("interpreter", _interpreter),
    ("sandbox", _sandbox),
    ("gpu", _gpu),
    ("record", _record),
    ("cache", _cache),
)
