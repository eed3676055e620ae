import dataclasses

import numpy as np
import pytest
import torch

from components.errors import SparseRLError, UserError
from components.policy import storage
from components.policy import tokenizer as text
from components.policy.model import new_language_model, pack
from components.policy.prefix import collate
from components.policy.sampling import choose, generate
from components.settings import ProfileSettings
from tests.policy.micro import micro_policy, policy_settings, random_view, stir, tokenizer

PROMPTS = [[1, *text.encode(tokenizer(), p)] for p in ("// a\n", "// spmm width=8 dtype=float32\n", "x", "// b 12\n")]
VIEWS = collate([random_view(seed) for seed in range(4)])


def draw(policy, rows=range(4), **kwargs):
    chosen = {"max_tokens": 40, "temperature": 1.0, "seed": 3, **kwargs}
    rows = list(rows)
    return generate(policy, VIEWS.take(torch.tensor(rows)), [PROMPTS[r] for r in rows], **chosen)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sampler_and_full_forward_agree_on_every_token(temperature):
    policy = stir(micro_policy()).eval()
    samples = draw(policy.merged(), temperature=temperature)
    scores = policy.score(VIEWS, PROMPTS, [s.tokens for s in samples], temperature)
    assert {len(s.tokens) for s in samples} != {1}
    for row, sample in enumerate(samples):
        expected = scores.logprobs[row, : len(sample.tokens)].detach()
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=2e-5, rtol=0)
        assert scores.mask[row].sum() == len(sample.tokens)


def test_greedy_takes_the_most_likely_token_of_the_full_forward():
    policy = stir(micro_policy()).eval()
    for row, sample in enumerate(draw(policy, temperature=0.0, max_tokens=20)):
        ids = torch.tensor([[*PROMPTS[row], *sample.tokens]])
        best = policy.logits(VIEWS.take(torch.tensor([row])), ids).argmax(-1)[0]
        start = len(PROMPTS[row]) - 1
        assert best[start : start + len(sample.tokens)].tolist() == list(sample.tokens)


def test_what_a_row_says_does_not_depend_on_who_shares_the_batch():
    policy = stir(micro_policy()).merged()
    together, apart = draw(policy), draw(policy, batch=1)
    assert [s.tokens for s in together] == [s.tokens for s in apart]
    assert [s.tokens for s in draw(policy, rows=range(2))] == [s.tokens for s in together[:2]]
    assert [s.tokens for s in draw(policy, seed=4)] != [s.tokens for s in together]


def test_padding_and_begin_are_never_said_and_the_end_ends():
    policy = stir(micro_policy(), scale=1.0).merged()
    samples = draw(policy, rows=[0, 1, 2, 3] * 8, max_tokens=60)
    said = [token for sample in samples for token in sample.tokens]
    assert not {0, 1} & set(said)
    for sample in samples:
        assert sample.finished == (sample.tokens[-1] == 2)
        assert 2 not in sample.tokens[:-1]
        assert sample.finished or len(sample.tokens) == 60
        assert sample.text == text.decode(tokenizer(), sample.tokens)


def test_inverse_cdf_follows_the_distribution():
    logits = torch.tensor([[0.1, 0.2, 0.7]]).log().expand(1000, 3)
    uniform = (torch.arange(1000) + 0.5) / 1000
    tokens, logs = choose(logits, uniform, 1.0)
    assert torch.bincount(tokens).tolist() == [100, 200, 700]
    assert logs[-1].exp() == pytest.approx(0.7)
    assert choose(logits[:1], uniform[:1], 0.0)[0].tolist() == [2]


def test_pack_points_at_the_state_that_predicts_each_token():
    ids, mask, positions, targets = pack([[1, 5], [1]], [[7], [8, 9, 2]], 0, torch.device("cpu"))
    assert ids.tolist() == [[1, 5, 7, 0], [1, 8, 9, 2]]
    assert mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert positions.tolist() == [[1, 0, 0], [0, 1, 2]]
    assert targets.tolist() == [[7, 0, 0], [8, 9, 2]]


