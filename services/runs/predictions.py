"""Predictions of the model under test for a run's images. The worker thread computes them while no job waits.

A page request only looks up stored predictions. It loads no model. It opens only masks and class maps, no other images.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from PIL import Image

from core.errors import Cancelled, UserError
from core.latest import Latest
from core.masks import MASK_KEPT, NamedMask, resized
from core.model_identity import ModelIdentity
from core.predictions import ClassFigures, PredictedBatch, Prediction, decode_map
from core.settings import Settings, UnderTestSettings
from core.stored_runs import Run, StoredTestCase
from core.types import Check, Task
from evaluation.adapters.network import checkpoint_path
from evaluation.focus import GradCam
from evaluation.metrics import MASK_CHECKS, class_figures, kept_checks, kept_in_mask, mask_check
from evaluation.outcomes import ModelOutcome, is_right, no_class_words, outcome_of
from pipeline.profiles.profile import Profile
from services.commands import RunCommand, does
from services.evaluation.model_choice import ChooseModelUnderTest, chosen_model
from services.evaluation.model_files import found_here
from services.evaluation.model_outcomes import RunMasks, measure
from services.jobs import JobQueue
from services.runs.gate import MaskClasses, classes_of
from services.runs.life_cycle import RunService
from services.runs.model_loading import ModelLoading
from services.runs.settings import RunSettings
from storage.evaluation.models_under_test import StoredModel
from storage.evaluation.predictions import new_predictions
from storage.workspace import Workspace, kept_model

log = logging.getLogger(__name__)
MOST_KNOWN = 50_000
"""Maximum number of predictions in memory."""
DOING = "asking the model under test"
MASK_WAITS = "being measured"


class Predictor(Protocol):
    """Interface of a loaded model under test. `evaluation.models.ModelUnderTest` implements it."""

    name: str

    @property
    def identity(self) -> ModelIdentity: ...

    def predict_many(self, images: Sequence[Callable[[], Image.Image]]) -> Iterator[PredictedBatch]: ...

    def input_picture(self, image: Image.Image) -> Image.Image: ...

    def grad_cam(self) -> GradCam: ...


@dataclass(frozen=True)
class _Loaded:
    """A model, and the key of its stored predictions."""

    model: Predictor
    key: str
    stored: StoredModel | None
    """The stored record of a model under test; None for a model that only checks masks."""


Names = tuple[str, ...]
MaskChecks = tuple[Check, ...] | str
"""Checks on whether an image still fits its mask, or words on why no check exists."""
Load = Callable[[UnderTestSettings], Predictor]
"""Function that loads a model under test. Raises UserError if that fails."""


@dataclass(frozen=True)
class ModelComparison:
    """The known predictions of the model under test on the source of one run and its generated images."""

    wanted: UnderTestSettings | None
    """Settings of the model under test; None if neither the run nor its profile names a model."""
    problem: str = ""
    """One sentence on why the model cannot be asked; "" if it can."""
    waiting: bool = False
    """True if predictions or mask checks are still to be computed."""
    source: Prediction | None = None
    results: Mapping[int, Prediction] = field(default_factory=dict)
    """Predictions by test case id."""
    figures: Mapping[int, tuple[ClassFigures, ...]] = field(default_factory=dict)
    """IoU of each protected class on source and image, by test case id. Only if the model is a segmenter."""
    masked: bool = False
    """True if the figures are measured against the run's mask."""
    outcomes: Mapping[int, ModelOutcome] = field(default_factory=dict)
    """Outcomes by test case id, compared with the prediction on the source."""
    mask_kept: Mapping[int, MaskChecks] = field(default_factory=dict)
    """Mask checks (is the mask kept?) by test case id, or words on why there are none; empty for classification."""
    classes: tuple[str, ...] = ()
    """All classes of the model; () if the model was not loaded yet."""

    @property
    def newly_misclassified(self) -> frozenset[int]:
        """Return the ids of the test cases on which the model under test fails although it is right on the source."""
        return frozenset(case for case, outcome in self.outcomes.items() if outcome.standing == "fails here")

    def is_right(self, guess: str, label: str) -> bool | None:
        """Return True if the predicted class `guess` is right for `label`; None if the model has no class for it."""
        return is_right(guess, label, self.classes)

    def no_class_for(self, label: str) -> str:
        """Return a sentence if no class of the model fits a label, so that nothing is compared with it; else ""."""
        return no_class_words(label, self.classes)

    def checks(self, case: StoredTestCase) -> tuple[Check, ...]:
        """Return all checks of a test case. The mask checks that the studio computed come last. Until the studio has
        computed them, mask checks from an imported file are returned.
        """
        return with_mask_checks(case.checks, self.mask_kept.get(case.id), self.masked)

    def unmeasured(self, case: StoredTestCase) -> str:
        """Return words on why a test case has no mask check; "" if it has one or needs none."""
        checks = self.mask_kept.get(case.id)
        return checks if isinstance(checks, str) and all(check.name != MASK_KEPT for check in self.checks(case)) else ""


