"""`sparserl report`."""

import argparse

from components.cli import Exit, emit
from components.errors import UserError
from components.files import read_json
from components.settings import load


def run(arguments: argparse.Namespace) -> int:
    """Say where the report lies and print its metrics."""
    root = load().root
    page = root / "data" / "report" / "index.html"
    if not page.is_file():
        raise UserError(f"{page}: not there yet; run `dvc repro`")
    metrics = read_json(root / "data" / "metrics" / "evaluate.json")
    lines = [f"{name}: {value}" for name, value in metrics.items() if not isinstance(value, dict | list)]
    emit(arguments, {"report": str(page), "metrics": metrics}, "\n".join([str(page), *lines]))
    return Exit.GOOD
