"""What a candidate is compared with on a GPU: every product that the vendor's and the frameworks' libraries offer.

cuSPARSE in every algorithm and format that applies (replayed from a graph, preprocess done), and the sparse products of
CuPy and PyTorch as a user calls them (eager: their own checks and allocations are part of the time). Each is verified,
all are timed L2-warm, the fastest is the baseline.
"""

import functools
import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import SparseRLError
from components.judge.cusparse import SPMM, SPMV, Algorithm, CusparseError, CusparseProduct
from components.judge.device import Drawn, Entry, Pattern
from components.judge.timing import WARM_UPS, Side, runs_for
from components.judge.verify import Mismatch
from components.kernel.formats import convert, format_spec
from components.kernel.precision import Precision
from components.kernel.types import FormatNotApplicable, StoredMatrix
from components.matrix.types import SparseMatrix

_BSR_BLOCKS = (2, 3, 4, 5, 6, 7, 8)
_MAX_FILL = 3.0  # slots per non-zero up to which a padded format is worth trying
_EAGER_RUNS = 20
_TRUSTED_S = 60.0  # deadline of the libraries' products
_ALTERNATE_US = 100.0  # above that the two draws are not taken in turn: nothing of so much work stays in an L2
_LOOKS = 7  # replays from which the fastest is picked


@dataclass(frozen=True)
class _Product:
    name: str
    enqueue: Callable[[int], None]  # with numbers 0 or 1
    output: Callable[[int], Any]  # what a run with these numbers left on the device: has `.ptr` and `.nbytes`
    captured: bool  # may be replayed from a graph
    keep: Any = None


@dataclass(frozen=True)
class _Output:
    ptr: int
    nbytes: int


