"""The page on which a draft becomes a study: everything on one page, with the plan and what is missing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from core.errors import UserError
from core.form_numbers import FormNumber, form_numbers
from core.studies import Finding, Item, RuleProblem, Rules, Study
from services.studies.draft_form import LONGEST_NAME
from services.studies.drafts import DraftState, power_of
from services.studies.templates import task_of
from ui.explore.parts import button, pill
from ui.frame import page
from ui.markup import Html, el
from ui.study.frame import study_head
from ui.study.items_form import draw_form, files_form, given_shown, items_shown
from ui.study.questions_form import Problems, questions_card
from ui.templating import render


@dataclass(frozen=True)
class Assumptions:
    """What a person expects before the first vote. Shares 0 to 1; nothing of it is part of the study."""

    valid: Annotated[float, FormNumber(0, 100, "Expected valid", unit="%", whole=False)] = 0.95
    accuracy: Annotated[float, FormNumber(50, 100, "A vote is right", unit="%", whole=False)] = 0.95
    minutes: Annotated[float, FormNumber(0.5, 600, "A person gives", unit="min", whole=False)] = 30.0
    width: Annotated[float, FormNumber(0.5, 99, "Interval wanted", unit="points", whole=False)] = 0.05


def setup_page(draft: DraftState, assumed: Assumptions, signed_in: bool) -> str:
    """The whole document."""
    study, rules, problems = draft.study, draft.study.rules, draft.problems
    content = render(
        "study/setup.html",
        study=study,
        rules=rules,
        problems=problems,
        state=draft.form_state,
        longest_name=LONGEST_NAME,
        questions=questions_card(rules, problems, draft.classes),
        draw=draw_form(draft.models, draft.recipes, task_of(rules.template)),
        files=files_form(),
        items=items_shown(draft.items),
        given=given_parts(rules, draft.items),
        texts=texts_card(rules, problems),
        missing=missing_part(study, draft.troubles, draft.findings),
        plan=plan_figures(rules, plain(draft.items), assumed),
        assumptions=form_numbers(Assumptions),
        assumed=assumed,
    )
    head = study_head(
        study,
        "",
        button("Try on a copy", look="s q", data_like=study.id, data_images=True, id="copy-study"),
        button("Delete the draft …", look="s q", data_act="delete-draft", id="delete"),
    )
    return page(
        study.name or "Set-up",
        head,
        content,
        ends=pill("saved", "ok", id="saved", role="status"),
        signed_in=signed_in,
        scripts=("study-acts.js", "study-setup.js"),
    )


def plain(items: Sequence[Item]) -> int:
    """How many are to be judged."""
    return sum(item.kind == "item" for item in items)


def given_parts(rules: Rules, items: Sequence[Item]) -> dict[str, Html]:
    """The items with a known answer, by what they are for. Training items are shown if the rules ask for any."""
    return {
        "control": given_shown(items, "control"),
        "quiz": given_shown(items, "quiz"),
        "training": given_shown(items, "training") if rules.training else el("div", id="part-training"),
    }


def texts_card(rules: Rules, problems: Problems) -> Html:
    """What annotators read."""
    return render("study/texts.html", rules=rules, problems=problems)


def example_window(groups: Sequence[tuple[str, Sequence[str]]]) -> Html:
    """Pictures to pick an example from: (words, shas) a group."""
    return render("study/example_window.html", groups=[group for group in groups if group[1]])


def read_assumptions(data: Mapping[str, Any]) -> Assumptions:
    """Return what was typed. Raises UserError."""
    read: dict[str, float] = {}
    for name, number in form_numbers(Assumptions).items():
        if name in data:
            try:
                read[name] = number.read(data[name])
            except ValueError as error:
                raise UserError(str(error), field=f"plan.{name}") from error
    return Assumptions(**read)


def plan_figures(rules: Rules, items: int, assumed: Assumptions) -> Html:
    """The figures of a plan, or in words why there are none."""
    try:
        images, planned = power_of(rules, items, assumed.width, assumed.valid, assumed.accuracy, assumed.minutes)
    except ValueError as error:
        return render("study/plan.html", problem=str(error))
    needed = f"An interval of {100 * assumed.width:g} points takes {images:,} images."
    each = _minutes(planned.minutes_each) if planned is not None else ""
    return render("study/plan.html", problem="", needed=needed, planned=planned, each=each, x=_x)


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def _x(percent: float) -> str:
    """The coordinate of a share, on a line from 0 to 100 %."""
    return f"{8 + 3.84 * percent:.1f}"


def missing_part(study: Study, troubles: Sequence[RuleProblem], found: Sequence[Finding]) -> Html:
    """What stops the start, what a lead should know, and the buttons."""
    stops = [(trouble.field, trouble.words) for trouble in troubles]
    stops += [(finding.field, finding.text) for finding in found if finding.stops]
    notes = [(finding.field, finding.text) for finding in found if not finding.stops]
    return render("study/missing.html", study=study, stops=stops, notes=notes)
