"""What the gallery asks: pages of a view, how many fit, and all that is known of one image."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.catalogue import Bar, CatalogueEntry, CataloguePage, Count, CoverageGrid, ScoreCounts
from core.image_filter import Facet, ImageFilter
from core.images import read_image
from core.latest import Latest
from core.stored_runs import StoredTestCase, StoredValue
from core.test_sets import SetVersion
from core.types import StageName
from core.validity_score import ScoreRun
from pipeline.recipes import recipe_of
from services.curation.coverage import CoverageTable, coverage_table
from services.curation.map import ImageMap
from services.curation.meaning import Meaning, Picture
from services.curation.near_duplicates import NearDuplicates
from services.curation.views import View
from storage.curation import entry_sets
from storage.curation.decisions import Said
from storage.curation.entry_sets import Bits
from storage.curation.selection import Held
from storage.test_sets.facts import CaseFacts
from storage.workspace import Workspace

PAGE = 60
"""Images in a page, where a page of the gallery says nothing else."""
MOST_IN_PAGE = 200
MOST_HELD = 64
"""Views that are held at a time; of a million images one takes 0.1 MB, by information 0.9 MB."""
MOST_LISTED = 16
"""Views that no filter describes, whose images are remembered for the next page."""
LARGEST_PICTURE = 1024
"""Pixels of the longer side of a person's own picture as it is kept. An embedder looks at fewer."""


@dataclass(frozen=True)
class Totals:
    """How many images a view has, and how many of each value that it can be filtered by."""

    count: Count
    facets: Mapping[Facet, Mapping[str, int]]
    checks: Mapping[str, Mapping[str, int]]
    """By check and outcome."""
    models: Mapping[str, Mapping[str, int]]
    """By model under test, and where it stands."""
    histograms: Mapping[str, tuple[Bar, ...]]
    """Of the checks that were asked for; what the view says of a check's figures does not count for its own."""
    scores: ScoreCounts | None = None
    """By the score of validity; None where no image was ever scored. What the view says of scores does not count."""
    score_runs: tuple[ScoreRun, ...] = ()
    """What the scores come from, by task."""
    waiting: int = 0
    """Images that may belong to it and cannot be told yet: nobody looked at what they show."""


@dataclass(frozen=True)
class Detail:
    """All that is known of one image."""

    entry: CatalogueEntry
    case: StoredTestCase | None
    """None of an image that was imported."""
    facts: CaseFacts | None
    """What votes and models under test say of it; None of an image that was imported."""
    source_size: tuple[int, int] | None
    mask_sha: str
    """That of its run, which lies on the source; "" for none."""
    sets: tuple[SetVersion, ...]
    """The versions of test sets that it is in."""
    history: tuple[Said, ...]
    """What people said of it, the latest first."""
    siblings: int
    """Images of the same source, itself among them."""

    def undecided(self) -> Detail:
        """The same without what people said of it: for who judges it once more and is not to be told."""
        entry = replace(self.entry, verdict="open", reason="", reviewer="", reviewed=None)
        return replace(self, entry=entry, history=())


@dataclass(frozen=True)
class _Listed:
    """The images of a view in an order of its own."""

    entries: tuple[int, ...]
    waiting: int = 0


@dataclass(frozen=True, eq=False)
class _Alike(Held):
    """Near-duplicates in an order of the catalogue."""

    waiting: int = 0


