"""Each item gets exactly K votes by K workers, in any order: leases, undo, exclusion, and several processes."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import unwrap
from pathlib import Path

import pytest
import sqlite_utils

from core.consensus import counted as study_counted
from core.stored_studies import Assignment, VoteRefused
from core.studies import ControlPolicy, NewItem
from storage.pending import give_functions
from storage.studies import assignments
from storage.studies.studies import Studies
from storage.workspace import Workspace
from study.readiness import findings
from tests.support.study_desk import YES, assert_counted, crew, picture, rules, started, vote, vote_all
from tests.support.workspaces import workspace_in

ROOT = Path(__file__).resolve().parents[2]
SOON = 5
"""Minutes of a short lease."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path) as opened:
        yield opened
    assert_counted(tmp_path)


def votes_of(studies: Studies, study_id: str) -> dict[int, list[str]]:
    """Return the workers who voted on each item, in the order of the votes."""
    found: dict[int, list[str]] = {item.id: [] for item in studies.items(study_id) if item.kind == "item"}
    for given in studies.data(study_id).votes:
        if given.kind == "item":
            found[given.item].append(given.worker)
    return found


def test_every_item_gets_its_votes_of_distinct_workers(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=20, votes=3)
    for worker in crew(studies, study_id, 5):
        vote_all(studies, study_id, worker)
    for judged in votes_of(studies, study_id).values():
        assert len(judged) == len(set(judged)) == 3
    assert studies.get(study_id).votes == studies.get(study_id).needed == 60


def test_what_a_worker_has_is_given_again(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, controls=1)
    (worker,) = crew(studies, study_id, 1)
    first = studies.assignments.claim(study_id, worker, "item")
    again = studies.assignments.claim(study_id, worker, "control")
    assert first is not None and again is not None
    assert (again.id, again.public, again.item) == (first.id, first.public, first.item)
    assert again.expires > first.expires


def test_a_leased_item_is_not_given_to_more_than_it_needs(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=2)
    one, two, three = crew(studies, study_id, 3)
    assert studies.assignments.claim(study_id, one, "item") and studies.assignments.claim(study_id, two, "item")
    assert studies.assignments.claim(study_id, three, "item") is None
    assert studies.assignments.progress(study_id, three) == (0, 0) and studies.assignments.waiting(study_id, three)
    assert studies.assignments.progress(study_id, one) == (0, 1)


@pytest.fixture
def same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give workers the same names in every run. Draws depend on the names, so no test depends on chance."""
    drawn = random.Random(1)
    monkeypatch.setattr("secrets.choice", drawn.choice)
    monkeypatch.setattr("secrets.randbelow", drawn.randrange)


def test_the_orders_are_random_and_each_worker_has_their_own(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=40, votes=9, seed=5)
    orders = [vote_all(studies, study_id, worker) for worker in crew(studies, study_id, 3)]
    assert all(sorted(order) == sorted(orders[0]) and order != sorted(order) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_sides_are_mixed_and_recorded(workspace: Workspace, same_names: None) -> None:
    studies, study_id = workspace.studies, started(workspace, items=60, votes=1)
    (worker,) = crew(studies, study_id, 1)
    sides = []
    while (assignment := studies.assignments.claim(study_id, worker, "item")) is not None:
        sides.append(vote(studies, assignment).side)
    assert 15 < sides.count("left") < 45
    assert [given.side for given in studies.data(study_id).votes] == sides


@pytest.mark.slow
def test_items_that_were_begun_are_preferred_slightly(workspace: Workspace, same_names: None) -> None:
    studies, both = workspace.studies, 0
    for _ in range(3):
        study_id = started(workspace, items=200, votes=3)
        for worker in crew(studies, study_id, 2):
            for _ in range(60):
                vote(studies, studies.assignments.claim(study_id, worker, "item"))
        both += sum(len(judged) == 2 for judged in votes_of(studies, study_id).values())
    assert 65 < both < 140  # by chance: three times 60 * 60 / 200, which is 54; always: 180


class Clocks:
    """The system clock, which people and networks can set, and the monotonic clock, which nobody can set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time, self.running = datetime.now(UTC), 100.0
        monkeypatch.setattr(assignments, "now", lambda: self.time.isoformat(timespec="microseconds"))
        monkeypatch.setattr(assignments, "monotonic", lambda: self.running)

    def pass_by(self, seconds: float, asleep: bool = False) -> None:
        self.time += timedelta(seconds=seconds)
        self.running += 0 if asleep else seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_a_lease_that_ran_out_goes_to_somebody_else(workspace: Workspace, clocks: Clocks) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=1, lease_minutes=SOON)
    slow, quick = crew(studies, study_id, 2)
    left = studies.assignments.claim(study_id, slow, "item")
    assert left is not None
    clocks.pass_by(60 * (SOON + 1))
    vote(studies, studies.assignments.claim(study_id, quick, "item"))
    with pytest.raises(VoteRefused, match="has all its votes") as refused:
        studies.assignments.submit(left.public, slow, YES, "", 1.0, "late")
    assert refused.value.kind == "full"
    assert studies.assignments.claim(study_id, slow, "item") is None
    assert not studies.assignments.waiting(study_id, slow)


