"""ctransformers runs the exported file as the model that was trained: same tokens, same logits."""

from __future__ import annotations

from ctypes import c_int
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

TEXTS = (
    "A red bird in sunny weather by day.",
    "Task: x\nCaption: two  spaces, 12 numbers; ünknown létters 日本\nReply:",
    "purple with stripes -> at dawn",
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """Return a tiny untrained LLaMA, its tokenizer, and the GGUF file of both."""
    import sentencepiece
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from demo.train.gguf_export import export
    from demo.train.llama import train_pieces

    pieces = sentencepiece.SentencePieceProcessor(
        model_proto=train_pieces(iter(TEXTS[:1] * 50 + ("the quick brown fox jumps over lazy dogs",) * 50), 320)
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    path: Path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    export(model, pieces, path, "test")
    return model, pieces, path


@pytest.fixture(scope="module")
def llm(exported: tuple[Any, Any, Path]) -> Any:
    """Return the exported file, loaded by ctransformers."""
    from demo.train.llama_scores import load

    return load(exported[2])


def tokens(llm: Any, text: str) -> list[int]:
    """Tokenize like the library, but with room for a token per byte. The library stops at as many tokens as letters."""
    data = text.encode()
    buffer = (c_int * (len(data) + 2))()
    return list(buffer[: llm.ctransformers_llm_tokenize(data, True, buffer)])


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_agree(exported: tuple[Any, Any, Path], llm: Any, text: str) -> None:
    _, pieces, _ = exported
    assert tokens(llm, text) == [pieces.bos_id(), *pieces.encode(text)]


def test_logits_agree(exported: tuple[Any, Any, Path], llm: Any) -> None:
    import torch

    model, pieces, _ = exported
    ids = [pieces.bos_id(), *pieces.encode(TEXTS[0])]
    llm.eval(ids)
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([ids])).logits[0, -1].numpy()
    assert np.abs(np.array(llm.logits) - wanted).max() < 5e-4


def test_a_tokenizer_of_another_size_is_refused(exported: tuple[Any, Any, Path], tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from demo.train.gguf_export import export

    _, pieces, _ = exported
    other = LlamaForCausalLM(
        LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1)
    )
    with pytest.raises(ValueError, match="320 pieces, the model 99"):
        export(other, pieces, tmp_path / "model.gguf", "test")
    assert list(tmp_path.iterdir()) == []
