"""Sentences of evaluations, retrainings and studies of validity, from the templates in the folder beside this file."""

from __future__ import annotations

from pathlib import Path

from core.evaluation_results import ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL
from core.text_templates import TextTemplates
from core.words import count_of, duration, few_names
from evaluation.report import per_cent, with_interval

TEXTS = TextTemplates(
    Path(__file__).with_name("templates"),
    count_of=count_of,
    duration=duration,
    few_names=few_names,
    on_generated=ON_GENERATED,
    on_originals=ON_ORIGINAL,
    on_shift=ON_SHIFT,
    on_unseen=ON_UNSEEN,
    original=ORIGINAL,
    per_cent=per_cent,
    with_interval=with_interval,
)