def test_a_late_answer_is_taken_while_the_item_needs_it(workspace: Workspace, clocks: Clocks) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=2, lease_minutes=SOON)
    slow, other = crew(studies, study_id, 2)
    left = studies.assignments.claim(study_id, slow, "item")
    clocks.pass_by(60 * (SOON + 1))
    vote(studies, studies.assignments.claim(study_id, other, "item"))
    assert studies.assignments.get(left.public).state == "expired"  # type: ignore[union-attr]
    vote(studies, left)
    assert votes_of(studies, study_id).popitem()[1] == [other, slow]


def test_a_lease_that_ran_out_does_not_stand_in_the_way_of_a_late_answer(workspace: Workspace, clocks: Clocks) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=1, lease_minutes=SOON)
    first, second = crew(studies, study_id, 2)
    left = studies.assignments.claim(study_id, first, "item")
    clocks.pass_by(60 * (SOON + 1))
    assert studies.assignments.claim(study_id, second, "item") is not None
    clocks.pass_by(60 * (SOON + 1))
    vote(studies, left)
    assert [given.worker for given in studies.data(study_id).votes] == [first]


def test_who_let_a_lease_run_out_gets_the_item_again_first(workspace: Workspace, clocks: Clocks) -> None:
    """Otherwise a study with exactly K workers could not be finished."""
    studies, study_id = workspace.studies, started(workspace, items=9, votes=1, lease_minutes=SOON)
    (one,) = crew(studies, study_id, 1)
    left = studies.assignments.claim(study_id, one, "item")
    clocks.pass_by(60 * (SOON + 1))
    back = studies.assignments.claim(study_id, one, "item")
    assert left is not None and back is not None and back.id == left.id and back.accepted > left.accepted


def test_a_pause_frees_the_item_and_keeps_the_place(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=5, votes=1)
    one, two = crew(studies, study_id, 2)
    held = studies.assignments.claim(study_id, one, "item")
    studies.assignments.release(study_id, one)
    assert studies.assignments.progress(study_id, two) == (0, 5)
    back = studies.assignments.claim(study_id, one, "item")
    assert held is not None and back is not None and back.id == held.id
    studies.assignments.release(study_id, one)
    assert len(vote_all(studies, study_id, two)) == 5
    assert studies.assignments.claim(study_id, one, "item") is None and studies.assignments.progress(study_id, one) == (
        0,
        0,
    )