class PredictionService:
    """The predictions for the runs of one workspace. All methods may be called from any thread."""

    def __init__(self, profile: Profile, workspace: Workspace, jobs: JobQueue, load: Load | None = None) -> None:
        self._profile, self._workspace, self._jobs = profile, workspace, jobs
        self.load = load or load_model
        self._models: dict[str, _Loaded] = {}
        self._loading = ModelLoading[Predictor]()
        self._masks = RunMasks(workspace)
        self._known = Latest[Prediction](MOST_KNOWN)
        """Known predictions by the image's SHA-256 and the model's key."""
        self._pending: set[tuple[str, str]] = set()
        """Requested predictions, each as a pair: the SHA-256 of the image, and the `model_key` of the model."""
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._compare = lru_cache(maxsize=512)(self._figures)
        self._keep = lru_cache(maxsize=512)(self._kept_checks)

    def compare(self, run: Run, settings: Settings, ask: bool = True) -> ModelComparison:
        """Return the known predictions for a run. With `ask`, request the missing ones from the worker thread."""
        chosen = self.model_of(run, settings)
        if chosen is None:
            mask_kept, measuring = self._masks_kept(run, None, "", None, {}, ask)
            return ModelComparison(None, waiting=measuring, masked=run.mask_sha is not None, mask_kept=mask_kept)
        model = model_key(chosen)
        if not run.test_cases:
            return ModelComparison(chosen, self._problems.get(model, ""))
        stored = self._workspace.models_under_test.asked_for(model)
        key, classes = (model, ()) if stored is None else (stored.key, stored.identity.classes)
        source = self._look_up(run.source_sha, key)
        tasks = {case.id: case.task for case in run.test_cases}
        results = {case.id: prediction for case in run.test_cases if (prediction := self._look_up(case.image_sha, key))}
        # The newest image first: people look at it.
        missing = [case.image_sha for case in reversed(run.test_cases) if case.id not in results]
        if source is None:
            missing.insert(0, run.source_sha)
        problem = self._problems.get(model, "")
        if ask and missing and not problem:
            self._ask(chosen, missing)
        figures = {
            case: compared
            for case, prediction in results.items()
            if (compared := self._compared(run, tasks[case], source, prediction)) is not None
        }
        masked = run.mask_sha is not None
        outcomes = {
            case: outcome_of(tasks[case], source, prediction, figures.get(case), masked, classes)
            for case, prediction in results.items()
            if source is not None
        }
        mask_kept, measuring = self._masks_kept(run, chosen, problem, source, figures, ask)
        waiting = (bool(missing) and not problem) or measuring
        return ModelComparison(chosen, problem, waiting, source, results, figures, masked, outcomes, mask_kept, classes)

    def mask_checks(self, run: Run, settings: Settings, case: StoredTestCase) -> tuple[Check, ...]:
        """Return the known checks on whether a test case still fits its mask. Missing predictions are not requested."""
        if run.mask_sha is None or case.task.kind != "segmentation":
            return ()
        checks = self.compare(replace(run, test_cases=(case,)), settings, ask=False).mask_kept[case.id]
        return () if isinstance(checks, str) else checks

    def _masks_kept(
        self,
        run: Run,
        under_test: UnderTestSettings | None,
        problem: str,
        source: Prediction | None,
        figures: Mapping[int, tuple[ClassFigures, ...]],
        ask: bool,
    ) -> tuple[dict[int, MaskChecks], bool]:
        """Return the mask checks of each segmentation test case, or words on why there are none; and True if some are
        still to be computed. The profile's segmenter makes the checks if there is one, otherwise the model `under_test`
        does. `problem` says why `under_test` cannot be asked, `source` is its prediction on the source, and `figures`
        holds its figures by test case id. With `ask`, missing predictions of the profile's segmenter are requested.
        """
        checker, why = self._profile.checks.own_segmenter(), MASK_WAITS
        cases = [case for case in run.test_cases if case.task.kind == "segmentation"]
        if run.mask_sha is None:
            return dict.fromkeys((case.id for case in cases), "n/a, there is no mask"), False
        if checker is None:
            if under_test is None:
                why = "n/a, there is no model under test"
            elif problem:
                why = "n/a, the model under test cannot be asked"
            elif source is not None and source.kind != "segmentation":
                why = "n/a, the model under test is no segmenter"
            return {case.id: _mask_check(figures[case.id]) if case.id in figures else why for case in cases}, False
        key, trouble = self.key_of(checker), self._problems.get(model_key(checker))
        checks_by_case = {case.id: self._kept_by(key, run, case) for case in cases}
        missing = [case.image_sha for case in reversed(cases) if checks_by_case[case.id] is None]
        if trouble:
            why = f"n/a, the checking model cannot be asked: {trouble}"
        elif ask and missing:
            self._ask(checker, [run.source_sha, *missing])
        unknown = "n/a, the checking model knows no protected class of the mask"
        known = {case: why if checks is None else checks or unknown for case, checks in checks_by_case.items()}
        return known, bool(missing) and not trouble

    def _kept_by(self, key: str, run: Run, case: StoredTestCase) -> tuple[Check, ...] | None:
        """Return the mask checks from stored predictions of the segmenter `key`; None if predictions are missing."""
        source, prediction = (self._look_up(sha, key) for sha in (run.source_sha, case.image_sha))
        if source is None or prediction is None:
            return None
        assert run.mask_sha is not None
        edited = tuple(edit.keyword for edit in case.lineage.counterfactual.edits)
        return self._keep(source, prediction, run.mask_sha, classes_of(run), case.task.protected, edited)

    def _kept_checks(
        self, source: Prediction, found: Prediction, sha: str, classes: MaskClasses, protected: Names, edited: Names
    ) -> tuple[Check, ...]:
        if "classification" in (source.kind, found.kind):
            return ()
        try:
            before, after = decode_map(source.class_map), decode_map(found.class_map)
            mask = resized(self._workspace.images.load(sha), before.size)
        except (UserError, OSError, ValueError):  # a missing or damaged file: the page reports it elsewhere
            log.exception("the mask cannot be checked")
            return ()
        after = after if after.size == before.size else resized(after, before.size)
        settings = self._profile.checks
        shares = kept_in_mask(before, after, source.classes, mask, dict(classes), protected, settings.things, edited)
        return kept_checks(shares, settings.bands)

    def model_of(self, run: Run, settings: Settings) -> UnderTestSettings | None:
        """Return the settings of a run's model under test (perhaps the profile's for this kind of task), or None."""
        chosen = settings.under_test
        if chosen.source == "profile":
            return self._profile.model_under_test.of(run.task.kind)
        return found_here(self._workspace, chosen)

    def key_of(self, chosen: UnderTestSettings) -> str:
        """Return the key of the stored predictions of the model that was last loaded with these settings."""
        return self._workspace.models_under_test.key_of(model_key(chosen))

    def try_again(self, chosen: UnderTestSettings) -> None:
        """Forget the problem of a model, so that it is asked again."""
        with self._lock:
            self._problems.pop(model_key(chosen), None)

    def _look_up(self, sha: str, key: str) -> Prediction | None:
        known = self._known.get((sha, key)) or self._workspace.predictions.latest(sha, key)
        return None if known is None else self._known.put((sha, key), known)

    def _ask(self, chosen: UnderTestSettings, shas: list[str]) -> None:
        model, key = model_key(chosen), self.key_of(chosen)
        for sha in dict.fromkeys(shas):
            with self._lock:
                # The worker thread may have made the prediction since the look-up.
                if (sha, model) in self._pending or self._known.get((sha, key)):
                    continue
                self._pending.add((sha, model))
            # One image at a time, so that a person's job can begin between two images.
            self._jobs.when_idle(DOING, lambda sha=sha: self._predict(chosen, model, sha))  # type: ignore[misc]

    def _predict(self, chosen: UnderTestSettings, model: str, sha: str) -> None:
        try:
            if model in self._problems:
                return
            loaded = self._model(chosen, model)
            # An evaluation may have stored the prediction by now, perhaps with another file of the same model.
            prediction = self._workspace.predictions.latest(sha, loaded.key) or self._read(loaded, sha)
            measure(self._workspace, self._masks, loaded.key, sha)
            self._known.put((sha, loaded.key), prediction)
        except Cancelled:  # a person's job goes first: the page that waits asks again
            pass
        except UserError as error:
            with self._lock:
                self._problems[model] = str(error)
        except Exception as error:  # a user's model may fail in any way: the page reports it and continues working
            log.exception("the model under test failed")
            with self._lock:
                self._problems[model] = f"The model under test failed ({type(error).__name__}): choose another one."
        finally:
            with self._lock:
                self._pending.discard((sha, model))

    def _read(self, loaded: _Loaded, sha: str) -> Prediction:
        (batch,) = loaded.model.predict_many([lambda: self._workspace.images.load(sha)])
        model = loaded.stored.id if loaded.stored is not None else None
        self._workspace.predictions.extend(new_predictions([sha], loaded.key, batch), model)
        return batch.predictions[0]

    def _model(self, chosen: UnderTestSettings, model: str) -> _Loaded:
        # Only the worker thread calls this. Models may be large: one model under test stays loaded, and the checking
        # model.
        loaded = self._models.get(model)
        if loaded is not None and loaded.key == self.key_of(chosen):  # else an evaluation loaded another model
            return loaded
        checker = self._profile.checks.own_segmenter()
        stays = model_key(checker) if checker is not None else ""
        for name in [name for name in self._models if name == model or stays not in (name, model)]:
            del self._models[name]
        self.require_known(chosen)
        model_loaded = self._loading.load(model, chosen.title, lambda: self.load(chosen), self._give_way)
        stored = None
        if model != stays:
            plain = chosen.model_dump(mode="json")
            stored = self._workspace.models_under_test.record(model, model_loaded.identity, chosen.title, plain)
        key = stored.key if stored is not None else self.key_of(chosen)
        self._models[model] = _Loaded(model_loaded, key, stored)
        return self._models[model]

    def _give_way(self) -> None:
        if self._jobs.closing or not self._jobs.idle():
            raise Cancelled

    def require_known(self, chosen: UnderTestSettings) -> None:
        """Raise UserError for a model on a server that the profile does not name, so that no stranger gets images."""
        profile = self._profile
        known = (profile.model_under_test.classification, profile.model_under_test.segmentation)
        if chosen.source == "http" and chosen.address not in {one.address for one in known if one is not None}:
            raise UserError(
                f"Images are sent to a model at {chosen.address} only if the profile names this address: add it to "
                "the profile, under model_under_test."
            )

    def _compared(
        self, run: Run, task: Task, source: Prediction | None, found: Prediction
    ) -> tuple[ClassFigures, ...] | None:
        """Return the figures of each protected class; None for a classifier, or if the source has no prediction."""
        if source is None or "classification" in (source.kind, found.kind):
            return None
        return self._compare(source, found, run.mask_sha, classes_of(run), task.protected)

    def _figures(
        self, source: Prediction, generated: Prediction, mask_sha: str | None, classes: MaskClasses, protected: Names
    ) -> tuple[ClassFigures, ...]:
        try:
            before, after = decode_map(source.class_map), decode_map(generated.class_map)
            mask = None
            if mask_sha is not None:
                # The mask is scaled to the size of the class map: predictions are no finer, and a request must not wait
                # for millions of pixels.
                mask = NamedMask(resized(self._workspace.images.load(mask_sha), before.size), dict(classes))
        except (UserError, OSError, ValueError):  # a missing or damaged file: the page leaves these figures out
            log.exception("the figures of the model under test cannot be worked out")
            return ()
        return class_figures(before, after, source.classes, protected, mask)


