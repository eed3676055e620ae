"""Where the project lies, and how a file is written so that a crash never leaves half of one."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.errors import UserError


def project_root() -> Path:
    """The folder that holds params.yaml: `SPARSERL_ROOT`, `DVC_ROOT`, this folder or one above it, or the checkout.

    `DVC_ROOT` comes before the working directory because a queued experiment runs in a copy.

    Raises:
        UserError: an environment variable names a folder without params.yaml, or nothing holds one.
    """
    for variable in ("SPARSERL_ROOT", "DVC_ROOT"):
        if value := os.environ.get(variable):
            root = Path(value)
            if not (root / "params.yaml").is_file():
                raise UserError(f"{variable}={value}: no params.yaml there; expected the project's folder")
            return root.resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / "params.yaml").is_file() and (folder / "dvc.yaml").is_file():
            return folder
    raise UserError(f"{here}: no params.yaml here or above; run inside the project or set SPARSERL_ROOT")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends well, and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to a temporary file, then rename it to `path`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinities are refused (ValueError)."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: not found; run the stage that makes it (`dvc repro`)") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}: not JSON ({error.msg})") from None


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Hex SHA-256 of UTF-8 text; a lone surrogate counts as its three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
