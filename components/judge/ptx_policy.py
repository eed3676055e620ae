"""What compiled code may not do, read off the PTX: keep state, tell time, tell launches apart, pin a cache, call out.

The text of a program hides things behind macros and templates; the PTX that the compiler made of it does not. The
check needs no interpreter, so it also holds for code that only a GPU can run.

Left legal on purpose, because none of it outlives a launch or tells one launch from another: %smid, %warpid and the
like, cache operators (.nc, .cs, .cg, .cv), L1 hints, plain prefetches, `trap` and `exit`, read-only tables.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG = re.compile(r"\.section\s+\.debug\w*\s*\{.*?\n\s*\}", re.DOTALL)
_FUNCTION = re.compile(r"\.(?:entry|func)\b(?P<header>[^;{]*)(?P<end>[;{])")
_NAME = re.compile(r"\s*(?:\.noreturn\s*)?(?:\([^)]*\)\s*)?([\w$]+)")
_VARIABLE = re.compile(
    r"\.(?P<space>global|const)\b(?P<type>[^;={}]*?)(?P<name>[\w$]+)\s*(?:\[\d*\]\s*)*(?:=(?P<initial>[^;]*))?;"
)
_STATEMENT = re.compile(
    r"\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)\s+\d+(?P<rest>[^\n]*)|[%$\w]+\s*:(?!:)|[{}]|(?P<text>[^;{}\s][^;]*);"
)
_INLINED_AT = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
_WORD = re.compile(r"%?[\w$]+")
_CLOCK = re.compile(r"%(?:clock|globaltimer)\w*")
_LAUNCH_SPECIFIC = re.compile(r"%(?:gridid|current_graph_exec|envreg\d+|pm\d+)\b")
_TEXTURES = frozenset({"tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"})
_CACHE_CONTROL = frozenset({"createpolicy", "applypriority", "discard"})
_MOVES_ADDRESS = frozenset({"mov", "cvta", "add", "sub", "or", "selp", "mad"})
_READS = frozenset({"ld", "ldu", "prefetch", "prefetchu"})
_WRITES = frozenset({"st", "atom", "red"})


@dataclass(frozen=True)
class Violation:
    """What the code does that it may not; `line` is of the CUDA source, None when the PTX does not say."""

    message: str
    line: int | None


@dataclass(frozen=True)
class _Instruction:
    """One instruction: `op` with its dots, the operands' text, and its source line."""

    op: str
    operands: str
    line: int | None

    @property
    def base(self) -> str:
        return self.op.split(".", 1)[0]


def check_ptx(ptx: str) -> Violation | None:
    """The first thing that the code may not do, or None.

    Args:
        ptx: a module as NVRTC writes it, with line information.
    """
    text = _COMMENT.sub("", _DEBUG.sub("", ptx))
    head, bodies = _split(text)
    if match := re.search(r"\.managed\b", head):
        return Violation("uses managed memory", None)
    if match := re.search(r"\.(?:texref|samplerref|surfref)\b", head):
        return Violation(f"uses a texture or surface ({match.group()})", None)
    defined = {name for name, _ in bodies}
    code = [list(_instructions(body)) for _, body in bodies]
    for instructions in code:
        for instruction in instructions:
            if (message := _forbidden(instruction, defined)) is not None:
                return Violation(message, instruction.line)
    variables = {match["name"]: match for match in _VARIABLE.finditer(head)}
    if not variables:
        return None
    for instructions in code:
        if (found := _state(instructions, variables)) is not None:
            return found
    return None


def _split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """(everything outside of functions, (name, body) of each function that has one)."""
    outside, bodies, position = [], [], 0
    for match in _FUNCTION.finditer(text):
        if match.start() < position:
            continue
        outside.append(text[position : match.start()])
        position = match.end()
        if match["end"] == "{":
            position = _body_end(text, match.end())
            name = _NAME.match(match["header"])
            bodies.append((name.group(1) if name else "", text[match.end() : position - 1]))
    return "\n".join([*outside, text[position:]]), bodies


def _body_end(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text) + 1  # cut short: all that is left is body


def _instructions(body: str) -> Iterator[_Instruction]:
    line: int | None = None
    for match in _STATEMENT.finditer(body):
        if match["file"]:
            inlined = _INLINED_AT.search(match["rest"])
            if match["file"] == "1":
                line = int(match["line"])
            elif inlined and inlined.group(1) == "1":
                line = int(inlined.group(2))
        elif match["text"]:
            text = re.sub(r"^@!?%[\w$]+\s+", "", match["text"])
            op, _, operands = " ".join(text.split()).partition(" ")
            yield _Instruction(op, operands, line)


