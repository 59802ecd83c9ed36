"""Disagreements of workers: images with divided votes, one image with its votes, and adjudication by keyboard.
Pure. The lead's decision is stored apart from the votes and overrules no consensus. The votes are hidden until the
lead asks to see the votes. So the votes do not influence the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from core.consensus import counted
from core.studies import Item, Question, Study, StudyData, wording
from core.study_report import Disagreement, StudyReport
from core.words import count_of
from services.studies.decisions import cases, chosen, disagreements, following, undecided
from ui.diff import word_diff
from ui.explore.parts import Size, differences
from ui.markup import Html
from ui.study.words import decide_address, study_address
from ui.templating import render

SHOWN = 12
PAGE = 60
"""Maximum number of rows on one page of the list of disagreements."""


def image_page(report: StudyReport, data: StudyData, item: Item, sizes: Mapping[str, Size]) -> Html:
    """Return the page of an item's image: pictures on the left, facts and votes on the right."""
    votes = [vote for vote in data.votes if vote.item == item.id]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    questions = {result.question.id: result.question for result in report.questions}
    open_ = {(case.item, case.question) for case in undecided(report)}
    return render(
        "study/image.html",
        report=report,
        item=item,
        caption=_caption(item),
        sizes=sizes,
        known=[(name, value) for name, value in _facts(item) if value],
        cases=[
            (case, questions[case.question], (case.item, case.question) in open_)
            for case in report.disagreements
            if case.item == item.id
        ],
        votes=votes,
        excluded=excluded,
        first={vote.assignment for vote in counted(votes, data.study.rules.votes, excluded).get(item.id, ())},
    )


def _caption(item: Item) -> Html | str:
    """Return an item's caption. Words that the counterfactual caption changes are marked."""
    return differences(word_diff(item.caption, item.counterfactual)) if item.counterfactual else item.caption


def _facts(item: Item) -> list[tuple[str, str]]:
    """Return (name, value) for each fact about an item that workers never see."""
    known = [
        ("kind", "item" if item.kind == "item" else f"{item.kind} item"),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edit types", ", ".join(item.edit_types)),
        ("sample", item.group),
        ("right answers", ", ".join(f"{name}: {answer}" for name, answer in item.expected.items())),
        ("why they are right", item.why),
    ]
    if item.model_right is not None:
        known.append((item.model or "model under test", "right" if item.model_right else "wrong"))
    return [*known, *((str(name), _short(value)) for name, value in item.origin.items())]


def _short(value: object) -> str:
    """Return a value from an item's origin as text of at most 300 characters."""
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"


@dataclass(frozen=True)
class DisagreementFilter:
    """Filter of the list of disagreements, and the page's number. "" means any question or any status."""

    question: str = ""
    status: str = ""
    page: int = 1

    def address(self, study: Study) -> str:
        """Return the address of the page with this filter."""
        fields = {"question": self.question, "status": self.status, "page": str(self.page) if self.page > 1 else ""}
        query = urlencode({name: value for name, value in fields.items() if value})
        return study_address(study.id, "disagreements") + (f"?{query}" if query else "")


def _tiles(
    report: StudyReport, found: Sequence[Disagreement], data: StudyData
) -> list[tuple[Disagreement, Item, Question]]:
    items = {item.id: item for item in data.items}
    questions = {result.question.id: result.question for result in report.questions}
    return [(case, items[case.item], questions[case.question]) for case in found]


def disagreements_box(report: StudyReport, data: StudyData) -> Html:
    """Return the images with the most divided votes, with links to all of them and to adjudication."""
    found, left = disagreements(report), undecided(report)
    return render(
        "study/divided.html",
        report=report,
        found=len(found),
        address=DisagreementFilter().address(report.study) if len(found) > SHOWN else "",
        left=left,
        open=sum(case.adjudication is None for case in left),
        tiles=_tiles(report, found[:SHOWN], data),
    )


def all_disagreements(report: StudyReport, data: StudyData, shown: DisagreementFilter) -> Html:
    """Return one page of the list of disagreements that pass the filter."""
    found = [
        case
        for case in disagreements(report)
        if shown.question in ("", case.question) and shown.status in ("", case.status)
    ]
    pages = max(1, -(-len(found) // PAGE))
    page = min(max(1, shown.page), pages)
    study, first = report.study, replace(shown, page=1)
    statuses = sorted({case.status for case in disagreements(report)})
    questions = [result.question.id for result in report.questions]
    choices = [
        ("question", shown.question, {one: replace(first, question=one).address(study) for one in ("", *questions)}),
        ("status", shown.status, {one: replace(first, status=one).address(study) for one in ("", *statuses)}),
    ]
    return render(
        "study/disagreements.html",
        study=study,
        title=count_of(len(found), "disagreement"),
        # A menu with a single question or status would leave no choice.
        choices=[choice for choice in choices if len(choice[2]) > 2],
        tiles=_tiles(report, found[(page - 1) * PAGE : page * PAGE], data),
        pages=pages,
        page=page,
        address=lambda number: replace(shown, page=number).address(study),
    )


def adjudication_page(
    report: StudyReport, data: StudyData, item: int | None, question: str, sizes: Mapping[str, Size]
) -> Html:
    """Return the page to adjudicate the requested case, or the first undecided one; a message if none exists."""
    found = cases(report)
    if not found:
        return render("study/nothing_to_adjudicate.html", report=report)
    place = chosen(found, item, question)
    if place is None:
        return render("study/all_decided.html", report=report, cases=[case for case in found if case.adjudication])
    items = {known.id: known for known in data.items}
    case, after = found[place], following(found, place)
    current = next(result.question for result in report.questions if result.question.id == case.question)
    neighbours = [found[near] if 0 <= near < len(found) else None for near in (place - 1, place + 1)]
    return render(
        "study/adjudication.html",
        report=report,
        case=case,
        item=items[case.item],
        caption=_caption(items[case.item]),
        sizes=sizes,
        asked=current,
        words=wording(current, items[case.item]),
        place=place + 1,
        count=len(found),
        done=sum(other.adjudication is not None for other in found),
        ways=[decide_address(report.study.id, near) if near else "" for near in neighbours],
        ahead=items[found[after].item] if after is not None else None,
    )
