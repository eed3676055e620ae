"""Counters and the first fault, as the core writes them into the machine's state."""

from components.judge.emulate import layout
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import ld64, st64


@jit
def fault(state: int, code: int, warp: int, lane: int, buffer: int, address: int, size: int) -> int:
    """Record the first fault and give its code back."""
    st64(state + layout.S_FAULT, code)
    st64(state + layout.S_FAULT_WARP, warp)
    st64(state + layout.S_FAULT_LANE, lane)
    st64(state + layout.S_FAULT_BUFFER, buffer)
    st64(state + layout.S_FAULT_ADDR, address)
    st64(state + layout.S_FAULT_SIZE, size)
    return code


@jit
def bump(state: int, counter: int, amount: int) -> None:
    """Add to a counter."""
    st64(state + counter, ld64(state + counter) + amount)
