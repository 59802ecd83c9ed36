"""Simulate annotators who sign in, load pictures and vote over the HTTP interface that people use."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from core.csv_tables import cells
from core.studies import Question
from core.types import from_plain
from study.behaviour import Behaviour, habit_of, judge
from study.truth import AnswerKey, pixels

HEADERS = {"x-studio": "1"}
ENDED = ("done", "not eligible", "excluded", "closed")
AGAIN = (409, 410)
"""HTTP status codes for an item that went to another worker or was withdrawn. The worker then asks for the next one."""


@dataclass(frozen=True)
class Acknowledged:
    """A vote that the server confirmed as saved."""

    worker: str
    assignment: str
    key: str
    answers: Mapping[str, str]
    seconds: float
    """Seconds between request and reply, for the try that succeeded."""
    tries: int


@dataclass
class WorkerRun:
    """The result of one simulated worker."""

    worker: str = ""
    votes: list[Acknowledged] = field(default_factory=list)
    end: str = ""
    """Final status of the worker, such as "done", "excluded", "failed", or "time over" at the end of the simulation."""
    text: str = ""
    """Text that the page would have shown to a person."""
    retries: int = 0


@dataclass(frozen=True)
class Simulation:
    """Parameters of a simulation: the workers, the server and the duration."""

    url: str
    """Web address of the studio, such as http://127.0.0.1:7860."""
    crew: Sequence[Behaviour]
    link: str = ""
    """Token or address of an open invitation. Each worker joins as a new person."""
    codes: Sequence[str] = ()
    """Personal codes to sign in without an invitation, one for each worker."""
    study: str = ""
    """Id of the only study to work on; "" for all studies that a worker sees."""
    truth: AnswerKey = field(default_factory=AnswerKey)
    minutes: float = 0.0
    """Maximum number of minutes; 0 to continue until nothing is left."""
    patience: float = 60.0
    """Seconds to wait for items that other workers have, and for a server that does not answer."""
    seed: int = 0
    on_vote: Callable[[Acknowledged], None] | None = None


def run(plan: Simulation) -> list[WorkerRun]:
    """Run all workers at the same time until they end. Raises ValueError for an invalid address."""
    if not plan.url.startswith(("http://", "https://")):
        raise ValueError(f"“{plan.url[:80]}” is no address: it begins with http:// or https://.")
    if plan.codes and len(plan.codes) < len(plan.crew):
        raise ValueError(f"There are {len(plan.codes)} codes for {len(plan.crew)} workers: give one for each.")
    certificates = ssl.create_default_context()
    end = time.monotonic() + 60 * plan.minutes if plan.minutes else float("inf")
    annotators = [_Annotator(plan, number, certificates, end) for number in range(len(plan.crew))]

    async def live() -> list[WorkerRun]:
        return await asyncio.gather(*(annotator.live() for annotator in annotators))

    return asyncio.run(live())


class _TimeOver(Exception):
    """Raised when the maximum number of minutes has passed."""


