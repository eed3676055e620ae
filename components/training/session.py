"""What every training stage shares: quiet libraries, threads, one line for user errors, curves."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import components.stage
from components.files import replacing
from components.settings import Settings


def run_stage(stage: Callable[[Settings], object]) -> int:
    """`components.stage.run_stage` with as many threads as this process has cores."""

    def with_threads(settings: Settings) -> object:
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return stage(settings)

    return components.stage.run_stage(with_threads)


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a training curve as CSV, one row a step; columns are the union of the rows' keys, in order."""
    import pandas as pd

    with replacing(path) as temporary:
        pd.DataFrame(list(rows)).to_csv(temporary, index=False, lineterminator="\n")
