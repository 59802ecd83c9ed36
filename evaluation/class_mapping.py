"""Which classes of a model under test are right for which label of a data set. Mapped by stated rules, never guessed.

Rules, the first that fits: a file of one's own, which has the last word; an id of WordNet; the name; one of the names
within a class name ("goldfinch, Carduelis carduelis"); a superclass ("bird" for the 59 birds of ImageNet); a number. A
label that fits no class, or several by the same right, is told as unmapped. Knows tables of classes, no images and no
models: `evaluation.answers` applies a map.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.class_tables import (
    IMAGENET,
    all_above,
    is_wordnet_id,
    kinds_of,
    meaning_of,
    meanings,
    names_of_id,
    one_name_of,
    plain,
    recognised,
)
from core.errors import UserError
from core.evaluation_results import MappingReport, MappingRow
from core.types import TaskKind
from core.words import few_names, singular

Rule = Literal[
    "file", "WordNet id", "name", "one of its names", "singular or plural", "superclass", "part of a class", "number"
]
SUGGESTIONS = 3
LARGEST_FILE = 1_000_000
"""Bytes of a file of one's own."""
_MOST_SUGGESTED = 100
"""Unmapped labels of a report that get suggestions: looking for near words takes time."""
_COLUMNS = ("label", "model class")
_SEVERAL = "several classes of the model by the same name"


@dataclass(frozen=True)
class MappedLabel:
    """One label of a data set, and the classes of the model that are right for it."""

    label: str
    classes: tuple[int, ...]
    """Their numbers among the model's classes, ascending; () for a label that is unmapped."""
    rule: Rule | None
    """None for a label that no rule maps."""
    note: str = ""
    """In which meaning it is mapped, or why it is not."""
    doubtful: bool = False
    """Whether its word has several meanings, of which WordNet's commonest was taken."""


@dataclass(frozen=True)
class OwnLine:
    """One line of a file of one's own."""

    label: str
    model_class: str | int
    """A name, an id of WordNet, a number, or a superclass; "" leaves the label out."""
    place: str
    """Where it stands, for messages."""


@dataclass(frozen=True)
class OwnMapping:
    """A file of one's own: which labels are which classes of the model."""

    name: str
    lines: tuple[OwnLine, ...]


@dataclass(frozen=True)
class ClassMap:
    """The labels of a data set on the classes of a model."""

    kind: TaskKind
    classes: tuple[str, ...]
    """Of the model, in its order."""
    labels: tuple[MappedLabel, ...]
    """In the order of the data set."""
    known_as: str = ""
    """The table that the model's classes are from; "" where none is known."""
    unused: tuple[str, ...] = ()
    """Labels of the file of one's own that the data set does not have."""

    @property
    def unmapped(self) -> tuple[MappedLabel, ...]:
        """The labels that cannot be compared with what the model says."""
        return tuple(one for one in self.labels if not one.classes)

    @property
    def left_over(self) -> tuple[int, ...]:
        """The classes of the model that no label has, ascending."""
        taken = {number for one in self.labels for number in one.classes}
        return tuple(number for number in range(len(self.classes)) if number not in taken)

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        """(labels, classes): whether a class of the model is right for a label."""
        held = np.zeros((len(self.labels), len(self.classes)), bool)
        for row, one in enumerate(self.labels):
            held[row, list(one.classes)] = True
        return held

    @cached_property
    def label_of_class(self) -> NDArray[np.int64]:
        """The label of each class, by number: the one with the fewest classes, the first of these; -1 for none."""
        sizes = np.where(self.members, self.members.sum(axis=1, keepdims=True), len(self.classes) + 1)
        if not len(self.labels):
            return np.full(len(self.classes), -1)
        return np.where(self.members.any(axis=0), sizes.argmin(axis=0), -1)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of labels, by number: those that share a class, since a pixel has one class. None are unmapped."""
        groups: list[tuple[set[int], set[int]]] = []
        for number, one in enumerate(self.labels):
            if one.classes:
                labels, classes = {number}, set(one.classes)
                for held in [group for group in groups if group[1] & classes]:
                    groups.remove(held)
                    labels, classes = labels | held[0], classes | held[1]
                groups.append((labels, classes))
        return tuple(sorted(tuple(sorted(labels)) for labels, _ in groups))

    @property
    def group_names(self) -> tuple[str, ...]:
        """What a table calls each of `groups`."""
        return tuple(" + ".join(self.labels[number].label for number in group) for group in self.groups)

    def suggestions(self, label: str) -> tuple[str, ...]:
        """Classes, and superclasses, of the model whose names are near a label's; the nearest first."""
        known = {plain(part): name for name in self.classes for part in (name, *name.split(","))}
        if self.known_as == IMAGENET:
            known = {word: word for word in meanings()} | known
        near = difflib.get_close_matches(plain(label), list(known), SUGGESTIONS)
        return tuple(dict.fromkeys(known[word] for word in near))