class _Refused(Exception):
    """A refusal by the server, with its sentence for the worker."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


_SEEN: dict[bytes, str] = {}
"""Cache of pixel hashes by the hash of the file. Many workers get the same picture."""


class _Annotator:
    def __init__(self, plan: Simulation, number: int, certificates: ssl.SSLContext, end: float) -> None:
        self.plan, self.number, self.end = plan, number, end
        self.behaviour, self.run = plan.crew[number], WorkerRun()
        self.drawn = random.Random(f"{plan.seed}\0{number}")
        self.habit: dict[str, str] = {}
        self.sent: tuple[float, int] = (0.0, 1)
        base = plan.url.rstrip("/")
        self.client = httpx.AsyncClient(
            base_url=f"{base}/annotate/",
            headers={**HEADERS, "Origin": base},
            verify=certificates,
            timeout=30,
            trust_env=False,
        )

    async def live(self) -> WorkerRun:
        """Simulate a worker from joining the study to the end."""
        run = self.run
        try:
            async with self.client:
                for study in await self._sign_in():
                    if self.plan.study in ("", study["id"]):
                        await self._work(study["id"])
                run.end = run.end or "no study"
        except _TimeOver:
            run.end = "time over"
        except _Refused as error:
            run.end, run.text = "failed", f"{error} ({error.status})"
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            run.end, run.text = "failed", f"{type(error).__name__}: {error}"
        return run

    async def _sign_in(self) -> list[dict[str, Any]]:
        if self.plan.codes:
            state = await self._post("sign-in", {"code": self.plan.codes[self.number]})
        else:
            state = await self._post("join", {"link": self.plan.link.rpartition("#join=")[2]})
        self.run.worker = str(state["worker"])
        return list(state["studies"])

    async def _work(self, study: str) -> None:
        now = await self._post("next", {"study": study})
        waited = 0.0
        while True:
            status = str(now["status"])
            self.run.text = str(now.get("text") or "")
            if status == "consent":
                await self._post("consent", {"study": study})
                now = await self._post("next", {"study": study})
            elif status == "feedback":
                now = await self._post("go-on", {"assignment": now["assignment"]["id"]})
            elif now.get("assignment"):
                waited, now = 0.0, await self._vote(study, now["assignment"])
            elif status in ENDED or waited >= self.plan.patience:
                self.run.end = status
                return
            else:  # the state is waiting or paused
                pause = self.drawn.uniform(0.5, 1.5)
                waited += pause
                await self._sleep(pause)
                now = await self._post("next", {"study": study})

    async def _vote(self, study: str, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """Look at the item for a random time, then answer it. Return the server's next state."""
        questions: list[Question] = [from_plain(Question, data) for data in assignment["questions"]]
        for name, habit in habit_of(questions, self.drawn).items():
            self.habit.setdefault(name, habit)
        began = time.monotonic()
        try:
            image = await self._picture(str(assignment["image"]))
            source = await self._picture(str(assignment["source"])) if assignment.get("source") else ""
            true = partial(self.plan.truth.answer, image, source)
            answers, seconds = judge(self.behaviour, questions, true, self.habit, self.drawn)
            await self._sleep(seconds - (time.monotonic() - began))
            key = secrets.token_urlsafe(16)
            body = {
                "assignment": assignment["id"],
                "answers": answers,
                "comment": "",
                "seconds": round(time.monotonic() - began, 3),
                "key": key,
            }
            reply = await self._post("submit", body)
        except _Refused as error:
            if error.status not in AGAIN and error.status != 404:
                raise
            return await self._post("next", {"study": study})
        if reply.get("saved") is not True:
            raise ValueError(f"the server answered {str(reply)[:200]} to a vote")
        vote = Acknowledged(self.run.worker, str(assignment["id"]), key, answers, *self.sent)
        self.run.votes.append(vote)
        if self.plan.on_vote is not None:
            self.plan.on_vote(vote)
        return dict(reply["next"])

    async def _picture(self, token: str) -> str:
        """Load a picture and return the hash of its pixels."""
        data = (await self._send("GET", f"image/{token}", None)).content
        name = hashlib.sha256(data).digest()
        if name not in _SEEN:
            _SEEN[name] = pixels(data)
        return _SEEN[name]

    async def _post(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        reply = (await self._send("POST", f"api/{action}", body)).json()
        if not isinstance(reply, dict):
            raise ValueError(f"the server answered {str(reply)[:200]} to {action}")
        return reply

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        """Send a request. Repeat it unchanged while the server does not answer or asks to wait."""
        gone, tries = 0.0, 0
        while True:
            if time.monotonic() >= self.end:
                raise _TimeOver
            tries += 1
            began = time.monotonic()
            try:
                reply = await self.client.request(method, path, json=body)
            except httpx.TransportError:
                pause = min(0.1 * 2 ** min(tries, 5), 2.0) * self.drawn.uniform(0.5, 1.0)
                if gone >= self.plan.patience:
                    raise
            else:
                self.sent = (time.monotonic() - began, tries)
                if reply.is_success:
                    return reply
                if reply.status_code not in (429, 502, 503) or gone >= self.plan.patience:
                    raise _Refused(reply.status_code, _sentence(reply))
                pause = _wait_asked(reply)
            self.run.retries += 1
            gone += time.monotonic() - began + pause
            await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise _TimeOver
        await asyncio.sleep(max(0.0, min(seconds, left)))


def _sentence(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {reply.status_code}"


def _wait_asked(reply: httpx.Response) -> float:
    """Return the number of seconds that the server asked to wait, at most 60."""
    try:
        return min(max(float(reply.headers.get("retry-after", "1")), 0.1), 60.0)
    except ValueError:
        return 1.0


def journal_line(vote: Acknowledged) -> str:
    """Return a vote that the server confirmed, as a line of JSON."""
    names = "worker assignment key answers seconds tries"
    return json.dumps(cells(vote, names) | {"seconds": round(vote.seconds, 4)}, ensure_ascii=False)
