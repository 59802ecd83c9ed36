"""Measure how similar a keyword is to the alternative words that a person typed for it. Cache the results.

An edit is saved and shown at once, without waiting for a model. Its similarity is measured later, when no job waits.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from core.types import Alternative, Alternatives, EditType, KeywordAlternatives, Task
from pipeline.checks.similarity import similarities
from pipeline.seams import Models
from services.jobs import JobQueue

_Asked = tuple[str, str, EditType, Task]
"""Text of an alternative, its keyword, edit type and task."""


class Similarities:
    """Measures and caches similarities. All methods may be called from any thread."""

    def __init__(self, models: Models, jobs: JobQueue) -> None:
        self._models, self._jobs = models, jobs
        self._known: dict[_Asked, tuple[float, str] | None] = {}
        self._waiting: set[_Asked] = set()
        self._lock = threading.Lock()
        self.measured = 0
        """Number of times that similarities were measured. A page with an earlier number should read again."""

    @property
    def waiting(self) -> bool:
        """Return True while similarities are waiting to be measured."""
        with self._lock:
            return bool(self._waiting)

    def filled(self, value: Alternatives, task: Task) -> Alternatives:
        """Return the alternatives with the similarities measured so far, and request the missing ones."""

        def asked(item: KeywordAlternatives, option: Alternative) -> _Asked:
            return option.text, item.keyword, item.edit_type, task

        unmeasured = [asked(item, one) for item in value.items for one in item.options if one.similarity is None]
        if not unmeasured:
            return value
        with self._lock:
            new = [one for one in unmeasured if one not in self._known and one not in self._waiting]
            self._waiting.update(new)
            known = {one: self._known.get(one) for one in unmeasured}
        if new:
            self._jobs.when_idle("comparing words", lambda: self._measure(new))

        def measured(item: KeywordAlternatives, option: Alternative) -> Alternative:
            found = known.get(asked(item, option)) if option.similarity is None else None
            return option if found is None else replace(option, similarity=found[0], like=found[1])

        items = (replace(item, options=tuple(measured(item, one) for one in item.options)) for item in value.items)
        return Alternatives(tuple(items))

    def _measure(self, unmeasured: list[_Asked]) -> None:
        measured: dict[_Asked, tuple[float, str] | None] = dict.fromkeys(unmeasured)
        try:
            sentences = self._models.sentences
            for one in unmeasured:
                text, keyword, edit_type, task = one
                measured[one] = similarities([text], keyword, edit_type, task, sentences)[0]
        finally:  # a similarity that cannot be measured is not requested again
            with self._lock:
                self._known.update(measured)
                self._waiting.difference_update(unmeasured)
                self.measured += 1
