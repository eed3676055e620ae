import numpy as np
import pytest

from components.errors import UserError
from components.policy import tokenizer as text
from components.policy.prompt import Task, render
from tests.policy.micro import VOCABULARY, programs, tokenizer

HARD = [
    "",
    " ",
    "\n",
    "a\r\n\tb \n\n  c\r",
    "<eos> is text <pad><bos>",
    "int row = 128;\n    y[row] = 0x1F;  // trailing  \n",
    "é∞漢🙂\x00\x7f",
    "1234567890",
]


@pytest.mark.parametrize("content", HARD)
def test_text_comes_back_as_it_was_and_never_as_special_tokens(content, tmp_path):
    trained = tokenizer()
    trained.save_pretrained(tmp_path)
    for each in (trained, text.load(tmp_path)):
        ids = text.encode(each, content)
        assert text.decode(each, ids) == content
        assert not set(ids) & {0, 1, 2}
        assert text.decode_bytes(each, ids) == content.encode()


def test_any_bytes_come_back():
    rng = np.random.default_rng(0)
    for data in [bytes(range(256)), *(rng.integers(0, 256, 60, dtype=np.uint8).tobytes() for _ in range(100))]:
        assert text.decode_bytes(tokenizer(), text.encode_bytes(tokenizer(), data)) == data


def test_digits_are_single_and_a_line_break_keeps_its_indent():
    pieces = [
        text.decode(tokenizer(), [i]) for i in text.encode(tokenizer(), "block=128\n  if (row >= rows) return;\n")
    ]
    start = pieces.index("1")
    assert pieces[start : start + 4] == ["1", "2", "8", "\n  "]
    assert pieces[-1] == "\n"


def test_fragments_merge_across_words_so_that_programs_are_short():
    lengths = [len(text.encode(tokenizer(), program)) for program in programs()]
    characters = [len(program) for program in programs()]
    assert max(lengths) <= 140
    assert sum(characters) / sum(lengths) > 6


def test_special_ids_are_fixed_and_the_vocabulary_is_what_was_asked_for():
    trained = tokenizer()
    assert (trained.pad_token_id, trained.bos_token_id, trained.eos_token_id) == (0, 1, 2)
    assert len(trained) == VOCABULARY


def test_a_vocabulary_without_room_for_every_byte_is_refused():
    with pytest.raises(UserError, match="at least 259"):
        text.train(["x"], 100)


def test_a_folder_without_a_tokenizer_says_what_to_run(tmp_path):
    with pytest.raises(UserError, match="dvc repro tokenizer"):
        text.load(tmp_path)


def test_the_prompt_is_a_comment_line_that_names_everything():
    assert render(Task("spmm", 8, "float32", "sm_100")) == "// task: spmm width=8 dtype=float32 arch=sm_100\n"
