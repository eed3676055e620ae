"""Stage `tokenizer`: byte-level BPE over the corpus and the project's own kernel programs.

Run: python -m components.training.tokenizer
In:  data/corpus/corpus.parquet
Out: data/models/tokenizer, data/metrics/tokenizer.json
"""

import sys
import time
from typing import Any

import numpy as np

from components.files import write_json
from components.settings import Settings
from components.training.session import run_stage
from components.training.texts import architectures, corpus_texts, programs, prompt

# Merges are few, so programs weigh more than the corpus: 80 tokens a program, where equal weight needs 125.
CORPUS_BYTES = 1_000_000  # a seeded choice of files
PROGRAM_REPEATS = 8
HELD_OUT = 50  # corpus files on which the compression is measured


def train_tokenizer(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote."""
    from tqdm import tqdm

    from components.policy import tokenizer as text
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    folder = settings.root / "data/models/tokenizer"
    with stage_run("tokenizer", settings) as run, tqdm(total=3, desc="tokenizer", unit="part", disable=None) as bar:
        rng = np.random.default_rng(settings.seed)
        archs = architectures()
        own = [prompt(choice, archs[i % len(archs)]) + source for i, (choice, source) in enumerate(programs(settings))]
        files = corpus_texts(settings)
        order = rng.permutation(len(files))
        sizes = np.cumsum([len(files[index]) for index in order])
        chosen = [files[index] for index in order[: int(np.searchsorted(sizes, CORPUS_BYTES)) + 1]]
        bar.update()
        tokenizer = text.train([*own * PROGRAM_REPEATS, *chosen], settings.policy.vocabulary)
        tokenizer.save_pretrained(folder)
        bar.update()
        lengths = np.array([len(text.encode(tokenizer, program)) for program in own])
        held_out = [files[index] for index in order[len(chosen) : len(chosen) + HELD_OUT]] or chosen[-HELD_OUT:]
        metrics: dict[str, Any] = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "vocabulary": len(tokenizer),
            "programs": len(own),
            "program_tokens_mean": float(lengths.mean()),
            "program_tokens_max": int(lengths.max()),
            "characters_per_token": sum(map(len, held_out)) / sum(len(text.encode(tokenizer, t)) for t in held_out),
        }
        run.log_metrics(0, {name: v for name, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(folder, "tokenizer")
        bar.update()
    write_json(settings.root / "data/metrics/tokenizer.json", metrics)
    return metrics


if __name__ == "__main__":
    sys.exit(run_stage(train_tokenizer))
