"""People's decisions on images of the catalogue: commands to accept, reject, tag or relabel one or many, to undo that,
and to list who decided what.

A session is one person's sitting. On request it repeats some images without saying so, and reports at the end how often
the person agreed with themselves.
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

    @does("begin-review")
    def begin_review(
        self,
        author: Author = "",
        repeats: Annotated[
            float,
            Field(ge=0, le=MOST_REPEATS, description="After this share of the decisions an image is shown once more"),
        ] = 0.0,
    ) -> dict[str, Any]:
        """Begin a session of decisions; on request it repeats some images, to measure how consistent the person is."""
        return {"session": self._decisions.begin_session(author, repeats)}

    @does("decide", ImagesCommand)
    def decide(
        self,
        sent: ImagesCommand,
        verdict: Annotated[Verdict, Field(description="What is decided; “open” takes back what was")],
        reason: Annotated[str, Field(max_length=10 * LONGEST_REASON, description="Why they are rejected")] = "",
        session: Annotated[
            int | None,
            Field(
                ge=1, le=LARGEST_ID, description="The session that this is of; the answer may name an image to repeat"
            ),
        ] = None,
    ) -> Decided:
        """Accept or reject images of the catalogue, or withdraw verdicts; all of the images, or none. Raises UserError
        if the filter finds another number of images than expected, or none.
        """
        change = self._decisions.review(sent.target, verdict, reason, sent.author, session, sent.key)
        done = {"accepted": "Accepted {}.", "rejected": "Rejected {}.", "open": "Withdrew the verdict on {}."}
        repeat = self._repeat(session) if session is not None and change.decision else 0
        return _told(change, done[verdict], f"{verdict} already", repeat)

    @does("tag-images", ImagesCommand)
    def tag(
        self,
        sent: ImagesCommand,
        tag: Annotated[
            str, Field(max_length=10 * LONGEST_TAG, description=f"The tag, at most {LONGEST_TAG} characters")
        ],
        put: Annotated[bool, Field(description="Put it on; else take it off")] = True,
    ) -> Decided:
        """Add a tag to images of the catalogue, or remove it. Raises UserError as `decide`, and for an empty or too
        long tag.
        """
        tag = " ".join(tag.split())
        change = self._decisions.tag(sent.target, tag, put, sent.author, sent.key)
        if put:
            return _told(change, f"Put the tag “{_safe(tag)}” on {{}}.", "tagged so already")
        return _told(change, f"Took the tag “{_safe(tag)}” off {{}}.", "not tagged so")

    @does("relabel-images", ImagesCommand)
    def relabel(
        self,
        sent: ImagesCommand,
        label: Annotated[
            str, Field(max_length=10 * LONGEST_LABEL, description=f"The label, at most {LONGEST_LABEL} characters")
        ],
    ) -> Decided:
        """Change the label of images of classifications from that of their task; models are judged by the new one.
        Raises UserError as `decide`, for an empty label, and for images of segmentations.
        """
        label = " ".join(label.split())
        change = self._decisions.relabel(sent.target, label, sent.author, sent.key)
        return _told(change, f"Gave the label “{_safe(label)}” to {{}}.", "labelled so already")

    @does("undo-decision")
    def undo(
        self,
        decision: Annotated[
            Id, Field(description="Which; one that took another back does that again; 0: your last that counts")
        ] = 0,
        author: Author = "",
        key: Key = "",
    ) -> Decided:
        """Undo a verdict, a tag or a label on each image without later decisions; or redo it. Raises UserError if there
        is nothing to undo, or it was undone already.
        """
        back = self._decisions.take_back(decision, author, key)
        what = {"review": "the verdict", "tag": "the tag", "label": "the label"}[back.kind]
        done = f"{'Done again' if back.again else 'Taken back'}: {what} “{_safe(back.what)}” on {{}}."
        sentences = [done.format(count_of(back.changed, "image"))] if back.changed else ["Nothing was changed."]
        if back.left:
            stay = f"{count_of(back.left, 'image', 'stays')} as {'it is' if back.left == 1 else 'they are'}"
            sentences.append(f"{stay}: something else was decided since.")
        return Decided(back.decision, back.changed, back.left, " ".join(sentences), entry=back.entry)

    @does("list-decisions", Query)
    def listed(
        self,
        by: Annotated[str | None, Field(max_length=LONGEST_AUTHOR, description="Only what this person decided")] = None,
        after: After = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="Decisions in a page")] = 50,
    ) -> Plain:
        """List the decisions on images of the catalogue, the latest first."""
        decisions = self._decisions.all(limit, after, by)
        names = "kind author what undoes undone created"
        rows = [facts(one, names, decision=one.id, count=one.entries) for one in decisions]
        return {"decisions": rows, "next": decisions[-1].id if len(decisions) == limit else 0}

    @does("decision-history", Query)
    def history(self, entry: Annotated[Id, Field(description="The image, by its number in the catalogue")]) -> Plain:
        """List all decisions on one image, with person and time, the latest first. Raises UserError if unknown."""
        names = "kind what reason author decision restored created"
        return {"history": [facts(one, names) for one in self._decisions.of_entry(entry)]}

    @does("answer-repeat")
    def answer_repeat(
        self,
        session: Annotated[Id, Field(description="The session")],
        entry: Annotated[Id, Field(description="The image")],
        verdict: Annotated[Verdict, Field(description="What is thought of it now")],
        reason: Annotated[str, Field(max_length=10 * LONGEST_REASON, description="Why it is rejected")] = "",
    ) -> dict[str, bool]:
        """Judge an image that a session repeats; its verdict stays unchanged. Raises UserError for an image that the
        session does not repeat.
        """
        return {"agrees": self._decisions.answer_repeat(session, entry, verdict, reason)}

    @does("review-figures", Query)
    def figures(self, session: Annotated[Id, Field(description="The session")]) -> Plain:
        """Show a session's number of decisions, decisions per hour, and how often the person agreed with themselves.
        Raises UserError if it is unknown.
        """
        known = self._decisions.session(session)
        seconds = (known.last - known.first).total_seconds() if known.first and known.last else 0.0
        share = wilson(known.agreed, known.repeated, nothing="no image was shown once more yet")
        return {
            **facts(known, "author decisions images"),
            **facts(share, "low high words"),
            "session": known.id,
            "seconds": seconds,
            # From the first to the last, there is one interval less than decisions.
            "an_hour": 3600 * (known.decisions - 1) / seconds if seconds > 0 else None,
            "repeats": known.repeated,
            "same": known.agreed,
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
