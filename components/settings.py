"""Every knob of the pipeline, typed; a name in params.yaml that is not here is an error, not a silent default."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from components.errors import UserError
from components.files import project_root


@dataclass(frozen=True)
class GeneratedSettings:
    """Generated structure families: families x nnz x repeats matrices."""

    families: tuple[str, ...]
    nnz: tuple[int, ...]  # target non-zeros, 1e3 to 1e7
    repeats: int  # seeds per family and size


@dataclass(frozen=True)
class DirectorySettings:
    """A folder of .mtx / .mtx.gz files, with or without a manifest.csv."""

    path: str
    min_nnz: int
    max_nnz: int
    max_count: int  # a stratified, seeded choice when more qualify


@dataclass(frozen=True)
class CollectionSettings:
    """The SuiteSparse Matrix Collection over HTTP."""

    base_url: str
    names: tuple[str, ...]  # "group/name"; empty: by the rules below
    groups: tuple[str, ...]
    kinds: tuple[str, ...]  # substrings of the index's kind
    min_nnz: int
    max_nnz: int
    max_count: int
    retries: int
    timeout_s: float


@dataclass(frozen=True)
class MatrixSettings:
    """Where matrices come from and how they are split; a group never falls into two parts."""

    source: Literal["bundled", "directory", "collection"]
    generated: GeneratedSettings
    directory: DirectorySettings
    collection: CollectionSettings
    split: Mapping[str, float]  # train, validation, test; sums to 1


@dataclass(frozen=True)
class CorpusSettings:
    """Which pinned artifacts feed pre-training and what is filtered out."""

    sources: str
    packages: tuple[str, ...]  # empty: rows marked default
    max_download_mb: float
    licenses: tuple[str, ...]
    max_file_kb: int
    near_duplicate_similarity: float  # Jaccard, of token 5-shingles


@dataclass(frozen=True)
class JudgeSettings:
    """Limits and machines of the judge."""

    backend: Literal["auto", "emulator", "gpu"]
    arch: str  # auto or sm_XX
    default_arch: str  # modelled when there is no GPU
    workers: int  # 0: one per core
    compile_cpu_s: float
    compile_memory_mb: int
    wall_s: float  # one candidate on all its check matrices
    instruction_budget: int  # warp instructions per launch
    budget_per_nonzero: int  # and per (row + column + non-zero) of the matrix
    cache: bool
    cache_max_mb: int


@dataclass(frozen=True)
class OperatorChoice:
    """An operator and, for spmm, its number of dense columns."""

    name: Literal["spmv", "spmm"]
    width: int


@dataclass(frozen=True)
class LabelSettings:
    """How pairs are labelled."""

    operators: tuple[OperatorChoice, ...]
    families: tuple[str, ...]  # the part of the library that is judged and taught; empty: all of it
    max_programs: int  # per matrix and operator, spread over families; 0: all
    keep_best: int  # programs per matrix that become pairs
    keep_within: float  # and only those whose best_time / time reaches this


@dataclass(frozen=True)
class ProfileSettings:
    """Size of a from-scratch model, or the name of a base to start from."""

    hidden: int = 0
    layers: int = 0
    heads: int = 0
    feed_forward: int = 0
    base: str = ""


@dataclass(frozen=True)
class PrefixSettings:
    """The coordinate prefix."""

    embedding: Literal["sinusoidal", "maxmin", "raw"]
    coordinates: int  # sampled non-zeros
    latents: int  # prefix tokens made of them
    scales: int  # frequencies per coordinate
    structure_token: bool
    use_coordinates: bool


@dataclass(frozen=True)
class LoraSettings:
    """LoRA adapters (peft)."""

    rank: int
    alpha: float
    dropout: float


@dataclass(frozen=True)
class PolicySettings:
    """The language model."""

    profile: str
    vocabulary: int
    max_tokens: int  # of a generated program
    prefix: PrefixSettings
    lora: LoraSettings
    profiles: Mapping[str, ProfileSettings]


@dataclass(frozen=True)
class PretrainSettings:
    """Next-token training on CUDA source."""

    budget_s: float  # wall clock; the stage stops early, keeps its best, and says so
    max_steps: int
    batch: int
    context: int
    learning_rate: float
    warmup_steps: int
    program_share: float  # of the tokens, from the project's own rendered programs
    checkpoint_s: float


@dataclass(frozen=True)
class SftSettings:
    """LoRA + prefix fine-tuning on (matrix, best program) pairs."""

    budget_s: float
    max_steps: int
    batch: int
    learning_rate: float
    warmup_steps: int
    checkpoint_s: float
    quality_temperature: float  # a pair is drawn with weight exp((quality - 1) / this) among its problem's pairs
    structure_noise: float  # added to the structure vector, in deviations over the training matrices: few, they are


@dataclass(frozen=True)
class RewardSettings:
    """R = +-compile + (+-test if compiled) + (efficiency * g(t_base / t) if correct) - resource_penalty * violation."""

    compile: float
    test: float
    efficiency: float
    shape: Literal["clipped_log", "ratio", "none"]  # ratio: t_base / t - 1; none: correctness only
    clip_low: float
    clip_high: float
    resource_penalty: float
    normalise: bool  # per matrix: mean 0 and deviation 1 over the programs that are sampled for it together


@dataclass(frozen=True)
class RlSettings:
    """Reinforcement learning on the judge's verdicts."""

    algorithm: Literal["ppo", "grpo"]
    budget_s: float
    max_steps: int
    problems_per_step: int  # a problem is a training matrix and an operator
    samples_per_problem: int
    learning_rate: float
    critic_learning_rate: float
    warmup_steps: int
    gae_lambda: float  # generalised advantage estimation; ppo only
    epochs: int
    clip: float
    value_coefficient: float
    entropy_coefficient: float
    kl_coefficient: float
    temperature: float
    min_pass_rate: float  # of the SFT policy on the validation split; below it there is nothing to reinforce
    validate_every: int  # steps between looks at the validation split; the best step is kept
    validation_samples: int  # programs per validation problem
    checkpoint_s: float
    reward: RewardSettings


