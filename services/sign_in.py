"""The lead's sign-in: password check, limit of tries, and sessions. Knows no HTTP."""

from __future__ import annotations

import threading

from services.limits import Limiter, address_key
from services.passwords import COST, SECRET, Cost, hashed, matches
from services.security_log import Refusals
from storage.workspace import Workspace

HOURS = 24 * 7
ATTEMPTS, WINDOW_SECONDS = 10, 15 * 60
OPENED_WITH = "sessions-password"
"""Name of a secret of the workspace: the hash of the password that opened the lead's sessions."""


class LeadSignIn:
    """Signs in a person who knows the lead's password: the one from the environment, or else the stored one, if any."""

    def __init__(self, workspace: Workspace, password: str = "", cost: Cost = COST) -> None:
        """Take the password from the environment, "" for none. Sessions that were opened with another password end.
        Raises UserError if the password is too short or too long.
        """
        self.refusals = Refusals(workspace.studies.note)
        self.session = workspace.studies.sessions.get
        """Returns the session that a token belongs to, or None."""
        self.script = workspace.tokens.get
        """Returns the access token with this text, which a script sent, or None."""
        self._sessions = workspace.studies.sessions
        self.sign_out = self._sessions.close
        """Ends the session that a token belongs to, if there is one."""
        opened_with, self._password = self._sessions.secret(OPENED_WITH) or "", ""
        if password:
            self._password = opened_with if matches(password, opened_with) else hashed(password, cost)
        if self.kept() != opened_with:
            self._sessions.close_all("lead")
        self._limiter = Limiter(ATTEMPTS, WINDOW_SECONDS)
        self._one_at_a_time = threading.Lock()

    def kept(self) -> str:
        """Return the hash of the valid password, "" for none. Read at each call, so a new one is valid at once."""
        return self._password or self._sessions.secret(SECRET) or ""

    def sign_in(self, password: str, address: str | None) -> str:
        """Open a session and return its token; "" if the password is wrong. Raises TooMany after too many failures."""
        key = address_key(address)
        # One sign-in at a time, from checking the limit to counting the failure: otherwise many at once would all pass
        # the check. It also limits memory and processor time to those of one hash.
        with self._one_at_a_time:
            self._limiter.check(key)
            valid_hash = self.kept()
            if not matches(password, valid_hash):
                self._limiter.failed(key)
                self.refusals.note("wrong password", "the study lead's sign-in", address)
                return ""
            if self._sessions.secret(OPENED_WITH) != valid_hash:
                self._sessions.set_secret(OPENED_WITH, valid_hash)
        self._limiter.passed(key)
        self.refusals.note("signed in", "the study lead", address)
        return self._sessions.open("lead", hours=HOURS)
