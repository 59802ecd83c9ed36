"""The list of batches, and the page on which a new one is planned, as markup. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.types import TaskKind
from core.words import duration
from services.batches.drawn_scenes import COUNT
from services.batches.service import BatchStatus
from services.batches.shipped import ShippedPlan
from ui.batches.words import BATCHES, NEW, SCRIPTS, SHEETS, about, batch_address, pass_bar, state_words
from ui.explore.parts import acts, button, first_steps, icon, list_line, page_head, pill, press
from ui.frame import page
from ui.markup import Child, Html, el
from ui.study.fields import area, card, field
from ui.study.words import when

STARTER = """name = "My first batch"

[data]
root = ""                   # where they lie: a whole path
layout = "imagefolder"      # a folder a class; see the list
split = ""                  # which one, where there are several

[task]
kind = "classification"     # the label of an image is its class

[choose]
number = 100                # at random; without this line all of them

[make]
profile = "{profile}"

[edits]
captions_a_source = 2       # test cases of one image

[cost]
# price_an_hour = 1.0       # of all machines at work together
# currency = "USD"
"""
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
    return page(
        "Batches",
        el("div", _title(), list_part(views)),
        here="batches",
        signed_in=signed_in,
        sheets=SHEETS,
        scripts=SCRIPTS,
    )


def _title() -> Html:
    return el(
        "div",
        el("h1", "Batches"),
        el("span", class_="grow"),
        el("a", icon("plus"), "New batch", href=NEW, class_="btn p", id="new"),
        class_="title",
    )


def list_part(views: Sequence[BatchStatus]) -> Html:
    """The lines of the list, or what a batch is as long as there is none."""
    return el(
        "section",
        [_line(view) for view in views] if views else _none(),
        id="part-list",
        class_="batch-list",
        data_at_work=any(view.at_work for view in views),
    )


def _line(view: BatchStatus) -> Html:
    batch, images = view.batch, view.images
    made = f"{images.number('done'):,} of {images.total:,} images" if images.total else "no images yet"
    words, tone = state_words(view)
    left = view.current.seconds_left if view.state == "running" else None
    told = el("small", made, f" · {duration(left)} left" if left is not None else "", class_="mut")
    return list_line(
        batch.name,
        about(view),
        batch_address(batch.id),
        "batch-line",
        pill(words, tone),
        el("span", pass_bar(view.current), told, class_="progress"),
        when=when(batch.created),
    )


def _none() -> Html:
    steps = (
        ("Plan", "A few lines say which images of a data set are taken, with which models, and what is made of them."),
        ("Look", "All captions are written first. You see a sample of them before a single image is drawn."),
        ("Go on", "It may be paused, or end with the machine, at any time: it goes on where it was, each image once."),
    )
    return first_steps(
        "A whole data set at once",
        "A batch makes test cases of thousands of images. They come into the gallery of Curate while it goes on, and "
        "each of them opens in Explore.",
        steps,
        acts(el("a", "Plan the first batch", href=NEW, class_="btn p")),
        "first-batch",
    )


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
    head = page_head("All batches", BATCHES, el("h1", "New batch"), class_="batch-head")
    form = el(
        "form",
        _starts(text, offered),
        field(
            "plan",
            "The plan, as TOML",
            area("plan", text, 24, spellcheck="false", class_="code"),
            {},
            "Write it here, or take a plan.toml: it is the same file that “python -m pipeline batch” takes.",
        ),
        el("p", "", class_="wrong", data_problem="", role="alert"),
        acts(
            el("button", "Choose the images", type="submit", class_="btn p", id="plan-it"),
            el(
                "label",
                "Take a file",
                el("input", type="file", id="plan-file", accept=".toml,text/plain", aria_label="Take a file"),
                class_="btn file-choice",
            ),
            el("span", "Nothing is made yet: you see what it takes before it begins.", class_="mut small"),
        ),
        planning_part(0, ""),
        id="plan-form",
        class_="card part",
        novalidate=True,
    )
    known = [
        el("tr", el("td", el("code", name)), el("td", title), el("td", expected, class_="mut"))
        for name, (title, expected) in layouts.items()
    ]
    about = card(
        None,
        "Layouts",
        el("div", el("table", el("tbody", known), class_="layouts-table"), class_="scroll"),
        lead="What data.layout can be. A data set is read where it lies, and nothing of it is copied.",
    )
    return page(
        "New batch",
        el("div", head, el("div", form, about, class_="batch-new")),
        here="batches",
        signed_in=signed_in,
        sheets=SHEETS,
        scripts=SCRIPTS,
    )


def _starts(text: str, offered: Sequence[Start]) -> Html:
    """The texts to begin with, and the question before one takes the place of what somebody has typed."""
    choices = [
        press(
            one.title,
            class_="chip on" if one.text == text else "chip",
            aria_pressed="true" if one.text == text else "false",
            data_start=one.text,
            data_words=one.words,
        )
        for one in offered
    ]
    words = next((one.words for one in offered if one.text == text), "")
    ask = el(
        "div",
        el("span", "", id="ask-words"),
        el(
            "span",
            button("Replace it", look="s", id="replace"),
            button("Keep it", look="s q", id="keep"),
            class_="acts",
        ),
        id="ask-replace",
        class_="notice asks",
        role="alert",
        hidden=True,
    )
    return el(
        "div",
        el("span", "Begin with", class_="label", id="starts-label"),
        el("div", choices, class_="chips", role="group", aria_labelledby="starts-label"),
        el("p", words, class_="hint", id="start-words"),
        ask,
        class_="entry starts",
    )


def planning_part(work: int, words: str) -> Html:
    """How far the planning is; empty while nothing is planned."""
    shown: Child = None
    if words:
        shown = [el("span", words), button("Stop", look="s", data_stop_planning=work)]
    return el("div", shown, id="part-planning", class_="working", role="status")
