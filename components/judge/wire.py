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


def receive(connection: socket.socket) -> dict[str, Any]:
    """Wait for one message, and take nothing of the next.

    Raises:
        Closed: the other end is gone, or sent something that is not a message.
    """
    length = _checked_length(_exactly(connection, _LENGTH.size))
    return _message(_exactly(connection, length))


class Inbox:
    """Messages from one connection, in as few system calls as may be: each lets other threads take the interpreter."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._waiting = bytearray()  # received, and not yet a whole message

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message; nothing else may read from the connection.

        Args:
            deadline: time.monotonic seconds.

        Raises:
            Closed: the other end is gone, or sent something that is not a message.
            DeadlineExceeded: no whole message came in time.
        """
        while (body := self._next()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(1 + left * 1e3):
                raise DeadlineExceeded
            self._waiting += _part(self._connection, 1 << 18)
        return _message(body)

    def _next(self) -> bytes | None:
        """The body of the first message that is whole."""
        head = _LENGTH.size
        if len(self._waiting) < head:
            return None
        end = head + _checked_length(self._waiting[:head])
        if len(self._waiting) < end:
            return None
        body = bytes(self._waiting[head:end])
        del self._waiting[:end]
        return body


def _checked_length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > MAX_MESSAGE:
        raise Closed(f"a message of {length} bytes")
    return int(length)


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise Closed(f"not a message: {error}") from None
    if not isinstance(message, dict):
        raise Closed("not a message: no object")
    return message


def _part(connection: socket.socket, most: int) -> bytes:
    try:
        part = connection.recv(most)
    except OSError as error:
        raise Closed(str(error)) from None
    if not part:
        raise Closed("end of stream")
    return part


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        parts += _part(connection, min(count - len(parts), 1 << 20))
    return bytes(parts)
