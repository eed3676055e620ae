"""What every training stage shares: quiet libraries, threads, one line for user errors, curves."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.errors import UserError
from components.files import replacing
from components.quiet import quiet_environment
from components.settings import Settings, load


def run_stage(stage: Callable[[Settings], object]) -> int:
    """Run a stage from the command line; returns the exit code, 2 for a user error (one line on stderr)."""
    quiet_environment()
    try:
        settings = load()
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        stage(settings)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a training curve as CSV, one row a step; columns are the union of the rows' keys, in order."""
    import pandas as pd

    with replacing(path) as temporary:
        pd.DataFrame(list(rows)).to_csv(temporary, index=False, lineterminator="\n")
