"""A worker module whose requests do what bad programs do to a worker."""

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from components.judge import wire
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
    if what == "forge":
        for number in range(3, 64):
            try:
                wire.send(socket.socket(fileno=os.dup(number)), {"result": {"echo": "forged"}})
            except (OSError, wire.Closed):
                continue
    if what == "exit":
        os._exit(3)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise KeyError("a bug")
    if what == "write":
        with open(request["path"], "w", encoding="utf-8") as file:
            file.write("no")
    if what == "attempt":
        return {"errno": _attempt(request["name"], request)}
    if what == "thread":
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(threading.get_ident()))
        thread.start()
        thread.join()
        return {"threads": len(seen)}
    if what == "environment":
        return {"names": sorted(os.environ)}
    return {"echo": what, "pid": os.getpid()}


def _attempt(name: str, request: dict[str, Any]) -> int | None:
    """The error number that an attempt ends with; None when it works."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: str, *arguments: Any) -> None:
        if getattr(libc, function)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), function)

    path = request.get("path", "/")
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: open(path, "rb").read(1),  # noqa: SIM115
        "read-by-system-call": lambda: call("open", path.encode(), os.O_RDONLY),
        "list": lambda: os.listdir(path),
        "write": lambda: os.open(path, os.O_WRONLY),
        "create": lambda: os.open(path + ".new", os.O_WRONLY | os.O_CREAT),
        "unlink": lambda: os.unlink(path),
        "chmod": lambda: os.chmod(path, 0o777),
        "rename": lambda: os.rename(path, path + ".moved"),
        "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "unix-socket": lambda: socket.socket(socket.AF_UNIX),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "exec": lambda: os.execv("/bin/true", ["/bin/true"]),
        "run": lambda: subprocess.run(["/bin/true"], check=False),
        "fork": os.fork,
        "clone3": lambda: call("syscall", 435, 0, 0),
        "kill-the-judge": lambda: os.kill(request["pid"], 0),
        "trace": lambda: call("ptrace", 16, request["pid"], 0, 0),
        "ring": lambda: call("syscall", 425, 8, 0),
    }
    try:
        attempts[name]()
    except OSError as error:
        return error.errno
    return None