def with_mask_checks(checks: Sequence[Check], found: MaskChecks | None, masked: bool) -> tuple[Check, ...]:
    """Return the checks of an image, with the `found` mask checks at the end. If none were found, earlier mask checks
    (such as from a file) are kept if the run is `masked`, otherwise dropped.
    """
    others = tuple(check for check in checks if check.name not in MASK_CHECKS)
    if found and not isinstance(found, str):
        return (*others, *found)
    return tuple(checks) if masked else others


def _mask_check(figures: tuple[ClassFigures, ...]) -> MaskChecks:
    check = mask_check(figures)
    return (check,) if check is not None else "n/a, the model under test knows no protected class of the mask"


def model_key(chosen: UnderTestSettings) -> str:
    """Return a name for the model that some settings describe. A changed file gets another name."""
    changed, layout = "", chosen.layout if chosen.source == "onnx" else ""
    stored = kept_model(chosen.file)
    if stored is not None:  # named by its content, so that the name stays the same when the workspace is moved
        chosen, changed = chosen.model_copy(update={"file": stored[1]}), f"@{stored[0]}"
    elif chosen.source in ("file", "onnx"):
        with suppress(UserError, OSError):  # a missing file is reported when the model is loaded
            changed = f"@{checkpoint_path(chosen.file).stat().st_mtime_ns:x}"
    details = "; ".join(filter(None, (chosen.classes, chosen.size, chosen.mean, chosen.std, layout)))
    return f"{chosen.title}{changed}{f' ({details})' if details else ''}"


