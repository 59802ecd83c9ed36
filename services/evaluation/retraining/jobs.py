"""Retrains a model under test with images of a subject. The work shows its progress and can be cancelled. Each arm (a
set of images to learn from) is trained once with each seed. Trainings stay in a folder of the workspace: a stopped
training resumes, and a finished training is not repeated. Results are stored in the database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.figures import Floats, Numbers
from core.progress import OnCount
from core.settings import UnderTestSettings
from core.types import from_plain, to_plain
from evaluation.adapters.transformers import folder_of
from evaluation.answers import groups_in_mask, groups_of_numbers
from evaluation.class_mapping import ClassMap
from evaluation.retraining.data_split import SHARES
from evaluation.retraining.stored_training import NOT_TRAINED, Training, kept_state, learnt, said_before
from evaluation.retraining.training import TrainingRecipe, replace_file
from evaluation.segmentation import IGNORED
from services.changes import Changes
from services.commands import does
from services.evaluation.commands import BeginRetraining, OnModel, work_of
from services.evaluation.model_files import found_here, keep_weights
from services.evaluation.retraining import weights as weight_files
from services.evaluation.retraining.expected_time import ExpectedTime, TrainingPace, pace_of
from services.evaluation.retraining.results import ArmTraining, RetrainingResult, result_facts, result_of
from services.evaluation.retraining.shifts import classes_of, groups_of_shift, with_shift
from services.evaluation.retraining.training import (
    DataSplit,
    Examples,
    Preset,
    RetrainingPlan,
    RetrainingQuestion,
    ValidCases,
    kept_under,
    part,
    plan,
    require_unseen,
)
from services.evaluation.scoring import judged_of, score_images
from services.evaluation.service import NOT_JUDGED, EvaluationService, about, cancelled, title_of, work_facts
from services.evaluation.subjects import Cases, MaskOf
from services.evaluation.types import EvaluationQuestion
from services.test_sets.hashes import MOST_TWINS, hashes_of, twins_in, twins_of
from services.work_queue import OnWork, WorkQueue, WorkView
from storage.curation.case_columns import Outcome
from storage.evaluation.models_under_test import StoredModel
from storage.workspace import Workspace

TRAINING = "training"
"""First word in the names of progress steps that train."""
RETRAINING, NO_RESULT = "retraining", "There is no such result any more."
READING, LOOKING, MASKS = "reading images", "looking for images that are alike", "preparing masks"
Groups = tuple[tuple[int, ...], ...]
MaskNumbers = Callable[[Mapping[int, str]], NDArray[np.uint8]]
"""Given the names of a mask's class numbers, returns the class group of each number from 0 to 255, (256,)."""
OnStep = Callable[[str, int, int], None]
"""Called with the name of the step, the amount done and the total amount. In training, the amounts are updates of all
trainings. An error that the callback raises stops the retraining. If the retraining is begun again, it resumes."""


@dataclass(frozen=True)
class KeptResult:
    """Stored result of a retraining, with the time at which it was stored."""

    found: RetrainingResult
    created: str
    note: str = ""
    """Note for the user, in a sentence; "" for none."""
    number: int = 0
    """`StoredRetraining.id` of the result."""


@dataclass(frozen=True)
class TrainedModel:
    """Weights left by a retraining that can be chosen as a model under test."""

    number: int
    """`StoredRetraining.id` of the retraining."""
    found: RetrainingResult
    weights: weight_files.ArmWeights


@dataclass(frozen=True)
class RetrainingChoices:
    """Options for a retraining."""

    problem: str
    """Sentence on why nothing can be trained; "" if something can."""
    edit_types: tuple[str, ...]
    """Edit types that can be held out from all arms (sets of images to learn from)."""
    shifts: tuple[tuple[int, str], ...] = ()
    """Number and title of each test set version that can be used as a natural shift, a further set to measure on."""


