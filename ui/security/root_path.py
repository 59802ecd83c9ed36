"""Middleware for a studio that a proxy serves below a root path, such as /studio. It removes the root path from each
request, and adds the root path to redirects and cookies of replies. All routes, the guard and the limits use addresses
without the root path. `ui/addresses.py` adds the root path to addresses on pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, urlsplit, urlunsplit

from fastapi.requests import HTTPConnection
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from core.errors import UserError
from ui.addresses import in_browser, served_below
from ui.security.guard import Application, Message, Receive, Scope, Send

_COOKIE_PATH = re.compile(rb"(;\s*path=)/", re.IGNORECASE)


class BelowRootPath:
    """ASGI middleware around all others. `root_path` is "" or like "/a/b". The proxy may pass it on or remove it."""

    def __init__(self, app: Application, root_path: str) -> None:
        self.app, self.root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with served_below(self.root_path):
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
                return
            connection = HTTPConnection(scope)
            answer = self._answer(connection)
            if answer is not None and scope["type"] == "http":
                await answer(scope, receive, send)
                return
            if self.root_path:
                scope, send = self._without(scope), self._putting_back(connection.headers.get("host", ""), send)
            await self.app(scope, receive, send)

    def _answer(self, connection: HTTPConnection) -> Response | None:
        """Return a refusal if the proxy has another root path, a redirect if only the last "/" is missing, or None."""
        path = "".join(part.strip().rstrip("/") for part in connection.headers.get("x-forwarded-prefix", "").split(","))
        if path and path != self.root_path:
            here = f"with --root-path {self.root_path}" if self.root_path else "without a path"
            words = f"A proxy serves the studio below {path}, but it was started {here}: start it with --root-path"
            return PlainTextResponse(f"{words} {path}.", status_code=400)
        if self.root_path and connection.scope["path"] == self.root_path:
            return RedirectResponse(f"{self.root_path}/", status_code=307)
        return None

    def _without(self, scope: Scope) -> Scope:
        path = scope["path"]
        if not path.startswith(f"{self.root_path}/"):
            return scope
        path = path.removeprefix(self.root_path)
        return {**scope, "path": path, "raw_path": quote(path).encode("ascii")}

    def _putting_back(self, host: str, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                changed = [(name, self._header(name.lower(), value, host)) for name, value in headers]
                message = {**message, "headers": changed}
            await send(message)

        return sending

    def _header(self, name: bytes, value: bytes, host: str) -> bytes:
        if name == b"set-cookie":
            return _COOKIE_PATH.sub(rb"\1" + self.root_path.encode("ascii") + b"/", value)
        if name == b"location":
            scheme, place, *rest = urlsplit(value.decode("latin-1"))
            here = scheme in ("http", "https") and place == host  # some redirects have the whole address
            return in_browser(urlunsplit(("", "", *rest)) if here else value.decode("latin-1")).encode("latin-1")
        return value


def refuse_own_address(root_path: str, routes: Iterable[object]) -> None:
    """Raise UserError if the studio has pages of its own below `root_path`. With the root path /study, for example, the
    address /study/new could mean two pages: the studio's page /study/new, or its page /new below the root path.
    """
    first = root_path.split("/")[1] if root_path else ""
    if first and first in set(_first_segments(routes)):
        raise UserError(f"The studio has pages of its own below /{first}: give another --root-path.")


def _first_segments(routes: Iterable[object]) -> Iterator[str]:
    for route in routes:
        path = getattr(route, "path", "")
        if path.strip("/"):
            yield path.split("/")[1]
        else:  # mounted at "/"
            yield from _first_segments(getattr(route, "routes", None) or ())
