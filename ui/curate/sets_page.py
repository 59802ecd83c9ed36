"""HTML of the list of test sets, of one set with its images, and of the difference of two versions. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core.image_filter import Facet, ImageFilter
from core.model_sections import in_bytes
from core.test_sets import SPLITS, SetEntry, SetVersion, Split, TestSet
from core.text_templates import TextTemplates
from core.words import count_of
from services.test_sets.drafts import SplitResult, SplitTestSet, two_tasks
from services.test_sets.exports import FORMAT_TITLES
from services.test_sets.versions import Difference, ImageOfSet, Verified
from services.work_queue import WorkView
from ui.curate import sets_words
from ui.curate.sets_words import PAGE, SPLIT_WORDS, ShownVersion
from ui.evaluate.words import evaluate_address
from ui.explore.parts import image_url, mask_url
from ui.markup import Html, el
from ui.templating import render

MOST_NAMED = 20
"""Maximum number of damaged or missing files that are named. The others are counted."""
WORK_WORDS = {
    "split-test-set": "Dividing the images into splits",
    "release-test-set": "Releasing the draft",
    "verify-test-set": "Reading all files",
}
_SMALL = 200
"""Minimum number of images for which the form proposes `_SHARES`. For fewer, the form proposes `_SMALL_SHARES`."""
_SHARES: Mapping[Split, int] = {"train": 80, "validation": 0, "test": 20}
"""Proposed share of each split of a large set, in per cent."""
_SMALL_SHARES: Mapping[Split, int] = {"train": 0, "validation": 0, "test": 100}
Cell = tuple[int, str, bool]
"""Number of images, the address that shows them, and True if the page shows them now."""
KINDS: Mapping[str, tuple[str, str]] = {
    "added": ("added", "in the new version only"),
    "removed": ("removed", "in the old version only"),
    "relabelled": ("relabelled", "with another label"),
    "remasked": ("other mask", "another mask, or other names of its classes"),
    "resplit": ("re-split", "in another split"),
}
"""Title and meaning of each kind of difference between versions, by its name in `Difference` and the address."""


def set_page(shown: ShownVersion) -> Html:
    """Return the page of a test set, without its frame."""
    version = shown.version
    query: dict[str, str | list[str]] = {"version": version.key, **shown.place.query}
    tasks = shown.readiness.tasks if shown.readiness is not None else {}
    named = version.words if version.words.isprintable() else version.id
    return render(
        "curate/set.html",
        words=sets_words,
        shown=shown,
        evaluate=evaluate_address(version=version.number),
        work_words=WORK_WORDS,
        splits=_splits(shown),
        rows=_rows(shown),
        chips=list(_chips(shown)),
        tasks=two_tasks(tasks) if tasks else "",
        has_splits=any(version.splits),
        few=_SMALL,
        small=version.entries < _SMALL,
        shares=_shares(version),
        set_splits=[("", "Split …"), *((split or "none", SPLIT_WORDS[split]) for split in SPLITS)],
        labels=sorted({count.label for count in shown.counts} - {""}),
        format_titles=FORMAT_TITLES,
        exports=exports_part(shown.exports, version),
        leak_line="python -m services.test_sets "
        f"--workspace {shlex.quote(shown.workspace)} leaks {shlex.quote(named)} FOLDER",
        places=sets_words.pages(sets_words.set_address(shown.held.id), query, shown.place.page, shown.found),
    )


# ---- Counts of images, which are also links that filter them


def _splits(shown: ShownVersion) -> list[Split]:
    return [split for split in SPLITS if any(count.split == split for count in shown.counts)]


def _rows(shown: ShownVersion) -> list[tuple[str | None, list[Cell]]]:
    """Return the rows of image counts by label, each with a cell for each split. If there are several labels, a last
    row with the label None is for all of them. If there are several splits, a last cell is for all of them.
    """
    splits: list[Split | None] = [*_splits(shown)]
    labels: list[str | None] = [*sorted({count.label for count in shown.counts})]
    splits += [None] if len(splits) > 1 else []
    labels += [None] if len(labels) > 1 else []

    def cell(label: str | None, split: Split | None) -> Cell:
        images = sum(
            count.images for count in shown.counts if label in (None, count.label) and split in (None, count.split)
        )
        return images, *shown.choice(_of_values({"class": label, "split": split}))

    return [(label, [cell(label, split) for split in splits]) for label in labels]


def _chips(shown: ShownVersion) -> Iterator[tuple[str, *Cell]]:
    """Yield (text, number of images, address, chosen) for each of several review outcomes, then for the sources."""
    if len({count.review for count in shown.counts}) > 1:
        for review, (words, _) in sets_words.REVIEW_WORDS.items():
            images = sum(count.images for count in shown.counts if count.review == review)
            if words and images:
                yield words, images, *shown.choice(_of_values({"review": review}))
    if sources := sum(count.images for count in shown.counts if count.role == "source"):
        yield "sources", sources, *shown.choice(ImageFilter(role="source"))


def _of_values(values: Mapping[Facet, str | None]) -> ImageFilter:
    return ImageFilter(facets={name: (value,) for name, value in values.items() if value is not None})


# ---- Parts that the page fetches later


def _shares(version: SetVersion) -> Mapping[Split, int]:
    """Return the shares of the splits that the form proposes, in per cent: the present ones, or defaults."""
    counts = {split: version.splits.get(split, 0) for split in _SHARES}
    if total := sum(counts.values()):
        return {split: round(100 * number / total) for split, number in counts.items()}
    return _SMALL_SHARES if version.entries < _SMALL else _SHARES


def exports_part(exports: Sequence[WorkView], version: SetVersion) -> Html:
    """Return the list of a version's exports that are in progress or ready for download."""
    shown = [(view, FORMAT_TITLES[view.kind]) for view in exports]
    return render("curate/set_exports.html", words=sets_words, exports=shown, splits=version.splits, in_bytes=in_bytes)


