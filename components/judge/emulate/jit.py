"""How the core's functions are compiled: cached on disk, without the GIL, no fast-math, no contraction."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def jit(function: _Function) -> _Function:
    """numba's njit with the core's options."""
    compile_it: Any = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
    return cast(_Function, compile_it(function))
