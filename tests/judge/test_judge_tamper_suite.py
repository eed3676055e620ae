"""The adversarial suite: nothing that cheats or errs passes, nothing honest is stopped."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from components.judge.judge import Judge, JudgeRequest
from components.judge.options import judge_defaults
from components.judge.verdict import Status, Verdict
from tests.judge.adversarial_suite.base import TARGET, Hostile
from tests.judge.adversarial_suite.compiler import INCLUDES
from tests.judge.adversarial_suite.programs import HOSTILE, Honest, honest_programs
from tests.judge.hostile_programs import per_thread

# One of each kind for the fast run; those that end by a limit are for the slow one.
_SLOW_KINDS = ("compile bomb", "endless loop", "spin on other block")
ONE_OF_EACH = {entry.kind: name for name, entry in HOSTILE.items() if entry.kind not in _SLOW_KINDS}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    settings = judge_defaults(backend="emulator", compile_cpu_s=3.0, cache=False)
    with Judge(settings, "sm_90", "emulator", workers=2) as judge:
        yield judge


def _verdicts(judge: Judge, programs: Sequence[Hostile | Honest]) -> list[Verdict]:
    return judge.judge_many([JudgeRequest(p.source, TARGET, p.operator, p.width) for p in programs])


def _wrongly_judged(judge: Judge, names: Sequence[str]) -> dict[str, str]:
    verdicts = _verdicts(judge, [HOSTILE[name] for name in names])
    return {
        name: f"{verdict.status}: {verdict.message}"
        for name, verdict in zip(names, verdicts, strict=True)
        if str(verdict.status) not in HOSTILE[name].allowed
    }


def _stopped(judge: Judge, programs: Sequence[Honest]) -> dict[str, str]:
    verdicts = _verdicts(judge, programs)
    return {
        program.name: f"{verdict.status}: {verdict.message}"
        for program, verdict in zip(programs, verdicts, strict=True)
        if not verdict.correct
    }


def test_the_suite_covers_what_it_says() -> None:
    assert len(HOSTILE) >= 300
    assert len(ONE_OF_EACH) >= 30
    for name, entry in HOSTILE.items():
        assert "correct" not in entry.allowed, name
        assert {Status(status) for status in entry.allowed}, name


def test_one_program_of_each_kind_is_seen_through(judge: Judge) -> None:
    assert _wrongly_judged(judge, list(ONE_OF_EACH.values())) == {}


@pytest.mark.slow
def test_no_program_of_the_suite_passes(judge: Judge) -> None:
    assert _wrongly_judged(judge, list(HOSTILE)) == {}


@pytest.mark.slow
def test_no_honest_program_is_stopped(judge: Judge) -> None:
    programs = honest_programs(600)
    by_hand = [program for program in programs if program.family == "by hand"]
    rest = [program for program in programs if program.family != "by hand"]
    assert _stopped(judge, by_hand[::2] + rest[::30]) == {}


@pytest.mark.slow
def test_none_of_many_honest_programs_is_stopped(judge: Judge) -> None:
    programs = honest_programs(320)
    assert len(programs) == 320
    assert _stopped(judge, programs) == {}


def test_no_way_of_including_a_file_brings_its_text_into_a_message(judge: Judge, tmp_path: Path) -> None:
    """Every trick with a directive, on a file that exists: neither its text nor whether it exists comes back."""
    (tmp_path / "here").write_text("hunter2 secret words\n", encoding="utf-8")

    def aimed_at(name: str) -> list[Hostile]:
        path = str(tmp_path / name)
        return [Hostile(e.kind, e.allowed, e.source.replace("/etc/hostname", path)) for e in INCLUDES.values()]

    there, not_there = _verdicts(judge, aimed_at("here")), _verdicts(judge, aimed_at("gone"))
    for name, verdict, other in zip(INCLUDES, there, not_there, strict=True):
        assert str(verdict.status) in INCLUDES[name].allowed, name
        assert not any(word in verdict.message for word in ("hunter2", "secret", "words")), name
        assert (verdict.status, verdict.line) == (other.status, other.line), name
        assert verdict.message == other.message.replace("gone", "here"), name


def test_what_the_code_may_not_do_is_told_with_its_line(judge: Judge) -> None:
    counter = per_thread("y[r] = s;\nif (r == 0)\n  ++calls;", before="__device__ int calls = 1;\n")
    verdict = judge.judge(JudgeRequest(counter, TARGET))
    assert verdict.status is Status.TAMPERED
    assert verdict.message == "writes the module-scope variable calls"
    assert verdict.line == counter[: counter.index("++calls")].count("\n") + 1
    clock = per_thread("y[r] = s;\nif ((clock64)() == 7) y[r] = 0.f;")
    verdict = judge.judge(JudgeRequest(clock, TARGET))
    assert (verdict.status, verdict.message) == (Status.TAMPERED, "reads a clock: %clock64")
    assert verdict.line == clock[: clock.index("if ((")].count("\n") + 1


def test_an_empty_grid_is_a_launch_error_where_there_is_work(judge: Judge) -> None:
    verdict = judge.judge(JudgeRequest(per_thread("y[r] = s;", grid="0"), TARGET))
    assert verdict.status is Status.LAUNCH_ERROR
    assert verdict.line == 2
    assert "grid=0 is empty on " in verdict.message
    assert "expected at least one block" in verdict.message
    # nothing to do: no rows, or no entries
    assert judge.judge(JudgeRequest(per_thread("y[r] = s;", grid="ceil_div(rows, 64)"), TARGET)).correct
    two = next(p.source for p in honest_programs(60) if p.name == "block-search-by-entries")
    assert judge.judge(JudgeRequest(two, TARGET)).correct
