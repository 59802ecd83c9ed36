"""One test set: its versions beside the images of one of them, and what can be done with that one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from core.image_filter import Facet, ImageFilter
from core.model_sections import in_bytes
from core.test_sets import SPLITS, Review, SetVersion, ShownEntry, Split
from core.types import TaskKind
from core.words import count_of
from services.test_sets.drafts import SplitResult, SplitTestSet, two_tasks
from services.test_sets.exports import FORMAT_TITLES
from services.test_sets.versions import Verified
from services.work_queue import WorkView
from ui.curate.sets_windows import windows
from ui.curate.sets_words import (
    FORMATS,
    OBSTACLE_WORDS,
    REVIEW_WORDS,
    SETS,
    SHORT,
    SPLIT_WORDS,
    SetPlace,
    ShownVersion,
    pages,
    reference,
    set_address,
    shot,
    version_key,
    version_title,
)
from ui.evaluate.words import evaluate_address
from ui.explore.parts import bar, box, button, facts, heading, here_link, icon, left, named_row, page_head, pill
from ui.markup import Child, Html, el, join
from ui.study.words import when

MOST_NAMED = 20
"""Files that are named where something is wrong with many."""
WORK_WORDS = {
    "split-test-set": "Parting it into splits",
    "release-test-set": "Releasing it",
    "verify-test-set": "Reading its files",
}


def set_page(shown: ShownVersion) -> Html:
    """The page of a set, without its frame."""
    return el(
        "div",
        _head(shown),
        el(
            "div",
            el("aside", _versions(shown), _about(shown), _counts(shown), class_="set-side"),
            el(
                "section",
                work_part(shown.work),
                _before_release(shown) if shown.is_draft else _released(shown),
                _images(shown),
                class_="set-main",
            ),
            class_="set-page",
        ),
        windows(shown),
        id="set",
        data_set=shown.held.id,
        data_version=shown.version.id or f"{shown.held.id}@draft",
        data_draft=shown.is_draft,
    )


def _head(shown: ShownVersion) -> Html:
    held, latest = shown.held, shown.held.latest
    released = [version for version in held.versions if not version.is_draft]
    acts: list[Child] = []
    if len(held.versions) > 1:
        old = released[-1] if held.draft is not None else released[-2]
        new = held.draft or released[-1]
        address = set_address(held.id, "/compare", old=reference(old), new=reference(new))
        acts.append(el("a", "Compare versions", href=address, class_="btn", id="compare"))
    acts.append(el("a", "Evaluate", href=evaluate_address(version=shown.version.number), class_="btn", id="evaluate"))
    if held.draft is None and latest is not None:
        acts.append(
            button(
                [icon("plus"), "Draft the next version"],
                look="p",
                data_send="draft-test-set",
                data_version_of=latest.id,
                id="next",
            )
        )
    name = el(
        "h1", el("a", held.name, href=_link(shown, SetPlace()), title="All its images, of all splits", id="whole")
    )
    return page_head("All test sets", SETS, [name, el("span", class_="grow"), acts], class_="set-head")


def _versions(shown: ShownVersion) -> Html:
    lines = []
    for version in reversed(shown.held.versions):
        on = version.number == shown.version.number
        told = when(version.released) if version.released is not None else "may change until it is released"
        lines.append(
            here_link(
                [
                    el("b", f"Version {version.place}"),
                    pill("draft", "warn") if version.is_draft else None,
                    el("small", f"{count_of(version.entries, 'image')} · {told}", class_="mut"),
                ],
                set_address(shown.held.id, version=version_key(version)),
                on,
                look="version-line",
                current="page",
            )
        )
    return el("nav", lines, class_="card versions-list", aria_label="Versions")


def _about(shown: ShownVersion) -> Html | None:
    version = shown.version
    rows: list[tuple[str, Child]] = []
    if version.id:
        copy = button("Copy", look="s q", data_copy_text=version.id, aria_label="Copy the id")
        rows.append(("id", [el("code", version.id[:SHORT], title=version.id, id="version-id"), copy]))
    if version.parent:
        parent = next((one for one in shown.held.versions if one.id == version.parent), None)
        words: Child = version.parent[:SHORT]
        if parent is not None:
            words = el("a", version_title(parent), href=set_address(shown.held.id, version=version_key(parent)))
        rows.append(("from" if version.is_draft else "parent", words))
    if version.note:
        rows.append(("note", el("span", version.note, class_="note")))
    for name, value in sorted(version.thresholds.items()):
        rows.append(("threshold", f"{name} {value:g}"))
    if not rows:
        return None
    return el(
        "section",
        facts(rows),
        class_="card box",
    )


# ---- Counts, which are the filter as well


def _counts(shown: ShownVersion) -> Html | None:
    if not shown.counts:
        return None
    splits = [split for split in SPLITS if any(count.split == split for count in shown.counts)]
    labels = sorted({count.label for count in shown.counts})

    def number(label: str | None, split: Split | None) -> int:
        return sum(
            count.images for count in shown.counts if label in (None, count.label) and split in (None, count.split)
        )

    def cell(label: str | None, split: Split | None) -> Html:
        images, meant = number(label, split), _of_values({"class": label, "split": split})
        on = meant not in (ImageFilter(), None) and shown.place.filter == meant
        if not images:
            return el("td", el("span", "·", class_="mut"))
        to = _link(shown, SetPlace() if on else SetPlace(meant))
        return el("td", here_link(f"{images:,}", to, on))

    head = el(
        "tr",
        el("th", "label", scope="col"),
        [_split_head(split) for split in splits],
        el("th", "all", scope="col") if len(splits) > 1 else None,
    )
    rows = [
        named_row(
            label or el("span", "no label", class_="mut"),
            [cell(label, split) for split in splits],
            cell(label, None) if len(splits) > 1 else None,
        )
        for label in labels
    ]
    total = named_row(
        "all", [cell(None, split) for split in splits], cell(None, None) if len(splits) > 1 else None, class_="total"
    )
    table = el(
        "div",
        el("table", el("thead", head), el("tbody", rows, total if len(labels) > 1 else None), class_="counts"),
        class_="scroll",
    )
    return box("Images", table, _chips(shown), id="counts")


def _split_head(split: Split) -> Html:
    short = {"validation": "val.", "": "no split"}.get(split, split)
    return el("th", short, scope="col", title=SPLIT_WORDS[split])


def _chips(shown: ShownVersion) -> Html | None:
    """By what people decided, and by role, where there is more than one."""
    chips: list[Child] = []
    reviews: dict[Review, int] = {}
    sources = sum(count.images for count in shown.counts if count.role == "source")
    for count in shown.counts:
        reviews[count.review] = reviews.get(count.review, 0) + count.images
    for review, (words, _tone) in REVIEW_WORDS.items():
        if words and reviews.get(review) and len(reviews) > 1:
            chips.append(_chip(shown, words, reviews[review], _of_values({"review": review})))
    if sources:
        chips.append(_chip(shown, "sources", sources, ImageFilter(role="source")))
    return el("div", chips, class_="chips") if chips else None


def _of_values(values: Mapping[Facet, str | None]) -> ImageFilter:
    return ImageFilter(facets={name: (value,) for name, value in values.items() if value is not None})


def _chip(shown: ShownVersion, words: str, number: int, meant: ImageFilter) -> Html:
    on = shown.place.filter == meant
    to, look = _link(shown, SetPlace() if on else SetPlace(meant)), "chip on" if on else "chip"
    return el("a", words, " ", el("small", f"{number:,}"), href=to, class_=look, aria_current="true" if on else None)


def _link(shown: ShownVersion, place: SetPlace) -> str:
    query = urlencode({"version": version_key(shown.version), **place.query}, doseq=True)
    return f"{set_address(shown.held.id)}?{query}"


# ---- A draft


def _before_release(shown: ShownVersion) -> Html:
    readiness = shown.readiness
    assert readiness is not None  # of a draft
    lines: list[Child] = []
    for obstacle in readiness.obstacles:
        link = None
        if obstacle.images:
            words = f"Show {'it' if len(obstacle.images) == 1 else f'the {len(obstacle.images):,}'}"
            link = el("a", words, href=_link(shown, SetPlace(against=obstacle.kind)), class_="btn s")
        if obstacle.kind == "not accepted":
            to = set_address(shown.held.id, "/review")
            link = join(link, el("a", "Review them", href=to, class_="btn s", id="review-them"))
        title = el("b", OBSTACLE_WORDS[obstacle.kind])
        lines.append(
            el(
                "li",
                icon("cross"),
                el("span", title, " ", obstacle.sentence),
                link,
                class_="stop",
                data_obstacle=obstacle.kind,
            )
        )
    if not lines:
        lines.append(el("li", icon("check"), el("span", "Nothing known stands against a release."), class_="fine"))
    if readiness.tasks:
        lines.append(_two_tasks(readiness.tasks))
    if readiness.not_compared and shown.version.splits.keys() - {""}:
        words = f"{count_of(readiness.not_compared, 'source')} not compared with the others yet: a release does it."
        lines.append(el("li", icon("alert"), el("span", words), class_="note"))
    full = shown.version.entries > 0
    return el(
        "section",
        heading(
            "Before a release",
            button("Add accepted images", look="s", data_send="add-to-test-set", id="add-accepted"),
            button("Split …", look="s", data_open_window="split", disabled=not full, id="open-split"),
            button("Delete the draft …", look="s q", data_open_window="delete", id="open-delete"),
            button("Release …", look="s p", data_open_window="release", disabled=not full, id="open-release"),
            class_="card-head",
        ),
        el("ul", lines, class_="missing"),
        el("p", "", class_="wrong", data_problem="", role="alert"),
        class_="card box before-release",
        id="before-release",
    )


def _two_tasks(tasks: Mapping[TaskKind, Sequence[str]]) -> Html:
    words = f"It has {two_tasks(tasks)}. A model is tested on one task: part them."
    return el(
        "li",
        icon("alert"),
        el("span", el("b", "Two tasks"), " ", words),
        button("Part them", look="s", data_send="part-test-set", id="part-tasks"),
        class_="note",
        data_obstacle="two tasks",
    )


def work_part(work: Sequence[WorkView]) -> Html:
    """What is being done with a set that takes long."""
    return el("div", [work_line(view) for view in work if view.active], id="part-work", class_="works")


def work_line(view: WorkView, words: str = "") -> Html:
    """How far something is, with a way to stop it."""
    said = words or WORK_WORDS.get(view.kind, view.kind)
    share = view.done / view.total if view.total else None
    told = "waiting for what comes before it" if view.state == "waiting" else f"{said}{left(view.seconds_left)}"
    return el(
        "div",
        el("span", told),
        bar(share),
        button("Cancel", look="s", data_cancel=view.id),
        class_="working",
        data_work=view.id,
    )


# ---- A version that was released


def _released(shown: ShownVersion) -> Html:
    return el(
        "section",
        heading(
            "Use it",
            button("Is it still whole?", look="s", data_verify=True, id="verify"),
            button("Leak check …", look="s", data_open_window="leaks", id="open-leaks"),
            button([icon("down"), "Export …"], look="s p", data_open_window="export", id="open-export"),
            class_="card-head",
        ),
        el("div", id="part-verify", data_own=True),
        exports_part(shown.exports, shown.version),
        class_="card box",
    )


def exports_part(exports: Sequence[WorkView], version: SetVersion) -> Html:
    """The exports of a version that are being made, or can be fetched."""
    known = [view for view in exports if view.state in ("waiting", "running", "done", "failed")]
    return el("div", [_export(view, version) for view in known], id="part-exports", class_="works")


def _export(view: WorkView, version: SetVersion) -> Html:
    title = FORMAT_TITLES[view.kind]
    if view.active:
        return work_line(view, f"Export as {title}")
    if view.state == "failed":
        return el("p", icon("alert"), el("span", f"{title}: {view.error}"), class_="problem", role="alert")
    ready = view.result
    return el(
        "div",
        el(
            "a",
            icon("down"),
            ready.name,
            href=export_address(view.id, ready.name),
            class_="btn s",
            download=ready.name,
            data_download=True,
        ),
        el("small", f"{title} · {in_bytes(ready.size)} · kept for an hour", class_="mut"),
        button("Delete the file", look="s q", data_cancel=view.id),
        el("code", FORMATS[view.kind].line_of(ready.name.removesuffix(".zip"), version.splits), class_="loads"),
        class_="ready",
    )


def export_address(number: int, name: str) -> str:
    """Where a finished export is fetched."""
    return f"/curate/exports/{number}/{name}"


def verified_part(found: Verified, orphans: Sequence[str]) -> Html:
    """What came of a look at all files of a version."""
    lines: list[Child] = []
    if found.whole:
        words = f"{count_of(found.files, 'file')} read: all there and whole, and the id says what is in it."
        lines.append(el("li", icon("check"), el("span", words), class_="fine"))
    if not found.id_holds:
        words = "The id does not follow from what is in this version: its rows were changed behind the studio's back."
        lines.append(el("li", icon("cross"), el("span", words), class_="stop"))
    for title, shas in (("missing", found.missing), ("damaged", found.damaged)):
        if shas:
            words = f"{count_of(len(shas), 'file')} {title}: bring them back from a backup."
            lines.append(el("li", icon("cross"), el("span", words, _names(shas)), class_="stop", data_found=title))
    if orphans:
        words = f"{count_of(len(orphans), 'file')} in the folder of images belong to nothing; that does no harm."
        lines.append(
            el("li", icon("question"), el("span", words, _names(orphans)), class_="note", data_found="orphans")
        )
    return el("ul", lines, class_="missing", id="verified", data_whole="yes" if found.whole else "no")


def _names(names: Sequence[str]) -> Html:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return el("code", ", ".join(names[:MOST_NAMED]) + more, class_="names small")


def split_words(done: SplitResult) -> str:
    """What came of a split."""
    return f"{_images_of(done)}. {_groups_of(done)}"


def preview_words(found: SplitResult, asked: SplitTestSet) -> str:
    """What a split would give."""
    wanted: dict[Split, float] = {"train": asked.train, "validation": asked.validation, "test": asked.test}
    empty = [SPLIT_WORDS[split] for split, share in wanted.items() if share and not found.splits.get(split)]
    said = f"{'This gives' if found.compared else 'This gives about'} {_images_of(found)}. {_groups_of(found)}"
    total = round(100 * sum(wanted.values()), 1)
    if total != 100:
        said += f" The shares add up to {total:g} %, not 100 %: each is taken as its part of them."
    if empty:
        said += f" That is too few groups: {' and '.join(empty)} would get no image."
    return said if found.compared else f"{said} Pressing the button compares the sources first."


def _images_of(split: SplitResult) -> str:
    named = (f"{SPLIT_WORDS[name]} {split.splits[name]:,}" for name in SPLITS if name in split.splits)
    return f"{', '.join(named)} of {count_of(sum(split.splits.values()), 'image')}"


def _groups_of(split: SplitResult) -> str:
    """Why the numbers are not exactly those of the shares."""
    if split.groups == 1:
        return "All of them stay together: they are of one source, or of sources that look alike."
    return f"There are {split.groups:,} groups of images that stay together."


# ---- The images


def _images(shown: ShownVersion) -> Html:
    place, version = shown.place, shown.version
    filtered = bool(place.query)
    words = (
        count_of(shown.found, "image") if not filtered else f"{shown.found:,} of {count_of(version.entries, 'image')}"
    )
    places = pages(
        set_address(shown.held.id), {"version": version_key(version), **place.query}, place.page, shown.found
    )
    keys = "Click picks · Shift a range · Enter large · Del out · U undo · L label · 1 2 3 0 split"
    bar_ = el(
        "div",
        el("b", words, id="found"),
        [_used(shown)] if filtered else None,
        el("span", class_="grow"),
        el("small", keys, class_="mut keys") if shown.is_draft and shown.entries else None,
        button("Pick all", look="s q", data_pick_all=True) if shown.is_draft and shown.entries else None,
        places,
        class_="toolbar",
    )
    grid: Child
    if shown.entries:
        grid = el(
            "div", [_shot(shown, held) for held in shown.entries], class_="shots", id="shots", data_found=shown.found
        )
    elif filtered:
        grid = el(
            "p",
            "No image of this version is like that. ",
            el("a", "Show all", href=_link(shown, SetPlace())),
            class_="empty",
        )
    else:
        grid = el(
            "p",
            "Nothing is in it yet: pick images in the ",
            el("a", "gallery", href="/curate/"),
            " and add them, or add all that are accepted.",
            class_="empty",
        )
    return el("div", bar_, grid, places, class_="set-images")


def _used(shown: ShownVersion) -> Html:
    words = " · ".join(filter(None, [OBSTACLE_WORDS.get(shown.place.against, "").lower(), shown.place.filter.words]))
    return el(
        "a",
        words,
        icon("cross"),
        href=_link(shown, SetPlace()),
        class_="chip on",
        title="Show all images",
        id="clear-filter",
    )


def _shot(shown: ShownVersion, held: ShownEntry) -> Html:
    entry, marks = held.entry, list[Child]()
    words, tone = REVIEW_WORDS[held.review]
    if entry.role == "source":
        marks.append(pill("source", "acc"))
    elif words and (held.review != "accepted"):
        marks.append(pill(words, tone))
    if entry.mask is not None:
        marks.append(pill("mask"))
    against = [kind for kind, images in shown.trouble.items() if entry.image in images and kind != "not accepted"]
    marks += [pill([icon("alert"), OBSTACLE_WORDS[kind].lower()], "bad") for kind in against]
    note = el("span", SPLIT_WORDS[entry.split], class_=f"split {entry.split or 'none'}")
    return shot(entry, *marks, note=note, aria_pressed="false" if shown.is_draft else None)
