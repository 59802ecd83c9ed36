"""Pairs of captions that a perturber learns from: a caption, and the same caption with one edit of a type.

A file of pairs holds one JSON object per line, with the fields of `Pair`. `drawn_pairs` makes pairs from drawn scenes.
Knows nothing of models or training.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from core.errors import UserError
from core.types import CounterfactualCaption, Data, EditType, Task, failed
from core.validation_messages import reason
from demo.train.common import TRAIN_SEEDS
from demo.train.corpus import random_example
from pipeline.checks.single_edit import changes
from pipeline.checks.texts import counterfactual_checks
from pipeline.stages.reply_schema import NO_EDIT, edit_text

HELD_OUT = 0.1
"""Share of the captions that only serve to measure the loss, and are not trained on."""
MOST_HELD_OUT = 200
"""Maximum number of captions that are not trained on. More would hardly improve the measured loss."""
NO_EDIT_KEPT = 0.25
"""Share of the drawn pairs without an edit (reply "none") that are used. With all of them, a small LoRA replies "none"
too often."""
FEWEST = 10
"""Minimum number of captions for a training."""


class Pair(Data):
    """A caption before and after an edit, as one line of a file. Either `label` or `protected` (classes) is given."""

    caption: str = Field(min_length=1)
    type: EditType
    changed: str = ""
    """Caption after one edit of the type. "" if the caption has nothing of this type to change."""
    edit: str = ""
    """The edit, such as "sunny -> snowy". If "", it is found by comparing the two captions."""
    label: str = ""
    protected: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Pair:
        if bool(self.label) == bool(self.protected):
            raise ValueError("give either label or protected, which is a list of classes")
        if not self.changed:
            return self
        places = len(changes(self.caption, self.changed))
        if places != 1:
            raise ValueError(f"{places} places of the caption are changed: change only one")
        old, arrow, new = (part.strip() for part in self.edit.partition("->"))
        if self.edit and not (arrow and old and old in self.caption and new in self.changed):
            raise ValueError("edit must look like “sunny -> snowy”, with words of the two captions")
        for check in failed(counterfactual_checks(self.caption, CounterfactualCaption(self.changed, ()), self.task)):
            raise ValueError(f"the changed caption fails the check “{check.name}”: {check.note}")
        return self

    @property
    def task(self) -> Task:
        """Task of the caption: its label, or its protected classes."""
        kind = "classification" if self.label else "segmentation"
        return Task(kind, self.label, self.protected)  # type: ignore[arg-type]

    @property
    def reply(self) -> str:
        """Correct reply of the perturber: the edit first, then the changed caption."""
        if not self.changed:
            return NO_EDIT
        change = changes(self.caption, self.changed)[0]
        return f"{self.edit or edit_text(change.keyword, change.alternative)} | {' '.join(self.changed.split())}"


def read_pairs(file: Path) -> tuple[list[Pair], list[str]]:
    """Return the pairs of a file of JSON lines, and a sentence on each invalid line. Raises UserError if the file
    cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The pairs {file} cannot be read: {error}.") from error
    pairs, faults = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pairs.append(Pair.model_validate_json(line))
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            where = f", {field}" if field else ""
            fault = "it is no JSON object" if error.errors()[0]["type"] == "json_invalid" else reason(error, Pair)
            faults.append(f"line {number}{where}: {fault.rstrip('.')}")
    return pairs, faults


def drawn_pairs(count: int) -> list[Pair]:
    """Return training pairs from drawn scenes. Some pairs have a caption that allows no edit of the pair's type."""
    rng, pairs = random.Random(0), list[Pair]()
    while len(pairs) < count:
        example = random_example(rng, "perturbations", rng.randrange(TRAIN_SEEDS, 2 * TRAIN_SEEDS))
        if example.reply == NO_EDIT and rng.random() > NO_EDIT_KEPT:
            continue
        pair = Pair(
            caption=example.caption,
            type=example.edit_type,  # type: ignore[arg-type]
            changed=example.reply.partition(" | ")[2],
            edit=next((edit_text(*edit) for edit in example.edits.items()), ""),
            label=example.task.label,
            protected=example.task.protected,
        )
        pairs.append(pair)
    return pairs


def held_out(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those to train on and those to hold out. All pairs of one caption stay together. Raises
    UserError if there are too few captions.
    """
    captions = sorted({pair.caption for pair in pairs})
    if len(captions) < FEWEST:
        raise UserError(f"The pairs have only {len(captions)} different captions: at least {FEWEST} are needed.")
    random.Random(0).shuffle(captions)
    out = set(captions[: min(MOST_HELD_OUT, max(1, round(HELD_OUT * len(captions))))])
    return [pair for pair in pairs if pair.caption not in out], [pair for pair in pairs if pair.caption in out]


def write_pairs(pairs: Iterable[Pair], file: Path) -> None:
    """Write pairs into a file that `read_pairs` can read."""
    lines = (f"{pair.model_dump_json(exclude_defaults=True)}\n" for pair in pairs)
    file.write_text("".join(lines), encoding="utf-8")
