"""Workers of studies: pseudonyms, sign-in codes, enrolments, decisions on the workers, and sessions.

Only the SHA-256 of a code is stored, so a reader of the database cannot sign in as anybody. A code has many random
bits, so it needs no salt and no slow hash. The same holds for the token of a session, which has 256 random bits.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Literal

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.stored_studies import Enrolment, Role, Session
from core.studies import ApprovalVerdict, Worker
from storage.engine.database import Repository, read, reading, write, writing
from storage.engine.queries import change_row, first_column, first_value, insert_row, insert_rows, records, required_row
from storage.engine.rows import checked_text, later, now, record_of, sha_of, whole
from storage.studies.next_items import look_again
from storage.studies.rows import append_log, log_change, release, require_study, touch

LONGEST_REASON = 500
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Symbols of codes: base32 without letters that look like digits (https://www.crockford.com/base32.html)."""
_SYMBOLS = 16
"""Number of symbols in a code. Each holds 5 bits."""
_READ_AS = str.maketrans("OIL", "011", "- \t\r\n")
_NAMES = DataTable(__file__, str, "names")


HOURS = 12.0
"""Number of hours that a session lasts by default."""
_QUERIES = DataTable(__file__, str, "queries")


def require_worker(db: Db, worker: str) -> Worker:
    """Return a worker, with counts over all studies. Raises UserError for an unknown worker."""
    missing = f"There is no worker {worker[:80]!r}; pick one from the list of workers."
    return record_of(Worker, required_row(db, "workers", worker, missing))


def read_workers(db: Db, study_id: str) -> tuple[Worker, ...]:
    """Return the workers of a study in the order in which they joined."""
    require_study(db, study_id)
    return records(db, Worker, _QUERIES["read_workers"], [study_id])


def enrol(db: Db, study_id: str, worker: str) -> None:
    """Enrol a worker in a study. A repeated call does nothing. Raises UserError for an unknown study or worker."""
    require_study(db, study_id)
    require_worker(db, worker)
    if _enrolment(db, study_id, worker) is None:
        insert_rows(db, "enrolments", [{"study": study_id, "worker": worker, "created": now()}])
        touch(db, study_id)


def came_from(db: Db, worker: str, browser: str) -> None:
    """Record the browser from which a worker signed in, as a hash of the browser's secret."""
    row = {"worker": worker, "browser": sha_of(browser), "created": now()}
    if browser and insert_rows(db, "worker_browsers", [row], ignore=True):
        for study_id in _enrolled(db, worker):
            touch(db, study_id)


def add_worker(db: Db, browser: str = "") -> tuple[Worker, str]:
    """Create a worker with a code. If the `browser` secret is given, the code is made from it. Only the code's hash is
    stored, so the code cannot be shown again.
    """
    worker = _free_name(db)
    insert_rows(db, "workers", [{"id": worker, "created": now()}])
    return require_worker(db, worker), _new_code(db, worker, browser)


def _enrolled(db: Db, worker: str) -> tuple[str, ...]:
    """Return the ids of the studies that a worker joined, latest first; () for an unknown worker."""
    return tuple(first_column(db, "SELECT study FROM enrolments WHERE worker = ? ORDER BY created DESC", [worker]))


def _enrolment(db: Db, study_id: str, worker: str) -> Enrolment | None:
    """Return a worker's state in a study; None if the worker is not enrolled."""
    return next(iter(records(db, Enrolment, _QUERIES["enrolment"], [study_id, worker])), None)


