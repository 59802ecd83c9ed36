"""How many people a study needs beyond those who are in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from core.stored_studies import Enrolment
from core.studies import StudyData, Vote, right
from study.eligibility import standing


def further_people(data: StudyData, counted: Mapping[int, Sequence[Vote]]) -> int:
    """Return the least number of people who have to join before every image can get all its votes; 0 if those in the
    study can give them. `counted` holds the votes of each item that count.

    Nobody votes twice on an image, and excluded or blocked workers and those who failed the quiz give no more votes.
    Whoever is in the study and may vote is taken to do so.
    """
    rules = data.study.rules
    able = _able(data)
    voters: dict[int, set[str]] = {}
    for vote in data.votes:
        if vote.kind == "item" and vote.worker in able:
            voters.setdefault(vote.item, set()).add(vote.worker)
    missing = {item.id: rules.votes - len(counted.get(item.id, ())) for item in data.items if item.kind == "item"}
    missing = {item: votes for item, votes in missing.items() if votes > 0}
    people = max((votes - len(able - voters.get(item, set())) for item, votes in missing.items()), default=0)
    if rules.most_items:
        given = Counter(worker for workers in voters.values() for worker in workers)
        unseen = {worker: sum(worker not in voters.get(item, ()) for item in missing) for worker in able}
        room = sum(min(unseen[worker], max(0, rules.most_items - given[worker])) for worker in able)
        people = max(people, math.ceil((sum(missing.values()) - room) / rules.most_items))
    return max(0, people)


def _able(data: StudyData) -> set[str]:
    """The workers who may vote, or may once they have consented and passed the quiz."""
    rules, known = data.study.rules, {item.id: item for item in data.items if item.expected}
    excluded = {exclusion.worker: exclusion for exclusion in data.exclusions}
    quizzes: dict[str, list[bool]] = {worker.id: [] for worker in data.workers}
    for vote in data.votes:
        if vote.kind == "quiz" and vote.worker in quizzes and vote.item in known:
            quizzes[vote.worker].append(right(known[vote.item], vote.answers, rules.questions))
    # Whoever has not consented or trained yet may still do so.
    figures = {
        name: Enrolment(data.study.id, name, True, sum(quiz), len(quiz), rules.training, exclusion=excluded.get(name))
        for name, quiz in quizzes.items()
    }
    # Whoever came in a file does not come to this page.
    elsewhere = {vote.worker for vote in data.votes if vote.imported}
    return {
        worker.id
        for worker in data.workers
        if worker.id not in elsewhere
        and standing(worker, figures[worker.id], rules).kind not in ("not eligible", "excluded")
    }
