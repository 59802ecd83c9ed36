"""The commands that make a test set: add images to its draft, label and split them, and release a version."""

from __future__ import annotations

import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.image_filter import ImageFilter
from core.latest import Latest
from core.masks import resized
from core.perceptual_hashes import DISTANCE
from core.progress import OnCount
from core.test_sets import LONGEST_NAME, CaseOfSet, SetEntry, SetVersion, Split, version_id
from core.types import TaskKind
from core.words import count_of, few_names
from services.commands import Malformed, does, parts_of
from services.curation.imports import entry_of
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID, Ids
from services.test_sets.hashes import Twins, compared_of, hashes_of, twins_of
from services.test_sets.splits import Unit, leaks_in, proposed, splits_of, units_of
from services.test_sets.versions import (
    LONGEST_REFERENCE,
    SetCommand,
    difference,
    draft_of,
    shown_cases,
    version_facts,
    version_of,
)
from storage.test_sets.test_sets import LONGEST_NOTE, Removed, checked_note
from storage.workspace import Workspace

NEAR_DUPLICATES = "near-duplicate distance"
"""Name of a threshold. The studio adds it to the thresholds of a release if the images have splits."""
MOST_AT_ONCE = 100_000
"""Maximum number of images in one command."""
MOST_THRESHOLDS = 100
MOST_UNDONE = 4
"""Maximum number of removals of images that can be undone: the latest ones, which are kept in memory."""


ImagesOfSet = Annotated[
    tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...],
    BeforeValidator(parts_of),
    Field(min_length=1, max_length=MOST_AT_ONCE, description="The SHA-256 of each image, from show-test-set"),
]
"""Type of a command's field for images of a draft: the SHA-256s of their files, as a list or one text with commas."""


def _thresholds(sent: Any) -> Any:
    """Return thresholds by name from a mapping, or from text with NAME=NUMBER on each line. Raises Malformed."""
    pairs: list[tuple[Any, Any]]
    if isinstance(sent, str):
        lines = (line.rpartition("=") for line in sent.splitlines() if line.strip())
        pairs = [(name, value) for name, _, value in lines]
    elif isinstance(sent, Mapping):
        pairs = list(sent.items())
    else:
        return sent
    thresholds: dict[str, float] = {}
    for text, value in pairs:
        name = " ".join(str(text).split())
        try:
            number = float(value)
        except (ValueError, TypeError):
            number = math.nan
        if not name or len(name) > LONGEST_NAME or not math.isfinite(number):
            words = f"{text}={value}".removeprefix("=")[:80]
            raise Malformed(f"“{words}” is no threshold: write NAME=NUMBER.", field="thresholds")
        if name in thresholds:
            raise Malformed(f"The threshold “{name[:80]}” is given twice: keep one of them.", field="thresholds")
        thresholds[name] = number
    return thresholds


class AddToTestSet(SetCommand):
    """Command to add images to the draft of a test set."""

    cases: Ids = Field((), max_length=MOST_AT_ONCE, description="Test cases by id, as a list or with commas between")
    entries: Ids = Field(
        (), max_length=MOST_AT_ONCE, description="Images by their ids in the catalogue, as a list or with commas"
    )
    filter: Filter | None = Field(None, description=WHICH)
    expected: int | None = Field(
        None, ge=0, le=LARGEST_ID, description="Number of matches that you saw; if it has changed, none is added"
    )
    sources: bool = Field(False, description="True to add their source images too")


class SplitTestSet(SetCommand):
    """Command to split the draft of a test set."""

    train: float = Field(0.0, ge=0, le=1, description="Share of the images, relative to the other shares")
    validation: float = Field(0.0, ge=0, le=1, description="Share of the images, relative to the other shares")
    test: float = Field(0.0, ge=0, le=1, description="Share of the images, relative to the other shares")
    seed: int = Field(0, ge=0, le=LARGEST_ID, description="Seed; another seed gives other splits")
    keep: bool = Field(
        True, description="True to keep the splits of sources that have one; only the other images are split"
    )


