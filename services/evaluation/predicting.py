"""Runs a model under test on all images of a test set or filter. The work reports its progress and can be cancelled.

Predictions are saved batch by batch under the model's identity. Stopped work resumes where it was, and nothing is
computed twice. An unreadable image is skipped and reported. A failure of the model ends the work with one sentence;
earlier predictions stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from PIL import Image

from core.errors import UserError, one_line
from core.model_identity import ModelIdentity
from core.progress import OnCount
from core.settings import UnderTestSettings
from evaluation.answers import pairs_of_pixels
from evaluation.focus import GradCam
from services.evaluation.model_outcomes import RunMasks, measure
from services.evaluation.subjects import Cases
from services.evaluation.texts import TEXTS
from services.runs.model_loading import ModelLoading
from services.runs.predictions import Load, Predictor, load_model, model_key
from storage.evaluation.models_under_test import PIXELS, NewPixelCount, StoredModel
from storage.evaluation.predictions import NewPrediction, new_predictions
from storage.workspace import Workspace

SAVED_AT_ONCE = 128
"""Number of images whose predictions are saved in one transaction, or more if a batch is larger."""
COUNTED_AT_ONCE = 256
PATIENCE = 20.0
"""Maximum seconds that `input_picture` waits for the work of another model."""
Save = Callable[[Sequence[NewPrediction]], object]
OnWait = Callable[[], object]


@dataclass(frozen=True)
class Read:
    """Outcome of reading the images of a subject."""

    read: int
    """Number of images that the model read in this piece of work."""
    broken: tuple[tuple[str, str], ...]
    """SHA-256 and error sentence of each unreadable image."""

    unchecked: str = ""
    """Sentence on why the masks could not be checked; "" if they were, or there are none."""

    @property
    def note(self) -> str:
        """Return a note for the user, a sentence or two; "" for none."""
        return TEXTS.paragraph("read-note.txt", read=self)


class Predicting:
    """Loads models under test and has them read images. Keeps one model loaded, which one thread at a time may use."""

    def __init__(self, workspace: Workspace, require_known: Callable[[UnderTestSettings], None]) -> None:
        """`require_known` raises UserError for a server that must not get images."""
        self._workspace, self._require_known = workspace, require_known
        self.load: Load = load_model
        self._loading = ModelLoading[Predictor]()
        self._held: tuple[str, Predictor] | None = None
        self._lock = threading.Lock()
        self._broken: dict[str, str] = {}
        self._loaded_since: dict[str, ModelIdentity] = {}

    def stored(self, settings: UnderTestSettings) -> StoredModel | None:
        """Return the stored model of these settings, or None if it was never loaded."""
        stored_model = self._workspace.models_under_test.asked_for(model_key(settings))
        return None if stored_model is None else self._with_assumptions(stored_model)

    def _with_assumptions(self, stored: StoredModel) -> StoredModel:
        """Return the stored model with its identity as last loaded. Version 0.1 stored no assumptions."""
        return replace(stored, identity=self._loaded_since.get(stored.identity.digest, stored.identity))

    def identify(self, settings: UnderTestSettings, on_wait: OnWait = list) -> StoredModel:
        """Load the model of these settings, record it in the workspace, and return it. `on_wait` is called repeatedly
        during the wait; an exception that it raises ends the wait. Raises UserError if the model cannot be loaded.
        """
        self._require_known(settings)
        with self._lock:
            return self._loaded(settings, on_wait)[1]

    def input_picture(self, settings: UnderTestSettings, sha: str) -> Image.Image:
        """Return an image as the model gets it. Raises UserError on failure, or if another model stays busy."""
        self._require_known(settings)
        if not self._lock.acquire(timeout=PATIENCE):
            raise UserError("Another model is at work: try again when it is done.")
        try:
            return self._loaded(settings)[0].input_picture(self._workspace.images.load(sha))
        finally:
            self._lock.release()

    @contextmanager
    def grad_cam(self, settings: UnderTestSettings, on_wait: OnWait = list) -> Iterator[GradCam]:
        """Yield the Grad-CAM of a model. The models under test stay locked until the context ends. Raises UserError as
        `identify` does, and for a model without access to its layers.
        """
        self._require_known(settings)
        with self._lock:
            yield self._loaded(settings, on_wait)[0].grad_cam()

    def broken(self, shas: Sequence[str]) -> dict[str, str]:
        """Return an error sentence for each of these images that the model could not read the last time."""
        return {sha: self._broken[sha] for sha in shas if sha in self._broken} if self._broken else {}

    def read(self, settings: UnderTestSettings, cases: Cases, on_count: OnCount) -> Read:
        """Have the model read all unread images of a subject, and count the pixels of masks.

        `on_count` gets the number done and the total. An exception that it raises stops the work; finished work stays.
        Raises UserError if the model fails.
        """
        self._require_known(settings)
        pictures = cases.pictures
        on_count(0, len(pictures))
        with self._lock:
            model, stored = self._loaded(settings, lambda: on_count(0, len(pictures)))
            known = self._workspace.models_under_test.latest(stored.key)
            waiting = [sha for sha in pictures if sha not in known]
            for sha in waiting:  # a file may have been repaired since
                self._broken.pop(sha, None)
            done = len(pictures) - len(waiting)
            on_count(done, len(pictures))
            save = partial(self._workspace.predictions.extend, model=stored.id)
            read = self._read(model, stored.key, save, waiting, lambda number: on_count(done + number, len(pictures)))
        if stored.identity.kind == "segmentation":
            self.count_pixels(stored.key, cases, on_count)
            measure(self._workspace, RunMasks(self._workspace), stored.key)
        return Read(read, tuple(self.broken(pictures).items()))

    def check_masks(self, checker: UnderTestSettings, cases: Cases, on_count: OnCount) -> None:
        """Make the segmenter `checker` read all unread images that have a mask. Then count the pixels of the masks.
        `checker` is not recorded as a model under test. `on_count` and errors are as for `read`.
        """
        self._require_known(checker)
        key = self._workspace.models_under_test.key_of(model_key(checker))
        known = self._workspace.models_under_test.latest(key)
        masked = [images.shas[at] for images in cases.all_images for at in np.flatnonzero(images.masks.there).tolist()]
        masked_shas = tuple(dict.fromkeys(masked))
        waiting = [sha for sha in masked_shas if sha not in known]
        done = len(masked_shas) - len(waiting)
        on_count(done, len(masked_shas))
        if waiting:
            with self._lock:
                save = self._workspace.predictions.extend
                model = self._load(checker, lambda: on_count(done, len(masked_shas)))
                self._read(model, key, save, waiting, lambda number: on_count(done + number, len(masked_shas)))
        self.count_pixels(key, cases, on_count)

    def count_pixels(self, key: str, cases: Cases, on_count: OnCount) -> None:
        """Count pixels by mask class and by class that the model with this `key` predicts. Known counts are skipped."""
        models = self._workspace.models_under_test
        known, counted = models.latest(key), models.counted(key)
        pairs_to_count = {
            (known[sha], mask): sha
            for images in cases.all_images
            for sha, (mask, _) in zip(images.shas, images.masks, strict=True)
            if mask and sha in known and (known[sha], mask) not in counted
        }
        pixel_counts: list[NewPixelCount] = []
        masks: tuple[str, Image.Image] | None = None
        for number, ((prediction, mask), sha) in enumerate(sorted(pairs_to_count.items(), key=lambda one: one[0][1])):
            try:
                masks = masks if masks is not None and masks[0] == mask else (mask, self._workspace.images.load(mask))
                latest = self._workspace.predictions.latest(sha, key)
                if latest is not None and latest.class_map:
                    counts = np.rec.fromarrays(pairs_of_pixels(masks[1], latest), dtype=PIXELS)
                    pixel_counts.append(NewPixelCount(prediction, mask, counts))
            except (UserError, OSError, ValueError) as error:
                self._broken[sha] = one_line(error)
            if len(pixel_counts) >= COUNTED_AT_ONCE:
                models.keep_pixel_counts(pixel_counts)
                pixel_counts = []
                on_count(number, len(pairs_to_count))
        models.keep_pixel_counts(pixel_counts)

    def _read(
        self, model: Predictor, key: str, save: Save, shas: Sequence[str], on_count: Callable[[int], None]
    ) -> int:
        """Have a model read images and save its predictions under `key`. Return the number of images read."""
        begun, read = 0, 0
        with _saving(save) as add:
            while coming := shas[begun:]:
                done = 0
                try:
                    for batch in model.predict_many([self._opener(sha) for sha in coming]):
                        some = coming[done : done + len(batch.predictions)]
                        add(new_predictions(some, key, batch))
                        done += len(some)
                        on_count(begun + done)
                    return read + done
                except Exception:
                    # All images before one that cannot be opened have predictions; any other error is the model's own.
                    if done >= len(coming) or coming[done] not in self._broken:
                        raise
                    begun += done + 1
                    read += done
                    on_count(begun)
        return read

    def _opener(self, sha: str) -> Callable[[], Image.Image]:
        def opened() -> Image.Image:
            try:
                return self._workspace.images.load(sha)
            except (UserError, OSError, ValueError) as error:
                self._broken[sha] = one_line(error)
                raise

        return opened

    def _load(self, settings: UnderTestSettings, on_wait: OnWait) -> Predictor:
        return self._loading.load(model_key(settings), settings.title, lambda: self.load(settings), on_wait)

    def _loaded(self, settings: UnderTestSettings, on_wait: OnWait = list) -> tuple[Predictor, StoredModel]:
        key = model_key(settings)
        # A server may have changed its model, which only it knows: ask it each time.
        if self._held is None or self._held[0] != key or settings.source == "http":
            self._held = None
            self._held = (key, self._load(settings, on_wait))
        model = self._held[1]
        record = self._workspace.models_under_test.record
        stored = record(key, model.identity, settings.title, settings.model_dump(mode="json"))
        self._loaded_since[model.identity.digest] = model.identity
        return model, self._with_assumptions(stored)


@contextmanager
def _saving(save: Save) -> Iterator[Callable[[Sequence[NewPrediction]], None]]:
    """Yield a function that queues predictions. Another thread saves them with `save`, so that the model does not wait
    for the disk. The function raises the error of an earlier save. Leaving the context saves all queued predictions.
    """
    waiting: list[NewPrediction] = []
    saved: Future[object] | None = None

    def flush() -> None:
        nonlocal saved
        if saved is not None:
            saved.result()
        saved = thread.submit(save, tuple(waiting)) if waiting else None
        waiting.clear()

    def add(new: Sequence[NewPrediction]) -> None:
        waiting.extend(new)
        if len(waiting) >= SAVED_AT_ONCE:
            flush()

    with ThreadPoolExecutor(1, "save predictions") as thread:
        try:
            yield add
        finally:
            flush()
            flush()  # waits for the last save
