"""The example on the start page: what it is, the button that makes it, how far that is, and where its parts are."""

from __future__ import annotations

from services.curation.views import gallery_address
from services.example.service import ExampleView
from ui.batches.words import BATCHES
from ui.curate.sets_words import SETS
from ui.evaluate.words import evaluate_address
from ui.markup import Html
from ui.study.addresses import study_address
from ui.templating import render


def example_card(view: ExampleView, offered: bool) -> Html | None:
    """The card of the example. None where none is offered and none is there."""
    if not offered and view.state == "none":
        return None
    links = [("Batches", BATCHES), ("Images", gallery_address()), ("Test sets", SETS)]
    links += [(f"Evaluation: {one.title}", evaluate_address(version=one.version, key=one.model)) for one in view.sets]
    links += [("Study", study_address(view.study))] if view.study else []
    return render("explore/example.html", view=view, offered=offered, links=links)