def test_sending_twice_is_one_vote(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    sent = vote(studies, studies.assignments.claim(study_id, worker, "item"), key="k")
    assert studies.assignments.submit(sent.public, worker, {"valid": "no"}, "", 1.0, "k") == "again"
    with pytest.raises(VoteRefused, match="answered this image already") as refused:
        studies.assignments.submit(sent.public, worker, {"valid": "no"}, "", 1.0, "another")
    assert refused.value.kind == "answered"
    studies.close(study_id)
    assert studies.assignments.submit(sent.public, worker, YES, "", 1.0, "k") == "again"
    (given,) = studies.data(study_id).votes
    assert given.answers == YES and given.changes == 0


def test_undo_and_answer_anew(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=3, votes=1)
    one, two = crew(studies, study_id, 2)
    elsewhere = studies.assignments.claim(study_id, two, "item")
    first = vote(studies, studies.assignments.claim(study_id, one, "item"))
    last = vote(studies, studies.assignments.claim(study_id, one, "item"), "no")
    back = studies.assignments.undo(study_id, one)
    assert back is not None and back.id == last.id and back.answers == {"valid": "no"}
    assert studies.assignments.progress(study_id, one) == (1, 1)
    vote(studies, elsewhere)
    assert studies.assignments.claim(study_id, two, "item") is None  # the item is leased again, not free
    assert studies.assignments.claim(study_id, one, "item").id == last.id  # type: ignore[union-attr]
    vote(studies, back, "yes", key="second")
    assert (
        studies.assignments.submit(last.public, one, {"valid": "no"}, "", 1.0, "key") == "again"
    )  # the first vote, too late
    assert studies.assignments.claim(study_id, one, "item") is None
    earlier, changed = (given for given in studies.data(study_id).votes if given.worker == one)
    assert (earlier.assignment, earlier.changes) == (first.id, 0)
    assert (changed.assignment, changed.changes, changed.answers) == (last.id, 1, YES)
    assert changed.accepted == last.accepted


def test_undo_ends_at_the_last_answer_and_holds_one_lease(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=4, votes=1)
    one, two = crew(studies, study_id, 2)
    given = [vote(studies, studies.assignments.claim(study_id, one, "item")).id for _ in range(2)]
    held = studies.assignments.claim(study_id, one, "item")
    assert held is not None and studies.assignments.can_undo(study_id, one)
    assert studies.assignments.undo(study_id, one).id == given[1]  # type: ignore[union-attr]
    assert not studies.assignments.can_undo(study_id, one) and studies.assignments.undo(study_id, one) is None
    theirs = vote_all(studies, study_id, two)
    assert len(theirs) == 2 and held.item.id in theirs, "what was held is free meanwhile"
    studies.assignments.release(study_id, one)
    assert studies.assignments.undo(study_id, one) is None, "nor once it was given back"
    assert vote(studies, studies.assignments.claim(study_id, one, "item"), key="second").id == given[1]
    assert studies.get(study_id).votes == 4


def test_an_undone_vote_that_was_left_is_replaced(workspace: Workspace, clocks: Clocks) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=1, lease_minutes=SOON)
    one, two = crew(studies, study_id, 2)
    vote(studies, studies.assignments.claim(study_id, one, "item"))
    back = studies.assignments.undo(study_id, one)
    clocks.pass_by(60 * (SOON + 1))
    vote(studies, studies.assignments.claim(study_id, two, "item"))
    assert back is not None
    with pytest.raises(VoteRefused):
        studies.assignments.submit(back.public, one, YES, "", 1.0, "second")
    assert [given.worker for given in studies.data(study_id).votes] == [two]


def test_exclusion_asks_for_other_votes_at_once(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=4, votes=2)
    bad, good, spare = crew(studies, study_id, 3)
    judged = [vote(studies, studies.assignments.claim(study_id, bad, "item")).item.id for _ in range(2)]
    held = studies.assignments.claim(study_id, bad, "item")
    vote_all(studies, study_id, good)
    assert studies.get(study_id).votes == 6
    studies.workers.exclude(study_id, bad, "1 of 3 control items right", "rule")
    assert studies.get(study_id).votes == 4
    assert studies.assignments.progress(study_id, spare) == (0, 4)
    for attempt in (
        lambda: studies.assignments.claim(study_id, bad, "item"),
        lambda: studies.assignments.undo(study_id, bad),
        lambda: studies.assignments.submit(held.public, bad, YES, "", 1.0, "late"),  # type: ignore[union-attr]
    ):
        with pytest.raises(VoteRefused, match="no longer vote") as refused:
            attempt()
        assert refused.value.kind == "excluded"
    assert set(judged) < set(vote_all(studies, study_id, spare))
    data = studies.data(study_id)
    assert [found.worker for found in data.exclusions] == [bad]
    counted = Counter(given.item for given in data.votes if given.worker != bad)
    assert set(counted.values()) == {2}


