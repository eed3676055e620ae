"""Reinforce the policy on the judge's verdicts. Run: python -m flows.rl"""

from typing import Any

from prefect import flow

from flows.steps import RL, run_step


@flow(name="rl")
def rl() -> dict[str, Any]:
    """Reinforce the policy on the judge's verdicts. Returns the metrics by stage."""
    return run_step(RL)


if __name__ == "__main__":
    rl()
