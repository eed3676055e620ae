"""`SparseMatrix` to .npz and back, in the layout of `scipy.sparse.save_npz` with a few details beside it."""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import UserError
from components.files import replacing
from components.matrix.assemble import assemble
from components.matrix.mtx_header import MAX_DIMENSION
from components.matrix.types import SparseMatrix

_DETAILS = ("name", "group", "field", "symmetry", "nnz_stored", "duplicates", "source", "sha256")
_FIELDS = {"b": "pattern", "i": "integer", "u": "integer", "f": "real", "c": "complex"}


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

    `name` and `group` are for a file that does not hold them itself.

    Raises:
        UserError: not such a file, indices outside the shape, or values that are not finite real or complex numbers.
    """
    from scipy.sparse import load_npz as scipy_load

    try:
        loaded: Any = scipy_load(path)
        with np.load(path, allow_pickle=False) as arrays:
            details = json.loads(str(arrays["details"])) if "details" in arrays else {}
        if loaded.format in ("csr", "csc", "bsr"):
            loaded.check_format(full_check=True)
        coo = loaded.tocoo()
        (i, j), (rows, cols) = coo.coords, coo.shape
        if len(i) and (min(i.min(), j.min()) < 0 or i.max() >= rows or j.max() >= cols):
            raise ValueError("index outside the shape")
    except (  # what NumPy and scipy raise on a file of another kind
        ValueError,
        KeyError,
        TypeError,
        NotImplementedError,  # scipy: an array of a sparse format that it cannot load
        AttributeError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        first = " ".join(str(error).split())
        if "pickle" in first:  # numpy's advice to switch its guard off is none for a user
            first = "holds Python objects or is no array file"
        raise UserError(f"{path}: {first}, expected a matrix saved by scipy.sparse.save_npz") from None
    matrix = from_scipy(coo, name, group, str(path))
    return dataclasses.replace(matrix, **_checked(details, path)) if details else matrix


def _checked(details: object, path: Path) -> dict[str, Any]:
    """The details of `save_npz`, each of its own kind; anybody may write a file that claims others.

    Raises:
        UserError: a detail that `save_npz` does not write, or of another type.
    """
    kinds = {name: int if name in ("nnz_stored", "duplicates") else str for name in _DETAILS}
    if not isinstance(details, dict) or any(type(value) is not kinds.get(key) for key, value in details.items()):
        raise UserError(f"{path}: details {str(details)[:60]!r}, expected those that SparseRL writes, or none")
    return details


def from_scipy(matrix: Any, name: str, group: str, source: str) -> SparseMatrix:
    """Any two-dimensional scipy.sparse matrix or array; duplicates are summed, explicit zeros kept.

    Raises:
        UserError: a type that is not numeric, a value that is not finite, a dimension over 2^31 - 1.
    """
    coo = matrix.tocoo()
    rows, cols = (int(n) for n in coo.shape)
    if max(rows, cols) > MAX_DIMENSION:
        raise UserError(f"{source}: shape {rows} x {cols}, expected at most {MAX_DIMENSION} rows and columns")
    if coo.data.dtype.kind not in _FIELDS:
        raise UserError(f"{source}: values of type {coo.data.dtype}, expected real or complex numbers")
    values = coo.data.astype(np.complex128 if coo.data.dtype.kind == "c" else np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UserError(f"{source}: entry {bad[0]} is {values[bad[0]]}, expected finite values")
    i, j = coo.coords
    whole = assemble(rows, cols, i, j, values)
    return SparseMatrix(
        name=name,
        group=group,
        rows=rows,
        cols=cols,
        row_ptr=whole.row_ptr,
        col_idx=whole.col_idx,
        values=whole.values,
        field=_FIELDS[coo.data.dtype.kind],
        nnz_stored=len(values),
        duplicates=whole.duplicates,
        explicit_zeros=int(np.count_nonzero(whole.values == 0)),
        source=source,
    )
