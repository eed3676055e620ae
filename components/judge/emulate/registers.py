"""Registers of a function's scopes: what is declared, of which type, and where each lies."""

import re
from dataclasses import dataclass, field

from components.judge.emulate.ptx_text import Unsupported

MAX_NAME = 1024  # characters of a register's name
_NUMBERED = re.compile(r"(%?[A-Za-z_$][\w$]*?)(\d+)")


@dataclass(frozen=True)
class Register:
    """A place in the register file and its bytes a lane (1: a predicate)."""

    offset: int
    slot: int


@dataclass
class Scope:
    """Declared registers: exact names and ranges such as %r<64>."""

    exact: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    places: dict[str, Register] = field(default_factory=dict)

    def declare(self, text: str) -> None:
        """`.reg .b32 %r<64>, %x`."""
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)", text)
        if match is None:
            raise Unsupported(text[:60])
        for name in match.group(2).split(","):
            many = re.fullmatch(r"\s*(%?[\w$]+)<(\d+)>\s*", name)
            if many:
                self.ranges[many.group(1)] = (int(many.group(2)), match.group(1))
            else:
                self.exact[name.strip()] = match.group(1)

    def type_of(self, name: str) -> str | None:
        """The declared type, or None."""
        if name in self.exact:
            return self.exact[name]
        if len(name) > MAX_NAME:
            return None
        match = _NUMBERED.fullmatch(name)
        if match and match.group(1) in self.ranges and int(match.group(2)) < self.ranges[match.group(1)][0]:
            return self.ranges[match.group(1)][1]
        return None
