"""Evaluate on the test split and write the report. Run: python -m flows.evaluate"""

from typing import Any

from prefect import flow

from flows.steps import EVALUATE, run_step


@flow(name="evaluate")
def evaluate() -> dict[str, Any]:
    """Evaluate on the test split and write the report. Returns the metrics by stage."""
    return run_step(EVALUATE)


if __name__ == "__main__":
    evaluate()
