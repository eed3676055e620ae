"""data/matrices/manifest.csv: one row a matrix, and the matrix behind a row."""

from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import UserError
from components.matrix.storage import load_npz
from components.matrix.types import SparseMatrix

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path("data/matrices")
_TEXT = ("matrix", "name", "group", "source", "sha256", "field", "symmetry", "structure_class", "split")


def read_manifest(root: Path) -> "pd.DataFrame":
    """The manifest that the `matrices` stage wrote under `root`; names such as `nan` or `01` stay text.

    Raises:
        UserError: there is none.
    """
    import pandas as pd

    path = root / FOLDER / "manifest.csv"
    if not path.is_file():
        raise UserError(f"{path}: not found; run `dvc repro matrices` first")
    return pd.read_csv(path, dtype=dict.fromkeys(_TEXT, "str"), keep_default_na=False, na_values={})


def matrix_path(root: Path, matrix_id: str) -> Path:
    """Where the matrix `group/name` is kept."""
    return root / FOLDER / f"{matrix_id}.npz"


def load_by_id(root: Path, matrix_id: str) -> SparseMatrix:
    """The matrix `group/name` of the manifest.

    Raises:
        UserError: no manifest, or no such row in it; names close matches.
    """
    group, _, name = matrix_id.partition("/")
    path = matrix_path(root, matrix_id)
    inside = all(part not in ("", ".", "..") and "/" not in part and "\\" not in part for part in (group, name))
    if inside and path.is_file():
        return load_npz(path, name, group)
    import difflib

    ids = [str(i) for i in read_manifest(root)["matrix"]]
    close = difflib.get_close_matches(matrix_id, ids, n=3, cutoff=0.5)
    hint = f"; close: {', '.join(close)}" if close else "; `sparserl matrices list` shows them"
    raise UserError(f"{matrix_id}: no such file, and not among the {len(ids)} matrices of the manifest{hint}")
