"""What a person decides about a test case: it is accepted, rejected with a reason, or open again."""

from __future__ import annotations

from pydantic import Field

from core.stored_runs import Verdict
from services.commands import Commands, RunCommand
from services.edit_conflicts import LARGEST_ID
from services.runs.settings import case_of
from storage.workspace import Workspace


class ReviewTestCase(RunCommand, name="review"):
    """Accept or reject a test case, or take that back."""

    case: int = Field(ge=0, le=LARGEST_ID, description="The test case")
    verdict: Verdict = Field(description="What is decided; “open” takes back what was")
    reason: str = Field("", description="Why it is rejected")


def register_reviews(commands: Commands, workspace: Workspace) -> None:
    """Take on what is done here."""

    def review(command: ReviewTestCase) -> None:
        case = case_of(workspace, command.run, command.case)
        reason = " ".join(command.reason.split()) if command.verdict == "rejected" else ""
        workspace.test_cases.review(case.id, command.verdict, reason)

    commands.add(ReviewTestCase, review)