class Gallery:
    """Answers the gallery. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        meaning: Meaning,
        near_duplicates: NearDuplicates,
        image_map: ImageMap,
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        """`asked` is called whenever somebody looks: what is done behind the scenes makes way."""
        self._workspace, self._meaning, self._asked = workspace, meaning, asked
        self._near_duplicates, self._map = near_duplicates, image_map
        self.entry = workspace.catalogue.get
        """Return one image. Raises UserError for an unknown one."""
        self._held = Latest[Held | _Listed](MOST_HELD)
        self._listed = Latest[_Listed | _Alike](MOST_LISTED)

    def coverage(self, grid: CoverageGrid, find: str = "") -> CoverageTable:
        """Count the images of each cell of a grid, of the lines that have `find` in their name."""
        return coverage_table(self._workspace.catalogue, grid, find)

    def page(self, view: View, at: int = 0, limit: int = PAGE, held: str = "") -> CataloguePage:
        """Images of a view from the place `at` on (0: the first), at most `limit`. `held` is what `hold` gave for it;
        where that is forgotten by now the view is as it is. Raises UserError as `Meaning.ranked` and
        `NearDuplicates.groups` do.
        """
        self._asked()
        known = self._held.get(held) or self._known(view)
        if not isinstance(known, _Listed):
            return self._workspace.catalogue.page(view.filter, view.order, limit, at=at, held=known)
        some = known.entries[at : at + limit]
        return CataloguePage(self._workspace.catalogue.listed(some), at + limit < len(known.entries))

    def holds(self, held: str) -> bool:
        """Return True if a set from `hold` is still known. The least recently used ones are forgotten."""
        return self._held.get(held) is not None

    def hold(self, view: View) -> str:
        """Keep which images a view has now, so that what is decided about them moves none: a name for `page`."""
        held = self._known(view) or self._workspace.catalogue.hold(view.filter, view.order)
        name = secrets.token_hex(8)
        self._held.put(name, held)
        return name

    def keep_picture(self, picture: bytes) -> str:
        """Keep a person's own picture for views to name; return its SHA-256. Raises UserError for no picture."""
        image = read_image(picture).image
        image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
        return self._workspace.images.add(image)

    def place(self, view: View, entry_id: int, held: str = "") -> int | None:
        """Place of an image in a view, or among the images that were held for it; None where it is not in it."""
        known = self._held.get(held) or self._known(view)
        if isinstance(known, _Listed):
            return known.entries.index(entry_id) if entry_id in known.entries else None
        return self._workspace.catalogue.place(view.filter, view.order, entry_id, known)

    def thumbnails(self, entries: Sequence[CatalogueEntry]) -> list[bytes]:
        """The WebP files of their thumbnails, b"" for each that is not made yet."""
        return [self._workspace.thumbnails.ready(entry.image_sha) for entry in entries]

    def count(self, view: View, held: str = "") -> Count:
        """Count the images of a view, or those that were held for it."""
        known = self._held.get(held) or self._known(view)
        if isinstance(known, _Listed):
            return Count(len(known.entries))
        return Count(entry_sets.size(known.bits)) if known else self._workspace.catalogue.count(view.filter)

    def grows(self, view: View) -> bool:
        """Whether a batch that it shows the images of is at work, by whichever process."""
        wanted = set(view.filter.facets.get("batch", ()))
        return any(batch.running for batch in self._workspace.batches.all() if batch.facet in wanted)

    def totals(self, view: View, histograms: Sequence[str] = (), held: str = "") -> Totals:
        """Counts for the filters beside a view; with `held` of those of its images that fit the filter now."""
        catalogue, known = self._workspace.catalogue, self._held.get(held) or self._known(view)
        within = None if known is None else self.ids(view, held)
        wanted = view.filter if within is None else view.filter.among(within)
        runs = self._workspace.scores.latest()
        return Totals(
            self.count(view) if within is None else Count(len(within)),
            catalogue.facets(wanted),
            catalogue.checks(wanted),
            catalogue.models(wanted),
            {
                check: catalogue.histogram(
                    check, replace(view.without("range", f"{check}:").filter, entries=wanted.entries)
                )
                for check in histograms
            },
            catalogue.scores(wanted, runs[0].agreement.threshold) if runs else None,
            runs,
            known.waiting if isinstance(known, _Listed | _Alike) else 0,
        )

    def ids(self, view: View, held: str = "") -> tuple[int, ...]:
        """Return all images of a view. Of a held view, only those that still fit its filter."""
        catalogue, kept = self._workspace.catalogue, self._held.get(held)
        known = kept or self._known(view)
        if known is None:
            return catalogue.ids(view.filter)
        found = known.entries if isinstance(known, _Listed) else tuple(entry_sets.entries_of(known.bits).tolist())
        if kept is None:
            return found
        fits = entry_sets.has(catalogue.bits(view.filter), np.array(found, np.int64))
        return tuple(entry for entry, fit in zip(found, fits, strict=True) if fit)

    def _known(self, view: View) -> Held | _Listed | None:
        """The images of a view that no filter can say; None of others."""
        if view.is_filter:
            return None
        allowed = self._map.inside(view.region, self._workspace.catalogue.bits(view.filter), view.colours)
        if not (view.ranked or view.alike):
            return Held(allowed)
        key = view.address, self._workspace.saved()
        if (known := self._listed.get(key)) is not None:
            return known
        return self._listed.put(key, self._looked_at(view, allowed))

    def _looked_at(self, view: View, allowed: Bits) -> _Listed | _Alike:
        """Of the `allowed` images, those of a view that asks what images show."""
        waiting = 0
        if view.alike:
            groups = self._near_duplicates.groups(allowed)
            waiting = groups.waiting
            if waiting:
                self._meaning.begin()
            alike = tuple(entry for group in groups.groups for entry in group)
            allowed = entry_sets.of_entries(alike, len(allowed) // entry_sets.BYTES)
            if not view.ranked:
                return _Listed(alike, waiting) if view.grouped else _Alike(allowed, waiting=waiting)
        wanted = Picture(view.picture) if view.picture else view.like or view.near
        found = self._meaning.ranked(wanted, allowed)
        first = (view.near,) if view.near and entry_sets.has(allowed, np.array([view.near]))[0] else ()
        return _Listed((*first, *found.entries), max(waiting, found.waiting))

    def detail(self, entry_id: int) -> Detail:
        """All that is known of one image. Raises UserError for an unknown one."""
        workspace = self._workspace
        entry = workspace.catalogue.get(entry_id)
        case = workspace.test_cases.get(entry.test_case) if entry.test_case is not None else None
        facts = workspace.test_sets.facts([case.id])[case.id] if case is not None else None
        mask = workspace.runs.mask(entry.run)[0] if entry.run else None
        return Detail(
            entry,
            case,
            facts,
            workspace.images.sizes([entry.source_sha]).get(entry.source_sha),
            mask or "",
            workspace.test_sets.versions_with(entry.image_sha),
            workspace.decisions.of_entry(entry.id),
            workspace.catalogue.count(ImageFilter(source=entry.source_sha)).number if entry.source_sha else 1,
        )

    def origin(self, entry_id: int) -> Mapping[StageName, StoredValue]:
        """What each text stage of its recipe had given when an image was drawn. Raises UserError for an unknown one."""
        detail = self.detail(entry_id)
        if detail.case is None:
            return {}
        case, runs = detail.case, self._workspace.runs
        found: dict[StageName, StoredValue] = {}
        for stage in recipe_of(case.lineage.recipe).names:
            # Values are only ever added: the last one before the image was saved is the one that it was drawn from.
            before = [value for value in runs.history(case.run_id, stage) if value.created <= case.created]
            if before:
                found[stage] = max(before, key=lambda value: value.id)
        return found
