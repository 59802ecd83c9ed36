"""People's decisions on images of the catalogue: commands to accept, reject, tag or relabel one or many, to undo that,
and to list who decided what.

A session is one person's sitting. On request it repeats some images without saying so, and reports at the end how often
the person agreed with themselves.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.stored_runs import Verdict
from core.types import LONGEST_REASON
from core.words import count_of
from services.commands import Command, Commands, does
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID, Id, Ids
from services.queries import MOST_LISTED, Plain, Query
from storage.curation.decisions import (
    LONGEST_AUTHOR,
    LONGEST_KEY,
    LONGEST_LABEL,
    LONGEST_TAG,
    MOST_AT_ONCE,
    Change,
    Target,
)
from storage.workspace import Workspace
from study.intervals import wilson

WAITS = 10
"""Minimum other decisions before an image is repeated, so that nobody remembers it."""
MOST_REPEATS = 0.2


Author = Annotated[
    str, Field(max_length=LONGEST_AUTHOR, description="Who decides, in their own words; empty for nobody")
]
Key = Annotated[
    str,
    Field(
        max_length=LONGEST_KEY,
        description="Any text that you use once: what is sent again with it, because the reply was lost, is done once",
    ),
]


class ImagesCommand(Command):
    """A command on images of the catalogue: on listed ones, or on all that match a filter."""

    entries: Ids = Field(
        (), max_length=MOST_AT_ONCE, description="Images by their numbers in the catalogue, as a list or with commas"
    )
    filter: Filter | None = Field(None, description=WHICH)
    expected: int | None = Field(
        None,
        ge=0,
        le=LARGEST_ID,
        description="How many images the filter had when it was looked at; with another number nothing is done",
    )
    author: Author = ""
    key: Key = ""

    @property
    def target(self) -> Target:
        """Return the images that the command names. Raises UserError if both entries and a filter are given."""
        if self.filter is None:
            return Target(self.entries)
        if self.entries:
            raise UserError("Name images or a filter, not both.", field="filter")
        return Target(filter=self.filter, expected=self.expected)


class Decide(ImagesCommand, name="decide"):
    """Accept or reject images of the catalogue, or withdraw verdicts; all of the images, or none."""

    verdict: Verdict = Field(description="What is decided; “open” takes back what was")
    reason: str = Field("", max_length=10 * LONGEST_REASON, description="Why they are rejected")
    session: int | None = Field(
        None, ge=1, le=LARGEST_ID, description="The session that this is of; the answer may name an image to repeat"
    )


class TagImages(ImagesCommand, name="tag-images"):
    """Add a tag to images of the catalogue, or remove it."""

    tag: str = Field(max_length=10 * LONGEST_TAG, description=f"The tag, at most {LONGEST_TAG} characters")
    put: bool = Field(True, description="Put it on; else take it off")


class RelabelImages(ImagesCommand, name="relabel-images"):
    """Change the label of images of classifications from that of their task; models are judged by the new one."""

    label: str = Field(max_length=10 * LONGEST_LABEL, description=f"The label, at most {LONGEST_LABEL} characters")


class UndoDecision(Command, name="undo-decision"):
    """Undo a verdict, a tag or a label on each image without later decisions; or redo it."""

    decision: Id = Field(0, description="Which; one that took another back does that again; 0: your last that counts")
    author: Author = ""
    key: Key = ""


class ListDecisions(Query, name="list-decisions"):
    """List the decisions on images of the catalogue, the latest first."""

    by: str | None = Field(None, max_length=LONGEST_AUTHOR, description="Only what this person decided")
    after: Id = Field(0, description="The “next” of the page before")
    limit: int = Field(50, ge=1, le=MOST_LISTED, description="Decisions in a page")


class DecisionHistory(Query, name="decision-history"):
    """List all decisions on one image, with person and time, the latest first."""

    entry: Id = Field(description="The image, by its number in the catalogue")


class BeginReview(Command, name="begin-review"):
    """Begin a session of decisions; on request it repeats some images, to measure how consistent the person is."""

    author: Author = ""
    repeats: float = Field(
        0.0, ge=0, le=MOST_REPEATS, description="After this share of the decisions an image is shown once more"
    )


class AnswerRepeat(Command, name="answer-repeat"):
    """Judge an image that a session repeats; its verdict stays unchanged."""

    session: Id = Field(description="The session")
    entry: Id = Field(description="The image")
    verdict: Verdict = Field(description="What is thought of it now")
    reason: str = Field("", max_length=10 * LONGEST_REASON, description="Why it is rejected")


class ReviewFigures(Query, name="review-figures"):
    """Show a session's number of decisions, decisions per hour, and how often the person agreed with themselves."""

    session: Id = Field(description="The session")


@dataclass(frozen=True)
class Decided(Change):
    """Result of a decision, also in words."""

    said: str
    """The result in one or two sentences."""
    repeat: int = 0
    """Id of the image to repeat now; 0 for none."""
    entry: int = 0
    """Id of the image if an undo changed exactly one; else 0."""


