"""The table of labels and classes, and the links with which a user decides what an ambiguous label means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from urllib.parse import parse_qs, urlsplit

from core.class_tables import IMAGENET, class_table
from core.model_identity import ModelIdentity, Preprocessing
from evaluation.class_mapping import map_classes, read_mapping, report_of
from services.evaluation.types import ClassMapping, Pending, Subject, SubjectView
from ui.evaluate.page import LONGEST_MAPPING, Stand, work_part
from ui.evaluate.words import Place

CLASSES = tuple(one.name for one in class_table(IMAGENET).classes)
IDENTITY = ModelIdentity("resnet50", "v1", "classification", Preprocessing(), CLASSES)
LABELS = ("kite", "bike", "horse", "house finch")


def shown(mapping: str = "", labels: Sequence[str] = LABELS) -> str:
    """Return the part of the page for these labels, with the user's own mapping."""
    own = read_mapping(mapping.encode(), "mapping.csv") if mapping else None
    report = report_of(map_classes(labels, CLASSES, own=own))
    view = SubjectView(Subject(), "Images", "classification", 3, 9, 0, ("",), "")
    place = Place(version=1, key="model", mapping=mapping)
    return str(work_part(Stand(place, view, "ResNet", ClassMapping(IDENTITY, report, ""), Pending(12, 0))))


def links(page: str) -> dict[str, str]:
    """Return the user's mapping that each link in the table of unmapped labels leads to, by the link's text."""
    table = re.search(r'<table id="unmapped">.*?</table>', page)
    found = re.findall(r'<a href="([^"]+)">([^<]+)</a>', table[0] if table else "")
    return {words: parse_qs(urlsplit(unescape(to)).query)["mapping"][0] for to, words in found}


def test_an_ambiguous_label_lists_its_meanings_and_a_click_maps_it() -> None:
    page = shown()
    assert "2 unmapped" in page and "2 labels can mean several things" in page
    assert "can mean hawk (kite); plaything (no class)" in page
    assert links(page) == {
        "kite": "label,model class\nkite,kite",
        "moped": "label,model class\nbike,moped",
        "bicycle": "label,model class\nbike,bicycle",
    }
    after = shown(links(page)["bicycle"])
    assert "1 unmapped" in after and list(links(after)) == ["kite"]
    last = shown(links(after)["kite"])
    assert "all mapped" in last and "2 by the file" in last


def test_a_label_that_is_taken_for_something_stands_in_sight_with_the_reason() -> None:
    marked = re.search(r'<table id="marked">.*?</table>', shown())
    assert marked is not None and "sorrel" in marked[0] and "the model knows 1 of its 29 kinds in WordNet" in marked[0]
    assert "house finch" not in marked[0], "a name of one meaning needs no second look"


def test_a_choice_that_has_an_id_only_is_called_by_a_word() -> None:
    assert links(shown(labels=["person"])) == {"person (n00007846)": "label,model class\nperson,n00007846"}


def test_lines_that_cannot_be_added_to_have_names_and_no_links() -> None:
    long = "label,model class" + "\nhorse,sorrel" * (LONGEST_MAPPING // 13)
    for mapping in ("label;model class\nhorse;sorrel", long):
        page = shown(mapping)
        assert not links(page) and "moped, bicycle" in page
