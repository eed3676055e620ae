"""Register the newest policy and promote it if the gate lets it. Run: python -m flows.promote"""

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact

from components.settings import load


@flow(name="promote")
def promote() -> dict[str, Any]:
    """Side effects on the registry; never a DVC stage, because the run cache would skip it. Returns the decision."""
    return _promote(_register()["version"])


@task(persist_result=False)
def _register() -> dict[str, Any]:
    from components.tracking.registry import register

    registered = register(load())
    get_run_logger().info("version %s (%s)", registered["version"], "new" if registered["new"] else "known")
    return registered


@task(persist_result=False)
def _promote(version: str) -> dict[str, Any]:
    from components.tracking import registry

    decision = registry.promote(load(), version=int(version))
    get_run_logger().info("%s", decision)
    create_markdown_artifact(key="promotion", markdown=str(decision), description="What the promotion gate said")
    return decision.to_dict()


if __name__ == "__main__":
    promote()
