"""Has a model under test read all images of a subject: a piece of work with progress, cancel and a way to go on.

What was read is kept batch by batch under the model's identity, so nothing is computed twice, and a work that was
stopped goes on where it was. An image that cannot be read is passed over and told; what a model cannot do ends the work
with one sentence, and what it did before stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from PIL import Image

from core.errors import UserError, one_line
from core.model_identity import ModelIdentity
from core.progress import OnCount
from core.settings import UnderTestSettings
from core.words import count_of
from evaluation.answers import pairs_of_pixels
from services.evaluation.model_outcomes import RunMasks, measure
from services.evaluation.subjects import Cases
from services.runs.model_loading import ModelLoading
from services.runs.predictions import Load, Predictor, load_model, model_key
from storage.evaluation.models_under_test import PIXELS, NewPixelCount, StoredModel
from storage.evaluation.predictions import NewPrediction, new_predictions
from storage.workspace import Workspace

SAVED_AT_ONCE = 128
"""Images whose predictions are saved in one transaction, or more where a batch is larger."""
COUNTED_AT_ONCE = 256
PATIENCE = 20.0
"""Seconds that the picture of a model's input waits for another model to be loaded."""
Save = Callable[[Sequence[NewPrediction]], object]
OnWait = Callable[[], object]


@dataclass(frozen=True)
class Read:
    """What became of the images of a subject."""

    read: int
    """Those that were read now."""
    broken: tuple[tuple[str, str], ...]
    """SHA-256 and sentence of those that cannot be read."""

    unchecked: str = ""
    """Why the masks could not be checked, in a sentence; "" where they were, or there is nothing to check."""

    @property
    def note(self) -> str:
        """What a person has to know, in a sentence or two; "" for nothing."""
        said = []
        if self.broken:
            are = "are" if len(self.broken) > 1 else "is"
            said.append(
                f"{count_of(len(self.broken), 'image')} could not be read and {are} left out: {self.broken[0][1]}"
            )
        if self.unchecked:
            said.append(f"The masks could not be checked: {self.unchecked}")
        return " ".join(said)


