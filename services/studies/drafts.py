"""The commands with which a lead sets up a study before its start, from the name to the items.

A draft is saved while the lead types. Each command first saves the form that it contains. A page also sends a hash of
the draft that the page shows (`based`). If another window has changed the draft, nothing is saved: see `draft_saves`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from core.catalogue import Order, PageKey
from core.csv_tables import cells
from core.errors import UserError
from core.image_filter import UNREAD, ImageFilter
from core.studies import Finding, InstructionExample, Item, ItemKind, NewItem, RuleProblem, Rules, Study, Worker
from core.study_report import PowerPlan
from core.words import count_of
from services.commands import Command, Missing, does, in_words
from services.evaluation.model_outcomes import RunMasks, measure
from services.studies import draft_form
from services.studies.control_items import MADE, disguises, keep_in_step, leave_out
from services.studies.draft_form import WhyText, typed_text
from services.studies.draft_saves import DraftSaves, form_state
from services.studies.item_filter import ItemDraw, draw, items_of, model_name, note_of, pool_of, recipes_in
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace
from study.power import items_for, plan
from study.questions import problems_of
from study.readiness import findings

QUIZ = 5
"""Number of quiz questions in a new draft. Without a quiz, workers with few earlier assignments could not vote."""
MEASURING_SECONDS = 0.05
"""Seconds spent comparing class maps after a filter change. The page then says how many images are not compared."""
PICKABLE = 60
"""Maximum number of pictures of each group from which a lead can choose examples."""
ItemId = Annotated[StrictInt, Field(description="The id of the item")]
TemplateName = Annotated[str, typed_text(40), Field(description="The name of a question template")]
AskModel = Callable[[str, str], str | None]
"""Function that requests predictions, with the parameters and results of
`services.runs.predictions.ModelChoices.ask`."""
_OTHER_MODEL = "These images belong to runs with another model under test: choose that one, or change it there."
_NO_TEMPLATE = "There is no such template. Please reload the page."


class StudyCommand(Command):
    """A command on a study."""

    study: str = Field(max_length=80, description="The id of the study")


class DraftCommand(StudyCommand):
    """A command on a draft."""

    based: str = Field(
        "", description="State of the form that the page shows; if another page has changed it, nothing is saved"
    )
    tab: str = Field("", max_length=40, description="A name that the sending page chose for itself")
    number: int = Field(0, ge=0, description="Number of the page's request; a repeated or late request is not saved")
    form: dict[str, Any] = Field(
        default={}, description="The form as typed so far, by field. Valid fields are saved, invalid ones are reported"
    )


class DrawsIntoDraft(DraftCommand, ItemDraw):
    """A command that adds a sample of the test cases that match a filter to a draft."""


class DrawsItems(StudyCommand, ItemDraw):
    """A command about the test cases that match a filter, from which a study can take a sample."""


@dataclass(frozen=True)
class DraftState:
    """A draft with the problems to correct before the study can start."""

    study: Study
    items: tuple[Item, ...]
    troubles: tuple[RuleProblem, ...]
    """Problems of the form: first unreadable fields, then conflicts."""
    unread: int
    """Number of problems that are unreadable fields. They come first."""
    findings: tuple[Finding, ...]
    models: tuple[str, ...] = ()
    """Models under test that have predicted test cases: the one with most predictions first, then by name."""
    recipes: tuple[tuple[str, str], ...] = ()
    """Names and titles of the recipes of this workspace's test cases."""

    @property
    def form_state(self) -> str:
        """Return the state of the form, which the page sends back as `based`."""
        return form_state(self.study)

    @property
    def problems(self) -> Mapping[str, str]:
        """Return by field, in a sentence, the first problem that prevents the start. Fields without any are absent."""
        stops: list[RuleProblem | Finding] = [*self.troubles, *(finding for finding in self.findings if finding.stops)]
        return {entry.field: entry.text for entry in reversed(stops)}

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of all items, sorted."""
        return tuple(sorted({name for item in self.items for name in item.classes}))


@dataclass(frozen=True)
class DrawnItems:
    """A draft after items were drawn into it, and a sentence on how they were drawn."""

    draft: DraftState
    words: str


@dataclass(frozen=True)
class FilterNote:
    """Number of test cases from which a study can take a sample (`free`), also as a sentence (`words`)."""

    words: str
    free: int
    unread: int
    """Number of test cases without a prediction of the model under test that match all other parts of the filter."""


class StudyDrafts:
    """The drafts of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, ask_model: AskModel) -> None:
        self._workspace, self._studies, self._ask_model = workspace, workspace.studies, ask_model
        self.recipes = partial(recipes_in, workspace.catalogue)
        """Returns names and titles of the recipes of this workspace's test cases."""
        self.items = workspace.studies.items
        """Returns the items of a study, of all kinds."""
        self._lock = threading.RLock()
        self._masks = RunMasks(workspace)
        self.disguise = disguises(workspace)
        self._saves = DraftSaves()

    def state(self, study_id: str, unread: Sequence[RuleProblem] = ()) -> DraftState:
        """Update the control, quiz and training items that the studio made for a draft. Return the state of the draft.
        `unread` holds the problems of unreadable fields.
        """
        keep_in_step(self._studies, study_id, self.disguise)
        study, items = self._studies.get(study_id), self.items(study_id)
        troubles = (*unread, *problems_of(study.rules))
        # `findings` may report problems only if the rules are valid.
        draft_findings = findings(study.rules, items, self.known_workers())
        return DraftState(study, items, troubles, len(unread), draft_findings, self.models(), self.recipes())

    def known_workers(self) -> tuple[Worker, ...]:
        """Return all workers who were ever enrolled in a study of this workspace."""
        studies = self._studies
        known = {worker.id: worker for study in studies.all() for worker in studies.workers.of_study(study.id)}
        return tuple(known.values())

    def item(self, study_id: str, item_id: int) -> Item:
        """Return an item of a study. Raises Missing if the study does not have it."""
        for item in self.items(study_id):
            if item.id == item_id:
                return item
        raise Missing("This image is not in the study any more. Please reload the page.")

    def models(self) -> tuple[str, ...]:
        """Return the models that have predicted a test case: the one with most predictions first, then by name."""
        first = self._workspace.catalogue.most_read()
        return (first, *sorted(set(self._workspace.catalogue.models()) - {first})) if first else ()

    def possible_examples(self, study_id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return groups of pictures for examples, each (title, SHA-256s): sources, and test cases not in the study."""
        items = self.items(study_id)
        taken = {item.image_sha for item in items}
        sources = dict.fromkeys(item.source_sha for item in items if item.source_sha)
        others: dict[str, None] = {}
        key: PageKey | None = None
        not_in_study = ImageFilter(not_in_study=study_id, test_cases=True)
        while len(others) < PICKABLE and (
            page := self._workspace.catalogue.page(not_in_study, Order("oldest"), 2 * PICKABLE, after=key).entries
        ):
            others |= dict.fromkeys(entry.image_sha for entry in page if entry.image_sha not in taken)
            key = page[-1].key
        return (
            ("Source images of this study", tuple(sources)[:PICKABLE]),
            ("Generated images that are not in this study", tuple(others)[:PICKABLE]),
        )

    @does("create-study", keeps=True)
    def create(
        self,
        title: Annotated[
            str,
            typed_text(10 * draft_form.LONGEST_NAME),
            Field(description=f"The name of the study, at most {draft_form.LONGEST_NAME} characters"),
        ],
        template: TemplateName = "own",
    ) -> str:
        """Begin a draft of a study with the questions and texts of a template. Return the study's id."""
        chosen = TEMPLATES.get(template or "own")
        if chosen is None:
            raise UserError(_NO_TEMPLATE, field="template")
        try:
            name = draft_form.read_name({"name": title})
        except ValueError as error:
            raise UserError(str(error), field="title") from error
        return self._studies.create(name, draft_form.default_rules(chosen.rules(), QUIZ, _seed()))

    @does("copy-rules", StudyCommand, keeps=True)
    def copy_rules(
        self,
        study: str,
        images: Annotated[
            bool, Field(description="True to copy the images too, with control, quiz and training items")
        ] = False,
    ) -> str:
        """Begin a draft with the rules of another study and, on request, its images. Return the new study's id."""
        copied = self._studies.get(study)
        ending, left_out = (", copy", copied.rules.left_out) if images else (", again", ())
        title = copied.name[: draft_form.LONGEST_NAME - len(ending)] + ending
        copy = self._studies.create(title, replace(copied.rules, version=0, seed=_seed(), left_out=left_out))
        if images:
            self._studies.add_items(copy, [_new(item) for item in self.items(copied.id)])
        return copy

    def change(
        self,
        sent: DraftCommand,
        of_rules: Callable[[Rules], Rules] = lambda rules: rules,
        of_items: Callable[[], None] = lambda: None,
    ) -> DraftState:
        """Save the form, then change rules (`of_rules`) or items (`of_items`). Ignore a repeated or late request."""
        with self._lock:
            study = self._draft(sent)
            if self._saves.is_late(sent.study, sent.tab, sent.number):
                return self.state(sent.study, draft_form.read_draft(sent.form, study.name, study.rules)[2])
            self._saves.refuse_overwriting(study, sent.based, sent.tab)
            unread = self._save(sent, study, of_rules)
            of_items()
            return self.state(sent.study, unread)

    @does("save-draft", DraftCommand)
    def save_draft(self, sent: DraftCommand) -> DraftState:
        """Save the form as it is typed."""
        return self.change(sent)

    @does("refresh-draft", DraftCommand)
    def refresh(self, sent: DraftCommand) -> DraftState:
        """Return the state of the draft after items were uploaded as files. The typed form is not saved."""
        with self._lock:
            study = self._draft(sent)
            self._saves.refuse_overwriting(study, sent.based, sent.tab)
            return self.state(sent.study, draft_form.read_draft(sent.form, study.name, study.rules)[2])

    @does("edit-questions", DraftCommand)
    def edit_questions(
        self,
        sent: DraftCommand,
        do: Annotated[Literal["add", "up", "down", "remove"], Field(description="The change")],
        place: Annotated[StrictInt, Field(description="Position of the question, from 0; not needed for “add”")] = -1,
    ) -> DraftState:
        """Add a question at the end, move a question up or down, or remove a question."""
        return self.change(sent, lambda rules: replace(rules, questions=draft_form.moved(rules.questions, do, place)))

    @does("take-template", DraftCommand)
    def take_template(self, sent: DraftCommand, template: TemplateName) -> DraftState:
        """Replace the draft's questions and texts by those of a template. Raises UserError if it is unknown."""
        chosen = TEMPLATES.get(template)
        if chosen is None:
            raise UserError(_NO_TEMPLATE)
        taken = cells(chosen.rules(), "questions template show_source show_captions instructions consent")
        return self.change(sent, lambda rules: replace(rules, **taken))

    @does("add-example", DraftCommand)
    def add_example(
        self,
        sent: DraftCommand,
        sha: Annotated[str, Field(max_length=64, description="The SHA-256 of a stored image, in hexadecimal digits")],
    ) -> DraftState:
        """Add a picture of the workspace as an example in the instructions. Raises UserError for an unknown picture."""
        self._workspace.images.path(sha)
        example = InstructionExample(sha, "", "")
        return self.change(sent, lambda rules: replace(rules, examples=(*rules.examples, example)))

    @does("delete-example", DraftCommand)
    def delete_example(
        self,
        sent: DraftCommand,
        place: Annotated[StrictInt, Field(ge=0, description="Position of the example, from 0")],
    ) -> DraftState:
        """Remove an example from the instructions."""

        def without(rules: Rules) -> Rules:
            return replace(rules, examples=(*rules.examples[:place], *rules.examples[place + 1 :]))

        return self.change(sent, without)

    @does("mark-item", DraftCommand)
    def mark_item(
        self,
        sent: DraftCommand,
        item: ItemId,
        kind: Annotated[ItemKind, Field(description="The new kind of the item")],
        expected: Annotated[
            dict[str, str],
            Field(default={}, description="The right answer by question id, for questions where it is known"),
        ],
        why: Annotated[
            WhyText,
            Field(description="For a training item: why these answers are right. A worker reads it after answering"),
        ] = "",
    ) -> DraftState:
        """Make an item a control, quiz or training item with right answers, or an ordinary item again."""

        def mark() -> None:
            marked = self.item(sent.study, item)
            questions = self._studies.get(sent.study).rules.questions
            right = {q.id: expected[q.id] for q in questions if expected.get(q.id) in q.answers()}
            if kind != "item" and not right:
                raise UserError("Give the right answer to at least one question.", field="expected")
            known = kind != "item"
            origin = {name: value for name, value in marked.origin.items() if name != MADE}
            new = replace(_new(marked, origin), kind=kind, expected=right if known else {}, why=why if known else "")
            if marked.kind == "item":
                new = replace(new, group="")
            elif kind == "item":
                new = replace(new, group="given")
            leave_out(self._studies, sent.study, [marked])
            self._studies.remove_items(sent.study, [marked.id])
            self._studies.add_items(sent.study, [new])

        return self.change(sent, of_items=mark)

    @does("draw-items", DrawsIntoDraft)
    def draw(self, sent: DrawsIntoDraft) -> DrawnItems:
        """Add a sample of the test cases that match a filter to the draft. Raises UserError for an empty sample."""
        words = ""

        def add() -> None:
            nonlocal words
            new, words = self.drawn(self._studies.get(sent.study), sent)
            self._studies.add_items(sent.study, new)
            self._studies.note("items drawn", words, sent.study)

        draft = self.change(sent, of_items=add)
        return DrawnItems(draft, f"{words[:1].upper()}{words[1:]}." if words else "")

    def drawn(self, study: Study, request: ItemDraw) -> tuple[tuple[NewItem, ...], str]:
        """Return drawn items, and words on how they were drawn. Saves nothing. Raises UserError if there are none."""
        catalogue = self._workspace.catalogue
        pool = pool_of(catalogue, request, study.id)
        if pool.unmeasured and measure(self._workspace, self._masks, pool.model):
            pool = pool_of(catalogue, request, study.id)
        with in_words():
            candidates = draw(self._workspace, pool, request, study.rules.seed)
        classes = [question.only_with for question in study.rules.questions]
        known = self._workspace.models_under_test.known_classes(pool.model)
        new = items_of(candidates, request.sample, pool.model, self._masks, classes, known)
        way = {"random": "at random", "label": "equally of each class", "edit type": "equally of each edit type"}
        short = f" ({request.count} were asked for)" if len(new) < request.count else ""
        models = {model_name(name or pool.model): values for name, values in request.filter.models.items()}
        filter_words = replace(request.filter, models=models).words
        fitted = f"from {pool.free} that fitted{f' ({filter_words})' if filter_words else ''}, seed {study.rules.seed}"
        if pool.reconstructions:
            fitted += f", without {count_of(pool.reconstructions, 'reconstruction')}"
        return new, f"{count_of(len(new), 'image')} drawn {way[request.how]}{short}, {fitted}"

    @does("describe-filter", DrawsItems)
    def describe_filter(self, sent: DrawsItems) -> FilterNote:
        """Describe how many test cases a draw with a filter can use."""
        catalogue, study = self._workspace.catalogue, self._studies.get(sent.study).id
        pool = pool_of(catalogue, sent, study)
        if pool.unmeasured:
            until = time.monotonic() + MEASURING_SECONDS
            measure(self._workspace, self._masks, pool.model, enough=lambda: time.monotonic() > until)
            pool = pool_of(catalogue, sent, study)
        return FilterNote(note_of(pool, sent), pool.free, pool.unread)

    @does("ask-model", DrawsItems)
    def ask_model(self, sent: DrawsItems) -> int:
        """Request missing predictions for a filter's images. The model under test runs while no other work does."""
        catalogue, named = self._workspace.catalogue, next(filter(None, sent.filter.models), "")
        pool = pool_of(catalogue, sent)
        runs = sorted(catalogue.runs(replace(pool.selection, models={pool.model: (UNREAD,)})))
        # Each run has its own model under test, which can be changed on the page Explore.
        answers = [answer for run in runs if (answer := self._ask_model(run, named)) is not None]
        if not answers:
            answers = [_OTHER_MODEL]
        if problem := next((answer for answer in reversed(answers) if answer), ""):
            raise UserError(problem, field="filter")
        return len(answers)

    @does("delete-item", DraftCommand)
    def delete_item(self, sent: DraftCommand, item: ItemId) -> DraftState:
        """Remove one item from the draft; a missing one changes nothing."""
        return self._remove(sent, lambda known: known.id == item)

    @does("delete-sample", DraftCommand)
    def delete_sample(
        self, sent: DraftCommand, sample: Annotated[str, Field(description="The name of the sample")]
    ) -> DraftState:
        """Remove all ordinary items of a sample from the draft."""
        return self._remove(sent, lambda item: item.kind == "item" and item.group == sample)

    def _remove(self, sent: DraftCommand, meant: Callable[[Item], bool]) -> DraftState:
        def remove() -> None:
            items = self.items(sent.study)
            gone = [item for item in items if meant(item)]
            if gone:
                leave_out(self._studies, sent.study, gone, [item for item in items if not meant(item)])
                self._studies.remove_items(sent.study, [item.id for item in gone])
                self._studies.note("items removed", f"{len(gone)} removed from the draft", sent.study)

        return self.change(sent, of_items=remove)

    def _save(self, sent: DraftCommand, study: Study, change: Callable[[Rules], Rules]) -> tuple[RuleProblem, ...]:
        """Save the readable fields, with `change` applied to the rules. Return the problems of unreadable fields."""
        name, typed, unread = draft_form.read_draft(sent.form, study.name, study.rules)
        rules = change(typed)
        if rules != study.rules:
            self._studies.set_rules(sent.study, rules)
        if name != study.name:
            self._studies.rename(sent.study, name)
        after = self._studies.get(sent.study)
        self._saves.note(study, after, sent.tab, sent.number, as_typed=rules == typed)
        return unread

    def _draft(self, sent: DraftCommand) -> Study:
        """Return the draft that a command names. Raises UserError if the study has started."""
        study = self._studies.get(sent.study)
        if study.state != "draft":
            raise UserError("This study has started, so its set-up is frozen. Please reload the page.")
        return study


def power_of(
    rules: Rules, items: int, width: float, valid: float, accuracy: float, minutes: float
) -> tuple[int, PowerPlan | None]:
    """Return the number of images for a confidence interval of this width, and a plan for `items` images (None for 0).

    The other arguments are those of `study.power.plan`. Raises ValueError with a sentence if no plan is possible.
    """
    needed = items_for(width, rules, valid, accuracy)
    return needed, plan(items, rules, valid, accuracy, minutes) if items else None


def _seed() -> int:
    return secrets.randbelow(10**6)


def _new(item: Item, origin: Mapping[str, Any] | None = None) -> NewItem:
    values = {column.name: getattr(item, column.name) for column in fields(NewItem)}
    return NewItem(**values if origin is None else values | {"origin": origin})
