"""What the answers of a classifier and of a segmenter are made of: cards, folded tables, matrices, validity. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.evaluation_results import Effectiveness, SegmentationEffect, Together
from core.figures import Figure, Floats
from core.words import count_of
from services.evaluation.types import Cell, CellKind, Evaluated
from ui.evaluate.edits import SHOWN_ROWS, Counts, SizedRow, first_table, rows_in_sight, rows_standing
from ui.evaluate.explained import explained
from ui.evaluate.plots import confusion_table, parts_bar
from ui.evaluate.words import CANNOT_TELL, Links, ends_of, linked, per_cent, points
from ui.explore.parts import box, button, facts, muted, named_row, small
from ui.markup import Child, Html, el

MOST_LABELS = 14
"""Labels of a confusion matrix: of more, those that lose most."""
MOST_NARROW = 6
"""Labels up to which two of them stand side by side on a laptop."""
_WRONG = {"classification": "wrong", "segmentation": "loses a class"}
"""What a model does to a test case that it is wrong about."""


def card(title: str, value: Child, more: Child, link: str | None = None, name: str = "", acts: Child = None) -> Html:
    """A figure with its words; `acts` are what can be done about it."""
    return el(
        "div",
        el("h3", explained(title)),
        el("p", linked(value, link), class_="value" if value != CANNOT_TELL else "value none"),
        small(more),
        acts,
        class_="card figure",
        id=f"card-{name}",
    )


def excess_card(held: Effectiveness | SegmentationEffect, control: Figure, unit: str, links: Links) -> Html:
    """What the edits do beyond what drawing does; `unit` stands behind the figure of the reconstructions."""
    excess = held.excess
    if excess.value is None:
        return card(
            "in excess of reconstruction", CANNOT_TELL, f"{excess.why}.".capitalize(), None, "excess", links.control
        )
    words = f"{ends_of(excess, True)} points; reconstructions {per_cent(control.value)} {unit}".rstrip()
    if held.controlled < held.sources:
        words += f"; of {held.controlled:,} of {count_of(held.sources, 'source')}"
    link = links.opened(Cell("controls"))
    return card("in excess of reconstruction", points(excess.value), words, link, "excess", links.control)


def validity_card(found: Evaluated, links: Links) -> Html:
    """How many faults are valid, or the study that would tell."""
    held = found.validity
    share = held.by_strata if held is not None else None
    if held is None or share is None or share.value is None:
        why = share.why if share is not None else "no study has judged an image of these test cases"
        acts: Child = None
        if isinstance(links.study, str):
            acts = small(links.study)
        elif links.study is not None:
            plan = links.study
            draft = button("Draft a study", look="s", data_send="draft-evaluation-study", title=plan.words, id="draft")
            told = f"{count_of(plan.judged, 'image')} would tell it to about ± {50 * plan.width:.1f} points"
            acts = el("p", draft, " ", el("small", told, class_="mut"), class_="acts")
        if share is None or share.low is None:
            return card("failures that are valid", CANNOT_TELL, f"{why[:1].upper()}{why[1:]}.", None, "validity", acts)
        title = f"{_WRONG[found.kind]} and valid, of all test cases"
        words = f"Cannot be told more closely: {why}."
        return card(title, f"{ends_of(share)} %", words, links.opened(Cell("wrong")), "validity", acts)
    asked = count_of(held.judged + held.discarded, "image")
    words = f"{ends_of(share)}; as measured {per_cent(held.as_measured.value)}, {asked} judged"
    if held.chosen:
        words += f", a selected sample ({held.chosen})"
    return card(
        f"{_WRONG[found.kind]} and valid, of all test cases",
        per_cent(share.value),
        words,
        links.opened(Cell("wrong")),
        "validity",
    )


def folded_table(
    title: str, words: str, head: Sequence[tuple[str, str]], rows: Sequence[SizedRow], counts: Counts, name: str
) -> Html:
    """A table of which the first rows stand in sight."""
    cells = [el("th", explained(text), scope="col", class_=look or None) for text, look in head]
    return box(title, muted(words), rows_in_sight(cells, rows, counts, class_="stacks"), id=name)


def validity_table(found: Evaluated) -> Html | None:
    """What votes make of the share of faults."""
    held = found.validity
    if held is None:
        return None
    rows = [
        named_row(
            explained(name),
            el("td", per_cent(one.value) if one.value is not None else CANNOT_TELL, class_="n"),
            el("td", _told(one), class_="mut small"),
        )
        for name, one in held.figures(_WRONG[found.kind])
    ]
    missing = f"Nobody judged an image of: {', '.join(held.not_judged_in)}." if held.not_judged_in else None
    return box(
        "What validity does to it",
        muted(f"{count_of(held.judged + held.discarded, 'image')} judged by people"),
        el("table", el("tbody", rows)),
        small(missing) if missing else None,
        id="validity",
    )


def _told(figure: Figure) -> str:
    """The interval of a figure, the bounds of one that nobody can tell, or why there is neither."""
    if figure.value is None and figure.low is not None:
        return f"between {ends_of(figure)} %: {figure.why}"
    return ends_of(figure)


def sources_box(
    title: str,
    sources: int,
    words: tuple[str, str, str],
    together: Together,
    rows: Sequence[tuple[str, Child]],
    links: Links,
) -> Html:
    """The sources by how many of their test cases are wrong, in `words`, and more facts about them."""
    kinds: tuple[CellKind, ...] = ("all wrong", "some wrong", "none wrong")
    numbers = (together.all_wrong, together.some_wrong, together.none_wrong)
    parts = [
        (name, number, look, links.opened(Cell(kind)) if number else None)
        for name, number, look, kind in zip(words, numbers, ("bad", "warn", "ok"), kinds, strict=True)
    ]
    about = muted(explained(f"{count_of(sources, 'source')} by their test cases", "all wrong, some wrong, none wrong"))
    named = facts((explained(name), told) for name, told in rows)
    return box(title, about, parts_bar(parts), named, id="flips")


def confusions(
    title: str, words: str, labels: Sequence[str], shares: tuple[Floats, Floats], there: Sequence[int], links: Links
) -> Html | None:
    """Confusion matrices of originals and generated images, for the labels `there`; of many, those that lose most."""
    if not there:
        return None
    before, after = shares
    chosen, said = list(there), f"rows truth, {words}"
    if len(there) > MOST_LABELS:
        lost = np.nan_to_num(np.diagonal(before) - np.diagonal(after), nan=-1.0)
        chosen = sorted(sorted(there, key=lambda number: -lost[number])[:MOST_LABELS])
        said = f"{said}; the {MOST_LABELS} of {len(there)} classes that lose most"
    tables = [
        confusion_table("original", labels, before, chosen, links.opened, "any other", "confusion before"),
        confusion_table("generated", labels, after, chosen, links.opened, "any other"),
    ]
    return box(
        explained(title),
        muted(said),
        el("div", tables, class_="confusions wide" if len(chosen) > MOST_NARROW else "confusions"),
        id="confusion",
    )


def notes_part(notes: Sequence[str]) -> Html | None:
    """What a person has to know of the figures; None for nothing."""
    if not notes:
        return None
    return el(
        "section", el("h2", "What to know"), el("ul", [el("li", note) for note in notes]), class_="card box notes"
    )


def three_columns(found: Evaluated, columns: Sequence[Child], classes: int, labels: int) -> Html:
    """Three columns: tables with `classes` rows in sight, matrices with `labels` rows, the rest below the shorter."""
    wide, laptop = (_left_is_shorter(found, classes, min(labels, MOST_LABELS), beside) for beside in (True, False))
    places = ["eval-columns", "three", "left-wide" if wide else "", "left-laptop" if laptop else ""]
    drawn = [el("div", column, class_="eval-column") for column in columns]
    return el("div", drawn, class_=" ".join(filter(None, places)))


def _left_is_shorter(found: Evaluated, classes: int, labels: int, beside: bool) -> bool:
    """Estimate whether the tables take less height than the matrices, which stand `beside` each other or not."""
    table = first_table(found)
    edits = rows_standing(one.row.n for one in found.edits[table]) if table else 0
    tables = 2 * (edits + min(classes, SHOWN_ROWS)) + 8
    matrices = (1 if beside or labels <= MOST_NARROW else 2) * (labels + 4) + 3
    return tables <= matrices + 10 + (12 if found.validity is not None else 0)
