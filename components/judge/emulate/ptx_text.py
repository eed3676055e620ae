"""PTX text -> its parts: module variables, device functions, entries, statements. No meaning is given here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
MAX_CHARACTERS = 4_000_000
MAX_VARIABLE_BYTES = 1 << 26
MAX_VARIABLES, MAX_ENTRIES = 4096, 64  # of a module


class Refused(Exception):
    """A program that the interpreter does not run.

    Attributes:
        what: one line, why.
        line: of the CUDA source (from .loc), None when unknown.
    """

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what if line is None else f"line {line}: {what}")
        self.what = what
        self.line = line


class Unsupported(Refused):
    """Something the interpreter does not implement: never a pass, never a fail."""


class Tampered(Refused):
    """The program reads a clock, keeps state between launches, pins a cache or talks to the host."""


@dataclass(frozen=True)
class Variable:
    """A module-scope or function-scope variable."""

    space: str  # shared, const, global, local
    name: str
    align: int
    size: int  # bytes; 0 for dynamic shared memory
    initial: bytes | None  # None: no initialiser


@dataclass(frozen=True)
class Parameter:
    """A formal parameter; scalars have type u8..f64, aggregates b8."""

    name: str
    type: str
    align: int
    size: int


@dataclass(frozen=True)
class Function:
    """A .func or .entry with its body's text."""

    name: str
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    body: str
    max_threads: int | None  # .maxntid product, for launch checks
    cluster: bool = False  # asks to be launched in clusters of blocks


@dataclass(frozen=True)
class Statement:
    """One statement of a body. kind: instruction, label, open, close, directive."""

    kind: str
    text: str
    line: int | None


_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+){0,2}\.(shared|const|global|local)\s+"
    r"(?:\.attribute\([^()]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.v([24])\s+)?\.([bsuf])(\d+)\s+([\w$.]+)\s*"
    r"((?:\[\d*\]\s*)*)(?:=\s*([^;=]*))?;"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([bsuf])(\d+)\s*(?:\.ptr(?:\s+\.(?:global|shared|const|local))?"
    r"(?:\s+\.align\s+\d+)?)?\s*([\w$.]+)\s*(?:\[(\d+)\])?"
)
_FUNCTION = re.compile(
    r"\.(func|entry)\b\s*(?:\.noreturn\s*)?(\([^()]*\))?\s*([\w$]+)\s*(\([^()]*\))?"
    r"((?:(?!\.func|\.entry)[^;{])*)([;{])"
)
_STATEMENT = re.compile(
    r"\s+|\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)\s+\d+(?P<rest>[^\n]*)|\.file[^\n]*"
    r"|(?P<label>[%$\w]+)\s*:(?!:)|(?P<open>\{)|(?P<close>\})|(?P<text>[^;{}\s][^;]*);"
)


def strip_comments(text: str) -> str:
    """Without // and /* */ comments."""

    def nothing(match: re.Match[str]) -> str:
        if match.group().startswith("/*") and not match.group(1):
            raise Unsupported("a comment without an end")
        return ""

    return re.sub(r"//[^\n]*|/\*.*?(?:(\*/)|\Z)", nothing, text, flags=re.S)


def parse_parameters(text: str | None) -> tuple[Parameter, ...]:
    """The formal parameters between parentheses."""
    found = []
    for piece in (text or "").strip("() \n\t").split(","):
        if not piece.strip():
            continue
        match = _PARAMETER.search(piece)
        if match is None:
            raise Unsupported(f"parameter {' '.join(piece.split())[:60]}")
        align, letter, bits, name, count = match.groups()
        if bits not in BYTES:
            raise Unsupported(f"parameter type {letter}{bits}")
        unit = BYTES[bits]
        _check_size(name, int(align or unit), unit * int(count or 1))
        found.append(Parameter(name, letter + bits, int(align or unit), unit * int(count or 1)))
    return tuple(found)


def parse_variable(text: str) -> Variable:
    """One variable declaration, with its semicolon."""
    match = _VARIABLE.search(text)
    if match is None:
        raise Unsupported(f"declaration {' '.join(text.split())[:60]}")
    space, align, vector, letter, bits, name, dimensions, initial = match.groups()
    if bits not in BYTES:
        raise Unsupported(f"variable type {letter}{bits}")
    unit = BYTES[bits] * int(vector or 1)
    count = 1
    for dimension in re.findall(r"\[(\d*)\]", dimensions):
        count *= int(dimension or 0)
    _check_size(name, int(align or unit), unit * count)
    data = None if initial is None else _initial(initial, BYTES[bits], unit * count)
    return Variable(space, name, int(align or unit), unit * count, data)


