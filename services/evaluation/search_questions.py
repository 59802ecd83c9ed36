"""Questions of a person about where a model is weak, such as “kites at dusk”. `matched` finds the labels and edits of a
batch that the question names. `answer_of` answers from the images that a search has drawn. Pure.

A part of a question is a label, an alternative or a pair of these, and has its own answer. With at least 95 % chance,
the intervals of all possible parts contain the true shares after each drawn image. So a person may look at an answer
often, and may look at images before deciding what to ask.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from core import words
from core.batches import Candidate
from core.figures import Figure, Numbers
from core.words import find_phrase, forms_of, says_something, token_spans
from evaluation.search import FALSE, anytime_interval

CellName = tuple[str, str, str]
"""Name of a cell: its label, its edit type, and the `core.words.meaning` of its alternative."""
Answered = Literal["weak", "not weak", "cannot tell"]


@dataclass(frozen=True)
class Part:
    """Images that a question is about: those of a label, of an alternative, or of both."""

    label: str
    """Label of the sources; "" for all labels."""
    edit_type: str
    """Edit type of the alternative; "" for all edits."""
    meaning: str
    """`core.words.meaning` of the alternative; "" if the part is about all edits."""

    @property
    def key(self) -> str:
        """Return a text that identifies the part in the database."""
        return json.dumps([self.label, self.edit_type, self.meaning], ensure_ascii=False)

    def cells(self, names: Sequence[CellName]) -> Numbers:
        """Return the indexes in `names` of the cells that belong to the part."""
        numbers = [
            number
            for number, (label, edit_type, meaning) in enumerate(names)
            if self.label in ("", label)
            and (not self.edit_type or (edit_type, meaning) == (self.edit_type, self.meaning))
        ]
        return np.array(numbers, np.int64)


def with_one_edit(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the images of a batch that a search can choose: those with one edit."""
    return [one for one in candidates if len(one.counterfactual.edits) == 1]


def cell_name(one: Candidate) -> CellName:
    """Return the name of the cell of an image with one edit."""
    (edit,) = one.counterfactual.edits
    return one.label, edit.edit_type, words.meaning(edit.alternative)


@dataclass(frozen=True)
class DrawnImage:
    """A drawn image that may count in the answers of a search."""

    cell: int
    source: int
    test_case: int
    is_fault: bool
    is_random: bool
    """True if the image was chosen at random among all images."""
    asked: str
    """Key of a question's part if the image was chosen at random among the images of this part; else ""."""


@dataclass(frozen=True)
class PartAnswer:
    """The answer to one part of a question."""

    part: Part
    spellings: tuple[str, ...]
    """Spellings of the alternative in `part`, the most frequent first; empty if `part` covers all edits."""
    images: int
    """Number of drawn images in `part` that count: the model was right about their sources."""
    faults: int
    """Number of counted images that are valid faults."""
    share: Figure
    """Share of valid faults among the images that `answer_of` counts: at most one image of each source."""
    answer: Answered
    waiting: int
    """Number of images that can still be drawn for the part."""


@dataclass(frozen=True)
class Answer:
    """A person's question, the labels and edits that its words name, and the answers."""

    question: str
    parts: tuple[PartAnswer, ...]
    unknown: tuple[str, ...]
    """Words of the question that name no label and no edit of the batch."""
    missing: tuple[str, ...]
    """Pairs “label, alternative” that the question names, but that no caption of the batch combines."""


@dataclass(frozen=True)
class Matched:
    """Labels and edits that the words of a question name."""

    parts: tuple[Part, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    """Pairs “label, alternative” that the question names, but that no caption of the batch combines."""


def matched(question: str, names: Sequence[CellName]) -> Matched:
    """Find the labels, edit types and alternatives that a question names, in singular or plural and in any case. A
    longer name hides a shorter one inside: “light rain” is not “rain”.
    """
    text = question.replace("-", " ").replace("_", " ")
    edits = dict.fromkeys((edit_type, meaning) for _, edit_type, meaning in names)
    labels = dict.fromkeys(label for label, _, _ in names if label)
    spans = {one: _spans(text, one) for one in dict.fromkeys([*labels, *(m for _, m in edits), *(t for t, _ in edits)])}
    every = {span for found in spans.values() for span in found}

    def is_named(name: str) -> bool:
        return any(not _is_inside(span, every) for span in spans[name])

    named_labels = [label for label in labels if is_named(label)]
    named_edits = [one for one in edits if is_named(one[1])]
    types = {edit_type for edit_type, _ in named_edits}
    # The name of a type means all its alternatives, unless one of them is named: “weather” in “rainy weather”.
    named_edits += [one for one in edits if one[0] not in types and is_named(one[0])]
    there, pairs = set(names), [(label, *edit) for edit in named_edits for label in named_labels or [""]]
    parts = [Part(*one) for one in pairs if not one[0] or one in there]
    missing = [f"{one[0]}, {one[2]}" for one in pairs if one[0] and one not in there]
    if not named_edits:
        parts = [Part(label, "", "") for label in named_labels]
    unknown = [
        text[start:end]
        for start, end in token_spans(text)
        if says_something(text[start:end]) and not any(first <= start and end <= last for first, last in every)
    ]
    return Matched(tuple(parts), tuple(dict.fromkeys(unknown)), tuple(missing))


def answer_of(
    part: Part,
    names: Sequence[CellName],
    spellings: Sequence[Counter[str]],
    waiting: Numbers,
    drawn: Iterable[DrawnImage],
    weak: float,
    parts: int,
) -> PartAnswer:
    """Answer whether the share of valid faults among the part's images is above `weak`. `parts` is the number of parts
    that a person could ask about. With at least 95 % chance, the intervals of all these parts contain the true shares.

    If the part has one cell or no image left to draw, all its drawn images count. Other parts count only images chosen
    at random, among all images or within the part. They count no image drawn after a cell ran out of images.
    """
    cells = part.cells(names)
    is_of_part = np.isin(np.arange(len(names)), cells)
    of_part = [one for one in sorted(drawn, key=lambda one: one.test_case) if is_of_part[one.cell]]
    fair = of_part
    if len(cells) > 1 and waiting[cells].any():
        last = {one.cell: one.test_case for one in of_part if not waiting[one.cell]}
        until = min(last.values(), default=math.inf)
        fair = [one for one in of_part if (one.is_random or one.asked == part.key) and one.test_case <= until]
    by_source = {one.source: one.is_fault for one in reversed(fair)}
    n, k = len(by_source), sum(by_source.values())
    low, high = anytime_interval(n, k, FALSE / parts)
    share = Figure(k / n, low, high, n) if n else Figure(None, why="none of its images chosen at random is read")
    answer: Answered = "weak" if low > weak else "not weak" if high <= weak else "cannot tell"
    each = Counter[str]()
    for cell in cells.tolist() if part.edit_type else ():
        each.update(spellings[cell])
    return PartAnswer(
        part=part,
        spellings=tuple(spelling for spelling, _ in each.most_common()),
        images=len(of_part),
        faults=sum(one.is_fault for one in of_part),
        share=share,
        answer=answer,
        waiting=int(waiting[cells].sum()),
    )


def _spans(text: str, name: str) -> list[tuple[int, int]]:
    return [span for form in forms_of(name.replace("-", " ")) for span in find_phrase(text, form)]


def _is_inside(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(one != span and one[0] <= span[0] and span[1] <= one[1] for one in others)
