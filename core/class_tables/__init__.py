"""Classes of well-known data sets, read from tables beside this file. Each table names its source.

There are tables of ImageNet-1K (with its classes' hypernyms in WordNet), Cityscapes, ADE20K (150 classes), Pascal VOC
and SHIFT; of words with several meanings; and of the meanings of labels in COCO, CIFAR and other data sets. This module
holds facts only. `evaluation.class_mapping` decides which class of a model is right for which label.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
IMAGENET, CITYSCAPES, CITYSCAPES_IDS = "ImageNet-1K", "Cityscapes", "Cityscapes, all ids"
ADE20K, VOC, SHIFT = "ADE20K", "Pascal VOC", "SHIFT"
TABLES = (IMAGENET, CITYSCAPES, CITYSCAPES_IDS, ADE20K, VOC, SHIFT)
ALIKE = 0.95
"""Minimum share of a model's class names that must equal a table's names, in the same order, to recognise the table.
Some lists spell a few names differently."""
FEWEST_ALIKE = 5
"""Minimum number of a model's classes whose full names show that they come from ImageNet. Fewer names prove little."""
FEWEST_LABELS = 5
"""Minimum number of labels to recognise a data set. Fewer do not identify one: "mouse" is in COCO and CIFAR-100."""
_WORDNET_ID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class TableClass:
    """One class of a data set's table."""

    number: int
    """Number of the class in masks of the data set, or its index among a classifier's classes."""
    name: str
    names: tuple[str, ...]
    wordnet: str = ""
    """WordNet 3.0 id, such as n01440764, or "" if the table has none."""
    group: str = ""


@dataclass(frozen=True)
class ClassTable:
    """The classes of a data set, in the order of a model's outputs."""

    title: str
    classes: tuple[TableClass, ...]

    @property
    def names(self) -> dict[int, str]:
        """Class name by number in masks."""
        return {one.number: one.name for one in self.classes}


@dataclass(frozen=True)
class WordSense:
    """One meaning of a word in WordNet. Only words that name hypernyms of ImageNet's classes are known."""

    wordnet: str
    names: tuple[str, ...]
    order: int
    """Rank of this meaning in WordNet, 1 for the commonest."""

    def __str__(self) -> str:
        return f"{self.wordnet} ({', '.join(self.names)})"


@dataclass(frozen=True)
class WordMeaning:
    """One meaning of an ambiguous word. Meanings that look the same in pictures count as one."""

    wordnet: tuple[str, ...]
    """WordNet 3.0 ids of this meaning. One meaning may cover several ids, such as an apple and the apple tree."""
    tagged: int
    """Number of times that WordNet's tagged texts use the word in this meaning."""
    gloss: str
    """Synonym or hypernym that tells this meaning from the word's other meanings, such as "hawk"."""


@dataclass(frozen=True)
class SetMeaning:
    """Meaning of a label in well-known data sets."""

    sets: tuple[str, ...]
    wordnet: tuple[str, ...]


def plain(name: str) -> str:
    """Normalise a class name. Lists of classes differ in case, underscores, hyphens, points and apostrophes."""
    return " ".join(re.sub(r"[\s_\-/]+", " ", re.sub(r"[.'’`]", "", name.casefold())).split())


def is_wordnet_id(text: str) -> bool:
    """Return True if the text looks like a WordNet id, such as n01440764. ImageNet's folders have such names."""
    return _WORDNET_ID.fullmatch(text) is not None


@cache
def class_table(title: str) -> ClassTable:
    """Return the table with this title, one of `TABLES`."""
    files = dict(zip(TABLES, ("imagenet", "cityscapes", "cityscapes", "ade20k", "voc", "shift"), strict=True))
    number, classes = "train id" if title == CITYSCAPES else "number", list[TableClass]()
    for row in _rows(f"{files[title]}.csv"):
        if row[number]:  # the other ids of Cityscapes are not evaluated
            names = tuple(dict.fromkeys([row["name"], *row.get("names", row["name"]).split(", ")]))
            classes.append(
                TableClass(int(row[number]), row["name"], names, row.get("wordnet", ""), row.get("group", ""))
            )
    return ClassTable(title, tuple(classes))


def train_ids() -> dict[int, int]:
    """Map the mask id of each evaluated Cityscapes class to the class's number, 0 to 18. Other ids are absent."""
    return {int(row["number"]): int(row["train id"]) for row in _rows("cityscapes.csv") if row["train id"]}


