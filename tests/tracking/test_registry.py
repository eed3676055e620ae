import pandas as pd
import pytest

from components.errors import UserError
from components.tracking.registry import NAME, champions, promote, rollback
from components.tracking.runs import stage_run
from components.tracking.store import open_store

GOOD = {
    "arch": "sm_90",
    "timing": "modelled",
    "data_version": "d1",
    "baseline": "reference:csr_vector",
    "rl_spmv_compile_rate": "0.9",
    "rl_spmv_pass_at_1": "0.8",
    "rl_spmv_speedup_1": "1.2",
    "rl_spmv_speedup_1_low": "1.1",
}


def _version(settings, **changes) -> str:
    client, _ = open_store(settings)
    if not client.search_registered_models(f"name = '{NAME}'"):
        client.create_registered_model(NAME)
    tags = GOOD | {name: str(value) for name, value in changes.items()}
    return str(client.create_model_version(NAME, source=str(settings.root / "model"), tags=tags).version)


def test_the_first_version_that_writes_correct_kernels_becomes_champion(settings):
    version = _version(settings)
    decision = promote(settings)
    assert (decision.promoted, decision.alias, decision.version, decision.previous) == (
        True,
        "champion-sm_90",
        version,
        None,
    )
    (row,) = champions(settings)
    assert (row["version"], row["spmv_pass_at_1"], row["timing"]) == (version, 0.8, "modelled")


def test_a_first_version_without_correct_kernels_is_refused(settings):
    _version(settings, rl_spmv_pass_at_1=0.0)
    decision = promote(settings)
    assert not decision.promoted
    assert decision.reasons[0].startswith("pass_at_1")
    assert champions(settings) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rl_spmv_compile_rate": 0.89}, "spmv_compile_rate: 0.8900 against the champion's 0.9000"),
        ({"rl_spmv_pass_at_1": 0.79}, "spmv_pass_at_1: 0.7900 against the champion's 0.8000"),
        ({}, "spmv_speedup_1: lower bound 1.1000 is not above the champion's 1.2000"),
        ({"timing": "measured"}, "timing: measured against the champion's modelled; not comparable"),
        ({"data_version": "d2"}, "data_version: d2 against the champion's d1; not comparable"),
    ],
)
def test_the_gate_names_what_failed(settings, changes, reason):
    first = _version(settings)
    promote(settings)
    second = _version(settings, **changes)
    decision = promote(settings)
    assert (decision.promoted, decision.version, decision.previous) == (False, second, first)
    assert reason in decision.reasons
    assert champions(settings)[0]["version"] == first


def test_a_better_version_is_promoted_and_rolled_back(settings):
    first = _version(settings)
    promote(settings)
    second = _version(settings, rl_spmv_speedup_1=1.4, rl_spmv_speedup_1_low=1.3)
    assert promote(settings).promoted
    assert champions(settings)[0]["version"] == second
    again = promote(settings)
    assert again.reasons == ("it is the champion already",)
    assert str(again).endswith("kept: it is the champion already")
    assert rollback(settings, "sm_90") == {"alias": "champion-sm_90", "version": first, "was": second}
    assert champions(settings)[0]["version"] == first
    assert rollback(settings, "sm_90")["version"] == second


def _evaluated(settings, tmp_path, times, operator="spmv", matrices="abcd") -> str:
    """An evaluate run whose verdict table holds one correct program of each time; the baseline takes 100 us x 10^i."""
    baselines = [100.0 * 10**i for i in range(len(matrices))]
    frame = pd.DataFrame(
        {
            "model": "rl",
            "matrix": list(matrices),
            "operator": operator,
            "width": 1 if operator == "spmv" else 8,
            "status": "correct",
            "time_us": [base * time for base, time in zip(baselines, times, strict=True)],
            "baseline_us": baselines,
        }
    )
    other = frame.assign(model="sft", time_us=1.0)  # must not count
    pd.concat([other, frame]).to_parquet(tmp_path / "verdicts.parquet")
    with stage_run("evaluate", settings) as run:
        run.log_artifact(tmp_path / "verdicts.parquet", "evaluation")
    return run.run_id


def test_the_speedup_is_compared_matrix_by_matrix(settings, tmp_path):
    times = [1.0, 0.5, 0.25, 0.125]
    _version(settings, evaluation_run=_evaluated(settings, tmp_path, times))
    promote(settings)
    same = _evaluated(settings, tmp_path, times)
    _version(settings, evaluation_run=same)
    refused = promote(settings)
    assert not refused.promoted
    assert refused.reasons == (
        "spmv_speedup_1: lower bound 1.0000 of the ratio to the champion's is not above 1",
        "spmv: 1.000 (no interval: every resample alike) times the champion's speed-up",
    )
    faster = _evaluated(settings, tmp_path, [1.0 / 1.1, 0.5 / 1.2, 0.25 / 1.1, 0.125 / 1.2])
    _version(settings, evaluation_run=faster)  # its own interval starts below the champion's value, the ratio's at 1.1
    promoted = promote(settings)
    assert promoted.promoted
    assert promoted.reasons == ("every gate holds", "spmv: 1.149 [1.100, 1.200] times the champion's speed-up")


def test_verdicts_on_other_matrices_are_not_compared_and_the_decision_says_so(settings, tmp_path):
    _version(settings, evaluation_run=_evaluated(settings, tmp_path, [1.0, 1.0], matrices="ab"))
    promote(settings)
    _version(settings, evaluation_run=_evaluated(settings, tmp_path, [0.5, 0.5], matrices="ac"))
    decision = promote(settings)
    assert decision.reasons == (
        "spmv_speedup_1: lower bound 1.1000 is not above the champion's 1.2000",
        "speed-ups not compared matrix by matrix: the store lacks comparable verdict tables",
    )


def test_an_operator_the_challenger_was_not_evaluated_on_is_refused(settings):
    _version(settings, rl_spmm_8_compile_rate=0.9, rl_spmm_8_pass_at_1=0.9)
    promote(settings)
    _version(settings, rl_spmv_speedup_1=1.4, rl_spmv_speedup_1_low=1.3)
    assert promote(settings).reasons == (
        "spmm_8_compile_rate: it was not evaluated for this, the champion was",
        "spmm_8_pass_at_1: it was not evaluated for this, the champion was",
    )


def test_another_architecture_is_refused(settings):
    _version(settings)
    decision = promote(settings, arch="sm_80")
    assert decision.reasons[0] == "arch: it was evaluated on sm_90, not on sm_80"


def test_errors_say_what_is_there(settings):
    with pytest.raises(UserError, match="nothing is registered"):
        promote(settings)
    _version(settings)
    with pytest.raises(UserError, match="no version 7; the newest is 1"):
        promote(settings, version=7)
    with pytest.raises(UserError, match="champion-sm_90: no champion; there are: none"):
        rollback(settings, "sm_90")
    promote(settings)
    with pytest.raises(UserError, match="none to go back to"):
        rollback(settings, "sm_90")
