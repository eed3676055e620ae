"""The process that holds a CUDA context and runs programs which are not trusted.

Forked by components/judge/gpu.py from a process that has imported everything and made no context. Requests: `identify`
makes the context, `facts` measures the device, `prepare` makes a matrix resident, `judge` verifies a program and times
it.
"""

import select
import socket
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from components.judge import wire
from components.judge.compile import known_architectures
from components.judge.device import CudaDevice, preload_device
from components.judge.device_kernels import own_cubin
from components.judge.executor import Executor, Plan, plan
from components.judge.options import gpu_architecture
from components.judge.prepare import (
    remember,
)
from components.judge.sandbox import Level, confine

CONFINEMENT: Level = "gpu"  # read by components/judge/zygote.py
_HOST_BYTES = 6 << 30  # of converted matrices and of numbers, each


def preload() -> None:
    """Import and compile everything that an executor needs, before the first fork; no context is made."""
    preload_device()
    arch = gpu_architecture()
    if arch in known_architectures():
        own_cubin(arch)


def _on_this_gpu() -> Executor:
    executor = Executor(CudaDevice())
    confine(CONFINEMENT)  # a context cannot be made in confinement
    return executor


def serve(connection: socket.socket, make: Callable[[], Executor] = _on_this_gpu) -> None:
    """Answer requests until the connection closes.

    While the device times one program, the host plans what the next request asks for.

    Args:
        connection: to components/judge/gpu.py.
        make: called at the first request; by default makes the context and then confines this process.
    """
    remember(_HOST_BYTES)
    executor: Executor | None = None
    planned: deque[Plan] = deque()

    def look_ahead() -> None:
        if not planned and select.select([connection], [], [], 0)[0]:
            planned.append(_received(connection, executor))

    while True:
        current = planned.popleft() if planned else _received(connection, executor)
        try:
            if executor is None:
                executor = make()
                executor.device.meanwhile = look_ahead
            result = _answer(executor, current, lambda stage: wire.send(connection, {"stage": stage}))
            answer: dict[str, Any] = {"result": result}
        except wire.Closed:
            raise
        except Exception:
            answer = {"bug": traceback.format_exc()}
        wire.send(connection, {**answer, "nonce": current.request.get("nonce")})


def _received(connection: socket.socket, executor: Executor | None) -> Plan:
    request = wire.receive(connection)
    if request["op"] != "judge":
        return Plan(request)
    try:
        return plan(request, executor.passed if executor is not None else ())
    except Exception:
        return Plan(request, bug=traceback.format_exc())


def _answer(executor: Executor, planned: Plan, announce: Callable[[str], None]) -> dict[str, Any]:
    start = time.perf_counter()
    operation = planned.request["op"]
    if operation == "identify":
        device = executor.device
        return {"gpu": device.name, "l2_bytes": device.l2_bytes, "guards": device.guards}
    if operation == "facts":
        facts: dict[str, Any] = executor.device.measure_facts().to_dict()
        return facts
    if operation == "prepare":
        return executor.prepare(planned.request)
    announce("check")
    if planned.bug is not None:
        raise RuntimeError(planned.bug)
    answer = executor.run(planned, announce)
    spent, executor.spent = dict(executor.spent), defaultdict(float)
    return {**answer, "spent_s": spent | {"all": time.perf_counter() - start}}
