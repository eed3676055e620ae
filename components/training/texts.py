"""The texts that models are trained on: the corpus, and the project's own programs behind their prompts."""

from functools import cache

from components.errors import UserError
from components.kernel.families import all_programs
from components.policy.prompt import Task, render
from components.settings import OperatorChoice, Settings


def corpus_texts(settings: Settings) -> list[str]:
    """Every file of the corpus, in its order.

    Raises:
        UserError: the corpus has not been built.
    """
    import pyarrow.parquet as pq

    path = settings.root / "data/corpus/corpus.parquet"
    if not path.is_file():
        raise UserError(f"{path}: not found; run `dvc repro corpus`")
    texts: list[str] = pq.read_table(path, columns=["text"]).column("text").to_pylist()
    return texts


def program_texts(settings: Settings) -> list[str]:
    """Every program of every family for the operators that are labelled, each behind its prompt."""
    return [
        prompt(choice, arch_of(settings)) + text
        for choice in settings.label.operators
        for text in _sources(choice.name)
    ]


def prompt(choice: OperatorChoice, arch: str) -> str:
    """The prompt for an operator on an architecture."""
    return render(Task(choice.name, choice.width, "float32", arch))


def arch_of(settings: Settings) -> str:
    """The architecture that programs are written for."""
    from components.judge.options import resolve_backend

    return resolve_backend(settings.judge)[1]


@cache
def _sources(operator: str) -> tuple[str, ...]:
    return tuple(program.source for program in all_programs(operator))
