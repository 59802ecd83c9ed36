"""The classes of well-known data sets, as tables beside this file that name their sources, and the words above them.

Knows ImageNet-1K with what WordNet has above its classes, Cityscapes, ADE20K's 150, Pascal VOC and SHIFT; which words
have several meanings; and what COCO, CIFAR and other data sets mean by their labels. Facts only: which class of a model
is right for which label is decided in `evaluation.class_mapping`.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
IMAGENET, CITYSCAPES, CITYSCAPES_IDS = "ImageNet-1K", "Cityscapes", "Cityscapes, all ids"
ADE20K, VOC, SHIFT = "ADE20K", "Pascal VOC", "SHIFT"
TABLES = (IMAGENET, CITYSCAPES, CITYSCAPES_IDS, ADE20K, VOC, SHIFT)
ALIKE = 0.95
"""The share of a model's classes that have to have the names of a table, in its order, to be taken for that table: some
lists spell a few names in their own way."""
FEWEST_ALIKE = 5
"""A model that knows fewer classes, all with full names of ImageNet, may still mean others by them."""
FEWEST_LABELS = 5
"""Fewer labels, all named as in a data set, do not show that they are from it: "mouse" is in COCO and in CIFAR-100."""
_WORDNET_ID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class TableClass:
    """One class of a table."""

    number: int
    """In masks of the data set; of a classifier its place among the classes."""
    name: str
    names: tuple[str, ...]
    wordnet: str = ""
    """Its id in WordNet 3.0, such as n01440764; "" where the table has none."""
    group: str = ""
    """What the data set counts it to; "" where it has no groups."""


@dataclass(frozen=True)
class ClassTable:
    """The classes of a data set, in the order in which models have them."""

    title: str
    classes: tuple[TableClass, ...]

    @property
    def names(self) -> dict[int, str]:
        """The name of each number in masks."""
        return {one.number: one.name for one in self.classes}


@dataclass(frozen=True)
class WordSense:
    """One meaning of a word, above classes of ImageNet."""

    wordnet: str
    names: tuple[str, ...]
    order: int
    """1 for the commonest meaning of the word in WordNet."""

    def __str__(self) -> str:
        return f"{self.wordnet} ({', '.join(self.names)})"


@dataclass(frozen=True)
class WordMeaning:
    """One meaning of a word that has several, as far as a picture can show them."""

    wordnet: tuple[str, ...]
    """Ids in WordNet 3.0: several for what is one thing here, such as an apple and its tree."""
    tagged: int
    """How often WordNet's tagged texts use the word in this meaning."""
    told: str
    """Another name for it, or its kind, such as "hawk"."""


@dataclass(frozen=True)
class SetMeaning:
    """What well-known data sets mean by a label."""

    sets: tuple[str, ...]
    wordnet: tuple[str, ...]


def plain(name: str) -> str:
    """A name without what differs from list to list: case, underscores, hyphens, points and apostrophes."""
    return " ".join(re.sub(r"[\s_\-/]+", " ", re.sub(r"[.'’`]", "", name.casefold())).split())


def is_wordnet_id(text: str) -> bool:
    """Whether it looks like an id of WordNet, as ImageNet's folders are called."""
    return _WORDNET_ID.fullmatch(text) is not None


@cache
def class_table(title: str) -> ClassTable:
    """The table of this title, of `TABLES`."""
    if title == CITYSCAPES:
        evaluated = [row for row in _rows("cityscapes.csv") if row["train id"]]
        classes = [TableClass(int(row["train id"]), row["name"], (row["name"],), "", row["group"]) for row in evaluated]
        return ClassTable(title, tuple(sorted(classes, key=lambda one: one.number)))
    files = {IMAGENET: "imagenet", CITYSCAPES_IDS: "cityscapes", ADE20K: "ade20k", VOC: "voc", SHIFT: "shift"}
    return ClassTable(title, tuple(_class(row) for row in _rows(f"{files[title]}.csv")))


