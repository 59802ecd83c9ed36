"""The ways in which work ends without its result, other than a programmer's mistake."""

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


class CannotLoad(UserError):
    """A model cannot be had: its weights are missing or damaged, or the machine has no room for them. Whatever needs
    it, for whichever image, would end in the same way.
    """


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the machine, or of its GPU, was used up. Knows the words of torch."""
    words = str(error).lower()
    said = ("out of memory", "not enough memory", "cannot allocate memory", "can't allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | OSError) and any(part in words for part in said)
    )


def one_line(error: Exception) -> str:
    """Why something failed, in one line: the sentence where somebody wrote one, else the first that a library says."""
    said = (str(error).strip() or "no more is known").splitlines()[0]
    return said if isinstance(error, UserError) else f"{type(error).__name__}: {said}"


class Cancelled(Exception):
    """The person asked to stop. What was finished before is kept."""
