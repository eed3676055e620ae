"""The registry: versions of `sparserl-policy`, one champion per architecture, and the gate between them."""

from dataclasses import asdict, dataclass
from typing import Any

from components.errors import UserError
from components.files import read_json, sha256_of
from components.settings import Settings
from components.tracking.compare import speedups_over_champion
from components.tracking.store import open_store

NAME = "sparserl-policy"
_GATED = ("arch", "timing", "data_version")
_RATES = ("_compile_rate", "_pass_at_1")
_SPEEDUP = "_speedup_1"
_ALREADY = "it is the champion already"


@dataclass(frozen=True)
class Decision:
    """What the gate said."""

    promoted: bool
    alias: str
    version: str
    previous: str | None  # the champion it was compared with
    reasons: tuple[str, ...]  # why; the first names the failing gate when refused

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "kept" if self.reasons == (_ALREADY,) else "promoted" if self.promoted else "refused"
        return f"{self.alias}: version {self.version} {verb}: {'; '.join(self.reasons)}"


def register(settings: Settings) -> dict[str, Any]:
    """Log data/models/rl as a model of the run that trained it and register it with what its evaluation said.

    Idempotent: a policy that is already registered (by the hash of its manifest) keeps its version.

    Returns:
        `version`, `model_uri` and whether it is `new`.

    Raises:
        UserError: the cycle has not run, or the evaluation speaks of another policy.
    """
    from components.tracking.models import log_policy
    from components.tracking.runs import git_commit, stage_run

    client, _ = open_store(settings)
    folder = settings.root / "data/models/rl"
    evaluation = read_json(settings.root / "data/metrics/evaluate.json")
    digest = sha256_of(folder / "manifest.json")
    for version in _versions(settings):
        if version.tags.get("manifest_sha256") == digest:
            return {"version": version.version, "model_uri": version.source, "new": False}
    if evaluation["policy_sha256"] != digest:
        raise UserError(
            "data/metrics/evaluate.json: speaks of another policy than data/models/rl; run `dvc repro evaluate`"
        )
    training = read_json(settings.root / "data/metrics/rl.json")
    tags = {
        "manifest_sha256": digest,
        "training_run": training["run_id"],
        "evaluation_run": evaluation["run_id"],
        "git_commit": git_commit(settings.root),
        **{name: str(value) for name, value in evaluation.items() if not isinstance(value, dict | list)},
    }
    with stage_run("register", settings, tags={name: tags[name] for name in _GATED}) as run:
        uri = log_policy(run, folder, settings, {name: tags[name] for name in _GATED})
    if not client.search_registered_models(f"name = '{NAME}'"):
        client.create_registered_model(NAME, description="Language model that writes sparse CUDA kernels")
    created = client.create_model_version(NAME, source=uri, run_id=run.run_id, tags=tags)
    return {"version": str(created.version), "model_uri": uri, "new": True}


def promote(settings: Settings, arch: str | None = None, version: int | None = None) -> Decision:
    """Move `champion-<arch>` to a version if the gate lets it; the champion it had becomes `previous-<arch>`.

    The gate: the challenger was evaluated on this architecture, timing kind and test data; its compile rate and pass@1
    are not below the champion's; and for every operator the lower end of the interval of its speed-up over the
    champion, taken matrix by matrix, is above 1. Where the store lacks the verdict tables, the lower end of its
    speed-up's own interval must be above the champion's value, and the reasons say so. Without a champion it must
    write correct kernels at all.

    Args:
        settings: for the store.
        arch: default: the one it was evaluated on.
        version: default: the newest.

    Raises:
        UserError: nothing is registered, or not that version.
    """
    versions = _versions(settings)
    if not versions:
        raise UserError(f"{NAME}: nothing is registered; run `python -m flows.cycle`")
    chosen = [v for v in versions if version is None or int(v.version) == version]
    if not chosen:
        raise UserError(f"{NAME}: no version {version}; the newest is {versions[0].version}")
    challenger = chosen[0]
    arch = arch or challenger.tags["arch"]
    alias = f"champion-{arch}"
    client, _ = open_store(settings)
    champion = _aliased(settings, alias)
    if champion is not None and champion.version == challenger.version:
        return Decision(True, alias, challenger.version, None, (_ALREADY,))
    failures, notes = _judged(settings, challenger.tags, champion.tags if champion else None, arch)
    previous = champion.version if champion else None
    passed = "no champion before" if champion is None else "every gate holds"
    reasons = (*(failures or (passed,)), *notes)
    decision = Decision(not failures, alias, challenger.version, previous, tuple(reasons))
    client.set_model_version_tag(NAME, challenger.version, f"gate-{arch}", str(decision))
    if decision.promoted:
        if champion is not None:
            client.set_registered_model_alias(NAME, f"previous-{arch}", champion.version)
        client.set_registered_model_alias(NAME, alias, challenger.version)
    return decision


