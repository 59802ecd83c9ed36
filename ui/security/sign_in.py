"""The lead's sign-in and sign-out: a page with one field and no scripts. The guard redirects browsers to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response

from core.errors import UserError
from services.limits import TooMany
from services.passwords import beyond_this_machine
from services.sign_in import HOURS, LeadSignIn
from ui.frame import document
from ui.replies import FRESH
from ui.security.guard import COOKIE, SIGN_IN, SIGN_OUT, Guard
from ui.security.request_limits import BadRequest, BodyLimit
from ui.templating import render
from ui.theme import ASSETS

SIGN_IN_ASSETS = ("studio.css", "study.css", "sign-in.css", "kept.js", "theme.js", "favicon.svg")
"""Files of the sign-in page, which anybody may fetch."""
LONGEST_ADDRESS = 1000
_LOCKED = '<script>document.documentElement.classList.add("locked")</script>'
"""Script that shows the sign-out button on the Explore page. On other pages, `ui.frame.document` shows the button."""
_NO_COOKIE = (
    "The password is right, but this browser has not kept the cookie that says so. Allow cookies for this address, "
    "then sign in again."
)


def stand_guard(app: FastAPI, lead: LeadSignIn, host: str) -> str:
    """Guard everything that `app` serves, and add the sign-in. Return a script for the head of the Explore page. Raises
    UserError if no password is set although other machines can reach `host`.
    """
    locked = bool(lead.kept())
    if not locked and beyond_this_machine(host):
        raise UserError(
            f"On {host or 'all addresses'} other machines can reach the studio, so it needs a password: set "
            "STUDIO_PASSWORD, or run app.py --set-password once."
        )
    app.add_middleware(BodyLimit)  # inside the guard, so that the body of a refused request is not read
    inline = re.findall(r"<script>(.*?)</script>", document(""), re.DOTALL)
    app.add_middleware(Guard, lead=lead, locked=locked, host=host, assets=SIGN_IN_ASSETS, inline=inline)
    add_sign_in(app, lead)
    return _LOCKED if locked else ""


def add_sign_in(app: FastAPI, lead: LeadSignIn) -> None:
    """Add /sign-in, /sign-out and the files of the sign-in page to `app`."""
    # Attempts wait for each other without a thread, so that many guesses at a time do not delay annotators.
    turns = asyncio.Lock()

    @app.api_route(SIGN_IN, methods=["GET", "HEAD"], include_in_schema=False)
    def ask(request: Request, next: str = "/", signed: bool = False) -> Response:
        if request.state.signed_in or not lead.kept():
            return RedirectResponse(local(next), status_code=303)
        return _page(next, _NO_COOKIE if signed else "")

    @app.post(SIGN_IN, include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        form_field = await _form(request)
        if form_field is None:
            return PlainTextResponse("Only the form of the sign-in page is accepted here.", status_code=400)
        next_address, address = form_field("next"), request.client.host if request.client else None
        try:
            async with turns:
                token = await run_in_threadpool(lead.sign_in, form_field("password"), address)
        except TooMany as error:
            await run_in_threadpool(lead.refusals.note, "too many tries", "the study lead's sign-in", address)
            return _page(next_address, str(error), 429, {"Retry-After": str(error.seconds)})
        if not token:
            return _page(next_address, "This is not the password.", 401)
        # Redirects to the sign-in page, which checks whether the cookie comes back.
        query = urlencode({"next": local(next_address), "signed": 1})
        response = RedirectResponse(f"{SIGN_IN}?{query}", status_code=303, headers=FRESH)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, HOURS * 3600, path="/", secure=secure, httponly=True, samesite="lax")
        return response

    @app.post(SIGN_OUT, include_in_schema=False)
    def sign_out(request: Request) -> Response:
        if token := request.cookies.get(COOKIE, ""):
            lead.sign_out(token)
        response = RedirectResponse(SIGN_IN if lead.kept() else "/", status_code=303, headers=FRESH)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax")
        return response

    @app.api_route(f"{SIGN_IN}/{{name}}", methods=["GET", "HEAD"], include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in SIGN_IN_ASSETS:
            return PlainTextResponse("There is no such file.", status_code=404)
        return FileResponse(ASSETS / name, headers={"Cache-Control": "no-cache"})


def local(address: str) -> str:
    """Return `address` if it is one of our pages, to show it after the sign-in; otherwise "/"."""
    plain = address.startswith("/") and address.isprintable() and "\\" not in address and len(address) < LONGEST_ADDRESS
    if not plain or address.startswith("//") or urlsplit(address).path in (SIGN_IN, SIGN_OUT):
        return "/"
    return address


async def _form(request: Request) -> Callable[[str], str] | None:
    """Return a function that returns a field of the sent form by name ("" if missing). Return None if the body is no
    form or too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    try:
        body = await request.body()
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except (ValueError, BadRequest):
        return None
    return lambda name: fields.get(name, [""])[0]


def _page(address: str, problem: str = "", status: int = 200, headers: dict[str, str] | None = None) -> HTMLResponse:
    card = render("security/sign_in.html", next=local(address), problem=problem)
    text = document("Sign in", card, sheets=("sign-in.css",), scripts=("kept.js", "theme.js"), assets=f"{SIGN_IN}/")
    return HTMLResponse(text, status, headers=(headers or {}) | FRESH)
