"""Resume after a kill: state under .cache/state/<stage>/, tied to what it was trained from; and wall-clock budgets."""

import hashlib
import json
import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from components.files import replacing, sha256_of
from components.settings import Settings, flatten, to_dict

# Knobs that say how long to train or how often to save, not what: a run may be resumed with others.
_FREE = ("budget_s", "checkpoint_s")


def fingerprint(settings: Settings, sections: Iterable[str], inputs: Iterable[Path]) -> dict[str, str]:
    """What a stage's state depends on, by name: parameters (dotted) and the hash of each input.

    Args:
        settings: all of them.
        sections: names of the top-level sections that matter.
        inputs: files; a folder counts as every file in it.
    """
    plain = to_dict(settings)
    values = flatten({name: plain[name] for name in sections})
    parts = {name: json.dumps(value) for name, value in values.items() if name.rpartition(".")[2] not in _FREE}
    for path in inputs:
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(settings.root).as_posix()} {sha256_of(file)}\n".encode())
        parts[path.relative_to(settings.root).as_posix()] = digest.hexdigest()
    return parts


class Checkpoint:
    """The resumable state of one stage.

    Args:
        root: the project's folder.
        stage: its name.
        key: from `fingerprint`; state with another key is never mixed in.
        every_s: seconds between checkpoints.
    """

    def __init__(self, root: Path, stage: str, key: Mapping[str, str], every_s: float):
        self.stage, self.folder = stage, root / ".cache" / "state" / stage
        self.key, self.every_s = dict(key), every_s
        self._last = time.monotonic()

    @property
    def path(self) -> Path:
        """The state's file."""
        return self.folder / "state.pt"

    def load(self) -> dict[str, Any] | None:
        """The state to resume from, or None. State of other parameters or data is discarded, and the reason printed."""
        if not self.path.is_file():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            found = state["key"]
        except Exception as error:  # torch raises many kinds for a file of another version
            self._discard(f"its saved state cannot be read ({type(error).__name__})")
            return None
        if found != self.key:
            changed = sorted(k for k in {*found, *self.key} if found.get(k) != self.key.get(k))
            self._discard(f"changed since the interrupted run: {', '.join(changed)}")
            return None
        print(f"{self.stage}: resuming after step {state['step']}", file=sys.stderr)
        return state

    def due(self) -> bool:
        """Whether the next checkpoint should be written."""
        return time.monotonic() - self._last >= self.every_s

    def save(self, state: dict[str, Any]) -> None:
        """Write the state atomically. It holds tensors and plain values, `step` among them."""
        with replacing(self.path) as temporary:
            torch.save({**state, "key": self.key}, temporary)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Forget the state: the stage is done, or starts over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _discard(self, reason: str) -> None:
        print(f"{self.stage}: starting over: {reason}", file=sys.stderr)
        self.clear()


class Budget:
    """A wall-clock budget that counts over resumes.

    Args:
        seconds: of the whole stage.
        max_steps: of the whole stage.
        spent_s: before this process.
    """

    def __init__(self, seconds: float, max_steps: int, spent_s: float = 0.0):
        self.seconds, self.max_steps = seconds, max_steps
        self._start = time.monotonic() - spent_s

    @property
    def spent_s(self) -> float:
        """Seconds so far, earlier processes included."""
        return time.monotonic() - self._start

    def progress(self, step: int) -> float:
        """Share of the budget that is used, by steps or by the clock, whichever is further; at most 1."""
        return min(1.0, max(step / self.max_steps, self.spent_s / self.seconds))

    def over(self, step: int) -> bool:
        """Whether the stage should stop."""
        return step >= self.max_steps or self.spent_s >= self.seconds

    def stopped_by(self, step: int) -> str:
        """Why it stopped: `steps` or `clock`."""
        return "steps" if step >= self.max_steps else "clock"


def learning_rate(peak: float, warmup_steps: int, step: int, progress: float) -> float:
    """Linear warm-up, then a cosine to a twentieth of the peak as `progress` goes to 1 (Loshchilov and Hutter 2017)."""
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    return peak * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
