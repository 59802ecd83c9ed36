"""An evaluation as data and files: JSON-ready facts for scripts; Markdown, LaTeX, CSV and Parquet for papers and
further analysis. Undefined values are None with a reason, never NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from core.csv_tables import Kind, csv_text, facts
from core.evaluation_results import Effectiveness, SegmentationEffect
from core.model_identity import ModelIdentity
from evaluation import report
from services.evaluation.types import Evaluated, FocusFigures, LikenessFigures, ModelComparison, SubjectView
from services.studies.exports import parquet

FileKind = Literal["markdown", "latex", "csv", "parquet", "json"]
SUFFIXES: dict[FileKind, str] = {
    "markdown": ".md",
    "latex": ".tex",
    "csv": ".csv",
    "parquet": ".parquet",
    "json": ".json",
}


COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("part", "name", "figure"), "text"),
    **dict.fromkeys(("value", "low", "high"), "number"),
    **dict.fromkeys(("images", "sources"), "whole"),
    "why": "text",
}
"""Columns of the table of all figures: the fields of `evaluation.report.Row`."""


def rows_of(found: Evaluated) -> Iterator[report.Row]:
    """Yield all figures of an evaluation, one per row."""
    yield from report.rows(_effect(found), found.validity, found.sensitivity, found.losses)


def _effect(found: Evaluated) -> Effectiveness | SegmentationEffect:
    effect = found.effectiveness or found.segmentation
    assert effect is not None
    return effect


def likeness_rows(likeness: LikenessFigures) -> Iterator[report.Row]:
    """Yield all likeness figures, one per row."""
    figures = [("likeness", f"captions, by {likeness.language or 'no model'}", "perplexity ratio", likeness.perplexity)]
    for name, one in likeness.fidelity.items():
        figures += [("likeness", f"{name}, by {one.extractor}", *of) for of in (("KID", one.kid), ("FID", one.fid))]
    for group in likeness.groups:
        name = ": ".join(filter(None, (group.label, group.edits)))
        figures.append(("groups of edits", name, f"change of {likeness.changed}", group.cluster.change))
    for part, name, what, of in figures:
        yield report.Row(part, name, what, of.value, of.low, of.high, of.n, of.sources, of.why)


def likeness_facts(likeness: LikenessFigures) -> dict[str, Any]:
    """Return likeness figures, JSON-ready."""
    groups = [facts(one, "label edits entries") | facts(one.cluster, "p_value p_adjusted") for one in likeness.groups]
    rows = list(_finite_rows(likeness_rows(likeness)))
    return {**facts(likeness, "missing notes"), "figures": rows, "groups": groups}


def focus_rows(focus: FocusFigures) -> Iterator[report.Row]:
    """Yield all figures on where models look, and the numbers of images without AIC or SIC, one per row."""
    names = [*focus.models, f"{focus.models[-1]} less {focus.models[0]}"]
    for row in focus.rows:
        for name, of in zip(names, row.figures, strict=False):
            yield report.Row(
                "focus", f"{row.images}, {name}", row.name, of.value, of.low, of.high, of.n, of.sources, of.why
            )
    for model, name, reason, tried, number in focus.left_out:
        yield report.Row("focus", model, f"without {name}: {reason}", number, None, None, tried, 0, "a count")


def focus_facts(focus: FocusFigures) -> dict[str, Any]:
    """Return the figures on where models look, JSON-ready."""
    return {**facts(focus, "models layers images missing notes"), "figures": list(_finite_rows(focus_rows(focus)))}


def facts_of(found: Evaluated, comparison: ModelComparison | None = None) -> dict[str, Any]:
    """Return all figures and notes of an evaluation, JSON-ready, and the `comparison` with a second model if given."""
    shown, identity, effect = found.subject, found.identity, found.effectiveness or found.segmentation
    return {
        **facts(found, "model kind answer notes"),
        "subject": {**image_counts(shown), "split": shown.subject.split},
        "identity": identity and facts(identity, "digest name weights", assumptions=assumption_facts(identity)),
        "images": asdict(found.pending) | {"left": found.pending.left},
        "mapping": {
            "summary": found.mapping.summary,
            "unmapped": [row.label for row in found.mapping.unmapped],
            "why_unmapped": {row.label: row.note for row in found.mapping.unmapped},
            "to_look_at": {row.label: row.note for row in found.mapping.mapped if row.marked},
            "classes_of_no_label": list(found.mapping.left_over),
        },
        "weighing": effect.weighing if effect is not None else None,
        "against": "reconstructions" if found.against_control else "originals",
        "figures": list(_finite_rows(rows_of(found))),
        "confusion": list(confusion_facts(found)),
        "validity_score": found.score and asdict(found.score),
        "beside": comparison and asdict(comparison),
    }


def image_counts(shown: SubjectView) -> dict[str, Any]:
    """Return the title and the numbers of sources, test cases and reconstructions of a subject, JSON-ready."""
    return facts(shown, "title sources", test_cases=shown.cases, reconstructions=shown.controls)


def assumption_facts(identity: ModelIdentity) -> list[dict[str, str]]:
    """Return the assumptions on a model's input and output, JSON-ready."""
    return [{"name": name, "value": value} for name, value in identity.assumptions]


