"""Access control for every request, including Gradio's queue, uploads and files. The default is to refuse.

The sign-in, /healthz and everything below /annotate/, which has a sign-in of its own, are open to all. Once a password
is set, everything else needs the session of a lead. A token gives access to the endpoints for scripts, which decide
what the token may do. Without a password, the studio serves this machine only. The Host header of a request must then
name this machine. Otherwise a web page could use the studio under a name of its own that points here (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import logging
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextvars import ContextVar
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi.concurrency import run_in_threadpool
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from core.errors import DiskTrouble
from core.tokens import MARK, Token
from services.sign_in import LeadSignIn

# Types of ASGI (https://asgi.readthedocs.io/en/latest/specs/main.html).
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SIGNED_IN: ContextVar[bool] = ContextVar("signed_in", default=False)
"""True while the studio answers a person who has signed in with the lead's password. Pages then offer to sign out."""
COOKIE = "lead"
"""Name of the cookie with the token of a lead's session."""
ANNOTATE = "/annotate/"
log = logging.getLogger(__name__)
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_LOOKS = ("GET", "HEAD")
_UNLOGGED = frozenset({("/", 303), ("/favicon.ico", 401), ("/annotate", 307), ("/gradio_api/mcp/", 405)})
"""Path and status of refusals that are not logged, because browsers and agents cause them in normal use."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

# Pages load nothing from other servers. Gradio's scripts need every entry of this policy.
_POLICY = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
)
_GRADIO = "'unsafe-inline' 'unsafe-eval' blob:"
_ENDPOINTS = re.compile(
    r"/(config|healthz|metrics|gradio_api/(info|openapi\.json|app_id|startup-events|cancel|reset|upload|upload_progress"
    r"|(run|api|call|queue|heartbeat|mcp)(/.*)?|file=.*))/?",
    re.DOTALL,
)
"""Paths that a script may request with a token. The endpoints decide what the token allows."""
_CLOSED = re.compile(
    r"/(monitoring|gradio_api/(proxy=|file=\W*https?:|file/|deep_link|dev/|process_recording|profiling|runs\b"
    r"|run-history|vibe))",
    re.IGNORECASE,
)
"""Paths of Gradio that the studio does not need. Some of them make this server fetch from other servers."""
_UPLOAD = "/gradio_api/upload"
MCP = "/gradio_api/mcp"
"""Path to which agents send their requests. All paths below it are refused, although Gradio would serve them."""
_NO_TOKEN = "Unknown, expired or withdrawn token: ask the lead for another one."
_OF_GRADIO = "/"
"""Path of the only page made by Gradio, which needs inline scripts. All other pages run our scripts only."""
_HEADERS = (
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers that are added to every reply that lacks them."""


