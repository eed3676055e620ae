"""Split, a user's folder as a source, and the stage as a whole."""

import dataclasses
import gzip
import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import mmwrite

from components.errors import UserError
from components.matrix import ingest as stage
from components.matrix.choose import stratified_choice
from components.matrix.directory import choose
from components.matrix.generate import generate
from components.matrix.manifest import load_by_id, read_manifest
from components.matrix.split import PARTS, SplitRow, split_by_group
from components.settings import DirectorySettings, Settings, load

FRACTIONS = {"train": 0.6, "validation": 0.15, "test": 0.25}
CLASSES = ("banded", "stencil", "block", "uniform")


def rows(groups: int, per_group: int) -> list[SplitRow]:
    return [
        SplitRow(f"g{g}/m{k}", f"g{g}", CLASSES[(g + k) % len(CLASSES)])
        for g in range(groups)
        for k in range(per_group)
    ]


def test_split_never_shares_a_group_and_meets_the_fractions() -> None:
    items = rows(40, 3)
    parts = split_by_group(items, FRACTIONS, 1)
    homes: dict[str, set[str]] = {}
    for item in items:
        homes.setdefault(item.group, set()).add(parts[item.matrix])
    assert all(len(found) == 1 for found in homes.values())
    counts = Counter(parts.values())
    for part in PARTS:
        assert counts[part] / len(items) == pytest.approx(FRACTIONS[part], abs=0.03)
        assert {i.structure_class for i in items if parts[i.matrix] == part} == set(CLASSES)


def test_split_is_seeded_and_ignores_order() -> None:
    items = rows(20, 2)
    assert split_by_group(items, FRACTIONS, 1) == split_by_group(items[::-1], FRACTIONS, 1)
    assert split_by_group(items, FRACTIONS, 1) != split_by_group(items, FRACTIONS, 2)


def test_split_with_one_dominant_group() -> None:
    items = rows(6, 1) + [SplitRow(f"HB/m{k}", "HB", CLASSES[k % 4]) for k in range(60)]
    counts = Counter(split_by_group(items, FRACTIONS, 0).values())
    assert set(counts) == set(PARTS)
    assert counts["train"] >= 60


def test_split_of_one_group_is_all_train() -> None:
    assert set(split_by_group(rows(1, 5), FRACTIONS, 0).values()) == {"train"}


def test_stratified_choice_serves_rare_classes_first() -> None:
    items = list(range(100))
    strata = ["rare" if k >= 97 else "common" for k in items]
    chosen = stratified_choice(items, strata, 10, 0)
    assert [k for k in chosen if k >= 97] == [97, 98, 99]
    assert chosen == sorted(chosen) == stratified_choice(items, strata, 10, 0)
    assert stratified_choice(items, strata, 200, 0) == items


def write(path: Path, family: str, seed: int = 0, nnz: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    matrix = generate(family, nnz, seed).to_scipy()
    if path.suffix == ".gz":
        plain = path.with_suffix("")
        mmwrite(plain, matrix)
        path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()
    else:
        mmwrite(path, matrix)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my matrices"
    write(folder / "HB/a.mtx.gz", "arrow")
    write(folder / "HB/b.mtx", "banded")
    write(folder / "Bai/c/c.mtx", "uniform")
    mmwrite(folder / "Bai/c/c_b.mtx", np.ones((3, 1)))
    mmwrite(folder / "Bai/dense.mtx", np.ones((3, 1)))
    write(folder / "case01.mtx", "lp")
    write(folder / "case02.mtx", "lp", 1)
    write(folder / "big.mtx", "uniform", 0, 5000)
    (folder / "Bai/z.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n9 9 1\n1 1 1 1\n")
    return folder


def directory(folder: Path, **change: Any) -> DirectorySettings:
    return DirectorySettings(**({"path": str(folder), "min_nnz": 500, "max_nnz": 2000, "max_count": 99} | change))


def test_folder_without_a_manifest(folder: Path) -> None:
    chosen, skipped = choose(directory(folder), 0, folder)
    assert sorted(c.load().id for c in chosen) == ["Bai/c", "HB/a", "HB/b", "case/case01", "case/case02"]
    assert skipped == {
        "companion of another matrix": 1,
        "complex": 1,
        "dense (array format)": 1,
        "outside min_nnz to max_nnz": 1,
    }
    few, skipped = choose(directory(folder, max_count=4), 0, folder)
    assert {c.structure_class for c in few} == {"dense-rows", "banded", "uniform", "rectangular"}
    assert skipped["not drawn"] == 1


def test_folder_with_a_manifest(folder: Path) -> None:
    lines = ["name,group,nnz_expanded,structure_class,field,path,sha256"]
    lines += ["a,HB,1000,dense-rows,real,,", "b,Own,1000,banded,real,HB/b.mtx,", "z,Bai,1,tiny,complex,Bai/z.mtx,"]
    lines += ["big,X,5000,uniform,real,big.mtx,", f"c,Bai,,,real,Bai/c/c.mtx,{'0' * 64}"]
    manifest = folder / "manifest.csv"
    manifest.write_text("\n".join(lines[:-1]))
    chosen, skipped = choose(directory(folder), 0, folder)
    assert [c.load().id for c in chosen] == ["HB/a", "Own/b"]
    assert skipped == {"complex": 1, "outside min_nnz to max_nnz": 1}
    manifest.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"c\.mtx: sha256 .*, expected 0000"):
        choose(directory(folder), 0, folder)
    manifest.write_text("name,group\na,HB\ngone,HB\n")
    with pytest.raises(UserError, match=r"manifest\.csv: line 3: HB/gone\.mtx is not there"):
        choose(directory(folder), 0, folder)
    manifest.write_text("title\nx\n")
    with pytest.raises(UserError, match="line 1: no column group"):
        choose(directory(folder), 0, folder)


