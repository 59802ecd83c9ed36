"""Workers: pseudonyms, their codes, and the studies they belong to. Functions of an open database.

A code is never stored, only its SHA-256: whoever reads the database cannot sign in as anybody. It has so many random
bits that no salt and no slow hash is needed.
"""

from __future__ import annotations

import hashlib
import secrets

import sqlite_utils

from pipeline.errors import UserError
from storage.rows import Row, now, when, whole
from storage.study_rows import append_log, require_study, touch
from storage.study_types import Enrolment
from study.types import Exclusion, Worker

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Base32 without the letters that are read as digits or spell words: https://www.crockford.com/base32.html."""
_SYMBOLS = 16
"""Of a code: 16 times 5 bits."""
_READ_AS = str.maketrans("OIL", "011", "- \t\r\n")
_BIRDS = (
    "avocet bittern bunting buzzard chough condor coot cormorant crane curlew dipper dove dunlin dunnock eagle "
    "egret eider falcon finch fulmar gannet godwit goose grebe grouse gull harrier hawk heron hoopoe ibis jackdaw "
    "jay kestrel kite kiwi knot lapwing lark linnet loon magpie mallard martin merlin moorhen nightjar nuthatch "
    "oriole osprey ostrich ouzel owl parrot partridge pelican penguin petrel pheasant pigeon pipit plover puffin "
    "quail rail raven redstart robin rook ruff sandpiper shrike siskin skylark snipe sparrow starling stilt "
    "stonechat stork swallow swan swift teal tern thrush toucan treecreeper turnstone wagtail warbler waxwing "
    "whimbrel wigeon woodcock wren"
).split()


def add_worker(db: sqlite_utils.Database) -> tuple[Worker, str]:
    """A new pseudonym and its code, which is not known to anybody else and cannot be shown again."""
    worker = _free_name(db)
    db.table("workers").insert({"id": worker, "created": now()})
    return read_worker(db, worker), new_code(db, worker)


def new_code(db: sqlite_utils.Database, worker: str) -> str:
    """Another code for a worker; the earlier one opens nothing any more. Raises UserError for an unknown worker."""
    read_worker(db, worker)
    symbols = "".join(secrets.choice(_CROCKFORD) for _ in range(_SYMBOLS))
    db.execute(
        "INSERT INTO worker_codes (sha, worker, created) VALUES (?, ?, ?) "
        "ON CONFLICT (worker) DO UPDATE SET sha = excluded.sha, created = excluded.created",
        [_sha(symbols), worker, now()],
    )
    return "-".join(symbols[start : start + 4] for start in range(0, _SYMBOLS, 4))


def worker_of_code(db: sqlite_utils.Database, code: str) -> str | None:
    """Whose code this is, however it is spaced and in small letters too; None when nobody's."""
    symbols = code[:200].upper().translate(_READ_AS)
    for row in db.query("SELECT worker FROM worker_codes WHERE sha = ?", [_sha(symbols)]):
        return str(row["worker"])
    return None


def join(db: sqlite_utils.Database, link: str) -> tuple[str, Worker, str]:
    """A new worker of the study that this invitation is for: its id, the worker, the code. Raises UserError."""
    for row in db.query("SELECT id, state FROM studies WHERE link = ?", [whole(link[:200])]):
        if row["state"] in ("running", "paused"):
            worker, code = add_worker(db)
            enrol(db, row["id"], worker.id)
            return row["id"], worker, code
    raise UserError("This invitation is not open; please ask whoever sent it for another one.")


def read_worker(db: sqlite_utils.Database, worker: str) -> Worker:
    """A worker with the record in all studies. Raises UserError for an unknown one."""
    for row in db.query("SELECT * FROM workers WHERE id = ?", [worker]):
        return _worker(row)
    raise UserError(f"There is no worker {worker[:80]!r}; pick one from the list of workers.")


