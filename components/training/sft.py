"""Stage `sft`: LoRA adapters and prefix encoder on (matrix, best program) pairs.

Run: python -m components.training.sft
In:  data/pairs/pairs.parquet, data/matrices, data/models/base
Out: data/models/sft, data/metrics/{sft.json,sft_curve.csv}
"""

import dataclasses
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
from components.settings import Settings, to_dict
from components.training.checkpoint import Checkpoint, fingerprint
from components.training.loop import fit, snapshot, unmoved
from components.training.rollout import Problem, Views, prompt_ids
from components.training.session import run_stage, write_curve

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Example:
    """A pair as the policy sees it."""

    matrix: str
    view: MatrixView
    prompt: list[int]
    program: list[int]  # end token included
    quality: float  # best time of the problem / this time, in (0, 1]


def examples(policy: Policy, pairs: "pd.DataFrame", settings: Settings, views: Views) -> list[Example]:
    """Pairs as token ids with their matrix's view; a program longer than `policy.max_tokens` is an error, not a cut.

    Raises:
        UserError: such a program.
    """
    matrices = {identity: load_by_id(settings.root, identity) for identity in pairs["matrix"].unique()}
    found = []
    rows: Any = pairs.itertuples()
    for row in rows:
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


class Sampler:
    """Draws batches: a problem at random, then one of its pairs with weight exp((quality - 1) / temperature)."""

    def __init__(self, pairs: Sequence[Example], temperature: float, seed: int):
        groups: dict[tuple[str, tuple[int, ...]], list[Example]] = {}
        for pair in pairs:
            groups.setdefault((pair.matrix, tuple(pair.prompt)), []).append(pair)
        self.groups = list(groups.values())
        weights = [np.exp((np.array([pair.quality for pair in group]) - 1) / temperature) for group in self.groups]
        self.weights = [weight / weight.sum() for weight in weights]
        self.seed = seed

    def batch(self, step: int, size: int) -> list[Example]:
        """The pairs of one step; the same at every call."""
        rng = np.random.default_rng([self.seed, 3, step])
        chosen = rng.integers(len(self.groups), size=size)
        return [self.groups[g][rng.choice(len(self.groups[g]), p=self.weights[g])] for g in chosen]


def sft(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote.

    Raises:
        UserError: an earlier stage has not run, or one of the two splits has no pair.
    """
    import pandas as pd

    from components.tracking.runs import stage_run

    started = time.perf_counter()
    chosen, root = settings.sft, settings.root
    if not (root / "data/pairs/pairs.parquet").is_file():
        raise UserError(f"{root / 'data/pairs/pairs.parquet'}: not found; run `dvc repro label`")
    inputs = [root / "data/pairs/pairs.parquet", root / "data/models/base"]
    checkpoint = Checkpoint(root, "sft", fingerprint(settings, ("seed", "policy", "sft"), inputs), chosen.checkpoint_s)
    state = checkpoint.load()
    torch.manual_seed(settings.seed + 1)
    policy = load_base(root / "data/models/base", settings.policy)
    policy.add_lora(settings.policy.lora)
    policy.to(pick_device())
    pairs = pd.read_parquet(root / "data/pairs/pairs.parquet")
    views = Views(settings.policy.prefix)
    train = examples(policy, pairs[pairs["split"] == "train"], settings, views)
    validation = examples(policy, pairs[pairs["split"] == "validation"], settings, views)
    if not train or not validation:
        raise UserError(
            f"data/pairs/pairs.parquet: {len(train)} train, {len(validation)} validation pairs; expected some of both"
        )
    policy.prefix.standardise(np.stack([example.view.structure for example in train]))
    initial = snapshot(dict(policy.trainable()))
    sampler = Sampler(train, chosen.quality_temperature, settings.seed)

    def loss_of(step: int) -> tuple[Tensor, int]:
        torch.manual_seed(step)  # adapter dropout and structure noise
        batch = sampler.batch(step, chosen.batch)
        return pair_loss(policy, batch, chosen.structure_noise), sum(
            len(pair.prompt) + len(pair.program) for pair in batch
        )

    def held_out() -> float:
        return mean_loss(policy, validation, chosen.batch)

    resumed = state["run_id"] if state else None
    with stage_run("sft", settings, tags=_tags(settings, pairs), resume_run_id=resumed) as run:
        outcome = fit(policy, loss_of, held_out, chosen, checkpoint, state, run)
        still = unmoved(initial, snapshot(dict(policy.trainable())))
        save_adapted(policy.cpu(), root / "data/models/sft", root / "data/models/base", _about(settings, outcome.steps))
        metrics: dict[str, Any] = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "parameters": sum(value.numel() for value in policy.parameters()),
            "trainable_parameters": sum(value.numel() for _, value in policy.trainable()),
            "train_pairs": len(train),
            "validation_pairs": len(validation),
            "train_problems": len(sampler.groups),
            **outcome.metrics(),
            "unmoved_parameters": still,
        }
        write_curve(root / "data/metrics/sft_curve.csv", outcome.curve)
        run.log_metrics(outcome.steps, {k: v for k, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(root / "data/metrics/sft_curve.csv")
    write_json(root / "data/metrics/sft.json", metrics)
    checkpoint.clear()
    return metrics


def pair_loss(policy: Policy, batch: Sequence[Example], noise: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats of the programs' tokens, end token included.

    `noise`: of the structure vectors, in deviations over the training matrices.
    """
    views = collate([example.view for example in batch], policy.device)
    if noise > 0:
        shaken = views.structure + noise * policy.prefix.deviation * torch.randn_like(views.structure)
        views = dataclasses.replace(views, structure=shaken)
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


def _about(settings: Settings, steps: int) -> dict[str, Any]:
    return {"seed": settings.seed, "steps": steps, "sft": to_dict(settings.sft)}


if __name__ == "__main__":
    sys.exit(run_stage(sft))
