"""Arithmetic of f16, bf16 and their packed pairs -> bytecode."""

from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
OPERATIONS = {
    **{name: {"rn", "ftz", "sat", "relu"} for name in ("add", "sub", "mul", "fma")},
    **{name: {"ftz", "NaN"} for name in ("min", "max")},
    **{name: {"ftz"} for name in ("neg", "abs")},
    "ex2": {"approx", "ftz"},
    "tanh": {"approx"},
}


def half(t: Translator, parts: list[str], o: list[str]) -> None:
    """One instruction with its modifiers: ftz flushes operands and result, then relu or sat clamps the result."""
    base, kind, modes = parts[0], parts[-1], set(parts[1:-1])
    if base not in OPERATIONS or not modes <= OPERATIONS[base] or ("relu" in modes and base != "fma"):
        raise Unsupported(".".join(parts), t.line)
    sources: list[str | Register] = list(o[1:])
    if "ftz" in modes:
        sources = [t.temporary(f"ftz.{kind}", s) for s in sources]
    t.vector(f"{base}nan.{kind}" if "NaN" in modes else f"{base}.{kind}", o[0], *sources)
    for mode, row in (("ftz", "ftz"), ("relu", "relu"), ("sat", "saturate")):
        if mode in modes:
            t.vector(f"{row}.{kind}", o[0], o[0])
