"""What the model under test says of a run's images: asked in the worker while nobody waits, kept in the workspace.

A request only looks up what is there. No model is loaded and no image read for one, but for the small class maps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from PIL import Image
from pydantic import ValidationError

from evaluation.metrics import MASK_KEPT, ClassFigures, against_mask, mask_check, without_mask
from evaluation.types import Reading, decode_map, reading_from
from pipeline.errors import UserError
from pipeline.masks import carried
from pipeline.profile import Profile
from pipeline.settings import Settings, UnderTestSettings
from pipeline.types import Check, Task
from pipeline.words import classes_in
from storage.types import Run, StoredTestCase
from storage.workspace import Workspace
from ui.jobs import Jobs
from ui.mask_checks import masks_kept, with_mask_check

log = logging.getLogger(__name__)
DOING = "asking the model under test"


class Reader(Protocol):
    """A loaded model under test, as in `evaluation.models`."""

    def read(self, image: Image.Image) -> Reading: ...


Load = Callable[[UnderTestSettings], Reader]
"""Loads one; raises UserError when that cannot be."""


@dataclass(frozen=True)
class Seen:
    """What is known of the model under test of one run."""

    wanted: UnderTestSettings | None
    """The model; None when neither the run nor its profile names one."""
    problem: str = ""
    """Why it cannot be asked, in one sentence."""
    waiting: bool = False
    """Some image has not been read yet."""
    source: Reading | None = None
    results: Mapping[int, Reading] = field(default_factory=dict)
    """By test case."""
    figures: Mapping[int, tuple[ClassFigures, ...]] = field(default_factory=dict)
    """By test case; of a segmenter only."""
    masked: bool = False
    """Whether the figures are measured against the run's mask."""
    misled: frozenset[int] = frozenset()
    """The test cases on which the model under test fails, where it did not on the source."""
    mask_kept: Mapping[int, Check | str] = field(default_factory=dict)
    """By test case: the check of its mask, or in words why there is none; empty where the task needs no mask."""

    def checks(self, case: StoredTestCase) -> tuple[Check, ...]:
        """All checks of a test case, that of its mask last; one that came with a file counts until there is another."""
        return with_mask_check(case.checks, self.mask_kept.get(case.id), self.masked)

    def unmeasured(self, case: StoredTestCase) -> str:
        """Why there is no check of the mask, in words; "" where there is one, or none is needed."""
        found = self.mask_kept.get(case.id)
        return found if isinstance(found, str) and all(check.name != MASK_KEPT for check in self.checks(case)) else ""


