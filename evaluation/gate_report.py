"""The answer whether a new model may replace an old one, as Markdown for pull requests and JUnit XML for CI servers.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from core.evaluation_results import GateResult, GateRow
from evaluation.report import TEMPLATES, with_interval

ALL = "all test cases"


def gate_markdown(test_set: str, models: Sequence[str], found: GateResult) -> str:
    """Return the answer with its figures. `models` are the names of the old and the new model."""
    return TEMPLATES.lines("gate.md", test_set=test_set, old=models[0], new=models[1], found=found, all=ALL)


def gate_junit(test_set: str, models: Sequence[str], found: GateResult) -> bytes:
    """Return a JUnit file with a test for each row: a failure if the new model is worse, an error if that cannot be
    told. `models` as in `gate_markdown`.
    """
    suite = ElementTree.Element(
        "testsuite",
        name=f"{_xml(models[1])} against {_xml(models[0])}",
        tests=str(len(found.rows)),
        failures=str(sum(row.answer == "worse" for row in found.rows)),
        errors=str(sum(row.answer == "cannot tell" for row in found.rows)),
    )
    for row in found.rows:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(test_set), name=_xml(row.name) or ALL)
        if row.answer != "no worse":
            kind = "failure" if row.answer == "worse" else "error"
            ElementTree.SubElement(case, kind, type=row.answer, message=_xml(_why(row, found.margin)))
    ElementTree.indent(suite)
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _why(row: GateRow, margin: float) -> str:
    difference = with_interval(row.difference, points=True)
    return f"More valid faults: {difference}; allowed: {100 * margin:+.4g} points."


def _xml(text: str) -> str:
    """Return a text without the characters that XML cannot hold."""
    return "".join(one if one.isprintable() else " " for one in text)
