"""Search a workspace for damage: every page of its database, every row of its catalogue and every image is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from core.errors import UserError
from core.words import count_of
from storage.curation.catalogue_check import MOST_TOLD, catalogue_faults
from storage.images import ImageFiles
from storage.workspace import DATABASE, IMAGES


def damage(workspace: Path) -> tuple[str, ...]:
    """Return the damage found, a sentence each; () without any. The workspace may be in use.

    Raises UserError if the folder holds no workspace of this version.
    """
    path = workspace / DATABASE
    if not path.is_file():
        raise UserError(f"There is no {path}; name the folder of a workspace.")
    images = ImageFiles(workspace / IMAGES)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            findings = [row[0] for row in connection.execute(f"PRAGMA integrity_check({MOST_TOLD})") if row[0] != "ok"]
            if findings:
                return tuple(f"The database is damaged: {one}" for one in findings)
            rows = connection.execute(f"SELECT * FROM pragma_foreign_key_check LIMIT {MOST_TOLD}").fetchall()
            findings = [
                f"Row {row[1]} of the table {row[0]} names a row of {row[2]} that is not there." for row in rows
            ]
            shas = [sha for (sha,) in connection.execute("SELECT sha FROM images ORDER BY sha")]
    except sqlite3.DatabaseError as error:
        if "no such table" not in str(error):
            return (f"The database is damaged: {error}",)
        shas = []  # `catalogue_faults` reports which database it is
    findings += catalogue_faults(path)
    lost = []
    for sha in shas:
        try:
            images.read(sha)
        except UserError as error:
            lost.append(str(error))
    if len(lost) > MOST_TOLD:
        lost[MOST_TOLD:] = [f"And {count_of(len(lost) - MOST_TOLD, 'further image')} like these."]
    return (*findings, *lost)
