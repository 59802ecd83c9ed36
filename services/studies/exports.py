"""Exports a study as tables, as a file for Mechanical Turk, as figures, or whole as a zip; and restores a zip.

The zip is sent while it is packed, so its size costs no memory. The manifest is the last file, so a zip with a manifest
is complete. A zip to restore may come from anybody. So each needed file is checked against the manifest, and the
restored study must be one that can be analysed. If a restore fails, nothing but unused pictures is saved.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.csv_tables import Cell, Kind, Row, cells, csv_text, facts, plain
from core.errors import UserError
from core.images import MAX_BYTES, read_image
from core.studies import StudyData, asked, wording
from core.study_report import StudyReport
from core.version import version
from services.runs.words import EDITED, edited_csv
from services.studies.imports import MOST_LIST, zip_files
from services.studies.item_filter import SENTENCES
from storage.workspace import Workspace
from study import tables
from study.figure_rows import FIGURE_COLUMNS, figure_rows
from study.methods import paragraph
from study.questions import check_rules
from study.results import analyse
from study.truth import TRUTH_COLUMNS, pixels_of, sight
from study.turk import turk_columns, turk_rows

if TYPE_CHECKING:
    import pyarrow

FORMAT = 1
MANIFEST = "manifest.json"
LEFT_OUT = "left_out.csv"
RECORDS = "records.json"
"""Name of the file with all records of the study, from which the study is restored."""
_CSV, _JSON, _PARQUET = "text/csv; charset=utf-8", "application/json", "application/vnd.apache.parquet"
MOST_RECORDS = 10 * MOST_LIST
"""Maximum bytes of the records. A vote takes some hundred bytes."""
_NO_STUDY = (
    "This is no study.zip that can be restored: it has no {missing}. A zip of anything else "
    "can be given to a new study as its images."
)


@dataclass
class StudyExport:
    """A study to export, with all its data at one moment. It is analysed once, and only if a file needs that."""

    workspace: Workspace
    data: StudyData

    @cached_property
    def report(self) -> StudyReport:
        return analyse(self.data)


def results_json(study: StudyExport) -> bytes:
    """Return the whole report and the methods paragraph as nested JSON."""
    about = {"format": FORMAT, "program": version(), "exported": _now(), "methods": paragraph(study.report)}
    report = about | plain(study.report)
    report["study"].pop("link", None)  # anybody with the link can join
    return _dumped(report)


def truth_csv(study: StudyExport) -> bytes:
    """Return a CSV by which simulated annotators recognise items and questions, with the known right answers."""

    @cache
    def pixels(sha: str | None) -> str:
        return "" if sha is None else pixels_of(study.workspace.images.load(sha))

    rules = study.data.study.rules
    rows: list[Row] = []
    for item in study.data.items:
        image, source = pixels(item.image_sha), pixels(item.source_sha) if rules.show_source else ""
        for question in asked([replace(q, follows="") for q in rules.questions], item, {}):
            if question.kind == "text":
                continue
            text = wording(question, item)
            row: Row = {"item": item.public, "kind": item.kind, "question": question.id, "asked": text}
            rows.append({**row, "answer": item.expected.get(question.id, ""), "sight": sight(image, source, text)})
    return _csv(rows, TRUTH_COLUMNS)


def payment_csv(study: StudyExport) -> bytes:
    """Return a CSV for paying the workers: for each worker, the amount of work and the approval of the work."""
    participants = study.workspace.studies.panels.participants(study.data.study.id)
    return _csv(tables.payment_rows(study.data, participants), tables.PAYMENT_COLUMNS)


def people_csv(study: StudyExport) -> bytes:
    """Return a CSV with the workers' answers to the questions about themselves, by pseudonym."""
    panels, study_id = study.workspace.studies.panels, study.data.study.id
    answers = panels.people(study_id)
    columns = tables.people_columns(panels.get(study_id), answers)
    return _csv(tables.people_rows(study.data, columns, answers), columns)


