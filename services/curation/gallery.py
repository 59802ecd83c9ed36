"""Queries of the gallery: pages of a view, counts, and everything known about one image."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from services.curation.judging import Judging
from services.curation.map import ImageMap
from services.curation.meaning import Meaning, Picture
from services.curation.near_duplicates import NearDuplicates
from services.curation.views import View
from services.evaluation.check_agreement import Agreements, CheckAgreements
from storage.curation import entry_sets
from storage.curation.decisions import Said
from storage.curation.entry_sets import Bits
from storage.curation.selection import Held
from storage.test_sets.facts import CaseFacts
from storage.workspace import Workspace

PAGE = 60
"""Default number of images in a page."""
MOST_IN_PAGE = 200
MOST_HELD = 64
"""Maximum number of views kept by `hold`. Each takes at least 0.1 MB of memory for a million images."""
MOST_LISTED = 16
"""Maximum number of cached views with a search, near-duplicates or a map region. A cached view pages faster."""
LARGEST_PICTURE = 1024
"""Maximum pixels of the longer side of a picture that a user gives to search with. An embedder uses fewer pixels."""


@dataclass(frozen=True)
class Totals:
    """Numbers of images in a view: in total, and for each value that a filter can name."""

    count: Count
    facets: Mapping[Facet, Mapping[str, int]]
    checks: Mapping[str, Mapping[str, int]]
    """Number of images by check and outcome."""
    models: Mapping[str, Mapping[str, int]]
    """Number of images by model under test, then by how its answer turned out, such as "right" or "newly wrong"."""
    histograms: Mapping[str, tuple[Bar, ...]]
    """Histogram of the figures of each requested check. It ignores the view's own limits on that check."""
    scores: ScoreCounts | None = None
    """Numbers of images by validity score; None if none was ever scored. Ignores the view's limits on scores."""
    score_runs: tuple[ScoreRun, ...] = ()
    """Runs of the automatic scoring that gave the validity scores, sorted by task."""
    waiting: int = 0
    """Number of images that may belong to the view, but have no vector or perceptual hash yet."""
    agreements: Mapping[str, Agreements] = field(default_factory=dict)
    """Agreement of each requested check with people's votes, by check and task."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """The model that judges images and its progress, as `Judging.show` returns them; {} unless the view is a filter."""


@dataclass(frozen=True)
class Detail:
    """Everything known about one image."""

    entry: CatalogueEntry
    case: StoredTestCase | None
    """The test case, or None for an imported image."""
    facts: CaseFacts | None
    """Outcomes of votes and models under test; None for an imported image."""
    source_size: tuple[int, int] | None
    mask_sha: str
    """SHA-256 of the mask of the image's run; "" for none."""
    sets: tuple[SetVersion, ...]
    """Versions of test sets that contain the image."""
    history: tuple[Said, ...]
    """Decisions on the image, the latest first."""
    siblings: int
    """Number of images of the same source, including this image."""

    def undecided(self) -> Detail:
        """Return the same details without people's decisions, for a person who judges the image again."""
        entry = replace(self.entry, verdict="open", reason="", reviewer="", reviewed=None)
        return replace(self, entry=entry, history=())


@dataclass(frozen=True)
class _Listed:
    """The images of a view that is sorted by similarity or by group of near-duplicates."""

    entries: tuple[int, ...]
    waiting: int = 0


@dataclass(frozen=True, eq=False)
class _Alike(Held):
    """The images of a view that selects near-duplicates and is not sorted by group or similarity."""

    waiting: int = 0


