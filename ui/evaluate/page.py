"""The page of evaluations as a document, and its report as one HTML file that stands alone. Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence

from core.types import TaskKind
from core.words import count_of
from services.evaluation.facts import SUFFIXES
from services.evaluation.ranking import Ranking
from services.evaluation.types import WITHOUT_SPLIT, Evaluated, ModelChoice, SubjectView
from ui.evaluate.choosing import Stand, splits_part, subjects_part, work_part
from ui.evaluate.explained import explanations_folded, explanations_window
from ui.evaluate.ranking import ranking_part, ranking_waited_for
from ui.evaluate.result import result_part
from ui.evaluate.retraining import retraining_waited_for
from ui.evaluate.words import EVALUATE, Links, Place
from ui.explore.parts import box, help_button, muted, page_head, pill, problem
from ui.frame import page
from ui.markup import Child, Html, el
from ui.theme import ASSETS

SHEETS, SCRIPTS = (
    ("evaluate.css", "evaluate-retraining.css"),
    ("model-form.js", "evaluate.js", "evaluate-retraining.js"),
)
_FILES = {"html": "one HTML file", "markdown": "Markdown", "latex": "LaTeX table", "csv": "CSV", "parquet": "Parquet"}


def list_page(
    subjects: Sequence[SubjectView],
    gallery: Mapping[TaskKind, int],
    models: Html,
    chosen: ModelChoice | None,
    signed_in: bool,
) -> str:
    """What can be evaluated. `models` says which model, or offers some."""
    return _page(
        "Evaluate",
        el(
            "div",
            el("h1", "Evaluate"),
            muted("Where does a model break, how sure is that, and what is it worth? Choose a model and its images."),
            class_="study-head",
        ),
        models,
        subjects_part(subjects, gallery, chosen),
        signed_in=signed_in,
    )


def subject_page(subject: SubjectView, place: Place, models: Html | None, signed_in: bool) -> str:
    """A subject of which no model is chosen yet."""
    splits = splits_part(subject, place)
    several = splits is not None and bool(subject.problem)
    return _page(
        subject.title,
        _head(subject, place),
        splits,
        el("section", problem(subject.problem), class_="card part", id="part-problem")
        if subject.problem and not several
        else None,
        models,
        signed_in=signed_in,
    )


def evaluation_page(
    stand: Stand,
    parts: Mapping[str, Html],
    choices: Sequence[ModelChoice],
    versions: Sequence[SubjectView],
    signed_in: bool,
) -> str:
    """A model on a subject: the map of its classes, its reading, and the answer."""
    place = stand.place
    order = ["part-compared", "part-work", "part-result"]
    if stand.done:
        order.append(order.pop(1))  # it has nothing to do any more, and the answer comes first
    shown = [parts[name] for name in order]
    behind = order.index("part-result") + 1
    if stand.ready and not stand.at_work:
        shown.insert(behind, retraining_waited_for())
        shown.insert(behind, ranking_waited_for())
    return _page(
        f"{stand.model} on {stand.subject.title}",
        _head(stand.subject, place, stand, choices, versions),
        el("p", "", class_="wrong", id="said", data_problem="", role="alert"),
        shown,
        signed_in=signed_in,
    )


def state_parts(stand: Stand, result: Html | None, compared: Html | None) -> dict[str, Html]:
    """The parts that change while a model reads; what is not there is empty."""
    return {
        "part-compared": compared or el("section", id="part-compared"),
        "part-work": work_part(stand),
        "part-result": result or el("section", id="part-result"),
    }


def _head(
    subject: SubjectView,
    place: Place,
    stand: Stand | None = None,
    choices: Sequence[ModelChoice] = (),
    versions: Sequence[SubjectView] = (),
) -> Html:
    figures = [count_of(subject.sources, "source")]
    if place.split:
        figures.append(place.split if place.split == WITHOUT_SPLIT else f"split {place.split}")
    figures.append(count_of(subject.cases, "test case"))
    if subject.controls:
        figures.append(count_of(subject.controls, "reconstruction"))
    about: list[Child] = [el("h1", subject.title), pill(" · ".join(figures))]
    if stand is not None:
        change = el(
            "a", "change", href=place.to(key="", beside="", other=None, mapping=""), class_="small", id="change-model"
        )
        about += [pill(stand.model, "acc", id="model"), change, el("span", class_="grow")]
        about += [_compare(place, choices, versions), _report(place) if stand.ready else None]
    return page_head(
        "All test sets",
        EVALUATE,
        about,
        class_="study-head eval-head",
        id="evaluation" if stand is not None else None,
        data_query=place.to()[len(EVALUATE) :].removeprefix("?") if stand is not None else None,
    )


def _compare(place: Place, choices: Sequence[ModelChoice], versions: Sequence[SubjectView]) -> Html | None:
    models = [(one.title, place.to(beside=one.key, other=None)) for one in choices if one.key != place.key]
    sets = [
        (one.title, place.to(other=one.subject.version, beside=""))
        for one in versions
        if place.version is not None and one.subject.version != place.version and not one.problem
    ]
    if not models and not sets:
        return None
    body: list[Child] = []
    for words, links in (("Another model on these images", models), ("This model on another version", sets)):
        if links:
            body += [el("h3", words), [el("a", name, href=link) for name, link in links]]
    return _menu("+ compare", body, "compare")


def _report(place: Place) -> Html:
    links = [
        el("a", words, href=place.to(f"report/{kind}"), data_download=True, download=True, data_file=kind)
        for kind, words in _FILES.items()
    ]
    return _menu("Report …", links, "report")


def _menu(words: str, content: Child, name: str) -> Html:
    summary = el("summary", words, class_="btn")
    return el("details", summary, el("div", content, class_="card menu"), class_="menu-of", id=name)


def _page(title: str, *content: Child, signed_in: bool) -> str:
    return page(
        title,
        *content,
        explanations_window(),
        here="evaluate",
        ends=help_button("What the figures say"),
        signed_in=signed_in,
        sheets=SHEETS,
        scripts=SCRIPTS,
    )


# The report as one file


def report_html(found: Evaluated, ranking: Ranking | None, thumbnail: Callable[[str], bytes]) -> str:
    """Return the report as one HTML file that holds its styles and pictures, no script and no address."""

    def picture(sha: str) -> str | None:
        data = thumbnail(sha)
        return f"data:image/webp;base64,{b64encode(data).decode()}" if data else None

    style = "\n".join(
        (ASSETS / name).read_text(encoding="utf-8") for name in ("studio.css", "study.css", "evaluate.css")
    )
    # Without a script nobody sets the class `dark`: the colours follow the reader's system.
    colours = " ".join(re.findall(r"^\.dark \{([^}]*)\}", style, re.MULTILINE))
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {colours} }} }}"
    title = f"{found.model} on {found.subject.title}"
    about: list[Child] = [
        pill(f"{count_of(found.subject.sources, 'source')} · {count_of(found.subject.cases, 'test case')}"),
        pill(f"split {found.subject.subject.split}") if found.subject.subject.split else None,
    ]
    identity = found.identity
    model = box(
        "The model",
        el(
            "dl",
            [
                el("div", el("dt", name), el("dd", value))
                for name, value in (
                    (
                        *(("name", identity.name), ("weights", identity.weights), ("digest", identity.digest)),
                        *identity.assumptions,
                    )
                    if identity is not None
                    else (("name", found.model),)
                )
            ],
            class_="facts-list",
        ),
        el("h2", "What the labels are for it"),
        el("p", found.mapping.summary),
        el("p", f"Unmapped: {', '.join(row.label for row in found.mapping.unmapped)}.")
        if found.mapping.unmapped
        else None,
    )
    all_tables = Html(result_part(found, Links(picture=picture)).replace(" hidden>", ">"))
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Html(style.replace("</", "<\\/") + dark)),
    )
    body = el(
        "body",
        el(
            "div",
            el(
                "main",
                el("div", el("h1", found.subject.title), pill(found.model, "acc"), about, class_="title"),
                all_tables,
                ranking_part(ranking, lambda _entries, _image: None, picture) if ranking is not None else None,
                model,
                explanations_folded(),
            ),
            class_="studio paper report",
        ),
        class_="study-page",
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


FILES = {kind: SUFFIXES.get(kind, ".html") for kind in _FILES}  # type: ignore[call-overload]
"""The endings of the files of a report, by their kinds."""
