"""The whole cycle: data, models, evaluation, then the registry. Run: python -m flows.cycle"""

from typing import Any

from prefect import flow

from flows.evaluate import evaluate
from flows.ingest import ingest
from flows.pretrain import pretrain
from flows.promote import promote
from flows.rl import rl
from flows.sft import sft


@flow(name="cycle")
def cycle() -> dict[str, Any]:
    """Bring everything up to date and register what came out; returns the metrics by stage and the gate's decision."""
    metrics: dict[str, Any] = {}
    for step in (ingest, pretrain, sft, rl, evaluate):
        metrics.update(step())
    return {**metrics, "promotion": promote()}


if __name__ == "__main__":
    cycle()