def map_classes(
    labels: Sequence[str], classes: Sequence[str], kind: TaskKind = "classification", own: OwnMapping | None = None
) -> ClassMap:
    """The labels of a data set on the classes of a model, both as they are written there.

    For segmentation also a label that is only part of a class of the model is mapped to it, and measured together with
    the other parts. Raises UserError, naming file and line, for a class of the file that the model does not have.
    """
    model = _model_of(tuple(classes))
    said, unused = _from_file(own, labels, model)
    found = [said.get(plain(label)) or model.find(label) for label in labels]
    mapped = [replace(one, label=label) for one, label in zip(found, labels, strict=True)]
    if model.known_as != IMAGENET:
        mapped = _with_kinds(mapped, model)
    if kind == "segmentation":
        mapped = [one if one.classes or one.rule else model.whole_of(one) for one in mapped]
    return ClassMap(kind, tuple(classes), tuple(mapped), model.known_as, unused)


def report_of(mapping: ClassMap) -> MappingReport:
    """What a page and a command show of a map."""
    unmapped, mapped = mapping.unmapped, [one for one in mapping.labels if one.classes]
    rows = [
        MappingRow(one.label, tuple(mapping.classes[number] for number in one.classes), one.rule or "", one.note)
        for one in mapped
    ]
    missing = [
        MappingRow(
            *(one.label, (), "", one.note),
            mapping.suggestions(one.label) if at < _MOST_SUGGESTED and not one.rule else (),
        )
        for at, one in enumerate(unmapped)
    ]
    left = tuple(mapping.classes[number] for number in mapping.left_over)
    shared = [name for name, group in zip(mapping.group_names, mapping.groups, strict=True) if len(group) > 1]
    together = tuple(shared) if mapping.kind == "segmentation" else ()
    rules: dict[str, int] = {}
    for one in rows:
        rules[one.rule] = rules.get(one.rule, 0) + 1
    by_rule = ", ".join(f"{number} by {_RULE_WORDS.get(rule, rule)}" for rule, number in rules.items())
    words = [f"{len(rows)} of {len(mapping.labels)} labels are mapped{': ' if by_rule else ''}{by_rule}."]
    doubtful = [one.label for one in mapped if one.doubtful]
    if doubtful:
        words.append(f"Words with several meanings, of which the commonest was taken: {few_names(doubtful)}.")
    if missing:
        words.append(f"Not mapped, and so not compared: {few_names([one.label for one in missing])}.")
    if together:
        words.append(f"The model cannot tell apart, so that they are measured as one: {few_names(together)}.")
    if left:
        words.append(f"No label has {len(left)} of the model's {len(mapping.classes)} classes: {few_names(left)}.")
    if mapping.unused:
        words.append(f"The file names labels that the data set does not have: {few_names(mapping.unused)}.")
    return MappingReport(" ".join(words), tuple(rows), tuple(missing), left, together)


_RULE_WORDS = {"file": "the file", "singular or plural": "the name in singular or plural"}


def read_mapping(data: bytes, name: str) -> OwnMapping:
    """A file of one's own: CSV with the columns `label` and `model class`, a line for each pair; or TOML, where
    `[labels]` has a class or a list of classes for each label. A class is a name, an id of WordNet, a number or a
    superclass; an empty one leaves the label out. Raises UserError, naming the line.
    """
    if len(data) > LARGEST_FILE:
        raise UserError(f"{name} has {len(data):,} bytes: a mapping of classes has at most {LARGEST_FILE:,}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is no text in UTF-8: give a CSV or TOML file.") from error
    lines = _toml_lines(text, name) if name.casefold().endswith(".toml") else _csv_lines(text, name)
    if not lines:
        raise UserError(f"{name} maps no label.")
    return OwnMapping(name, tuple(lines))