def _judged(
    settings: Settings, challenger: dict[str, str], champion: dict[str, str] | None, arch: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What fails, and what the speed-ups were compared by."""
    found = []
    if challenger["arch"] != arch:
        found.append(f"arch: it was evaluated on {challenger['arch']}, not on {arch}")
    if champion is None:
        passed = [float(v) for name, v in challenger.items() if name.startswith("rl_") and name.endswith("pass_at_1")]
        if not passed or min(passed) <= 0:
            found.append("pass_at_1: it wrote no correct kernel for some operator")
        return tuple(found), ()
    for name in ("timing", "data_version"):
        if challenger[name] != champion[name]:
            found.append(f"{name}: {challenger[name]} against the champion's {champion[name]}; not comparable")
    names = [n for n in sorted(champion) if n.startswith("rl_") and n.endswith((*_RATES, _SPEEDUP))]
    found += [
        f"{name[3:]}: it was not evaluated for this, the champion was" for name in names if name not in challenger
    ]
    if found:
        return tuple(found), ()
    for name in names:
        ours, theirs = float(challenger[name]), float(champion[name])
        if name.endswith(_RATES) and ours < theirs:
            found.append(f"{name[3:]}: {ours:.4f} against the champion's {theirs:.4f}")
    failures, notes = _speedups(settings, challenger, champion, [n for n in names if n.endswith(_SPEEDUP)])
    return (*found, *failures), notes


def _speedups(
    settings: Settings, challenger: dict[str, str], champion: dict[str, str], names: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    client, _ = open_store(settings)
    runs = challenger.get("evaluation_run", ""), champion.get("evaluation_run", "")
    ratios = speedups_over_champion(settings, client, *runs) if all(runs) else None
    if ratios is None:
        failures = [
            f"{name[3:]}: lower bound {float(challenger[f'{name}_low']):.4f} is not above the champion's "
            f"{float(champion[name]):.4f}"
            for name in names
            if float(challenger[f"{name}_low"]) <= float(champion[name])
        ]
        return tuple(failures), ("speed-ups not compared matrix by matrix: the store lacks comparable verdict tables",)
    shown = [f"{problem}: {ratio} times the champion's speed-up" for problem, ratio in sorted(ratios.items())]
    slower = [
        f"{problem}{_SPEEDUP}: lower bound {ratio.low:.4f} of the ratio to the champion's is not above 1"
        for problem, ratio in sorted(ratios.items())
        if ratio.low <= 1
    ]
    return tuple(slower), tuple(shown)


def rollback(settings: Settings, arch: str) -> dict[str, Any]:
    """Give `champion-<arch>` back to `previous-<arch>`; the two swap, so that a second rollback undoes the first.

    Raises:
        UserError: there is no champion, or none before it.
    """
    client, _ = open_store(settings)
    alias = f"champion-{arch}"
    now, before = _aliased(settings, alias), _aliased(settings, f"previous-{arch}")
    if now is None:
        known = ", ".join(row["alias"] for row in champions(settings)) or "none"
        raise UserError(f"{alias}: no champion; there are: {known}")
    if before is None:
        raise UserError(f"{alias}: version {now.version} is the first champion; there is none to go back to")
    client.set_registered_model_alias(NAME, alias, before.version)
    client.set_registered_model_alias(NAME, f"previous-{arch}", now.version)
    return {"alias": alias, "version": before.version, "was": now.version}


def champions(settings: Settings) -> list[dict[str, Any]]:
    """The champion of each architecture, with what its evaluation said."""
    rows = []
    for alias, version in sorted(_aliases(settings).items()):
        if alias.startswith("champion-"):
            tags = next(v.tags for v in _versions(settings) if v.version == version)
            numbers = {
                n[3:]: float(v)
                for n, v in tags.items()
                if n.startswith("rl_") and n.endswith(("pass_at_1", "speedup_1"))
            }
            text = ", ".join(f"{name} {value:.3f}" for name, value in sorted(numbers.items()))
            row = {"alias": alias, "version": version, "timing": tags["timing"], "baseline": tags.get("baseline", "")}
            rows.append({**row, "description": f"{text} ({tags['timing']})", **numbers})
    return rows


@dataclass(frozen=True)
class Version:
    """A registered version; MLflow gives its number as text or as a number, here it is text."""

    version: str
    source: str
    tags: dict[str, str]


def _versions(settings: Settings) -> list[Version]:
    """Newest first."""
    client, _ = open_store(settings)
    found = client.search_model_versions(f"name = '{NAME}'", max_results=1000)
    versions = [Version(str(v.version), str(v.source), dict(v.tags)) for v in found]
    return sorted(versions, key=lambda version: -int(version.version))


def _aliases(settings: Settings) -> dict[str, str]:
    client, _ = open_store(settings)
    if not client.search_registered_models(f"name = '{NAME}'"):
        return {}
    aliases = client.get_registered_model(NAME).aliases
    return {name: str(version) for name, version in aliases.items()}


def _aliased(settings: Settings, alias: str) -> Version | None:
    version = _aliases(settings).get(alias)
    return next((v for v in _versions(settings) if v.version == version), None) if version else None
