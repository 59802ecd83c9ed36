"""Writes the evidence of an evaluation as one zip: the images with their lineage, the predictions, the votes, every
stated figure, and `recompute.py`, which recomputes the figures from the tables of the zip alone.

Workers are named by their pseudonyms. Comments and other free texts of workers are left out. The same state of the
workspace always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version as version_of_package
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from core.csv_tables import facts, plain
from core.data_files import DataTable
from core.errors import UserError, disk_reason
from core.evaluation_results import Effectiveness
from core.progress import OnCount
from core.studies import StudyData
from core.test_sets import SetVersion
from core.text_templates import TextTemplates
from core.types import to_plain
from core.version import version as program
from core.words import count_of
from evaluation.effectiveness import UNKNOWN
from formats.types import json_lines
from services.evaluation.facts import confusion_facts, finite, json_text, rows_of, without_nan
from services.evaluation.results import EvaluationResult, compared
from services.evaluation.segmented import ProtectedClass, classes_of, ways_of
from services.evaluation.service import EvaluationInputs, EvaluationService
from services.evaluation.stored_predictions import SegmenterCounts
from services.evaluation.types import EvaluationQuestion, ModelComparison
from services.test_sets.examples import VersionImages
from storage.curation.case_columns import ACCEPTED
from storage.studies.imported_votes import IMPORTED
from storage.test_sets.facts import CaseFacts
from storage.workspace import Workspace
from study.figure_rows import figure_rows
from study.results import analyse

FORMAT = 1
KIND = "DILLEMA Studio evidence bundle"
MANIFEST = "manifest.json"
SCRIPT = "recompute.py"
ROLES = ("original", "test case", "reconstruction")
TRIES = 5
"""Maximum number of attempts to read all tables. An attempt fails if something is saved in the workspace during it."""
_COLUMNS = DataTable(__file__, dict[str, str], "columns")
_METHODS = DataTable(__file__, dict[str, Any], "methods")
_METHOD_OF = DataTable(__file__, str, "method_of")
_COUNTS = ("count", "asked", "discarded", "too_few", "waiting", "worst", "best")
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can store. All files get it, so that a bundle can be repeated exactly."""
_AT_ONCE = 500
Record = dict[str, Any]


