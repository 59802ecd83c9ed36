"""The models under test of a workspace, their probabilities for many images at once, and results of retraining.

A model is identified by everything that its predictions depend on (`core.model_identity`). With other weights or
another server it is another model with its own predictions. Predictions stored before models had an identity belong to
the first model loaded under their key.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.model_identity import ModelIdentity
from core.predictions import TOP
from storage.engine.database import Repository, first_row, read, write
from storage.engine.queries import first_value, insert_row, records
from storage.engine.rows import Row, now, pack, record_of, whole

NO_CLASS = 0xFFFF
"""Class number that fills up `likeliest` if the classifier named too few classes."""
PIXELS = np.dtype([("mask", "u1"), ("said", "u1"), ("pixels", "<u4")])
"""Type of one entry of `NewPixelCount.counts`: class in the mask, class that the model predicts, number of pixels."""
_FAST = 1
"""Compression level of zlib. It is low because rows are read often and their size matters little."""
_WORTH = 0.6
_AT_ONCE = 4096
"""Number of rows fetched from the database at a time."""
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class StoredModel:
    """A model under test that was loaded in this workspace before."""

    id: int
    key: str
    """Key under which the predictions of the model are stored."""
    title: str
    identity: ModelIdentity


@dataclass(frozen=True)
class AskedModel:
    """A model under test with the settings that loaded it last."""

    model: StoredModel
    settings: dict[str, Any]
    """Fields of `UnderTestSettings` by name, as plain data."""


class NewPixelCount(NamedTuple):
    """Pixel counts to be saved: one for each pair (class in the mask, class that the segmenter predicts)."""

    prediction: int
    mask: str
    counts: NDArray[Any]
    """Entries of type `PIXELS`."""


@dataclass(frozen=True, eq=False)
class ProbabilityRows:
    """Probabilities of a classifier for many images, one row for each image."""

    images: list[str]
    """SHA-256 of each row's image. If an image has two rows, the later one counts."""
    likeliest: NDArray[np.uint16]
    """Number of the most probable class of each image, shape (images,)."""
    numbers: NDArray[np.float16]
    """Probability of each class, 0 to 1, shape (images, classes)."""


@dataclass(frozen=True)
class StoredRetraining:
    id: int
    about: str
    asked: str
    model: int
    """Id of the model that was trained further, as in `StoredModel.id`."""
    told: dict[str, Any]
    created: str


