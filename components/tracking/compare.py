"""A challenger against the champion, matrix by matrix, from the verdict tables that their evaluations logged."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from components.evaluation.metrics import Estimate, bootstrap, speedups_one
from components.settings import Settings

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.tracking import MlflowClient

VERDICTS = "evaluation/verdicts.parquet"  # where the evaluate stage's run keeps them
MODEL = "rl"  # the model of an evaluation that is registered


def speedups_over_champion(
    settings: Settings, client: "MlflowClient", challenger: str, champion: str
) -> dict[str, Estimate] | None:
    """Geometric mean over test matrices of (challenger's speed-up / champion's speed-up), with its interval.

    The ratio is taken on each matrix before resampling: matrices differ far more than two policies do on one matrix, so
    the two intervals overlap even where one policy is faster everywhere.

    Args:
        settings: for the seed and the number of bootstrap resamples.
        client: of the store that holds both runs.
        challenger, champion: ids of their evaluate runs.

    Returns:
        An estimate for each problem of the champion (`spmv`, `spmm_8`); None when the store lacks one of the tables, or
        they hold different problems or matrices.
    """
    ours, theirs = _speedups(client, challenger), _speedups(client, champion)
    if ours is None or theirs is None or not theirs or not set(theirs) <= set(ours):
        return None
    found = {}
    for problem, before in theirs.items():
        now = ours[problem]
        if set(now) != set(before):
            return None
        ratios = [now[matrix] / before[matrix] for matrix in sorted(before)]
        found[problem] = bootstrap(ratios, settings.evaluate.bootstrap, settings.seed, logs=True)
    return found


def _speedups(client: "MlflowClient", run_id: str) -> dict[str, dict[str, float]] | None:
    """Speed-up of one sample by problem and matrix; None without a table."""
    frame = _verdicts(client, run_id)
    if frame is None:
        return None
    frame = frame[frame["model"] == MODEL]
    return {
        operator if operator == "spmv" else f"{operator}_{width}": dict(
            zip(sorted(part["matrix"].unique()), speedups_one(part).tolist(), strict=True)
        )
        for (operator, width), part in frame.groupby(["operator", "width"])
    }


def _verdicts(client: "MlflowClient", run_id: str) -> "pd.DataFrame | None":
    import pandas as pd
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as folder:
        try:
            path = client.download_artifacts(run_id, VERDICTS, folder)
        except (MlflowException, OSError):
            return None  # restored from DVC's cache of another machine, or the run was deleted
        return pd.read_parquet(Path(path))