@pytest.mark.slow
def test_items_that_need_a_vote_again_do_not_wait_for_the_end(workspace: Workspace) -> None:
    """Items count too that the worker skipped because they had all their votes."""
    studies, study_id = workspace.studies, started(workspace, items=400, votes=1)
    bad, good = crew(studies, study_id, 2)
    judged = {vote(studies, studies.assignments.claim(study_id, bad, "item")).item.id for _ in range(200)}
    for _ in range(40):
        vote(studies, studies.assignments.claim(study_id, good, "item"))
    studies.workers.exclude(study_id, bad, "why", "rule")
    again = {vote(studies, studies.assignments.claim(study_id, good, "item")).item.id for _ in range(40)}
    assert len(again & judged) > 10  # the items come in the worker's own order


def test_readmission_counts_the_votes_again(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=2, votes=1)
    bad, spare = crew(studies, study_id, 2)
    vote_all(studies, study_id, bad)
    studies.workers.exclude(study_id, bad, "too fast", "person")
    vote(studies, studies.assignments.claim(study_id, spare, "item"))
    studies.workers.readmit(study_id, bad, "a mistake of mine")
    found = studies.workers.enrolment(study_id, bad)
    assert found is not None and found.exclusion is None and found.readmitted
    assert studies.data(study_id).exclusions == ()
    assert studies.assignments.claim(study_id, spare, "item") is None  # both items have their vote
    assert sorted(len(judged) for judged in votes_of(studies, study_id).values()) == [1, 2]
    assert [given.worker for given in studies.data(study_id).votes] == [bad, bad, spare]  # the first vote counts


def test_a_blocked_worker_gets_nothing_anywhere(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, votes=1)
    blocked, other = crew(studies, study_id, 2)
    assert studies.assignments.claim(study_id, blocked, "item")
    studies.workers.block(blocked, True)
    with pytest.raises(VoteRefused, match="blocked"):
        studies.assignments.claim(study_id, blocked, "item")
    assert studies.assignments.claim(study_id, other, "item")
    studies.assignments.release(study_id, other)
    studies.workers.block(blocked, False)
    assert studies.assignments.claim(study_id, blocked, "item")


def test_more_votes_and_more_items_are_given_out(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=3, votes=1)
    one, two = crew(studies, study_id, 2)
    vote_all(studies, study_id, one)
    assert studies.assignments.claim(study_id, two, "item") is None
    studies.set_votes(study_id, 2, 2)
    assert len(vote_all(studies, study_id, two)) == 3
    known = studies.items(study_id)[0]
    studies.add_items(study_id, [known, known])
    assert len(vote_all(studies, study_id, one)) == 2
    assert studies.assignments.progress(study_id, two) == (3, 2)


def test_controls_and_quiz_have_no_number_of_votes_that_is_enough(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=1, controls=2, quiz=1, votes=1)
    for worker in crew(studies, study_id, 3):
        assert vote(studies, studies.assignments.claim(study_id, worker, "quiz"), "no").item.kind == "quiz"
        for answer in ("yes", "no"):
            vote(studies, studies.assignments.claim(study_id, worker, "control"), answer)
        assert studies.assignments.claim(study_id, worker, "control") is None
        found = studies.workers.enrolment(study_id, worker)
        assert found is not None
        assert (found.quiz_seen, found.quiz_right, found.controls_seen, found.controls_right) == (1, 0, 2, 1)
    studies.assignments.undo(study_id, worker)
    found = studies.workers.enrolment(study_id, worker)
    assert found is not None and (found.controls_seen, found.controls_right) == (1, 1)


