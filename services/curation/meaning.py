"""Search by image content: images are embedded in the background, and found by a text, by another image, or by a user's
picture.

The profile's embedder computes the vectors. The worker thread of the jobs runs it while no job waits, in batches, the
newest images first. The embedder is loaded at the first image or search.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from core.errors import UserError
from core.image_filter import ImageFilter
from core.latest import Latest
from core.test_sets import ImageHashes
from pipeline.models.nearest import Floats, nearest
from pipeline.models.weight_hashes import embedder_key
from pipeline.profiles.profile import Profile
from pipeline.seams import BatchEmbedder, Models
from services.commands import does
from services.edit_conflicts import Id
from services.jobs import JobQueue
from services.queries import MOST_LISTED, ImageQuery, Plain, entry_facts
from services.test_sets.hashes import hashes_in
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits, Numbers
from storage.curation.vectors import VectorTable
from storage.workspace import Workspace

DOING = "looking at images"
BATCH_SECONDS = 0.5
"""Target duration of a batch in seconds. A person's job may have to wait for one batch."""
LARGEST_BATCH = 256
MOST_FOUND = 2000
"""Maximum number of results of a search. Further results would have little to do with the target."""
REMEMBERED = 256
"""Maximum number of texts and pictures whose vectors are cached."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Picture:
    """A picture stored in the workspace, such as a user's picture to search with. `sha` is the picture's SHA-256."""

    sha: str


Wanted = str | int | Picture
"""Target of a search: a text, the id of an entry of the catalogue, or a user's picture."""


@dataclass(frozen=True)
class Filling:
    """Progress of embedding."""

    done: int
    total: int
    working: bool = False
    """True if embedding is in progress: the worker thread embeds images whenever it is idle."""
    unreadable: int = 0
    """Number of images whose files are missing or damaged. They are skipped until the studio restarts."""
    problem: str = ""
    """One sentence about why embedding stopped; "" if it did not."""

    @property
    def words(self) -> str:
        """Return the progress in words: "12,000 of 125,000"."""
        return f"{self.done:,} of {self.total:,}"


@dataclass(frozen=True)
class Found:
    """Images sorted by similarity to the target."""

    entries: tuple[int, ...]
    similarities: tuple[float, ...]
    """Cosines, from -1 to 1, falling. For a text they are usually lower than for an image."""
    searched: int
    """Number of images compared."""
    waiting: int
    """Number of allowed images that are not embedded yet."""


