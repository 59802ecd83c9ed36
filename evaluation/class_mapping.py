"""Maps each label of a data set to the classes of a model that are right for it, by stated rules, never by guessing.

The first matching rule applies: a user's file; an id of WordNet; the meaning of the label in a well-known data set; the
name; one of the names within a class name ("goldfinch, Carduelis carduelis"); a superclass ("bird" for the 59 birds of
ImageNet); a number. With ImageNet's classes, a word with several meanings ("kite", a toy and a bird) is ambiguous and
unmapped, unless texts tagged by WordNet nearly always use one of them. A label that fits no class, or several equally
well, is reported as unmapped. Uses tables of classes, but no images and no models. `evaluation.answers` applies a map.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from core import class_tables as tables
from core.class_tables import IMAGENET, SetMeaning, plain
from core.errors import UserError
from core.evaluation_results import MappingReport, MappingRow
from core.figures import Flags, Numbers
from core.types import TaskKind
from core.words import few_names, singular
from evaluation.report import TEMPLATES

Rule = Literal[
    "file",
    "WordNet id",
    "data set",
    "name",
    "one of its names",
    "singular or plural",
    "superclass",
    "part of a class",
    "number",
]
SUGGESTIONS = 3
"""Maximum number of classes that are suggested for a label."""
LARGEST_FILE = 1_000_000
"""Maximum size of a user's file, in bytes."""
_MOST_SUGGESTED = 100
"""Maximum number of unmapped labels with suggestions in a report: searching similar words takes time."""
CLEAR = 0.9
"""Minimum frequency of a meaning to be chosen, as a share of the word's uses in WordNet's tagged texts."""
FEW_KINDS, TOO_FEW_KINDS = 0.25, 0.02
"""Minimum shares of a superclass's direct kinds in WordNet that the model must know. Below the first, a mapping is
doubtful; below the second, there is none."""
_COLUMNS = ("label", "model class")
_CAN_MEAN = "can mean"
_SEVERAL = "several classes of the model by the same name"


@dataclass(frozen=True)
class MappedLabel:
    """A label of a data set, with the classes of the model that count as right for it."""

    label: str
    classes: tuple[int, ...]
    """Ascending numbers of the model's classes that are right for the label; () for an unmapped label."""
    rule: Rule | None
    note: str = ""
    """Meaning of the label that was used, or the reason why it is unmapped."""
    doubtful: bool = False
    """True if a person should check the mapping: `note` says why."""
    picks: tuple[str, ...] = ()
    """For an unmapped label: a class name or id for each meaning. The user can write one of them into a file."""

    @property
    def is_ambiguous(self) -> bool:
        """True if the label is unmapped because it has several meanings."""
        return not self.classes and self.note.startswith((_CAN_MEAN, _SEVERAL))


@dataclass(frozen=True)
class OwnLine:
    """A line of a user's file that maps a label to a class of the model."""

    label: str
    model_class: str | int
    """Class name, WordNet id, class number or superclass; "" leaves the label unmapped."""
    place: str


@dataclass(frozen=True)
class OwnMapping:
    """A user's file that maps labels to classes of the model."""

    name: str
    lines: tuple[OwnLine, ...]


