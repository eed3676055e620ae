"""The campaign's command line.

    python -m components.campaign run --matrices DIR --out FOLDER --problems spmv:float32,spmm8:float32 --budget-s 500
    python -m components.campaign ingest --shards FOLDER --out data/measurements/kernels.parquet
    python -m components.campaign summary --measurements data/measurements/kernels.parquet --out kernels.json

`run` ends with one line of JSON on stdout. Exit codes: 0 it ended as asked (all done, budget spent, or SIGTERM), 1 a
matrix failed, 2 user error.
"""

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.errors import UserError

_PROBLEMS = "spmv:float32,spmv:float64,spmm8:float32,spmm32:float32,spmm128:float32"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = _parser().parse_args(words)
    command = ["python", "-m", "components.campaign", *words]
    try:
        code: int = chosen.work(chosen, command)
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    from components.campaign.search import SearchSettings

    parser = argparse.ArgumentParser(prog="python -m components.campaign", description="Measure the kernel library.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="search the best kernel of every problem; resumes")
    run.set_defaults(work=_run)
    run.add_argument("--matrices", type=Path, help="a folder of .mtx[.gz] files, with or without manifest.csv")
    run.add_argument("--generated", nargs="*", default=[], metavar="FAMILY:NNZ[:SEED]", help="commas give several")
    run.add_argument("--out", type=Path, required=True, help="folder of shards; one that has some is gone on with")
    run.add_argument("--problems", default=_PROBLEMS)
    run.add_argument("--families", default="", help="only these, separated by commas")
    run.add_argument("--budget-s", type=float, default=float("inf"), help="no batch begins after so many seconds")
    run.add_argument("--backend", choices=("auto", "gpu", "emulator"), default="auto")
    run.add_argument("--arch", default="auto", help="architecture to model without a GPU")
    run.add_argument("--workers", type=int, default=0, help="of the judge; 0: one per core")
    run.add_argument("--window", type=int, default=6, help="matrices in flight")
    run.add_argument("--sample", type=int, default=0, help="so many matrices, spread over classes; 0: all")
    run.add_argument("--min-nnz", type=int, default=1000)
    run.add_argument("--max-nnz", type=int, default=0, help="0: no limit")
    run.add_argument("--seed", type=int, default=0, help="of the sample and of the order of matrices")
    for knob in dataclasses.fields(SearchSettings):
        kind = float if isinstance(knob.default, float) else int
        run.add_argument(f"--{knob.name.replace('_', '-')}", type=kind, default=knob.default)
    ingest = commands.add_parser("ingest", help="shards to validated parquet")
    ingest.set_defaults(work=_ingest)
    ingest.add_argument("--shards", type=Path, nargs="+", required=True)
    ingest.add_argument("--out", type=Path, required=True)
    summary = commands.add_parser("summary", help="parquet to the table of results")
    summary.set_defaults(work=_summary)
    summary.add_argument("--measurements", type=Path, required=True)
    summary.add_argument("--out", type=Path, required=True, help="a .json; the table goes to the .md beside it")
    return parser


def _run(chosen: argparse.Namespace, command: list[str]) -> int:
    from components.campaign.plan import check_families, parse_problems
    from components.campaign.remeasure import RemeasuringJudge
    from components.campaign.run import SESSIONS, Campaign, start_session, stop_on_signals
    from components.campaign.search import SearchSettings
    from components.campaign.sets import sources
    from components.campaign.shards import Folder
    from components.judge.options import judge_defaults, resolve_backend

    started = time.monotonic()
    problems = parse_problems(chosen.problems)
    families = [name for name in chosen.families.split(",") if name]
    check_families(families)
    names = [knob.name for knob in dataclasses.fields(SearchSettings)]
    settings = SearchSettings(**{name: getattr(chosen, name) for name in names})
    matrices = sources(chosen.matrices, chosen.generated, chosen.min_nnz, chosen.max_nnz, chosen.sample, chosen.seed)
    judging = judge_defaults(backend=chosen.backend, arch=chosen.arch)
    backend, arch = resolve_backend(judging)
    with (
        Folder(chosen.out) as folder,
        RemeasuringJudge(judging, arch, backend, workers=chosen.workers or None) as judge,
    ):
        session, row = start_session(judge, command, {"backend": backend, "cuda": _cuda()})
        folder.append(SESSIONS, [row])
        campaign = Campaign(
            judge,
            folder,
            session,
            problems,
            settings,
            families,
            deadline=started + chosen.budget_s,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        stop_on_signals(campaign)
        tally = campaign.run(matrices, chosen.window)
    total = len(matrices) * len(problems)
    print(
        json.dumps(
            {
                "session": session.name,
                "seconds": round(time.monotonic() - started, 1),
                "gpu_seconds": None if (spent := judge.gpu_seconds()) is None else round(spent, 1),
                "matrices": len(matrices),
                "problems": total,
                **dataclasses.asdict(tally),
            }
        )
    )
    return 1 if tally.failed else 0


def _ingest(chosen: argparse.Namespace, command: list[str]) -> int:
    from components.campaign.ingest import ingest

    print(json.dumps(ingest(chosen.shards, chosen.out)))
    return 0


def _summary(chosen: argparse.Namespace, command: list[str]) -> int:
    from components.campaign.summary import summarise

    table: dict[str, Any] = summarise(chosen.measurements, chosen.out, command)
    print(table["markdown"])
    return 0


def _cuda() -> str | None:
    """The CUDA version that the driver offers, as nvidia-smi prints it."""
    import re

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    answer = subprocess.run([tool], capture_output=True, text=True, timeout=60, check=False).stdout
    found = re.search(r"CUDA Version:\s*([\d.]+)", answer)
    return found.group(1) if found else None


if __name__ == "__main__":
    sys.exit(main())
