"""Panel participants of a study (people sent by a company): settings, ids in the panel, answers about themselves.

These data are kept apart: no result, analysis or export of votes reads them. A report states whom the invitation link
admitted: everybody, or only panel participants (`ways_in`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlite_utils import Database as Db

from core.errors import UserError
from core.panel import Panel
from storage.engine.database import Repository, read, reading, write
from storage.engine.queries import first_column, first_value, insert_row, insert_rows
from storage.engine.rows import now, pack, pack_value, unpack_value, whole
from storage.studies.rows import log_change, require_study
from storage.studies.workers import add_worker, came_from, enrol

_LINK = {"invitation opened": True, "invitation ended": False, "restored": False, "closed": False}
"""Events of the log that open (True) or close (False) the study's invitation link."""


def _panel(db: Db, study_id: str) -> Panel:
    """Return the panel settings of a study; the defaults if none were made."""
    query = "SELECT settings FROM study_panels WHERE study = ? ORDER BY id DESC LIMIT 1"
    panel: Panel = unpack_value(Panel, first_value(db, query, [study_id]) or "{}")
    return panel


class Panels(Repository):
    get = reading(_panel)

    @write
    def set(self, db: Db, study_id: str, panel: Panel) -> None:
        """Change the settings from now on. Raises UserError if the study is a draft or closed."""
        if require_study(db, study_id)["state"] not in ("running", "paused"):
            raise UserError("Panel settings can be changed only while a study is running or paused.")
        if _panel(db, study_id) == panel:
            return
        insert_row(db, "study_panels", {"study": study_id, "settings": pack_value(panel), "created": now()})
        words = f"participants by {panel.parameter}" if panel.parameter else "the link takes anybody"
        log_change(db, "panel changed", words, study_id)

    @write
    def join(self, db: Db, study_id: str, participant: str, browser: str) -> str:
        """Return the worker for a panel participant in this study. It is the same worker in every browser."""
        known = "SELECT worker FROM participants WHERE study = ? AND participant = ?"
        if earlier := first_value(db, known, [study_id, participant]):
            return str(earlier)
        worker, _ = add_worker(db)
        enrol(db, study_id, worker.id)
        came_from(db, worker.id, browser)
        row = {"study": study_id, "worker": worker.id, "participant": whole(participant), "created": now()}
        insert_rows(db, "participants", [row])
        return worker.id

    @read
    def participants(self, db: Db, study_id: str) -> dict[str, str]:
        """Return the id that the panel gave each person, by the person's worker name in this workspace."""
        return dict(db.execute("SELECT worker, participant FROM participants WHERE study = ?", [study_id]).fetchall())

    @read
    def participant(self, db: Db, study_id: str, worker: str) -> str:
        """Return one worker's id in the panel; "" if the worker came from no panel."""
        query = "SELECT participant FROM participants WHERE study = ? AND worker = ?"
        return str(first_value(db, query, [study_id, worker]) or "")

    @write
    def answer(self, db: Db, study_id: str, worker: str, answers: Mapping[str, str]) -> None:
        """Save a worker's answers about themselves; {} for none."""
        cleaned = {whole(question): whole(answer) for question, answer in answers.items()}
        row = {"study": study_id, "worker": worker, "answers": pack(cleaned), "created": now()}
        insert_row(db, "person_answers", row)

    @read
    def was_asked(self, db: Db, study_id: str, worker: str) -> bool:
        """Return True if the worker was asked about themselves, even if they answered nothing."""
        return bool(first_value(db, "SELECT 1 FROM person_answers WHERE study = ? AND worker = ?", [study_id, worker]))

    @read
    def people(self, db: Db, study_id: str) -> dict[str, dict[str, str]]:
        """Return the answers of workers about themselves, by worker and question."""
        rows = db.execute("SELECT worker, answers FROM person_answers WHERE study = ? ORDER BY id", [study_id])
        return {worker: json.loads(answers) for worker, answers in rows}


def ways_in(db: Db, study_id: str) -> tuple[bool, bool]:
    """Return two flags: whether the study's link ever admitted everybody, and whether it ever admitted only a panel.

    If the second flag is True, the first flag ignores times when the link admitted everybody but nobody joined.
    """
    panels = db.execute("SELECT created, settings FROM study_panels WHERE study = ? ORDER BY id", [study_id])
    settings = [(created, bool(unpack_value(Panel, packed).parameter)) for created, packed in panels]
    opened = named = panelled = False
    since, changed, times = "", "", list[tuple[str, str]]()
    for event, created in db.execute("SELECT event, created FROM study_log WHERE study = ? ORDER BY id", [study_id]):
        if opened and not named:
            times.append((since, created))
        if event in _LINK:
            opened = _LINK[event]
        elif event == "panel changed":
            # The settings were saved just before this log entry, in one transaction.
            saved = [names for time, names in settings if changed < time <= created]
            named = saved[-1] if saved else named
            changed = created
        panelled |= opened and named
        since = created
    if opened and not named:
        times.append((since, "~"))  # a text after any time
    joined = first_column(db, "SELECT created FROM enrolments WHERE study = ?", [study_id])
    linked = any(start <= time <= end for start, end in times for time in joined) if panelled else bool(times)
    return linked, panelled
