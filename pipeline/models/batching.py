"""Batches of requests to a model: their size, their order, and the result of each image. Knows no pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from PIL import Image

from core.errors import UserError, out_of_memory
from core.images import image_sha
from core.lineage import DrawnBatch
from pipeline.models.model_memory import give_back_memory
from pipeline.seams import DrawnImage, DrawRequest

W = TypeVar("W")
R = TypeVar("R")


class AtOnce:
    """Limits how many requests a model takes at once. The limit is lowered for good if they do not fit in memory."""

    def __init__(self, most: int) -> None:
        self.most = most

    def each(self, requests: Sequence[W], work: Callable[[Sequence[W], int], Sequence[R]]) -> list[R]:
        """Return the results of `work`, which gets one part at a time and the index of its first request. A part that
        does not fit in memory is halved until it does. Raises the error of a single request that does not fit.
        """
        done: list[R] = []
        while len(done) < len(requests):
            part = requests[len(done) : len(done) + self.most]
            try:
                results: Sequence[R] | None = work(part, len(done))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or len(part) == 1:
                    raise
                results = None
            if results is None:  # outside the handler, whose error keeps the failed part in memory
                self.most = len(part) // 2
                give_back_memory()
                continue
            done += results
        return done


def next_batch(
    todo: Sequence[tuple[int, DrawRequest]], size: int, as_asked: bool, length: Callable[[DrawRequest], int]
) -> tuple[list[tuple[int, DrawRequest]], list[int]]:
    """Return the requests to draw next, and their places in the batch. They are at most `size` requests whose prompts
    are as long as the first one's. If the batch has the requested size (`as_asked`), they get their requested places.
    """
    like_first = [pair for pair in todo if length(pair[1]) == length(todo[0][1])]
    if as_asked:
        taken = {one.place: (at, one) for at, one in reversed(like_first) if one.place < size}
        return [pair for _, pair in sorted(taken.items())], sorted(taken)
    part = like_first[:size]
    return part, list(range(len(part)))


def judged(image: Image.Image, flagged: bool | None, batch: DrawnBatch) -> DrawnImage:
    """Return the image, or the reason to refuse it. `flagged`: verdict of the safety checker, None without one."""
    safe = None if flagged is None else not flagged
    refused = None
    if flagged:
        refused = UserError("The safety checker refused this image: try another seed, or change the caption.")
    elif image.convert("L").getextrema() == (0, 0):
        refused = UserError("The image came out black: try another seed, or set dtype to float32 in the profile.")
    return DrawnImage(image if refused is None else None, batch, safe, refused)


def shas(pictures: Sequence[Image.Image]) -> tuple[str, ...]:
    """Return the `image_sha` of each picture. It is computed once for each object."""
    known = {id(picture): picture for picture in pictures}
    by_id = {key: image_sha(picture) for key, picture in known.items()}
    return tuple(by_id[id(picture)] for picture in pictures)