class ReleaseTestSet(SetCommand):
    """Command to release the draft of a test set."""

    note: str = Field(
        "", max_length=LONGEST_NOTE, description="Note for readers of this version; empty for the note of the draft"
    )
    thresholds: Annotated[dict[str, float], BeforeValidator(_thresholds)] = Field(
        default={}, max_length=MOST_THRESHOLDS, description="Thresholds by which the images were chosen, by name"
    )
    unreviewed: bool = Field(
        False, description="True to release even with rejected images, or images that nobody reviewed"
    )


@dataclass(frozen=True)
class Added:
    """Result of adding images to a draft."""

    added: int
    """Number of images that were added, including sources."""
    already: int
    """Number of images that were not added, since the draft has them or they were given twice."""
    left_out: int = 0
    """Number of requested images that are not in the catalogue."""


@dataclass(frozen=True)
class SplitResult:
    """Result of splitting a draft."""

    groups: int
    """Number of groups of images. All images of a group are in one split."""
    splits: Mapping[str, int]
    """Number of images by split."""
    labels: Mapping[str, Mapping[str, int]]
    """Number of images by split and label."""
    compared: bool = True
    """True if all sources were compared to find similar ones: always after a split, but not always in a preview."""


@dataclass(frozen=True)
class Parted:
    """Result of dividing a draft with images of two tasks."""

    test_set: str
    """Id of the new set."""
    name: str
    task: TaskKind
    """Kind of task of the images in the new test set."""
    moved: int
    """Number of images in the new test set, including sources."""


@dataclass(frozen=True)
class Obstacle:
    """A reason why a draft cannot be released."""

    kind: Literal["empty", "not accepted", "no split", "leak", "unchanged"]
    sentence: str
    images: tuple[str, ...] = ()
    """SHA-256s of the images to correct; () if the reason is not about single images."""


@dataclass(frozen=True)
class Readiness:
    """Obstacles to the release of a draft, as far as known without opening an image file."""

    obstacles: tuple[Obstacle, ...]
    """Known obstacles. A release reports the first of them."""
    not_compared: int
    """Number of pictures that have no hashes yet: sources, and images whose source the workspace lacks. A release
    hashes them and compares them with the others."""
    tasks: Mapping[TaskKind, tuple[str, ...]]
    """Images by kind of task; {} if there is one kind. A set with two kinds may be released, but no model fits both."""


