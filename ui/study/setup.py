"""The page to set up a draft: a form, and beside it the plan and the missing parts. Also the page to run a started
study: progress, invitations, pause, extend, close, votes, rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from core.errors import UserError
from core.form_numbers import FormNumber, form_numbers
from core.image_filter import LONGEST_ADDRESS
from core.panel import Panel, written_questions
from core.studies import (
    LONGEST_WHY,
    Finding,
    Item,
    Question,
    QuestionKind,
    RuleProblem,
    Rules,
    Study,
    StudyState,
    Worker,
    asked,
    wording,
)
from core.study_report import further_people_words
from services.studies.control_items import MADE
from services.studies.draft_form import LONGEST_NAME, short_name
from services.studies.drafts import DraftState, power_of
from services.studies.item_filter import model_name
from services.studies.templates import TEMPLATES, task_of
from ui.explore.parts import Size, Tone, button, pill
from ui.frame import page
from ui.markup import Child, Html, el
from ui.templating import render

TABS = (
    ("results", "Results", ""),
    ("workers", "Workers", "workers"),
    ("adjudication", "Adjudication", "adjudication"),
    ("run", "Invite and run", "run"),
    ("log", "Log", "log"),
)
STATE_WORDS: dict[StudyState, tuple[str, Tone]] = {
    "draft": ("draft", ""),
    "running": ("running", "ok"),
    "paused": ("paused", "warn"),
    "closed": ("closed", "acc"),
}


def study_head(study: Study, tab: str = "", *actions: Child) -> Html:
    """Return a study's head: name, state, rules and the buttons `actions`. A started study also has the tabs."""
    return render("study/head.html", study=study, state=STATE_WORDS[study.state], tab=tab, tabs=TABS, actions=actions)


Problems = Mapping[str, str]
"""Error messages by the name of their field."""
KINDS: dict[QuestionKind, str] = {
    "yes-no": "yes or no",
    "choice": "choice of answers",
    "scale": "scale from 1 to 5",
    "text": "free text",
}
SHOWN = 48
"""Number of pictures of items shown at first. A button shows as many more."""

Recipes = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Assumptions:
    """Expected shares (0 to 1) and minutes per worker, before the first vote. They are not part of the study."""

    valid: Annotated[float, FormNumber(0, 100, "Expected valid", unit="%", whole=False)] = 0.95
    accuracy: Annotated[float, FormNumber(50, 100, "A vote is right", unit="%", whole=False)] = 0.95
    minutes: Annotated[float, FormNumber(0.5, 600, "A person gives", unit="min", whole=False)] = 30.0
    width: Annotated[float, FormNumber(0.5, 99, "Interval wanted", unit="points", whole=False)] = 0.05


def setup_page(draft: DraftState, assumed: Assumptions) -> str:
    """Return the page to set up a study, as a document."""
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
        files=render("study/files.html", started=False),
        items=items_shown(draft.items),
        given=given_parts(rules, draft.items),
        texts=render("study/texts.html", rules=rules, problems=problems),
        missing=missing_part(study, draft.troubles, draft.findings),
        plan=plan_figures(rules, plain(draft.items), assumed),
        assumptions=form_numbers(Assumptions),
        assumed=assumed,
    )
    copy = button("Try on a copy", look="s q", data_like=study.id, data_images=True, id="copy-study")
    delete = button("Delete the draft …", look="s q", data_act="delete-draft", id="delete")
    head, ends = study_head(study, "", copy, delete), pill("saved", "ok", id="saved", role="status")
    return page(study.name or "Set-up", head, content, ends=ends, scripts=("study-acts.js", "study-setup.js"))


def plain(items: Sequence[Item]) -> int:
    """Return the number of items to be judged, without items that have a known answer."""
    return sum(item.kind == "item" for item in items)


def given_parts(rules: Rules, items: Sequence[Item]) -> dict[str, Html]:
    """Return the page parts of items with known answers, by kind. If the rules have no training, its part is empty."""
    return {
        "control": given_shown(items, "control"),
        "quiz": given_shown(items, "quiz"),
        "training": given_shown(items, "training") if rules.training else el("div", id="part-training"),
    }


