"""The list of studies, the page on which a new one is named, and the log of what happened. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.stored_studies import LogEntry
from core.studies import Study
from core.words import count_of
from services.studies.templates import TEMPLATES, Template
from ui.explore.parts import acts, bar, first_steps, head_table, here_link, icon, list_line, muted, pill, small
from ui.frame import page
from ui.markup import Child, Html, el
from ui.study.fields import field, text_input, wrong
from ui.study.frame import STATE_WORDS, study_address
from ui.study.words import text_of_question, when


def list_page(studies: Sequence[Study], signed_in: bool) -> str:
    """All studies, the latest first."""
    new = el("a", icon("plus"), "New study", href="/study/new", class_="btn p", id="new-study")
    head = el("div", el("h1", "Validity studies"), el("span", class_="grow"), new if studies else None, class_="title")
    here, away = ([study for study in studies if study.archived == archived] for archived in (False, True))
    content: Child = el("div", [_line(study) for study in here], class_="study-list") if studies else _none()
    archive = el(
        "details",
        el("summary", f"Archive ({len(away)})"),
        el("div", [_line(study) for study in away], class_="study-list"),
        class_="more-line archive",
    )
    parts = (el("div", head, class_="study-head"), content, archive if away else None, _restore())
    return page("Studies", *parts, signed_in=signed_in)


def _restore() -> Html:
    """A study comes back from the file that it was exported as."""
    return el(
        "details",
        el("summary", "Restore a study from its study.zip"),
        small(
            "With its rules, images, votes, workers and decisions, as it was. One that was running comes back paused. "
            "Codes, sign-ins and what concerns people of a panel are not in the file."
        ),
        el("input", type="file", id="restore", accept=".zip", aria_label="study.zip"),
        muted("", id="restore-note", role="status"),
        el("p", "", class_="wrong", data_problem="restore", role="alert"),
        class_="more-line files",
        data_keep="restore",
    )


def _none() -> Html:
    steps = (
        ("Set it up", "Pick a question template, draw images from your runs by a rule, or bring a folder of them."),
        (
            "Send a link",
            "Annotators judge one image after another, each by several people, with control items between.",
        ),
        ("Report it", "Validity with its interval, agreement, discards and exclusions, and a methods paragraph."),
    )
    return first_steps(
        "There is no study yet",
        "A study asks people whether generated images still show what they should, the way the paper did it: five "
        "votes an image, each by another worker, control items, and a consensus of four.",
        steps,
        el("div", el("a", icon("plus"), "New study", href="/study/new", class_="btn p", id="new-study")),
        "first-study",
    )


def _line(study: Study) -> Html:
    words, tone = STATE_WORDS[study.state]
    share = study.votes / study.needed if study.needed else 0.0
    if study.state == "draft":
        progress: Child = el("span", "not started", class_="mut")
    else:
        counted = f"{study.votes:,} of {study.needed:,} votes"
        progress = el("span", bar(share, "votes given"), el("small", counted, class_="mut"), class_="progress")
    people = count_of(study.workers, "annotator") if study.workers else "nobody yet"
    facts = [
        count_of(study.items, "image"),
        f"{study.rules.votes} votes each",
        count_of(study.controls, "control item"),
        people if study.state != "draft" else "",
    ]
    return list_line(
        study.name,
        " · ".join(filter(None, facts)),
        study_address(study.id),
        "study-line",
        pill(words, tone),
        progress,
        when=f"changed {when(study.changed)}",
    )


def new_page(signed_in: bool) -> str:
    """Name and template; everything else comes after."""
    choices = [_template(template, number == 0) for number, template in enumerate(TEMPLATES.values())]
    form = el(
        "form",
        field(
            "name",
            "Name of the study",
            text_input(
                "name", "", maxlength=120, class_="wide", placeholder="Driving validity, November", autofocus=True
            ),
            {},
            "Annotators read it too, so it should not give an answer away.",
        ),
        el("fieldset", el("legend", "It begins with the questions of"), choices, class_="templates"),
        wrong("template", {}),
        acts(
            el("button", "Create the draft", type="submit", class_="btn p", id="create"),
            el("a", "Cancel", href="/study/", class_="btn q"),
        ),
        el("p", "", class_="wrong", data_problem="", role="alert"),
        id="new-study-form",
        class_="card part new-study",
        novalidate=True,
    )
    head = el(
        "div",
        el("p", el("a", "All studies", href="/study/"), class_="back small"),
        el("h1", "New study"),
        class_="study-head",
    )
    return page("New study", head, form, signed_in=signed_in)


def _template(template: Template, first: bool) -> Html:
    # The first is picked for the lead, who sees what it asks; annotators never get anything picked for them.
    questions = [el("li", text_of_question(question)) for question in template.questions]
    shown = [
        words
        for words, on in (("source image beside it", template.show_source), ("both captions", template.show_captions))
        if on
    ]
    return el(
        "label",
        el("input", type="radio", name="template", value=template.name, checked=first),
        el(
            "span",
            el("b", template.title),
            el("ul", questions) if questions else el("small", "You write them on the next page.", class_="mut"),
            el("small", "Shown: the image, " + ", ".join(shown), class_="mut") if shown else None,
        ),
        class_="template",
    )


def log_page(study: Study, entries: Sequence[LogEntry], limit: int, names: Mapping[str, str] | None = None) -> Html:
    """The log, in UTC. With `names` of studies by id it is that of all studies, of sign-ins and of refusals."""
    address = study_address(study.id, "log")
    ways = [
        here_link(words, to, here, look="chip")
        for words, to, here in (
            ("this study", address, names is None),
            ("all studies, sign-ins and refusals", f"{address}?all=1", names is not None),
        )
    ]
    if not entries:
        body: Child = muted("Nothing has happened yet.")
    else:
        columns = ["time (UTC)", "event", "worker", "detail", *(["study"] if names is not None else [])]
        rows = [_row(entry, names) for entry in entries]
        body = el("div", head_table(columns, rows, class_="log"), class_="scroll")
    more = small(f"The latest {limit} events.") if len(entries) >= limit else None
    return el("section", el("span", ways, class_="chips"), body, more, class_="card box")


def _row(entry: LogEntry, names: Mapping[str, str] | None) -> Html:
    return el(
        "tr",
        el("td", f"{entry.created:%d %b %Y, %H:%M:%S}", class_="mut when"),
        el("td", entry.event),
        el("td", entry.worker),
        el("td", entry.detail, class_="mut"),
        el("td", names.get(entry.study_id, ""), class_="mut") if names is not None else None,
    )
