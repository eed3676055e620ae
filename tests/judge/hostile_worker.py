"""A worker module whose requests do what bad programs do to a worker."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from components.judge.limits import limits


def preload() -> None:
    pass


def handle(request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
    announce("work")
    what = request["what"]
    if what == "hang":
        while True:
            time.sleep(0.01)
    if what == "burn":
        with limits(1.0, None):
            while True:
                pass
    if what == "eat":
        with limits(20.0, 200):
            return {"bytes": len(bytearray(1 << 30))}
    if what == "crash":
        ctypes.string_at(0)
    if what == "exit":
        os._exit(3)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise KeyError("a bug")
    if what == "write":
        with open(request["path"], "w", encoding="utf-8") as file:
            file.write("no")
    if what == "environment":
        return {"names": sorted(os.environ)}
    return {"echo": what, "pid": os.getpid()}