def read_assumptions(data: Mapping[str, Any]) -> Assumptions:
    """Parse the assumptions that a person typed. Raises UserError for an invalid number."""
    read: dict[str, float] = {}
    for name, number in form_numbers(Assumptions).items():
        if name in data:
            try:
                read[name] = number.read(data[name])
            except ValueError as error:
                raise UserError(str(error), field=f"plan.{name}") from error
    return Assumptions(**read)


def plan_figures(rules: Rules, items: int, assumed: Assumptions) -> Html:
    """Return figures of the plan, such as the number of votes needed, or text that says why there are none."""
    try:
        images, planned = power_of(rules, items, assumed.width, assumed.valid, assumed.accuracy, assumed.minutes)
    except ValueError as error:
        return render("study/plan.html", problem=str(error))
    needed = f"An interval of {100 * assumed.width:g} points needs {images:,} images."
    return render("study/plan.html", problem="", needed=needed, planned=planned)


def missing_part(study: Study, troubles: Sequence[RuleProblem], found: Sequence[Finding]) -> Html:
    """Return a list of problems that prevent the start, a list of remarks, and the buttons to preview and start."""
    stops = [(trouble.field, trouble.words) for trouble in troubles]
    stops += [(finding.field, finding.text) for finding in found if finding.stops]
    notes = [(finding.field, finding.text) for finding in found if not finding.stops]
    return render("study/missing.html", study=study, stops=stops, notes=notes)


def questions_card(rules: Rules, problems: Problems, classes: Sequence[str] = ()) -> Html:
    """Return the card with the questions, and templates to begin with. Its form proposes the images' `classes`."""
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
    """Return the rarely used settings of a question for its form: a summary of them, the short name that a person typed
    (else ""), the menu of questions that may precede it, the chosen menu value, and the preceding question (or None).
    """
    question, earlier = questions[place], questions[:place]
    before = {str(at): other for at, other in enumerate(earlier) if other.kind != "text"}
    options = [("", "always"), *((at, f"after “{other.text or other.id}”") for at, other in before.items())]
    chosen = next((at for at, other in before.items() if other.id == question.follows), "")
    # A short name that is derived from the text changes with the text until a person types another.
    derived = question.id == short_name(question.text, [other.id for other in earlier])
    summary = [f"column “{question.id}”", "required" if question.required else "may be left out"]
    if question.only_with:
        summary.append(f"only of images that show “{question.only_with}”")
    if question.follows:
        summary.append(f"only after “{question.follows}” = {question.follows_answer}")
    typed = "" if derived else question.id
    return " · ".join(summary), typed, options if before else [], chosen, before.get(chosen)


def draw_form(models: Sequence[str], recipes: Recipes, kind: str, button_words: str = "Add them") -> Html:
    """Return the form that draws a sample of images for a study. Its filter is a sentence with gaps to fill in."""
    return render(
        "study/draw.html",
        models=[(key, model_name(key)) for key in models],
        recipes=[(urlencode({"recipe": name}), title) for name, title in recipes],
        task=f"kind={kind}" if kind in ("classification", "segmentation") else "",
        button_words=button_words,
        longest_address=LONGEST_ADDRESS,
    )


def items_shown(items: Sequence[Item]) -> Html:
    """Return the items to be judged: counts by sample, and pictures."""
    plain = [item for item in items if item.kind == "item"]
    groups: dict[str, list[Item]] = {}
    for item in plain:
        groups.setdefault(item.group, []).append(item)
    samples = [(group, len(members), _classes(members), _model(members)) for group, members in groups.items()]
    return render("study/items.html", items=plain, samples=samples, thumbs=thumbs(plain, 0))


def thumbs(items: Sequence[Item], start: int) -> Html:
    """Return pictures of items, from index `start` on, and a button for more."""
    end = start + SHOWN
    return render("study/thumbs.html", items=items[start:end], end=end, left=len(items) - end)


