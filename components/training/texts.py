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


def programs(settings: Settings) -> list[tuple[OperatorChoice, str]]:
    """Every program of the families that are taught, with the operator and width that it is labelled for."""
    names = settings.label.families
    return [(choice, source) for choice in settings.label.operators for source in _sources(choice.name, names)]


def prompt(choice: OperatorChoice, arch: str) -> str:
    """The prompt for an operator on an architecture."""
    return render(Task(choice.name, choice.width, "float32", arch))


def architectures() -> list[str]:
    """The architectures that prompts may name."""
    from components.judge.model_time import ARCHITECTURES

    return sorted(ARCHITECTURES)


@cache
def _sources(operator: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(program.source for program in all_programs(operator, names=names))
