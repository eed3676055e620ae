"""The contract: reads a kernel program's header and its kernels' signatures.

    // format: sell c=32 sigma=256 index=u16
    // launch: spmv grid=ceil_div(slices,4) block=128 shared=0

`grid` and `block` take one to three comma-separated expressions in parentheses or a single expression; `shared` is the
dynamic shared memory in bytes. Contract lines are the leading comment lines; other leading comments are free text.
"""

import re

from components.kernel.expression import ExpressionError, parse_expression
from components.kernel.formats import format_spec
from components.kernel.sanitize import check_text
from components.kernel.types import FormatSpec, KernelProgram, LaunchSpec, Parameter, ProgramError

_MAX_LAUNCHES = 8
_MAX_CONTRACT_LINE = 1_000  # characters
_MAX_PARAMETER = 200  # characters
_CONTRACT = re.compile(r"\s*//\s*(format|launch)\s*:\s*(.*?)\s*$")
_KERNEL = re.compile(r"\b__global__\b")
_SIGNATURE = re.compile(
    r'extern\s+"C"\s+(?:static\s+)?__global__\s+(?:__launch_bounds__\s*\([^()]*\)\s+)?void\s+'
    r"(?:__launch_bounds__\s*\([^()]*\)\s+)?([A-Za-z_]\w*)\s*\("
)
_ALIASES = {
    "unsigned": "unsigned int", "uint": "unsigned int", "uint32_t": "unsigned int", "int32_t": "int",
    "unsigned int": "unsigned int", "signed int": "int", "signed": "int", "int": "int",
    "short": "short", "short int": "short", "int16_t": "short",
    "unsigned short": "unsigned short", "unsigned short int": "unsigned short", "uint16_t": "unsigned short",
    "ushort": "unsigned short", "unsigned char": "unsigned char", "uint8_t": "unsigned char", "uchar": "unsigned char",
    "signed char": "signed char", "int8_t": "signed char", "char": "char",
    "long long": "long long", "long long int": "long long", "int64_t": "long long", "long": "long long",
    "long int": "long long", "unsigned long long": "unsigned long long", "uint64_t": "unsigned long long",
    "unsigned long": "unsigned long long", "size_t": "unsigned long long",
    "float": "float", "double": "double", "__half": "__half", "half": "__half", "__nv_bfloat16": "__nv_bfloat16",
}  # fmt: skip


def parse(source: str) -> KernelProgram:
    """Parse a kernel program.

    Args:
        source: the text, as the model or a person wrote it.

    Raises:
        ProgramError: `unparsable` when it is no program at all (no contract, no kernel), else `contract` with the line.
    """
    if "__global__" not in source:
        raise ProgramError(
            "unparsable", "no __global__ function; expected CUDA C++ with its contract in the first lines"
        )
    text = check_text(source)
    format_lines, launch_lines = _header(source)
    if not format_lines and not launch_lines:
        raise ProgramError(
            "unparsable", "no contract; expected '// format: ...' and '// launch: ...' as first lines", 1
        )
    if len(format_lines) != 1:
        line = format_lines[1][0] if format_lines else 1
        raise ProgramError("contract", f"{len(format_lines)} format lines; expected exactly one", line)
    if not launch_lines:
        raise ProgramError("contract", "no launch line; expected '// launch: KERNEL grid=... block=...'", 1)
    if len(launch_lines) > _MAX_LAUNCHES:
        line = launch_lines[_MAX_LAUNCHES][0]
        raise ProgramError("contract", f"{len(launch_lines)} launch lines; expected at most {_MAX_LAUNCHES}", line)
    kernels = _kernels(text)
    launches = tuple(_launch(line, body) for line, body in launch_lines)
    for launch in launches:
        if launch.kernel not in kernels:
            known = ", ".join(kernels)
            raise ProgramError("contract", f"launch of {launch.kernel}; the program defines {known}", launch.line)
    return KernelProgram(source, _format(*format_lines[0]), launches, kernels)


