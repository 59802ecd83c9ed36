"""The part of the set-up where the questions are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.studies import Question, QuestionKind, Rules
from services.studies.draft_form import short_name
from services.studies.templates import TEMPLATES
from ui.explore.parts import acts, button, icon, icon_button, more_line
from ui.markup import Child, Html, el
from ui.study.fields import Problems, area, card, field, select, text_input, tick, wrong

Namer = Callable[[str], str]
"""The name of one of a question's fields in the form."""
KINDS: dict[QuestionKind, str] = {
    "yes-no": "yes or no",
    "choice": "choice of answers",
    "scale": "scale from 1 to 5",
    "text": "free text",
}


def questions_card(rules: Rules, problems: Problems, classes: Sequence[str] = ()) -> Html:
    """The questions with a template to begin anew with. `classes`: what the images show, as proposals."""
    template = TEMPLATES.get(rules.template)
    templates = [(name, held.title) for name, held in TEMPLATES.items()]
    begin = el(
        "div",
        el("span", "Begin anew with", class_="mut"),
        select("template", templates, template.name if template else "own", data_no_save=True, aria_label="Template"),
        button("Take it", look="s", data_template=True, id="take-template"),
        class_="line-end",
    )
    lines = [_question(place, question, rules.questions, problems) for place, question in enumerate(rules.questions)]
    proposals = el("datalist", [el("option", value=name) for name in classes], id="classes")
    shown = el(
        "div",
        tick("show_source", "Show the source image beside it", rules.show_source, "which side is drawn and recorded"),
        tick("show_captions", "Show both captions", rules.show_captions, "what changed is marked"),
        class_="ticks",
    )
    return card(
        1,
        "Questions",
        el("ol", lines, class_="questions", id="questions")
        if lines
        else el("p", "There is no question yet.", class_="empty"),
        wrong("questions", problems),
        acts(button([icon("plus"), "Add a question"], look="s", data_question="add", id="add-question"), begin),
        shown,
        proposals,
        lead="What is asked of every image. Nothing is ever pre-selected. Write {label} where the class of the image "
        "belongs.",
        data_part="questions",
        id="part-questions",
    )


def _question(place: int, question: Question, questions: Sequence[Question], problems: Problems) -> Html:
    def name(field_name: str) -> str:
        return f"questions.{place}.{field_name}"

    main = el(
        "div",
        area(
            name("text"),
            question.text,
            1,
            placeholder="Does the image still show a {label}?",
            maxlength=600,
            aria_label=f"Question {place + 1}",
            class_="wide",
        ),
        select(name("kind"), list(KINDS.items()), question.kind, aria_label="Kind of answer", data_redraw="questions"),
        el(
            "span",
            _act("up", "up", "Move up", place, disabled=place == 0),
            _act("down", "down", "Move down", place, disabled=place == len(questions) - 1),
            _act("remove", "cross", "Remove this question", place),
            class_="acts",
        ),
        class_="main",
    )
    return el(
        "li",
        main,
        wrong(name("text"), problems),
        _answers(question, name),
        _more(place, question, questions, name),
        class_="question",
        data_question_line=place,
    )


def _act(do: str, sign: str, words: str, place: int, **attributes: bool) -> Html:
    """A button that moves or removes the question at a place."""
    return icon_button(sign, words, data_question=do, data_place=place, id=f"question-{do}-{place}", **attributes)


def _answers(question: Question, name: Namer) -> Child:
    """What may be answered, and which answers mean "valid"."""
    parts: list[Child] = []
    if question.kind == "choice":
        parts.append(
            area(
                name("options"),
                "\n".join(question.options),
                max(3, len(question.options) + 1),
                data_redraw="questions",
                placeholder="one answer a line, 2 to 9",
                aria_label="Answers",
            )
        )
    if question.kind == "scale":
        ends = [
            text_input(name("low"), question.low, placeholder="what 1 means", maxlength=120, aria_label="What 1 means"),
            text_input(
                name("high"), question.high, placeholder="what 5 means", maxlength=120, aria_label="What 5 means"
            ),
        ]
        parts.append(
            el("div", el("span", "1", class_="mut"), ends[0], el("span", "5", class_="mut"), ends[1], class_="ends")
        )
    if question.answers():
        boxes = [
            el(
                "label",
                el(
                    "input",
                    type="checkbox",
                    name=name("valid"),
                    value=answer,
                    checked=answer in question.valid,
                    data_list=True,
                    id=f"f-{name('valid')}-{number}".replace(".", "-"),
                ),
                answer,
                class_="chip",
            )
            for number, answer in enumerate(question.answers())
        ]
        parts.append(
            el(
                "div",
                el("span", "the image is valid if the answer is", class_="mut"),
                boxes,
                None if question.valid else el("span", "(this question says nothing of validity)", class_="mut small"),
                class_="chips",
            )
        )
    return el("div", parts, class_="answers")


def _more(place: int, question: Question, questions: Sequence[Question], name: Namer) -> Html:
    """What is rarely changed, in a line that can be opened."""
    before = [(at, other) for at, other in enumerate(questions[:place]) if other.kind != "text"]
    follows: list[Child] = []
    if before:
        options = [("", "always"), *((str(at), f"after “{other.text or other.id}”") for at, other in before)]
        chosen = next((str(at) for at, other in before if other.id == question.follows), "")
        follows.append(select(name("follows"), options, chosen, data_redraw="questions"))
        followed = next((other for at, other in before if str(at) == chosen), None)
        if followed is not None:
            answers = [(answer, answer) for answer in followed.answers()]
            follows.append(el("span", "was answered", class_="mut"))
            follows.append(select(name("follows_answer"), answers, question.follows_answer, aria_label="Answer"))
    # A short name that is made of the text goes on to follow the text, until somebody writes another one.
    made = question.id == short_name(question.text, [other.id for other in questions[:place]])
    summary = [f"column “{question.id}”", "required" if question.required else "may be left out"]
    if question.only_with:
        summary.append(f"only of images that show “{question.only_with}”")
    if question.follows:
        summary.append(f"only after “{question.follows}” = {question.follows_answer}")
    return more_line(
        " · ".join(summary),
        el(
            "div",
            field(
                name("id"),
                "Short name",
                text_input(name("id"), "" if made else question.id, placeholder=question.id, maxlength=60),
                {},
                "a column of the exports: lower case letters, digits, hyphens",
            ),
            field(
                name("only_with"),
                "Asked only of images that show",
                text_input(
                    name("only_with"), question.only_with, list="classes", placeholder="(all images)", maxlength=120
                ),
                {},
            ),
            field(name("follows"), "Asked", el("span", follows, class_="line-end"), {}) if follows else None,
            tick(name("required"), "An answer is required", question.required),
            class_="fields",
        ),
        data_keep=f"question-{place}",
    )