def test_entropy_is_that_of_the_distribution():
    policy = micro_policy()
    scores = policy.score(VIEWS, PROMPTS, [[5, 2]] * 4, entropy=True)
    assert float(scores.entropy.detach().max()) <= np.log(len(tokenizer())) + 1e-4
    assert float(scores.entropy.detach().min()) > 0
    assert float(policy.score(VIEWS, PROMPTS, [[5, 2]] * 4).entropy.abs().max()) == 0


def test_lora_freezes_the_base_and_starts_as_no_change():
    plain, adapted = micro_policy(lora=False), micro_policy()
    ids = torch.tensor([PROMPTS[0]])
    adapted.prefix.load_state_dict(plain.prefix.state_dict())
    torch.testing.assert_close(
        plain.logits(VIEWS.take(torch.tensor([0])), ids), adapted.logits(VIEWS.take(torch.tensor([0])), ids)
    )
    names = [name for name, _ in adapted.trainable()]
    assert all("lora_" in name or name.startswith("prefix.") for name in names)
    linear = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {part for name in names for part in name.split(".") if part in linear} == linear


def test_a_saved_policy_reloads_with_equal_logits(tmp_path):
    base = micro_policy(lora=False)
    storage.save_base(base, tmp_path / "base", {})
    policy = storage.load_base(tmp_path / "base", base.settings)
    assert torch.equal(storage.probe_logits(policy), storage.probe_logits(base))
    policy.add_lora(policy.settings.lora)
    stir(policy)
    storage.save_adapted(policy, tmp_path / "sft", tmp_path / "base", {"steps": 3})
    loaded = storage.load_adapted(tmp_path / "sft", policy.settings)
    assert torch.equal(storage.probe_logits(loaded), storage.probe_logits(policy))
    assert not any(p.requires_grad for p in loaded.parameters())
    assert {n for n, _ in storage.load_adapted(tmp_path / "sft", policy.settings, True).trainable()} == {
        n for n, _ in policy.trainable()
    }


def test_saving_notices_a_reload_that_differs():
    first, second = micro_policy(), stir(micro_policy())
    with pytest.raises(SparseRLError, match="other logits"):
        storage._same(first, second)


def test_a_policy_of_another_profile_is_refused(tmp_path):
    policy = micro_policy(lora=False)
    storage.save_base(policy, tmp_path / "base", {})
    other = dataclasses.replace(policy.settings, profile="small", profiles={"small": ProfileSettings(8, 1, 1, 8)})
    with pytest.raises(UserError, match="holds profile tiny"):
        storage.load_base(tmp_path / "base", other)


def test_a_folder_that_was_left_half_written_is_refused(tmp_path):
    storage.save_base(micro_policy(lora=False), tmp_path / "base", {})
    (tmp_path / "base" / "manifest.json").unlink()
    with pytest.raises(UserError, match="not found"):
        storage.load_base(tmp_path / "base", policy_settings())


def test_a_base_that_is_not_there_is_one_line(tmp_path):
    settings = dataclasses.replace(
        policy_settings(), profile="hub", profiles={"hub": ProfileSettings(base=str(tmp_path))}
    )
    with pytest.raises(UserError, match=r"policy\.profiles\.hub\.base: expected a folder or a model in reach"):
        new_language_model(settings, tokenizer())


def test_a_hub_profile_takes_the_same_path_from_a_local_folder(tmp_path):
    made = micro_policy(lora=False)
    made.causal_lm.save_pretrained(tmp_path)
    settings = dataclasses.replace(
        policy_settings(), profile="hub", profiles={"hub": ProfileSettings(base=str(tmp_path))}
    )
    loaded = new_language_model(settings, tokenizer())
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(loaded(ids).logits, made.causal_lm(ids).logits)
