"""The panel beside the gallery for one image: its pictures, its origin, all known facts, and buttons to decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.check_words import words_of
from core.image_filter import ImageFilter, Standing
from core.judgements import JudgeReply
from core.stored_runs import StoredValue
from core.types import StageName
from services.curation.gallery import Detail
from services.curation.views import View
from services.runs.words import artifacts_of, edit_words, recipe_title
from ui.curate.sets_words import set_address
from ui.diff import shortened, word_diff
from ui.explore.checks import OUTCOMES, explained
from ui.explore.parts import Tone, differences, image_url, mask_url, short_model
from ui.markup import Html
from ui.templating import render

VERDICTS: Mapping[str, tuple[Tone, str]] = {
    "accepted": ("ok", "check"),
    "rejected": ("bad", "cross"),
    "open": ("", "empty"),
}
STANDING_TONES: Mapping[Standing, Tone] = {"right": "ok", "newly wrong": "bad", "wrong": "warn"}


def detail_panel(detail: Detail) -> Html:
    """Return the panel with an image and all facts about it, except its origin, which the page requests later."""
    entry, case = detail.entry, detail.case
    tone, sign = VERDICTS[entry.verdict]
    caption = entry.counterfactual
    if entry.caption:
        caption = differences(shortened(word_diff(entry.caption, entry.counterfactual)))
    facts: Mapping[str, Any] = detail.facts.facts if detail.facts is not None else {"votes": (), "predictions": {}}
    return render(
        "curate/detail.html",
        detail=detail,
        entry=entry,
        case=case,
        pictures=_pictures(detail),
        tone=tone,
        sign=sign,
        edits=edit_words(case) if case is not None else "",
        caption=caption,
        same_source=View(ImageFilter(source=entry.source_sha)),
        alike=View(near=entry.id),
        checks=[(check, words_of(check), *OUTCOMES[check.outcome], explained(check)) for check in entry.checks],
        votes=facts["votes"],
        models=[_model(name, standing, facts["predictions"]) for name, standing in entry.standings.items()],
        sets=[(set_address(version.test_set, version=version.key), version.words) for version in detail.sets],
        recipe=recipe_title(entry.recipe),
    )


def origin_part(values: Mapping[StageName, StoredValue], judged: Mapping[str, JudgeReply]) -> Html:
    """Return an image's origin: author, prompt and reply of each stage, and the replies of a judging model."""
    stages = [(name, stored.value.trace) for name, stored in values.items()]
    return render("curate/origin.html", stages=stages, judged=judged)


def _pictures(detail: Detail) -> list[tuple[str, str, str]]:
    """Return (name, title, address) for each picture of an image, such as its source and its mask."""
    entry = detail.entry
    pictures = [("result", "Result", image_url(entry.image_sha))]
    if entry.source_sha:
        pictures.append(("source", "Source", image_url(entry.source_sha)))
    if detail.case is not None:
        titles = {artifact.name: artifact.title for artifact in artifacts_of(detail.case)}
        for name, stored in detail.case.artifacts.items():
            pictures.append((name.replace(" ", "-"), titles[name], image_url(stored.sha)))
    if detail.mask_sha:
        pictures.append(("mask", "Mask", mask_url(detail.mask_sha)))
    return pictures


def _model(model: str, standing: Standing, predictions: Mapping[str, Any]) -> tuple[str, Tone, str]:
    """Return a model's full name, a colour for its result on the image, and text with short name, result and label."""
    label = predictions.get(model, {}).get("label", "")
    words = f"{short_model(model, {})}: {standing}" + (f", says {label}" if label else "")
    return model, STANDING_TONES.get(standing, ""), words
