"""Generated structure families: seeded, vectorised, from about 1e3 to 1e7 non-zeros.

Within a family the seed also draws the shape's parameters (bandwidth, row length, block size, ...), so that two
matrices of one family differ in more than their values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.errors import UserError
from components.matrix.assemble import assemble
from components.matrix.types import SparseMatrix

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator
MIN_NNZ, MAX_NNZ = 1000, 50_000_000


@dataclass(frozen=True, eq=False)
class Pattern:
    """Entry positions in any order, repeats allowed; `values` float64 or None for random ones."""

    rows: int
    cols: int
    i: Array
    j: Array
    values: Array | None = None


def generate(family: str, nnz: int, seed: int) -> SparseMatrix:
    """A matrix of about `nnz` non-zeros (within 40 %) of the named family.

    Args:
        family: a name in `FAMILIES`.
        nnz: 1e3 to 5e7.
        seed: with family and nnz it decides every bit of the result.

    Raises:
        UserError: unknown family, or nnz out of range.
    """
    if family not in FAMILIES:
        raise UserError(f"{family}: unknown family, expected one of {', '.join(FAMILIES)}")
    if not MIN_NNZ <= nnz <= MAX_NNZ:
        raise UserError(f"{family}: {nnz} non-zeros, expected {MIN_NNZ} to {MAX_NNZ}")
    rng = np.random.default_rng([sum(ord(c) << (7 * k) for k, c in enumerate(family)), nnz, seed])
    pattern = FAMILIES[family](nnz, rng)
    keys = pattern.i.astype(np.int64) * pattern.cols + pattern.j
    if pattern.values is None:
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
        values = rng.uniform(0.1, 1.0, len(keys)) * rng.choice((-1.0, 1.0), len(keys))
    else:
        values = pattern.values
    i, j = (keys // pattern.cols).astype(np.int32), (keys % pattern.cols).astype(np.int32)
    whole = assemble(pattern.rows, pattern.cols, i, j, values)
    return SparseMatrix(
        name=f"{family}-{nnz}-{seed}",
        group=f"gen-{family}-{seed}",
        rows=pattern.rows,
        cols=pattern.cols,
        row_ptr=whole.row_ptr,
        col_idx=whole.col_idx,
        values=whole.values,
        nnz_stored=len(whole.col_idx),
        source=f"generate({family}, {nnz}, {seed})",
    )


def _diagonal(nnz: int, rng: Rng) -> Pattern:
    index = np.arange(nnz)
    return Pattern(nnz, nnz, index, index)


def _banded(nnz: int, rng: Rng) -> Pattern:
    """A dense diagonal and a band around it, filled at random."""
    half = int(rng.integers(6, 25 if nnz >= 4000 else 9))
    per_row = int(rng.integers(4, min(10, half) + 1))
    n = max(nnz // per_row, 20 * half)
    i = np.repeat(np.arange(n), per_row)
    j = i + rng.integers(-half, half + 1, len(i))
    j[::per_row] = np.arange(n)
    return _inside(n, n, i, j)


def _stencil(dimensions: int, nnz: int, rng: Rng) -> Pattern:
    """Laplacian of a box grid: the axis neighbours, or all neighbours of the enclosing cube."""
    star = bool(rng.integers(0, 2)) or nnz < 4000
    nnz = int(nnz * rng.uniform(0.9, 1.1))
    strength = rng.uniform(0.2, 1.0, dimensions)  # of the diffusion along each axis
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)
    if star:
        steps = steps[np.abs(steps).sum(axis=1) <= 1]
    side = (nnz / len(steps)) ** (1 / dimensions)
    stretch = float(rng.uniform(1.0, 1.6))
    short = max(3, round(side / stretch ** (1 / (dimensions - 1))))
    sides = [max(3, round(nnz / len(steps) / short ** (dimensions - 1))), *[short] * (dimensions - 1)]
    n = int(np.prod(sides))
    place = np.stack(np.unravel_index(np.arange(n), sides)).astype(np.int32)
    i_parts, j_parts, values = [], [], []
    for step in steps:
        neighbour = place + step[:, None].astype(np.int32)
        valid = ((neighbour >= 0) & (neighbour < np.array(sides)[:, None])).all(axis=0)
        here = np.flatnonzero(valid)
        i_parts.append(here)
        j_parts.append(np.ravel_multi_index(tuple(neighbour[:, valid]), sides))
        weights = (np.abs(steps) * strength).sum(axis=1)
        values.append(np.full(len(here), weights.sum() if not step.any() else -float(np.abs(step) @ strength)))
    return Pattern(n, n, np.concatenate(i_parts), np.concatenate(j_parts), np.concatenate(values))


def _fem_block(nnz: int, rng: Rng) -> Pattern:
    """A 2-D mesh with several unknowns a node: a dense block where two nodes meet, a few of them far apart."""
    size = int(rng.integers(2, 5 if nnz >= 4000 else 3))
    nodes = max(nnz // (size * size * 7), 20)
    width = max(3, int(np.sqrt(nodes)))
    i = np.repeat(np.arange(nodes), 7)
    j = i + np.tile([0, 1, -1, width, -width, width + 1, -width - 1], nodes)
    far = rng.random(len(i)) < (0.05 if nnz >= 4000 else 0.2)
    far[::7] = False
    j[far] += rng.integers(-3 * width, 3 * width + 1, int(far.sum()))
    coarse = _inside(nodes, nodes, i, j)
    keys = np.unique(coarse.i.astype(np.int64) * nodes + coarse.j)
    a, b = np.divmod(np.arange(size * size), size)
    i = ((keys // nodes)[:, None] * size + a).ravel()
    j = ((keys % nodes)[:, None] * size + b).ravel()
    return Pattern(nodes * size, nodes * size, i, j)


def _random_rows(n: int, cols: int, lengths: Array, rng: Rng) -> Pattern:
    i = np.repeat(np.arange(n), lengths)
    return Pattern(n, cols, i, rng.integers(0, cols, len(i)))


def _uniform(nnz: int, rng: Rng) -> Pattern:
    """Rows of nearly one length, columns anywhere."""
    length = int(rng.integers(8, 25)) if nnz >= 4000 else int(rng.integers(6, 11))
    n = max(nnz // length, 60)
    spread = max(1, length // 6)
    return _random_rows(n, n, rng.integers(length - spread, length + spread + 1, n), rng)


def _short_rows(nnz: int, rng: Rng) -> Pattern:
    """One to four entries a row, columns anywhere."""
    longest = int(rng.integers(3, 5))
    n = int(nnz / (0.5 * (1 + longest)))
    return _random_rows(n, n, rng.integers(1, longest + 1, n), rng)


def _long_rows(nnz: int, rng: Rng) -> Pattern:
    """Rows of hundreds of entries (fewer in small matrices), columns anywhere."""
    length = int(min(rng.integers(150, 600), max(12, np.sqrt(nnz) / 2)))
    n = max(nnz // length, 48)
    return _random_rows(n, n, rng.integers(int(0.7 * length), int(1.3 * length) + 1, n), rng)


def _rmat(nnz: int, rng: Rng) -> Pattern:
    """R-MAT power-law graph.

    References:
        Chakrabarti, Zhan, Faloutsos. R-MAT: A Recursive Model for Graph Mining. SDM 2004. Graph500 takes a = 0.57 and
        b = c = 0.19; in small graphs that makes the hub a dense row and leaves half the rows empty, hence a milder a.
    """
    a = 0.42 if nnz >= 2000 else 0.5
    b = c = (0.94 - a) / 2
    mean = float(rng.uniform(3.5, 4.5 if nnz < 50_000 else 8))
    levels = round(float(np.log2(nnz / mean))) if nnz >= 2000 else 7
    count = int(nnz * 1.1)  # repeated edges merge
    i, j = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(levels):
        draw = rng.random(count, np.float32)
        i = 2 * i + (draw >= a + b)
        j = 2 * j + (((draw >= a) & (draw < a + b)) | (draw >= a + b + c))
    n = 1 << levels
    return Pattern(n, n, rng.permutation(n)[i], rng.permutation(n)[j])


def _dense_rows(nnz: int, rng: Rng) -> Pattern:
    """Short rows but for a few that hold a good part of all columns."""
    share = float(rng.uniform(0.4, 0.8))
    heavy = 1 + int(rng.integers(0, 1 + min(5, nnz // 4000)))
    n = max(int(nnz / (2 + 0.75 * share * heavy)), 250)
    lengths = rng.integers(1, 4, n)
    lengths[rng.choice(n, heavy, replace=False)] = int(share * n)
    return _random_rows(n, n, lengths, rng)


def _arrow(nnz: int, rng: Rng) -> Pattern:
    """A diagonal with a full first or last row and column, one or a few wide."""
    width = int(rng.integers(1, 3)) if nnz >= 4000 else 1
    n = max(nnz // (2 * width + 1), 250)
    head = 0 if rng.integers(0, 2) else n - width
    index = np.arange(n)
    bar = np.repeat(np.arange(head, head + width), n)
    along = np.tile(index, width)
    return Pattern(n, n, np.concatenate((index, bar, along)), np.concatenate((index, along, bar)))


def _hypersparse(nnz: int, rng: Rng) -> Pattern:
    """Most rows empty, a few entries in each of the others."""
    occupied = max(int(nnz / rng.uniform(1.5, 4)), 50)
    n = int(occupied * rng.uniform(3, 8))
    chosen = rng.choice(n, occupied, replace=False)
    return Pattern(n, n, chosen[rng.integers(0, occupied, nnz)], rng.integers(0, n, nnz))


def _lp(nnz: int, rng: Rng) -> Pattern:
    """Constraint matrix of a linear program: wide, a few entries a column near a staircase, an identity for slacks."""
    per_column = int(rng.integers(2, 6))
    cols = max(nnz // per_column, 100)
    rows = max(int(cols * rng.uniform(0.2, 0.6)), 41)
    slack = rows // 2
    j = np.repeat(np.arange(cols - slack), per_column)
    near = (j * rows) // max(cols - slack, 1) + rng.integers(-8, 9, len(j))
    anywhere = rng.random(len(j)) < 0.3
    i = np.where(anywhere, rng.integers(0, rows, len(j)), near % rows)
    slack_rows = rng.choice(rows, slack, replace=False)
    return Pattern(rows, cols, np.append(i, slack_rows), np.append(j, np.arange(cols - slack, cols)))


def _inside(rows: int, cols: int, i: Array, j: Array) -> Pattern:
    keep = (j >= 0) & (j < cols)
    return Pattern(rows, cols, i[keep], j[keep])


FAMILIES: dict[str, Callable[[int, Rng], Pattern]] = {
    "diagonal": _diagonal,
    "banded": _banded,
    "stencil2d": lambda nnz, rng: _stencil(2, nnz, rng),
    "stencil3d": lambda nnz, rng: _stencil(3, nnz, rng),
    "fem-block": _fem_block,
    "uniform": _uniform,
    "short-rows": _short_rows,
    "long-rows": _long_rows,
    "rmat": _rmat,
    "dense-rows": _dense_rows,
    "arrow": _arrow,
    "hypersparse": _hypersparse,
    "lp": _lp,
}
