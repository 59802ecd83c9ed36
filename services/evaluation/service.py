"""Entry point to evaluations for pages, scripts and the command line: subjects, models, predictions, figures."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.evaluation_results import GateResult
from core.figures import Floats, Numbers
from core.images import png_of
from core.latest import Latest
from core.progress import OnCount
from core.settings import UnderTestSettings
from core.types import TaskKind
from core.words import few_names
from evaluation.class_mapping import ClassMap, map_classes, read_mapping, report_of
from pipeline.profiles.profile import Profile
from services.changes import Changes
from services.commands import does
from services.evaluation import commands as acts
from services.evaluation.caption_ranking import CaptionRanking, caption_ranking_facts, rank_captions
from services.evaluation.control import ControlSets
from services.evaluation.facts import assumption_facts, facts_of, image_counts
from services.evaluation.methods import MethodsResult, methods_facts, methods_result
from services.evaluation.model_choice import chosen_model
from services.evaluation.model_files import found_here
from services.evaluation.predicting import Predicting, Read
from services.evaluation.ranking import Ranking, part_of, rank, ranking_facts
from services.evaluation.results import Evaluation, EvaluationResult, compared, entries_of, gate_of
from services.evaluation.scoring import NOT_JUDGED, Scored, score_images
from services.evaluation.segmented import MaskChecks, MaskValidity
from services.evaluation.stored_predictions import ClassifierAnswers, ModelAnswers, SegmenterCounts
from services.evaluation.study import Create, StudyPlan, draft_study, plan_study
from services.evaluation.study_votes import StudyVotesReader
from services.evaluation.subjects import Cases, read_cases
from services.evaluation.types import (
    Cell,
    ClassMapping,
    Evaluated,
    EvaluationQuestion,
    ModelChoice,
    ModelComparison,
    Pending,
    Subject,
    SubjectView,
)
from services.queries import Query
from services.runs.execution import Execution
from services.runs.predictions import model_key
from services.work_queue import WorkQueue, WorkView
from storage.curation.case_columns import Outcome, Texts
from storage.evaluation.models_under_test import StoredModel
from storage.workspace import Workspace, kept_model

READING = "reading images"
LOOKING = "looking at the model"
HELD = 8
"""Maximum number of evaluations, and of subjects, that are cached until something is saved."""
NO_MODEL = "There is no such model any more: take one from the list."
NOT_LOADED = "This model is not loaded. Press Begin to load it and list its classes."


@dataclass(frozen=True, eq=False)
class EvaluationInputs:
    """Data from which the figures of an evaluation are computed, besides `EvaluationResult.cases`."""

    answers: tuple[ClassifierAnswers | SegmenterCounts, ...]
    """Answers of a classifier, or pixel counts of a segmenter, for originals, test cases and reconstructions."""
    mapping: ClassMap
    studies: tuple[str, ...]
    """Ids of the studies that judged some of the test cases."""
    chance: Floats | None
    """Validity score of each test case, 0 to 1; None if none can be learnt."""


class EvaluationService:
    """The evaluations of one workspace. All methods may be called from any thread."""

    def __init__(
        self,
        profile: Profile,
        workspace: Workspace,
        require_known: Callable[[UnderTestSettings], None],
        changes: Changes | None = None,
        execution: Execution | None = None,
    ) -> None:
        """`execution` draws control sets; None if this service cannot draw."""
        self._profile, self._workspace = profile, workspace
        self.predicting = Predicting(workspace, require_known)
        self._answers = ModelAnswers(workspace)
        self._masks = MaskChecks(workspace, self._answers, profile.checks)
        self._study_votes = StudyVotesReader(workspace)
        self.work = WorkQueue(changes, name="work with a model under test")
        """Queue of the models' predictions. `work.of(about(question))` finds the work for an `EvaluationQuestion`."""
        self.controls = None if execution is None else ControlSets(execution, self.cases, changes)
        """Draws control sets; `controls.work.of(about_control(subject))` finds the drawing for a subject."""
        self._cases, self._found = Latest[Cases](HELD), Latest[EvaluationResult](HELD)
        self._methods = Latest[MethodsResult](HELD)
        self._inputs = Latest[bytes](HELD)
        self._score: dict[TaskKind, tuple[Texts, list[Outcome], Scored | str]] = {}
        self._lock = threading.Lock()

    # Commands

    @does("list-evaluation-subjects", Query)
    def list_subjects(self) -> dict[str, Any]:
        """List the versions of test sets, with their numbers of sources and test cases, and the reason if one cannot be
        evaluated.
        """
        return {"subjects": [_subject_facts(one) for one in self.subjects()]}

    @does("begin-predictions", acts.OnModel)
    def begin_predictions(self, sent: acts.OnModel) -> dict[str, Any]:
        """Have a model read all unread images of a test set; earlier predictions are reused."""
        return work_facts(self.begin(self.asked(sent)))

    @does("cancel-predictions")
    def cancel_predictions(self, work: Annotated[int, acts.work_of("begin_predictions")]) -> dict[str, Any]:
        """Stop a model that reads images; its predictions so far stay."""
        return cancelled(self.work, work)

    @does("show-predictions", Query)
    def show_predictions(self, work: Annotated[int, acts.work_of("begin_predictions")]) -> dict[str, Any]:
        """Show the progress of a model that reads images."""
        return work_facts(self.work.view(work))

    @does("make-control-set", acts.OnSubject)
    def make_control_set(
        self,
        sent: acts.OnSubject,
        key: Annotated[
            str,
            Field(
                max_length=80,
                description="The model that reads them once they are drawn: a “key” of list_models_under_test; empty: "
                "none",
            ),
        ] = "",
    ) -> dict[str, Any]:
        """Draw the missing reconstructions of a test set's sources. A reconstruction is drawn from the caption of its
        source without an edit, with the same settings as the test cases. Existing reconstructions are not drawn again.
        """
        return work_facts(self.make_control(sent.subject, key))

    @does("cancel-control-set")
    def cancel_control_set(self, work: Annotated[int, acts.work_of("make_control_set")]) -> dict[str, Any]:
        """Stop drawing reconstructions; finished ones stay."""
        return cancelled(self._controls.work, work)

    @does("show-control-set", Query)
    def show_control_set(self, work: Annotated[int, acts.work_of("make_control_set")]) -> dict[str, Any]:
        """Show the progress of drawing reconstructions."""
        return work_facts(self._controls.work.view(work))

    @does("draft-evaluation-study", acts.OnModel)
    def draft_evaluation_study(
        self,
        sent: acts.OnModel,
        judged: Annotated[int, Field(ge=10, le=5_000, description="Maximum number of images to judge")] = (
            acts.STUDY_IMAGES
        ),
    ) -> dict[str, str]:
        """Draft a validity study that estimates how many of a model's faults are valid. The study samples images with a
        fault and images without a fault. A segmenter's fault is a lost class. Returns the study. Workers cannot see
        the study before its start.
        """
        return {"study": self.draft_study(self.asked(sent), judged)}

    @does("rank-test-cases", acts.OnModel, looks=True)
    def rank_test_cases(
        self,
        sent: acts.OnModel,
        most: Annotated[int, Field(ge=1, le=acts.MOST_RANKED, description="Maximum test cases to return")] = 100,
    ) -> dict[str, Any]:
        """Rank the test cases of a test set, so that the first ones show as many different valid faults of the model as
        possible; compare the ranking with random order, entropy and DeepGini.
        """
        return ranking_facts(self.rank(self.asked(sent), most))

    @does("foretell-faults", acts.OnModel, looks=True)
    def foretell_faults(
        self,
        sent: acts.OnModel,
        runs: Annotated[
            tuple[str, ...],
            Field(min_length=1, max_length=acts.MOST_RUNS, description="Runs with captions that are not drawn yet"),
        ],
    ) -> dict[str, Any]:
        """Rank undrawn counterfactual captions of runs by the chance that their images will show a valid fault of the
        model, the highest first. The chance is learnt from images of a test set, mostly those with the same edits.
        """
        return caption_ranking_facts(self.rank_captions(self.asked(sent), runs))

    @does("show-evaluation", acts.OnTwoModels, looks=True)
    def show(self, sent: acts.OnTwoModels) -> dict[str, Any]:
        """Evaluate a model on a test set. Returns errors (for a segmenter, mIoU and lost classes), the excess over
        reconstructions, and the edits that hurt. If a second model is given, also compares the two models.
        """
        question, *second = self.asked_both(sent)
        return facts_of(self.evaluate(question), self.compare(question, *second) if second else None)

    @does("compare-methods", acts.OnMethods, looks=True)
    def compare_methods(self, sent: acts.OnMethods) -> dict[str, Any]:
        """Compare the methods that made the images of a test set, on the same sources. A method is a recipe that draws
        from noise or from the inverted source. Figures, with intervals and differences: share of valid images, errors,
        excess over each method's own control set, valid failures per 100 images and per minute of model time, weak
        cells found, and cost.
        """
        return methods_facts(self.methods(self.asked(sent), sent.reference).compared)

    @does("list-models-under-test", acts.OnSubject, looks=True)
    def list_models(self, sent: acts.OnSubject) -> dict[str, Any]:
        """List the models that can read a test set, and how many of its images each has read."""
        models = []
        for one in self.models(sent.subject):
            stored = self.predicting.stored(one.settings)
            assumptions = assumption_facts(stored.identity) if stored is not None else []
            models.append(facts(one, "key title kind from_profile predicted", assumptions=assumptions))
        return {"subject": _subject_facts(self.view(sent.subject)), "models": models}

    def close(self) -> None:
        """Stop reading and drawing images. Finished images stay, and a later start continues with the rest."""
        self.work.close()
        if self.controls is not None:
            self.controls.work.close()

    # Subjects and models

    def subjects(self) -> tuple[SubjectView, ...]:
        """Return all versions of all test sets, the latest set and the latest version first."""
        versions = [one for test_set in self._workspace.test_sets.all() for one in reversed(test_set.versions)]
        return tuple(self.view(Subject(version=one.number)) for one in versions)

    def gallery(self) -> dict[TaskKind, int]:
        """Return the number of gallery images by kind of task; kinds without images are left out."""
        counts = self._workspace.catalogue.facets(names=("kind",))["kind"]
        return {kind: counts[kind] for kind in get_args(TaskKind) if counts.get(kind)}

    def view(self, subject: Subject) -> SubjectView:
        """Return the current state of a subject. Raises UserError if the version is gone."""
        return self.cases(subject).view

    def models(self, subject: Subject | None = None) -> tuple[ModelChoice, ...]:
        """Return the models to choose from, for a subject or for none: those of the profile, then those used before,
        the latest first. Settings that load the same model are one choice.
        """
        choices: dict[str, ModelChoice] = {}
        for model, choice in self._choices(subject):
            choices.setdefault(model, choice)
        return tuple(choices.values())

    def title(self, settings: UnderTestSettings) -> str:
        """Return the name of a model for pages and reports, with settings in brackets if others have the same name."""
        title, stored = title_of(settings), self.predicting.stored(settings)
        others = [
            UnderTestSettings.model_validate(known.settings)
            for known in self._workspace.models_under_test.all()
            if stored is None or known.model.key != stored.key
        ]
        differing = settings_words(settings, [one for one in others if title_of(one) == title])
        return f"{title} ({differing})" if differing else title

    def choice(self, key: str, subject: Subject | None = None) -> ModelChoice:
        """Return the model with this key, even if `models` lists it under another key. Raises UserError if unknown."""
        for _, choice in self._choices(subject):
            if choice.key == key:
                return choice
        raise UserError(NO_MODEL, field="key")

    def cases(self, subject: Subject) -> Cases:
        """Return the images of an evaluation's subject, as columns. Raises UserError if its test set is gone."""
        with self._lock:
            key = (repr(subject), self._workspace.saved())
            return self._cases.once(key, lambda: read_cases(self._workspace, subject))

    # Questions to a model

    def asked(self, sent: acts.OnModel) -> EvaluationQuestion:
        """Return the `EvaluationQuestion` that a command asks. Raises UserError for an unknown model."""
        subject = sent.subject
        return EvaluationQuestion(subject, self._wanted(sent, subject), sent.mapping, sent.weighing, sent.among_labels)

    def asked_both(self, sent: acts.OnTwoModels) -> tuple[EvaluationQuestion, ...]:
        """Return a question for each of a command's one or two models. Raises UserError for an unknown model."""
        keys = (sent.key, sent.beside) if sent.beside else (sent.key,)
        return tuple(self.asked(sent.model_copy(update={"key": key})) for key in keys)

    def mapping(self, question: EvaluationQuestion) -> ClassMapping | None:
        """Map labels to classes; None if the model was never loaded. Raises UserError for an unreadable mapping."""
        stored = self.predicting.stored(question.model)
        if stored is None:
            return None
        cases = self.cases(question.subject)
        mapping, problem = self.class_map(question, cases, stored), self.misfit(cases, stored)
        if not problem and not any(one.classes for one in mapping.labels):
            problem = "None of the labels is a class of the model: map them with a file of your own."
        return ClassMapping(stored.identity, report_of(mapping), problem, next(iter(cases.pictures), ""))

    def input_picture(self, question: EvaluationQuestion) -> bytes:
        """Return a PNG of the subject's first image as the model gets it. Raises UserError if it cannot be shown."""
        cases = self.cases(question.subject)
        cases.require()
        key = (model_key(question.model), cases.pictures[0])
        return self._inputs.once(key, lambda: png_of(self.predicting.input_picture(question.model, cases.pictures[0])))

    def look(self, question: EvaluationQuestion) -> WorkView:
        """Begin to load the model, and return this work. When it ends, the model's classes are known."""

        def work(on_count: OnCount) -> str:
            on_count(0, 0)
            return self.predicting.identify(question.model, lambda: on_count(0, 0)).identity.digest

        return self.work.begin(LOOKING, about(question), work)

    def begin(self, question: EvaluationQuestion) -> WorkView:
        """Begin work in which the model reads images (result: a `Read`). Raises UserError if the work cannot begin."""
        self.cases(question.subject).require()

        def work(on_count: OnCount) -> Any:
            cases = self.cases(question.subject)
            model = self.predicting.identify(question.model, lambda: on_count(0, len(cases.pictures)))
            misfit = self.misfit(cases, model)
            if misfit:
                raise UserError(misfit)
            return self.read(question.model, cases, on_count)

        return self.work.begin(READING, about(question), work)

    def read(self, settings: UnderTestSettings, cases: Cases, on_count: OnCount) -> Read:
        """Have a model read the unread images of a subject. For a segmentation, the segmenter of the checks reads them
        too, to decide whether each mask still fits. If that fails, the result says why, and the rest continues.
        `on_count` and errors are as in `Predicting.read`.
        """
        checker = self._masks.checker if cases.view.kind == "segmentation" else None
        if checker is None or model_key(checker) == model_key(settings):
            return self.predicting.read(settings, cases, on_count)
        pictures = len(cases.pictures)
        read = self.predicting.read(settings, cases, lambda done, total: on_count(done, total + pictures))
        try:
            self.predicting.check_masks(checker, cases, lambda done, total: on_count(pictures + done, pictures + total))
        except UserError as error:
            return replace(read, unchecked=str(error))
        return read

    def pending(self, question: EvaluationQuestion) -> Pending:
        """Count the images of a subject, those that the model has read, and those that cannot be read."""
        cases, stored = self.cases(question.subject), self.predicting.stored(question.model)
        broken = self.predicting.broken(cases.pictures)
        if stored is None:
            return Pending(len(cases.pictures), 0)
        return Pending(len(cases.pictures), self._answers.read_of(stored, cases), len(broken))

    # The control set

    def make_control(self, subject: Subject, key: str = "") -> WorkView:
        """Begin to draw missing reconstructions, which a model then reads. `key` is the `ModelChoice.key` of this
        model; "" for no model. The result is a `ControlsDrawn`. Raises UserError if no reconstruction can be drawn.
        """
        model = self.choice(key, subject).settings if key else None

        def read(on_count: OnCount) -> Read:
            assert model is not None
            return self.read(model, self.cases(subject), on_count)

        return self._controls.make(subject, about_control(subject), read if model is not None else None)

    @property
    def _controls(self) -> ControlSets:
        if self.controls is None:
            raise UserError("This command cannot draw images: ask the running studio for reconstructions.")
        return self.controls

    # Figures

    def evaluate(self, question: EvaluationQuestion) -> Evaluated:
        """Return all figures on the images that the model has read. Raises UserError if none can be calculated."""
        return self.result(question).evaluated

    def compare(self, first: EvaluationQuestion, second: EvaluationQuestion) -> ModelComparison | None:
        """Compare two models on the same test cases. Return None if the two questions are about different images."""
        if first.subject != second.subject:
            return None
        return compared(self.result(first), self.result(second), first.weighing)

    def gate(
        self, first: EvaluationQuestion, second: EvaluationQuestion, margin: float, by_class: bool = False
    ) -> GateResult:
        """Return whether the second model is worse than the first by more than `margin`, 0 to 1. `by_class` compares
        each label too. Raises UserError if `evaluate` raises it, or if the models have different tasks.
        """
        votes = self._workspace.case_columns.outcomes()
        return gate_of(self.result(first), self.result(second), votes, margin, by_class, first.weighing)

    def methods(self, question: EvaluationQuestion, reference: str = "") -> MethodsResult:
        """Compare the methods that made the test cases. `reference` is a `Method.key`; "" for the first method. Raises
        UserError if no figures can be calculated, there is only one method, or no method has the key `reference`.
        """

        def compare() -> MethodsResult:
            result, votes = self.result(question), self._workspace.case_columns.outcomes()
            ids = result.cases.table.test_case[result.cases.generated.row]
            return methods_result(self._workspace, result, votes, self._study_votes.of(votes, ids), reference)

        return self._methods.once((repr(question), reference, self._workspace.saved()), compare)

    def entries(self, question: EvaluationQuestion, cell: Cell) -> tuple[int, ...]:
        """Return the sorted catalogue entries of the images behind `cell`, a number in the result of `evaluate`."""
        return entries_of(self.result(question), cell)

    def rank(self, question: EvaluationQuestion, most: int = 100) -> Ranking:
        """Rank the test cases, and return the first `most`. Raises UserError if no figures can be calculated."""
        result, votes = self.result(question), self._workspace.case_columns.outcomes()
        return self._ranking(question, result, self._scored(result.cases, votes), votes, most)

    def ranked(self, question: EvaluationQuestion, entries: Numbers, votes: Sequence[Outcome]) -> tuple[int, ...]:
        """Sort the catalogue entries of some test cases as `rank` does, but learn from these cases and votes only."""
        result = self.result(question)
        table = result.cases.table
        part = part_of(result, np.flatnonzero(np.isin(table.entry[result.cases.generated.row], entries)))
        score: Scored | str = NOT_JUDGED
        if votes:
            score = score_images(table, self._workspace.case_columns.checks(), votes, result.cases.task)
        return tuple(one.entry for one in self._ranking(question, part, score, votes, len(entries)).first)

    def _ranking(
        self,
        question: EvaluationQuestion,
        found: EvaluationResult,
        score: Scored | str,
        votes: Sequence[Outcome],
        most: int,
    ) -> Ranking:
        cases, stored = found.cases, self._stored(question.model)
        entropy: Floats | None
        gini: Floats | None
        entropy, gini = self._answers.doubts(stored, cases, cases.generated)
        passed = self._workspace.case_columns.passed(cases.table.entry[cases.generated.row])
        if cases.view.kind == "segmentation" and not np.isfinite(entropy).any():  # a segmenter may give no uncertainty
            entropy = gini = None
        return rank(found, entropy, gini, score, passed, votes, most)

    def rank_captions(self, question: EvaluationQuestion, runs: Sequence[str]) -> CaptionRanking:
        """Rank the undrawn captions of runs. Raises UserError for an unknown run, and whenever `rank` raises it."""
        result = self.result(question)
        waiting = [self._workspace.runs.get(run) for run in dict.fromkeys(runs)]
        return rank_captions(result, self._workspace.case_columns.outcomes(), waiting)

    # A study of validity

    def study_plan(self, question: EvaluationQuestion, judged: int = acts.STUDY_IMAGES) -> StudyPlan:
        """Plan a study that judges at most `judged` images. Raises UserError if none can be drafted."""
        return plan_study(self.result(question), judged)

    def draft_study(
        self, question: EvaluationQuestion, judged: int = acts.STUDY_IMAGES, create: Create | None = None
    ) -> str:
        """Draft and save the study of `study_plan`, and return its id. Raises UserError if no study can be drafted."""
        result = self.result(question)
        return draft_study(
            self._workspace, result, plan_study(result, judged), self._stored(question.model).key, create
        )

    # Implementation

    def result(self, question: EvaluationQuestion) -> EvaluationResult:
        """Return the figures with the columns behind them. Raises UserError if no figures can be calculated."""
        return self._found.once((repr(question), self._workspace.saved()), lambda: self._evaluated(question))

    def inputs(self, question: EvaluationQuestion) -> EvaluationInputs:
        """Return the data behind the figures of `evaluate`. Raises UserError for a bad test set, model or mapping."""
        cases, stored = self.cases(question.subject), self._stored(question.model)
        mapping, votes = self._answering(question, cases, stored), self._workspace.case_columns.outcomes()
        read = self._answers.segmented if cases.view.kind == "segmentation" else self._answers.classified
        answers = tuple(read(stored, mapping, cases, images) for images in cases.all_images)
        studies = self._study_votes.of(votes, cases.table.test_case[cases.generated.row])
        score = self._scored(cases, votes)
        chance = None if isinstance(score, str) else score.chance[cases.generated.row]
        return EvaluationInputs(answers, mapping, tuple(one.study for one in studies), chance)

    def _evaluated(self, question: EvaluationQuestion) -> EvaluationResult:
        cases = self.cases(question.subject)
        cases.require()
        stored = self._stored(question.model)
        misfit = self.misfit(cases, stored)
        if misfit:
            raise UserError(misfit)
        masks = MaskValidity(np.zeros(0, bool))
        if cases.view.kind == "segmentation":
            masks = self._masks.of(cases, stored, self.predicting.broken(cases.pictures))
        mapping, title = self._answering(question, cases, stored), self.title(question.model)
        if mapping.among_labels:
            classes = len(mapping.classes)
            title = f"{title}, choosing among {classes - len(mapping.left_over):,} of its {classes:,} classes"
        votes, pending = self._workspace.case_columns.outcomes(), self.pending(question)
        score = partial(self._scored, cases, votes)
        studies = self._study_votes.of(votes, cases.table.test_case[cases.generated.row])
        return Evaluation(
            stored, title, cases, mapping, self._answers, pending, votes, studies, score, masks, question.weighing
        ).result()

    def _scored(self, cases: Cases, votes: list[Outcome]) -> Scored | str:
        """Return the score of all images of a task, or why it is missing. Cached until images or votes change."""
        if not votes:
            return NOT_JUDGED
        table, task = cases.table, cases.task
        with self._lock:
            cached = self._score.get(task)
        # `table.sources` is the same object until images are added.
        if cached is None or cached[0] is not table.sources or cached[1] != votes:
            cached = table.sources, votes, score_images(table, self._workspace.case_columns.checks(), votes, task)
            with self._lock:
                self._score[task] = cached
        return cached[2]

    def _stored(self, model: UnderTestSettings) -> StoredModel:
        """Return the model as it was last loaded. Raises UserError if it was never loaded, or its file is gone."""
        stored = self.predicting.stored(model)
        if stored is None:
            raise UserError(NOT_LOADED)
        return stored

    def class_map(self, question: EvaluationQuestion, cases: Cases, stored: StoredModel) -> ClassMap:
        """Map the labels to classes of the model. Raises UserError for a mapping file that cannot be read."""
        own_mapping = None
        if question.mapping.strip():
            is_table = re.search(r"(?m)^\s*\[labels\]\s*$", question.mapping)
            own_mapping = read_mapping(question.mapping.encode(), "mapping.toml" if is_table else "mapping.csv")
        everywhere = [name for name in {*cases.table.labels.values, *cases.table.task_labels.values} if name]
        kind = cases.view.kind or stored.identity.kind
        return map_classes(cases.labels, stored.identity.classes, kind, own_mapping, everywhere)

    def _answering(self, question: EvaluationQuestion, cases: Cases, stored: StoredModel) -> ClassMap:
        """Return the result of `class_map`. `among_labels` is True if only classes with a label may be the answer."""
        mapping = self.class_map(question, cases, stored)
        among_labels = question.among_labels and mapping.kind == "classification" and bool(mapping.left_over)
        return replace(mapping, among_labels=among_labels)

    def misfit(self, cases: Cases, stored: StoredModel) -> str:
        """Return why a model cannot predict these images, in a sentence; "" if it can."""
        if cases.view.kind in (None, stored.identity.kind):
            return ""
        kinds = {"classification": "classifier", "segmentation": "segmenter"}
        assert cases.view.kind is not None
        return (
            f"{stored.identity.name} is a {kinds[stored.identity.kind]}, and these images are of a {cases.view.kind}: "
            f"choose a {kinds[cases.view.kind]}."
        )

    def _choices(self, subject: Subject | None) -> Iterator[tuple[str, ModelChoice]]:
        """Yield (key, choice). The key is that of the stored model, or `ModelChoice.key` if it was never loaded."""
        cases = self.cases(subject) if subject is not None else None
        kinds: tuple[TaskKind, ...] = get_args(TaskKind)
        if cases is not None and cases.view.kind is not None:
            kinds = (cases.view.kind,)
            if cases.view.kind == "segmentation":
                self._masks.warm(cases)

        found = [
            (settings, kind, True, self.predicting.stored(settings))
            for kind in kinds
            if (settings := self._profile.model_under_test.of(kind)) is not None
        ]
        for known in self._workspace.models_under_test.all():
            if known.model.identity.kind in kinds:
                settings = found_here(self._workspace, UnderTestSettings.model_validate(known.settings))
                found.append((settings, known.model.identity.kind, False, known.model))
        for settings, kind, from_profile, stored in found:
            read = self._answers.read_of(stored, cases) if stored is not None and cases is not None else 0
            key, kind = model_choice_key(settings), kind if stored is None else stored.identity.kind
            choice = ModelChoice(key, self.title(settings), kind, settings, from_profile, read)
            yield (key if stored is None else stored.key), choice

    def _wanted(self, sent: acts.OnModel, subject: Subject) -> UnderTestSettings:
        if sent.key:
            return self.choice(sent.key, subject).settings
        if sent.source == "profile":
            chosen_model(sent)  # refuses a name or file that the profile's model does not have
            kind = self.view(subject).kind
            model = self._profile.model_under_test.of(kind) if kind is not None else None
            if model is None:
                raise UserError("The profile names no model under test for these images: choose one.", field="source")
            return model
        return chosen_model(sent)


