"""How many bytes a program has to move at the least, without converting the matrix."""

import threading
from dataclasses import dataclass

import numpy as np

from components.campaign.plan import Problem
from components.kernel.families import RenderedProgram
from components.kernel.precision import get_precision
from components.kernel.program import parse
from components.kernel.types import FormatSpec
from components.matrix.features import StructureFeatures
from components.matrix.types import SparseMatrix


@dataclass(frozen=True)
class Machine:
    """What a program's time cannot be under. Bandwidths in bytes per microsecond."""

    copy_bandwidth: float  # memory, read + write
    l2_bandwidth: float
    l2_bytes: int
    launch_us: float  # an empty kernel

    def floor_us(self, moved: int) -> float:
        """The least time for bytes each moved once with the L2 warm: what the L2 cannot hold comes from memory."""
        return max(moved / self.l2_bandwidth, (moved - self.l2_bytes) / self.copy_bandwidth, self.launch_us)


class Sizes:
    """Bytes of one matrix in every format, as far as they are known. Thread-safe.

    Known from closed forms over the row lengths, and of any format from a verdict on a program that is stored so.
    """

    def __init__(self, matrix: SparseMatrix, features: StructureFeatures):
        self._matrix, self._features = matrix, features
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, int], int] = {}  # of SELL by (C, sigma)
        self._seen: dict[tuple[str, str], int] = {}  # bytes stored, by format and precision

    def learn(self, format_line: str, precision: str, stored: int) -> None:
        """Note the bytes that a format was found to take."""
        with self._lock:
            self._seen[format_line, precision] = stored

    def stored(self, format_line: str, precision: str) -> int | None:
        """The bytes that a format was found to take, if it was."""
        with self._lock:
            return self._seen.get((format_line, precision))

    def least_moved(self, program: RenderedProgram, problem: Problem) -> int | None:
        """Bytes that a program moves at the least: its stored matrix, and the result written once.

        The dense operand is left out: columns without entries are never read.
        """
        spec = format_of(program.source)
        stored = self.stored(str(spec), problem.precision)
        if stored is None:
            stored = self.least_stored(spec, get_precision(problem.precision).value_bytes)
        if stored is None:
            return None
        return stored + self._matrix.rows * problem.width * get_precision(problem.precision).output_bytes

    def least_stored(self, spec: FormatSpec, value_bytes: int) -> int | None:
        """A lower bound on the bytes of a format: its values and column indices. None where no form is known here."""
        nnz, features = self._matrix.nnz, self._features
        parameters = dict(spec.parameters)
        index_bytes = {"i32": 4, "u16": 2}.get(str(parameters.get("index")), 0)
        if spec.name == "csr":
            return nnz * (value_bytes + index_bytes) + 4 * (self._matrix.rows + 1)
        if spec.name == "coo":
            return nnz * (value_bytes + index_bytes + 4)
        if spec.name == "dia":
            return features.distinct_diagonals * (self._matrix.rows * value_bytes + 4)
        if spec.name == "sell":
            slots = self._sell_slots(int(parameters["c"]), int(parameters["sigma"]))
            return slots * (value_bytes + index_bytes)
        if spec.name == "bsr" and int(parameters["b"]) in (2, 3, 4):
            b = int(parameters["b"])
            fill = {2: features.block2_fill, 3: features.block3_fill, 4: features.block4_fill}[b]
            blocks = round(nnz / (b * b * fill)) if fill else 0
            return blocks * (b * b * value_bytes + index_bytes)
        return None

    def _sell_slots(self, c: int, sigma: int) -> int:
        with self._lock:
            if (c, sigma) not in self._slots:
                lengths = np.diff(self._matrix.row_ptr)
                if sigma > 1 and len(lengths):
                    whole = len(lengths) // sigma * sigma
                    windows = -np.sort(-lengths[:whole].reshape(-1, sigma), axis=1)
                    lengths = np.concatenate([windows.ravel(), -np.sort(-lengths[whole:])])
                starts = np.arange(0, len(lengths), c)
                self._slots[c, sigma] = int(np.maximum.reduceat(lengths, starts).sum()) * c if len(lengths) else 0
            return self._slots[c, sigma]


def format_of(source: str) -> FormatSpec:
    """The format of a program of the library."""
    return parse(source).format
