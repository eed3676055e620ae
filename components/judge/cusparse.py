"""cuSPARSE's products through its generic API: every algorithm and storage format that applies to a matrix.

Constants and signatures: cusparse.h of CUDA 12 and 13. Buffers are allocated and every preprocess step is done before a
clock starts.
"""

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.errors import SparseRLError
from components.kernel.precision import Precision

_INDEX_32I, _BASE_ZERO, _NO_TRANSPOSE, _ORDER_ROW = 2, 0, 0, 2  # cusparse*_t
_DATA_TYPES = {"float": 0, "double": 1, "__half": 2, "__nv_bfloat16": 14}  # cudaDataType by C type


@dataclass(frozen=True)
class Algorithm:
    """One algorithm of cusparseSpMVAlg_t or cusparseSpMMAlg_t and the format it takes."""

    name: str
    format: str
    number: int


SPMV = (
    Algorithm("cusparse:csr_default", "csr", 0),
    Algorithm("cusparse:csr_alg1", "csr", 2),
    Algorithm("cusparse:csr_alg2", "csr", 3),
    Algorithm("cusparse:coo_alg1", "coo", 1),
    Algorithm("cusparse:coo_alg2", "coo", 4),
    Algorithm("cusparse:sell_alg1", "sell", 5),
    Algorithm("cusparse:bsr_alg1", "bsr", 6),
)
SPMM = (
    Algorithm("cusparse:csr_alg1", "csr", 4),
    Algorithm("cusparse:csr_alg2", "csr", 6),
    Algorithm("cusparse:csr_alg3", "csr", 12),
    Algorithm("cusparse:coo_alg4", "coo", 5),
    Algorithm("cusparse:bsr_alg1", "bsr", 14),
)


class CusparseError(SparseRLError):
    """A cuSPARSE call failed; the message names it and its status."""


@functools.cache
def library() -> ctypes.CDLL:
    """libcusparse, however it was installed."""
    try:
        from cuda import pathfinder

        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cusparse").abs_path)
    except (ImportError, RuntimeError):
        return ctypes.CDLL("libcusparse.so.12")  # the soname of CUDA 12 and 13


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library; CusparseError unless it answers success or does not exist."""
    function = getattr(library(), name, None)
    if function is None:
        raise CusparseError(f"{name}: not in this cuSPARSE")
    status = function(*arguments)
    if status != 0:
        raise CusparseError(f"{name}: status {status}")


@functools.cache
def handle(stream: int) -> ctypes.c_void_p:
    """The process's handle on a stream."""
    created = ctypes.c_void_p()
    call("cusparseCreate", ctypes.byref(created))
    call("cusparseSetStream", created, ctypes.c_void_p(stream))
    return created


