"""Batches of requests to a model: chooses their size and order, and judges each image. Independent of any pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import DrawnBatch
from pipeline.models.model_memory import with_room
from pipeline.seams import DrawnImage, DrawRequest

W = TypeVar("W")
R = TypeVar("R")


class AtOnce:
    """Limits how many requests a model takes at once. The limit is lowered for good if they do not fit in memory."""

    def __init__(self, most: int) -> None:
        self.most = most

    def each(
        self,
        requests: Sequence[W],
        work: Callable[[Sequence[W], int], Sequence[R]],
        free_others: Callable[[], bool],
    ) -> list[R]:
        """Return each request's result. `work` gets consecutive requests and the index of their first. If memory
        runs out, `free_others` is called to release models. If nothing was released, the number of requests per call
        is halved. Raises the error if memory runs out for a single request.
        """
        done: list[R] = []

        def work_on_next() -> Sequence[R]:
            return work(requests[len(done) : len(done) + self.most], len(done))

        def halve() -> bool:
            size = min(self.most, len(requests) - len(done))
            self.most = max(1, size // 2)
            return size > 1

        while len(done) < len(requests):
            done += with_room(work_on_next, free_others, halve)
        return done


def next_batch(
    todo: Sequence[tuple[int, DrawRequest]], size: int, as_asked: bool, length: Callable[[DrawRequest], int]
) -> tuple[list[tuple[int, DrawRequest]], list[int]]:
    """Choose at most `size` requests for the next batch, all with the `length` of the first request in `todo`. Return
    (index, request) pairs and the row of each in the batch: its `place` if `as_asked`, otherwise 0, 1, 2 and so on.
    """
    like_first = [pair for pair in todo if length(pair[1]) == length(todo[0][1])]
    if as_asked:
        taken = {one.place: (at, one) for at, one in reversed(like_first) if one.place < size}
        return [pair for _, pair in sorted(taken.items())], sorted(taken)
    part = like_first[:size]
    return part, list(range(len(part)))


def judged(image: Image.Image, flagged: bool | None, batch: DrawnBatch) -> DrawnImage:
    """Return the image, or an error if it is black or `flagged` by the safety checker (None without a checker)."""
    safe = None if flagged is None else not flagged
    refused = None
    if flagged:
        refused = UserError("The safety checker refused this image: try another seed, or change the caption.")
    elif image.convert("L").getextrema() == (0, 0):
        refused = UserError("The image came out black: try another seed, or set dtype to float32 in the profile.")
    return DrawnImage(image if refused is None else None, batch, safe, refused)


def shas(pictures: Sequence[Image.Image]) -> tuple[str, ...]:
    """Return the `image_sha` of each picture. An image object that occurs several times is hashed once."""
    known = {id(picture): picture for picture in pictures}
    by_id = {key: image_sha(picture) for key, picture in known.items()}
    return tuple(by_id[id(picture)] for picture in pictures)
