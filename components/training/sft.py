"""Stage `sft`: LoRA adapters and prefix encoder on (matrix, best program) pairs.

Run: python -m components.training.sft
In:  data/pairs/pairs.parquet, data/matrices, data/models/base
Out: data/models/sft, data/metrics/{sft.json,sft_curve.csv}
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from components.errors import UserError
from components.files import write_json
from components.matrix.manifest import load_by_id
from components.policy import tokenizer as text
from components.policy.model import Policy, pick_device
from components.policy.prefix import MatrixView, collate
from components.policy.storage import load_base, save_adapted
from components.settings import Settings
from components.training.checkpoint import Budget, Checkpoint, fingerprint, learning_rate
from components.training.rollout import Problem, Views, prompt_ids
from components.training.session import moved, run_stage, write_curve

if TYPE_CHECKING:
    import pandas as pd

_EVALUATIONS = 8  # held-out measurements along the way


@dataclass(frozen=True, eq=False)
class Example:
    """A pair as the policy sees it."""

    matrix: str
    view: MatrixView
    prompt: list[int]
    program: list[int]  # end token included
    weight: float  # measured quality, in (0, 1]


def examples(policy: Policy, pairs: "pd.DataFrame", settings: Settings, views: Views) -> list[Example]:
    """Pairs as token ids with their matrix's view; a program longer than `policy.max_tokens` is an error, not a cut.

    Raises:
        UserError: such a program.
    """
    matrices = {identity: load_by_id(settings.root, identity) for identity in pairs["matrix"].unique()}
    found = []
    for row in pairs.itertuples():
        program = [*text.encode(policy.tokenizer, row.source), policy.tokenizer.eos_token_id]
        if len(program) > settings.policy.max_tokens:
            most = settings.policy.max_tokens
            raise UserError(
                f"policy.max_tokens: a program of {row.family} has {len(program)} tokens; expected at most {most}"
            )
        problem = Problem(matrices[row.matrix], row.operator, int(row.width))
        prompt = prompt_ids(policy, problem, row.arch)
        found.append(Example(row.matrix, views.of(problem.matrix), prompt, program, float(row.quality)))
    return found


def sft(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote."""
    import pandas as pd
    from tqdm import tqdm

    from components.tracking.runs import stage_run

    started = time.perf_counter()
    chosen, root = settings.sft, settings.root
    key = fingerprint(
        settings, ("seed", "policy", "sft"), [root / "data/pairs/pairs.parquet", root / "data/models/base"]
    )
    checkpoint = Checkpoint(settings, "sft", key, chosen.checkpoint_s)
    state = checkpoint.load()
    torch.manual_seed(settings.seed + 1)
    policy = load_base(root / "data/models/base", settings.policy)
    policy.add_lora(settings.policy.lora)
    policy.to(pick_device())
    pairs = pd.read_parquet(root / "data/pairs/pairs.parquet")
    views = Views(settings.policy.prefix, settings.seed)
    train = examples(policy, pairs[pairs["split"] == "train"], settings, views)
    held_out = examples(policy, pairs[pairs["split"] == "validation"], settings, views)
    if not train or not held_out:
        raise UserError(
            f"data/pairs/pairs.parquet: {len(train)} train and {len(held_out)} validation pairs; expected some of both"
        )
    policy.prefix.standardise(np.stack([example.view.structure for example in train]))
    parameters = dict(policy.trainable())
    initial = {name: value.detach().clone() for name, value in parameters.items()}
    optimiser = torch.optim.AdamW(parameters.values(), lr=chosen.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    step, curve = 0, []
    if state is not None:
        step, curve = state["step"], state["curve"]
        policy.load_state_dict(state["policy"], strict=False)
        optimiser.load_state_dict(state["optimiser"])
    budget = Budget(chosen.budget_s, chosen.max_steps, state["spent_s"] if state else 0.0)
    weights = np.array([example.weight for example in train])
    weights /= weights.sum()
    with (
        stage_run(
            "sft", settings, tags=_tags(settings, pairs), resume_run_id=state["run_id"] if state else None
        ) as run,
        tqdm(total=100, desc="sft", unit="%", bar_format="{l_bar}{bar}| {elapsed}{postfix}", disable=None) as bar,
    ):
        if not curve:
            curve.append({"step": 0, "loss": None, "heldout_loss": mean_loss(policy, held_out, chosen.batch)})
        measured = int(budget.progress(step) * _EVALUATIONS)
        while not budget.over(step):
            progress = budget.progress(step)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(chosen.learning_rate, chosen.warmup_steps, step, progress)
            rng = np.random.default_rng([settings.seed, 3, step])
            loss = pair_loss(policy, [train[i] for i in rng.choice(len(train), chosen.batch, p=weights)])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
            optimiser.step()
            step += 1
            row: dict[str, Any] = {"step": step, "loss": float(loss), "heldout_loss": None}
            if int(budget.progress(step) * _EVALUATIONS) > measured:
                measured = int(budget.progress(step) * _EVALUATIONS)
                row["heldout_loss"] = mean_loss(policy, held_out, chosen.batch)
            curve.append(row)
            run.log_metrics(step, {name: v for name, v in row.items() if name != "step" and v is not None})
            bar.n = int(100 * budget.progress(step))
            bar.set_postfix(loss=f"{row['loss']:.3f}", step=step)
            if checkpoint.due():
                checkpoint.save(_state(step, curve, policy, optimiser, budget, run.run_id))
        checkpoint.save(_state(step, curve, policy, optimiser, budget, run.run_id))
        changed, total = moved(initial, dict(policy.trainable()))
        metrics = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "steps": step,
            "pairs": len(train),
            "parameters_trained": sum(value.numel() for value in parameters.values()),
            "heldout_loss_before": curve[0]["heldout_loss"],
            "heldout_loss": mean_loss(policy, held_out, chosen.batch),
            "tensors_moved": changed,
            "tensors": total,
        }
        save_adapted(policy.cpu(), root / "data/models/sft", root / "data/models/base", {"run_id": run.run_id})
        write_curve(root / "data/metrics/sft_curve.csv", curve)
        run.log_metrics(step, {name: v for name, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(root / "data/metrics/sft_curve.csv")
    write_json(root / "data/metrics/sft.json", metrics)
    checkpoint.clear()
    return metrics


def pair_loss(policy: Policy, batch: Sequence[Example]) -> Tensor:
    """Mean cross-entropy in nats of the programs' tokens, end token included."""
    views = collate([example.view for example in batch], policy.device)
    scores = policy.score(views, [e.prompt for e in batch], [e.program for e in batch])
    return -(scores.logprobs * scores.mask).sum() / scores.mask.sum()


@torch.no_grad()
def mean_loss(policy: Policy, held_out: Sequence[Example], batch: int) -> float:
    """Mean cross-entropy in nats per token over all of `held_out`."""
    policy.eval()
    total = tokens = 0.0
    for start in range(0, len(held_out), batch):
        part = held_out[start : start + batch]
        count = sum(len(example.program) for example in part)
        total += float(pair_loss(policy, part)) * count
        tokens += count
    policy.train()
    return total / tokens


def _tags(settings: Settings, pairs: "pd.DataFrame") -> dict[str, str]:
    return {
        "profile": settings.policy.profile,
        "arch": ",".join(sorted(pairs["arch"].unique())),
        "timing": ",".join(sorted(pairs["timing"].unique())),
        "op": ",".join(sorted(pairs["operator"].unique())),
    }


def _state(
    step: int,
    curve: list[dict[str, Any]],
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    budget: Budget,
    run_id: str,
) -> dict[str, Any]:
    trained = {name for name, _ in policy.trainable()}
    return {
        "step": step,
        "curve": curve,
        "policy": {name: value for name, value in policy.state_dict().items() if name in trained},
        "optimiser": optimiser.state_dict(),
        "spent_s": budget.spent_s,
        "run_id": run_id,
    }


if __name__ == "__main__":
    sys.exit(run_stage(sft))
