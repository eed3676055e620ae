"""Stage `label`: judge many programs of the library on every matrix; the best become pairs.

Run: python -m components.training.label
In:  data/matrices
Out: data/pairs/{measurements.parquet,pairs.parquet}, data/quality/{measurements,pairs}.json, data/metrics/label.json
"""

import hashlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from components.errors import UserError
from components.files import replacing, write_json
from components.settings import LabelSettings, Settings
from components.training.session import run_stage

if TYPE_CHECKING:
    import pandas as pd

    from components.judge.verdict import Verdict
    from components.kernel.families import RenderedProgram
    from components.matrix.types import SparseMatrix

_BATCH = 8  # matrices whose programs are judged together


def label(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote. Verdicts are cached, so that a killed run repeats one batch at most.

    Raises:
        UserError: nothing was correct, or a row breaks the quality suite.
    """
    import pandas as pd
    from tqdm import tqdm

    from components.judge.judge import Judge, JudgeRequest, resolve_backend
    from components.kernel.families import enumerate_programs, program_hash, spread
    from components.matrix.manifest import load_by_id, read_manifest
    from components.quality.suites import validate
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    root = settings.root
    manifest = read_manifest(root)
    backend, arch = resolve_backend(settings.judge)
    operators = ",".join(f"{choice.name}{choice.width}" for choice in settings.label.operators)
    with (
        stage_run("label", settings, tags={"arch": arch, "op": operators}) as run,
        Judge(settings.judge, arch, backend) as judge,
    ):
        jobs: list[tuple[SparseMatrix, str, int, RenderedProgram]] = []
        for identity in manifest["matrix"]:
            matrix = load_by_id(root, str(identity))
            for choice in settings.label.operators:
                programs = enumerate_programs(choice.name, matrix, names=settings.label.families)
                seed = int(hashlib.sha256(f"{settings.seed} {identity} {choice.name}".encode()).hexdigest()[:8], 16)
                jobs += [
                    (matrix, choice.name, choice.width, p) for p in spread(programs, settings.label.max_programs, seed)
                ]
        rows, sources = [], {}
        with tqdm(total=len(jobs), desc="label", unit="program", disable=None) as bar:
            size = _BATCH * settings.label.max_programs if settings.label.max_programs else 512

            def tick(done: int) -> None:
                bar.update(done)

            for start in range(0, len(jobs), size):
                part = jobs[start : start + size]
                requests = [JudgeRequest(p.source, matrix, name, width) for matrix, name, width, p in part]
                for (matrix, name, width, program), verdict in zip(
                    part, judge.judge_many(requests, progress=tick), strict=True
                ):
                    digest = program_hash(program.source)
                    sources[digest] = program.source
                    rows.append(measurement(matrix.id, name, width, program, digest, verdict, arch))
        measurements = pd.DataFrame(rows).astype(_TYPES)
        report = validate("measurements", measurements)
        pairs = best_pairs(
            measurements, sources, dict(zip(manifest["matrix"], manifest["split"], strict=True)), settings.label
        )
        if pairs.empty:
            raise UserError("label: no program was correct on a train or validation matrix; nothing to learn from")
        pairs_report = validate("pairs", pairs)
        timing = sorted(set(measurements["timing"].dropna()))
        run.set_tags({"timing": ",".join(timing)})
        folder = root / "data/pairs"
        for name, frame in (("measurements", measurements), ("pairs", pairs)):
            with replacing(folder / f"{name}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)
        write_json(root / "data/quality/measurements.json", report.to_dict())
        write_json(root / "data/quality/pairs.json", pairs_report.to_dict())
        seconds = time.perf_counter() - started
        metrics = {
            "run_id": run.run_id,
            "seconds": round(seconds, 2),
            "arch": arch,
            "timing": ",".join(timing),
            "judged": len(measurements),
            "judged_per_s": len(measurements) / seconds,
            "correct_share": float((measurements["status"] == "correct").mean()),
            "pairs": len(pairs),
            "pairs_train": int((pairs["split"] == "train").sum()),
            "statuses": measurements["status"].value_counts().to_dict(),
            "best_families": pairs[pairs["quality"] == 1]["family"].value_counts().to_dict(),
        }
        run.log_metrics(0, {name: v for name, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(folder / "pairs.parquet")
    write_json(root / "data/metrics/label.json", metrics)
    return metrics


_TYPES = {
    **dict.fromkeys(("time_us", "baseline_us", "convert_us"), "float64"),
    **dict.fromkeys(("bytes_moved", "registers", "spill_bytes", "shared_bytes"), "Int64"),
}


def measurement(
    matrix: str, operator: str, width: int, program: "RenderedProgram", digest: str, verdict: "Verdict", arch: str
) -> dict[str, Any]:
    """One row of the measurements table."""
    return {
        "matrix": matrix,
        "operator": operator,
        "width": width,
        "dtype": "float32",
        "arch": arch,
        "gpu": verdict.gpu,
        "timing": verdict.timing,
        "driver": verdict.driver,
        "compiler": verdict.compiler,
        "program_hash": digest,
        "family": program.family,
        "parameters": json.dumps(dict(program.parameters)),
        "format": verdict.format,
        "status": str(verdict.status),
        "time_us": verdict.time_us if verdict.correct else None,
        "baseline": verdict.baseline,
        "baseline_us": verdict.baseline_us,
        "convert_us": verdict.convert_us,
        "bytes_moved": verdict.bytes_moved,
        "registers": verdict.registers,
        "spill_bytes": verdict.spill_bytes,
        "shared_bytes": verdict.shared_bytes,
    }


def best_pairs(
    measurements: "pd.DataFrame", sources: dict[str, str], split: dict[str, str], chosen: LabelSettings
) -> "pd.DataFrame":
    """The best programs of each train and validation problem: at most `keep_best`, within `keep_within` of the best."""
    target = ["matrix", "operator", "width", "dtype", "arch"]
    frame = measurements[
        (measurements["status"] == "correct") & measurements["matrix"].map(split).isin(["train", "validation"])
    ]
    frame = frame.assign(split=frame["matrix"].map(split), source=frame["program_hash"].map(sources))
    frame["quality"] = frame.groupby(target)["time_us"].transform("min") / frame["time_us"]
    frame = frame[frame["quality"] >= chosen.keep_within].sort_values([*target, "time_us", "program_hash"])
    frame = frame.groupby(target, sort=False).head(chosen.keep_best)
    columns = [
        *("matrix", "split", "operator", "width", "dtype", "arch", "program_hash", "family", "parameters", "source"),
        *("time_us", "baseline_us", "quality", "timing"),
    ]
    return frame[columns].reset_index(drop=True)


if __name__ == "__main__":
    sys.exit(run_stage(label))
