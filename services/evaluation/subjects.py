"""The images of a subject as columns: originals, test cases and reconstructions, with label, source, split and mask.

Test cases and reconstructions are never mixed: whatever a filter or a test set holds, an image of the recipe
“reconstruction” is a control, and all reconstructions of the same sources count, wherever in the workspace they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.recipes import RECONSTRUCTION
from pipeline.types import TaskKind
from services.evaluation.types import WITHOUT_SPLIT, Subject, SubjectView
from storage.case_columns import REJECTED, CaseTable, RunFacts, SetRow
from storage.workspace import Workspace

Numbers = NDArray[np.int64]
MaskOf = tuple[str, str]
"""The SHA-256 of a mask, and the names of its class numbers in JSON; ("", "{}") for none."""
NO_MASK: MaskOf = ("", "{}")


@dataclass(frozen=True, eq=False)
class Images:
    """Some images of a subject, column by column."""

    row: Numbers
    """Their place in `Cases.table`; -1 of an original."""
    source: Numbers
    """The number of the source of each, from 0."""
    label: Numbers
    """Its number among `Cases.labels`; -1 for none."""
    shas: list[str]
    masks: list[MaskOf]
    """Of a segmentation; else empty."""

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Cases:
    """All images of a subject."""

    view: SubjectView
    table: CaseTable
    originals: Images
    """One a source, in the order of their numbers."""
    generated: Images
    controls: Images
    labels: tuple[str, ...]
    """Of a classification, sorted; of a segmentation the classes of its masks, by their numbers."""
    split: tuple[str, ...]
    """Of each source; "" for none."""
    left_out: tuple[str, ...]
    """What of it is not counted, each in one sentence."""

    @cached_property
    def pictures(self) -> tuple[str, ...]:
        """The SHA-256 of all images, each once: the originals first."""
        return tuple(dict.fromkeys([*self.originals.shas, *self.generated.shas, *self.controls.shas]))

    @property
    def all_images(self) -> tuple[Images, Images, Images]:
        return self.originals, self.generated, self.controls


def read_cases(workspace: Workspace, subject: Subject) -> Cases:
    """The images of a subject as they are now. Raises UserError for a version that is gone, and where not exactly one
    of version and filter is given.
    """
    if (subject.version is None) == (subject.wanted is None):
        raise UserError("Say what is evaluated: a version of a test set, or a filter.", field="subject")
    columns = workspace.case_columns
    rows: dict[int, SetRow] = {}
    originals: dict[str, SetRow] = {}
    if subject.version is not None:
        title = workspace.test_sets.version(subject.version).words
        held = columns.set_rows(subject.version)
        rows = {row.entry: row for row in held if row.entry and not row.is_source}
        originals = {row.image: row for row in held if row.is_source}
        entries = np.array(sorted(rows), np.int64)
    else:
        assert subject.wanted is not None
        title, entries = "Images of a filter", columns.entries(subject.wanted)
    table = columns.table()  # after the entries: it has all of them
    return _Reading(workspace, subject, title, table, rows, originals).cases(table.rows_of(entries))


class _Reading:
    """Reads one subject."""

    def __init__(
        self,
        workspace: Workspace,
        subject: Subject,
        title: str,
        table: CaseTable,
        rows: Mapping[int, SetRow],
        originals: Mapping[str, SetRow],
    ) -> None:
        self._subject, self._title, self._table = subject, title, table
        self._rows, self._originals = rows, originals
        self._runs, self._brought = workspace.case_columns.runs(), workspace.case_columns.brought()
        unedited = np.array([name == RECONSTRUCTION.name for name in table.recipes.values] + [False])
        self._is_control = unedited[table.recipes.numbers]
        self._left_out: list[str] = []

    def cases(self, chosen: Numbers) -> Cases:
        table = self._table
        kept = chosen[~self._is_control[chosen]]
        controls_only = len(kept) == 0 and len(chosen) > 0
        with_source = table.sources.numbers[kept] >= 0
        self._leave_out(int((~with_source).sum()), "have no source image in the workspace")
        kept = kept[with_source]
        kinds = table.segmentation[kept]
        problem = ""
        if kinds.any() and not kinds.all():
            problem = (
                f"{int((~kinds).sum()):,} of these images are of a classification and {int(kinds.sum()):,} of a "
                "segmentation: choose those of one kind."
            )
        segments = bool(kinds.any())
        kept = kept[kinds == segments]
        splits = self._splits(kept)
        there = tuple(sorted({split or WITHOUT_SPLIT for split in splits}))
        if self._subject.split:
            own = np.array([(split or WITHOUT_SPLIT) == self._subject.split for split in splits], bool)
            kept, splits = kept[own], [split for split, is_own in zip(splits, own, strict=True) if is_own]
            if not len(kept) and not problem:
                problem = f"None of its sources is of the split “{self._subject.split}”: choose another one."
        elif len(there) > 1 and not problem:
            counts = Counter(split or WITHOUT_SPLIT for split in splits)
            said = ", ".join(f"{name} ({counts[name]:,} test cases)" for name in there)
            problem = f"Its sources are of several splits, which are never mixed: {said}. Choose one of them."
        if not problem and not len(kept):
            problem = "It has reconstructions alone, and no test case." if controls_only else "It has no test case."
        return self._built(kept, splits, segments, there, problem)

    def _splits(self, rows: Numbers) -> list[str]:
        table = self._table
        found = []
        runs, entries = table.runs.of(rows), table.entry[rows].tolist()
        for run, entry in zip(runs, entries, strict=True):
            held: SetRow | RunFacts | None = self._rows.get(entry) or self._runs.get(run) or self._brought.get(entry)
            found.append(held.split if held is not None else "")
        return found

    def _built(
        self, rows: Numbers, splits: Sequence[str], segments: bool, there: tuple[str, ...], problem: str
    ) -> Cases:
        table = self._table
        known, first, source = np.unique(table.sources.numbers[rows], return_index=True, return_inverse=True)
        of_source = np.full(len(table.sources.values) + 1, -1)
        of_source[known] = np.arange(len(known))
        controls = self._controls(rows, of_source, segments)
        source_rows = rows[first]
        shas = [table.sources.values[number] for number in known.tolist()]
        kind: TaskKind | None = None if not len(rows) else "segmentation" if segments else "classification"
        labels = [self._label(row) for row in rows.tolist()]
        of_sources = [self._source_label(sha, row) for sha, row in zip(shas, source_rows.tolist(), strict=True)]
        masks: list[list[MaskOf]] = [[], [], []]
        if segments:
            own = [self._mask(row) for row in rows.tolist()]
            before = [self._source_mask(sha, row) for sha, row in zip(shas, source_rows.tolist(), strict=True)]
            drawn = [self._mask(row) for row in controls.tolist()]
            masks = [before, own, drawn]
            names = _mask_names([*before, *own])
            number = dict.fromkeys(("", *labels, *of_sources), -1)
            if not problem and not any(mask for mask, _ in before):
                problem = "None of its sources has a mask: a segmenter cannot be measured without one."
        else:
            names = tuple(sorted({*labels, *of_sources} - {""}))
            number = {name: place for place, name in enumerate(names)} | {"": -1}
            if not problem and not names:
                problem = "None of its images has a label: a classifier cannot be measured without one."
        label = np.array([number[one] for one in of_sources], np.int64)
        control_source = of_source[table.sources.numbers[controls]]
        before_after = (
            Images(np.full(len(shas), -1), np.arange(len(shas)), label, shas, masks[0]),
            Images(rows, source, np.array([number[one] for one in labels], np.int64), table.images.of(rows), masks[1]),
            Images(controls, control_source, label[control_source], table.images.of(controls), masks[2]),
        )
        if not segments:
            self._leave_out(sum(not one for one in labels), "have no label")
        has_control = np.zeros(len(shas), bool)
        has_control[control_source] = True
        view = SubjectView(
            *(self._subject, self._title, kind, len(shas), len(rows), len(controls), there, problem),
            can_make_control=bool(len(shas)) and not bool(has_control.all()),
        )
        split = tuple(splits[place] for place in first.tolist())
        return Cases(view, table, *before_after, names, split, tuple(self._left_out))

    def _controls(self, rows: Numbers, of_source: Numbers, segments: bool) -> Numbers:
        """The reconstructions of the sources that are drawn as some of the test cases are."""
        table = self._table
        fits = self._is_control & table.there & (table.segmentation == segments) & (table.verdict != REJECTED)
        found = np.flatnonzero(fits & (of_source[table.sources.numbers] >= 0))
        drawn = np.unique(table.profiles.numbers[rows] * len(table.methods.values) + table.methods.numbers[rows])
        own = table.profiles.numbers[found] * len(table.methods.values) + table.methods.numbers[found]
        alike = np.isin(own, drawn)
        if not alike.all():
            words = "reconstructions of its sources are" if (~alike).sum() > 1 else "reconstruction of its sources is"
            self._left_out.append(
                f"{int((~alike).sum()):,} {words} left out, drawn by another profile or method than its test cases."
            )
        return found[alike]

    def _label(self, row: int) -> str:
        """As the version says it, else as people decided."""
        held = self._rows.get(int(self._table.entry[row]))
        number = int(self._table.labels.numbers[row])
        return held.label if held is not None else self._table.labels.values[number] if number >= 0 else ""

    def _facts(self, row: int) -> RunFacts | None:
        (run,) = self._table.runs.of([row])
        return self._runs.get(run) or self._brought.get(int(self._table.entry[row]))

    def _source_label(self, sha: str, row: int) -> str:
        """That of the source in the version, else of the task of its run, else that of its first image."""
        if sha in self._originals and self._originals[sha].label:
            return self._originals[sha].label
        facts = self._facts(row)
        return facts.label if facts is not None and facts.label else self._label(row)

    def _mask(self, row: int) -> MaskOf:
        held = self._rows.get(int(self._table.entry[row]))
        if held is not None and held.mask:
            return held.mask, held.mask_classes
        facts = self._facts(row)
        return (facts.mask, facts.mask_classes) if facts is not None and facts.mask else NO_MASK

    def _source_mask(self, sha: str, row: int) -> MaskOf:
        if sha in self._originals and self._originals[sha].mask:
            return self._originals[sha].mask, self._originals[sha].mask_classes
        return self._mask(row)

    def _leave_out(self, number: int, why: str) -> None:
        if number:
            self._left_out.append(f"{number:,} {'images' if number > 1 else 'image'} left out: they {why}.")


def _mask_names(masks: Sequence[MaskOf]) -> tuple[str, ...]:
    """The classes of masks, by their numbers; the same name of two numbers once."""
    found: dict[str, int] = {}
    for text in sorted({classes for _, classes in masks}):
        for number, name in json.loads(text).items():
            found[name] = min(found.get(name, int(number)), int(number))
    return tuple(sorted(found, key=lambda name: (found[name], name)))


def without_split(subject: Subject) -> Subject:
    """The same subject with all its splits."""
    return replace(subject, split="")
