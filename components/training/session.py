"""What every training stage shares: quiet libraries, threads, one line for user errors, curves."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import components.stage
from components.files import replacing
from components.settings import Settings


def run_stage(stage: Callable[[Settings], Any], shown: Sequence[str] = ()) -> int:
    """`components.stage.run_stage` with half of the cores.

    For models of this size one thread of two reaches 60 to 90 % of both, and keeps doing so when the machine has other
    work, where threads that wait for each other come to a standstill; the judge's workers use the other half.
    """

    def with_threads(settings: Settings) -> Any:
        import torch

        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        return stage(settings)

    return components.stage.run_stage(with_threads, shown)


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a training curve as CSV, one row a step; columns are the union of the rows' keys, in order."""
    import pandas as pd

    with replacing(path) as temporary:
        pd.DataFrame(list(rows)).to_csv(temporary, index=False, lineterminator="\n")
