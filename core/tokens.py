"""A token: what a script shows instead of the lead's password."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MARK = "dillema_"
"""What each begins with, so that people and scanners of secrets know one when they see it."""
LONGEST_NAME = 80
LONGEST_DAYS = 366


@dataclass(frozen=True)
class Token:
    """What a script shows instead of the lead's password, without its text."""

    id: int
    name: str
    """Of whoever holds it, as the lead calls it: the log says what it did under this name."""
    reads_only: bool
    """It may look at everything and change nothing."""
    created: datetime
    expires: datetime
    withdrawn: datetime | None = None