class TestSetDrafts:
    """The commands on drafts of test sets of one workspace. All methods may be called from any thread."""

    __test__ = False  # not a pytest class

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._sets = workspace, workspace.test_sets
        self._ready = Latest[Readiness](1)
        self._twins = Latest[Twins](8)
        self._removals = Latest[tuple[int, Removed]](MOST_UNDONE)

    @does("create-test-set", keeps=True)
    def create(
        self,
        title: Annotated[
            str, Field(max_length=10 * LONGEST_NAME, description=f"The name, at most {LONGEST_NAME} characters")
        ],
    ) -> dict[str, str]:
        """Create a test set with an empty draft. Its name cannot be changed later."""
        return {"test_set": self._sets.create(title)}

    @does("draft-test-set", keeps=True)
    def draft(
        self,
        version: Annotated[
            str,
            Field(
                max_length=LONGEST_REFERENCE,
                description="The released version to begin with: its id, SET@2, or SET for the latest",
            ),
        ],
    ) -> dict[str, Any]:
        """Begin a draft of the next version of a test set, with the images of a released version."""
        return version_facts(self.begin(version))

    @does("delete-test-set-draft", SetCommand)
    def delete_test_set_draft(self, test_set: str) -> Any:
        """Delete the draft of a test set, and the set itself if no version was released."""
        return self._sets.delete_draft(self._draft(test_set).number)

    def begin(self, reference: str) -> SetVersion:
        """Begin a draft of the next version from a released one. Raises UserError if there is a draft already."""
        return self._sets.begin_draft(version_of(self._workspace, reference).number)

    @does("add-to-test-set", AddToTestSet, keeps=True)
    def add_chosen(self, sent: AddToTestSet) -> Added:
        """Add images to the draft of a test set, with their masks and labels. The label is the one that a person
        decided, or else the label of the image's task. Raises UserError if no image is named, or if the filter matches
        another number of images than expected.
        """
        entry_ids = [*sent.entries, *self._found(sent)]
        of_entries = self._workspace.catalogue.test_cases(entry_ids)
        imported = [entry_of(image, name) for name, image in self._workspace.imports.of_entries(entry_ids)]
        cases = [*sent.cases, *of_entries]
        if not cases and not imported:
            if sent.filter is None:
                raise UserError("Name test cases or images, or give a filter, such as review=accepted.", field="cases")
            words = f"No image fits the filter “{sent.filter.words}”" if sent.filter.words else "No image is there yet"
            raise UserError(f"{words}: there is nothing to add.", field="filter")
        done = self.add(sent.test_set, cases, sent.sources, imported)
        return replace(done, left_out=len(entry_ids) - len(of_entries) - len(imported))

    def _found(self, sent: AddToTestSet) -> Sequence[int]:
        if sent.filter is None:
            return ()
        ids = self._workspace.catalogue.ids(sent.filter)
        if sent.expected not in (None, len(ids)):
            raise UserError(
                f"The filter now finds {len(ids):,} images instead of {sent.expected:,}: look at them, then add them.",
                field="expected",
            )
        return ids

    def add(self, test_set: str, cases: Iterable[int], sources: bool = False, others: Sequence[SetEntry] = ()) -> Added:
        """Add test cases and the entries `others` to a draft; with `sources`, also their sources, each once. Add all or
        none. Raises UserError for an unknown test case, or if the set has no draft.
        """
        draft, known_cases = self._draft(test_set), self._sets.cases(cases)
        masks: dict[tuple[str, tuple[int, int]], str] = {}
        entries = [self._entry(case, masks) for case in known_cases]
        if sources:
            originals = {
                case.source: SetEntry(
                    case.source, case.source, case.task_label, "", case.mask, case.mask_classes, "source"
                )
                for case in reversed(known_cases)
            }
            entries += [originals[sha] for sha in dict.fromkeys(case.source for case in known_cases)]
        entries += others
        added = self._sets.add(draft.number, entries)
        return Added(added, len(entries) - added)

    @does("remove-from-test-set", SetCommand)
    def remove(self, test_set: str, images: ImagesOfSet) -> dict[str, Any]:
        """Remove images from the draft of a test set. The answer's “removal” can be sent to put-back-in-test-set."""
        draft = self._draft(test_set)
        removed = self._sets.remove(draft.number, images)
        if not removed:
            return {"removed": 0, "removal": ""}
        name = secrets.token_hex(8)
        self._removals.put(name, (draft.number, removed))
        return {"removed": len(removed), "removal": name}

    @does("put-back-in-test-set", SetCommand)
    def put_back(
        self,
        test_set: str,
        removal: Annotated[str, Field(max_length=40, description="The “removal” of remove-from-test-set")],
    ) -> dict[str, int]:
        """Undo a remove-from-test-set: the removed images come back unchanged. Only the last four removals can be
        undone. Raises UserError for a removal that is forgotten or of another draft.
        """
        draft, removed = self._draft(test_set), self._removals.get(removal)
        if removed is None or removed[0] != draft.number:
            raise UserError(
                "These images cannot be put back any more: only the last removals are remembered, until the studio is "
                "stopped. Add them again from the gallery.",
                field="removal",
            )
        return {"put_back": self._sets.put_back(draft.number, removed[1])}

    @does("part-test-set", SetCommand)
    def part(self, test_set: str) -> Parted:
        """Divide a draft with images of two kinds of tasks: the images of the rarer kind move to the draft of a new
        test set. Raises UserError if the draft has images of one kind only.
        """
        draft = self._draft(test_set)
        tasks = self._sets.tasks(draft.number)
        if len(tasks) < 2:
            raise UserError(f"“{draft.set_name}” has images of one task only: it cannot be divided.", field="test_set")
        task = min(tasks, key=lambda kind: (len(tasks[kind]), kind != "segmentation"))
        images = set(tasks[task])
        entries = self._sets.entries(draft.number)
        theirs = {entry.source for entry in entries if entry.image in images}
        others = {entry.source for entry in entries if entry.role == "generated" and entry.image not in images}
        sources = [entry.image for entry in entries if entry.role == "source" and entry.image in theirs]
        moved = [*tasks[task], *(image for image in sources if image not in others)]
        shared = [image for image in sources if image in others]
        new = self._sets.part(draft.number, self._free_name(draft.set_name, task), moved, shared)
        return Parted(new.test_set, new.set_name, task, new.entries)

    def _free_name(self, name: str, task: TaskKind) -> str:
        """Return an unused set name for the images of a task, such as “Birds (segmentation)”."""
        taken = {known.casefold() for known in self._sets.names().values()}
        ends = (f" ({task})" if number == 1 else f" ({task} {number})" for number in count(1))
        names = (f"{name[: LONGEST_NAME - len(end)].rstrip()}{end}" for end in ends)
        return next(one for one in names if one.casefold() not in taken)

    @does("relabel-in-test-set", SetCommand)
    def relabel(
        self,
        test_set: str,
        images: ImagesOfSet,
        label: Annotated[str, Field(max_length=LONGEST_NAME, description="The new label; empty for none")],
    ) -> dict[str, int]:
        """Change the label of images in the draft of a test set. Raises UserError for an image not in the draft."""
        return {"relabelled": self._sets.relabel(self._draft(test_set).number, images, label)}

    @does("set-split-in-test-set", SetCommand)
    def set_split(
        self,
        test_set: str,
        images: ImagesOfSet,
        split: Annotated[Literal["train", "validation", "test", ""], Field(description="The split; empty for none")],
    ) -> dict[str, int]:
        """Set the split of images in the draft of a test set. Raises UserError for an image not in the draft."""
        return {"resplit": self._sets.set_splits(self._draft(test_set).number, dict.fromkeys(images, split))}

    @does("split-test-set", SplitTestSet)
    def split_now(self, sent: SplitTestSet) -> SplitResult:
        """Split the draft of a test set: images of one source, or similar ones, get one split, so nothing leaks."""
        return self.split(sent)

    def split(self, sent: SplitTestSet, on_count: OnCount | None = None) -> SplitResult:
        """Split a draft. Raises UserError without images or shares, or if `sent.keep` leaves a group in two splits."""
        draft, entries = self._to_split(sent)
        split_of, result = _split(sent, entries, self._units(entries, on_count))
        self._sets.set_splits(draft.number, split_of)
        return result

    def preview(self, sent: SplitTestSet) -> SplitResult:
        """Return the likely result of `split`. Opens no image and saves nothing. Raises UserError as `split` does."""
        _, entries = self._to_split(sent)
        units, compared = self._known_units(entries)
        return replace(_split(sent, entries, units)[1], compared=compared)

    def _to_split(self, sent: SplitTestSet) -> tuple[SetVersion, tuple[SetEntry, ...]]:
        draft = self._draft(sent.test_set)
        entries = self._sets.entries(draft.number)
        if not entries:
            raise UserError(f"“{draft.set_name}” has no images yet: add some first.", field="test_set")
        return draft, entries

    def release(self, sent: ReleaseTestSet, on_count: OnCount | None = None) -> SetVersion:
        """Release a draft. If there is an obstacle, raises UserError about it and leaves the draft unchanged."""
        draft = self._draft(sent.test_set)
        thresholds = dict(sent.thresholds)
        if NEAR_DUPLICATES in thresholds:
            words = f"“{NEAR_DUPLICATES}” is set by the studio: give the threshold another name."
            raise UserError(words, field="thresholds")
        entries = self._sets.entries(draft.number)
        for obstacle in self._obstacles(draft, entries, lambda: self._units(entries, on_count), thresholds):
            if not (sent.unreviewed and obstacle.kind == "not accepted"):
                raise UserError(obstacle.sentence, field="test_set" if obstacle.kind == "empty" else "")
        if any(entry.split for entry in entries):
            thresholds[NEAR_DUPLICATES] = float(DISTANCE)
        note = checked_note(sent.note or draft.note)
        expected = version_id(draft.set_name, draft.parent, note, thresholds, entries)
        return self._sets.release(draft.number, expected, note, thresholds)

    def warning(self, version: SetVersion) -> str:
        """Return a warning if a released version has images of two kinds of tasks; otherwise ""."""
        tasks = self._sets.tasks(version.number)
        if len(tasks) < 2:
            return ""
        return (
            f"This version has {two_tasks(tasks)}, and a model is tested on one task: begin a draft of the next "
            "version, separate its images by task, and release both sets."
        )

    @does("release-test-set", ReleaseTestSet)
    def release_now(self, sent: ReleaseTestSet) -> dict[str, Any]:
        """Release the draft of a test set. The version never changes again, and its id is a hash of its content. The
        answer's “warning” is a sentence if the version has images of two kinds of tasks; otherwise it is empty. Raises
        UserError if an obstacle prevents the release.
        """
        version = self.release(sent)
        return {**version_facts(version), "warning": self.warning(version)}

    def readiness(self, draft: SetVersion) -> Readiness:
        """Return the obstacles to a draft's release, as known without opening images. Cached until the next save."""
        return self._ready.once((draft.number, self._workspace.saved()), lambda: self._readiness(draft))

    def _readiness(self, draft: SetVersion) -> Readiness:
        entries = self._sets.entries(draft.number)
        compared = compared_of(self._workspace, entries)
        obstacles = tuple(self._obstacles(draft, entries, lambda: self._known_units(entries)[0]))
        not_compared, tasks = len(compared) - len(self._sets.hashes(compared)), self._sets.tasks(draft.number)
        return Readiness(obstacles, not_compared, tasks if len(tasks) > 1 else {})

    def _draft(self, test_set: str) -> SetVersion:
        return draft_of(self._workspace, test_set)

    def _entry(self, case: CaseOfSet, masks: dict[tuple[str, tuple[int, int]], str]) -> SetEntry:
        """Return the entry of a test case for a set, with its mask scaled to the image. `masks` caches scaled masks."""
        mask = case.mask
        if mask is not None and case.image_size != case.source_size:
            key = (mask, case.image_size)
            if key not in masks:
                masks[key] = self._workspace.images.add(resized(self._workspace.images.load(mask), case.image_size))
            mask = masks[key]
        return SetEntry(case.image, case.source, case.label, "", mask, case.mask_classes, "generated", case.id)

    def _units(self, entries: Sequence[SetEntry], on_count: OnCount | None) -> tuple[Unit, ...]:
        compared = compared_of(self._workspace, entries)
        hashes = hashes_of(self._workspace, compared, on_count)
        twins = self._twins.once(frozenset(compared), lambda: twins_of(self._workspace, compared, on_count))
        return units_of(entries, {sha: known.perceptual for sha, known in hashes.items()}, twins)

    def _known_units(self, entries: Sequence[SetEntry]) -> tuple[tuple[Unit, ...], bool]:
        """Return the groups of images that must stay together, as known now, and True if all pictures were compared."""
        compared = compared_of(self._workspace, entries)
        hashes, twins = self._sets.hashes(compared), self._twins.get(frozenset(compared))
        units = units_of(entries, {sha: known.perceptual for sha, known in hashes.items()}, twins or ())
        return units, twins is not None and len(hashes) == len(compared)

    def not_accepted(self, test_set: str) -> tuple[int, ...]:
        """Return the catalogue ids of the draft's images that are not accepted. Raises UserError without a draft."""
        draft = self._draft(test_set)
        cases, imported = self._sets.not_accepted(draft.number), self._sets.brought_not_accepted(draft.number)
        images = [entry.image for entry in self._sets.entries(draft.number) if entry.test_case in cases]
        return self._workspace.catalogue.ids(ImageFilter(images=(*images, *imported)))

    def _obstacles(
        self,
        draft: SetVersion,
        entries: Sequence[SetEntry],
        units: Callable[[], Sequence[Unit]],
        thresholds: Mapping[str, float] | None = None,
    ) -> Iterator[Obstacle]:
        """Yield the obstacles to a release. One is that the draft equals its parent version: the same images and, if
        given, the same `thresholds`.
        """
        if not entries:
            yield Obstacle("empty", f"“{draft.set_name}” has no images yet: add some first.")
            return
        cases, imported = self._sets.not_accepted(draft.number), self._sets.brought_not_accepted(draft.number)
        yield from _not_accepted(entries, cases, imported)
        parted = any(entry.split for entry in entries)
        if parted:
            loose = [entry for entry in entries if not entry.split]
            if loose:
                many = count_of(len(loose), "image", "is")
                words = f"{many} in no split, and others are ({shown_cases(loose)}): split the draft again."
                yield Obstacle("no split", words, tuple(entry.image for entry in loose))
            yield from _leaks(units(), "Split the draft again by source.")
        if draft.parent:
            parent = version_of(self._workspace, draft.parent)
            added_thresholds = {NEAR_DUPLICATES: float(DISTANCE)} if parted else {}
            same = thresholds is None or dict(parent.thresholds) == {**thresholds, **added_thresholds}
            if same and not difference(self._sets.entries(parent.number), entries):
                yield Obstacle("unchanged", f"Nothing was changed since “{parent.words}”: there is nothing to release.")


