"""A binary stream as numbered lines: one at a time for a header, whole-line blocks for a body."""

import gzip
import lzma
import tarfile
import zlib
from typing import BinaryIO, NoReturn

from components.errors import UserError

BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 1 << 20
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, tarfile.TarError)


def fail(where: str, line: int, what: str) -> NoReturn:
    """Raise the reader's one kind of error: `file: line N: what, expected what`."""
    raise UserError(f"{where}: line {line}: {what}")


def shown(text: bytes) -> str:
    """`text` short and printable, for a message."""
    clean = text[:60].decode("ascii", "backslashreplace")
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in clean)
    return repr(clean + ("..." if len(text) > 60 else ""))


class TextBlocks:
    """Lines of a stream; `\\n`, `\\r\\n` and a lone `\\r` each end one.

    `line` counts the lines handed out so far, so `line + 1` is the number of the next one.
    """

    def __init__(self, file: BinaryIO, where: str, block_bytes: int = BLOCK_BYTES) -> None:
        self.line = 0
        self._file = file
        self._where = where
        self._block_bytes = block_bytes
        self._buffer = b""
        self._ended = False

    def readline(self) -> bytes | None:
        """The next line without its end, or None after the last."""
        while (end := self._buffer.find(b"\n")) < 0 and not self._ended:
            self._fill()
        if end < 0:
            line, self._buffer = self._buffer, b""
            if not line:
                return None
        else:
            line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        self.line += 1
        return line

    def block(self) -> bytes:
        """Some whole lines, each ended by a newline; empty after the last. The caller adds to `line` what it used."""
        while b"\n" not in self._buffer and not self._ended:
            self._fill()
        if self._ended:
            block, self._buffer = self._buffer, b""
            return block if not block or block.endswith(b"\n") else block + b"\n"
        cut = self._buffer.rfind(b"\n") + 1
        block, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return block

    def _fill(self) -> None:
        if len(self._buffer) > MAX_LINE_BYTES:
            fail(self._where, self.line + 1, f"line of over {MAX_LINE_BYTES} bytes, expected Matrix Market text")
        try:
            data = self._file.read(self._block_bytes)
            while data.endswith(b"\r") and (more := self._file.read(1)):
                data += more
        except DAMAGE as error:
            line = self.line + self._buffer.count(b"\n") + 1
            fail(self._where, line, f"compressed data damaged or cut off ({error}), expected a whole archive")
        self._ended = not data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += data
