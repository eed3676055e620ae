"""Archives are read in memory; names that point outside and damaged files are noticed."""

import io
import tarfile
from pathlib import Path

import pytest
from corpus_places import tar_gz, wheel

from components.corpus.archives import Member, inner_path, members
from components.errors import UserError


def everything(path: Path, limit: int = 1000) -> list[Member]:
    return list(members(path, lambda name: name.endswith(".cu"), limit))


def test_wheel(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    path.write_bytes(wheel({"p/a.cu": b"one", "p/b.py": b"no", "p/big.cu": b"x" * 1001, "p/": b""}))
    assert everything(path) == [Member("p/a.cu", 3, b"one"), Member("p/big.cu", 1001, None)]


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2"])
def test_tar(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"a.tar.{packing}"
    with tarfile.open(path, f"w:{packing}") as archive:  # type: ignore[call-overload]
        for name, data in {"p/a.cu": b"one", "p/b.py": b"no", "p/big.cu": b"x" * 1001}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert everything(path) == [Member("p/a.cu", 3, b"one"), Member("p/big.cu", 1001, None)]


def test_links_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tar_gz({"p/a.cu": b"one"}, links={"p/passwd.cu": "/etc/passwd"}))
    assert [member.path for member in everything(path)] == ["p/a.cu"]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.whl", "a.zip", "a.tar.xz"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_archive_is_a_user_error(tmp_path: Path, name: str, damage: str) -> None:
    good = (
        wheel({"p/a.cu": bytes(range(256)) * 50}) if name.endswith(("whl", "zip")) else tar_gz({"p/a.cu": b"1" * 999})
    )
    path = tmp_path / name
    path.write_bytes({"cut": good[: len(good) // 2], "text": b"<html>", "empty": b""}[damage])
    with pytest.raises(UserError, match=r"damaged archive .* delete the file and run again") as caught:
        everything(path)
    assert "\n" not in str(caught.value)


def test_flipped_byte_in_a_zip(tmp_path: Path) -> None:
    data = bytearray(wheel({"p/a.cu": bytes(range(256)) * 50}))
    data[60] ^= 0xFF
    (tmp_path / "a.whl").write_bytes(data)
    with pytest.raises(UserError, match="damaged archive"):
        everything(tmp_path / "a.whl", 10**6)


@pytest.mark.parametrize("path", ["../a.cu", "p/../../a.cu", "/etc/a.cu", "p\\..\\a.cu", "C:/a.cu", "p/\0.cu", "p/.."])
def test_paths_that_point_outside(path: str) -> None:
    assert inner_path(path) is None


@pytest.mark.parametrize(
    ("path", "clean"), [("p/a.cu", "p/a.cu"), ("./p//a.cu", "p/a.cu"), ("p/..a.cu", "p/..a.cu"), ("p/é.cu", "p/é.cu")]
)
def test_paths_that_stay_inside(path: str, clean: str) -> None:
    assert inner_path(path) == clean
