"""Messages between the judge and its workers: JSON with a length in front, over a stream socket.

JSON and not pickle: what a worker that ran untrusted code sends back must not be able to run anything here.
"""

import json
import select
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")
MAX_MESSAGE = 1 << 30


class Closed(Exception):
    """The other end is gone."""


class DeadlineExceeded(Exception):
    """No whole message came in time."""


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        Closed: the other end is gone.
    """
    body = json.dumps(message).encode()
    try:
        connection.sendall(_LENGTH.pack(len(body)) + body)
    except OSError as error:
        raise Closed(str(error)) from None


def receive(connection: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Receive one message, waiting until `deadline` (time.monotonic seconds) at most.

    Raises:
        Closed: the other end is gone, or sent something that is not a message.
        DeadlineExceeded: the deadline passed.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > MAX_MESSAGE:
        raise Closed(f"a message of {length} bytes")
    try:
        message = json.loads(_exactly(connection, length, deadline))
    except ValueError as error:
        raise Closed(f"not a message: {error}") from None
    if not isinstance(message, dict):
        raise Closed("not a message: no object")
    return message


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([connection], [], [], left)[0]:
                raise DeadlineExceeded
        try:
            part = connection.recv(min(count - len(parts), 1 << 20))
        except OSError as error:
            raise Closed(str(error)) from None
        if not part:
            raise Closed("end of stream")
        parts += part
    return bytes(parts)
