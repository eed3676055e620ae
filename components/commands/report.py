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
    lines = [f"{name}: {_text(v)}" for name, v in metrics.items() if v is not None and not isinstance(v, dict | list)]
    emit(arguments, {"report": str(page), "metrics": metrics}, "\n".join([str(page), *lines]))
    return Exit.GOOD


def _text(value: object) -> str:
    """A number as people read it."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.4g}"
    return str(value)
