"""Stage `pretrain`: next-token training on CUDA source and on the project's own programs.

Each step's batch is made from the step's number: windows of `context` tokens out of corpus files (drawn in proportion
to their length), and whole programs behind their prompts, `program_share` of the tokens. One file in twenty, and one
program in twenty, is held out.

Run: python -m components.training.pretrain
In:  data/corpus/corpus.parquet, data/models/tokenizer
Out: data/models/base, data/metrics/pretrain.json, data/metrics/pretrain_curve.csv
"""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from components.errors import UserError
from components.files import sha256_text, write_json
from components.settings import Settings
from components.training.session import run_stage, write_curve
from components.training.texts import architectures, corpus_texts, programs, prompt

if TYPE_CHECKING:
    from torch import Tensor

    from components.policy.model import Policy

HELD_OUT_SHARE = 20  # one in so many
HELD_OUT_WINDOWS, HELD_OUT_PROGRAMS = 24, 40
_CHARACTERS = 6  # per token, at most, in a window that is about to be encoded


class Texts:
    """The two sources of text, split into a part to train on and a part that is held out."""

    def __init__(self, settings: Settings, tokenizer: Any):
        self.settings, self.tokenizer = settings, tokenizer
        files, own = corpus_texts(settings), programs(settings)
        self.files = [text for text in files if not _held_out(text)]
        self.held_files = [text for text in files if _held_out(text)] or files[:1]
        self.programs = [pair for pair in own if not _held_out(pair[1])]
        self.held_programs = [pair for pair in own if _held_out(pair[1])] or own[:1]
        self.architectures = architectures()

    def windows(self, files: Sequence[str], count: int, rng: np.random.Generator) -> list[list[int]]:
        """Token windows out of files, drawn in proportion to their length, each beginning at a line."""
        lengths = np.array([len(text) for text in files], dtype=float)
        chosen = rng.choice(len(files), size=count, p=lengths / lengths.sum())
        return [self._window(files[int(index)], rng) for index in chosen]

    def program_rows(self, own: Sequence[Any], count: int, rng: np.random.Generator) -> list[list[int]]:
        """Whole programs behind prompts for architectures drawn at random."""
        from components.policy import tokenizer as text

        rows = []
        for index in rng.integers(len(own), size=count):
            choice, source = own[int(index)]
            arch = self.architectures[int(rng.integers(len(self.architectures)))]
            rows.append([*text.encode(self.tokenizer, prompt(choice, arch) + source), self.tokenizer.eos_token_id])
        return rows

    def _window(self, content: str, rng: np.random.Generator) -> list[int]:
        from components.policy import tokenizer as text

        context = self.settings.pretrain.context
        begin = int(rng.integers(max(1, len(content) - 2 * context)))
        begin = content.rfind("\n", 0, begin) + 1
        ids = text.encode(self.tokenizer, content[begin : begin + _CHARACTERS * context])
        if begin + _CHARACTERS * context >= len(content):
            ids.append(self.tokenizer.eos_token_id)
        return ids[:context]