def _csv_lines(text: str, name: str) -> list[OwnLine]:
    first = text.partition("\n")[0]
    between = next((mark for mark in ",;\t" if mark in first), ",")  # as spreadsheets of other countries write it
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=between)
    try:
        head = [plain(column) for column in next(rows, [])]
        if any(column not in head for column in _COLUMNS):
            raise UserError(f"{name}, line 1: it has to name the columns “label” and “model class”.")
        label, model_class = (head.index(column) for column in _COLUMNS)
        lines = []
        for row in rows:
            place = f"line {rows.line_num}"
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(head):
                raise UserError(
                    f"{name}, {place}: it has {len(row)} cells, not {len(head)}; a name with a comma stands in quotes."
                )
            if not row[label].strip():
                raise UserError(f"{name}, {place}: it has no label.")
            lines.append(OwnLine(row[label].strip(), row[model_class].strip(), place))
    except csv.Error as error:
        raise UserError(f"{name}, line {rows.line_num}: it is no line of a CSV file ({error}).") from error
    return lines


def _toml_lines(text: str, name: str) -> list[OwnLine]:
    try:
        held = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{name} is no TOML file: {error}.") from error
    labels = held.get("labels")
    if not isinstance(labels, dict):
        raise UserError(f"{name} has no table [labels], in which each label has its class or classes.")
    lines = []
    for label, value in labels.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool) or not isinstance(one, str | int):
                raise UserError(f"{name}, label “{label}”: a class is a name in quotes or a number, not {one!r}.")
            lines.append(OwnLine(label, one.strip() if isinstance(one, str) else one, f"label “{label}”"))
        if value == []:
            lines.append(OwnLine(label, "", f"label “{label}”"))
    return lines


def _from_file(
    own: OwnMapping | None, labels: Sequence[str], model: _Model
) -> tuple[dict[str, MappedLabel], tuple[str, ...]]:
    """What the file says of the labels, plain; and its labels that the data set does not have."""
    if own is None:
        return {}, ()
    known, said, unused = {plain(label) for label in labels}, dict[str, set[int]](), dict[str, None]()
    for line in own.lines:
        if plain(line.label) not in known:
            unused[line.label] = None
            continue
        places = said.setdefault(plain(line.label), set())
        if line.model_class != "":
            try:
                places.update(model.named(line.model_class))
            except UserError as error:
                raise UserError(f"{own.name}, {line.place}: {error}") from error
    left_out = f"left out by {own.name}"
    found = {
        label: MappedLabel(label, tuple(sorted(places)), "file", "" if places else left_out)
        for label, places in said.items()
    }
    return found, tuple(unused)


def _with_kinds(mapped: Sequence[MappedLabel], model: _Model) -> list[MappedLabel]:
    """With the classes of the model that are kinds of a label, as far as no other label has them by its own name."""
    taken = {number for one in mapped for number in one.classes}
    found = []
    for one in mapped:
        kinds = [number for number in model.kinds_of(one.label) if number not in taken]
        same = [number for number in model.same_as(one.label) if number not in taken]
        if one.rule not in ("file", "number", "WordNet id") and (kinds or (same and not one.classes)):
            if one.classes or kinds:
                with_kinds = tuple(sorted({*one.classes, *same, *kinds}))
                named = few_names([model.classes[number] for number in kinds])
                one = MappedLabel(one.label, with_kinds, "superclass", f"its kinds: {named}")
            elif len(same) == 1:
                one = MappedLabel(one.label, tuple(same), "one of its names", "as other data sets call it")
        found.append(one)
    return found


