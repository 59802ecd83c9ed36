"""Studies with votes in a real workspace, for tests of the lead's pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from PIL import Image

from core.stored_studies import ImportedVote
from core.studies import ControlPolicy, Item, NewItem, Rules
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
CREW = ("ada", "bo", "cy", "di", "ed")
"""Workers who vote on every item, in this order. Their names in the workspace begin with "imported-"."""
YES, NO = ("yes",) * 5, ("no",) * 5
MOSTLY, SPLIT = ("yes", "yes", "yes", "yes", "no"), ("yes", "yes", "yes", "no", "no")


def birds(**changes: Any) -> Rules:
    """Return the rules of the classification template: one question on validity, five votes, a consensus of four."""
    return replace(TEMPLATES["classification"].rules(), controls=ControlPolicy(share=0.1), **changes)


def picture(workspace: Workspace, number: int) -> str:
    """Store a small picture with a colour for each number. Return its hash."""
    return workspace.images.add(Image.new("RGB", (32, 32), (7 * number % 256, 90, 200 - number % 100)))


def study_of(
    workspace: Workspace, items: Sequence[NewItem], rules: Rules | None = None, name: str = "Birds, November"
) -> str:
    """Start a study with these items. Return its id."""
    studies = workspace.studies
    study_id = studies.create(name, rules or birds())
    studies.add_items(study_id, items)
    studies.start(study_id)
    return study_id


def bird_study(
    workspace: Workspace, answers: Sequence[Sequence[str]], controls: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Start a study with a bird for each entry of `answers`, given by ada, bo, and so on. `controls` holds each
    worker's answers to control items whose right answer is yes. Return the study's id.
    """
    items = [
        NewItem(
            picture(workspace, number),
            label="bird" if number % 2 else "owl",
            edit_types=("weather",) if number % 3 else ("weather", "background"),
            source_sha=picture(workspace, number + 500),
            caption="A bird in sunny weather.",
            counterfactual="A bird in snowy weather.",
            model="drawn-classifier",
            model_right=number % 4 != 0,
            group="random" if number < 6 else "misclassified",
            origin={"prompt": "a bird, snowy", "seed": number},
        )
        for number in range(len(answers))
    ]
    most_controls = max(map(len, (controls or {}).values()), default=1)
    items += [
        NewItem(picture(workspace, 900 + number), kind="control", expected={"valid": "yes"}, label="bird")
        for number in range(most_controls)
    ]
    study_id = study_of(workspace, items)
    known = workspace.studies.items(study_id)
    judged = [item for item in known if item.kind == "item"]
    checks = [item for item in known if item.kind == "control"]
    votes = [
        cast(item, worker, {"valid": answer}, 10 * number + place)
        for number, (item, own_answers) in enumerate(zip(judged, answers, strict=True))
        for place, (worker, answer) in enumerate(zip(CREW, own_answers, strict=False))
        if answer
    ]
    votes += [
        cast(item, worker, {"valid": answer}, 5000 + number, right=answer == "yes")
        for worker, own_answers in (controls or {}).items()
        for number, (item, answer) in enumerate(zip(checks, own_answers, strict=False))
    ]
    if votes:
        workspace.studies.import_votes(study_id, votes)
    return study_id


def cast(item: Item, worker: str, answers: Mapping[str, str], second: int, **fields: Any) -> ImportedVote:
    """Return a vote given this number of seconds after the start."""
    when = START + timedelta(seconds=second)
    known: dict[str, Any] = {"comment": "", "seconds": 4.0, **fields}
    return ImportedVote(item.id, worker, answers, accepted=when - timedelta(seconds=5), submitted=when, **known)
