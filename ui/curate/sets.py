"""Routes of the pages of test sets. One request begins long work; further requests ask for its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from core.csv_tables import facts
from core.errors import UserError
from core.image_filter import ImageFilter
from core.progress import OnCount
from core.test_sets import SetVersion, TestSet
from core.words import count_of
from services.commands import Commands, Missing
from services.curation.views import list_address
from services.test_sets.drafts import Added, Parted, Readiness, ReleaseTestSet, SplitTestSet
from services.test_sets.services import TestSetServices
from services.test_sets.versions import DRAFT, version_facts
from services.work_queue import WorkView
from ui.curate import sets_page
from ui.curate.frame import add_command, curate_page
from ui.curate.sets_page import exports_part, shown_version
from ui.curate.sets_words import OBSTACLE_WORDS, PAGE, SETS, SetPlace, ShownVersion, set_address
from ui.explore.parts import left
from ui.markup import Html
from ui.replies import FRESH, add_posted, fetched_at, file_at, page_at, page_number

PATIENCE = 1.5
"""Seconds that a request waits for long work. After that, the page asks for the progress instead."""
MOST_PICKED = 25_000
"""Maximum number of images that a page may select at once. More would not fit into one request."""
_OF_PAGE = ("version", "against", "page")
"""Parameters in the address of a set's page that do not filter its images."""
ALL_SETS = ("All test sets", SETS)


def add_test_sets(app: FastAPI, commands: Commands, services: TestSetServices) -> None:
    """Add the pages of test sets, their data and their actions."""
    _add_pages(app, services)
    _add_fetched(app, services)
    _add_commands(app, commands, services)
    _add_work(app, services)


def _add_pages(app: FastAPI, services: TestSetServices) -> None:
    def page(title: str, content: Html) -> str:
        return curate_page(title, "sets", content, sheets=("curate-sets.css",), scripts=("curate-sets.js",))

    @page_at(app, SETS, ALL_SETS)
    def all_sets() -> str:
        sets = services.stored.all()
        labels = {
            test_set.id: len({count.label for count in services.stored.counts(shown_version(test_set).number)} - {""})
            for test_set in sets
        }
        return page("Test sets", sets_page.list_page(sets, labels))

    @page_at(app, f"{SETS}/{{set_id}}/compare", ALL_SETS)
    def compare(
        set_id: str, old: str = "", new: str = "", kind: str = "", number: Annotated[str, Query(alias="page")] = ""
    ) -> str:
        test_set = services.set_of(set_id)
        last = test_set.versions[-1]
        first = test_set.versions[-2] if len(test_set.versions) > 1 else last
        before = services.version_of(old) if old else first
        after = services.version_of(new) if new else last
        found = services.versions.difference(before, after)
        content = sets_page.difference_page(before, after, found, kind, page_number(number), services.stored.all())
        return page("What is different", content)

    @file_at(app, f"{SETS}/{{set_id}}/review")
    def review(set_id: str) -> Response:
        """Redirect to the gallery with the draft's images that are not accepted, so that a person can review them."""
        return RedirectResponse(list_address(services.drafts.not_accepted(set_id)), status_code=303)

    @page_at(app, f"{SETS}/{{set_id}}", ALL_SETS)
    def one(request: Request, set_id: str, version: str = "") -> str:
        test_set = services.set_of(set_id)
        chosen = services.version_of(f"{test_set.id}@{version}") if version else shown_version(test_set)
        return page("Test set", sets_page.set_page(_shown(services, test_set, chosen, place_of(request))))

    @file_at(app, "/curate/exports/{number}/{name}")
    def export(number: int, name: str) -> Response:
        ready = services.exports.ready(number)
        return FileResponse(ready.file, media_type="application/zip", filename=ready.name, headers=FRESH)