def two_tasks(tasks: Mapping[TaskKind, Sequence[str]]) -> str:
    """Return the numbers of images by task, such as "40 images of classification and 2 of segmentation"."""
    (first, images), (second, others) = sorted(tasks.items(), key=lambda item: (-len(item[1]), item[0]))
    return f"{count_of(len(images), 'image')} of {first} and {len(others):,} of {second}"


def _split(
    sent: SplitTestSet, entries: Sequence[SetEntry], units: Sequence[Unit]
) -> tuple[dict[str, Split], SplitResult]:
    """Return the new splits by SHA-256, and their counts. Raises UserError as `split` does."""
    shares: dict[Split, float] = {"train": sent.train, "validation": sent.validation, "test": sent.test}
    if not any(shares.values()):
        raise UserError("Give the share of each split, such as 0.8 for train and 0.2 for test.", field="train")
    if sent.keep:
        for leak in _leaks(units, "Give the images one split, or split all again without “keep”."):
            raise UserError(leak.sentence)
    split_of = proposed(units, shares, sent.seed, sent.keep)
    labels = defaultdict[str, Counter[str]](Counter)
    for entry in entries:
        labels[split_of[entry.image]][entry.label] += 1
    counts = {split: label_counts.total() for split, label_counts in labels.items()}
    return split_of, SplitResult(len(units), counts, labels)


