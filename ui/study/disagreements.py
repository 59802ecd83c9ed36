"""Where people disagree: the images in question, one image with its votes, and adjudication by keys. Pure.

What a person decides here is kept apart from the votes and never overrules a consensus. The votes are hidden until
asked for, so that the person can look with eyes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from core.consensus import counted
from core.studies import Item, Question, Study, StudyData, Vote, wording
from core.study_report import Disagreement, Remark, StudyReport
from core.words import count_of
from services.studies.decisions import cases, chosen, disagreements, following, undecided
from ui.diff import word_diff
from ui.explore.parts import (
    Size,
    bar,
    box,
    button,
    captioned,
    differences,
    head_table,
    heading,
    here_link,
    key,
    muted,
    named_row,
    page_links,
    pill,
    press,
    small,
)
from ui.markup import Child, Html, el
from ui.study.frame import study_address
from ui.study.plots import answer_bar
from ui.study.words import divided_votes, image_url, in_order, when

SHOWN = 12
"""On the page of results."""
REMARKS = 100
"""Texts of workers that are shown; the exports have all of them."""
PAGE = 60
"""On a page of all of them."""


def image_page(report: StudyReport, data: StudyData, item: Item, sizes: Mapping[str, Size]) -> Html:
    """Pictures on the left, facts and votes on the right."""
    return el(
        "div",
        el("div", pictures(item, sizes), class_="card box"),
        el("div", _facts(item), _outcomes(report, item), _votes(report, data, item), class_="r-stack"),
        class_="one-image",
    )


def pictures(item: Item, sizes: Mapping[str, Size]) -> Html:
    """The generated image, the source if there is one, and the captions. `sizes` are in pixels."""
    words = "judged image" if item.source_sha else "image"
    alt = item.counterfactual or item.label or "image"
    figures = [captioned(image_url(item.image_sha), sizes[item.image_sha], words, alt)]
    if item.source_sha:
        alt = item.caption or "source image"
        figures.append(captioned(image_url(item.source_sha), sizes[item.source_sha], "source", alt))
    caption: Child = None
    if item.counterfactual:
        caption = el("p", differences(word_diff(item.caption, item.counterfactual)), class_="caption")
    elif item.caption:
        caption = el("p", item.caption, class_="caption")
    return el("div", el("div", figures, class_="r-pair"), caption)


def _facts(item: Item) -> Html:
    """What is known of it, which no worker is told."""
    known: list[tuple[str, Child]] = [
        ("name in exports", el("code", item.public)),
        ("kind", "item" if item.kind == "item" else f"{item.kind} item"),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edit types", ", ".join(item.edit_types)),
        ("sample", item.group),
    ]
    if item.expected:
        known.append(("right answers", ", ".join(f"{name}: {answer}" for name, answer in item.expected.items())))
    if item.why:
        known.append(("why they are right", item.why))
    if item.model_right is not None:
        known.append((item.model or "model under test", "right" if item.model_right else "wrong"))
    known.extend((str(name), _short(value)) for name, value in item.origin.items())
    rows = [named_row(name, el("td", value)) for name, value in known if value not in ("", None)]
    return box("This image", el("table", el("tbody", rows), class_="r-known"))


def _short(value: object) -> str:
    """What is known of the origin, on a line or two."""
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"


def _outcomes(report: StudyReport, item: Item) -> Html | None:
    """What its votes say, question by question, where they differ."""
    cases = [case for case in report.disagreements if case.item == item.id]
    if not cases:
        return None
    asked = {result.question.id: result.question for result in report.questions}
    open_ = {(case.item, case.question) for case in undecided(report)}
    rows = []
    for case in cases:
        decided = case.adjudication
        way = el("a", "Adjudicate", href=decide_address(report, case), class_="btn s")
        rows.append(
            named_row(
                case.question,
                el("td", answer_bar(in_order(case.counts, asked[case.question]), asked[case.question].valid)),
                el("td", divided_votes(case.counts, asked[case.question])),
                el("td", pill(case.status, "warn" if (case.item, case.question) in open_ else "")),
                el("td", pill(f"you: {decided.answer}", "acc", title=decided.reason or None) if decided else None),
                el("td", way if (case.item, case.question) in open_ else None),
            )
        )
    table = el("table", el("tbody", rows), class_="outcomes")
    return box("Where its votes differ", el("div", table, class_="scroll"))


def decide_address(report: StudyReport, case: Disagreement) -> str:
    """Return the page where a person decides one question of one image."""
    return f"{study_address(report.study.id, 'adjudication')}?item={case.item}&question={case.question}"


def _votes(report: StudyReport, data: StudyData, item: Item) -> Html:
    """Every vote, those that do not count marked."""
    of_item = [vote for vote in data.votes if vote.item == item.id]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    first = {vote.assignment for vote in counted(of_item, data.study.rules.votes, excluded).get(item.id, ())}
    if not of_item:
        return box("Votes", muted("Nobody has judged it yet."))
    rows = [_vote(report, vote, item, excluded, first) for vote in of_item]
    table = head_table(("worker", "answers", "time", "when", ""), rows, class_="item-votes")
    return box("Votes", el("div", table, class_="scroll"))


def _vote(report: StudyReport, vote: Vote, item: Item, excluded: set[str], first: set[int]) -> Html:
    notes = []
    if vote.worker in excluded:
        notes.append(pill("excluded", "bad"))
    elif item.kind == "item" and vote.assignment not in first:
        notes.append(pill("beyond the first", "warn", title="The item had all its votes already"))
    if vote.changes:
        notes.append(pill(f"changed {vote.changes}×"))
    if item.source_sha and report.study.rules.show_source:
        notes.append(pill(f"shown {vote.side}"))
    comment = el("div", f"“{vote.comment}”", class_="mut") if vote.comment else None
    return el(
        "tr",
        el("td", el("a", vote.worker, href=worker_address(report, vote.worker))),
        el("td", said_answers(vote, len(report.questions) > 1), comment),
        el("td", f"{vote.seconds:.1f} s"),
        el("td", when(vote.submitted, seconds=True), class_="mut when"),
        el("td", notes),
    )


def said_answers(vote: Vote, several: bool) -> list[Child]:
    """What was answered, with the question's name where there are several."""
    if not vote.answers:
        return ["no answer"]
    return [
        el("div", el("small", f"{name} ", class_="mut") if several else None, answer)
        for name, answer in vote.answers.items()
    ]


