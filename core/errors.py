"""Errors that a user can act on, cancellation, and helpers that describe an error in words."""

from __future__ import annotations

import errno


class UserError(Exception):
    """A mistake of the user, or something missing. The message is shown as it is: what is wrong and what to do."""

    def __init__(self, message: str = "", *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """Name of the command's field that has a wrong value, such as "label", or ""."""


class DiskTrouble(UserError):
    """The disk or database of the workspace failed. The message names a path, so only the studio's owner sees it."""

    FOR_OTHERS = "The studio cannot read or save anything now. Ask its owner to check the disk, then try again."


class UnreadableReply(UserError):
    """A language model's replies could not be parsed in any attempt. Holds the last reply, so a person can edit it."""

    def __init__(self, message: str, prompt: str, raw_reply: str, attempts: int) -> None:
        super().__init__(message)
        self.prompt, self.raw_reply, self.attempts = prompt, raw_reply, attempts


class CannotLoad(UserError):
    """A model cannot be loaded: weights are missing or damaged, or memory is too small. So every image fails."""


def out_of_memory(error: BaseException) -> bool:
    """Return True if the error says that the machine or its GPU ran out of memory. Knows torch's wording."""
    message = str(error).lower()
    phrases = ("out of memory", "not enough memory", "cannot allocate memory", "can't allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | OSError) and any(phrase in message for phrase in phrases)
    )


def disk_reason(error: OSError) -> str:
    """Return the reason of a disk error and what to do about it, as the end of a sentence."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{error.strerror or error}: {'make room there' if full else 'have a look at that disk'}, and try again"


def one_line(error: Exception) -> str:
    """Return the first line of an error's message, preceded by its type unless it is a UserError."""
    first_line = (str(error).strip() or "no more is known").splitlines()[0]
    return first_line if isinstance(error, UserError) else f"{type(error).__name__}: {first_line}"


class Cancelled(Exception):
    """Raised in running work after the user asked to stop it. Finished parts of the work are kept."""


class NoRun(UserError):
    """The image file contains no stored run. A new run can start from the image."""
