"""Messages over a stream that cuts them anywhere."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from components.judge import wire

MESSAGES = [{"stage": "check"}, {"result": {"text": "x" * 700_000}}, {}, {"stage": "time"}]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def raw(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


def soon() -> float:
    return time.monotonic() + 20.0


@pytest.mark.parametrize("piece", [1_000_000_000, 65_536, 5_003])
def test_messages_come_whole_and_in_order_however_they_were_cut(
    ends: tuple[socket.socket, socket.socket], piece: int
) -> None:
    ours, theirs = ends
    stream = b"".join(raw(json.dumps(message).encode()) for message in MESSAGES * 3)

    def send() -> None:
        for start in range(0, len(stream), piece):
            theirs.sendall(stream[start : start + piece])

    thread = threading.Thread(target=send)
    thread.start()
    inbox = wire.Inbox(ours)
    assert [inbox.receive(soon()) for _ in MESSAGES * 3] == MESSAGES * 3
    thread.join()


def test_one_byte_at_a_time(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    inbox = wire.Inbox(ours)
    for byte in raw(b'{"a": 1}')[:-1]:
        theirs.send(bytes([byte]))
        with pytest.raises(wire.DeadlineExceeded):
            inbox.receive(time.monotonic() - 1.0)
        with pytest.raises(wire.DeadlineExceeded):
            inbox.receive(time.monotonic() + 0.001)
    theirs.send(b"}" + raw(b'{"b": 2}'))
    assert inbox.receive(soon()) == {"a": 1}
    assert inbox.receive(time.monotonic() - 1.0) == {"b": 2}  # it is here already


def test_a_receiver_without_inbox_takes_nothing_of_the_next(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(raw(b'{"a": 1}') + raw(b'{"b": 2}'))
    assert wire.receive(ours) == {"a": 1}
    assert ours.recv(100) == raw(b'{"b": 2}')


@pytest.mark.parametrize(
    "sent",
    [raw(b"[1]"), raw(b"{"), raw(b"\xff"), struct.pack("<Q", wire.MAX_MESSAGE + 1), raw(b"{}")[:-1], b""],
    ids=["no object", "cut", "no text", "too long", "ended within", "ended"],
)
def test_what_is_no_message_is_an_end(ends: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    ours, theirs = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(wire.Closed):
        wire.Inbox(ours).receive(soon())


def test_a_deadline_is_kept_while_pieces_come(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(raw(b'{"a": 1}')[:-1])
    start = time.monotonic()
    with pytest.raises(wire.DeadlineExceeded):
        wire.Inbox(ours).receive(start + 0.2)
    assert 0.2 <= time.monotonic() - start < 10.0
