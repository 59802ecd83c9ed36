"""The difference of two versions: figures, and the images of each kind with what they were and are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.test_sets import SetEntry, SetVersion, TestSet
from core.words import count_of
from services.test_sets.versions import Difference
from ui.curate.sets_words import (
    PAGE,
    SHORT,
    SPLIT_WORDS,
    pages,
    reference,
    set_address,
    shot,
    splits_in_words,
    version_title,
)
from ui.explore.parts import here_link, page_head, pill
from ui.markup import Child, Html, el

KINDS: tuple[tuple[str, str, str], ...] = (
    ("added", "added", "in the new one only"),
    ("removed", "removed", "in the old one only"),
    ("relabelled", "relabelled", "with another label"),
    ("remasked", "other mask", "another mask, or other names of its classes"),
    ("resplit", "re-split", "in another split"),
)
"""Name in the address, words, and what it means."""
Change = tuple[SetEntry, SetEntry | None]
"""An image of a kind: as it was and as it is; an image that came or went stands alone."""


def difference_page(
    old: SetVersion, new: SetVersion, found: Difference, kind: str, at: int, sets: Sequence[TestSet]
) -> Html:
    """The page without its frame. `kind` is a name of KINDS, or "" for the first that has any; `at` a page, from 1."""
    changes: dict[str, Sequence[Change]] = {
        "added": [(entry, None) for entry in found.added],
        "removed": [(entry, None) for entry in found.removed],
        "relabelled": found.relabelled,
        "remasked": found.remasked,
        "resplit": found.resplit,
    }
    if kind not in changes:
        kind = next((name for name, held in changes.items() if held), "added")
    address = set_address(new.test_set, "/compare")
    query = {"old": reference(old), "new": reference(new)}
    tiles = [
        here_link(
            [el("b", f"{len(changes[name]):,}"), el("span", words)],
            set_address(new.test_set, "/compare", **query, kind=name),
            name == kind,
            look="tile",
            title=means,
            data_kind=name,
        )
        for name, words, means in KINDS
    ]
    shown = changes[kind][(at - 1) * PAGE : at * PAGE]
    places = pages(address, {**query, "kind": kind}, at, len(changes[kind]))
    if shown:
        grid: Child = el("div", [_shot(kind, *change) for change in shown], class_="shots", id="shots")
    elif not found:
        grid = el("p", "They hold the same images, with the same labels, masks and splits.", class_="empty", id="same")
    else:
        grid = el("p", "No image.", class_="empty")
    return el(
        "div",
        page_head(new.set_name, set_address(new.test_set), el("h1", "What is different"), class_="set-head"),
        _choice(old, new, sets),
        el("div", tiles, class_="tiles", id="figures"),
        el("div", el("b", _words(kind, len(changes[kind]))), el("span", class_="grow"), places, class_="toolbar"),
        grid,
        places,
        class_="set-difference",
    )


def _words(kind: str, number: int) -> str:
    _, words, means = next(one for one in KINDS if one[0] == kind)
    return f"{count_of(number, 'image')} {words}: {means}" if number else f"No image {words}"


def _choice(old: SetVersion, new: SetVersion, sets: Sequence[TestSet]) -> Html:
    """Any two versions; a form that needs no script."""
    return el(
        "form",
        el("label", el("span", "from", class_="mut"), _select("old", old, sets)),
        el("span", "→", class_="mut"),
        el("label", el("span", "to", class_="mut"), _select("new", new, sets)),
        el("button", "Compare", type="submit", class_="btn"),
        el(
            "a",
            "The other way round",
            href=set_address(old.test_set, "/compare", old=reference(new), new=reference(old)),
            class_="btn q",
        ),
        el("p", [_about(version, old.test_set != new.test_set) for version in (old, new)], class_="abouts"),
        action=set_address(new.test_set, "/compare"),
        method="get",
        class_="card box choose-two",
    )


def _about(version: SetVersion, with_set: bool) -> Html:
    splits = splits_in_words(version)
    named = f"{version.set_name}, {version_title(version)}" if with_set else version_title(version)
    words = f"{named}: {count_of(version.entries, 'image')}" + (f" ({splits})" if splits else "")
    return el("small", words, el("code", version.id[:SHORT]) if version.id else None, class_="mut about")


def _select(name: str, chosen: SetVersion, sets: Sequence[TestSet]) -> Html:
    groups = [
        el(
            "optgroup",
            [
                el("option", version_title(one), value=reference(one), selected=one.number == chosen.number)
                for one in reversed(held.versions)
            ],
            label=held.name,
        )
        for held in sets
    ]
    return el("select", groups, name=name, id=f"choose-{name}")


def _shot(kind: str, was: SetEntry, now: SetEntry | None) -> Html:
    note: Child = el("span", SPLIT_WORDS[was.split], class_=f"split {was.split or 'none'}")
    marks: list[Child] = [pill("source", "acc")] if was.role == "source" else []
    label: Child = None
    if now is not None and kind == "relabelled":
        label = _changed(was.label or "no label", now.label or "no label")
    elif now is not None and kind == "resplit":
        note = _changed(SPLIT_WORDS[was.split], SPLIT_WORDS[now.split])
    elif now is not None and kind == "remasked":
        note = _changed(_mask(was), _mask(now))
    shown = now or was
    return shot(shown, *marks, label=label, note=note)


def _changed(was: str, now: str) -> Html:
    return el("span", el("del", was), " ", el("ins", now), class_="changed")


def _mask(entry: SetEntry) -> str:
    return entry.mask[:8] if entry.mask is not None else "no mask"
