"""How every pipeline stage runs from the command line."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from components.errors import UserError
from components.quiet import quiet_environment
from components.settings import Settings, load


def run_stage(stage: Callable[[Settings], Any], shown: Sequence[str] = ()) -> int:
    """Run a stage with the project's params.yaml.

    Args:
        stage: does the work; returns its metrics when `shown` names some of them.
        shown: metrics to print at the end, on one line.

    Returns:
        The exit code: 0, or 2 for a user error, which is one line on stderr.
    """
    quiet_environment()
    try:
        metrics = stage(load())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if shown:
        print(", ".join(f"{name} {metrics[name]}" for name in shown))
    return 0
