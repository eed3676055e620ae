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
from components.training.texts import corpus_texts, program_texts

_CORPUS_BYTES = 4_000_000  # a seeded choice of the corpus; BPE merges are settled long before
_PROGRAM_REPEATS = 4  # so that the merges of kernel programs win


def train_tokenizer(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote."""
    from components.policy import tokenizer as text
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    with stage_run("tokenizer", settings) as run:
        rng = np.random.default_rng(settings.seed)
        programs = program_texts(settings)
        files = corpus_texts(settings)
        order = rng.permutation(len(files))
        chosen, size = [], 0
        for index in order:
            if size >= _CORPUS_BYTES:
                break
            chosen.append(files[index])
            size += len(files[index])
        tokenizer = text.train([*programs * _PROGRAM_REPEATS, *chosen], settings.policy.vocabulary)
        tokenizer.save_pretrained(settings.root / "data/models/tokenizer")
        lengths = np.array([len(text.encode(tokenizer, program)) for program in programs])
        held_out = [files[index] for index in order[len(chosen) : len(chosen) + 50]] or chosen[:50]
        characters = sum(map(len, held_out))
        metrics = {
            "run_id": run.run_id,
            "seconds": round(time.perf_counter() - started, 2),
            "vocabulary": len(tokenizer),
            "program_tokens_mean": float(lengths.mean()),
            "program_tokens_max": int(lengths.max()),
            "characters_per_token": characters / sum(len(text.encode(tokenizer, file)) for file in held_out),
        }
        run.log_metrics(0, {name: v for name, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(settings.root / "data/models/tokenizer", "tokenizer")
    write_json(settings.root / "data/metrics/tokenizer.json", metrics)
    return metrics


if __name__ == "__main__":
    sys.exit(run_stage(train_tokenizer))
