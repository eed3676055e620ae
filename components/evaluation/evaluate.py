"""Stage `evaluate`: sample programs for every test matrix, judge them, and count over all of them.

Run: python -m components.evaluation.evaluate
In:  data/matrices, data/pairs/measurements.parquet, data/models/{sft,rl}
Out: data/evaluation/{verdicts.parquet,table.csv,by_class.csv,best.cu,best.json}, data/metrics/evaluate.json
"""

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from components.errors import UserError
from components.evaluation import metrics
from components.evaluation.oracle import forest_times, oracle_times
from components.files import replacing, sha256_of, write_json, write_text
from components.judge.verdict import Status
from components.settings import OperatorChoice, Settings
from components.training.session import run_stage

if TYPE_CHECKING:
    import pandas as pd

    from components.judge.judge import Judge
    from components.matrix.types import SparseMatrix

MODELS = ("sft", "rl")
FOLDER = Path("data/evaluation")


def evaluate(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote.

    Raises:
        UserError: an earlier stage has not run, or the test split is empty.
    """
    import pandas as pd

    from components.judge.judge import Judge, resolve_backend
    from components.matrix.manifest import load_by_id, read_manifest
    from components.tracking.runs import data_version, stage_run

    started = time.perf_counter()
    manifest = read_manifest(settings.root)
    test = manifest[manifest["split"] == "test"].sort_values("matrix", ignore_index=True)
    if test.empty:
        raise UserError("data/matrices/manifest.csv: no matrix in the test split; expected at least one")
    matrices = [load_by_id(settings.root, str(identity)) for identity in test["matrix"]]
    measurements = pd.read_parquet(settings.root / "data/pairs/measurements.parquet")
    backend, arch = resolve_backend(settings.judge)
    operators = ",".join(f"{choice.name}{choice.width}" for choice in settings.label.operators)
    version = data_version(settings.root)
    tags = {"op": operators, "arch": arch, "data_version": version}
    with stage_run("evaluate", settings, tags=tags) as run:
        with Judge(settings.judge, arch, backend) as judge:
            frames = [_model_verdicts(settings, name, matrices, judge) for name in MODELS]
        frame = pd.concat(frames, ignore_index=True)
        frame = frame.merge(test[["matrix", "structure_class", "nnz"]], on="matrix", how="left")
        timing = metrics.one_timing(frame)
        run.set_tags({"timing": timing})
        summary = _summaries(settings, frame, measurements, manifest)
        table, by_class = _table(summary), _by_class(settings, frame)
        _write(settings.root, frame, table, by_class)
        values: dict[str, Any] = {
            "run_id": run.run_id,
            "seconds": time.perf_counter() - started,
            "timing": timing,
            "arch": arch,
            "gpu": _first(frame["gpu"]),
            "baseline": _first(frame["baseline"]),
            "matrices": len(test),
            "samples": settings.evaluate.samples,
            "data_version": version,
            "policy_sha256": sha256_of(settings.root / "data/models/rl/manifest.json"),
            **{
                f"{model}_{problem}_{name}": value
                for (model, problem), row in summary.items()
                for name, value in row.items()
            },
        }
        values = {name: value for name, value in values.items() if value == value}  # NaN: not obtained
        run.log_metrics(0, {name: v for name, v in values.items() if isinstance(v, int | float)})
        run.log_table(table, "evaluation")
        run.log_artifact(settings.root / FOLDER, "evaluation")
        write_json(settings.root / "data/metrics/evaluate.json", values)
    return values


def _model_verdicts(
    settings: Settings, model: str, matrices: "Sequence[SparseMatrix]", judge: "Judge"
) -> "pd.DataFrame":
    """One row per (matrix, operator, sample) of one model."""
    import pandas as pd
    from tqdm import tqdm

    from components.judge.judge import JudgeRequest
    from components.training.rollout import Problem, load_policy, sample_programs

    policy = load_policy(settings, settings.root / "data/models" / model)
    problems = [
        Problem(matrix, choice.name, choice.width) for choice in settings.label.operators for matrix in matrices
    ]
    count = settings.evaluate.samples
    total = len(problems) * count
    with tqdm(total=total, desc=f"evaluate {model}: sampling", unit="program", disable=None) as bar:
        programs = sample_programs(
            policy,
            problems,
            samples=count,
            temperature=settings.evaluate.temperature,
            max_tokens=settings.policy.max_tokens,
            arch=judge.arch,
            seed=settings.seed,
            progress=bar.update,
        )
    rows = [
        (problem, index, text)
        for problem, texts in zip(problems, programs, strict=True)
        for index, text in enumerate(texts)
    ]
    requests = [JudgeRequest(text, problem.matrix, problem.operator, problem.width) for problem, _, text in rows]
    with tqdm(total=total, desc=f"evaluate {model}: judging", unit="program", disable=None) as bar:
        verdicts = judge.judge_many(requests, progress=bar.update)
    return pd.DataFrame(
        [
            {
                "model": model,
                "matrix": problem.matrix.id,
                "operator": problem.operator,
                "width": problem.width,
                "sample": index,
                "source": text,
                **{name: verdict.to_dict()[name] for name in _COLUMNS},
            }
            for (problem, index, text), verdict in zip(rows, verdicts, strict=True)
        ]
    )


_COLUMNS = (
    *(
        "status",
        "message",
        "line",
        "failed_on",
        "arch",
        "gpu",
        "timing",
        "time_us",
        "baseline",
        "baseline_us",
        "speedup",
    ),
    *("convert_us", "break_even", "format", "registers", "bytes_moved", "program_hash", "code_hash"),
)


def problem_name(choice: OperatorChoice) -> str:
    """`spmv`, `spmm_8`: how metrics name an operator with its width."""
    return choice.name if choice.name == "spmv" else f"{choice.name}_{choice.width}"


def _summaries(
    settings: Settings, frame: "pd.DataFrame", measurements: "pd.DataFrame", manifest: "pd.DataFrame"
) -> dict[tuple[str, str], dict[str, float]]:
    """Every number by (model, problem); the library's oracle and the forest stand beside the models."""
    summary: dict[tuple[str, str], dict[str, float]] = {}
    for choice in settings.label.operators:
        problem = problem_name(choice)
        for model in MODELS:
            part = _part(frame, model, choice)
            summary[model, problem] = _model_summary(settings, part, _oracle_ratio(part, measurements))
        summary |= _peers(settings, frame, measurements, manifest, choice)
    return summary


def _model_summary(settings: Settings, part: "pd.DataFrame", oracle: "dict[str, float]") -> dict[str, float]:
    chosen = settings.evaluate
    row = {"n": float(part["matrix"].nunique()), "compile_rate": metrics.compile_rate(part)}
    for k in chosen.ks:
        row[f"pass_at_{k}"] = float(metrics.pass_rates(part, k).mean())
        ratios = metrics.speedups_one(part) if k == 1 else metrics.speedups_best(part, k)
        _add(row, f"speedup_{k}", metrics.bootstrap(ratios, chosen.bootstrap, settings.seed, logs=True))
        known = [
            ratio / oracle[m] for m, ratio in zip(sorted(part["matrix"].unique()), ratios, strict=True) if m in oracle
        ]
        _add(row, f"oracle_fraction_{k}", metrics.bootstrap(known, chosen.bootstrap, settings.seed, logs=True))
    row["distinct_share"] = part["code_hash"].nunique() / max(1, int(part["code_hash"].notna().sum()))
    return row


def _peers(
    settings: Settings,
    frame: "pd.DataFrame",
    measurements: "pd.DataFrame",
    manifest: "pd.DataFrame",
    choice: OperatorChoice,
) -> dict[tuple[str, str], dict[str, float]]:
    part = _part(frame, MODELS[0], choice)
    oracle = _oracle_ratio(part, measurements)
    ratios = [oracle.get(matrix, 1.0) for matrix in sorted(part["matrix"].unique())]
    found: dict[str, dict[str, float]] = {"oracle": {"n": float(len(ratios))}, "forest": {}}
    _add(found["oracle"], "speedup_1", metrics.bootstrap(ratios, settings.evaluate.bootstrap, settings.seed, logs=True))
    forest = forest_times(measurements, manifest, choice.name, choice.width, settings.seed)
    if len(forest):
        speedups = (forest["baseline_us"] / forest["time_us"]).to_numpy()
        found["forest"]["n"] = float(len(speedups))
        _add(
            found["forest"],
            "speedup_1",
            metrics.bootstrap(speedups, settings.evaluate.bootstrap, settings.seed, logs=True),
        )
    return {(peer, problem_name(choice)): row for peer, row in found.items() if row}


def _add(row: dict[str, float], name: str, estimate: metrics.Estimate) -> None:
    row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _part(frame: "pd.DataFrame", model: str, choice: OperatorChoice) -> "pd.DataFrame":
    return frame[(frame["model"] == model) & (frame["operator"] == choice.name) & (frame["width"] == choice.width)]


def _oracle_ratio(part: "pd.DataFrame", measurements: "pd.DataFrame") -> dict[str, float]:
    """Speed-up of the library's best program on each matrix of `part`; never below the baseline.

    The oracle's time comes from the `label` stage and the baseline's from this one; both are of the same kind, arch and
    protocol, which is checked.
    """
    kinds = set(measurements["timing"].dropna()) | set(part["timing"].dropna())
    arches = set(measurements["arch"]) | set(part["arch"].dropna())
    if len(kinds) > 1 or len(arches) > 1:
        raise UserError(f"measurements and verdicts differ: {sorted(kinds)} on {sorted(arches)}; run `dvc repro label`")
    best = oracle_times(measurements)
    ratios: dict[str, float] = {}
    for (matrix, operator, width), group in part.groupby(["matrix", "operator", "width"]):
        baseline = group["baseline_us"].dropna()
        if (matrix, operator, width) in best.index and len(baseline):
            ratios[str(matrix)] = max(1.0, float(baseline.median() / best.loc[(matrix, operator, width), "time_us"]))
    return ratios


def _table(summary: dict[tuple[str, str], dict[str, float]]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame([{"problem": problem, "model": model, **row} for (model, problem), row in summary.items()])


def _by_class(settings: Settings, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Speed-up, pass@1 and compile rate per model, problem and structure class."""
    import pandas as pd

    rows = []
    for choice in settings.label.operators:
        for model in MODELS:
            for name, group in _part(frame, model, choice).groupby("structure_class", sort=True):
                ratios = metrics.speedups_one(group)
                estimate = metrics.bootstrap(ratios, settings.evaluate.bootstrap, settings.seed, logs=True)
                rows.append(
                    {
                        "problem": problem_name(choice),
                        "model": model,
                        "structure_class": name,
                        "n": len(ratios),
                        "compile_rate": metrics.compile_rate(group),
                        "pass_at_1": float(metrics.pass_rates(group, 1).mean()),
                        **dataclasses.asdict(estimate),
                    }
                )
    return pd.DataFrame(rows)


def _write(root: Path, frame: "pd.DataFrame", table: "pd.DataFrame", by_class: "pd.DataFrame") -> None:
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "verdicts.parquet") as temporary:
        frame.to_parquet(temporary, index=False)
    for name, data in (("table", table), ("by_class", by_class)):
        with replacing(folder / f"{name}.csv") as temporary:
            data.to_csv(temporary, index=False, lineterminator="\n")
    for name in ("best.cu", "best.json"):
        (folder / name).unlink(missing_ok=True)  # of an earlier run, which may have had a correct sample
    good = frame[(frame["model"] == "rl") & (frame["status"] == Status.CORRECT)]
    if len(good):
        best = good.loc[good["speedup"].idxmax()]
        write_text(folder / "best.cu", str(best["source"]))
        plain = {k: (v.item() if isinstance(v, np.generic) else v) for k, v in best.drop("source").items()}
        write_json(
            folder / "best.json", {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in plain.items()}
        )


def _first(column: "pd.Series[Any]") -> str | None:
    known = column.dropna()
    return str(known.iloc[0]) if len(known) else None


if __name__ == "__main__":
    sys.exit(run_stage(evaluate, ("matrices", "samples", "seconds")))
