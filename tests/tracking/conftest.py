import dataclasses
import shutil

import pytest

from components.settings import load
from components.tracking.store import open_store


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty store that is migrated once; tests copy it."""
    root = tmp_path_factory.mktemp("migrated")
    open_store(dataclasses.replace(load(), root=root))
    return root


@pytest.fixture
def settings(migrated, tmp_path):
    root = tmp_path / "a project ü"
    shutil.copytree(migrated, root)
    return dataclasses.replace(load(), root=root)
