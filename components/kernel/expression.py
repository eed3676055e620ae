"""Integer expressions of launch lines: parsed by hand, bounded everywhere, never given to eval.

Grammar: `+ - * // %`, unary minus, parentheses, whole numbers, names, and the functions min, max, ceil_div, next_pow2.
Division and remainder round towards minus infinity, as in Python.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from components.errors import SparseRLError

LIMIT = 1 << 63  # every intermediate value stays below this in magnitude
_MAX_LENGTH = 400  # characters
_MAX_DEPTH = 40
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(\*\*|//|[-+*/%(),]))")
_FUNCTIONS = {"min": (2, 8), "max": (2, 8), "ceil_div": (2, 2), "next_pow2": (1, 1)}  # name: fewest, most arguments

Node = Union[int, str, "Call"]


class ExpressionError(SparseRLError):
    """An expression is malformed, uses an unknown name, divides by zero or leaves 64 bits; the message is one line."""


@dataclass(frozen=True)
class Call:
    """An operator or function applied to arguments."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    text: str
    root: Node

    @property
    def names(self) -> frozenset[str]:
        """Every name that must be given to `evaluate`."""
        return frozenset(_names(self.root))

    def evaluate(self, names: Mapping[str, int]) -> int:
        """The value, with `names` filled in.

        Raises:
            ExpressionError: an unknown name, a division by zero, or a value of 2^63 or more in magnitude.
        """
        return _evaluate(self.root, names)


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parse `text`.

    Raises:
        ExpressionError: it is not an expression, or is over 400 characters or 40 levels deep.
    """
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"expression of {len(text)} characters; expected at most {_MAX_LENGTH}")
    parser = _Parser(text, _tokens(text))
    root = parser.sum(0)
    if parser.peek():
        raise ExpressionError(f"unexpected {parser.peek()!r} in {text.strip()!r}")
    return Expression(text.strip(), root)


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None or not match.group().isascii():
            raise ExpressionError(f"unexpected {text[position:].strip()[0]!r} in {text.strip()!r}")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the token list."""

    def __init__(self, text: str, tokens: list[str]):
        self.text, self.tokens, self.position = text.strip(), tokens, 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while self.peek() in ("+", "-"):
            node = Call(self.take(), (node, self.product(depth)))
        return node

    def product(self, depth: int) -> Node:
        node = self.unary(depth)
        while self.peek() in ("*", "//", "%", "/", "**"):
            operator = self.take()
            if operator in ("/", "**"):
                raise ExpressionError(f"operator {operator} in {self.text!r}; expected one of + - * // %")
            node = Call(operator, (node, self.unary(depth)))
        return node

    def unary(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise ExpressionError(f"expression nested over {_MAX_DEPTH} deep")
        if self.peek() == "-":
            self.take()
            return Call("negate", (self.unary(depth + 1),))
        return self.atom(depth)

    def atom(self, depth: int) -> Node:
        token = self.take()
        if token.isdigit():
            if len(token) > 19 or int(token) >= LIMIT:
                raise ExpressionError(f"number {token[:24]} is too large; expected less than 2^63")
            return int(token)
        if token == "(":
            node = self.sum(depth + 1)
            self.expect(")")
            return node
        if token and (token[0].isalpha() or token[0] == "_"):
            return self.call(token, depth) if self.peek() == "(" else token
        found = repr(token) if token else "the end"
        raise ExpressionError(f"expected a number, a name or '(' in {self.text!r}, found {found}")

    def call(self, name: str, depth: int) -> Node:
        if name not in _FUNCTIONS:
            raise ExpressionError(f"unknown function {name}; expected one of {', '.join(_FUNCTIONS)}")
        self.take()
        arguments = [self.sum(depth + 1)]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum(depth + 1))
        self.expect(")")
        fewest, most = _FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise ExpressionError(f"{name} takes {fewest if fewest == most else f'{fewest} to {most}'} arguments")
        return Call(name, tuple(arguments))

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise ExpressionError(f"expected {token!r} in {self.text!r}, found {repr(found) if found else 'the end'}")


def _names(node: Node) -> set[str]:
    if isinstance(node, str):
        return {node}
    if isinstance(node, Call):
        return set().union(*(_names(argument) for argument in node.arguments))
    return set()


def _evaluate(node: Node, names: Mapping[str, int]) -> int:
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        if node not in names:
            raise ExpressionError(f"unknown name {node}; expected one of {', '.join(sorted(names))}")
        return int(names[node])
    values = [_evaluate(argument, names) for argument in node.arguments]
    result = _apply(node.function, values)
    if abs(result) >= LIMIT:
        raise ExpressionError("a value reaches 2^63; expected 64-bit sizes")
    return result


def _apply(function: str, values: list[int]) -> int:
    match function:
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "negate":
            return -values[0]
        case "next_pow2":
            return 1 << max(0, values[0] - 1).bit_length()
        case "+":
            return values[0] + values[1]
        case "-":
            return values[0] - values[1]
        case "*":
            return values[0] * values[1]
    if values[1] == 0:
        raise ExpressionError(f"division by zero in {function}")
    if function == "ceil_div":
        return -(-values[0] // values[1])
    return values[0] // values[1] if function == "//" else values[0] % values[1]
