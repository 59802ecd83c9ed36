"""Access tokens for scripts: a lead makes a token, sees its text once, and can withdraw it. No script can make one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from core.tokens import LONGEST_DAYS, LONGEST_NAME, Token
from services.batches.data_roots import FOLDER, DataRoots
from services.commands import Command, does
from services.edit_conflicts import Id
from services.evaluation.model_choice import NamesModel
from storage.workspace import Workspace


@dataclass(frozen=True)
class NewToken:
    """A new token with its text, which is never shown again."""

    token: Token
    text: str


class ScriptTokens:
    """Makes and withdraws the tokens of a workspace, and logs their use. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, data_roots: DataRoots) -> None:
        self._workspace, self._data_roots = workspace, data_roots
        self._tokens, self._note = workspace.tokens, workspace.studies.note
        self.all = workspace.tokens.all
        """Returns every token ever made, the latest first."""
        self.holds = workspace.tokens.holds
        """Returns True while the token with this number is valid."""

    def require_place(self, sent: Command) -> None:
        """Raise UserError if a script names a path outside the data folders of this studio. A person who finds a lost
        token must learn nothing about other files, not even whether they exist. Paths of stored models are allowed.
        """
        file = sent.file.strip() if isinstance(sent, NamesModel) else ""
        if file and not Path(self._workspace.model_file(file)).is_relative_to(self._workspace.model_files):
            self._data_roots.require_file(file, "file", "the model on the page Evaluate")
        if getattr(sent, "setting", "") == FOLDER and (folder := getattr(sent, "value", "")):
            self._data_roots.require_file(str(folder), "value", "the folder on the page Explore")

    def log(self, name: str, sent: Command) -> None:
        """Log the command that a script sent with the token `name`."""
        about = " ".join(
            f"{field} {getattr(sent, field)}"
            for field in ("run", "job", "case", "test_set", "batch")
            if getattr(sent, field, None) is not None
        )
        self._note("script", f"{name}: {sent.name} {about}".strip(), getattr(sent, "study", ""))

    @does("make-token")
    def make(
        self,
        title: Annotated[
            str, Field(max_length=10 * LONGEST_NAME, description="A name for the token, such as “notebook”")
        ],
        reads_only: Annotated[bool, Field(description="True if the token may only read, and not make changes")] = True,
        days: Annotated[int, Field(ge=1, le=LONGEST_DAYS, description="Days that the token is valid")] = 30,
    ) -> NewToken:
        """Make a token for a script."""
        token, text = self._tokens.make(title, reads_only, days)
        may = "reads only" if token.reads_only else "reads and writes"
        self._note("token made", f"{token.name}: {may}, until {token.expires:%Y-%m-%d}")
        return NewToken(token, text)

    @does("withdraw-token")
    def withdraw(self, token: Annotated[Id, Field(ge=1, description="The number of the token")]) -> None:
        """End a token at once and for good."""
        self._tokens.withdraw(token)
        name = next(known.name for known in self._tokens.all() if known.id == token)
        self._note("token withdrawn", name)