def recognised(classes: Sequence[str]) -> tuple[str, tuple[TableClass | None, ...]]:
    """Recognise the data set of a model's classes. Return its title and the row of each class; "" and None if unknown.
    Nearly all classes must have the names of the data set's table, in the order of the table. VOC may lack its
    background. ImageNet's classes may have any order if all of them are WordNet ids or full names of ImageNet.
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
    row_names = {plain(one) for one in row.names}
    return plain(name) in row_names or name == row.wordnet or {plain(part) for part in name.split(",")} <= row_names


@cache
def _imagenet_names() -> dict[str, TableClass | None]:
    """ImageNet's classes by WordNet id and by full name, as in timm and torchvision; None for a name of two classes."""
    row_by_name: dict[str, TableClass | None] = {}
    for row in class_table(IMAGENET).classes:
        synonyms = [one for one in row.names if one != row.name]
        full = {plain(one) for one in (row.wordnet, row.name, ", ".join(row.names), ", ".join(synonyms))} - {""}
        for name in full:
            row_by_name[name] = None if name in row_by_name else row
    return row_by_name


@cache
def imagenet_labels() -> dict[str, str]:
    """Map WordNet ids of ImageNet's classes to labels: all names, plus the id if another class has the same names."""
    rows = list(_rows("imagenet.csv"))
    shared = Counter(row["names"] for row in rows)
    return {
        one["wordnet"]: one["names"] if shared[one["names"]] == 1 else f"{one['names']}, {one['wordnet']}"
        for one in rows
    }


@cache
def above() -> dict[str, tuple[str, ...]]:
    """Map the WordNet id of each ImageNet class, and of each of its hypernyms, to its direct hypernyms."""
    rows = (*_rows("imagenet.csv"), *_rows("wordnet.csv"))
    return {row["wordnet"]: tuple(row["above"].split()) for row in rows}


@cache
def all_above(wordnet: str) -> frozenset[str]:
    """Return all hypernyms of a WordNet id, at any distance, and the id itself."""
    return frozenset((wordnet,)).union(*(all_above(one) for one in above().get(wordnet, ())))


@cache
def meanings() -> dict[str, tuple[WordSense, ...]]:
    """Map each word for a hypernym of ImageNet's classes (normalised by `plain`) to its meanings, commonest first."""
    senses: dict[str, list[WordSense]] = {}
    for row in _rows("wordnet.csv"):
        pairs = [part.rsplit(":", 1) for part in row["names"].split(", ")]
        names = tuple(name for name, _ in pairs)
        for name, order in pairs:
            senses.setdefault(plain(name), []).append(WordSense(row["wordnet"], names, int(order)))
    return {word: tuple(sorted(word_senses, key=lambda one: one.order)) for word, word_senses in senses.items()}


@cache
def word_meanings() -> dict[str, tuple[WordMeaning, ...]]:
    """Map each ambiguous word for ImageNet's classes and hypernyms (normalised by `plain`) to its meanings."""
    meanings_by_word: dict[str, list[WordMeaning]] = {}
    for row in _rows("senses.csv"):
        meaning = WordMeaning(tuple(row["wordnet"].split()), int(row["tagged"]), row["told"])
        meanings_by_word.setdefault(plain(row["word"]), []).append(meaning)
    return {word: tuple(own) for word, own in meanings_by_word.items()}


@cache
def _meaning_titles() -> dict[str, str]:
    meanings = [(word, own) for word, all_ in word_meanings().items() for own in all_]
    return {one: f"{word}: {own.gloss}" for word, own in meanings for one in own.wordnet}


def words_of_id(wordnet: str) -> str:
    """Return the names of a WordNet id. An id without names gives text like "torpedo: firework", an unknown id ""."""
    return ", ".join(names_of_id(wordnet)) or _meaning_titles().get(wordnet, "")