@dataclass(frozen=True)
class EvaluateSettings:
    """Sampling on the test split."""

    samples: int  # per matrix
    temperature: float
    ks: tuple[int, ...]
    bootstrap: int  # resamples


@dataclass(frozen=True)
class TrackingSettings:
    """MLflow."""

    uri: str  # empty: sqlite under mlruns/
    experiment: str


@dataclass(frozen=True)
class Settings:
    """All of params.yaml."""

    seed: int
    matrices: MatrixSettings
    corpus: CorpusSettings
    judge: JudgeSettings
    label: LabelSettings
    policy: PolicySettings
    pretrain: PretrainSettings
    sft: SftSettings
    rl: RlSettings
    evaluate: EvaluateSettings
    tracking: TrackingSettings
    root: Path = field(default=Path("."), metadata={"runtime": True})  # the project's folder; not in the file


def load(path: Path | None = None) -> Settings:
    """Read params.yaml (YAML 1.2: `1e-4` is a float).

    Args:
        path: the file; the project's own by default.

    Raises:
        UserError: the file is missing, is not YAML, or a name, type or value in it is not what is expected.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = path or project_root() / "params.yaml"
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: not found") from None
    except YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    settings = from_dict(data, str(path.name))
    settings = dataclasses.replace(settings, root=path.resolve().parent)
    _check(settings, path.name)
    return settings


def from_dict(data: Any, where: str = "params") -> Settings:
    """Build `Settings` from plain data; UserError names the path of the first thing that does not fit."""
    return cast(Settings, _convert(data, Settings, where))


def policy_from_dict(data: Any, where: str) -> PolicySettings:
    """The policy section alone, as a saved model carries it; UserError as `from_dict`."""
    return cast(PolicySettings, _convert(data, PolicySettings, where))


def to_dict(value: Any) -> Any:
    """Plain JSON types of a settings object, without what is known only at run time."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if not f.metadata.get("runtime")]
        return {f.name: to_dict(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: to_dict(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_dict(item) for item in value]
    return value


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted names of a nested plain dictionary, for MLflow parameters."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat.update(flatten(item, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def _convert(data: Any, kind: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _convert_dataclass(data, cast(type, kind), where)
    if origin is Literal:
        choices = typing.get_args(kind)
        if data not in choices:
            raise UserError(f"{where}: expected one of {', '.join(map(str, choices))}, found {data!r}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise UserError(f"{where}: expected a list, found {data!r}")
        item = typing.get_args(kind)[0]
        return tuple(_convert(value, item, f"{where}[{index}]") for index, value in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise UserError(f"{where}: expected a mapping, found {data!r}")
        item = typing.get_args(kind)[1]
        return types.MappingProxyType(
            {str(key): _convert(value, item, f"{where}.{key}") for key, value in data.items()}
        )
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        raise UserError(f"{where}: expected {kind.__name__}, found {data!r}")
    return data


def _convert_dataclass(data: Any, kind: type, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a mapping, found {data!r}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if not f.metadata.get("runtime")}
    for name in data:
        if name not in fields:
            raise UserError(f"{where}.{name}: unknown; expected one of {', '.join(fields)}")
    missing = [n for n, f in fields.items() if n not in data and f.default is f.default_factory is dataclasses.MISSING]
    if missing:
        raise UserError(f"{where}.{missing[0]}: missing")
    return kind(**{name: _convert(value, hints[name], f"{where}.{name}") for name, value in data.items()})


def _check(settings: Settings, where: str) -> None:
    split = settings.matrices.split
    if set(split) != {"train", "validation", "test"} or abs(sum(split.values()) - 1) > 1e-9 or min(split.values()) <= 0:
        raise UserError(f"{where}: matrices.split: expected train, validation and test, positive, summing to 1")
    if settings.policy.profile not in settings.policy.profiles:
        known = ", ".join(settings.policy.profiles)
        raise UserError(f"{where}: policy.profile: expected one of {known}, found {settings.policy.profile!r}")
    if settings.evaluate.samples < max(settings.evaluate.ks):
        raise UserError(f"{where}: evaluate.samples: expected at least max(ks) = {max(settings.evaluate.ks)}")
