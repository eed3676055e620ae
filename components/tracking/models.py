"""The trained policy in the record: logged as a model that reloads with equal logits, or not logged at all."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.errors import SparseRLError
from components.quiet import quiet_environment
from components.settings import Settings

if TYPE_CHECKING:
    from components.tracking.runs import StageRun

ARTIFACT = "policy"
PACKAGES = ("torch", "transformers", "peft", "safetensors", "numpy")


def log_policy(run: "StageRun", folder: Path, settings: Settings, metadata: dict[str, Any]) -> str:
    """Log a policy's folder as an MLflow pyfunc model and reload it before it counts as logged.

    MLflow's own transformers flavour reloads an adapter on a local base with random weights, without a word; so the
    folder travels whole (base, adapter, prefix encoder, tokenizer) and is read by this project's own loader.

    Args:
        run: the run that made it.
        folder: data/models/rl or alike.
        settings: for the policy's profile.
        metadata: arch, timing, data version, ...: kept with the model.

    Returns:
        The model's URI.

    Raises:
        SparseRLError: the logged copy gives other logits; the model is deleted from the record.
    """
    quiet_environment()
    import importlib.metadata

    import mlflow
    import torch

    from components.policy.storage import load_adapted, probe_logits
    from components.tracking.pyfunc import PolicyModel

    expected = probe_logits(load_adapted(folder, settings.policy))
    requirements = [f"{name}=={importlib.metadata.version(name).split('+')[0]}" for name in PACKAGES]
    with mlflow.start_run(run_id=run.run_id, nested=True) if mlflow.active_run() is None else _nothing():
        logged = mlflow.pyfunc.log_model(
            name=ARTIFACT,
            python_model=PolicyModel(),
            artifacts={"policy": str(folder)},
            pip_requirements=requirements,
            metadata=metadata,
        )
    found = probe_logits(load_policy(logged.model_uri, settings))
    if not torch.equal(expected, found):
        worst = float((expected - found).abs().max())
        run.client.delete_logged_model(logged.model_id)
        raise SparseRLError(f"the logged policy reloads with other logits (largest difference {worst:g}); not logged")
    uri: str = logged.model_uri
    return uri


def load_policy(uri: str, settings: Settings) -> Any:
    """The policy behind a model URI (`models:/sparserl-policy@champion-sm_90`, `models:/m-...`), frozen."""
    import mlflow

    from components.policy.storage import load_adapted
    from components.tracking.store import open_store

    open_store(settings)
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri))
    found = [path for path in (folder / "artifacts").iterdir() if (path / "manifest.json").is_file()]
    if len(found) != 1:
        raise SparseRLError(f"{uri}: expected one policy among its artifacts, found {len(found)}")
    return load_adapted(found[0], settings.policy)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()