def worker_address(report: StudyReport, worker: str) -> str:
    """The page of one worker's votes."""
    return study_address(report.study.id, f"workers/{quote(worker, safe='')}")


@dataclass(frozen=True)
class DisagreementFilter:
    """Which disagreements a lead wants to see."""

    question: str = ""
    status: str = ""
    page: int = 1

    def address(self, study: Study) -> str:
        """The address of the page that shows them."""
        fields = {"question": self.question, "status": self.status, "page": str(self.page) if self.page > 1 else ""}
        query = urlencode({name: value for name, value in fields.items() if value})
        return study_address(study.id, "disagreements") + (f"?{query}" if query else "")


def disagreements_box(report: StudyReport, data: StudyData) -> Html:
    """The most divided images, and the way to all of them and to deciding them."""
    found, left = disagreements(report), undecided(report)
    items = {item.id: item for item in data.items}
    open_ = sum(case.adjudication is None for case in left)
    head = [
        el("h2", "Where people disagree"),
        el("span", class_="grow"),
        el("a", f"All {len(found)}", href=DisagreementFilter().address(report.study), class_="btn s q")
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
        words = "No two votes on the same image differ by much." if report.votes_counted else "No vote counts yet."
        body: Child = muted(words)
    else:
        body = tiles(report, found[:SHOWN], items)
    return el("section", el("header", head), body, class_="card box", id="part-divided")


def tiles(report: StudyReport, found: Sequence[Disagreement], items: Mapping[int, Item]) -> Html:
    """Pictures with how their votes are divided, each a way to the image."""
    asked = {result.question.id: result.question for result in report.questions}
    return el(
        "div",
        [_tile(report, case, items[case.item], asked[case.question]) for case in found],
        class_="divided",
    )


def _tile(report: StudyReport, case: Disagreement, item: Item, asked: Question) -> Html:
    caption = f"{case.question}: {divided_votes(case.counts, asked)}"
    decided = pill(f"you: {case.adjudication.answer}", "acc") if case.adjudication is not None else None
    votes = answer_bar(in_order(case.counts, asked), asked.valid)
    return item_tile(report.study, item, votes, caption, decided, title=f"{caption}, {case.status}")


def item_tile(study: Study, item: Item, votes: Html, words: str, *more: Child, title: str | None = None) -> Html:
    """The picture of an item with its votes, which leads to its page."""
    image = el("img", src=image_url(item.image_sha), alt=item.label or "image", loading="lazy")
    return el("a", image, votes, el("span", words), *more, href=item_address(study, item), title=title)


def remarks(report: StudyReport, said: Sequence[Remark], data: StudyData) -> Html:
    """Texts that workers wrote, each beside its image, which leads to the page of the image."""
    items = {item.id: item for item in data.items}
    lines = [_remark(report, remark, items[remark.item]) for remark in said[:REMARKS]]
    more = len(said) - REMARKS
    return el(
        "div", el("ul", lines, class_="remarks"), muted(f"and {more:,} more, in the exports") if more > 0 else None
    )


def _remark(report: StudyReport, remark: Remark, item: Item) -> Html:
    worker = el("a", remark.worker, href=worker_address(report, remark.worker))
    return el(
        "li",
        picture_link(report.study, item),
        el("div", el("p", remark.text), el("small", worker, class_="mut")),
    )


def picture_link(study: Study, item: Item) -> Html:
    """The picture of an item, which leads to its page."""
    shows = item.counterfactual or item.label
    alt = f"The image: {shows}" if shows else "The image"
    picture = el("img", src=image_url(item.image_sha), alt=alt, loading="lazy")
    return el("a", picture, href=item_address(study, item))


def item_address(study: Study, item: Item) -> str:
    """The page of one image."""
    return study_address(study.id, f"items/{quote(item.public, safe='')}")


def all_disagreements(report: StudyReport, data: StudyData, wanted: DisagreementFilter) -> Html:
    """All disagreements that are wanted, a page of them at a time."""
    found = [
        case
        for case in disagreements(report)
        if wanted.question in ("", case.question) and wanted.status in ("", case.status)
    ]
    items = {item.id: item for item in data.items}
    pages = max(1, -(-len(found) // PAGE))
    page = min(max(1, wanted.page), pages)
    part = found[(page - 1) * PAGE : page * PAGE]
    study = report.study
    choices = [
        _choices(
            "question",
            [result.question.id for result in report.questions],
            wanted.question,
            lambda value: replace(wanted, question=value, page=1),
            study,
        ),
        _choices(
            "status",
            sorted({case.status for case in disagreements(report)}),
            wanted.status,
            lambda value: replace(wanted, status=value, page=1),
            study,
        ),
    ]
    turn = page_links(pages, page, lambda number: replace(wanted, page=number).address(study))
    return el(
        "section",
        heading(count_of(len(found), "disagreement"), choices),
        tiles(report, part, items) if part else muted("None of these."),
        turn,
        class_="card box",
    )


def _choices(
    name: str, values: Sequence[str], chosen: str, way: Callable[[str], DisagreementFilter], study: Study
) -> Html | None:
    """Links that narrow the list down."""
    if len(values) < 2:
        return None
    links = [
        here_link(value or "all", way(value).address(study), value == chosen, look="chip") for value in ("", *values)
    ]
    return el("span", links, class_="chips", role="group", aria_label=name)


def adjudication_page(
    report: StudyReport, data: StudyData, item: int | None, question: str, sizes: Mapping[str, Size]
) -> Html:
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
        name: decide_address(report, found[n])
        for name, n in (("back", place - 1), ("on", place + 1))
        if 0 <= n < len(found)
    }
    after = following(found, place)
    ahead = items[found[after].item] if after is not None else None
    return el(
        "div",
        el("div", pictures(items[case.item], sizes), class_="card box"),
        el(
            "div",
            el(
                "div",
                bar(done / len(found), "disagreements decided"),
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


def _case(report: StudyReport, case: Disagreement, item: Item, asked: Question) -> Html:
    """The question with its answers as buttons, the reason, and the votes behind a key."""
    decided = case.adjudication
    answers = [
        press(
            key(_key(asked, answer, place)),
            el("span", answer),
            el("small", _end(asked, answer), class_="mut") if _end(asked, answer) else None,
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
            f" {decided.answer}, {when(decided.created)}. Another answer replaces it.",
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
        button("Take it back", look="s q", data_answer="") if decided is not None else None,
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


def _rules(report: StudyReport) -> Html:
    needed = f"{report.study.rules.consensus} of {report.study.rules.votes}"
    return small(
        f"Only questions without a consensus ({needed} equal answers) come here. What you decide stands beside the "
        "result of the workers, never in it."
    )


def _nothing(report: StudyReport) -> Html:
    waiting = report.images.waiting
    if waiting:
        still = f"{count_of(waiting, 'image', 'is')} still waiting for votes"
        words = f"No image with all its votes lacks a consensus. {still}."
    elif not report.votes_counted:
        words = "No vote counts yet."
    else:
        words = "Every image has a consensus."
    return box("Nothing to adjudicate", el("p", words), id="adjudicating")


def _all_decided(report: StudyReport, found: Sequence[Disagreement]) -> Html:
    """When the last was decided: what it makes of the result, and the way back to each."""
    apart = report.images_adjudicated
    message = None
    if apart is not None and apart.rate.value is not None:
        message = el(
            "p",
            f"Valid images with your decisions: {apart.rate.words}. By the workers alone: {report.images.rate.words}.",
        )
    rows = [
        named_row(
            el("a", f"image {case.item}", href=decide_address(report, case)),
            el("td", case.question),
            el("td", case.words),
            el("td", pill(f"you: {case.adjudication.answer}", "acc")),
            el("td", case.adjudication.reason, class_="mut"),
        )
        for case in found
        if case.adjudication is not None
    ]
    return box("All decided", message, el("table", el("tbody", rows), class_="decisions"), id="adjudicating")
