"""Queries on test sets: list them, show the images of a version, compare two versions, and verify a version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from core.csv_tables import cells, facts
from core.errors import UserError
from core.image_filter import ImageFilter
from core.images import file_hash
from core.progress import OnCount
from core.test_sets import SetEntry, SetVersion, ShownEntry, TestSet, version_id
from core.words import few_names
from services.commands import Command, Missing, does
from services.edit_conflicts import After
from services.queries import MOST_LISTED, Query
from services.test_sets.hashes import images_here
from storage.test_sets.facts import CaseFacts
from storage.workspace import Workspace

DRAFT = "draft"
LONGEST_REFERENCE = 260
"""Maximum number of characters of a reference to a version."""
_ID = re.compile(r"[0-9a-f]{8,64}")
Reference = Annotated[
    str,
    Field(
        max_length=LONGEST_REFERENCE,
        description="A version: its id or the first 8 digits of it, SET@2, SET@draft, or SET for the latest",
    ),
]
_SET = "The test set: its id or its name"


class SetCommand(Command):
    """A command on a test set."""

    test_set: str = Field(max_length=LONGEST_REFERENCE, description=_SET)


@dataclass(frozen=True)
class Difference:
    """Differences between two versions. An image that both versions have may be in several fields."""

    added: tuple[SetEntry, ...]
    removed: tuple[SetEntry, ...]
    relabelled: tuple[tuple[SetEntry, SetEntry], ...]
    """Old and new entry of each image with another label."""
    remasked: tuple[tuple[SetEntry, SetEntry], ...]
    """Old and new entry of each image with another mask, or other names of the mask's classes."""
    resplit: tuple[tuple[SetEntry, SetEntry], ...]

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.relabelled, self.remasked, self.resplit))


@dataclass(frozen=True)
class Verified:
    """Result of verifying a version."""

    version: SetVersion
    id_holds: bool
    """True if the id is the hash of the version's content. Always True for a draft, which has no id."""
    files: int
    """Number of files of images, masks and sources that were checked."""
    missing: tuple[str, ...]
    """SHA-256s of missing files."""
    damaged: tuple[str, ...]
    """SHA-256s whose files have another content, or cannot be read."""

    @property
    def whole(self) -> bool:
        """Return True if the id is right and no file is missing or damaged."""
        return self.id_holds and not self.missing and not self.damaged


@dataclass(frozen=True)
class ImageOfSet:
    """An image of a version, with the facts that a page shows."""

    shown: ShownEntry
    known: CaseFacts | None
    """Facts on how the test case was made and judged; None for an image that is no test case."""
    sizes: Mapping[str, tuple[int, int]]
    """Width and height of the image, its source and its mask, by SHA-256."""


class Versions:
    """The queries on versions of test sets. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @does("list-test-sets", Query)
    def list_test_sets(self) -> dict[str, Any]:
        """List the test sets, each with its versions, the latest first."""
        rows = [
            facts(one, "name created", test_set=one.id, versions=[version_facts(version) for version in one.versions])
            for one in self._workspace.test_sets.all()
        ]
        return {"test_sets": rows}

    @does("compare-test-sets", Query)
    def compare_test_sets(self, old: Reference, new: Reference) -> dict[str, Any]:
        """Compare two versions: images that were added or removed, or have another label, mask or split."""
        found = self.compare(old, new)
        single, pairs = cells(found, "added removed"), cells(found, "relabelled remasked resplit")
        return {
            "counts": {name: len(entries) for name, entries in (single | pairs).items()},
            **{name: [entry_facts(entry) for entry in entries] for name, entries in single.items()},
            **{
                name: [{"was": entry_facts(was), "now": entry_facts(now)} for was, now in entries]
                for name, entries in pairs.items()
            },
        }

    @does("show-test-set", Query)
    def show(
        self,
        version: Reference,
        after: After = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="Maximum number of images in the page")] = 50,
    ) -> dict[str, Any]:
        """Show a version of a test set, and list its images. Raises Missing for an unknown version."""
        shown_version = version_of(self._workspace, version)
        page = self._workspace.test_sets.page(shown_version.number, after, limit + 1)
        shown = page[:limit]
        return {
            **version_facts(shown_version),
            "images": [{**entry_facts(entry), "origin": dict(entry.origin)} for _, entry in shown],
            "next": shown[-1][0] if len(page) > len(shown) else 0,
        }

    @does("verify-test-set", Query)
    def verify_named(self, version: Reference) -> dict[str, Any]:
        """Check that the id of a version is the hash of its content, and that all its files exist and are intact. Also
        list image files that nothing uses (“orphans”); they do no harm. Raises Missing for an unknown version.
        """
        found, orphans = self.verify(version_of(self._workspace, version)), self._workspace.images.orphans()
        names = {"version": found.version.id or found.version.reference, "orphans": list(orphans[:MOST_LISTED])}
        return facts(found, "whole id_holds files missing damaged", **names)

    def image(self, reference: str, image: str) -> ImageOfSet:
        """Return one image of a version. Raises Missing for an unknown version, or an image not in it."""
        version, sets = version_of(self._workspace, reference), self._workspace.test_sets
        for shown in sets.shown(version.number, ImageFilter(images=(image,)), 0, 1):
            entry = shown.entry
            known = sets.facts([entry.test_case])[entry.test_case] if entry.test_case is not None else None
            return ImageOfSet(shown, known, self._workspace.images.sizes([entry.image, entry.source, entry.mask]))
        raise Missing("This image is not in this version. The page may be out of date: reload it.", field="image")

    def compare(self, old: str, new: str) -> Difference:
        """Return the differences between the versions with these references. Raises Missing for an unknown version."""
        return self.difference(*(version_of(self._workspace, reference) for reference in (old, new)))

    def difference(self, old: SetVersion, new: SetVersion) -> Difference:
        """Return the differences between an old and a new version."""
        sets = self._workspace.test_sets
        return difference(sets.entries(old.number), sets.entries(new.number))

    def verify(self, version: SetVersion, on_count: OnCount | None = None) -> Verified:
        """Read every file of a version and compare its content with its SHA-256. Also check the version's id."""
        entries = self._workspace.test_sets.entries(version.number)
        expected_id = version_id(version.set_name, version.parent, version.note, version.thresholds, entries)
        shas = sorted(
            {sha for entry in entries for sha in (entry.image, entry.mask) if sha is not None}
            | set(images_here(self._workspace, (entry.source for entry in entries)))
        )
        missing, damaged = [], []
        for number, sha in enumerate(shas, start=1):
            try:
                if file_hash(self._workspace.images.path(sha)) != sha:
                    damaged.append(sha)
            except UserError:
                missing.append(sha)
            except OSError:  # such as a disk that fails to read the file
                damaged.append(sha)
            if on_count is not None:
                on_count(number, len(shas))
        holds = version.is_draft or expected_id == version.id
        return Verified(version, holds, len(shas), tuple(missing), tuple(damaged))


