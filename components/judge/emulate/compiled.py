"""The compiled core, from numba's cache when it is there.

numba notices a change of the file that holds a cached function, not of the files it calls, so the cache lives in a
folder named by the content of this whole room. That is in NUMBA_CACHE_DIR when it is set, else beside the package when
it can be written, else in the user's cache folder, else under the system's temporary files.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from numba.core import config as numba_config

config: Any = numba_config


def cache_folder() -> Path:
    """Where the compiled core of exactly these sources is kept (created)."""
    here = Path(__file__).parent
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for source in sorted(here.glob("*.py")):
        digest.update(source.read_bytes())
    name = f"core-{digest.hexdigest()[:16]}"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    given = [Path(config.CACHE_DIR)] if config.CACHE_DIR else []  # NUMBA_CACHE_DIR
    for base in (
        *given,
        here / "__pycache__",
        user / "sparserl",
        Path(tempfile.gettempdir()) / f"sparserl-{os.getuid()}",
    ):
        try:
            (base / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(base / name, os.W_OK):
            return base / name
    return Path(tempfile.mkdtemp(prefix="sparserl-core-"))


_before = config.CACHE_DIR
config.CACHE_DIR = str(cache_folder())  # read when a function is decorated, that is, while core is imported
try:
    from components.judge.emulate.core import run_grid
finally:
    config.CACHE_DIR = _before

__all__ = ["run_grid"]
