"""The stage: archives in, filtered parquet and metrics out."""

import contextlib
import dataclasses
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from corpus_places import Server, serving, source, tar_gz, wheel, write_sources

from components import settings
from components.corpus import build
from components.errors import UserError
from components.quality.suites import validate
from components.stage import run_stage

ROOT = Path(__file__).resolve().parents[2]
NOTICE = "// Copyright 2020 Somebody. Licensed under the MIT licence.\n"


def kernel(name: str, body: str = "y[i] *= a;") -> str:
    filler = "\n".join(f"    float {name}_{k} = y[{k}] * {name}_step + offset_{name}_{k};" for k in range(12))
    return f"__global__ void {name}(float* y, float a, int i) {{\n{filler}\n    {body}\n}}\n"


SPARSE = kernel("spmv_csr", "for (int k = row_ptr[i]; k < row_ptr[i + 1]; ++k) s += val[k] * x[col_idx[k]];")
ONE = {
    "one-1.0/src/spmv.cu": (NOTICE + SPARSE).encode(),
    "one-1.0/src/scale.cu": kernel("scale").encode(),
    "one-1.0/src/host.h": b"int nothing_of_cuda;\n" * 10,
    "one-1.0/third_party/lib/x.cu": kernel("theirs").encode(),
    "one-1.0/src/gpl.cu": ("// GNU General Public License\n" + kernel("gpl")).encode(),
    "one-1.0/src/made.cu": ("// This file is auto-generated.\n" + kernel("made")).encode(),
    "one-1.0/src/big.cu": kernel("big").encode() * 1000,
    "../evil.cu": kernel("evil").encode(),
    "one-1.0/setup.py": b"raise SystemExit('setup.py was run')\n",
}
TWO = {
    "two/a_copy.cu": ("/* Copyright 2021 Else. MIT licence. */\n" + kernel("scale")).encode(),
    "two/near.cu": SPARSE.replace("s += val", "s  +=  values").encode(),
    "two/own.cuh": kernel("own").encode(),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.Settings:
    """Settings over an empty project folder, and tracking that records nothing."""

    class Run:
        run_id = "run-1"

        def log_metrics(self, step: int, values: dict[str, float]) -> None:
            assert all(isinstance(value, float) for value in values.values())

    @contextlib.contextmanager
    def stage_run(stage: str, *args: object, **options: object) -> Iterator[Run]:
        assert stage == "corpus"
        yield Run()

    fake: Any = types.ModuleType("components.tracking.runs")
    fake.stage_run = stage_run
    monkeypatch.setitem(sys.modules, "components.tracking.runs", fake)
    return dataclasses.replace(settings.load(ROOT / "params.yaml"), root=tmp_path)


def lay(root: Path) -> Server:
    """Two packages, listed and served."""
    data = {"one-1.0.tar.gz": tar_gz(ONE), "two-1.0-py3-none-any.whl": wheel(TWO)}
    rows = [source(name.partition("-")[0], name, content) for name, content in data.items()]
    write_sources(root / "data/corpus_sources.csv", rows)
    return Server(data)


def test_stage(project: settings.Settings) -> None:
    root = project.root
    with serving(lay(root)) as server:
        metrics = build.build(project, server.places)
    frame = pd.read_parquet(root / "data/corpus/corpus.parquet")
    assert list(frame.columns) == list(build.COLUMNS)
    assert [(row.package, row.path) for row in frame.itertuples()] == [
        ("one", "one-1.0/src/scale.cu"),
        ("one", "one-1.0/src/spmv.cu"),
        ("two", "two/own.cuh"),
    ]
    spmv = frame.iloc[1]
    assert spmv["text"] == SPARSE
    assert spmv["notice"] == NOTICE.strip()
    assert spmv["license"] == "MIT"
    assert spmv["n_bytes"] == len(SPARSE)
    assert spmv["sparse_score"] >= 3
    assert validate("corpus", frame).success
    assert metrics["files"] == 3
    assert metrics["bytes"] == int(frame["n_bytes"].sum())
    assert metrics["sparse_files"] == 1
    assert metrics["packages"]["two"] == {"files": 1, "bytes": int(frame["n_bytes"].iloc[2])}
    assert metrics["licenses"]["MIT"]["files"] == 3
    assert metrics["dropped"] == {
        "GPL text": 1,
        "exact duplicate": 1,
        "generated": 1,
        "near duplicate": 1,
        "no CUDA in it": 1,
        "too large": 1,
        "unsafe path": 1,
        "vendored": 1,
    }
    written = json.loads((root / "data/metrics/corpus.json").read_text())
    assert written == metrics
    assert written["run_id"] == "run-1"
    assert json.loads((root / "data/quality/corpus.json").read_text())["success"] is True
    assert not (root.parent / "evil.cu").exists()


def test_second_run_is_offline_and_gives_the_same_bytes(project: settings.Settings) -> None:
    path = project.root / "data/corpus/corpus.parquet"
    with serving(lay(project.root)) as server:
        places = server.places
        build.build(project, places)
    first = path.read_bytes()
    path.unlink()
    build.build(project, places)  # the server is gone
    assert path.read_bytes() == first


def test_offline_with_an_empty_cache(
    project: settings.Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lay(project.root)) as server:
        places = server.places
    monkeypatch.setattr("components.stage.load", lambda: project)
    monkeypatch.setattr(build, "configured_places", lambda: places)
    monkeypatch.setattr("components.corpus.fetch.Fetcher.pause_s", 0.0)
    assert run_stage(build.build) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert lines[0].startswith("error: corpus: cannot get one-1.0.tar.gz of one: ")
    assert "connection refused" in lines[0]
    assert not (project.root / "data/corpus").exists()


def test_truncated_archive_with_a_matching_pin(project: settings.Settings) -> None:
    data = tar_gz(ONE)[:-300]
    write_sources(project.root / "data/corpus_sources.csv", [source("one", "one-1.0.tar.gz", data)])
    with serving(Server({"one-1.0.tar.gz": data})) as server, pytest.raises(UserError, match="damaged archive"):
        build.build(project, server.places)


def test_nothing_left(project: settings.Settings) -> None:
    data = tar_gz({"one-1.0/a.h": b"int x;\n" * 30})
    write_sources(project.root / "data/corpus_sources.csv", [source("one", "one-1.0.tar.gz", data)])
    with (
        serving(Server({"one-1.0.tar.gz": data})) as server,
        pytest.raises(UserError, match=r"no file is left \(\{'no CUDA in it': 1\}\)"),
    ):
        build.build(project, server.places)


def test_failed_suite_stops_the_stage(project: settings.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "sparse_score", lambda text: -1)
    with (
        serving(lay(project.root)) as server,
        pytest.raises(UserError, match=r"sparse_score >= 0.* failed; rows: one one-1\.0/src/scale\.cu"),
    ):
        build.build(project, server.places)
    assert not (project.root / "data/corpus").exists()
