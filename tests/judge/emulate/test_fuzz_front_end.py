"""Damaged PTX texts through the front end: a module comes back, or Unsupported or Tampered; nothing else, and in time.

SPARSERL_FUZZ=20000 sets the number of texts (a fast run tries a few hundred, always the same ones).
"""

import collections
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.judge.emulate.machine import EmulatorLimits, PtxModule, Refused, Tampered, Unsupported, load_ptx
from components.judge.emulate.records import EmulationStatus
from tests.judge.emulate.coverage_kernels import KERNELS
from tests.judge.emulate.test_coverage_corpus import ptx_of, run_ptx
from tests.judge.emulate.test_fuzz import SOURCE

COUNT = int(os.environ.get("SPARSERL_FUZZ", "200"))
SECONDS = 20  # of processor time for one text: a hang, not a slow machine
FAMILIES = ("struct", "mma", "cp_async", "bar", "redux", "ptx", "f16x2", "cvt", "atomic")
SEEDS = [k for k in KERNELS if k.name.startswith(FAMILIES)][::3]
NUMBERS = ("0", "1", "-1", "7", "33", "64", "4294967295", "2147483648", "9223372036854775808",
           "0x", "0f3F800000", "0d", "1e9", "99999999999999999999999", "%r1", "_", "")  # fmt: skip
TOKENS = ("{", "}", "[", "]", "(", ")", ";", ",", ".", "@", "!", "|", "%", ":", "/*", "*/", "//", '"', "\0", "\u00e9",
          "\n", ".param", ".reg", ".func f(", ".entry", ".shared .align 16 .b8 q[99999999];",
          ".global .u32 g = {1,2,3};", ".v4",
          ".branchtargets", "call", "call.uni (", "ret;", "bra", "+", "-", "<", ">", "<9999999>", "%tid.x", "%clock64",
          "cp.async.bulk", "mma.sync", ".loc 1 99 1", ".section", "st.param.b32 [x+0], 1;", "=", "\\", " ")  # fmt: skip
TYPES = re.compile(r"\.([busf])(8|16|32|64)\b")
REGISTERS = re.compile(r"%[a-z]+\d+")
PARTS = re.compile(r"(?<=[\w\d])\.[A-Za-z_][\w:]*")
Edit = tuple[int, int, int, int]
NUMBER = st.integers(0, 1 << 16)
EDITS = st.lists(st.tuples(st.integers(0, 11), NUMBER, NUMBER, NUMBER), min_size=1, max_size=4)
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": "SPARSERL_FUZZ" not in os.environ,
    "suppress_health_check": list(HealthCheck),
}


def texts() -> list[str]:
    """The undamaged programs: those of SEEDS, then that of test_fuzz."""
    return [*(ptx_of(k.source, k.archs[-1]) for k in SEEDS), ptx_of(SOURCE, "sm_90")]


def one_of(pattern: re.Pattern[str], line: str, which: int, new: str) -> str:
    """The line with one match of a pattern replaced."""
    found = list(pattern.finditer(line))
    if not found:
        return line
    match = found[which % len(found)]
    return line[: match.start()] + new + line[match.end() :]


def damage(text: str, edit: Edit, others: list[str]) -> str:
    """One small change to a text."""
    kind, at, second, choice = edit
    lines = text.split("\n")
    at %= len(lines)
    second %= len(lines)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(second, lines[at])
    elif kind == 2:
        lines[at], lines[second] = lines[second], lines[at]
    elif kind == 3:
        lines[at] = one_of(re.compile(r"\d+"), lines[at], second, NUMBERS[choice % len(NUMBERS)])
    elif kind == 4:
        registers = REGISTERS.findall(text) + ["%tid.x", "%clock64", "%laneid", "_", "%globaltimer"] * 5
        lines[at] = one_of(REGISTERS, lines[at], second, registers[choice % len(registers)])
    elif kind == 5:
        lines[at] = one_of(TYPES, lines[at], second, f".{'busf'[choice % 4]}{(8, 16, 32, 64)[choice // 4 % 4]}")
    elif kind == 6:
        modifiers = PARTS.findall(text) or [".u32"]
        lines[at] = one_of(PARTS, lines[at], second, ("", modifiers[choice % len(modifiers)])[choice % 2])
    elif kind == 7:
        place = second % (len(lines[at]) + 1)
        lines[at] = lines[at][:place] + TOKENS[choice % len(TOKENS)] + lines[at][place + choice % 2 :]
    elif kind == 8:
        foreign = others[choice % len(others)].split("\n")
        lines.insert(at, foreign[second % len(foreign)])
    elif kind == 9:
        place = second % (len(text) + 1)
        return text[:place] + text[place + choice % 40 :]
    elif kind == 10:
        operands = re.findall(r"[^\s,;]+", lines[at])
        if operands:
            lines[at] = lines[at].replace(operands[second % len(operands)], operands[choice % len(operands)], 1)
    else:
        place = second % (len(text) + 1)
        return text[:place] + chr(choice % 256) + text[place + 1 :]
    return "\n".join(lines)