class Retrainings:
    """The retrainings of one workspace, run one at a time. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, evaluations: EvaluationService, changes: Changes | None = None) -> None:
        self._workspace, self._evaluations = workspace, evaluations
        self.work = WorkQueue(changes, name="retraining")
        """Queue of trainings. `work.of(about(question))` finds those for an `EvaluationQuestion`."""

    @does("begin-retraining", BeginRetraining)
    def begin_retraining(self, sent: BeginRetraining) -> dict[str, Any]:
        """Train a model further with images of a test set, and measure the gain on sources that it has not learnt from.
        Each arm (a set of images to learn from) gets equal updates. Finished trainings are not repeated.
        """
        return work_facts(self.begin(retraining_question(self._evaluations.asked(sent), sent)))

    @does("cancel-retraining")
    def cancel_retraining(self, work: Annotated[int, work_of("begin_retraining")]) -> dict[str, Any]:
        """Stop a retraining; if begun again, it resumes where it stopped."""
        return cancelled(self.work, work)

    def close(self) -> None:
        """Stop the training; if begun again, it resumes where it stopped."""
        self.work.close()

    def begin(self, question: RetrainingQuestion) -> WorkView:
        """Begin to train, or return the work in progress. Raises UserError if the model or images cannot be used."""
        self._require(question)

        def work(on_work: OnWork) -> RetrainingResult:
            return self.retrain(question, lambda what, done, total: on_work(done, total, what))

        return self.work.begin(RETRAINING, about(question.asked), work)

    def choices(self, question: EvaluationQuestion) -> RetrainingChoices:
        """Return the options of a retraining. If nothing can be trained, `problem` says why."""
        try:
            types = tuple(self._require(RetrainingQuestion(question)).of_edit_type)
        except UserError as error:
            return RetrainingChoices(str(error), ())
        versions = (one for test_set in self._workspace.test_sets.all() for one in reversed(test_set.versions))
        return RetrainingChoices(
            "", types, tuple((one.number, one.words) for one in versions if one.number != question.subject.version)
        )

    def expected(self, question: RetrainingQuestion) -> ExpectedTime:
        """Estimate the time from the speed of earlier trainings of this model in the workspace. Trainings with the same
        images are preferred. Raises UserError if the test set is gone.
        """
        cases = self._evaluations.cases(question.asked.subject)
        originals = round(SHARES["train"] * cases.view.sources)
        recipe = question.recipe(originals, cases.view.kind or "classification")
        trainings, (pace, measured) = (1 + len(question.arms)) * question.seeds, self._pace(question.asked)
        if pace is None:
            return ExpectedTime(trainings, recipe, None)
        each = recipe.updates * recipe.batch * pace.an_image + (pace.other or 0.0)
        return ExpectedTime(trainings, recipe, trainings * each, pace.other is None, measured)

    def _pace(self, question: EvaluationQuestion) -> tuple[TrainingPace | None, str]:
        """Return the speed of earlier trainings, None if there are none, and when it was measured (ISO 8601, UTC)."""
        about, stored = kept_under(question), self._evaluations.predicting.stored(question.model)
        rows = self._workspace.retrainings.kept()
        same_model_rows = [row for row in rows if row.about == about]
        for row in (*same_model_rows, *(row for row in rows if stored is not None and row.model == stored.id)):
            pace = from_plain(RetrainingResult, row.told).pace
            if pace is not None:
                return pace, row.created
        trainings = weight_files.trainings_about(self._workspace, about)
        return pace_of(state for state, _ in trainings), max((used for _, used in trainings), default="")

    def kept(self, question: EvaluationQuestion) -> tuple[KeptResult, ...]:
        """Return the results of all retrainings of a model with images of a subject, the latest first."""
        results = []
        for one in self._workspace.retrainings.kept(kept_under(question)):
            result: RetrainingResult = from_plain(RetrainingResult, one.told)
            note = "" if result.pictures == self._evaluations.cases(question.subject).digest else CHANGED
            results.append(KeptResult(result, one.created, note, one.id))
        return tuple(results)

    def result(self, question: EvaluationQuestion, number: int) -> RetrainingResult:
        """Return a stored result by its number. Raises UserError if it is gone."""
        matching = next((one.found for one in self.kept(question) if one.number == number), None)
        if matching is None:
            raise UserError(NO_RESULT)
        return matching

    def opens(self, question: EvaluationQuestion, number: int, on: str, arm: str = "") -> tuple[int, ...]:
        """Return the catalogue entries behind a number of the table: all images of the set `on`, or the images on
        which the arm `arm` fails. Raises UserError if the result or the images are not stored.
        """
        opened = self.result(question, number).opens(on, arm)
        if opened is None:
            raise UserError("The images behind this number are not stored: begin the training again to store them.")
        return opened.entries

    def weights(self, result: KeptResult) -> tuple[weight_files.ArmWeights, ...]:
        """Return the weights of the best training of each arm of a result, if they still exist."""
        return weight_files.best_weights(self._workspace, result.found)

    def weights_file(self, question: EvaluationQuestion, number: int, arm: str) -> tuple[str, Path]:
        """Return name and file of the weights of one arm of a stored result. Raises UserError if they are gone."""
        return weight_files.weights_file(self._workspace, self.result(question, number), arm)

    def trained(self) -> tuple[TrainedModel, ...]:
        """Return the weights of the latest retraining of each model with each set of images, the latest first."""
        models, seen = list[TrainedModel](), set[str]()
        for row in self._workspace.retrainings.kept():
            if row.about in seen:
                continue
            seen.add(row.about)
            result: RetrainingResult = from_plain(RetrainingResult, row.told)
            models += [TrainedModel(row.id, result, one) for one in weight_files.best_weights(self._workspace, result)]
        return tuple(models)

    def as_model(self, number: int, arm: str) -> dict[str, str]:
        """Keep an arm's weights as a model. Return its `source` and `file`. Raises UserError if no weights are left."""
        row = next((one for one in self._workspace.retrainings.kept() if one.id == number), None)
        if row is None:
            raise UserError(NO_RESULT)
        name, weights = weight_files.weights_file(self._workspace, from_plain(RetrainingResult, row.told), arm)
        models = self._workspace.models_under_test.all()
        settings = next(one.settings for one in models if one.model.id == row.model)
        base = found_here(self._workspace, UnderTestSettings.model_validate(settings))
        folder = folder_of(base)[0] if base.source == "transformers" else None
        file = keep_weights(self._workspace, weights, Path(name).stem, folder)
        return {"source": "file" if folder is None else "transformers", "file": str(file)}

    def disk(self) -> int:
        """Return the bytes that all trainings of the workspace take, with the masks made for them."""
        return weight_files.disk_of(self._workspace.trainings)

    def retrain(self, question: RetrainingQuestion, on_step: OnStep) -> RetrainingResult:
        """Train all arms with all seeds, measure them, and store the result. Raises UserError if it is not possible."""
        cases = self._require(question)
        stored = self._evaluations.predicting.identify(question.asked.model, lambda: on_step(LOOKING, 0, 0))
        misfit = self._evaluations.misfit(cases, stored)
        if misfit:
            raise UserError(misfit)
        on_step(LOOKING, 0, len(cases.pictures))
        mapping = self._evaluations.class_map(question.asked, cases, stored)
        parted, looks = parted_of(self._workspace, cases, mapping, question, lambda *count: on_step(LOOKING, *count))
        kind = stored.identity.kind
        if "ranked" in question.arms:
            self._evaluations.predicting.read(
                question.asked.model, cases, lambda done, total: on_step(READING, done, total)
            )
        votes, valid = self._valid(cases, parted)
        examples = self._examples(mapping, lambda names: groups_of_numbers(mapping, names)[0], on_step)
        planned = plan(
            *(cases, parted, question, examples, valid),
            ranked=lambda places: self._ranked(question.asked, cases, places, votes),
        )
        if question.shift is not None:
            rows = self._workspace.case_columns.set_rows(question.shift)
            table = self._workspace.case_columns.table()  # after the rows, so that it has all of them
            hashes = hashes_of(self._workspace, (row.image for row in rows))
            looks |= {sha: one.perceptual for sha, one in hashes.items()}
            learnt_from = [sha for sha, side in zip(cases.originals.shas, parted.side, strict=True) if side != "test"]
            twins_of_learnt = twins_in(self._workspace, list(hashes), learnt_from)
            labels = classes_of(rows) if kind == "segmentation" else tuple(sorted({row.label for row in rows} - {""}))
            shift_mapping = self._evaluations.class_map(question.asked, replace(cases, labels=labels), stored)
            group_of = groups_of_shift(mapping, shift_mapping)
            examples = self._examples(shift_mapping, lambda names: groups_in_mask(group_of, names), on_step)
            passed_over = [name for name in labels if name not in group_of] if kind == "segmentation" else ()
            planned = with_shift(planned, cases, parted, looks, rows, table, examples, passed_over, twins_of_learnt)
        recipe = question.recipe(planned.originals, kind)
        classes = [{number for label in group for number in mapping.labels[label].classes} for group in mapping.groups]
        groups = tuple(tuple(sorted(one)) for one in classes) if kind == "segmentation" else ()
        before = said_before(question.asked.model, planned.sets, groups)
        answers, trainings = self._trained(question, cases, planned, recipe, stored, groups, on_step)
        states = [kept_state(self._workspace.trainings / one.folder) for one in trainings]
        pace = pace_of(state for state in states if state is not None)
        result = result_of(question, cases, stored, planned, recipe, before, answers, trainings, pace)
        self._workspace.retrainings.keep(kept_under(question.asked), question.digest, stored.id, to_plain(result))
        return result

    # Implementation

    def _require(self, sent: RetrainingQuestion) -> Cases:
        """Return the images to learn from. Raises UserError if nothing can be trained."""
        question, cases = sent.asked, self._evaluations.cases(sent.asked.subject)
        cases.require()
        if question.model.source in NOT_TRAINED:
            raise UserError(NOT_TRAINED[question.model.source], field="source")
        if sent.batch == 1:
            raise UserError("An update needs at least 2 images: set a larger batch.", field="batch")
        require_unseen(cases, sent.unseen)
        if sent.shift is not None:
            self._workspace.test_sets.version(sent.shift)  # raises now if it is gone
        return cases

    def _valid(self, cases: Cases, parted: DataSplit) -> tuple[list[Outcome], ValidCases]:
        """Return all votes but those on tune and test sources. Also return the test cases valid by votes or a score."""
        columns = self._workspace.case_columns
        outcomes = columns.outcomes()
        judged = judged_of(cases, outcomes)
        other = np.array([one != "train" for one in parted.side], bool)[cases.generated.source]
        hidden = set(cases.table.test_case[cases.generated.row[other]].tolist())
        votes = [one for one in outcomes if one.test_case not in hidden]
        score = score_images(cases.table, columns.checks(), votes, cases.task) if votes else NOT_JUDGED
        if isinstance(score, str):
            return votes, ValidCases(judged, None, score)
        foretold = score.chance[cases.generated.row] >= score.view.own.threshold
        return votes, ValidCases(judged, foretold)

    def _ranked(self, question: EvaluationQuestion, cases: Cases, places: Numbers, votes: Sequence[Outcome]) -> Numbers:
        entries = cases.table.entry[cases.generated.row[places]]
        place = dict(zip(entries.tolist(), places.tolist(), strict=True))
        order = self._evaluations.ranked(question, entries, votes)
        return np.array([place[one] for one in order], np.int64)

    def _examples(self, mapping: ClassMap, numbers: MaskNumbers, on_step: OnStep) -> Examples:
        """Return a maker of training examples. It writes each mask, as numbers of class groups, to a file once."""
        folder, images = self._workspace.trainings / "masks", self._workspace.images

        @cache
        def mask(mask_of: MaskOf) -> Path | None:
            on_step(MASKS, mask.cache_info().currsize, 0)
            sha, names = mask_of
            true = numbers({int(number): name for number, name in json.loads(names).items()})
            file = folder / f"{hashlib.sha256(sha.encode() + true.tobytes()).hexdigest()[:32]}.png"
            if file.is_file():
                return file
            groups = true[np.asarray(images.load(sha).convert("L"))]
            if (groups == IGNORED).all():
                return None
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, Image.fromarray(groups).save)
            return file

        return Examples(mapping, images.path, mask)

    def _trained(
        self,
        question: RetrainingQuestion,
        cases: Cases,
        planned: RetrainingPlan,
        recipe: TrainingRecipe,
        stored: StoredModel,
        groups: Groups,
        on_step: OnStep,
    ) -> tuple[dict[tuple[str, int], dict[str, Floats]], list[ArmTraining]]:
        evaluated, total = question.asked, len(planned.arms) * question.seeds * recipe.updates
        done, answers, trainings = 0, {}, list[ArmTraining]()
        of = kept_under(evaluated), title_of(evaluated.model), cases.view.title, evaluated.subject.split
        # Seed by seed: an early stop leaves all arms of the finished seeds.
        for seed in range(question.seeds):
            for arm in planned.arms:
                training = Training(
                    *(evaluated.model, arm, seed, recipe, planned.tune, planned.sets, self._workspace.trainings),
                    scratch=question.preset == "paper",
                    groups=groups,
                )
                named = _training_digest(stored.identity.digest, question.preset, training)
                training = replace(training, folder=training.folder / named)
                words = f"{TRAINING} “{arm.name}”, seed {seed + 1} of {question.seeds}"
                on_step(words, done, total)
                weight_files.mark(training.folder, weight_files.Marked(*of, arm.name, seed))

                def on_update(update: int, loss: float, words: str = words, begun: int = done) -> None:
                    on_step(words, begun + update, total)

                answers[arm.name, seed] = learnt(training, on_update)
                state = kept_state(training.folder)
                trainings.append(ArmTraining(arm.name, seed, named, None if state is None else state.score))
                done += recipe.updates
                on_step(words, done, total)
        return answers, trainings

    @does("show-retraining", OnModel, looks=True)
    def show(self, sent: OnModel) -> dict[str, Any]:
        """Show the progress of retraining a model with images of a test set, and the results of earlier retrainings."""
        question = self._evaluations.asked(sent)
        work = next(iter(self.work.of(about(question))), None)
        return {
            "work": None if work is None else work_facts(work),
            "results": [
                result_facts(one.found, entries=False) | {"created": one.created, "note": one.note}
                for one in self.kept(question)
            ],
        }