def file_of(
    found: Evaluated, kind: FileKind, likeness: LikenessFigures | None = None, focus: FocusFigures | None = None
) -> bytes:
    """Return the content of a file of an evaluation, with its likeness and focus figures if given."""
    if kind == "markdown":
        notes = [f"- {' '.join(note.split())}" for note in found.notes]
        title = "Likeness to the originals, and groups of edits"
        more = report.rows_markdown(title, likeness_rows(likeness), likeness.notes) if likeness is not None else ""
        if focus is not None:
            more += report.rows_markdown("Where the model looks", focus_rows(focus), focus.notes)
        return (_markdown(found) + more + ("\n".join(["", "## Notes", "", *notes, ""]) if notes else "")).encode()
    if kind == "latex":
        return report.latex(found.model, _effect(found), found.losses).encode()
    rows = [*_finite_rows(rows_of(found)), *_finite_rows(likeness_rows(likeness) if likeness is not None else ())]
    rows += _finite_rows(focus_rows(focus) if focus is not None else ())
    if kind == "csv":
        return csv_text(rows, COLUMNS).encode()
    if kind == "parquet":
        return parquet(rows, COLUMNS)
    return json_text(facts_of(found)).encode()


def json_text(facts: dict[str, Any]) -> str:
    """Return facts as indented JSON text."""
    return json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False)


def _markdown(found: Evaluated) -> str:
    title, tables = found.subject.title, {f"By {name}": rows for name, rows in found.sensitivity.items()}
    if found.losses is None:
        tables.pop("By class", None)
    return report.markdown(found.model, title, _effect(found), found.validity, tables, found.losses)


def confusion_facts(found: Evaluated) -> Iterator[dict[str, Any]]:
    """Yield how often each answer is given for each label, before and after edits, without pairs that never occur."""
    if found.effectiveness is not None:
        before, after = (one.shares for one in found.effectiveness.confusion)
    elif found.segmentation is not None:
        before, after = found.segmentation.confusion_original, found.segmentation.confusion_generated
    else:
        return
    for i, name in enumerate(found.labels):
        for j, answer in enumerate([*found.labels, "none of the labels"]):
            if before[i, j] > 0 or after[i, j] > 0:
                shares = {"originals": finite(before[i, j]), "generated": finite(after[i, j])}
                yield {"label": name, "said": answer, **shares}


def finite(number: Any) -> float | None:
    """Return a number as it is, and None for NaN and infinity."""
    return float(number) if math.isfinite(number) else None


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, with None for NaN and infinity."""
    return {name: finite(one) if isinstance(one, float) else one for name, one in values.items()}


def _finite_rows(rows: Iterable[report.Row]) -> Iterator[dict[str, Any]]:
    return (without_nan(asdict(row)) for row in rows)
