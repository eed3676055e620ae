"""Pictures for the report and the record; matplotlib without a display, quantities and units on every axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from components.evaluation.metrics import Estimate
from components.files import replacing

if TYPE_CHECKING:
    import pandas as pd

    from components.matrix.types import SparseMatrix

_SPY_CELLS = 120  # cells a side
_COLORS = ("#2f6fb3", "#d1742b", "#3d8f57", "#8a5fb0")


def _figure(width: float, height: float, rows: int = 1, cols: int = 1) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110})
    plt.rcParams["text.parse_math"] = False  # names of matrices and models are text, whatever signs they hold
    return plt.subplots(rows, cols, figsize=(width, height), layout="constrained", squeeze=False)


def _save(figure: Any, path: Path) -> Path:
    import matplotlib.pyplot as plt

    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
    plt.close(figure)
    return path


def spy(matrices: "Sequence[SparseMatrix]", path: Path) -> Path:
    """Where the non-zeros lie, four matrices a row: entries per cell of a grid of at most 120 x 120, by logarithm."""
    cols = min(4, len(matrices))
    rows = -(-len(matrices) // cols)
    figure, axes = _figure(2.6 * cols, 2.9 * rows, rows, cols)
    for axis in axes.ravel():
        axis.set_visible(False)
    for axis, matrix in zip(axes.ravel(), matrices, strict=False):
        axis.set_visible(True)
        row = np.repeat(np.arange(matrix.rows), np.diff(matrix.row_ptr))
        height, width = min(_SPY_CELLS, max(1, matrix.rows)), min(_SPY_CELLS, max(1, matrix.cols))
        cell = (row * height // max(1, matrix.rows)) * width + matrix.col_idx.astype(np.int64) * width // max(
            1, matrix.cols
        )
        density = np.bincount(cell, minlength=height * width).reshape(height, width)
        shade = 0.35 + 0.65 * np.log1p(density) / max(1.0, float(np.log1p(density.max())))
        axis.imshow(
            np.ma.masked_where(density == 0, shade), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="none"
        )
        axis.set_title(f"{matrix.name}\n{matrix.rows} x {matrix.cols}, nnz {matrix.nnz}", fontsize=8)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[["top", "right"]].set_visible(True)
    return _save(figure, path)


def speedup_by_class(groups: Mapping[str, Mapping[str, Estimate]], baseline: str, timing: str, path: Path) -> Path:
    """Speed-up per structure class with its interval; one bar colour per series.

    Args:
        groups: series name -> structure class -> estimate.
        baseline: its name, for the axis.
        timing: measured or modelled, for the axis.
        path: of the PNG.
    """
    classes = sorted({name for series in groups.values() for name in series})
    figure, axes = _figure(max(5.0, 0.9 * len(classes) + 2), 3.2)
    axis = axes[0, 0]
    width = 0.8 / max(1, len(groups))
    for index, (label, series) in enumerate(groups.items()):
        where = (
            np.array([k for k, name in enumerate(classes) if name in series]) + (index - (len(groups) - 1) / 2) * width
        )
        found = [series[name] for name in classes if name in series]
        values = np.array([estimate.value for estimate in found])
        errors = np.array([[e.value - e.low for e in found], [e.high - e.value for e in found]]).clip(min=0)
        axis.bar(
            where,
            values,
            width,
            label=label,
            color=_COLORS[index % len(_COLORS)],
            yerr=errors,
            capsize=2,
            error_kw={"lw": 0.8},
        )
    axis.axhline(1.0, color="0.4", lw=0.8, ls="--")
    axis.set_xticks(range(len(classes)), classes, rotation=30, ha="right")
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylabel("speed-up")
    axis.set_title(f"over {baseline}, {timing}; geometric mean and 95 % interval", fontsize=9)
    axis.legend(frameon=False, fontsize=8)
    return _save(figure, path)


def curves(
    frames: "Mapping[str, pd.DataFrame]", series: Mapping[str, Sequence[str]], units: Mapping[str, str], path: Path
) -> Path:
    """Training curves, one panel a stage: columns of each stage's curve table against its step.

    Args:
        frames: stage -> table with `step`; columns that are absent or empty are left out.
        series: stage -> columns to draw.
        units: stage -> label of the vertical axis.
        path: of the PNG.
    """
    stages = [stage for stage in series if stage in frames and len(frames[stage])]
    figure, axes = _figure(3.6 * max(1, len(stages)), 2.9, 1, max(1, len(stages)))
    for axis, stage in zip(axes[0], stages, strict=False):
        frame = frames[stage]
        for index, column in enumerate(series[stage]):
            if column in frame and frame[column].notna().any():
                points = frame[frame[column].notna()]
                marker = "o" if len(points) < 12 else ""
                axis.plot(
                    points["step"],
                    points[column],
                    label=column,
                    color=_COLORS[index % len(_COLORS)],
                    lw=1.2,
                    marker=marker,
                    ms=3,
                )
        axis.set_title(stage)
        axis.set_xlabel("step")
        axis.set_ylabel(units.get(stage, ""))
        axis.legend(frameon=False, fontsize=8)
    return _save(figure, path)


def statuses(counts: "pd.DataFrame", path: Path) -> Path:
    """Share of samples by verdict, one stacked bar a model.

    Args:
        counts: index model, one column a status, shares in [0, 1].
        path: of the PNG.
    """
    figure, axes = _figure(6.0, 0.7 * len(counts) + 1.3)
    axis = axes[0, 0]
    left = np.zeros(len(counts))
    palette = {
        "correct": "#3d8f57",
        "wrong": "#d1742b",
        "compile_error": "#b23a48",
        "contract": "#8c4a5a",
        "unparsable": "#5b2a3c",
    }
    spare = iter(("#8a5fb0", "#2f6fb3", "#6b7a8f", "#b39b2f", "#4fa3a5", "#999999"))
    for status in counts.columns:
        share = counts[status].to_numpy(float)
        axis.barh(counts.index, share, left=left, label=status, color=palette.get(str(status)) or next(spare))
        left += share
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of samples")
    axis.legend(
        frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.35 / max(1, len(counts)) - 0.15)
    )
    return _save(figure, path)
