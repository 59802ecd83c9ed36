"""Storage of a validity study: set-up, life cycle, workers, sessions, decisions and imported votes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from core.lineage import UnreadSettings
from core.predictions import Guess, Prediction
from core.stored_studies import ImportedVote
from core.studies import ControlPolicy, Eligibility, InstructionExample, Item, NewItem
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from services.studies.templates import TEMPLATES
from storage.backup import backup, restore
from storage.workspace import Workspace
from study.results import analyse
from tests.support.cases import made_case
from tests.support.study_desk import YES, assert_counted, crew, picture, rules, started, vote, vote_all
from tests.support.workspaces import workspace_in

THEN = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path) as opened:
        yield opened
    assert_counted(tmp_path)


def content(workspace: Workspace) -> bytes:
    """Return all bytes of the database and its log, as a thief of the files would get them."""
    return b"".join(path.read_bytes() for path in sorted(workspace.folder.glob("studio.db*")))


# Set-up and life cycle


def test_a_draft_keeps_what_it_is_given(workspace: Workspace) -> None:
    studies = workspace.studies
    first = studies.create("  Birds,\n November ", TEMPLATES["lance"].rules())
    assert (studies.get(first).name, studies.get(first).state) == ("Birds, November", "draft")
    assert studies.get(first).rules == TEMPLATES["lance"].rules()
    sha = picture(workspace)
    wanted = rules(
        votes=7,
        consensus=5,
        controls=ControlPolicy(0.2, 4, 0.8),
        eligibility=Eligibility(0.9, 10, 5, 0.7),
        examples=(InstructionExample(sha, "yes", "It is a “bird” <b>"),),
        seed=2**63,
    )
    studies.set_rules(first, replace(wanted, version=9))
    assert studies.get(first).rules == wanted
    second = studies.create("Boats", rules())
    studies.rename(first, "Birds again")
    assert [(study.id, study.name) for study in studies.all()] == [(second, "Boats"), (first, "Birds again")]
    assert studies.rules_history(first) == ()


def test_items_come_back_as_they_went_in(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, workspace.studies.create("Birds", rules())
    image, source = picture(workspace), picture(workspace, 9)
    full = NewItem(
        image_sha=image,
        source_sha=source,
        kind="control",
        expected={"valid": "yes"},
        label="tench, Tinca tinca",
        classes=("car", "vélo"),
        edit_types=("weather",),
        caption="A <b>bird</b>.",
        counterfactual="A boat.",
        test_case=7,
        model="m",
        model_right=False,
        group="random",
        origin={"run": "a", "seed": "18446744073709551615", "deep": {"list": [1, None]}},
    )
    plain = NewItem(image)
    ids = studies.add_items(study_id, [full, plain])
    found = studies.items(study_id)
    assert [item.id for item in found] == list(ids)
    assert found[0] == Item(**vars(full), id=ids[0], public=found[0].public)
    assert found[1] == Item(**vars(plain), id=ids[1], public=found[1].public)
    assert len({item.public for item in found}) == 2
    study = studies.get(study_id)
    assert (study.items, study.controls, study.quiz, study.needed) == (1, 1, 0, 2)
    studies.remove_items(study_id, [ids[0], 999])
    assert [item.id for item in studies.items(study_id)] == [ids[1]]


def test_a_draft_is_deleted_and_a_study_that_has_started_is_kept(workspace: Workspace) -> None:
    studies, kept = workspace.studies, started(workspace)
    draft = studies.create("Boats", rules())
    worker, _ = studies.workers.add()
    studies.add_items(draft, [NewItem(picture(workspace))])
    studies.workers.enrol(draft, worker.id)
    studies.delete_draft(draft)
    assert [study.id for study in studies.all()] == [kept]
    with pytest.raises(UserError, match="no study"):
        studies.items(draft)
    with pytest.raises(UserError, match="no study"):
        studies.delete_draft(draft)
    assert (studies.log(draft)[0].event, studies.log(draft)[0].detail) == ("draft deleted", "Boats")
    with pytest.raises(UserError, match="has started cannot be deleted"):
        studies.delete_draft(kept)


def test_a_study_from_start_to_end(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, workspace.studies.create("Birds", rules())
    with pytest.raises(UserError, match="has no items yet"):
        studies.start(study_id)
    (item,) = studies.add_items(study_id, [NewItem(picture(workspace))])
    studies.start(study_id)
    studies.start(study_id)  # a double click
    assert studies.get(study_id).state == "running" and studies.get(study_id).rules.version == 1
    for refused in (lambda: studies.set_rules(study_id, rules()), lambda: studies.remove_items(study_id, [item])):
        with pytest.raises(UserError, match=r"fixed when it starts|removed once a study has started"):
            refused()
    studies.pause(study_id)
    with pytest.raises(UserError, match="started already"):
        studies.start(study_id)
    studies.resume(study_id)
    studies.set_votes(study_id, 5, 4)
    (first, since), (second, later) = studies.rules_history(study_id)
    assert (first.version, first.votes, second.version, second.votes, second.consensus) == (1, 2, 2, 5, 4)
    assert since < later and studies.get(study_id).rules == second and studies.get(study_id).needed == 5
    studies.close(study_id)
    for change in (
        lambda: studies.resume(study_id),
        lambda: studies.start(study_id),
        lambda: studies.pause(study_id),
        lambda: studies.add_items(study_id, [NewItem(picture(workspace))]),
        lambda: studies.set_votes(study_id, 6, 5),
    ):
        with pytest.raises(UserError):
            change()
    events = [entry.event for entry in studies.log(study_id)]
    assert events == ["closed", "extended", "resumed", "paused", "started", "created"]


def test_votes_go_up_only(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, votes=5, consensus=4)
    with pytest.raises(UserError, match="enter 5 or more"):
        studies.set_votes(study_id, 4, 3)
    with pytest.raises(UserError, match="consensus of 1 to 7 equal answers"):
        studies.set_votes(study_id, 7, 8)
    studies.set_votes(study_id, 5, 4)
    assert len(studies.rules_history(study_id)) == 1
    database = sqlite3.connect(workspace.folder / "studio.db")
    for statement, words in (
        ("UPDATE studies SET votes = 1", "no fewer votes"),
        ("UPDATE studies SET state = 'draft'", "from draft to running"),
        ("DELETE FROM studies", "is kept"),
        ("DELETE FROM study_items", "are kept"),
        ("UPDATE study_items SET content = '{}'", "stays what it is"),
        ("UPDATE study_items SET place = place + 1", "keeps its place"),
    ):
        with pytest.raises(sqlite3.IntegrityError, match=words):
            database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    "mistake, words",
    [
        (lambda studies: studies.create(" \n", rules()), "has no name"),
        (lambda studies: studies.create("x" * 201, rules()), "201 characters"),
        (lambda studies: studies.get("nothing"), "no study 'nothing'"),
        (lambda studies: studies.items("nothing"), "no study"),
        (lambda studies: studies.data("nothing"), "no study"),
        (lambda studies: studies.workers.get("nobody"), "no worker 'nobody'"),
        (lambda studies: studies.workers.new_code("nobody"), "no worker"),
        (lambda studies: studies.pause(studies.create("A", rules())), "has not started"),
        (lambda studies: studies.resume(studies.create("A", rules())), "has not started"),
        (lambda studies: studies.close(studies.create("A", rules())), "has not started"),
        (lambda studies: studies.add_items(studies.create("A", rules()), [NewItem("a" * 64)]), "has no image"),
        (lambda studies: studies.workers.enrol(studies.create("A", rules()), "nobody"), "no worker"),
        (lambda studies: studies.workers.consent(studies.create("A", rules()), "nobody"), "not part of this study"),
        (lambda studies: studies.workers.join(""), "is not open"),
        (lambda studies: studies.workers.join("guessed"), "is not open"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(workspace: Workspace, mistake: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        mistake(workspace.studies)


def test_the_revision_grows_with_what_a_result_could_show_and_with_nothing_else(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    before = studies.revision(study_id)
    given = studies.assignments.claim(study_id, worker, "item")
    studies.note("refused", "a guess", study_id)
    assert studies.revision(study_id) == before
    seen = [before]
    for change in (
        lambda: vote(studies, given),
        lambda: studies.assignments.undo(study_id, worker),
        lambda: studies.workers.exclude(study_id, worker, "why", "person"),
        lambda: studies.workers.readmit(study_id, worker, "because"),
        lambda: studies.adjudicate(study_id, studies.items(study_id)[0].id, "valid", "yes", ""),
        lambda: studies.rename(study_id, "B"),
        lambda: studies.pause(study_id),
    ):
        change()
        seen.append(studies.revision(study_id))
    assert seen == sorted(set(seen))


# Workers


def test_a_pseudonym_and_a_code_that_is_nowhere(workspace: Workspace) -> None:
    studies = workspace.studies
    found = [studies.workers.add() for _ in range(30)]
    names, codes = [worker.id for worker, _ in found], [code for _, code in found]
    assert len(set(names)) == len(set(codes)) == 30
    for name, code in zip(names, codes, strict=True):
        assert name.partition("-")[0].isalpha() and name.partition("-")[2].isdigit()
        groups = code.split("-")
        assert [len(group) for group in groups] == [4, 4, 4, 4]
        assert set("".join(groups)) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
        assert studies.workers.of_code(code) == name
    assert studies.workers.of_code(codes[0].lower().replace("-", " ").replace("0", "o").replace("1", "l")) == names[0]
    for wrong in ("", "-", "guess", codes[0][:-1], codes[0] + "A", "x" * 10_000, "ü\0'"):
        assert studies.workers.of_code(wrong) is None
    everything = content(workspace)
    assert not any(form.encode() in everything for code in codes for form in (code, code.replace("-", "")))


def test_a_new_code_ends_the_earlier_one(workspace: Workspace) -> None:
    studies = workspace.studies
    worker, old = studies.workers.add()
    token = studies.sessions.open("worker", worker.id)
    new = studies.workers.new_code(worker.id)
    assert (studies.workers.of_code(old), studies.workers.of_code(new)) == (None, worker.id)
    assert studies.sessions.get(token) is None


def test_an_invitation_lets_in_until_it_is_ended(workspace: Workspace) -> None:
    studies = workspace.studies
    study_id = studies.create("Birds", rules())
    studies.add_items(study_id, [NewItem(picture(workspace))])
    link = studies.set_link(study_id, True)
    assert studies.set_link(study_id, True) == link == studies.get(study_id).link
    with pytest.raises(UserError, match="is not open"):
        studies.workers.join(link)  # not started yet
    studies.start(study_id)
    joined, worker, code = studies.workers.join(link)
    assert joined == study_id and studies.workers.of_code(code) == worker.id
    assert studies.workers.enrolled(worker.id) == (study_id,) and studies.workers.of_study(study_id) == (worker,)
    assert studies.set_link(study_id, False) == "" == studies.get(study_id).link
    with pytest.raises(UserError, match="is not open"):
        studies.workers.join(link)
    again = studies.set_link(study_id, True)
    assert again != link and studies.workers.join(again)
    studies.close(study_id)
    with pytest.raises(UserError, match="is not open"):
        studies.workers.join(again)


def test_consent_and_enrolment(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    worker = studies.workers.add()[0].id
    assert studies.workers.enrolment(study_id, worker) is None
    studies.workers.enrol(study_id, worker)
    studies.workers.enrol(study_id, worker)
    found = studies.workers.enrolment(study_id, worker)
    assert found is not None and not found.consented and found.exclusion is None
    studies.workers.consent(study_id, worker)
    studies.workers.consent(study_id, worker)
    found = studies.workers.enrolment(study_id, worker)
    assert found is not None and found.consented
    assert studies.get(study_id).workers == 0, "they have answered nothing yet"
    vote(studies, studies.assignments.claim(study_id, worker, "item"))
    assert studies.get(study_id).workers == 1


# Sessions and secrets


def test_sessions_last_so_long_and_end_when_they_are_closed(workspace: Workspace) -> None:
    studies = workspace.studies
    worker = studies.workers.add()[0].id
    lead, theirs, second = studies.sessions.open("lead"), studies.sessions.open("worker", worker), ""
    second = studies.sessions.open("worker", worker, hours=1)
    assert len({lead, theirs, second}) == 3 and len(lead) >= 43  # 256 bits
    found = studies.sessions.get(second)
    assert found is not None and (found.role, found.worker) == ("worker", worker)
    assert timedelta(minutes=59) < found.expires - datetime.now(UTC) <= timedelta(hours=1)
    assert studies.sessions.get(studies.sessions.open("lead", hours=0)) is None
    assert not any(token.encode() in content(workspace) for token in (lead, theirs, second))
    for wrong in ("", "guess", lead[:-1], lead + "x"):
        assert studies.sessions.get(wrong) is None
    studies.sessions.close(theirs)
    studies.sessions.close("guess")
    assert studies.sessions.get(theirs) is None and studies.sessions.get(second) is not None
    studies.sessions.close_all("worker")
    assert studies.sessions.get(second) is None and studies.sessions.get(lead) is not None
    studies.sessions.close_all("lead")
    assert studies.sessions.get(lead) is None
    with pytest.raises(ValueError):
        studies.sessions.open("worker")
    with pytest.raises(ValueError):
        studies.sessions.open("lead", worker)


def test_secrets(workspace: Workspace) -> None:
    studies = workspace.studies
    assert studies.sessions.secret("password") is None
    studies.sessions.set_secret("password", "scrypt:one")
    studies.sessions.set_secret("password", "scrypt:two")
    assert studies.sessions.secret("password") == "scrypt:two"


# Decisions on workers


def test_approval_is_counted_over_all_studies_and_can_be_reversed(workspace: Workspace) -> None:
    studies, first, second = workspace.studies, started(workspace, items=4), started(workspace, items=2)
    (worker,) = crew(studies, first, 1)
    studies.workers.enrol(second, worker)
    vote_all(studies, first, worker)
    vote_all(studies, second, worker)
    record = studies.workers.get(worker)
    assert (record.approved, record.rejected, record.pending, record.approval) == (0, 0, 6, None)
    studies.workers.decide(first, worker, "approved", "")
    with pytest.raises(UserError, match="Say why"):
        studies.workers.decide(second, worker, "rejected", " ")
    studies.workers.decide(second, worker, "rejected", "all the same answer")
    record = studies.workers.get(worker)
    assert (record.finished, record.approval, record.pending) == (6, 4 / 6, 0)
    assert {(given.verdict, given.reason) for given in studies.data(second).votes} == {
        ("rejected", "all the same answer")
    }
    assert studies.assignments.undo(second, worker) is None  # a vote cannot be undone after a decision
    assert all(given.decided and given.decided > given.submitted for given in studies.data(second).votes)
    studies.workers.decide(second, worker, "pending", "was looked at again")
    assert not any(given.decided for given in studies.data(second).votes)
    assert studies.workers.get(worker).pending == 2
    assert studies.assignments.undo(second, worker) is not None
    assert studies.workers.get(worker).pending == 1
    events = [(entry.event, entry.detail, entry.worker) for entry in studies.log(second, limit=3)]
    assert events[0] == ("work pending", "was looked at again", worker)


def test_exclusions_are_kept_with_their_reasons(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    one, two = crew(studies, study_id, 2)
    studies.workers.exclude(study_id, one, "1 of 4 right", "rule")
    studies.workers.exclude(study_id, one, "another reason", "person")  # excluded already
    (found,) = studies.data(study_id).exclusions
    assert (found.worker, found.reason, found.by) == (one, "1 of 4 right", "rule")
    studies.workers.readmit(study_id, two, "was never out")
    studies.workers.readmit(study_id, one, "the control was wrong")
    assert studies.data(study_id).exclusions == ()
    studies.workers.exclude(study_id, one, "again", "person")
    assert studies.data(study_id).exclusions[0].reason == "again"
    for mistake in (
        lambda: studies.workers.exclude(study_id, "nobody", "why", "person"),
        lambda: studies.workers.exclude(study_id, two, "  ", "person"),
        lambda: studies.workers.decide(study_id, "nobody", "approved", ""),
    ):
        with pytest.raises(UserError):
            mistake()


def test_adjudications_are_apart_and_the_latest_counts(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, controls=1)
    first, second, _, control = studies.items(study_id)
    for answer in ("yes", "no"):
        studies.adjudicate(study_id, first.id, "valid", answer, f"it is {answer}")
    studies.adjudicate(study_id, second.id, "valid", "yes", "")
    studies.adjudicate(study_id, second.id, "valid", "", "")
    (found,) = studies.data(study_id).adjudications
    assert (found.item, found.question, found.answer, found.reason) == (first.id, "valid", "no", "it is no")
    assert studies.data(study_id).votes == ()
    for item in (control.id, 999):
        with pytest.raises(UserError, match="This study has no such item"):
            studies.adjudicate(study_id, item, "valid", "yes", "")


def test_the_log_is_bounded_line_by_line_and_knows_no_references(workspace: Workspace) -> None:
    studies = workspace.studies
    for number in range(5):
        studies.note("refused", "x" * 100_000, "no such study", f"worker {number}")
    found = studies.log(limit=3)
    assert [entry.worker for entry in found] == ["worker 4", "worker 3", "worker 2"]
    assert all(len(entry.detail) == 1000 for entry in found)
    assert [entry.study_id for entry in studies.log("no such study", limit=2)] == ["no such study"] * 2


# Votes


def test_the_data_of_a_study_are_in_the_order_of_the_first_answers(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=2, controls=1, votes=2)
    one, two = crew(studies, study_id, 2)
    first = vote(studies, studies.assignments.claim(study_id, one, "item"), "no")
    second = vote(studies, studies.assignments.claim(study_id, two, "item"))
    third = vote(studies, studies.assignments.claim(study_id, two, "control"))
    studies.assignments.undo(study_id, one)
    studies.assignments.submit(first.public, one, {"valid": "yes"}, "now I see it", 1.0, "second")
    data = studies.data(study_id)
    assert [given.assignment for given in data.votes] == [first.id, second.id, third.id]
    assert (data.votes[0].comment, data.votes[0].changes, data.votes[0].answers) == ("now I see it", 1, YES)
    assert data.votes[0].submitted > data.votes[2].submitted > data.votes[0].accepted
    assert [worker.id for worker in data.workers] == [one, two]
    assert data.study == studies.get(study_id) and data.items == studies.items(study_id)
    report = analyse(data)
    assert report is not None


def test_a_study_with_nothing_in_it_can_be_analysed(workspace: Workspace) -> None:
    assert analyse(workspace.studies.data(started(workspace))) is not None


def an_import(item: int, worker: str, minute: int = 0, **changes: Any) -> ImportedVote:
    accepted = THEN + timedelta(minutes=minute)
    given = ImportedVote(item, worker, YES, "", accepted, accepted + timedelta(seconds=9), 9.0)
    return given._replace(**changes)


def test_votes_from_elsewhere_are_saved_as_they_were_given(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=2, controls=1, votes=2)
    one, two, control = (item.id for item in studies.items(study_id))
    rows = [
        an_import(one, "A1", 3, verdict="rejected", reason="failed a control"),
        an_import(one, "B2", 1, answers={"valid": "no"}, comment="a boat"),
        an_import(one, "C3", 2, verdict="approved"),  # a third vote, and only two count
        an_import(two, "A1", 4, verdict="rejected", reason="failed a control"),
        an_import(control, "A1", 5, right=False),
        an_import(control, "B2", 6),
    ]
    assert studies.import_votes(study_id, [tuple(row) for row in rows]) == 6  # type: ignore[misc]
    votes = studies.data(study_id).votes
    assert [given.worker for given in votes[:3]] == ["imported-B2", "imported-C3", "imported-A1"]
    given = votes[0]
    assert (given.answers, given.comment, given.seconds) == ({"valid": "no"}, "a boat", 9.0)
    assert (given.accepted, given.submitted) == (THEN + timedelta(minutes=1), THEN + timedelta(minutes=1, seconds=9))
    assert [(given.verdict, given.reason) for given in votes] == [
        ("pending", ""),
        ("approved", ""),
        ("rejected", "failed a control"),
        ("rejected", "failed a control"),
        ("pending", ""),
        ("pending", ""),
    ]
    record = studies.workers.get("imported-A1")
    assert (record.approved, record.rejected, record.pending) == (0, 2, 1)
    found = studies.workers.enrolment(study_id, "imported-A1")
    assert found is not None and (found.controls_seen, found.controls_right, found.items_seen) == (1, 0, 2)
    found = studies.workers.enrolment(study_id, "imported-B2")
    assert found is not None and found.controls_seen == 0
    there = studies.get(study_id)
    assert (there.votes, there.needed) == (3, 4)  # a third vote on one image does not count for another
    (worker,) = crew(studies, study_id, 1)
    assert vote_all(studies, study_id, worker) == [two]  # people here vote on the items that the file leaves
    studies.close(study_id)
    assert analyse(studies.data(study_id)) is not None


def test_imported_votes_of_who_is_excluded_do_not_count_until_they_are_readmitted(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=2, votes=1, consensus=1)
    one, two = (item.id for item in studies.items(study_id))
    studies.import_votes(study_id, [an_import(one, "A1")])
    studies.workers.exclude(study_id, "imported-A1", "one hand", "person")
    assert studies.import_votes(study_id, [an_import(two, "A1", 1, answers={"valid": "no"})]) == 1
    assert outcomes(workspace) == ["", ""]
    (worker,) = crew(studies, study_id, 1)
    assert sorted(vote_all(studies, study_id, worker)) == [one, two]
    assert studies.get(study_id).votes == 2 and outcomes(workspace) == ["valid", "valid"]
    studies.workers.readmit(study_id, "imported-A1", "both hands")
    assert outcomes(workspace) == ["valid", "invalid"], "the first votes count"


def outcomes(workspace: Workspace) -> list[str]:
    """Return the stored outcomes of the items, which the pages of runs show."""
    db = sqlite3.connect(workspace.folder / "studio.db")
    try:
        return [outcome for (outcome,) in db.execute("SELECT outcome FROM study_items ORDER BY id")]
    finally:
        db.close()


def test_a_file_with_a_mistake_brings_in_nothing(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=2)
    one, two = (item.id for item in studies.items(study_id)[:2])
    good = an_import(one, "A1")
    for wrong, words in (
        (an_import(999, "A1"), "which this study does not have"),
        (an_import(one, "A1", 9), "has a vote on item"),
        (an_import(two, "  "), "1 to 80 characters"),
        (an_import(two, "x" * 81), "1 to 80 characters"),
        (an_import(two, "A1", submitted=THEN - timedelta(days=1)), "impossible times or seconds"),
        (an_import(two, "A1", seconds=float("nan")), "impossible times or seconds"),
    ):
        with pytest.raises(UserError, match=words):
            studies.import_votes(study_id, [good, wrong])
        assert studies.data(study_id).votes == () and studies.data(study_id).workers == ()
    studies.import_votes(study_id, [good])
    with pytest.raises(UserError, match="already"):
        studies.import_votes(study_id, [good])
    draft = studies.create("A draft", rules())
    with pytest.raises(UserError, match="start it first"):
        studies.import_votes(draft, [])


def test_an_imported_name_is_never_a_worker_of_ours(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace)
    (worker,) = crew(studies, study_id, 1)
    item = studies.items(study_id)[0].id
    studies.import_votes(study_id, [an_import(item, worker), an_import(item, "imported-" + "x", 1)])
    assert studies.workers.get(worker).pending == 0
    assert {given.worker for given in studies.data(study_id).votes} == {f"imported-{worker}", "imported-x"}


# Candidates, files


def saying(label: str) -> Prediction:
    """Return a classifier's prediction of this label."""
    return Prediction("classification", "net", (Guess(label, 0.5),))