def _not_accepted(
    entries: Sequence[SetEntry], cases: Mapping[int, str], imported: Mapping[str, str]
) -> Iterator[Obstacle]:
    """Yield an obstacle if images are not accepted. `cases` has verdicts by test case id, `imported` by SHA-256."""
    verdicts = [*cases.values(), *imported.values()]
    if not verdicts:
        return
    rejected = sum(verdict == "rejected" for verdict in verdicts)
    parts = [f"{rejected} rejected"] * bool(rejected)
    parts += [f"{len(verdicts) - rejected} that nobody reviewed"] * (rejected < len(verdicts))
    names = [f"test cases {few_names([str(case) for case in cases])}"] * bool(cases)
    names += [f"images {few_names([image[:8] for image in imported])}, which were imported"] * bool(imported)
    yield Obstacle(
        "not accepted",
        f"The draft has images that are not accepted: {' and '.join(parts)} ({'; '.join(names)}). "
        "Accept them, take them out, or release with “unreviewed”.",
        tuple(entry.image for entry in entries if entry.test_case in cases or entry.image in imported),
    )


def _leaks(units: Sequence[Unit], advice: str) -> Iterator[Obstacle]:
    leaks = leaks_in(units)
    if not leaks:
        return
    first = leaks[0]
    shown = [next(entry for entry in first if entry.split == split) for split in splits_of(first)]
    many = count_of(len(leaks), "group")
    yield Obstacle(
        "leak",
        f"{many} of images of one source, or of sources that look alike, would be in two splits: {shown_cases(shown)} "
        f"are in {' and '.join(splits_of(first))}. {advice}",
        tuple(entry.image for unit in leaks for entry in unit),
    )
