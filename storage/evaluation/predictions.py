"""What models under test say of images. Append-only: the latest row of an image and a model counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import sqlite_utils

from core.errors import UserError
from core.images import StoredImage
from core.predictions import Doubt, Guess, Prediction, decode_map
from storage.engine.database import Database, Repository, read, write
from storage.engine.rows import Row, insert_row, now, pack, pack_value, unpack_value
from storage.images import Images, file_name, keep_image


class NewPrediction(NamedTuple):
    """A prediction that is to be saved."""

    sha: str
    """Of the image."""
    model: str
    """What the predictions of the model are stored under."""
    prediction: Prediction
    doubt: Doubt | None = None
    """How unsure a segmenter is; None of a classifier, and where that is not known."""


class Predictions(Repository):
    """The predictions of all models under test."""

    def __init__(self, database: Database, images: Images) -> None:
        super().__init__(database)
        self._images = images

    def append(self, sha: str, model: str, prediction: Prediction) -> int:
        """Save what a model under test said of a stored image; returns the id of the row.

        Raises UserError when no image has this hash, or for a full disk.
        """
        return self.extend([NewPrediction(sha, model, prediction)])[0]

    def extend(self, new: Iterable[NewPrediction]) -> tuple[int, ...]:
        """Save many at once, all or none; returns their ids in order. Raises as `append`."""
        predictions = tuple(new)
        return self._extend(predictions, self.save_maps(predictions))

    def save_maps(self, predictions: Sequence[NewPrediction]) -> list[StoredImage | None]:
        """The files of the class maps, which come before the rows; None where a prediction has none."""
        return [
            self._images.save(decode_map(one.prediction.class_map)) if one.prediction.class_map else None
            for one in predictions
        ]

    @write
    def _extend(
        self, db: sqlite_utils.Database, new: tuple[NewPrediction, ...], maps: list[StoredImage | None]
    ) -> tuple[int, ...]:
        return insert_predictions(db, new, maps)

    @read
    def latest(self, db: sqlite_utils.Database, sha: str, model: str) -> Prediction | None:
        """What `model` said of the image last; None when it was never asked, or the file of its class map is gone."""
        query = "SELECT * FROM predictions WHERE image = ? AND model = ? ORDER BY id DESC LIMIT 1"
        for row in db.query(query, [sha, model]):
            return prediction_of(row, self._images.folder)
        return None


def insert_predictions(
    db: sqlite_utils.Database, new: Sequence[NewPrediction], maps: Sequence[StoredImage | None]
) -> tuple[int, ...]:
    """Add what models said of images that are in the workspace; their ids in order. `maps` are the files of their class
    maps. Raises UserError when no image has one of the hashes.
    """
    for sha in {one.sha for one in new}:
        if not db.execute("SELECT 1 FROM images WHERE sha = ?", [sha]).fetchone():
            raise UserError(f"This workspace has no image {sha[:80]!r}.")
    ids = tuple(
        _insert(db, one.sha, one.model, one.prediction, stored, now()) for one, stored in zip(new, maps, strict=True)
    )
    doubts = [
        (number, one.doubt.entropy, one.doubt.gini)
        for number, one in zip(ids, new, strict=True)
        if one.doubt is not None
    ]
    db.conn.executemany("INSERT INTO doubts (prediction, entropy, gini) VALUES (?, ?, ?)", doubts)
    return ids


def prediction_of(row: Row, images: Path) -> Prediction | None:
    """The prediction in a row; None when the file of its class map is gone: the model can say it again."""
    class_map = b""
    if row["class_map"] is not None:
        try:
            class_map = (images / file_name(row["class_map"])).read_bytes()
        except FileNotFoundError:
            return None
    return Prediction(
        kind=row["kind"],
        model=row["name"],
        top=unpack_value(tuple[Guess, ...], row["top"]),
        classes=tuple(json.loads(row["classes"])),
        class_map=class_map,
    )


def _insert(
    db: sqlite_utils.Database, sha: str, model: str, prediction: Prediction, stored: StoredImage | None, time: str
) -> int:
    if stored is not None:
        keep_image(db, stored)
    return insert_row(
        db,
        "predictions",
        {
            "image": sha,
            "model": model,
            "kind": prediction.kind,
            "name": prediction.model,
            "label": prediction.top[0].label if prediction.top else "",
            "top": pack_value(prediction.top),
            "classes": pack(list(prediction.classes)),
            "class_map": stored.sha if stored is not None else None,
            "created": time,
        },
    )
