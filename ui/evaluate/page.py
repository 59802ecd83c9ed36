"""The page of evaluations as a document, and its report as one self-contained HTML file. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from core.types import TaskKind
from services.evaluation.facts import SUFFIXES
from services.evaluation.ranking import Ranking
from services.evaluation.types import WITHOUT_SPLIT, Evaluated, FocusFigures, LikenessFigures, ModelChoice, SubjectView
from ui.evaluate.choosing import Stand, subjects_part, work_part
from ui.evaluate.explained import explanations_folded, explanations_window
from ui.evaluate.ranking import ranking_part
from ui.evaluate.render import render
from ui.evaluate.result import result_part
from ui.evaluate.words import Links, Place, embedded
from ui.explore.parts import help_button
from ui.frame import page
from ui.markup import Html, el
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
    """Return the list of subjects that can be evaluated. `models` shows the chosen model, or offers some."""
    content = render("list", models=models, subjects=subjects_part(subjects, gallery, chosen))
    return _page("Evaluate", content, signed_in)


def subject_page(subject: SubjectView, place: Place, models: Html | None, signed_in: bool) -> str:
    """Return the page to choose a model for a subject."""
    content = render("subject", subject=subject, place=place, stand=None, models=models, WITHOUT_SPLIT=WITHOUT_SPLIT)
    return _page(subject.title, content, signed_in)


def evaluation_page(
    stand: Stand,
    parts: Mapping[str, Html],
    choices: Sequence[ModelChoice],
    versions: Sequence[SubjectView],
    signed_in: bool,
) -> str:
    """Return the page that evaluates a model on a subject: class mapping, progress of reading, and answer."""
    place = stand.place
    content = render(
        "evaluation",
        stand=stand,
        subject=stand.subject,
        place=place,
        parts=parts,
        models_beside=[(one.title, place.to(beside=one.key, other=None)) for one in choices if one.key != place.key],
        versions_beside=[
            (one.title, place.to(other=one.subject.version, beside=""))
            for one in versions
            if place.version is not None and one.subject.version != place.version and not one.problem
        ],
        files=_FILES,
        refused="",
        WITHOUT_SPLIT=WITHOUT_SPLIT,
    )
    return _page(f"{stand.model} on {stand.subject.title}", content, signed_in)


def state_parts(stand: Stand, result: Html | None, compared: Html | None) -> dict[str, Html]:
    """Return the parts of the page that change while a model reads; missing ones are empty."""
    return {
        "part-compared": compared or el("section", id="part-compared"),
        "part-work": work_part(stand),
        "part-result": result or el("section", id="part-result"),
    }


def _page(title: str, content: Html, signed_in: bool) -> str:
    return page(
        title,
        content,
        explanations_window(),
        here="evaluate",
        ends=help_button("What the figures say"),
        signed_in=signed_in,
        sheets=SHEETS,
        scripts=SCRIPTS,
    )


# The report as one file


def report_html(
    found: Evaluated,
    ranking: Ranking | None,
    thumbnail: Callable[[str], bytes],
    likeness: LikenessFigures | None = None,
    focus: FocusFigures | None = None,
) -> str:
    """Return the report as one HTML file that holds its styles and pictures, no script and no address."""

    def nowhere(entries: Sequence[int], image: int) -> None:
        """Return None: a report cannot link to a list of images."""

    def picture(sha: str) -> str | None:
        data = thumbnail(sha)
        return embedded(data) if data else None

    style = "\n".join(
        (ASSETS / name).read_text(encoding="utf-8") for name in ("studio.css", "study.css", "evaluate.css")
    )
    # No script sets the class `dark` in a report, so the colours follow the reader's system.
    colours = " ".join(re.findall(r"^\.dark \{([^}]*)\}", style, re.MULTILINE))
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {colours} }} }}"
    model: tuple[tuple[str, str], ...] = (("name", found.model),)
    if found.identity is not None:
        known = found.identity
        model = (("name", known.name), ("weights", known.weights), ("digest", known.digest), *known.assumptions)
    content = render(
        "report",
        found=found,
        style=Html(style.replace("</", "<\\/") + dark),
        result=Html(result_part(found, Links(picture=picture)).replace(" hidden>", ">")),  # all tables, as none opens
        ranking=ranking_part(ranking, nowhere, picture) if ranking is not None else None,
        likeness=likeness
        and render("likeness", found=likeness, work=None, listed=nowhere, picture=picture, acts=False),
        focus=focus and focus.images and render("focus", found=focus, work=None, refused="", acts=False),
        model=model,
        explanations_folded=explanations_folded,
    )
    return f"<!doctype html>\n{content}\n"


FILES = {kind: SUFFIXES.get(kind, ".html") for kind in _FILES}  # type: ignore[call-overload]
"""File endings of reports by their kinds."""
