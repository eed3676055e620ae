"""`sparserl matrices list|info|pull`."""

import argparse
import re
from pathlib import Path
from typing import Any

from components.cli import Exit, emit
from components.commands.session import writable_folder
from components.errors import UserError
from components.settings import load


def run_list(arguments: argparse.Namespace) -> int:
    """The manifest, one line a matrix."""
    from components.matrix.manifest import read_manifest

    frame = read_manifest(load().root)
    if arguments.split:
        frame = frame[frame["split"] == arguments.split]
    columns = ["matrix", "rows", "cols", "nnz", "structure_class", "split"]
    rows: list[dict[str, Any]] = frame[columns].to_dict("records")
    widths = [max(len(str(row[c])) for row in [dict(zip(columns, columns, strict=True)), *rows]) for c in columns]
    lines = ["  ".join(str(v).ljust(w) for v, w in zip(columns, widths, strict=True)).rstrip()]
    lines += ["  ".join(str(row[c]).ljust(w) for c, w in zip(columns, widths, strict=True)).rstrip() for row in rows]
    emit(arguments, {"matrices": rows}, "\n".join(lines))
    return Exit.GOOD


def run_info(arguments: argparse.Namespace) -> int:
    """Everything known of one matrix."""
    from components.matrix.info import matrix_info
    from components.matrix.load import load_matrix

    info = matrix_info(load_matrix(arguments.matrix))
    width = max(map(len, info))
    emit(arguments, info, "\n".join(f"{name.ljust(width)}  {_text(value)}" for name, value in info.items()))
    return Exit.GOOD


def run_pull(arguments: argparse.Namespace) -> int:
    """Download matrices by name; what is already there and matches its recorded hash is kept."""
    from components.matrix.collection import pull

    for name in arguments.names:
        if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", name):
            raise UserError(f"{name!r}: expected group/name, as in HB/ash219")
    paths = pull(arguments.names, load().matrices.collection, writable_folder(Path(arguments.out)))
    emit(arguments, {"files": [str(path) for path in paths]}, "\n".join(map(str, paths)))
    return Exit.GOOD


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