class Baselines:
    """The library products of one (matrix, operator, width, precision), resident on the device.

    Args:
        device: components.judge.device.CudaDevice.
        matrix: pattern.
        operator: `spmv` or `spmm`.
        width: dense columns.
        precision: of values, operands and result.
        pattern: the same on the device.
        draws: two draws of numbers; products take them in turn, as candidates do.
        known: name -> microseconds as an earlier process of the session measured them; only the fastest is then made.

    Raises:
        SparseRLError: a library's product is wrong, or none works.
    """

    def __init__(
        self,
        device: Any,
        matrix: SparseMatrix,
        operator: str,
        width: int,
        precision: Precision,
        pattern: Pattern,
        draws: tuple[Drawn, Drawn],
        known: dict[str, float] | None = None,
    ) -> None:
        self._device, self._matrix, self._precision = device, matrix, precision
        self._pattern, self._draws = pattern, draws
        self._width = 0 if operator == "spmv" else width
        self._stored: dict[str, StoredMatrix] = {}
        self._formats: dict[str, dict[str, Any]] = {}
        self._blocks: list[Any] = []
        self._elements = matrix.rows * width
        self._y = [device.alloc(precision.output_bytes * self._elements) for _ in draws]
        self.times: dict[str, float] = dict(known or {})
        self.refused: list[str] = []
        wanted = min(self.times, key=self.times.__getitem__) if self.times else None
        best: Side | None = None
        for product in self._products(wanted):
            side = self._timed(product)
            if side.name not in self.times:
                continue
            if best is None or self.times[side.name] < self.times[best.name]:
                best = side
        if best is None:
            raise SparseRLError(f"no library product works on {matrix.id}: {'; '.join(self.refused)}")
        self.best = best

    @property
    def nbytes(self) -> int:
        """Device memory held."""
        return sum(int(block.nbytes) for block in (*self._blocks, *self._y, *self._draws))

    # -- the products --------------------------------------------------------------------------------------------

    def _products(self, wanted: str | None) -> Iterator[_Product]:
        for algorithm in SPMV if self._width == 0 else SPMM:
            if wanted in (None, algorithm.name):
                try:
                    yield self._cusparse(algorithm)
                except (CusparseError, FormatNotApplicable) as error:
                    self.refused.append(f"{algorithm.name}: {error}")
        for name, make in (("cupy:csr_dot", self._cupy), ("torch:csr_matmul", self._torch)):
            if self._precision.value != self._precision.output:
                self.refused.append(f"{name}: no product of {self._precision.name} with 32-bit sums")
            elif wanted in (None, name):
                try:
                    yield make(name)
                except (ImportError, RuntimeError) as error:  # not installed, or refuses this product
                    self.refused.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")

    def _cusparse(self, algorithm: Algorithm) -> _Product:
        arrays = self._arrays(algorithm.format)
        sizes = self._stored[algorithm.format].scalars
        products = [
            CusparseProduct(
                algorithm,
                {**arrays["shared"], "values": arrays["values"][i], "x": self._draws[i].dense.ptr, "y": self._y[i].ptr},
                sizes,
                self._width,
                self._precision,
                self._device.stream.ptr,
                self._device.alloc,
            )
            for i in range(2)
        ]
        return _Product(algorithm.name, lambda run: products[run % 2].launch(), self._y.__getitem__, True, products)

    def _cupy(self, name: str) -> _Product:
        cupy, sparse = self._device.cupy, importlib.import_module("cupyx.scipy.sparse")
        outputs: list[Any] = [None, None]
        made = []
        with self._device.stream:
            for draw in self._draws:
                values, dense, col_idx, row_ptr = self._csr(draw)
                stored = sparse.csr_matrix((values, col_idx, row_ptr), shape=(self._matrix.rows, self._matrix.cols))
                made.append((stored, cupy.asfortranarray(dense)))

        def enqueue(run: int) -> None:
            stored, dense = made[run % 2]
            with self._device.stream:
                outputs[run % 2] = stored.dot(dense)

        def output(number: int) -> Any:
            with self._device.stream:
                outputs[number] = cupy.ascontiguousarray(outputs[number])
            return _Output(outputs[number].data.ptr, outputs[number].nbytes)

        return _Product(name, enqueue, output, False, made)

    def _torch(self, name: str) -> _Product:
        if importlib.util.find_spec("torch") is None:
            raise ImportError("PyTorch is not installed")
        torch: Any = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise ImportError("PyTorch has no CUDA")
        matrix, outputs = self._matrix, [None, None]
        stream = torch.cuda.ExternalStream(self._device.stream.ptr)
        made = []
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that sparse CSR is in beta
            for draw in self._draws:
                values, dense, col_idx, row_ptr = (torch.as_tensor(a, device="cuda") for a in self._csr(draw))
                size = (matrix.rows, matrix.cols)
                stored = torch.sparse_csr_tensor(row_ptr, col_idx, values, size=size, check_invariants=False)
                made.append((stored, dense))

        def enqueue(run: int) -> None:
            stored, dense = made[run % 2]
            with torch.cuda.stream(stream):
                outputs[run % 2] = stored @ dense

        def output(number: int) -> Any:
            with torch.cuda.stream(stream):
                found: Any = outputs[number]
                outputs[number] = found = found.contiguous()
            return _Output(found.data_ptr(), found.numel() * found.element_size())

        return _Product(name, enqueue, output, False, made)

    def _csr(self, draw: Drawn) -> tuple[Any, Any, Any, Any]:
        """CuPy's views of what lies on the device: values, dense operand, column indices, row pointers."""
        matrix, number = self._matrix, self._precision.value_dtype
        shape = (matrix.cols,) if self._width == 0 else (matrix.cols, self._width)
        return (
            self._view(draw.values, (matrix.nnz,), number),
            self._view(draw.dense, shape, number),
            self._view(self._pattern.col_idx, (matrix.nnz,), np.int32),
            self._view(self._pattern.row_ptr, (matrix.rows + 1,), np.int32),
        )

    def _view(self, block: Any, shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
        cupy = self._device.cupy
        memory = cupy.cuda.UnownedMemory(block.ptr, block.nbytes, block)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    # -- their arrays --------------------------------------------------------------------------------------------

    def _arrays(self, kind: str) -> dict[str, Any]:
        """Device addresses of a format's index arrays, and of its values for both draws."""
        if kind not in self._formats:
            stored = self._store(kind)
            shared = {
                name: self._upload(np.ascontiguousarray(array)).ptr
                for name, array in stored.arrays.items()
                if name != "values"
            }
            slots = self._upload(np.ascontiguousarray(stored.value_slots))
            values = [self._filled(stored.arrays["values"].nbytes, draw, slots).ptr for draw in self._draws]
            self._stored[kind] = stored
            self._formats[kind] = {"shared": shared, "values": values}
        return self._formats[kind]

    def _store(self, kind: str) -> StoredMatrix:
        matrix = self._matrix
        if kind in ("csr", "coo"):
            return convert(format_spec(kind, {}), matrix, self._precision.value_dtype)
        if kind == "sell":
            stored = convert(format_spec("sell", {"c": "32", "sigma": "1"}), matrix, self._precision.value_dtype)
            if stored.scalars["slots"] > _MAX_FILL * matrix.nnz:
                raise FormatNotApplicable(f"{stored.scalars['slots']} slots for {matrix.nnz} non-zeros")
            return stored
        sides = math.gcd(matrix.rows, matrix.cols)
        fitting = [b for b in _BSR_BLOCKS if sides % b == 0]
        stored_by_b = [convert(format_spec("bsr", {"b": str(b)}), matrix, self._precision.value_dtype) for b in fitting]
        dense_enough = [s for s in stored_by_b if len(s.arrays["values"]) <= _MAX_FILL * matrix.nnz]
        if not dense_enough:
            raise FormatNotApplicable("no block size fills its blocks well enough")
        return min(dense_enough, key=lambda s: s.bytes)

    def _filled(self, nbytes: int, draw: Drawn, slots: Any) -> Any:
        """A draw's values in a format's slots."""
        block = self._device.alloc(nbytes)
        self._blocks.append(block)
        self._device.fill(block, 0)
        self._device.scatter(block.ptr, draw.values, slots)
        return block

    def _upload(self, array: NDArray[Any]) -> Any:
        block = self._device.upload(array)
        self._blocks.append(block)
        return block

    # -- their times ---------------------------------------------------------------------------------------------

    def _timed(self, product: _Product) -> Side:
        """Verify a product and time it; its time goes to `times`."""
        for number, draw in enumerate(self._draws):
            product.enqueue(number)
            self._check(product.name, product.output(number), draw)
        if product.captured:
            first = self._device.graph(product.enqueue, 4)
            estimate = float(self._device.stopwatch([first] * 2, _TRUSTED_S)[1]) / 4
            runs = runs_for(estimate, 2 if estimate < _ALTERNATE_US else 1)
            replay = self._device.graph(product.enqueue, runs)
        else:
            runs = _EAGER_RUNS

            def replay() -> None:
                for run in range(runs):
                    product.enqueue(run)

        if product.name not in self.times:
            watch = functools.partial(self._device.stopwatch, deadline_s=_TRUSTED_S, held=product.captured)
            watch([replay] * math.ceil(WARM_UPS / runs))
            looks = float(np.median(watch([replay] * _LOOKS)))
            self.times[product.name] = (looks - (self._device.replay_us if product.captured else 0.0)) / runs
        return Side(product.name, replay, runs, lambda: product.enqueue(0), product.captured, self.times[product.name])

    def _check(self, name: str, output: Any, draw: Drawn) -> None:
        """Audit what a product left.

        Raises:
            SparseRLError: it is wrong.
        """
        size = self._precision.output_bytes
        entry = Entry(output, output, (0, output.nbytes // 4), size // 4, draw.expected, draw.bound)
        self._device.reset_audits()
        self._device.audit(self._device.enter([entry]))
        self._device.wait(_TRUSTED_S)
        (found,) = self._device.audits(1)
        if found.bad_element is None:
            return
        got = self._device.read(output.ptr + size * found.bad_element, size).view(self._precision.output_dtype)[0]
        row, column = divmod(found.bad_element, max(1, self._width))
        expected, bound = self._device.answer(draw, found.bad_element)
        mismatch = Mismatch(row, column, float(got), expected, bound, found.bad_count)
        raise SparseRLError(f"{name} on {self._matrix.id}: {mismatch.describe(max(1, self._width))}")
