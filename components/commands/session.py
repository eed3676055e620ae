"""What several commands share: the settings they run with, the judge they ask, the folder they write to."""

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import UserError
from components.settings import JudgeSettings, Settings

if TYPE_CHECKING:
    from components.judge.judge import Judge
    from components.matrix.types import SparseMatrix


def load_real_matrix(spec: str) -> "SparseMatrix":
    """The matrix a command was given.

    Raises:
        UserError: it cannot be read, or it is complex, which no operator supports yet.
    """
    import numpy as np

    from components.matrix.load import load_matrix

    matrix = load_matrix(spec)
    if np.iscomplexobj(matrix.values):
        raise UserError(f"{spec}: complex matrices are not supported by spmv and spmm yet; expected real values")
    return matrix


def writable_folder(out: Path) -> Path:
    """The folder, made now: a path that cannot be one is told before any work is done.

    Raises:
        UserError: it cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}; expected a folder that can be written") from None
    return out


def judge_settings(arguments: argparse.Namespace, settings: Settings) -> JudgeSettings:
    """params.yaml's judge section with the command line's choices on top."""
    judge = settings.judge
    if arguments.backend != "auto":
        judge = dataclasses.replace(judge, backend=arguments.backend)
    if arguments.arch != "auto":
        judge = dataclasses.replace(judge, arch=arguments.arch)
    if getattr(arguments, "no_cache", False):
        judge = dataclasses.replace(judge, cache=False)
    return judge


def open_judge(arguments: argparse.Namespace, settings: Settings, workers: int | None = None) -> "Judge":
    """A judge for the architecture and backend asked for; use it as a context manager."""
    from components.judge.judge import Judge, resolve_backend

    judge = judge_settings(arguments, settings)
    backend, arch = resolve_backend(judge)
    return Judge(judge, arch, backend, workers=workers if workers is not None else judge.workers)
