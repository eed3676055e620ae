"""The GPU executor's process on a device that is a stand-in: everything but the device is the product's own."""

import functools
import socket
from typing import Any

import numpy as np

from components.judge import gpu_worker
from components.judge.device import DeviceFault, Facts
from components.judge.executor import Executor
from components.judge.timing import Side
from tests.judge.device_stand_in import StandIn

CONFINEMENT = "gpu"  # that is: none by the zygote


def preload() -> None:
    """Nothing to import."""


def serve(connection: socket.socket) -> None:
    """As components/judge/gpu_worker.py."""
    gpu_worker.serve(connection, lambda: Executor(Device(), Library))


class Device(StandIn):
    """Kernels do what the cubin says: `right`, `zeros`, or `fault`, which loses the context."""

    def __init__(self) -> None:
        super().__init__(lambda *_: None)

    def load(self, cubin: bytes, names: Any) -> dict[str, Any]:
        return {name: functools.partial(body, cubin.decode()) for name in names}

    def stopwatch(self, *arguments: Any, **more: Any) -> Any:
        if self.meanwhile is not None:
            self.meanwhile()
        return super().stopwatch(*arguments, **more)

    def measure_facts(self) -> Facts:
        return Facts(4e6, 8e6, 1.0)


def body(what: str, bounds: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    """A kernel."""
    if what == "fault":
        raise DeviceFault("illegal_access", "illegal address on the device", True)
    rows = len(bounds) - 1
    y[:rows] = 0
    if what == "right":
        products = values.astype(np.float64) * x[columns]
        y[:rows] = np.add.reduceat(np.append(products, 0.0), bounds[:-1]) * (np.diff(bounds) > 0)


class Library:
    """One library product that takes 20 us."""

    nbytes = 1

    def __init__(self, device: Any, matrix: Any, *problem: Any, pattern: Any, draws: Any, known: Any) -> None:
        def once() -> None:
            device.elapsed += 20.0

        def replay() -> None:
            for _ in range(20):
                once()

        self.times = known or {"cusparse:csr_alg2": 20.0}
        self.best = Side("cusparse:csr_alg2", replay, 20, once)
