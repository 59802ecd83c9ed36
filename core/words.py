"""Find words in a text, and find the words that name a label or a protected class. Upper and lower case match, and so
do singular and plural. The module knows synonyms for the classes of driving data sets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from core.data_files import DataTable
from core.types import Task

Span = tuple[int, int]
"""Start and end index of a passage in a text, end not included."""

_SYNONYMS = DataTable(__file__, tuple[str, ...], "synonyms")
_SAME_CLASS = DataTable(__file__, str, "same_class")
_IRREGULAR = DataTable(__file__, str, "irregular")
_PLURAL_VERBS = {"is": "are", "was": "were", "has": "have"}
_LISTS = DataTable(__file__, frozenset[str], "lists")


def composed(text: str) -> str:
    """Return the text in composed Unicode form (NFC), which the studio uses internally."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def says_something(word: str) -> bool:
    """Return True if a word has content, False for a word that only serves grammar, such as "the"."""
    return word.lower() not in _LISTS["small"] and word.lower() not in _LISTS["grammar"]


def tokens(text: str) -> list[str]:
    """Return the words of a text, lower case, without punctuation. A hyphen stays inside its word."""
    return list(_words_of(text)[0])


def meaning(phrase: str) -> str:
    """Return a phrase in lower case, without punctuation and hyphens, and without leading articles or prepositions.

    “Dusk”, “at dusk” and “the dusk.” become equal. “Not dusk” and “dusk” stay different, like “two birds” and “birds”.
    No model decides: in embeddings, opposites such as day and night are close.
    """
    words = tokens(composed(phrase).replace("-", " ").replace("_", " "))
    while len(words) > 1 and words[0] in _LISTS["before"]:
        words = words[1:]
    return " ".join(words) or phrase.strip().lower()


def token_spans(text: str) -> list[Span]:
    """Return the span of each word of `tokens(text)`."""
    return list(_words_of(text)[1])


@lru_cache(maxsize=4096)
def _words_of(text: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """Return the words of a text and their spans. Cached: showing a run asks for the same texts thousands of times."""
    spans = tuple(match.span() for match in re.finditer(r"\w+(?:-\w+)*", text))
    return tuple(text[start:end].lower() for start, end in spans), spans


def find_run(words: Sequence[str], phrase: Sequence[str]) -> list[int]:
    """Return the indices at which `phrase` begins in `words`, without overlaps; [] for an empty phrase."""
    if not phrase or phrase[0] not in words:
        return []
    words, phrase = tuple(words), tuple(phrase)
    starts, at = [], 0
    while at + len(phrase) <= len(words):
        if words[at : at + len(phrase)] == phrase:
            starts.append(at)
            at += len(phrase)
        else:
            at += 1
    return starts


def find_phrase(text: str, phrase: str) -> list[Span]:
    """Return the spans of `phrase` in `text`, from left to right, without overlaps; [] for an empty phrase."""
    words, spans = _words_of(text)
    searched, _ = _words_of(phrase)
    return [(spans[at][0], spans[at + len(searched) - 1][1]) for at in find_run(words, searched)]


def contains(text: str, phrase: str) -> bool:
    """Return True if `text` contains the words of `phrase`, in order and side by side."""
    return bool(find_phrase(text, phrase))


def plural(phrase: str) -> str:
    """Return the plural of a noun phrase. Its last word takes the ending."""
    head, _, last = phrase.lower().rpartition(" ")
    return f"{head} {_plural_word(last)}".strip()


def count_of(number: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun, such as "1 vote" or "2,500 test cases". `verb`, given in the singular, follows in
    the form for the number: "1 image is", "2 images are".
    """
    if number == 1:
        return f"1 {noun} {verb}".rstrip()
    head, _, last = noun.rpartition(" ")
    verb = _PLURAL_VERBS.get(verb, verb.removesuffix("s"))
    return f"{number:,} {head} {_plural_word(last)} {verb}".replace("  ", " ").rstrip()


def duration(seconds: float) -> str:
    """Return a time such as 40 s, 12 min, 3 h 20 min, 4 days 6 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def singular(phrase: str) -> str:
    """Return the singular of a noun phrase, unchanged if it is not a plural."""
    head, _, last = phrase.lower().rpartition(" ")
    return f"{head} {_singular_word(last)}".strip()


@lru_cache(maxsize=1024)
def forms_of(name: str) -> tuple[str, ...]:
    """Return the singular and plural of all names of a label or protected class, the name itself first. Commas separate
    the names, as in ImageNet ("goldfinch, Carduelis carduelis").
    """
    forms: list[str] = []
    for part in name.split(","):
        normalised = " ".join(tokens(part))
        single = singular(normalised)
        known = _SYNONYMS.get(_SAME_CLASS.get(single, single), ())
        for word in (normalised, single, *known):
            forms += [word, plural(singular(word))] if word else []
    return tuple(dict.fromkeys(forms))


def classes_in(text: str, task: Task) -> tuple[str, ...]:
    """Return the label or protected classes that the text names, in the order of the task."""
    return tuple(name for name in task.kept() if any(contains(text, form) for form in forms_of(name)))


def protected_spans(text: str, task: Task) -> list[Span]:
    """Return the spans that name the label or a protected class, from left to right, without overlaps."""
    spans = {span for name in task.kept() for form in forms_of(name) for span in find_phrase(text, form)}
    every = sorted(spans, key=lambda span: (span[0], -span[1]))
    disjoint: list[Span] = []
    for span in every:
        if not disjoint or span[0] >= disjoint[-1][1]:
            disjoint.append(span)
    return disjoint


def protected_words_in(text: str, task: Task) -> tuple[str, ...]:
    """Return the words of the text that name the label or a protected class: lower case, each once, in text order."""
    return tuple(dict.fromkeys(text[start:end].lower() for start, end in protected_spans(text, task)))


def is_protected(phrase: str, task: Task) -> bool:
    """Return True if a phrase names only the label or protected classes: "cars", "two cars", but not "red cars"."""
    covered = protected_spans(phrase, task)
    rest = [
        phrase[start:end].lower()
        for start, end in token_spans(phrase)
        if not any(first <= start and end <= last for first, last in covered)
    ]
    return bool(covered) and all(word in _LISTS["small"] for word in rest)


def _plural_word(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return word[:-1] + "ies"
    return word + "s"


@cache
def _singulars() -> dict[str, str]:
    return {plural: single for single, plural in _IRREGULAR.items()}


def _singular_word(word: str) -> str:
    if word in _singulars():
        return _singulars()[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes", "buses")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def few_names(names: Sequence[str], most: int = 5) -> str:
    """Join the first names with commas. Names beyond `most` are only counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def and_list(names: Iterable[str]) -> str:
    """Join names with commas and "and", as in "a, b and c"."""
    known = list(names)
    return " and ".join([*([", ".join(known[:-1])] if known[1:] else []), *known[-1:]])
