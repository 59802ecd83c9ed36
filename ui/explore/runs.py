"""The list of runs: a picture, the task, how far it is and since when; and what can be done with each."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby

from core.stored_runs import BatchOfRuns, EditedShare, RunSummary
from core.types import stage_doing, stage_title
from core.words import count_of
from services.jobs import JobView
from services.runs.life_cycle import Listing
from services.runs.words import text_progress
from ui.explore.large import image_url
from ui.explore.parts import CONTROL, acts, button, describe_task, heading, icon, muted, named_row, small, text_line
from ui.markup import Child, Html, el

SEARCH_FROM = 7
"""With fewer runs a search field would only be in the way."""


def run_list(
    listed: Listing, run_id: str, today: datetime | None = None, edited: tuple[EditedShare, ...] | None = None
) -> Html:
    """List the runs and those that were deleted. `run_id` is open; `edited` is None while nobody looks at it."""
    now = today or datetime.now().astimezone()
    items = [
        _batch(run, run.batch, now)
        if run.batch is not None
        else _item(run, listed.jobs.get(run.id), run.id == run_id, now)
        for run in listed.runs
    ]
    new = button([icon("plus"), "New"], look="s", data_go="new", id="new-run")
    choose = button("Select", look="s", data_select_runs=True, id="select-runs", aria_pressed="false")
    head = heading("Runs", choose if listed.runs else None, new)
    return el(
        "div",
        head,
        _search(listed),
        _picked(),
        _said(listed),
        items,
        _edited(edited) if listed.runs else None,
        _removed(listed, now),
        _restore(),
        class_="runs",
    )


def state_of(run: RunSummary, job: JobView | None) -> str:
    """How far a run is, in a few words."""
    if job is not None:
        if job.state == "waiting" or (job.stage is None and job.stages):
            return "in the queue"
        return CONTROL if job.stage is None else stage_doing(job.stage)
    results = count_of(run.test_cases, "result")
    if run.job in ("interrupted", "failed"):
        return f"{run.job} · {results}" if run.test_cases else str(run.job)
    if run.accepted:
        return f"{run.accepted} of {results} accepted"
    if run.test_cases:
        return results
    return text_progress(run)


def date_words(moment: datetime, now: datetime) -> str:
    """When, as people say it: 10:42, yesterday, 3 Nov, 3 Nov 2024."""
    there = moment.astimezone(now.tzinfo)
    days = (now.date() - there.date()).days
    if days <= 0:
        return there.strftime("%H:%M")
    if days == 1:
        return "yesterday"
    return f"{there.day} {there:%b}" if there.year == now.year else f"{there.day} {there:%b} {there.year}"


def _item(run: RunSummary, job: JobView | None, shown: bool, now: datetime) -> Html:
    state = state_of(run, job)
    tone = " warn" if job is None and run.job in ("interrupted", "failed") else ""
    words = el(
        "span",
        el("b", run.name, title=run.name),
        el("small", el("span", state, class_=f"state{tone}"), title=state),
        el(
            "small",
            describe_task(run.task),
            " · ",
            el("span", date_words(run.changed, now), class_="when"),
            title=run.changed.astimezone().strftime("%c"),
        ),
        class_="what",
    )
    link = el(
        "a",
        el("img", src=image_url(run.source_sha), alt="", loading="lazy"),
        words,
        href=f"?run={run.id}",
        class_="run",
        data_go="open",
        data_run=run.id,
        aria_current="true" if shown else None,
    )
    pick = el(
        "label",
        el(
            "input",
            type="checkbox",
            data_pick_run=run.id,
            data_own=True,
            aria_label=f"Select {run.name}",
        ),
        class_="pick",
        data_accepted=run.accepted,  # what is the person's own is left alone when the list comes anew
    )
    return el(
        "div", pick, link, _menu(run, job), class_=f"card run-item{' on' if shown else ''}", data_key=f"run-{run.id}"
    )


def _batch(latest: RunSummary, batch: BatchOfRuns, now: datetime) -> Html:
    """The one line of all runs of a batch, with the picture of the latest."""
    words = el(
        "span",
        el("b", batch.name, title=batch.name),
        el("small", f"batch of {count_of(batch.runs, 'picture')}"),
        el("small", el("span", date_words(latest.changed, now), class_="when")),
        class_="what",
    )
    picture = el("img", src=image_url(latest.source_sha), alt="", loading="lazy")
    link = el("a", picture, words, href=f"/batches/{batch.number}", class_="run", title="Open the batch")
    return el("div", link, class_="card run-item of-batch", data_key=f"batch-{batch.number}")


def _menu(run: RunSummary, job: JobView | None) -> Html:
    results = f" and its {run.test_cases} results" if run.test_cases > 1 else ""
    results = results or (" and its result" if run.test_cases else "")
    busy = job is not None
    remove = button("Delete", look="s bad", data_remove_run=run.id, data_name=run.name, disabled=busy)
    asked = el(
        "div",
        el(
            "p",
            f"Delete “{run.name}”{results}? It can be put back."
            if not busy
            else "It is being worked on: cancel it first.",
        ),
        acts(remove, button("Keep", look="s", data_keep_run=True)),
        class_="asked",
    )
    menu = acts(
        button("Rename", look="s", data_rename_run=run.id),
        button(
            "Duplicate", "run-duplicate", "s", data_run=run.id, title="The same picture, task and texts, without images"
        ),
        el("details", el("summary", "Delete…", class_="btn s"), asked, class_="ask", data_key=f"ask-{run.id}"),
    )
    more = el("summary", icon("dots"), class_="btn s q icon-only", aria_label=f"More about {run.name}", title="More")
    return el("details", more, menu, class_="menu", data_key=f"menu-{run.id}")


def _picked() -> Html:
    """What can be done with the runs that are selected. Which those are is known to the script."""
    save = el(
        "a",
        icon("down"),
        "Save accepted",
        class_="btn s",
        download=True,
        id="save-picked",
        title="A ZIP file with all accepted images of these runs, their masks, and metadata.parquet",
    )
    remove = button("Delete", look="s bad", data_remove_picked=True)
    keep = button("Keep", look="s", data_keep_run=True)
    words = el("p", "Delete these runs with all their images? They can be put back.")
    asked = el("div", words, acts(remove, keep), class_="asked")
    return el(
        "div",
        el("span", el("b", id="picked-count", data_own=True), class_="said"),
        button("All shown", look="s q", data_pick_all=True),
        acts(
            save,
            button("Show together", look="s", data_go="new", id="open-picked"),
            el("details", el("summary", "Delete…", class_="btn s"), asked, class_="ask", id="delete-picked"),
        ),
        class_="picked",
        id="picked",
        data_own=True,
    )


def _search(listed: Listing) -> Child:
    if listed.total < SEARCH_FROM and not listed.find:
        return None
    return text_line(
        id="find-run",
        placeholder="Find by name or label",
        aria_label="Find a run by its name or label",
        maxlength=200,
        data_own=True,
    )


def _said(listed: Listing) -> Child:
    if not listed.total:
        return muted("Every picture you work on is kept here.")
    if not listed.found:
        return muted(f"No run has “{listed.find}” in its name or label.", id="found-none")
    shown = sum(run.batch.runs if run.batch is not None else 1 for run in listed.runs)
    if listed.found > shown:
        words = f"The latest {shown} of {listed.found} are shown: find others by their name."
        return small(words)
    return None


def _removed(listed: Listing, now: datetime) -> Child:
    if not listed.removed:
        return None
    rows = [
        el(
            "li",
            el("img", src=image_url(run.source_sha), alt="", loading="lazy"),
            el("span", run.name, title=date_words(run.changed, now)),
            button("Put back", "restore-run", "s", data_run=run.id),
            data_key=f"removed-{run.id}",
        )
        for run in listed.removed
    ]
    return el("details", el("summary", f"Deleted ({len(rows)})"), el("ul", rows), class_="removed", id="removed-runs")


def _edited(shares: tuple[EditedShare, ...] | None) -> Html:
    """How many of the values of each stage people changed, by profile. Read when it is opened, and while it is open."""
    shown: Child = muted("One moment.")
    if shares is not None:
        shown = [_of_profile(name, list(held)) for name, held in groupby(shares, lambda one: one.profile)]
        note = "Runs whose value at the stage is a person's and not one that a model gave there."
        shown = [shown or muted("No stage has a value yet."), small(note)]
    return el("details", el("summary", "What people changed"), shown, class_="removed edited", id="edited-values")


def _of_profile(name: str, shares: list[EditedShare]) -> Html:
    rows = [
        named_row(
            stage_title(one.stage),
            el("td", f"{one.changed} of {one.values}"),
            el("td", f"{round(100 * one.share)} %"),
            data_key=f"edited-{name}-{one.stage}",
        )
        for one in shares
    ]
    return el("table", el("caption", name), el("tbody", rows), data_key=f"edited-{name}")


def _restore() -> Html:
    picker = el(
        "input", type="file", accept="image/png", data_file="run", id="run-file", aria_label="An image with a run"
    )
    words = "Open the run that an image of this studio carries; dropping it on the page does the same"
    return el("label", "Open a saved image", picker, class_="btn s q file restore", title=words)
