"""The result of a campaign: speed-ups of the winners by their final measurement, as JSON and as a table.

Winners are chosen and quoted by their fresh duel with the baseline: the minimum that a search found is too good by what
noise gave it. Where no program beats the baseline, or none can be quoted, tuning hands back the baseline: that matrix
counts as 1.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from components.campaign.ingest import side_path
from components.campaign.peers import Forest, family_speedups, family_table, forest
from components.campaign.plan import Problem
from components.campaign.run import MATRICES, PROBLEMS, SESSIONS
from components.campaign.search import PRUNED
from components.errors import UserError
from components.evaluation.metrics import bootstrap, geomean, one_timing
from components.files import write_json, write_text

if TYPE_CHECKING:
    import pandas as pd

_RESAMPLES, _SEED = 2000, 0
_SIZES = (("lt1e4", 0, 1e4), ("1e4_1e5", 1e4, 1e5), ("1e5_1e6", 1e5, 1e6), ("gt1e6", 1e6, math.inf))
_LARGE = 10_000_000  # non-zeros from which bandwidth is what counts


def summarise(measurements: Path, out: Path, command: Sequence[str]) -> dict[str, Any]:
    """Write the results to `out` and the table to the `.md` beside it.

    Args:
        measurements: of `components.campaign ingest`; the side tables lie beside it.
        out: a .json file.
        command: what makes it, for the record.

    Returns:
        The results, with the table's text as `markdown`.

    Raises:
        UserError: a file is missing, nothing was finished, or measured and modelled times or two GPUs meet.
    """
    tables = {name: _read(side_path(measurements, f"-{name}")) for name in (MATRICES, PROBLEMS, SESSIONS)}
    result = results(_read(measurements), tables[MATRICES], tables[PROBLEMS], tables[SESSIONS], command)
    markdown = table_text(result)
    write_json(out, result)
    write_text(out.with_suffix(".md"), markdown)
    return {**result, "markdown": markdown}


def results(
    rows: "pd.DataFrame",
    matrices: "pd.DataFrame",
    problems: "pd.DataFrame",
    sessions: "pd.DataFrame",
    command: Sequence[str],
) -> dict[str, Any]:
    """What `summarise` writes; see there."""
    timing = one_timing(rows)
    machines = problems[["arch", "gpu"]].drop_duplicates()
    if len(machines) > 1:
        names = " and ".join(sorted(f"{m.gpu or 'no GPU'} ({m.arch})" for m in machines.itertuples()))
        raise UserError(f"the table mixes {names}; expected one machine, ingest each on its own")
    if not (problems["outcome"] == "done").any():
        raise UserError("no problem was finished; run the campaign until at least one is")
    last = sessions.sort_values("started").iloc[-1]
    result: dict[str, Any] = {
        "gpu": _or_none(last["gpu"]),
        "driver": _or_none(last["driver"]),
        "cuda": _or_none(last["cuda"]),
        "date": str(last["started"])[:10],
        "command": " ".join(command),
        "arch": str(last["arch"]),
        "timing": timing,
        "compiler": str(last["compiler"]),
        "copy_bandwidth_gbps": round(float(last["copy_bandwidth"]) / 1e3, 1) if timing == "measured" else None,
    }
    for (operator, width, dtype), part in problems.groupby(["operator", "width", "dtype"], sort=True):
        own = rows[(rows["operator"] == operator) & (rows["width"] == width) & (rows["dtype"] == dtype)]
        problem = Problem(str(operator), int(width), str(dtype))
        if (part["outcome"] == "done").any():
            place = result.setdefault(problem.operator, {})
            found = one_problem(problem, own, matrices, part, sessions, timing)
            if operator == "spmv":
                place[problem.precision] = found
            else:
                place.setdefault(problem.precision, {})[str(width)] = found
    return result


def one_problem(
    problem: Problem,
    rows: "pd.DataFrame",
    matrices: "pd.DataFrame",
    problems: "pd.DataFrame",
    sessions: "pd.DataFrame",
    timing: str,
) -> dict[str, Any]:
    """The figures of one problem over all matrices on which its search was finished."""
    done = problems[problems["outcome"] == "done"].sort_values("matrix").set_index("matrix")
    ids = [str(name) for name in done.index]
    rows = rows[rows["matrix"].isin(ids)]
    search = rows[(rows["phase"] == "search") & (rows["status"] != PRUNED)]
    finals = quotable(rows)
    best = finals.loc[finals.groupby("matrix", observed=True)["speedup"].idxmax()].set_index("matrix").reindex(ids)
    raw = best["speedup"].astype(np.float64)
    won = (raw > 1.0).to_numpy()
    speedup = raw.where(raw > 1.0, 1.0).to_numpy()
    nnz = done["nnz"].to_numpy(np.float64)
    kinds = done["structure_class"].astype(str).to_numpy()
    estimate = bootstrap(speedup, _RESAMPLES, _SEED, logs=True)
    cold = best["speedup_cold"].astype(np.float64).where(won, 1.0).to_numpy()
    families = family_speedups(finals, ids)
    picked = forest(families, matrices)
    in_size = {name: (nnz >= low) & (nnz < high) for name, low, high in _SIZES}
    in_class = {str(kind): kinds == kind for kind in sorted(set(kinds))}
    worst, worst_raw = int(speedup.argmin()), raw.fillna(1.0).to_numpy()
    winners = best[won]
    attempted = search[search["status"] == "correct"].groupby("matrix", observed=True).size().reindex(ids).fillna(0)
    return {
        "n": len(ids),
        "geomean": estimate.value,
        "geomean_interval": [estimate.low, estimate.high],
        "geomean_cold": geomean(cold) if np.isfinite(cold).all() else None,
        "by_nnz": {name: _geomean(speedup[inside]) for name, inside in in_size.items()},
        "by_nnz_n": {name: int(inside.sum()) for name, inside in in_size.items()},
        "by_class": {name: _geomean(speedup[inside]) for name, inside in in_class.items()},
        "by_class_n": {name: int(inside.sum()) for name, inside in in_class.items()},
        "worst": {"matrix": ids[worst], "speedup": float(speedup[worst])},
        "worst_program": {"matrix": ids[int(worst_raw.argmin())], "speedup": float(worst_raw.min())},
        "baseline_kept": [name for name, wins in zip(ids, won, strict=True) if not wins],
        "unquotable": [n for n, value, tries in zip(ids, raw.isna(), attempted, strict=True) if value and tries],
        **_bandwidth(problem, best, done, sessions, timing),
        "forest": _forest(picked, estimate.value),
        "families": family_table(families, search),
        "programs": len(search),
        "programs_per_matrix_median": float(search.groupby("matrix", observed=True).size().median()),
        "pruned": int(((rows["phase"] == "search") & (rows["status"] == PRUNED)).sum()),
        "finals": int((rows["phase"] == "final").sum()),
        "seconds": float(done["seconds"].sum()),
        "gpu_seconds": _total(rows["gpu_seconds"]),
        "convert_ms_median": _median(winners["convert_us"] / 1e3),
        "break_even_median": _median(winners["break_even"]),
        "refused": int((problems["outcome"] == "refused").sum()),
    }


def quotable(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The final measurements of correct programs that are not unreliable; of several of one program the last."""
    finals = rows[(rows["phase"] == "final") & (rows["status"] == "correct")]
    finals = finals[finals["reliable"].fillna(True).astype(bool)]
    return finals.sort_values("round", kind="stable").drop_duplicates(["matrix", "program_hash"], keep="last")