class Workers(Repository):
    """The workers of all studies. Methods raise UserError for an unknown worker or study unless they say otherwise."""

    add = writing(add_worker)
    enrol = writing(enrol)
    came_from = writing(came_from)
    get = reading(require_worker)
    of_study = reading(read_workers)
    enrolled = reading(_enrolled)
    enrolment = reading(_enrolment)

    @write
    def join(self, db: Db, link: str, browser: str = "") -> tuple[str, Worker, str]:
        """Join the study of an invitation's token `link`. Return the study's id, a worker and the worker's code.

        `browser` is the secret of the requesting browser, or "". If a worker joined from it and has not begun, this
        worker is returned again. Raises UserError if no study with this token is running or paused.
        """
        query = "SELECT id FROM studies WHERE link = ? AND state IN ('running', 'paused')"
        study = first_value(db, query, [whole(link[:200])])
        if study is None:
            raise UserError("This invitation is not open; please ask the person who sent it for another one.")
        if earlier := first_value(db, _QUERIES["not_begun"], {"study": study, "browser": sha_of(browser)}):
            return study, require_worker(db, earlier), _new_code(db, earlier, browser)
        worker, code = add_worker(db, browser)
        enrol(db, study, worker.id)
        came_from(db, worker.id, browser)
        return study, worker, code

    @read
    def others_of_browser(self, db: Db, study_id: str, worker: str, browser: str) -> bool:
        """Return True if another worker who used the browser with this secret has begun this study."""
        return bool(browser and first_value(db, _QUERIES["others_of_browser"], [study_id, sha_of(browser), worker]))

    @read
    def code_of_browser(self, db: Db, worker: str, browser: str) -> str:
        """Return a worker's code, to show it after a reload; "" in another browser, or if the worker has begun."""
        symbols = _symbols(worker, browser)
        values = [worker, sha_of(symbols), sha_of(browser)]
        return _spaced(symbols) if browser and first_value(db, _QUERIES["code_of_browser"], values) else ""

    @write
    def new_code(self, db: Db, worker: str) -> str:
        """Make and return a new code. The earlier code becomes invalid, and the worker's sessions end."""
        require_worker(db, worker)
        code = _new_code(db, worker)
        db.execute("DELETE FROM sessions WHERE role = 'worker' AND worker = ?", [worker])
        return code

    @read
    def of_code(self, db: Db, code: str) -> str | None:
        """Return the name of the worker with this code, ignoring spaces and case, or None."""
        symbols = code[:200].upper().translate(_READ_AS)
        worker: str | None = first_value(db, "SELECT worker FROM worker_codes WHERE sha = ?", [sha_of(symbols)])
        return worker

    @write
    def consent(self, db: Db, study_id: str, worker: str) -> None:
        """Record the time of the worker's first consent. Raises UserError if the worker is not enrolled."""
        query = "UPDATE enrolments SET consented = coalesce(consented, ?) WHERE study = ? AND worker = ?"
        if not db.execute(query, [now(), study_id, worker]).rowcount:
            raise UserError("You are not part of this study; open the link of its invitation.")

    @write
    def block(self, db: Db, worker: str, blocked: bool) -> None:
        """Block a worker from voting in any study, or unblock the worker. Earlier votes stay."""
        if require_worker(db, worker).blocked != blocked:
            change_row(db, "workers", worker, {"blocked": int(blocked)})
            for study_id in _enrolled(db, worker) if blocked else ():
                release(db, study_id, worker)
            append_log(db, "worker blocked" if blocked else "worker unblocked", "", worker=worker)

    # Decisions on a worker in a study

    @write
    def exclude(self, db: Db, study_id: str, worker: str, reason: str, by: Literal["rule", "person"]) -> None:
        """Exclude a worker's votes. An earlier reason stays. Raises UserError if the worker is not in the study."""
        if _require_enrolment(db, study_id, worker).exclusion is not None:
            return
        reason = checked_reason(reason, needed=True)
        row = {"study": study_id, "worker": worker, "excluded": 1, "reason": reason, "author": by, "created": now()}
        change = "UPDATE enrolments SET exclusion = ? WHERE study = ? AND worker = ?"
        db.execute(change, [insert_row(db, "exclusions", row), study_id, worker])
        db.execute(_QUERIES["exclude"], [study_id, worker])
        look_again(db, study_id)
        author = "the rule" if by == "rule" else "the study lead"
        log_change(db, "worker excluded", f"by {author}: {reason}", study_id, worker)

    @write
    def readmit(self, db: Db, study_id: str, worker: str, reason: str) -> None:
        """Let an excluded worker's votes count again. On each item, only the first `rules.votes` votes count."""
        if _require_enrolment(db, study_id, worker).exclusion is None:
            return
        reason = checked_reason(reason, needed=False)
        row = {"study": study_id, "worker": worker, "excluded": 0, "reason": reason, "author": "person"}
        insert_row(db, "exclusions", {**row, "created": now()})
        change = "UPDATE enrolments SET exclusion = NULL, readmitted = 1 WHERE study = ? AND worker = ?"
        db.execute(change, [study_id, worker])
        db.execute("UPDATE assignments SET counts = 1 WHERE study = ? AND worker = ?", [study_id, worker])
        log_change(db, "worker readmitted", reason, study_id, worker)

    @write
    def decide(
        self, db: Db, study_id: str, worker: str, verdict: ApprovalVerdict, reason: str, only_pending: bool = False
    ) -> None:
        """Approve, reject or reset to "pending" all answered assignments of the worker in this study, except training.

        `only_pending` keeps earlier decisions. Raises UserError for an unknown worker, or a rejection without reason.
        """
        _require_enrolment(db, study_id, worker)
        reason = checked_reason(reason, needed=verdict == "rejected")
        decision = insert_decision(db, study_id, worker, verdict, reason)
        values = {"verdict": verdict, "decision": decision, "study": study_id, "worker": worker}
        db.execute(_QUERIES["decide"], {**values, "only_pending": only_pending})
        log_change(db, f"work {verdict}", reason, study_id, worker)


