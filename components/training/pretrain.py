"""Stage `pretrain`: next-token training on CUDA source and the project's own kernel programs.

Run: python -m components.training.pretrain
In:  data/corpus/corpus.parquet, data/models/tokenizer
Out: data/models/base, data/metrics/{pretrain.json,pretrain_curve.csv}
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from components.files import write_json
from components.matrix.features import FEATURE_NAMES
from components.policy import tokenizer as text
from components.policy.model import Policy, pick_device
from components.policy.storage import new_policy, save_base
from components.settings import Settings
from components.training.checkpoint import Budget, Checkpoint, fingerprint, learning_rate
from components.training.session import moved, run_stage, write_curve
from components.training.texts import corpus_texts, program_texts

_HELD_OUT_FILES = 40  # of the corpus, never trained on
_HELD_OUT_ROWS = 64  # rows of context tokens in each held-out measurement
_EVALUATIONS = 6  # held-out measurements along the way


class Streams:
    """Token streams to draw rows from: corpus files and programs, each document between begin and end tokens."""

    def __init__(self, settings: Settings, tokenizer: Any):
        rng = np.random.default_rng(settings.seed)
        files = corpus_texts(settings)
        order = rng.permutation(len(files))
        held = [files[i] for i in order[:_HELD_OUT_FILES]]
        kept = [files[i] for i in order[_HELD_OUT_FILES:]] or held
        self.context = settings.pretrain.context
        self.program_share = settings.pretrain.program_share
        self.corpus = self._flat(tokenizer, kept)
        self.held_out = self._flat(tokenizer, held)
        self.programs = [np.array(self._document(tokenizer, p), np.int64) for p in program_texts(settings)]
        self.seed = settings.seed

    @staticmethod
    def _document(tokenizer: Any, document: str) -> list[int]:
        return [tokenizer.bos_token_id, *text.encode(tokenizer, document), tokenizer.eos_token_id]

    def _flat(self, tokenizer: Any, documents: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        encoded = tokenizer(documents, add_special_tokens=False)["input_ids"]
        parts = [[tokenizer.bos_token_id, *ids, tokenizer.eos_token_id] for ids in encoded]
        return np.fromiter((token for part in parts for token in part), np.int64)

    def batch(self, step: int, rows: int) -> Tensor:
        """int64[rows, context + 1] of step `step`; the same at every call."""
        rng = np.random.default_rng([self.seed, 1, step])
        length = self.context + 1
        drawn = []
        for _ in range(rows):
            if rng.random() < self.program_share:
                row: list[int] = []
                while len(row) < length:
                    row += self.programs[rng.integers(len(self.programs))].tolist()
                drawn.append(np.array(row[:length]))
            else:
                drawn.append(self._window(self.corpus, rng))
        return torch.from_numpy(np.stack(drawn))

    def held_out_batch(self, rows: int) -> Tensor:
        """int64[rows, context + 1] of files that are never trained on."""
        rng = np.random.default_rng([self.seed, 2])
        return torch.from_numpy(np.stack([self._window(self.held_out, rng) for _ in range(rows)]))

    def _window(self, stream: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Any:
        length = self.context + 1
        if len(stream) <= length:
            return np.resize(stream, length)
        start = int(rng.integers(len(stream) - length))
        return stream[start : start + length]


def pretrain(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote."""
    from tqdm import tqdm

    from components.tracking.runs import stage_run

    started = time.perf_counter()
    chosen = settings.pretrain
    root = settings.root
    tokenizer = text.load(root / "data/models/tokenizer")
    key = fingerprint(
        settings, ("seed", "policy", "pretrain"), [root / "data/corpus/corpus.parquet", root / "data/models/tokenizer"]
    )
    checkpoint = Checkpoint(settings, "pretrain", key, chosen.checkpoint_s)
    state = checkpoint.load()
    policy = new_policy(settings, tokenizer, len(FEATURE_NAMES)).to(pick_device())
    initial = {name: value.detach().clone() for name, value in policy.lm.state_dict().items()}
    streams = Streams(settings, tokenizer)
    held_out = streams.held_out_batch(_HELD_OUT_ROWS)
    optimiser = torch.optim.AdamW(policy.lm.parameters(), lr=chosen.learning_rate, betas=(0.9, 0.95), weight_decay=0.05)
    step, curve = 0, []
    if state is not None:
        step, curve = state["step"], state["curve"]
        policy.lm.load_state_dict(state["lm"])
        optimiser.load_state_dict(state["optimiser"])
    budget = Budget(chosen.budget_s, chosen.max_steps, state["spent_s"] if state else 0.0)
    tags = {"profile": settings.policy.profile}
    with (
        stage_run("pretrain", settings, tags=tags, resume_run_id=state["run_id"] if state else None) as run,
        tqdm(total=100, desc="pretrain", unit="%", bar_format="{l_bar}{bar}| {elapsed}{postfix}", disable=None) as bar,
    ):
        if not curve:
            curve.append({"step": 0, "loss": None, "heldout_loss": held_out_loss(policy, held_out, chosen.batch)})
        measured = int(budget.progress(step) * _EVALUATIONS)
        while not budget.over(step):
            progress = budget.progress(step)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(chosen.learning_rate, chosen.warmup_steps, step, progress)
            loss = language_loss(policy, streams.batch(step, chosen.batch))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(policy.lm.parameters(), 1.0)
            optimiser.step()
            step += 1
            row: dict[str, Any] = {"step": step, "loss": float(loss), "heldout_loss": None}
            if int(budget.progress(step) * _EVALUATIONS) > measured:
                measured = int(budget.progress(step) * _EVALUATIONS)
                row["heldout_loss"] = held_out_loss(policy, held_out, chosen.batch)
            curve.append(row)
            run.log_metrics(step, {name: v for name, v in row.items() if name != "step" and v is not None})
            bar.n = int(100 * budget.progress(step))
            bar.set_postfix(loss=f"{row['loss']:.3f}", step=step)
            if checkpoint.due():
                checkpoint.save(_state(step, curve, policy, optimiser, budget, run.run_id))
        checkpoint.save(_state(step, curve, policy, optimiser, budget, run.run_id))
        changed, total = moved(initial, policy.lm.state_dict())
        parameters = sum(value.numel() for value in policy.lm.parameters())
        metrics = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "steps": step,
            "parameters": parameters,
            "tokens_seen": step * chosen.batch * chosen.context,
            "tokens_per_s": step * chosen.batch * chosen.context / max(1e-9, budget.spent_s),
            "heldout_loss_before": curve[0]["heldout_loss"],
            "heldout_loss": held_out_loss(policy, held_out, chosen.batch),
            "tensors_moved": changed,
            "tensors": total,
        }
        save_base(policy.cpu(), root / "data/models/base", {"run_id": run.run_id})
        write_curve(root / "data/metrics/pretrain_curve.csv", curve)
        run.log_metrics(step, {name: v for name, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(root / "data/metrics/pretrain_curve.csv")
    write_json(root / "data/metrics/pretrain.json", metrics)
    checkpoint.clear()
    return metrics


def language_loss(policy: Policy, rows: Tensor) -> Tensor:
    """Mean next-token cross-entropy in nats over int64[B, n + 1]."""
    rows = rows.to(policy.device)
    logits = policy.logits(None, rows[:, :-1])
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), _targets(policy, rows[:, 1:]).flatten(), ignore_index=-100
    )


def _targets(policy: Policy, targets: Tensor) -> Tensor:
    """A begin token is never predicted: the policy cannot say it."""
    return targets.masked_fill(targets == policy.tokenizer.bos_token_id, -100)


@torch.no_grad()
def held_out_loss(policy: Policy, rows: Tensor, batch: int) -> float:
    """Mean cross-entropy in nats on rows that are not trained on."""
    policy.eval()
    losses = [float(language_loss(policy, part)) * len(part) for part in rows.split(batch)]
    policy.train()
    return sum(losses) / len(rows)


def _state(
    step: int,
    curve: list[dict[str, Any]],
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    budget: Budget,
    run_id: str,
) -> dict[str, Any]:
    return {
        "step": step,
        "curve": curve,
        "lm": policy.lm.state_dict(),
        "optimiser": optimiser.state_dict(),
        "spent_s": budget.spent_s,
        "run_id": run_id,
    }


if __name__ == "__main__":
    sys.exit(run_stage(pretrain))
