"""The list of batches, the page to plan a new one, and the page of one batch, as markup. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.image_filter import ImageFilter
from core.types import TaskKind
from core.words import count_of, duration
from services.batches.drawn_scenes import COUNT
from services.batches.estimate import Estimate, amount
from services.batches.service import BatchDetails, BatchStatus
from services.batches.shipped import ShippedPlan
from services.curation.views import gallery_address
from ui.batches import words
from ui.batches.words import SCRIPTS, SHEETS, rate
from ui.diff import shortened, word_diff
from ui.evaluate.words import evaluate_address
from ui.explore.parts import UNKNOWN_PICTURE, differences
from ui.frame import page
from ui.markup import Html
from ui.templating import render

CHART_HEIGHT = 72
"""Height of the chart, in pixels."""
PARTS = ("head", "problem", "look", "approve", "progress", "latest", "figures", "failures", "notes")
"""Templates of the parts that change on the page. Their ids begin with "part-"."""
STARTER = Path(__file__).with_name("starter.toml").read_text(encoding="utf-8")
"""The first text of a new plan. The profile is that of the studio."""
DRAWN: Mapping[TaskKind, tuple[str, str]] = {
    "classification": (
        "Drawn scenes (demo)",
        f"{COUNT} pictures of a bird, a boat, a house …, each with its label. They are drawn when you press Choose "
        "the images.",
    ),
    "segmentation": (
        "Drawn streets (demo)",
        f"{COUNT} pictures of streets, each with a mask. They are drawn when you press Choose the images.",
    ),
}
"""Title and words of the data sets that the studio draws itself."""


# The list


def batch_page(details: BatchDetails, signed_in: bool) -> str:
    """Return the page of one batch."""
    batch = details.status.batch
    content = render("batches/batch.html", words=words, batch=batch, parts=parts(details))
    return page(batch.name, content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def parts(details: BatchDetails) -> Mapping[str, Html]:
    """Return the parts of a batch's page that change, by id."""
    view, hour, estimate = details.status, details.hour, details.estimate
    current, most = view.current, max(hour)
    in_batch = ImageFilter(facets={"batch": (view.batch.facet,)})
    values = {
        "words": words,
        "details": details,
        "view": view,
        "sample": [
            (case, differences(shortened(word_diff(case.caption, case.new_caption))) if case.caption else "")
            for case in details.sample
        ],
        "unknown_picture": UNKNOWN_PICTURE,
        "takes": _drawing_takes(estimate) if estimate is not None else "",
        "columns": _columns(hour),
        "most": most,
        "height": CHART_HEIGHT,
        "hour_words": f"{current.title} in the last hour: {sum(hour):,} done, at most {most:,} in a minute",
        "now": rate(current.a_minute) if current.a_minute and view.state == "running" else "",
        "figures": _figures(view),
        "gallery": gallery_address(in_batch),
        "evaluate": evaluate_address(filter=in_batch.address),
    }
    return {f"part-{name}": render(f"batches/{name}.html", **values) for name in PARTS}


def _drawing_takes(found: Estimate) -> str:
    """Return the estimated time, disk space and cost of the images."""
    _, _, *further = found.words()
    if (hours := found.hours_by_stage["images"]) is None:
        return "How long it takes, nobody can tell: no image was drawn with these models and settings here before."
    workers = count_of(found.workers, "worker")
    return f"It takes about {duration(3600 * hours)} with {workers}. {' '.join(further)}"


def _columns(hour: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """Return text, place, top and height of a column for each minute in which something was done."""
    most = max(hour)
    return [
        (
            f"{59 - place} min ago: {number:,}" if place < 59 else f"this minute: {number:,}",
            f"{100 * place / 60:.3f}",
            f"{CHART_HEIGHT * (1 - number / most):.1f}",
            f"{CHART_HEIGHT * number / most:.1f}",
        )
        for place, number in enumerate(hour)
        if number
    ]


def _figures(view: BatchStatus) -> tuple[tuple[str, str, str], ...]:
    """Return name, figure and remark of each figure of a batch."""
    reviewed = view.accepted + view.rejected
    return (
        ("Images", f"{view.images.number('done'):,}", f"of {view.images.total:,} planned" if view.images.total else ""),
        ("Accepted", f"{view.accepted:,}", f"of {reviewed:,} judged" if reviewed else "none was judged yet"),
        *_costs(view),
    )


def _costs(view: BatchStatus) -> tuple[tuple[str, str, str], ...]:
    """Return name, figure and remark of the costs of a batch; () if its plan names no price."""
    if view.cost is None:
        return ()
    each, share = view.cost_of_valid, view.share_valid
    if each is None:
        of_each = "cannot tell yet"
        why = "studies find none of them valid" if share is not None else "no image was accepted yet"
    else:
        of_each, why = amount(each, view.currency), f"by {count_of(view.accepted, 'image')} that people accepted"
        if share is not None:
            why += f", of which studies find {100 * share:.0f} % valid ({view.valid} of {view.valid + view.invalid})"
    return (
        ("Cost so far", amount(view.cost, view.currency), "the hours of work so far, by the clock"),
        ("Per valid test case", of_each, why),
    )


def list_page(views: Sequence[BatchStatus], signed_in: bool) -> str:
    """Return the page of all batches, latest first."""
    content = render("batches/batches.html", shown=list_part(views))
    return page("Batches", content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def list_part(views: Sequence[BatchStatus]) -> Html:
    """Return the rows of the list, or an explanation of batches while there are none."""
    at_work = any(view.at_work for view in views)
    return render("batches/list.html", words=words, views=views, at_work=at_work, duration=duration)


# A new one


@dataclass(frozen=True)
class Start:
    """A text to begin a plan with."""

    title: str
    words: str
    """One sentence about it."""
    text: str


def starts(profile: str, shipped: Sequence[ShippedPlan], scenes: Mapping[TaskKind, str]) -> tuple[Start, ...]:
    """Return the texts that a new plan can begin with; the first is the default. `profile` is that of the studio;
    `scenes` are its plans of drawn scenes, by task.
    """
    drawn = [Start(*DRAWN[kind], text) for kind, text in scenes.items()]
    plain = Start("A folder of pictures", "A few lines for pictures of your own.", STARTER.format(profile=profile))
    papers = (
        Start(f"{one.title}, as in the paper", f"{one.note}. It takes the profile “{one.profile}”.", one.text)
        for one in shipped
    )
    return *drawn, plain, *papers


def new_page(text: str, offered: Sequence[Start], layouts: Mapping[str, tuple[str, str]], signed_in: bool) -> str:
    """Return the page to write a plan. It offers texts to begin with, and its field holds `text` at first."""
    content = render("batches/new.html", text=text, offered=offered, layouts=layouts, planning=planning_part(0, ""))
    return page("New batch", content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def planning_part(work: int, text: str) -> Html:
    """Return the progress of the planning; empty while nothing is planned."""
    return render("batches/planning.html", work=work, doing=text)