class _Model:
    """The classes of a model, to be found by their names."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self.known_as, self._rows = recognised(classes)
        whole, of_table, parts, singulars = (dict[str, set[int]]() for _ in range(4))
        self._by_id, self._same = dict[str, set[int]](), dict[str, set[int]]()
        for number, (name, row) in enumerate(zip(classes, self._rows, strict=True)):
            own = {*name.split(","), *name.split(";"), *(row.names if row else ())}
            for place, names in (
                (whole, {name}),
                (of_table, {row.name, ", ".join(row.names)} if row else set()),
                (parts, own),
                (singulars, {singular(plain(part)) for part in own}),
                (self._same, {one_name_of(part) for part in own}),
            ):
                for one in names:
                    place.setdefault(plain(one), set()).add(number)
            for one in all_above(row.wordnet) if row and row.wordnet else ():
                self._by_id.setdefault(one, set()).add(number)
        self._levels: tuple[tuple[Rule, Mapping[str, set[int]]], ...] = (
            ("name", whole),
            ("name", of_table),
            ("one of its names", parts),
        )
        self._singulars = singulars

    def find(self, label: str) -> MappedLabel:
        """The classes of a label by the rules other than a file's and those of scenes."""
        if is_wordnet_id(label):
            return self._by_wordnet_id(label)
        one = plain(singular(plain(label)))
        found = (
            self._by_name(label)
            or self._by_superclass(label, plain(label))
            or self._by_singular(label, one)
            or self._by_superclass(label, one)
        )
        if found:
            return found
        if re.fullmatch(r"\d{1,9}", label.strip()) and int(label) < len(self.classes):
            return self._mapped(label, {int(label)}, "number")
        return MappedLabel(label, (), None, "no class of the model fits")

    def named(self, model_class: str | int) -> tuple[int, ...]:
        """The classes that a person names. Raises UserError, without saying where."""
        if isinstance(model_class, int):
            found = MappedLabel("", (model_class,) if 0 <= model_class < len(self.classes) else (), None)
        else:
            found = self.find(model_class)
            if not found.classes:
                same = self.same_as(model_class)
                found = replace(found, classes=tuple(same)) if len(same) == 1 else found
        if found.classes:
            return found.classes
        if found.note.startswith(_SEVERAL):
            raise UserError(f"“{model_class}” fits {found.note}; give the number of one.")
        near = ClassMap("classification", self.classes, (), self.known_as).suggestions(str(model_class))
        hint = f"; near are {', '.join(near)}" if near else f", which has {len(self.classes)} classes from 0 on"
        raise UserError(f"the model has no class “{str(model_class)[:80]}”{hint}.")

    def kinds_of(self, label: str) -> list[int]:
        """The classes that are kinds of a label in scenes."""
        return sorted({number for kind in kinds_of(label) for number in self._same.get(kind, ())})

    def same_as(self, label: str) -> list[int]:
        """The classes that are the same thing as a label in scenes."""
        return sorted(self._same.get(one_name_of(label), ()))

    def whole_of(self, one: MappedLabel) -> MappedLabel:
        """A label that is a kind of one class of the model, mapped to that class; any other as it is."""
        wanted = one_name_of(one.label)
        whole = [number for number, name in enumerate(self.classes) if wanted in self._kinds_of_class(number, name)]
        if len(whole) != 1:
            return one
        return MappedLabel(one.label, tuple(whole), "part of a class", f"a part of “{self.classes[whole[0]]}”")

    def _kinds_of_class(self, number: int, name: str) -> set[str]:
        row = self._rows[number]
        return {kind for part in {*name.split(","), *(row.names if row else ())} for kind in kinds_of(part)}

    def _by_wordnet_id(self, label: str) -> MappedLabel:
        """The classes with an id or below it; of a model without ids, the one class that has a name of it."""
        meaning, names = meaning_of(label), names_of_id(label)
        if label in self._by_id:
            return self._mapped(label, self._by_id[label], "WordNet id", str(meaning) if meaning else "")
        named = self._by_name(", ".join(names)) if names and self.known_as != IMAGENET else None
        if named and named.classes:
            return self._mapped(label, named.classes, "WordNet id", f"{label} ({', '.join(names)})")
        said = f" ({', '.join(names)})" if names else ""
        return MappedLabel(label, (), None, f"the model has no class with this id of WordNet{said}, or below it")

    def _by_name(self, label: str) -> MappedLabel | None:
        for rule, level in self._levels:
            found = level.get(plain(label), set())
            if rule == "one of its names" and not found:
                found = {number for part in label.split(",") for number in level.get(plain(part), ())}
            if found:
                return self._mapped(label, found, rule) if len(found) == 1 else self._several(label, found)
        return None

    def _by_singular(self, label: str, one: str) -> MappedLabel | None:
        found = self._singulars.get(one, set())
        if len(found) > 1:
            return self._several(label, found)
        return self._mapped(label, found, "singular or plural") if found else None

    def _by_superclass(self, label: str, word: str) -> MappedLabel | None:
        """All classes below the commonest meaning of a word that WordNet has above some of them."""
        below = [one for one in meanings().get(word, ()) if one.wordnet in self._by_id]
        if not below:
            return None
        note = str(below[0])
        if len(below) > 1:
            note += f", not in the meaning {' or '.join(str(one) for one in below[1:])}"
        found = self._mapped(label, self._by_id[below[0].wordnet], "superclass", note)
        return replace(found, doubtful=len(below) > 1)

    def _several(self, label: str, found: Iterable[int]) -> MappedLabel:
        named = few_names([f"{self.classes[number]} ({number})" for number in sorted(found)])
        return MappedLabel(label, (), None, f"{_SEVERAL}: {named}")

    def _mapped(self, label: str, found: Iterable[int], rule: Rule, note: str = "") -> MappedLabel:
        return MappedLabel(label, tuple(sorted(found)), rule, note)


_model_of = lru_cache(maxsize=4)(_Model)
"""The same one for the same classes: every filter maps its labels on them again."""