class Predicting:
    """Loads models under test and has them read images. One model is held; work comes from one thread at a time."""

    def __init__(self, workspace: Workspace, require_known: Callable[[UnderTestSettings], None]) -> None:
        """`require_known` refuses servers that images must not be sent to."""
        self._workspace, self._require_known = workspace, require_known
        self.load: Load = load_model
        self._loading = ModelLoading[Predictor]()
        self._held: tuple[str, Predictor] | None = None
        self._lock = threading.Lock()
        self._broken: dict[str, str] = {}
        self._loaded_since: dict[str, ModelIdentity] = {}

    def stored(self, wanted: UnderTestSettings) -> StoredModel | None:
        """The model that these settings mean, where it was loaded before."""
        found = self._workspace.models_under_test.asked_for(model_key(wanted))
        return None if found is None else self._with_assumptions(found)

    def _with_assumptions(self, stored: StoredModel) -> StoredModel:
        """Return the model with what is assumed of it, also where version 0.1 wrote it down without that."""
        return replace(stored, identity=self._loaded_since.get(stored.identity.digest, stored.identity))

    def identify(self, wanted: UnderTestSettings, on_wait: OnWait = list) -> StoredModel:
        """The model that these settings mean now, loaded and written down. Raises UserError when that cannot be, and
        what `on_wait` raises, which is called again and again meanwhile.
        """
        self._require_known(wanted)
        with self._lock:
            return self._loaded(wanted, on_wait)[1]

    def input_picture(self, wanted: UnderTestSettings, sha: str) -> Image.Image:
        """An image as the model gets it. Raises UserError while the model is at work, or where it cannot be shown."""
        self._require_known(wanted)
        if not self._lock.acquire(timeout=PATIENCE):
            raise UserError("A model is at work: its picture is shown when it is done.")
        try:
            return self._loaded(wanted)[0].input_picture(self._workspace.images.load(sha))
        finally:
            self._lock.release()

    def broken(self, shas: Sequence[str]) -> dict[str, str]:
        """Those of these images that could not be read the last time, each with the sentence."""
        return {sha: self._broken[sha] for sha in shas if sha in self._broken} if self._broken else {}

    def read(self, wanted: UnderTestSettings, cases: Cases, on_count: OnCount) -> Read:
        """Have the model read all images of a subject that it has not read, and count the pixels of masks.

        `on_count` is told how many of all are done; what it raises stops the work, and what was done is kept. Raises
        UserError for what the model cannot do.
        """
        self._require_known(wanted)
        pictures = cases.pictures
        on_count(0, len(pictures))
        with self._lock:
            model, stored = self._loaded(wanted, lambda: on_count(0, len(pictures)))
            known = self._workspace.models_under_test.latest(stored.key)
            waiting = [sha for sha in pictures if sha not in known]
            for sha in waiting:  # a file may have been put right since
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
        """Have the segmenter of the checks read all images of a subject with a mask, where Explore has not, and count
        their pixels. It is no model under test, and is not written down as one. `on_count` and errors as `read`.
        """
        self._require_known(checker)
        key = self._workspace.models_under_test.key_of(model_key(checker))
        known = self._workspace.models_under_test.latest(key)
        masked = [images.shas[at] for images in cases.all_images for at in np.flatnonzero(images.masks.there).tolist()]
        wanted = tuple(dict.fromkeys(masked))
        waiting = [sha for sha in wanted if sha not in known]
        done = len(wanted) - len(waiting)
        on_count(done, len(wanted))
        if waiting:
            with self._lock:
                save = self._workspace.predictions.extend
                model = self._load(checker, lambda: on_count(done, len(wanted)))
                self._read(model, key, save, waiting, lambda number: on_count(done + number, len(wanted)))
        self.count_pixels(key, cases, on_count)

    def count_pixels(self, key: str, cases: Cases, on_count: OnCount) -> None:
        """Count what the model of a key makes of the pixels of each mask, where it was not done yet."""
        models = self._workspace.models_under_test
        known, counted = models.latest(key), models.counted(key)
        wanted = {
            (known[sha], mask): sha
            for images in cases.all_images
            for sha, (mask, _) in zip(images.shas, images.masks, strict=True)
            if mask and sha in known and (known[sha], mask) not in counted
        }
        found: list[NewPixelCount] = []
        masks: tuple[str, Image.Image] | None = None
        for number, ((prediction, mask), sha) in enumerate(sorted(wanted.items(), key=lambda one: one[0][1])):
            try:
                masks = masks if masks is not None and masks[0] == mask else (mask, self._workspace.images.load(mask))
                said = self._workspace.predictions.latest(sha, key)
                if said is not None and said.class_map:
                    counts = np.rec.fromarrays(pairs_of_pixels(masks[1], said), dtype=PIXELS)
                    found.append(NewPixelCount(prediction, mask, counts))
            except (UserError, OSError, ValueError) as error:
                self._broken[sha] = one_line(error)
            if len(found) >= COUNTED_AT_ONCE:
                models.keep_pixel_counts(found)
                found = []
                on_count(number, len(wanted))
        models.keep_pixel_counts(found)

    def _read(
        self, model: Predictor, key: str, save: Save, shas: Sequence[str], on_count: Callable[[int], None]
    ) -> int:
        """Have a model read images, and save what it says under `key`. Return how many it read."""
        saver, begun, read = _Saver(save), 0, 0
        try:
            while begun < len(shas):
                coming = shas[begun:]
                done = 0
                try:
                    for batch in model.predict_many([self._opener(sha) for sha in coming]):
                        some = coming[done : done + len(batch.predictions)]
                        saver.add(new_predictions(some, key, batch))
                        done += len(some)
                        on_count(begun + done)
                    begun += done
                    read += done
                    break
                except Exception:
                    # All before a picture that cannot be opened was answered; anything else is the model's own.
                    if done >= len(coming) or coming[done] not in self._broken:
                        raise
                    begun += done + 1
                    read += done
                    on_count(begun)
        finally:
            saver.close()
        return read

    def _opener(self, sha: str) -> Callable[[], Image.Image]:
        def opened() -> Image.Image:
            try:
                return self._workspace.images.load(sha)
            except (UserError, OSError, ValueError) as error:
                self._broken[sha] = one_line(error)
                raise

        return opened

    def _load(self, wanted: UnderTestSettings, on_wait: OnWait) -> Predictor:
        return self._loading.load(model_key(wanted), wanted.title, lambda: self.load(wanted), on_wait)

    def _loaded(self, wanted: UnderTestSettings, on_wait: OnWait = list) -> tuple[Predictor, StoredModel]:
        asked = model_key(wanted)
        # A server may have another model by now, which only it can tell: it is asked each time.
        if self._held is None or self._held[0] != asked or wanted.source == "http":
            self._held = None
            self._held = (asked, self._load(wanted, on_wait))
        model = self._held[1]
        record = self._workspace.models_under_test.record
        stored = record(asked, model.identity, wanted.title, wanted.model_dump(mode="json"))
        self._loaded_since[model.identity.digest] = model.identity
        return model, self._with_assumptions(stored)


class _Saver:
    """Saves predictions on a thread of its own, so that the model does not wait for the disk."""

    def __init__(self, save: Save) -> None:
        self._save = save
        self._thread = ThreadPoolExecutor(1, "save predictions")
        self._running: Future[object] | None = None
        self._waiting: list[NewPrediction] = []

    def add(self, new: Sequence[NewPrediction]) -> None:
        """Save them soon. Raises the error of an earlier save."""
        self._waiting += new
        if len(self._waiting) >= SAVED_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Save the rest, and wait for it."""
        try:
            self._flush()
            if self._running is not None:
                self._running.result()
        finally:
            self._thread.shutdown()

    def _flush(self) -> None:
        if self._running is not None:
            self._running.result()
        if self._waiting:
            self._running, self._waiting = self._thread.submit(self._save, self._waiting), []