class Readings:
    """The readings of one workspace. All methods may be called from any thread."""

    def __init__(self, profile: Profile, workspace: Workspace, jobs: Jobs, load: Load | None = None) -> None:
        self._profile, self._workspace, self._jobs = profile, workspace, jobs
        self.load = load or _load
        """How a model is loaded."""
        self._models: dict[str, Reader] = {}
        self._known: dict[tuple[str, str], Reading] = {}
        self._pending: set[tuple[str, str]] = set()
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._compare = lru_cache(maxsize=512)(self._figures)

    def seen(self, run: Run, settings: Settings) -> Seen:
        """All that is known; whatever is missing is asked for, while nobody waits."""
        wanted = self.model_of(run, settings)
        if wanted is None:
            return Seen(None, masked=run.mask_sha is not None, mask_kept=masks_kept(run, None, "", None, {}))
        model = model_key(wanted)
        if not run.test_cases:
            return Seen(wanted, self._problem(model))
        source = self._look_up(run.source_sha, model)
        results = {case.id: found for case in run.test_cases if (found := self._look_up(case.image_sha, model))}
        # The newest first: it is the one that is looked at.
        missing = [case.image_sha for case in reversed(run.test_cases) if case.id not in results]
        if source is None:
            missing.insert(0, run.source_sha)
        problem = self._problem(model)
        if missing and not problem:
            self._ask(wanted, missing)
        figures = {
            case: compared
            for case, found in results.items()
            if (compared := self._compared(run, source, found)) is not None
        }
        misled = frozenset(case for case, found in results.items() if _misled(run, source, found, figures.get(case)))
        waiting = bool(missing) and not problem
        kept = masks_kept(run, wanted, problem, source, figures)
        return Seen(wanted, problem, waiting, source, results, figures, run.mask_sha is not None, misled, kept)

    def mask_check(self, run: Run, settings: Settings, case: StoredTestCase) -> Check | None:
        """The check of a test case's mask, from what is known already; None where it is not, and nothing is asked."""
        wanted = self.model_of(run, settings)
        if wanted is None or run.mask_sha is None:
            return None
        source, found = (self._look_up(sha, model_key(wanted)) for sha in (run.source_sha, case.image_sha))
        figures = self._compared(run, source, found) if found is not None else None
        return mask_check(figures) if figures is not None else None

    def model_of(self, run: Run, settings: Settings) -> UnderTestSettings | None:
        """The model of the run's settings, or that of the profile for this kind of task."""
        chosen = settings.under_test
        return chosen if chosen.source != "profile" else self._profile.model_under_test.of(run.task.kind)

    def try_again(self, wanted: UnderTestSettings) -> None:
        """Forget that a model could not be asked."""
        with self._lock:
            self._problems.pop(model_key(wanted), None)

    def _problem(self, model: str) -> str:
        with self._lock:
            return self._problems.get(model, "")

    def _look_up(self, sha: str, model: str) -> Reading | None:
        with self._lock:
            if (sha, model) in self._known:
                return self._known[sha, model]
            if (sha, model) in self._pending:
                return None
        held = self._workspace.reading(sha, model)
        try:
            reading = reading_from(held) if held is not None else None
        except ValidationError:  # of another version: it is asked again
            return None
        if reading is not None:
            with self._lock:
                self._known[sha, model] = reading
        return reading

    def _ask(self, wanted: UnderTestSettings, shas: list[str]) -> None:
        model = model_key(wanted)
        for sha in dict.fromkeys(shas):
            with self._lock:
                if (sha, model) in self._pending:
                    continue
                self._pending.add((sha, model))
            # An image at a time: a person's job may come between any two.
            self._jobs.when_idle(DOING, lambda sha=sha: self._read(wanted, model, sha))  # type: ignore[misc]

    def _read(self, wanted: UnderTestSettings, model: str, sha: str) -> None:
        try:
            if self._problem(model):
                return
            reading = self._model(wanted, model).read(self._workspace.image(sha))
            self._workspace.append_reading(sha, model, reading.plain())
            with self._lock:
                self._known[sha, model] = reading
        except UserError as error:
            with self._lock:
                self._problems[model] = str(error)
        except Exception as error:  # a model from elsewhere may fail in any way; the page says so, and works on
            log.exception("the model under test failed")
            with self._lock:
                self._problems[model] = f"The model under test failed ({type(error).__name__}): choose another one."
        finally:
            with self._lock:
                self._pending.discard((sha, model))

    def _model(self, wanted: UnderTestSettings, model: str) -> Reader:
        # Only the worker's one thread comes here. One model is held: they may be large.
        if model not in self._models:
            self._models.clear()
            self._models[model] = self.load(wanted)
        return self._models[model]

    def _compared(self, run: Run, source: Reading | None, found: Reading) -> tuple[ClassFigures, ...] | None:
        """The figures of one image; None where they cannot be told (yet)."""
        if source is None or "classification" in (source.kind, found.kind):
            return None
        return self._compare(source, found, run.mask_sha, _frozen(run.mask_classes), run.task.protected)

    def _figures(
        self,
        source: Reading,
        generated: Reading,
        mask_sha: str | None,
        mask_classes: tuple[tuple[int, str], ...],
        protected: tuple[str, ...],
    ) -> tuple[ClassFigures, ...]:
        try:
            before, after = decode_map(source.class_map), decode_map(generated.class_map)
            if mask_sha is None:
                return without_mask(before, after, source.classes, protected)
            # At the size of the map: nothing finer was predicted, and a request must not wait for millions of pixels.
            mask = carried(self._workspace.image(mask_sha), before.size)
        except (UserError, OSError, ValueError):  # a file is missing or damaged: the page can do without these figures
            log.exception("the figures of the model under test cannot be worked out")
            return ()
        return against_mask(before, after, source.classes, mask, dict(mask_classes), protected)


def model_key(wanted: UnderTestSettings) -> str:
    """What the readings of a model are stored under; a file that was changed is another model."""
    if wanted.source != "file":
        return wanted.title
    try:
        changed = f"@{Path(wanted.file).expanduser().stat().st_mtime_ns:x}"
    except OSError:
        changed = ""
    return f"{wanted.title}{changed}{f' ({wanted.classes})' if wanted.classes else ''}"


def names_label(guess: str, label: str) -> bool:
    """Whether a model's class is the label of the task, in other letters or as a kind of it."""
    return guess.casefold() == label.casefold() or bool(classes_in(guess, Task("classification", label=label)))


def _misled(run: Run, source: Reading | None, found: Reading, figures: tuple[ClassFigures, ...] | None) -> bool:
    if source is None:
        return False
    if figures is not None:
        return any(figure.dropped for figure in figures)
    if not found.top or not source.top or run.task.kind != "classification":
        return False
    right = names_label(source.top[0].label, run.task.label)
    return right and not names_label(found.top[0].label, run.task.label)


def _frozen(classes: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(classes.items()))


def _load(wanted: UnderTestSettings) -> Reader:
    from evaluation.models import ModelUnderTest

    return ModelUnderTest(wanted)
