"""The set of matrices of a campaign: a folder's, generated ones, or both; read one at a time."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.errors import UserError
from components.matrix.choose import stratified_choice
from components.matrix.directory import choose
from components.matrix.generate import FAMILIES, generate
from components.matrix.types import SparseMatrix
from components.settings import DirectorySettings

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Source:
    """A matrix that is not read yet."""

    name: str  # group/name; without a group where only the file says it
    stratum: str  # its class, or the generated family
    load: Callable[[], SparseMatrix]


def sources(
    folder: Path | None, generated: Sequence[str], min_nnz: int, max_nnz: int, sample: int, seed: int
) -> list[Source]:
    """The matrices in a seeded order, so that a run that is cut short has seen all kinds and sizes.

    Args:
        folder: of .mtx[.gz] files, with or without a manifest.csv.
        generated: specifications; see `parse_generated`.
        min_nnz: of the folder's matrices; likewise `max_nnz` (0: no limit).
        sample: take this many, spread over structure classes; 0: all.
        seed: of the sample and of the order.

    Raises:
        UserError: an unreadable folder or specification, or no matrix at all.
    """
    found: list[Source] = []
    if folder is not None:
        candidates, _ = choose(
            DirectorySettings(str(folder.resolve()), min_nnz, max_nnz or _MOST, _MOST), seed, Path("/")
        )
        found += [Source(f"{c.group}/{c.name}", c.structure_class, c.load) for c in candidates]
    for family, nnz, number in itertools.chain.from_iterable(map(parse_generated, generated)):
        found.append(_generated(family, nnz, number))
    if not found:
        raise UserError("no matrix: name a folder by --matrices, or generated ones by --generated")
    if sample:
        found = stratified_choice(found, [source.stratum for source in found], sample, seed)
    return [found[at] for at in np.random.default_rng(seed).permutation(len(found))]


def parse_generated(text: str) -> list[tuple[str, int, int]]:
    """`FAMILY[,FAMILY..]:NNZ[,NNZ..][:SEED[,SEED..]]` as every (family, nnz, seed); `all` stands for all families.

    Raises:
        UserError: a family that is not known, or a number that is none.
    """
    parts = text.split(":")
    try:
        names = list(FAMILIES) if parts[0] == "all" else parts[0].split(",")
        sizes = [int(float(word)) for word in parts[1].split(",")]
        seeds = [int(word) for word in (parts[2] if len(parts) > 2 else "0").split(",")]
    except (ValueError, IndexError):
        raise UserError(f"generated {text!r}: expected FAMILY:NNZ[:SEED], as rmat,uniform:1e6,1e7:0") from None
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"generated {text!r}: unknown family {unknown[0]!r}, expected one of {', '.join(FAMILIES)}")
    return list(itertools.product(names, sizes, seeds))


def _generated(family: str, nnz: int, seed: int) -> Source:
    return Source(f"gen-{family}-{seed}/{family}-{nnz}-{seed}", family, lambda: generate(family, nnz, seed))