EXPORTS: Mapping[str, tuple[str, Callable[[StudyExport], bytes]]] = {
    "votes.csv": (_CSV, lambda study: _csv(tables.vote_rows(study.data), tables.VOTE_COLUMNS)),
    "answers.csv": (_CSV, lambda study: _csv(tables.answer_rows(study.data), tables.ANSWER_COLUMNS)),
    "turk.csv": (_CSV, lambda study: _csv(turk_rows(study.data), turk_columns(study.data.study.rules))),
    "results.csv": (_CSV, lambda study: _csv(figure_rows(study.report), FIGURE_COLUMNS)),
    "results.parquet": (_PARQUET, lambda study: parquet(figure_rows(study.report), FIGURE_COLUMNS)),
    "results.json": (_JSON, results_json),
    "outcomes.csv": (_CSV, lambda study: _csv(tables.result_rows(study.data), tables.RESULT_COLUMNS)),
    "outcomes.parquet": (_PARQUET, lambda study: parquet(tables.result_rows(study.data), tables.RESULT_COLUMNS)),
    "truth.csv": (_CSV, truth_csv),
    "payment.csv": (_CSV, payment_csv),
    "people.csv": (_CSV, people_csv),
}
"""Media type and function of each file, by file name. exported-study.txt describes the files of the zip."""
ZIP = "study.zip"
OF_PERSONS = frozenset({"payment.csv", "people.csv"})
"""Files with personal data. They are not in the zip, and read-only tokens cannot get them."""
IN_ZIP = tuple(name for name in EXPORTS if name not in OF_PERSONS and name != "truth.csv")


def opened(workspace: Workspace, study_id: str) -> StudyExport:
    """Open a study for export. Raises UserError for an unknown one."""
    return StudyExport(workspace, workspace.studies.data(study_id))


def zipped(workspace: Workspace, study_id: str) -> tuple[str, Iterator[bytes]]:
    """Return the name of the zip, and an iterator of its bytes. Raises UserError at once for an unknown study."""
    data, records = workspace.studies.whole(study_id)
    study = StudyExport(workspace, data)
    history = workspace.studies.rules_history(study_id)
    entries = workspace.studies.log(study_id, limit=100_000)
    log = [{"time": entry.created, **cells(entry, "event detail worker")} for entry in entries]
    more = {
        RECORDS: _dumped(records),
        "study.json": _dumped(_about(study.data, history)),
        EDITED: edited_csv(workspace, [item.origin["run"] for item in study.data.items if "run" in item.origin]),
        "workers.csv": _csv(tables.worker_rows(study.data), tables.WORKER_COLUMNS),
        "log.csv": _csv(log, ("time", "event", "detail", "worker")),
    }
    return f"{stem(study.data)}.zip", _zip(study, more)