def _class(row: Mapping[str, str]) -> TableClass:
    names = tuple(dict.fromkeys([row["name"], *row.get("names", row["name"]).split(", ")]))
    return TableClass(int(row["number"]), row["name"], names, row.get("wordnet", ""), row.get("group", ""))


def train_ids() -> dict[int, int]:
    """The number among the 19 classes of Cityscapes of each id in its masks, of those that are evaluated."""
    return {int(row["number"]): int(row["train id"]) for row in _rows("cityscapes.csv") if row["train id"]}


def recognised(classes: Sequence[str]) -> tuple[str, tuple[TableClass | None, ...]]:
    """Whose classes these are: the title of a table and the row of each class; "" and None where none fits.

    They are a table's where nearly all are named as in the table, in its order (of VOC also without the background),
    or where all have ids, or full names, of ImageNet.
    """
    for title in TABLES:
        rows = class_table(title).classes
        for fitting in (rows, rows[1:]) if title == VOC else (rows,):
            if len(fitting) == len(classes):
                alike = sum(_is_named(name, row) for name, row in zip(classes, fitting, strict=True))
                if alike >= ALIKE * len(fitting):
                    return title, fitting
    known = _imagenet_names()
    full = len(classes) >= FEWEST_ALIKE and all(plain(name) in known for name in classes)
    if full or (classes and all(map(is_wordnet_id, classes))):
        return IMAGENET, tuple(known.get(plain(name)) for name in classes)
    return "", (None,) * len(classes)


def _is_named(name: str, row: TableClass) -> bool:
    own = {plain(one) for one in row.names}
    return plain(name) in own or name == row.wordnet or {plain(part) for part in name.split(",")} <= own


@cache
def _imagenet_names() -> dict[str, TableClass | None]:
    """ImageNet's classes by id and by full name, as timm and torchvision have it; None for a name of two."""
    found: dict[str, TableClass | None] = {}
    for row in class_table(IMAGENET).classes:
        own = [one for one in row.names if one != row.name]
        full = {plain(one) for one in (row.wordnet, row.name, ", ".join(row.names), ", ".join(own))} - {""}
        for name in full:
            found[name] = None if name in found else row
    return found


@cache
def above() -> dict[str, tuple[str, ...]]:
    """What WordNet has directly above each class of ImageNet, and above that, by ids."""
    rows = (*_rows("imagenet.csv"), *_rows("wordnet.csv"))
    return {row["wordnet"]: tuple(row["above"].split()) for row in rows}


@cache
def all_above(wordnet: str) -> frozenset[str]:
    """All that WordNet has above an id, at any distance, and the id itself."""
    return frozenset((wordnet,)).union(*(all_above(one) for one in above().get(wordnet, ())))


@cache
def meanings() -> dict[str, tuple[WordSense, ...]]:
    """The words above ImageNet's classes, plain, and their meanings there, the commonest first."""
    found: dict[str, list[WordSense]] = {}
    for row in _rows("wordnet.csv"):
        pairs = [part.rsplit(":", 1) for part in row["names"].split(", ")]
        names = tuple(name for name, _ in pairs)
        for name, order in pairs:
            found.setdefault(plain(name), []).append(WordSense(row["wordnet"], names, int(order)))
    return {word: tuple(sorted(own, key=lambda one: one.order)) for word, own in found.items()}


@cache
def word_meanings() -> dict[str, tuple[WordMeaning, ...]]:
    """The words, plain, for ImageNet's classes and above that have several meanings which a picture can show."""
    found: dict[str, list[WordMeaning]] = {}
    for row in _rows("senses.csv"):
        meaning = WordMeaning(tuple(row["wordnet"].split()), int(row["tagged"]), row["told"])
        found.setdefault(plain(row["word"]), []).append(meaning)
    return {word: tuple(own) for word, own in found.items()}


@cache
def _told() -> dict[str, str]:
    return {one: f"{word}: {own.told}" for word, all_ in word_meanings().items() for own in all_ for one in own.wordnet}


