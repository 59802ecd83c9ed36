"""Finds words in a text, and knows which words stand for a label or a protected class.

A phrase matches whole words only and case does not count. Knows English plurals and the classes of driving data sets;
knows nothing of stages or models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from core.types import Task

Span = tuple[int, int]
"""Start and end in a text, end not included."""

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "vehicle": (
        "vehicle",
        "car",
        "automobile",
        "truck",
        "lorry",
        "bus",
        "van",
        "pickup",
        "suv",
        "taxi",
        "cab",
        "jeep",
        "sedan",
        "minivan",
        "motorcycle",
        "motorbike",
        "scooter",
        "tram",
    ),
    "car": ("car", "automobile", "vehicle", "taxi", "cab", "sedan", "suv", "jeep"),
    "truck": ("truck", "lorry", "pickup"),
    "bus": ("bus", "coach"),
    "train": ("train", "tram"),
    "motorcycle": ("motorcycle", "motorbike"),
    "bicycle": ("bicycle", "bike"),
    "pedestrian": ("pedestrian", "person", "man", "woman", "child", "boy", "girl", "walker", "passer-by"),
    "person": ("person", "pedestrian", "man", "woman", "child", "boy", "girl"),
    "rider": ("rider", "cyclist", "bicyclist", "motorcyclist", "biker"),
    "road": ("road", "street", "highway", "motorway", "freeway", "avenue", "lane"),
    "pavement": ("pavement", "sidewalk", "footpath", "walkway"),
    "lane marking": (
        "lane marking",
        "road marking",
        "road line",
        "lane line",
        "marking",
        "zebra crossing",
        "crosswalk",
    ),
    "building": ("building", "house", "skyscraper", "tower", "shop"),
    "vegetation": ("vegetation", "tree", "bush", "plant", "hedge", "grass", "forest", "shrub"),
    "sky": ("sky",),
    "ground": ("ground", "terrain", "soil"),
    "traffic light": ("traffic light", "traffic signal", "stoplight", "stop light"),
    "traffic sign": ("traffic sign", "road sign", "street sign", "stop sign", "sign"),
    "pole": ("pole", "lamp post", "lamppost", "street light", "streetlight"),
    "fence": ("fence", "guard rail", "guardrail", "railing"),
}
_SAME_CLASS = {"sidewalk": "pavement", "road line": "lane marking", "terrain": "ground", "automobile": "car"}
_IRREGULAR = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "ox": "oxen",
    "leaf": "leaves",
    "knife": "knives",
    "wolf": "wolves",
    "loaf": "loaves",
    "shelf": "shelves",
    "calf": "calves",
    "passer-by": "passers-by",
}
_SINGULAR = {plural: single for single, plural in _IRREGULAR.items()}
_SMALL = frozenset(
    (
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "its",
        "his",
        "her",
        "their",
        "some",
        "any",
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "several",
        "many",
        "few",
        "couple",
        "pair",
        "group",
        "of",
    )
)
"""Words that add nothing to a class but how many of it there are: "two cars" is as protected as "cars"."""

_GRAMMAR = _SMALL | frozenset(
    "is are was were be been being has have had in on at by with and or to from into onto over under it they there "
    "which who whose as while both each every all also very more".split()
)


def says_something(word: str) -> bool:
    """Whether a word tells of the picture, and is not only there for the grammar."""
    return word.lower() not in _GRAMMAR


def tokens(text: str) -> list[str]:
    """The words of a text, lower case, without punctuation; a hyphen stays inside its word."""
    return list(_words_of(text)[0])


def token_spans(text: str) -> list[Span]:
    """Where each word of `tokens(text)` stands."""
    return list(_words_of(text)[1])


@lru_cache(maxsize=4096)
def _words_of(text: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The words of a text and where they stand. One look at a run asks for those of the same few texts thousands of
    times, a time for each word that stands for a protected class."""
    spans = tuple(match.span() for match in re.finditer(r"\w+(?:-\w+)*", text))
    return tuple(text[start:end].lower() for start, end in spans), spans


def find_run(words: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The indices at which `wanted` begins in `words`, not overlapping; [] when nothing is wanted."""
    if not wanted or wanted[0] not in words:
        return []
    words, wanted = tuple(words), tuple(wanted)
    found, at = [], 0
    while at + len(wanted) <= len(words):
        if words[at : at + len(wanted)] == wanted:
            found.append(at)
            at += len(wanted)
        else:
            at += 1
    return found


def find_phrase(text: str, phrase: str) -> list[Span]:
    """Every place where the words of `phrase` stand in `text`, from left to right, not overlapping; [] for no words."""
    words, spans = _words_of(text)
    wanted, _ = _words_of(phrase)
    return [(spans[at][0], spans[at + len(wanted) - 1][1]) for at in find_run(words, wanted)]


def contains(text: str, phrase: str) -> bool:
    """Whether the words of `phrase` stand in `text`."""
    return bool(find_phrase(text, phrase))


def plural(phrase: str) -> str:
    """The plural of a noun in the singular: its last word takes the ending."""
    head, _, last = phrase.lower().rpartition(" ")
    return f"{head} {_plural_word(last)}".strip()


def singular(phrase: str) -> str:
    """The singular of a noun; one that is no plural comes back as it is."""
    head, _, last = phrase.lower().rpartition(" ")
    return f"{head} {_singular_word(last)}".strip()


@lru_cache(maxsize=1024)
def forms_of(name: str) -> tuple[str, ...]:
    """The words that stand for a label or a protected class, singular and plural, itself first.

    A label with commas, as in ImageNet ("goldfinch, Carduelis carduelis"), is several names of one thing.
    """
    forms: list[str] = []
    for part in name.split(","):
        own = " ".join(tokens(part))
        single = singular(own)
        known = _SYNONYMS.get(_SAME_CLASS.get(single, single), ())
        for word in (own, single, *known):
            forms += [word, plural(singular(word))] if word else []
    return tuple(dict.fromkeys(forms))


def classes_in(text: str, task: Task) -> tuple[str, ...]:
    """Those of the label or the protected classes that the text names, in the order of the task."""
    return tuple(name for name in task.kept() if any(contains(text, form) for form in forms_of(name)))


def protected_spans(text: str, task: Task) -> list[Span]:
    """Where the label or a protected class is named, from left to right, not overlapping; of two, the longer one."""
    every = sorted(
        {span for form in _all_forms(task) for span in find_phrase(text, form)}, key=lambda span: (span[0], -span[1])
    )
    kept: list[Span] = []
    for span in every:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def protected_words_in(text: str, task: Task) -> tuple[str, ...]:
    """The words of the text that name the label or a protected class: lower case, each once, in text order."""
    return tuple(dict.fromkeys(text[start:end].lower() for start, end in protected_spans(text, task)))


def is_protected(phrase: str, task: Task) -> bool:
    """Whether a phrase says nothing beside the label or protected classes: "cars" and "two cars" do, "red cars" not."""
    covered = protected_spans(phrase, task)
    rest = [
        phrase[start:end].lower()
        for start, end in token_spans(phrase)
        if not any(first <= start and end <= last for first, last in covered)
    ]
    return bool(covered) and all(word in _SMALL for word in rest)


def _all_forms(task: Task) -> Iterable[str]:
    for name in task.kept():
        yield from forms_of(name)


def _plural_word(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return word[:-1] + "ies"
    return word + "s"


def _singular_word(word: str) -> str:
    if word in _SINGULAR:
        return _SINGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes", "buses")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word
