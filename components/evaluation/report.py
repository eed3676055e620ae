"""Stage `report`: the numbers and pictures of the last cycle on one page that opens offline.

Run: python -m components.evaluation.report
In:  data/metrics, data/evaluation, data/matrices
Out: data/report/{index.html,index.md,*.png}
"""

import base64
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.evaluation import plots
from components.evaluation.metrics import Estimate, one_timing
from components.files import read_json, write_text
from components.judge.standing import provenance
from components.settings import Settings
from components.stage import run_stage

if TYPE_CHECKING:
    import pandas as pd

STAGES = ("matrices", "corpus", "tokenizer", "pretrain", "label", "sft", "rl", "evaluate")
_SPY = 8  # matrices in the picture


@dataclass(frozen=True)
class Picture:
    """A PNG beside the page and what it shows."""

    path: Path
    caption: str

    @property
    def data(self) -> str:
        """The picture as a data URI: the page needs no other file."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True)
class Section:
    """A heading with notes, a table (first row: column names), pictures and code, each optional."""

    title: str
    notes: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    pictures: Sequence[Picture] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """All that is said, whatever it is rendered to."""

    subtitle: str
    headline: Sequence[str]
    sections: Sequence[Section] = field(default_factory=tuple)


def report(settings: Settings) -> Path:
    """Run the stage; returns the page's path.

    Raises:
        UserError: an earlier stage has not run.
    """
    import pandas as pd

    from components.tracking.runs import stage_run

    root = settings.root
    out = root / "data/report"
    metrics = {stage: read_json(root / f"data/metrics/{stage}.json") for stage in STAGES}
    verdicts = pd.read_parquet(root / "data/evaluation/verdicts.parquet")
    table = pd.read_csv(root / "data/evaluation/table.csv")
    by_class = pd.read_csv(root / "data/evaluation/by_class.csv")
    evaluation = metrics["evaluate"]
    timing = one_timing(verdicts)
    place = where(evaluation)
    page = Page(
        subtitle=f"Times are {timing} on {place}. Every test matrix counts; a miss counts as the baseline (1). "
        "Brackets hold 95 % bootstrap intervals over matrices.",
        headline=headline(table, evaluation),
        sections=(
            Section("Evaluation on the test split", table=evaluation_table(table), notes=_peers_note(evaluation)),
            Section(
                "By structure class", table=class_table(by_class), pictures=_class_pictures(by_class, evaluation, out)
            ),
            Section("What became of the samples", pictures=[_statuses(verdicts, out)]),
            Section(
                "Training",
                notes=_shipped(metrics["rl"]),
                table=training_table(metrics),
                pictures=_curves(root, out),
            ),
            _best(root, place),
            Section(
                "How far the judge can be trusted", notes=_trust_notes(), table=trust_table(root / "benchmarks/results")
            ),
            Section("Matrices", table=_matrices(metrics["matrices"]), pictures=_spies(settings, out)),
            Section("Where the matrices come from", table=_sources(root, metrics["matrices"]["source"])),
            Section("Corpus", table=_corpus(metrics["corpus"])),
            Section("Stages", table=stage_table(metrics)),
        ),
    )
    write_text(out / "index.html", html(page))
    write_text(out / "index.md", markdown(page))
    with stage_run("report", settings, tags={"timing": timing, "evaluation_run": evaluation["run_id"]}) as run:
        run.log_artifact(out, "report")
    return out / "index.html"


def where(evaluation: dict[str, Any]) -> str:
    """The GPU that measured, or the architecture that was modelled, and the state of the cache."""
    if evaluation["timing"] == "measured":
        return f"{evaluation['gpu']}, L2 warm"
    return f"{evaluation['arch']} ({provenance(evaluation['arch'])}; L2 warm)"


def headline(table: "pd.DataFrame", evaluation: dict[str, Any]) -> list[str]:
    """One sentence a problem."""
    lines = []
    for row in table[table["model"] == "rl"].to_dict("records"):
        speedup = _estimate(row, "speedup_1")
        lines.append(
            f"{row['problem']}: {_percent(row['compile_rate'])} of the samples compile, "
            f"pass@1 {_percent(row['pass_at_1'])}; "
            f"one sample is {speedup} times as fast as {evaluation['baseline']}, {evaluation['timing']}, "
            f"geometric mean over {int(row['n'])} test matrices"
        )
    return lines


def evaluation_table(table: "pd.DataFrame") -> list[list[str]]:
    """Models and peers, one row each."""
    ks = sorted({int(c.removeprefix("pass_at_")) for c in table.columns if c.startswith("pass_at_")})
    head = ["problem", "model", "matrices", "compile rate", *(f"pass@{k}" for k in ks)]
    head += [f"speed-up, best of {k}" if k > 1 else "speed-up, one sample" for k in ks]
    head += [f"share of the oracle, {k}" for k in ks]
    rows = [head]
    for row in table.to_dict("records"):
        cells = [str(row["problem"]), str(row["model"]), f"{row['n']:.0f}", _percent(row.get("compile_rate"))]
        cells += [_percent(row.get(f"pass_at_{k}")) for k in ks]
        cells += [_estimate(row, f"speedup_{k}") for k in ks]
        cells += [_estimate(row, f"oracle_fraction_{k}") for k in ks]
        rows.append(cells)
    return rows


def _peers_note(evaluation: dict[str, Any]) -> list[str]:
    return [
        f"Speed-ups are over {evaluation['baseline']}. oracle: the fastest program of the library that was tried on "
        "the matrix; forest: a random forest that picks a family from structure features, in one guess."
    ]


def _trust_notes() -> list[str]:
    return [
        "Measured by the scripts in benchmarks/, which each row names; not by this run. Escapes are hostile programs "
        "that were called correct, false alarms honest ones that were not."
    ]


def trust_table(results: Path) -> list[list[str]]:
    """What the benchmarks of the judge found, as far as their results are there; the first row names the columns."""
    rows = [["what", "figure", "where", "source"]]
    for path in sorted(results.glob("*/judge_tamper.json")):
        found = read_json(path)
        place = found["environment"]["gpu"] or f"CPU, interpreter for {found['environment']['arch']}"
        hostile = f"{len(found['escapes'])} of {found['n_adversarial']} programs of {found['kinds']} kinds"
        honest = f"{len(found['false_alarms'])} of {found['n_honest']} programs"
        rows.append(["escapes", hostile, place, f"{path.parent.name}/{path.name}"])
        rows.append(["false alarms", honest, place, f"{path.parent.name}/{path.name}"])
    for path in sorted(results.glob("*/judge.json")):
        found, source = read_json(path), f"{path.parent.name}/{path.name}"
        place = found["environment"]["device"]["gpu"]
        if (part := found.get("throughput")) is not None:
            text = f"{part['evaluations_per_s']:.1f} a second, each on {len(part['matrices'])} matrices"
            rows.append(["evaluations", text, place, source])
        if (part := found.get("noise")) is not None:
            for key, name in (("at_least_10us", "10 us or more"), ("below_10us", "under 10 us")):
                if part[key]["n"]:
                    text = f"p95 {part[key]['p95']:.2%}, largest {part[key]['max']:.2%} of {part[key]['n']}"
                    rows.append([f"A/A noise, {name}", text, f"{place}, L2 warm", source])
        if (part := found.get("recovery")) is not None:
            text = f"{part['within_2s']} of {part['n']} within 2 s, slowest {part['max_s']:.2f} s"
            rows.append(["next verdict after a fault", text, place, source])
        if (part := found.get("agreement")) is not None:
            rows.append(["verdicts equal to the interpreter's", f"{part['equal']} of {part['n']}", place, source])
    for path in sorted(results.glob("*/model_fit.json")):
        found = read_json(path)
        rows.append(_model_row(found, found["held_out"], "held out", f"{path.parent.name}/{path.name}"))
    for path in sorted(results.glob("*/model_check.json")):
        found = read_json(path)
        rows.append(_model_row(found, found["all"], "of a second set", f"{path.parent.name}/{path.name}"))
    return rows


def _model_row(found: dict[str, Any], figures: dict[str, Any], which: str, source: str) -> list[str]:
    text = (
        f"tau {figures['kendall_tau']:.3f}, {figures['ordered_1_5x']:.1%} of pairs 1.5x apart in order, "
        f"regret {figures['regret']:.1%}, median error {figures['median_error']:.1%}"
    )
    place = f"{found['measured']['machine']['gpu']['name']}, {figures['pairs']} pairs {which}"
    return ["modelled against measured times", text, place, source]


def class_table(by_class: "pd.DataFrame") -> list[list[str]]:
    """Speed-up, pass@1 and compile rate by problem, class and model."""
    rows = [["problem", "class", "model", "matrices", "compile rate", "pass@1", "speed-up, one sample"]]
    for row in by_class.sort_values(["problem", "structure_class", "model"]).to_dict("records"):
        speedup = str(Estimate(row["value"], row["low"], row["high"]))
        rates = [_percent(row["compile_rate"]), _percent(row["pass_at_1"])]
        rows.append([row["problem"], row["structure_class"], row["model"], str(row["n"]), *rates, speedup])
    return rows


def _class_pictures(by_class: "pd.DataFrame", evaluation: dict[str, Any], out: Path) -> list[Picture]:
    pictures = []
    for problem, part in by_class.groupby("problem", sort=True):
        groups = {
            str(model): {
                str(r["structure_class"]): Estimate(r["value"], r["low"], r["high"]) for _, r in rows.iterrows()
            }
            for model, rows in part.groupby("model", sort=False)
        }
        path = out / f"speedup_{problem}.png"
        plots.speedup_by_class(groups, evaluation["baseline"], evaluation["timing"], path)
        pictures.append(
            Picture(path, f"{problem}: speed-up of one sample over {evaluation['baseline']} by structure class")
        )
    return pictures


def _statuses(verdicts: "pd.DataFrame", out: Path) -> Picture:
    import pandas as pd

    counts = pd.crosstab(verdicts["model"], verdicts["status"], normalize="index")
    order = sorted(counts.columns, key=lambda status: (status != "correct", -counts[status].sum()))
    path = plots.statuses(counts[order], out / "statuses.png")
    return Picture(path, "Verdicts on the samples of each model, all problems together")


def _curves(root: Path, out: Path) -> list[Picture]:
    import pandas as pd

    files = {stage: root / f"data/metrics/{stage}_curve.csv" for stage in ("pretrain", "sft", "rl")}
    frames = {stage: pd.read_csv(path) for stage, path in files.items() if path.is_file()}
    series = {
        "pretrain": ("loss", "held_out"),
        "sft": ("loss", "held_out"),
        "rl": ("reward", "validation_reward"),
    }
    units = {"pretrain": "cross-entropy (nats/token)", "sft": "cross-entropy (nats/token)", "rl": "mean reward"}
    first = Picture(plots.curves(frames, series, units, out / "curves.png"), "Training curves")
    if not {"kl", "entropy"} <= set(frames.get("rl", ())):
        return [first]
    drift = plots.curves(frames, {"rl": ("kl", "entropy")}, {"rl": "nats/token"}, out / "rl_drift.png")
    return [first, Picture(drift, "RL: divergence from the SFT policy and entropy")]


def training_table(metrics: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Losses and rewards before and after each training stage."""
    pre, sft, rl = metrics["pretrain"], metrics["sft"], metrics["rl"]
    rows = [["stage", "steps", "stopped by", "quantity", "before", "after"]]
    for name, part in (("pretrain", pre), ("sft", sft)):
        values = [f"{part['held_out_before']:.3f}", f"{part['held_out_after']:.3f}"]
        rows.append([name, str(part["steps"]), str(part["stopped_by"]), "held-out loss (nats/token)", *values])
    before, after = rl.get("validation_reward_sft"), rl.get("validation_reward_rl")
    if before is not None and after is not None:
        quantity = "mean reward on the validation split"
        rows.append(["rl", str(rl["steps"]), str(rl["stopped_by"]), quantity, f"{before:.3f}", f"{after:.3f}"])
    return rows


