"""People's decisions on images of the catalogue: commands to accept, reject, tag or relabel one or many images, to undo
a decision, and to list who decided what.

A session is a series of decisions by one person. On request the session shows some images a second time without saying
so, and reports how often the person decided the same again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.stored_runs import Verdict
from core.types import LONGEST_REASON
from core.words import count_of
from services.commands import Command, does
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID, After, Id, Ids
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
"""Minimum number of other decisions before an image is shown again, so that nobody remembers it."""
MOST_REPEATS = 0.2


Author = Annotated[str, Field(max_length=LONGEST_AUTHOR, description="Name of the person who decides; empty for none")]
Key = Annotated[
    str,
    Field(
        max_length=LONGEST_KEY,
        description="A text of your choice. If a command is sent again with the same text, it is not done again",
    ),
]


class ImagesCommand(Command):
    """A command on images of the catalogue: on listed ones, or on all that match a filter."""

    entries: Ids = Field(
        (), max_length=MOST_AT_ONCE, description="Images by their numbers in the catalogue, as a list or with commas"
    )
    filter: Filter | None = Field(None, description=WHICH)
    expected: int | None = Field(
        None, ge=0, le=LARGEST_ID, description="Number of matches that you saw; if it has changed, nothing is done"
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


@dataclass(frozen=True)
class Decided(Change):
    """Result of a decision, with a sentence for a person."""

    said: str
    """The result in one or two sentences."""
    repeat: int = 0
    """Id of an earlier image that the person should judge again now; 0 for none."""
    entry: int = 0
    """Id of the image if an undo changed exactly one; else 0."""


class CurationDecisions:
    """The commands to make and list decisions. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._decisions = workspace.decisions

    @does("begin-review")
    def begin_review(
        self,
        author: Author = "",
        repeats: Annotated[
            float,
            Field(
                ge=0, le=MOST_REPEATS, description="Share of the decisions after which an earlier image is shown again"
            ),
        ] = 0.0,
    ) -> dict[str, Any]:
        """Begin a session of decisions; on request it repeats some images, to measure how consistent the person is."""
        return {"session": self._decisions.begin_session(author, repeats)}

    @does("decide", ImagesCommand)
    def decide(
        self,
        sent: ImagesCommand,
        verdict: Annotated[Verdict, Field(description="The verdict; “open” withdraws an earlier one")],
        reason: Annotated[str, Field(max_length=10 * LONGEST_REASON, description="Reason of a rejection")] = "",
        session: Annotated[
            int | None,
            Field(ge=1, le=LARGEST_ID, description="The session; the reply may name an image to judge again"),
        ] = None,
    ) -> Decided:
        """Accept or reject images of the catalogue, or withdraw their verdicts. If one image cannot be decided, none
        is. Raises UserError if the filter matches no image, or another number of images than expected.
        """
        change = self._decisions.review(sent.target, verdict, reason, sent.author, session, sent.key)
        done = {"accepted": "Accepted", "rejected": "Rejected", "open": "Withdrew the verdict on"}
        repeat = self._repeat(session) if session is not None and change.decision else 0
        return _told(change, done[verdict], f"{verdict} already", repeat)

    @does("tag-images", ImagesCommand)
    def tag(
        self,
        sent: ImagesCommand,
        tag: Annotated[
            str, Field(max_length=10 * LONGEST_TAG, description=f"The tag, at most {LONGEST_TAG} characters")
        ],
        put: Annotated[bool, Field(description="True to add the tag, false to remove it")] = True,
    ) -> Decided:
        """Add a tag to images of the catalogue, or remove it. Raises UserError for an empty or too long tag, and if the
        filter matches no image or another number than expected.
        """
        tag = " ".join(tag.split())
        change = self._decisions.tag(sent.target, tag, put, sent.author, sent.key)
        if put:
            return _told(change, f"Put the tag “{tag}” on", "tagged so already")
        return _told(change, f"Took the tag “{tag}” off", "not tagged so")

    @does("relabel-images", ImagesCommand)
    def relabel(
        self,
        sent: ImagesCommand,
        label: Annotated[
            str, Field(max_length=10 * LONGEST_LABEL, description=f"The label, at most {LONGEST_LABEL} characters")
        ],
    ) -> Decided:
        """Replace the label that images have from their classification task; models under test are judged by the new
        label. Raises UserError for no matching image, an empty label, or images of segmentation tasks.
        """
        label = " ".join(label.split())
        change = self._decisions.relabel(sent.target, label, sent.author, sent.key)
        return _told(change, f"Gave the label “{label}” to", "labelled so already")

    @does("undo-decision")
    def undo(
        self,
        decision: Annotated[
            Id, Field(description="The decision, or the earlier undo, to undo; 0 for your latest decision in force")
        ] = 0,
        author: Author = "",
        key: Key = "",
    ) -> Decided:
        """Undo a decision on verdicts, a tag or a label, or redo one that was undone. An image with a later decision
        stays as it is. Raises UserError if there is nothing to undo, or the decision was undone already.
        """
        back = self._decisions.take_back(decision, author, key)
        what = {"review": "the verdict", "tag": "the tag", "label": "the label"}[back.kind]
        done = f"{'Done again' if back.again else 'Taken back'}: {what} “{back.what}” on"
        sentences = [f"{done} {count_of(back.changed, 'image')}." if back.changed else "Nothing was changed."]
        if back.left:
            stay = f"{count_of(back.left, 'image', 'stays')} as {'it is' if back.left == 1 else 'they are'}"
            sentences.append(f"{stay}: something else was decided since.")
        return Decided(back.decision, back.changed, back.left, " ".join(sentences), entry=back.entry)

    @does("list-decisions", Query)
    def listed(
        self,
        by: Annotated[str | None, Field(max_length=LONGEST_AUTHOR, description="Only decisions by this person")] = None,
        after: After = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="Maximum number of decisions in the page")] = 50,
    ) -> Plain:
        """List the decisions on images of the catalogue, the latest first."""
        decisions = self._decisions.all(limit, after, by)
        names = "kind author what undoes undone created"
        rows = [facts(one, names, decision=one.id, count=one.entries) for one in decisions]
        return {"decisions": rows, "next": decisions[-1].id if len(decisions) == limit else 0}

    @does("decision-history", Query)
    def history(self, entry: Annotated[Id, Field(description="The image, by its number in the catalogue")]) -> Plain:
        """List all decisions on an image, with person and time, the latest first. Raises UserError if it is unknown."""
        names = "kind what reason author decision restored created"
        return {"history": [facts(one, names) for one in self._decisions.of_entry(entry)]}

    @does("answer-repeat")
    def answer_repeat(
        self,
        session: Annotated[Id, Field(description="The session")],
        entry: Annotated[Id, Field(description="The image")],
        verdict: Annotated[Verdict, Field(description="The verdict on the image now")],
        reason: Annotated[str, Field(max_length=10 * LONGEST_REASON, description="Reason of a rejection")] = "",
    ) -> dict[str, bool]:
        """Save a second verdict on an image that a session shows again. The image keeps its first verdict. Raises
        UserError if the session did not ask about the image again.
        """
        return {"agrees": self._decisions.answer_repeat(session, entry, verdict, reason)}

    @does("review-figures", Query)
    def figures(self, session: Annotated[Id, Field(description="The session")]) -> Plain:
        """Show a session's number of decisions, the decisions per hour, and how often the person decided the same about
        a repeated image. Raises UserError if the session is unknown.
        """
        known = self._decisions.session(session)
        seconds = (known.last - known.first).total_seconds() if known.first and known.last else 0.0
        share = wilson(known.agreed, known.repeated, nothing="no image was shown once more yet")
        return {
            **facts(known, "author decisions images"),
            **facts(share, "low high words"),
            "session": known.id,
            "seconds": seconds,
            # Between the first and the last of n decisions there are n - 1 intervals.
            "an_hour": 3600 * (known.decisions - 1) / seconds if seconds > 0 else None,
            "repeats": known.repeated,
            "same": known.agreed,
            "share": share.value,
        }

    def _repeat(self, session: int) -> int:
        """Return the id of the image to show again in a session; 0 for none. The same decisions give the same id."""
        state = self._decisions.session(session)
        # The seed is made of the session's numbers, so the choice survives a restart without being stored.
        fate = random.Random(f"{state.id} {state.decisions}")
        if fate.random() >= state.repeats:
            return 0
        known: Sequence[int] = self._decisions.repeatable(session, WAITS)
        return fate.choice(known) if known else 0


def _told(change: Change, done: str, already: str, repeat: int = 0) -> Decided:
    """Describe a change in sentences. `done` is like "Accepted"; `already` describes the unchanged images."""
    sentences = [f"{done} {count_of(change.changed, 'image')}." if change.changed else "Nothing was changed."]
    if change.same:
        sentences.append(f"{count_of(change.same, 'image', 'was')} {already}.")
    return Decided(change.decision, change.changed, change.same, " ".join(sentences), repeat)
