"""Load a model under test by its settings, and ask it about one image or many."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UserError, out_of_memory
from core.model_identity import ModelIdentity
from core.predictions import TOP, Guess, PredictedBatch, Prediction, encode_map
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters.architectures import find_network
from evaluation.adapters.base import Adapter, Output, TorchAdapter
from evaluation.adapters.network import extremes, require_read
from evaluation.focus import GradCam

Picture = Image.Image | Callable[[], Image.Image]
"""An image, or a function that reads it when it is needed, on another thread."""
AHEAD = 2
"""Number of batches to prepare while the model works on another batch."""
MOST_THREADS = 8
"""Maximum number of threads that read and prepare images."""
_Prepared = tuple[Any, tuple[int, int]]
"""The model's input for an image, and the image's (width, height)."""


def load_adapter(settings: UnderTestSettings) -> Adapter:
    """Load the model that the settings describe. Return its adapter. Raises UserError if loading fails."""
    require_read(settings)
    if settings.source == "onnx":
        from evaluation.adapters.onnx import OnnxAdapter

        return OnnxAdapter(settings)
    if settings.source == "http":
        from evaluation.adapters.http import HttpAdapter

        return HttpAdapter(settings)
    return TorchAdapter(find_network(settings))


class ModelUnderTest:
    """One model under test. May be called from any thread; it answers one batch at a time."""

    def __init__(self, settings: UnderTestSettings) -> None:
        """Loads the model. Raises UserError if that fails."""
        self.name = settings.title
        self._lock = threading.Lock()
        self._adapter = load_adapter(settings)
        self.kind: TaskKind = self._adapter.kind
        self.identity: ModelIdentity = self._adapter.identity
        """Identity of the model: the key of its stored predictions."""
        self.at_once = self._adapter.at_once
        """Maximum number of images in one call. Halved for the rest of the model's life if memory runs out."""

    def predict(self, image: Image.Image) -> Prediction:
        """Return the prediction on an image of any size. Raises UserError if the model fails on it."""
        return self._ask([self._prepare(image)]).predictions[0]

    def predict_many(self, images: Iterable[Picture]) -> Iterator[PredictedBatch]:
        """Yield the predictions on all images, in batches and in order. Other threads prepare the next images
        meanwhile. Raises UserError if an image is unreadable or a batch fails. All images before an unreadable image
        are predicted first. If the caller stops, the preparation of further images is cancelled.
        """
        pictures = iter(images)
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "prepare") as threads:
            coming: deque[Future[_Prepared]] = deque()
            try:
                while True:
                    room = (AHEAD + 1) * self.at_once - len(coming)
                    coming.extend(
                        threads.submit(self._prepare, one) for one in itertools.islice(pictures, max(0, room))
                    )
                    if not coming:
                        return
                    ready = [coming[place] for place in range(min(self.at_once, len(coming)))]
                    # Images before an unreadable one are answered first.
                    good = list(itertools.takewhile(lambda one: one.exception() is None, ready)) or ready[:1]
                    batch = self._ask([one.result() for one in good])
                    for _ in batch.predictions:
                        coming.popleft()
                    yield batch
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def input_picture(self, image: Image.Image) -> Image.Image:
        """Return the picture that the model sees: scaled and cropped, with input values turned back into colours."""
        image = image.convert("RGB")
        prepared = self._adapter.prepare(image)
        if isinstance(prepared, str):  # a server gets the image as it is
            return image
        black, white = (values[:, None, None] for values in extremes(self._adapter.prepare))
        pixels = (np.asarray(prepared, np.float32) - black) / (white - black)
        return Image.fromarray((pixels.clip(0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0))

    def grad_cam(self) -> GradCam:
        """Return an object that computes Grad-CAM maps. Raises UserError if the model is not a classifier in torch."""
        adapter = self._adapter
        if self.kind != "classification":
            raise UserError(f"{self.name} is a segmenter; only classifiers have Grad-CAM maps: choose a classifier.")
        if not isinstance(adapter, TorchAdapter):
            raise UserError(f"{self.name} is no torch network, but Grad-CAM maps need one: choose another model.")
        return GradCam(self.name, adapter.net, adapter.prepare, self.at_once)

    def _prepare(self, picture: Picture) -> _Prepared:
        image = picture if isinstance(picture, Image.Image) else picture()
        return self._adapter.prepare(image.convert("RGB")), image.size

    def _ask(self, prepared: Sequence[_Prepared]) -> PredictedBatch:
        while True:
            try:
                with self._lock:
                    answers = self._adapter.answer(*map(list, zip(*prepared, strict=True)))
                return self._batch(answers)
            except Exception as error:
                if isinstance(error, UserError) or not out_of_memory(error):
                    raise
                if len(prepared) == 1:
                    raise UserError(
                        f"For the model under test, {self.name}, there is not enough memory for a single image of "
                        f"{prepared[0][1][0]} × {prepared[0][1][1]} pixels: free some, or choose a smaller model."
                    ) from error
            # Memory can be freed only here: inside `except`, the error still holds tensors.
            self.at_once = max(1, len(prepared) // 2)
            prepared = prepared[: self.at_once]
            import torch

            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _batch(self, answers: Output) -> PredictedBatch:
        classes, found = self.identity.classes, list[Prediction]()
        for row in answers.probabilities if answers.probabilities is not None else ():
            likeliest = np.argsort(-row, kind="stable")[:TOP]
            top = tuple(Guess(classes[place], float(row[place])) for place in likeliest)
            found.append(Prediction("classification", self.name, top))
        for numbers in answers.maps:
            found.append(Prediction("segmentation", self.name, classes=classes, class_map=encode_map(numbers)))
        return PredictedBatch(tuple(found), answers.probabilities, answers.doubts)
