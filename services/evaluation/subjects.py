"""The images of a subject (an evaluation's images) as columns: originals, test cases and reconstructions, with label,
source, split and mask. A reconstruction is a source redrawn with an unchanged caption, and never counts as a test
case. `Recipe.control` of a recipe names the other recipe that draws its reconstructions. An evaluation takes
reconstructions of its sources from the whole workspace. Some test case has their profile, method and `STARTS` key.

A rejected image counts in no figure of any subject: a fault on it is not the model's. A released version of a test set
keeps its rejected images. The figures of the version exclude them, and a note says how many they are.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from core.errors import UserError
from core.figures import Flags, Numbers
from core.image_filter import Facet, ImageFilter
from core.types import TaskKind
from core.words import count_of, few_names
from pipeline.recipes import control_of, control_recipes, known_recipes
from services.evaluation.texts import TEXTS
from services.evaluation.types import WITHOUT_SPLIT, Subject, SubjectView
from storage.curation.case_columns import REJECTED, CaseTable, SetRow, Texts, texts_of
from storage.workspace import Workspace

H = TypeVar("H", bound=Hashable)
MaskOf = tuple[str, str]
"""SHA-256 of a mask, and the names of its class numbers in JSON; ("", "{}") for none."""
NO_MASK: MaskOf = ("", "{}")
LONGEST_WORDS = 120
"""Maximum number of characters of a filter in a title."""


@dataclass(frozen=True, eq=False)
class Masks:
    """The masks of some images, in the order of the images."""

    shas: list[str] = field(default_factory=list)
    """SHA-256 of all masks in use. A mask occurs twice if its classes are named in two ways."""
    classes: Texts = field(default_factory=lambda: texts_of(()))
    """Names of the class numbers of each mask, in JSON."""
    numbers: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """Index of the mask of each image; -1 for none."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> MaskOf:
        number = int(self.numbers[place])
        return (self.shas[number], self.classes.of([number])[0]) if number >= 0 else NO_MASK

    def __iter__(self) -> Iterator[MaskOf]:
        known = [*zip(self.shas, self.classes.of(slice(None)), strict=True), NO_MASK]
        return (known[number] for number in self.numbers.tolist())

    def of(self, places: Numbers) -> Masks:
        """Return the masks of the images at these positions."""
        return replace(self, numbers=self.numbers[places])

    @property
    def there(self) -> Flags:
        """Return True for each image that has a mask."""
        return self.numbers >= 0

    @property
    def names(self) -> Texts:
        """Return a text for each image: JSON that maps its mask's class numbers to names; "" if it has no mask."""
        return Texts(self.classes.values, np.append(self.classes.numbers, -1)[self.numbers])


def masks_of(masks: Sequence[MaskOf]) -> Masks:
    """Return masks as columns. `masks` has one for each image: `NO_MASK` if none exists."""
    number = {NO_MASK: -1}
    numbers = [number.setdefault(mask if mask[0] else NO_MASK, len(number) - 1) for mask in masks]
    known = list(number)[1:]
    return Masks([sha for sha, _ in known], texts_of([names for _, names in known]), np.array(numbers, np.int64))


@dataclass(frozen=True, eq=False)
class Images:
    """Some images of a subject, as columns."""

    row: Numbers
    """Row of each image in `Cases.table`; -1 for an original."""
    source: Numbers
    """Zero-based number of each image's source."""
    label: Numbers
    """Index of each image's label in `Cases.labels`; -1 for none."""
    number: Numbers
    """Index of each image in `CaseTable.images.values`. For originals, the index in `CaseTable.sources.values`."""
    shas: list[str]
    masks: Masks
    """Masks of the images; empty for a classification."""

    def __len__(self) -> int:
        return len(self.source)


STARTS: Mapping[str, str] = {"noise": "from noise", "inverted": "from the inverted source"}
"""Words for the start of a drawing: random noise, or the inverted source."""