def words_of_id(wordnet: str) -> str:
    """The names of an id, or another word for it; "" where the tables do not have it."""
    return ", ".join(names_of_id(wordnet)) or _told().get(wordnet, "")


@cache
def _vocabularies() -> dict[str, dict[str, frozenset[str]]]:
    """By data set, its labels without spaces, and the ids of what each means; none where that is not stated."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for row in _rows("vocabularies.csv"):
        found.setdefault(row["set"], {})[_joined(row["label"])] = frozenset(row["wordnet"].split())
    namings: tuple[Callable[[Mapping[str, str]], str], ...] = (  # as torchvision and timm, in short and in full, do
        lambda row: row["name"],
        lambda row: row["names"].split(", ")[0],
        lambda row: row["names"],
    )
    for number, naming in enumerate(namings):
        own: dict[str, frozenset[str]] = {}
        for row in _rows("imagenet.csv"):
            key = _joined(naming(row))
            own[key] = _OF_TWO_CLASSES if key in own else frozenset((row["wordnet"],))
        found[f"{IMAGENET}#{number}"] = own
    return found


_OF_TWO_CLASSES = frozenset(("",))
"""The meaning of a name that two classes of a set have: it agrees with no other set's."""


def _joined(label: str) -> str:
    """A label, plain and without spaces: VOC has "diningtable" for COCO's "dining table"."""
    return plain(label).replace(" ", "")


def meanings_in_sets(labels: Sequence[str]) -> dict[str, SetMeaning]:
    """By label, what the data sets that have all of them mean by it, as far as they state it and agree.

    Nothing for fewer labels than show which data set it is.
    """
    keys = {label: _joined(label) for label in labels}
    if len(set(keys.values())) < FEWEST_LABELS:
        return {}
    fitting = {title: own for title, own in _vocabularies().items() if own.keys() >= set(keys.values())}
    found = {}
    for label, key in keys.items():
        stated = {title: own[key] for title, own in fitting.items() if own[key]}
        common = frozenset.intersection(*stated.values()) if stated else frozenset()
        if common and common != _OF_TWO_CLASSES:
            sets = dict.fromkeys(title.partition("#")[0] for title in stated)
            found[label] = SetMeaning(tuple(sets), tuple(sorted(common)))
    return found


@cache
def kinds_below() -> dict[str, int]:
    """How many kinds WordNet has directly below each id that is above ImageNet's classes, in ImageNet or not."""
    return {row["wordnet"]: int(row["kinds"]) for row in _rows("wordnet.csv")}


@cache
def meaning_of(wordnet: str) -> WordSense | None:
    """What an id stands for that is above ImageNet's classes; None for others."""
    return next((one for own in meanings().values() for one in own if one.wordnet == wordnet), None)


@cache
def names_of_id(wordnet: str) -> tuple[str, ...]:
    """The names of a class of ImageNet, or of what is above it, by its id; () for others."""
    meaning = meaning_of(wordnet)
    row = next((one for one in class_table(IMAGENET).classes if one.wordnet == wordnet), None)
    return meaning.names if meaning else row.names if row else ()


@cache
def _scenes() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """One name for each name of the same thing; and the kinds of a class, by that one name."""
    held = tomllib.loads((FOLDER / "scenes.toml").read_text(encoding="utf-8"))
    one_name = {plain(name): plain(names[0]) for names in held["same"] for name in names}

    def same(name: str) -> str:
        return one_name.get(plain(name), plain(name))

    kinds = {same(name): frozenset(map(same, own)) for name, own in held["kinds"].items()}
    return one_name, kinds


def one_name_of(name: str) -> str:
    """A name, plain, that is the same for all names that data sets of scenes have for one thing."""
    return _scenes()[0].get(plain(name), plain(name))


def kinds_of(name: str) -> frozenset[str]:
    """The classes of scenes that are kinds of this one, each by its `one_name_of`; none for most."""
    return _scenes()[1].get(one_name_of(name), frozenset())


def _rows(file: str) -> Iterator[dict[str, str]]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(line for line in lines if not line.startswith("#"))
