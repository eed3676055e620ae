"""Containers around a matrix: gzip, tar, npz, and the manifest."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from components.errors import UserError
from components.matrix.generate import generate
from components.matrix.load import load_matrix
from components.matrix.storage import load_npz, save_npz

TEXT = b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 5\n2 1 6\n"
OTHER = b"%%MatrixMarket matrix array real general\n2 1\n1\n2\n"


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def message(spec: str | Path, root: Path | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_matrix(spec, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_plain_and_gzip(tmp_path: Path) -> None:
    folder = tmp_path / "a folder \u00e9"
    folder.mkdir()
    (folder / "A.mtx").write_bytes(TEXT)
    (folder / "A.mtx.gz").write_bytes(gzip.compress(TEXT))
    for name in ("A.mtx", "A.mtx.gz"):
        matrix = load_matrix(folder / name)
        assert (matrix.name, matrix.id, matrix.source) == ("A", "local/A", str(folder / name))
        np.testing.assert_array_equal(matrix.to_scipy().toarray(), [[5, 0], [6, 0]])
        assert len(matrix.sha256) == 64


@pytest.mark.parametrize(
    ("file", "members"),
    [
        ("A.tar.gz", {"A/A.mtx": TEXT, "A/A_b.mtx": OTHER, "A/A_coord.mtx": OTHER}),
        ("A.tar.gz", {"A/A_b.mtx": OTHER, "A/A_coord.mtx": OTHER, "A/A.mtx": TEXT, "A/._A.mtx": b"junk"}),
        ("download.tar.gz", {"A/A_b.mtx": OTHER, "A/A.mtx": TEXT}),
        ("download.tgz", {"A_b.mtx": OTHER, "A.mtx": TEXT, "readme.txt": b"x"}),
        ("A.tar", {"A.mtx": TEXT, "B.mtx": OTHER}),
    ],
)
def test_archive_takes_the_matrix(tmp_path: Path, file: str, members: dict[str, bytes]) -> None:
    path = archive(tmp_path / file, members, "w" if file.endswith(".tar") else "w:gz")
    np.testing.assert_array_equal(load_matrix(path).to_scipy().toarray(), [[5, 0], [6, 0]])


def test_archive_without_one_matrix(tmp_path: Path) -> None:
    assert "2 .mtx files (B.mtx, C.mtx)" in message(archive(tmp_path / "A.tar.gz", {"B.mtx": TEXT, "C.mtx": TEXT}))
    assert "no .mtx file" in message(archive(tmp_path / "E.tar.gz", {"E/E.rb": b"x"}))


def test_line_within_an_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "A.tar.gz", {"A/A.mtx": TEXT.replace(b"2 1 6", b"3 1 6")})
    assert message(path) == f"{path}!A/A.mtx: line 4: row 3, expected 1 to 2"


def test_damaged_containers(tmp_path: Path) -> None:
    text = TEXT.replace(b"2 2 2", b"900 900 9000") + b"".join(b"%d 7 0.%d\n" % (k % 900 + 1, k) for k in range(8998))
    whole = gzip.compress(text)
    path = tmp_path / "cut.mtx.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "damaged or cut off" in message(path)
    assert "line " in message(path)
    path.write_bytes(whole[:-8] + b"\0" * 8)
    assert "damaged or cut off" in message(path)
    path.write_bytes(text)
    assert message(path).startswith(f"{path}: line 1: not gzip data, expected gzip")
    path.write_bytes(b"")
    assert message(path).startswith(f"{path}: line 1: empty file")
    tar = archive(tmp_path / "A.tar.gz", {"A/A.mtx": text})
    tar.write_bytes(tar.read_bytes()[:-1000])
    assert "damaged or cut off" in message(tar)


def test_what_is_not_a_matrix(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "missing.mtx")
    assert "a folder" in message(tmp_path)
    assert "no such file" in message("one-word")
    (tmp_path / "A.csv").write_text("1,2")
    assert "no such file" in message(tmp_path / "A.csv")


def test_npz_roundtrip(tmp_path: Path) -> None:
    matrix = generate("lp", 2000, 3)
    save_npz(tmp_path / "a.npz", matrix)
    save_npz(tmp_path / "b.npz", matrix)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = load_npz(tmp_path / "a.npz", "x")
    for name in ("name", "group", "rows", "cols", "field", "symmetry", "nnz_stored", "source", "sha256"):
        assert getattr(again, name) == getattr(matrix, name)
    np.testing.assert_array_equal(again.row_ptr, matrix.row_ptr)
    np.testing.assert_array_equal(again.col_idx, matrix.col_idx)
    np.testing.assert_array_equal(again.values, matrix.values)
    assert (scipy.sparse.load_npz(tmp_path / "a.npz") != matrix.to_scipy()).nnz == 0


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_scipy_npz(tmp_path: Path, kind: str) -> None:
    dense = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0]])
    scipy.sparse.save_npz(tmp_path / "M.npz", scipy.sparse.csr_array(dense).asformat(kind))
    matrix = load_matrix(tmp_path / "M.npz")
    assert (matrix.name, matrix.group, matrix.field) == ("M", "local", "real")
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), dense)


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "M.npz"
    path.write_bytes(b"not a zip")
    assert "expected a matrix saved by scipy" in message(path)
    np.savez(path, a=np.ones(3))
    assert "expected a matrix saved by scipy" in message(path)
    arrays = {"format": b"csr", "shape": [2, 2], "data": [1.0, 2.0], "indptr": [0, 1, 2]}
    np.savez(path, indices=[0, 7], **arrays)
    assert "expected a matrix saved by scipy" in message(path)
    np.savez(path, indices=[0, 1], **{**arrays, "data": [1.0, np.nan]})
    assert "expected finite values" in message(path)
    np.savez(path, indices=[0, 1], **{**arrays, "indptr": [0, 99, 2]})
    assert "expected a matrix saved by scipy" in message(path)


def test_a_shape_that_cannot_fit_is_refused_before_allocating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 15)  # 1 GiB
    path = tmp_path / "A.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2147483647 1 1\n1 1 1\n")
    assert "expected to fit" in message(path)


def test_by_manifest_id(tmp_path: Path) -> None:
    assert "dvc repro matrices" in message("HB/ash85", tmp_path)
    folder = tmp_path / "data/matrices"
    matrix = generate("arrow", 1000, 0)
    save_npz(folder / f"{matrix.id}.npz", matrix)
    (folder / "manifest.csv").write_text(f"matrix,split\n{matrix.id},train\n")
    assert load_matrix(matrix.id, tmp_path).nnz == matrix.nnz
    assert f"close: {matrix.id}" in message("gen-arrow-0/arrow-1000-1", tmp_path)
    assert "not among the 1 matrices" in message("../manifest", tmp_path)
