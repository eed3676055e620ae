import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from components.errors import UserError
from components.evaluation import plots
from components.evaluation.metrics import Estimate
from components.evaluation.oracle import forest_times, oracle_times
from components.evaluation.report import report, trust_table
from components.matrix.generate import generate
from components.matrix.storage import save_npz
from components.settings import load

PNG = b"\x89PNG\r\n\x1a\n"


def _measurements():
    rows = [
        ("m1", "csr_scalar", "correct", 4.0),
        ("m1", "dia", "correct", 2.0),
        ("m1", "sell", "wrong", None),
        ("m2", "csr_scalar", "correct", 3.0),
        ("m3", "dia", "correct", 5.0),
        ("m3", "dia", "correct", 7.0),
    ]
    frame = pd.DataFrame(rows, columns=["matrix", "family", "status", "time_us"])
    return frame.assign(operator="spmv", width=1, baseline_us=10.0, timing="modelled", arch="sm_90")


def test_the_oracle_is_the_fastest_correct_program():
    best = oracle_times(_measurements())
    assert best.loc[("m1", "spmv", 1)].tolist() == [2.0, "dia"]
    assert best.loc[("m2", "spmv", 1), "time_us"] == 3.0


def test_the_forest_guesses_a_family_and_pays_its_median():
    manifest = pd.DataFrame(
        {"matrix": ["m1", "m2", "m3"], "split": ["train", "validation", "test"], "nnz": [10, 20, 30]}
    )
    picks = forest_times(_measurements(), manifest, "spmv", 1, seed=0)
    assert picks.loc["m3"].tolist() == ["dia", 6.0, 10.0]
    assert list(picks.index) == ["m3"]


def test_pictures_are_png_whatever_the_names_hold(tmp_path):
    estimate = Estimate(1.5, 1.2, 1.9)
    path = plots.speedup_by_class(
        {"r<l>$x$": {"a_b%": estimate, "ü": estimate}}, "b_$1 $\\frac$", "modelled", tmp_path / "a b.png"
    )
    assert path.read_bytes().startswith(PNG)
    wide = generate("lp", 2000, seed=0)
    assert plots.spy([wide, generate("diagonal", 1000, seed=0)], tmp_path / "spy.png").read_bytes().startswith(PNG)
    frame = pd.DataFrame({"step": [1, 2], "loss": [2.0, 1.0], "held_out": [np.nan, np.nan]})
    out = plots.curves({"sft": frame}, {"sft": ("loss", "held_out", "none")}, {"sft": "nats"}, tmp_path / "c.png")
    assert out.read_bytes().startswith(PNG)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "a folder"
    metrics = root / "data/metrics"
    metrics.mkdir(parents=True)
    base = {"run_id": "r1", "seconds": 2.0}
    counts = {"files": 3, "bytes": 99}
    parts = {
        "matrices": base
        | {
            "source": "bundled",
            "train": 1,
            "validation": 0,
            "test": 1,
            "classes": {"uniform": {"train": 1, "validation": 0, "test": 1}},
        },
        "corpus": base
        | {"files": 3, "bytes": 99, "packages": {"p": counts}, "licenses": {"MIT": counts}, "dropped": {"vendored": 1}},
        "tokenizer": base,
        "pretrain": base | {"held_out_before": 7.0, "held_out_after": 2.0, "steps": 5, "stopped_by": "clock"},
        "label": base,
        "sft": base | {"held_out_before": 2.0, "held_out_after": 0.5, "steps": 5, "stopped_by": "clock"},
        "rl": base
        | {"validation_reward_sft": 0.25, "validation_reward_rl": 0.75}
        | {"steps": 9, "stopped_by": "clock", "shipped": "sft"},
        "evaluate": base | {"timing": "modelled", "arch": "sm_90", "gpu": None, "baseline": "reference:csr_vector"},
    }
    for stage, values in parts.items():
        (metrics / f"{stage}.json").write_text(json.dumps(values))
    curve = {"step": [1, 2], "reward": [0.1, 0.2], "kl": [0.0, 0.1], "entropy": [1.0, 0.9]}
    pd.DataFrame(curve).to_csv(metrics / "rl_curve.csv", index=False)
    evaluation = root / "data/evaluation"
    evaluation.mkdir()
    speed = {"speedup_1": 1.25, "speedup_1_low": 1.1, "speedup_1_high": 1.4}
    row = {"problem": "spmv", "model": "rl", "n": 1, "compile_rate": 0.875, "pass_at_1": 0.75, **speed}
    pd.DataFrame([row]).to_csv(evaluation / "table.csv", index=False)
    by_class = {
        "problem": "spmv",
        "model": "rl",
        "structure_class": "uniform",
        "n": 1,
        "compile_rate": 1,
        "pass_at_1": 1,
    }
    pd.DataFrame([by_class | {"value": 1.25, "low": 1.1, "high": 1.4}]).to_csv(evaluation / "by_class.csv", index=False)
    verdicts = pd.DataFrame({"model": ["rl", "rl"], "status": ["correct", "wrong"], "timing": ["modelled", None]})
    verdicts.to_parquet(evaluation / "verdicts.parquet")
    (evaluation / "best.cu").write_text("if (a<b) y[0] = 1; // <script>\n")
    best = {"matrix": "g/m", "operator": "spmv", "width": 1, "time_us": 2.0, "baseline_us": 5.0, "speedup": 2.5}
    best |= {"baseline": "reference:csr_vector", "timing": "modelled", "status": "correct", "format": "csr"}
    (evaluation / "best.json").write_text(json.dumps(best))
    matrix = generate("uniform", 1000, seed=0)
    save_npz(root / f"data/matrices/{matrix.id}.npz", matrix)
    row = {"matrix": matrix.id, "split": "test", "structure_class": "uniform", "nnz": matrix.nnz}
    manifest = pd.DataFrame([row | {"source": "generate(uniform, 1)"}])
    manifest.to_csv(root / "data/matrices/manifest.csv", index=False)
    return dataclasses.replace(load(), root=root)


