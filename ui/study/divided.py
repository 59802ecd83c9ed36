"""The images that people disagreed on, with pictures and votes. Pure functions from report and data to markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from study.report_types import Disagreement, Report
from study.types import Item, Question, Study, StudyData
from ui.study.frame import study_address
from ui.study.plots import answer_bar
from ui.study.words import count, divided_votes, image_url, in_order
from ui.views.markup import Child, Html, el
from ui.views.parts import pill

SHOWN = 12
"""On the page of results."""
PAGE = 60
"""On a page of all of them."""
FAR = 2
"""Points of a scale from which on two ratings differ in earnest."""
UNDECIDED = ("no consensus", "too few votes")
"""What a person may decide: all votes that come are in, and they are no consensus."""


@dataclass(frozen=True)
class Wish:
    """Which disagreements a lead wants to see."""

    question: str = ""
    status: str = ""
    page: int = 1

    def address(self, study: Study) -> str:
        """The address of the page that shows them."""
        fields = {"question": self.question, "status": self.status, "page": str(self.page) if self.page > 1 else ""}
        query = urlencode({name: value for name, value in fields.items() if value})
        return study_address(study.id, "disagreements") + (f"?{query}" if query else "")


def undecided(report: Report) -> tuple[Disagreement, ...]:
    """What is left to a person: without a consensus, and not waiting for votes. Not ratings: their result is a mean."""
    scales = {question.id for question in report.study.rules.questions if question.kind == "scale"}
    return tuple(case for case in report.disagreements if case.status in UNDECIDED and case.question not in scales)


def telling(report: Report) -> tuple[Disagreement, ...]:
    """What is worth a look, the most divided first: on a scale, 4 against 5 is no disagreement; these come last."""
    scales = {question.id for question in report.study.rules.questions if question.kind == "scale"}
    others = [case for case in report.disagreements if case.question not in scales]
    far = [case for case in report.disagreements if case.question in scales and _spread(case) >= FAR]
    return (*others, *sorted(far, key=_spread, reverse=True))


def _spread(case: Disagreement) -> int:
    """Points between the lowest and the highest rating."""
    given = [int(answer) for answer in case.counts]
    return max(given, default=0) - min(given, default=0)


def divided(report: Report, data: StudyData) -> Html:
    """The most divided images, and the way to all of them and to deciding them."""
    found, left = telling(report), undecided(report)
    items = {item.id: item for item in data.items}
    open_ = sum(case.adjudication is None for case in left)
    head = [
        el("h2", "Where people disagree"),
        el("span", class_="grow"),
        el("a", f"All {len(found)}", href=Wish().address(report.study), class_="btn s q")
        if len(found) > SHOWN
        else None,
        el(
            "a",
            f"Adjudicate {open_}" if open_ else "Adjudicated",
            href=study_address(report.study.id, "adjudication"),
            class_="btn s",
            id="adjudicate",
        )
        if left
        else None,
    ]
    if not found:
        words = "No two votes on the same image differ by much." if report.votes_counted else "There is no vote yet."
        body: Child = el("p", words, class_="mut")
    else:
        body = tiles(report, found[:SHOWN], items)
    return el("section", el("header", head), body, class_="card box", id="part-divided")


def tiles(report: Report, found: Sequence[Disagreement], items: Mapping[int, Item]) -> Html:
    """Pictures with how their votes are divided, each a way to the image."""
    asked = {result.question.id: result.question for result in report.questions}
    return el(
        "div",
        [_tile(report, case, items[case.item], asked[case.question]) for case in found],
        class_="divided",
    )


def _tile(report: Report, case: Disagreement, item: Item, asked: Question) -> Html:
    said = f"{case.question}: {divided_votes(case.counts, asked)}"
    return el(
        "a",
        el("img", src=image_url(item.image_sha), alt=item.label or "image", loading="lazy"),
        answer_bar(in_order(case.counts, asked), asked.valid),
        el("span", said),
        pill(f"you: {case.adjudication.answer}", "acc") if case.adjudication is not None else None,
        href=item_address(report.study, item),
        title=f"{said}, {case.status}",
    )


def item_address(study: Study, item: Item) -> str:
    """The page of one image."""
    return study_address(study.id, f"items/{quote(item.public, safe='')}")


def all_divided(report: Report, data: StudyData, wish: Wish) -> Html:
    """All disagreements that are wished for, a page of them at a time."""
    found = [
        case for case in telling(report) if wish.question in ("", case.question) and wish.status in ("", case.status)
    ]
    items = {item.id: item for item in data.items}
    pages = max(1, -(-len(found) // PAGE))
    page = min(max(1, wish.page), pages)
    part = found[(page - 1) * PAGE : page * PAGE]
    study = report.study
    choices = [
        _choices(
            "question",
            [result.question.id for result in report.questions],
            wish.question,
            lambda value: replace(wish, question=value, page=1),
            study,
        ),
        _choices(
            "status",
            sorted({case.status for case in telling(report)}),
            wish.status,
            lambda value: replace(wish, status=value, page=1),
            study,
        ),
    ]
    turn = [
        el("a", str(n), href=replace(wish, page=n).address(study), class_="btn s" + (" p" if n == page else ""))
        for n in range(1, pages + 1)
    ]
    return el(
        "section",
        el("header", el("h2", count(len(found), "disagreement")), el("span", class_="grow"), choices),
        tiles(report, part, items) if part else el("p", "None of these.", class_="mut"),
        el("nav", turn, class_="turn", aria_label="Pages") if pages > 1 else None,
        class_="card box",
    )


def _choices(name: str, values: Sequence[str], chosen: str, way: Callable[[str], Wish], study: Study) -> Html | None:
    """Links that narrow the list down."""
    if len(values) < 2:
        return None
    links = [
        el(
            "a",
            value or "all",
            href=way(value).address(study),
            class_="chip on" if value == chosen else "chip",
            aria_current="true" if value == chosen else None,
        )
        for value in ("", *values)
    ]
    return el("span", links, class_="chips", role="group", aria_label=name)
