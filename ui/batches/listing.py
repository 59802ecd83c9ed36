"""The list of batches, and the page on which a new one is planned, as markup. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.types import TaskKind
from core.words import duration
from services.batches.drawn_scenes import COUNT
from services.batches.service import BatchStatus
from services.batches.shipped import ShippedPlan
from ui.batches import words
from ui.batches.words import SCRIPTS, SHEETS
from ui.frame import page
from ui.markup import Html
from ui.templating import render

STARTER = Path(__file__).with_name("starter.toml").read_text(encoding="utf-8")
"""What a new plan begins with; the profile is that of the studio."""
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


def list_page(views: Sequence[BatchStatus], signed_in: bool) -> str:
    """All batches, the latest first."""
    content = render("batches/batches.html", shown=list_part(views))
    return page("Batches", content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def list_part(views: Sequence[BatchStatus]) -> Html:
    """The lines of the list, or what a batch is as long as there is none."""
    at_work = any(view.at_work for view in views)
    return render("batches/list.html", words=words, views=views, at_work=at_work, duration=duration)


# A new one


@dataclass(frozen=True)
class Start:
    """A text that a plan can begin with."""

    title: str
    words: str
    """What it is, in a sentence."""
    text: str


def starts(profile: str, shipped: Sequence[ShippedPlan], scenes: Mapping[TaskKind, str]) -> tuple[Start, ...]:
    """What a new plan can begin with, the first one unasked. `profile` is that of the studio; `scenes` are the plans of
    drawn scenes that it has, by their task.
    """
    drawn = [Start(*DRAWN[kind], text) for kind, text in scenes.items()]
    plain = Start("A folder of pictures", "A few lines for pictures of your own.", STARTER.format(profile=profile))
    papers = (
        Start(f"{one.title}, as in the paper", f"{one.note}. It takes the profile “{one.profile}”.", one.text)
        for one in shipped
    )
    return *drawn, plain, *papers


def new_page(text: str, offered: Sequence[Start], layouts: Mapping[str, tuple[str, str]], signed_in: bool) -> str:
    """Page to write a plan. It offers texts to begin with, and its field holds `text` at first."""
    content = render("batches/new.html", text=text, offered=offered, layouts=layouts, planning=planning_part(0, ""))
    return page("New batch", content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def planning_part(work: int, doing: str) -> Html:
    """How far the planning is; empty while nothing is planned."""
    return render("batches/planning.html", work=work, doing=doing)
