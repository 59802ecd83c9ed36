"""The untrained language model already copies, thanks to its initial weights."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_an_untrained_model_goes_on_with_what_it_has_read_before() -> None:
    import torch

    from demo.train.copying import start_copying
    from demo.train.llama import VOCABULARY, new_model

    torch.manual_seed(0)
    model = new_model().eval()
    start_copying(model)
    text = torch.randperm(VOCABULARY)[:40]
    with torch.no_grad():
        said = model(input_ids=torch.cat((text, text[:-1]))[None]).logits[0].argmax(-1)
    # in the second reading, the model predicts the word that followed in the first
    assert (said[40:] == text[1:]).float().mean() > 0.9
