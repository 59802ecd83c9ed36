"""A sentence-embedding model: a small BERT whose token vectors are averaged, such as all-MiniLM-L6-v2."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from core.latest import Latest
from core.model_sections import SentenceModel
from pipeline.models.weights import NO_CODE, loaded_from, locate, pick_device, pick_dtype

KEPT = 4000
"""Number of cached vectors, since a page asks for the same few words again and again."""
LONGEST = 128
"""Maximum number of tokens that are read of a text."""


class SentenceEmbedder:
    """A sentence-embedding model in the file layout of sentence-transformers. One call at a time. The library of this
    name is not imported: the import takes longer than loading the model, and only a pooling of vectors is needed.
    """

    def __init__(self, section: SentenceModel) -> None:
        from transformers import AutoModel, AutoTokenizer

        folder = locate("sentence model", section)
        self.name = section.title
        self._lock = threading.Lock()
        self._device = pick_device()
        self._known = Latest[list[float]](KEPT)
        with loaded_from("sentence model", section):
            pooling = folder / "1_Pooling" / "config.json"
            options = json.loads(pooling.read_text(encoding="utf-8")) if pooling.is_file() else {}
            # In most models, the mean of all tokens represents the text. In some, the first token does.
            self._first_token = bool(options.get("pooling_mode_cls_token"))
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **NO_CODE)
            dtype = pick_dtype(section.dtype, self._device)
            model = AutoModel.from_pretrained(folder, dtype=dtype, **NO_CODE)
        self._model: Any = model.to(self._device).eval()

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a unit vector for each text. At most `LONGEST` tokens of a text are read. Vectors are cached."""
        with self._lock:
            return self._known.each(texts, lambda new: self._embed([texts[place] for place in new]))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        import torch

        encoded = self._tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        encoded = encoded.to(self._device)
        with torch.inference_mode():
            states = self._model(**encoded).last_hidden_state.float()  # (texts, tokens, width)
        if self._first_token:
            pooled = states[:, 0]
        else:
            mask = encoded["attention_mask"].unsqueeze(-1).float()
            pooled = (states * mask).sum(1) / mask.sum(1)
        unit = torch.nn.functional.normalize(pooled, dim=1)
        return [[float(x) for x in row] for row in unit]
