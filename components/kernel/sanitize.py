"""Which text may reach the compiler: allow-listed directives and headers, nothing that reads another file.

A compiler opens whatever `#include` names and quotes it in its messages; so what a directive is, is decided here, on
the text after line splices and comments are gone, as the compiler itself would see it.
"""

import re

from components.kernel.types import ProgramError

MAX_SOURCE_BYTES = 16 * 1024
ALLOWED_HEADERS = frozenset({"cuda_fp16.h", "cuda_bf16.h", "stdint.h", "cstdint"})
_DIRECTIVES = frozenset(
    {"", "define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "pragma"}
)
_PRAGMAS = re.compile(r"(?:unroll|GCC\s+unroll|nounroll)\b")
_TRIGRAPHS = {"=": "#", "/": "\\", "'": "^", "(": "[", ")": "]", "!": "|", "<": "{", ">": "}", "-": "~"}
_RAW_STRING = re.compile(r'\b(?:u8|[uUL])?R"')
_INVISIBLE = "\u0085\u2028\u2029\ufeff"  # line ends and a mark that some readers honour and others do not
# Numbers come first because of their digit separators (1'000), names because a number may not begin inside one.
# A literal that does not end on its line is a piece as well (no group for its end), so that it is read but once.
_PIECE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|\.?\d(?:[eEpP][+-]|'?[\w.])*|[^\W\d][\w$]*|"(?:\\.|[^"\\\n])*(?P<double>")?|'(?:\\.|[^'\\\n])*(?P<single>')?""",
    re.DOTALL,
)
_FORBIDDEN = (
    (re.compile(r"__has_(?:include|include_next|embed)\b"), "asks whether a file exists"),
    (re.compile(r"\b(?:asm|__asm|__asm__)\b"), "inline assembly"),
    (re.compile(r"\b_Pragma\b|\b__pragma\b"), "a pragma operator"),
    (re.compile(r"^[ \t]*(?:export[ \t]+)?(?:import|module)\b", re.MULTILINE), "a module directive"),
    (re.compile(r"##|%:%:"), "token pasting"),
    (re.compile(r"\\[uU]"), "a universal character name"),
    (re.compile(r"\b(?:clock|clock64|__clock|__clock64|globaltimer|__globaltimer|__nanosleep)\s*\("), "reads a clock"),
    (re.compile(r"\b__managed__\b"), "managed memory"),
    (re.compile(r"\b(?:printf|malloc|free|__assertfail|assert)\s*\("), "a device-side system call"),
)


def check_text(source: str) -> str:
    """The program as the compiler sees it: splices joined and comments blanked, with every line where it was.

    Raises:
        ProgramError: `contract`, with the line, for a text that must not reach the compiler.
    """
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise ProgramError("contract", f"source of {size} bytes; expected at most {MAX_SOURCE_BYTES}")
    for number, content in enumerate(source.split("\n"), 1):
        for character in content:
            if (
                (character < " " and character not in "\t\r")
                or character == "\x7f"
                or "\ud800" <= character <= "\udfff"
                or character in _INVISIBLE
            ):
                raise ProgramError("contract", f"control character {ord(character):#04x}; expected plain text", number)
    if match := re.search(r"\r(?!\n)", source):
        line = source.count("\n", 0, match.start()) + 1
        raise ProgramError("contract", "a carriage return within a line; expected plain line ends", line)
    if match := re.search(r"\?\?([=/'()!<>-])", source):
        line = source.count("\n", 0, match.start()) + 1
        raise ProgramError(
            "contract", f"trigraph for {_TRIGRAPHS[match.group(1)]}; expected the character itself", line
        )
    if match := re.search(r"\\[ \t\r]*\n", source):
        line = source.count("\n", 0, match.start()) + 1
        raise ProgramError("contract", "a line that continues with a backslash; expected whole lines", line)
    if match := _RAW_STRING.search(source):
        raise ProgramError("contract", "a raw string literal", source.count("\n", 0, match.start()) + 1)
    text = _PIECE.sub(_blank, source)
    _check_shape(source, text)
    _check_directives(text)
    for pattern, what in _FORBIDDEN:
        if match := pattern.search(text):
            line = text.count("\n", 0, match.start()) + 1
            raise ProgramError("contract", f"{what}: not allowed in a kernel program", line)
    return text


def _blank(match: re.Match[str]) -> str:
    """A comment becomes spaces of the same shape; literals stay."""
    if match.group("comment") is None:
        return match.group()
    return re.sub(r"[^\n]", " ", match.group())


def _check_shape(source: str, text: str) -> None:
    """Refuse text that a compiler may cut into comments, literals and directives in another way than this module.

    Args:
        source: the program.
        text: the same with comments blanked.

    Raises:
        ProgramError: a quote without its partner on the line, which may hide where a comment begins; or a comment that
            carries a directive on to the next line (a `#` may so be parted from its `include`).
    """
    for match in _PIECE.finditer(source):
        piece, start = match.group(), match.start()
        if piece[0] in "\"'":
            if match.group("double") is None and match.group("single") is None:
                message = f"a {piece[0]} without its partner on the line"
                raise ProgramError("contract", message, source.count("\n", 0, start) + 1)
        elif match.group("comment") is not None and "\n" in piece:
            before = text[text.rfind("\n", 0, start) + 1 : start].lstrip()
            if before.startswith(("#", "%:")):
                line = source.count("\n", 0, start) + 1
                raise ProgramError("contract", "a comment that carries a directive over its line's end", line)


def _check_directives(text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*(?:#|%:)\s*(\w*)\s*(.*)", line)
        if match is None:
            continue
        directive, rest = match.group(1), match.group(2).strip()
        if directive == "include":
            header = re.fullmatch(r'<([\w./]+)>|"([\w./]+)"', rest)
            name = (header.group(1) or header.group(2)) if header else None
            if name not in ALLOWED_HEADERS:
                known = ", ".join(sorted(ALLOWED_HEADERS))
                raise ProgramError(
                    "contract", f"#include of a header that is not allowed; expected one of {known}", number
                )
        elif directive == "pragma":
            if not _PRAGMAS.match(rest):
                raise ProgramError("contract", "a #pragma other than unroll", number)
        elif directive not in _DIRECTIVES or (rest and not directive):
            raise ProgramError("contract", f"directive #{(directive or rest)[:24]} is not allowed", number)