def insert_decision(db: Db, study_id: str, worker: str, verdict: ApprovalVerdict, reason: str) -> int:
    row = {"study": study_id, "worker": worker, "verdict": verdict, "reason": reason, "created": now()}
    return insert_row(db, "decisions", row)


def checked_reason(reason: str, needed: bool) -> str:
    """Return a reason in stored form. Raises UserError if it is too long, or if it is `needed` but empty."""
    empty = "Say why: the worker may ask, and the report names the reason." if needed else ""
    return checked_text(reason, "The reason", LONGEST_REASON, if_empty=empty)


def _symbols(worker: str, browser: str) -> str:
    """Compute a worker's code from the worker's name and the browser's secret. Equal inputs give equal codes."""
    number = int.from_bytes(hmac.digest(browser.encode("utf-8", "replace"), worker.encode(), "sha256"), "big")
    return "".join(_CROCKFORD[number >> 5 * place & 31] for place in range(_SYMBOLS))


def _new_code(db: Db, worker: str, browser: str = "") -> str:
    drawn = "".join(secrets.choice(_CROCKFORD) for _ in range(_SYMBOLS))
    symbols = _symbols(worker, browser) if browser else drawn
    db.execute(_QUERIES["new_code"], [sha_of(symbols), worker, now()])
    return _spaced(symbols)


def _spaced(symbols: str) -> str:
    return "-".join(symbols[start : start + 4] for start in range(0, _SYMBOLS, 4))


def _require_enrolment(db: Db, study_id: str, worker: str) -> Enrolment:
    require_study(db, study_id)
    enrolment = _enrolment(db, study_id, worker)
    if enrolment is None:
        raise UserError(f"{worker[:80]!r} is no worker of this study; pick one from its list.")
    return enrolment


def _free_name(db: Db) -> str:
    """Return an unused worker name such as heron-41. Once most of these are taken, names get more digits."""
    count = first_value(db, "SELECT count(*) FROM workers")
    birds, largest = _NAMES["birds"].split(), 100
    while count > len(birds) * largest // 2:
        largest *= 10
    while True:
        name = f"{secrets.choice(birds)}-{10 + secrets.randbelow(largest - 10)}"
        if not first_value(db, "SELECT 1 FROM workers WHERE id = ?", [name]):
            return name


class Sessions(Repository):
    """Sessions of browsers in which the lead or a worker signed in. Also stores named secrets."""

    @write
    def open(self, db: Db, role: Role, worker: str = "", hours: float = HOURS) -> str:
        """Open a session of the lead or a worker. Return its token. Raises UserError for an unknown worker."""
        if (role == "worker") != bool(worker):
            raise ValueError("a session is the lead's, or a worker's with a name")
        if worker:
            require_worker(db, worker)
        db.execute("DELETE FROM sessions WHERE expires <= ?", [now()])
        token = secrets.token_urlsafe(32)
        row = {"sha": sha_of(token), "role": role, "worker": worker or None, "created": now()}
        insert_rows(db, "sessions", [{**row, "expires": later(hours=hours)}])
        return token

    @read
    def get(self, db: Db, token: str) -> Session | None:
        """Return the session with this token; None if it is unknown, expired or closed."""
        query = "SELECT * FROM sessions WHERE sha = ? AND expires > ?"
        return next(iter(records(db, Session, query, [sha_of(token[:200]), now()])), None)

    @write
    def close(self, db: Db, token: str) -> None:
        """End the session with this token. An unknown token is ignored."""
        db.execute("DELETE FROM sessions WHERE sha = ?", [sha_of(token[:200])])

    @write
    def close_all(self, db: Db, role: Role) -> None:
        """End all sessions of one role: of the lead, or of workers."""
        db.execute("DELETE FROM sessions WHERE role = ?", [role])

    @read
    def secret(self, db: Db, name: str) -> str | None:
        """Return the secret of this name, such as the hash of the lead's password; None if it was never set."""
        value: str | None = first_value(db, "SELECT value FROM secrets WHERE name = ?", [name])
        return value

    @write
    def set_secret(self, db: Db, name: str, value: str) -> None:
        """Set the secret of this name. It replaces the earlier one."""
        db.table("secrets").insert({"name": name, "value": value, "changed": now()}, replace=True)
