"""Tokens for scripts: a lead makes one, sees it once, and may withdraw it. A token makes no token: no endpoint does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from core.tokens import LONGEST_DAYS, LONGEST_NAME, Token
from services.commands import Command, Commands
from services.edit_conflicts import LARGEST_ID
from storage.workspace import Workspace


class MakeToken(Command):
    """Make a token for a script."""

    name: ClassVar[str] = "make-token"
    title: str = Field(max_length=10 * LONGEST_NAME, description="What the lead calls it, such as “notebook”")
    reads_only: bool = Field(True, description="Whether it may only look")
    days: int = Field(30, ge=1, le=LONGEST_DAYS, description="How long it lasts")


class WithdrawToken(Command):
    """End a token at once, for good."""

    name: ClassVar[str] = "withdraw-token"
    token: int = Field(ge=1, le=LARGEST_ID, description="Its number in the list")


@dataclass(frozen=True)
class NewToken:
    """A token that has just been made: its text is never told again."""

    token: Token
    text: str


def register_tokens(commands: Commands, workspace: Workspace) -> None:
    """Take on what is done here; the log says it."""

    def make(sent: MakeToken) -> NewToken:
        token, text = workspace.tokens.make(sent.title, sent.reads_only, sent.days)
        may = "reads only" if token.reads_only else "reads and writes"
        workspace.studies.note("token made", f"{token.name}: {may}, until {token.expires:%Y-%m-%d}")
        return NewToken(token, text)

    def withdraw(sent: WithdrawToken) -> None:
        workspace.tokens.withdraw(sent.token)
        name = next(token.name for token in workspace.tokens.all() if token.id == sent.token)
        workspace.studies.note("token withdrawn", name)

    commands.add(MakeToken, make)
    commands.add(WithdrawToken, withdraw)
