"""The MLflow store: where it is, migrated once however many processes start, and re-homed when the project moved."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlparse

from components.quiet import quiet_environment
from components.settings import Settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

FOLDER = "mlruns"
DATABASE = "mlflow.db"


def tracking_uri(settings: Settings) -> str:
    """`tracking.uri` of params.yaml, else the sqlite database under mlruns/."""
    return settings.tracking.uri or f"sqlite:///{settings.root / FOLDER / DATABASE}"


def open_store(settings: Settings) -> "tuple[MlflowClient, str]":
    """A client and the experiment's id; the schema is migrated first, once, under a lock.

    Six processes that migrate a fresh database together break it, so the first one does it and the rest wait. Artifact
    paths are stored absolute by MLflow; when the project's folder has moved they are rewritten here.
    """
    quiet_environment()
    import mlflow
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic", "sqlalchemy"):
        logging.getLogger(name).setLevel(logging.ERROR)
    uri = tracking_uri(settings)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    local = uri.startswith("sqlite:")
    artifacts = (settings.root / FOLDER / "artifacts").resolve()
    with _lock(settings.root / FOLDER / ".migrate.lock") if local else contextlib.nullcontext():
        if local:
            artifacts.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(uri)
        name = settings.tracking.experiment
        found = client.get_experiment_by_name(name)
        if found is None:
            location = artifacts.as_uri() if local else None
            identity = client.create_experiment(name, artifact_location=location)
        else:
            identity = found.experiment_id
            if local and _path(found.artifact_location) != artifacts:
                _re_home(settings.root / FOLDER / DATABASE, _path(found.artifact_location), artifacts)
    return client, str(identity)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _path(location: str) -> Path:
    return Path(unquote(urlparse(location).path) if location.startswith("file:") else location)


def _re_home(database: Path, old: Path, new: Path) -> None:
    """Rewrite the artifact folder in every column that holds it, in one transaction."""
    import sqlite3

    columns = (
        ("experiments", "artifact_location"),
        ("runs", "artifact_uri"),
        ("model_versions", "source"),
        ("model_versions", "storage_location"),
        ("logged_models", "artifact_location"),
    )
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for table, column in columns:
            for before, after in (
                (old.as_uri(), new.as_uri()),
                (str(old), str(new)),
                (quote(str(old)), quote(str(new))),
            ):
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (after, len(before) + 1, len(before), before),
                )


def process_started(pid: int) -> str | None:
    """Start time of a process of this host, in clock ticks since boot; None when there is no such process.

    With the pid it names one process for ever: pids are used again, start times are not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else fields[19]


def host_identity() -> str:
    """This host and its current boot."""
    with contextlib.suppress(OSError):
        return f"{os.uname().nodename} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return os.uname().nodename
