"""Downloads: right file or clear refusal, whatever the network does."""

import hashlib
import os
from pathlib import Path

import pytest
from corpus_places import Server, serving, source, tar_gz

from components.corpus import index
from components.corpus.fetch import Fetcher
from components.corpus.index import Places, configured_places, shown
from components.errors import UserError

DATA = bytes(range(256)) * 40
ITEM = source("My.Pkg_x", "my_pkg_x-1.0.tar.gz", DATA)


def fetcher(cache: Path, places: Places, pauses: list[float] | None = None) -> Fetcher:
    return Fetcher(cache, places, timeout_s=5, sleep=(pauses if pauses is not None else []).append)


@pytest.mark.parametrize("html", [False, True])
def test_both_index_formats(tmp_path: Path, html: bool) -> None:
    told: list[int] = []
    with serving(Server({ITEM.artifact: DATA}, html=html)) as server:
        path = fetcher(tmp_path, server.places).fetch(ITEM, told.append)
    assert path.read_bytes() == DATA
    assert sum(told) == len(DATA)
    assert [p.name for p in tmp_path.iterdir()] == [f"{ITEM.sha256[:16]}-{ITEM.artifact}"]


def test_debian_pool_paths(tmp_path: Path) -> None:
    plain = source("rocsparse", "rocsparse_1.0.orig.tar.gz", DATA, kind="debian")
    lib = source("libfoo", "libfoo_1.0+dfsg.orig.tar.gz", DATA, kind="debian")
    with serving(Server({plain.artifact: DATA, lib.artifact: DATA})) as server:
        fetcher(tmp_path, server.places).fetch_all([plain, lib])
        paths = sorted(path for path, _ in server.log)
    assert paths == [
        "/debian/pool/main/libf/libfoo/libfoo_1.0+dfsg.orig.tar.gz",
        "/debian/pool/main/r/rocsparse/rocsparse_1.0.orig.tar.gz",
    ]


def test_second_mirror_is_tried(tmp_path: Path) -> None:
    item = source("faiss", "faiss_1.0.orig.tar.gz", DATA, kind="debian")
    with serving(Server({})) as empty, serving(Server({item.artifact: DATA})) as full:
        places = Places(mirrors=(f"{empty.url}/debian", f"{full.url}/debian"))
        assert fetcher(tmp_path, places).fetch(item).read_bytes() == DATA


def test_resumes_where_it_broke_off(tmp_path: Path) -> None:
    told: list[int] = []
    pauses: list[float] = []
    with serving(Server({ITEM.artifact: DATA}, break_after=2)) as server:
        path = fetcher(tmp_path, server.places, pauses).fetch(ITEM, told.append)
        asked = [wanted for _, wanted in server.log]
    assert path.read_bytes() == DATA
    assert asked == ["", "bytes=10-", "bytes=20-"]
    assert pauses == [0.5, 1.0]
    assert sum(told) == len(DATA)


def test_server_without_ranges_starts_over(tmp_path: Path) -> None:
    told: list[int] = []
    with serving(Server({ITEM.artifact: DATA}, break_after=1, ranges=False)) as server:
        assert fetcher(tmp_path, server.places).fetch(ITEM, told.append).read_bytes() == DATA
    assert sum(told) == len(DATA)


def test_resumes_a_part_of_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / f"{ITEM.sha256[:16]}-{ITEM.artifact}.part").write_bytes(DATA[:100])
    with serving(Server({ITEM.artifact: DATA})) as server:
        assert fetcher(tmp_path, server.places).fetch(ITEM).read_bytes() == DATA
        assert server.log[0][1] == "bytes=100-"


def test_damaged_part_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / f"{ITEM.sha256[:16]}-{ITEM.artifact}.part").write_bytes(b"x" * 100)
    with serving(Server({ITEM.artifact: DATA})) as server:
        assert fetcher(tmp_path, server.places).fetch(ITEM).read_bytes() == DATA
        assert [wanted for _, wanted in server.log] == ["bytes=100-", ""]


def test_busy_server_is_tried_again(tmp_path: Path) -> None:
    with serving(Server({ITEM.artifact: DATA}, errors=3)) as server:
        assert fetcher(tmp_path, server.places).fetch(ITEM).read_bytes() == DATA


def test_wrong_sha256_is_refused(tmp_path: Path) -> None:
    other = bytes(reversed(DATA))
    with (
        serving(Server({ITEM.artifact: other})) as server,
        pytest.raises(UserError, match=f"sha256 is {hashlib.sha256(other).hexdigest()}, expected {ITEM.sha256}"),
    ):
        fetcher(tmp_path, server.places).fetch(ITEM)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("data", "words"), [(DATA[:-1], "broke off after 10239 of 10240"), (DATA + b"x", "more than")])
