"""`sparserl champions|promote|rollback`."""

import argparse

from components.cli import Exit, emit
from components.settings import load


def run_champions(arguments: argparse.Namespace) -> int:
    """The promoted version of each architecture."""
    from components.tracking.registry import champions

    rows = champions(load())
    lines = [f"{row['alias']}  version {row['version']}  {row['description']}" for row in rows]
    emit(arguments, {"champions": rows}, "\n".join(lines) or "no champion yet; run `python -m flows.cycle`")
    return Exit.GOOD


def run_promote(arguments: argparse.Namespace) -> int:
    """Promote a registered version if the gate lets it; exit 1 and the failing gate's name when it does not."""
    from components.tracking.registry import promote

    decision = promote(load(), arch=arguments.arch, version=arguments.version)
    emit(arguments, decision.to_dict(), str(decision))
    return Exit.GOOD if decision.promoted else Exit.BAD_VERDICT


def run_rollback(arguments: argparse.Namespace) -> int:
    """Give `champion-<arch>` back to the version that held it before."""
    from components.tracking.registry import rollback

    data = rollback(load(), arch=arguments.arch)
    emit(arguments, data, f"{data['alias']} is version {data['version']} again (was {data['was']})")
    return Exit.GOOD
