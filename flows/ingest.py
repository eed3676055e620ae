"""Pull or generate matrices, pull the corpus, validate both. Run: python -m flows.ingest"""

from typing import Any

from prefect import flow

from flows.steps import INGEST, run_step


@flow(name="ingest")
def ingest() -> dict[str, Any]:
    """Pull or generate matrices, pull the corpus, validate both. Returns the metrics by stage."""
    return run_step(INGEST)


if __name__ == "__main__":
    ingest()
