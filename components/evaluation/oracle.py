"""The peers of the policy: the best library program on each matrix, and a selector that picks a family."""

from typing import TYPE_CHECKING, Any

import numpy as np

from components.judge.verdict import Status

if TYPE_CHECKING:
    import pandas as pd


def oracle_times(measurements: "pd.DataFrame") -> "pd.DataFrame":
    """The fastest measured program of the library for each problem.

    Args:
        measurements: the `label` stage's table.

    Returns:
        Index (matrix, operator, width); columns `time_us` and `family`. A matrix without a correct program is absent.
    """
    correct = measurements[measurements["status"] == Status.CORRECT]
    keys = ["matrix", "operator", "width"]
    best = correct.loc[correct.groupby(keys)["time_us"].idxmin()]
    return best.set_index(keys)[["time_us", "family"]].sort_index()


def forest_times(
    measurements: "pd.DataFrame", manifest: "pd.DataFrame", operator: str, width: int, seed: int
) -> "pd.DataFrame":
    """What a random forest reaches that picks a family from structure features in one guess.

    It is trained on the train split to name the family of the fastest program; on a test matrix it gets the median time
    of that family's measured programs there (the selector knows no parameters), or the baseline where none ran.

    Returns:
        Index matrix (test split); columns `family`, `time_us`, `baseline_us`.
    """
    import pandas as pd
    from sklearn.ensemble import RandomForestClassifier

    features = manifest.set_index("matrix")
    numeric = [c for c in features.columns if c not in _NOT_FEATURES and pd.api.types.is_numeric_dtype(features[c])]
    known = measurements[(measurements["operator"] == operator) & (measurements["width"] == width)]
    best = oracle_times(known).reset_index().set_index("matrix")["family"]
    split = features["split"]
    train = [m for m in best.index if split.get(m) == "train"]
    test = sorted(m for m in known["matrix"].unique() if split.get(m) == "test")
    if not train or not test:
        return pd.DataFrame(columns=["family", "time_us", "baseline_us"])
    forest = RandomForestClassifier(n_estimators=200, random_state=seed, n_jobs=1)
    forest.fit(_vectors(features, train, numeric), best[train].to_numpy())
    picks = forest.predict(_vectors(features, test, numeric))
    rows = []
    for matrix, family in zip(test, picks, strict=True):
        here = known[known["matrix"] == matrix]
        baseline = float(here["baseline_us"].dropna().median())
        times = here[(here["family"] == family) & (here["status"] == Status.CORRECT)]["time_us"]
        rows.append((matrix, str(family), float(times.median()) if len(times) else baseline, baseline))
    return pd.DataFrame(rows, columns=["matrix", "family", "time_us", "baseline_us"]).set_index("matrix")


_NOT_FEATURES = {"nnz_stored", "duplicates", "explicit_zeros"}


def _vectors(features: "pd.DataFrame", matrices: list[str], columns: list[str]) -> Any:
    """Counts go in by their logarithm, so that scale is a ratio."""
    values = features.loc[matrices, columns].to_numpy(np.float64)
    return np.sign(values) * np.log1p(np.abs(values))
