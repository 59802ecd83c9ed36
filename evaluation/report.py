"""Write a test set's result for a model under test: sentences for people, Markdown and LaTeX for papers, rows for
spreadsheets. Also write for pull requests and CI servers whether a new model may replace an old one. Pure.

Undefined values are described in words; no NaN reaches a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from core.data_files import DataTable
from core.evaluation_results import (
    FEWEST_CASES,
    OF_PIXELS,
    OF_TRUE_CLASS,
    Effectiveness,
    GateResult,
    LossEffect,
    SegmentationEffect,
)
from core.figures import Figure
from core.text_templates import TextTemplates
from core.words import count_of, few_names
from evaluation.sensitivity import SensitivityRow
from evaluation.validity import ValidityEffect

Tables = Mapping[str, Sequence[SensitivityRow]]
"""Tables of edits by their titles. Each row is about one kind of edit."""
CANNOT_TELL = "cannot tell"
ALL_CASES = "all test cases"
LOSES = "loses a class"
"""Name of a segmenter's mistake on a test case: it no longer finds a class."""
_WORDS: DataTable[dict[str, str]] = DataTable(__file__, dict[str, str])
_LATEX = str.maketrans({one: f"\\{one}" for one in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


@dataclass(frozen=True)
class Row:
    """A row of the table of all figures. Shares are 0 to 1."""

    part: str
    name: str
    figure: str
    value: float | None
    low: float | None
    high: float | None
    images: int
    sources: int
    why: str


def per_cent(share: float | None) -> str:
    """Return a share as text, such as "38.9 %"; "cannot tell" for None."""
    return CANNOT_TELL if share is None else f"{100 * share:.1f} %"


def with_interval(figure: Figure, points: bool = False) -> str:
    """Return a figure with its interval, such as "38.9 % (34.8 to 41.8)"; in percentage points if `points`."""
    if figure.value is None:
        return f"{bounds(figure)}: {figure.why}"
    value = f"{100 * figure.value:+.1f} points" if points else per_cent(figure.value)
    return f"{value} ({_ends(figure, '+.1f' if points else '.1f', 100) or figure.why})"


def _ends(figure: Figure, form: str, times: float = 1) -> str:
    low, high = figure.low, figure.high
    return "" if low is None or high is None else f"{times * low:{form}} to {times * high:{form}}"


def number_with_interval(figure: Figure, signed: bool = False) -> str:
    """Return a number with its interval, such as "3.42 (2.80 to 4.10)". With `signed`, a + precedes positive ones."""
    form = "+.2f" if signed else ".2f"
    if figure.value is None:
        return f"{_ends(figure, form) or CANNOT_TELL}: {figure.why}"
    return f"{figure.value:{form}} ({_ends(figure, form) or figure.why})"


EQUAL = {"source": "each source weighs the same", "case": "each test case weighs the same"}
"""Descriptions of the weightings of figures, by the weighting's name."""


def answer(
    model: str,
    found: Effectiveness | SegmentationEffect,
    validity: ValidityEffect | None = None,
    edits: Sequence[SensitivityRow] = (),
    losses: LossEffect | None = None,
) -> str:
    """Return a result in a few sentences. `edits` are rows of a table; `losses` are a segmenter's lost classes."""
    needed = (
        [found.error_generated] if isinstance(found, Effectiveness) else [found.miou_generated, found.miou_original]
    )
    if any(figure.value is None for figure in needed):
        return f"{model}: {CANNOT_TELL}; {next((figure.why for figure in needed if figure.why), '')}."
    lost = [one for one in losses.classes if one.lost] if losses is not None else []
    most = [one.name for one in sorted(lost, key=lambda one: (-(one.share or 0.0), one.name))[:2]]
    values = {"found": found, "losses": losses, "validity": validity, "most": most}
    hurting = [row.name for row in edits if row.hurts][:2]
    return TEMPLATES.paragraph("answer.txt", model=model, hurting=hurting, **values)


def bounds(figure: Figure) -> str:
    """Return the range of a figure that has bounds but no value, such as "between 41.0 and 52.3 %"."""
    if figure.low is None or figure.high is None:
        return CANNOT_TELL
    return f"between {100 * figure.low:.1f} and {100 * figure.high:.1f} %"


def rows(
    found: Effectiveness | SegmentationEffect,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
    losses: LossEffect | None = None,
) -> Iterator[Row]:
    """Yield all figures, one per row. `edits` are tables of edits by title. `losses` are a segmenter's lost classes."""
    if isinstance(found, Effectiveness):
        yield from _rows_of_all(found)
        for of_class in found.classes:
            yield from (_row("classes", of_class.label, *one) for one in _figures(of_class))
    else:
        yield from (_row("all", "", *one) for one in _figures(found))
        for segmented in found.classes:
            for name, value in _figures(segmented):
                why = "" if value is not None else "the class is not there"
                yield Row("classes", segmented.name, name, value, None, None, found.cases, found.sources, why)
    if losses is not None:
        yield from _rows_of_all(losses)
        for protected in losses.classes:
            for name, lost, of in (
                ("lost on generated images", protected.lost, protected.cases),
                ("lost on reconstructions", protected.lost_in_controls, protected.controls),
            ):
                share, why = (lost / of, "") if of else (None, "it is found on no original")
                yield Row("protected", protected.name, name, share, None, None, of, losses.sources, why)
    for title, table in (edits or {}).items():
        for row in table:
            yield _row(title, row.name, f"change of {OF_TRUE_CLASS if losses is None else OF_PIXELS}", row.change)
            if losses is not None:
                few = "" if row.newly_wrong is not None else row.change.why
                yield Row(title, row.name, LOSES, row.newly_wrong, None, None, row.n, row.sources, few)
    if validity is not None:
        wrong = "wrong" if losses is None else LOSES
        yield from (_row("validity", "", *one) for one in validity_figures(validity, wrong))


def _rows_of_all(found: Effectiveness | LossEffect) -> Iterator[Row]:
    for name, figure in _figures(found):
        yield _row("all", "", name, figure)
    for name, number in _figures(found, f"counts of {type(found).__name__}"):
        yield Row("all", "", name, float(number), None, None, found.cases, found.sources, "")
    for name, value in _figures(found.clustering):
        why = found.clustering.why if value is None else ""
        yield Row("all", "", name, value, None, None, found.cases, found.sources, why)


def _figures(found: object, table: str = "") -> list[tuple[str, Any]]:
    """Return the values in `found` that `report.toml` lists, with names. `table` defaults to the class of `found`."""
    words = _WORDS[table or type(found).__name__]
    return [(name, attrgetter(attribute)(found)) for attribute, name in words.items()]


def validity_figures(found: ValidityEffect, wrong: str = "wrong") -> list[tuple[str, Figure]]:
    """Return the figures on validity with their names. `wrong` describes the model's mistake in these names."""
    error = "error" if wrong == "wrong" else wrong
    return [(name.format(wrong=wrong, error=error), figure) for name, figure in _figures(found)]


def _row(part: str, name: str, what: str, figure: Figure) -> Row:
    return Row(part, name, what, figure.value, figure.low, figure.high, figure.n, figure.sources, figure.why)


def markdown(
    model: str,
    test_set: str,
    found: Effectiveness | SegmentationEffect,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
    losses: LossEffect | None = None,
) -> str:
    """Return the report as Markdown, with the tables of edits and the lost classes of a segmenter (see `rows`)."""
    figures = [*_figures(found), *(_figures(losses) if losses is not None else [])]
    return TEMPLATES.lines(
        "report.md",
        model=model,
        test_set=test_set,
        answer=answer(model, found, validity, next(iter((edits or {}).values()), ()), losses),
        figures=[(name, figure) for name, figure in figures if name != "generated over original"],
        found=found,
        losses=losses,
        validity=validity,
        tables=edits or {},
        what=OF_PIXELS if losses is not None else "the true class",
        wrong=LOSES if losses is not None else "",
    )


def edits_markdown(tables: Tables, what: str = "the true class", wrong: str = "") -> str:
    """Return tables of edits as Markdown. `what` names the value that changes. `wrong` is the title of the column with
    the share of newly wrong test cases; "" omits this column.
    """
    return TEMPLATES.lines("edits.md", tables=tables, what=what, wrong=wrong)


def rows_markdown(title: str, rows: Iterable[Row], notes: Sequence[str]) -> str:
    """Return a section of a Markdown report: a title, a table of the rows, and notes."""
    return TEMPLATES.lines("rows.md", title=title, rows=list(rows), notes=notes)


def _change(figure: Figure) -> str:
    if figure.value is None:
        return f"{CANNOT_TELL}: {figure.why}"
    ends = _ends(figure, "+.2f")
    return f"{figure.value:+.2f} ({ends})" if ends else f"{figure.value:+.2f}"


def latex(model: str, found: Effectiveness | SegmentationEffect, losses: LossEffect | None = None) -> str:
    """Return the paper's Table I as LaTeX, with intervals and the excess over reconstructions. A segmenter has a table
    of mIoU, and of how often it loses a class on generated images.
    """
    if isinstance(found, Effectiveness):
        cells = [_cell(found.error_original), _cell(found.error_generated), _cell(found.excess, sign=True)]
        heads = [r"Original (\%)", r"Generated (\%)", "Excess (points)"]
    else:
        drawn = [("Original", found.miou_original), ("Generated", found.miou_generated)]
        drawn.append(("Reconstructed", found.miou_reconstructed))
        heads, cells = [rf"{name} (mIoU, \%)" for name, _ in drawn], [_cell(figure) for _, figure in drawn]
    if losses is not None:
        heads.append(r"Loses a class (\%)")
        cells.append(_cell(losses.generated))
    return TEMPLATES.lines("table.tex", heads=heads, model=model, figures=cells)


def gate_markdown(test_set: str, models: Sequence[str], found: GateResult) -> str:
    """Return as Markdown whether a new model is worse, with the figures. `models` are the old and the new model."""
    return TEMPLATES.lines("gate.md", test_set=test_set, old=models[0], new=models[1], found=found, all=ALL_CASES)


def gate_junit(test_set: str, models: Sequence[str], found: GateResult) -> bytes:
    """Return JUnit XML with a test for each row: a failure if the new model is worse, an error if it is unclear."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"{_xml(models[1])} against {_xml(models[0])}",
        tests=str(len(found.rows)),
        failures=str(sum(row.answer == "worse" for row in found.rows)),
        errors=str(sum(row.answer == "cannot tell" for row in found.rows)),
    )
    for row in found.rows:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(test_set), name=_xml(row.name) or ALL_CASES)
        if row.answer != "no worse":
            kind = "failure" if row.answer == "worse" else "error"
            why = f"More valid faults: {with_interval(row.difference, points=True)}"
            message = _xml(f"{why}; allowed: {100 * found.margin:+.4g} points.")
            ElementTree.SubElement(case, kind, type=row.answer, message=message)
    ElementTree.indent(suite)
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _xml(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return "".join(one if one.isprintable() else " " for one in text)


def _cell(figure: Figure, sign: bool = False) -> str:
    if figure.value is None:
        return "--"
    form = "+.2f" if sign else ".2f"
    value = f"{100 * figure.value:{form}}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value} [{100 * figure.low:{form}}, {100 * figure.high:{form}}]"


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


TEMPLATES = TextTemplates(
    Path(__file__).with_name("templates"),
    bounds=bounds,
    cannot_tell=CANNOT_TELL,
    change_words=_change,
    count_of=count_of,
    equal=EQUAL,
    few_names=few_names,
    fewest=FEWEST_CASES,
    in_latex=lambda text: text.translate(_LATEX),
    per_cent=per_cent,
    plain=_plain,
    validity_figures=validity_figures,
    with_interval=with_interval,
)
