"""An application behind the guard, for tests of access, and the lead's sign-in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.testclient import TestClient

from services.sign_in import LeadSignIn
from storage.workspace import Workspace
from ui.security.sign_in import stand_guard

PASSWORD = "correct horse battery"
CHEAP = (2**4, 8, 1)
"""Cheap password hash, since tests check passwords often. `test_passwords.py` tests the real cost."""
HERE = "http://127.0.0.1:7860"
HTML = {"accept": "text/html,application/xhtml+xml"}


def application(workspace: Workspace, host: str = "127.0.0.1", password: str = "") -> FastAPI:
    """Return an application behind the guard: pages, Gradio's addresses, a socket, and an annotators' part."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    stand_guard(app, LeadSignIn(workspace, password, CHEAP), host)
    part = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @part.get("/")
    def annotators() -> str:
        return "annotators"

    @app.get("/healthz")
    def healthz() -> str:
        return "well"

    @app.websocket("/socket")
    async def socket(connection: WebSocket) -> None:
        await connection.accept()
        await connection.send_text("secret")
        await connection.close()

    app.mount("/annotate", part)

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def everything(request: Request, path: str) -> dict[str, Any]:
        return {"secret": path, "signed_in": request.state.signed_in}

    return app


def sign_in(client: TestClient, password: str = PASSWORD, page: str = "/") -> Any:
    return client.post("/sign-in", data={"password": password, "next": page})


def events(workspace: Workspace) -> list[tuple[str, str]]:
    return [(entry.event, entry.detail) for entry in workspace.studies.log()]