class Meaning:
    """The vectors of the images of one workspace. All methods may be called from any thread."""

    def __init__(self, profile: Profile, models: Models, workspace: Workspace, jobs: JobQueue) -> None:
        self._section, self._models, self._workspace, self._jobs = profile.embedder, models, workspace, jobs
        self._wanted = Latest[Floats](REMEMBERED)
        self._lock = threading.Lock()
        self._lined_up = False
        self._problem = ""
        self._batch = 4
        self._left_out: set[int] = set()
        self._to_hash: dict[str, None] = {}
        self._unreadable: set[str] = set()

    @property
    def embedder(self) -> str:
        """Return the key under which the vectors of the profile's embedder are stored."""
        return embedder_key(self._section)

    @property
    def title(self) -> str:
        """Return the name of the embedder for people."""
        return self._section.title

    def table(self) -> VectorTable:
        """Return the stored vectors of the catalogue's entries."""
        return self._workspace.vectors.of(self.embedder)

    def vectors_of(self, entries: Numbers) -> NDArray[np.float64]:
        """Return the vectors of entries, shape (entries, dimensions); NaN for each missing vector."""
        return _rows(self.table(), entries)

    def placed(self, targets: Sequence[str | Picture]) -> NDArray[np.float64]:
        """Return the stored vectors of texts, and of pictures that are not entries of the catalogue, such as sources.
        Shape (targets, dimensions); NaN for each missing vector. These vectors are stored apart from those of entries.
        """
        keys = np.array([_key(one) for one in targets], np.int64)
        return _rows(self._workspace.vectors.of(f"{self.embedder} (beside)"), keys)

    def place(self, targets: Sequence[str | Picture]) -> None:
        """Compute and store the vectors of texts and pictures, which `placed` then returns. Unreadable pictures are
        skipped.

        Raises UserError if the embedder cannot be loaded.
        """
        texts, embedder, images = [one for one in targets if isinstance(one, str)], self._models.embedder, {}
        read = embedder.texts(texts) if isinstance(embedder, BatchEmbedder) and texts else map(embedder.text, texts)
        for one in (one for one in targets if isinstance(one, Picture)):
            try:
                images[one] = self._workspace.images.load(one.sha).convert("RGB")
            except (UserError, OSError, ValueError):
                log.exception("the image %s cannot be embedded", one.sha)
        keys, vectors = [*map(_key, texts), *map(_key, images)], [*read, *self._vectors(list(images.values()))]
        if keys:
            self._workspace.vectors.add(f"{self.embedder} (beside)", keys, np.array(vectors, np.float32))

    # Embedding

    def begin(self) -> None:
        """Begin to embed, in the background, all images that have no vector. A call while this is in progress changes
        nothing. A call after a failure tries again.
        """
        with self._lock:
            self._problem = ""
            if self._lined_up or self._jobs.closing:
                return
            self._lined_up = True
        self._jobs.when_idle(DOING, self._fill)

    def hash_later(self, images: Iterable[str]) -> int:
        """Queue images (SHA-256) to get perceptual hashes while no job runs. Return how many are unreadable."""
        to_hash = set(images)
        with self._lock:
            unreadable = to_hash & self._unreadable
            self._to_hash |= dict.fromkeys(sorted(to_hash - unreadable))
        if to_hash - unreadable:
            self.begin()
        return len(unreadable)

    def filling(self) -> Filling:
        """Return the progress of embedding. Takes milliseconds."""
        all_entries = self._workspace.catalogue.bits()
        missing = entry_sets.size(self._missing(all_entries))
        total = entry_sets.size(all_entries)
        with self._lock:
            return Filling(total - missing, total, self._lined_up, len(self._left_out), self._problem)

    def _missing(self, there: Bits) -> Bits:
        return there & ~entry_sets.of_entries(self.table().entries, len(there) // entry_sets.BYTES)

    def _fill(self) -> None:
        more = False
        try:
            more = self._hash_some() or self._embed_next()
        except UserError as error:
            with self._lock:
                self._problem = str(error)
        except Exception as error:  # a model may fail in any way: the page reports it and continues working
            log.exception("images cannot be embedded")
            with self._lock:
                self._problem = f"The embedder failed ({type(error).__name__}); the terminal says more."
        finally:
            with self._lock:
                self._lined_up = more = (more or bool(self._to_hash)) and not self._jobs.closing
        if more:
            self._jobs.when_idle(DOING, self._fill)

    def _hash_some(self) -> bool:
        began, hashes = time.monotonic(), dict[str, ImageHashes]()
        with self._lock:
            waiting = list(self._to_hash)
        for sha in waiting:
            if self._jobs.closing or time.monotonic() - began > BATCH_SECONDS:
                break
            try:
                hashes[sha] = hashes_in(self._workspace.images.load(sha))
            except (UserError, OSError, ValueError):
                log.exception("the image %s cannot be compared", sha)
                with self._lock:
                    self._unreadable.add(sha)
            with self._lock:
                self._to_hash.pop(sha, None)
        if hashes:
            self._workspace.test_sets.keep_hashes(hashes)
        return bool(waiting)

    def _embed_next(self) -> bool:
        """Embed the next images. Return True if more may remain. Raises UserError if the embedder cannot be loaded."""
        missing = entry_sets.entries_of(self._missing(self._workspace.catalogue.bits()))
        if self._left_out:
            missing = missing[~np.isin(missing, list(self._left_out))]
        if not len(missing):
            return False
        _ = self._models.embedder  # loads the embedder now, since loading must not count as time of the batch
        began = time.monotonic()
        batch = missing[: -self._batch - 1 : -1]
        self.embed(batch.tolist())
        seconds = (time.monotonic() - began) / len(batch)
        self._batch = min(max(int(BATCH_SECONDS / max(seconds, 1e-6)), 1), LARGEST_BATCH, 2 * self._batch)
        return len(missing) > len(batch)

    def embed(self, entries: Sequence[int]) -> None:
        """Embed these entries and store their vectors. Entries without a readable image are skipped from now on."""
        shas = self._workspace.vectors.images_of(entries)
        images: dict[str, Image.Image] = {}
        hashed, hashes = self._workspace.test_sets.hashes(shas.values()), dict[str, ImageHashes]()
        for entry, sha in shas.items():
            if self._jobs.closing:
                return
            try:
                if sha not in images:
                    picture = self._workspace.images.load(sha)
                    images[sha] = picture.convert("RGB")
                    if sha not in hashed:  # hash the decoded image now, for a later search for near-duplicates
                        hashes[sha] = hashes_in(picture)
            except (UserError, OSError, ValueError):
                log.exception("the image of entry %s cannot be embedded", entry)
                with self._lock:
                    self._left_out.add(entry)
        self._workspace.test_sets.keep_hashes(hashes)
        vectors = dict(zip(images, self._vectors(list(images.values())), strict=True))
        vector_of = {entry: vectors[sha] for entry, sha in shas.items() if sha in vectors}
        if vector_of:
            self._workspace.vectors.add(self.embedder, list(vector_of), np.array(list(vector_of.values()), np.float32))

    def _vectors(self, images: list[Image.Image]) -> list[list[float]]:
        embedder = self._models.embedder
        if isinstance(embedder, BatchEmbedder):
            return [list(vector) for vector in embedder.images(images)] if images else []
        return [list(embedder.image(image)) for image in images]

    # Looking for images

    @does("search-images", ImageQuery)
    def search(
        self,
        filter: ImageFilter,
        meaning: Annotated[
            str, Field(max_length=400, description="Description of the images, such as “a red bird in the snow”")
        ] = "",
        like: Annotated[Id, Field(description="The entry of the catalogue that the images should resemble")] = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="Maximum number of test cases")] = 50,
    ) -> Plain:
        """Find test cases that match a text, or that look like a given test case, the most similar first."""
        if bool(meaning.strip()) == bool(like):
            raise UserError("Describe the images, or name one that they should look like.", field="meaning")
        target = meaning if meaning.strip() else like
        ranked = self.ranked(target, self._workspace.catalogue.bits(filter), limit)
        listed = self._workspace.catalogue.listed(ranked.entries)
        rows = [
            {**entry_facts(entry), "similarity": round(similarity, 4)}
            for entry, similarity in zip(listed, ranked.similarities, strict=True)
        ]
        return {"test_cases": rows, "searched": ranked.searched, "waiting": ranked.waiting}

    def ranked(self, target: Wanted, allowed: Bits, most: int = MOST_FOUND) -> Found:
        """Return the `allowed` entries most similar to the target, at most `most`. A target entry is not its own
        result. Images that are not embedded yet are left out, and begin to be embedded.

        Raises UserError for a text without a letter or digit, for a missing entry or picture, and if the embedder
        cannot be loaded.
        """
        vector = self.vector_of(target)
        table = self.table()
        inside = entry_sets.has(allowed, table.entries)
        if isinstance(target, int):
            inside &= table.entries != target
        searched, total = int(np.count_nonzero(inside)), entry_sets.size(allowed)
        waiting = total - searched - (isinstance(target, int) and bool(entry_sets.has(allowed, np.array([target]))[0]))
        if waiting > 0:
            self.begin()
        if not searched:
            return Found((), (), 0, max(waiting, 0))
        rows, figures = nearest(table.rows, vector, most, inside)
        entries = table.entries[rows]
        return Found(tuple(entries.tolist()), tuple(figures.tolist()), searched, max(waiting, 0))

    def vector_of(self, target: Wanted) -> Floats:
        """Return the vector of a target, scaled to length 1. Vectors of texts and pictures are cached."""
        if isinstance(target, str):
            text = " ".join(target.split())
            if not any(map(str.isalnum, text)):
                raise UserError("Describe in words what the images should show.", field="meaning")
            return self._wanted.once((self.embedder, text), lambda: _unit(self._models.embedder.text(text)))
        if isinstance(target, Picture):
            return self._wanted.once((self.embedder, target), lambda: self._picture_vector(target.sha))
        table = self.table()
        row = table.row_of(target)
        if row is None:
            sha = self._workspace.vectors.images_of([target]).get(target)
            if sha is None:
                raise UserError(
                    f"The catalogue has no image {target}: choose an image that the gallery lists.", field="like"
                )
            return _unit(self._vectors([self._workspace.images.load(sha).convert("RGB")])[0])
        return _unit(table.rows[row])

    def _picture_vector(self, sha: str) -> Floats:
        if sha not in self._workspace.images.sizes([sha]):
            raise UserError("The picture of this filter is not in this workspace: choose it again.", field="filter")
        return _unit(self._vectors([self._workspace.images.load(sha).convert("RGB")])[0])


def _key(target: str | Picture) -> int:
    """Return the number under which the vector of a text or a picture is stored."""
    sha = target.sha if isinstance(target, Picture) else hashlib.sha256(target.encode()).hexdigest()
    return int(sha[:15], 16)


def _rows(table: VectorTable, keys: Numbers) -> NDArray[np.float64]:
    """Return the vectors stored under these numbers, shape (keys, dimensions); NaN for each missing vector."""
    rows = np.full((len(keys), table.rows.shape[1]), np.nan)
    if len(table.entries):
        order = np.argsort(table.entries)
        at = order[np.minimum(np.searchsorted(table.entries, keys, sorter=order), len(order) - 1)]
        is_stored = table.entries[at] == keys
        rows[is_stored] = table.rows[at[is_stored]]
    return rows


def _unit(vector: object) -> Floats:
    array = np.asarray(vector, np.float32)
    unit: Floats = array / np.linalg.norm(array)
    return unit
