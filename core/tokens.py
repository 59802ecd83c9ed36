"""Access tokens, which scripts send instead of the lead's password."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MARK = "dillema_"
"""Prefix of every token, so that people and secret scanners recognise one."""
LONGEST_NAME = 80
LONGEST_DAYS = 366


@dataclass(frozen=True)
class Token:
    """An access token for scripts, without its text."""

    id: int
    name: str
    """Name of its holder, given by the lead. The log uses it."""
    reads_only: bool
    """True if it may read everything and change nothing."""
    created: datetime
    expires: datetime
    withdrawn: datetime | None = None
