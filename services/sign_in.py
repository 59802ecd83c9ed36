"""The lead's sign-in: who knows the password, how often it may be tried, and the sessions. Knows no HTTP."""

from __future__ import annotations

import threading

from services.limits import Limiter, address_key
from services.passwords import COST, SECRET, Cost, hashed, matches
from services.security_log import Refusals
from storage.workspace import Workspace

HOURS = 24 * 7
ATTEMPTS, WINDOW_SECONDS = 10, 15 * 60
OPENED_WITH = "sessions-password"
"""The name of a secret of the workspace: the hash of the password that the lead's sessions were opened with."""


class LeadSignIn:
    """Lets in who knows the password: the one from the environment, else the one that the workspace keeps, if any."""

    def __init__(self, workspace: Workspace, password: str = "", cost: Cost = COST) -> None:
        """`password` is that of the environment, or "". Sessions that another password opened end.

        Raises UserError if it is too short or too long.
        """
        self.refusals = Refusals(workspace.studies.note)
        self.session = workspace.studies.sessions.get
        """Return the session of a token, or None."""
        self.script = workspace.tokens.get
        """Return the script's token of a text, or None."""
        self._sessions = workspace.studies.sessions
        self.sign_out = self._sessions.close
        """End the session of a token, if there is one."""
        opened_with, self._password = self._sessions.secret(OPENED_WITH) or "", ""
        if password:
            self._password = opened_with if matches(password, opened_with) else hashed(password, cost)
        if self.kept() != opened_with:
            self._sessions.close_all("lead")
        self._limiter = Limiter(ATTEMPTS, WINDOW_SECONDS)
        self._one_at_a_time = threading.Lock()

    def kept(self) -> str:
        """The hash that counts, read anew each time: a password that was set meanwhile counts at once. "" for none."""
        return self._password or self._sessions.secret(SECRET) or ""

    def sign_in(self, password: str, address: str | None) -> str:
        """The token of a new session; "" when the password is wrong. Raises TooMany."""
        key = address_key(address)
        # One at a time, from the look at the limit to the count: or many at once would all pass it. It also keeps
        # what hashing takes of memory and processor to that of one.
        with self._one_at_a_time:
            self._limiter.check(key)
            kept = self.kept()
            if not matches(password, kept):
                self._limiter.failed(key)
                self.refusals.note("wrong password", "the study lead's sign-in", address)
                return ""
            if self._sessions.secret(OPENED_WITH) != kept:
                self._sessions.set_secret(OPENED_WITH, kept)
        self._limiter.passed(key)
        self.refusals.note("signed in", "the study lead", address)
        return self._sessions.open("lead", hours=HOURS)