class CurationDecisions:
    """Makes and lists decisions. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._decisions = workspace.decisions

    def register(self, commands: Commands) -> None:
        commands.add(BeginReview, lambda sent: {"session": self._decisions.begin_session(sent.author, sent.repeats)})

    @does
    def decide(self, sent: Decide) -> Decided:
        """Save verdicts on images. Raises UserError if the filter finds another number of images than expected, or
        none.
        """
        change = self._decisions.review(sent.target, sent.verdict, sent.reason, sent.author, sent.session, sent.key)
        done = {"accepted": "Accepted {}.", "rejected": "Rejected {}.", "open": "Withdrew the verdict on {}."}
        repeat = self._repeat(sent.session) if sent.session is not None and change.decision else 0
        return _told(change, done[sent.verdict], f"{sent.verdict} already", repeat)

    @does
    def tag(self, sent: TagImages) -> Decided:
        """Add or remove a tag. Raises UserError as `decide`, and for an empty or too long tag."""
        tag = " ".join(sent.tag.split())
        change = self._decisions.tag(sent.target, tag, sent.put, sent.author, sent.key)
        if sent.put:
            return _told(change, f"Put the tag “{_safe(tag)}” on {{}}.", "tagged so already")
        return _told(change, f"Took the tag “{_safe(tag)}” off {{}}.", "not tagged so")

    @does
    def relabel(self, sent: RelabelImages) -> Decided:
        """Change the label of images. Raises UserError as `decide`, for an empty label, and for images of
        segmentations.
        """
        label = " ".join(sent.label.split())
        change = self._decisions.relabel(sent.target, label, sent.author, sent.key)
        return _told(change, f"Gave the label “{_safe(label)}” to {{}}.", "labelled so already")

    @does
    def undo(self, sent: UndoDecision) -> Decided:
        """Undo or redo a decision. Raises UserError if there is nothing to undo, or it was undone already."""
        back = self._decisions.take_back(sent.decision, sent.author, sent.key)
        what = {"review": "the verdict", "tag": "the tag", "label": "the label"}[back.kind]
        done = f"{'Done again' if back.again else 'Taken back'}: {what} “{_safe(back.what)}” on {{}}."
        sentences = [done.format(count_of(back.changed, "image"))] if back.changed else ["Nothing was changed."]
        if back.left:
            stay = f"{count_of(back.left, 'image', 'stays')} as {'it is' if back.left == 1 else 'they are'}"
            sentences.append(f"{stay}: something else was decided since.")
        return Decided(back.decision, back.changed, back.left, " ".join(sentences), entry=back.entry)

    @does
    def listed(self, command: ListDecisions) -> Plain:
        decisions = self._decisions.all(command.limit, command.after, command.by)
        names = "kind author what undoes undone created"
        rows = [facts(one, names, decision=one.id, count=one.entries) for one in decisions]
        return {"decisions": rows, "next": decisions[-1].id if len(decisions) == command.limit else 0}

    @does
    def history(self, command: DecisionHistory) -> Plain:
        """Return all decisions on one image. Raises UserError if it is unknown."""
        names = "kind what reason author decision restored created"
        return {"history": [facts(entry, names) for entry in self._decisions.of_entry(command.entry)]}

    @does
    def answer_repeat(self, sent: AnswerRepeat) -> dict[str, bool]:
        """Store the verdict on a repeated image. Raises UserError for an image that the session does not repeat."""
        return {"agrees": self._decisions.answer_repeat(sent.session, sent.entry, sent.verdict, sent.reason)}

    @does
    def figures(self, command: ReviewFigures) -> Plain:
        """Return the figures of a session. Raises UserError if it is unknown."""
        session = self._decisions.session(command.session)
        seconds = (session.last - session.first).total_seconds() if session.first and session.last else 0.0
        share = wilson(session.agreed, session.repeated, nothing="no image was shown once more yet")
        return {
            **facts(session, "author decisions images"),
            **facts(share, "low high words"),
            "session": session.id,
            "seconds": seconds,
            # From the first to the last, there is one interval less than decisions.
            "an_hour": 3600 * (session.decisions - 1) / seconds if seconds > 0 else None,
            "repeats": session.repeated,
            "same": session.agreed,
            "share": share.value,
        }

    def _repeat(self, session: int) -> int:
        """Return the image to repeat now, 0 for none; drawn by the session and its number of decisions."""
        state = self._decisions.session(session)
        # Drawn from the session's numbers: the choice of repeats needs no storage and survives a restart.
        fate = random.Random(f"{state.id} {state.decisions}")
        if fate.random() >= state.repeats:
            return 0
        known: Sequence[int] = self._decisions.repeatable(session, WAITS)
        return fate.choice(known) if known else 0


def _told(change: Change, done: str, already: str, repeat: int = 0) -> Decided:
    """Return a change in words; `already` describes the unchanged images."""
    sentences = [done.format(count_of(change.changed, "image"))] if change.changed else ["Nothing was changed."]
    if change.same:
        sentences.append(f"{count_of(change.same, 'image', 'was')} {already}.")
    return Decided(change.decision, change.changed, change.same, " ".join(sentences), repeat)


def _safe(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
