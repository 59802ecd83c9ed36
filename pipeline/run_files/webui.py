"""Names that AUTOMATIC1111's web UI gives to image settings, so that programs for its files can read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.data_files import DataTable

MODEL_DIGITS, UNIT_DIGITS = 10, 8
"""Number of digits of a hash that the web UI writes for a model, and that its extension writes for a ControlNet."""
_SAMPLERS = DataTable(__file__, str, "samplers")
"""Names of diffusers' schedulers in the web UI. A scheduler that is missing here keeps its own name."""


@dataclass(frozen=True)
class MadeWith:
    """Facts about how images were drawn that only the profile knows."""

    scheduler: str = ""
    """Class name of the scheduler in diffusers."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each model's weights, by the name of the model in test cases."""

    @property
    def sampler(self) -> str:
        """Name that Stable Diffusion web UI gives to the scheduler."""
        return _SAMPLERS.get(self.scheduler, self.scheduler)

    def unit_model(self, title: str) -> str:
        """Return a ControlNet's name as the web UI's extension writes it, such as control_canny [d14c016b]."""
        sha = self.hashes.get(title, "")
        return f"{file_name(title)} [{sha[:UNIT_DIGITS]}]" if sha else file_name(title)


def file_name(title: str) -> str:
    """Return the last part of a path or hub id, without extension: other programs know a model by its file alone."""
    name = re.split(r"[\\/]", title.rstrip("/"))[-1]
    return re.sub(r"\.(safetensors|ckpt|pt|bin)$", "", name)


def joined(fields: Mapping[str, Any]) -> str:
    """Return fields in one line, such as "Steps: 20, Seed: 7", without those that are None or ""."""
    return ", ".join(f"{name}: {_quoted(str(value))}" for name, value in fields.items() if value not in (None, ""))


def _quoted(text: str) -> str:
    """Quote like the web UI: a text that would look like several fields becomes a JSON string."""
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',:\n"') else text
