"""The list of pinned artifacts: what a row must say, and which rows are taken."""

import dataclasses
from pathlib import Path

import pytest
from corpus_places import source, write_sources

from components import settings
from components.corpus.sources import read_sources, select
from components.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CORPUS = settings.CorpusSettings("data/corpus_sources.csv", (), 60.0, ("MIT", "Apache-2.0"), 200, 0.8)
A, B = source("a", "a-1.tar.gz", b"a"), source("b", "b-1.whl", b"bb", default=False)
HEADER = "package,version,kind,artifact,sha256,bytes,license,default\n"
ROW = f"a,1,pypi,a-1.tar.gz,{'0' * 64},5,MIT,yes\n"


def test_round_trip(tmp_path: Path) -> None:
    write_sources(tmp_path / "s.csv", [A, B])
    assert read_sources(tmp_path / "s.csv") == (A, B)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("package,", "name,", "line 1: expected the columns package,version,kind"),
        (",1,", ",,", "line 2: version: expected a version, found ''"),
        ("pypi", "conda", "line 2: kind: expected pypi or debian, found 'conda'"),
        ("a-1.tar.gz", "../a.tar.gz", "artifact: expected an archive's file name"),
        ("a-1.tar.gz", "a.exe", "artifact: expected an archive's file name"),
        ("0" * 64, "0" * 63, "sha256: expected 64 lower-case hex digits"),
        (",5,", ",-5,", "bytes: expected a positive integer"),
        ("MIT", " ", "license: expected an SPDX licence expression, found ''"),
        ("yes", "maybe", "default: expected yes or no"),
        (",yes", "", "expected 8 fields"),
        (ROW, ROW + ROW, "a: listed twice"),
    ],
)
def test_bad_rows(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text((HEADER + ROW).replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_sources(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith("s.csv: ")


def test_missing_list(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus\.sources"):
        read_sources(tmp_path / "none.csv")


def test_selection() -> None:
    assert select((A, B), CORPUS) == (A,)
    assert select((A, B), dataclasses.replace(CORPUS, packages=("b",))) == (B,)
    with pytest.raises(UserError, match=r"'c' is not in data/corpus_sources\.csv; it has a, b"):
        select((A, B), dataclasses.replace(CORPUS, packages=("c",)))
    with pytest.raises(UserError, match="a: licence 'MIT' is not allowed"):
        select((A, B), dataclasses.replace(CORPUS, licenses=("BSD-3-Clause",)))
    big = dataclasses.replace(A, bytes=60_000_001)
    with pytest.raises(UserError, match=r"60\.0 MB, more than corpus\.max_download_mb = 60"):
        select((big,), CORPUS)
    with pytest.raises(UserError, match="marks none as default"):
        select((B,), CORPUS)


def test_the_shipped_list_fits_the_shipped_settings() -> None:
    corpus = settings.load(ROOT / "params.yaml").corpus
    chosen = select(read_sources(ROOT / corpus.sources), corpus)
    assert len(chosen) >= 15
    assert sum(item.bytes for item in chosen) < 60e6
    assert {"rocsparse", "torch-sparse", "hypre"} <= {item.package for item in chosen}