def test_wrong_length_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    with serving(Server({ITEM.artifact: data})) as server, pytest.raises(UserError, match=words):
        fetcher(tmp_path, server.places).fetch(ITEM)
    assert not (tmp_path / f"{ITEM.sha256[:16]}-{ITEM.artifact}").exists()


def test_withdrawn_artifact(tmp_path: Path) -> None:
    with (
        serving(Server({"my_pkg_x-2.0.tar.gz": DATA})) as server,
        pytest.raises(UserError, match=r"my_pkg_x-1\.0\.tar\.gz is not in the Python index"),
    ):
        fetcher(tmp_path, server.places).fetch(ITEM)


def test_offline_is_one_line_and_a_full_cache_needs_no_network(tmp_path: Path) -> None:
    with serving(Server({ITEM.artifact: DATA})) as server:
        places = server.places
        fetcher(tmp_path / "full", places).fetch(ITEM)
    with pytest.raises(
        UserError, match=r"cannot get my_pkg_x-1\.0\.tar\.gz of My\.Pkg_x: .*connection refused"
    ) as caught:
        fetcher(tmp_path / "empty", places).fetch(ITEM)
    assert "\n" not in str(caught.value)
    assert "check the network" in str(caught.value)
    assert fetcher(tmp_path / "full", places).fetch(ITEM).read_bytes() == DATA


def test_damaged_cache_is_fetched_again(tmp_path: Path) -> None:
    with serving(Server({ITEM.artifact: DATA})) as server:
        path = fetcher(tmp_path, server.places).fetch(ITEM)
        path.write_bytes(b"rot")
        assert fetcher(tmp_path, server.places).fetch(ITEM).read_bytes() == DATA


def test_file_index_and_find_links(tmp_path: Path) -> None:
    project = tmp_path / "simple/my-pkg-x"
    project.mkdir(parents=True)
    (project / ITEM.artifact).write_bytes(DATA)
    (project / "index.html").write_text(f'<a href="{ITEM.artifact}#sha256=1">{ITEM.artifact}</a>')
    by_index = Places(indexes=((tmp_path / "simple").as_uri(),))
    assert fetcher(tmp_path / "a", by_index).fetch(ITEM).read_bytes() == DATA
    by_links = Places(indexes=(), links=(str(project),))
    assert fetcher(tmp_path / "b", by_links).fetch(ITEM).read_bytes() == DATA


def test_extra_index_helps_when_the_first_lacks_it(tmp_path: Path) -> None:
    with serving(Server({})) as empty, serving(Server({ITEM.artifact: DATA})) as full:
        places = Places(indexes=(f"{empty.url}/simple", f"{full.url}/simple/"))
        assert fetcher(tmp_path, places).fetch(ITEM).read_bytes() == DATA


def test_order_is_kept_and_the_failure_named(tmp_path: Path) -> None:
    items = [source(f"p{k}", f"p{k}-1.0.tar.gz", tar_gz({"a": bytes([k])})) for k in range(6)]
    files = {item.artifact: tar_gz({"a": bytes([k])}) for k, item in enumerate(items)}
    with serving(Server(files)) as server:
        paths = fetcher(tmp_path, server.places).fetch_all(items)
        assert [path.read_bytes() for path in paths] == list(files.values())
        with pytest.raises(UserError, match=r"missing-1\.0"):
            fetcher(tmp_path, server.places).fetch_all([*items, source("missing", "missing-1.0.zip", b"1")])


def test_places_follow_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert configured_places().indexes[0] == index.PYPI
    assert configured_places().mirrors[-1] == index.DEBIAN
    # Port 1 of this machine: an address that nothing answers, should anything ever ask it.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///a file:///b")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    places = configured_places()
    assert places.indexes == ("http://127.0.0.1:1/simple", "file:///a", "file:///b")
    assert places.links == ("/wheels",)
    assert places.certificate == "/ca.pem"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert configured_places().indexes == ()


def test_pip_configuration_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = http://127.0.0.1:1/a\nextra-index-url = file:///x\n    file:///y\n"
        "[download]\nindex-url = http://127.0.0.1:1/b\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    indexes = configured_places().indexes
    assert indexes[0] == "http://127.0.0.1:1/b"
    assert set(indexes) >= {"file:///x", "file:///y"}


def test_apt_mirrors(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("# deb http://no/debian x\ndeb http://one/debian bookworm main\n")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text("URIs: https://two/debian/\nSuites: x\n")
    (tmp_path / "sources.list.d/other.list").write_text("deb https://three/apt stable main\n")
    assert index._apt_mirrors(tmp_path) == ["http://one/debian", "https://two/debian"]


def test_passwords_are_not_shown() -> None:
    """Whatever an index address carries besides its place stays out of messages; the address is made up."""
    assert shown("https://user:secret@host:8/simple/a?token=1#f") == "https://host:8/simple/a"
