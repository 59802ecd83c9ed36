"""Predictions of models under test. Rows are only added: the latest row of an image and a model counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.errors import UserError
from core.images import StoredImage
from core.predictions import Doubt, PredictedBatch, Prediction, decode_map
from storage.engine.database import Database, Repository, first_row, read, write
from storage.engine.queries import first_value, insert_row, insert_rows
from storage.engine.rows import Row, now, pack, pack_value, record_of
from storage.evaluation.models_under_test import insert_probabilities
from storage.images import Images, file_name, keep_image


class NewPrediction(NamedTuple):
    sha: str
    model: str
    prediction: Prediction
    doubt: Doubt | None = None
    """Uncertainty of a segmenter; None for a classifier, and if unknown."""
    probabilities: NDArray[Any] | None = None
    """Probability of each class, 0 to 1, of any float type. None for a segmenter or if unknown."""


def new_predictions(shas: Sequence[str], model: str, batch: PredictedBatch) -> list[NewPrediction]:
    """Convert the predictions for a batch of images to the form that is saved."""
    nothing = (None,) * len(batch.predictions)
    rows = nothing if batch.probabilities is None else batch.probabilities
    each = zip(shas, batch.predictions, batch.doubts or nothing, rows, strict=True)
    return [NewPrediction(sha, model, one, doubt, row) for sha, one, doubt, row in each]


class Predictions(Repository):
    def __init__(self, database: Database, images: Images) -> None:
        super().__init__(database)
        self._images = images

    def append(self, sha: str, model: str, prediction: Prediction) -> int:
        """Save a prediction and return its id. Raises UserError if the image is unknown or the disk is full."""
        return self.extend([NewPrediction(sha, model, prediction)])[0]

    def extend(self, new: Iterable[NewPrediction], model: int | None = None) -> tuple[int, ...]:
        """Save predictions, all or none, and return their ids. If the id `model` of a model is given, also save the
        probabilities. Raises UserError like `append`.
        """
        predictions = tuple(new)
        # The files of the class maps are written before the rows.
        maps = [
            self._images.save(decode_map(one.prediction.class_map)) if one.prediction.class_map else None
            for one in predictions
        ]
        return self._extend(predictions, maps, model)

    @write
    def _extend(
        self, db: Db, new: Sequence[NewPrediction], maps: Sequence[StoredImage | None], model: int | None
    ) -> tuple[int, ...]:
        for sha in {one.sha for one in new}:
            if first_value(db, "SELECT 1 FROM images WHERE sha = ?", [sha]) is None:
                raise UserError(f"This workspace has no image {sha[:80]!r}.")
        time = now()
        ids = tuple(_insert(db, one, stored, time) for one, stored in zip(new, maps, strict=True))
        pairs = zip(ids, new, strict=True)
        insert_rows(db, "doubts", ({"prediction": id_, **vars(one.doubt)} for id_, one in pairs if one.doubt))
        if model is not None:
            rows = ((one.sha, one.probabilities) for one in new if one.probabilities is not None)
            insert_probabilities(db, model, rows, time)
        return ids

    @read
    def latest(self, db: Db, sha: str, model: str) -> Prediction | None:
        """Return `model`'s latest prediction for the image; None without one, or if its class map's file is missing."""
        query = "SELECT * FROM predictions WHERE image = ? AND model = ? ORDER BY id DESC LIMIT 1"
        row = first_row(db, query, [sha, model])
        return None if row is None else prediction_of(row, self._images.folder)


def prediction_of(row: Row, images: Path) -> Prediction | None:
    """Return the prediction in a row; None if its class map's file is missing, so that the model predicts again."""
    class_map = b""
    if row["class_map"] is not None:
        try:
            class_map = (images / file_name(row["class_map"])).read_bytes()
        except FileNotFoundError:
            return None
    return record_of(Prediction, row, model=row["name"], class_map=class_map)


def _insert(db: Db, new: NewPrediction, stored: StoredImage | None, time: str) -> int:
    if stored is not None:
        keep_image(db, stored)
    prediction = new.prediction
    row = {
        "image": new.sha,
        "model": new.model,
        "kind": prediction.kind,
        "name": prediction.model,
        "label": prediction.top[0].label if prediction.top else "",
        "top": pack_value(prediction.top),
        "classes": pack(list(prediction.classes)),
        "class_map": stored.sha if stored is not None else None,
        "created": time,
    }
    return insert_row(db, "predictions", row)
