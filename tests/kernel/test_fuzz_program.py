"""Programs: whatever the text, a parsed program or a ProgramError with its line, soon; and no way to a file.

SPARSERL_FUZZ=20000 says how many inputs; the default is a quick look.
"""

import os
import re
import time
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.kernel.families import all_programs, spread
from components.kernel.program import parse
from components.kernel.sanitize import ALLOWED_HEADERS, check_text
from components.kernel.types import KernelProgram, ProgramError

COUNT = int(os.environ.get("SPARSERL_FUZZ", "300"))
CPU_S = 1.0  # of one input; a program of the largest size takes a few milliseconds

fuzz = settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

SEEDS = [program.source for op in ("spmv", "spmm") for program in spread(list(all_programs(op)), 12, seed=3)]
_PIECES = [
    "// format: csr\n", "// format: sell c=32 sigma=256 index=u16\n", "// format: ",
    "// launch: spmv grid=rows block=32\n",
    "// launch: ", "grid=", "block=(1,2,3)", "shared=4*32", "=", "(", ")", ",", ";", "{", "}", "[",
    "]", "<", ">", "\n", "\r",
    "\r\n", "\t", " ", "#", "%:", "??=", "??/", "\\", "\\\n", "\\ \n", "/*", "*/", "//", "/*\n*/",
    "'", '"', 'R"(', ')"',
    'u8R"x(', ')x"', "'\\''", "0x'", "1'000", "include", "#include", "#include <cuda_fp16.h>\n",
    '#include "/etc/passwd"\n',
    " </etc/passwd>\n", ' "/etc/passwd"\n', "include_next", "define", "#define A ",
    "#define spmv x\n", "undef", "#if 0\n",
    "#endif\n", "#else\n", "pragma unroll", "#pragma once\n", "_Pragma", "##", "import", "module",
    "__has_include", "embed",
    'extern "C"', "__global__", "void", "spmv", "const", "int*", "float", "__restrict__",
    "__launch_bounds__(64)", "**", "asm",
    "clock64()", "printf(", "__managed__", "\\u0041", "\x00", "\x0c", "\u0085", "\u2028", "\ufeff",
    "\ud800", "é", "٣",
    'extern "C" __global__ void k(int rows) {}\n',
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> str:
    """A program of the library with some places cut, doubled, swapped or filled with something else."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 0, 1, 2, 5, 40, 400])))
        kind = draw(st.sampled_from(["insert", "insert", "insert", "cut", "double", "move", "end"]))
        piece = "".join(draw(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4)))
        if kind == "insert":
            text = text[:start] + piece + text[end:]
        elif kind == "cut":
            text = text[:start] + text[end:]
        elif kind == "double":
            text = text[:end] + text[start:]
        elif kind == "move":
            text = text[end:] + text[start:end] + text[:start]
        else:
            text = text[:start]
    return text[:20_000]


assembled = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join)
# Little but what makes and hides a directive, so that every short combination comes up.
_HIDING = [
    "#",
    "#",
    "%:",
    "include",
    "include",
    ' "/etc/passwd"',
    "/*",
    "/*",
    "*/",
    "*/",
    "//",
    "\n",
    "\n",
    " ",
    "'",
    '"',
    "x",
    "1",
]
hidden = st.lists(st.sampled_from(_HIDING), min_size=3, max_size=14).map("".join)
anything = st.one_of(changed(), assembled, hidden, st.text(max_size=400))


@fuzz
@given(anything)
def test_any_text_is_a_program_or_a_refusal_with_its_line(source: str) -> None:
    start = time.process_time()
    try:
        found: KernelProgram | ProgramError = parse(source)
    except ProgramError as error:
        found = error
    assert time.process_time() - start < CPU_S
    if isinstance(found, ProgramError):
        assert found.status in ("unparsable", "contract")
        assert found.message
        assert "\n" not in found.message
        assert len(found.message) < 3_000
        assert found.line is None or 1 <= found.line <= source.count("\n") + 1
    else:
        assert found.kernels
        assert all(launch.kernel in found.kernels for launch in found.launches)


@fuzz
@given(st.one_of(hidden, hidden, hidden, anything))
def test_text_that_passes_has_no_directive_that_opens_a_file(source: str) -> None:
    """Held against another reader of directives, which goes through the text letter by letter as a compiler does."""
    try:
        check_text(source)
    except ProgramError:
        return
    for directive in _directives(source):
        name = re.match(r"\w*", directive)
        assert name is not None
        assert name.group() in ("", "define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else",
                                "endif", "pragma", "include"), directive  # fmt: skip
        if name.group() == "include":
            assert directive[7:].strip().strip('<>"') in ALLOWED_HEADERS, directive
        assert re.search(r"\b__has_(?:include|embed)\b", directive) is None, directive
        assert name.group() or not directive, directive


def _directives(source: str) -> Iterator[str]:
    """Each directive's text after the `#`, comments as blanks, through translation phases 2 to 4 of the standard."""
    source = re.sub(r"\\[ \t\r]*\n", "", source)
    position, fresh = 0, True  # fresh: nothing but blanks and comments on this line so far
    while position < len(source):
        character = source[position]
        if character == "\n":
            fresh, position = True, position + 1
        elif source.startswith(("//", "/*"), position) or character in " \t\r\f\v":
            position = _skip(source, position)
        elif fresh and (character == "#" or source.startswith("%:", position)):
            position += 1 if character == "#" else 2
            text = ""
            while position < len(source) and source[position] != "\n":
                after = _skip(source, position)
                text += source[position:after] if after == position + 1 or source[position] in "\"'" else " "
                position = after
            yield text.strip()
        else:
            fresh, position = False, _skip(source, position)


def _skip(source: str, position: int) -> int:
    """Past one comment, literal, number or letter; a quote without partner ends with its line."""
    if source.startswith("//", position):
        end = source.find("\n", position)
        return len(source) if end < 0 else end
    if source.startswith("/*", position):
        end = source.find("*/", position + 2)
        return len(source) if end < 0 else end + 2
    before = source[position - 1] if position else " "
    separator = source[position] == "'" and re.search(
        r"(?:^|[^\w.])\.?\d[\w.']*$", source[max(0, position - 80) : position]
    )
    if source[position] in "\"'" and not (
        separator and before.isalnum() and source[position + 1 : position + 2].isalnum()
    ):
        end = position + 1
        while end < len(source) and source[end] not in (source[position], "\n"):
            end += 2 if source[end] == "\\" else 1
        return min(len(source), end + (end < len(source) and source[end] == source[position]))
    return position + 1


def test_the_other_reader_finds_directives() -> None:
    text = '/* a */ # /* b\n */ include "x" // c\nint a = 1\'0; "/*" #no\n%:define A /* ' + "' */ 1\n#if 0\n// #error\n"
    assert list(_directives(text)) == ['include "x"', "define A   1", "if 0"]
