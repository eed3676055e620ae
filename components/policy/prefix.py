"""What the policy sees of a matrix: sampled non-zeros as sinusoidal coordinates, and one structure token.

The sinusoidal coordinate embedding follows "Mastering Sparse CUDA Generation through Pretrained Models and Deep
Reinforcement Learning" (ICLR 2026): sin and cos of the row and of the column index at geometric frequencies of base
10000, concatenated and projected to the model width. Here indices are first made relative to the matrix's shape, so
that the same pattern at another size looks the same, and the set of coordinates is pooled by cross-attention onto a
fixed number of latent tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from components.matrix.types import SparseMatrix
from components.settings import PrefixSettings

BASE = 10_000.0  # of the frequencies, and the length to which a relative index in [0, 1) is stretched
Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class MatrixView:
    """The policy's view of one matrix, made once and then O(1) to reuse.

    `relative` float32[coordinates, 2]: row and column as a fraction of the shape, in [0, 1). `raw`: the same as plain
    indices. Both are zero for a matrix without entries. `structure` float32[n]: `StructureFeatures.vector()`.
    """

    relative: Array
    raw: Array
    structure: Array
    empty: bool = False


def sample_coordinates(matrix: SparseMatrix, count: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows and columns of `count` non-zeros, one from each of `count` equal runs of the CSR order.

    Stratified, so that every part of the matrix is seen whatever its size; a matrix with fewer entries repeats some.

    Returns:
        int64[count, 2], in CSR order; int64[0, 2] when the matrix has no entries.
    """
    if matrix.nnz == 0:
        return np.zeros((0, 2), dtype=np.int64)
    rng = np.random.default_rng(seed)
    position = (np.arange(count) + rng.random(count)) / count
    index = np.minimum((position * matrix.nnz).astype(np.int64), matrix.nnz - 1)
    rows = np.searchsorted(matrix.row_ptr, index, side="right") - 1
    return np.stack([rows, matrix.col_idx[index].astype(np.int64)], axis=1)


def view(matrix: SparseMatrix, structure: Array, settings: PrefixSettings, seed: int = 0) -> MatrixView:
    """The view of one matrix; `structure` is the vector of its structure features."""
    points = sample_coordinates(matrix, settings.coordinates, seed)
    empty = len(points) == 0
    if empty:
        points = np.zeros((settings.coordinates, 2), dtype=np.int64)
    shape = np.maximum([matrix.rows, matrix.cols], 1)
    relative = (points / shape).astype(np.float32)
    return MatrixView(relative, points.astype(np.float32), np.asarray(structure, dtype=np.float32), empty)


@dataclass(frozen=True, eq=False)
class ViewBatch:
    """Views as tensors: relative and raw float32[B, coordinates, 2], structure float32[B, n], empty bool[B]."""

    relative: Tensor
    raw: Tensor
    structure: Tensor
    empty: Tensor

    def __len__(self) -> int:
        return len(self.empty)

    def take(self, index: Tensor) -> "ViewBatch":
        """The rows that `index` int64[n] names."""
        return ViewBatch(self.relative[index], self.raw[index], self.structure[index], self.empty[index])


def collate(views: Sequence[MatrixView], device: torch.device | None = None) -> ViewBatch:
    """Stack views into one batch on `device`."""

    def stack(name: str) -> Tensor:
        return torch.from_numpy(np.stack([getattr(item, name) for item in views])).to(device)

    return ViewBatch(
        stack("relative"), stack("raw"), stack("structure"), torch.tensor([v.empty for v in views], device=device)
    )


def embed_coordinates(batch: ViewBatch, embedding: str, scales: int) -> Tensor:
    """Features of sampled coordinates.

    Args:
        batch: the views.
        embedding: `sinusoidal` (base 10000), `maxmin` (scaled so that the sample spans [0, 1]) or `raw` (indices).
        scales: frequencies per coordinate, sinusoidal only.

    Returns:
        float32[B, coordinates, 4 * scales] for sinusoidal, [.., 2] otherwise.
    """
    if embedding == "raw":
        return batch.raw
    if embedding == "maxmin":
        low, high = batch.raw.amin(1, keepdim=True), batch.raw.amax(1, keepdim=True)
        return (batch.raw - low) / (high - low).clamp_min(1.0)
    frequency = BASE ** (1.0 - torch.arange(scales, device=batch.relative.device) / scales)
    angle = (batch.relative[..., None] * frequency).flatten(-2)
    return torch.cat([angle.sin(), angle.cos()], -1)


class PrefixEncoder(nn.Module):
    """Matrix view -> `tokens` embeddings of the model's width that stand before the prompt.

    Args:
        width: of the language model.
        features: length of the structure vector.
        settings: which parts are on, and their sizes.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, features: int, settings: PrefixSettings, heads: int = 4):
        super().__init__()
        self.settings, self.width = settings, width
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        if settings.use_coordinates:
            inputs = 4 * settings.scales if settings.embedding == "sinusoidal" else 2
            self.point = nn.Sequential(
                nn.Linear(inputs, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width)
            )
            self.queries = nn.Parameter(torch.randn(settings.latents, width) * 0.5)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.norm = nn.LayerNorm(width)
            self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        if settings.structure_token:
            self.structure = nn.Sequential(
                nn.Linear(features, 2 * width), nn.GELU(), nn.Linear(2 * width, 2 * width), nn.GELU(),
                nn.Linear(2 * width, width),
            )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Number of prefix tokens."""
        return self.settings.latents * self.settings.use_coordinates + int(self.settings.structure_token)

    def standardise(self, structure: Array) -> None:
        """Take mean and deviation of each structure feature from the training matrices' vectors float32[m, n]."""
        self.mean.copy_(torch.from_numpy(structure.mean(0)))
        self.deviation.copy_(torch.from_numpy(structure.std(0)).clamp_min(1e-3))

    def forward(self, batch: ViewBatch) -> Tensor:
        """Embeddings float32[B, tokens, width]."""
        parts = []
        if self.settings.use_coordinates:
            points = self.point(embed_coordinates(batch, self.settings.embedding, self.settings.scales))
            query = self.queries.expand(len(batch), -1, -1)
            pooled = self.attention(query, points, points, need_weights=False)[0]
            pooled = pooled.masked_fill(batch.empty[:, None, None], 0.0)
            mixed = query + pooled
            parts.append(mixed + self.mix(self.norm(mixed)))
        if self.settings.structure_token:
            scaled = ((batch.structure - self.mean) / self.deviation).clamp(-6.0, 6.0)
            parts.append(self.structure(scaled)[:, None])
        if not parts:
            return torch.zeros(len(batch), 0, self.width, device=batch.relative.device)
        return torch.cat(parts, 1)
