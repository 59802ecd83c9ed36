"""Gradio's queue of calls, polled less often. Gradio polls 1,000 times a second, a fiftieth of a core for nothing."""

from __future__ import annotations

import time
from typing import Any

from gradio.queueing import Queue

AWAKE_SECONDS = 10.0
"""Seconds of frequent polling after a call, since more calls are likely."""
AWAKE, ASLEEP = 0.001, 0.1
"""Seconds between two looks. The first caller waits half of the latter on average."""


class SleepyQueue(Queue):
    """Polls seldom while nobody calls. It converts an existing queue, since Gradio makes its own."""

    _called = -AWAKE_SECONDS

    @classmethod
    def made_of(cls, queue: Queue) -> None:
        """Convert a queue into a `SleepyQueue`."""
        del queue.sleep_when_free
        queue.progress_update_sleep_when_free = ASLEEP  # nothing here reports progress to Gradio
        queue.__class__ = cls

    @property
    def sleep_when_free(self) -> float:  # type: ignore[override]
        return AWAKE if time.monotonic() < self._called + AWAKE_SECONDS else ASLEEP

    async def push(self, *arguments: Any, **named: Any) -> Any:
        self._called = time.monotonic()
        return await super().push(*arguments, **named)