def pretrain(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote."""
    import torch

    from components.matrix.features import FEATURE_NAMES
    from components.policy import storage
    from components.policy import tokenizer as text
    from components.policy.model import pick_device
    from components.tracking.runs import stage_run
    from components.training.checkpoint import Checkpoint, fingerprint
    from components.training.loop import fit, snapshot, unmoved

    started = time.perf_counter()
    root, chosen = settings.root, settings.pretrain
    folder = root / "data/models/tokenizer"
    tokenizer = text.load(folder)
    inputs = (root / "data/corpus/corpus.parquet", folder)
    key = fingerprint(settings, ("seed", "policy", "pretrain"), inputs)
    checkpoint = Checkpoint(root, "pretrain", key, chosen.checkpoint_s)
    state = checkpoint.load()
    with stage_run("pretrain", settings, resume_run_id=state["run_id"] if state else None) as run:
        policy = storage.new_policy(settings, tokenizer, len(FEATURE_NAMES)).to(pick_device())
        policy.prefix.requires_grad_(False)  # there is no matrix yet
        before = snapshot(dict(policy.trainable()))
        texts = Texts(settings, tokenizer)
        own = texts.program_rows(texts.programs, 64, np.random.default_rng(0))
        tokens = chosen.batch * chosen.context
        per_program = float(np.mean([len(row) for row in own]))
        n_programs = round(tokens * chosen.program_share / per_program)
        n_windows = round(tokens * (1 - chosen.program_share) / chosen.context)
        if n_programs + n_windows == 0:
            raise UserError("params.yaml: pretrain.batch x pretrain.context: expected room for one program or window")

        def loss_of(step: int) -> "tuple[Tensor, int]":
            rng = np.random.default_rng([settings.seed, 1, step])
            torch.manual_seed(step)  # dropout, where a base has some
            parts = [
                _loss(policy, rows)
                for rows in (
                    texts.program_rows(texts.programs, n_programs, rng),
                    texts.windows(texts.files, n_windows, rng),
                )
                if rows
            ]
            count = sum(n for _, n in parts)
            total = parts[0][0] if len(parts) == 1 else parts[0][0] + parts[1][0]
            return total / count, count

        fixed = np.random.default_rng([settings.seed, 2])
        held = {
            "programs": texts.program_rows(texts.held_programs, HELD_OUT_PROGRAMS, fixed),
            "corpus": texts.windows(texts.held_files, HELD_OUT_WINDOWS, fixed),
        }

        def held_out() -> float:
            policy.eval()
            with torch.no_grad():
                parts = [_loss(policy, rows) for rows in held.values()]
            return float(sum(float(total) for total, _ in parts) / sum(count for _, count in parts))

        outcome = fit(policy, loss_of, held_out, chosen, checkpoint, state, run)
        policy.eval()
        with torch.no_grad():
            after = {name: float(total) / count for name, (total, count) in _losses(policy, held)}
        still = unmoved(before, snapshot(dict(policy.trainable())))
        storage.save_base(policy, root / "data/models/base", {"settings": _plain(settings), "steps": outcome.steps})
        metrics: dict[str, Any] = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "parameters": sum(p.numel() for p in policy.lm.parameters()),
            **outcome.metrics(),
            **{f"held_out_{name}": value for name, value in after.items()},
            "held_out_characters_per_token": _characters(tokenizer, held["corpus"]),
            "unmoved_parameters": still,
        }
        write_curve(root / "data/metrics/pretrain_curve.csv", outcome.curve)
        run.log_metrics(outcome.steps, {k: v for k, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(root / "data/metrics/pretrain_curve.csv")
    write_json(root / "data/metrics/pretrain.json", metrics)
    checkpoint.clear()
    return metrics


def _loss(policy: "Policy", rows: Sequence[Sequence[int]]) -> "tuple[Tensor, int]":
    """Summed negative log-likelihood, nats, of rows after the begin token, and the number of tokens."""
    scores = policy.score(None, [[policy.tokenizer.bos_token_id]] * len(rows), rows)
    return -(scores.logprobs * scores.mask).sum(), sum(map(len, rows))


def _losses(policy: "Policy", held: dict[str, list[list[int]]]) -> "list[tuple[str, tuple[Tensor, int]]]":
    return [(name, _loss(policy, rows)) for name, rows in held.items()]


def _characters(tokenizer: Any, rows: Sequence[Sequence[int]]) -> float:
    from components.policy import tokenizer as text

    return sum(len(text.decode(tokenizer, row)) for row in rows) / sum(map(len, rows))


def _held_out(text: str) -> bool:
    return int(sha256_text(text)[:8], 16) % HELD_OUT_SHARE == 0


def _plain(settings: Settings) -> Any:
    from components.settings import to_dict

    return {"seed": settings.seed, "pretrain": to_dict(settings.pretrain)}


if __name__ == "__main__":
    sys.exit(run_stage(pretrain))