@dataclass(frozen=True)
class _Contents:
    """Contents of a bundle, without the bytes of the images."""

    title: str
    settings: Record
    figures: list[Record]
    tables: Mapping[str, list[Record]]
    pictures: Sequence[str]
    """SHA-256 of every image, each once."""
    notes: tuple[str, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of things that are not in the bundle, by name, such as "comments of workers"."""


def write_bundle(
    workspace: Workspace,
    evaluations: EvaluationService,
    questions: Sequence[EvaluationQuestion],
    file: Path,
    on_count: OnCount,
) -> Record:
    """Write the evidence of one or two models on a released version of a test set to the zip `file`. Return its
    manifest.

    `on_count` gets the number of images written and of all images. Raises UserError if the file exists, for a draft or
    a filter, and if the workspace changes during each of `TRIES` attempts.
    """
    version = released(workspace, questions[0])
    require_free(file)
    for _ in range(TRIES):  # everything is read at one moment: again if something was saved in between
        before = workspace.saved()
        contents = _contents(workspace, evaluations, version, questions)
        if workspace.saved() == before:
            break
    else:
        raise UserError("The workspace changed each time the evidence was read: try again when nothing is being saved.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as made:
            try:
                return _write(workspace, contents, zipfile.ZipFile(made, "w"), file.stem, on_count)
            except BaseException:
                file.unlink()
                raise
    except OSError as error:
        raise UserError(f"The evidence bundle could not be written to {file}. {disk_reason(error)}.") from error


def require_free(file: Path) -> None:
    """Raise UserError if the file exists."""
    if file.exists():
        raise UserError(f"{file} exists, and an evidence bundle never overwrites a file: give another name.")


def released(workspace: Workspace, question: EvaluationQuestion) -> SetVersion:
    """Return the test set version that a question is about. Raises UserError for a draft and for images of a filter."""
    number = question.subject.version
    if number is None:
        raise UserError("Evidence needs a released version of a test set: choose one, such as “Birds@2”.")
    version = workspace.test_sets.version(number)
    if version.is_draft:
        raise UserError(f"“{version.words}” is a draft, which may change: release it first.", field="version")
    return version


def _contents(
    workspace: Workspace, evaluations: EvaluationService, version: SetVersion, questions: Sequence[EvaluationQuestion]
) -> _Contents:
    results = [evaluations.result(one) for one in questions]
    first = results[0]
    inputs = [evaluations.inputs(one) for one in questions]
    studies = [workspace.studies.data(study) for study in inputs[0].studies]
    comparison = None
    if len(results) > 1:
        comparison = compared(results[0], results[1], questions[0].weighing)
    image_rows = _image_rows(first, inputs[0])
    first_of = dict(zip(ROLES, accumulate(map(len, first.cases.all_images), initial=0), strict=False))
    models = list(enumerate(zip(results, inputs, strict=True), start=1))
    left_out: Counter[str] = Counter()
    names = _Pseudonyms()
    votes = [row for study in studies for row in _vote_rows(study, names, left_out)]
    tables = {
        "images": image_rows,
        "edits": _edit_rows(first, first_of),
        "predictions": [row for number, one in models for row in _prediction_rows(number, one, first_of)],
        "pixels": [row for number, one in models for row in _pixel_rows(number, one, first_of)],
        "items": _item_rows(studies),
        "votes": votes,
        **_lineage(workspace, version, image_rows),
    }
    columns = "sha256", "mask_sha256", "source_sha256"
    shas = (row.get(name) for row in (*image_rows, *tables["items"]) for name in columns)
    evaluated = first.evaluated
    used = {name for row in tables["edits"] if (name := row["edit_type"])}
    settings = {
        "test_set": facts(version, "words id note", images=version.entries),
        "weighing": questions[0].weighing,
        "task": first.cases.task,
        "edit_types": [name for name in first.cases.table.edits.types.values if name in used],
        "models": [_about_model(*one) for _, one in models],
        "studies": [_about_study(one, names) for one in studies],
        "made_with": {name: version_of_package(name) for name in ("numpy", "scipy", "pandas")},
    }
    notes = tuple(dict.fromkeys(note for one in results for note in one.evaluated.notes))
    return _Contents(
        title=f"{evaluated.subject.title}: {' and '.join(one.evaluated.model for one in results)}",
        settings=settings,
        figures=list(_figures(results, comparison, studies)),
        tables=tables,
        pictures=list(dict.fromkeys(filter(None, shas))),
        notes=notes,
        left_out=left_out,
    )


# Tables


def _image_rows(found: EvaluationResult, inputs: EvaluationInputs) -> list[Record]:
    """Return a row for each image: first all originals, then the test cases, then the reconstructions."""
    cases, rows = found.cases, list[Record]()
    ways = (np.full(len(cases.originals), -1), cases.way, cases.control_way)
    for role, images, way in zip(ROLES, cases.all_images, ways, strict=True):
        chance = inputs.chance if role == "test case" else None
        for at, (row, source, label) in enumerate(zip(images.row, images.source, images.label, strict=True)):
            case = int(cases.table.test_case[row]) if row >= 0 else -1
            rows.append(
                {
                    "image": len(rows),
                    "role": role,
                    "sha256": images.shas[at],
                    "source": int(source),
                    "label": cases.labels[label] if label >= 0 else "",
                    "mask_sha256": images.masks[at][0] or None if len(images.masks) else None,
                    "split": cases.split[source],
                    "control_set": int(way[at]),
                    "test_case": case if case >= 0 else None,
                    "accepted": bool(row >= 0 and cases.table.verdict[row] == ACCEPTED),
                    "validity_score": None if chance is None else finite(chance[at]),
                }
            )
    return rows


def _edit_rows(found: EvaluationResult, first: Mapping[str, int]) -> list[Record]:
    edits, case = found.cases.table.edits, found.cases.case_of_edit
    chosen = np.flatnonzero(case >= 0)
    columns = (edits.types.of(chosen), edits.keywords.of(chosen), edits.alternatives.of(chosen))
    return [
        {"image": first["test case"] + at, "edit_type": kind, "keyword": old, "alternative": new}
        for at, kind, old, new in zip(case[chosen].tolist(), *columns, strict=True)
    ]


def _prediction_rows(
    model: int, of: tuple[EvaluationResult, EvaluationInputs], first: Mapping[str, int]
) -> Iterator[Record]:
    found, inputs = of
    labels = found.cases.labels
    for role, answered in zip(ROLES, inputs.answers, strict=True):
        if isinstance(answered, SegmenterCounts):
            return
        one = answered.answers
        columns = (answered.place, one.said, one.right, one.confidence, answered.true)
        for at, answer, standing, confidence, true in zip(*(each.tolist() for each in columns), strict=True):
            yield {
                "model": model,
                "image": first[role] + at,
                "predicted": labels[answer] if answer >= 0 else "",
                "comparable": standing != UNKNOWN,
                "confidence": confidence,
                "true": finite(true),
            }


def _pixel_rows(
    model: int, of: tuple[EvaluationResult, EvaluationInputs], first: Mapping[str, int]
) -> Iterator[Record]:
    found, inputs = of
    _, protected = _protected_of(found, inputs)
    for role, counted in zip(ROLES, inputs.answers, strict=True):
        if not isinstance(counted, SegmenterCounts) or found.pixels is None:
            return
        counts = counted.pixels.counts.astype(np.int64).tolist()
        for place, (at, of_classes) in enumerate(zip(counted.place.tolist(), counts, strict=True)):
            yield {
                "model": model,
                "image": first[role] + at,
                "counts": of_classes,
                "protected": protected[role][place] if role in protected else [],
                "mask_holds": bool(role == "test case" and found.pixels.kept[at]),
            }


def _protected_of(
    found: EvaluationResult, inputs: EvaluationInputs
) -> tuple[list[ProtectedClass], dict[str, list[list[int]]]]:
    """Return the protected classes. Also return, by role, the indexes of each counted image's protected classes."""
    cases, known = found.cases, dict[ProtectedClass, int]()
    of_role: dict[str, list[list[int]]] = {}
    for role, images, counted in list(zip(ROLES, cases.all_images, inputs.answers, strict=True))[1:]:
        if isinstance(counted, SegmenterCounts):
            ways, number = ways_of(cases, images, counted.place)
            own = [[known.setdefault(one, len(known)) for one in classes_of(*way, inputs.mapping)] for way in ways]
            of_role[role] = [own[at] for at in number.tolist()]
    return list(known), of_role


def _item_rows(studies: Sequence[StudyData]) -> list[Record]:
    """Return the items of all studies in the order in which they were added."""
    items = sorted(((item, study) for study in studies for item in study.items), key=lambda pair: pair[0].id)
    return [
        {
            "study": study.study.id,
            "item": item.public,
            **facts(item, "kind test_case expected label classes edit_types group model model_right"),
            "sha256": item.image_sha,
            "source_sha256": item.source_sha,
        }
        for item, study in items
    ]


class _Pseudonyms(dict[str, str]):
    """Pseudonyms of workers. Workers of imported votes get numbers, as the file may contain real names."""

    def __missing__(self, worker: str) -> str:
        number = sum(name.startswith(IMPORTED) for name in self) + 1
        self[worker] = f"{IMPORTED}{number}" if worker.startswith(IMPORTED) else worker
        return self[worker]


def _vote_rows(study: StudyData, names: _Pseudonyms, left_out: Counter[str]) -> Iterator[Record]:
    """Yield a row for each vote and question. Free texts are left out and counted."""
    public = {item.id: item.public for item in study.items}
    texts = {one.id for one in study.study.rules.questions if one.kind == "text"}
    for number, vote in enumerate(study.votes, start=1):
        left_out["comments of workers"] += bool(vote.comment)
        for question in study.study.rules.questions:
            answer = vote.answers.get(question.id, "")
            left_out["free texts of workers"] += bool(answer and question.id in texts)
            yield {
                "study": study.study.id,
                "vote": number,
                "item": public[vote.item],
                **facts(vote, "kind submitted seconds imported"),
                "worker": names[vote.worker],
                "question": question.id,
                "answer": "" if question.id in texts else answer,
            }


def _lineage(workspace: Workspace, version: SetVersion, image_rows: Sequence[Record]) -> dict[str, list[Record]]:
    """Return tables by name: the lineage of each image of the evaluation, and the values of its text stages."""
    known = {example.sha: example for example in VersionImages(workspace, version).all()}
    others = [row["test_case"] for row in image_rows if row["test_case"] is not None and row["sha256"] not in known]
    of_cases = dict[int, CaseFacts]()
    for start in range(0, len(others), _AT_ONCE):
        of_cases |= workspace.test_sets.facts(others[start : start + _AT_ONCE])
    rows = list[Record]()
    for one in image_rows:
        row: Record = {"image": one["image"], "sha256": one["sha256"]}
        row |= {"caption": "", "new_caption": "", "edits": [], "facts": {}}
        if (example := known.get(one["sha256"])) is not None:
            row |= facts(example, "caption new_caption edits", facts=dict(example.facts))
        elif (case := of_cases.get(one["test_case"])) is not None:
            row |= facts(case, "new_caption edits", facts=case.facts)
        rows.append(row)
    runs = dict.fromkeys(run for row in rows if isinstance(run := row["facts"].get("run"), str))
    stages = [
        {"run": run, "stage": stage, "value": to_plain(stored.value.value), "trace": to_plain(stored.value.trace)}
        for run in runs
        for stage, stored in workspace.runs.get(run).values.items()
    ]
    return {"lineage": rows, "stages": stages}


def _about_model(found: EvaluationResult, inputs: EvaluationInputs) -> Record:
    identity = found.evaluated.identity
    return {
        "title": found.evaluated.model,
        "identity": facts(identity, "digest name weights") if identity is not None else None,
        "classes": {row.label: list(row.classes) for row in found.evaluated.mapping.mapped},
        "labels": list(found.evaluated.labels),
        "protected": [{"name": name, "groups": list(groups)} for name, groups in _protected_of(found, inputs)[0]],
        "unmapped": [row.label for row in found.evaluated.mapping.unmapped],
        "answer": found.evaluated.answer,
    }


def _about_study(data: StudyData, names: _Pseudonyms) -> Record:
    public = {item.id: item.public for item in data.items}
    return {
        "study": data.study.id,
        **facts(data.study, "name state rules"),
        "history": [{"rules": plain(rules), "since": plain(since)} for rules, since in data.history],
        "workers": [names[worker.id] for worker in data.workers],
        "exclusions": [facts(one, "by", worker=names[one.worker]) for one in data.exclusions],
        "adjudications": [
            facts(one, "question answer", item=public[one.item]) for one in data.adjudications if one.item in public
        ],
        "same_browser": [[names[worker] for worker in group] for group in data.same_browser],
    }


# Figures


def _figures(
    results: Sequence[EvaluationResult], comparison: ModelComparison | None, studies: Sequence[StudyData]
) -> Iterator[Record]:
    for number, found in enumerate(results, start=1):
        for part, name, numbers in _evaluated(found):
            yield _figure(f"model {number}", part, name, numbers)
    if comparison is not None:
        paired = comparison.paired
        sizes = {"n": paired.cases, "sources": paired.sources}
        for name, numbers in (
            ("error of the first model", asdict(paired.first)),
            ("error of the second model", asdict(paired.second)),
            ("second less first", asdict(paired.difference)),
            ("test cases that only the first gets wrong", {"value": paired.only_first, **sizes}),
            ("test cases that only the second gets wrong", {"value": paired.only_second, **sizes}),
            ("test cases left out", {"value": paired.left_out, **sizes}),
        ):
            yield _figure("models compared", "", name, numbers)
    for number, data in enumerate(studies, start=1):
        for row in figure_rows(analyse(data)):
            name = ": ".join(filter(None, (str(row[key]) for key in ("question", "votes_used", "part", "name"))))
            yield _figure(f"study {number}", str(row["figure"]), name, row)


def _figure(report: str, part: str, name: str, numbers: Mapping[str, Any]) -> Record:
    method = _METHOD_OF.get(part) or _METHOD_OF[report.rstrip(" 0123456789")]
    words = numbers.get("words") or numbers.get("why") or ""
    return {
        "name": ": ".join(filter(None, (report, part, name))),
        **without_nan({key: numbers.get(key) for key in ("value", "low", "high", "n", "sources")}),
        **{key: numbers[key] for key in _COUNTS if numbers.get(key) is not None},
        "method": method,
        "seed": _METHODS[method]["seed"],
        "words": words,
    }


def _evaluated(found: EvaluationResult) -> Iterator[tuple[str, str, Record]]:
    """Yield each figure of an evaluation as (part of the report, name of the figure, numbers)."""
    evaluated = found.evaluated
    effect, validity = evaluated.effectiveness, evaluated.validity
    for row in rows_of(evaluated):
        yield row.part, ": ".join(filter(None, (row.name, row.figure))), {**asdict(row), "n": row.images}
    if effect is not None:
        yield from _of_classifier(effect)
    for one in confusion_facts(evaluated):
        name = f"{one['label']} taken for {one['said']}"
        yield "confusion", f"{name}, originals", {"value": one["originals"]}
        yield "confusion", f"{name}, generated images", {"value": one["generated"]}
    for table, edits in evaluated.sensitivity.items():
        for edit in edits:
            sizes = {"n": edit.n, "sources": edit.sources}
            yield table, f"{edit.name}: newly wrong", {"value": edit.newly_wrong, **sizes}
            yield table, f"{edit.name}: newly wrong test cases", {"value": edit.newly_wrong_cases, **sizes}
            yield table, f"{edit.name}: p value, corrected", {"value": edit.p_adjusted, **sizes}
    if validity is not None:
        yield "validity", "weight of the score", {"value": validity.score_weight}
        yield "validity", "images with a consensus", {"value": validity.judged}
        yield "validity", "judged images without a consensus, number", {"value": validity.discarded}
        yield "validity", "answers to control items", {"value": validity.control_answers}


def _of_classifier(effect: Effectiveness) -> Iterator[tuple[str, str, Record]]:
    whole = {"n": effect.cases, "sources": effect.sources}
    yield "all", "p value of newly wrong against newly right", {"value": effect.flips.p_value, **whole}
    for one in effect.classes:
        sizes = {"n": one.cases, "sources": one.sources}
        yield "classes", f"{one.label}: originals wrong", {"value": one.wrong_originals, **sizes}
        yield "classes", f"{one.label}: test cases wrong", {"value": one.wrong_cases, **sizes}
        yield "classes", f"{one.label}: p value, corrected", {"value": one.p_adjusted, **sizes}
    for what, calibration in zip(("originals", "generated images"), effect.calibration, strict=True):
        yield "calibration", f"expected error, {what}", {"value": calibration.expected_error}
        bins = zip(calibration.accuracy, calibration.confidence, calibration.images, strict=True)
        for number, (accuracy, confidence, images) in enumerate(bins, start=1):
            yield "calibration", f"accuracy in bin {number}, {what}", {"value": accuracy, "n": images}
            yield "calibration", f"confidence in bin {number}, {what}", {"value": confidence, "n": images}


# The file


def _write(workspace: Workspace, contents: _Contents, archive: zipfile.ZipFile, name: str, on_count: OnCount) -> Record:
    """Write all files into a folder `name` of the zip. Return the manifest: written last, it marks a complete zip."""
    files, left_out = list[Record](), Counter(contents.left_out)

    def put(file: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(f"{name}/{file}", _TIME)
        entry.create_system, entry.external_attr = 3, 0o644 << 16  # the same values on every system
        # PNG is compressed already.
        kind = zipfile.ZIP_STORED if file.endswith(".png") else zipfile.ZIP_DEFLATED
        archive.writestr(entry, data, compress_type=kind)
        files.append({"name": file, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})

    def put_json(file: str, value: Record) -> None:
        put(file, json_text(value).encode() + b"\n")

    with archive:
        size = 0
        for done, sha in enumerate(contents.pictures):
            on_count(done, len(contents.pictures))
            try:
                data = workspace.images.read(sha)
            except UserError:
                left_out["images whose file is missing or damaged"] += 1
                continue
            size += len(data)
            put(f"images/{sha}.png", data)
        put_json("figures.json", {"methods": dict(_METHODS), "figures": contents.figures})
        put_json("settings.json", contents.settings)
        put_json("columns.json", dict(_COLUMNS))
        for table, rows in contents.tables.items():
            put(f"tables/{table}.jsonl", json_lines(rows))
        put(SCRIPT, Path(__file__).with_name(SCRIPT).read_bytes())
        values = {
            "contents": contents,
            "columns": dict(_COLUMNS),
            "left_out": left_out,
            "megabytes": size / 1e6,
        }
        put("README.md", _TEMPLATES.lines("evidence.md", **values).encode())
        manifest = {
            "format": FORMAT,
            "kind": KIND,
            "program": program(),
            "test_set": contents.settings["test_set"],
            "figures": len(contents.figures),
            "left_out": {words: number for words, number in sorted(left_out.items()) if number},
            "files": sorted(files, key=lambda one: str(one["name"])),
        }
        put_json(MANIFEST, manifest)
        on_count(len(contents.pictures), len(contents.pictures))
    return manifest


_TEMPLATES = TextTemplates(Path(__file__).with_name("templates"), count_of=count_of)