class ModelsUnderTest(Repository):
    @write
    def record(
        self, db: Db, settings_key: str, identity: ModelIdentity, title: str, settings: dict[str, Any]
    ) -> StoredModel:
        """Record that the settings with the key `settings_key` now load this model. Return the stored model."""
        known = first_row(db, "SELECT * FROM models_under_test WHERE digest = ?", [identity.digest])
        if known is not None:
            model = _stored(known)
        else:
            taken = first_row(db, "SELECT 1 FROM models_under_test WHERE key = ?", [settings_key])
            key = f"{settings_key} [{identity.digest}]" if taken else settings_key
            texts = {"title": whole(title), "name": whole(identity.name), "weights": whole(identity.weights)}
            packed = {"preprocessing": pack(asdict(identity.preprocessing)), "classes": pack(list(identity.classes))}
            new = {"digest": identity.digest, "key": key, "kind": identity.kind, "created": now(), **texts, **packed}
            model = StoredModel(insert_row(db, "models_under_test", new), key, title, identity)
        last = "SELECT model, settings FROM models_asked WHERE asked = ? ORDER BY id DESC LIMIT 1"
        row = {"model": model.id, "settings": pack(settings)}
        if first_row(db, last, [settings_key]) != row:
            insert_row(db, "models_asked", {**row, "asked": settings_key, "created": now()})
        return model

    @read
    def asked_for(self, db: Db, settings_key: str) -> StoredModel | None:
        """Return the model that the settings with this key loaded last, or None."""
        return next((_stored(row) for row in db.query(_QUERIES["asked_for"], [settings_key])), None)

    def key_of(self, settings_key: str) -> str:
        """Return the key of the model that these settings loaded last; `settings_key` itself if none exists."""
        model = self.asked_for(settings_key)
        return settings_key if model is None else model.key

    @read
    def all(self, db: Db) -> tuple[AskedModel, ...]:
        """Return all models, latest first, each with the settings that loaded it last."""
        return tuple(AskedModel(_stored(row), json.loads(row["settings"])) for row in db.query(_QUERIES["listed"]))

    @read
    def probabilities(self, db: Db, model: StoredModel, after: int = 0) -> tuple[ProbabilityRows, int]:
        """Return the probabilities stored after row `after` for a model, and the id of the last row."""
        size = 2 * len(model.identity.classes)
        images: list[str] = []
        likeliest: list[bytes] = []
        parts: list[NDArray[np.float16]] = []
        last = after
        query = "SELECT id, image, likeliest, numbers FROM probabilities WHERE model = ? AND id > ? ORDER BY id"
        cursor = db.execute(query, [model.id, after])
        while rows := cursor.fetchmany(_AT_ONCE):
            last = rows[-1][0]
            images += [row[1] for row in rows]
            likeliest += [row[2] for row in rows]
            whole = [row[3] if len(row[3]) == size else zlib.decompress(row[3]) for row in rows]
            parts.append(np.frombuffer(b"".join(whole), "<f2").reshape(len(rows), -1))
        first = np.frombuffer(b"".join(likeliest), "<u2").reshape(len(images), TOP)[:, 0]
        numbers = np.concatenate(parts) if parts else np.zeros((0, 0), np.float16)
        return ProbabilityRows(images, first, numbers), last

    @read
    def latest(self, db: Db, key: str, after: int = 0) -> dict[str, int]:
        """Return the id of the model's latest prediction by SHA-256 of the image. Only ids above `after` count."""
        query = "SELECT image, max(id) FROM predictions WHERE model = ? AND id > ? GROUP BY image"
        return dict(db.execute(query, [key, after]).fetchall())

    @read
    def classes_of(self, db: Db, key: str) -> tuple[str, ...]:
        """Return the class names of the model's latest prediction, by class number; () without predictions."""
        query = "SELECT classes FROM predictions WHERE model = ? ORDER BY id DESC LIMIT 1"
        return tuple(json.loads(first_value(db, query, [key]) or "[]"))

    @read
    def known_classes(self, db: Db, key: str) -> tuple[str, ...]:
        """Return all class names of the model with this key, by class number; () if it was never loaded here."""
        classes = first_value(db, "SELECT classes FROM models_under_test WHERE key = ?", [key])
        return tuple(json.loads(classes or "[]"))

    @read
    def guesses(self, db: Db, predictions: Sequence[int]) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return (image, likeliest classes as plain data) for each of these prediction ids."""
        query = "SELECT image, top FROM json_each(?) AS wanted CROSS JOIN predictions ON predictions.id = wanted.value"
        return [(image, json.loads(top)) for image, top in db.execute(query, [pack(list(predictions))])]

    @read
    def doubts(self, db: Db, key: str, after: int = 0) -> tuple[list[str], NDArray[np.float64], int]:
        """Return a segmenter's uncertainty for predictions after the prediction `after`.

        Return the SHA-256 of images, their entropy and DeepGini as (images, 2), and the id of the latest prediction
        with a known uncertainty. If an image has several rows, the last one counts.
        """
        rows = db.execute(_QUERIES["doubts"], [after, key]).fetchall()
        last = first_value(db, "SELECT coalesce(max(prediction), 0) FROM doubts")
        return [image for image, *_ in rows], np.array([row[1:] for row in rows]).reshape(-1, 2), last

    @write
    def keep_pixel_counts(self, db: Db, new: Iterable[NewPixelCount]) -> None:
        """Save pixel counts of a segmenter, all or none. Existing counts stay."""
        packed = ((one, zlib.compress(one.counts.astype(PIXELS).tobytes(), _FAST)) for one in new)
        rows = ((one.prediction, one.mask, counts, now()) for one, counts in packed)
        db.conn.executemany(_QUERIES["keep_pixel_counts"], rows)

    @read
    def counted(self, db: Db, key: str) -> set[tuple[int, str]]:
        """Return (prediction, mask) for each pixel count that is stored for the model with this key."""
        query = "SELECT prediction, mask FROM predictions JOIN pixel_counts ON prediction = predictions.id"
        return set(db.execute(f"{query} WHERE model = ?", [key]).fetchall())

    @read
    def pixel_counts(self, db: Db, key: str, after: int = 0) -> tuple[list[tuple[str, str, NDArray[Any]]], int]:
        """Return pixel counts of the model with this key that were saved after the row `after`.

        Return (image, mask, counts of type `PIXELS`) of each row, and the last row's id. If an image and mask have
        several rows, the last one counts.
        """
        rows = [
            (image, mask, np.frombuffer(zlib.decompress(counts), PIXELS))
            for image, mask, counts in db.execute(_QUERIES["pixel_counts"], [after, key])
        ]
        return rows, first_value(db, "SELECT coalesce(max(id), 0) FROM pixel_counts")


class Retrainings(Repository):
    """Results of retraining models under test. The retrained weights are files beside the database."""

    @write
    def keep(self, db: Db, about: str, question: str, model: int, result: dict[str, Any]) -> int:
        """Save a result, unless the latest with this `about` and `question` is the same. Return the row's id."""
        text = pack(result)
        query = "SELECT id, told FROM retrainings WHERE about = ? AND asked = ? ORDER BY id DESC LIMIT 1"
        last = first_row(db, query, [about, question])
        if last is not None and last["told"] == text:
            return int(last["id"])
        row = {"about": about, "asked": question, "model": model, "told": text, "created": now()}
        return insert_row(db, "retrainings", row)

    @read
    def kept(self, db: Db, about: str = "") -> tuple[StoredRetraining, ...]:
        """Return all results, or only those that were saved with this `about`, latest first."""
        query = "SELECT * FROM retrainings WHERE ? IN ('', about) ORDER BY id DESC"
        return records(db, StoredRetraining, query, [about])


def insert_probabilities(db: Db, model: int, rows: Iterable[tuple[str, NDArray[Any]]], time: str) -> None:
    """Add rows (SHA-256 of an image, probability of each class) of a classifier."""
    insert = "INSERT INTO probabilities (model, image, likeliest, numbers, created) VALUES (?, ?, ?, ?, ?)"
    db.conn.executemany(insert, ((model, image, *_packed(numbers), time) for image, numbers in rows))


def _packed(numbers: NDArray[Any]) -> tuple[bytes, bytes]:
    likeliest = np.full(TOP, NO_CLASS, "<u2")
    best = np.argsort(-numbers, kind="stable")[:TOP]
    likeliest[: len(best)] = best
    plain = numbers.astype("<f2").tobytes()
    packed = zlib.compress(plain, _FAST)
    # Keep a row uncompressed if compression saves little. Its length shows that it is not compressed.
    return likeliest.tobytes(), packed if len(packed) < _WORTH * len(plain) else plain


def _stored(row: Row) -> StoredModel:
    return record_of(StoredModel, row, identity=record_of(ModelIdentity, row))
