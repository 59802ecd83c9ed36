"""The plain words of the page beside the terms of the field: what each stage is for, said without knowing its name."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.types import GENERATION, StageName

PLAIN: Mapping[StageName, str] = {
    "caption": "what the picture shows",
    "keywords": "what may change",
    "alternatives": "into what",
    "counterfactuals": "the new captions",
    GENERATION: "the new images",
}
"""Behind the name of a stage, in its title; a stage of another recipe has none."""
