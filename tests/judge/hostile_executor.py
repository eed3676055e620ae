"""Stands in for the GPU executor's process and does what bad programs do to it."""

import os
import socket
import sys
import time

from components.judge import wire


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    wire.send(connection, {"gpu": "Stand-in", "driver": "1.0"})
    while True:
        request = wire.receive(connection)
        wire.send(connection, {"stage": "check"})
        what = request["what"]
        if what == "hang":
            time.sleep(60)
        if what == "crash":
            os.abort()
        if what == "bug":
            wire.send(connection, {"bug": "Traceback\nKeyError: 1"})
            continue
        answer = (
            {"status": "illegal_access", "message": "x", "poisoned": True}
            if what == "poison"
            else {"status": "correct"}
        )
        wire.send(connection, {"result": {**answer, "pid": os.getpid()}})


if __name__ == "__main__":
    main()
