"""Which item a worker gets next. A function of an open database.

Every worker has a random order of their own: a permutation of the places of a kind, drawn with the seed of the rules
and the worker's name, so that it can be repeated and needs no table. Of the next few that need a vote in that order,
one that others have begun comes first: so items are finished one after another when a study stops early, and the order
is hardly less random for it.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import lru_cache

import sqlite_utils

from storage.rows import Row
from study.types import ItemKind, Rules

LOOK_AHEAD = 3
"""Of so many that could be next, one that was begun is preferred."""
STRETCHES = (16, 128)
"""So many places of the worker's order are looked at, then so many; then all items that need a vote at once."""


def next_item(db: sqlite_utils.Database, study_id: str, worker: str, kind: ItemKind, rules: Rules) -> Row | None:
    """The row (id, kind, source) of an item of this kind that the worker never had and that needs a vote; None when
    there is none. Controls and quiz items have no number of votes that would be enough.
    """
    count = db.execute("SELECT count(*) FROM study_items WHERE study = ? AND kind = ?", [study_id, kind]).fetchone()[0]
    order = _order(rules.seed, worker, kind, count)
    query = "SELECT reached FROM enrolments WHERE study = ? AND worker = ?"
    # `reached` is only where to look first; that the item is free is looked up afresh.
    reached = db.execute(query, [study_id, worker]).fetchone()[0] if kind == "item" else 0
    for length in STRETCHES:
        places = order[reached : reached + length]
        found = _usable(db, study_id, worker, kind, rules.votes, places) if places else {}
        if found:
            usable = [place for place in places if place in found][:LOOK_AHEAD]
            if kind == "item":
                _remember(db, study_id, worker, reached + places.index(usable[0]))
            return found[next((place for place in usable if found[place]["begun"]), usable[0])]
        reached += len(places)
    found = _usable(db, study_id, worker, kind, rules.votes, None)
    if not found:
        return None
    rank = {place: number for number, place in enumerate(order)}
    return found[min(found, key=rank.__getitem__)]


@lru_cache(maxsize=512)
def _order(seed: int, worker: str, kind: str, count: int) -> array[int]:
    """The places 0 to count - 1 in the worker's order; kept, as drawing thousands takes longer than all the rest."""
    places = list(range(count))
    random.Random(f"order\0{seed}\0{worker}\0{kind}").shuffle(places)
    return array("L", places)


def _usable(
    db: sqlite_utils.Database, study_id: str, worker: str, kind: ItemKind, votes: int, places: Sequence[int] | None
) -> dict[int, Row]:
    """By place: the items of these places, or all with None, that need a vote and that the worker never had."""
    some = "" if places is None else f"AND place IN ({', '.join(str(int(place)) for place in places)})"
    room = "AND votes + leases < :votes" if kind == "item" else ""
    query = f"""
        SELECT id, kind, source, place, votes + leases > 0 AS begun FROM study_items
        WHERE study = :study AND kind = :kind {some} {room}
            AND NOT EXISTS (SELECT 1 FROM assignments WHERE item = study_items.id AND worker = :worker)
    """
    rows = db.query(query, {"study": study_id, "kind": kind, "votes": votes, "worker": worker})
    return {row["place"]: row for row in rows}


def _remember(db: sqlite_utils.Database, study_id: str, worker: str, reached: int) -> None:
    db.execute("UPDATE enrolments SET reached = ? WHERE study = ? AND worker = ?", [reached, study_id, worker])