@cache
def _vocabularies() -> dict[str, dict[str, frozenset[str]]]:
    """Return the WordNet ids by data set and by normalised label (`_joined`); none if the set does not give ids."""
    ids_by_label: dict[str, dict[str, frozenset[str]]] = {}
    for row in _rows("vocabularies.csv"):
        ids_by_label.setdefault(row["set"], {})[_joined(row["label"])] = frozenset(row["wordnet"].split())
    namings: tuple[Callable[[Mapping[str, str]], str], ...] = (  # short and full names, as in torchvision and timm
        lambda row: row["name"],
        lambda row: row["names"].split(", ")[0],
        lambda row: row["names"],
        lambda row: imagenet_labels()[row["wordnet"]],  # the names that the studio gives to classes of data sets
    )
    for number, naming in enumerate(namings):
        label_ids: dict[str, frozenset[str]] = {}
        for row in _rows("imagenet.csv"):
            key = _joined(naming(row))
            label_ids[key] = _OF_TWO_CLASSES if key in label_ids else frozenset((row["wordnet"],))
        ids_by_label[f"{IMAGENET}#{number}"] = label_ids
    return ids_by_label


_OF_TWO_CLASSES = frozenset(("",))
"""Meaning of a name that two classes of one data set share. It equals no real meaning, so the name is not mapped."""


def _joined(label: str) -> str:
    """Normalise a label and remove spaces: VOC's "diningtable" is COCO's "dining table"."""
    return plain(label).replace(" ", "")


def meanings_in_sets(labels: Sequence[str]) -> dict[str, SetMeaning]:
    """Map each label to its meaning in the data sets that contain all `labels`. A label is absent if none of these data
    sets states its meaning, or if they disagree. Empty for fewer than `FEWEST_LABELS` labels, which do not identify a
    data set.
    """
    keys = {label: _joined(label) for label in labels}
    if len(set(keys.values())) < FEWEST_LABELS:
        return {}
    fitting = {title: own for title, own in _vocabularies().items() if own.keys() >= set(keys.values())}
    common_meanings = {}
    for label, key in keys.items():
        stated = {title: own[key] for title, own in fitting.items() if own[key]}
        common = frozenset.intersection(*stated.values()) if stated else frozenset()
        if common and common != _OF_TWO_CLASSES:
            sets = dict.fromkeys(title.partition("#")[0] for title in stated)
            common_meanings[label] = SetMeaning(tuple(sets), tuple(sorted(common)))
    return common_meanings


def superclass_of(label: str) -> str:
    """Return the first name in `superclasses.txt` that is a hypernym of an ImageNet class, else the label itself."""
    row = _imagenet_names().get(plain(label))
    ids = all_above(row.wordnet) if row is not None else frozenset()
    names = (FOLDER / "superclasses.txt").read_text(encoding="utf-8").split() if ids else ()
    return next((name for name in names if (own := meanings().get(name)) and own[0].wordnet in ids), label)


@cache
def kinds_below() -> dict[str, int]:
    """Map the WordNet id of each hypernym of ImageNet's classes to its number of direct hyponyms in WordNet."""
    return {row["wordnet"]: int(row["kinds"]) for row in _rows("wordnet.csv")}


@cache
def meaning_of(wordnet: str) -> WordSense | None:
    """Return the meaning of a WordNet id that is a hypernym of ImageNet's classes; None for other ids."""
    return next((one for senses in meanings().values() for one in senses if one.wordnet == wordnet), None)


@cache
def names_of_id(wordnet: str) -> tuple[str, ...]:
    """Return the names of a WordNet id if it is a class of ImageNet or a hypernym of one; () for other ids."""
    meaning = meaning_of(wordnet)
    row = next((one for one in class_table(IMAGENET).classes if one.wordnet == wordnet), None)
    return meaning.names if meaning else row.names if row else ()


@cache
def _scenes() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Return two maps for classes of scenes: each name to its canonical name, and each class to narrower classes."""
    scenes = tomllib.loads((FOLDER / "scenes.toml").read_text(encoding="utf-8"))
    one_name = {plain(name): plain(names[0]) for names in scenes["same"] for name in names}

    def same(name: str) -> str:
        return one_name.get(plain(name), plain(name))

    kinds = {same(name): frozenset(map(same, class_kinds)) for name, class_kinds in scenes["kinds"].items()}
    return one_name, kinds


def one_name_of(name: str) -> str:
    """Return the standard name of a class that data sets name differently: "sidewalk" for "sidewalk" and "pavement"."""
    return _scenes()[0].get(plain(name), plain(name))


def kinds_of(name: str) -> frozenset[str]:
    """Return the canonical names of a class's narrower classes, such as car and bus for vehicle; often empty."""
    return _scenes()[1].get(one_name_of(name), frozenset())


def _rows(file: str) -> Iterator[dict[str, str]]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(line for line in lines if not line.startswith("#"))