def test_the_page_stands_alone_and_says_what_was_counted(project):
    page = report(project).read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "modelled on sm_90 (calibrated on H200; L2 warm)" in page
    assert "1.250 [1.100, 1.400]" in page
    assert "87.5 %" in page
    assert "if (a&lt;b)" in page
    assert "<script>" not in page
    assert page.count("data:image/png;base64,") == 5
    text = (project.root / "data/report/index.md").read_text()
    assert "| rl | 9 | clock | mean reward on the validation split | 0.250 | 0.750 |" in text
    assert "2.50x; modelled on sm_90" in text
    assert "| all | 16.0 |  |" in text
    assert "| licenses: MIT | 3 files, 99 bytes |" in text
    assert "| generate | 0 | 0 | 1 |" in text
    assert "the model named rl holds the SFT weights" in text
    assert "status correct; format csr" in text


def test_mixed_timings_make_no_page(project):
    verdicts = pd.DataFrame({"model": ["rl", "rl"], "status": ["correct"] * 2, "timing": ["modelled", "measured"]})
    verdicts.to_parquet(project.root / "data/evaluation/verdicts.parquet")
    with pytest.raises(UserError, match="mixes measured and modelled"):
        report(project)


def test_a_stage_that_has_not_run_is_named(project):
    (project.root / "data/metrics/sft.json").unlink()
    with pytest.raises(UserError, match=r"sft\.json: not found; run the stage"):
        report(project)


def test_what_the_benchmarks_found_of_the_judge_is_told_with_its_source(tmp_path):
    assert trust_table(tmp_path) == [["what", "figure", "where", "source"]]
    tamper = {"escapes": ["a"], "n_adversarial": 70, "kinds": 20, "false_alarms": [], "n_honest": 300}
    judge = {
        "environment": {"device": {"gpu": "GPU X"}},
        "throughput": {"evaluations_per_s": 101.26, "matrices": [1, 2, 3]},
        "noise": {"at_least_10us": {"n": 0}, "below_10us": {"n": 9, "p95": 0.01, "max": 0.02}},
        "recovery": {"within_2s": 99, "n": 100, "max_s": 2.5},
        "agreement": {"equal": 299, "n": 300},
    }
    held = {"kendall_tau": 0.9, "ordered_1_5x": 0.98, "regret": 0.03, "median_error": 0.1, "pairs": 400}
    model = {"held_out": held, "measured": {"machine": {"gpu": {"name": "GPU X"}}}}
    files = {
        "cpu/judge_tamper.json": tamper | {"environment": {"gpu": None, "arch": "sm_90"}},
        "x/judge.json": judge,
        "x/model_fit.json": model,
        "x/model_check.json": {"all": held | {"kendall_tau": 0.8}, "measured": model["measured"]},
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    rows = trust_table(tmp_path)[1:]
    assert [row[:2] for row in rows] == [
        ["escapes", "1 of 70 programs of 20 kinds"],
        ["false alarms", "0 of 300 programs"],
        ["evaluations", "101.3 a second, each on 3 matrices"],
        ["A/A noise, under 10 us", "p95 1.00%, largest 2.00% of 9"],
        ["next verdict after a fault", "99 of 100 within 2 s, slowest 2.50 s"],
        ["verdicts equal to the interpreter's", "299 of 300"],
        [
            "modelled against measured times",
            "tau 0.900, 98.0% of pairs 1.5x apart in order, regret 3.0%, median error 10.0%",
        ],
        [
            "modelled against measured times",
            "tau 0.800, 98.0% of pairs 1.5x apart in order, regret 3.0%, median error 10.0%",
        ],
    ]
    assert {row[3] for row in rows} == set(files)
