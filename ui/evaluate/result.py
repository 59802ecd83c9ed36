"""The result of an evaluation. `Links` tell where its numbers lead; a report that stands alone has none. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from core.evaluation_results import FEWEST_CASES, ClassRow, Effectiveness
from core.words import count_of
from services.evaluation.types import Cell, CellKind, Evaluated
from ui.evaluate.edits import Counts, edits_part, rows_standing
from ui.evaluate.explained import explained
from ui.evaluate.parts import (
    card,
    confusions,
    excess_card,
    folded_table,
    notes_part,
    sources_box,
    three_columns,
    validity_card,
    validity_table,
)
from ui.evaluate.plots import calibration_plot, change_axis, change_plot
from ui.evaluate.segmenter import of_segmenter
from ui.evaluate.words import CANNOT_TELL, Links, clipped, ends_of, linked, minus, p_words, per_cent, points
from ui.explore.parts import box, named_row, small
from ui.markup import Child, Html, el

_FIGURES = re.compile(r"(\([^()]*\)|(?<![\w.-])[-+]?\d(?:[\d,.]*\d)?(?: %| points)?)")
"""What is a figure in the words of an answer, or an interval in brackets."""


def result_part(found: Evaluated, links: Links) -> Html:
    """All of it."""
    if found.effectiveness is not None:
        body = _of_classifier(found, found.effectiveness, links)
    elif found.segmentation is not None:
        body = of_segmenter(found, found.segmentation, links)
    else:
        body = [notes_part(found.notes)]
    return el(
        "section",
        el(
            "div",
            el("p", strong_figures(found.answer), id="answer"),
            links.weighed,
            small(found.mapping.summary, id="not-mapped") if found.mapping.unmapped else None,
            class_="card answer",
        ),
        body,
        id="part-result",
        class_="evaluated",
    )


def strong_figures(answer: str) -> list[Child]:
    """The words, with the figures in them made strong, but for their intervals."""
    pieces = _FIGURES.split(answer)
    return [
        el("b", minus(piece)) if place % 2 and not piece.startswith("(") else minus(piece) if place % 2 else piece
        for place, piece in enumerate(pieces)
    ]


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
        else f"{points(held.difference.value)} points ({ends_of(held.difference, True)}), over "
        f"{count_of(held.sources, 'source')}"
    )
    cards = el(
        "div",
        card("error, original → generated", error, told, links.opened(Cell("wrong")), "error"),
        excess_card(held, held.error_reconstructed, "wrong", links),
        validity_card(found, links),
        card(
            f"what {count_of(held.cases, 'test case', 'is')} worth",
            value,
            why,
            links.opened(Cell("generated")),
            "worth",
        ),
        class_="eval-cards",
    )
    columns = (
        [edits_part(found, links), _classes(held.classes, links)],
        [_confusions(held, links), _sources(held, links), validity_table(found)],
        [_calibration(held), notes_part(found.notes)],
    )
    labels = sum(1 for number in held.confusion[1].images if number)
    return [cards, three_columns(found, columns, rows_standing(one.cases for one in held.classes), labels)]


def _classes(rows: Sequence[ClassRow], links: Links) -> Html | None:
    if not rows:
        return None
    # An interval of a few sources may reach beyond what a difference of shares can be.
    rows = [replace(row, difference=clipped(row.difference)) for row in rows]
    ordered = sorted(rows, key=_class_place)
    axis = change_axis([row.difference for row in rows])
    drawn = []
    for row in ordered:
        link = links.opened(Cell("class", row.label))
        wrong = links.opened(Cell("class", row.label, only_wrong=True)) if row.wrong_cases else None
        told, few = row.difference.value is not None, row.cases < FEWEST_CASES
        original, generated = (
            (f"{row.wrong_originals} of {row.sources}", f"{row.wrong_cases} of {row.cases}")
            if few
            else (per_cent(row.error_original.value), per_cent(row.error_generated.value))
        )
        plot: Child = None
        if not few:
            plot = change_plot([row.difference], axis) if told else el("span", row.difference.why, class_="mut small")
        shown = named_row(
            linked(row.label, link),
            el("td", original, class_="n", data_what="original"),
            el("td", linked(generated, wrong), class_="n", data_what="generated"),
            el("td", plot, class_="plot-cell"),
            el(
                "td",
                points(row.difference.value),
                el("small", ends_of(row.difference, True), class_="mut") if told else None,
                class_="n",
                title=f"p = {p_words(row.p_adjusted)}, corrected over all classes" if told else None,
            ),
            el("td", linked(f"{row.cases:,}", link), class_="n", data_what="n"),
            class_=None if told else "untold",
        )
        drawn.append((row.cases, shown))
    counts = Counts("wrong", [(row.label, row.wrong_cases, row.cases) for row in ordered])
    head = [("class", ""), ("original", "n"), ("generated", "n"), ("change", "plot-cell"), ("points", "n"), ("n", "n")]
    return folded_table("By class", "error; those that lose most first", head, drawn, counts, "classes")


def _class_place(row: ClassRow) -> tuple[float | str, ...]:
    """The order of classes: those that lose most first, those without a figure last, by their wrong test cases."""
    if row.difference.value is not None:
        return False, -row.difference.value, row.label
    return True, -row.wrong_cases, row.cases, row.label


def _confusions(held: Effectiveness, links: Links) -> Html | None:
    before, after = held.confusion
    there = [number for number in range(len(after.labels)) if after.images[number]]
    return confusions("Where answers go", "per cent", after.labels, (before.shares, after.shares), there, links)


def _sources(held: Effectiveness, links: Links) -> Html:
    def link(kind: CellKind, number: int) -> str | None:
        return links.opened(Cell(kind)) if number else None

    flips = held.flips
    rows: list[tuple[str, Child]] = [
        ("newly wrong", linked(f"{flips.newly_wrong:,}", link("newly wrong", flips.newly_wrong))),
        ("newly right", linked(f"{flips.newly_right:,}", link("newly right", flips.newly_right))),
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
        rows.append(("cannot be compared", linked(f"{held.left_out:,}", links.opened(Cell("left out")))))
    together, words = held.together, ("all wrong", "some wrong", "none wrong")
    sources = together.all_wrong + together.some_wrong + together.none_wrong
    return sources_box("Sources and flips", sources, words, together, rows, links)


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
    return box(
        "Is it as sure as it is right?",
        el(
            "div",
            calibration_plot(named),
            el(
                "div",
                small("Across: how sure. Up: how often right. Below the line it is too sure."),
                el("p", explained("Expected calibration error"), class_="small"),
                el("ul", legend, class_="legend"),
            ),
            class_="calibration-box",
        ),
        id="calibration",
    )
