"""The example on the start page: what it is, the button that makes it, how far that is, and where its parts are."""

from __future__ import annotations

from services.curation.views import gallery_address
from services.example.service import ExampleView
from ui.batches.words import BATCHES
from ui.curate.sets_words import SETS
from ui.evaluate.words import evaluate_address
from ui.explore.parts import acts, bar, button, el, left, muted, notice, problem
from ui.markup import Child, Html
from ui.study.addresses import study_address

WHAT = (
    "Sixty drawn scenes become test cases, reviews, test sets, evaluations and a study with simulated votes. It takes "
    "about two minutes on this machine. One press removes it again."
)


def example_card(view: ExampleView, offered: bool) -> Html | None:
    """The card of the example. None where none is offered and none is there."""
    if not offered and view.state == "none":
        return None
    title, words, below, buttons = _of_state(view, offered)
    return el(
        "section",
        el("div", el("h2", title), muted(words), class_="what"),
        acts(*buttons),
        *below,
        problem(view.problem, "example-problem") if view.problem else None,
        notice(view.kept, "example-kept") if view.kept else None,
        class_="card example",
        id="example",
        data_key="example",
        aria_label="The example",
    )


def _of_state(view: ExampleView, offered: bool) -> tuple[str, str, list[Child], list[Child]]:
    """Title, words, what stands below them, and the buttons."""
    if view.state == "none":
        make = button("Make an example", "make-example", "p", id="make-example")
        return "See everything filled", WHAT, [], [make]
    if view.state == "removing":
        return "Removing the example", "One moment.", [bar(None, "Removing the example")], []
    if view.state == "making":
        doing = "Stopping. What was made stays." if view.stopping else _doing(view)
        share = None if view.stopping else view.share
        stop = button("Stop", "stop-example", "", id="stop-example", disabled=view.stopping)
        return "Making the example", doing, [bar(share, "Making the example")], [stop]
    remove = button("Remove the example", "remove-example", "q", id="remove-example")
    if view.state == "unfinished":
        go_on = button("Go on", "make-example", "p", id="make-example") if offered else None
        words = "It was stopped. What was made is kept: go on from there, or remove it."
        return "The example is half made", words, [], [go_on, remove]
    return "The example is ready", "Its votes and reviews are simulated.", [_links(view)], [remove]


def _doing(view: ExampleView) -> str:
    step = f"Step {view.step} of {view.steps}: " if view.step else ""
    return f"{step}{view.doing}{left(view.seconds_left)}"


def _links(view: ExampleView) -> Html:
    links = [("Batches", BATCHES), ("Images", gallery_address()), ("Test sets", SETS)]
    links += [(f"Evaluation: {one.title}", evaluate_address(version=one.version, key=one.model)) for one in view.sets]
    if view.study:
        links.append(("Study", study_address(view.study)))
    return el(
        "nav", [el("a", words, href=to, class_="btn s") for words, to in links], aria_label="Parts of the example"
    )
