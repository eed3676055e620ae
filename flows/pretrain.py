"""Train the tokenizer and pre-train the model on CUDA source. Run: python -m flows.pretrain"""

from typing import Any

from prefect import flow

from flows.steps import PRETRAIN, run_step


@flow(name="pretrain")
def pretrain() -> dict[str, Any]:
    """Train the tokenizer and pre-train the model on CUDA source. Returns the metrics by stage."""
    return run_step(PRETRAIN)


if __name__ == "__main__":
    pretrain()
