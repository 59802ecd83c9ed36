"""The annotators' application at /annotate: sign-in, what comes next, pictures, answers. Decides nothing by itself.

A worker is known by a session in a cookie that only this path gets. Whatever is not the worker's own is answered as
what does not exist, and every refusal is written down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from pipeline.errors import UserError
from storage.study_types import Refused
from ui.annotate.desk import Desk, NotAllowed, NotYours, Over, Step, Unfit
from ui.annotate.incoming import BadRequest, answers_in, name_in, posted, seconds_in, text_in
from ui.annotate.page import POLICY, SERVED, annotate_page
from ui.annotate.pictures import MEDIA_TYPE, Pictures
from ui.annotate.shown import shown_state, shown_step
from ui.annotate.tokens import Tokens
from ui.annotate.visitors import COOKIE, NotSignedIn, Visitors
from ui.limits import TooMany
from ui.refusals import Refusals
from ui.studio import Studio
from ui.theme import ASSETS

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KEEP = "private, max-age=900"
"""A picture comes again after a reload or an undo; only this browser may keep it, and not for long."""
_REFUSED = {"not yours": 404, "not running": 409, "full": 409, "answered": 409}
Do = Callable[[str, dict[str, Any]], Any]
"""What a request does: worker and body in, the JSON of the reply out."""


def annotate_application(studio: Studio) -> FastAPI:
    """The application on the studies of a workspace, to be mounted at /annotate."""
    studies = studio.workspace.studies
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    desk = Desk(studies)
    workspace = studio.workspace
    pictures = Pictures(workspace.image, read=lambda sha: workspace.image_path(sha).read_bytes())
    tokens = Tokens()
    visitors = Visitors(studies)
    refusals = Refusals(studies.note)

    @app.middleware("http")
    async def guarded(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    # What everybody gets

    @app.get("/")
    def page() -> Response:
        return HTMLResponse(annotate_page())

    @app.get("/assets/{name}")
    def asset(name: str) -> Response:
        if name not in SERVED:
            raise NotYours
        return FileResponse(ASSETS / name, headers={"Cache-Control": "no-cache"})

    # Who is it

    @app.post("/api/sign-in")
    async def sign_in(request: Request) -> Response:
        data = await posted(request)

        def signing_in() -> tuple[dict[str, Any], str]:
            worker, token = visitors.sign_in(name_in(data, "code"), _address(request))
            return _state(worker), token

        return _with_cookie(request, *await run_in_threadpool(signing_in))

    @app.post("/api/join")
    async def join(request: Request) -> Response:
        data = await posted(request)

        def joining() -> tuple[dict[str, Any], str]:
            joined = visitors.join(name_in(data, "link"), visitors.worker(request), _address(request))
            return {**_state(joined.worker), "code": joined.code, "study": joined.study_id}, joined.token

        return _with_cookie(request, *await run_in_threadpool(joining))

    @app.post("/api/sign-out")
    async def sign_out(request: Request) -> Response:
        await posted(request)
        await run_in_threadpool(visitors.sign_out, request.cookies.get(COOKIE, ""))
        response = JSONResponse({"worker": ""})
        response.delete_cookie(COOKIE, path="/annotate")
        return response

    @app.get("/api/state")
    def state(request: Request) -> Response:
        return JSONResponse(_state(visitors.require(request)))

    def _state(worker: str) -> dict[str, Any]:
        return shown_state(worker, desk.places(worker))

    # One item after the other

    def _shown(step: Step) -> dict[str, Any]:
        return shown_step(step, tokens)

    @app.post("/api/next")
    async def next_one(request: Request) -> Response:
        return await _done(request, lambda worker, data: _shown(desk.next(name_in(data, "study"), worker)))

    @app.post("/api/consent")
    async def consent(request: Request) -> Response:
        return await _done(request, lambda worker, data: _shown(desk.consent(name_in(data, "study"), worker)))

    @app.post("/api/submit")
    async def submit(request: Request) -> Response:
        def save(worker: str, data: dict[str, Any]) -> dict[str, Any]:
            step = desk.submit(
                name_in(data, "assignment"),
                worker,
                answers_in(data),
                text_in(data, "comment"),
                seconds_in(data),
                name_in(data, "key"),
            )
            return {"saved": True, "next": _shown(step)}

        return await _done(request, save)

    @app.post("/api/undo")
    async def undo(request: Request) -> Response:
        return await _done(request, lambda worker, data: _shown(desk.undo(name_in(data, "study"), worker)))

    @app.post("/api/pause")
    async def pause(request: Request) -> Response:
        def release(worker: str, data: dict[str, Any]) -> dict[str, Any]:
            desk.pause(name_in(data, "study"), worker)
            return {"paused": True}

        return await _done(request, release)

    async def _done(request: Request, do: Do) -> Response:
        data = await posted(request)

        def with_worker() -> Any:
            return do(visitors.require(request), dict(data))

        return JSONResponse(await run_in_threadpool(with_worker))

    # Pictures

    @app.get("/image/{token}")
    def image(request: Request, token: str) -> Response:
        worker = visitors.require(request)
        return _picture(tokens.image(token, worker) or desk.image(token, worker))

    @app.get("/example/{study_id}/{number}")
    def example(request: Request, study_id: str, number: int) -> Response:
        return _picture(desk.example(study_id, number, visitors.require(request)))

    def _picture(sha: str) -> Response:
        return Response(pictures.png(sha), media_type=MEDIA_TYPE, headers={"Cache-Control": _KEEP, "Vary": "Cookie"})

    # Refusals: a sentence for the person, a line in the log for the lead

    def refuse(request: Request, status: int, sentence: str, **headers: str) -> Response:
        # A page that asks whether somebody is signed in is no attempt at anything.
        if not (status == 401 and request.url.path.endswith("/api/state")):
            worker = visitors.worker(request)
            detail = f"{request.method} {request.url.path} ({status})"
            refusals.note("refused", detail, _address(request), worker=worker)
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)

    @app.exception_handler(UserError)
    def mistake(request: Request, error: UserError) -> Response:
        if isinstance(error, BadRequest):
            return refuse(request, error.status, str(error))
        if isinstance(error, Unfit):
            return refuse(request, 400, str(error))
        if isinstance(error, NotSignedIn):
            return refuse(request, 401, str(error))
        if isinstance(error, NotYours) or (isinstance(error, Refused) and error.kind == "not yours"):
            return refuse(request, 404, str(NotYours()))
        if isinstance(error, Over):
            return refuse(request, 410, str(error))
        if isinstance(error, NotAllowed):
            return refuse(request, 403, str(error))
        if isinstance(error, Refused):
            return refuse(request, _REFUSED.get(error.kind, 403), str(error))
        return refuse(request, 409, str(error))

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
        # Told in the terminal by the server itself; what it says is nothing for a client.
        return JSONResponse({"error": "The server has a problem. Nothing of yours is lost."}, status_code=500)

    return app


def _address(request: Request) -> str | None:
    return request.client.host if request.client else None


def _with_cookie(request: Request, data: dict[str, Any], token: str) -> Response:
    response = JSONResponse(data)
    if token:
        response.set_cookie(
            COOKIE,
            token,
            max_age=Visitors.SECONDS,
            path="/annotate",
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
    return response