@dataclass(eq=False)
class CusparseProduct:
    """y = A x or C = A B by one algorithm, ready to launch.

    Args:
        algorithm: of `SPMV` or `SPMM`.
        pointers: device addresses by the names of the format's arrays (components/kernel/formats; coo: `row_idx`,
            `col_idx`), `values`, `x` and `y`; int32 indices, row-major dense operands.
        sizes: `rows`, `cols`, `nnz`, and what the format needs: `slots` and `c` of sell, `block_rows`, `blocks`, `b`
            of bsr.
        width: dense columns; 0 for a vector.
        precision: of values, operands and result.
        stream: address of the CUDA stream that everything runs on.
        allocate: bytes -> object with `.ptr` that lives as long as this product does.

    Raises:
        CusparseError: this cuSPARSE does not offer it for this matrix.
    """

    algorithm: Algorithm
    pointers: Mapping[str, int]
    sizes: Mapping[str, int]
    width: int
    precision: Precision
    stream: int
    allocate: Callable[[int], Any]
    _keep: list[Any] = field(default_factory=list)
    _owned: list[tuple[str, ctypes.c_void_p]] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self._create()
        except CusparseError:
            self.close()
            raise

    def _create(self) -> None:
        matrix = self._matrix()
        value, output = _DATA_TYPES[self.precision.value], _DATA_TYPES[self.precision.output]
        x, y = self._dense("x", self.sizes["cols"], value), self._dense("y", self.sizes["rows"], output)
        scalar = ctypes.c_double if self.precision.output == "double" else ctypes.c_float
        one, zero = scalar(1.0), scalar(0.0)
        operations = (_NO_TRANSPOSE,) if self.width == 0 else (_NO_TRANSPOSE, _NO_TRANSPOSE)
        self._function = "cusparseSpMV" if self.width == 0 else "cusparseSpMM"
        coefficients = (ctypes.byref(one), matrix, x, ctypes.byref(zero), y)
        common = (handle(self.stream), *operations, *coefficients, output, self.algorithm.number)
        size = ctypes.c_size_t()
        call(f"{self._function}_bufferSize", *common, ctypes.byref(size))
        buffer = self.allocate(size.value + 16)
        self._keep += [one, zero, buffer]
        self._arguments = (*common, ctypes.c_void_p(int(buffer.ptr)))
        if hasattr(library(), f"{self._function}_preprocess") and self.algorithm.format == "csr":
            call(f"{self._function}_preprocess", *self._arguments)

    def launch(self) -> None:
        """Enqueue one product on the stream."""
        call(self._function, *self._arguments)

    def close(self) -> None:
        """Give back the descriptors."""
        for name, thing in self._owned:
            call(name, thing)
        self._owned = []

    def _matrix(self) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        place, number = self._pointer, self._number
        tail = (_BASE_ZERO, _DATA_TYPES[self.precision.value])
        arrays: tuple[Any, ...]
        sizes: tuple[Any, ...]
        if self.algorithm.format == "csr":
            arrays = (place("row_ptr"), place("col_idx"), place("values"), _INDEX_32I, _INDEX_32I, *tail)
            sizes = (number("rows"), number("cols"), number("nnz"))
            call("cusparseCreateCsr", ctypes.byref(descriptor), *sizes, *arrays)
        elif self.algorithm.format == "coo":
            arrays = (place("row_idx"), place("col_idx"), place("values"), _INDEX_32I, *tail)
            sizes = (number("rows"), number("cols"), number("nnz"))
            call("cusparseCreateCoo", ctypes.byref(descriptor), *sizes, *arrays)
        elif self.algorithm.format == "sell":
            arrays = (place("slice_ptr"), place("col_idx"), place("values"), _INDEX_32I, _INDEX_32I, *tail)
            sizes = (number("rows"), number("cols"), number("nnz"), number("slots"), number("c"))
            call("cusparseCreateSlicedEll", ctypes.byref(descriptor), *sizes, *arrays)
        else:
            arrays = (place("block_ptr"), place("block_col"), place("values"), _INDEX_32I, _INDEX_32I, *tail)
            b = self.sizes["b"]
            sizes = (number("block_rows"), ctypes.c_int64(self.sizes["cols"] // b), number("blocks"))
            blocks = (ctypes.c_int64(b), ctypes.c_int64(b))
            call("cusparseCreateBsr", ctypes.byref(descriptor), *sizes, *blocks, *arrays, _ORDER_ROW)
        self._owned.append(("cusparseDestroySpMat", descriptor))
        return descriptor

    def _dense(self, name: str, height: int, kind: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        if self.width == 0:
            call("cusparseCreateDnVec", ctypes.byref(descriptor), ctypes.c_int64(height), self._pointer(name), kind)
            self._owned.append(("cusparseDestroyDnVec", descriptor))
        else:
            width = ctypes.c_int64(self.width)
            extent = (ctypes.c_int64(height), width, width)
            call("cusparseCreateDnMat", ctypes.byref(descriptor), *extent, self._pointer(name), kind, _ORDER_ROW)
            self._owned.append(("cusparseDestroyDnMat", descriptor))
        return descriptor

    def _pointer(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.pointers[name])

    def _number(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64(self.sizes[name])