def _add_fetched(app: FastAPI, services: TestSetServices) -> None:
    @fetched_at(app, "/curate/api/drafts")
    def drafts() -> Mapping[str, Any]:
        """Return all test sets. `draft` is True if a set has a draft. A set without a draft cannot take images."""

        def known(one: TestSet) -> Mapping[str, Any]:
            return facts(one, "id name", draft=one.draft is not None, images=shown_version(one).entries)

        return {"sets": [known(one) for one in services.stored.all()]}

    @fetched_at(app, "/curate/api/set-image")
    def image(version: str, image: str) -> Mapping[str, Any]:
        return {"html": sets_page.large_window(services.versions.image(version, image))}

    @fetched_at(app, "/curate/api/set-images")
    def images(request: Request, version: str) -> Mapping[str, Any]:
        """Return the hashes of all images that match the page's filter, on all pages of the list."""
        found = services.version_of(version)
        readiness = services.drafts.readiness(found) if found.is_draft else None
        shas = services.stored.chosen(found.number, _filter(place_of(request), readiness))
        if len(shas) > MOST_PICKED:
            raise UserError(
                f"These are {len(shas):,} images, and at most {MOST_PICKED:,} can be selected at once: filter them."
            )
        return {"images": shas}

    @fetched_at(app, "/curate/api/set-split")
    def preview(request: Request) -> Mapping[str, Any]:
        """Return a description of the split that the form would make. Nothing is changed."""
        split = SplitTestSet.of(_shares(dict(request.query_params)))
        return {"words": sets_page.split_words(services.drafts.preview(split), split)}

    @fetched_at(app, "/curate/api/set-work")
    def work(work: Annotated[int, Query(ge=0)]) -> Mapping[str, Any]:
        return _work_facts(services.work.view(work))

    @fetched_at(app, "/curate/api/set-exports")
    def exports(version: str) -> Mapping[str, Any]:
        return _exports(services, services.version_of(version))


def _add_commands(app: FastAPI, commands: Commands, services: TestSetServices) -> None:
    """Add the routes of commands that take little time. A reply also holds a message, or the next address."""

    def after_delete(command: Any, result: Any) -> Mapping[str, Any]:
        try:
            return {"go": set_address(services.set_of(command.test_set).id)}
        except Missing:  # the draft was the only version of the set
            return {"go": SETS}

    def after_removal(_: Any, done: Any) -> Mapping[str, Any]:
        back = {"name": "put-back-in-test-set", "fields": {"removal": done["removal"]}}
        return {"said": f"{count_of(done['removed'], 'image')} taken out.", "undo": back if done["removed"] else None}

    def after_part(parted: Parted) -> Mapping[str, Any]:
        whose = "its" if parted.moved == 1 else "their"
        message = f"{count_of(parted.moved, 'image', 'is')} now in a test set of {whose} own."
        return {"said": message, "open": {"words": f"Open “{parted.name}”", "address": set_address(parted.test_set)}}

    add = partial(add_command, app, commands)
    add("create-test-set", lambda _, made: {"go": set_address(made["test_set"])})
    add("draft-test-set", lambda _, made: {"go": set_address(made["test_set"], version=DRAFT)})
    add("delete-test-set-draft", after_delete)
    add("add-to-test-set", lambda _, added: {"said": added_words(added)})
    add("remove-from-test-set", after_removal)
    add("put-back-in-test-set", lambda _, done: {"said": f"{count_of(done['put_back'], 'image')} put back."})
    add("part-test-set", lambda _, parted: after_part(parted))
    add("relabel-in-test-set", lambda _, done: {"said": f"{count_of(done['relabelled'], 'image')} relabelled."})
    add(
        "set-split-in-test-set",
        lambda _, done: {"said": f"{count_of(done['resplit'], 'image')} put into another split."},
    )


def added_words(added: Added) -> str:
    """Return a sentence on how many images were added."""
    already = f"; {added.already:,} were in it already" if added.already else ""
    left_out = f"; {added.left_out:,} are not in the catalogue any more" if added.left_out else ""
    return f"{count_of(added.added, 'image')} added{already}{left_out}."


