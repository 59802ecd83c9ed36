"""The page to run a started study: progress, invitations, pause, extend, close, votes, rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.panel import Panel, written_questions
from core.studies import Rules, Study, Worker
from core.study_report import further_people_words
from services.studies.templates import task_of
from ui.frame import page
from ui.markup import Html
from ui.study.frame import study_head
from ui.study.setup import KINDS, Recipes, draw_form
from ui.templating import render

SHOWN = 60
"""Maximum number of workers of earlier studies that are listed."""
SCRIPT = "study-votes.js"


def run_page(
    study: Study,
    here: int,
    others: Sequence[Worker],
    history: Sequence[tuple[Rules, datetime]],
    models: Sequence[str],
    recipes: Recipes,
    signed_in: bool,
    panel: Panel,
    further_people: int,
    lost: int,
) -> str:
    """Return the page to run a study, as a document. `here` is the number of workers in the study, `others` are workers
    of other studies, best first. At least `further_people` more must join before every image can get all its votes;
    `lost` images are set aside.
    """
    content = render(
        "study/run.html",
        study=study,
        here=here,
        panel=panel,
        progress=progress_part(study, further_people, lost),
        # Prolific's placeholder; other sites use other signs.
        named=f"?{panel.parameter}={{{{%{panel.parameter}%}}}}" if panel.parameter else "",
        known=others[:SHOWN],
        more_known=len(others) - SHOWN,
        panel_questions=written_questions(panel),
        draw=draw_form(models, recipes, task_of(study.rules.template), "Add them …"),
        files=render("study/files.html", started=True),
        kinds=KINDS,
        history=history,
    )
    return page(
        f"{study.name}: invite and run",
        study_head(study, "run", render("study/state_buttons.html", study=study, away=True)),
        content,
        signed_in=signed_in,
        scripts=("study-acts.js", SCRIPT),
    )


def progress_part(study: Study, further_people: int, lost: int) -> Html:
    """Return the votes that are in, the people still needed, and the number of images that have `lost` a picture and
    are set aside."""
    people = further_people_words(further_people) if further_people and study.state != "closed" else ""
    return render("study/run_progress.html", study=study, people=people, lost=lost)
