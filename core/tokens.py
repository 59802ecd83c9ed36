"""Access tokens, which scripts send instead of the lead's password."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MARK = "dillema_"
"""Prefix of every token. People and secret scanners recognise a token by it."""
LONGEST_NAME = 80
LONGEST_DAYS = 366


@dataclass(frozen=True)
class Token:
    """An access token for scripts, without its secret text."""

    id: int
    name: str
    """Name that the lead gave to the token's user. The log uses it."""
    reads_only: bool
    created: datetime
    expires: datetime
    withdrawn: datetime | None = None
