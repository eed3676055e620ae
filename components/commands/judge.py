"""`sparserl judge KERNEL.cu --matrix M`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from components.cli import Exit, emit, width_of
from components.commands.session import load_real_matrix, open_judge
from components.errors import UserError
from components.settings import load

if TYPE_CHECKING:
    from components.judge.verdict import Verdict

_MAX_BYTES = 1 << 20


def run(arguments: argparse.Namespace) -> int:
    """Judge one program; exit 0 only when it is correct."""
    from components.judge.judge import JudgeRequest
    from components.judge.render import format_verdict

    source = _read(Path(arguments.kernel))
    matrix = load_real_matrix(arguments.matrix)
    request = JudgeRequest(source, matrix, arguments.op, width_of(arguments))
    with open_judge(arguments, load(), workers=1) as judge:
        verdict = judge.judge(request)
    if verdict.correct and matrix.nnz == 0:
        verdict = _untimed(verdict)
    emit(arguments, {"matrix": matrix.id, **verdict.to_dict()}, format_verdict(verdict, source))
    return Exit.GOOD if verdict.correct else Exit.BAD_VERDICT


def _untimed(verdict: "Verdict") -> "Verdict":
    """What is left of a verdict on a matrix without entries: the time of an empty launch is nobody's speed-up."""
    note = "; ".join(filter(None, ["the matrix has no entries: nothing to time", verdict.message]))
    return verdict.with_(message=note, **dict.fromkeys(_OF_TIME))


_OF_TIME = (
    "time_us", "p10_us", "p90_us", "cv", "baseline", "baseline_us", "speedup", "speedup_interval", "samples",
    "time_cold_us", "speedup_cold", "speedup_cold_interval", "baselines", "floor_us", "reliable",
    "unreliable_because", "clocks", "convert_us", "break_even", "bytes_moved", "timing",
)  # fmt: skip


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: not a regular file; expected a kernel program (.cu)")
        if path.is_file() and path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: {path.stat().st_size} bytes; a kernel program has at most {_MAX_BYTES}")
        return path.read_bytes().decode("utf-8", errors="surrogateescape").encode("utf-8", "replace").decode()
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; expected a kernel program (.cu)") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected a kernel program (.cu)") from None