def _bandwidth(
    problem: Problem, best: "pd.DataFrame", done: "pd.DataFrame", sessions: "pd.DataFrame", timing: str
) -> dict[str, Any]:
    """Share of the measured copy bandwidth by class: bytes of the stored format and, once each, of the dense operands.

    `_stored` counts the stored format alone. Geometric means over the matrices of more than 1e7 non-zeros.
    """
    large = best[(done["nnz"] > _LARGE).to_numpy() & best["bytes_stored"].notna().to_numpy()]
    if timing != "measured" or large.empty:
        return {"bandwidth_share": {}, "bandwidth_share_stored": {}, "bandwidth_share_n": {}}
    rates = large["session"].astype(str).map(sessions.set_index("session")["copy_bandwidth"]).to_numpy(np.float64)
    room = large["time_us"].to_numpy(np.float64) * rates
    stored = large["bytes_stored"].to_numpy(np.float64)
    dense = np.array([problem.operand_bytes(int(r), int(c)) for r, c in zip(large["rows"], large["cols"], strict=True)])
    kinds = done.loc[large.index, "structure_class"].astype(str).to_numpy()
    classes = sorted(set(kinds))
    return {
        "bandwidth_share": {kind: _geomean(((stored + dense) / room)[kinds == kind]) for kind in classes},
        "bandwidth_share_stored": {kind: _geomean((stored / room)[kinds == kind]) for kind in classes},
        "bandwidth_share_n": {kind: int((kinds == kind).sum()) for kind in classes},
    }


