"""The page on which a draft becomes a study: everything on one page, with the plan beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from study.readiness import Finding
from study.templates import TEMPLATES
from study.types import Example, Item, Rules, Study
from ui.study.drafts import LONGEST_NAME, Trouble
from ui.study.fields import (
    Problems,
    area,
    card,
    field,
    icon_button,
    number_input,
    percent_input,
    text_input,
    wrong,
)
from ui.study.frame import page, study_head
from ui.study.items_part import given_shown, items_card
from ui.study.plan_part import Assumptions, assumptions_form, missing_part, plan_figures
from ui.study.questions_form import questions_card
from ui.study.words import image_url
from ui.views.markup import Child, Html, el
from ui.views.parts import button, icon, pill

KIND_OF_TEMPLATE = {"classification": "classification", "preservation": "segmentation"}
"""The task whose images a template is about, where it is about one."""


@dataclass(frozen=True)
class SetUp:
    """All that the page shows of a draft."""

    study: Study
    items: tuple[Item, ...]
    """Of all kinds, without removed ones."""
    troubles: tuple[Trouble, ...]
    findings: tuple[Finding, ...]
    models: tuple[str, ...] = ()
    """Models under test that have read images of this workspace, the one that read most first."""

    @property
    def problems(self) -> Problems:
        """What stands beside the fields."""
        told: dict[str, str] = {}
        stops: list[Trouble | Finding] = [*self.troubles, *(finding for finding in self.findings if finding.stops)]
        for entry in stops:
            told.setdefault(entry.field, entry.text)
        return told

    @property
    def classes(self) -> tuple[str, ...]:
        """What the images show."""
        return tuple(sorted({name for item in self.items for name in item.classes}))


def setup_page(shown: SetUp, assumed: Assumptions, signed_in: bool) -> str:
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
    kind = KIND_OF_TEMPLATE.get(study.rules.template, "any")
    form = el(
        "form",
        el("section", name, class_="card part"),
        questions_card(study.rules, problems, shown.classes),
        items_card(study, shown.items, shown.models, kind, problems),
        votes_card(study.rules, problems),
        controls_card(study.rules, shown.items, problems),
        eligibility_card(study.rules, shown.items, problems),
        texts_card(study.rules, problems),
        id="setup",
        class_="setup-form",
        data_study=study.id,
        data_changed=study.changed.isoformat(),
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
        study_head(study, "", button("Delete the draft …", look="s q", data_act="delete", id="delete")),
        content,
        dialogs(),
        ends=saved,
        signed_in=signed_in,
        scripts=("study-acts.js", "study-setup.js"),
    )


def plain(items: Sequence[Item]) -> int:
    """How many are to be judged."""
    return sum(item.kind == "item" and not item.removed for item in items)


def dialogs() -> Html:
    """The windows that open over the page; scripts fill them."""
    return el(
        "div",
        el("dialog", id="window", class_="window", aria_label="Image"),
        el("dialog", id="confirm", class_="window small", aria_label="Please confirm"),
    )


def votes_card(rules: Rules, problems: Problems) -> Html:
    """How many votes, and when they count."""
    line = el(
        "div",
        field("votes", "Votes an image", number_input("votes", rules.votes), problems, "by as many different people"),
        field(
            "consensus",
            "Consensus",
            number_input("consensus", rules.consensus),
            problems,
            "so many equal answers, or the question of the image is discarded",
        ),
        field(
            "seconds_expected",
            "Time a vote takes",
            number_input("seconds_expected", rules.seconds_expected, "s"),
            problems,
            "for the plan",
        ),
        class_="fields",
    )
    rare = el(
        "details",
        el("summary", "Time limits and the drawing of lots"),
        el(
            "div",
            field(
                "lease_minutes",
                "An image is held for",
                number_input("lease_minutes", rules.lease_minutes, "min"),
                problems,
                "then somebody else gets it",
            ),
            field(
                "too_fast_seconds",
                "Too fast below",
                number_input("too_fast_seconds", rules.too_fast_seconds, "s"),
                problems,
                "reported, nobody is excluded for it",
            ),
            field("seed", "Seed", number_input("seed", rules.seed), problems, "of samples, order and sides"),
            class_="fields",
        ),
        class_="more-line",
        data_keep="rare",
    )
    lead = "The paper asks 5 people and counts a question only where 4 of them agree."
    return card(3, "Votes and consensus", line, rare, lead=lead)


def controls_card(rules: Rules, items: Sequence[Item], problems: Problems) -> Html:
    """What filters unreliable votes."""
    line = el(
        "div",
        field("share", "Share of control items", percent_input("share", rules.controls.share), problems, "0 for none"),
        field(
            "min_seen",
            "Judged after",
            number_input("min_seen", rules.controls.min_seen),
            problems,
            "control items, at the earliest",
        ),
        field(
            "min_right",
            "Right, at least",
            percent_input("min_right", rules.controls.min_right),
            problems,
            "below it all votes of this worker are replaced",
        ),
        class_="fields",
    )
    return card(
        4,
        "Control items",
        line,
        given_shown(items, "control", "control"),
        lead="Images whose answer is known. They look like any other; who fails them is excluded, and their votes are "
        "collected anew. They are made of source images: as they are, and with a wrong label or beside another scene. "
        "Or open an image above and say what the right answer is.",
    )


def eligibility_card(rules: Rules, items: Sequence[Item], problems: Problems) -> Html:
    """Who may vote."""
    wanted = rules.eligibility
    line = el(
        "div",
        field(
            "min_approval",
            "Approval above",
            percent_input("min_approval", wanted.min_approval),
            problems,
            "approved of all decided assignments",
        ),
        field(
            "min_finished",
            "Decided, at least",
            number_input("min_finished", wanted.min_finished),
            problems,
            "assignments in all studies; 0 asks for none",
        ),
        field(
            "quiz", "Quiz", number_input("quiz", wanted.quiz, "questions"), problems, "in place of a record; 0 for none"
        ),
        field("quiz_pass", "Right in the quiz", percent_input("quiz_pass", wanted.quiz_pass), problems, "at least"),
        class_="fields",
    )
    return card(
        5,
        "Who may vote",
        line,
        given_shown(items, "quiz", "quiz"),
        lead="Somebody with the record that is asked for begins at once; somebody new takes the quiz first.",
    )


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


def examples_part(examples: Sequence[Example], problems: Problems) -> Html:
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
            icon_button("cross", "Remove this example", data_example_remove=place),
        )
        for place, example in enumerate(examples)
    ]
    return el(
        "div",
        el("h3", "Examples"),
        el("ol", lines, class_="examples") if lines else el("p", "No example yet.", class_="empty"),
        wrong("examples", problems),
        el("div", button([icon("plus"), "Add an example"], look="s", data_example_pick=True), class_="acts"),
        id="part-examples",
    )


def example_window(groups: Sequence[tuple[str, Sequence[str]]]) -> Html:
    """Pictures to pick an example from: (words, shas) a group."""
    shown: list[Child] = []
    for words, shas in groups:
        buttons = [
            el(
                "button",
                el("img", src=image_url(sha), alt="", loading="lazy"),
                type="button",
                class_="item-thumb",
                data_example_add=sha,
            )
            for sha in shas
        ]
        if buttons:
            shown += [el("h3", words), el("div", buttons, class_="item-grid")]
    return el(
        "div",
        el("h2", "Pick a picture for the instructions"),
        shown or el("p", "There is no picture to pick: add images first.", class_="empty"),
        class_="item-window",
    )


def template_of(name: str) -> Rules | None:
    """The rules that a template begins with; None for an unknown one."""
    template = TEMPLATES.get(name)
    return template.rules() if template is not None else None
