import dataclasses

import numpy as np
import pandas as pd
import pytest

from components.errors import UserError
from components.policy import tokenizer as text
from components.training.pretrain import Texts
from components.training.texts import architectures, corpus_texts, programs, prompt
from tests.policy.micro import params, tokenizer


@pytest.fixture
def settings(tmp_path):
    files = [f"// file {i}\nint f{i}() {{\n  return {i};\n}}\n" * 30 for i in range(60)]
    (tmp_path / "data/corpus").mkdir(parents=True)
    pd.DataFrame({"text": files}).to_parquet(tmp_path / "data/corpus/corpus.parquet")
    return dataclasses.replace(params(), root=tmp_path)


def test_held_out_files_and_programs_are_never_trained_on(settings):
    texts = Texts(settings, tokenizer())
    assert set(texts.files) | set(texts.held_files) == set(corpus_texts(settings))
    assert not set(texts.files) & set(texts.held_files)
    assert not {s for _, s in texts.programs} & {s for _, s in texts.held_programs}
    assert len(texts.programs) + len(texts.held_programs) == len(programs(settings))
    assert 0.02 < len(texts.held_programs) / len(programs(settings)) < 0.1


def test_windows_begin_at_a_line_and_hold_at_most_the_context(settings):
    texts = Texts(settings, tokenizer())
    rows = texts.windows(texts.files, 40, np.random.default_rng(0))
    assert all(0 < len(row) <= settings.pretrain.context for row in rows)
    lines = {line for content in texts.files for line in content.splitlines()}
    assert all(text.decode(tokenizer(), row).splitlines()[0] in lines for row in rows if len(row) > 60)
    assert rows == texts.windows(texts.files, 40, np.random.default_rng(0))


def test_a_program_row_is_a_prompt_a_program_and_the_end(settings):
    texts = Texts(settings, tokenizer())
    known = {prompt(choice, arch) + source for choice, source in programs(settings) for arch in architectures()}
    for row in texts.program_rows(texts.programs, 5, np.random.default_rng(1)):
        assert row[-1] == 2
        assert text.decode(tokenizer(), row[:-1]) in known


def test_a_missing_corpus_says_what_to_run(tmp_path):
    with pytest.raises(UserError, match="dvc repro corpus"):
        corpus_texts(dataclasses.replace(params(), root=tmp_path))
