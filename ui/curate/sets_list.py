"""The list of test sets, and what to do as long as there is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.test_sets import SetVersion, TestSet
from core.words import count_of
from ui.curate.frame import curate_page
from ui.curate.sets_words import set_address, splits_in_words, version_title
from ui.explore.parts import acts, button, first_steps, icon, list_line, pill
from ui.markup import Child, Html, el
from ui.study.fields import field, text_input
from ui.study.words import when

NEW_FORM = {"data_send": "create-test-set", "class_": "new-set"}
SHEETS, SCRIPTS = ("curate-sets.css",), ("curate-sets.js",)


def list_page(sets: Sequence[TestSet], labels: Mapping[str, int], signed_in: bool) -> str:
    """All test sets, the latest first; `labels` says how many the shown version of each has, by its id."""
    head = el(
        "div",
        el("h1", "Test sets"),
        el("span", class_="grow"),
        el("a", icon("up"), "Import", href="/curate/import", class_="btn", id="import"),
        button([icon("plus"), "New test set"], look="p", data_open_window="new-set", id="new") if sets else None,
        class_="title",
    )
    shown: Child = (
        el("div", [_line(one, labels.get(one.id, 0)) for one in sets], class_="set-list") if sets else _none()
    )
    window = (
        el("dialog", el("h2", "New test set"), _new_form("Create the draft"), class_="window small", id="new-set")
        if sets
        else None
    )
    return curate_page("Test sets", "sets", head, shown, window, signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def shown_version(held: TestSet) -> SetVersion:
    """The version of a set that is looked at first: its draft, or else the latest."""
    version = held.draft or held.latest
    assert version is not None  # a set goes with its last version
    return version


def _new_form(words: str) -> Html:
    return el(
        "form",
        field(
            "title",
            "Name",
            text_input("title", "", maxlength=200, class_="wide", placeholder="Night birds"),
            {},
            "It is part of the id of every version, so it stays.",
        ),
        el("p", "", class_="wrong", data_problem="", role="alert"),
        acts(el("button", words, type="submit", class_="btn p")),
        novalidate=True,
        **NEW_FORM,
    )


def _none() -> Html:
    steps = (
        ("Collect", "Add accepted images to a draft, here or from the gallery. A draft may change as you like."),
        ("Split", "Train, validation and test are parted by source, so that nothing leaks from one to another."),
        ("Release", "A version gets an id that says what is in it. It never changes, and loads in five lines."),
    )
    return first_steps(
        "A view is a question, a test set is a list",
        "A filter of the gallery finds other images tomorrow. A test set holds the same ones for ever: each with its "
        "label, its split, its mask and where it came from.",
        steps,
        _new_form("Create the first test set"),
        "first-set",
    )


def _line(held: TestSet, labels: int) -> Html:
    version, released = shown_version(held), [one for one in held.versions if not one.is_draft]
    facts = [
        count_of(version.entries, "image"),
        count_of(labels, "label") if labels else "",
        splits_in_words(version),
    ]
    known = [
        el("span", el("b", version_title(one)), " ", el("small", when(one.released), class_="mut"), class_="released")
        for one in reversed(released[-3:])
        if one.released is not None
    ]
    if len(released) > 3:
        known.append(el("small", f"and {len(released) - 3} more", class_="mut"))
    draft = pill("draft", "warn", title="It may change until it is released")
    return list_line(
        held.name,
        " · ".join(filter(None, facts)),
        set_address(held.id),
        "set-line",
        draft if version.is_draft else pill("released", "ok"),
        el("span", known or el("small", "nothing released yet", class_="mut"), class_="versions-line"),
        when=f"begun {when(held.created)}",
    )
