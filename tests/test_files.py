import os

import pytest

from components.errors import UserError
from components.files import project_root, read_json, replacing, sha256_text, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        fail()
    assert read_json(path) == {"x": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert os.listdir(tmp_path) == []


def test_json_errors_are_one_line(tmp_path):
    with pytest.raises(UserError, match="not found; run the stage"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{\n "a": }')
    with pytest.raises(UserError, match=r"bad\.json: line 2: not JSON"):
        read_json(tmp_path / "bad.json")


def test_root_is_found_from_below_and_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.delenv("SPARSERL_ROOT", raising=False)
    (tmp_path / "params.yaml").touch()
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert project_root() == tmp_path.resolve()
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "deep"))
    with pytest.raises(UserError, match="DVC_ROOT="):
        project_root()


def test_sha256_of_text():
    assert sha256_text("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