def test_a_control_item_needs_to_be_judged_right_or_wrong(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, controls=1)
    (worker,) = crew(studies, study_id, 1)
    given = studies.assignments.claim(study_id, worker, "control")
    assert given is not None
    with pytest.raises(ValueError, match="answered right"):
        studies.assignments.submit(given.public, worker, YES, "", 1.0, "k")


@pytest.mark.parametrize("state, words", [("paused", "is paused"), ("closed", "is closed")])
def test_nothing_is_taken_while_a_study_does_not_run(workspace: Workspace, state: str, words: str) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    vote(studies, studies.assignments.claim(study_id, worker, "item"))
    held = studies.assignments.claim(study_id, worker, "item")
    assert held is not None
    (studies.pause if state == "paused" else studies.close)(study_id)
    for attempt in (
        lambda: studies.assignments.claim(study_id, worker, "item"),
        lambda: studies.assignments.undo(study_id, worker),
        lambda: studies.assignments.submit(held.public, worker, YES, "", 1.0, "late"),
    ):
        with pytest.raises(VoteRefused, match=words) as refused:
            attempt()
        assert refused.value.kind == "not running"
    if state == "paused":
        studies.resume(study_id)
        vote(studies, held)


def test_another_workers_assignment_is_as_one_that_does_not_exist(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    one, two = crew(studies, study_id, 2)
    theirs = studies.assignments.claim(study_id, one, "item")
    assert theirs is not None
    said = []
    for public in (theirs.public, "guessed", ""):
        with pytest.raises(VoteRefused) as refused:
            studies.assignments.submit(public, two, YES, "", 1.0, "k")
        said.append((refused.value.kind, str(refused.value)))
    assert len(set(said)) == 1
    assert studies.assignments.image_of(theirs.image_token, one) == theirs.item.image_sha
    assert studies.assignments.image_of(theirs.image_token, two) is None
    assert studies.assignments.image_of(str(theirs.item.id), one) is None
    assert studies.assignments.image_of("../studio.db", one) is None


def test_the_seconds_of_a_vote_are_those_that_can_have_been(workspace: Workspace, clocks: Clocks) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    for seconds in (1e9, -5.0):
        given = studies.assignments.claim(study_id, worker, "item")
        assert given is not None
        clocks.pass_by(4)
        studies.assignments.submit(given.public, worker, YES, "", seconds, "k")
    assert [given.seconds for given in studies.data(study_id).votes] == [4, 0]


def test_a_clock_that_is_set_back_makes_no_vote_a_fast_one(
    workspace: Workspace, clocks: Clocks, tmp_path: Path
) -> None:
    studies, study_id = workspace.studies, started(workspace, items=7)
    (worker,) = crew(studies, study_id, 1)

    def kept(seconds: float, of: Studies = studies) -> float:
        given = of.assignments.claim(study_id, worker, "item")
        assert given is not None
        clocks.pass_by(7.0)
        assert of.assignments.submit(given.public, worker, YES, "", seconds, "k") == "saved"
        return of.data(study_id).votes[-1].seconds

    assert kept(3.2) == 3.2 and kept(1e9) == 7.0
    studies.assignments.claim(study_id, worker, "item")
    clocks.time -= timedelta(hours=2)
    assert kept(6.5) == 6.5, "by the clock the image is given out in two hours"
    studies.assignments.claim(study_id, worker, "item")
    clocks.time -= timedelta(hours=2)
    assert kept(1e9) == 7.0, "nor does it let anybody claim any time"
    studies.assignments.claim(study_id, worker, "item")
    clocks.pass_by(60.0, asleep=True)
    assert kept(65.0) == 65.0, "a machine that slept counts by its clock"
    with Workspace(tmp_path) as other:  # as after a restart, when the start of a lease is unknown
        for seconds, bounded in ((4.0, 4.0), (1e9, 60 * studies.get(study_id).rules.lease_minutes)):
            studies.assignments.claim(study_id, worker, "item")
            clocks.time -= timedelta(hours=2)
            assert kept(seconds, other.studies) == bounded


def test_the_tables_themselves_refuse_one_vote_too_many(workspace: Workspace) -> None:
    """The tables refuse to assign an item twice to a worker, or to more than K workers at once, for any program."""
    studies, study_id = workspace.studies, started(workspace, items=1, votes=2)
    one, two, three, four = crew(studies, study_id, 4)
    given = vote(studies, studies.assignments.claim(study_id, one, "item"))
    studies.assignments.claim(study_id, two, "item")
    studies.assignments.release(study_id, two)
    vote(studies, studies.assignments.claim(study_id, three, "item"))
    connection = sqlite3.connect(workspace.folder / "studio.db", isolation_level=None)
    copy = f"""
        INSERT INTO assignments (public, image_token, study, worker, item, kind, side, number, state, accepted, expires)
        SELECT 'p', 'i', study, ?, item, kind, side, 9, ?, accepted, expires FROM assignments WHERE id = {given.id}
    """
    full = "as many leases and votes as it gets"
    for statement, values, words in (
        (copy, [four, "leased"], full),
        (copy, [one, "expired"], "UNIQUE"),
        (copy, ["nobody", "expired"], "FOREIGN KEY"),
        ("UPDATE assignments SET state = 'leased' WHERE worker = ?", [two], full),
        ("UPDATE assignments SET state = 'submitted', vote = 1 WHERE worker = ?", [two], full),
        ("UPDATE assignments SET imported = 1 WHERE worker = ?", [two], "stays that of its worker"),
        ("UPDATE assignments SET worker = ? WHERE id = 1", [four], "stays that of its worker"),
        ("DELETE FROM assignments", [], "are kept"),
        ("UPDATE study_votes SET answers = '{}'", [], "append-only"),
        ("DELETE FROM study_votes", [], "append-only"),
    ):
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError, match=words):
            connection.execute(statement, values)
    connection.close()


