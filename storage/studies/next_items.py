"""Choose a worker's next item. The functions take an open database.

Each worker gets the items of a kind in a random order of their own. The order depends only on the seed of the rules and
the worker's name, so it can be repeated and needs no table. One time in four, an item that others have begun is taken
from a random place further on in the order. So a study that stops early has more finished items, and the order
stays almost as random.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.studies import ItemKind, Rules
from storage.engine.queries import first_value
from storage.engine.rows import Row

BEGUN_FIRST = 0.25
"""Probability, 0 to 1, that items begun by others are searched first."""
STRETCHES = (16, 128)
"""Numbers of items in two short searches along the worker's order. If both find nothing, all items are searched."""
_QUERIES = DataTable(__file__, str)


def next_item(
    db: Db, study_id: str, worker: str, kind: ItemKind, rules: Rules, lost: Collection[str] = (), remember: bool = True
) -> Row | None:
    """Return the row (id, kind, image, source) of the worker's next item of a kind, or None if none exists.

    The item needs a vote, the worker never had the item, and its pictures are not among `lost`. Items with a known
    answer always need votes. Control and quiz items show no picture of the worker's training. With `remember=False`,
    for a preview, nothing is written.
    """
    query = "SELECT coalesce(max(place) + 1, 0) FROM study_items WHERE study = ? AND kind = ?"
    order = _order(rules.seed, worker, kind, first_value(db, query, [study_id, kind]))

    def usable_of(places: Sequence[int] | None) -> dict[int, Row]:
        chosen = _usable(db, study_id, worker, kind, rules.votes, places)
        return {place: row for place, row in chosen.items() if row["image"] not in lost and row["source"] not in lost}

    if kind != "item":
        # There are few of these items, and each is free until the worker has had it.
        usable = usable_of(None)
        if kind != "training":
            seen_in_training = told_of(db, study_id, worker)
            pictures = {place: (row["image"], row["source"], row["picture"]) for place, row in usable.items()}
            usable = {place: usable[place] for place in usable if seen_in_training.isdisjoint(pictures[place])}
        seen = list(db.query(_QUERIES["seen"], [study_id, worker]))
        images, sources = {row["image"] for row in seen}, {row["source"] for row in seen if row["source"]}
        fresh = {place: row for place, row in usable.items() if row["image"] not in images}
        if rules.show_source:
            # Sources are shown too. If only control items repeated a source, this would reveal them.
            chosen = _first(order, {place: row for place, row in fresh.items() if row["source"] not in sources})
            if chosen is not None:
                return chosen
        chosen = _first(order, fresh)
        # Quiz and training have a fixed length, so pictures may repeat. A control item never repeats a picture.
        return chosen if chosen is not None or kind == "control" else _first(order, usable)
    query = "SELECT reached, given FROM enrolments WHERE study = ? AND worker = ?"
    # `reached` only says where to search first. Each item found is checked to be free.
    reached, assigned = db.execute(query, [study_id, worker]).fetchone()
    drawn = random.Random(f"begun\0{rules.seed}\0{worker}\0{assigned}")
    if drawn.random() < BEGUN_FIRST and reached < len(order):
        start = drawn.randrange(reached, len(order))
        places = order[start : start + STRETCHES[0]]
        usable = usable_of(places)
        chosen = _first(places, {place: row for place, row in usable.items() if row["begun"]})
        if chosen is not None:
            return chosen
    for length in STRETCHES:
        places = order[reached : reached + length]
        chosen = _first(places, usable_of(places)) if places else None
        if chosen is not None:
            if remember:
                _remember(db, study_id, worker, reached + places.index(chosen["place"]))
            return chosen
        reached += len(places)
    chosen = _first(order, usable_of(None))
    if chosen is not None and remember:
        _remember(db, study_id, worker, order.index(chosen["place"]))
    return chosen


def look_again(db: Db, study_id: str) -> None:
    """Restart every worker's search for the next item at the first item. Needed if items are new or need more votes."""
    db.execute("UPDATE enrolments SET reached = 0 WHERE study = ?", [study_id])


def told_of(db: Db, study_id: str, worker: str) -> set[str]:
    """Return the hashes of a worker's training pictures: images as shown, originals before a colour change, sources."""
    return {sha for row in db.query(_QUERIES["told_of"], [study_id, worker]) for sha in row.values() if sha}


def _first(places: Sequence[int], found: Mapping[int, Row]) -> Row | None:
    return next((found[place] for place in places if place in found), None) if found else None


@lru_cache(maxsize=512)
def _order(seed: int, worker: str, kind: str, count: int) -> array[int]:
    """Return the numbers 0 to count - 1 in the worker's random order. Cached, as shuffling thousands is slow."""
    places = list(range(count))
    random.Random(f"order\0{seed}\0{worker}\0{kind}").shuffle(places)
    return array("L", places)


def _usable(
    db: Db, study_id: str, worker: str, kind: ItemKind, votes: int, places: Sequence[int] | None
) -> dict[int, Row]:
    """Return the items that the worker never had, by their number in the study. Ordinary items must also need votes.
    `places` are the numbers of the items to search; None searches all items.
    """
    if places is None:
        index, some = "study_items_by_room", ""
    else:
        index, some = "study_items_by_place", f"AND place IN ({', '.join(str(int(place)) for place in places)})"
    room = "AND votes + leases < :votes" if kind == "item" else ""
    # There are too many items to read their content without need.
    picture = "NULL" if kind == "item" else "json_extract(content, '$.origin.picture')"
    query = _QUERIES["usable"].format(picture=picture, index=index, some=some, room=room)
    rows = db.query(query, {"study": study_id, "kind": kind, "votes": votes, "worker": worker})
    return {row["place"]: row for row in rows}


def _remember(db: Db, study_id: str, worker: str, reached: int) -> None:
    db.execute("UPDATE enrolments SET reached = ? WHERE study = ? AND worker = ?", [reached, study_id, worker])
