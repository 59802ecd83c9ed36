"""Names of image settings in AUTOMATIC1111's web UI and all that read its files. Texts only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.data_files import DataTable

MODEL_DIGITS, UNIT_DIGITS = 10, 8
"""Digits of a model's and a ControlNet's hash that the web UI and its extension write."""
_SAMPLERS = DataTable(__file__, str, "samplers")
"""Names of diffusers' schedulers in the web UI; one that is not here keeps its own name."""


@dataclass(frozen=True)
class MadeWith:
    """Facts about how images are drawn that only the profile knows."""

    scheduler: str = ""
    """Class name of the scheduler in diffusers."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the weights, by the name that the test cases have for a model."""

    @property
    def sampler(self) -> str:
        """Name of the scheduler in the web UI."""
        return _SAMPLERS.get(self.scheduler, self.scheduler)

    def unit_model(self, title: str) -> str:
        """Return a ControlNet's name as the extension writes it, such as control_canny [d14c016b]."""
        sha = self.hashes.get(title, "")
        return f"{file_name(title)} [{sha[:UNIT_DIGITS]}]" if sha else file_name(title)


def file_name(title: str) -> str:
    """Return the last part of a path or hub id, without extension: other programs know a model by its file alone."""
    name = re.split(r"[\\/]", title.rstrip("/"))[-1]
    return re.sub(r"\.(safetensors|ckpt|pt|bin)$", "", name)


def joined(fields: Mapping[str, Any]) -> str:
    """Return fields as one line, without those that are None or ""."""
    return ", ".join(f"{name}: {_quoted(str(value))}" for name, value in fields.items() if value not in (None, ""))


def _quoted(text: str) -> str:
    """Quote like the web UI: a text that would be read as more than one field becomes a JSON string."""
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',:\n"') else text
