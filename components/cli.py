"""The `sparserl` command: parses, dispatches, and turns errors into exit codes.

Exit 0: good. 1: a bad verdict (the kernel is not correct, a gate refused, a check failed). 2: a user error, one line on
stderr. 3: the output could not be written. 4: SparseRL itself failed; no verdict. 130: interrupted. 141: the reader of
the output went away. `--json` prints exactly one object on stdout; of a user error it is {"error": "..."}, except for
arguments that do not parse. Heavy imports happen inside the commands: `--help` stays quick.
"""

import argparse
import contextlib
import errno
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from components.errors import SparseRLError, UserError


class Exit(IntEnum):
    """Exit codes of every command."""

    GOOD = 0
    BAD_VERDICT = 1
    USER_ERROR = 2
    OUTPUT_ERROR = 3
    FAILED = 4
    INTERRUPTED = 130
    READER_GONE = 141


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, and whose help fails when it cannot be printed."""

    def error(self, message: str) -> Any:
        self.exit(Exit.USER_ERROR, f"{self.prog}: {message}; see {self.prog} --help\n")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file, flush=True)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="sparserl", description="A sparse matrix, an operator and a GPU in; a verified CUDA kernel out."
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    judge = _command(
        commands,
        "judge",
        "judge:run",
        "judge one kernel program on one matrix",
        "The matrix gives the pattern; its values are redrawn, so that no program can know the answer. A program must "
        "be right on this pattern and on a fixed set of adversarial ones.",
    )
    judge.add_argument("kernel", metavar="KERNEL.cu")
    judge.add_argument("--matrix", "-m", required=True, metavar="M", help=_MATRIX)
    _operator(judge)
    _target(judge)
    judge.add_argument("--no-cache", action="store_true", help="judge anew even if this verdict is known")

    tune = _command(commands, "tune", "tune:run", "matrix in, verified kernel and report out")
    tune.add_argument("matrix", metavar="M", help=_MATRIX)
    _operator(tune)
    _target(tune)
    tune.add_argument("--candidates", type=_positive, default=32, metavar="K", help="programs to judge (default 32)")
    tune.add_argument(
        "--out", metavar="DIR", help="where kernel.cu and report.md go (default: tuned/<matrix>/<op>-<width>)"
    )
    tune.add_argument("--seed", type=_natural, default=0, help="which programs are tried (default 0)")

    baseline = _command(commands, "baseline", "baseline:run", "what the baseline needs on a matrix")
    baseline.add_argument("matrix", metavar="M", help=_MATRIX)
    _operator(baseline)
    _target(baseline)

    matrices = commands.add_parser("matrices", help="list, describe or pull matrices")
    actions = matrices.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
    listing = _command(actions, "list", "matrices:run_list", "the project's matrices")
    listing.add_argument("--split", choices=("train", "validation", "test"))
    info = _command(actions, "info", "matrices:run_info", "shape, entries, structure of a matrix")
    info.add_argument("matrix", metavar="M", help=_MATRIX)
    pull = _command(actions, "pull", "matrices:run_pull", "download from the SuiteSparse Matrix Collection")
    pull.add_argument("names", nargs="+", metavar="group/name")
    pull.add_argument("--out", metavar="DIR", default=".", help="folder for <group>/<name>.tar.gz (default: here)")

    _command(commands, "report", "report:run", "where the last report lies and its headline numbers")
    _command(commands, "doctor", "doctor:run", "what works on this machine: compiler, interpreter, GPU, stores")

    _command(commands, "champions", "registry:run_champions", "the promoted model of each architecture")
    promote = _command(commands, "promote", "registry:run_promote", "promote the newest version if the gate lets it")
    promote.add_argument("--arch", help="sm_XX (default: the architecture it was evaluated on)")
    promote.add_argument("--version", type=_positive, help="registered version (default: newest)")
    rollback = _command(commands, "rollback", "registry:run_rollback", "give the alias back to the previous champion")
    rollback.add_argument("--arch", required=True, help="sm_XX")
    return parser


_MATRIX = ".mtx, .mtx.gz, the collection's .tar.gz, scipy's .npz, or group/name of the project's matrices"


def _command(commands: Any, name: str, target: str, summary: str, more: str = "") -> argparse.ArgumentParser:
    description = f"{summary}. {more}" if more else summary
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(target=target)
    return parser


def _operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", choices=("spmv", "spmm"), default="spmv", help="y = A x, or C = A B (default spmv)")
    parser.add_argument("--width", type=_positive, metavar="N", help="dense columns of B, spmm only (default 32)")
    parser.add_argument(
        "--precision",
        choices=("float32", "float64", "float16", "bfloat16"),
        default="float32",
        help="of the numbers; the 16-bit ones sum in float32 (default float32)",
    )


def _target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default="auto", help="auto or sm_XX; auto takes the GPU's own")
    parser.add_argument("--backend", choices=("auto", "emulator", "gpu"), default="auto", help="where programs run")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return value


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, found {text!r}")
    return int(text)


def width_of(arguments: argparse.Namespace) -> int:
    """Dense columns asked for: 1 for spmv, 32 for spmm by default.

    Raises:
        UserError: a width was given to spmv.
    """
    if arguments.op == "spmv":
        if arguments.width not in (None, 1):
            raise UserError("--width belongs to --op spmm; spmv multiplies one vector")
        return 1
    return arguments.width or 32


def emit(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    """Print the JSON object or the text, whichever was asked for."""
    print(json.dumps(data, allow_nan=False) if arguments.json else text, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = argparse.Namespace(debug=False)
    try:
        arguments = build_parser().parse_args(argv)
        return _run(arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return Exit.READER_GONE
    except Exception as error:
        if arguments.debug:
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            _drop_output()
            _say(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
            return Exit.OUTPUT_ERROR
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return Exit.FAILED


def _run(arguments: argparse.Namespace) -> int:
    module, function = arguments.target.split(":")
    run: Callable[[argparse.Namespace], int] = getattr(
        importlib.import_module(f"components.commands.{module}"), function
    )
    try:
        return run(arguments)
    except SparseRLError as error:
        if arguments.debug:
            raise
        line = " ".join(str(error).split())
        _say(line)
        if arguments.json:
            emit(arguments, {"error": line}, "")
        return Exit.USER_ERROR if isinstance(error, UserError) else Exit.FAILED


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def _say(line: str) -> None:
    """One line on stderr, if it can be written; the exit code tells the rest."""
    with contextlib.suppress(OSError):
        print(f"sparserl: {line}", file=sys.stderr, flush=True)


def _drop_output() -> None:
    """What is still buffered for stdout or stderr goes nowhere, or the interpreter fails on it as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
