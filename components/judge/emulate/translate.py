"""One entry's statements -> bytecode rows, with registers, constants, branches and inlined calls resolved.

Registers get lane-contiguous places in one register file; constants, special registers and parameters are registers
that the machine fills before a launch. Every offset and branch target in the result is in range by construction.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import (
    BYTES,
    MAX_VARIABLES,
    Function,
    Parameter,
    Statement,
    Tampered,
    Unsupported,
    Variable,
    integer,
    parse_variable,
    split_operands,
    statements,
)
from components.judge.emulate.registers import Register, Scope
from components.judge.emulate.rounds import mark_rounds
from components.judge.emulate.vector_ops import OPS, opcode

SLOT = {"b16": 4, "b32": 4, "f32": 4, "b64": 8, "f64": 8, "p": 1}  # bytes a lane (p: bits)
SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"} | {
    "%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size",
    "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
}  # fmt: skip
CLUSTER = ("%clusterid", "%nclusterid", "%cluster_", "%is_explicit_cluster")
PARAMETER_BASE = "%parameters"  # not a PTX register: the address of the launch's parameters
CLOCKS = re.compile(r"%(clock|clock_hi|clock64|globaltimer\w*|smid|nsmid|gridid|pm\d\w*|envreg\d+)$")
MAX_INSTRUCTIONS = 200_000
MAX_REGISTER_BYTES = 8 << 20
MAX_DEPTH = 8
MAX_SCOPES = 256  # open braces
MAX_STATEMENTS, MAX_CHARACTERS = 400_000, 40_000_000  # read for one entry, calls expanded


@dataclass(frozen=True)
class EntryCode:
    """Bytecode and register-file image of one entry."""

    name: str
    parameters: tuple[Parameter, ...]
    rows: NDArray[np.int64]  # (instructions, INS_WORDS)
    register_bytes: int
    image: NDArray[np.uint8]  # the register file with its constants
    special: Mapping[str, int]  # name -> offset
    parameter_registers: tuple[tuple[int, int, int, int, bool], ...]  # (offset, slot, byte offset, size, signed)
    shared_static: int
    local_bytes: int
    max_threads: int | None


_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}")
_DOUBLE = re.compile(r"0[dD][0-9a-fA-F]{16}")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)U?")
_PLACE = re.compile(r"([\w$.]+)\s*(?:\+\s*(-?\w+))?")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_GUARDED = re.compile(r"@(!?)(%?[\w$]+)\s+(.*)")
# Index of each field in a row of bytecode, and the row that every instruction starts from.
_WORD = {name[2:]: getattr(layout, name) // 8 for name in dir(layout) if name.startswith("I_")}
_BLANK = [-1 if index in {_WORD[f"V{n}"] for n in range(4)} else 0 for index in range(layout.INS_WORDS)]
_BLANK[_WORD["VEC"]] = 1


class Translator:
    """Builds the bytecode of one entry."""

    def __init__(self, entry: Function, functions: Mapping[str, Function], variables: Mapping[str, tuple[str, int]],
                 shared_static: int) -> None:  # fmt: skip
        self.entry, self.functions = entry, functions
        self.variables = dict(variables)  # name -> (space, offset or virtual address)
        self.shared_static, self.local_bytes = shared_static, 0
        self.rows: list[list[int]] = []
        self.size = 0
        self.constants: dict[tuple[int, int], Register] = {}
        self.special: dict[str, Register] = {}
        self.parameter_registers: dict[tuple[int, int, bool, int], Register] = {}
        self.scopes: list[Scope] = [Scope()]
        self.slots: dict[str, str] = {}  # name of a call's .param -> unique name
        self.slot_registers: dict[str, dict[int, tuple[Register, int]]] = {}  # unique name -> offset -> (place, bytes)
        self.labels: dict[str, int] = {}
        self.fixups: list[tuple[int, str, int | None]] = []
        self.sides: list[tuple[int, list[int]]] = []  # (row that wants it, register offsets)
        self.tables: dict[str, list[str]] = {}
        self.sealed: set[int] = set()  # rows in front of which `.pragma "nounroll"` stands
        self.prefix, self.depth, self.calls = "", 0, 0
        self.statements, self.characters = 0, 0
        self.line: int | None = None
        self.true = self.allocate(1)
        self.false = self.allocate(1)
        self.guard: tuple[int, int] = (self.true.offset, 0)
        self.carry = self.allocate(1)
        for axis in "xyz":
            self.special_register(f"%ctaid.{axis}")
        self.offsets: dict[str, int] = {}
        place = 0
        for parameter in entry.parameters:
            place = -(-place // parameter.align) * parameter.align
            self.offsets[parameter.name] = place
            place += parameter.size

    # registers and operands
    def allocate(self, slot: int) -> Register:
        """A fresh register of `slot` bytes a lane (1: predicate)."""
        place = Register(self.size, slot)
        self.size += 8 if slot == 1 else layout.LANES * slot
        if self.size > MAX_REGISTER_BYTES:
            raise Unsupported("too many registers", self.line)
        return place

    def constant(self, value: int, slot: int) -> Register:
        """A register that holds an integer in every lane."""
        key = (value & ((1 << (8 * slot)) - 1), slot)
        if key not in self.constants:
            self.constants[key] = self.allocate(slot)
        return self.constants[key]

    def special_register(self, name: str) -> Register:
        """A special register, filled by the machine."""
        if name not in self.special:
            self.special[name] = self.allocate(4)
        return self.special[name]

    def find(self, token: str) -> Register | None:
        """A declared register, or None."""
        for scope in reversed(self.scopes):
            if token in scope.places:
                return scope.places[token]
            kind = scope.type_of(token)
            if kind is not None:
                slot = 1 if kind == "pred" else 8 if kind.endswith("64") else 4
                if kind.endswith("128") or kind.startswith("v"):
                    raise Unsupported(f"register type {kind}", self.line)
                scope.places[token] = self.allocate(slot)
                return scope.places[token]
        return None

    def operand(self, token: str | Register, kind: str) -> Register:
        """The register that holds a source operand, as a value of `kind`."""
        slot = SLOT[kind]
        if isinstance(token, Register):
            place: Register | None = token
        else:
            place = self.find(token) or self.literal(token, kind)
        if place is None:
            raise Unsupported(f"operand {token}", self.line)
        if place.slot != slot:
            raise Unsupported(f"operand {token} is not {kind}", self.line)
        return place

    def literal(self, token: str, kind: str) -> Register | None:
        """Immediates, special registers, addresses of variables."""
        slot = SLOT[kind]
        if CLOCKS.match(token):
            raise Tampered(f"reads {token}", self.line)
        if token in SPECIAL:
            return self.special_register(token)
        if token.startswith(CLUSTER) and not self.entry.cluster:
            return self.cluster_register(token, slot)
        if token == "WARP_SZ":
            return self.constant(layout.LANES, slot)
        if _FLOAT.fullmatch(token):
            return self.constant(int(token[2:], 16), 4)
        if _DOUBLE.fullmatch(token):
            return self.constant(int(token[2:], 16), 8)
        if _INTEGER.fullmatch(token):
            value = integer(token)
            if slot == 1:
                return self.true if value else self.false
            if kind == "b16":
                value &= 0xFFFF
            return self.constant(value, slot)
        match = _PLACE.fullmatch(token)
        if match and match.group(1) in self.variables:
            return self.constant(self.variables[match.group(1)][1] + integer(match.group(2) or "0"), slot)
        if match and match.group(1) in self.offsets and not self.prefix and slot == 8:
            return self.parameter_address(match.group(1), integer(match.group(2) or "0"))
        return None

    def parameter_address(self, name: str, offset: int) -> Register:
        """A register with the address of a kernel parameter's byte."""
        if PARAMETER_BASE not in self.special:
            self.special[PARAMETER_BASE] = self.allocate(8)
        return self.temporary("add64lo", self.special[PARAMETER_BASE], imm=self.offsets[name] + offset)

    def cluster_register(self, token: str, slot: int) -> Register | None:
        """Special registers of clusters, for a kernel without: every block is a cluster of its own."""
        name, _, axis = token.partition(".")
        if name in ("%clusterid", "%nclusterid") and axis in ("x", "y", "z"):
            return self.special_register(f"%{'n' if name[1] == 'n' else ''}ctaid.{axis}")
        known = {"%cluster_ctaid": 0, "%cluster_nctaid": 1}
        if name in known and axis in ("x", "y", "z"):
            return self.constant(known[name], slot)
        known = {"%cluster_ctarank": 0, "%cluster_nctarank": 1}
        if token == "%is_explicit_cluster":
            return self.false
        return self.constant(known[token], slot) if token in known else None

    def target(self, token: str | Register, kind: str) -> Register:
        """The register that an instruction writes; `_` is a place nobody reads."""
        if isinstance(token, Register):
            return token
        if token == "_":
            return self.allocate(SLOT[kind])
        place = self.find(token)
        if place is None or place.slot != SLOT[kind]:
            raise Unsupported(f"destination {token} is not {kind}", self.line)
        return place

    # emission
    def emit(self, op: int, **fields: int) -> int:
        """Append a row; fields are names of layout constants without I_."""
        if len(self.rows) >= MAX_INSTRUCTIONS:
            raise Unsupported("too many instructions", self.line)
        row = _BLANK.copy()
        row[_WORD["OP"]] = op
        row[_WORD["GUARD"]], row[_WORD["GXOR"]] = self.guard
        row[_WORD["LINE"]] = self.line or 0
        for name, value in fields.items():
            row[_WORD[name]] = value
        self.rows.append(row)
        return len(self.rows) - 1

    def side_row(self, words: list[int]) -> int:
        """Register offsets that do not fit the next row: they go to a row of their own after the code.

        Returns:
            A place holder for that row's V3 (the row's number is known at the end).
        """
        if len(words) > layout.INS_WORDS:
            raise Unsupported("too many operands", self.line)
        self.sides.append((len(self.rows), words))
        return 0

    def vector(self, name: str, dst: str | Register, *sources: str | Register, imm: int = 0) -> Register:
        """Emit a vector operation by name; the register written."""
        number = opcode(name)
        if number is None:
            raise Unsupported(name, self.line)
        row = OPS[name]
        kinds = row.registers
        if len(kinds) != len(sources):
            raise Unsupported(f"{name} with {len(sources)} operands", self.line)
        places = [self.operand(s, k) for s, k in zip(sources, kinds, strict=True)]
        place = self.target(dst, row.dst)
        fields = dict(zip(("A", "B", "C", "V0"), (p.offset for p in places), strict=False))
        self.emit(number, D=place.offset, IMM=imm, **fields)
        return place

    def temporary(self, name: str, *sources: str | Register, imm: int = 0) -> Register:
        """A vector operation into a fresh register."""
        number = opcode(name)
        if number is None:
            raise Unsupported(name, self.line)
        return self.vector(name, self.allocate(SLOT[OPS[name].dst]), *sources, imm=imm)

    def address(self, token: str) -> tuple[int, int, int]:
        """[register+offset] or [variable+offset] -> (register offset, immediate, F_ADDR32 or 0)."""
        match = _ADDRESS.fullmatch(token)
        if match is None:
            raise Unsupported(f"address {token}", self.line)
        base, offset = match.group(1), integer(match.group(2) or "0")
        place = self.find(base)
        if place is not None and place.slot != 1:
            return place.offset, offset, layout.F_ADDR32 if place.slot == 4 else 0
        if base in self.variables:
            return self.constant(self.variables[base][1], 8).offset, offset, 0
        if re.fullmatch(r"\d+", base):
            return self.constant(integer(base), 8).offset, offset, 0
        raise Unsupported(f"address {token}", self.line)

    def kernel_parameter(self, name: str, offset: int, size: int, signed: bool, slot: int) -> Register:
        """A register that the machine fills with bytes of the kernel's parameters."""
        parameter = next((p for p in self.entry.parameters if p.name == name), None)
        if parameter is None or offset < 0 or offset + size > parameter.size:
            raise Unsupported(f"parameter {name}+{offset}", self.line)
        key = (self.offsets[name] + offset, size, signed, slot)
        if key not in self.parameter_registers:
            self.parameter_registers[key] = self.allocate(slot)
        return self.parameter_registers[key]

    # statements
    def run(self) -> EntryCode:
        """Translate the entry."""
        self.body(self.entry.body)
        self.guard = (self.true.offset, 0)
        self.emit(layout.OP_EXIT)
        for row, label, line in self.fixups:
            if label not in self.labels:
                raise Unsupported(f"branch to {label.split(':')[-1]}", line)
            self.rows[row][layout.I_IMM // 8] = self.labels[label]
        self.emit(layout.OP_EXIT)  # a label at the very end has a row to land on
        mark_rounds(self.rows, self.sealed, self.true.offset)
        for row, words in self.sides:
            self.rows[row][layout.I_V3 // 8] = len(self.rows)
            self.rows.append([*words, *[-1] * (layout.INS_WORDS - len(words))])
        image = np.zeros(-(-(self.size + 64) // 64) * 64, np.uint8)
        image[:4] = 255  # the predicate that is always true
        for (value, slot), place in self.constants.items():
            fill(image, place.offset, slot, value)
        return EntryCode(
            self.entry.name,
            self.entry.parameters,
            np.array(self.rows, np.int64),
            len(image),
            image,
            {name: p.offset for name, p in self.special.items()},
            tuple((p.offset, p.slot, at, size, signed) for (at, size, signed, _), p in
                  self.parameter_registers.items()),
            self.shared_static,
            -(-self.local_bytes // 16) * 16,
            self.entry.max_threads,
        )  # fmt: skip

    def body(self, text: str) -> None:
        """Translate the statements of a function body."""
        pending: str | None = None
        self.characters += len(text)
        for statement in statements(text):
            self.statements += 1
            if self.statements > MAX_STATEMENTS or self.characters > MAX_CHARACTERS or len(self.scopes) > MAX_SCOPES:
                raise Unsupported("a program too long or too deep", self.line)
            self.line = statement.line if statement.line is not None else self.line
            if statement.kind == "label":
                self.labels[self.prefix + statement.text] = len(self.rows)
                pending = statement.text
            elif statement.kind == "open":
                self.scopes.append(Scope())
            elif statement.kind == "close":
                self.scopes.pop()
            elif statement.kind == "directive":
                self.directive(statement, pending)
            else:
                self.instruction(statement.text)

    def directive(self, statement: Statement, label: str | None) -> None:
        """.reg, .param of a call, .shared and .local variables, .branchtargets; hints are skipped."""
        text = statement.text
        if text.startswith(".reg"):
            self.scopes[-1].declare(text)
        elif text.startswith(".param"):
            match = re.fullmatch(r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)\s*(?:\[\d+\])?", text)
            if match is None:
                raise Unsupported(text[:60], self.line)
            self.calls += 1
            self.slots[match.group(1)] = f"{match.group(1)}#{self.calls}"
        elif text.startswith(".branchtargets") and label is not None:
            self.tables[self.prefix + label] = [self.prefix + t.strip() for t in text.split(None, 1)[1].split(",")]
        elif text.startswith((".shared", ".local")):
            self.variable(parse_variable(text + ";"))
        elif text.startswith(".pragma") and "nounroll" in text:
            self.sealed.add(len(self.rows))
        elif not text.startswith((".pragma", ".callprototype", ".noreturn")):
            raise Unsupported(text[:60], self.line)

    def variable(self, variable: Variable) -> None:
        """Place a function-scope variable."""
        if len(self.variables) > MAX_VARIABLES:
            raise Unsupported("too many variables", self.line)
        self.variables = dict(self.variables)  # a caller's table stays as it is
        if variable.space == "shared":
            self.shared_static = -(-self.shared_static // variable.align) * variable.align
            self.variables[variable.name] = ("shared", self.shared_static)
            self.shared_static += variable.size
        else:
            self.local_bytes = -(-self.local_bytes // variable.align) * variable.align
            self.variables[variable.name] = ("local", self.local_bytes)
            self.local_bytes += variable.size

    def instruction(self, text: str) -> None:
        """One instruction with its guard."""
        from components.judge.emulate.instructions import translate

        match = _GUARDED.match(text)
        if match:
            predicate = self.find(match.group(2))
            if predicate is None or predicate.slot != 1:
                raise Unsupported(f"guard {match.group(2)}", self.line)
            self.guard = (predicate.offset, layout.FULL if match.group(1) else 0)
            text = match.group(3)
        name, _, rest = text.partition(" ")
        translate(self, name.split("."), split_operands(rest))
        self.guard = (self.true.offset, 0)

    def branch(self, label: str, op: int = layout.OP_BRA, **fields: int) -> None:
        """Emit a branch to a label that may come later."""
        self.fixups.append((self.emit(op, **fields), label, self.line))

    def inline(self, name: str, results: list[str], arguments: list[str]) -> None:
        """Expand a device function in place: registers, labels and local variables are its own."""
        function = self.functions.get(name)
        if function is None:
            raise Unsupported(f"call of {name}", self.line)
        if self.depth >= MAX_DEPTH:
            raise Unsupported(f"call of {name}: nested too deep or recursive", self.line)
        if len(results) != len(function.results) or len(arguments) != len(function.parameters):
            raise Unsupported(f"call of {name}: parameters do not match", self.line)
        self.calls += 1
        saved = (self.scopes, self.slots, self.prefix, self.guard, self.variables, self.line)
        end = f"c{self.calls}:end"
        if self.guard != (self.true.offset, 0):
            self.guard = (self.guard[0], self.guard[1] ^ layout.FULL)
            self.branch(end)
            self.guard = (self.true.offset, 0)
        formal = [*function.results, *function.parameters]
        self.slots = {f.name: self.slots[a] for f, a in zip(formal, [*results, *arguments], strict=True)}
        self.scopes, self.prefix, self.depth = [Scope()], f"c{self.calls}:", self.depth + 1
        self.body(function.body)
        self.scopes, self.slots, self.prefix, self.guard, self.variables, self.line = saved
        self.depth -= 1
        self.labels[end] = len(self.rows)
        self.emit(layout.OP_NOP)


def fill(image: NDArray[np.uint8], offset: int, slot: int, value: int) -> None:
    """Put an integer into every lane of a register of `slot` bytes a lane."""
    word = (value & ((1 << (8 * slot)) - 1)).to_bytes(slot, "little")
    image[offset : offset + layout.LANES * slot] = np.frombuffer(word * layout.LANES, np.uint8)


def type_parts(name: str, line: int | None) -> tuple[str, int]:
    """(letter, bytes) of a scalar type such as u32 or f64."""
    if name[:1] in "busf" and name[1:] in BYTES:
        return name[0], BYTES[name[1:]]
    raise Unsupported(f"type {name}", line)