def test_claim_and_vote_read_no_whole_table(workspace: Workspace) -> None:
    """With 5,000 items and 50,000 votes each takes about a millisecond, if every statement uses an index."""
    studies, study_id = workspace.studies, started(workspace, items=40, controls=4, votes=2)
    one, two, three = crew(studies, study_id, 3)
    for worker in (one, two):
        vote_all(studies, study_id, worker)
    statements: list[str] = []
    watch = workspace._database.write
    watch(lambda db: db.conn.set_trace_callback(statements.append))
    vote(studies, studies.assignments.claim(study_id, three, "control"))
    assert studies.assignments.claim(study_id, three, "item") is None
    studies.assignments.undo(study_id, three)
    studies.assignments.release(study_id, three)
    vote(studies, studies.assignments.claim(study_id, three, "control"), key="second")
    studies.workers.exclude(study_id, one, "why", "rule")
    vote(studies, studies.assignments.claim(study_id, three, "item"))
    watch(lambda db: db.conn.set_trace_callback(None))
    connection = sqlite3.connect(workspace.folder / "studio.db")
    give_functions(connection)
    ours = {statement for statement in statements if re.match(r"\s*(SELECT|UPDATE|INSERT)", statement)}
    ours = {statement for statement in ours if "sqlite_master" not in statement}
    assert len(ours) > 15
    for statement in ours:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        small = ("CONSTANT", "pending_", "(subquery")  # tables that hold only the changes of this write
        scans = [step for step in plan if step.startswith("SCAN") and not any(name in step for name in small)]
        assert not scans, (statement, plan)
    connection.close()