def set_of(workspace: Workspace, reference: str) -> TestSet:
    """Return the test set with this id or name. Raises Missing if none exists."""
    sets = workspace.test_sets
    set_ids = {name: set_id for set_id, name in sets.names().items()}
    title = " ".join(reference.split())
    if title in set_ids.values():
        return sets.get(title)
    if title not in set_ids:
        raise Missing(f"There is no test set “{title[:80]}”; take one from the list.", field="test_set")
    return sets.get(set_ids[title])


def version_of(workspace: Workspace, reference: str) -> SetVersion:
    """Return the version that a reference names (see `Reference`). Raises Missing if it names none or several."""
    name, at, which = reference.strip().rpartition("@")
    named = reference.strip() in workspace.test_sets.names().values()  # the name of a set may look like a reference
    if at and not named and (which == DRAFT or which.isdecimal()):
        return _of_set(set_of(workspace, name), which)
    if _ID.fullmatch(reference.strip()) and not named:
        matching = workspace.test_sets.by_id(reference.strip())
        if len(matching) > 1:
            raise Missing(f"{len(matching)} ids begin with {reference[:80]}: give more digits.", field="version")
        if matching:
            return matching[0]
    test_set = set_of(workspace, reference)
    latest = test_set.latest or test_set.draft
    assert latest is not None  # a set is removed with its last version
    return latest


def draft_of(workspace: Workspace, reference: str) -> SetVersion:
    """Return the draft of a test set. Raises Missing for an unknown set, and UserError without a draft."""
    test_set = set_of(workspace, reference)
    if test_set.draft is None:
        raise UserError(f"“{test_set.name}” has no draft: begin a draft of the next version.", field="test_set")
    return test_set.draft


def _of_set(test_set: TestSet, which: str) -> SetVersion:
    for version in test_set.versions:
        if which == version.key:
            return version
    if which == DRAFT:
        raise Missing(f"“{test_set.name}” has no draft: begin a draft of the next version.", field="version")
    raise Missing(f"“{test_set.name}” has no released version {which[:20]}.", field="version")


def difference(old: Iterable[SetEntry], new: Iterable[SetEntry]) -> Difference:
    """Return the differences between old and new entries, sorted by the images' SHA-256."""
    before, after = ({entry.image: entry for entry in entries} for entries in (old, new))
    both = [(before[image], after[image]) for image in sorted(before.keys() & after.keys())]
    return Difference(
        added=tuple(after[image] for image in sorted(after.keys() - before.keys())),
        removed=tuple(before[image] for image in sorted(before.keys() - after.keys())),
        relabelled=tuple((was, now) for was, now in both if was.label != now.label),
        remasked=tuple((was, now) for was, now in both if (was.mask, was.mask_classes) != (now.mask, now.mask_classes)),
        resplit=tuple((was, now) for was, now in both if was.split != now.split),
    )


def version_facts(version: SetVersion) -> dict[str, Any]:
    """Return a version as plain data, without its images."""
    return {
        **facts(version, "test_set place parent note thresholds created"),
        "name": version.set_name,
        "version": version.id or version.reference,
        "draft": version.is_draft,
        "released": version.released.isoformat() if version.released is not None else "",
        "count": version.entries,
        "splits": {split or "none": number for split, number in version.splits.items()},
    }


def entry_facts(entry: SetEntry) -> dict[str, Any]:
    """Return an image of a version as plain data, without its origin."""
    return facts(entry, "image source label split mask_classes role", mask=entry.mask or "", case=entry.test_case)


def shown_cases(entries: Sequence[SetEntry]) -> str:
    """Return the names of a few images for a sentence: the id of the test case, or the first digits of the SHA-256."""
    return few_names([str(entry.test_case) if entry.test_case is not None else entry.image[:8] for entry in entries])
