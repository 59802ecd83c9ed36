"""The part of the set-up where the questions are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.studies import Question, QuestionKind, Rules
from services.studies.draft_form import short_name
from services.studies.templates import TEMPLATES
from ui.markup import Html
from ui.templating import render

Problems = Mapping[str, str]
"""What is wrong, by the name of the field."""
KINDS: dict[QuestionKind, str] = {
    "yes-no": "yes or no",
    "choice": "choice of answers",
    "scale": "scale from 1 to 5",
    "text": "free text",
}


def questions_card(rules: Rules, problems: Problems, classes: Sequence[str] = ()) -> Html:
    """The questions with a template to begin anew with. `classes`: what the images show, as proposals."""
    return render(
        "study/questions.html",
        rules=rules,
        problems=problems,
        classes=classes,
        kinds=list(KINDS.items()),
        templates=[(name, template.title) for name, template in TEMPLATES.items()],
        template=rules.template if rules.template in TEMPLATES else "own",
        lines=[(question, *_rare(place, rules.questions)) for place, question in enumerate(rules.questions)],
    )


def _rare(place: int, questions: Sequence[Question]) -> tuple[str, str, list[tuple[str, str]], str, Question | None]:
    """A summary of what is rarely changed, the typed short name, and what the question can follow and does follow."""
    question, earlier = questions[place], questions[:place]
    before = {str(at): other for at, other in enumerate(earlier) if other.kind != "text"}
    options = [("", "always"), *((at, f"after “{other.text or other.id}”") for at, other in before.items())]
    chosen = next((at for at, other in before.items() if other.id == question.follows), "")
    # A short name that is made of the text goes on to follow the text, until somebody writes another one.
    made = question.id == short_name(question.text, [other.id for other in earlier])
    summary = [f"column “{question.id}”", "required" if question.required else "may be left out"]
    if question.only_with:
        summary.append(f"only of images that show “{question.only_with}”")
    if question.follows:
        summary.append(f"only after “{question.follows}” = {question.follows_answer}")
    typed = "" if made else question.id
    return " · ".join(summary), typed, options if before else [], chosen, before.get(chosen)