def _forest(picked: Forest | None, oracle: float) -> dict[str, Any]:
    if picked is None:
        return {"top1": None, "top4": None}
    top1, top4 = geomean(picked.top1), geomean(picked.top4)
    return {
        "top1": top1 / oracle,
        "top4": top4 / oracle,
        "top1_geomean": top1,
        "top4_geomean": top4,
        "folds": picked.folds,
    }


def table_text(result: dict[str, Any]) -> str:
    """The results side by side, as Markdown: one column a problem."""
    columns: dict[str, dict[str, Any]] = {f"SpMV {name}": found for name, found in result.get("spmv", {}).items()}
    for name, widths in result.get("spmm", {}).items():
        columns |= {f"SpMM {width}, {name}": found for width, found in widths.items()}
    baseline = "best of cuSPARSE" if result["timing"] == "measured" else "reference kernel"
    families = sorted({name for found in columns.values() for name in found["families"]})

    def line(name: str, cells: list[str]) -> str:
        return f"| {name} | {' | '.join(cells)} |"

    def each(show: Any) -> list[str]:
        return [show(found) for found in columns.values()]

    def alone(name: str) -> list[str]:
        return each(lambda f: _number(f["families"].get(name, {}).get("geomean")))

    rows = [
        line("", list(columns)),
        line("---", ["---"] * len(columns)),
        line("matrices", each(lambda f: str(f["n"]))),
        line(f"{baseline} (1 by definition)", each(lambda f: "1.000")),
        *(line(f"`{name}` alone", alone(name)) for name in families),
        line("forest, one family", each(lambda f: _number(f["forest"].get("top1_geomean")))),
        line("forest, best of four families", each(lambda f: _number(f["forest"].get("top4_geomean")))),
        line(
            "oracle: best of all, or the baseline",
            each(lambda f: f"**{f['geomean']:.3f}** [{f['geomean_interval'][0]:.3f}, {f['geomean_interval'][1]:.3f}]"),
        ),
        line("the same, L2 cold", each(lambda f: _number(f["geomean_cold"]))),
        line("baseline kept", each(lambda f: str(len(f["baseline_kept"])))),
        line("programs judged", each(lambda f: f"{f['programs']:,}")),
        line("of them a matrix, median", each(lambda f: f"{f['programs_per_matrix_median']:.0f}")),
        line("seconds of the GPU", each(lambda f: _number(f["gpu_seconds"], 0))),
    ]
    where = f"{result['gpu']}, driver {result['driver']}" if result["gpu"] else f"modelled for {result['arch']}"
    notes = (
        f"Geometric means of speed-ups over {baseline} ({result['timing']}, L2 warm; {where}; {result['date']}), 95 % "
        "bootstrap intervals over matrices. Every winner by a fresh duel after the search. A family alone has its best "
        "parameters on each matrix, and counts as the baseline where none of its programs is correct; the forest is "
        "cross-validated by collection group and gets the best parameters of the families it names."
    )
    return "\n".join([notes, "", *rows, ""])


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _geomean(values: Any) -> float | None:
    return geomean(values) if len(values) else None


def _median(values: Any) -> float | None:
    known = values.dropna()
    return float(known.median()) if len(known) else None


def _total(values: Any) -> float | None:
    known = values.dropna()
    return float(known.astype(np.float64).sum()) if len(known) else None


def _or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    if not path.is_file():
        raise UserError(f"{path}: not found; make it by `python -m components.campaign ingest`")
    return pd.read_parquet(path)