def _forbidden(instruction: _Instruction, defined: set[str]) -> str | None:
    """Why one instruction by itself is refused."""
    op, base, operands = instruction.op, instruction.base, instruction.operands
    if match := _CLOCK.search(operands):
        return f"reads a clock: {match.group()}"
    if match := _LAUNCH_SPECIFIC.search(operands):
        return f"reads {match.group()}, which tells one launch from another"
    if base == "nanosleep":
        return "waits by the clock: nanosleep"
    if base in _CACHE_CONTROL or ("L2::" in op and "evict_last" in op) or "L2::cache_hint" in op:
        return f"pins or drops cache lines: {op}"
    if base in _TEXTURES:
        return f"reads a texture or surface: {op}"
    if base == "griddepcontrol":
        return f"steers other launches: {op}"
    if ".callprototype" in operands or op in (".callprototype", ".calltargets", ".alias"):
        return "calls through a pointer"
    if op.startswith((".global", ".const")):
        return "declares memory that outlives a launch"
    if base == "call":
        target = re.sub(r"^\([^)]*\)\s*,\s*", "", operands).split(",")[0].strip()
        if target.startswith("%"):
            return "calls through a pointer"
        if target not in defined:
            return f"calls {_plain(target).removeprefix('v')}, which is not part of the program"
    return None


def _state(instructions: list[_Instruction], variables: dict[str, re.Match[str]]) -> Violation | None:
    """Whether a module-scope variable is anything but a table that is loaded from.

    Addresses are followed from register to register without regard to order, so a loop cannot hide one. An address may
    be moved, offset, chosen between, compared with another such address and loaded from; anything else is refused.
    """
    held: dict[str, str] = {}  # register -> the variable whose address it may hold
    relevant = [i for i in instructions if i.op != "" and not i.op.startswith(".")]
    if not any(word in variables for i in relevant for word in _WORD.findall(i.operands)):
        return None
    while True:
        before = len(held)
        for instruction in relevant:
            found = _follow(instruction, variables, held)
            if found is not None:
                return Violation(found, instruction.line)
        if len(held) == before:
            return None


def _follow(instruction: _Instruction, variables: dict[str, re.Match[str]], held: dict[str, str]) -> str | None:
    """Spread addresses over one instruction; what it does wrong with them, or None."""
    base = instruction.base
    target, _, rest = instruction.operands.partition(",")
    if base in _WRITES:  # no target: everything is used
        target, rest = "", instruction.operands
    if instruction.operands.startswith("{"):
        target, _, rest = instruction.operands.partition("}")
    sources = [word for word in _WORD.findall(rest) if word in variables or word in held]
    names = [word if word in variables else held[word] for word in sources]
    if not names:
        return None
    name = names[0]
    for used in names:
        if variables[used]["space"] == "global" and variables[used]["initial"] is None:
            return f"uses the writable module-scope variable {_plain(used)}"
        pointers = set(_WORD.findall(variables[used]["initial"] or "")) & set(variables)
        if pointers:
            return f"keeps the address of module-scope variable {_plain(sorted(pointers)[0])}"
    if base in _READS:
        return None
    if base in _WRITES:
        address = rest.partition("]")[0]
        if any(word in sources for word in _WORD.findall(address)):
            return f"writes the module-scope variable {_plain(name)}"
        return f"gives away the address of module-scope variable {_plain(name)}"
    if base == "setp" and len(names) == 2:
        return None
    if base == "sub" and len(names) == 2:  # a distance is no address
        return None
    if base in _MOVES_ADDRESS and "{" not in instruction.operands:
        held.setdefault(target.strip(), name)
        return None
    return f"computes with the address of module-scope variable {_plain(name)}"


def _plain(name: str) -> str:
    """The last identifier of a mangled name: `_ZZ4spmvE5calls` -> `calls`."""
    if not name.startswith("_Z"):
        return name
    found, position = name, 2
    while match := re.compile(r"(\d+)").search(name, position):
        length = int(match.group(1))
        part = name[match.end() : match.end() + length]
        position = match.end() + (length if len(part) == length else 0)
        found = part if len(part) == length and not part[:1].isdigit() and part else found
    return found
