"""One image of a study: its pictures, what is known of it, and every vote on it. Pure."""

from __future__ import annotations

from urllib.parse import quote

from study.consensus import counted
from study.report_types import Report
from study.types import Item, StudyData, Vote
from ui.diff import word_diff
from ui.study.divided import undecided
from ui.study.frame import study_address
from ui.study.plots import answer_bar
from ui.study.words import divided_votes, image_url, in_order
from ui.views.markup import Child, Html, el
from ui.views.parts import differences, pill


def image_page(report: Report, data: StudyData, item: Item) -> Html:
    """Pictures on the left, facts and votes on the right."""
    return el(
        "div",
        el("div", pictures(item), class_="card box"),
        el("div", _facts(item), _outcomes(report, item), _votes(report, data, item), class_="r-stack"),
        class_="one-image",
    )


def pictures(item: Item) -> Html:
    """The generated image, the source beside it if there is one, and the captions with what was changed."""
    figures = [
        el(
            "figure",
            el("img", src=image_url(item.image_sha), alt=item.counterfactual or item.label or "image"),
            el("figcaption", "judged image" if item.source_sha else "image"),
        )
    ]
    if item.source_sha:
        figures.append(
            el(
                "figure",
                el("img", src=image_url(item.source_sha), alt=item.caption or "source image"),
                el("figcaption", "source"),
            )
        )
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
        ("kind", {"item": "item", "control": "control item", "quiz": "quiz item"}[item.kind]),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edit types", ", ".join(item.edit_types)),
        ("sample", item.group),
    ]
    if item.expected:
        known.append(("right answers", ", ".join(f"{name}: {answer}" for name, answer in item.expected.items())))
    if item.model_right is not None:
        known.append((item.model or "model under test", "right" if item.model_right else "wrong"))
    known.extend((str(name), _short(value)) for name, value in item.origin.items())
    rows = [el("tr", el("th", name, scope="row"), el("td", value)) for name, value in known if value not in ("", None)]
    return el("section", el("h2", "This image"), el("table", el("tbody", rows), class_="r-known"), class_="card box")


def _short(value: object) -> str:
    """What is known of the origin, on a line or two."""
    said = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    return said if len(said) <= 300 else f"{said[:299]}…"


def _outcomes(report: Report, item: Item) -> Html | None:
    """What its votes say, question by question, where they differ."""
    cases = [case for case in report.disagreements if case.item == item.id]
    if not cases:
        return None
    asked = {result.question.id: result.question for result in report.questions}
    open_ = {(case.item, case.question) for case in undecided(report)}
    rows = []
    for case in cases:
        decided = case.adjudication
        way = el("a", "Adjudicate", href=decide_address(report, case.item, case.question), class_="btn s")
        rows.append(
            el(
                "tr",
                el("th", case.question, scope="row"),
                el("td", answer_bar(in_order(case.counts, asked[case.question]), asked[case.question].valid)),
                el("td", divided_votes(case.counts, asked[case.question])),
                el("td", pill(case.status, "warn" if (case.item, case.question) in open_ else "")),
                el("td", pill(f"you: {decided.answer}", "acc", title=decided.reason or None) if decided else None),
                el("td", way if (case.item, case.question) in open_ else None),
            )
        )
    table = el("table", el("tbody", rows), class_="outcomes")
    return el("section", el("h2", "Where its votes differ"), table, class_="card box")


def decide_address(report: Report, item: int, question: str) -> str:
    """The page where a person decides one question of one image."""
    return f"{study_address(report.study.id, 'adjudication')}?item={item}&question={question}"


def _votes(report: Report, data: StudyData, item: Item) -> Html:
    """Every vote, those that do not count marked."""
    of_item = [vote for vote in data.votes if vote.item == item.id]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    first = {vote.assignment for vote in counted(of_item, data.study.rules.votes, excluded).get(item.id, ())}
    if not of_item:
        return el("section", el("h2", "Votes"), el("p", "Nobody has judged it yet.", class_="mut"), class_="card box")
    rows = [_vote(report, vote, item, excluded, first) for vote in of_item]
    head = [el("th", words, scope="col") for words in ("worker", "answers", "time", "when", "")]
    table = el("table", el("thead", el("tr", head)), el("tbody", rows))
    return el("section", el("h2", "Votes"), table, class_="card box")


def _vote(report: Report, vote: Vote, item: Item, excluded: set[str], first: set[int]) -> Html:
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
        el("td", f"{vote.submitted:%d %b, %H:%M:%S}", class_="mut"),
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


def worker_address(report: Report, worker: str) -> str:
    """The page of one worker's votes."""
    return study_address(report.study.id, f"workers/{quote(worker, safe='')}")
