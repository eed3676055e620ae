"""The collection client against a local server that lays files out as the collection does, and misbehaves."""

import gzip
import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from components.errors import UserError
from components.matrix.collection import INDEX, CollectionClient
from components.matrix.collection_index import IndexRow, parse_index, select
from components.matrix.download import Downloader
from components.settings import CollectionSettings

INDEX_TEXT = """4
08-Oct-2020 17:09:58
HB,one,2,2,2,1,0,0,0,0,0,circuit problem,2
HB,two,3,3,2,1,0,0,0,0,0,2D/3D problem,3
Bai,three,2,2,2,1,0,0,0,0,0,circuit problem,2
Bai,complex,2,2,2,0,0,0,0,0,0,circuit problem,2
"""


def tarball(name: str, rows: int, body: str, count: int) -> bytes:
    data = f"%%MatrixMarket matrix coordinate real general\n{rows} {rows} {count}\n{body}".encode()
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for member, content in ((f"{name}/{name}_b.mtx", b"junk"), (f"{name}/{name}.mtx", data)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


ONE = tarball("one", 2, "1 1 1\n2 1 5\n", 2)
TWO = tarball("two", 3, "1 1 1\n2 1 5\n3 3 0\n", 3)


@dataclass
class Site:
    """Files and faults of the server; `faults[path]` are taken one a request, then it behaves."""

    files: dict[str, bytes]
    faults: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # path, Range
    ranges: bool = True
    etag: bool = True
    url: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site({"/files/ssstats.csv": INDEX_TEXT.encode(), "/MM/HB/one.tar.gz": ONE, "/MM/HB/two.tar.gz": TWO})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            site.requests.append((self.path, self.headers.get("Range", "")))
            fault = site.faults.get(self.path, []).pop(0) if site.faults.get(self.path) else ""
            body = site.files.get(self.path)
            if body is None or fault.isdigit():
                self.send_response(int(fault or 404))
                if fault == "503":
                    self.send_header("Retry-After", "7")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if site.ranges else 0
            tag = f'"{hash(body)}"'
            if "If-Range" in self.headers and self.headers["If-Range"] != tag:
                start = 0
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            if site.etag:
                self.send_header("ETag", tag)
            part = body[start:]
            if fault == "unannounced":
                part = part[: len(part) // 2]
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if fault == "garble":
                part = part[:-9] + bytes(9)
            if fault == "slow":
                for k in range(0, len(part), 40):
                    self.wfile.write(part[k : k + 40])
                    self.wfile.flush()
                    time.sleep(0.01)
                return
            if fault == "stall":
                self.wfile.write(part[:10])
                self.wfile.flush()
                time.sleep(0.6)
            if fault in ("break", "stall"):
                part = part[: len(part) // 2]
            self.wfile.write(part)
            self.close_connection = fault in ("break", "stall", "unannounced")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(site: Site, tmp_path: Path, pauses: list[float]) -> CollectionClient:
    downloader = Downloader(retries=3, timeout_s=0.3, sleep=pauses.append)
    return CollectionClient(site.url, tmp_path / "cache", tmp_path / "pins.json", downloader)


def message(client: CollectionClient, matrix_id: str = "HB/one") -> str:
    with pytest.raises(UserError) as caught:
        client.fetch(matrix_id)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def row(client: CollectionClient, matrix_id: str) -> IndexRow:
    return next(r for r in client.index() if r.id == matrix_id)


def test_loads_checks_against_the_index_and_records(client: CollectionClient, site: Site) -> None:
    matrix = client.load(row(client, "HB/two"))
    assert matrix.id == "HB/two"
    assert matrix.source == f"{site.url}/MM/HB/two.tar.gz"
    assert (matrix.nnz, matrix.explicit_zeros) == (3, 1)  # the index counts 2 without the explicit zero
    pins = json.loads(client.pins.read_text())
    assert list(pins) == ["MM/HB/two.tar.gz", INDEX]
    assert pins["MM/HB/two.tar.gz"] == matrix.sha256


def test_second_time_asks_nothing(client: CollectionClient, site: Site) -> None:
    client.fetch("HB/one")
    client.fetch("HB/one")
    assert site.requests == [("/MM/HB/one.tar.gz", "")]


def test_resumes_where_it_broke_off(client: CollectionClient, site: Site, pauses: list[float]) -> None:
    site.faults["/MM/HB/one.tar.gz"] = ["break", "break"]
    assert client.fetch("HB/one").read_bytes() == ONE
    ranges = [r for _, r in site.requests]
    half = len(ONE) // 2
    assert ranges == ["", f"bytes={half}-", f"bytes={half + (len(ONE) - half) // 2}-"]
    assert pauses == [0.5, 0.5]  # each try brought bytes, so the count starts anew
    assert sorted(p.name for p in (client.cache / "MM/HB").iterdir()) == ["one.tar.gz"]


def test_resumes_after_the_process_died(client: CollectionClient, site: Site) -> None:
    part = client.cache / "MM/HB/one.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(ONE[:20])
    assert client.fetch("HB/one").read_bytes() == ONE
    assert site.requests == [("/MM/HB/one.tar.gz", "bytes=20-")]


def test_starts_over_when_the_file_changed_in_between(client: CollectionClient, site: Site) -> None:
    site.faults["/MM/HB/one.tar.gz"] = ["break"]
    replace(client, downloader=replace(client.downloader, retries=0))
    with pytest.raises(UserError):
        replace(client, downloader=replace(client.downloader, retries=0)).fetch("HB/one")
    site.files["/MM/HB/one.tar.gz"] = TWO
    assert client.fetch("HB/one").read_bytes() == TWO


def test_server_without_ranges_or_marks(client: CollectionClient, site: Site) -> None:
    site.ranges = site.etag = False
    site.faults["/MM/HB/one.tar.gz"] = ["break"]
    assert client.fetch("HB/one").read_bytes() == ONE


def test_glued_halves_of_two_versions_are_noticed(client: CollectionClient, site: Site) -> None:
    site.etag = False
    part = client.cache / "MM/HB/one.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\x1f\x8b" + bytes(50))
    assert client.fetch("HB/one").read_bytes() == ONE


def test_part_longer_than_the_file(client: CollectionClient, site: Site) -> None:
    part = client.cache / "MM/HB/one.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(ONE + b"more")
    assert client.fetch("HB/one").read_bytes() == ONE


@pytest.mark.parametrize("fault", ["unannounced", "garble"])
def test_damaged_bytes_are_not_recorded(client: CollectionClient, site: Site, fault: str) -> None:
    site.faults["/MM/HB/one.tar.gz"] = [fault] * 9
    assert "damaged archive" in message(client)
    assert not client.pins.exists()
    site.faults.clear()
    assert client.fetch("HB/one").read_bytes() == ONE


def test_an_error_page_is_not_recorded(client: CollectionClient, site: Site) -> None:
    site.files["/MM/HB/one.tar.gz"] = b"<html>Please log in</html>"
    assert "damaged archive (Not a gzipped file" in message(client)
    site.files["/files/ssstats.csv"] = b"<html>Please log in</html>"
    with pytest.raises(UserError, match="not a whole index"):
        client.index()
    assert not client.pins.exists()


def test_slow_is_fine_stalled_is_not(client: CollectionClient, site: Site, pauses: list[float]) -> None:
    site.faults["/MM/HB/one.tar.gz"] = ["slow"]
    assert client.fetch("HB/one").read_bytes() == ONE
    site.faults["/MM/HB/two.tar.gz"] = ["stall"]
    assert client.fetch("HB/two").read_bytes() == TWO
    assert len(pauses) == 1


def test_pauses_grow_and_follow_the_server(client: CollectionClient, site: Site, pauses: list[float]) -> None:
    site.faults["/MM/HB/one.tar.gz"] = ["500", "503", "429"]
    client.fetch("HB/one")
    assert pauses == [0.5, 7, 2.0]
    site.faults["/MM/HB/two.tar.gz"] = ["500"] * 4
    assert message(client, "HB/two").startswith(f"{site.url}/MM/HB/two.tar.gz: HTTP 500 (4 tries); check the network")


def test_missing_file_is_said_at_once(client: CollectionClient, site: Site, pauses: list[float]) -> None:
    assert "HTTP 404 no such file" in message(client, "HB/none")
    assert pauses == []


def test_changed_content_is_an_error(client: CollectionClient, site: Site) -> None:
    client.fetch("HB/one").unlink()
    site.files["/MM/HB/one.tar.gz"] = TWO
    said = message(client)
    assert "content changed" in said
    assert str(client.pins) in said
    client.pins.unlink()
    assert client.fetch("HB/one").read_bytes() == TWO


def test_damaged_cache_is_downloaded_again(client: CollectionClient, site: Site) -> None:
    client.fetch("HB/one").write_bytes(ONE[:-1])
    assert client.fetch("HB/one").read_bytes() == ONE


def test_archive_that_is_another_matrix(client: CollectionClient, site: Site) -> None:
    site.files["/MM/HB/one.tar.gz"] = tarball("one", 2, "1 1 1\n", 1)
    with pytest.raises(UserError, match="2 x 2 with 1 entries, expected 2 x 2 with 2"):
        client.load(row(client, "HB/one"))


def test_offline_is_one_clear_line(client: CollectionClient) -> None:
    nobody = replace(client, base_url="http://127.0.0.1:9")
    said = message(nobody)
    assert "connection refused (4 tries)" in said
    assert "matrices.source" in said
    assert "not an http(s) address" in message(replace(client, base_url="ftp://x"))


SETTINGS = CollectionSettings(
    base_url="", names=(), groups=(), kinds=(), min_nnz=1, max_nnz=9, max_count=9, retries=0, timeout_s=1
)


def ids(settings: CollectionSettings) -> list[str]:
    return [r.id for r in select(parse_index(INDEX_TEXT, "index"), settings, 0)[0]]


def test_selection() -> None:
    assert ids(SETTINGS) == ["HB/one", "HB/two", "Bai/three"]
    assert ids(replace(SETTINGS, groups=("Bai",))) == ["Bai/three"]
    assert ids(replace(SETTINGS, kinds=("Circuit",))) == ["HB/one", "Bai/three"]
    assert ids(replace(SETTINGS, names=("Bai/three", "HB/two", "Bai/three"))) == ["Bai/three", "HB/two"]
    drawn = ids(replace(SETTINGS, max_count=2))
    assert "HB/two" in drawn  # one of each kind
    assert len(drawn) == 2
    assert select(parse_index(INDEX_TEXT, "index"), SETTINGS, 0)[1] == {"complex": 1}


def test_selection_that_cannot_be() -> None:
    for change, words in (
        ({"names": ("HB/on",)}, "HB/on: not in the collection's index, expected e.g. HB/one"),
        ({"groups": ("hb",)}, "hb: not in the collection's index"),
        ({"kinds": ("economic",)}, "no such kind"),
        ({"min_nnz": 8}, "no matrix fits"),
    ):
        with pytest.raises(UserError, match=r"matrices\.collection") as caught:
            ids(replace(SETTINGS, **change))
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1"),
        ("hello\n\n", "line 1"),
        ("2\ndate\nHB,one,2,2,2,1,0,0,0,0,0,k,2\n", "1 matrices, expected 2"),
        ("1\ndate\nHB,one,2,x,2,1,0,0,0,0,0,k,2\n", "line 3"),
        ("1\ndate\nHB,one,2\n", "line 3: 3 columns"),
        ("1\ndate\n..,one,2,2,2,1,0,0,0,0,0,k,2\n", "line 3: group '..'"),
    ],
)
def test_bad_index(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_index(text, "index")
    assert words in str(caught.value)
