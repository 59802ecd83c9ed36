"""Gathers the requests of several threads, so that a model which takes several at once is asked once for all of them.

There is no timer: a model is asked as soon as every thread that is still at work waits for a reply. Knows no stage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pipeline.errors import Cancelled, UserError
from pipeline.seams import (
    BatchCaptioner,
    BatchLanguageModel,
    Captioner,
    CaptionRequest,
    LanguageModel,
    LanguageRequest,
    Models,
)
from pipeline.settings import CaptionSettings, LanguageSettings
from pipeline.types import Task

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")


class _Gathering(Generic[A, R]):
    """Gathers what threads ask, and asks the model when all of them wait: then nobody is left who could ask more."""

    def __init__(self, ask: Callable[[Sequence[A]], Sequence[R]]) -> None:
        """`ask` replies to each in order. It is called in one of the threads that wait."""
        self._ask, self._turn = ask, threading.Condition()
        self._threads, self._waiting = 0, list[_Waiting[A, R]]()

    def begin(self, threads: int) -> None:
        """So many threads may ask from now on."""
        with self._turn:
            self._threads += threads

    def leave(self) -> None:
        """This thread asks for nothing more."""
        with self._turn:
            self._threads -= 1
            self._turn.notify_all()

    def ask(self, wanted: Sequence[A]) -> Sequence[R]:
        """The replies in order. Raises what the model raises at these requests, or Cancelled, which everybody gets."""
        mine = _Waiting[A, R](wanted)
        with self._turn:
            self._waiting.append(mine)
            while mine.replies is None and mine.error is None:
                if len(self._waiting) == self._threads:
                    self._answer_all()
                    self._turn.notify_all()
                else:
                    self._turn.wait()
        if mine.replies is None:
            assert mine.error is not None
            raise mine.error
        return mine.replies

    def _answer_all(self) -> None:
        gathered, self._waiting = self._waiting, []
        try:
            self._answer(gathered)
        except Cancelled as error:
            for each in gathered:
                each.error = error
        except Exception as error:  # noqa: BLE001 - carried to the thread that asked, whatever it is
            if len(gathered) == 1:
                gathered[0].error = error
                return
            for each in gathered:  # so that only those fail at whose requests it was raised
                try:
                    self._answer([each])
                except Exception as own:  # noqa: BLE001 - as above
                    each.error = own

    def _answer(self, gathered: Sequence[_Waiting[A, R]]) -> None:
        replies = iter(self._ask([one for each in gathered for one in each.wanted]))
        for each in gathered:
            each.replies = [next(replies) for _ in each.wanted]


@dataclass
class _Waiting(Generic[A, R]):
    """What one thread asked."""

    wanted: Sequence[A]
    replies: Sequence[R] | None = None
    error: Exception | None = None


class ModelsTogether:
    """The models of a driver for several threads, whose requests of one model are gathered where it takes several."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._captions = _Gathering[tuple[CaptionSettings, CaptionRequest], tuple[str, str]](self._say)
        self._replies = _Gathering[tuple[LanguageSettings, LanguageRequest], str | UserError](self._reply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    def begin(self, threads: int) -> None:
        """So many threads use them."""
        self._captions.begin(threads)
        self._replies.begin(threads)

    def leave(self) -> None:
        """This thread does not any more."""
        self._captions.leave()
        self._replies.leave()

    @property
    def captioner(self) -> Captioner:
        real = self._models.captioner
        return _CaptionerTogether(real.name, self._captions) if isinstance(real, BatchCaptioner) else real

    @property
    def language(self) -> LanguageModel:
        real = self._models.language
        return _LanguageTogether(real.name, self._replies) if isinstance(real, BatchLanguageModel) else real

    def _say(self, asked: Sequence[tuple[CaptionSettings, CaptionRequest]]) -> Sequence[tuple[str, str]]:
        captioner: Any = self._models.captioner
        return _by_key(asked, lambda settings: settings, captioner.caption_many)

    def _reply(self, asked: Sequence[tuple[LanguageSettings, LanguageRequest]]) -> Sequence[str | UserError]:
        language: Any = self._models.language

        def ask(requests: Sequence[LanguageRequest], settings: LanguageSettings) -> Sequence[str | UserError]:
            found: Sequence[str | UserError] = language.complete_many(requests, settings, lambda _done: None)
            return found

        return _by_key(asked, lambda one: (one.temperature, one.top_p, one.max_new_tokens), ask)


def _by_key(
    asked: Sequence[tuple[S, A]], key: Callable[[S], object], ask: Callable[[Sequence[A], S], Sequence[R]]
) -> list[R]:
    """The replies to requests in order, of which those are asked together whose settings have the same key."""
    groups: list[tuple[object, list[int]]] = []
    for at, (settings, _) in enumerate(asked):
        own = key(settings)
        places = next((places for other, places in groups if other == own), None)
        if places is None:
            groups.append((own, places := []))
        places.append(at)
    found = dict[int, R]()
    for _, places in groups:
        found.update(zip(places, ask([asked[at][1] for at in places], asked[places[0]][0]), strict=True))
    return [found[at] for at in range(len(asked))]


@dataclass(frozen=True)
class _CaptionerTogether:
    name: str
    gathering: _Gathering[tuple[CaptionSettings, CaptionRequest], tuple[str, str]]

    def caption(self, image: Any, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        (said,) = self.gathering.ask([(settings, CaptionRequest(image, task, seed))])
        return said


@dataclass(frozen=True)
class _LanguageTogether:
    name: str
    gathering: _Gathering[tuple[LanguageSettings, LanguageRequest], str | UserError]

    def complete(
        self, prompt: str, settings: LanguageSettings, seed: int, stop: Sequence[str] = (), schema: Any = None
    ) -> str:
        (reply,) = self.gathering.ask([(settings, LanguageRequest(prompt, seed, tuple(stop), schema))])
        if isinstance(reply, UserError):
            raise reply
        return reply

    def complete_many(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> Sequence[str | UserError]:
        replies = self.gathering.ask([(settings, request) for request in requests])
        on_reply(len(replies))
        return replies
