"""Programs that compile to the same code are checked once, whatever their texts; mere likeness is not enough."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from components.judge.verdict import Status
from tests.judge.forgetting import forget
from tests.judge.hostile_programs import HONEST, TARGET, matrix, per_thread

GOOD = HONEST["thread-per-row"]


@pytest.fixture(scope="module")
def warm() -> Iterator[Judge]:
    with Judge(judge_defaults(backend="emulator", cache=False), "sm_90", workers=1) as judge:
        yield judge


@pytest.fixture(params=[True, False], ids=["cache", "no-cache"])
def judge(request: pytest.FixtureRequest, warm: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    forget(warm, tmp_path if request.param else None)
    checks = []
    run_check = warm._run_check

    def counted(request):
        checks.append(request["source"])
        return run_check(request)

    monkeypatch.setattr(warm, "_run_check", counted)
    monkeypatch.setattr(warm, "checks", checks, raising=False)
    return warm


def test_another_comment_and_other_names_are_no_new_program(judge: Judge) -> None:
    first = judge.judge(JudgeRequest(GOOD, TARGET))
    done = len(judge.checks)  # type: ignore[attr-defined]
    assert "float s" in GOOD
    renamed = GOOD.replace("float s", "float total").replace("s +=", "total +=").replace("= s;", "= total;")
    for text in (GOOD + "\n// a remark\n", renamed):
        again = judge.judge(JudgeRequest(text, TARGET))
        assert again.code_hash == first.code_hash
        assert again.program_hash != first.program_hash
        assert (again.status, again.time_us, again.from_cache) == (Status.CORRECT, first.time_us, True)
    assert len(judge.checks) == done  # type: ignore[attr-defined]


def test_the_same_code_under_another_contract_or_on_another_matrix_is_checked(judge: Judge) -> None:
    first = judge.judge(JudgeRequest(GOOD, TARGET))
    launches = next(line for line in GOOD.split("\n") if line.startswith("// launch:"))
    fewer = judge.judge(JudgeRequest(GOOD.replace(launches, launches.replace("block=", "block=32 + 0 *")), TARGET))
    assert fewer.code_hash == first.code_hash
    assert not fewer.from_cache
    swapped = re.sub(r"(?<!\.)\b(values|x)\b", lambda match: "x" if match.group() == "values" else "values", GOOD)
    bound_otherwise = judge.judge(JudgeRequest(swapped, TARGET))
    assert bound_otherwise.code_hash == first.code_hash
    assert bound_otherwise.status is not Status.CORRECT
    assert not judge.judge(JudgeRequest(GOOD + "// again", matrix(40, 40, 3, 9))).from_cache


def test_failures_of_equal_code_at_the_same_time_name_each_its_own_line(judge: Judge) -> None:
    bad = per_thread("y[r] = s; y[(1LL << 35) + r] = 0.f;")
    texts = [bad.replace("extern", "\n" * more + "extern", 1) for more in range(4)]
    verdicts = judge.judge_many([JudgeRequest(text, TARGET) for text in texts])
    assert len({verdict.code_hash for verdict in verdicts}) == 1
    lines = [verdict.line for verdict in verdicts]
    assert lines[0] is not None
    assert lines == [lines[0] + more for more in range(4)]


def test_a_failure_names_the_line_of_its_own_text(judge: Judge) -> None:
    bad = per_thread("y[r] = s; y[(1LL << 36) + r] = 0.f;")
    first = judge.judge(JudgeRequest(bad, TARGET))
    moved = judge.judge(JudgeRequest(bad.replace("extern", "\n\nextern", 1), TARGET))
    assert first.status is moved.status is Status.ILLEGAL_ACCESS
    assert first.code_hash == moved.code_hash
    assert first.line is not None
    assert moved.line == first.line + 2