def test_folder_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    for bad in ("", str(tmp_path / "none")):
        with pytest.raises(UserError, match=r"matrices\.directory\.path"):
            choose(dataclasses.replace(directory(folder), path=bad), 0, tmp_path)
    with pytest.raises(UserError, match="no matrix to take"):
        choose(directory(folder, min_nnz=10**6, max_nnz=10**7), 0, folder)
    (folder / "HB/bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n500 500 600\n1 1 x\n")
    with pytest.raises(UserError, match=r"bad\.mtx: line 2"):
        choose(directory(folder), 0, folder)


class Run:
    run_id = "run"
    metrics: dict[str, float]

    def log_params(self, values: dict[str, Any]) -> None:
        assert values["matrices.generated.repeats"] == 3

    def log_artifact(self, path: Path) -> None:
        assert path.is_file()

    def log_metrics(self, step: int, values: dict[str, float]) -> None:
        self.metrics = values


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    import sys
    import types

    @contextmanager
    def stage_run(name: str, settings: Settings, tags: dict[str, str]) -> Any:
        assert (name, settings.root) == ("matrices", tmp_path)
        yield Run()

    module = types.ModuleType("components.tracking.runs")
    module.stage_run = stage_run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "components.tracking.runs", module)
    settings = load()
    generated = dataclasses.replace(settings.matrices.generated, nnz=(1000,), repeats=3)
    matrices = dataclasses.replace(settings.matrices, source="bundled", generated=generated)
    return dataclasses.replace(settings, root=tmp_path, matrices=matrices)


def test_bundled_stage(project: Settings, tmp_path: Path) -> None:
    (tmp_path / "data/matrices/old").mkdir(parents=True)
    metrics = stage.ingest(project)
    frame = read_manifest(tmp_path)
    assert list(frame.columns) == list(stage.COLUMNS)
    assert metrics["matrices"] == len(frame) == 13 * 3 + 7  # pyamg carries eight, one of them complex
    assert metrics["skipped"] == {"complex": 1}
    assert metrics["run_id"] == "run"
    assert json.loads((tmp_path / "data/metrics/matrices.json").read_text()) == metrics
    assert json.loads((tmp_path / "data/quality/matrices.json").read_text())["success"]
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["matrices", "metrics", "quality"]
    assert not (tmp_path / "data/matrices/old").exists()
    for _, row in frame.iterrows():
        matrix = load_by_id(tmp_path, row["matrix"])
        assert (matrix.rows, matrix.cols, matrix.nnz) == (row["rows"], row["cols"], row["nnz"])
    airfoil = frame.set_index("matrix").loc["pyamg-airfoil/airfoil"]
    assert (airfoil["rows"], airfoil["nnz"], airfoil["pattern_symmetry"]) == (260, 1682, 1)
    for name, group in frame[frame["structure_class"] != "tiny"].groupby("structure_class"):
        assert set(group["split"]) == set(PARTS), name


@pytest.mark.slow
def test_stage_repeats_to_the_byte(project: Settings, tmp_path: Path) -> None:
    stage.ingest(project)
    first = {p: p.read_bytes() for p in (tmp_path / "data/matrices").rglob("*") if p.is_file()}
    stage.ingest(project)
    assert first == {p: p.read_bytes() for p in (tmp_path / "data/matrices").rglob("*") if p.is_file()}


def test_directory_stage_keeps_one_of_two_copies(project: Settings, folder: Path, tmp_path: Path) -> None:
    write(folder / "Copy/a.mtx.gz", "arrow")
    matrices = dataclasses.replace(project.matrices, source="directory", directory=directory(folder))
    metrics = stage.ingest(dataclasses.replace(project, matrices=matrices))
    assert metrics["matrices"] == 5
    assert metrics["skipped"]["same content as another"] == 1


def test_failed_stage_leaves_the_old_output(project: Settings, folder: Path, tmp_path: Path) -> None:
    stage.ingest(project)
    before = read_manifest(tmp_path)
    text = (folder / "HB/b.mtx").read_text().splitlines()
    (folder / "HB/b.mtx").write_text("\n".join([*text[:-1], "1 1 nan"]))
    (folder / "manifest.csv").write_text("name,group,nnz,structure_class\nb,HB,1000,banded\n")
    matrices = dataclasses.replace(project.matrices, source="directory", directory=directory(folder))
    with pytest.raises(UserError, match=rf"b\.mtx: line {len(text)}: value 'nan'"):
        stage.ingest(dataclasses.replace(project, matrices=matrices))
    assert read_manifest(tmp_path).equals(before)
    assert not list((tmp_path / "data").glob(".matrices-*"))
