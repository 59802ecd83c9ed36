"""Deciding what the workers did not: one question of one image after the other, by keys. Pure functions to markup.

What a person decides here is kept apart from the votes and never overrules a consensus. The votes are hidden until
asked for, so that the person can look with eyes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from study.questions import wording
from study.report_types import Disagreement, Report
from study.types import Item, Question, StudyData
from ui.study.divided import undecided
from ui.study.one_image import decide_address, pictures
from ui.study.plots import answer_bar
from ui.study.words import count, image_url, in_order
from ui.views.markup import Html, el
from ui.views.parts import bar, key, pill


def cases(report: Report) -> tuple[Disagreement, ...]:
    """What a person may decide, image by image, those of one image in the order of the questions."""
    order = {result.question.id: place for place, result in enumerate(report.questions)}
    return tuple(sorted(undecided(report), key=lambda case: (case.item, order[case.question])))


def chosen(found: Sequence[Disagreement], item: int | None, question: str) -> int | None:
    """The place of the case that was asked for; else of the first that nobody decided; None when all are decided."""
    for place, case in enumerate(found):
        if item is not None and (case.item, case.question) == (item, question):
            return place
    return next((place for place, case in enumerate(found) if case.adjudication is None), None)


def following(found: Sequence[Disagreement], place: int) -> int | None:
    """The next case that nobody decided, from the beginning again at the end; None when there is none."""
    around = [*range(place + 1, len(found)), *range(place)]
    return next((n for n in around if found[n].adjudication is None), None)


def address(report: Report, case: Disagreement) -> str:
    """The page of a case."""
    return decide_address(report, case.item, case.question)


def adjudication_page(report: Report, data: StudyData, item: int | None, question: str) -> Html:
    """The case that was asked for, or the first that is left, or what there is to say without one."""
    found = cases(report)
    if not found:
        return _nothing(report)
    place = chosen(found, item, question)
    if place is None:
        return _all_decided(report, found)
    items = {known.id: known for known in data.items}
    case = found[place]
    asked = next(result.question for result in report.questions if result.question.id == case.question)
    done = sum(other.adjudication is not None for other in found)
    to = {
        name: address(report, found[n]) for name, n in (("back", place - 1), ("on", place + 1)) if 0 <= n < len(found)
    }
    after = following(found, place)
    ahead = items[found[after].item] if after is not None else None
    return el(
        "div",
        el("div", pictures(items[case.item]), class_="card box"),
        el(
            "div",
            el(
                "div",
                bar(done / len(found)),
                el("span", f"{done} of {len(found)} decided", class_="small"),
                class_="r-progress",
            ),
            _case(report, case, items[case.item], asked),
            el(
                "nav",
                el("a", "Back ", key("←"), href=to["back"], class_="btn s", data_key="ArrowLeft")
                if "back" in to
                else None,
                el("a", "Skip ", key("→"), href=to["on"], class_="btn s", data_key="ArrowRight")
                if "on" in to
                else None,
                el("span", class_="grow"),
                el("span", f"{place + 1} of {len(found)}", class_="mut small"),
                class_="r-steps",
                aria_label="Cases",
            ),
            _rules(report),
            class_="r-stack",
        ),
        # What comes next is fetched while this one is looked at.
        el("link", rel="prefetch", href=image_url(ahead.image_sha)) if ahead is not None else None,
        class_="one-image",
        id="adjudicating",
        data_send=f"/study/api/{report.study.id}/adjudicate",
        data_item=case.item,
        data_question=case.question,
    )


def _case(report: Report, case: Disagreement, item: Item, asked: Question) -> Html:
    """The question with its answers as buttons, the reason, and the votes behind a key."""
    decided = case.adjudication
    answers = [
        el(
            "button",
            key(_key(asked, answer, place)),
            el("span", answer),
            el("small", _end(asked, answer), class_="mut") if _end(asked, answer) else None,
            type="button",
            class_="btn answer" + (" p" if decided is not None and decided.answer == answer else ""),
            data_answer=answer,
            data_key=_key(asked, answer, place),
            aria_pressed="true" if decided is not None and decided.answer == answer else None,
        )
        for place, answer in enumerate(asked.answers())
    ]
    known = (
        el(
            "p",
            pill("decided", "acc"),
            f" {decided.answer}, {decided.created:%d %b %Y, %H:%M}. Another answer replaces it.",
        )
        if decided is not None
        else None
    )
    return el(
        "section",
        el("p", el("small", case.question, class_="mut"), " ", pill(case.status, "warn")),
        el("h2", wording(asked, item), class_="r-asked"),
        el(
            "div",
            answers,
            class_="r-answers scale" if asked.kind == "scale" else "r-answers",
            role="group",
            aria_label="Answer",
        ),
        known,
        el("label", "Why ", key("r"), el("span", " (goes into the exports)", class_="mut small"), for_="reason"),
        el(
            "textarea",
            decided.reason if decided is not None else "",
            id="reason",
            rows=2,
            maxlength=500,
            data_keep=f"{case.item} {case.question}",
        ),
        el("p", id="refused", class_="problem", role="alert", hidden=True),
        el("button", "Take it back", type="button", class_="btn s q", data_answer="") if decided is not None else None,
        el(
            "details",
            el("summary", "The votes ", key("v")),
            answer_bar(in_order(case.counts, asked), asked.valid),
            el("p", case.words),
            id="peers",
            class_="folded",
        ),
        class_="card box",
    )


def _key(asked: Question, answer: str, place: int) -> str:
    """The key of an answer: y and n, else its number."""
    return answer[0] if asked.kind == "yes-no" else str(place + 1)


def _end(asked: Question, answer: str) -> str:
    """What the ends of a scale mean."""
    return {"1": asked.low, "5": asked.high}.get(answer, "") if asked.kind == "scale" else ""


def _rules(report: Report) -> Html:
    needed = f"{report.study.rules.consensus} of {report.study.rules.votes}"
    return el(
        "p",
        f"Only questions without a consensus ({needed} equal answers) come here. What you decide stands beside the "
        "result of the workers, never in it.",
        class_="mut small",
    )


def _nothing(report: Report) -> Html:
    waiting = report.images.waiting
    if waiting:
        still = f"{count(waiting, 'image')} still {'waits' if waiting == 1 else 'wait'} for votes"
        words = f"No image with all its votes lacks a consensus. {still}."
    elif not report.votes_counted:
        words = "There is no vote yet."
    else:
        words = "Every image has a consensus."
    return el("section", el("h2", "Nothing to adjudicate"), el("p", words), class_="card box", id="adjudicating")


def _all_decided(report: Report, found: Sequence[Disagreement]) -> Html:
    """When the last was decided: what it makes of the result, and the way back to each."""
    apart = report.images_adjudicated
    said = None
    if apart is not None and apart.rate.value is not None:
        said = el(
            "p",
            f"Valid images with your decisions: {apart.rate.words}. By the workers alone: {report.images.rate.words}.",
        )
    rows = [
        el(
            "tr",
            el("th", el("a", f"image {case.item}", href=address(report, case)), scope="row"),
            el("td", case.question),
            el("td", case.words),
            el("td", pill(f"you: {case.adjudication.answer}", "acc")),
            el("td", case.adjudication.reason, class_="mut"),
        )
        for case in found
        if case.adjudication is not None
    ]
    return el(
        "section",
        el("h2", "All decided"),
        said,
        el("table", el("tbody", rows), class_="decisions"),
        class_="card box",
        id="adjudicating",
    )
