"""Select the counterfactual captions to draw. The plan limits the captions of each source image, sets the share of each
edit type, and limits how often a word may occur.

Pure: uses no model, image or database. The shares of edit types decide which captions of a source are taken, and never
how many. The limit on a word always holds, even if a source then gets fewer captions. The plan's seed shuffles the
sources, so their order does not matter.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Literal, NamedTuple

from core.text_templates import TextTemplates
from core.types import EDIT_TYPES, CounterfactualCaption, CounterfactualCaptions, Edit
from core.words import says_something, tokens
from services.batches.item_selection import rank_of
from services.batches.plan_file import BatchPlan

LeftOut = Literal["not ticked", "another edit type", "enough of this source", "a word too often"]
"""Reason why a caption is not drawn: it is not ticked, the plan does not list its edit type, its source already has the
maximum number of captions, or one of its words is already in as many captions as allowed."""
MOST_FREQUENT = 10
"""Maximum number of frequent words that a report lists."""
_PLACES = {name: place for place, name in enumerate(EDIT_TYPES)}
_NEARLY = 1e-9
"""Tolerance for rounding errors when shares are compared."""
_ROUNDS = 4
"""Maximum number of tries to choose all captions, each with a lower word limit. Then single captions are removed."""
_SWAPS = 3
"""Maximum number of passes over all sources that swap captions to bring the edit types nearer to their shares."""


@dataclass(frozen=True)
class TypeShare:
    """Share of an edit type among the selected captions. In a caption with n edits, each edit counts 1/n."""

    edit_type: str
    wished: float | None
    """Share that the plan asks for, 0 to 1; None if the plan sets no shares."""
    reached: float
    """Share of this edit type among the selected captions, 0 to 1."""
    captions: float


@dataclass(frozen=True)
class SharingReport:
    """Numbers that describe a selection of captions."""

    sources: int
    sources_without: int
    """Number of source images without any caption to draw."""
    offered: int
    """Number of captions that were written for all sources."""
    captions: int
    """Number of captions that are drawn."""
    shares: tuple[TypeShare, ...]
    words: tuple[tuple[str, int], ...]
    """Most frequent words that edits add, each with the number of selected captions that contain it."""
    most_of_a_word: int | None
    """Maximum number of captions that may contain the same new word; None if the plan sets no limit."""
    least_share_of_a_word: float | None
    """Lowest `most_share_of_a_word` (0 to 1) that might keep all captions. None if the limit removed no caption."""
    left_out: Mapping[LeftOut, int]
    """Number of captions not drawn, by reason."""

    def sentences(self) -> tuple[str, ...]:
        """Return the report in plain sentences."""
        least = None
        if self.least_share_of_a_word is not None:
            # Rounded up to three digits: a lower value, typed into the plan, would not be enough.
            least = math.ceil(self.least_share_of_a_word * 1000 - _NEARLY) / 1000
        return _TEXTS.paragraphs("selection.txt", report=self, least=least)


_REASONS: Mapping[LeftOut, str] = {
    "not ticked": "not ticked",
    "another edit type": "of an edit type that the plan does not name",
    "enough of this source": "their source has the maximum number of captions",
    "a word too often": "one of their words is in the maximum number of captions",
}


@dataclass(frozen=True)
class SelectedCaptions:
    """The captions to draw."""

    chosen: Mapping[str, tuple[int, ...]]
    """For each source key, the sorted zero-based indices of the captions to draw, among all captions of that source.
    Sources without a caption to draw are absent."""
    report: SharingReport


@lru_cache(maxsize=100_000)
def new_words(edit: Edit) -> frozenset[str]:
    """Return the words that an edit adds, such as "red", or the whole alternative if none of its words is new."""
    before, after = set(tokens(edit.keyword)), tokens(edit.alternative)
    new = frozenset(word for word in after if word not in before and says_something(word))
    return new or frozenset((" ".join(after),) if after else ())


def select_captions(sources: Iterable[tuple[str, CounterfactualCaptions]], plan: BatchPlan) -> SelectedCaptions:
    """Choose the captions to draw. `sources` yields key and captions of each source image.

    The plan limits the share of chosen captions that contain the same new word; one such caption is always allowed.
    Captions are swapped within a source to bring the shares of edit types near to the plan's, in at most `_SWAPS`
    passes over all sources. A caption with n edits counts 1/n for the type of each edit.
    """
    return _CaptionSelection(sources, plan).shared()


_Weights = tuple[tuple[int, float], ...]


class _Kind(NamedTuple):
    """Edit types and new words of a caption. Captions with the same types and words share one object."""

    weights: _Weights
    """Pairs (index in `EDIT_TYPES`, share of the caption's edits that have this type). The shares add up to 1."""
    words: tuple[str, ...]
    """New words of the caption's edits, sorted."""


class _CaptionSelection:
    """State while captions are chosen. An `offer` is the index of a caption among its source's eligible captions."""

    def __init__(self, sources: Iterable[tuple[str, CounterfactualCaptions]], plan: BatchPlan) -> None:
        edits = plan.edits
        self.limit_share = edits.most_share_of_a_word
        total = sum(edits.types.values())
        self.wished = [edits.types.get(name, 0.0) / total for name in EDIT_TYPES] if total else None
        self.kinds: dict[_Kind, _Kind] = {}
        self.left_out: Counter[LeftOut] = Counter()
        self.offered = 0
        eligible = [
            (rank_of(plan.make.seed, key), key, *self._eligible(captions.items, edits.types))
            for key, captions in sources
        ]
        eligible.sort(key=lambda one: one[:2])
        self.keys = [key for _, key, _, _ in eligible]
        self.offers = [kinds for _, _, kinds, _ in eligible]
        self.places = [places for _, _, _, places in eligible]
        most = edits.captions_a_source
        self.may = [len(kinds) if most is None else min(most, len(kinds)) for kinds in self.offers]
        self.wanted = sum(self.may)
        """Number of captions that would be drawn without a word limit."""
        self.totals, self.lengths = Counter[str](), Counter[int]()
        """Numbers of eligible captions: `totals` by new word, `lengths` by how many new words a caption has."""
        for kind, number in Counter(chain.from_iterable(self.offers)).items():
            self.lengths[len(kind.words)] += number
            self.totals.update(dict.fromkeys(kind.words, number))
        self._begin(None)

    def _eligible(
        self, captions: Sequence[CounterfactualCaption], types: Mapping[str, float]
    ) -> tuple[list[_Kind], list[int]]:
        """Return kinds and indices of a source's eligible captions, as two lists. Count the others by reason."""
        kinds, places = list[_Kind](), list[int]()
        self.offered += len(captions)
        for place, caption in enumerate(captions):
            if not caption.used:
                self.left_out["not ticked"] += 1
            elif types and not (caption.edits and all(edit.edit_type in types for edit in caption.edits)):
                self.left_out["another edit type"] += 1
            else:
                kinds.append(self._kind_of(caption))
                places.append(place)
        return kinds, places

    def _kind_of(self, caption: CounterfactualCaption) -> _Kind:
        types = Counter(_PLACES[edit.edit_type] for edit in caption.edits)
        weights = tuple((one, number / len(caption.edits)) for one, number in sorted(types.items()))
        words = {word for edit in caption.edits for word in new_words(edit)}
        kind = _Kind(weights, tuple(sorted(words)))
        return self.kinds.setdefault(kind, kind)

    def _begin(self, limit: int | None) -> None:
        """Empty the selection. From now on, a word may be in at most `limit` captions; None for no limit."""
        self.limit = limit
        self.number = 0
        self.by_type = [0.0] * len(EDIT_TYPES)
        self.by_word = Counter[str]()
        self.picked: list[list[int]] = [[] for _ in self.offers]
        """For each source, the indices of its chosen captions among its eligible captions."""

    def shared(self) -> SelectedCaptions:
        """Choose captions, and return them with a report."""
        limit = self._first_limit()
        for _ in range(_ROUNDS):
            self._begin(limit)
            self._fill()
            self._bring_nearer()
            if limit is None or max(self.by_word.values(), default=0) <= self._allowed():
                break
            limit = self._allowed()
        self._take_out()
        chosen = {
            key: tuple(sorted(places[offer] for offer in picked))
            for key, places, picked in zip(self.keys, self.places, self.picked, strict=True)
            if picked
        }
        return SelectedCaptions(chosen, self._report(len(chosen)))

    def _allowed(self) -> int:
        return max(1, int((self.limit_share or 1.0) * self.number + _NEARLY))

    def _fitting(self, limit: int) -> int:
        """Return an upper bound on the number of captions that can be chosen if no word may be in more than `limit`."""
        room, fitting = sum(min(number, limit) for number in self.totals.values()), 0
        for length, number in sorted(self.lengths.items()):
            more = min(number, room // length) if length else number
            fitting, room = fitting + more, room - more * length
        return min(self.wanted, fitting)

    def _first_limit(self) -> int | None:
        """Return how many captions with the same new word the first try allows; None if the plan has no limit.

        The plan limits the share of such captions. The returned number is this share of the largest possible selection.
        """
        if self.limit_share is None:
            return None
        low, high = 1, max(1, int(self.limit_share * self.wanted + _NEARLY))
        while low < high:
            middle = (low + high + 1) // 2
            if middle <= self.limit_share * self._fitting(middle) + _NEARLY:
                low = middle
            else:
                high = middle - 1
        return low

    def _least_share(self) -> float | None:
        """Return the lowest `limit_share` (0 to 1) with which all captions may fit; None if there are no captions."""
        if not self.wanted:
            return None
        limits = range(1, self.wanted + 1)
        return limits[bisect_left(limits, self.wanted, hi=len(limits) - 1, key=self._fitting)] / self.wanted

    def _fill(self) -> None:
        """Choose captions for each source. With a word limit, each source gets one before any source gets a second."""
        most = max(self.may, default=0)
        for enough in range(1, most + 1) if self.limit is not None else (most,):
            for source, may in enumerate(self.may):
                while len(self.picked[source]) < min(enough, may):
                    best = self._best(source)
                    if best is None:
                        break
                    self._put(source, best)

    def _best(self, source: int) -> int | None:
        """Return the index of the next caption to choose for a source, or None if the word limit allows no other.
        Prefer the edit type that is furthest below its share, then the rarest words, then the first caption.
        """
        picked, reached = self.picked[source], dict[_Weights, float]()
        best: tuple[float, int, int] | None = None
        for offer, kind in enumerate(self.offers[source]):
            if offer in picked:
                continue
            has = reached.get(kind.weights)
            if has is None:
                has = reached[kind.weights] = self._reached(kind.weights)
            if best is not None and has > best[0]:
                continue
            often = 0 if self.limit is None else max([self.by_word[word] for word in kind.words], default=0)
            if (self.limit is None or often < self.limit) and (best is None or (has, often) < best[:2]):
                best = has, often, offer
        return None if best is None else best[2]

    def _reached(self, weights: _Weights) -> float:
        """Return how well edit types are served. A type's value is its number of chosen captions, divided by its wished
        share (or by 1 if the plan sets no shares). The result is the mean over types, weighted by `weights`.
        """
        shares = self.wished or [1.0] * len(EDIT_TYPES)
        return sum(weight * self.by_type[one] / shares[one] for one, weight in weights)

    def _put(self, source: int, offer: int, by: int = 1) -> None:
        """Add a caption of a source to the selection, or remove it if `by` is -1."""
        kind = self.offers[source][offer]
        if by > 0:
            self.picked[source].append(offer)
        else:
            self.picked[source].remove(offer)
        self.number += by
        for one, weight in kind.weights:
            self.by_type[one] += by * weight
        for word in kind.words:
            self.by_word[word] += by

    def _bring_nearer(self) -> None:
        """Replace chosen captions by others of the same source while that brings edit types nearer to their shares."""
        if self.wished is None:
            return
        targets = [share * self.number for share in self.wished]
        free = [source for source, kinds in enumerate(self.offers) if 0 < len(self.picked[source]) < len(kinds)]
        for _ in range(_SWAPS):
            gains: dict[tuple[_Weights, _Weights], float] = {}
            swaps = 0
            for source in free:
                if self._swap(source, targets, gains):
                    gains.clear()
                    swaps += 1
            if not swaps:
                break

    def _swap(self, source: int, targets: list[float], gains: dict[tuple[_Weights, _Weights], float]) -> bool:
        """Replace one chosen caption of a source by another, so that the captions per type come nearest to `targets`.
        Return False if no swap helps. `gains` caches results of `_gain`.
        """
        offers, picked = self.offers[source], self.picked[source]
        come = {kind.weights for offer, kind in enumerate(offers) if offer not in picked}
        better = []
        for pair in {(offers[gone].weights, other) for gone in picked for other in come}:
            if pair not in gains:
                gains[pair] = self._gain(*pair, targets)
            if gains[pair] < -1e-6:
                better.append((round(gains[pair], 9), pair))
        for _, (of_gone, of_come) in sorted(better):  # the edit types decide between equal gains
            for gone in [offer for offer in picked if offers[offer].weights == of_gone]:
                for offer, kind in enumerate(offers):
                    if kind.weights == of_come and offer not in picked and self._room(kind, offers[gone]):
                        self._put(source, gone, by=-1)
                        self._put(source, offer)
                        return True
        return False

    def _gain(self, gone: _Weights, come: _Weights, targets: list[float]) -> float:
        """Return the change in the sum over types of (captions - target)² if `come` replaces `gone`. Less is better."""
        change = {one: -weight for one, weight in gone}
        for one, weight in come:
            change[one] = change.get(one, 0.0) + weight
        return sum(by * (2 * (self.by_type[one] - targets[one]) + by) for one, by in change.items())

    def _room(self, kind: _Kind, gone: _Kind) -> bool:
        """Return True if the word limit allows a caption of `kind` to replace a caption of the kind `gone`."""
        return self.limit is None or all(self.by_word[word] - (word in gone.words) < self.limit for word in kind.words)

    def _take_out(self) -> None:
        """Remove captions, beginning with the last source, until no word is in more captions than allowed."""
        while self.limit is not None and max(self.by_word.values(), default=0) > self._allowed():
            for source in range(len(self.offers) - 1, -1, -1):
                for offer in self.picked[source][::-1]:
                    words = self.offers[source][offer].words
                    if words and max(self.by_word[word] for word in words) > self._allowed():
                        self._put(source, offer, by=-1)

    def _report(self, with_caption: int) -> SharingReport:
        left = self.left_out.copy()
        for kinds, picked, may in zip(self.offers, self.picked, self.may, strict=True):
            full = len(picked) == may
            left["enough of this source" if full else "a word too often"] += len(kinds) - len(picked)
        frequent = sorted((-count, word) for word, count in self.by_word.items() if count)[:MOST_FREQUENT]
        return SharingReport(
            sources=len(self.keys),
            sources_without=len(self.keys) - with_caption,
            offered=self.offered,
            captions=self.number,
            shares=tuple(self._shares()),
            words=tuple((word, -count) for count, word in frequent),
            most_of_a_word=self._allowed() if self.limit_share is not None else None,
            least_share_of_a_word=self._least_share() if left["a word too often"] else None,
            left_out={why: left[why] for why in _REASONS},
        )

    def _shares(self) -> Iterator[TypeShare]:
        for name, captions, wished in zip(EDIT_TYPES, self.by_type, self.wished or repeat(None), strict=False):
            if captions > 1e-6 or wished:
                captions = round(captions, 6)
                yield TypeShare(name, wished, captions / self.number if self.number else 0.0, captions)


def _in_words(share: TypeShare) -> str:
    wished = "" if share.wished is None else f", wished {share.wished:.1%}"
    return f"{share.edit_type} {share.reached:.1%}{wished}"


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), in_words=_in_words, reasons=_REASONS)