def _header(source: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The contract lines among the leading comment lines, with their numbers."""
    found: dict[str, list[tuple[int, str]]] = {"format": [], "launch": []}
    for number, line in enumerate(source.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("//"):
            break
        if len(stripped) > _MAX_CONTRACT_LINE and _CONTRACT.match(stripped[:40]):
            raise ProgramError("contract", f"a contract line of {len(stripped)} characters; at most 1000", number)
        if match := _CONTRACT.match(stripped[:_MAX_CONTRACT_LINE]):
            found[match.group(1)].append((number, match.group(2)))
    return found["format"], found["launch"]


def _format(line: int, body: str) -> FormatSpec:
    words = body.split()
    if not words:
        raise ProgramError("contract", "empty format line; expected a format's name", line)
    parameters: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ProgramError("contract", f"{word[:40]!r} in the format line; expected key=value", line)
        if key in parameters:
            raise ProgramError("contract", f"format parameter {key[:40]} given twice", line)
        parameters[key] = value
    return format_spec(words[0], parameters, line)


def _launch(line: int, body: str) -> LaunchSpec:
    name, _, rest = body.partition(" ")
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or not name.isascii():
        raise ProgramError("contract", f"{name[:40]!r} in the launch line; expected a kernel's name", line)
    values: dict[str, tuple[str, ...]] = {}
    for key, text in _assignments(rest, line):
        if key not in ("grid", "block", "shared"):
            raise ProgramError("contract", f"launch parameter {key[:40]!r}; expected grid, block or shared", line)
        if key in values:
            raise ProgramError("contract", f"launch parameter {key} given twice", line)
        values[key] = _dimensions(text, line)
    for key in ("grid", "block"):
        if key not in values:
            raise ProgramError("contract", f"launch line without {key}=; expected grid and block", line)
    shared = values.get("shared", ("0",))
    if len(shared) != 1:
        raise ProgramError("contract", "shared takes one size in bytes", line)
    return LaunchSpec(name, values["grid"], values["block"], shared[0], line)


def _assignments(text: str, line: int) -> list[tuple[str, str]]:
    starts = [match for match in re.finditer(r"(?:^|\s)([A-Za-z_]\w*)=", text) if _depth(text[: match.start()]) == 0]
    if not starts or text[: starts[0].start()].strip():
        raise ProgramError("contract", "launch line; expected NAME grid=SIZE block=SIZE [shared=BYTES]", line)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [(match.group(1), text[match.end() : end].strip()) for match, end in zip(starts, ends, strict=True)]


def _depth(text: str) -> int:
    return text.count("(") - text.count(")")


def _dimensions(text: str, line: int) -> tuple[str, ...]:
    """One to three expressions: `e`, `e,e`, `(e,e,e)`; each is parsed here so that errors carry the line."""
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") and len(_split(text[1:-1])) > 1 else text
    parts = _split(inner)
    if len(parts) > 3:
        raise ProgramError("contract", f"{len(parts)} dimensions; expected one to three", line)
    for part in parts:
        try:
            parse_expression(part)
        except ExpressionError as error:
            raise ProgramError("contract", str(error), line) from None
    return tuple(part.strip() for part in parts)


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _kernels(text: str) -> dict[str, tuple[Parameter, ...]]:
    """Signatures of every kernel; a `__global__` function in another shape is refused."""
    kernels: dict[str, tuple[Parameter, ...]] = {}
    signatures = list(_SIGNATURE.finditer(text))
    covered = [(match.start(), match.end()) for match in signatures]
    for match in _KERNEL.finditer(text):
        if not any(start <= match.start() < end for start, end in covered):
            line = text.count("\n", 0, match.start()) + 1
            raise ProgramError("contract", 'a kernel; expected extern "C" __global__ void NAME(PARAMETERS)', line)
    for match in signatures:
        line = text.count("\n", 0, match.start()) + 1
        if match.group(1) in kernels:
            raise ProgramError("contract", f"kernel {match.group(1)} defined twice", line)
        kernels[match.group(1)] = _parameters(text, match.end(), line)
        _check_macros(text, match.start(), line)
    return kernels


def _check_macros(text: str, start: int, line: int) -> None:
    """A signature is read as it stands, so no macro may change what the compiler sees of it."""
    macros = set(re.findall(r"^[ \t]*(?:#|%:)[ \t]*define[ \t]+(\w+)", text, re.MULTILINE))
    signature = text[start : text.find("{", start)]
    if changed := sorted(macros.intersection(re.findall(r"\w+", signature))):
        raise ProgramError("contract", f"macro {changed[0]} in a kernel's signature; expected plain C types", line)


def _parameters(text: str, start: int, kernel_line: int) -> tuple[Parameter, ...]:
    depth, end = 1, start
    while end < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    if depth:
        raise ProgramError("contract", "a parameter list without its closing parenthesis", kernel_line)
    inner = text[start : end - 1]
    if inner.strip() in ("", "void"):
        return ()
    parameters, position = [], start
    for part in _split(inner):
        line = text.count("\n", 0, position + len(part) - len(part.lstrip())) + 1
        parameters.append(_parameter(part, line))
        position += len(part) + 1
    names = [parameter.name for parameter in parameters]
    for name in names:
        if names.count(name) > 1:
            raise ProgramError("contract", f"parameter {name} declared twice", kernel_line)
    return tuple(parameters)


def _parameter(text: str, line: int) -> Parameter:
    text = " ".join(text.split())
    shown = text[:60]
    if len(text) > _MAX_PARAMETER:
        raise ProgramError("contract", f"a parameter of {len(text)} characters; at most {_MAX_PARAMETER}", line)
    if "=" in text:
        raise ProgramError("contract", f"parameter {shown!r} with a default value", line)
    match = re.fullmatch(
        r"([\w\s]*?)(\*?)((?:\s|__restrict__|__restrict|restrict|const)*)([A-Za-z_]\w*)\s*(\[\s*\])?\s*", text
    )
    if match is None:
        raise ProgramError("contract", f"parameter {shown!r}; expected TYPE NAME or TYPE* NAME", line)
    words = match.group(1).split()
    pointer = bool(match.group(2)) or match.group(5) is not None
    if match.group(2) and match.group(5):
        raise ProgramError("contract", f"parameter {shown!r} is a pointer to a pointer", line)
    const = "const" in words
    base = " ".join(word for word in words if word not in ("const", "volatile", "register"))
    if not pointer and not base and match.group(3).strip() == "":
        raise ProgramError("contract", f"parameter {shown!r} has no name; arguments are bound by name", line)
    ctype = _ALIASES.get(base)
    if ctype is None:
        raise ProgramError(
            "contract", f"type {base[:40]!r} of parameter {match.group(4)}; expected a plain C type", line
        )
    return Parameter(match.group(4), ctype, pointer, const, line)
