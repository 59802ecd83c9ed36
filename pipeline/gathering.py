"""Gathers requests of several threads into one call of a model, as soon as all working threads wait for replies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from PIL import Image

from core.errors import Cancelled, UserError
from core.settings import CaptionSettings, LanguageSettings
from core.types import Task
from pipeline.seams import (
    BatchCaptioner,
    BatchLanguageModel,
    Captioner,
    CaptionRequest,
    LanguageModel,
    LanguageRequest,
    Models,
)

S = TypeVar("S")

_STOPPED = "Stopped. What was finished is kept."
Ask = Callable[[Sequence[Any]], Sequence[Any]]
"""Function that returns the replies to some requests, in order."""


@dataclass(frozen=True)
class _Waiting:
    number: int
    kind: str
    requests: Sequence[Any]
    replies: Future[Sequence[Any]]


class Gathering:
    """Collects the requests of several threads and answers them in the thread that calls `serve`."""

    def __init__(self, threads: int, asks: Mapping[str, Ask]) -> None:
        """`threads` is the number of working threads. `asks` has, by kind of request, the function that answers it."""
        self._asks, self._threads = asks, threads
        self._arrived = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._here, self._open = threading.local(), True

    @contextmanager
    def working(self) -> Iterator[None]:
        """Enclose all the work of a thread in a `with` block. After it, the thread no longer counts as working."""
        try:
            yield
        finally:
            with self._arrived:
                self._threads -= 1
                self._arrived.notify()

    def at(self, number: int) -> None:
        """Set a number for this thread. Requests of several threads are answered in the order of these numbers."""
        self._here.number = number

    def ask(self, kind: str, requests: Sequence[Any]) -> Sequence[Any]:
        """Send requests of a kind and return their replies, in order. Raises the model's errors, or Cancelled."""
        mine = _Waiting(getattr(self._here, "number", 0), kind, requests, Future())
        with self._arrived:
            if not self._open:
                raise Cancelled(_STOPPED)
            self._waiting.append(mine)
            self._arrived.notify()
        return mine.replies.result()

    def serve(self) -> None:
        """Answer requests until all threads have left. The models run in this thread."""
        gathered = list[_Waiting]()
        try:
            while True:
                with self._arrived:
                    self._arrived.wait_for(lambda: len(self._waiting) >= self._threads)
                    if not self._threads:
                        return
                    gathered, self._waiting = sorted(self._waiting, key=lambda one: one.number), []
                for kind in dict.fromkeys(one.kind for one in gathered):
                    self._answer(kind, [one for one in gathered if one.kind == kind])
        finally:
            with self._arrived:
                self._open = False
                for one in (*gathered, *self._waiting):
                    if not one.replies.done():
                        one.replies.set_exception(Cancelled(_STOPPED))

    def _answer(self, kind: str, gathered: Sequence[_Waiting]) -> None:
        try:
            replies = iter(self._asks[kind]([one for each in gathered for one in each.requests]))
            parts = [[next(replies) for _ in each.requests] for each in gathered]
        except Exception as error:  # noqa: BLE001 - every error is raised in the requesting thread
            if len(gathered) > 1 and not isinstance(error, Cancelled):
                for each in gathered:  # one by one, so that an error reaches only the request that causes it
                    self._answer(kind, [each])
                return
            for each in gathered:
                each.replies.set_exception(error)
        else:
            for each, part in zip(gathered, parts, strict=True):
                each.replies.set_result(part)


CAPTIONS, REPLIES = "captions", "replies"


class ModelsTogether:
    """The models of a driver that runs in several threads. Gathers requests to a model that takes several at once."""

    def __init__(self, models: Models, threads: int) -> None:
        self._models = models
        self.gathering = Gathering(threads, {CAPTIONS: self._say, REPLIES: self._reply})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    @property
    def captioner(self) -> Captioner:
        real = self._models.captioner
        return _CaptionerTogether(real.name, self.gathering) if isinstance(real, BatchCaptioner) else real

    @property
    def language(self) -> LanguageModel:
        real = self._models.language
        return _LanguageTogether(real.name, self.gathering) if isinstance(real, BatchLanguageModel) else real

    def _say(self, gathered: Sequence[tuple[CaptionSettings, CaptionRequest]]) -> Sequence[tuple[str, str] | UserError]:
        captioner = cast(BatchCaptioner, self._models.captioner)
        return _by_key(gathered, lambda settings: settings, captioner.caption_many)

    def _reply(self, gathered: Sequence[tuple[LanguageSettings, LanguageRequest]]) -> Sequence[str | UserError]:
        language = cast(BatchLanguageModel, self._models.language)

        def ask(requests: Sequence[LanguageRequest], settings: LanguageSettings) -> Sequence[str | UserError]:
            return language.complete_many(requests, settings, lambda _done: None)

        return _by_key(gathered, lambda one: (one.temperature, one.top_p, one.max_new_tokens), ask)


def _by_key(
    gathered: Sequence[tuple[S, Any]], key: Callable[[S], Hashable], ask: Callable[[Sequence[Any], S], Sequence[Any]]
) -> list[Any]:
    """Return the replies to pairs of settings and request. Pairs whose settings have the same `key` share a call."""
    groups, replies = dict[Hashable, list[int]](), dict[int, Any]()
    for at, (settings, _) in enumerate(gathered):
        groups.setdefault(key(settings), []).append(at)
    for places in groups.values():
        replies.update(zip(places, ask([gathered[at][1] for at in places], gathered[places[0]][0]), strict=True))
    return [replies[at] for at in range(len(gathered))]


@dataclass
class _CaptionerTogether:
    name: str
    gathering: Gathering

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        (reply,) = self.gathering.ask(CAPTIONS, [(settings, CaptionRequest(image, task, seed))])
        if isinstance(reply, UserError):
            raise reply
        caption, prompt = reply
        return caption, prompt


@dataclass
class _LanguageTogether:
    name: str
    gathering: Gathering

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        (reply,) = self.complete_many([request], settings, lambda _done: None)
        if isinstance(reply, UserError):
            raise reply
        return reply

    def complete_many(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> Sequence[str | UserError]:
        replies = self.gathering.ask(REPLIES, [(settings, request) for request in requests])
        on_reply(len(replies))
        return replies
