"""What an entry of the suite is, and the shape that most programs share."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.judge.hostile_programs import matrix

TARGET = matrix(300, 280, 5, 1)  # friendly: every row holds five entries


@dataclass(frozen=True)
class Hostile:
    """A program that must not pass, and the statuses that are right for it."""

    kind: str  # a way to cheat or to err
    allowed: frozenset[str]
    source: str
    operator: str = "spmv"
    width: int = 1


def hostile(kind: str, allowed: str, source: str, operator: str = "spmv", width: int = 1) -> Hostile:
    """One entry; `allowed` lists statuses with blanks between."""
    return Hostile(kind, frozenset(allowed.split()), source, operator, width)


def merged(*parts: Mapping[str, Hostile]) -> dict[str, Hostile]:
    """All entries; a name that comes twice is a mistake."""
    found: dict[str, Hostile] = {}
    for part in parts:
        if twice := found.keys() & part.keys():
            raise ValueError(f"named twice: {sorted(twice)}")
        found |= part
    return found


CSR = "const int* row_ptr, const int* col_idx, const float* values"
ALL = f"{CSR}, const float* x, float* y, int rows, int cols, int nnz"
AX = "values[k] * x[col_idx[k]]"
AB = "values[k] * B[col_idx[k] * width + c]"


def loop(body: str, first: str = "row_ptr[r]", last: str = "row_ptr[r + 1]", step: str = "++k", start: str = "") -> str:
    """The loop over the entries `k` of row `r`, with the sum `s` declared before it unless `start` is given."""
    return f"{start or 'float s = 0.f;'} for (int k = {first}; k < {last}; {step}) {body};"


SUM = loop(f"s += {AX}")


def spmm(store: str, *, total: str = loop(f"s += {AB}"), before: str = "") -> str:
    """A CSR program for C = A B with one thread an element; `store` says what to do with the sum `s`."""
    return (
        f"// format: csr\n// launch: spmm grid=ceil_div(rows*width, 128) block=128\n{before}"
        f'extern "C" __global__ void spmm({CSR}, const float* B, float* C, int rows, int cols, int width) {{\n'
        "const int i = blockIdx.x * 128 + threadIdx.x, r = i / width, c = i % width;\nif (r >= rows) return;\n"
        f"{total}\n{store}\n}}\n"
    )