@dataclass(frozen=True)
class ClassMap:
    """The mapping from the labels of a data set to the classes of a model."""

    kind: TaskKind
    classes: tuple[str, ...]
    labels: tuple[MappedLabel, ...]
    known_as: str = ""
    """Name of a well-known list of classes, such as ImageNet's, if the model uses it; "" otherwise."""
    unused: tuple[str, ...] = ()
    """Labels in the user's file that the data set does not have."""
    among_labels: bool = False
    """True to choose the model's answer only among the classes that have a label (subset evaluation)."""

    @property
    def unmapped(self) -> tuple[MappedLabel, ...]:
        return tuple(one for one in self.labels if not one.classes)

    @property
    def left_over(self) -> tuple[int, ...]:
        """Ascending numbers of the model's classes without a label."""
        return tuple(np.flatnonzero(~self.members.any(axis=0)).tolist())

    @cached_property
    def members(self) -> Flags:
        """Matrix (labels, classes): True if the model's class is right for the label."""
        matrix = np.zeros((len(self.labels), len(self.classes)), bool)
        for row, one in enumerate(self.labels):
            matrix[row, list(one.classes)] = True
        return matrix

    @cached_property
    def label_of_class(self) -> Numbers:
        """Index of the label of each class; -1 for a class without a label. If several labels share a class, its
        label is the one with the fewest classes. Among equals, the label with the lowest index is taken.
        """
        sizes = np.where(self.members, self.members.sum(axis=1, keepdims=True), len(self.classes) + 1)
        if not len(self.labels):
            return np.full(len(self.classes), -1)
        return np.where(self.members.any(axis=0), sizes.argmin(axis=0), -1)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of mapped labels, as tuples of label numbers. Labels that share a class form one group."""
        from scipy.sparse.csgraph import connected_components

        mapped, classes = np.flatnonzero(self.members.any(axis=1)), self.members.astype(np.float32)
        count, group = connected_components(classes[mapped] @ classes[mapped].T, directed=False)
        return tuple(tuple(mapped[group == number].tolist()) for number in range(count))

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(" + ".join(self.labels[number].label for number in group) for group in self.groups)

    def suggestions(self, label: str) -> tuple[str, ...]:
        """Return classes and superclasses of the model with similar names to the label, the most similar first."""
        known = {plain(part): name for name in self.classes for part in (name, *name.split(","))}
        if self.known_as == IMAGENET:
            known = {word: word for word in tables.meanings()} | known
        near = difflib.get_close_matches(plain(label), list(known), SUGGESTIONS)
        return tuple(dict.fromkeys(known[word] for word in near))


def map_classes(
    labels: Sequence[str],
    classes: Sequence[str],
    kind: TaskKind = "classification",
    own: OwnMapping | None = None,
    beside: Sequence[str] = (),
) -> ClassMap:
    """Return the mapping from the labels of a data set to the classes of a model. `beside` are all labels of the data
    set, to recognise a well-known set. For segmentation, a label that is a part of a class is mapped to this class.
    Raises UserError, naming file and line, if the user's file `own` has a class that the model lacks.
    """
    model = _model_of(tuple(classes))
    from_file, unused = _from_file(own, labels, model)
    identifying = labels if len(labels) >= tables.FEWEST_LABELS else beside
    stated = {} if kind == "segmentation" else tables.meanings_in_sets(identifying)
    mapped_labels = [from_file.get(plain(label)) or model.find(label, stated.get(label)) for label in labels]
    mapped = [replace(one, label=label) for one, label in zip(mapped_labels, labels, strict=True)]
    if model.known_as != IMAGENET:
        mapped = [model.unless_another(one, stated.get(one.label)) for one in _with_kinds(mapped, model)]
    if kind == "segmentation":
        mapped = [one if one.classes or one.rule else model.whole_of(one) for one in mapped]
    return ClassMap(kind, tuple(classes), tuple(mapped), model.known_as, unused)


def report_of(mapping: ClassMap) -> MappingReport:
    """Return a summary of a mapping for a page and a command."""
    unmapped, mapped = mapping.unmapped, [one for one in mapping.labels if one.classes]
    rows = [
        MappingRow(
            *(one.label, tuple(mapping.classes[number] for number in one.classes), one.rule or "", one.note),
            marked=one.doubtful,
        )
        for one in mapped
    ]
    missing = [
        MappingRow(
            *(one.label, (), "", one.note),
            one.picks or (mapping.suggestions(one.label) if at < _MOST_SUGGESTED and not one.rule else ()),
        )
        for at, one in enumerate(unmapped)
    ]
    left = tuple(mapping.classes[number] for number in mapping.left_over)
    shared = [name for name, group in zip(mapping.group_names, mapping.groups, strict=True) if len(group) > 1]
    together = tuple(shared) if mapping.kind == "segmentation" else ()
    summary = TEMPLATES.paragraph(
        "mapping.txt",
        mapping=mapping,
        mapped=mapped,
        rules=Counter(one.rule for one in rows).items(),
        doubtful=[one.label for one in mapped if one.doubtful],
        ambiguous=[one.label for one in unmapped if one.is_ambiguous],
        unfit=[one.label for one in unmapped if not one.is_ambiguous],
        together=together,
        left=left,
    )
    return MappingReport(summary, tuple(rows), tuple(missing), left, together)


def read_mapping(data: bytes, name: str) -> OwnMapping:
    """Parse a user's file. CSV has the columns `label` and `model class`, and a line for each pair. TOML has a table
    `[labels]` with a class or a list of classes for each label. A class is a name, a WordNet id, a number or a
    superclass; an empty one leaves the label unmapped. Raises UserError, naming the line.
    """
    if len(data) > LARGEST_FILE:
        raise UserError(f"{name} has {len(data):,} bytes, but a file of classes may have at most {LARGEST_FILE:,}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is no text in UTF-8: give a CSV or TOML file.") from error
    lines = _toml_lines(text, name) if name.casefold().endswith(".toml") else _csv_lines(text, name)
    if not lines:
        raise UserError(f"{name} maps no label: add a line for each label.")
    return OwnMapping(name, tuple(lines))


def _csv_lines(text: str, name: str) -> list[OwnLine]:
    first = text.partition("\n")[0]
    between = next((mark for mark in ",;\t" if mark in first), ",")  # some spreadsheets separate cells by ;
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
                    f"{name}, {place}: the line has {len(row)} cells, not {len(head)}. Put names with commas in quotes."
                )
            if not row[label].strip():
                raise UserError(f"{name}, {place}: the label is empty. Fill it in, or delete the line.")
            lines.append(OwnLine(row[label].strip(), row[model_class].strip(), place))
    except csv.Error as error:
        raise UserError(f"{name}, line {rows.line_num}: it is no line of a CSV file ({error}).") from error
    return lines


def _toml_lines(text: str, name: str) -> list[OwnLine]:
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{name} is no TOML file: {error}.") from error
    labels = content.get("labels")
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
    if own is None:
        return {}, ()
    known, by_label, unused = {plain(label) for label in labels}, dict[str, set[int]](), dict[str, None]()
    for line in own.lines:
        if plain(line.label) not in known:
            unused[line.label] = None
            continue
        places = by_label.setdefault(plain(line.label), set())
        if line.model_class != "":
            try:
                places.update(model.named(line.model_class))
            except UserError as error:
                raise UserError(f"{own.name}, {line.place}: {error}") from error
    left_out = f"left out by {own.name}"
    from_file = {
        label: MappedLabel(label, tuple(sorted(places)), "file", "" if places else left_out)
        for label, places in by_label.items()
    }
    return from_file, tuple(unused)


def _with_kinds(mapped: Sequence[MappedLabel], model: _Model) -> list[MappedLabel]:
    """Add to each label the classes that are kinds of it (“poodle” for “dog”). Classes with a label are not added."""
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
    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self.known_as, self._rows = tables.recognised(classes)
        self._of_sets = tables.meanings_in_sets(classes)
        whole, of_table, parts, self._singulars, self._by_id, self._same = (dict[str, set[int]]() for _ in range(6))
        for number, (name, row) in enumerate(zip(classes, self._rows, strict=True)):
            names_of_class = {*name.split(","), *name.split(";"), *(row.names if row else ())}
            for place, names in (
                (whole, {name}),
                (of_table, {row.name, ", ".join(row.names)} if row else set()),
                (parts, names_of_class),
                (self._singulars, {singular(plain(part)) for part in names_of_class}),
                (self._same, {tables.one_name_of(part) for part in names_of_class}),
            ):
                for one in names:
                    place.setdefault(plain(one), set()).add(number)
            for one in tables.all_above(row.wordnet) if row and row.wordnet else ():
                self._by_id.setdefault(one, set()).add(number)
        self._levels: tuple[tuple[Rule, Mapping[str, set[int]]], ...] = (
            ("name", whole),
            ("name", of_table),
            ("one of its names", parts),
        )

    def find(self, label: str, stated: SetMeaning | None = None) -> MappedLabel:
        """Map a label by all rules except a user's file. `stated` is the label's meaning in the data set."""
        if tables.is_wordnet_id(label):
            return self._by_wordnet_id(label)
        if stated and self.known_as == IMAGENET:
            return self._by_data_set(label, stated)
        one = plain(singular(plain(label)))
        found = (
            self._by_meaning(label, plain(label))
            or self._by_name(label)
            or self._by_superclass(label, plain(label))
            or self._by_meaning(label, one)
            or self._only(label, self._singulars.get(one, set()), "singular or plural")
            or self._by_superclass(label, one)
        )
        if found:
            return found
        if re.fullmatch(r"\d{1,9}", label.strip()) and int(label) < len(self.classes):
            return self._mapped(label, {int(label)}, "number")
        return MappedLabel(label, (), None, "no class of the model fits")

    def named(self, model_class: str | int) -> tuple[int, ...]:
        if isinstance(model_class, int):
            found = MappedLabel("", (model_class,) if 0 <= model_class < len(self.classes) else (), None)
        else:
            found = self._by_name(model_class) or self.find(model_class)
            if not found.classes and not found.picks:
                same = self.same_as(model_class)
                found = replace(found, classes=tuple(same)) if len(same) == 1 else found
        if found.classes:
            return found.classes
        if found.note.startswith(_SEVERAL):
            raise UserError(f"“{model_class}” may mean {found.note}; give the number of the class to use.")
        if found.picks:
            raise UserError(f"“{model_class}” {found.note}; give one of these: {', '.join(found.picks)}.")
        near = ClassMap("classification", self.classes, (), self.known_as).suggestions(str(model_class))
        hint = f"; near are {', '.join(near)}" if near else f"; its {len(self.classes)} classes have numbers from 0"
        raise UserError(f"the model has no class “{str(model_class)[:80]}”{hint}.")

    def unless_another(self, found: MappedLabel, stated: SetMeaning | None) -> MappedLabel:
        """Unmap a label whose name has another meaning in the model than in the data set. Mappings from files stay."""
        meanings_of_model = [self._of_sets.get(self.classes[number]) for number in found.classes]
        theirs = {one for meaning in meanings_of_model if meaning for one in meaning.wordnet}
        if found.rule == "file" or not stated or not theirs or theirs & set(stated.wordnet):
            return found
        meaning, other = (tables.words_of_id(one) for one in (stated.wordnet[0], min(theirs)))
        return MappedLabel(found.label, (), None, f"the data set means {meaning}, the model {other}")

    def kinds_of(self, label: str) -> list[int]:
        return sorted({number for kind in tables.kinds_of(label) for number in self._same.get(kind, ())})

    def same_as(self, label: str) -> list[int]:
        return sorted(self._same.get(tables.one_name_of(label), ()))

    def whole_of(self, one: MappedLabel) -> MappedLabel:
        """Map a label to the only class of the model that includes it. Return labels without such a class unchanged."""
        name_of_label = tables.one_name_of(one.label)
        whole = [
            number
            for number, (name, row) in enumerate(zip(self.classes, self._rows, strict=True))
            if any(name_of_label in tables.kinds_of(part) for part in (*name.split(","), *(row.names if row else ())))
        ]
        if len(whole) != 1:
            return one
        return MappedLabel(one.label, tuple(whole), "part of a class", f"a part of “{self.classes[whole[0]]}”")

    def _by_wordnet_id(self, label: str) -> MappedLabel:
        """Map a WordNet id to the classes of this meaning or of narrower meanings. If none fits, try the id's names."""
        meaning, names = tables.meaning_of(label), tables.names_of_id(label)
        if label in self._by_id:
            return self._mapped(label, self._by_id[label], "WordNet id", str(meaning) if meaning else "")
        named = self._by_name(", ".join(names)) if names and self.known_as != IMAGENET else None
        if named and named.classes:
            return self._mapped(label, named.classes, "WordNet id", f"{label} ({', '.join(names)})")
        ids = f" ({', '.join(names)})" if names else ""
        return MappedLabel(label, (), None, f"the model has no class with this id of WordNet{ids}, or below it")

    def _by_name(self, label: str) -> MappedLabel | None:
        for rule, level in self._levels:
            found = level.get(plain(label), set())
            if rule == "one of its names" and not found:
                found = {number for part in label.split(",") for number in level.get(plain(part), ())}
            if found:
                return self._only(label, found, rule)
        return None

    def _only(self, label: str, found: set[int], rule: Rule) -> MappedLabel | None:
        if len(found) < 2:
            return self._mapped(label, found, rule) if found else None
        named = few_names([f"{self.classes[number]} ({number})" for number in sorted(found)])
        return MappedLabel(label, (), None, f"{_SEVERAL}: {named}")

    def _by_superclass(self, label: str, word: str) -> MappedLabel | None:
        """Map a word by the first of its WordNet meanings that covers any class. None if no meaning covers a class."""
        below = [one.wordnet for one in tables.meanings().get(word, ()) if one.wordnet in self._by_id]
        return self._below(label, below[:1], str(tables.meaning_of(below[0]))) if below else None

    def _by_meaning(self, label: str, word: str) -> MappedLabel | None:
        """Map a word by the meaning that it nearly always has in texts. None if no meaning of the word covers a class
        of an ImageNet model. The label stays unmapped if no meaning is frequent, or if the frequent one has no class.
        """
        known = tables.word_meanings().get(word, ()) if self.known_as == IMAGENET else ()
        if not any(self._with_ids(one.wordnet) for one in known):
            return None
        top = max(known, key=lambda one: one.tagged)
        clear = len(known) == 1 or 0 < CLEAR * sum(one.tagged for one in known) <= top.tagged
        if not clear or not self._with_ids(top.wordnet):
            classes_first = sorted(known, key=lambda one: not self._with_ids(one.wordnet))
            meanings = "; ".join(f"{one.gloss} ({self._named_few(one.wordnet)})" for one in classes_first)
            picks = [pick for one in known if (pick := self._pick(one.wordnet))]
            return MappedLabel(label, (), None, f"{_CAN_MEAN} {meanings}", picks=tuple(dict.fromkeys(picks)))
        found = self._below(label, top.wordnet, top.gloss)
        others = [one.gloss for one in known if one != top]
        if not others or not found.classes:
            return found
        note = f"taken as {top.gloss}, not {few_names(others)}"
        return replace(found, note=f"{note}; {found.note}" if found.doubtful else note, doubtful=True)

    def _by_data_set(self, label: str, stated: SetMeaning) -> MappedLabel:
        plainly = self.find(label)
        if plainly.classes and not plainly.doubtful and {*plainly.classes} == self._with_ids(stated.wordnet):
            return plainly
        title = stated.sets[0]
        named = "; ".join(words for one in stated.wordnet if (words := tables.words_of_id(one))) or stated.wordnet[0]
        if not self._with_ids(stated.wordnet):
            return MappedLabel(label, (), None, f"{title} means {named}, and the model has no class of it")
        found = self._below(label, stated.wordnet, named)
        if not found.classes:
            return found
        note = f"as {title} means it: {named}"
        return replace(found, rule="data set", note=f"{note}; {found.note}" if found.doubtful else note)

    def _below(self, label: str, ids: Sequence[str], named: str) -> MappedLabel:
        """Map a label to the classes with these WordNet ids or with ids below them. If the model knows few of the kinds
        that WordNet lists, the mapping is doubtful. If it knows hardly any, the label stays unmapped.
        """
        found = self._with_ids(ids)
        if any(row and row.wordnet in ids for row in self._rows):
            levels = [rule for rule, level in self._levels if found <= level.get(plain(label), set())]
            return self._mapped(label, found, levels[0] if levels else "superclass")
        known = {one for one, over in tables.above().items() if one in self._by_id and set(over) & set(ids)}
        kinds = sum(tables.kinds_below().get(one, 0) for one in ids if one in self._by_id)
        words = f"{len(known)} of its {kinds:,} kinds in WordNet"
        if len(known) < TOO_FEW_KINDS * kinds:
            whole = tuple(one for one in ids if self._with_ids((one,)) == found)
            return MappedLabel(label, (), None, f"the model knows only {words}", picks=whole[:1])
        few = len(found) == 1 or len(known) < FEW_KINDS * kinds
        return replace(
            self._mapped(label, found, "superclass", f"the model knows {words}" if few else named), doubtful=few
        )

    def _with_ids(self, ids: Iterable[str]) -> set[int]:
        return {number for one in ids for number in self._by_id.get(one, ())}

    def _named_few(self, ids: Sequence[str]) -> str:
        return few_names([self.classes[number] for number in sorted(self._with_ids(ids))]) or "no class"

    def _pick(self, ids: Sequence[str]) -> str:
        """Return a name or id that a user's file can use to select exactly the classes with `ids`; "" for none."""
        found = self._with_ids(ids)
        if not found:
            return ""
        named = self._by_name(name := self.classes[min(found)])
        if named and {*named.classes} == found:
            return name
        whole = [one for one in ids if self._with_ids((one,)) == found]
        names = [name for one in whole for name in tables.names_of_id(one) if plain(name) not in tables.word_meanings()]
        return next((name for name in names if {*self.find(name).classes} == found), whole[0] if whole else "")

    def _mapped(self, label: str, found: Iterable[int], rule: Rule, note: str = "") -> MappedLabel:
        return MappedLabel(label, tuple(sorted(found)), rule, note)


_model_of = lru_cache(maxsize=4)(_Model)
"""Function that prepares a model's list of classes. Its results are cached, as labels are mapped often."""