def parted_of(
    workspace: Workspace, cases: Cases, mapping: ClassMap, question: RetrainingQuestion, on_count: OnCount | None = None
) -> tuple[DataSplit, dict[str, int]]:
    """Split the images of a subject into train, tune and test. Return the split, and each image's perceptual hash.
    Raises UserError if `part` raises it, or if an image file is missing or damaged.
    """
    hashes = hashes_of(workspace, cases.pictures, on_count)
    looks = {sha: one.perceptual for sha, one in hashes.items()}
    sources = cases.originals.shas
    twins = twins_of(workspace, sources, on_count) if len(sources) <= MOST_TWINS else None
    return part(cases, mapping, looks, question, twins), looks


def retraining_question(question: EvaluationQuestion, sent: BeginRetraining) -> RetrainingQuestion:
    """Return the retraining that a command asks for. `question` has the command's model and images."""
    values = {one.name: getattr(sent, one.name) for one in fields(RetrainingQuestion) if one.name != "asked"}
    return RetrainingQuestion(question, **values | {"arms": tuple(dict.fromkeys(sent.arms))})


CHANGED = "The images have changed since then: begin again to learn from them as they are now."


def _training_digest(model: str, preset: Preset, training: Training) -> str:
    """Return the name of a training's folder. `model` is the digest of the model's identity."""
    arm = training.arm
    settings = (model, preset, arm.name, arm.augmentation, training.recipe, training.seed, training.groups)
    whole = hashlib.sha256(repr(settings).encode())
    for examples in (arm.examples, training.tune):
        for one in examples:
            target = one.target.name if isinstance(one.target, Path) else one.target
            whole.update(f"{one.image.name}\0{target}\n".encode())
        whole.update(b"\0")
    return whole.hexdigest()[:24]
