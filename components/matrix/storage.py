"""`SparseMatrix` to .npz and back, with the arrays that `scipy.sparse.load_npz` expects and a few details beside them."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import UserError
from components.files import replacing
from components.matrix.assemble import Array, assemble
from components.matrix.mtx_header import MAX_DIMENSION
from components.matrix.types import SparseMatrix

_DETAILS = ("name", "group", "field", "symmetry", "nnz_stored", "duplicates", "source", "sha256")


def save_npz(path: Path, matrix: SparseMatrix) -> None:
    """Write the matrix and its details, atomically; equal matrices give equal bytes."""
    details = json.dumps({key: getattr(matrix, key) for key in _DETAILS})
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            format=np.array(b"csr"),
            shape=np.array([matrix.rows, matrix.cols], np.int64),
            indptr=matrix.row_ptr,
            indices=matrix.col_idx,
            data=matrix.values,
            details=np.array(details),
        )


def load_npz(path: Path, name: str, group: str = "local") -> SparseMatrix:
    """Read a matrix that `save_npz` or `scipy.sparse.save_npz` wrote, any scipy format.

    Raises:
        UserError: not such a file, indices outside the shape, or values that are not finite real or complex numbers.
    """
    from scipy.sparse import load_npz as scipy_load

    try:
        loaded: Any = scipy_load(path)
        with np.load(path, allow_pickle=False) as arrays:
            details = json.loads(str(arrays["details"])) if "details" in arrays else {}
        stored = int(loaded.nnz)
        if loaded.format in ("csr", "csc", "bsr"):
            loaded.check_format(full_check=True)
        coo = loaded.tocoo()
        i, j = coo.coords
        rows, cols = (int(n) for n in coo.shape)
        if len(i) and (min(i.min(), j.min()) < 0 or i.max() >= rows or j.max() >= cols):
            raise ValueError("index outside the shape")
    except (
        ValueError,
        KeyError,
        TypeError,
        NotImplementedError,
        AttributeError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        first = " ".join(str(error).split())
        raise UserError(f"{path}: {first}, expected a matrix saved by scipy.sparse.save_npz") from None
    values = _values(coo.data, path)
    if max(rows, cols) > MAX_DIMENSION:
        raise UserError(f"{path}: shape {rows} x {cols}, expected at most {MAX_DIMENSION} rows and columns")
    whole = assemble(rows, cols, i, j, values)
    return SparseMatrix(
        name=str(details.get("name", name)),
        group=details.get("group", group),
        rows=rows,
        cols=cols,
        row_ptr=whole.row_ptr,
        col_idx=whole.col_idx,
        values=whole.values,
        field=details.get("field", _field(coo.data.dtype)),
        symmetry=details.get("symmetry", "general"),
        nnz_stored=details.get("nnz_stored", stored),
        duplicates=details.get("duplicates", whole.duplicates),
        explicit_zeros=int(np.count_nonzero(whole.values == 0)),
        source=details.get("source", str(path)),
        sha256=details.get("sha256", ""),
    )


def _values(data: Array, path: Path) -> Array:
    if data.dtype.kind not in "buifc":
        raise UserError(f"{path}: values of type {data.dtype}, expected real or complex numbers")
    values = data.astype(np.complex128 if data.dtype.kind == "c" else np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UserError(f"{path}: entry {bad[0]} is {values[bad[0]]}, expected finite values")
    return values


def _field(dtype: np.dtype[Any]) -> str:
    return {"c": "complex", "f": "real", "b": "pattern"}.get(dtype.kind, "integer")
