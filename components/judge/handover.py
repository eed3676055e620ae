"""Matrices on their way to worker processes: each pattern is written once, and read once by each worker."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from components.files import replacing
from components.judge.verify import pattern_key
from components.matrix.types import SparseMatrix


class Handover:
    """Files of the patterns that are being judged, in a folder that ends with the worker pool."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = threading.Lock()

    def describe(self, matrix: SparseMatrix) -> dict[str, Any]:
        """The keyword arguments of `prepare.load_pattern`, as plain JSON types; writes the file when it is new."""
        key = pattern_key(matrix)
        path = f"{self.folder}/{key}.npz"
        if not os.path.exists(path):
            with self._lock:
                if not os.path.exists(path):
                    self._write(Path(path), matrix)
        return {"path": path, "key": key, "name": matrix.name, "group": matrix.group}

    @staticmethod
    def _write(path: Path, matrix: SparseMatrix) -> None:
        with replacing(path) as temporary:
            np.savez(
                temporary,
                shape=np.array([matrix.rows, matrix.cols], np.int64),
                row_ptr=matrix.row_ptr,
                col_idx=matrix.col_idx,
            )
