"""The tokenizers of the embedded models: the world's words are single tokens, and a caption is decoded unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo.language import caption
from demo.scene import random_scene

pytestmark = pytest.mark.slow


def test_each_word_of_a_caption_is_one_token_for_the_text_encoders(tmp_path: Path) -> None:
    from demo.train.tokenizer import MAX_TOKENS, clip_tokenizer

    tokenizer = clip_tokenizer(tmp_path)
    for seed in range(200):
        text = caption(random_scene(seed))
        pieces = tokenizer.tokenize(text)
        assert len(pieces) == len(re.findall(r"[A-Za-z]+|[.,]", text)), pieces
        assert len(pieces) + 2 <= MAX_TOKENS


def test_words_from_outside_the_world_come_through_too(tmp_path: Path) -> None:
    from demo.train.tokenizer import clip_tokenizer

    tokenizer = clip_tokenizer(tmp_path)
    ids = tokenizer("a zorblax über 北").input_ids
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in ids[1:-1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a zorblax über 北"


def test_both_are_loaded_again_as_they_were_saved(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from demo.train.tokenizer import bert_tokenizer, clip_tokenizer

    for make in (clip_tokenizer, bert_tokenizer):
        saved = make(tmp_path / make.__name__)
        again = AutoTokenizer.from_pretrained(tmp_path / make.__name__)
        text = "A red bird in sunny weather by day."
        assert again(text).input_ids == saved(text).input_ids


def test_a_caption_decodes_to_itself_for_the_captioner(tmp_path: Path) -> None:
    from demo.train.tokenizer import bert_tokenizer

    tokenizer = bert_tokenizer(tmp_path)
    for seed in range(400):
        text = caption(random_scene(seed))
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
