"""Who is signed in, and what the sign-in is checked against.

A token is 256 random bits and never stored, only its SHA-256: whoever reads the database cannot take a session over.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

from sqlite_utils import Database as Db

from core.stored_studies import Role, Session
from storage.engine.database import Repository, read, write
from storage.engine.rows import now, sha_of, when
from storage.studies.workers import require_worker

HOURS = 12.0
"""How long a session lasts unless it is said."""


class Sessions(Repository):
    """The signed-in browsers of the lead and of the workers, and named secrets."""

    @write
    def open(self, db: Db, role: Role, worker: str = "", hours: float = HOURS) -> str:
        """Open a session of the lead or a worker; return its token. Raises UserError for an unknown worker."""
        if (role == "worker") != bool(worker):
            raise ValueError("a session is the lead's, or a worker's with a name")
        if worker:
            require_worker(db, worker)
        db.execute("DELETE FROM sessions WHERE expires <= ?", [now()])
        token = secrets.token_urlsafe(32)
        expires = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="microseconds")
        row = {"sha": sha_of(token), "role": role, "worker": worker or None, "created": now(), "expires": expires}
        db.table("sessions").insert(row)
        return token

    @read
    def get(self, db: Db, token: str) -> Session | None:
        """The session of a token; None for one that is none, has run out or was closed."""
        query = "SELECT role, worker, expires FROM sessions WHERE sha = ? AND expires > ?"
        for row in db.query(query, [sha_of(token[:200]), now()]):
            return Session(row["role"], row["worker"] or "", when(row["expires"]))
        return None

    @write
    def close(self, db: Db, token: str) -> None:
        """End a session; an unknown token changes nothing."""
        db.execute("DELETE FROM sessions WHERE sha = ?", [sha_of(token[:200])])

    @write
    def close_all(self, db: Db, role: Role, worker: str = "") -> None:
        """End all sessions of a role, or those of one worker."""
        if worker:
            db.execute("DELETE FROM sessions WHERE role = ? AND worker = ?", [role, worker])
        else:
            db.execute("DELETE FROM sessions WHERE role = ?", [role])

    @read
    def secret(self, db: Db, name: str) -> str | None:
        """A named value that a sign-in needs, such as the hash of the lead's password; None when it was never set."""
        for row in db.query("SELECT value FROM secrets WHERE name = ?", [name]):
            return str(row["value"])
        return None

    @write
    def set_secret(self, db: Db, name: str, value: str) -> None:
        """Set a named value; the earlier one is gone."""
        db.table("secrets").insert({"name": name, "value": value, "changed": now()}, replace=True)