def _classes(items: Sequence[Item]) -> str:
    """Return the five most frequent classes of the items with their counts, as text."""
    labels = Counter(
        name for item in items for name in ((item.label,) if item.label else item.classes or ("no label",))
    )
    most = ", ".join(f"{name} {count}" for name, count in labels.most_common(5))
    return most + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def _model(items: Sequence[Item]) -> str:
    """Return text on how often the model under test is wrong on the items."""
    known = sum(item.model_right is not None for item in items)
    return f"wrong on {sum(item.model_right is False for item in items)} of {known}" if known else "not read"


def item_window(item: Item, rules: Rules, draft: bool, sizes: Mapping[str, Size]) -> Html:
    """Return the window for one item: its large picture, its facts, its possible answers and its buttons."""
    facts = [
        ("sample", item.group),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edits", ", ".join(item.edit_types)),
        ("model under test", "" if item.model_right is None else ("right" if item.model_right else "wrong")),
        ("made of", str(item.origin.get(MADE, ""))),
    ]
    questions = [one for one in asked(rules.questions, item, item.expected) if one.answers()] if draft else []
    return render(
        "study/item_window.html",
        item=item,
        draft=draft,
        sizes=sizes,
        facts=[(name, value) for name, value in facts if value],
        questions=[(question, wording(question, item)) for question in questions],
        longest_why=LONGEST_WHY,
        made=MADE in item.origin,
    )


def given_shown(items: Sequence[Item], kind: str) -> Html:
    """Return the items of one kind: "control", "quiz" or "training". These items have a known answer."""
    of_kind = [item for item in items if item.kind == kind]
    made = Counter(str(item.origin[MADE]) for item in of_kind if MADE in item.origin)
    supplied = len(of_kind) - sum(made.values())
    summary = [f"{count} made of the {_MADE_OF.get(what, what)}" for what, count in sorted(made.items())]
    if supplied:
        summary.append(f"{supplied} given")
    return render("study/given.html", kind=kind, items=of_kind, summary=", ".join(summary))


_MADE_OF = {
    "source image": "unchanged source image",
    "wrong label": "source image with a wrong label",
    "another scene": "source image beside another scene",
}


# A started study

MOST_KNOWN = 60
"""Maximum number of workers of earlier studies that are listed."""


def run_page(
    study: Study,
    here: int,
    others: Sequence[Worker],
    history: Sequence[tuple[Rules, datetime]],
    models: Sequence[str],
    recipes: Recipes,
    panel: Panel,
    further_people: int,
    lost: int,
) -> str:
    """Return the page to run a study, as a document. `here` is the number of workers in the study, `others` are workers
    of other studies, best first. At least `further_people` more workers must join before every image can get all its
    votes. `lost` is the number of images that are set aside because a picture is missing.
    """
    content = render(
        "study/run.html",
        study=study,
        here=here,
        panel=panel,
        progress=progress_part(study, further_people, lost),
        # The placeholder in the form of Prolific; other sites use other signs.
        named=f"?{panel.parameter}={{{{%{panel.parameter}%}}}}" if panel.parameter else "",
        known=others[:MOST_KNOWN],
        more_known=len(others) - MOST_KNOWN,
        panel_questions=written_questions(panel),
        draw=draw_form(models, recipes, task_of(study.rules.template), "Add them …"),
        files=render("study/files.html", started=True),
        kinds=KINDS,
        history=history,
    )
    head = study_head(study, "run", render("study/state_buttons.html", study=study, away=True))
    return page(f"{study.name}: invite and run", head, content, scripts=("study-acts.js", "study-votes.js"))


def progress_part(study: Study, further_people: int, lost: int) -> Html:
    """Return the progress: votes so far, workers still needed, and how many images have missing files (`lost`)."""
    people = further_people_words(further_people) if further_people and study.state != "closed" else ""
    return render("study/run_progress.html", study=study, people=people, lost=lost)
