"""The page on which a draft becomes a study: everything on one page, with the plan and what is missing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from core.errors import UserError
from core.form_numbers import FormNumber, form_numbers
from core.studies import Finding, InstructionExample, Item, RuleProblem, Rules, Study
from core.study_report import PowerPlan
from services.studies.draft_form import LONGEST_NAME
from services.studies.drafts import DraftState, power_of
from services.studies.templates import task_of
from ui.explore.parts import acts, button, icon, icon_button, more_line, muted, pill, press, small
from ui.frame import page
from ui.markup import Child, Html, el
from ui.study.fields import (
    Problems,
    area,
    card,
    field,
    number_field,
    text_input,
    wrong,
)
from ui.study.frame import study_address, study_head
from ui.study.items_form import given_shown, items_card, training_shown
from ui.study.questions_form import questions_card
from ui.study.words import image_url


def setup_page(shown: DraftState, assumed: Assumptions, signed_in: bool) -> str:
    """The whole document."""
    study, problems = shown.study, shown.problems
    saved = pill("saved", "ok", id="saved", role="status")
    name = field(
        "name",
        "Name of the study",
        text_input("name", study.name, maxlength=LONGEST_NAME, class_="wide"),
        problems,
        "Annotators read it too, so it should not give an answer away.",
    )
    kind = task_of(study.rules.template)
    form = el(
        "form",
        el("section", name, class_="card part"),
        questions_card(study.rules, problems, shown.classes),
        items_card(study, shown.items, shown.models, shown.recipes, kind, problems),
        votes_card(study.rules, problems),
        controls_card(study.rules, shown.items, problems),
        eligibility_card(study.rules, shown.items, problems),
        texts_card(study.rules, problems),
        id="setup",
        class_="setup-form",
        data_study=study.id,
        data_state=shown.form_state,
        autocomplete="off",
        novalidate=True,
    )
    aside = el(
        "aside",
        el("section", missing_part(study, shown.troubles, shown.findings), class_="card part"),
        el(
            "section",
            el("header", el("h2", "The power of the plan"), class_="card-head"),
            plan_figures(study.rules, plain(shown.items), assumed),
            assumptions_form(assumed),
            class_="card part",
        ),
        class_="beside",
    )
    content = el("div", form, aside, class_="setup")
    return page(
        study.name or "Set-up",
        study_head(
            study,
            "",
            button("Try on a copy", look="s q", data_like=study.id, data_images=True, id="copy-study"),
            button("Delete the draft …", look="s q", data_act="delete-draft", id="delete"),
        ),
        content,
        dialogs(),
        ends=saved,
        signed_in=signed_in,
        scripts=("study-acts.js", "study-setup.js"),
    )


def plain(items: Sequence[Item]) -> int:
    """How many are to be judged."""
    return sum(item.kind == "item" for item in items)


def dialogs() -> Html:
    """The windows that open over the page; scripts fill them."""
    return el(
        "div",
        el("dialog", id="window", class_="window", aria_label="Image"),
        el("dialog", id="confirm", class_="window small", aria_label="Please confirm"),
    )


def votes_card(rules: Rules, problems: Problems) -> Html:
    """How many votes, and when they count."""
    rare = more_line(
        "Time limits and the drawing of lots",
        _numbers(rules, problems, "lease_minutes", "too_fast_seconds", "seed"),
        data_keep="rare",
    )
    return card(
        3,
        "Votes and consensus",
        _numbers(rules, problems, "votes", "consensus", "most_items", "seconds_expected"),
        rare,
        lead="The paper asks 5 people and counts a question only where 4 of them agree.",
    )


def controls_card(rules: Rules, items: Sequence[Item], problems: Problems) -> Html:
    """What filters unreliable votes."""
    return card(
        4,
        "Control items",
        _numbers(rules.controls, problems, "share", "min_seen", "min_right"),
        given_shown(items, "control", "control"),
        lead="Images whose answer is known. They look like any other; who fails them is excluded, and their votes are "
        "collected anew. They are made of source images: as they are, and with a wrong label or beside another scene; "
        "one that comes again comes in another light. Where generated images look unlike their sources, open some of "
        "them above and say what the right answer is: nothing tells those from others.",
    )


def eligibility_card(rules: Rules, items: Sequence[Item], problems: Problems) -> Html:
    """Who may vote."""
    asked = rules.eligibility
    fields = [number_field(asked, name, problems) for name in ("min_approval", "min_finished", "quiz", "quiz_pass")]
    fields.insert(2, number_field(rules, "training", problems))
    return card(
        5,
        "Who may vote",
        el("div", fields, class_="fields"),
        training_shown(rules, items),
        given_shown(items, "quiz", "quiz"),
        lead="Somebody with the record that is asked for begins at once; somebody new takes the quiz first. Training "
        "is for everybody: whoever answers is told whether it was right, what is right and why. It counts for nothing.",
    )


def _numbers(part: object, problems: Problems, *names: str) -> Html:
    return el("div", [number_field(part, name, problems) for name in names], class_="fields")


def texts_card(rules: Rules, problems: Problems) -> Html:
    """What annotators read."""
    return card(
        6,
        "What annotators read",
        field("instructions", "Instructions", area("instructions", rules.instructions, 6), problems),
        examples_part(rules.examples, problems),
        field(
            "consent",
            "Consent",
            area("consent", rules.consent, 5),
            problems,
            "They agree to it before the first image.",
        ),
        id="part-texts",
    )


def examples_part(examples: Sequence[InstructionExample], problems: Problems) -> Html:
    """Pictures with an answer and why."""
    lines = [
        el(
            "li",
            el("img", src=image_url(example.sha), alt=""),
            el(
                "div",
                el("input", type="hidden", name=f"examples.{place}.sha", value=example.sha),
                text_input(
                    f"examples.{place}.answer",
                    example.answer,
                    placeholder="the answer",
                    maxlength=300,
                    aria_label="Answer",
                ),
                text_input(
                    f"examples.{place}.why",
                    example.why,
                    placeholder="and why",
                    maxlength=800,
                    aria_label="Why",
                    class_="wide",
                ),
                class_="example-fields",
            ),
            icon_button("cross", "Remove this example", data_example_remove=place, id=f"delete-example-{place}"),
        )
        for place, example in enumerate(examples)
    ]
    return el(
        "div",
        el("h3", "Examples"),
        el("ol", lines, class_="examples") if lines else el("p", "No example yet.", class_="empty"),
        wrong("examples", problems),
        acts(button([icon("plus"), "Add an example"], look="s", data_example_pick=True, id="add-example")),
        id="part-examples",
    )


def example_window(groups: Sequence[tuple[str, Sequence[str]]]) -> Html:
    """Pictures to pick an example from: (words, shas) a group."""
    shown: list[Child] = []
    for words, shas in groups:
        buttons = [
            press(
                el("img", src=image_url(sha), alt="", loading="lazy"),
                class_="item-thumb",
                data_example_add=sha,
                aria_label=f"{words}, picture {number}",
            )
            for number, sha in enumerate(shas, 1)
        ]
        if buttons:
            shown += [el("h3", words), el("div", buttons, class_="item-grid")]
    return el(
        "div",
        el("h2", "Pick a picture for the instructions"),
        shown or el("p", "There is no picture to pick: add images first.", class_="empty"),
        class_="item-window",
    )


@dataclass(frozen=True)
class Assumptions:
    """What a person expects before the first vote. Shares 0 to 1; nothing of it is part of the study."""

    valid: Annotated[float, FormNumber(0, 100, "Expected valid", unit="%", whole=False)] = 0.95
    accuracy: Annotated[float, FormNumber(50, 100, "A vote is right", unit="%", whole=False)] = 0.95
    minutes: Annotated[float, FormNumber(0.5, 600, "A person gives", unit="min", whole=False)] = 30.0
    width: Annotated[float, FormNumber(0.5, 99, "Interval wanted", unit="points", whole=False)] = 0.05


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


def assumptions_form(assumed: Assumptions) -> Html:
    """The fields whose values the figures go by."""
    fields = [
        number_field(assumed, name, {}, prefix="plan.", data_no_save=True, data_plan=True)
        for name in form_numbers(Assumptions)
    ]
    return el("div", fields, class_="assumed")


def plan_figures(rules: Rules, items: int, assumed: Assumptions) -> Html:
    """The figures of a plan, or in words why there are none."""
    try:
        images, planned = power_of(rules, items, assumed.width, assumed.valid, assumed.accuracy, assumed.minutes)
    except ValueError as error:
        return _plan_part(muted(str(error)))
    needed = f"An interval of {100 * assumed.width:g} points takes {images:,} images."
    if planned is None:
        return _plan_part(muted("Add images to see what they will be able to say. ", needed))
    tiles = [
        _tile(f"{100 * planned.width:.1f} points", "width of the 95 % interval"),
        _tile(f"{100 * planned.low:.1f} to {100 * planned.high:.1f} %", "the interval to expect"),
        _tile(str(planned.annotators), "annotators"),
        _tile(_minutes(planned.minutes_each), f"each, for {planned.items_each} images"),
    ]
    return _plan_part(
        _scale(planned),
        el("div", tiles, class_="figures"),
        small(planned.words),
        small(needed),
    )


def _plan_part(*content: Child) -> Html:
    return el("div", content, id="part-plan", class_="plan")


def _tile(figure: str, words: str) -> Html:
    return el("div", el("b", figure), el("span", words, class_="mut small"))


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def _scale(planned: PowerPlan) -> Html:
    """The expected interval on a line from 0 to 100 %."""
    low, high, rate = (100 * share for share in (planned.low, planned.high, planned.rate))
    words = f"expected: {rate:.1f} %, interval {low:.1f} to {high:.1f} %"
    line = (
        f'<svg viewBox="0 0 400 34" class="interval" role="img" aria-label="{words}">'
        '<line x1="8" y1="12" x2="392" y2="12" class="base"/>'
        f'<line x1="{_x(low)}" y1="12" x2="{_x(high)}" y2="12" class="span"/>'
        f'<circle cx="{_x(rate)}" cy="12" r="5" class="point"/>'
    )
    marks = "".join(
        f'<text x="{_x(at)}" y="31" text-anchor="{place}">{at} %</text>'
        for at, place in ((0, "start"), (50, "middle"), (100, "end"))
    )
    return Html(f"{line}{marks}</svg>")


def _x(percent: float) -> str:
    return f"{8 + 3.84 * percent:.1f}"


def missing_part(study: Study, troubles: Sequence[RuleProblem], found: Sequence[Finding]) -> Html:
    """What stops the start, what a lead should know, and the buttons."""
    stops: list[RuleProblem | Finding] = [*troubles, *(finding for finding in found if finding.stops)]
    notes = [finding for finding in found if not finding.stops]
    lines = [
        _line(entry.field, entry.words if isinstance(entry, RuleProblem) else entry.text, "cross", "stop")
        for entry in stops
    ]
    lines += [_line(entry.field, entry.text, "alert", "note") for entry in notes]
    if not stops:
        lines.insert(0, el("li", icon("check"), el("span", "Everything that a start needs is there."), class_="fine"))
    return el(
        "div",
        el("h2", "Before the start"),
        el("ul", lines, class_="missing"),
        acts(
            el("a", "Preview", href=study_address(study.id, "preview"), class_="btn", target="_blank", id="preview"),
            button("Start the study …", look="p", data_act="start-study", id="start", disabled=bool(stops)),
        ),
        id="part-missing",
        class_="before",
    )


def _line(name: str, text: str, sign: str, look: str) -> Html:
    link = press(text, class_="linked", data_go_to=name)
    return el("li", icon(sign), link, class_=look)