def read_workers(db: sqlite_utils.Database, study_id: str) -> tuple[Worker, ...]:
    """The workers of a study in the order in which they came. Raises UserError for an unknown study."""
    require_study(db, study_id)
    query = """
        SELECT workers.* FROM enrolments JOIN workers ON workers.id = enrolments.worker
        WHERE enrolments.study = ? ORDER BY enrolments.created, workers.rowid
    """
    return tuple(map(_worker, db.query(query, [study_id])))


def set_blocked(db: sqlite_utils.Database, worker: str, blocked: bool) -> None:
    """Keep a worker from voting in any study, or let them again; votes that were given stay. Raises UserError."""
    if read_worker(db, worker).blocked != blocked:
        db.execute("UPDATE workers SET blocked = ? WHERE id = ?", [int(blocked), worker])
        if blocked:
            query = "UPDATE assignments SET state = 'expired' WHERE study = ? AND worker = ? AND state = 'leased'"
            for study_id in read_enrolled(db, worker):
                db.execute(query, [study_id, worker])
        append_log(db, "worker blocked" if blocked else "worker unblocked", "", worker=worker)


def enrol(db: sqlite_utils.Database, study_id: str, worker: str) -> None:
    """Let a worker into a study; again changes nothing. Raises UserError for an unknown study or worker."""
    require_study(db, study_id)
    read_worker(db, worker)
    row = {"study": study_id, "worker": worker, "created": now()}
    if read_enrolment(db, study_id, worker) is None:
        db.table("enrolments").insert(row)
        touch(db, study_id)


def read_enrolled(db: sqlite_utils.Database, worker: str) -> tuple[str, ...]:
    """The ids of the studies that a worker belongs to, the one they came to last first."""
    query = "SELECT study FROM enrolments WHERE worker = ? ORDER BY created DESC"
    return tuple(row["study"] for row in db.query(query, [worker]))


def consent(db: sqlite_utils.Database, study_id: str, worker: str) -> None:
    """The worker agreed to take part, at this time; the first time counts. Raises UserError for one not enrolled."""
    query = "UPDATE enrolments SET consented = coalesce(consented, ?) WHERE study = ? AND worker = ?"
    if not db.execute(query, [now(), study_id, worker]).rowcount:
        raise UserError("You are not part of this study; open the link of its invitation.")


def read_enrolment(db: sqlite_utils.Database, study_id: str, worker: str) -> Enrolment | None:
    """What is known of a worker in a study; None for one who does not belong to it."""
    query = """
        SELECT enrolments.*, reason, author, exclusions.created AS since
        FROM enrolments LEFT JOIN exclusions ON exclusions.id = enrolments.exclusion
        WHERE enrolments.study = ? AND enrolments.worker = ?
    """
    for row in db.query(query, [study_id, worker]):
        return Enrolment(
            study_id=study_id,
            worker=worker,
            consented=row["consented"] is not None,
            quiz_right=row["quiz_right"],
            quiz_seen=row["quiz_seen"],
            items_seen=row["items_seen"],
            controls_seen=row["controls_seen"],
            controls_right=row["controls_right"],
            exclusion=Exclusion(worker, row["reason"], row["author"], when(row["since"])) if row["exclusion"] else None,
            readmitted=bool(row["readmitted"]),
        )
    return None


def _worker(row: Row) -> Worker:
    return Worker(
        id=row["id"],
        created=when(row["created"]),
        approved=row["approved"],
        rejected=row["rejected"],
        pending=row["pending"],
        blocked=bool(row["blocked"]),
    )


def _free_name(db: sqlite_utils.Database) -> str:
    """Such as heron-41. Two digits while most of those are free, then more: a search must not take long."""
    count = db.execute("SELECT count(*) FROM workers").fetchone()[0]
    largest = 100
    while count > len(_BIRDS) * largest // 2:
        largest *= 10
    while True:
        name = f"{secrets.choice(_BIRDS)}-{10 + secrets.randbelow(largest - 10)}"
        if not list(db.query("SELECT 1 FROM workers WHERE id = ?", [name])):
            return name


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