def _check_size(name: str, align: int, size: int) -> None:
    if align not in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) or size > MAX_VARIABLE_BYTES:
        raise Unsupported(f"{name}: {size} bytes aligned to {align}")


def _initial(text: str, unit: int, size: int) -> bytes:
    data = bytearray()
    for item in text.replace("{", " ").replace("}", " ").split(","):
        token = item.strip()
        if not token:
            continue
        if token[:2] in ("0f", "0F", "0d", "0D"):
            number = int(token[2:], 16)
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", token):
            number = integer(token)
        else:
            raise Unsupported(f"initialiser {token[:40]}")
        data += (number & ((1 << (8 * unit)) - 1)).to_bytes(unit, "little")
    if len(data) > size:
        raise Unsupported("initialiser longer than its variable")
    return bytes(data) + bytes(size - len(data))


def integer(token: str) -> int:
    """A PTX integer literal: decimal, hexadecimal, octal, with an optional U."""
    token = token.rstrip("Uu")
    sign = -1 if token.startswith("-") else 1
    digits = token.lstrip("-+")
    if re.fullmatch(r"0[0-7]+", digits):
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def split_module(text: str) -> tuple[list[Variable], dict[str, Function], dict[str, Function]]:
    """(module variables, device functions, entries) of a PTX module.

    Raises:
        Unsupported: the text is not PTX as NVRTC writes it.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unsupported(f"PTX of {len(text)} characters")
    text = strip_comments(text)
    section = text.find("\n.section")
    text = text if section < 0 else text[:section]
    outside: list[str] = []
    functions: dict[str, Function] = {}
    entries: dict[str, Function] = {}
    position = 0
    for match in _FUNCTION.finditer(text):
        if match.start() < position:
            continue
        outside.append(text[position : match.start()])
        kind, first, name, second, directives, end = match.groups()
        position = match.end()
        if end == ";":
            continue
        position = _body_end(text, match.end())
        body = text[match.end() : position - 1]
        limit = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
        threads = None
        if limit is not None:
            threads = int(limit.group(1)) * int(limit.group(2) or 1) * int(limit.group(3) or 1)
        results = parse_parameters(first) if kind == "func" else ()
        cluster = re.search(r"\.(explicitcluster|reqnctapercluster|maxclusterrank)\b", directives) is not None
        parts = Function(name, results, parse_parameters(second), body, threads, cluster)
        (entries if kind == "entry" else functions)[name] = parts
    outside.append(text[position:])
    found = list(_VARIABLE.finditer("\n".join(outside)))
    if len(found) > MAX_VARIABLES or len(entries) > MAX_ENTRIES:
        raise Unsupported(f"a module of {len(entries)} entries and {len(found)} variables")
    return [parse_variable(m.group(0)) for m in found], functions, entries


def _body_end(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    raise Unsupported("unbalanced braces")


def statements(body: str) -> Iterator[Statement]:
    """The statements of a body, each with its line in the main source file."""
    position, line = 0, None
    while position < len(body):
        match = _STATEMENT.match(body, position)
        if match is None:
            raise Unsupported(f"statement {' '.join(body[position : position + 40].split())}", line)
        position = match.end()
        if match["file"]:
            inlined = re.search(r"inlined_at\s+(\d+)\s+(\d+)", match["rest"])
            if match["file"] == "1":
                line = int(match["line"])
            elif inlined and inlined.group(1) == "1":
                line = int(inlined.group(2))
        elif match["label"]:
            yield Statement("label", match["label"], line)
        elif match["open"]:
            yield Statement("open", "{", line)
        elif match["close"]:
            yield Statement("close", "}", line)
        elif match["text"]:
            text = " ".join(match["text"].split())
            yield Statement("directive" if text.startswith(".") else "instruction", text, line)


def split_operands(text: str) -> list[str]:
    """Operands at the top level of commas: braces, brackets and parentheses keep theirs."""
    found, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*found, last] if last else found
