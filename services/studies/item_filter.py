"""The item filter: which test cases become items of a study, how they are drawn, and what is known of each.

The drawing itself is in `study.sampling`; here a filter meets the test cases, the masks and the readings of
the models under test.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from PIL import Image
from pydantic import BaseModel, BeforeValidator, ConfigDict

from evaluation.metrics import against_mask, share, without_mask
from evaluation.types import LARGEST_MAP, Prediction, decode_map, names_label
from pipeline.errors import UserError
from pipeline.masks import numbers_of
from pipeline.types import EDIT_TYPES, Task
from pipeline.words import classes_in
from services.studies.draft_form import NumberField, typed_number, typed_text
from storage.study_types import Candidate
from storage.workspace import Workspace
from study.sampling import at_random, stratified
from study.types import Item, NewItem

How = Literal["random", "misclassified", "label", "edit type"]
HOWS: tuple[How, ...] = get_args(How)
Reviewed = Literal["all", "accepted", "not rejected"]
REVIEWED: tuple[Reviewed, ...] = get_args(Reviewed)
Kind = Literal["any", "classification", "segmentation"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ASKED_OF_SCENES = ("road", "vehicle", "pedestrian")
"""Classes of questions: an image shows them also when its data set calls them by a narrower name, such as car."""
LEAST_SHARE = 0.0005
"""Of the pixels of a mask, below which a class does not count as shown: a person could not find it."""
MASK_SECONDS = 60.0
"""A mask is looked up anew after so long: a filter asks for it with every change."""
MOST = 20_000
"""Items that can be drawn at once."""


def _offered(value: object) -> object:
    if not isinstance(value, str) or value not in (*HOWS, *REVIEWED, *KINDS):
        raise ValueError("This wanted is none of those offered. Please reload the page.")
    return value


class ItemFilter(BaseModel):
    """Which test cases become items of a study, and how they are drawn of all that fit."""

    model_config = ConfigDict(frozen=True)

    how: Annotated[How, BeforeValidator(_offered)] = "random"
    count: Annotated[int, typed_number(NumberField("count", 1, MOST))] = 100
    reviewed: Annotated[Reviewed, BeforeValidator(_offered)] = "all"
    kind: Annotated[Kind, BeforeValidator(_offered)] = "any"
    model: Annotated[str, typed_text(400)] = ""
    """The model under test whose verdicts count; "" for the one that has read most images."""
    source_right: bool = False
    """Of the misclassified: only those whose source image the model gets right."""
    group: Annotated[str, typed_text(60, one_line=True)] = ""
    """The name of the sample; "" for the way it is drawn."""


@dataclass(frozen=True)
class Pool:
    """What a filter can draw from."""

    free: tuple[Candidate, ...]
    """Those that fit and are not in the study yet."""
    fitting: int
    """All that fit, those in the study included."""
    unread: int
    """Of the fitting: how many the model under test has not read."""
    model: str
    strata: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Test cases by class or edit type, where it is drawn so."""


@dataclass(frozen=True)
class Mask:
    """The mask of a run: what a segmenter is measured against, and what its scene shows."""

    numbers: Image.Image
    """Mode L, a class number a pixel."""
    classes: Mapping[int, str]


