"""A server with studies in every state for attacks by annotators, and functions that send their requests."""

from __future__ import annotations

import http.client
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from core.studies import NewItem
from services.studio import Studio
from storage.studies.studies import Studies
from tests.support.annotating import BIRD_RULES, keep_image, picture


@dataclass
class Reply:
    """Raw response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Person:
    """Worker who is signed in with a browser."""

    worker: str
    code: str
    token: str
    step: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Public token of the assignment that the worker holds."""
        return str(self.step["assignment"]["id"])

    @property
    def image(self) -> str:
        return str(self.step["assignment"]["image"])


@dataclass
class World:
    """Server with a running study, two annotators who hold an item each, and other studies in every state."""

    application: FastAPI
    studio: Studio
    port: int
    studies: Studies
    study: str
    link: str
    shas: list[str]
    me: Person
    other: Person
    held: dict[str, str] = field(default_factory=dict)
    """Assignments, tokens and ids of studies that changed their state since, by the name of the state."""
    asked: int = 0

    @property
    def folder(self) -> str:
        """Folder of the workspace."""
        return str(self.studio.workspace.folder)

    def ask(
        self, method: str, path: str, body: Any = None, cookie: str | None = None, address: str = "", **headers: str
    ) -> Reply:
        """Send a request with exactly this path, which HTTP clients would normalise.

        Without `address`, each request comes from a new one. By default it looks like a request of our page with the
        session of `me`. `body` is bytes, or is sent as JSON. Header names use "_" for "-", and "" removes a header.
        """
        self.asked += 1
        sent = {
            "host": f"127.0.0.1:{self.port}",
            "x-studio": "1",
            "content-type": "application/json",
            "cookie": f"annotator={self.me.token}" if cookie is None else cookie,
            "x-forwarded-for": address or f"198.51.{self.asked // 250}.{self.asked % 250 + 1}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(data)))
            connection.endheaders(data)
            reply = connection.getresponse()
            return Reply(reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def post(self, name: str, body: Any, **more: Any) -> Reply:
        """Send a request to the annotators' interface."""
        return self.ask("POST", f"/annotate/api/{name}", body, **more)

    def vote(self, assignment: str, **changes: Any) -> dict[str, Any]:
        """Return a vote's body as our page sends it."""
        body = {"assignment": assignment, "answers": {"valid": "yes"}, "comment": "", "seconds": 2.0}
        return {**body, "key": secrets.token_hex(8), **changes}

    def come(self, **cookies: str) -> Reply:
        """Request the next step of the study with these cookies."""
        return self.post("next", {"study": self.study}, cookie="; ".join(f"{k}={v}" for k, v in cookies.items()))

    def late(self, state: str, name: str = "submit") -> Reply:
        """Send a vote or another request of a worker whose study or account has changed to this state since."""
        body = self.vote(self.held[state]) if name == "submit" else {"study": self.held[f"{state} study"]}
        return self.post(name, body, cookie=f"annotator={self.held[f'{state} token']}")

    def lead(self, name: str, body: Any) -> Reply:
        """Send a request to the lead's interface of the study."""
        return self.ask("POST", f"/study/api/{self.study}/{name}", body)

    def votes(self) -> int:
        """Count the votes of all studies."""
        return sum(len(self.studies.data(study.id).votes) for study in self.studies.all())


def build_world(application: FastAPI, studio: Studio, port: int) -> World:
    workspace, studies = studio.workspace, studio.workspace.studies
    origin = {"file": "secret-name.png", "prompt": "secret prompt", "model": "secret model", "seed": 4711}
    known: dict[str, Any] = {"label": "bird", "group": "misclassified", "origin": origin, "caption": "A secret bird."}
    new = [NewItem(keep_image(workspace, picture(number)), **known) for number in range(6)]
    new += [NewItem(keep_image(workspace, picture(90)), kind="control", expected={"valid": "yes"}, **known)]

    def study(name: str) -> str:
        study_id = studies.create(name, BIRD_RULES)
        studies.add_items(study_id, new)
        studies.start(study_id)
        return study_id

    running = study("Birds, November")
    world = World(
        application, studio, port, studies, running, studies.set_link(running, True), [item.image_sha for item in new],
        Person("", "", "no session yet"), Person("", "", ""),
    )  # fmt: skip
    hidden = study("Hidden study")
    studies.set_link(hidden, True)
    world.held["hidden"] = hidden

    def come(people: Person, study_id: str) -> Mapping[str, Any]:
        studies.workers.enrol(study_id, people.worker)
        studies.workers.consent(study_id, people.worker)
        step: Mapping[str, Any] = world.post("next", {"study": study_id}, cookie=f"annotator={people.token}").json()
        return step

    for which in ("me", "other"):
        worker, code = studies.workers.add()
        signed_in = world.post("sign-in", {"code": code}, cookie="")
        token = re.findall(r"annotator=([^;]+)", signed_in.headers["set-cookie"])[0]
        person = Person(worker.id, code, token)
        person.step = come(person, running)
        setattr(world, which, person)
    for state in ("paused", "closed", "excluded", "blocked"):
        elsewhere = study(f"A study that is {state}")
        link = studies.set_link(elsewhere, True)
        worker, code = studies.workers.add()
        person = Person(worker.id, code, studies.sessions.open("worker", worker.id))
        person.step = come(person, elsewhere)
        world.held[f"{state} study"], world.held[f"{state} link"] = elsewhere, link
        world.held[f"{state} token"], world.held[state] = person.token, person.id
        if state == "excluded":
            studies.workers.exclude(elsewhere, worker.id, "too many wrong answers", "rule")
        elif state == "blocked":
            studies.workers.block(worker.id, True)
        else:
            getattr(studies, {"paused": "pause", "closed": "close"}[state])(elsewhere)
    ended = studies.sessions.open("worker", world.me.worker)
    studies.sessions.close(ended)
    world.held["signed out"] = ended
    world.held["run out"] = studies.sessions.open("worker", world.me.worker, hours=-1)
    world.held["lead"] = studies.sessions.open("lead")
    world.held["old code"] = studies.workers.add()[1]
    studies.workers.new_code(str(studies.workers.of_code(world.held["old code"])))
    world.held["old link"] = studies.set_link(hidden, True)
    studies.set_link(hidden, False)
    return world
