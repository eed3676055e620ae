"""The three places that matrices come from, each as a plan: what to load, and what was left out and why."""

import dataclasses
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from components.errors import UserError
from components.files import sha256_of
from components.matrix.generate import generate
from components.matrix.storage import from_scipy
from components.matrix.types import SparseMatrix
from components.settings import Settings


@dataclass(frozen=True)
class Plan:
    """Loaders, one per matrix, to be called in order, and a count of candidates left out per reason."""

    loaders: tuple[Callable[[], SparseMatrix], ...]
    skipped: Counter[str] = field(default_factory=Counter)


def plan(settings: Settings) -> Plan:
    """What `matrices.source` asks for; `collection` fetches its index here and a matrix when its loader is called.

    Raises:
        UserError: the source cannot be used; says why.
    """
    matrices = settings.matrices
    if matrices.source == "bundled":
        return Plan((*_generated(settings), *_pyamg()))
    if matrices.source == "directory":
        from components.matrix.directory import choose

        chosen, skipped = choose(matrices.directory, settings.seed, settings.root)
        return Plan(tuple(candidate.load for candidate in chosen), skipped)
    from components.matrix.collection import CollectionClient, select

    client = CollectionClient.of_project(matrices.collection, settings.root)
    rows, skipped = select(client.index(), matrices.collection, settings.seed)
    return Plan(tuple(partial(client.load, row) for row in rows), skipped)


def _generated(settings: Settings) -> Iterator[Callable[[], SparseMatrix]]:
    """Each matrix of a family is a group of its own, so that every part of the split can hold every family."""
    wanted = settings.matrices.generated
    for family in wanted.families:
        for index in range(len(wanted.nnz) * wanted.repeats):
            nnz = wanted.nnz[index // wanted.repeats]
            yield partial(_make, family, nnz, index, settings.seed)


def _make(family: str, nnz: int, index: int, seed: int) -> SparseMatrix:
    matrix = generate(family, nnz, seed + index)
    return dataclasses.replace(matrix, name=f"{family}-{nnz}-{index}", group=f"gen-{family}-{index}")


def _pyamg() -> Iterator[Callable[[], SparseMatrix]]:
    """The finite element matrices that the pyamg package carries as .mat files (its own import is not needed)."""
    spec = importlib.util.find_spec("pyamg")
    if spec is None or spec.origin is None:
        raise UserError("pyamg is not installed, expected it for matrices.source: bundled; run `make setup`")
    folder = Path(spec.origin).parent / "gallery" / "example_data"
    for path in sorted(folder.glob("*.mat")):
        yield partial(_read_mat, path)


def _read_mat(path: Path) -> SparseMatrix:
    from scipy.io import loadmat

    name = path.stem
    matrix = from_scipy(loadmat(path)["A"], name, f"pyamg-{name}", f"pyamg: gallery/example_data/{path.name}")
    return dataclasses.replace(matrix, sha256=sha256_of(path))