@dataclass(frozen=True)
class Method:
    """A recipe that makes test cases. If its test cases have several starts (keys of `STARTS`), `start` names one."""

    recipe: str
    start: str = ""

    def of(self, image_filter: ImageFilter) -> ImageFilter:
        """Return `image_filter`, narrowed to images that this method made."""
        own: dict[Facet, tuple[str, ...]] = {**image_filter.facets, "recipe": (self.recipe,)}
        if self.start:
            own["start"] = (self.start,)
        return replace(image_filter, facets=own)

    @property
    def key(self) -> str:
        """The method as people and scripts write it, such as "lance" or "dillema:inverted"."""
        return f"{self.recipe}:{self.start}" if self.start else self.recipe

    @property
    def title(self) -> str:
        """Return the name for pages, such as "DILLEMA from noise"."""
        name = next((one.title for one in known_recipes() if one.name == self.recipe), self.recipe or "no recipe")
        return f"{name} {STARTS[self.start]}" if self.start else name


def methods_of(table: CaseTable, rows: Numbers) -> tuple[Numbers, tuple[Method, ...]]:
    """Return the index of each row's method, and the methods to which the indexes refer, sorted by recipe."""
    starts = [*table.starts.values, ""]  # -1 is the last
    pairs = (table.recipes.numbers[rows] + 1) * len(starts) + table.starts.numbers[rows] % len(starts)
    used, pair = np.unique(pairs, return_inverse=True)
    named = [(["", *table.recipes.values][one // len(starts)], starts[one % len(starts)]) for one in used.tolist()]
    several = Counter(recipe for recipe, _ in named)
    methods = [Method(recipe, start if several[recipe] > 1 else "") for recipe, start in named]
    order = {recipe.name: place for place, recipe in enumerate(known_recipes())}
    ordered = sorted(methods, key=lambda one: (order.get(one.recipe, len(order)), one.recipe, one.start != "noise"))
    return np.array([ordered.index(one) for one in methods], np.int64)[pair], tuple(ordered)


@dataclass(frozen=True, eq=False)
class Cases:
    """All images of a subject."""

    view: SubjectView
    table: CaseTable
    originals: Images
    """One original for each source, in the order of their numbers."""
    generated: Images
    controls: Images
    labels: tuple[str, ...]
    """Sorted labels of a classification; for a segmentation, the classes of its masks in the order of their numbers."""
    split: tuple[str, ...]
    """Split of each source; "" for none."""
    left_out: tuple[str, ...]
    """Sentences on images that are not counted, and on those that a search chose."""
    lacking: Numbers
    """Positions of test cases to draw reconstructions for: one for each source that has none in a control set."""
    way: Numbers
    """Number of the control set: reconstructions by the same recipe and with the same start; -1 if there are none."""
    control_way: Numbers
    """Number of each reconstruction's control set. Test cases with this number in `way` are compared with the set."""
    rejected: Numbers
    """Rows in `table` of the rejected test cases, which count in no figure of an evaluation."""
    without_control: str
    """A sentence on test cases whose recipes cannot draw a control set (reconstructions); "" for none."""

    @cached_property
    def pictures(self) -> tuple[str, ...]:
        """Return the SHA-256 of all images, each once, originals first."""
        return tuple(dict.fromkeys([*self.originals.shas, *self.generated.shas, *self.controls.shas]))

    @cached_property
    def digest(self) -> str:
        """Return a digest that changes with the images."""
        return hashlib.sha256("\n".join(sorted(self.pictures)).encode()).hexdigest()[:16]

    @property
    def methods(self) -> tuple[Method, ...]:
        """Return the methods that made the test cases."""
        return methods_of(self.table, self.generated.row)[1]

    @property
    def mixed(self) -> bool:
        """Return True if the test cases are compared with several control sets, or some with none."""
        return len(self.way) > 0 and bool((self.way != self.way[0]).any())

    @cached_property
    def case_of_edit(self) -> Numbers:
        """Return for each edit of the table the position of its test case; -1 if it belongs to another image."""
        return _places_of_edits(self.table, self.generated.row)

    @cached_property
    def of_edit_type(self) -> Mapping[str, Flags]:
        """Map each edit type, sorted, to flags of the test cases with an edit of that type."""
        edits, case, of_type = self.table.edits, self.case_of_edit, dict[str, Flags]()
        for number, name in sorted(enumerate(edits.types.values), key=lambda one: one[1]):
            places = case[(edits.types.numbers == number) & (case >= 0)]
            if name and len(places):
                of_type[name] = np.zeros(len(self.generated), bool)
                of_type[name][places] = True
        return of_type

    def require(self) -> None:
        """Raise UserError if the images cannot be evaluated."""
        if self.view.problem:
            raise UserError(self.view.problem, field="subject")

    @property
    def task(self) -> TaskKind:
        """Return the task of the images; classification if there is no image."""
        return self.view.kind or "classification"

    @property
    def all_images(self) -> tuple[Images, Images, Images]:
        return self.originals, self.generated, self.controls


def numbered(values: Iterable[H]) -> tuple[list[H], Numbers]:
    """Return the distinct values in the order in which they appear, and the index of each value among them."""
    number: dict[H, int] = {}
    numbers = [number.setdefault(one, len(number)) for one in values]
    return list(number), np.array(numbers, np.int64)


def edits_by_row(table: CaseTable, rows: Numbers) -> list[list[tuple[str, str, str]]]:
    """Return type, keyword and alternative of each edit of the images in these rows of a table."""
    place, edits = _places_of_edits(table, rows), table.edits
    inside, of_rows = place >= 0, [list[tuple[str, str, str]]() for _ in rows]
    columns = edits.types.of(inside), edits.keywords.of(inside), edits.alternatives.of(inside)
    for at, *edit in zip(place[inside].tolist(), *columns, strict=True):
        of_rows[at].append((edit[0], edit[1], edit[2]))
    return of_rows


def _places_of_edits(table: CaseTable, rows: Numbers) -> Numbers:
    """Return for each edit of a table the index of its image in `rows`; -1 if `rows` lacks the image."""
    place = np.full(len(table), -1)
    place[rows] = np.arange(len(rows))
    return place[table.edits.row]


def read_cases(workspace: Workspace, subject: Subject) -> Cases:
    """Return the current images of a subject. Raises UserError if the version is gone."""
    return _Reading(workspace, subject).cases()


class _Reading:
    """Makes the `Cases` of one subject."""

    def __init__(self, workspace: Workspace, subject: Subject) -> None:
        columns, self._subject = workspace.case_columns, subject
        words = textwrap.shorten(subject.filter.words, LONGEST_WORDS, placeholder=" …")
        rows: dict[int, SetRow] = {}
        self._originals: dict[str, SetRow] = {}
        if subject.version is not None:
            self._title = workspace.test_sets.version(subject.version).words + (f" ({words})" if words else "")
            set_rows = columns.set_rows(subject.version)
            if words:
                chosen = {*workspace.test_sets.chosen(subject.version, subject.filter)}
                set_rows = [row for row in set_rows if row.is_source or row.image in chosen]
            rows = {row.entry: row for row in set_rows if row.entry and not row.is_source}
            self._originals = {row.image: row for row in set_rows if row.is_source}
            entries = np.array(sorted(rows), np.int64)
        else:
            entries = columns.entries(subject.filter)
            self._title = f"Images of a filter ({words})" if words else "All images"
        table = self._table = columns.table()  # after the entries, so that it has all of them
        self._chosen, self._aimed = table.rows_of(entries), columns.aimed_cases()
        names = [recipe.name for recipe in control_recipes()]
        own = np.array([names.index(name) if name in names else -1 for name in table.recipes.values] + [-1])
        controls = [control_of(name) for name in (*table.recipes.values, "")]
        ways = np.array([-1 if recipe is None else names.index(recipe.name) for recipe in controls])
        self._is_control = own[table.recipes.numbers] >= 0
        self._control = np.where(self._is_control, own[table.recipes.numbers], ways[table.recipes.numbers])
        """For each row, the number of the recipe that draws its control set; for a reconstruction, its own recipe."""
        starts = len(table.starts.values) + 1
        self._way = np.where(self._control >= 0, self._control * starts + table.starts.numbers + 1, -1)
        """Number of the control set of each row; -1 for none. All reconstructions in a control set have the same recipe
        and the same start: noise or the inverted source. A test case has the number of the set to compare with."""
        self._control_methods = [one.method for one in control_recipes() for _ in range(starts)]
        self._left_out = {"unlabelled": 0}
        """Number of images for each reason to leave images out. Reasons are variables of `templates/left-out.txt`."""
        self._labels, self._splits = table.labels, table.splits
        self._masks, self._mask_classes = table.masks, table.mask_classes
        if rows:  # labels, splits and masks of the version come first
            own = table.rows_of(np.array(list(rows), np.int64))
            version_rows = list(rows.values())
            self._labels = _with(table.labels, own, [one.label for one in version_rows])
            self._splits = _with(table.splits, own, [one.split for one in version_rows])
            placed = zip(own.tolist(), version_rows, strict=True)
            self._masks, self._mask_classes = _with_masks(table.masks, table.mask_classes, placed)

    def cases(self) -> Cases:
        table, chosen = self._table, self._chosen
        cases = chosen[~self._is_control[chosen]]
        controls_only = len(cases) == 0 and len(chosen) > 0
        with_source = table.sources.numbers[cases] >= 0
        self._left_out["sourceless"] = int((~with_source).sum())
        cases = cases[with_source]
        rejected = table.verdict[cases] == REJECTED
        cases, rejected = cases[~rejected], cases[rejected]
        kinds = table.segmentation[cases]
        problem = ""
        if kinds.any() and not kinds.all():
            problem = (
                f"{int((~kinds).sum()):,} of these images are of a classification and {int(kinds.sum()):,} of a "
                "segmentation: choose those of one kind."
            )
        segments = bool(kinds.any())
        cases = cases[kinds == segments]
        rejected = rejected[(table.segmentation[rejected] == segments) | (len(cases) == 0)]
        names = [*self._splits.values, WITHOUT_SPLIT]
        numbers = self._splits.numbers[cases]
        counts = Counter(names[number] for number in numbers.tolist())  # -1 is the last
        split_names = tuple(sorted(counts))
        if self._subject.split:
            number = names.index(self._subject.split) if self._subject.split in split_names else len(names)
            split_number = -1 if number == len(names) - 1 else number
            cases, rejected = (rows[self._splits.numbers[rows] == split_number] for rows in (cases, rejected))
            if not len(cases) and not problem:
                problem = f"None of its sources is of the split “{self._subject.split}”: choose another one."
        elif len(split_names) > 1 and not problem:
            splits = ", ".join(f"{name} ({count_of(counts[name], 'test case')})" for name in split_names)
            problem = f"Its sources are of several splits, which are never mixed: {splits}. Choose one of them."
        if not problem and not len(cases):
            problem = "It has only reconstructions and no test case." if controls_only else "It has no test case."
            if len(rejected):
                problem = "It has rejected test cases alone, which count in no figure."
        self._left_out["rejected"] = len(rejected)
        return self._built(cases, rejected, segments, split_names, problem)

    def _built(self, rows: Numbers, rejected: Numbers, segments: bool, there: tuple[str, ...], problem: str) -> Cases:
        table = self._table
        known, first, source = np.unique(table.sources.numbers[rows], return_index=True, return_inverse=True)
        of_source = np.full(len(table.sources.values) + 1, -1)
        of_source[known] = np.arange(len(known))
        reconstructed = self._reconstructed(rows, of_source, segments)
        drawn_alike = np.isin(self._drawn_by(reconstructed), np.unique(self._drawn_by(rows)))
        controls = self._controls(reconstructed, drawn_alike)
        control_source = of_source[table.sources.numbers[controls]]
        source_rows = rows[first]
        shas = [table.sources.values[number] for number in known.tolist()]
        kind: TaskKind | None = None if not len(rows) else "segmentation" if segments else "classification"
        masks = Masks(), Masks(), Masks()
        own_label, label = np.full(len(rows), -1), np.full(len(shas), -1)
        if segments:
            masks = self._masks_of(source_rows, rows, controls, shas)
            names = _mask_names(masks[0].classes)
            if not problem and not masks[0].there.any():
                problem = "None of its sources has a mask: a segmenter cannot be measured without one."
        else:
            names, own_label, label = self._labelled(rows, source_rows, shas)
            if not problem and not names:
                problem = "None of its images has a label: a classifier cannot be measured without one."
            self._left_out["unlabelled"] = int((own_label < 0).sum())
        originals = Images(np.full(len(shas), -1), np.arange(len(shas)), label, known, shas, masks[0])
        generated = Images(rows, source, own_label, table.images.numbers[rows], table.images.of(rows), masks[1])
        numbers = table.images.numbers[controls]
        drawn = Images(controls, control_source, label[control_source], numbers, table.images.of(controls), masks[2])
        lacking = self._lacking(rows, source, of_source, reconstructed[drawn_alike])
        way = self._way[rows]
        view = SubjectView(
            *(self._subject, self._title, kind, len(shas), len(rows), len(controls), there, problem),
            can_make_control=len(lacking) > 0,
        )
        split = tuple(Texts(self._splits.values, self._splits.numbers[source_rows]).of(slice(None)))
        self._left_out["aimed"] = int(np.isin(table.test_case[rows], self._aimed).sum())
        without = self._without_control(rows[way < 0])
        also = without if (way >= 0).any() else ""
        version, counts = self._subject.version, self._left_out
        left_out = TEXTS.paragraphs("left-out.txt", without_control=also, version=version, **counts)
        return Cases(
            *(view, table, originals, generated, drawn, names, split, left_out, lacking),
            *(way, self._way[controls], rejected, without),
        )

    def _labelled(self, rows: Numbers, first: Numbers, shas: list[str]) -> tuple[tuple[str, ...], Numbers, Numbers]:
        """Return the label names, and the label index of each image and each source. A source has its own label, else
        the label of its task, else the label of one of its images.
        """
        labels, tasks = self._labels, self._table.task_labels
        own = [self._originals[sha].label if sha in self._originals else "" for sha in shas]
        choices = zip(own, tasks.of(first), labels.of(first), strict=True)
        of_sources = [next(filter(None, each), "") for each in choices]
        used = {labels.values[number] for number in np.unique(labels.numbers[rows]).tolist() if number >= 0}
        names = tuple(sorted({*used, *of_sources} - {""}))
        number = {name: place for place, name in enumerate(names)}
        of_own = np.array([*(number.get(name, -1) for name in labels.values), -1], np.int64)
        label = np.array([number.get(name, -1) for name in of_sources], np.int64)
        return names, of_own[labels.numbers[rows]], label

    def _controls(self, reconstructed: Numbers, drawn_alike: Flags) -> Numbers:
        rejected = self._table.verdict[reconstructed] == REJECTED
        self._left_out["rejected_controls"] = int(rejected.sum())
        self._left_out["other_controls"] = int((~rejected & ~drawn_alike).sum())
        return reconstructed[~rejected & drawn_alike]

    def _lacking(self, rows: Numbers, source: Numbers, of_source: Numbers, reconstructed: Numbers) -> Numbers:
        """Return a test case for each source that a control set lacks. A rejected reconstruction counts as present."""
        table, ways = self._table, len(self._control_methods)
        number = {name: place for place, name in enumerate(table.methods.values)}
        drawing = np.array([*(number.get(name, -2) for name in self._control_methods), -2])
        by_method = table.methods.numbers[rows] == drawing[self._way[rows]]
        place: Numbers = np.flatnonzero((table.test_case[rows] >= 0) & table.there[rows] & by_method)
        known, first = np.unique(source[place] * ways + self._way[rows[place]], return_index=True)
        covered = of_source[table.sources.numbers[reconstructed]] * ways + self._way[reconstructed]
        return place[first[~np.isin(known, covered)]]

    def _reconstructed(self, rows: Numbers, of_source: Numbers, segments: bool) -> Numbers:
        """Return the reconstructions of the test cases' sources, including rejected ones. Their recipes are those that
        draw the test cases' control sets. Their profile, method and start are not checked here.
        """
        table = self._table
        fits = self._is_control & table.there & (table.segmentation == segments)
        return np.flatnonzero(
            fits & (of_source[table.sources.numbers] >= 0) & np.isin(self._control, self._control[rows])
        )

    def _drawn_by(self, rows: Numbers) -> Numbers:
        table = self._table
        drawn = table.profiles.numbers[rows] * len(table.methods.values) + table.methods.numbers[rows]
        return drawn * (len(self._control_methods) + 1) + self._way[rows]

    def _without_control(self, rows: Numbers) -> str:
        if not len(rows):
            return ""
        titles = {recipe.name: recipe.title for recipe in known_recipes()}
        names = few_names([f"“{titles.get(name, name)}”" for name in dict.fromkeys(self._table.recipes.of(rows))])
        return TEXTS.paragraph("without-control.txt", cases=len(rows), recipes=names)

    def _masks_of(
        self, first: Numbers, rows: Numbers, controls: Numbers, shas: Sequence[str]
    ) -> tuple[Masks, Masks, Masks]:
        """Return masks of sources, test cases, reconstructions. An unmasked source gets its first test case's mask."""
        places = np.concatenate([first, rows, controls])
        masks, names = (Texts(one.values, one.numbers[places]) for one in (self._masks, self._mask_classes))
        known_sources = ((place, self._originals[sha]) for place, sha in enumerate(shas) if sha in self._originals)
        masks, names = _with_masks(masks, names, known_sources)
        pairs = np.where(masks.numbers < 0, -1, masks.numbers * (len(names.values) + 1) + names.numbers + 1)
        used_pairs, row, number = np.unique(pairs, return_index=True, return_inverse=True)
        none = int(np.count_nonzero(used_pairs < 0))  # none comes first, if there is one
        known, classes = masks.of(row[none:]), Texts(names.values, names.numbers[row[none:]])
        ends = np.cumsum([len(first), len(rows)])
        before, generated, drawn = (Masks(known, classes, part) for part in np.split(number - none, ends))
        return before, generated, drawn


def _with(column: Texts, rows: Numbers, texts: Sequence[str]) -> Texts:
    known: dict[str, int] = {"": -1} | {text: place for place, text in enumerate(column.values)}
    numbers = column.numbers.copy()
    numbers[rows] = [known.setdefault(text, len(known) - 1) for text in texts]
    return Texts(list(known)[1:], numbers)


def _with_masks(masks: Texts, classes: Texts, rows: Iterable[tuple[int, SetRow]]) -> tuple[Texts, Texts]:
    """Return the columns `masks` and `classes` with the masks and class names of `rows` put in at their positions."""
    masked = [(at, one) for at, one in rows if one.mask]
    places = np.array([at for at, _ in masked], np.int64)
    names = [one.mask_classes for _, one in masked]
    return _with(masks, places, [one.mask for _, one in masked]), _with(classes, places, names)


def _mask_names(classes: Texts) -> tuple[str, ...]:
    """Return the class names of masks, in the order of their numbers. A name with two numbers occurs once."""
    number_of: dict[str, int] = {}
    for text in sorted(classes.values[number] for number in np.unique(classes.numbers).tolist()):
        for number, name in json.loads(text).items():
            number_of[name] = min(number_of.get(name, int(number)), int(number))
    return tuple(sorted(number_of, key=lambda name: (number_of[name], name)))
