"""Stage `matrices`: load or generate, describe, split by group, validate, store.

Run: python -m components.matrix.ingest
In:  params.yaml (seed, matrices)
Out: data/matrices/{manifest.csv,<group>/<name>.npz}, data/quality/matrices.json, data/metrics/matrices.json
"""

import hashlib
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import UserError
from components.files import write_json
from components.matrix.info import FEATURE_COLUMNS, matrix_info
from components.matrix.manifest import FOLDER
from components.matrix.sources import plan
from components.matrix.split import PARTS, SplitRow, split_by_group
from components.matrix.storage import save_npz
from components.matrix.types import SparseMatrix
from components.settings import Settings, flatten, to_dict
from components.stage import run_stage

COLUMNS = (
    *("matrix", "name", "group", "source", "sha256", "rows", "cols", "nnz", "nnz_stored", "field", "symmetry"),
    *("duplicates", "explicit_zeros", "structure_class", "split"),
    *FEATURE_COLUMNS,
)


def ingest(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote.

    Complex matrices (the operators are real), empty ones and second copies of the same content are left out, counted.

    Raises:
        UserError: a source or file cannot be used, nothing is left, or a manifest row breaks the suite.
    """
    import pandas as pd
    from tqdm import tqdm

    from components.quality.suites import validate
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    planned = plan(settings)
    skipped = Counter(planned.skipped)
    with stage_run("matrices", settings, tags={"source": settings.matrices.source}) as run, _fresh(settings) as folder:
        run.log_params(flatten(to_dict(settings.matrices), "matrices") | {"seed": settings.seed})
        rows: list[dict[str, Any]] = []
        seen: set[str] = set()
        for loader in tqdm(planned.loaders, desc="matrices", unit="matrix", disable=None):
            matrix = loader()
            row = _row(matrix)
            if reason := _unfit(matrix, row, seen, rows):
                skipped[reason] += 1
                continue
            seen.add(row["sha256"])
            rows.append(row)
            save_npz(folder / f"{matrix.id}.npz", matrix)
        if not rows:
            raise UserError(
                f"matrices: none left ({dict(skipped)}), expected at least one; see matrices in params.yaml"
            )
        parts = split_by_group(
            [SplitRow(r["matrix"], r["group"], r["structure_class"]) for r in rows],
            settings.matrices.split,
            settings.seed,
        )
        frame = pd.DataFrame([row | {"split": parts[row["matrix"]]} for row in rows])[list(COLUMNS)]
        frame = frame.sort_values("matrix", ignore_index=True)
        report = validate("matrices", frame)
        frame.to_csv(folder / "manifest.csv", index=False, lineterminator="\n")
        write_json(settings.root / "data/quality/matrices.json", report.to_dict())
        counts = {
            "matrices": len(frame),
            "groups": int(frame["group"].nunique()),
            "nnz_total": int(frame["nnz"].sum()),
            **{part: int((frame["split"] == part).sum()) for part in PARTS},
        }
        run.log_artifact(folder / "manifest.csv")
        run.log_metrics(0, {name: float(value) for name, value in counts.items()})
        classes = {
            str(name): {part: int((group == part).sum()) for part in PARTS}
            for name, group in frame.groupby("structure_class")["split"]
        }
    metrics = {
        "run_id": run.run_id,
        "seconds": round(time.perf_counter() - started, 2),
        **counts,
        "source": settings.matrices.source,
        "skipped": dict(sorted(skipped.items())),
        "classes": classes,
    }
    write_json(settings.root / "data/metrics/matrices.json", metrics)
    return metrics


def _row(matrix: SparseMatrix) -> dict[str, Any]:
    info = matrix_info(matrix)
    return info | {"matrix": matrix.id, "sha256": matrix.sha256 or content_sha256(matrix)}


def _unfit(matrix: SparseMatrix, row: dict[str, Any], seen: set[str], rows: list[dict[str, Any]]) -> str:
    """Why the matrix is left out; empty if it is not."""
    if np.iscomplexobj(matrix.values):
        return "complex"
    if not matrix.nnz:
        return "empty"
    if row["sha256"] in seen:
        return "same content as another"
    if any(other["matrix"] == matrix.id for other in rows):
        raise UserError(f"{matrix.source}: a second matrix called {matrix.id}, expected distinct names")
    if not all(
        part not in ("", ".", "..") and not set(part) & set('/\\"\0\n\r') for part in (matrix.group, matrix.name)
    ):
        raise UserError(f"{matrix.source}: name {matrix.id!r}, expected one that can be a file's name")
    return ""


def content_sha256(matrix: SparseMatrix) -> str:
    """Hash of shape, pattern and values, for a matrix that comes from no file."""
    digest = hashlib.sha256(np.array([matrix.rows, matrix.cols], "<i8").tobytes())
    values = "<c16" if np.iscomplexobj(matrix.values) else "<f8"
    for array, kind in ((matrix.row_ptr, "<i8"), (matrix.col_idx, "<i4"), (matrix.values, values)):
        digest.update(np.ascontiguousarray(array, kind).tobytes())
    return digest.hexdigest()


@contextmanager
def _fresh(settings: Settings) -> Iterator[Path]:
    """A new folder that takes the place of data/matrices when the block ends well."""
    final = settings.root / FOLDER
    folder = final.with_name(f".{final.name}-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
        shutil.rmtree(final, ignore_errors=True)
        os.replace(folder, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_stage(ingest, ("matrices", *PARTS, "seconds")))