class Gallery:
    """The queries of the gallery. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        meaning: Meaning,
        near_duplicates: NearDuplicates,
        image_map: ImageMap,
        check_agreements: CheckAgreements,
        judging: Judging,
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the object. `on_request` is called at each request for a page, so that background work can pause."""
        self._workspace, self._meaning, self._asked = workspace, meaning, on_request
        self._near_duplicates, self._map = near_duplicates, image_map
        self._check_agreements, self._judging = check_agreements, judging
        self.entry = workspace.catalogue.get
        """Returns the catalogue's entry of an image by its id. Raises UserError for an unknown id."""
        self.judge_replies = workspace.judgements.replies
        """Returns, by name of the check, what a judging model was asked about an image and what it replied."""
        self._held = Latest[Held | _Listed](MOST_HELD)
        self._listed = Latest[_Listed | _Alike](MOST_LISTED)
        self._agreements = Latest[Mapping[str, Agreements]](MOST_LISTED)

    def coverage(self, grid: CoverageGrid, find: str = "") -> CoverageTable:
        """Return the coverage table of a grid. `find` selects the rows whose value contains this text."""
        return coverage_table(self._workspace.catalogue, grid, find)

    def page(self, view: View, at: int = 0, limit: int = PAGE, held_name: str = "") -> CataloguePage:
        """Return at most `limit` images of a view, beginning at the zero-based position `at`. `held_name` is a name
        from `hold`: the page then shows the images fixed by it. If the name is "" or forgotten, the page shows the
        view's present images. Raises UserError if the view has a search that cannot be done.
        """
        self._asked()
        known = self._held.get(held_name) or self._known(view)
        if not isinstance(known, _Listed):
            return self._workspace.catalogue.page(view.filter, view.order, limit, at=at, held=known)
        some = known.entries[at : at + limit]
        return CataloguePage(self._workspace.catalogue.listed(some), at + limit < len(known.entries))

    def holds(self, held_name: str) -> bool:
        """Return True if a name from `hold` is still known. The least recently used names are forgotten."""
        return self._held.get(held_name) is not None

    def hold(self, view: View) -> str:
        """Fix the images and order of a view, so that decisions move no image. Return a name for `page`."""
        images = self._known(view) or self._workspace.catalogue.hold(view.filter, view.order)
        name = secrets.token_hex(8)
        self._held.put(name, images)
        return name

    def keep_picture(self, picture: bytes) -> str:
        """Store a user's picture to search with. Return its SHA-256. Raises UserError if the file is no picture."""
        image = read_image(picture).image
        image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
        return self._workspace.images.add(image)

    def place(self, view: View, entry_id: int, held_name: str = "") -> int | None:
        """Return the zero-based position of an image in a view, or in images fixed by `hold`; None if absent."""
        known = self._held.get(held_name) or self._known(view)
        if isinstance(known, _Listed):
            return known.entries.index(entry_id) if entry_id in known.entries else None
        return self._workspace.catalogue.place(view.filter, view.order, entry_id, known)

    def thumbnails(self, entries: Sequence[CatalogueEntry]) -> list[bytes]:
        """Return the WebP files of the entries' thumbnails, b"" for missing ones."""
        return [self._workspace.thumbnails.ready(entry.image_sha) for entry in entries]

    def count(self, view: View, held_name: str = "") -> Count:
        """Count the images of a view, or the images in the list that was stored as `held_name`."""
        known = self._held.get(held_name) or self._known(view)
        if isinstance(known, _Listed):
            return Count(len(known.entries))
        return Count(entry_sets.size(known.bits)) if known else self._workspace.catalogue.count(view.filter)

    def grows(self, view: View) -> bool:
        """Return True if the view's filter names a batch that is running now, in any process."""
        batches = set(view.filter.facets.get("batch", ()))
        return any(batch.running for batch in self._workspace.batches.all() if batch.facet in batches)

    def totals(self, view: View, histograms: Sequence[str] = (), held_name: str = "") -> Totals:
        """Count a view's images by filter value; with `held_name`, only those that `hold` stored under this name."""
        catalogue, known = self._workspace.catalogue, self._held.get(held_name) or self._known(view)
        within = None if known is None else self.ids(view, held_name)
        counted = view.filter if within is None else view.filter.among(within)
        runs = self._workspace.scores.latest()
        return Totals(
            self.count(view) if within is None else Count(len(within)),
            catalogue.facets(counted),
            catalogue.checks(counted),
            catalogue.models(counted),
            {
                check: catalogue.histogram(
                    check, replace(view.without("range", f"{check}:").filter, entries=counted.entries)
                )
                for check in histograms
            },
            catalogue.scores(counted, runs[0].agreement.threshold) if runs else None,
            runs,
            known.waiting if isinstance(known, _Listed | _Alike) else 0,
            self._agreements.once(
                (tuple(histograms), self._workspace.saved()), lambda: self._check_agreements.of(histograms)
            ),
            self._judging.show(view.filter) if view.is_filter else {},
        )

    def ids(self, view: View, held_name: str = "") -> tuple[int, ...]:
        """Return the ids of a view's images, or of the images in the stored list `held_name` that match the filter."""
        catalogue, held_images = self._workspace.catalogue, self._held.get(held_name)
        known = held_images or self._known(view)
        if known is None:
            return catalogue.ids(view.filter)
        entries = known.entries if isinstance(known, _Listed) else tuple(entry_sets.entries_of(known.bits).tolist())
        if held_images is None:
            return entries
        fits = entry_sets.has(catalogue.bits(view.filter), np.array(entries, np.int64))
        return tuple(entry for entry, fit in zip(entries, fits, strict=True) if fit)

    def _known(self, view: View) -> Held | _Listed | None:
        """Return the images of a view that has a search, near-duplicates or a map region; None for a mere filter."""
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
        """Return the `allowed` images that the view selects by similarity, near-duplicates or both."""
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
        target = Picture(view.picture) if view.picture else view.like or view.near
        ranked = self._meaning.ranked(target, allowed)
        first = (view.near,) if view.near and entry_sets.has(allowed, np.array([view.near]))[0] else ()
        return _Listed((*first, *ranked.entries), max(waiting, ranked.waiting))

    def detail(self, entry_id: int) -> Detail:
        """Return everything known about an image. Raises UserError if the image is unknown."""
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
        """Return the stage values behind an image; {} for an imported image. Raises UserError for an unknown entry."""
        detail = self.detail(entry_id)
        if detail.case is None:
            return {}
        case, runs = detail.case, self._workspace.runs
        values: dict[StageName, StoredValue] = {}
        for stage in recipe_of(case.lineage.recipe).names:
            # Values are never removed, so the image was drawn from the last value before it was saved.
            before = [value for value in runs.history(case.run_id, stage) if value.created <= case.created]
            if before:
                values[stage] = max(before, key=lambda value: value.id)
        return values
