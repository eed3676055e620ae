"""One MLflow run per stage execution, whatever happens to the stage."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.files import sha256_of
from components.settings import Settings, flatten, to_dict
from components.tracking.store import host_identity, open_store, process_started

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.tracking import MlflowClient

_FLUSH_S = 5.0
_BATCH = 900  # metrics per request; MLflow takes at most 1,000
_MAX_VALUE = 500  # characters of a parameter


class StageRun:
    """A run that is being written; made by `stage_run`."""

    def __init__(self, client: "MlflowClient", run_id: str, folder: Path):
        self.client, self.run_id = client, run_id
        self._folder = folder
        self._pending: list[Any] = []
        self._flushed = time.monotonic()

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Buffer metrics of one step; they reach the store in batches, every few seconds and at the end.

        Values that are not finite are left out: the store would give other numbers back.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        finite = {name: float(value) for name, value in values.items() if abs(float(value)) < float("inf")}
        self._pending += [Metric(name, value, now, step) for name, value in finite.items()]
        if time.monotonic() - self._flushed > _FLUSH_S or len(self._pending) >= _BATCH:
            self.flush()

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Log parameters; nested mappings get dotted names. A resumed run keeps what it has."""
        from mlflow.entities import Param

        known = self.client.get_run(self.run_id).data.params
        texts = {name: str(value)[:_MAX_VALUE] for name, value in flatten(dict(values)).items()}
        new = [Param(name, text) for name, text in texts.items() if name not in known]
        for start in range(0, len(new), 100):
            self.client.log_batch(self.run_id, params=new[start : start + 100])

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        self.client.log_batch(self.run_id, tags=[RunTag(name, str(value)) for name, value in tags.items()])

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a file, or a folder's content, into the run's artifacts."""
        if path.is_dir():
            self.client.log_artifacts(self.run_id, str(path), folder or path.name)
        else:
            self.client.log_artifact(self.run_id, str(path), folder)

    def log_table(self, frame: "pd.DataFrame", name: str) -> None:
        """Log a frame as a table that the web page shows (`name`.json)."""
        self.client.log_table(self.run_id, frame.reset_index(drop=True), f"{name}.json")

    def flush(self) -> None:
        """Send what is buffered."""
        while self._pending:
            self.client.log_batch(self.run_id, metrics=self._pending[:_BATCH])
            del self._pending[:_BATCH]
        self._flushed = time.monotonic()


@contextlib.contextmanager
def stage_run(
    stage: str, settings: Settings, *, tags: Mapping[str, Any] | None = None, resume_run_id: str | None = None
) -> Iterator[StageRun]:
    """A run for the execution of a stage.

    It ends FINISHED, FAILED (an exception), or KILLED (SIGTERM, Ctrl-C). Runs that a killed process of this host left
    RUNNING are swept to KILLED first.

    Args:
        stage: its name; the run's name.
        settings: the stage's own section is logged as parameters.
        tags: besides those of the project, the stage, the git commit and the process, which are always there.
        resume_run_id: continue this run, if the store still has it, rather than start another.
    """
    client, experiment = open_store(settings)
    sweep(client, experiment)
    own = {
        "stage": stage,
        **project_tags(settings),
        "git_commit": git_commit(settings.root),
        "process": f"{os.getpid()} {process_started(os.getpid())}",
        "host": host_identity(),
        **{name: str(value) for name, value in (tags or {}).items()},
    }
    run_id = _resumed(client, resume_run_id)
    if run_id is None:
        run_id = client.create_run(experiment, run_name=stage, tags=own).info.run_id
    run = StageRun(client, run_id, settings.root)
    run.set_tags(own)
    section = to_dict(settings).get(stage)
    if isinstance(section, dict):
        run.log_params({stage: section, "seed": settings.seed})
    with _ending(run):
        yield run


def project_tags(settings: Settings) -> dict[str, str]:
    """What every run of the project carries: operators, architecture, timing kind and data version."""
    from components.judge.options import resolve_backend

    backend, arch = resolve_backend(settings.judge)
    tags = {
        "op": ",".join(f"{choice.name}{choice.width}" for choice in settings.label.operators),
        "arch": arch,
        "timing": "measured" if backend == "gpu" else "modelled",
    }
    if version := data_version(settings.root):
        tags["data_version"] = version
    return tags


def data_version(root: Path) -> str:
    """The first 16 hex digits of the manifest's SHA-256; empty before there is one."""
    manifest = root / "data/matrices/manifest.csv"
    return sha256_of(manifest)[:16] if manifest.is_file() else ""


def sweep(client: "MlflowClient", experiment: str) -> list[str]:
    """Mark runs KILLED that are RUNNING by a process of this host that is no more; returns their ids."""
    swept = []
    host = host_identity()
    for run in client.search_runs([experiment], "attributes.status = 'RUNNING'", max_results=1000):
        pid, _, started = run.data.tags.get("process", "").partition(" ")
        if run.data.tags.get("host") != host or not pid.isdigit():
            continue
        if process_started(int(pid)) != started:
            client.set_terminated(run.info.run_id, "KILLED")
            swept.append(run.info.run_id)
    return swept


def git_commit(root: Path) -> str:
    """The commit of the checkout, with `+` when files differ from it; `none` without git."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=20)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"], cwd=root, capture_output=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    if head.returncode != 0:
        return "none"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def _resumed(client: "MlflowClient", run_id: str | None) -> str | None:
    if run_id is None:
        return None
    from mlflow.exceptions import MlflowException

    try:
        client.update_run(run_id, status="RUNNING")
    except MlflowException:
        return None  # another store, or the run was deleted: a new run is right
    return run_id


@contextlib.contextmanager
def _ending(run: StageRun) -> Iterator[None]:
    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    in_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, terminate) if in_main else None
    status = "FAILED"
    try:
        yield
        status = "FINISHED"
    except (SystemExit, KeyboardInterrupt) as error:
        status = "FINISHED" if isinstance(error, SystemExit) and not error.code else "KILLED"
        raise
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        run.flush()
        run.client.set_terminated(run.run_id, status)
        if in_main:
            signal.signal(signal.SIGTERM, previous)
