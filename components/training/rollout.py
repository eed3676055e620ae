"""From a matrix to programs: what the policy is shown, and sampling many programs for many problems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.matrix.types import SparseMatrix
from components.settings import PrefixSettings, Settings

if TYPE_CHECKING:
    from components.policy.model import Policy
    from components.policy.prefix import MatrixView
    from components.policy.sampling import Sample


@dataclass(frozen=True, eq=False)
class Problem:
    """A matrix and what is to be computed with it."""

    matrix: SparseMatrix
    operator: str = "spmv"
    width: int = 1


class Views:
    """Views of matrices, made once each."""

    def __init__(self, settings: PrefixSettings, seed: int = 0):
        self.settings, self.seed = settings, seed
        self._known: dict[str, MatrixView] = {}

    def of(self, matrix: SparseMatrix) -> "MatrixView":
        """The view of one matrix."""
        from components.matrix.features import structure_features
        from components.policy.prefix import view

        if matrix.id not in self._known:
            self._known[matrix.id] = view(matrix, structure_features(matrix).vector(), self.settings, self.seed)
        return self._known[matrix.id]


def load_policy(settings: Settings, folder: Path) -> "Policy":
    """A fine-tuned policy, frozen, ready to sample from."""
    from components.policy.storage import load_adapted

    return load_adapted(folder, settings.policy)


def prompt_ids(policy: "Policy", problem: Problem, arch: str) -> list[int]:
    """Begin token and prompt of a problem."""
    from components.policy import tokenizer as text
    from components.policy.prompt import Task, render

    prompt = render(Task(problem.operator, problem.width, "float32", arch))
    return [policy.tokenizer.bos_token_id, *text.encode(policy.tokenizer, prompt)]


def sample(
    policy: "Policy",
    problems: Sequence[Problem],
    views: Views,
    *,
    samples: int,
    temperature: float,
    max_tokens: int,
    arch: str,
    seed: int,
    progress: Callable[[int], object] | None = None,
) -> "list[list[Sample]]":
    """`samples` programs for each problem, with tokens and log-probabilities.

    Args:
        policy: frozen (`merged()`), for speed.
        problems: what for.
        views: the cache of matrix views.
        samples: per problem.
        temperature: 0 is greedy.
        max_tokens: of a program.
        arch: named in the prompt.
        seed: of the draws.
        progress: called with the number of programs done.
    """
    from components.policy.prefix import collate
    from components.policy.sampling import generate

    rows = [problem for problem in problems for _ in range(samples)]
    batch = collate([views.of(problem.matrix) for problem in rows], policy.device)
    prompts = [prompt_ids(policy, problem, arch) for problem in rows]
    flat = generate(
        policy, batch, prompts, max_tokens=max_tokens, temperature=temperature, seed=seed, progress=progress
    )
    return [flat[start : start + samples] for start in range(0, len(flat), samples)]


def sample_programs(
    policy: "Policy",
    problems: Sequence[Problem],
    *,
    samples: int,
    temperature: float,
    max_tokens: int,
    arch: str,
    seed: int,
    progress: Callable[[int], object] | None = None,
) -> list[list[str]]:
    """The texts of `sample`, with merged adapters and new views."""
    views = Views(policy.settings.prefix)
    drawn = sample(
        policy.merged(),
        problems,
        views,
        samples=samples,
        temperature=temperature,
        max_tokens=max_tokens,
        arch=arch,
        seed=seed,
        progress=progress,
    )
    return [[item.text for item in group] for group in drawn]
