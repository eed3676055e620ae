"""The supervised training loop that pre-training and fine-tuning share: schedule, budget, checkpoints, curve, best."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from components.training.checkpoint import Budget, Checkpoint, learning_rate

if TYPE_CHECKING:
    from components.tracking.runs import StageRun

LOOKS = 8  # at the held-out data, spread over the budget
MAX_NORM = 1.0  # of the gradient
BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


class Schedule(Protocol):
    """What the loop reads of a stage's settings."""

    @property
    def budget_s(self) -> float:
        """Wall clock, s."""

    @property
    def max_steps(self) -> int:
        """Optimiser steps."""

    @property
    def learning_rate(self) -> float:
        """Peak."""

    @property
    def warmup_steps(self) -> int:
        """Of the linear warm-up."""


@dataclass
class Outcome:
    """What a loop did; `curve` has a row per step, `held_out` in those where it was looked at."""

    steps: int
    seconds: float
    tokens: int
    stopped_by: str
    first: float  # held-out loss before the first step
    best: float
    best_step: int
    curve: list[dict[str, float]] = field(default_factory=list)

    def metrics(self) -> dict[str, Any]:
        """Plain numbers for the stage's metrics file."""
        return {
            "steps": self.steps,
            "train_seconds": round(self.seconds, 2),
            "tokens": self.tokens,
            "tokens_per_s": round(self.tokens / max(self.seconds, 1e-9), 1),
            "stopped_by": self.stopped_by,
            "held_out_before": self.first,
            "held_out_after": self.best,
            "best_step": self.best_step,
        }


def fit(
    module: nn.Module,
    loss_of: Callable[[int], tuple[Tensor, int]],
    held_out: Callable[[], float],
    schedule: Schedule,
    checkpoint: Checkpoint,
    state: Mapping[str, Any] | None,
    run: "StageRun",
) -> Outcome:
    """Train the parameters of `module` that require gradients; it ends with its best held-out weights.

    Args:
        module: what is trained.
        loss_of: step -> (loss in nats per token, tokens in the batch). It draws its batch from the step's number alone,
            so that a resumed run sees what an uninterrupted one would have seen.
        held_out: loss on data that is not trained on, nats per token.
        schedule: budget and learning rate.
        checkpoint: where the state goes; cleared by the caller once the stage's output is written.
        state: from `checkpoint.load()`.
        run: gets the metrics.
    """
    weights = {name: value for name, value in module.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(
        weights.values(), schedule.learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    if state:
        restore(weights, state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        step, tokens, best, looks = state["step"], state["tokens"], dict(state["best"]), state["looks"]
        first, curve = state["first"], list(state["curve"])
    else:
        first = held_out()
        step, tokens, looks, curve = 0, 0, 1, []
        best = {"loss": first, "step": 0, "weights": snapshot(weights)}
    budget = Budget(schedule.budget_s, schedule.max_steps, state["spent_s"] if state else 0.0)
    module.train()
    with tqdm(total=100, desc=checkpoint.stage, unit="%", disable=None, bar_format=BAR) as bar:
        while not budget.over(step):
            rate = learning_rate(schedule.learning_rate, schedule.warmup_steps, step, budget.progress(step))
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss, count = loss_of(step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights.values(), MAX_NORM)
            optimizer.step()
            step, tokens = step + 1, tokens + count
            row = {
                "step": step,
                "loss": float(loss.detach()),
                "learning_rate": rate,
                "seconds": budget.spent_s,
            }
            if budget.progress(step) >= looks / LOOKS or budget.over(step):
                looks += 1
                row["held_out"] = held_out()
                module.train()
                if row["held_out"] < best["loss"]:
                    best = {"loss": row["held_out"], "step": step, "weights": snapshot(weights)}
            curve.append(row)
            run.log_metrics(step, {name: value for name, value in row.items() if name != "step"})
            bar.set_postfix(step=step, loss=f"{row['loss']:.3f}", refresh=False)
            bar.update(round(100 * budget.progress(step)) - bar.n)
            if checkpoint.due():
                checkpoint.save(
                    {
                        "step": step,
                        "tokens": tokens,
                        "best": best,
                        "looks": looks,
                        "first": first,
                        "curve": curve,
                        "weights": snapshot(weights),
                        "optimizer": optimizer.state_dict(),
                        "spent_s": budget.spent_s,
                        "run_id": run.run_id,
                    }
                )
    restore(weights, best["weights"])
    stopped = budget.stopped_by(step)
    return Outcome(step, budget.spent_s, tokens, stopped, first, best["loss"], best["step"], curve)


def snapshot(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in weights.items()}


@torch.no_grad()
def restore(weights: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the weights of the same names."""
    for name, value in weights.items():
        value.copy_(saved[name])


def unmoved(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that did not change at all; empty when every one moved."""
    return [name for name in before if torch.equal(before[name].cpu(), after[name].cpu())]
