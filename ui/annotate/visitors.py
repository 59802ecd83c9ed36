"""Who an annotator is: codes and invitations in, sessions out, and an end to guessing. Knows cookies, no pages."""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass

from fastapi import Request

from pipeline.errors import UserError
from storage.studies import Studies
from ui.limits import Limiter, address_key

COOKIE = "annotator"
"""Holds the token of a worker's session."""
_OPEN = ("running", "paused")


class NotSignedIn(UserError):
    """There is no session, or it has ended, or what was given opens none."""


@dataclass(frozen=True)
class Joined:
    """What an invitation has led to."""

    study_id: str
    worker: str
    code: str
    """Of a new worker, shown this once; "" for one who was there before."""
    token: str
    """Of a new session; "" for a worker who was signed in."""


class Visitors:
    """Signs workers in and out. All methods may be called from any thread."""

    HOURS = 14 * 24
    SECONDS = HOURS * 3600

    def __init__(self, studies: Studies) -> None:
        self._studies = studies
        self._codes = Limiter(attempts=10, seconds=300)
        self._links = Limiter(attempts=10, seconds=300)
        # A link lets in as many workers as it likes: so many from one address in an hour are a class, more a script.
        self._joins = Limiter(attempts=500, seconds=3600, in_all=5000)
        self._one_at_a_time = threading.Lock()

    def worker(self, request: Request) -> str:
        """Who sent this; "" for nobody who is signed in as a worker."""
        token = request.cookies.get(COOKIE, "")
        session = self._studies.session(token) if token else None
        return session.worker if session is not None and session.role == "worker" else ""

    def require(self, request: Request) -> str:
        """Who sent this. Raises NotSignedIn for nobody."""
        worker = self.worker(request)
        if not worker:
            raise NotSignedIn("Please sign in with your code, or open the link of your invitation.")
        return worker

    def sign_in(self, code: str, address: str | None) -> tuple[str, str]:
        """Worker and the token of a new session. Raises NotSignedIn for a wrong code, TooMany after too many."""
        key = address_key(address)
        with self._one_at_a_time:  # from the look at the limit to the count, or many at once would all pass it
            self._codes.check(key)
            worker = self._studies.worker_of(code)
            if worker is None:
                self._codes.failed(key)
                raise NotSignedIn("There is no such code. Please check it letter by letter, or ask who invited you.")
            self._codes.passed(key)
        return worker, self._studies.open_session("worker", worker, self.HOURS)

    def join(self, link: str, there: str, address: str | None) -> Joined:
        """By an invitation: a new worker, or for `there`, who is signed in, another study.

        Raises NotSignedIn for a link that leads nowhere, TooMany after too many of them.
        """
        key = address_key(address)
        with self._one_at_a_time:
            self._links.check(key)
            if there:
                study_id = self._study_of(link, key)
                self._studies.enrol(study_id, there)
                return Joined(study_id, there, "", "")
            self._joins.check(key)
            try:
                study_id, worker, code = self._studies.join(link)
            except UserError as error:
                self._links.failed(key)
                raise NotSignedIn(str(error)) from error
            self._links.passed(key)
            self._joins.failed(key)
        return Joined(study_id, worker.id, code, self._studies.open_session("worker", worker.id, self.HOURS))

    def sign_out(self, token: str) -> None:
        """End a session; an unknown one changes nothing."""
        if token:
            self._studies.close_session(token)

    def _study_of(self, link: str, key: str) -> str:
        for study in self._studies.studies():
            if study.link and study.state in _OPEN and hmac.compare_digest(study.link.encode(), link.encode()):
                return study.id
        self._links.failed(key)
        raise NotSignedIn("This invitation is not open; please ask whoever sent it for another one.")