@contextmanager
def processor_time(seconds: int) -> Iterator[None]:
    """Fail when the body uses more processor time than this."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"load_ptx took over {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def outcome(text: str) -> str:
    """What the front end makes of a text."""
    with processor_time(SECONDS):
        try:
            module = load_ptx(text)
        except (Unsupported, Tampered) as error:
            return type(error).__name__
    assert isinstance(module, PtxModule)
    for entry in module.entries.values():  # the core trusts these
        assert entry.rows.ndim == 2
        assert len(entry.rows) > 0
    return "module"


def test_damaged_texts() -> None:
    programs = texts()
    seen: collections.Counter[str] = collections.Counter()

    @settings(max_examples=COUNT, **SETTINGS)
    @given(st.integers(0, len(programs) - 1), EDITS)
    def load(program: int, changes: list[Edit]) -> None:
        text = programs[program]
        for change in changes:
            text = damage(text, change, programs)
        seen[outcome(text)] += 1

    load()
    print(dict(seen))
    assert seen["module"] > 0
    assert seen["Unsupported"] > 0


def test_damaged_programs_run_to_a_status() -> None:
    programs = texts()
    seen: collections.Counter[str] = collections.Counter()

    @settings(max_examples=COUNT // 2, **SETTINGS)
    @given(st.integers(0, len(SEEDS) - 1), EDITS)
    def execute(program: int, changes: list[Edit]) -> None:
        text = programs[program]
        for change in changes:
            text = damage(text, change, programs)
        try:
            result, _ = run_ptx(SEEDS[program], text, EmulatorLimits(instruction_budget=20_000))
        except (Refused, ValueError):  # not loaded, or its parameters no longer fit the launch
            seen["refused"] += 1
            return
        seen[result.status] += 1

    execute()
    print(dict(seen))
    assert set(seen) <= {"refused", *get_args(EmulationStatus)}
    assert seen["ok"] > 0
    assert len(seen) > 2


@pytest.mark.parametrize(
    "text",
    [
        ".visible .entry k() { " + "{" * 5000 + "}" * 5000 + " }",
        ".visible .entry k(" + ".param .u32 p, " * 5000 + ") { ret; }",
        ".func f() { call f; }\n.visible .entry k() { call f; }",
        "".join(f".func f{i}() {{ " + f"call f{i + 1};" * 9 + " }\n" for i in range(8))
        + ".func f8() { ret; }\n.visible .entry k() { call f0; }",
        ".visible .entry k() { .reg .b32 %r<2>; " + "mov.u32 %r1, %r1; " * 10_000 + "}",
        ".visible .entry k() { .reg .b32 " + ", ".join(f"%x{i}" for i in range(50_000)) + "; ret; }",
        ".global .b8 g[4] = {" + "1, " * 100_000 + "1};\n.visible .entry k() { ret; }",
        "/* " * 50_000 + ".visible .entry k() { ret; }",
        ".shared " * 20_000 + ".visible .entry k() { ret; }",
        ".extern " * 20_000 + ".visible .entry k() { ret; }",
        ".visible .entry k() { " + "[" * 100_000 + "; }",
        ".visible .entry k() { add.s32 %r1, " + "(" * 50_000 + "; }",
        ".visible .entry k() { a" + ".b" * 50_000 + " ; }",
        ".visible .entry k() { .param .b32 p; "
        + "".join(f"st.param.b32 [p+{4 * i}], 1; " for i in range(20_000))
        + "}",
        ".func " * 20_000,
        ".func (" * 20_000,
        ".func f (" * 20_000,
        ".global .attribute(" * 20_000,
        ".global .b8 g = 1" * 20_000,
        ".shared .b8 x" + "[1]" * 50_000,
        ".visible .entry k() { .reg .b32 %r<2>; mov.u32 %r1, %r" + "1" * 50_000 + "b; }",
        ".visible .entry k() { .param .b32 " + "a" * 50_000 + " !; }",
        ".visible .entry k() { " + "{" * 50_000 + "mov.u32 %r1, %r2;" * 50_000 + "}" * 50_000 + "}",
        pytest.param(
            ".func f() { " + ".reg .b32 %r<2>;" * 5_000 + " }\n.visible .entry k() { " + "call f; " * 20_000 + "}",
            marks=pytest.mark.slow,
        ),
        ".entry k" * 20_000,
        ".visible .entry k() { " + ".loc 1 2 " * 20_000 + "}",
        " " * 1_000_000,
        ".visible .entry k() { x: x: " * 5_000,
        ".param " * 20_000 + ".visible .entry k() { ret; }",
    ],
    ids=lambda text: f"{text[:30]!r}-{len(text)}",
)
def test_large_and_deep_texts_end_in_time(text: str) -> None:
    assert outcome(text) in ("module", "Unsupported", "Tampered")
