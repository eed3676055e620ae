import pytest

from components import settings
from components.errors import UserError
from components.files import project_root


def _plain() -> dict:
    return settings.to_dict(settings.load())


def test_exponent_without_dot_is_a_float_everywhere(tmp_path):
    text = (project_root() / "params.yaml").read_text()
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("learning_rate: 3e-4", "learning_rate: 1e-4"))
    loaded = settings.load(path)
    assert loaded.rl.learning_rate == 0.0001
    assert isinstance(loaded.rl.learning_rate, float)
    assert loaded.root == tmp_path


def test_round_trip_through_plain_data():
    plain = _plain()
    assert settings.to_dict(settings.from_dict(plain)) == plain
    assert "root" not in plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(sede=1), "params.sede: unknown; expected one of seed, matrices"),
        (lambda d: d.pop("seed"), "params.seed: missing"),
        (lambda d: d.update(seed="one"), "params.seed: expected int, found 'one'"),
        (lambda d: d.update(seed=True), "params.seed: expected int, found True"),
        (
            lambda d: d["judge"].update(backend="tpu"),
            "params.judge.backend: expected one of auto, emulator, gpu, found 'tpu'",
        ),
        (lambda d: d["evaluate"].update(ks=3), "params.evaluate.ks: expected a list, found 3"),
        (
            lambda d: d["label"]["operators"][0].update(width=1.5),
            "params.label.operators[0].width: expected int, found 1.5",
        ),
        (lambda d: d.update(rl=None), "params.rl: expected a mapping, found None"),
    ],
)
def test_wrong_data_is_named_with_its_path(change, message):
    plain = _plain()
    change(plain)
    with pytest.raises(UserError) as caught:
        settings.from_dict(plain)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train: 0.6", "train: 0.7", "matrices.split"),
        ("profile: tiny", "profile: huge", "expected one of tiny, small, smollm2, hub, found 'huge'"),
        ("ks: [1, 8]", "ks: [1, 800]", "evaluate.samples: expected at least max(ks) = 800"),
        ("seed: 20261201", "seed: [", "not YAML"),
    ],
)
def test_wrong_combinations_are_refused(tmp_path, old, new, message):
    text = (project_root() / "params.yaml").read_text()
    assert old in text
    path = tmp_path / "params.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        settings.load(path)
    assert message in str(caught.value)


def test_flatten_names_every_leaf():
    assert settings.flatten({"a": {"b": 1, "c": [1, 2]}, "d": "x"}) == {"a.b": 1, "a.c": [1, 2], "d": "x"}
