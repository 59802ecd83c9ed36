"""The annotators' application at /annotate: sign-in, next item, pictures, answers. The services decide everything. A
session in a cookie, for this path only, identifies the worker. Items of another worker and items that do not exist get
the same answer. Every refusal is logged.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from core.errors import DiskTrouble, UserError
from core.stored_studies import VoteRefused
from services.commands import Malformed
from services.limits import TooMany
from services.studies.annotation import NotYours, Over, UnfitAnswers, WorkerNotAllowed
from services.studies.annotators import MEDIA_TYPE, AnnotatorSessions, Join, NotSignedIn, PictureTokens, SignIn
from services.studies.services import AnnotatorServices
from ui.annotate.shown import shown_state, shown_step
from ui.markup import Html
from ui.security.guard import Application, Message, Receive, Scope, Send
from ui.security.request_limits import BadRequest, posted
from ui.templating import render
from ui.theme import ASSETS, MISSING

log = logging.getLogger(__name__)
SHEETS = ("studio.css", "annotate.css")
SCRIPTS = ("kept.js", "annotate-wire.js", "annotate-judge.js", "annotate-keys.js", "annotate.js")
"""Scripts in loading order. Each builds on those before it."""
SERVED = (*SHEETS, *SCRIPTS, "favicon.svg")
"""The only files of `ui/assets` that annotators can fetch."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: this server's scripts, styles, pictures and requests; no inline code, no frame.
"""
COOKIE = "annotator"
"""Name of the cookie with the token of a worker's session."""
BROWSER = "annotator-browser"
"""Name of the cookie with a secret that outlives sessions. The secret reveals that two workers share a browser."""
BROWSER_SECONDS = 400 * 24 * 3600
_SECRET = re.compile(r"[\w-]{43}", re.ASCII)
_HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": POLICY,
        "referrer-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "x-robots-tag": "noindex",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }.items()
)
"""Headers that are added to every reply that lacks them."""
_KEEP = "private, max-age=900"
"""Cache-Control of pictures. Only the worker's browser may keep them, for 15 minutes, to show them after a reload."""
_STATUS = {UnfitAnswers: 400, Malformed: 400, NotSignedIn: 401, WorkerNotAllowed: 403, Over: 410}
_REFUSED = {"not yours": 404, "not running": 409, "full": 409, "answered": 409}


def annotate_page(preview: str = "") -> Html:
    """Return the HTML document of the page, the same for everybody. If `preview` is the id of a study, the page
    previews this study and records nothing. If it is "", the page is for annotators.
    """

    def address(name: str) -> str:
        # The stamp is the time of the last change, so that browsers fetch a file again only after a change.
        return f"/annotate/assets/{name}?v={int((ASSETS / name).stat().st_mtime)}"

    files = {"sheets": SHEETS, "scripts": SCRIPTS}
    return render("annotate/page.html", address=address, missing=MISSING, preview=preview, **files)