def _shipped(rl: dict[str, Any]) -> list[str]:
    """Which weights are called `rl` in the tables."""
    if rl.get("shipped") != "sft":
        return []
    return ["RL was no better than SFT on the validation split: the model named rl holds the SFT weights."]


def _best(root: Path, place: str) -> Section:
    path = root / "data/evaluation/best.cu"
    if not path.is_file():
        return Section("Best generated kernel", notes=["No sample was correct."])
    verdict = read_json(root / "data/evaluation/best.json")
    kind = f"{verdict['speedup']:.2f}x; {verdict['timing']} on {place}"
    note = (
        f"{verdict['matrix']}, {verdict['operator']} width {verdict['width']}: {verdict['time_us']:.2f} us against "
        f"{verdict['baseline_us']:.2f} us of {verdict['baseline']} ({kind})"
    )
    names = ("status", "format", "registers", "bytes_moved", "convert_us", "break_even", "program_hash")
    known = [f"{name} {verdict[name]}" for name in names if verdict.get(name) is not None]
    return Section("Best generated kernel", notes=[note, "; ".join(known)], code=path.read_text(encoding="utf-8"))


def _matrices(metrics: dict[str, Any]) -> list[list[str]]:
    rows = [["structure class", "train", "validation", "test"]]
    for name, counts in metrics["classes"].items():
        rows.append([name, *(str(counts[part]) for part in ("train", "validation", "test"))])
    return [*rows, ["all", *(str(metrics[part]) for part in ("train", "validation", "test"))]]


