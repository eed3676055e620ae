"""What the best kernel of a problem is compared with: each single family, and a forest that picks one by structure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from components.evaluation.metrics import geomean

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 5
_TREES = 300
_SEED = 0
_NOT_FEATURES = ("matrix", "name", "group", "source", "sha256", "field", "symmetry", "structure_class")


@dataclass(frozen=True)
class Forest:
    """Speed-ups over the baseline of what a forest picks, one a matrix, in the order of the table it was given."""

    top1: NDArray[np.float64]  # of the family it thinks best, whatever it comes to; a miss counts as 1
    top4: NDArray[np.float64]  # of the best of the four it thinks best, or the baseline
    folds: int


def family_speedups(finals: "pd.DataFrame", matrices: list[str]) -> "pd.DataFrame":
    """The best speed-up of each family on each matrix.

    Args:
        finals: final measurements that may be quoted, of one problem.
        matrices: ids, which become the index.

    Returns:
        float64[matrices, families]; NaN where a family has no correct program.
    """
    best = finals.groupby(["matrix", "family"], observed=True)["speedup"].max().unstack("family")
    return best.reindex(matrices).astype(np.float64)


def forest(speedups: "pd.DataFrame", features: "pd.DataFrame") -> Forest | None:
    """Cross-validate a random forest that names the fastest family from structure features.

    Matrices of one collection group are never both in the part it learns from and in the part it is asked about.

    Args:
        speedups: of `family_speedups`.
        features: the campaign's table of matrices.

    Returns:
        None with fewer than two groups, or where no family is ever right.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GroupKFold

    table = features.set_index("matrix").loc[speedups.index]
    groups = table["group"].astype(str).to_numpy()
    known = speedups.notna().any(axis=1).to_numpy()
    folds = min(_FOLDS, len(set(groups)))
    if folds < 2 or not known.any():
        return None
    numbers = table.drop(columns=[name for name in _NOT_FEATURES if name in table.columns]).to_numpy(np.float64)
    numbers = np.sign(numbers) * np.log1p(np.abs(numbers))  # scale is a ratio
    names = speedups.columns.to_numpy(dtype=object)
    values = speedups.fillna(1.0).to_numpy(np.float64)
    labels = speedups.fillna(0.0).to_numpy(np.float64).argmax(axis=1)
    top1, top4 = np.ones(len(values)), np.ones(len(values))
    for learn, ask in GroupKFold(folds).split(numbers, groups=groups):
        learn = learn[known[learn]]
        if not len(learn):
            continue
        model = RandomForestClassifier(n_estimators=_TREES, random_state=_SEED, n_jobs=1)
        model.fit(numbers[learn], names[labels[learn]].astype(str))
        columns = np.array([list(names).index(name) for name in model.classes_])
        order = columns[np.argsort(-model.predict_proba(numbers[ask]), axis=1, kind="stable")]
        top1[ask] = values[ask, order[:, 0]]
        top4[ask] = np.maximum(1.0, np.take_along_axis(values[ask], order[:, :4], axis=1).max(axis=1))
    return Forest(top1, top4, folds)


def family_table(speedups: "pd.DataFrame", search: "pd.DataFrame") -> dict[str, dict[str, Any]]:
    """Each family alone, with its best parameters; a matrix where it has no correct program counts as the baseline.

    Args:
        speedups: of `family_speedups`.
        search: the search's rows of the problem that were judged, for what the family cost.
    """
    whole = speedups.fillna(0.0)
    wins = whole.idxmax(axis=1).where(whole.max(axis=1) > 1.0) if len(whole.columns) else None
    judged = search.groupby("family", observed=True).size()
    return {
        str(name): {
            "geomean": geomean(speedups[name].fillna(1.0).to_numpy()),
            "matrices": int(speedups[name].notna().sum()),
            "wins": int((wins == name).sum()) if wins is not None else 0,
            "programs": int(judged.get(name, 0)),
        }
        for name in sorted(speedups.columns)
    }