class _WithHeaders:
    """ASGI middleware that adds security headers to every reply."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in present)]
            await send(message)

        await self.app(scope, receive, sending)


def annotate_application(services: AnnotatorServices) -> FastAPI:
    """Return the application for the studies of a workspace, to be mounted at /annotate behind `BodyLimit`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    annotation, sessions, pictures = services.annotation, services.sessions, services.pictures
    commands = annotation.commands()
    tokens, refusals = PictureTokens(), services.refusals

    def _token(request: Request) -> str:
        return request.cookies.get(COOKIE, "")

    app.add_middleware(_WithHeaders)

    # What everybody gets

    @app.get("/")
    def page(request: Request) -> Response:
        response = HTMLResponse(annotate_page())
        if not _browser(request):
            _set_cookie(request, response, BROWSER, secrets.token_urlsafe(32), BROWSER_SECONDS)
        return response

    @app.get("/assets/{name}")
    def asset(name: str) -> Response:
        if name not in SERVED:
            raise NotYours
        return FileResponse(ASSETS / name, headers={"Cache-Control": "no-cache"})

    # Sign-in and sign-out

    @app.post("/api/sign-in")
    async def sign_in(request: Request) -> Response:
        data, browser = await posted(request), _browser(request)

        def signing_in() -> tuple[dict[str, Any], str]:
            worker, token = sessions.sign_in(SignIn.of(data), _address(request), browser)
            return _state(worker), token

        return _with_cookie(request, *await run_in_threadpool(signing_in))

    @app.post("/api/join")
    async def join(request: Request) -> Response:
        data, browser = await posted(request), _browser(request)

        def joining() -> tuple[dict[str, Any], str]:
            joined = sessions.join(Join.of(data), sessions.worker(_token(request)), _address(request), browser)
            facts = {"code": joined.code, "study": joined.study_id, "earlier": joined.earlier}
            return {**_state(joined.worker), **facts}, joined.token

        return _with_cookie(request, *await run_in_threadpool(joining))

    @app.post("/api/sign-out")
    async def sign_out(request: Request) -> Response:
        await posted(request)
        await run_in_threadpool(sessions.sign_out, _token(request))
        response = JSONResponse({"worker": ""})
        response.delete_cookie(COOKIE, path="/annotate")
        return response

    @app.get("/api/state")
    def state(request: Request) -> Response:
        worker = sessions.require(_token(request))
        return JSONResponse({**_state(worker), "code": sessions.code_again(worker, _browser(request))})

    def _state(worker: str) -> dict[str, Any]:
        return shown_state(worker, annotation.places(worker))

    # Judging items: each address performs the command of its name for the worker of the session

    def doing(name: str, show: Callable[[Any], dict[str, Any]]) -> None:
        async def do(request: Request) -> Response:
            data = await posted(request)

            def with_worker() -> dict[str, Any]:
                worker = sessions.require(_token(request))
                return show(commands.send(name, {**data, "worker": worker}))

            return JSONResponse(await run_in_threadpool(with_worker))

        app.add_api_route(f"/api/{name}", do, methods=["POST"])

    for name in ("next", "consent", "person", "go-on", "undo"):
        doing(name, lambda step: shown_step(step, tokens))
    doing("submit", lambda step: {"saved": True, "next": shown_step(step, tokens)})
    doing("draft", lambda is_saved: {"kept": is_saved})
    doing("pause", lambda _: {"paused": True})

    # Pictures

    @app.get("/image/{token}")
    def image(request: Request, token: str) -> Response:
        worker = sessions.require(_token(request))
        # Once an item is answered, given back or taken away, its picture is refused at every address.
        return _picture(tokens.open(token, worker, annotation.judging(worker)) or annotation.image(token, worker))

    @app.get("/example/{study_id}/{number}")
    def example(request: Request, study_id: str, number: int) -> Response:
        return _picture(annotation.example(study_id, number, sessions.require(_token(request))))

    def _picture(sha: str) -> Response:
        return Response(pictures.png(sha), media_type=MEDIA_TYPE, headers={"Cache-Control": _KEEP, "Vary": "Cookie"})

    # Refusals: a sentence for the person, a line in the log for the lead

    def refuse(request: Request, status: int, sentence: str, kind: str = "", **headers: str) -> Response:
        # A page that only asks whether somebody is signed in makes no attempt that the log should show.
        if not (status == 401 and request.url.path.endswith("/api/state")):
            worker = sessions.worker(_token(request))
            detail = f"{request.method} {request.url.path} ({status})"
            refusals.note("refused", detail, _address(request), worker=worker)
        content = {"error": sentence, **({"kind": kind} if kind else {})}
        return JSONResponse(content, status_code=status, headers=headers)

    @app.exception_handler(UserError)
    def mistake(request: Request, error: UserError) -> Response:
        if isinstance(error, DiskTrouble):
            log.warning("%s", error)
            return JSONResponse({"error": DiskTrouble.FOR_OTHERS}, status_code=503)
        if isinstance(error, BadRequest):
            return refuse(request, error.status, str(error))
        if isinstance(error, NotYours) or (isinstance(error, VoteRefused) and error.kind == "not yours"):
            return refuse(request, 404, str(NotYours()))
        if isinstance(error, VoteRefused):
            return refuse(request, _REFUSED.get(error.kind, 403), str(error), error.kind)
        return refuse(request, next((_STATUS[kind] for kind in _STATUS if isinstance(error, kind)), 409), str(error))

    @app.exception_handler(TooMany)
    def too_many(request: Request, error: TooMany) -> Response:
        return refuse(request, 429, str(error), **{"Retry-After": str(error.seconds)})

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(404)
    @app.exception_handler(405)
    def unknown(request: Request, error: Exception) -> Response:
        return refuse(request, 404, str(NotYours()))

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        # The server logs the error in the terminal; its details are not for a client.
        return JSONResponse({"error": "The server has a problem. Nothing of yours is lost."}, status_code=500)

    return app


def _address(request: Request) -> str | None:
    return request.client.host if request.client else None


def _browser(request: Request) -> str:
    """Return the secret in this browser's cookie, or "" if the cookie is missing or malformed."""
    secret = request.cookies.get(BROWSER, "")
    return secret if _SECRET.fullmatch(secret) else ""


def _set_cookie(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=seconds, path="/annotate", httponly=True, samesite="lax", secure=secure)


def _with_cookie(request: Request, data: dict[str, Any], token: str) -> Response:
    response = JSONResponse(data)
    if token:
        _set_cookie(request, response, COOKIE, token, AnnotatorSessions.SECONDS)
    return response
