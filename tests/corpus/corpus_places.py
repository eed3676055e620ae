"""Tiny archives, and a package index and Debian mirror on this machine that can be told to misbehave."""

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from components.corpus.index import Places
from components.corpus.sources import COLUMNS, Source


def tar_gz(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    """A .tar.gz with the given members; the same input gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return gzip.compress(buffer.getvalue(), mtime=0)


def wheel(members: dict[str, bytes]) -> bytes:
    """A zip with the given members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def source(package: str, artifact: str, data: bytes, **changes: object) -> Source:
    """A row that pins `data`."""
    fields = {
        "package": package,
        "version": "1.0",
        "kind": "pypi",
        "artifact": artifact,
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "license": "MIT",
        "default": True,
    }
    return Source(**{**fields, **changes})  # type: ignore[arg-type]


def write_sources(path: Path, sources: list[Source]) -> None:
    """The CSV of some rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(COLUMNS)]
    for item in sources:
        values = [getattr(item, column) for column in COLUMNS[:-1]]
        lines.append(",".join([*map(str, values), "yes" if item.default else "no"]))
    path.write_text("\n".join(lines) + "\n")


@dataclass
class Server:
    """What it holds and how it behaves.

    files: artifact name -> bytes; html: PEP 503 pages instead of PEP 691; break_after: cut this many answers short
    after 10 bytes; errors: answer this many file requests with 503; log: (path, Range header) of file requests.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    html: bool = False
    ranges: bool = True
    break_after: int = 0
    errors: int = 0
    page_status: int = 200
    log: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def places(self) -> Places:
        """Where a fetcher should look to find it."""
        return Places(indexes=(f"{self.url}/simple",), mirrors=(f"{self.url}/debian",))

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(state: Server) -> Iterator[Server]:
    """Run the server on a free port for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/simple/"):
                self.page()
            else:
                self.file(self.path.rpartition("/")[2].replace("%2B", "+"))

        def page(self) -> None:
            if state.html:
                body = "".join(f'<a href="/files/{name}#sha256=0">{name}</a><br>\n' for name in state.files)
                kind = "text/html"
            else:
                files = [{"filename": name, "url": f"../../files/{name}", "hashes": {}} for name in state.files]
                body, kind = json.dumps({"files": files}), "application/vnd.pypi.simple.v1+json"
            self.send_response(state.page_status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def file(self, name: str) -> None:
            wanted = self.headers.get("Range", "")
            state.log.append((self.path, wanted))
            if state.errors:
                state.errors -= 1
                self.send_error(503)
                return
            if name not in state.files:
                self.send_error(404)
                return
            data, start = state.files[name], 0
            if wanted and state.ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if state.break_after:
                state.break_after -= 1
                self.wfile.write(data[start : start + 10])
                self.close_connection = True
            else:
                self.wfile.write(data[start:])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
