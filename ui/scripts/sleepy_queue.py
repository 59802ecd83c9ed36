"""Gradio’s queue of calls. It looks a thousand times a second for one that waits: a fiftieth of a core for nothing."""

from __future__ import annotations

import time
from typing import Any

from gradio.queueing import Queue

AWAKE_SECONDS = 10.0
"""After a call it looks as often as Gradio's does: more calls are likely."""
AWAKE, ASLEEP = 0.001, 0.1
"""Seconds between two looks. Who calls first waits for half of the latter, on the average."""


class SleepyQueue(Queue):
    """Looks seldom while nobody calls. Made of a queue that is there already, since Gradio makes its own."""

    _called = -AWAKE_SECONDS

    @classmethod
    def made_of(cls, queue: Queue) -> None:
        """Turn a queue into this one."""
        del queue.sleep_when_free
        queue.progress_update_sleep_when_free = ASLEEP  # nothing here tells Gradio of its progress
        queue.__class__ = cls

    @property
    def sleep_when_free(self) -> float:  # type: ignore[override]
        return AWAKE if time.monotonic() < self._called + AWAKE_SECONDS else ASLEEP

    async def push(self, *given: Any, **named: Any) -> Any:
        self._called = time.monotonic()
        return await super().push(*given, **named)
