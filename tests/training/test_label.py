import dataclasses

import pandas as pd

from components.judge.verdict import Status, Verdict
from components.kernel.families import RenderedProgram
from components.training.label import best_pairs, measurement
from tests.policy.micro import params

CHOSEN = dataclasses.replace(params().label, keep_best=2, keep_within=0.8)
PROGRAM = RenderedProgram("csr_scalar", {"block": 64}, "// text")


def row(matrix, digest, time_us, status="correct", operator="spmv"):
    verdict = Verdict(Status(status), time_us=time_us, baseline="b", baseline_us=10.0, timing="modelled")
    return measurement(matrix, operator, 1, PROGRAM, digest, verdict, "sm_90")


def test_pairs_are_the_best_correct_programs_of_each_problem_that_may_be_learned_from():
    frame = pd.DataFrame(
        [
            row("g/a", "slow", 10.0),
            row("g/a", "best", 4.0),
            row("g/a", "near", 5.0),
            row("g/a", "third", 4.8),
            row("g/a", "wrong", 1.0, "wrong"),
            row("g/b", "only", 7.0),
            row("g/b", "other", 3.0, operator="spmm"),
            row("g/t", "best", 2.0),
        ]
    )
    split = {"g/a": "train", "g/b": "validation", "g/t": "test"}
    sources = {digest: f"source {digest}" for digest in frame["program_hash"]}
    pairs = best_pairs(frame, sources, split, CHOSEN)
    found = {(r.matrix, r.operator, r.program_hash): (r.split, round(r.quality, 4)) for r in pairs.itertuples()}
    assert found == {
        ("g/a", "spmv", "best"): ("train", 1.0),
        ("g/a", "spmv", "third"): ("train", round(4.0 / 4.8, 4)),
        ("g/b", "spmv", "only"): ("validation", 1.0),
        ("g/b", "spmm", "other"): ("validation", 1.0),
    }
    assert pairs.set_index("program_hash").loc["third", "source"] == "source third"


def test_a_program_that_fails_has_no_time():
    failed = row("g/a", "x", 1.0, "wrong")
    assert failed["time_us"] is None
    assert failed["status"] == "wrong"
    assert failed["parameters"] == '{"block": 64}'
