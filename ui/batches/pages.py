"""HTML of the list of batches, the page to plan a batch, and the page of one batch. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.figures import percent
from core.image_filter import Facet, ImageFilter
from core.types import TaskKind
from core.words import meaning
from services.batches.drawn_scenes import COUNT
from services.batches.estimate import amount
from services.batches.service import BatchDetails, BatchStatus
from services.batches.shipped import ShippedPlan
from services.curation.views import gallery_address
from services.evaluation.search_commands import SearchState
from services.work_queue import WorkView
from ui.batches import words
from ui.batches.words import SCRIPTS, SHEETS, rate
from ui.diff import shortened, word_diff
from ui.evaluate.words import evaluate_address
from ui.explore.parts import UNKNOWN_PICTURE, differences
from ui.frame import page
from ui.markup import Html
from ui.templating import render

CHART_HEIGHT = 72
"""Height of the speed chart on a batch's page, in pixels."""
PARTS = ("head", "problem", "look", "approve", "search", "progress", "latest", "figures", "failures", "notes")
"""Templates of the parts of a batch's page that are updated. A part's HTML id is "part-" and the template's name."""
STARTER = Path(__file__).with_name("starter.toml").read_text(encoding="utf-8")
"""Text of a plan for a folder of pictures. The name of the studio's profile replaces "{profile}"."""
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
"""Title and description of a data set that the studio draws itself, for each task."""


# The list


def batch_page(details: BatchDetails, search: SearchState) -> str:
    """Return the page of one batch."""
    batch = details.status.batch
    content = render("batches/batch.html", words=words, batch=batch, parts=parts(details, search))
    return page(batch.name, content, here="batches", sheets=SHEETS, scripts=SCRIPTS)


def parts(details: BatchDetails, search: SearchState) -> Mapping[str, Html]:
    """Return the parts of a batch's page, by HTML id. An open page is updated with them."""
    view, current = details.status, details.status.current
    in_batch = ImageFilter(facets={"batch": (view.batch.facet,)})
    values = {
        "words": words,
        "details": details,
        "search": search,
        "percent": percent,
        "gallery_of": lambda *names: gallery_address(_images_of(in_batch, *names)),
        "meaning": meaning,
        "view": view,
        "sample": [
            (case, differences(shortened(word_diff(case.caption, case.new_caption))) if case.caption else "")
            for case in details.sample
        ],
        "unknown_picture": UNKNOWN_PICTURE,
        "height": CHART_HEIGHT,
        "now": rate(current.a_minute) if current.a_minute and view.state == "running" else "",
        "amount": amount,
        "gallery": gallery_address(in_batch),
        "evaluate": evaluate_address(filter=in_batch.address),
    }
    return {f"part-{name}": render(f"batches/{name}.html", **values) for name in PARTS}


def _images_of(in_batch: ImageFilter, label: str, edit_type: str, meaning: str) -> ImageFilter:
    """Narrow the filter of a batch's images to a label, an edit type and a meaning of the edit; "" allows any."""
    named: dict[Facet, str] = {"class": label, "edit type": edit_type}
    facets = {name: (value,) for name, value in named.items() if value}
    return ImageFilter(facets={**in_batch.facets, **facets}, edited=meaning)


def list_page(views: Sequence[BatchStatus]) -> str:
    """Return the page of all batches, latest first."""
    content = render("batches/batches.html", shown=list_part(views))
    return page("Batches", content, here="batches", sheets=SHEETS, scripts=SCRIPTS)


def list_part(views: Sequence[BatchStatus]) -> Html:
    """Return the rows of the list of batches. While there are none, return an explanation instead."""
    at_work = any(view.at_work for view in views)
    return render("batches/list.html", words=words, views=views, at_work=at_work)


# A new batch


@dataclass(frozen=True)
class Start:
    """Text and title of a plan to begin with, which a person can then change."""

    title: str
    words: str
    """One sentence about the plan."""
    text: str


def starts(profile: str, shipped: Sequence[ShippedPlan], scenes: Mapping[TaskKind, str]) -> tuple[Start, ...]:
    """Return plans to begin with: a plan for each of the drawn `scenes`, a plan for a folder of pictures, and the
    `shipped` plans. The first plan is the default.
    """
    drawn = [Start(*DRAWN[kind], text) for kind, text in scenes.items()]
    plain = Start("A folder of pictures", "A few lines for pictures of your own.", STARTER.format(profile=profile))
    papers = (
        Start(f"{one.title}, as in the paper", f"{one.note}. It takes the profile “{one.profile}”.", one.text)
        for one in shipped
    )
    return *drawn, plain, *papers


def new_page(text: str, offered: Sequence[Start], layouts: Mapping[str, tuple[str, str]]) -> str:
    """Return the page to write a plan. `text` is in the field at first; `offered` are other plans to begin with."""
    content = render("batches/new.html", text=text, offered=offered, layouts=layouts, planning=planning_part(None))
    return page("New batch", content, here="batches", sheets=SHEETS, scripts=SCRIPTS)


def planning_part(work: WorkView | None) -> Html:
    """Return the progress of planning a batch; empty if none is being planned."""
    return render("batches/planning.html", work=work)
