"""`sparserl baseline M`."""

import argparse

from components.cli import Exit, emit, width_of
from components.commands.session import load_real_matrix, open_judge
from components.settings import load


def run(arguments: argparse.Namespace) -> int:
    """Time of the baseline on a matrix, by name, with its timing kind."""
    matrix = load_real_matrix(arguments.matrix)
    width = width_of(arguments)
    with open_judge(arguments, load(), workers=1) as judge:
        name, time_us = judge.baseline(matrix, arguments.op, width, arguments.precision)
        timing = "measured" if judge.backend == "gpu" else "modelled"
        problem = {"operator": arguments.op, "width": width, "precision": arguments.precision}
        data = {"matrix": matrix.id, **problem, "arch": judge.arch, "timing": timing}
    emit(
        arguments,
        {**data, "baseline": name, "baseline_us": time_us},
        f"{matrix.id}  {arguments.op} width {width} {arguments.precision}  {judge.arch}  {name}: {time_us:.2f} us "
        f"({timing})",
    )
    return Exit.GOOD