class RunMasks:
    """The masks of the runs of a workspace, each kept for a while. For any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._held: dict[str, tuple[float, Mask | None]] = {}

    def of(self, run_id: str) -> Mask | None:
        """The mask of a run, at the size at which a reading is kept; None where it has none."""
        read, mask = self._held.get(run_id, (-MASK_SECONDS, None))
        if time.monotonic() - read >= MASK_SECONDS:
            mask = self._read(run_id)
            self._held[run_id] = (time.monotonic(), mask)
        return mask

    def _read(self, run_id: str) -> Mask | None:
        run = self._workspace.runs.get(run_id)
        if run.mask_sha is None:
            return None
        numbers = self._workspace.images.load(run.mask_sha)
        longest = max(numbers.size)
        if longest > LARGEST_MAP:
            size = [max(1, round(side * LARGEST_MAP / longest)) for side in numbers.size]
            numbers = numbers.resize((size[0], size[1]), Image.Resampling.NEAREST)
        return Mask(numbers, run.mask_classes)


def pool_of(candidates: Sequence[Candidate], wanted: ItemFilter, masks: RunMasks, items: Iterable[Item] = ()) -> Pool:
    """What `wanted` can draw from `candidates`, without those that are in the study already."""
    taken = {item.test_case for item in items if item.test_case is not None}
    fitting = [candidate for candidate in candidates if _fits(candidate, wanted)]
    model = wanted.model or most_read(fitting)
    unread = sum(not is_read(candidate, model) for candidate in fitting)
    if wanted.how == "misclassified":
        fitting = [candidate for candidate in fitting if _newly_wrong(candidate, model, masks, wanted.source_right)]
    free = tuple(candidate for candidate in fitting if candidate.test_case not in taken)
    strata: dict[str, list[int]] = {}
    if wanted.how in ("label", "edit type"):
        for candidate in free:
            names = (candidate.label or "no label",) if wanted.how == "label" else candidate.edit_types
            for name in names or ("no edit",):
                strata.setdefault(name, []).append(candidate.test_case)
    return Pool(free, len(fitting), unread, model, {name: tuple(cases) for name, cases in strata.items()})


def draw(pool: Pool, wanted: ItemFilter, seed: int) -> tuple[Candidate, ...]:
    """So many of the pool, or all if there are fewer. Raises UserError when it is empty."""
    by_case = {candidate.test_case: candidate for candidate in pool.free}
    if not by_case:
        raise UserError("No image is left that fits: choose otherwise, or generate more.")
    if pool.strata:
        cases = stratified(pool.strata, wanted.count, seed)
    else:
        cases = at_random(sorted(by_case), wanted.count, seed)
    return tuple(by_case[case] for case in cases)


def items_of(
    candidates: Sequence[Candidate], wanted: ItemFilter, model: str, masks: RunMasks, asked_of: Iterable[str] = ()
) -> tuple[NewItem, ...]:
    """Items of drawn candidates, with all that an analysis may want. `asked_of`: classes that questions name."""
    names = tuple(dict.fromkeys((*ASKED_OF_SCENES, *(name for name in asked_of if name))))
    shown = {run: _shown(masks.of(run), names) for run in {candidate.run_id for candidate in candidates}}
    group = wanted.group or {"misclassified": "misclassified", "random": "random"}.get(wanted.how, f"by {wanted.how}")
    return tuple(_item(candidate, group, model, masks, shown[candidate.run_id]) for candidate in candidates)


def note_of(pool: Pool, wanted: ItemFilter) -> str:
    """What a filter can draw, in a sentence or two."""
    if not pool.fitting and not pool.unread:
        return "No test case of this workspace fits."
    free, there = len(pool.free), pool.fitting - len(pool.free)
    words = f"{free:,} fit" + (f", besides {there:,} that are in the study already." if there else ".")
    if wanted.how == "misclassified":
        words = f"{free:,} are misclassified by {model_name(pool.model) or 'any model under test'}" + (
            f", besides {there:,} that are in the study already." if there else "."
        )
    if pool.strata:
        sizes = sorted((len(cases), name) for name, cases in pool.strata.items())
        words += f" {len(sizes)} groups, from {sizes[0][0]} ({sizes[0][1]}) to {sizes[-1][0]} ({sizes[-1][1]})."
    if free and wanted.count > free:
        words += f" You ask for {wanted.count:,}: all {free:,} would be taken."
    if pool.unread and wanted.how == "misclassified":
        words += f" {pool.unread:,} were not read by it yet."
    return words


def verdict_of(candidate: Candidate, model: str, mask: Mask | None = None) -> tuple[bool | None, bool | None]:
    """Whether a model under test is right about the source image and about the generated one; None where unknown.

    A classifier is right when its likeliest class is the label or a kind of it. A segmenter is right about a source
    image when it finds every protected class there that can be measured, and about a generated one when none of those
    that it found in the source dropped: measured against the mask where there is one, else against what it found in the
    source (`evaluation.metrics`).
    """
    source, image = candidate.predictions.get(model, (None, None))
    if kind_of(candidate) == "classification":
        return _names(source, candidate.label), _names(image, candidate.label)
    if source is None or image is None or "classification" in (source.kind, image.kind):
        return None, None
    before, after = decode_map(source.class_map), decode_map(image.class_map)
    if mask is None:
        figures = without_mask(before, after, source.classes, candidate.classes)
    else:
        figures = against_mask(before, after, source.classes, mask.numbers, mask.classes, candidate.classes)
    found = [figure.found for figure in figures]
    source_right = all(found) if found else None
    return source_right, not any(figure.dropped for figure in figures) if any(found) else None


def kind_of(candidate: Candidate) -> Kind:
    """The kind of its task: one of a classification protects no classes."""
    return "segmentation" if candidate.classes else "classification"


def is_read(candidate: Candidate, model: str) -> bool:
    """Whether a model under test has read the generated image: its source alone tells nothing of it."""
    return candidate.predictions.get(model, (None, None))[1] is not None


def most_read(candidates: Sequence[Candidate]) -> str:
    """The model under test that has read most of them; "" when none has read any."""
    counts = Counter(model for candidate in candidates for model in candidate.predictions if is_read(candidate, model))
    return min(counts, key=lambda model: (-counts[model], model)) if counts else ""


def _fits(candidate: Candidate, wanted: ItemFilter) -> bool:
    if wanted.kind not in ("any", kind_of(candidate)):
        return False
    if wanted.reviewed == "accepted":
        return candidate.verdict == "accepted"
    return wanted.reviewed == "all" or candidate.verdict != "rejected"


def model_name(key: str) -> str:
    """What a model under test is called: of a file its name alone, without folder and time of its last change."""
    return re.sub(r"@[0-9a-f]+(?= \(|$)", "", key).rsplit("/", 1)[-1].rsplit("\\", 1)[-1]


def _verdict(candidate: Candidate, model: str, masks: RunMasks) -> tuple[bool | None, bool | None]:
    """`verdict_of` with the mask looked up where it is needed."""
    needs = kind_of(candidate) == "segmentation" and model in candidate.predictions
    return verdict_of(candidate, model, masks.of(candidate.run_id) if needs else None)


def _newly_wrong(candidate: Candidate, model: str, masks: RunMasks, source_right: bool) -> bool:
    before, after = _verdict(candidate, model, masks)
    return after is False and (before is True or not source_right)


def _item(candidate: Candidate, group: str, model: str, masks: RunMasks, shown: tuple[str, ...]) -> NewItem:
    source_right, model_right = _verdict(candidate, model, masks)
    classes = shown or classes_in(candidate.caption, _asked(ASKED_OF_SCENES))
    origin: dict[str, Any] = {"run_name": candidate.run_name, **candidate.origin}
    if source_right is not None:
        origin["source_right"] = source_right
    return NewItem(
        image_sha=candidate.image_sha,
        source_sha=candidate.source_sha,
        label=candidate.label,
        classes=tuple(classes) if kind_of(candidate) == "segmentation" else (),
        edit_types=tuple(kind for kind in EDIT_TYPES if kind in candidate.edit_types),
        caption=candidate.caption,
        counterfactual=candidate.counterfactual.text,
        test_case=candidate.test_case,
        model=model_name(model) if model_right is not None else "",
        model_right=model_right,
        group=group,
        origin=origin,
    )


def _shown(mask: Mask | None, names: Sequence[str]) -> tuple[str, ...]:
    """The classes that a mask shows, by their own names and by those of questions; () without a mask."""
    if mask is None:
        return ()
    there = {n: name for n, name in mask.classes.items() if share(mask.numbers, [n]) >= LEAST_SHARE}
    wider = [name for name in names if numbers_of(name, there)]
    return tuple(dict.fromkeys((*wider, *there.values())))


def _asked(names: Sequence[str]) -> Task:
    return Task("segmentation", protected=tuple(names))


def _names(prediction: Prediction | None, label: str) -> bool | None:
    if prediction is None or not prediction.top or not label:
        return None
    return names_label(prediction.top[0].label, label)