def verified_part(found: Verified, orphans: Sequence[str]) -> Html:
    """Return the result of checking all files of a version."""
    return render("curate/set_verified.html", found=found, orphans=orphans, most=MOST_NAMED)


def large_window(found: ImageOfSet) -> Html:
    """Return the window with one image, its source and its mask side by side, and all facts about it."""
    entry, known = found.shown.entry, found.known
    pictures = [(image_url(entry.image), found.sizes.get(entry.image), "image")]
    if entry.source != entry.image:
        pictures.append((image_url(entry.source), found.sizes.get(entry.source), "source"))
    if entry.mask is not None:
        pictures.append((mask_url(entry.mask), found.sizes.get(entry.mask), "mask"))
    facts = [("label", entry.label or "none"), ("split", SPLIT_WORDS[entry.split])]
    if known is not None:
        edits = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in known.edits)
        facts += [("edits", edits), ("test case", str(entry.test_case))]
    facts.append(("classes", ", ".join(entry.mask_classes[number] for number in sorted(entry.mask_classes))))
    facts += [(words, str(entry.origin.get(name, ""))) for name, words in (("import", "import"), ("name", "called"))]
    caption = known.new_caption if known is not None else str(entry.origin.get("new_caption", ""))
    return render(
        "curate/set_image.html", words=sets_words, found=found, pictures=pictures, facts=facts, caption=caption
    )


def split_words(found: SplitResult, preview: SplitTestSet | None = None) -> str:
    """Return the result of a split as text. With the command `preview`, the text says what would happen."""
    shares = {name: getattr(preview, name) for name in ("train", "validation", "test")} if preview else {}
    return _TEXTS.paragraph(
        "split.txt",
        found=found,
        asked=preview,
        named=", ".join(f"{SPLIT_WORDS[name]} {found.splits[name]:,}" for name in SPLITS if name in found.splits),
        total=round(100 * sum(shares.values()), 1),
        empty=[name for name, share in shares.items() if share and not found.splits.get(name)],
    )


def list_page(sets: Sequence[TestSet], labels: Mapping[str, int]) -> Html:
    """Return the page of all test sets, latest first. `labels` is the number of labels by set id."""
    return render("curate/sets.html", words=sets_words, sets=sets, labels=labels, shown_version=shown_version)


def shown_version(test_set: TestSet) -> SetVersion:
    """Return the version of a set that its page shows first: the draft, or else the latest version."""
    version = test_set.draft or test_set.latest
    assert version is not None  # a set is deleted with its last version
    return version


def difference_page(
    old: SetVersion, new: SetVersion, found: Difference, kind: str, at: int, sets: Sequence[TestSet]
) -> Html:
    """Return the page that compares two versions. `kind` is a key of KINDS; any other text means the first kind with a
    difference. `at` is the number of the page, from 1.
    """
    changes: dict[str, Sequence[tuple[SetEntry, SetEntry]]] = {
        "added": [(entry, entry) for entry in found.added],
        "removed": [(entry, entry) for entry in found.removed],
        "relabelled": found.relabelled,
        "remasked": found.remasked,
        "resplit": found.resplit,
    }
    if kind not in changes:
        kind = next((name for name, entries in changes.items() if entries), "added")
    query = {"old": old.reference, "new": new.reference}
    address = sets_words.set_address(new.test_set, "/compare")
    return render(
        "curate/set_difference.html",
        words=sets_words,
        old=old,
        new=new,
        found=found,
        kind=kind,
        kinds=KINDS,
        sets=sets,
        changes=changes,
        title=el("h1", "What is different"),
        address=address,
        addresses={name: sets_words.set_address(new.test_set, "/compare", **query, kind=name) for name in KINDS},
        other_way=sets_words.set_address(old.test_set, "/compare", old=query["new"], new=query["old"]),
        shown=changes[kind][(at - 1) * PAGE : at * PAGE],
        places=sets_words.pages(address, {**query, "kind": kind}, at, len(changes[kind])),
    )


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), count_of=count_of)
