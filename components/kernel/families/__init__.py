"""Kernel families: what programs the library can write for an operator, and which of them suit a matrix."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from components.errors import UserError
from components.files import sha256_text
from components.kernel.families import spmm_csr, spmv_csr, spmv_other
from components.kernel.families.base import Family, RenderedProgram
from components.kernel.precision import get_precision
from components.matrix.features import StructureFeatures, structure_features
from components.matrix.types import SparseMatrix

__all__ = [
    "FAMILIES",
    "Family",
    "RenderedProgram",
    "all_programs",
    "enumerate_programs",
    "families_of",
    "program_hash",
    "spread",
]

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (*spmv_csr.FAMILIES, *spmv_other.FAMILIES, *spmm_csr.FAMILIES)
}


def program_hash(source: str) -> str:
    """SHA-256 of the source text, hex."""
    return sha256_text(source)


def families_of(operator: str, precision: str = "float32", names: Sequence[str] = ()) -> list[Family]:
    """The families of an operator that can be rendered in a precision, in a stable order.

    Args:
        operator: spmv or spmm.
        precision: of the numbers.
        names: only these; empty: all.

    Raises:
        UserError: there is no such precision or family.
    """
    get_precision(precision)
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"family {unknown[0]!r}: expected one of {', '.join(FAMILIES)}")
    return [
        family
        for family in FAMILIES.values()
        if family.operator == operator and precision in family.precisions and (not names or family.name in names)
    ]


def all_programs(operator: str, precision: str = "float32", names: Sequence[str] = ()) -> Iterator[RenderedProgram]:
    """Every program of `families_of` the same arguments, in a stable order."""
    kind = get_precision(precision)
    for family in families_of(operator, precision, names):
        for parameters in family.combinations():
            yield family.program(kind, parameters)


def enumerate_programs(
    operator: str,
    matrix: SparseMatrix,
    features: StructureFeatures | None = None,
    precision: str = "float32",
    names: Sequence[str] = (),
) -> list[RenderedProgram]:
    """The programs that may be fast on a matrix, in a stable order.

    Args:
        operator: spmv or spmm.
        matrix: whose structure decides.
        features: of `matrix`, when already known.
        precision: of the numbers.
        names: of the families to take; empty: all.

    Raises:
        UserError: there is no such precision or family.
    """
    known, kind = features or structure_features(matrix), get_precision(precision)
    return [
        family.program(kind, parameters)
        for family in families_of(operator, precision, names)
        for parameters in family.combinations()
        if family.sensible(parameters, known)
    ]


def spread(programs: Sequence[RenderedProgram], count: int, seed: int = 0) -> list[RenderedProgram]:
    """Up to `count` of `programs`, taken from the families in turn, at random within each; 0 means all.

    The order of `programs` is kept.
    """
    if count <= 0 or count >= len(programs):
        return list(programs)
    rng = np.random.default_rng(seed)
    families: dict[str, list[int]] = {}
    for index, program in enumerate(programs):
        families.setdefault(program.family, []).append(index)
    queues = [list(rng.permutation(indices)) for indices in families.values()]
    chosen: list[int] = []
    while len(chosen) < count:
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(int(queue.pop()))
    return [programs[index] for index in sorted(chosen)]
