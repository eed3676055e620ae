"""`sparserl judge KERNEL.cu --matrix M`."""

import argparse
from pathlib import Path

from components.cli import Exit, emit, width_of
from components.commands.session import load_real_matrix, open_judge
from components.errors import UserError
from components.settings import load

_MAX_BYTES = 1 << 20


def run(arguments: argparse.Namespace) -> int:
    """Judge one program; exit 0 only when it is correct."""
    from components.judge.judge import JudgeRequest
    from components.judge.render import format_verdict

    source = _read(Path(arguments.kernel))
    matrix = load_real_matrix(arguments.matrix)
    request = JudgeRequest(source, matrix, arguments.op, width_of(arguments), arguments.precision)
    with open_judge(arguments, load(), workers=1) as judge:
        verdict = judge.judge(request)
    emit(arguments, {"matrix": matrix.id, **verdict.to_dict()}, format_verdict(verdict, source))
    return Exit.GOOD if verdict.correct else Exit.BAD_VERDICT


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
