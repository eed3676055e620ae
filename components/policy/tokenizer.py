"""Byte-level BPE for CUDA: a line break with its indent is one piece, digits stay single, fragments merge.

A fragment is what lies between digits and line breaks. Letting merges run across the words of a fragment, and training
on the project's own programs beside the corpus, makes a program cost about a third of the tokens that a
word-by-word tokenizer needs; single digits keep `block=128` and `block=256` comparable.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
PIECES = r"[ \t]*\r?\n[ \t]*|\d|[^\d\r\n]+?(?=[ \t]*\r?\n|\d|$)|[^\d\n]"  # line break + indent | digit | fragment
MAX_FRAGMENT = 64  # bytes; a longer token is a memorised line that nothing else shares


def train(texts: Iterable[str], vocabulary: int) -> "PreTrainedTokenizerFast":
    """Train a tokenizer.

    Args:
        texts: the corpus and the programs, in the proportion in which their merges should win.
        vocabulary: number of tokens, at least 259: 3 special ones and every byte.

    Raises:
        UserError: the vocabulary is too small to hold every byte.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocabulary < len(alphabet) + 3:
        raise UserError(f"policy.vocabulary: expected at least {len(alphabet) + 3} tokens, found {vocabulary}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(alphabet),
        max_token_length=MAX_FRAGMENT,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # a text that spells "<eos>" is text
    )


def load(folder: Path) -> "PreTrainedTokenizerFast":
    """Read a tokenizer that `save_pretrained` wrote.

    Raises:
        UserError: the folder holds none.
    """
    from transformers import PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").is_file():
        raise UserError(f"{folder}: no tokenizer.json; run `dvc repro tokenizer`")
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, without special ones."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def decode(tokenizer: Any, ids: Iterable[int]) -> str:
    """The text of token ids; special ones are left out, bytes that are not UTF-8 become U+FFFD."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    return text


def encode_bytes(tokenizer: Any, data: bytes) -> list[int]:
    """Token ids of any bytes: what is UTF-8 as text, each other byte as its own token."""
    ids: list[int] = []
    for part, valid in _utf8_parts(data):
        if valid:
            ids += encode(tokenizer, part.decode())
        else:
            ids += [tokenizer.convert_tokens_to_ids(_BYTE_TO_CHAR[byte]) for byte in part]
    return ids


def decode_bytes(tokenizer: Any, ids: Iterable[int]) -> bytes:
    """The exact bytes of token ids; special ones are left out."""
    special = set(tokenizer.all_special_ids)
    tokens = tokenizer.convert_ids_to_tokens([i for i in ids if i not in special])
    return bytes(_CHAR_TO_BYTE[char] for token in tokens for char in token)


def _utf8_parts(data: bytes) -> Iterator[tuple[bytes, bool]]:
    while data:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.start:
                yield data[: error.start], True
            yield data[error.start : error.end], False
            data = data[error.end :]
        else:
            yield data, True
            return


def _byte_alphabet() -> dict[int, str]:
    """The byte-level alphabet: printable Latin-1 stands for itself, the rest for U+0100 onwards (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in table)
    return table | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


_BYTE_TO_CHAR = _byte_alphabet()
_CHAR_TO_BYTE = {char: byte for byte, char in _BYTE_TO_CHAR.items()}
