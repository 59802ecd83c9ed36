"""The two ways in which a stage ends without a value, other than a programmer's mistake."""

from __future__ import annotations


class UserError(Exception):
    """A person's mistake or a missing thing. The message is shown as it is: what was wrong, and what to do."""

    def __init__(self, message: str = "", *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """The field of a command that it belongs to, such as "label"; "" for none."""


class UnreadableReply(UserError):
    """A language model's reply did not parse, every attempt spent. Carries what it said, so that a person can go on."""

    def __init__(self, message: str, prompt: str, raw_reply: str, attempts: int) -> None:
        super().__init__(message)
        self.prompt, self.raw_reply, self.attempts = prompt, raw_reply, attempts


class Cancelled(Exception):
    """The person asked to stop. What was finished before is kept."""