def _zip(study: StudyExport, more: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the zip in pieces. After an exception the file has no end, so that nothing opens it as a zip."""
    pictures, image_of, source_of = _pictures(study.data)
    sink, manifest_files = _Sink(), []
    with zipfile.ZipFile(sink, "w") as archive:

        def put(name: str, data: bytes) -> bytes:
            # PNG is compressed already.
            kind = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            entry = zipfile.ZipInfo(name, datetime.now(UTC).timetuple()[:6])
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, compress_type=kind)
            manifest_files.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
            return sink.taken()

        yield put("README.txt", _README.read_bytes())
        yield put("methods.txt", (paragraph(study.report) + "\n").encode())
        for name in IN_ZIP:
            yield put(name, EXPORTS[name][1](study))
        for name, data in more.items():
            yield put(name, data)
        rows = tables.item_rows(study.data, image_of, source_of)
        yield put("items.csv", _csv(rows, tables.item_columns(study.data.study.rules)))
        left_out: dict[str, str] = {}
        for name, sha in pictures.items():
            try:
                data = study.workspace.images.read(sha)
            except UserError as error:
                left_out[name] = str(error)
                continue
            yield put(name, data)
        if left_out:
            yield put(LEFT_OUT, _csv(({"file": name, "why": why} for name, why in left_out.items()), ("file", "why")))
        about = {
            "format": FORMAT,
            "kind": "DILLEMA Studio study",
            "program": version(),
            "exported": _now(),
            **facts(study.data.study, "name state", study=study.data.study.id),
            "items": len(study.data.items),
            "votes": len(study.data.votes),
            "pictures": {name: sha for name, sha in pictures.items() if name not in left_out},
            "left_out": {name: sha for name, sha in pictures.items() if name in left_out},
            "files": list(manifest_files),
        }
        yield put(MANIFEST, _dumped(about))
    yield sink.taken()


def _pictures(data: StudyData) -> tuple[dict[str, str], dict[int, str], dict[int, str]]:
    """Return three mappings: SHA-256 by picture file, image file by item id, and source file by item id."""
    files: dict[str, str] = {}
    image_of: dict[int, str] = {}
    source_of: dict[int, str] = {}
    sources: dict[str, str] = {}
    for item in data.items:
        image_of[item.id] = f"images/{item.public}.png"
        files[image_of[item.id]] = item.image_sha
        if item.source_sha:
            source_of[item.id] = sources.setdefault(item.source_sha, f"sources/{item.public}.png")
            files[source_of[item.id]] = item.source_sha
    for number, sha in enumerate(dict.fromkeys(example.sha for example in data.study.rules.examples), start=1):
        files[f"examples/{number}.png"] = sha
    return files, image_of, source_of


def _about(data: StudyData, history: Sequence[tuple[Any, datetime]]) -> dict[str, Any]:
    study = plain(data.study)
    study.pop("link", None)
    return {
        "format": FORMAT,
        "study": study,
        "rules_history": [{"since": plain(since), "rules": plain(rules)} for rules, since in history],
        "exclusions": plain(data.exclusions),
        "adjudications": plain(data.adjudications),
    }


def parquet(rows: Iterable[Mapping[str, Cell]], columns: Mapping[str, Kind]) -> bytes:
    """Return the rows as a Parquet file with these columns and types, even if there are no rows."""
    import pyarrow
    from pyarrow.parquet import write_table

    types: dict[Kind, pyarrow.DataType] = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "number": pyarrow.float64(),
        "truth": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    full = [{name: row.get(name, "" if kind == "text" else None) for name, kind in columns.items()} for row in rows]
    file = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(full, schema=schema), file)
    return file.getvalue()


def stem(data: StudyData) -> str:
    """Return a file name without suffix, made from the name of a study. The name is valid on every system."""
    words = re.sub(r"[^\w.-]+", "-", data.study.name).strip("-.")
    return words[:80] or "study"


class _Sink(io.RawIOBase):
    """A file object without seek that collects the bytes of a zip, so that the zip can be sent while it is packed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """Return everything written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> bytes:
    return csv_text(rows, columns).encode()


def _dumped(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_README = Path(__file__).with_name("exported-study.txt")


def restore_study(workspace: Workspace, file: Path | bytes) -> tuple[str, str]:
    """Restore a study from its zip. Return its id and a note for the person. Raises UserError if that fails."""
    files = zip_files(file)
    for name in (MANIFEST, RECORDS):
        if name not in files.names:
            raise UserError(_NO_STUDY.format(missing=name))
    manifest = _json(files.read(MANIFEST, MOST_LIST), MANIFEST)
    listed = manifest.get("files")
    entries = map(_map, listed if isinstance(listed, list) else [])
    sums = {str(entry.get("name")): entry.get("sha256") for entry in entries}

    def checked(name: str, most: int) -> bytes:
        if name not in files.names:
            raise UserError(f"“{name[:80]}” is missing in the zip: export the study again.")
        data = files.read(name, most)
        if hashlib.sha256(data).hexdigest() != sums.get(name):
            raise UserError(f"“{name[:80]}” is not as it was exported: the zip is damaged, or was changed.")
        return data

    records = _json(checked(RECORDS, MOST_RECORDS), RECORDS)
    known = {study.id: study.name for study in workspace.studies.all()}
    if title := known.get(str(_map(records.get("study")).get("id"))):
        raise UserError(f"This workspace has this study already, as “{title}”: only a missing one can be restored.")
    images = {}
    for name, sha in _map(manifest.get("pictures")).items():
        images[str(sha)] = workspace.images.add(read_image(checked(str(name), MAX_BYTES)).image)
    for name, sha in _map(manifest.get("left_out")).items():
        try:
            workspace.images.read(str(sha))
        except UserError as error:
            raise UserError(
                f"The zip lacks the picture “{name[:80]}”: its file was lost before the export. This workspace lacks "
                "the picture too. A study cannot be restored without pictures; its votes are in answers.csv in the zip."
            ) from error
        images[str(sha)] = str(sha)
    study_id = workspace.studies.restore(records, images, _check)
    return study_id, SENTENCES.paragraph("restored.txt", study=workspace.studies.get(study_id))


def _check(data: StudyData) -> None:
    """Make the tables of a study as a check. Raises an error if a page or an export could not show the study."""
    check_rules(data.study.rules)
    paragraph(analyse(data))
    tables.answer_rows(data)
    tables.result_rows(data)


def _json(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"“{name}” is no JSON file: the zip is damaged or was changed.") from error
    if not isinstance(value, dict):
        raise UserError(f"“{name}” was not exported from a study: the zip is damaged or was changed.")
    return value


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
