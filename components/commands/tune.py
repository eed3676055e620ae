"""`sparserl tune M`: matrix in, verified kernel and report out."""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.cli import Exit, emit, width_of
from components.commands.session import load_real_matrix, open_judge, writable_folder
from components.errors import UserError
from components.files import write_json, write_text
from components.judge.standing import standing
from components.settings import load

if TYPE_CHECKING:
    from components.judge.verdict import Verdict
    from components.kernel.families import RenderedProgram
    from components.matrix.types import SparseMatrix


def run(arguments: argparse.Namespace) -> int:
    """Judge up to K programs spread over the kernel families; write the fastest correct one.

    When none beats the baseline, the output says so. The library's plain CSR-vector program is written then if it is
    the baseline (modelled times); a vendor library's baseline has no program to write, so the fastest correct candidate
    is (measured times).
    """
    from components.judge.judge import BASELINE, JudgeRequest
    from components.kernel.families import enumerate_programs, spread
    from components.kernel.operators import get_operator
    from components.kernel.precision import get_precision

    matrix = load_real_matrix(arguments.matrix)
    width = width_of(arguments)
    if matrix.nnz == 0:
        raise UserError(f"{matrix.id}: {matrix.rows} x {matrix.cols} without entries: there is nothing to tune")
    suffix = "" if arguments.precision == "float32" else f"-{arguments.precision}"
    default = Path("tuned", _folder(matrix.group), _folder(matrix.name), f"{arguments.op}-{width}{suffix}")
    out = writable_folder(Path(arguments.out) if arguments.out else default)
    for name in ("kernel.cu", "candidates.json", "report.md"):
        if (out / name).is_dir():
            raise UserError(f"{out / name}: is a folder; expected a file, or none yet")
    known = enumerate_programs(arguments.op, matrix, precision=arguments.precision)
    programs = spread(known, arguments.candidates, seed=arguments.seed)
    requests = [JudgeRequest(p.source, matrix, arguments.op, width, arguments.precision) for p in programs]
    reference = get_operator(arguments.op).reference_program(matrix, width, get_precision(arguments.precision))
    with (
        open_judge(arguments, load()) as judge,
        _bar(len(requests), shown=not arguments.json) as advance,
    ):
        verdicts = judge.judge_many(requests, progress=advance)
        baseline, baseline_us = judge.baseline(matrix, arguments.op, width, arguments.precision)
    best = min(
        (pair for pair in zip(verdicts, programs, strict=True) if pair[0].correct and pair[0].time_us is not None),
        key=lambda pair: pair[0].time_us or 0.0,
        default=None,
    )
    if best is not None and baseline == BASELINE and (best[0].time_us or 0.0) >= baseline_us:
        best = None
    write_text(out / "kernel.cu", best[1].source if best is not None else reference)
    summary = _summary(arguments, matrix, width, programs, verdicts, best, baseline, baseline_us)
    summary |= {"known": len(known), "kernel": str(out / "kernel.cu"), "out": str(out)}
    write_json(out / "candidates.json", summary)
    write_text(out / "report.md", _report(summary))
    emit(arguments, {k: v for k, v in summary.items() if k != "candidates"}, _report(summary))
    return Exit.GOOD


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[int], object]]:
    """What moves a progress bar on stderr; where none can be drawn, work goes on without it."""
    from tqdm import tqdm

    try:
        bar = tqdm(total=total, desc="judging", unit="program", disable=not shown)
    except OSError:
        bar = tqdm(total=total, disable=True)

    def advance(done: int) -> None:
        with suppress(OSError):
            bar.update(done)

    try:
        yield advance
    finally:
        with suppress(OSError):
            bar.close()


def _folder(name: str) -> str:
    """A file name for a group or a matrix, which a file may call anything."""
    return re.sub(r"[^\w.+-]", "_", name).lstrip(".")[:100] or "_"


def _summary(
    arguments: argparse.Namespace,
    matrix: "SparseMatrix",
    width: int,
    programs: "list[RenderedProgram]",
    verdicts: "list[Verdict]",
    best: "tuple[Verdict, RenderedProgram] | None",
    baseline: str,
    baseline_us: float,
) -> dict[str, Any]:
    first = verdicts[0] if verdicts else None
    return {
        "matrix": matrix.id,
        "rows": matrix.rows,
        "cols": matrix.cols,
        "nnz": matrix.nnz,
        "operator": arguments.op,
        "width": width,
        "precision": arguments.precision,
        "arch": first.arch if first else None,
        "gpu": first.gpu if first else None,
        "timing": first.timing if first else None,
        "model": standing(first.arch) if first and first.arch and first.timing == "modelled" else None,
        "winner": best[1].family if best else baseline,
        "parameters": dict(best[1].parameters) if best else {},
        "verdict": best[0].to_dict() if best else None,
        "baseline": baseline,
        "baseline_us": baseline_us,
        "judged": len(verdicts),
        "correct": sum(verdict.correct for verdict in verdicts),
        "candidates": [
            {
                "family": program.family,
                "parameters": dict(program.parameters),
                "status": str(verdict.status),
                "message": verdict.message,
                "time_us": verdict.time_us,
            }
            for program, verdict in zip(programs, verdicts, strict=True)
        ],
    }


def _report(summary: dict[str, Any]) -> str:
    where = f"{summary['gpu']}, L2 warm" if summary["gpu"] else f"{summary['arch']}, L2 warm ({summary['model']})"
    lines = [
        f"# {summary['operator']} in {summary['precision']} for {summary['matrix']}",
        "",
        f"{summary['rows']} x {summary['cols']}, {summary['nnz']} non-zeros; times are {summary['timing']} on {where}.",
        f"{summary['judged']} of {summary['known']} programs for this matrix judged, {summary['correct']} correct.",
        "",
    ]
    verdict = summary["verdict"]
    if verdict is None:
        lines.append(
            f"No judged program beat the baseline {summary['baseline']} ({summary['baseline_us']:.2f} us). "
            f"The library's plain CSR-vector program was written to {summary['kernel']}."
        )
    else:
        interval = verdict["speedup_interval"]
        spread_text = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else " (one modelled value, no interval)"
        fastest = "Winner" if verdict["speedup"] > 1 else f"Nothing beat {summary['baseline']}; the fastest program"
        lines += [
            f"{fastest}: {summary['winner']} {json.dumps(summary['parameters'])}, written to {summary['kernel']}",
            f"{verdict['time_us']:.2f} us against {summary['baseline_us']:.2f} us of {summary['baseline']}: "
            f"{verdict['speedup']:.2f}x{spread_text}",
        ]
        if verdict["convert_us"] is not None:
            pays = verdict["break_even"]
            after = "never" if pays is None else f"after {pays:.0f} products"
            lines.append(f"Conversion takes {verdict['convert_us']:.0f} us on the host and has paid {after}.")
    ranked = sorted(
        (c for c in summary["candidates"] if c["time_us"] is not None and c["status"] == "correct"),
        key=lambda c: c["time_us"],
    )
    lines += ["", "| family | parameters | time (us) |", "|---|---|---|"]
    lines += [f"| {c['family']} | {json.dumps(c['parameters'])} | {c['time_us']:.2f} |" for c in ranked[:10]]
    return "\n".join(lines) + "\n"
