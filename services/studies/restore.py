"""A study brought back from the zip that `exports` has written: rules, items, votes, decisions, log, all as it was.

The zip is a stranger's: it is read like any other, every file that counts is checked against the manifest, and what
comes of it has to be a study that can be analysed. All or nothing, but for pictures, which belong to nothing then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from core.errors import UserError
from core.images import MAX_BYTES, read_image
from core.studies import StudyData
from services.studies.exports import MANIFEST, RECORDS
from services.studies.imports import MOST_LIST, ZipFiles
from storage.workspace import Workspace
from study.methods import paragraph
from study.questions import check_rules
from study.results import analyse
from study.tables import answer_rows, result_rows

MOST_RECORDS = 10 * MOST_LIST
"""Bytes: a vote takes some hundreds."""
_NO_STUDY = (
    "This is no study.zip that can be restored: it has no {missing}. A zip of anything else "
    "can be given to a new study as its images."
)


def restore_study(workspace: Workspace, file: Path | bytes) -> tuple[str, str]:
    """The id of the study that is back, and what a person should know. Raises UserError."""
    files = ZipFiles(file)
    for name in (MANIFEST, RECORDS):
        if name not in files.names:
            raise UserError(_NO_STUDY.format(missing=name))
    manifest = _json(files.read(MANIFEST, MOST_LIST), MANIFEST)
    sums = {str(entry.get("name")): entry.get("sha256") for entry in _list(manifest.get("files")) if _is_map(entry)}

    def checked(name: str, most: int) -> bytes:
        if name not in files.names:
            raise UserError(f"“{name[:80]}” is missing in the zip: export the study again.")
        data = files.read(name, most)
        if hashlib.sha256(data).hexdigest() != sums.get(name):
            raise UserError(f"“{name[:80]}” is not as it was exported: the zip is damaged, or was changed.")
        return data

    records = _json(checked(RECORDS, MOST_RECORDS), RECORDS)
    there = records.get("study")
    known = {study.id: study.name for study in workspace.studies.all()}
    if _is_map(there) and there.get("id") in known:
        name = known[there["id"]]
        raise UserError(f"This study is here already, as “{name}”: a file brings back one that is missing.")
    named = manifest.get("pictures")
    images = {}
    for name, sha in (named if _is_map(named) else {}).items():
        images[str(sha)] = workspace.images.add(read_image(checked(str(name), MAX_BYTES)).image)
    left_out = manifest.get("left_out")
    for name, sha in (left_out if _is_map(left_out) else {}).items():
        try:
            workspace.images.read(str(sha))
        except UserError as error:
            raise UserError(
                f"The zip was exported without “{name[:80]}”, whose file was lost, and it is not here either: a study "
                "cannot be restored without its pictures. Its votes are in answers.csv within the zip."
            ) from error
        images[str(sha)] = str(sha)
    study_id = workspace.studies.restore(records, images, _check)
    study = workspace.studies.get(study_id)
    messages = [f"“{study.name}” is back, with {study.items:,} images and {study.votes:,} votes that count."]
    if study.state == "paused":
        messages.append("It is paused, and its invitation is closed.")
    if study.workers:
        messages.append(
            "Codes, sign-ins and what concerns people of a panel are not in the file: annotators who go on need new "
            "codes, people of a panel are taken for new ones, and its completion code and questions are to be set anew."
        )
    return study_id, " ".join(messages)


def _check(data: StudyData) -> None:
    """Whether it is a study that pages and exports can show. Raises what they would."""
    check_rules(data.study.rules)
    paragraph(analyse(data))
    answer_rows(data)
    result_rows(data)


def _json(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"“{name}” is no JSON: the zip is damaged, or was changed.") from error
    if not isinstance(value, dict):
        raise UserError(f"“{name}” is not what a study is exported as.")
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
