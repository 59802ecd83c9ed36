"""Build studies for the tests of `study/`: items, votes and workers without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from core.studies import Adjudication, Exclusion, Item, ItemKind, Rules, Study, StudyData, StudyState, Vote, Worker
from services.studies.templates import TEMPLATES

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
ROAD = replace(TEMPLATES["preservation"].rules(), version=1)
BIRD = replace(TEMPLATES["classification"].rules(), version=1)
YES, NO = ["yes"] * 5, ["no"] * 5
SPLIT = ["yes", "yes", "yes", "no", "no"]
MOSTLY = ["yes", "yes", "yes", "yes", "no"]


def known(figure: float | None) -> float:
    """Return a figure, which must not be None."""
    assert figure is not None
    return figure


def item(number: int, **fields: Any) -> Item:
    """Return an item with its own picture."""
    return Item(image_sha=f"image-{number}", id=number, public=f"p{number}", **fields)


def vote(number: int, of: int, worker: str, answers: Mapping[str, str], kind: ItemKind = "item", **fields: Any) -> Vote:
    """Return a vote, a second after the one before."""
    time = START + timedelta(seconds=10 * number)
    known: dict[str, Any] = {"comment": "", "seconds": 4.0, "side": "left", **fields}
    return Vote(number, of, kind, worker, answers, accepted=time, submitted=time + timedelta(seconds=5), **known)


def votes_of(answers: Mapping[int, Sequence[str]], question: str = "valid") -> list[Vote]:
    """Return votes from answers by item, given by worker-0, worker-1, ..., one item after another."""
    made: list[Vote] = []
    for of, item_answers in answers.items():
        for worker, answer in enumerate(item_answers):
            made.append(vote(len(made) + 1, of, f"worker-{worker}", {question: answer} if answer else {}))
    return made


def data(
    items: Iterable[Item],
    votes: Iterable[Vote],
    rules: Rules = BIRD,
    state: StudyState = "closed",
    exclusions: Iterable[Exclusion] = (),
    adjudications: Iterable[Adjudication] = (),
) -> StudyData:
    """Return a study with these votes, with a record for every worker who voted."""
    cast = tuple(votes)
    names = dict.fromkeys(vote.worker for vote in cast)
    return StudyData(
        study=Study("s1", "Birds, November", state, rules, START, START),
        items=tuple(items),
        votes=cast,
        workers=tuple(Worker(name, START, approved=60) for name in names),
        exclusions=tuple(exclusions),
        adjudications=tuple(adjudications),
    )


def simple(answers: Mapping[int, Sequence[str]], **fields: Any) -> StudyData:
    """Return a study of birds with these answers for each item."""
    return data([item(number, label="bird") for number in answers], votes_of(answers), **fields)


def excluded(worker: str, reason: str = "1 of 4 control items right; at least 75 % were asked for.") -> Exclusion:
    """Return an exclusion by the rule."""
    return Exclusion(worker, reason, "rule", START)


def driving() -> StudyData:
    """Return the paper's driving study: 100 images, 25 with vehicles, 15 with pedestrians, and its answers."""
    counts = {  # question: (images asked, kept, not kept, without consensus)
        "road": (100, 92, 1, 7),
        "vehicles": (25, 24, 0, 1),
        "pedestrians": (15, 11, 2, 2),
    }
    items = [
        item(
            n,
            source_sha=f"source-{n}",
            classes=("road", *(["vehicle"] if n < 25 else []), *(["pedestrian"] if n < 15 else [])),
        )
        for n in range(100)
    ]
    votes: list[Vote] = []
    for of in items:
        for worker in range(5):
            answers = {}
            for question, (items_asked, kept, lost, _) in counts.items():
                if of.id < items_asked:
                    pattern = MOSTLY if of.id < kept else NO if of.id < kept + lost else SPLIT
                    answers[question] = pattern[(worker + of.id) % 5]
            votes.append(vote(len(votes) + 1, of.id, f"worker-{worker}", answers))
    return data(items, votes, ROAD)