def _sources(root: Path, setting: str) -> list[list[str]]:
    """Matrices by source and split: up to a bracket or colon, or `matrices.source` for those that came from files."""
    import pandas as pd

    from components.matrix.manifest import read_manifest

    manifest = read_manifest(root)
    kinds = manifest["source"].astype(str).str.extract(r"^([\w.-]+)[(:]")[0].fillna(setting)
    counts = pd.crosstab(kinds, manifest["split"])
    rows = [["source", "train", "validation", "test"]]
    for kind, row in counts.iterrows():
        rows.append([str(kind), *(str(row.get(part, 0)) for part in ("train", "validation", "test"))])
    return rows


def _spies(settings: Settings, out: Path) -> list[Picture]:
    from components.matrix.manifest import load_by_id, read_manifest

    manifest = read_manifest(settings.root)
    test = manifest[manifest["split"] == "test"].sort_values(["structure_class", "nnz"])
    chosen = list(test.drop_duplicates("structure_class")["matrix"])[:_SPY]
    chosen += [m for m in test["matrix"] if m not in chosen][: _SPY - len(chosen)]
    if not chosen:
        return []
    path = plots.spy([load_by_id(settings.root, identity) for identity in chosen], out / "matrices.png")
    return [Picture(path, "Non-zeros of some test matrices")]


