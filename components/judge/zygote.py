"""The process that workers are forked from: it has imported everything once, so that a new worker costs milliseconds.

Run by components/judge/pool.py as `python -m components.judge.zygote FD FOLDER MODULE`. It never runs a program itself
and starts no threads. Over the control socket FD (one packet a request): `spawn` with a socket attached forks a worker
on it and answers its process id; `reap PID` waits for a dead worker and answers its wait status. When the judge's
process is gone, however it went, it kills its workers, removes FOLDER and ends.
"""

import contextlib
import ctypes
import importlib
import linecache
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from components.judge import limits, wire
from components.judge.sandbox import Level, confine

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> None:
    """Serve forks until the control socket closes."""
    control = socket.socket(fileno=int(arguments[0]))
    folder, module = arguments[1], importlib.import_module(arguments[2])
    module.preload()
    _remember_sources()
    control.send(b"ready")
    children: set[int] = set()
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 64, 1)
            if not data:
                return
            command = data.decode().split()
            if command[0] == "spawn":
                pid = os.fork()
                if pid == 0:
                    control.close()
                    level: Level = getattr(module, "CONFINEMENT", "compile")
                    handle, serve = getattr(module, "handle", None), getattr(module, "serve", None)
                    _worker(socket.socket(fileno=descriptors[0]), handle, folder, level, serve)
                os.close(descriptors[0])
                children.add(pid)
                control.send(str(pid).encode())
            else:
                pid = int(command[1])
                _, status = os.waitpid(pid, 0)
                children.discard(pid)
                control.send(str(status).encode())
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _remember_sources() -> None:
    """Keep the text of this project's modules for tracebacks: a worker can open no file."""
    for name, module in list(sys.modules.items()):
        if name.startswith("components.") and (path := getattr(module, "__file__", None)):
            linecache.getlines(path)


def _worker(
    connection: socket.socket,
    handle: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]] | None,
    folder: str,
    level: Level,
    serve: Callable[[socket.socket], None] | None,
) -> None:
    """Answer requests by the module's `handle`, or have its `serve` do so, until the connection closes; never returns.

    Whatever happens in here can read nothing but FOLDER (the matrices handed over), write nothing, reach no network and
    start no process; see components/judge/sandbox.py, also for what level `gpu` leaves to a driver.
    """
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
        limits.prepare()
        if level == "compile":  # level gpu: components/judge/gpu_worker.py, once it has its context
            confine(level, readable=[folder])
        if serve is not None:
            serve(connection)
        while True:
            request = wire.receive(connection)
            try:
                assert handle is not None
                result = handle(request, lambda stage: wire.send(connection, {"stage": stage}))
                answer: dict[str, Any] = {"result": result}
            except Exception:
                answer = {"bug": traceback.format_exc()}
            wire.send(connection, {**answer, "nonce": request.get("nonce")})
    except wire.Closed:
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
