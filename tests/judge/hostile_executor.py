"""Stands in for the GPU executor's process and does what bad programs do to it."""

import os
import time
from collections.abc import Callable
from typing import Any


def preload() -> None:
    """Nothing to import."""


def handle(request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
    """Answer as components/judge/gpu_worker.py does."""
    if request["op"] == "identify":
        return {"gpu": "Stand-in", "l2_bytes": 1}
    if request["op"] == "facts":
        return {"copy_bandwidth": 1.0, "l2_bandwidth": 1.0, "launch_us": 1.0}
    if request["op"] == "prepare":
        return {}
    announce("check")
    what = request["what"]
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        os.abort()
    if what == "bug":
        raise KeyError(1)
    if what == "poison":
        return {"status": "illegal_access", "message": "x", "poisoned": True, "pid": os.getpid()}
    return {
        "status": "correct",
        "pid": os.getpid(),
        "baselines": {"library": 1.0},
        "known": request["baselines"],
        "spent_s": {"all": 0.001},
    }
