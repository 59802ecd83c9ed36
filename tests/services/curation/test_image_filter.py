"""A filter selects the same images everywhere: in an address, a script, a test set, a study and an evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import UserError
from core.image_filter import CHOICES, FACETS, PARTS, ImageFilter
from services.curation.views import View
from services.evaluation.commands import OnSubject
from services.evaluation.subjects import read_cases
from services.studio import Studio
from tests.support.study_cases import MODEL, object_runs, road_runs

ADDRESSES = (
    "",
    "class=bird&class=boat",
    "class=road",
    "kind=classification&edit type=weather&review=open",
    "-review=rejected&-class=bird",
    "none=tag&role=generated",
    "tag=odd",
    f"model={MODEL}:newly wrong&model={MODEL}:wrong",
    f"model={MODEL}:unread",
    "kind=classification&model=:newly wrong",
    "check=edges kept:passed",
    "range=edges kept:0:0.5",
    "none=score",
    "score=0.5:",
    "text=snowy",
    "edited=snowy&test_cases=1",
    "role=source",
)


@pytest.fixture
def filled(studio: Studio) -> Studio:
    """Studio with objects and roads, some of them reviewed, tagged, or predicted wrongly."""
    cases = [*object_runs(studio.workspace, 3, wrong=(1, 6)), *road_runs(studio.workspace, 1)]
    studio.workspace.test_cases.review(cases[0], "accepted")
    studio.workspace.test_cases.review(cases[1], "rejected", "no bird")
    studio.commands.send("tag-images", {"entries": [2, 5], "tag": "odd"})
    return studio


def pictures(studio: Studio, entries: Any) -> set[str]:
    return {entry.image_sha for entry in studio.workspace.catalogue.listed(entries)}


@pytest.mark.slow
def test_a_filter_gives_the_same_images_through_every_door(filled: Studio) -> None:
    workspace, send = filled.workspace, filled.commands.send
    whole = send("create-test-set", {"title": "Everything"})["test_set"]
    send("add-to-test-set", {"test_set": whole, "filter": "", "sources": True})
    draft = workspace.test_sets.get(whole).draft
    assert draft is not None
    made_here = pictures(filled, filled.gallery.ids(View.read("test_cases=1")))
    rejected = pictures(filled, filled.gallery.ids(View.read("review=rejected")))
    found: dict[str, set[str]] = {}
    for number, address in enumerate(ADDRESSES):
        image_filter = ImageFilter.read(address)
        images = found[address] = pictures(filled, filled.gallery.ids(View.read(address)))
        parts: dict[str, list[str]] = {}
        for name, value in image_filter.pairs:
            parts.setdefault(name, []).append(value)
        for given in (address, parts):
            listed = send("list-test-cases", {"filter": given, "limit": 200})["test_cases"]
            assert {one["image"] for one in listed} == images, address
        assert send("count-test-cases", {"filter": address})["count"] == len(listed)

        of_version = {*workspace.test_sets.chosen(draft.number, image_filter)}
        sources = {entry.image for entry in workspace.test_sets.entries(draft.number) if entry.role == "source"}
        assert of_version - sources == images, address
        if images:
            some = send("create-test-set", {"title": f"Some {number}"})["test_set"]
            send("add-to-test-set", {"test_set": some, "filter": address, "expected": len(listed)})
            added = workspace.test_sets.get(some).draft
            assert added is not None
            assert {entry.image for entry in workspace.test_sets.entries(added.number)} == images, address

        study = send("create-study", {"title": f"Study {number}", "template": "own"})
        assert send("describe-filter", {"study": study, "filter": address}).free == len(images & made_here)
        if images & made_here:
            send("draw-items", {"study": study, "filter": address, "count": 1000})
            items = [item for item in workspace.studies.items(study) if item.kind == "item"]
            assert {item.image_sha for item in items} == images & made_here, address

        objects = f"{address}&kind=classification".strip("&")
        evaluated = read_cases(workspace, OnSubject.of({"filter": objects}).subject)
        shown = pictures(filled, filled.gallery.ids(View.read(objects)))
        assert {*evaluated.generated.shas} == shown - rejected, "images that a person rejected count in no figure"
    assert len({frozenset(images) for images in found.values()}) > 9, "they are different filters"


def test_every_part_has_words_and_comes_back() -> None:
    for name in PARTS:
        if name not in ("none", "entries"):
            value = {"check": "a:passed", "model": "m: x:wrong", "range": "a:b:0:1", "score": ":0.5"}.get(name)
            value = value or CHOICES.get(name, ("1",))[0]
            image_filter = ImageFilter.of([(name, value)])
            assert image_filter.pairs == [(name, value)] and ImageFilter.read(image_filter.address) == image_filter
            assert image_filter.words
    for name in FACETS:
        nothing = ImageFilter.of([("none", name), (f"-{name}", CHOICES.get(name, ("1",))[-1])])
        assert ImageFilter.read(nothing.address) == nothing


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("review=wanted", "Unknown filter value “wanted” of “review”. Choose one of: accepted, rejected, open."),
        ({"check": "label seen:maybe"}, "Unknown filter value “maybe” of “check”. Choose one of: passed, failed"),
        ("sha=1", "Unknown filter part “sha”. Choose one of: kind, class,"),
        ("range=label seen:1", "cannot be read. Write CHECK:LOW:HIGH"),
        ("near=3", "used as filters"),
    ],
)
def test_an_unknown_value_is_refused_by_one_sentence_everywhere(studio: Studio, given: Any, sentence: str) -> None:
    for name, fields in (
        ("list-test-cases", {}),
        ("decide", {"verdict": "accepted"}),
        ("add-to-test-set", {"test_set": "x"}),
        ("list-models-under-test", {}),
        ("describe-filter", {"study": "x"}),
    ):
        with pytest.raises(UserError) as refused:
            studio.commands.send(name, {"filter": given, **fields})
        assert sentence in str(refused.value) and refused.value.field == "filter"
