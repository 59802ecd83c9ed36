"""Sentences and Markdown of evaluations, retrainings and studies of validity, from the templates beside this file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from core.evaluation_results import ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL
from core.figures import Figure, percent
from core.model_sections import in_bytes
from core.text_templates import TextTemplates
from core.words import count_of, duration, few_names
from evaluation.report import per_cent, with_interval


def _look(effect: Figure) -> str:
    if effect.value is None or effect.low is None or effect.high is None:
        return effect.why
    return f"{effect.value:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})"


def _cell(text: str) -> str:
    """Escape a text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _when(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M UTC")


TEXTS = TextTemplates(
    Path(__file__).with_name("templates"),
    cell=_cell,
    count_of=count_of,
    duration=duration,
    few_names=few_names,
    in_bytes=in_bytes,
    look=_look,
    on_generated=ON_GENERATED,
    on_originals=ON_ORIGINAL,
    on_shift=ON_SHIFT,
    on_unseen=ON_UNSEEN,
    original=ORIGINAL,
    per_cent=per_cent,
    percent=percent,
    when=_when,
    with_interval=with_interval,
)
