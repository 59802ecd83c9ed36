"""Access tokens, which scripts send instead of the lead's password.

A token is 256 random bits. Only its SHA-256 is stored, so a reader of the database cannot use it. The row of a token is
never deleted, as the log names tokens that ended long ago.
"""

from __future__ import annotations

import secrets

from sqlite_utils import Database as Db

from core.errors import UserError
from core.tokens import LONGEST_DAYS, LONGEST_NAME, MARK, Token
from storage.engine.database import Repository, read, write
from storage.engine.queries import change_row, insert_row, record, records, required_row
from storage.engine.rows import Row, later, now, record_of, sha_of, whole

_LIVE = "SELECT * FROM tokens WHERE withdrawn IS NULL AND expires > ?"


class Tokens(Repository):
    @write
    def make(self, db: Db, name: str, reads_only: bool, days: int) -> tuple[Token, str]:
        """Create a token that expires after `days` days. Return it and its secret text, which is not stored.

        Raises UserError if the name is empty, too long or in use, or if `days` are out of bounds.
        """
        name = whole(" ".join(name.split()))
        if not 0 < len(name) <= LONGEST_NAME:
            words = f"Give the token a name of at most {LONGEST_NAME} letters, such as “notebook”."
            raise UserError(words, field="title")
        if not 1 <= days <= LONGEST_DAYS:
            raise UserError(f"A token lasts from 1 to {LONGEST_DAYS} days.", field="days")
        if record(db, Token, f"{_LIVE} AND name = ?", [now(), name]):
            raise UserError(f"There is a token “{name}” already: withdraw it, or take another name.", field="title")
        text = MARK + secrets.token_urlsafe(32)
        row = {"sha": sha_of(text), "name": name, "reads_only": int(reads_only), "created": now()}
        number = insert_row(db, "tokens", {**row, "expires": later(days=days)})
        return record_of(Token, _row(db, number)), text

    @read
    def all(self, db: Db) -> tuple[Token, ...]:
        """Return all tokens, latest first, including expired and withdrawn ones."""
        return records(db, Token, "SELECT * FROM tokens ORDER BY id DESC")

    @read
    def get(self, db: Db, text: str) -> Token | None:
        """Return the token with this secret text; None if it is unknown, expired or withdrawn."""
        values = [now(), sha_of(text[:200])]
        return record(db, Token, f"{_LIVE} AND sha = ?", values) if text.startswith(MARK) else None

    @read
    def holds(self, db: Db, number: int) -> bool:
        """Return True if the token with this number may still be used."""
        return record(db, Token, f"{_LIVE} AND id = ?", [now(), number]) is not None

    @write
    def withdraw(self, db: Db, number: int) -> None:
        """End a token permanently. If it has ended already, nothing changes. Raises UserError for an unknown token."""
        change_row(db, "tokens", number, {"withdrawn": _row(db, number)["withdrawn"] or now()})


def _row(db: Db, number: int) -> Row:
    return required_row(db, "tokens", number, "There is no such token: reload the page.", "token")
