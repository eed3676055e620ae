"""One judge for many tests: its workers stay, its memory goes."""

from pathlib import Path

from components.judge.cache import Cache
from components.judge.judge import Judge


def forget(judge: Judge, folder: Path | None) -> None:
    """Empty what a judge remembers and give it a new cache in `folder`, or none."""
    judge.cache = Cache(folder, judge.settings.cache_max_mb << 20)
    judge._memory.clear()
    judge._baselines.clear()