def _corpus(metrics: dict[str, Any]) -> list[list[str]]:
    rows = [["quantity", "value"], ["files", str(metrics["files"])], ["bytes of text", str(metrics["bytes"])]]
    for name in ("packages", "licenses"):
        for key, part in metrics[name].items():
            rows.append([f"{name}: {key}", f"{part['files']} files, {part['bytes']} bytes"])
    rows += [[f"dropped: {key}", str(value)] for key, value in metrics["dropped"].items()]
    return rows


def stage_table(metrics: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Seconds and the MLflow run of each stage."""
    rows = [["stage", "seconds", "run"]]
    rows += [[stage, f"{part['seconds']:.1f}", str(part["run_id"])] for stage, part in metrics.items()]
    return [*rows, ["all", f"{sum(part['seconds'] for part in metrics.values()):.1f}", ""]]


def html(page: Page) -> str:
    """The page as one HTML file; every text is escaped."""
    from jinja2 import Environment

    template = Path(__file__).with_name("report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(template).render(page=page)


def markdown(page: Page) -> str:
    """The same as Markdown, with the pictures beside it."""
    lines = ["# SparseRL report", "", page.subtitle, "", *(f"* {line}" for line in page.headline), ""]
    for section in page.sections:
        lines += [f"## {section.title}", "", *_spaced(section.notes)]
        if section.table:
            lines += [_row(section.table[0]), _row(["---"] * len(section.table[0])), *map(_row, section.table[1:]), ""]
        lines += _spaced(f"![{picture.caption}]({picture.path.name})" for picture in section.pictures)
        if section.code:
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", section.code)), default=0))
            lines += [f"{fence}cuda", section.code.rstrip("\n"), fence, ""]
    return "\n".join(lines)


def _spaced(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in (text, "")]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _percent(value: Any) -> str:
    return "" if value is None or value != value else f"{100 * float(value):.1f} %"


def _estimate(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or value != value:
        return ""
    return str(Estimate(float(value), float(row[f"{name}_low"]), float(row[f"{name}_high"])))


if __name__ == "__main__":
    sys.exit(run_stage(report))
