"""A policy as a folder: tokenizer, base model, adapter, prefix encoder; hyper-parameters inside; manifest written last.

manifest.json          kind, hyper-parameters, hashes of every file; its presence means that the folder is whole
base/                  transformers' format (a `base` policy)
adapter/               peft's format (a policy with adapters)
prefix.safetensors     the prefix encoder (a policy with adapters)
tokenizer/             transformers' format
"""

import shutil
from pathlib import Path
from typing import Any

import torch

from components.errors import SparseRLError, UserError
from components.files import read_json, sha256_of, write_json
from components.policy import tokenizer as text
from components.policy.model import Policy, new_language_model
from components.settings import PolicySettings, Settings, policy_from_dict, to_dict

MANIFEST = "manifest.json"
_PROBE = (5, 6, 7, 8, 9, 10, 11, 12)  # token ids on which a reloaded policy must agree


def save_base(policy: Policy, folder: Path, extra: dict[str, Any]) -> None:
    """Write a policy without adapters: the pre-trained language model and its tokenizer; checked by reloading."""
    _fresh(folder)
    policy.causal_lm.save_pretrained(folder / "base", safe_serialization=True)
    policy.tokenizer.save_pretrained(folder / "tokenizer")
    _finish(folder, {"kind": "base", "features": policy.features, "policy": to_dict(policy.settings), **extra})
    _same(policy, load_base(folder, policy.settings))


def load_base(folder: Path, settings: PolicySettings) -> Policy:
    """A pre-trained policy without adapters, its prefix encoder new.

    Raises:
        UserError: the folder is not whole, or was trained with another profile or vocabulary.
    """
    from transformers import AutoModelForCausalLM

    manifest = _manifest(folder, "base")
    if manifest["policy"]["profile"] != settings.profile:
        found = manifest["policy"]["profile"]
        raise UserError(f"{folder}: holds profile {found}, params.yaml asks for {settings.profile}; run `dvc repro`")
    tokenizer = text.load(folder / "tokenizer")
    lm = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    return Policy(lm, settings, int(manifest["features"]), tokenizer)


def save_adapted(policy: Policy, folder: Path, base: Path, extra: dict[str, Any]) -> None:
    """Write adapters and prefix beside a copy of the base, so that the folder stands alone; checked by reloading."""
    from safetensors.torch import save_file

    _fresh(folder)
    shutil.copytree(base / "base", folder / "base")
    shutil.copytree(base / "tokenizer", folder / "tokenizer")
    policy.lm.save_pretrained(str(folder / "adapter"), safe_serialization=True)  # type: ignore[operator]
    save_file(
        {name: value.contiguous() for name, value in policy.prefix.state_dict().items()}, folder / "prefix.safetensors"
    )
    _finish(folder, {"kind": "adapted", "features": policy.features, "policy": to_dict(policy.settings), **extra})
    _same(policy, load_adapted(folder, policy.settings))


def load_adapted(folder: Path, settings: PolicySettings, trainable: bool = False) -> Policy:
    """A fine-tuned policy: base, adapters, prefix encoder.

    Args:
        folder: written by `save_adapted`.
        settings: its profile is checked; the prefix and adapter sizes come from the folder.
        trainable: whether adapters and prefix will be trained further.

    Raises:
        UserError: the folder is not whole, or was trained with another profile.
    """
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    manifest = _manifest(folder, "adapted")
    stored = policy_from_dict(manifest["policy"], str(folder / MANIFEST))
    if stored.profile != settings.profile:
        raise UserError(
            f"{folder}: holds profile {stored.profile}, params.yaml asks for {settings.profile}; run `dvc repro`"
        )
    lm = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    policy = Policy(lm, stored, int(manifest["features"]), text.load(folder / "tokenizer"))
    policy.lm = PeftModel.from_pretrained(lm, str(folder / "adapter"), is_trainable=trainable)
    policy.prefix.load_state_dict(load_file(folder / "prefix.safetensors"))
    if not trainable:
        policy.requires_grad_(False).eval()
    return policy


def new_policy(settings: Settings, tokenizer: Any, features: int) -> Policy:
    """A policy of the profile in params.yaml with seeded random weights (or a downloaded base)."""
    torch.manual_seed(settings.seed)
    return Policy(new_language_model(settings.policy, tokenizer), settings.policy, features, tokenizer)


def _fresh(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _finish(folder: Path, manifest: dict[str, Any]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}
    write_json(folder / MANIFEST, {**manifest, "sha256": hashes})


def _manifest(folder: Path, kind: str) -> dict[str, Any]:
    manifest: dict[str, Any] = read_json(folder / MANIFEST)
    if manifest["kind"] != kind:
        raise UserError(f"{folder}: a policy of kind {manifest['kind']}; expected {kind}")
    return manifest


@torch.no_grad()
def probe_logits(policy: Policy) -> torch.Tensor:
    """Logits on fixed tokens and a fixed matrix view: equal before saving and after loading."""
    import numpy as np

    from components.policy.prefix import MatrixView, collate

    count = policy.settings.prefix.coordinates
    points = np.linspace(0, 0.99, 2 * count, dtype=np.float32).reshape(count, 2)
    structure = np.linspace(-1, 1, policy.features, dtype=np.float32)
    views = collate([MatrixView(points, points * 100, structure)], policy.device)
    ids = torch.tensor([[*_PROBE]], device=policy.device) % len(policy.tokenizer)
    was = policy.training
    policy.eval()
    logits = policy.logits(views if hasattr(policy.lm, "peft_config") else None, ids)
    policy.train(was)
    return logits


def _same(before: Policy, after: Policy) -> None:
    expected, found = probe_logits(before).cpu(), probe_logits(after).cpu()
    if not torch.equal(expected, found):
        worst = float((expected - found).abs().max())
        raise SparseRLError(f"a saved policy reloads with other logits (largest difference {worst:g})")
