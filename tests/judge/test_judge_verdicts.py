"""Every kind of program gets one of the statuses that are right for it; nothing that cheats passes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from components.errors import UserError
from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from components.judge.verdict import Status
from components.kernel.families import all_programs, spread
from components.kernel.operators import OPERATORS
from components.kernel.precision import FLOAT64
from components.matrix.types import SparseMatrix
from tests.judge.hostile_programs import (
    DISHONEST,
    HONEST,
    SPMM_HONEST,
    SPMM_ONLY_EIGHT_COLUMNS,
    SPMM_TF32,
    TARGET,
    matrix,
    per_thread,
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSERL_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = judge_defaults(backend="emulator", compile_cpu_s=2.0)
        with Judge(settings, "sm_90", "emulator", workers=2) as judge:
            yield judge


@pytest.mark.parametrize("name", sorted(HONEST))
def test_honest_programs_pass_with_a_time(judge: Judge, name: str) -> None:
    verdict = judge.judge(JudgeRequest(HONEST[name], TARGET))
    assert (verdict.status, verdict.message) == (Status.CORRECT, "")
    assert verdict.timing == "modelled"
    assert verdict.baseline == "reference:csr_vector"
    assert verdict.time_us is not None
    assert verdict.baseline_us is not None
    assert 1.0 < verdict.time_us < 100.0
    assert verdict.speedup == pytest.approx(verdict.baseline_us / verdict.time_us)
    assert verdict.registers is not None
    assert verdict.bytes_moved is not None
    assert verdict.bytes_moved > 4 * TARGET.nnz


@pytest.mark.parametrize("name", sorted(DISHONEST))
def test_no_other_program_passes(judge: Judge, name: str) -> None:
    allowed, source = DISHONEST[name]
    verdict = judge.judge(JudgeRequest(source, TARGET))
    assert verdict.status in allowed, verdict
    assert verdict.message
    assert "\n" not in verdict.message
    assert verdict.time_us is None


@pytest.mark.parametrize(("operator", "width", "count"), [("spmv", 1, 40), ("spmm", 5, 16)])
def test_no_false_alarm_on_the_librarys_own_programs(judge: Judge, operator: str, width: int, count: int) -> None:
    programs = spread(list(all_programs(operator)), count, seed=11)
    verdicts = judge.judge_many([JudgeRequest(program.source, TARGET, operator, width) for program in programs])
    wrong = [
        (program.family, dict(program.parameters), str(verdict.status), verdict.message)
        for program, verdict in zip(programs, verdicts, strict=True)
        if not verdict.correct and "does not fit this matrix" not in verdict.message
    ]
    assert wrong == []
    assert sum(verdict.correct for verdict in verdicts) >= 0.8 * len(verdicts)


@pytest.mark.parametrize(
    ("operator", "width", "precision"),
    [("spmv", 1, "float64"), ("spmv", 1, "float16"), ("spmv", 1, "bfloat16"), ("spmm", 5, "float64")],
)
def test_no_false_alarm_in_other_precisions(judge: Judge, operator: str, width: int, precision: str) -> None:
    programs = spread(list(all_programs(operator, precision)), 8, seed=11)
    requests = [JudgeRequest(program.source, TARGET, operator, width, precision) for program in programs]
    verdicts = judge.judge_many(requests)
    assert [v.message for v in verdicts if not v.correct and "does not fit this matrix" not in v.message] == []
    assert sum(verdict.correct for verdict in verdicts) >= 4
    assert {verdict.precision for verdict in verdicts} == {precision}


def test_float32_sums_are_wrong_in_float64(judge: Judge) -> None:
    source = OPERATORS["spmv"].reference_program(TARGET, 1, FLOAT64)
    cheap = source.replace("double sum = 0", "float sum = 0")
    assert cheap != source
    verdict = judge.judge(JudgeRequest(cheap, TARGET, precision="float64"))
    assert verdict.status == "wrong", verdict


def test_a_program_of_another_precision_breaks_its_contract(judge: Judge) -> None:
    source = OPERATORS["spmv"].reference_program(TARGET, 1)
    verdict = judge.judge(JudgeRequest(source, TARGET, precision="float64"))
    assert (verdict.status, verdict.message) == ("contract", "float* values; expected double* values")


def test_messages_say_what_and_where(judge: Judge) -> None:
    zeros = judge.judge(JudgeRequest(DISHONEST["zeros"][1], TARGET))
    assert "got 0, expected" in zeros.message
    assert zeros.failed_on is not None
    outside = judge.judge(JudgeRequest(DISHONEST["writes-before-the-start"][1], TARGET))
    assert outside.line is not None
    assert outside.thread == 0
    unknown = judge.judge(JudgeRequest(DISHONEST["unknown-parameter"][1], TARGET))
    assert "solution" in unknown.message
    assert "row_ptr" in unknown.message
    syntax = judge.judge(JudgeRequest(DISHONEST["unknown-name"][1], TARGET))
    assert "sum" in syntax.message
    assert syntax.line == 7


def test_no_message_carries_text_of_another_file(judge: Judge) -> None:
    secret = Path("/etc/hostname").read_text(encoding="utf-8").strip()
    for name in ("other-file", "other-file-split", "asks-for-a-file"):
        verdict = judge.judge(JudgeRequest(DISHONEST[name][1], TARGET))
        assert not secret or secret not in verdict.message


def test_spmm(judge: Judge) -> None:
    for width in (1, 3, 8, 33):
        assert judge.judge(JudgeRequest(SPMM_HONEST, TARGET, "spmm", width)).correct
    assert judge.judge(JudgeRequest(SPMM_ONLY_EIGHT_COLUMNS, TARGET, "spmm", 8)).correct
    assert judge.judge(JudgeRequest(SPMM_ONLY_EIGHT_COLUMNS, TARGET, "spmm", 9)).status is Status.WRONG
    assert judge.judge(JudgeRequest(SPMM_TF32, TARGET, "spmm", 8)).status is Status.WRONG


def test_a_spmv_program_is_not_a_spmm_program(judge: Judge) -> None:
    verdict = judge.judge(JudgeRequest(HONEST["thread-per-row"], TARGET, "spmm", 4))
    assert verdict.status is Status.CONTRACT
    with pytest.raises(UserError, match="operator 'sddmm'"):
        judge.judge(JudgeRequest(SPMM_HONEST, TARGET, "sddmm", 4))
    with pytest.raises(UserError, match="width 4: spmv takes 1"):
        judge.judge(JudgeRequest(SPMM_HONEST, TARGET, "spmv", 4))


def test_code_right_only_for_its_own_matrix_is_caught(judge: Judge) -> None:
    """The target never has more than five entries a row; the adversarial set does."""
    source = per_thread(
        "y[r] = s;",
        total="float s = 0.f; const int b = row_ptr[r];\n#pragma unroll\n"
        "for (int i = 0; i < 5; ++i) if (b + i < row_ptr[r + 1]) s += values[b + i] * x[col_idx[b + i]];",
    )
    verdict = judge.judge(JudgeRequest(source, TARGET))
    assert verdict.status is Status.WRONG
    assert verdict.failed_on is not None
    assert verdict.failed_on.startswith("adversarial/")


def test_a_format_that_the_target_does_not_fit(judge: Judge) -> None:
    wide = matrix(50, 70_000, 4, 2, "wide")
    verdict = judge.judge(JudgeRequest(HONEST["own-index-type"], wide))
    assert verdict.status is Status.CONTRACT
    assert "70000" in verdict.message


def test_an_empty_target_is_judged(judge: Judge) -> None:
    empty = SparseMatrix("e", "test", 3, 4, np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0))
    assert judge.judge(JudgeRequest(HONEST["thread-per-row"], empty)).correct
    assert judge.judge(JudgeRequest(DISHONEST["skips-empty-rows"][1], empty)).status is not Status.CORRECT


def test_programs_of_equal_code_share_a_code_hash(judge: Judge) -> None:
    first = judge.judge(JudgeRequest(HONEST["thread-per-row"], TARGET))
    second = judge.judge(JudgeRequest(HONEST["thread-per-row"] + "// another text\n", TARGET))
    assert first.code_hash == second.code_hash
    assert first.program_hash != second.program_hash


def test_an_architecture_without_a_model_is_refused() -> None:
    with pytest.raises(UserError, match=r"sm_120.*sm_90 \(H200\)"):
        Judge(judge_defaults(), "sm_120", "emulator")
