"""Start studies with pictures for the tests of the annotators' page, and send requests like a browser."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.studies import ControlPolicy, Eligibility, NewItem, Question, Rules
from services.studies.services import AnnotatorServices
from services.studies.templates import TEMPLATES
from services.studio import Studio
from storage.workspace import Workspace
from ui.annotate.application import annotate_application
from ui.security.request_limits import BodyLimit

BIRD_RULES = replace(
    TEMPLATES["classification"].rules(),
    votes=2,
    consensus=2,
    controls=ControlPolicy(share=0.0),
    eligibility=Eligibility(min_approval=0.0, min_finished=0),
    seed=7,
)
"""Rules with two votes an item, no control items, and no conditions for workers."""
LANCE_RULES = replace(
    TEMPLATES["lance"].rules(),
    **{name: getattr(BIRD_RULES, name) for name in ("votes", "consensus", "controls", "eligibility", "seed")},
)
TEXT_QUESTION = Question("note", "What do you see?", "text", required=False)


def picture(number: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    """Return a picture that differs from those of other numbers."""
    return Image.new("RGB", size, (40 + 37 * number % 200, 30 + 91 * number % 220, 200 - 53 * number % 190))


def keep_image(workspace: Workspace, image: Image.Image) -> str:
    """Store an image without a run. Return its hash."""
    return workspace.images.add(image)


def items_of(workspace: Workspace, count: int, **fields: Any) -> list[NewItem]:
    """Return items labelled bird, each with its own picture and source."""
    return [
        NewItem(
            keep_image(workspace, picture(number)),
            keep_image(workspace, picture(number + 500)),
            **{"label": "bird", **fields},
        )
        for number in range(count)
    ]


def controls_of(workspace: Workspace, count: int, kind: str = "control", answer: str = "yes") -> list[NewItem]:
    """Return control or quiz items whose right answer to "valid" is `answer`."""
    known: Any = {"kind": kind, "expected": {"valid": answer}, "label": "bird"}
    return [NewItem(keep_image(workspace, picture(number + 1000)), None, **known) for number in range(count)]


def running(
    workspace: Workspace, items: int | list[NewItem] = 3, rules: Rules = BIRD_RULES, name: str = "Birds, November"
) -> tuple[str, str]:
    """Start a study with an open invitation. Return its id and the token of the link."""
    studies = workspace.studies
    study_id = studies.create(name, rules)
    studies.add_items(study_id, items_of(workspace, items) if isinstance(items, int) else items)
    studies.start(study_id)
    return study_id, studies.set_link(study_id, True)


@dataclass
class Annotator:
    """Session of an annotator, as a browser would keep it."""

    client: TestClient | httpx.Client
    study: str = ""
    worker: str = ""
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: {"x-studio": "1"})

    def post(self, name: str, body: Mapping[str, Any], status: int = 200) -> dict[str, Any]:
        """Send a request, check the status of the reply, and return its JSON."""
        reply = self.client.post(f"/annotate/api/{name}", json=dict(body), headers=dict(self.headers))
        assert reply.status_code == status, reply.text
        data: dict[str, Any] = reply.json()
        return data

    def join(self, link: str, agree: bool = True) -> Annotator:
        """Join the study and consent. Return this session."""
        reply = self.post("join", {"link": link})
        self.study, self.worker, self.code = reply["study"], reply["worker"], reply["code"] or self.code
        if agree:
            self.post("consent", {"study": self.study})
        return self

    def next(self) -> dict[str, Any]:
        return self.post("next", {"study": self.study})

    def answer(self, step: Mapping[str, Any], answers: Mapping[str, Any] | str = "yes", status: int = 200, **more: Any):
        """Answer the item of a step. Return the reply."""
        own_answers = {"valid": answers} if isinstance(answers, str) else dict(answers)
        body = {"assignment": step["assignment"]["id"], "answers": own_answers, "comment": "", "seconds": 3.0}
        return self.post("submit", {**body, "key": secrets.token_hex(8), **more}, status)


def mounted(of: Studio | Workspace) -> FastAPI:
    """Return an application with the annotators' part, as the studio mounts it, and /healthz."""
    app = FastAPI()
    app.add_middleware(BodyLimit)
    app.mount("/annotate", annotate_application(AnnotatorServices(of if isinstance(of, Workspace) else of.workspace)))
    app.add_api_route("/healthz", lambda: "ok")
    return app


SERVE_ALONE = "from tests.support.annotating import serve_alone; serve_alone()"
"""Code of a server process that starts fast, for tests that kill the server."""


def serve_alone() -> None:
    """Serve `mounted` on the workspace and the port of the command line, with no studio, models or Gradio."""
    import uvicorn

    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    with Workspace(options["--workspace"]) as workspace:
        uvicorn.run(mounted(workspace), port=int(options["--port"]), log_level="warning")


@contextmanager
def browser_of(app: FastAPI) -> Iterator[Annotator]:
    """Yield a new browser session with its own cookies."""
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield Annotator(client)
