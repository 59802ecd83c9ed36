"""The control items of a study and how often they were answered right: one that most get wrong may itself be wrong.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from study.controls import right
from study.report_types import Report
from study.types import Item, StudyData
from ui.study.divided import item_address
from ui.study.plots import answer_bar
from ui.study.words import image_url
from ui.views.markup import Html, el

SHOWN = 12


def controls_box(report: Report, data: StudyData) -> Html | None:
    """Those that were answered wrong most often. None without an answer to any."""
    found = _judged(data)
    if not found:
        return None
    good = sum(all(answers) for _, answers in found)
    tiles = [_tile(report, item, answers) for item, answers in found[:SHOWN]]
    said = (
        f"{good} of {len(found)} control items were answered right by everybody. Those that were answered wrong most "
        "often come first: where most workers are wrong, look whether the item is."
    )
    return el(
        "section",
        el("h2", "Control items"),
        el("p", said, class_="mut small"),
        el("div", tiles, class_="divided"),
        class_="card box",
        id="part-controls",
    )


def _judged(data: StudyData) -> list[tuple[Item, Sequence[bool]]]:
    """Every control item with a known answer that somebody judged, and whether each of them was right; the worst
    first."""
    given: dict[int, list[bool]] = {}
    items = {item.id: item for item in data.items if item.kind == "control" and item.expected}
    for vote in data.votes:
        if vote.item in items:
            judged = right(items[vote.item], vote.answers, data.study.rules.questions)
            given.setdefault(vote.item, []).append(judged)
    found = [(items[number], answers) for number, answers in given.items()]
    return sorted(found, key=lambda pair: (sum(pair[1]) / len(pair[1]), -len(pair[1]), pair[0].id))


def _tile(report: Report, item: Item, answers: Sequence[bool]) -> Html:
    good = sum(answers)
    wanted = ", ".join(item.expected.values())
    return el(
        "a",
        el("img", src=image_url(item.image_sha), alt=item.label or "image", loading="lazy"),
        answer_bar({"right": good, "wrong": len(answers) - good}, ("right",)),
        el("span", f"{good} of {len(answers)} right", f" · {item.label}: {wanted}" if item.label else f" · {wanted}"),
        href=item_address(report.study, item),
    )
