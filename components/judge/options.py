"""The judge's settings without a settings file (a GPU host that holds `components/` alone), and which backend runs."""

import dataclasses
import re
import shutil
import subprocess
from typing import Any, Literal

from components.errors import UserError
from components.settings import JudgeSettings

Backend = Literal["emulator", "gpu"]


def judge_defaults(**changes: Any) -> JudgeSettings:
    """What params.yaml ships, with some fields replaced; a test holds the two together."""
    defaults = JudgeSettings(
        backend="auto",
        arch="auto",
        default_arch="sm_90",
        workers=0,
        compile_cpu_s=6.0,
        compile_memory_mb=1500,
        wall_s=30.0,
        instruction_budget=200_000_000,
        budget_per_nonzero=4000,
        cache=True,
        cache_max_mb=512,
    )
    return dataclasses.replace(defaults, **changes)


def gpu_architecture() -> str | None:
    """`sm_90` and the like for the first GPU, or None without one; asks nvidia-smi, so that no CUDA context is made."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"\s*(\d+)\.(\d+)\s*$", answer.stdout.splitlines()[0]) if answer.stdout.strip() else None
    return f"sm_{match.group(1)}{match.group(2)}" if answer.returncode == 0 and match else None


def resolve_backend(settings: JudgeSettings) -> tuple[Backend, str]:
    """The backend and the architecture that `auto` stands for on this machine.

    Raises:
        UserError: `gpu` is asked for and there is none, or it is asked to measure an architecture that it is not.
    """
    found = gpu_architecture() if settings.backend != "emulator" else None
    if settings.backend == "gpu" and found is None:
        raise UserError("judge.backend: gpu is asked for, but nvidia-smi shows none; use emulator or auto")
    if found is None:
        return "emulator", settings.default_arch if settings.arch == "auto" else settings.arch
    if settings.arch in ("auto", found):
        return "gpu", found
    if settings.backend == "gpu":
        raise UserError(f"judge.arch: {settings.arch} is asked for, but this machine's GPU is {found}; use auto")
    return "emulator", settings.arch  # another generation than the one here: its time can only be modelled
