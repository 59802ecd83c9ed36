"""What a test set says of a model under test, in words and tables: one sentence for a person, Markdown and LaTeX for a
paper, rows for whoever calculates on. Pure.

What is undefined is said in words; no NaN reaches a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.evaluation_results import (
    FEWEST_CASES,
    OF_PIXELS,
    OF_TRUE_CLASS,
    Effectiveness,
    LossEffect,
    SegmentationEffect,
)
from core.figures import Figure
from core.words import count_of
from evaluation.sensitivity import SensitivityRow
from evaluation.validity import ValidityEffect

Tables = Mapping[str, Sequence[SensitivityRow]]
"""Tables of edits by their titles."""
CANNOT_TELL = "cannot tell"
_CONTROLLED = "of sources with a reconstruction"
LOSES = "loses a class"
"""What a segmenter does to a test case that it is wrong about."""
_LATEX = str.maketrans({one: f"\\{one}" for one in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


@dataclass(frozen=True)
class Row:
    """One figure, for a table of all of them: shares are 0 to 1."""

    part: str
    """Which table it is of, such as "classes"."""
    name: str
    """Of the row, such as a class."""
    figure: str
    value: float | None
    low: float | None
    high: float | None
    images: int
    sources: int
    why: str
    """Why there is no value, or no interval."""


def per_cent(share: float | None) -> str:
    """A share as a person reads it: "38.9 %"; "cannot tell" for None."""
    return CANNOT_TELL if share is None else f"{100 * share:.1f} %"


def with_interval(figure: Figure, points: bool = False) -> str:
    """A figure with its interval, such as "38.9 % (34.8 to 41.8)"; as a difference in `points`."""
    if figure.value is None:
        return f"{bounds(figure)}: {figure.why}"
    value = f"{100 * figure.value:+.1f} points" if points else per_cent(figure.value)
    if figure.low is None or figure.high is None:
        return f"{value} ({figure.why})"
    form = "+.1f" if points else ".1f"
    return f"{value} ({100 * figure.low:{form}} to {100 * figure.high:{form}})"


EQUAL = {"source": "each source weighs the same", "case": "each test case weighs the same"}
"""What weighs the same in figures, in words."""


def _beyond(
    found: Effectiveness | SegmentationEffect, controlled: tuple[Figure, Figure, Figure], whole: str, part: str, of: str
) -> str:
    """What the edits do beyond what drawing does; an interval around 0 says nothing of them. `controlled` are the
    figures on originals, reconstructions and generated images of the sources that have a reconstruction; `whole` says
    it where all have one, and `part` and `of` where some have.
    """
    excess, control = found.excess, controlled[1]
    if control.value is None or excess.value is None:
        return f"How much of that is the edits' doing cannot be told: {excess.why}."
    figure = with_interval(excess, points=True)
    edits = f"{figure} are the edits' doing" if excess.clear_of_zero else f"what comes on top, {figure}, may be chance"
    if found.controlled == found.sources:
        return f"Drawing alone {whole} {per_cent(control.value)} (reconstructions); {edits}."
    first, drawn, edited = (per_cent(one.value) for one in controlled)
    return (
        f"On the {found.controlled:,} of {found.sources:,} sources that have a reconstruction, it {part} {first} {of} "
        f"the originals, {drawn} {of} the reconstructions and {edited} {of} the test cases: {edits}."
    )


def _hurting(edits: Sequence[SensitivityRow]) -> Iterator[str]:
    hurts = [row.name for row in edits if row.hurts]
    if hurts:
        yield f"Edits of {listed(hurts[:2])} hurt it."


def _weighed(found: Effectiveness | SegmentationEffect) -> str:
    split = f"split {found.split}; " if found.split else ""
    return f"({split}{EQUAL[found.weighing]})"


def answer(model: str, found: Effectiveness, validity: ValidityEffect | None, edits: Sequence[SensitivityRow]) -> str:
    """What the figures say, in a few sentences."""
    if found.error_generated.value is None:
        return f"{model}: {CANNOT_TELL}; {found.error_generated.why}."
    said = [
        f"{model} is wrong on {per_cent(found.error_original.value)} of {found.sources:,} originals and on "
        f"{per_cent(found.error_generated.value)} of the {found.cases:,} test cases made of them {_weighed(found)}."
    ]
    controlled = found.error_original_controlled, found.error_reconstructed, found.error_generated_controlled
    said.append(_beyond(found, controlled, "makes it wrong on", "is wrong on", "of"))
    said += _valid(validity, "all test cases are wrong and valid", "these faults are valid")
    return " ".join([*said, *_hurting(edits)])


def segmentation_answer(
    model: str,
    found: SegmentationEffect,
    losses: LossEffect,
    validity: ValidityEffect | None = None,
    edits: Sequence[SensitivityRow] = (),
) -> str:
    """What the figures of a segmenter say, in a few sentences."""
    if found.miou_generated.value is None or found.miou_original.value is None:
        why = found.miou_generated.why or found.miou_original.why
        return f"{model}: {CANNOT_TELL}; {why}."
    said = [
        f"{model} reaches a mIoU of {per_cent(found.miou_original.value)} on {found.sources:,} originals and of "
        f"{per_cent(found.miou_generated.value)} on the {found.cases:,} test cases made of them {_weighed(found)}."
    ]
    controlled = found.miou_original_controlled, found.miou_reconstructed, found.miou_generated_controlled
    said.append(_beyond(found, controlled, "brings it to", "reaches", "on"))
    said += _losses_said(losses, validity)
    return " ".join([*said, *_hurting(edits)])


def _losses_said(losses: LossEffect, validity: ValidityEffect | None) -> Iterator[str]:
    if losses.generated.value is None:
        yield "How often it loses a class cannot be told: it finds no protected class on an original."
        return
    drawn, beside = losses.reconstructed.value, ""
    if drawn is not None and losses.controlled == losses.sources:
        beside = f", on reconstructions on {per_cent(drawn)}"
    elif drawn is not None:
        beside = (
            f" (of the {losses.controlled:,} of {losses.sources:,} sources with a reconstruction: on "
            f"{per_cent(losses.generated_controlled.value)}, and on reconstructions on {per_cent(drawn)})"
        )
    most = sorted((one for one in losses.classes if one.lost), key=lambda one: (-(one.share or 0.0), one.name))
    which = f", most often {listed([one.name for one in most[:2]])}" if most else ""
    yield (
        f"It loses a protected class that it finds on the original on {per_cent(losses.generated.value)} of "
        f"{losses.cases:,} test cases{beside}{which}."
    )
    yield from _valid(validity, "these test cases lose a class and are valid", "these losses are on valid images")


def _valid(validity: ValidityEffect | None, valid: str, how_many: str) -> Iterator[str]:
    if validity is None:
        return
    found = validity.by_strata
    asked = validity.judged + validity.discarded
    selected = f", a selected sample ({validity.chosen})" if validity.chosen else ""
    if found.low is None or found.high is None:
        yield f"How many of {how_many} cannot be told: {found.why}."
    elif found.value is None:
        yield f"By {asked:,} judged images{selected}, {bounds(found)} of {valid}, as {found.why}."
    else:
        alike = ", if the other images are like these" if validity.chosen else ""
        ends = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
        yield f"By {asked:,} judged images{selected}, {per_cent(found.value)} of {valid} ({ends}){alike}."
    if validity.discarded:
        yield (
            f"On {validity.discarded:,} of these images ({per_cent(validity.undecided.value)}) people reached no "
            f"consensus: with none of them valid it is {per_cent(validity.at_least.value)}, with all of them "
            f"{per_cent(validity.at_most.value)}."
        )
    if asked and not validity.control_answers:
        yield "Without control items, errors that annotators share cannot be seen."


def bounds(figure: Figure) -> str:
    """What a figure lies between that nobody can tell, such as "between 41.0 and 52.3 %"."""
    if figure.low is None or figure.high is None:
        return CANNOT_TELL
    return f"between {100 * figure.low:.1f} and {100 * figure.high:.1f} %"


def segmentation_rows(
    found: SegmentationEffect,
    losses: LossEffect,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
) -> Iterator[Row]:
    """All figures of a segmenter, one a row; `edits` are tables of sensitivity by their names."""
    for name, figure in _segmentation_figures(found):
        yield _row("all", "", name, figure)
    for one in found.classes:
        for name, value in (
            ("IoU on originals", one.iou_original),
            ("IoU on generated images", one.iou_generated),
            ("IoU on reconstructions", one.iou_reconstructed),
            ("pixel accuracy on originals", one.accuracy_original),
            ("pixel accuracy on generated images", one.accuracy_generated),
        ):
            why = "" if value is not None else "the class is not there"
            yield Row("classes", one.name, name, value, None, None, found.cases, found.sources, why)
    yield from _loss_rows(losses)
    for title, table in (edits or {}).items():
        for row in table:
            yield _row(title, row.name, f"change of {OF_PIXELS}", row.change)
            few = "" if row.newly_wrong is not None else row.change.why
            yield Row(title, row.name, LOSES, row.newly_wrong, None, None, row.n, row.sources, few)
    if validity is not None:
        yield from (_row("validity", "", *one) for one in validity.figures(LOSES))


def _clustering_rows(found: Effectiveness | LossEffect) -> Iterator[Row]:
    worth = found.clustering
    for name, value in (
        ("intra-class correlation", worth.correlation),
        ("design effect", worth.design_effect),
        ("effective number of images", worth.effective),
    ):
        why = worth.why if value is None else ""
        yield Row("all", "", name, value, None, None, found.cases, found.sources, why)


def _loss_rows(losses: LossEffect) -> Iterator[Row]:
    for name, figure in _loss_figures(losses):
        yield _row("all", "", name, figure)
    together = losses.together
    for name, number in (
        ("test cases that lose a class, of originals where all are found", losses.newly_wrong),
        ("sources with all test cases losing a class", together.all_wrong),
        ("sources with some test cases losing a class", together.some_wrong),
        ("sources with no test case losing a class", together.none_wrong),
        ("test cases with no class to lose", losses.left_out),
    ):
        yield Row("all", "", name, float(number), None, None, losses.cases, losses.sources, "")
    yield from _clustering_rows(losses)
    for one in losses.classes:
        for name, lost, of in (
            ("lost on generated images", one.lost, one.cases),
            ("lost on reconstructions", one.lost_in_controls, one.controls),
        ):
            why = "" if of else "it is found on no original"
            yield Row("protected", one.name, name, lost / of if of else None, None, None, of, losses.sources, why)


def segmentation_markdown(
    model: str,
    test_set: str,
    found: SegmentationEffect,
    losses: LossEffect,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
) -> str:
    """The report of a segmenter as Markdown."""
    tables = edits or {}
    first = next(iter(tables.values()), ())
    lines = [f"# {_plain(model)} on {_plain(test_set)}", ""]
    lines += [segmentation_answer(model, found, losses, validity, first), "", "| figure | |", "| --- | --- |"]
    figures = [*_segmentation_figures(found), *_loss_figures(losses)]
    lines += [f"| {name} | {with_interval(figure, 'generated less' in name)} |" for name, figure in figures]
    worth = losses.clustering
    told = f"{worth.effective:,.0f} independent ones" if worth.effective is not None else worth.why
    lines.append(f"| what {losses.cases:,} test cases are worth | {told} |")
    lines.append(f"| test cases with no class to lose | {losses.left_out:,} |")
    lines += ["", f"Intervals: 95 %, over sources; {EQUAL[found.weighing]}.", "", "## By class", ""]
    lines += ["| class | IoU original | IoU generated | IoU reconstructed |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {_plain(one.name)} | "
        f"{' | '.join(map(per_cent, (one.iou_original, one.iou_generated, one.iou_reconstructed)))} |"
        for one in found.classes
    ]
    head = ["| class | test cases | reconstructions |", "| --- | ---: | ---: |"]
    by_class = [
        (
            one.cases,
            f"| {_plain(one.name)} | {one.lost:,} of {one.cases:,} | {one.lost_in_controls:,} of {one.controls:,} |",
        )
        for one in losses.classes
    ]
    lines += ["", "## Protected classes that are lost", "", *_with_enough(head, by_class)]
    if tables:
        lines.append(edits_markdown(tables, OF_PIXELS, LOSES).rstrip("\n"))
    if validity is not None:
        lines += _validity_lines(validity, LOSES)
    return "\n".join([*lines, ""])


def _loss_figures(found: LossEffect) -> list[tuple[str, Figure]]:
    return [
        ("originals on which it misses a protected class", found.missed),
        ("generated images on which it loses a class", found.generated),
        ("generated images on which it loses a class, of sources with a reconstruction", found.generated_controlled),
        ("reconstructions on which it loses a class", found.reconstructed),
        ("loses a class, generated less reconstructed", found.excess),
    ]


def _segmentation_figures(found: SegmentationEffect) -> list[tuple[str, Figure]]:
    return [
        ("mIoU on originals", found.miou_original),
        ("mIoU on generated images", found.miou_generated),
        ("generated less original", found.difference),
        (f"mIoU on originals, {_CONTROLLED}", found.miou_original_controlled),
        (f"mIoU on generated images, {_CONTROLLED}", found.miou_generated_controlled),
        ("mIoU on reconstructions", found.miou_reconstructed),
        ("generated less reconstructed", found.excess),
        ("mIoU on generated images whose mask holds", found.miou_where_kept),
    ]


def _figures(found: Effectiveness) -> list[tuple[str, Figure]]:
    return [
        ("error on originals", found.error_original),
        ("error on generated images", found.error_generated),
        ("generated less original", found.difference),
        ("generated over original", found.factor),
        (f"error on originals, {_CONTROLLED}", found.error_original_controlled),
        (f"error on generated images, {_CONTROLLED}", found.error_generated_controlled),
        ("error on reconstructions", found.error_reconstructed),
        ("generated less reconstructed", found.excess),
    ]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: "road, car and bus"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def rows(
    found: Effectiveness,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
) -> Iterator[Row]:
    """All figures, one a row; `edits` are tables of sensitivity by their names."""
    for name, figure in _figures(found):
        yield _row("all", "", name, figure)
    for name, number in (
        ("newly wrong", found.flips.newly_wrong),
        ("newly right", found.flips.newly_right),
        ("sources with a reconstruction", found.controlled),
        ("sources with all test cases wrong", found.together.all_wrong),
        ("sources with some test cases wrong", found.together.some_wrong),
        ("sources with no test case wrong", found.together.none_wrong),
        ("images left out", found.left_out),
    ):
        yield Row("all", "", name, float(number), None, None, found.cases, found.sources, "")
    yield from _clustering_rows(found)
    for row in found.classes:
        for name, figure in (
            ("error on originals", row.error_original),
            ("error on generated images", row.error_generated),
            ("generated less original", row.difference),
        ):
            yield _row("classes", row.label, name, figure)
    for title, table in (edits or {}).items():
        for one in table:
            yield _row(title, one.name, f"change of {OF_TRUE_CLASS}", one.change)
    if validity is not None:
        yield from (_row("validity", "", *one) for one in validity.figures())


def _validity_lines(validity: ValidityEffect, wrong: str = "wrong") -> list[str]:
    lines = ["", "## What validity does to it", "", "| figure | |", "| --- | --- |"]
    lines += [f"| {name} | {with_interval(figure)} |" for name, figure in validity.figures(wrong)]
    if validity.not_judged_in:
        lines += ["", f"Nobody judged an image of: {', '.join(map(_plain, validity.not_judged_in))}."]
    return lines


def _row(part: str, name: str, what: str, figure: Figure) -> Row:
    return Row(part, name, what, figure.value, figure.low, figure.high, figure.n, figure.sources, figure.why)


def markdown(
    model: str,
    test_set: str,
    found: Effectiveness,
    validity: ValidityEffect | None = None,
    edits: Tables | None = None,
) -> str:
    """The report as Markdown."""
    tables = edits or {}
    first = next(iter(tables.values()), ())
    lines = [f"# {_plain(model)} on {_plain(test_set)}", "", answer(model, found, validity, first), ""]
    lines += ["| figure | |", "| --- | --- |"]
    figures = [(name, figure) for name, figure in _figures(found) if name != "generated over original"]
    lines += [f"| {name} | {with_interval(figure, 'generated less' in name)} |" for name, figure in figures]
    factor = found.factor
    times = f"{factor.value:.2f}" if factor.value is not None else f"{CANNOT_TELL}: {factor.why}"
    if factor.low is not None and factor.high is not None:
        times += f" ({factor.low:.2f} to {factor.high:.2f})"
    lines.append(f"| generated over original | {times} |")
    held = found.clustering
    worth = f"{held.effective:,.0f} independent ones" if held.effective is not None else f"{CANNOT_TELL}: {held.why}"
    lines.append(f"| what {found.cases:,} test cases are worth | {worth} |")
    lines.append(f"| images that cannot be compared with a label | {found.left_out:,} |")
    lines += ["", f"Intervals: 95 %, over sources; {EQUAL[found.weighing]}."]
    if found.classes:
        head = ["| class | sources | test cases | original | generated | change |"]
        head += ["| --- | ---: | ---: | --- | --- | --- |"]
        by_class = [
            (
                row.cases,
                f"| {_plain(row.label)} | {row.sources:,} | {row.cases:,} | {with_interval(row.error_original)} | "
                f"{with_interval(row.error_generated)} | {with_interval(row.difference, points=True)} |",
            )
            for row in found.classes
        ]
        lines += ["", "## By class", "", *_with_enough(head, by_class)]
    if tables:
        lines.append(edits_markdown(tables).rstrip("\n"))
    if validity is not None:
        lines += _validity_lines(validity)
    return "\n".join([*lines, ""])


def edits_markdown(tables: Tables, what: str = "the true class", wrong: str = "") -> str:
    """Tables of edits as Markdown. `what` changes; `wrong` heads a column with the share of newly wrong cases."""
    heads = ["edit", "test cases", f"change of {what}", *([wrong] if wrong else []), "p, corrected"]
    lines = list[str]()
    for title, table in tables.items():
        head = [f"| {' | '.join(heads)} |", f"| --- | ---: | --- |{' ---: |' * (len(heads) - 3)}"]
        by_edit = list[tuple[int, str]]()
        for one in table:
            cells = [_plain(one.name), f"{one.n:,}", _change(one.change)]
            cells += [per_cent(one.newly_wrong)] if wrong else []
            cells.append(f"{one.p_adjusted:.3f}" if one.p_adjusted is not None else CANNOT_TELL)
            by_edit.append((one.n, f"| {' | '.join(cells)} |"))
        lines += ["", f"## {_plain(title)}", "", *_with_enough(head, by_edit)]
    return "\n".join([*lines, ""])


def _with_enough(head: Sequence[str], rows: Sequence[tuple[int, str]]) -> list[str]:
    """The lines of a table without its rows of too few test cases, which one line counts. A row is its number of test
    cases and its line.
    """
    lines = [line for cases, line in rows if cases >= FEWEST_CASES]
    few = len(rows) - len(lines)
    left_out = f"{count_of(few, 'row', 'has')} fewer than {FEWEST_CASES} test cases: CSV, Parquet and JSON list them."
    return [*([*head, *lines] if lines else []), *([""] if lines and few else []), *([left_out] if few else [])]


def _change(figure: Figure) -> str:
    if figure.value is None:
        return f"{CANNOT_TELL}: {figure.why}"
    ends = f" ({figure.low:+.2f} to {figure.high:+.2f})" if figure.low is not None and figure.high is not None else ""
    return f"{figure.value:+.2f}{ends}"


def latex(model: str, found: Effectiveness) -> str:
    """The paper's Table I with intervals and the excess over reconstructions."""
    cells = _cell(found.error_original), _cell(found.error_generated), _cell(found.excess, sign=True)
    return _tabular((r"Original (\%)", r"Generated (\%)", "Excess (points)"), model, cells)


def segmentation_latex(model: str, found: SegmentationEffect, losses: LossEffect) -> str:
    """The same of a segmenter: mIoU, and how often a class is lost on generated images."""
    figures = (found.miou_original, found.miou_generated, found.miou_reconstructed, losses.generated)
    head = (r"Original (mIoU, \%)", r"Generated (mIoU, \%)", r"Reconstructed (mIoU, \%)", r"Loses a class (\%)")
    return _tabular(head, model, [_cell(one) for one in figures])


def _tabular(head: Sequence[str], model: str, cells: Sequence[str]) -> str:
    rows = (("Model", *head), (model.translate(_LATEX), *cells))
    lines = [f"{' & '.join(row)} \\\\\n\\hline" for row in rows]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * len(head)}}}", r"\hline", *lines, r"\end{tabular}", ""])


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
