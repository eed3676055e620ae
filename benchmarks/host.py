"""What a benchmark's figures depend on."""

import importlib
import os
import platform
import shutil
import subprocess
from typing import Any

_FIELDS = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu,power.draw,power.limit"


def machine() -> dict[str, Any]:
    """Versions, cores, and of a GPU its name, driver, clocks, temperature and power."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }
    for name in ("numpy", "numba", "cupy", "torch"):
        try:
            facts[name] = str(importlib.import_module(name).__version__)
        except ImportError:
            facts[name] = None
    if command := shutil.which("nvidia-smi"):
        query = [command, f"--query-gpu={_FIELDS}", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        facts["gpu"] = dict(zip(_FIELDS.split(","), [part.strip() for part in answer.split(",")], strict=True))
    return facts
