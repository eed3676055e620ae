"""cuSPARSE's products through its generic API: the baseline of a measured time.

Constants and signatures: cusparse.h of CUDA 12 and 13. Every buffer is allocated and every preprocess step done before
the clock starts.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from components.errors import SparseRLError

_R_32F, _INDEX_32I, _BASE_ZERO, _NO_TRANSPOSE, _ORDER_ROW = 0, 2, 0, 0, 2  # cudaDataType, cusparse*_t
SPMV_ALGORITHMS = {"cusparse:default": 0, "cusparse:csr_alg1": 2, "cusparse:csr_alg2": 3}
SPMM_ALGORITHMS = {"cusparse:csr_alg1": 4, "cusparse:csr_alg2": 6, "cusparse:csr_alg3": 12}


class CusparseError(SparseRLError):
    """A cuSPARSE call failed; the message names it and its status."""


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        from cuda import pathfinder

        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cusparse").abs_path)
    except (ImportError, RuntimeError):
        return ctypes.CDLL("libcusparse.so.12")  # the soname of CUDA 12 and 13


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        raise CusparseError(f"{name}: status {status}")


@dataclass
class CusparseProduct:
    """y = A x or C = A B by one algorithm, ready to launch.

    Args:
        name: of `SPMV_ALGORITHMS` or `SPMM_ALGORITHMS`.
        arrays: device arrays `row_ptr` int32, `col_idx` int32, `values`, `x` and `y` float32 (row-major operands).
        shape: rows, cols, nnz.
        width: dense columns; 0 for a vector.
        stream: address of the CUDA stream that everything runs on.
        allocate: bytes -> object with `.ptr` that lives as long as this product does.
    """

    name: str
    arrays: dict[str, Any]
    shape: tuple[int, int, int]
    width: int
    stream: int
    allocate: Callable[[int], Any]
    _keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, cols, nnz = self.shape
        pointer = {name: ctypes.c_void_p(int(array.data.ptr)) for name, array in self.arrays.items()}
        handle, matrix, x, y = (ctypes.c_void_p() for _ in range(4))
        _call("cusparseCreate", ctypes.byref(handle))
        _call("cusparseSetStream", handle, ctypes.c_void_p(self.stream))
        _call(
            "cusparseCreateCsr", ctypes.byref(matrix),
            ctypes.c_int64(rows), ctypes.c_int64(cols), ctypes.c_int64(nnz),
            pointer["row_ptr"], pointer["col_idx"], pointer["values"],
            _INDEX_32I, _INDEX_32I, _BASE_ZERO, _R_32F,
        )  # fmt: skip
        if self.width == 0:
            _call("cusparseCreateDnVec", ctypes.byref(x), ctypes.c_int64(cols), pointer["x"], _R_32F)
            _call("cusparseCreateDnVec", ctypes.byref(y), ctypes.c_int64(rows), pointer["y"], _R_32F)
        else:
            for descriptor, height, data in ((x, cols, pointer["x"]), (y, rows, pointer["y"])):
                extent, leading = (ctypes.c_int64(height), ctypes.c_int64(self.width)), ctypes.c_int64(self.width)
                _call("cusparseCreateDnMat", ctypes.byref(descriptor), *extent, leading, data, _R_32F, _ORDER_ROW)
        kind = "DnVec" if self.width == 0 else "DnMat"
        self._owned = [("cusparseDestroySpMat", matrix), (f"cusparseDestroy{kind}", x), (f"cusparseDestroy{kind}", y)]
        self._owned.append(("cusparseDestroy", handle))
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        operations = (_NO_TRANSPOSE,) if self.width == 0 else (_NO_TRANSPOSE, _NO_TRANSPOSE)
        algorithm = (SPMV_ALGORITHMS if self.width == 0 else SPMM_ALGORITHMS)[self.name]
        self._function = "cusparseSpMV" if self.width == 0 else "cusparseSpMM"
        common = (handle, *operations, ctypes.byref(one), matrix, x, ctypes.byref(zero), y, _R_32F, algorithm)
        size = ctypes.c_size_t()
        _call(f"{self._function}_bufferSize", *common, ctypes.byref(size))
        buffer = self.allocate(size.value + 16)
        self._keep += [one, zero, buffer]
        self._arguments = (*common, ctypes.c_void_p(int(buffer.ptr)))
        if hasattr(_library(), f"{self._function}_preprocess"):
            _call(f"{self._function}_preprocess", *self._arguments)

    def launch(self) -> None:
        """Enqueue one product on the stream."""
        _call(self._function, *self._arguments)

    def close(self) -> None:
        """Give back the handle and descriptors."""
        for name, thing in self._owned:
            _call(name, thing)
        self._owned = []


def products(
    arrays: dict[str, Any], shape: tuple[int, int, int], width: int, stream: int, allocate: Callable[[int], Any]
) -> list[CusparseProduct]:
    """Every algorithm that this cuSPARSE offers for one problem; one that it refuses is left out.

    Raises:
        CusparseError: none is left.
    """
    ready, refused = [], []
    for name in SPMV_ALGORITHMS if width == 0 else SPMM_ALGORITHMS:
        try:
            ready.append(CusparseProduct(name, arrays, shape, width, stream, allocate))
        except CusparseError as error:
            refused.append(f"{name}: {error}")
    if not ready:
        raise CusparseError("; ".join(refused))
    return ready


def csr_arrays(row_ptr: Any, col_idx: Any) -> tuple[Any, Any]:
    """Host row_ptr and col_idx as int32, as cuSPARSE is given them here."""
    return np.ascontiguousarray(row_ptr, np.int32), np.ascontiguousarray(col_idx, np.int32)
