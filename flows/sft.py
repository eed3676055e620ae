"""Label pairs with the judge and fine-tune on them. Run: python -m flows.sft"""

from typing import Any

from prefect import flow

from flows.steps import SFT, run_step


@flow(name="sft")
def sft() -> dict[str, Any]:
    """Label pairs with the judge and fine-tune on them. Returns the metrics by stage."""
    return run_step(SFT)


if __name__ == "__main__":
    sft()
