"""Tokens for scripts: a lead makes one, sees it once, and may withdraw it. No endpoint makes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from core.tokens import LONGEST_DAYS, LONGEST_NAME, Token
from services.batches.data_roots import FOLDER, DataRoots
from services.commands import Command, does
from services.edit_conflicts import LARGEST_ID
from services.evaluation.model_choice import NamesModel
from services.runs.bulk_runs import SettingTogether
from services.runs.settings import ChangeSetting
from storage.workspace import Workspace


class MakeToken(Command, name="make-token"):
    """Make a token for a script."""

    title: str = Field(max_length=10 * LONGEST_NAME, description="What the lead calls it, such as “notebook”")
    reads_only: bool = Field(True, description="Whether it may only look")
    days: int = Field(30, ge=1, le=LONGEST_DAYS, description="How long it lasts")


class WithdrawToken(Command, name="withdraw-token"):
    """End a token at once and for good."""

    token: int = Field(ge=1, le=LARGEST_ID, description="Its number in the list")


@dataclass(frozen=True)
class NewToken:
    """A new token with its text, which is never shown again."""

    token: Token
    text: str


class ScriptTokens:
    """The tokens of a workspace, and the log of their use. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, data_roots: DataRoots) -> None:
        self._workspace, self._data_roots = workspace, data_roots
        self._tokens, self._note = workspace.tokens, workspace.studies.note
        self.all = workspace.tokens.all
        """Returns every token ever made, the latest first."""
        self.holds = workspace.tokens.holds
        """Returns True while the token of a number is valid."""

    def require_place(self, sent: Command) -> None:
        """Check a path that a script names on this machine. A token may get lost, and its finder must learn nothing of
        files elsewhere, not even whether they exist. Uploaded or trained models may be named. Raises UserError.
        """
        file = sent.file.strip() if isinstance(sent, NamesModel) else ""
        if file and not Path(self._workspace.model_file(file)).is_relative_to(self._workspace.model_files):
            self._data_roots.require_file(file, "file", "the model on the page Evaluate")
        if isinstance(sent, ChangeSetting | SettingTogether) and sent.setting == FOLDER and sent.value:
            self._data_roots.require_file(str(sent.value), "value", "the folder on the page Explore")

    def log(self, name: str, sent: Command) -> None:
        """Log what a script did with the token of a name."""
        about = " ".join(
            f"{field} {getattr(sent, field)}"
            for field in ("run", "job", "case", "test_set", "batch")
            if getattr(sent, field, None) is not None
        )
        self._note("script", f"{name}: {sent.name} {about}".strip(), getattr(sent, "study", ""))

    @does
    def make(self, sent: MakeToken) -> NewToken:
        token, text = self._tokens.make(sent.title, sent.reads_only, sent.days)
        may = "reads only" if token.reads_only else "reads and writes"
        self._note("token made", f"{token.name}: {may}, until {token.expires:%Y-%m-%d}")
        return NewToken(token, text)

    @does
    def withdraw(self, sent: WithdrawToken) -> None:
        self._tokens.withdraw(sent.token)
        name = next(token.name for token in self._tokens.all() if token.id == sent.token)
        self._note("token withdrawn", name)
