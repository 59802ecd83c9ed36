"""Helpers that call the endpoints over plain HTTP, and pictures to upload."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

import httpx
from gradio_client import Client
from PIL import Image

from services.studio import Studio
from services.tokens import NewToken
from ui.security.guard import COOKIE

FILE = {"meta": {"_type": "gradio.FileData"}}
"""Field that marks an object as a file for Gradio."""


def client_of(url: str, headers: dict[str, str] | None = None) -> Client:
    """Return Gradio's client of a server, with a timeout of 120 seconds. Its default is five."""
    return Client(url, headers=headers, verbose=False, httpx_kwargs={"timeout": 120})


def call(url: str, name: str, *data: Any, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
    """Call an endpoint with values in order, or by their names."""
    sent = {"data": fields or list(data)}
    return httpx.post(f"{url}gradio_api/run/{name}", json=sent, headers=headers, timeout=60)


def answer(url: str, name: str, *data: Any, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
    """Call an endpoint. Return its answer."""
    reply = call(url, name, *data, headers=headers, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()["data"][0]


def told(reply: httpx.Response, status: int = 400) -> tuple[str, str]:
    """Return the sentence and the field of a refusal; "" for no field. Fails if the message is more than a sentence."""
    assert reply.status_code == status, reply.text
    refusal = reply.json()
    assert refusal.keys() <= {"error", "title", "field"}, refusal
    assert "\n" not in refusal["error"] and refusal["error"].endswith("."), refusal
    assert "Traceback" not in refusal["error"] and "pydantic" not in refusal["error"], refusal
    return refusal["error"], refusal.get("field", "")


def refused(url: str, name: str, *data: Any, status: int = 400, **fields: Any) -> tuple[str, str]:
    """Return the sentence and the field of a refused call."""
    return told(call(url, name, *data, **fields), status)


def picture(size: tuple[int, int] = (64, 48)) -> bytes:
    """Return a PNG of noise."""
    file = io.BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(file, "PNG")
    return file.getvalue()


def sent(url: str, data: bytes, name: str = "a picture.png", headers: Mapping[str, str] | None = None) -> str:
    """Upload a file. Return its path on the server."""
    reply = httpx.post(f"{url}gradio_api/upload", files={"files": (name, data)}, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return str(reply.json()[0])


def made_token(studio: Studio, name: str, reads_only: bool = False, days: int = 1) -> NewToken:
    """Make a token as the lead. Return the token with its text."""
    made = studio.commands.send("make-token", {"title": name, "reads_only": reads_only, "days": days})
    assert isinstance(made, NewToken)
    return made


def callers(studio: Studio, full: str, reading: str) -> dict[str, dict[str, str]]:
    """Return the headers of each caller: nobody, annotators, the lead, and scripts with a `full` or a `reading`
    token.
    """
    studies = studio.workspace.studies
    annotator = studies.sessions.open("worker", studies.workers.add()[0].id)
    return {
        "nobody": {},
        "a wrong token": shown("dillema_" + "x" * 43),
        "annotator": {"cookie": f"annotator={annotator}"},
        "annotator with our cookie": {"cookie": f"annotator={annotator}; {COOKIE}={annotator}; signed_in=1"},
        "reading": shown(reading),
        "full": shown(full),
        "lead": {"cookie": f"{COOKIE}={studies.sessions.open('lead')}"},
    }


def shown(token: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"authorization": f"Bearer {token}"}


def watched(client: Client, job: int) -> dict[str, Any]:
    """Wait for a job, and return its final state."""
    return cast(dict[str, Any], list(client.submit(job=job, api_name="/watch_job"))[-1])


def of_page(url: str, name: str, sent: Any, **more: Any) -> httpx.Response:
    """Call a function of the explore page as its script does."""
    config = httpx.get(f"{url}config", **more).json()
    component = next(one["id"] for one in config["components"] if "answer" in one["props"].get("server_fns", ()))
    body = {"component_id": component, "fn_name": name, "data": sent, "session_hash": "x"}
    return httpx.post(f"{url}gradio_api/component_server/", json=body, **more)