class Guard:
    """ASGI middleware around the whole application.

    `lead` knows sessions and tokens. `locked` is True if a password is set. `assets` are the files of the sign-in page
    (below /sign-in/), `host` is a name of this machine besides localhost, and `inline` are the scripts in our pages.
    """

    def __init__(
        self, app: Application, lead: LeadSignIn, locked: bool, host: str, assets: Iterable[str], inline: Iterable[str]
    ) -> None:
        self.app, self._lead, self._locked, self._host = app, lead, locked, host.lower().strip("[]")
        known = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in inline)
        self._policy = {own: _POLICY.format(scripts=known if own else _GRADIO).encode() for own in (True, False)}
        looks = {"/healthz", SIGN_IN, *(f"{SIGN_IN}/{name}" for name in assets)}
        self._open = {(method, path) for path in looks for method in _LOOKS} | {("POST", SIGN_IN), ("POST", SIGN_OUT)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)  # raises for types other than "http" and "websocket"
        # Annotators are many and never act as a lead, so their sessions are not looked up here.
        lead, token, shown = False, None, _shown(connection)
        try:
            lead = not scope["path"].startswith(ANNOTATE) and self._is_lead(connection)
            token = self._lead.script(shown) if shown else None
        except DiskTrouble as error:  # sessions and tokens cannot be read
            log.warning("%s: %s", scope["path"], error)
            response: Response | None = PlainTextResponse(DiskTrouble.FOR_OTHERS, status_code=503)
        else:
            response = self._refusal(connection, lead, token) if token or not shown else _refused(401, _NO_TOKEN)
        if response is None:
            # A request with a token has only the rights of the token, even if it also has a cookie.
            SIGNED_IN.set(lead and token is None)
            scope = {**scope, "state": {**scope.get("state", {}), "signed_in": SIGNED_IN.get(), "token": token}}
            await self.app(scope, receive, self._with_headers(scope, send))
            return
        if (scope["path"], response.status_code) not in _UNLOGGED:
            await self._log(connection, response)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await response(scope, receive, self._with_headers(scope, send))

    def _refusal(self, connection: HTTPConnection, lead: bool, token: Token | None) -> Response | None:
        """Return the response that refuses a request, or None if it may pass."""
        scope, headers = connection.scope, connection.headers
        path, method = scope["path"], scope.get("method", "GET")
        if not self._locked and (method, path) != ("GET", "/healthz"):
            if any(name in headers for name in _FORWARDED):
                words = "This request came through a proxy, but the studio has no password: set one (--set-password)."
                return PlainTextResponse(words, status_code=403)
            if not self._is_this_machine(headers.get("host", "")):
                words = (
                    "The studio has no password, so it opens on this machine only: as http://127.0.0.1 or localhost."
                )
                return PlainTextResponse(words, status_code=403)
        if is_foreign(connection):
            return _refused(403, "This request came from another site.")
        if not path.isprintable():
            return _refused(404, "There is no such page.")
        if path == ANNOTATE.rstrip("/"):
            return RedirectResponse(ANNOTATE, status_code=307) if method in _LOOKS else _refused(404, "No such page.")
        if path.startswith(MCP) and (lead or token or not self._locked):
            if path.rstrip("/") != MCP:
                return _refused(404, "There is no such page.")
            if method != "POST":
                return _refused(405, "Agents post here; the page Scripts says how.")
        if token is not None:
            if not _ENDPOINTS.fullmatch(path) or _CLOSED.match(path):
                return _refused(403, "A token gives access to the endpoints for scripts only.")
            if token.reads_only and path.startswith(_UPLOAD):
                return _refused(403, "This token only reads: to send a file, use a token that may change things.")
            return None
        if path.startswith(ANNOTATE) or (method, path) in self._open:
            return None
        if lead or not self._locked:
            return _refused(404, "There is no such page.") if _CLOSED.match(path) else None
        if method in _LOOKS and "text/html" in headers.get("accept", ""):
            query = scope.get("query_string", b"").decode("latin-1")
            requested = f"{quote(path)}?{query}" if query else quote(path)
            return RedirectResponse(f"{SIGN_IN}?next={quote(requested, safe='')}", status_code=303)
        return _refused(401, "Sign in first.")

    def _is_lead(self, connection: HTTPConnection) -> bool:
        token = connection.cookies.get(COOKIE, "")
        session = self._lead.session(token) if token else None
        return session is not None and session.role == "lead"

    def _is_this_machine(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            known = name in ("localhost", self._host) or name.endswith(".localhost")
            return known or ipaddress.ip_address(name).is_loopback
        except ValueError:  # the text is no host name, or the name is no address
            return False

    async def _log(self, connection: HTTPConnection, response: Response) -> None:
        scope = connection.scope
        token = connection.cookies.get("annotator", "")
        session = self._lead.session(token) if token else None
        worker = session.worker if session is not None and session.role == "worker" else ""
        detail = f"{scope.get('method', 'websocket')} {scope['path']} ({response.status_code})"
        address = scope["client"][0] if scope.get("client") else None
        await run_in_threadpool(self._lead.refusals.note, "refused", detail, address, "", worker)

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        headers = ((b"content-security-policy", self._policy[scope["path"] != _OF_GRADIO]), *_HEADERS)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [self._header(name.lower(), value) for name, value in message.get("headers", ())]
                present = {name for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in headers if name not in present]
            await send(message)

        return sending

    def _header(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        # A shared cache must not store replies that need a sign-in.
        if self._locked and name == b"cache-control":
            return name, value.replace(b"public", b"private")
        return name, value


def _shown(connection: HTTPConnection) -> str:
    """Return the token in the header `Authorization: Bearer TOKEN`; "" if none exists or it looks wrong."""
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" and text.strip().startswith(MARK) else ""


def is_foreign(connection: HTTPConnection) -> bool:
    """Return True if a page of another site made a browser send this request, except by a link that a person followed.

    The header Sec-Fetch-Site decides, because no page can set this header. Browsers send Sec-Fetch-Site over https, and
    to their own machine. Without Sec-Fetch-Site, the header Origin decides.
    """
    headers = connection.headers
    site = headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return False
    if site is not None:
        followed = connection.scope.get("method") in _LOOKS and headers.get("sec-fetch-mode") == "navigate"
        return not followed
    origin = headers.get("origin")
    return origin is not None and not _same_place(origin, headers.get("host", ""))


def _same_place(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        here = urlsplit(f"{parts.scheme}://{host}")
        if usual is None or not parts.hostname or not here.hostname:
            return False
        return (parts.hostname, parts.port or usual) == (here.hostname, here.port or usual)
    except ValueError:  # such as a port that is not a number
        return False


def _refused(status: int, words: str) -> Response:
    # The message is the same whether the address exists or not, so that it reveals nothing.
    return JSONResponse({"error": words}, status_code=status)