def _add_work(app: FastAPI, services: TestSetServices) -> None:
    def begin(data: dict[str, Any]) -> Mapping[str, Any]:
        kind = data.pop("kind", "")
        run: Callable[[OnCount], object]
        if kind == "split-test-set":
            split = SplitTestSet.of(_shares(data))
            about, run = services.set_of(split.test_set).id, partial(services.drafts.split, split)
        elif kind == "release-test-set":
            release = ReleaseTestSet.of(data)
            about, run = services.set_of(release.test_set).id, partial(services.drafts.release, release)
        else:
            kind, version = "verify-test-set", services.version_of(str(data.get("version", "")))
            about, run = (
                version.test_set,
                lambda on_count: (services.versions.verify(version, on_count), services.orphans()),
            )
        return _work_facts(services.work.wait(services.work.start(kind, about, run), PATIENCE))

    def export(data: dict[str, Any]) -> Mapping[str, Any]:
        version = services.version_of(str(data.get("version", "")))
        services.exports.start(version.id or version.reference, str(data.get("layout", "")))
        return _exports(services, version)

    def cancel(data: dict[str, Any]) -> Mapping[str, Any]:
        number = data.get("number")
        if not isinstance(number, int):
            raise UserError("The request names no work to cancel: reload the page.")
        (services.exports.cancel if data.get("export") else services.work.cancel)(number)
        return {"done": True}

    for name, act in (("set-work", begin), ("set-export", export), ("set-cancel", cancel)):
        add_posted(app, f"/curate/api/{name}", act)


def _work_facts(view: WorkView) -> Mapping[str, Any]:
    """Return the progress of a split, release or check. When the work is done, add what the page shows next."""
    known = facts(view, "state done total error field", work=view.id, left=left(view.seconds_left))
    if view.state != "done":
        return known
    if view.kind == "split-test-set":
        return {**known, "said": sets_page.split_words(view.result)}
    if view.kind == "release-test-set":
        version = version_facts(view.result)
        return {**known, "go": set_address(version["test_set"], version=version["place"])}
    return {**known, "html": sets_page.verified_part(*view.result)}


def _exports(services: TestSetServices, version: SetVersion) -> Mapping[str, Any]:
    known = services.exports.of(version)
    return {"parts": {"part-exports": exports_part(known, version)}, "active": any(view.active for view in known)}


# What a page shows


def place_of(request: Request) -> SetPlace:
    """Parse the filter and the page number in an address. Raises UserError for an invalid filter."""
    pairs = request.query_params.multi_items()
    parts = ImageFilter.of((name, value) for name, value in pairs if name not in _OF_PAGE and value)
    against = request.query_params.get("against", "")
    page = page_number(request.query_params.get("page", ""))
    return SetPlace(parts, against if against in OBSTACLE_WORDS else "", page)


def _filter(place: SetPlace, readiness: Readiness | None) -> ImageFilter:
    if not place.against:
        return place.filter
    obstacles = readiness.obstacles if readiness is not None else ()
    images = [image for obstacle in obstacles if obstacle.kind == place.against for image in obstacle.images]
    return replace(place.filter, images=tuple(images))


def _shown(services: TestSetServices, test_set: TestSet, version: SetVersion, place: SetPlace) -> ShownVersion:
    sets = services.stored
    readiness = services.drafts.readiness(version) if version.is_draft else None
    image_filter = _filter(place, readiness)
    counts = sets.counts(version.number)
    total = sets.count(version.number, image_filter)
    place = replace(place, page=min(place.page, max(1, -(-total // PAGE))))  # images may be gone since
    entries = sets.shown(version.number, image_filter, (place.page - 1) * PAGE, PAGE)
    on_page = frozenset(shown.entry.image for shown in entries)
    return ShownVersion(
        held=test_set,
        version=version,
        place=place,
        entries=entries,
        found=total,
        counts=counts,
        readiness=readiness,
        exports=services.exports.of(version),
        work=services.work.of(test_set.id),
        workspace=services.workspace_folder,
        trouble={one.kind: on_page.intersection(one.images) for one in readiness.obstacles} if readiness else {},
    )


# What was typed


def _shares(data: dict[str, Any]) -> dict[str, Any]:
    """Convert typed percentages to shares from 0 to 1. Raises UserError for anything else."""
    read = dict(data)
    for name in ("train", "validation", "test"):
        text = str(data.get(name, "")).strip().replace(",", ".").removesuffix("%")
        try:
            read[name] = float(text or 0) / 100
        except ValueError as error:
            raise UserError("This is no number: give a percentage, such as 80.", field=name) from error
        if not 0 <= read[name] <= 1:
            raise UserError("This share is not possible: give a percentage from 0 to 100.", field=name)
    return read