def load_model(chosen: UnderTestSettings) -> Predictor:
    """Load a model under test. Raises UserError if the model cannot be loaded."""
    from evaluation.models import ModelUnderTest

    return ModelUnderTest(chosen)


class ModelChoices:
    """Chooses and asks the models under test of runs. All methods may be called from any thread."""

    def __init__(self, runs: RunService, settings: RunSettings, predictions: PredictionService) -> None:
        self._runs, self._settings, self._predictions = runs, settings, predictions

    @does("under-test", ChooseModelUnderTest)
    def choose(self, sent: ChooseModelUnderTest) -> None:
        """Choose the model under test of a run."""
        chosen = chosen_model(sent)
        self._predictions.require_known(chosen)
        self._settings.change(sent, lambda plain: plain.update(under_test=chosen.model_dump(mode="json")))
        self._predictions.try_again(chosen)

    @does("under-test-again", RunCommand)
    def ask_again(self, run: str) -> None:
        """Ask the model under test of a run again after it failed."""
        stored = self._runs.workspace.runs.get(run)
        chosen = self._predictions.model_of(stored, self._runs.settings(stored))
        if chosen is not None:
            self._predictions.try_again(chosen)

    def ask(self, run: str, model: str) -> str | None:
        """Request the predictions of a run's model under test for the run's images. `model` is the key that this model
        must have, "" for any key. Return a sentence if the model cannot be asked, otherwise "". Return None if the run
        has no model under test, or a model with another key.
        """
        stored = self._runs.workspace.runs.get(run)
        settings = self._runs.settings(stored)
        chosen = self._predictions.model_of(stored, settings)
        if chosen is None or model not in ("", self._predictions.key_of(chosen)):
            return None
        return self._predictions.compare(stored, settings).problem
