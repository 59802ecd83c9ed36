"""The validity studies of a workspace: the only door to what people said in them.

Every method that saves runs in one transaction and returns after its commit. All may be called from any thread, and
from two processes. What a person can put right is a UserError, in words for them; what a worker may not do a Refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import sqlite_utils

from storage import assignments, candidates, judging, look_ahead, sessions, study_data, study_rows, workers
from storage.database import Database
from storage.study_types import (
    Assignment,
    Candidate,
    Enrolment,
    ImportedVote,
    LogEntry,
    Role,
    Saved,
    Session,
)
from study.types import Answers, ApprovalVerdict, Item, ItemKind, NewItem, Rules, Study, StudyData, Worker


class Studies:
    """Of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Set-up and life

    def create(self, name: str, rules: Rules) -> str:
        """A new draft; returns its id. Raises UserError for a name that is empty or too long."""
        return self._database.write(lambda db: study_rows.create_study(db, name, rules))

    def rename(self, study_id: str, name: str) -> None:
        """Give a study another name, in any state. Raises UserError for a name that does not do."""
        self._database.write(lambda db: study_rows.rename_study(db, study_id, name))

    def delete_draft(self, study_id: str) -> None:
        """Let a draft go, for good. Raises UserError once it has started."""
        self._database.write(lambda db: study_rows.delete_draft(db, study_id))

    def set_rules(self, study_id: str, rules: Rules) -> None:
        """Give a draft other rules. Raises UserError once it has started."""
        self._database.write(lambda db: study_rows.set_rules(db, study_id, rules))

    def set_votes(self, study_id: str, votes: int, consensus: int) -> None:
        """Ask for more votes an item in a study that goes on: another version of the rules. UserError for fewer."""
        self._database.write(lambda db: study_rows.set_votes(db, study_id, votes, consensus))

    def add_items(self, study_id: str, items: Sequence[NewItem]) -> tuple[int, ...]:
        """Add items to a draft, or to a study that goes on; returns their ids in order. Raises UserError for a closed
        study or an image that is not in the workspace.
        """
        return self._database.write(lambda db: study_rows.add_items(db, study_id, items))

    def remove_items(self, study_id: str, ids: Sequence[int]) -> None:
        """Take items out of a draft. Raises UserError once it has started."""
        self._database.write(lambda db: study_rows.remove_items(db, study_id, ids))

    def start(self, study_id: str) -> None:
        """Freeze the rules as version 1 and take votes from now on. Raises UserError without items or questions."""
        self._database.write(lambda db: study_rows.change_state(db, study_id, "running", "draft"))

    def pause(self, study_id: str) -> None:
        """Take no votes until it is resumed. Raises UserError for a draft or a closed study."""
        self._database.write(lambda db: study_rows.change_state(db, study_id, "paused"))

    def resume(self, study_id: str) -> None:
        """Take votes again. Raises UserError for a draft or a closed study."""
        self._database.write(lambda db: study_rows.change_state(db, study_id, "running", "paused"))

    def close(self, study_id: str) -> None:
        """Take no votes any more, for good. Raises UserError for a draft."""
        self._database.write(lambda db: study_rows.change_state(db, study_id, "closed"))

    def set_link(self, study_id: str, on: bool) -> str:
        """Open the invitation, or end it; returns its token, "" when off. A token that was ended never opens again."""
        return self._database.write(lambda db: study_rows.set_link(db, study_id, on))

    # Looking

    def study(self, study_id: str) -> Study:
        """A study with its rules and counts. Raises UserError for an unknown one, as all methods with an id do."""
        return self._database.read(lambda db: study_rows.read_study(db, study_id))

    def studies(self) -> tuple[Study, ...]:
        """All studies, the latest first."""
        return self._database.read(study_rows.read_studies)

    def items(self, study_id: str) -> tuple[Item, ...]:
        """The items, control items and quiz included, in the order in which they were added."""
        return self._database.read(lambda db: study_rows.read_items(db, study_id))

    def rules_history(self, study_id: str) -> tuple[tuple[Rules, datetime], ...]:
        """The versions of the rules since the start and since when each counted, oldest first; () of a draft."""
        return self._database.read(lambda db: study_rows.read_rules(db, study_id))

    def revision(self, study_id: str) -> int:
        """A number that grows with every change that a result could show: what was worked out for it holds with it."""
        return self._database.read(lambda db: int(study_rows.require_study(db, study_id)["revision"]))

    def data(self, study_id: str) -> StudyData:
        """All that an analysis needs, in one snapshot."""
        return self._database.read(lambda db: study_data.read_data(db, study_id))

    def candidates(self) -> tuple[Candidate, ...]:
        """Every test case of the runs that were not deleted, oldest first."""
        return self._database.read(candidates.read_candidates)

    def import_votes(self, study_id: str, rows: Iterable[ImportedVote]) -> int:
        """Save votes that were given elsewhere, all or none, as finished assignments of workers `imported-NAME`, in the
        order of their times; returns how many. Plain tuples with the fields of `ImportedVote` do as well.

        Raises UserError for a study that is not running or paused, an item that is not one of its, two votes of one
        worker on an item, and times or names that cannot be.
        """
        votes = [ImportedVote(*row) for row in rows]
        return self._database.write(lambda db: study_data.import_votes(db, study_id, votes))

    def log(self, study_id: str = "", limit: int = 200) -> tuple[LogEntry, ...]:
        """The latest lines of what happened, latest first; of one study, or of all."""
        return self._database.read(lambda db: study_rows.read_log(db, study_id, limit))

    def note(self, event: str, detail: str, study_id: str = "", worker: str = "") -> None:
        """Add a line to the log, such as a refusal; too long a text is cut. Neither study nor worker has to exist."""
        self._database.write(lambda db: study_rows.append_log(db, event, detail, study_id, worker))

    # Workers

    def add_worker(self) -> tuple[Worker, str]:
        """A new pseudonym and its code, which cannot be shown again: only its hash is kept."""
        return self._database.write(workers.add_worker)

    def join(self, link: str) -> tuple[str, Worker, str]:
        """A new worker in the study of an open invitation: the study's id, the worker, the code. Raises UserError for
        a token that opens nothing, or a study that has not started or is closed.
        """
        return self._database.write(lambda db: workers.join(db, link))

    def new_code(self, worker_id: str) -> str:
        """Another code; the earlier one opens nothing any more, and the worker's sessions end."""

        def renew(db: sqlite_utils.Database) -> str:
            code = workers.new_code(db, worker_id)
            sessions.close_sessions(db, "worker", worker_id)
            return code

        return self._database.write(renew)

    def worker_of(self, code: str) -> str | None:
        """Whose code this is, however it is spaced, in small letters too; None when nobody's."""
        return self._database.read(lambda db: workers.worker_of_code(db, code))

    def worker(self, worker_id: str) -> Worker:
        """A worker with the record in all studies. Raises UserError for an unknown one."""
        return self._database.read(lambda db: workers.read_worker(db, worker_id))

    def workers(self, study_id: str) -> tuple[Worker, ...]:
        """The workers of a study in the order in which they came."""
        return self._database.read(lambda db: workers.read_workers(db, study_id))

    def enrol(self, study_id: str, worker: str) -> None:
        """Let a worker into a study; again changes nothing."""
        self._database.write(lambda db: workers.enrol(db, study_id, worker))

    def enrolled(self, worker: str) -> tuple[str, ...]:
        """The ids of the studies that a worker belongs to, the one they came to last first."""
        return self._database.read(lambda db: workers.read_enrolled(db, worker))

    def consent(self, study_id: str, worker: str) -> None:
        """The worker agrees to take part. Raises UserError for one who is not enrolled."""
        self._database.write(lambda db: workers.consent(db, study_id, worker))

    def enrolment(self, study_id: str, worker: str) -> Enrolment | None:
        """What is known of a worker in a study; None for one who does not belong to it."""
        return self._database.read(lambda db: workers.read_enrolment(db, study_id, worker))

    def block(self, worker: str, blocked: bool) -> None:
        """Keep a worker from voting anywhere, or let them again; votes that were given stay."""
        self._database.write(lambda db: workers.set_blocked(db, worker, blocked))

    # Who is signed in

    def open_session(self, role: Role, worker: str = "", hours: float = sessions.HOURS) -> str:
        """A new session of the lead, or of the worker named; returns its token, of which only a hash is kept."""
        return self._database.write(lambda db: sessions.open_session(db, role, worker, hours))

    def session(self, token: str) -> Session | None:
        """The session of a token; None for one that is none, has run out or was closed."""
        return self._database.read(lambda db: sessions.read_session(db, token))

    def close_session(self, token: str) -> None:
        """End a session; an unknown token changes nothing."""
        self._database.write(lambda db: sessions.close_session(db, token))

    def close_sessions(self, role: Role, worker: str = "") -> None:
        """End all sessions of a role, or those of one worker."""
        self._database.write(lambda db: sessions.close_sessions(db, role, worker))

    def secret(self, name: str) -> str | None:
        """A named value that a sign-in needs, such as the hash of the lead's password; None when never set."""
        return self._database.read(lambda db: sessions.read_secret(db, name))

    def set_secret(self, name: str, value: str) -> None:
        """Set a named value; the earlier one is gone."""
        self._database.write(lambda db: sessions.set_secret(db, name, value))

    # Annotation

    def claim(self, study_id: str, worker: str, kind: ItemKind) -> Assignment | None:
        """What the worker judges next: what they have already, of any kind (its lease begins anew); else an item of
        `kind` that they let run out and that still needs a vote; else one that they never had, in a random order of
        their own. None when there is nothing for them now.

        Raises Refused for a study that is not running, and a worker who is excluded, blocked or not enrolled.
        """
        return self._database.write(lambda db: assignments.claim(db, study_id, worker, kind))

    def ahead(self, study_id: str, worker: str, kind: ItemKind, beside: int) -> Item | None:
        """The item that `claim` would give once the assignment with the id `beside` is answered, as things stand; None
        for none. Nothing is given or promised: it is there so that a picture can be on its way.
        """
        return self._database.read(lambda db: look_ahead.read_ahead(db, study_id, worker, kind, beside))

    def assignment(self, public: str) -> Assignment | None:
        """An assignment by its opaque token, in whatever state; None when there is none. It may be another worker's."""
        return self._database.read(lambda db: assignments.read_assignment(db, public))

    def image_of(self, token: str, worker: str) -> str | None:
        """The hash of the picture behind a token of an assignment of this worker; None for anything else."""
        return self._database.read(lambda db: assignments.read_image(db, token, worker))

    def submit(
        self,
        public: str,
        worker: str,
        answers: Answers,
        comment: str,
        seconds: float,
        key: str,
        right: bool | None = None,
    ) -> Saved:
        """Keep the answers; "again" when the client's `key` was kept before, whatever happened since: one vote.

        `answers` are checked before (study.questions.check_answers). `seconds` is bounded by the time since the item
        was given out. Of a control or quiz item `right` must say whether it was answered right (study.controls.right):
        the worker's figures count it. A lease that has run out is no hindrance while the item needs the vote.

        Raises Refused: "not yours" (the same for what does not exist), "answered", "full", "not running", "excluded",
        "blocked".
        """
        return self._database.write(
            lambda db: assignments.submit(db, public, worker, answers, comment, seconds, key, right)
        )

    def undo(self, study_id: str, worker: str) -> Assignment | None:
        """Take the worker's last answer back: the item is leased to them again, with what they had said; the log of
        votes has both. None when there is none, or it was approved or rejected. Raises Refused like `claim`.
        """
        return self._database.write(lambda db: assignments.undo(db, study_id, worker))

    def release(self, study_id: str, worker: str) -> None:
        """Give back what the worker has, for a pause; it is the first that they get when they go on, if it is still
        needed.
        """
        self._database.write(lambda db: assignments.release(db, study_id, worker))

    def progress(self, study_id: str, worker: str) -> tuple[int, int]:
        """How many items the worker has judged, and how many they could still get as things stand, the one they have
        included; control and quiz items are in neither.
        """
        return self._database.read(lambda db: assignments.read_progress(db, study_id, worker))

    def waiting(self, study_id: str, worker: str) -> bool:
        """Whether others have items that this worker has not judged: one of them may come back."""
        return self._database.read(lambda db: assignments.is_waiting(db, study_id, worker))

    # Judging

    def exclude(self, study_id: str, worker: str, reason: str, by: Literal["rule", "person"]) -> None:
        """The worker's votes in this study stop counting and their items need other votes, at once. One who is excluded
        already stays so. Raises UserError for a worker who is not in the study, or no reason.
        """
        self._database.write(lambda db: judging.exclude(db, study_id, worker, reason, by))

    def readmit(self, study_id: str, worker: str, reason: str) -> None:
        """The votes count again; where others replaced them, the first K by time count."""
        self._database.write(lambda db: judging.readmit(db, study_id, worker, reason))

    def decide(self, study_id: str, worker: str, verdict: ApprovalVerdict, reason: str) -> None:
        """Approve or reject all that the worker has answered in this study so far, or take that back with "pending".
        Raises UserError for a rejection without a reason.
        """
        self._database.write(lambda db: judging.decide(db, study_id, worker, verdict, reason))

    def adjudicate(self, study_id: str, item: int, question: str, answer: str, reason: str) -> None:
        """A person's answer where the workers found none, apart from the votes; "" takes an earlier one back."""
        self._database.write(lambda db: judging.adjudicate(db, study_id, item, question, answer, reason))