def test_halves_of_letters_and_other_strange_texts_are_no_fault(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    given = studies.assignments.claim(study_id, worker, "item")
    assert given is not None
    strange = "\ud800 \0 ' \u202e <b>"
    with pytest.raises(VoteRefused):
        studies.assignments.submit(strange, worker, YES, "", 1.0, "k")
    assert studies.assignments.image_of(strange, worker) is None and studies.workers.of_code(strange) is None
    assert studies.sessions.get(strange) is None and studies.assignments.get(strange) is None
    studies.assignments.submit(given.public, worker, {"valid": strange}, strange, 1.0, strange)
    assert studies.assignments.submit(given.public, worker, YES, "", 1.0, strange) == "again"
    studies.note("refused", strange, strange, strange)
    studies.rename(study_id, strange)
    studies.workers.exclude(study_id, worker, strange, "person")
    data = studies.data(study_id)
    for text in (data.votes[0].comment, data.votes[0].answers["valid"], data.study.name, data.exclusions[0].reason):
        assert text.encode() and text.endswith("<b>")


def could_get(db: sqlite_utils.Database, study_id: str, worker: str) -> int:
    """Return the number of items that a worker could still get, counted by looking at each item and assignment."""
    (needed,) = db.execute("SELECT votes FROM studies WHERE id = ?", [study_id]).fetchone()
    number = 0
    for (item,) in db.execute("SELECT id FROM study_items WHERE study = ?", [study_id]).fetchall():
        query = "SELECT worker, state, counts FROM assignments WHERE item = ?"
        rows = db.execute(query, [item]).fetchall()
        mine = next((state for name, state, _ in rows if name == worker), "")
        taken = sum(counts for _, state, counts in rows if state != "expired")
        number += mine == "leased" or (mine != "submitted" and taken < needed)
    return number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_in_whatever_order(workspace: Workspace, clocks: Clocks, seed: int) -> None:
    """Six hundred random steps. At the end every item has exactly its votes, and more only from readmitted workers."""
    studies, fate = workspace.studies, random.Random(seed)
    study_id = started(workspace, items=12, votes=3, lease_minutes=SOON)
    names = crew(studies, study_id, 9)
    readmitted: set[str] = set()
    held: dict[str, Assignment] = {}
    # Several votes in one transaction, which the methods do not allow.
    desk, workers = studies.assignments, studies.workers
    claim, submit = (partial(unwrap(method), desk) for method in (type(desk).claim, type(desk).submit))
    undo, progress = (partial(unwrap(method), desk) for method in (type(desk).undo, type(desk).progress))
    release = unwrap(type(desk).release)
    exclude, readmit = (partial(unwrap(method), workers) for method in (type(workers).exclude, type(workers).readmit))

    def step(db: sqlite_utils.Database, number: int) -> None:
        worker, chance = fate.choice(names), fate.random()
        clocks.pass_by(60 * fate.random())
        try:
            if chance < 0.40:
                given = claim(db, study_id, worker, "item")
                if given is not None:
                    held[worker] = given
                else:  # looked up after the claim, which ends expired leases
                    assert could_get(db, study_id, worker) == 0
            elif chance < 0.75 and worker in held:
                submit(db, held[worker].public, worker, YES, "", 1.0, f"{number}", None)
            elif chance < 0.83:
                undo(db, study_id, worker)
            elif chance < 0.88:
                release(db, study_id, worker)
            elif chance < 0.91:
                exclude(db, study_id, worker, "why", "person")
            elif chance < 0.94:
                readmit(db, study_id, worker, "because")
                readmitted.add(worker)
            elif chance < 0.97:
                clocks.pass_by(60 * (SOON + 1))
        except VoteRefused:
            pass
        (most,) = db.execute("SELECT max(votes + leases) FROM study_items").fetchone()
        assert most <= 3 + len(readmitted)
        assert progress(db, study_id, worker)[1] == could_get(db, study_id, worker)

    for number in range(600):
        workspace._database.write(lambda db, number=number: step(db, number))  # type: ignore[misc]
    clocks.pass_by(60 * (SOON + 1))
    for worker in crew(studies, study_id, 4):
        vote_all(studies, study_id, worker)
    data = studies.data(study_id)
    counted = study_counted(data.votes, 3, [found.worker for found in data.exclusions])
    assert len(counted) == 12
    for judged in counted.values():
        assert len(judged) == len({given.worker for given in judged}) == 3
    over = {item for item, judged in votes_of(studies, study_id).items() if len(judged) > 3}
    out = readmitted | {found.worker for found in data.exclusions}
    assert all(out & set(votes_of(studies, study_id)[item]) for item in over)


def run_annotators(folder: Path, study_id: str, workers: list[str]) -> int:
    """Start a process for each worker, all at once. Return the number of their claims. Fails if any of them fails."""
    command = [sys.executable, "-m", "tests.support.study_annotator", str(folder), study_id]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([*command, worker, "1"], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
        for worker in workers
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=900) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(workers), [errors for _, errors in said]
    return sum(int(output) for output, _ in said)


@pytest.mark.slow
@pytest.mark.parametrize(("items", "processes"), [(50, 6), pytest.param(2000, 8, marks=pytest.mark.soak)])
def test_processes_claiming_at_once(tmp_path: Path, items: int, processes: int) -> None:
    """Hundreds of claims, or thousands in the soak tests: exactly five votes by five workers for each item, and no
    error.
    """
    with workspace_in(tmp_path) as workspace:
        study_id = started(workspace, items=items, votes=5, consensus=4)
        workers = crew(workspace.studies, study_id, processes)
    claims = run_annotators(tmp_path, study_id, workers)
    assert claims >= 5 * items
    with workspace_in(tmp_path) as workspace:
        judged = votes_of(workspace.studies, study_id)
        assert len(judged) == items
        for names in judged.values():
            assert len(names) == len(set(names)) == 5
        assert all(workspace.studies.assignments.progress(study_id, worker)[1] == 0 for worker in workers)
    assert_counted(tmp_path)


def test_a_control_item_never_shows_what_its_worker_has_seen(workspace: Workspace) -> None:
    studies = workspace.studies
    study_id = studies.create("Birds", rules(controls=ControlPolicy(share=0.5, min_seen=100)))
    known = [picture(workspace, shade) for shade in (1, 1, 2, 3)]
    controls = [NewItem(sha, kind="control", expected=YES, label="bird") for sha in known]
    quiz = [NewItem(picture(workspace, shade), kind="quiz", expected=YES, label="bird") for shade in (2, 2)]
    studies.add_items(study_id, [NewItem(picture(workspace), label="bird"), *controls, *quiz])
    studies.start(study_id)
    [told] = [one for one in findings(studies.get(study_id).rules, studies.items(study_id)) if "shows a" in one.text]
    assert told.text.startswith("1 control or quiz item shows a picture that another such item shows too.")
    one, other = crew(studies, study_id, 2)
    for _ in range(2):  # a quiz asks all its questions, even if they repeat an image
        vote(studies, studies.assignments.claim(study_id, one, "quiz"))
    for worker, pictures in ((one, {1, 3}), (other, {1, 2, 3})):
        seen: list[str] = []
        while (given := studies.assignments.claim(study_id, worker, "control")) is not None:
            assert studies.assignments.controls_left(study_id, worker) == len(pictures) - len(seen)
            seen.append(vote(studies, given).item.image_sha)
        assert sorted(seen) == sorted(picture(workspace, shade) for shade in pictures)
        assert studies.assignments.controls_left(study_id, worker) == 0


def test_beside_sources_a_control_item_shows_one_that_is_new_while_there_are_any(workspace: Workspace) -> None:
    """Otherwise a source that only a control item shows again would reveal the control item."""
    studies = workspace.studies
    study_id = studies.create("Birds", rules(show_source=True, votes=1, consensus=1))
    sources = [picture(workspace, 100 + number) for number in range(6)]
    new = [NewItem(picture(workspace, number), source, label="bird") for number, source in enumerate(sources)]
    new += [
        NewItem(picture(workspace, 50 + number), source, kind="control", expected=YES, label="bird")
        for number, source in enumerate(sources)
    ]
    studies.add_items(study_id, new)
    studies.start(study_id)
    (worker,) = crew(studies, study_id, 1)
    seen = [vote(studies, studies.assignments.claim(study_id, worker, "item")).item.source_sha for _ in range(3)]
    shown = [vote(studies, studies.assignments.claim(study_id, worker, "control")).item.source_sha for _ in range(3)]
    assert not set(seen) & set(shown)
    assert studies.assignments.claim(study_id, worker, "control") is not None, "then those that were there"
