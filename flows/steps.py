"""What every flow does with a step of the cycle: lock the device, run DVC, retry what can be retried, publish."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from components.locks import device_lock
from components.settings import Settings, load
from flows.dvc_repro import StageFailed, dvc_repro


@dataclass(frozen=True)
class Step:
    """One step of the cycle: the DVC stages it brings up to date and how often a failure that may pass is retried."""

    name: str
    stages: tuple[str, ...]
    retries: int
    uses_device: bool


INGEST = Step("ingest", ("matrices", "corpus"), retries=3, uses_device=False)
PRETRAIN = Step("pretrain", ("tokenizer", "pretrain"), retries=1, uses_device=True)
SFT = Step("sft", ("label", "sft"), retries=1, uses_device=True)
RL = Step("rl", ("rl",), retries=1, uses_device=True)
EVALUATE = Step("evaluate", ("evaluate", "report"), retries=1, uses_device=True)
CYCLE = (INGEST, PRETRAIN, SFT, RL, EVALUATE)


def run_step(step: Step, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run one step inside a flow run; returns the metrics of its stages by stage name.

    Raises:
        StageFailed: a stage failed, after its retries.
    """
    settings = load()
    with device(settings) if step.uses_device else contextlib.nullcontext():
        _repro.with_options(name=f"dvc repro {step.name}", retries=step.retries)(step.stages, settings.root, arguments)
    return publish(step, settings.root)


def _worth_retrying(task: Any, run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, StageFailed) and error.user_error)


@task(persist_result=False, retry_delay_seconds=5, retry_condition_fn=_worth_retrying)
def _repro(stages: tuple[str, ...], root: Path, arguments: Sequence[str]) -> None:
    dvc_repro(stages, root, get_run_logger().info, arguments)


@contextlib.contextmanager
def device(settings: Settings) -> Iterator[None]:
    """The device this project's judge uses, held by Prefect's concurrency limit and by the operating system's lock.

    Without a GPU only the operating system's lock is taken: it keeps two cycles from sharing two cores.
    """
    from components.judge.judge import resolve_backend

    backend, _ = resolve_backend(settings.judge)
    name = "gpu-0" if backend == "gpu" else "cpu"
    with contextlib.ExitStack() as stack:
        if backend == "gpu":
            from prefect.client.orchestration import get_client
            from prefect.concurrency.sync import concurrency

            with get_client(sync_client=True) as client:
                client.upsert_global_concurrency_limit_by_name(name, 1)
            stack.enter_context(concurrency(name, occupy=1, strict=True))
        stack.enter_context(device_lock(name, on_wait=get_run_logger().info))
        yield


def publish(step: Step, root: Path) -> dict[str, Any]:
    """Publish the step's metrics as a table artifact and, after evaluation, the report as Markdown."""
    folder = root / "data" / "metrics"
    metrics = {s: json.loads(path.read_text()) for s in step.stages if (path := folder / f"{s}.json").is_file()}
    rows = [
        {"stage": stage, "metric": name, "value": str(value)}
        for stage, values in metrics.items()
        for name, value in values.items()
        if not isinstance(value, dict | list)
    ]
    if rows:
        create_table_artifact(key=f"{step.name}-metrics", table=rows, description=f"Metrics of {step.name}")
    page = root / "data" / "report" / "index.md"
    if "report" in step.stages and page.is_file():
        create_markdown_artifact(
            key="report", markdown=page.read_text(encoding="utf-8"), description="Evaluation report"
        )
    return metrics
