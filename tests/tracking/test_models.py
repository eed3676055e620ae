import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from components.errors import SparseRLError, UserError
from components.files import sha256_of, write_json
from components.policy import storage
from components.tracking import models
from components.tracking.registry import NAME, register
from components.tracking.runs import stage_run
from components.tracking.store import open_store
from tests.policy.micro import micro_policy, policy_settings, stir

TAGS = {"arch": "sm_90", "timing": "modelled", "data_version": "d1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A micro policy with adapters that matter, as the rl stage leaves it."""
    root = tmp_path_factory.mktemp("trained")
    storage.save_base(micro_policy(lora=False), root / "base", {})
    storage.save_adapted(stir(micro_policy()).eval(), root / "rl", root / "base", {})
    return root / "rl"


@pytest.fixture
def micro(settings):
    return dataclasses.replace(settings, policy=policy_settings())


def _expected(folder, settings):
    return storage.probe_logits(storage.load_adapted(folder, settings.policy))


def test_a_logged_policy_reloads_with_equal_logits_adapters_included(micro, trained):
    with stage_run("register", micro) as run:
        uri = models.log_policy(run, trained, micro, TAGS)
    expected = _expected(trained, micro)
    assert torch.equal(storage.probe_logits(models.load_policy(uri, micro)), expected)
    without = storage.load_adapted(trained, micro.policy)
    without.lm.base_model.disable_adapter_layers()
    assert float((storage.probe_logits(without) - expected).abs().max()) > 0.01  # or equal logits would say nothing
    model = run.client.get_logged_model(uri.rsplit("/", 1)[1])
    assert model.source_run_id == run.run_id


def test_a_logged_policy_names_its_packages_and_loads_as_a_pyfunc(micro, trained):
    import mlflow

    with stage_run("register", micro) as run:
        uri = models.log_policy(run, trained, micro, TAGS)
    loaded = mlflow.pyfunc.load_model(uri)
    assert torch.equal(storage.probe_logits(loaded.unwrap_python_model().policy), _expected(trained, micro))
    assert loaded.metadata.metadata == TAGS
    lines = Path(mlflow.pyfunc.get_model_dependencies(uri)).read_text().split()
    assert {line.split("==")[0] for line in lines} >= set(models.PACKAGES)


def test_a_policy_that_reloads_otherwise_is_not_logged(micro, trained, monkeypatch):
    def random_weights(uri, settings):
        return stir(micro_policy(), scale=0.7).eval()

    monkeypatch.setattr(models, "load_policy", random_weights)
    with pytest.raises(SparseRLError, match="reloads with other logits"), stage_run("register", micro) as run:
        models.log_policy(run, trained, micro, TAGS)
    client, experiment = open_store(micro)
    assert client.get_run(run.run_id).info.status == "FAILED"
    assert list(client.search_logged_models([experiment])) == []


def test_a_registered_policy_is_registered_once_and_survives_a_move(micro, trained, tmp_path):
    shutil.copytree(trained, micro.root / "data/models/rl")
    write_json(micro.root / "data/metrics/rl.json", {"run_id": "trained"})
    evaluation = {"run_id": "evaluated", **TAGS, "rl_spmv_pass_at_1": 0.5, "rl_spmv_speedup_1": 1.25}
    stale = {**evaluation, "policy_sha256": "0" * 64}
    write_json(micro.root / "data/metrics/evaluate.json", stale)
    with pytest.raises(UserError, match="speaks of another policy"):
        register(micro)
    evaluation["policy_sha256"] = sha256_of(micro.root / "data/models/rl/manifest.json")
    write_json(micro.root / "data/metrics/evaluate.json", evaluation)
    first = register(micro)
    assert (first["version"], first["new"]) == ("1", True)
    assert register(micro) == {**first, "new": False}
    client, _ = open_store(micro)
    tags = client.get_model_version(NAME, "1").tags
    assert (tags["training_run"], tags["evaluation_run"]) == ("trained", "evaluated")
    assert (tags["arch"], tags["timing"], tags["data_version"]) == ("sm_90", "modelled", "d1")
    assert (float(tags["rl_spmv_pass_at_1"]), float(tags["rl_spmv_speedup_1"])) == (0.5, 1.25)
    expected = _expected(trained, micro)
    target = tmp_path / "elsewhere"
    micro.root.rename(target)
    moved = dataclasses.replace(micro, root=target)
    assert torch.equal(storage.probe_logits(models.load_policy(f"models:/{NAME}/1", moved)), expected)
    assert register(moved) == {**first, "new": False}


def test_without_a_cycle_nothing_is_registered(micro):
    with pytest.raises(UserError, match=r"evaluate\.json: not found"):
        register(micro)
