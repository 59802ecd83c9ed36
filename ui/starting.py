"""Serves the annotators' pages and /healthz from the start of the program, and everything else once it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from ui.security.guard import Application, Receive, Scope, Send

AT_ONCE = ("/annotate", "/healthz")
"""Beginnings of the paths that are served while the studio is still starting."""


class Starting:
    """ASGI application that serves the paths of `AT_ONCE` while a thread builds the whole studio. Other requests wait
    until the studio is ready. If `make` fails, `failed` is called and `error` holds the exception.
    """

    def __init__(
        self, first: Application, make: Callable[[], FastAPI], failed: Callable[[], None], root_path: str = ""
    ) -> None:
        self.first, self.make, self.failed, self.root_path = first, make, failed, root_path
        self.whole: FastAPI | None = None
        self.error: BaseException | None = None
        self._made, self._over = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self.whole is None and scope["path"].removeprefix(self.root_path).startswith(AT_ONCE):
            await self.first(scope, receive, send)
        else:
            await self._made.wait()
            application = self.whole or PlainTextResponse("The studio could not start.", status_code=503)
            await application(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # the start of the server
        life = asyncio.create_task(self._whole_life())
        life.add_done_callback(self._ended)
        await send({"type": "lifespan.startup.complete"})
        await receive()  # the end of the server
        self._over.set()
        await asyncio.wait([life])
        await send({"type": "lifespan.shutdown.complete"})

    async def _whole_life(self) -> None:
        whole = await asyncio.to_thread(self.make)
        async with whole.router.lifespan_context(whole):
            self.whole = whole
            self._made.set()
            await self._over.wait()

    def _ended(self, life: asyncio.Task[None]) -> None:
        self.error = life.exception()
        self._made.set()
        if self.error is not None:
            self.failed()
