"""The policy: a causal language model from transformers behind a coordinate prefix, with LoRA adapters by peft."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from components.errors import UserError
from components.policy.prefix import PrefixEncoder, ViewBatch
from components.settings import LoraSettings, PolicySettings

MAX_POSITIONS = 2048
NEVER = -1e9  # a logit; finite, so that entropies stay numbers
ADAPTED = "all-linear"  # peft's name for every linear layer except the output head


def pick_device() -> torch.device:
    """The GPU when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def new_language_model(settings: PolicySettings, tokenizer: Any) -> nn.Module:
    """The base language model of the chosen profile.

    A profile with sizes is a Llama-style model with random weights (seed torch before); one with a `base` is loaded
    through `AutoModelForCausalLM` from a local folder or the Hugging Face cache or hub.

    Raises:
        UserError: the base's weights cannot be had, or the profile names neither sizes nor a base.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    profile = settings.profiles[settings.profile]
    if profile.base:
        return _load_base(settings.profile, profile.base)
    if not (profile.hidden and profile.layers and profile.heads and profile.feed_forward):
        raise UserError(
            f"policy.profiles.{settings.profile}: expected base, or hidden, layers, heads and feed_forward above 0"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=profile.hidden,
        num_hidden_layers=profile.layers,
        num_attention_heads=profile.heads,
        num_key_value_heads=profile.heads,
        intermediate_size=profile.feed_forward,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model


def _load_base(profile: str, base: str) -> nn.Module:
    from transformers import AutoModelForCausalLM

    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"policy.profiles.{profile}.base: expected a folder or a model in reach, found {base!r} ({reason})"
        ) from None
    return model


@dataclass(frozen=True, eq=False)
class Scores:
    """What the policy thinks of given continuations; all float32[B, n] over the continuations' tokens, right-padded.

    `mask` is 1 on real tokens. `hidden` float32[B, n, width]: the state from which each token was predicted.
    """

    logprobs: Tensor
    entropy: Tensor
    mask: Tensor
    hidden: Tensor


class Policy(nn.Module):
    """Language model + prefix encoder; `lm` is a plain causal LM or, after `add_lora`, a peft model around it."""

    def __init__(self, lm: nn.Module, settings: PolicySettings, features: int, tokenizer: Any):
        super().__init__()
        self.settings, self.features, self.tokenizer = settings, features, tokenizer
        self.lm = lm
        self.width: int = self.causal_lm.get_input_embeddings().embedding_dim
        self.prefix = PrefixEncoder(self.width, features, settings.prefix)

    @property
    def causal_lm(self) -> Any:
        """The transformers model, adapters (if any) included."""
        lm: Any = self.lm
        return lm.get_base_model() if hasattr(lm, "peft_config") else lm

    @property
    def body(self) -> Any:
        """The transformers model without its output head."""
        return getattr(self.causal_lm, self.causal_lm.base_model_prefix)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return next(self.parameters()).device

    def add_lora(self, settings: LoraSettings) -> None:
        """Freeze the language model and put trainable adapters on all its linear layers."""
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,  # type: ignore[arg-type]  # peft divides by it: any number will do
            lora_dropout=settings.dropout,
            target_modules=ADAPTED,
            task_type="CAUSAL_LM",
        )
        self.lm = get_peft_model(self.lm, config)

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that training moves: adapters + prefix, or all of them without adapters."""
        return ((name, value) for name, value in self.named_parameters() if value.requires_grad)

    def embed(self, views: ViewBatch | None, ids: Tensor) -> Tensor:
        """float32[B, prefix + n, width] of ids int64[B, n]; no prefix when `views` is None (pre-training)."""
        words: Tensor = self.causal_lm.get_input_embeddings()(ids)
        return words if views is None else torch.cat([self.prefix(views).to(words.dtype), words], 1)

    def hidden(self, views: ViewBatch | None, ids: Tensor) -> Tensor:
        """Last hidden states float32[B, n, width] over ids int64[B, n] (right-padded); the prefix's are left out."""
        embeddings = self.embed(views, ids)
        states: Tensor = self.body(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return states[:, embeddings.shape[1] - ids.shape[1] :]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits float32[.., vocabulary] from hidden states; padding and begin tokens can never be chosen."""
        logits: Tensor = self.causal_lm.get_output_embeddings()(hidden).float()
        special = self.tokenizer
        never = {special.pad_token_id, special.bos_token_id} - {special.eos_token_id, None}
        return logits.index_fill(-1, torch.tensor(sorted(never), device=logits.device), NEVER)

    def logits(self, views: ViewBatch | None, ids: Tensor) -> Tensor:
        """Next-token logits float32[B, n, vocabulary] over ids int64[B, n]."""
        return self.head(self.hidden(views, ids))

    def score(
        self,
        views: ViewBatch | None,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scores:
        """Log-probability of each continuation token given the views, the prompt and the tokens before it.

        Both are those of the distribution sampled from at `temperature`, in nats; entropies are zeros unless asked for.
        """
        ids, mask, positions, targets = pack(prompts, continuations, self.tokenizer.pad_token_id, self.device)
        hidden = self.hidden(views, ids)
        hidden = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
        log = (self.head(hidden) / temperature).log_softmax(-1)
        chosen = log.gather(-1, targets[..., None])[..., 0]
        return Scores(chosen, -(log.exp() * log).sum(-1) if entropy else torch.zeros_like(chosen), mask, hidden)

    def merged(self) -> "Policy":
        """A frozen copy whose adapters are folded into the weights: faster to sample from, same outputs."""
        clone = Policy.__new__(Policy)
        nn.Module.__init__(clone)
        clone.settings, clone.features, clone.tokenizer, clone.width = (
            self.settings, self.features, self.tokenizer, self.width,
        )  # fmt: skip
        clone.lm = copy.deepcopy(self.lm)
        if hasattr(clone.lm, "peft_config"):
            clone.lm = clone.lm.merge_and_unload()  # type: ignore[operator]
        clone.prefix = copy.deepcopy(self.prefix)
        return clone.requires_grad_(False).eval()


def pack(
    prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prompts and continuations as one right-padded batch.

    Returns:
        ids int64[B, n] = prompt + continuation; and over continuation tokens, right-padded to the longest:
        mask float32[B, m], positions int64[B, m] (of the state that predicts each token), targets int64[B, m].
    """
    rows = [[*prompt, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)]
    longest, most = max(map(len, rows)), max(map(len, continuations))
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros(len(rows), most)
    positions = torch.zeros(len(rows), most, dtype=torch.long)
    targets = torch.full((len(rows), most), pad, dtype=torch.long)
    for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        count = len(row) - len(prompt)
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, :count] = 1.0
        positions[index, :count] = torch.arange(count) + len(prompt) - 1
        targets[index, :count] = ids[index, len(prompt) : len(row)]
    return ids.to(device), mask.to(device), positions.to(device), targets.to(device)