def cancelled(queue: WorkQueue, number: int) -> dict[str, Any]:
    """Ask a piece of work to stop. Return its state, JSON-ready."""
    queue.cancel(number)
    return work_facts(queue.view(number))


def about(question: EvaluationQuestion) -> str:
    """Return the key of an `EvaluationQuestion` in the queue `EvaluationService.work`."""
    return hashlib.sha256(repr((question.subject, question.model)).encode()).hexdigest()[:24]


def about_control(subject: Subject) -> str:
    """Return the key of a subject in the queue `controls.work`, which draws control sets."""
    return hashlib.sha256(repr(subject).encode()).hexdigest()[:24]


def model_choice_key(settings: UnderTestSettings) -> str:
    """Return `ModelChoice.key` of settings. A model in the workspace keeps its key when the workspace moves."""
    place = kept_model(settings.file)
    if place is not None:
        settings = settings.model_copy(update={"file": "/".join(place)})
    return f"{settings.source}-{hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:12]}"


def title_of(settings: UnderTestSettings) -> str:
    """Return the name of a model for pages and reports: for a file, its name without the folder."""
    if settings.source in ("file", "onnx") or (settings.source == "transformers" and not settings.name):
        return f"{settings.name} {Path(settings.file).name}".strip()
    return settings.title


def settings_words(settings: UnderTestSettings, others: Sequence[UnderTestSettings]) -> str:
    """Return the settings that differ from `others`, such as "mean 0.5, std of the file"; "" for none."""
    words = list[str]()
    for name in ("size", "mean", "std", "layout", "classes"):
        value = getattr(settings, name)
        if any(getattr(one, name) != value for one in others):
            words.append(f"{name} {few_names(value.split(', ')) or 'of the file'}")
    # For an upload, the folder is the hash of its bytes.
    folder, *folders = (Path(one.file).parent.name for one in (settings, *others))
    if any(one != folder for one in folders):
        words.append(f"file in {folder[:12]}")
    return ", ".join(words)


def work_facts(view: WorkView) -> dict[str, Any]:
    """Return the state of a piece of work, JSON-ready."""
    state = "stopping" if view.stopping and view.active else view.state
    note = getattr(view.result, "note", "")
    return facts(view, "done total doing seconds_left error", work=view.id, state=state, note=note)


def _subject_facts(view: SubjectView) -> dict[str, Any]:
    return {**image_counts(view), **facts(view, "kind splits problem"), "version": view.subject.version}
