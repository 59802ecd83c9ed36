"""The answer of a segmenter as markup: mIoU, how often a class is lost, which edits hurt, classes, pixels. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.evaluation_results import LossEffect, LostClass, SegmentationEffect, SegmentedClass
from core.figures import Figure
from core.words import count_of
from services.evaluation.types import Cell, CellKind, Evaluated
from ui.evaluate.edits import Counts, edits_part
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
from ui.evaluate.plots import change_axis, change_plot
from ui.evaluate.words import CANNOT_TELL, Links, ends_of, linked, per_cent, points
from ui.explore.parts import button, named_row
from ui.markup import Child, Html, el
from ui.study.plots import Axis


def of_segmenter(found: Evaluated, held: SegmentationEffect, links: Links) -> list[Child]:
    """All of it but the words."""
    losses = found.losses
    assert losses is not None
    there = held.miou_generated.value is not None
    value: Child = (
        [per_cent(held.miou_original.value, unit=False), " → ", per_cent(held.miou_generated.value, unit=False)]
        if there
        else CANNOT_TELL
    )
    told = (
        f"{points(held.difference.value)} points ({ends_of(held.difference, True)}), over "
        f"{count_of(held.sources, 'source')}"
        if there
        else held.miou_generated.why
    )
    cards = el(
        "div",
        card("mIoU, original → generated", value, told, links.opened(Cell("generated")), "error"),
        excess_card(held, held.miou_reconstructed, "", links),
        _lost_card(losses, links),
        validity_card(found, links),
        class_="eval-cards",
    )
    rows = [number for number in range(len(held.classes)) if np.isfinite(held.confusion_generated[number]).any()]
    words = "per cent of the pixels; a number opens the images of which as large a share or more goes there"
    matrices = (held.confusion_original, held.confusion_generated)
    columns = (
        [edits_part(found, links), _classes(held, losses, links)],
        [confusions("Where pixels go", words, found.labels, matrices, rows, links), validity_table(found)],
        [_sources(held, losses, found.unchecked, links), notes_part(found.notes)],
    )
    return [cards, three_columns(found, columns, len(held.classes), len(rows))]


def _lost_card(losses: LossEffect, links: Links) -> Html:
    lost, drawn = losses.generated, losses.reconstructed
    if lost.value is None:
        return card("loses a class", CANNOT_TELL, "It finds no protected class on an original.", None, "lost")
    link = links.opened(Cell("wrong"))
    if drawn.value is None:
        told = f"{ends_of(lost)}; of {count_of(losses.cases, 'test case')}, a class that it finds on the original"
        return card("loses a class", per_cent(lost.value), told, link, "lost")
    value = [per_cent(drawn.value, unit=False), " → ", per_cent(lost.value)]
    told = f"{points(losses.excess.value)} points ({ends_of(losses.excess, True)}); of what it finds on the original"
    return card("loses a class, reconstruction → generated", value, told, link, "lost")


def _classes(held: SegmentationEffect, losses: LossEffect, links: Links) -> Html:
    lost = {one.name: one for one in losses.classes}
    change = {one.name: change_of(one) for one in held.classes}
    ordered = sorted(held.classes, key=lambda one: (change[one.name].value is None, change[one.name].value, one.name))
    axis = change_axis(change.values())
    rows = [
        (lost[one.name].cases if one.name in lost else held.cases, _class_row(one, change[one.name], axis, lost, links))
        for one in ordered
    ]
    # A class that is protected by a name of several classes of the masks.
    names = {one.name for one in held.classes}
    rows += [
        (
            one.cases,
            named_row(
                one.name,
                el("td", "several classes together", class_="mut small", colspan=5),
                el("td", _lost_in(one, links), class_="n", data_what="lost in"),
            ),
        )
        for one in lost.values()
        if one.name not in names
    ]
    counts = Counts(
        "lost in", [(one.name, one.lost, one.cases) for one in sorted(losses.classes, key=lambda one: -one.lost)]
    )
    head = [
        *(("class", ""), ("original", "n"), ("reconstructed", "n"), ("generated", "n")),
        *(("change", "plot-cell"), ("points", "n"), ("lost in", "n")),
    ]
    words = (
        "IoU of all pixels of the set; of a protected class, how many test cases lose it of those that have it to lose"
    )
    return folded_table("By class", words, head, rows, counts, "classes")


def change_of(one: SegmentedClass) -> Figure:
    """The IoU of a class on generated images less that on originals, without an interval."""
    if one.iou_original is None or one.iou_generated is None:
        return Figure(None, why="it is not there")
    return Figure(one.iou_generated - one.iou_original)


def _class_row(one: SegmentedClass, change: Figure, axis: Axis, lost: Mapping[str, LostClass], links: Links) -> Html:
    link = links.opened(Cell("class", one.name)) if one.accuracy_generated is not None else None
    return named_row(
        linked(one.name, link),
        el("td", per_cent(one.iou_original, unit=False), class_="n", data_what="original"),
        el("td", per_cent(one.iou_reconstructed, unit=False), class_="n", data_what="reconstructed"),
        el("td", linked(per_cent(one.iou_generated, unit=False), link), class_="n", data_what="generated"),
        el("td", change_plot([change], axis) if change.value is not None else change.why, class_="plot-cell"),
        el("td", points(change.value), class_="n", data_what="points"),
        el("td", _lost_in(lost.get(one.name), links), class_="n", data_what="lost in"),
    )


def _lost_in(one: LostClass | None, links: Links) -> Child:
    if one is None or not one.cases:
        return el("span", "–", class_="mut", title="It is not protected, or found on no original.")
    link = links.opened(Cell("class", one.name, only_wrong=True)) if one.lost else None
    return [linked(f"{one.lost:,}", link), el("small", f"of {one.cases:,}", class_="mut")]


def _sources(held: SegmentationEffect, losses: LossEffect, unchecked: int, links: Links) -> Html:
    def link(kind: CellKind, number: float | None) -> str | None:
        return links.opened(Cell(kind)) if number else None

    worth, kept = losses.clustering, held.miou_where_kept
    missed = f"{per_cent(losses.missed.value)} ({ends_of(losses.missed)})" if losses.sources else losses.missed.why
    rows: list[tuple[str, Child]] = [
        ("originals that miss a class", linked(missed, link("missed before", losses.missed.value))),
        ("lost where all were found", linked(f"{losses.newly_wrong:,}", link("newly wrong", losses.newly_wrong))),
        ("nothing to lose", linked(f"{losses.left_out:,}", link("left out", losses.left_out))),
    ]
    if worth.effective is not None and worth.design_effect is not None:
        told = f"{worth.effective:,.0f} (design effect {worth.design_effect:.1f})"
    else:
        told = f"{CANNOT_TELL}: {worth.why}"
    what = f"what {count_of(losses.cases, 'test case', 'is')} worth"
    rows.append((what, linked(told, link("generated", losses.cases))))
    holding = f"{CANNOT_TELL}: no check says of a mask that it holds"
    if held.kept:
        holding = f"{per_cent(kept.value)} ({ends_of(kept)}), {held.kept:,} of {count_of(held.cases, 'test case')}"
    check = None
    if links.can_check and unchecked:
        check = button("Check the masks", look="s", data_send="check-masks", id="check-masks")
    rows.append(("mIoU where the mask holds", [linked(holding, link("kept", held.kept)), " ", check]))
    words = ("all lose one", "some lose one", "none loses one")
    return sources_box("Sources and lost classes", losses.sources, words, losses.together, rows, links)
