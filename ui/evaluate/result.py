"""The answer of an evaluation as markup: words, four figures, which edits hurt, where answers go, classes, calibration.

Pure. `Links` say where numbers and pictures lead; a report that stands alone has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evaluation.by_source import Figure
from evaluation.effectiveness import ClassRow, Effectiveness
from evaluation.segmentation import SegmentationEffect
from services.evaluation.types import Cell, CellKind, Evaluated
from ui.evaluate.edits import SHOWN_ROWS, edits_part, first_table
from ui.evaluate.plots import (
    calibration_plot,
    change_axis,
    change_plot,
    confusion_table,
    parts_bar,
)
from ui.evaluate.words import CANNOT_TELL, Links, clipped, ends_of, minus, p_words, per_cent, points
from ui.views.markup import Child, Html, el
from ui.views.parts import button, counted

MOST_LABELS = 14
"""Labels of a confusion matrix: of more, those that lose most."""
MOST_NARROW = 6
"""Labels up to which two of them stand side by side on a laptop."""
_FIGURES = re.compile(r"(\([^()]*\)|(?<![\w.-])[-+]?\d(?:[\d,.]*\d)?(?: %| points)?)")
"""What is a figure in the words of an answer, or an interval in brackets."""


def result_part(found: Evaluated, links: Links) -> Html:
    """All of it."""
    if found.effectiveness is not None:
        body = _of_classifier(found, found.effectiveness, links)
    elif found.segmentation is not None:
        body = _of_segmenter(found, found.segmentation, links)
    else:
        body = []
    return el(
        "section",
        el(
            "div",
            el("p", _answer(found), id="answer"),
            el("p", found.mapping.summary, class_="mut small", id="not-mapped") if found.mapping.unmapped else None,
            class_="card answer",
        ),
        body,
        _notes(found.notes),
        id="part-result",
        class_="evaluated",
    )


def _answer(found: Evaluated) -> list[Child]:
    """The words, with the figures in them made strong, but for their intervals."""
    pieces = _FIGURES.split(found.answer)
    return [
        el("b", minus(piece)) if place % 2 and not piece.startswith("(") else minus(piece) if place % 2 else piece
        for place, piece in enumerate(pieces)
    ]


def _notes(notes: Sequence[str]) -> Html | None:
    if not notes:
        return None
    return el(
        "section", el("h2", "What to know"), el("ul", [el("li", note) for note in notes]), class_="card box notes"
    )


# The four figures


def _card(title: Child, value: Child, more: Child, link: str | None = None, name: str = "", acts: Child = None) -> Html:
    shown = el("a", value, href=link) if link else value
    return el(
        "div",
        el("h3", title),
        el("p", shown, class_="value" if value != CANNOT_TELL else "value none"),
        el("p", more, class_="mut small"),
        acts,
        class_="card figure",
        id=f"card-{name}",
    )


def _excess_card(excess: Figure, control: Figure, unit: str, links: Links) -> Html:
    if excess.value is None:
        return _card(
            "in excess of reconstruction", CANNOT_TELL, f"{excess.why}.".capitalize(), None, "excess", links.control
        )
    words = f"{ends_of(excess, True)} points; reconstructions {per_cent(control.value)} {unit}".rstrip()
    link = links.opened(Cell("controls"))
    return _card("in excess of reconstruction", points(excess.value), words, link, "excess", links.control)


def _validity_card(found: Evaluated, links: Links) -> Html:
    held = found.validity
    if held is None or held.by_strata.value is None:
        if held is not None:
            why = held.by_strata.why
        elif found.segmentation is not None:
            why = "it is told of classifiers only"
        else:
            why = "no study has judged an image of these test cases"
        acts = None
        if links.study is not None:
            plan = links.study
            draft = button("Draft a study", look="s", data_send="draft-evaluation-study", title=plan.words, id="draft")
            told = f"{counted(plan.judged)} would tell it to about ± {50 * plan.width:.1f} points"
            acts = el("p", draft, " ", el("small", told, class_="mut"), class_="acts")
        return _card("failures that are valid", CANNOT_TELL, f"{why[:1].upper()}{why[1:]}.", None, "validity", acts)
    words = f"{ends_of(held.by_strata)}; as measured {per_cent(held.as_measured.value)}, {counted(held.judged)} judged"
    return _card(
        "wrong and valid, of all test cases",
        per_cent(held.by_strata.value),
        words,
        links.opened(Cell("wrong")),
        "validity",
    )


def _cards(*cards: Html) -> Html:
    return el("div", cards, class_="eval-cards")


# Of a classifier


def _of_classifier(found: Evaluated, held: Effectiveness, links: Links) -> list[Child]:
    worth = held.clustering
    value: Child = CANNOT_TELL if worth.effective is None else f"{worth.effective:,.0f}"
    why = (
        f"cases of one source fail together: design effect {worth.design_effect:.1f}"
        if worth.design_effect is not None and worth.effective is not None
        else worth.why
    )
    error = (
        CANNOT_TELL
        if held.error_generated.value is None
        else [per_cent(held.error_original.value, unit=False), " → ", per_cent(held.error_generated.value)]
    )
    told = (
        held.error_generated.why
        if held.error_generated.value is None
        else f"{points(held.difference.value)} points ({ends_of(held.difference, True)}), bootstrap over "
        f"{counted(held.sources, 'source')}"
    )
    cards = _cards(
        _card("error, original → generated", error, told, links.opened(Cell("wrong")), "error"),
        _excess_card(held.excess, held.error_reconstructed, "wrong", links),
        _validity_card(found, links),
        _card(
            f"what {counted(held.cases, 'test case')} {'is' if held.cases == 1 else 'are'} worth",
            value,
            why,
            links.opened(Cell("generated")),
            "worth",
        ),
    )
    columns = [
        el("div", edits_part(found, links), _classes(held.classes, links), class_="eval-column"),
        el("div", _confusions(held, links), _sources(held, links), _validity_table(found), class_="eval-column"),
        el("div", _calibration(held), class_="eval-column"),
    ]
    wide, laptop = (_left_is_shorter(found, held, beside) for beside in (True, False))
    places = ["eval-columns", "three", "left-wide" if wide else "", "left-laptop" if laptop else ""]
    return [cards, el("div", columns, class_=" ".join(filter(None, places)))]


def _left_is_shorter(found: Evaluated, held: Effectiveness, beside: bool) -> bool:
    """Whether the column of the tables is the shorter one, where the confusion matrices stand `beside` each other or
    one below the other: by the lines of a matrix, roughly. What is left goes below it.
    """
    table = first_table(found)
    edits, classes = len(found.edits[table]) if table else 0, len(held.classes)
    tables = 2 * (min(edits, SHOWN_ROWS) + min(classes, SHOWN_ROWS)) + 8
    labels = min(sum(1 for number in held.confusion[1].images if number), MOST_LABELS)
    matrices = (1 if beside or labels <= MOST_NARROW else 2) * (labels + 4) + 3
    return tables <= matrices + 10 + (12 if found.validity is not None else 0)


def _classes(rows: Sequence[ClassRow], links: Links) -> Html | None:
    if not rows:
        return None
    # An interval of a few sources may reach beyond what a difference of shares can be.
    rows = [replace(row, difference=clipped(row.difference)) for row in rows]
    ordered = sorted(rows, key=lambda row: (row.difference.value is None, -(row.difference.value or 0), row.label))
    axis = change_axis([row.difference for row in rows])
    drawn = []
    for row in ordered:
        link = links.opened(Cell("class", row.label))
        wrong = links.opened(Cell("class", row.label, only_wrong=True)) if row.error_generated.value else None
        generated = per_cent(row.error_generated.value)
        told = row.difference.value is not None
        plot: Child = (
            change_plot([row.difference], axis) if told else el("span", row.difference.why, class_="mut small")
        )
        drawn.append(
            el(
                "tr",
                el("th", el("a", row.label, href=link) if link else row.label, scope="row"),
                el("td", per_cent(row.error_original.value), class_="n", data_what="original"),
                el("td", el("a", generated, href=wrong) if wrong else generated, class_="n", data_what="generated"),
                el("td", plot, class_="plot-cell"),
                el(
                    "td",
                    points(row.difference.value),
                    el("small", ends_of(row.difference, True), class_="mut") if told else None,
                    class_="n",
                    title=f"p = {p_words(row.p_adjusted)}, corrected over all classes" if told else None,
                ),
                el("td", f"{row.cases:,}", class_="n", data_what="n"),
                class_=None if told else "untold",
            )
        )
    head = [("class", ""), ("original", "n"), ("generated", "n"), ("change", "plot-cell"), ("points", "n"), ("n", "n")]
    return _folded_table("By class", "error; those that lose most first", head, drawn, "classes")


def _folded_table(title: str, words: str, head: Sequence[tuple[str, str]], rows: Sequence[Html], name: str) -> Html:
    top = el("thead", el("tr", [el("th", text, scope="col", class_=look or None) for text, look in head]))
    body: list[Child] = [el("table", top, el("tbody", rows[:SHOWN_ROWS]), class_="stacks")]
    if len(rows) > SHOWN_ROWS:
        rest = el("table", el("tbody", rows[SHOWN_ROWS:]), class_="stacks")
        body.append(el("details", el("summary", f"{len(rows) - SHOWN_ROWS} more"), rest, class_="more-line"))
    return el("section", el("h2", title), el("p", words, class_="mut"), body, class_="card box", id=name)


def _confusions(held: Effectiveness, links: Links) -> Html | None:
    before, after = held.confusion
    there = [number for number in range(len(after.labels)) if after.images[number]]
    if not there:
        return None
    chosen, words = there, "rows truth, per cent"
    if len(there) > MOST_LABELS:
        lost = np.nan_to_num(np.diagonal(before.shares) - np.diagonal(after.shares), nan=-1.0)
        chosen = sorted(sorted(there, key=lambda number: -lost[number])[:MOST_LABELS])
        words = f"rows truth, per cent; the {MOST_LABELS} of {len(there)} classes that lose most"
    other = "any other"
    tables = [
        confusion_table("original", before.labels, before.shares, chosen, links.opened, other, "confusion before"),
        confusion_table("generated", after.labels, after.shares, chosen, links.opened, other),
    ]
    return el(
        "section",
        el("h2", "Where answers go"),
        el("p", words, class_="mut"),
        el("div", tables, class_="confusions wide" if len(chosen) > MOST_NARROW else "confusions"),
        class_="card box",
        id="confusion",
    )


def _sources(held: Effectiveness, links: Links) -> Html:
    def link(kind: CellKind, number: int) -> str | None:
        return links.opened(Cell(kind)) if number else None

    together, flips = held.together, held.flips
    bar = parts_bar(
        [
            ("all wrong", together.all_wrong, "bad", link("all wrong", together.all_wrong)),
            ("some wrong", together.some_wrong, "warn", link("some wrong", together.some_wrong)),
            ("none wrong", together.none_wrong, "ok", link("none wrong", together.none_wrong)),
        ]
    )
    rows: list[tuple[str, Child]] = [
        ("newly wrong", _linked(f"{flips.newly_wrong:,}", link("newly wrong", flips.newly_wrong))),
        ("newly right", _linked(f"{flips.newly_right:,}", link("newly right", flips.newly_right))),
        ("net", f"{points(flips.net.value)} points ({ends_of(flips.net, True)})"),
    ]
    if flips.p_value is not None:
        rows.append(("McNemar, exact", f"p = {p_words(flips.p_value)}"))
    if held.factor.value is not None:
        interval = (
            ends_of(held.factor) if held.factor.low is None else f"{held.factor.low:.1f} to {held.factor.high:.1f}"
        )
        rows.append(("error, times the original", f"{held.factor.value:.1f} ({interval})"))
    else:
        rows.append(("error, times the original", f"{CANNOT_TELL}: {held.factor.why}"))
    if held.left_out:
        rows.append(("cannot be compared", _linked(f"{held.left_out:,}", links.opened(Cell("left out")))))
    return el(
        "section",
        el("h2", "Sources and flips"),
        el(
            "p",
            f"{counted(together.all_wrong + together.some_wrong + together.none_wrong, 'source')} by their test cases",
            class_="mut",
        ),
        bar,
        el("dl", [[el("dt", name), el("dd", value)] for name, value in rows], class_="facts-list"),
        class_="card box",
        id="flips",
    )


def _linked(text: str, link: str | None) -> Child:
    return el("a", text, href=link) if link else text


def _calibration(held: Effectiveness) -> Html:
    named = list(zip(("original", "generated"), held.calibration, strict=True))
    legend = [
        el(
            "li",
            el("i", class_="second" if number else "first"),
            f"{name}: ",
            el("b", per_cent(one.expected_error)),
            class_="key",
        )
        for number, (name, one) in enumerate(named)
    ]
    return el(
        "section",
        el("h2", "Is it as sure as it is right?"),
        el(
            "div",
            calibration_plot(named),
            el(
                "div",
                el("p", "Across: how sure. Up: how often right. Below the line it is too sure.", class_="mut small"),
                el("p", "Expected calibration error", class_="small"),
                el("ul", legend, class_="legend"),
            ),
            class_="calibration-box",
        ),
        class_="card box",
        id="calibration",
    )


def _validity_table(found: Evaluated) -> Html | None:
    held = found.validity
    if held is None:
        return None
    rows = [
        el(
            "tr",
            el("th", name, scope="row"),
            el("td", per_cent(one.value) if one.value is not None else CANNOT_TELL, class_="n"),
            el("td", ends_of(one), class_="mut small"),
        )
        for name, one in (
            ("as measured", held.as_measured),
            ("times the share judged valid", held.times_valid),
            ("wrong and valid, by strata", held.by_strata),
            ("the same with the score of all images", held.with_score),
            ("error among valid images", held.among_valid),
        )
    ]
    missing = f"Nobody judged an image of: {', '.join(held.not_judged_in)}." if held.not_judged_in else None
    return el(
        "section",
        el("h2", "What validity does to it"),
        el("p", f"{counted(held.judged)} judged by people", class_="mut"),
        el("table", el("tbody", rows)),
        el("p", missing, class_="mut small") if missing else None,
        class_="card box",
        id="validity",
    )


# Of a segmenter


def _of_segmenter(found: Evaluated, held: SegmentationEffect, links: Links) -> list[Child]:
    there = held.miou_generated.value is not None
    value: Child = (
        [per_cent(held.miou_original.value, unit=False), " → ", per_cent(held.miou_generated.value, unit=False)]
        if there
        else CANNOT_TELL
    )
    told = (
        f"{points(held.difference.value)} points ({ends_of(held.difference, True)}), bootstrap over "
        f"{counted(held.sources, 'source')}"
        if there
        else held.miou_generated.why
    )
    kept = held.miou_where_kept
    cards = _cards(
        _card("mIoU, original → generated", value, told, links.opened(Cell("generated")), "error"),
        _excess_card(held.excess, held.miou_reconstructed, "", links),
        _validity_card(found, links),
        _card(
            "mIoU where the mask holds",
            per_cent(kept.value, unit=False) if kept.value is not None else CANNOT_TELL,
            f"{ends_of(kept)}; {held.kept:,} of {counted(held.cases, 'test case')} keep their mask by the check"
            if held.kept
            else f"Of none of the {counted(held.cases, 'test case')} a check says that its mask holds.",
            None,
            "kept",
        ),
    )
    names = [one.name for one in held.classes]
    shown = [number for number in range(len(names)) if np.isfinite(held.confusion_generated[number]).any()]
    chosen = shown[:MOST_LABELS]
    confusion = (
        el(
            "section",
            el("h2", "Where pixels go"),
            el("p", "rows truth, per cent", class_="mut"),
            el(
                "div",
                confusion_table("original", names, held.confusion_original, chosen, None, "any other"),
                confusion_table("generated", names, held.confusion_generated, chosen, None, "any other"),
                class_="confusions wide" if len(chosen) > MOST_NARROW else "confusions",
            ),
            class_="card box",
            id="confusion",
        )
        if chosen
        else None
    )
    return [cards, el("div", _segmented_classes(held), confusion, class_="eval-columns")]


def _segmented_classes(held: SegmentationEffect) -> Html:
    def lost(number: int) -> tuple[bool, float, str]:
        one = held.classes[number]
        if one.iou_original is None or one.iou_generated is None:
            return True, 0.0, one.name
        return False, one.iou_generated - one.iou_original, one.name

    rows = []
    changes = {
        number: Figure(None, why="it is not there") if lost(number)[0] else Figure(lost(number)[1])
        for number in range(len(held.classes))
    }
    axis = change_axis(changes.values())
    for number in sorted(range(len(held.classes)), key=lost):
        one, change = held.classes[number], changes[number]
        rows.append(
            el(
                "tr",
                el("th", one.name, scope="row"),
                [
                    el("td", per_cent(value, unit=False), class_="n", data_what=what)
                    for what, value in (
                        ("original", one.iou_original),
                        ("reconstructed", one.iou_reconstructed),
                        ("generated", one.iou_generated),
                    )
                ],
                el("td", change_plot([change], axis) if change.value is not None else change.why, class_="plot-cell"),
                el("td", points(change.value), class_="n", data_what="points"),
                el("td", per_cent(one.accuracy_generated), class_="n", data_what="pixels found"),
            )
        )
    head = [
        *(("class", ""), ("original", "n"), ("reconstructed", "n"), ("generated", "n")),
        *(("change", "plot-cell"), ("points", "n"), ("pixels found", "n")),
    ]
    return _folded_table("By class", "IoU of all pixels of the set; those that lose most first", head, rows, "classes")
