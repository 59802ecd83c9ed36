"""Libraries load one model at a time: two overlapping loads would leave torch changed for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.loading import LOADING
from core.settings import UnderTestSettings


def another_may_load() -> bool:
    """Return True if another thread could load a model now."""

    def tried() -> bool:
        free = LOADING.acquire(blocking=False)
        if free:
            LOADING.release()
        return free

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(tried).result()


@pytest.mark.slow  # the libraries are loaded
def test_no_other_model_is_loaded_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedModel, ViTConfig, ViTForImageClassification, ViTImageProcessor

    from evaluation.models import load_adapter
    from pipeline.models.weights import loading

    with loading():
        with loading():  # a generator loads its parts like this, within its own load
            assert not another_may_load()
        assert not another_may_load()
    assert another_may_load()

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    net = ViTForImageClassification(ViTConfig(**small, image_size=32, patch_size=16, num_labels=2))
    net.save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    plain, free = PreTrainedModel.tie_weights, list[bool]()
    made = ViTForImageClassification.__init__

    def watched(self: object, *given: object, **more: object) -> None:
        free.append(another_may_load())
        assert PreTrainedModel.tie_weights is not plain, "transformers changes nothing any more: the lock may go"
        made(self, *given, **more)

    monkeypatch.setattr(ViTForImageClassification, "__init__", watched)
    load_adapter(UnderTestSettings(source="transformers", file=str(tmp_path)))
    assert free == [False] and another_may_load() and PreTrainedModel.tie_weights is plain
