"""Defects of texts that a small language model writes: repetition, and the loss of content that should be kept.

Pure, and without knowledge of grammar: words are compared, not understood. An edit may have consequences (where it
snows, the grass is gone). But new weather does not explain a repeated phrase, a lost sentence, or a thing that was
introduced ("a ball", "two dogs") and is no longer named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from core.words import says_something, singular, tokens

PHRASE = 3
"""Number of words in a row that count as a phrase."""
OFTEN = 3
"""Minimum number of times that a phrase must occur to count as repeated, unless the source has it as often."""
_INTRODUCES = {"a", "an", "one", "two", "three", "four", "five", "six", "several", "another"}
_SCENERY = frozenset(
    "day night morning evening afternoon dawn dusk sunset sunrise sky sun moon weather light background foreground "
    "view scene picture photo image time season winter summer spring autumn fog mist rain snow storm cloud "
    "shadow".split()
)
"""Words that an edit of weather, time or place may remove, even if the source introduces them with an article."""
_LONGEST_NAME = 3
"""Maximum number of words in a thing's name. Grammar is ignored: in "a red bird sits" the name is "red bird sits"."""


def repeated(source: str, text: str) -> tuple[str, int] | None:
    """Return the phrase that the text repeats most and its number of occurrences, or None if it repeats none."""
    before, after = _phrases(source), _phrases(text)
    worst = max(after, key=lambda phrase: after[phrase], default=None)
    if worst is None or after[worst] < OFTEN or after[worst] <= before[worst]:
        return None
    return " ".join(worst), after[worst]


def lost_sentences(source: str, text: str, edited_words: Collection[str]) -> tuple[str, ...]:
    """Return sentences of the source whose content words, except `edited_words`, are all missing in the text."""
    left = {singular(word) for word in tokens(text)}
    lost = []
    for sentence in filter(None, map(str.strip, re.split(r"(?<=[.!?])\s+", source))):
        content_words = {singular(word) for word in tokens(sentence) if says_something(word)} - set(edited_words)
        if content_words and not content_words & left:
            lost.append(sentence)
    return tuple(lost)


def lost_things(source: str, text: str, edited_words: Collection[str]) -> tuple[str, ...]:
    """Return the things, such as "a ball", that `source` introduces with an article or a number, but of which `text`
    has no word. A thing with a word in `edited_words` is left out.
    """
    left, words = {singular(word) for word in tokens(text)}, tokens(source)
    lost: list[str] = []
    for place, word in enumerate(words):
        if word not in _INTRODUCES:
            continue
        name: list[str] = []
        for following in words[place + 1 : place + 1 + _LONGEST_NAME]:
            if not says_something(following):
                break
            name.append(following)
        kinds = {singular(one) for one in name}
        if kinds and not kinds & (left | set(edited_words) | _SCENERY):
            lost.append(f"{word} {' '.join(name)}")
    return tuple(dict.fromkeys(lost))


def _phrases(text: str) -> Counter[tuple[str, ...]]:
    words = tokens(text)
    phrases = (tuple(words[at : at + PHRASE]) for at in range(len(words) - PHRASE + 1))
    return Counter(phrase for phrase in phrases if any(says_something(word) for word in phrase))