def test_candidates_are_the_test_cases_with_what_is_known_of_them(workspace: Workspace) -> None:
    source, made = Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), "red")
    task = Task("segmentation", protected=("road", "car"))
    run_id = workspace.runs.create(source, task, "demo", "A street", {"a": 1})
    workspace.runs.append_value(run_id, "caption", StageValue(Caption("A grey street."), Trace("model"), "k"))
    edits = (Edit("grey", "red", "attribute"), Edit("dry", "wet", "weather"), Edit("old", "new", "attribute"))
    settings = UnreadSettings(recorded={"s": 4})
    caption = CounterfactualCaption("A red street.", edits)
    case = made_case(made, counterfactual=caption, seed=2**63 + 1, settings=settings)
    case_id = workspace.test_cases.append(run_id, None, case)
    other = workspace.runs.create(source, Task("classification", "bird"), "demo", "A bird", {})
    second = workspace.test_cases.append(other, None, case)
    gone = workspace.runs.create(source, Task("classification", "boat"), "demo", "A boat", {})
    workspace.test_cases.append(gone, None, case)
    workspace.runs.remove(gone)
    workspace.test_cases.review(case_id, "accepted")
    workspace.test_cases.review(second, "rejected", "blurred")
    workspace.test_cases.review(second, "open")
    image_sha, source_sha = (workspace.test_cases.get(case_id).image_sha, workspace.runs.get(run_id).source_sha)
    workspace.predictions.append(source_sha, "net", saying("bird"))
    workspace.predictions.append(image_sha, "net", saying("boat"))
    workspace.predictions.append(image_sha, "net", saying("house"))
    workspace.predictions.append(image_sha, "other", saying("bird"))

    first, later = workspace.test_cases.candidates()
    assert (first.test_case, first.run_id, first.run_name, first.profile) == (case_id, run_id, "A street", "demo")
    assert (first.label, first.classes, first.caption) == ("", ("road", "car"), "A grey street.")
    assert (first.image_sha, first.source_sha) == (image_sha, source_sha)
    assert (first.counterfactual, first.edit_types) == (case.lineage.counterfactual, ("attribute", "weather"))
    assert first.predictions == {"net": (saying("bird"), saying("house")), "other": (None, saying("bird"))}
    assert first.origin["seed"] == str(2**63 + 1) and first.origin["prompt"] == "p"
    assert first.origin["settings"] == {"s": 4} and first.origin["run_name"] == "A street"
    assert (later.test_case, later.label, later.caption, later.verdict) == (second, "bird", "", "")
    assert first.verdict == "accepted"


def test_a_study_survives_backup_and_restore(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "one") as workspace:
        studies, study_id = workspace.studies, started(workspace, items=3)
        worker, code = studies.workers.add()
        studies.workers.enrol(study_id, worker.id)
        for _ in range(2):
            vote(studies, studies.assignments.claim(study_id, worker.id, "item"))
        held = studies.assignments.claim(study_id, worker.id, "item")
        before = studies.data(study_id)
        backup(tmp_path / "one", tmp_path / "one.zip")
    restore(tmp_path / "one.zip", tmp_path / "two")
    with workspace_in(tmp_path / "two") as workspace:
        studies = workspace.studies
        assert studies.data(study_id) == before
        assert studies.workers.of_code(code) == worker.id
        vote(studies, held)  # the page that was open continues
        assert workspace.images.path(before.items[0].image_sha).is_file()
    assert_counted(tmp_path / "two")
