"""The cards of a recipe's text stages: each that has one of its own, and a general one for any other type of value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.types import StageName, to_text
from services.runs.state import RunState
from ui.explore.brush import region_card
from ui.explore.counterfactuals import counterfactuals_card
from ui.explore.stage import stage_card
from ui.explore.text_stages import alternatives_card, caption_card, keywords_card
from ui.markup import Html
from ui.templating import render


def general_card(name: StageName, state: RunState) -> Html:
    """The card of a stage whose type of value has none of its own: the value as text, which a person may edit."""
    stage, stored = state.recipe.stage(name), state.run.values.get(name)
    text = to_text(stored.value.value) if stored is not None else ""
    values = {read: held.value.value for read, held in state.run.values.items()}
    remarks = stage.remarks(stored.value.value, values, state.run.task) if stored is not None else []
    shown = render("explore/value.html", state=state, stage=stage, text=text, remarks=remarks)
    return stage_card(name, state, shown)


CARDS: Mapping[StageName, Callable[[RunState], Html]] = {
    "caption": caption_card,
    "keywords": keywords_card,
    "alternatives": alternatives_card,
    "counterfactuals": counterfactuals_card,
    "region": region_card,
}
"""Of the stages whose values have a card of their own."""


def card_of(name: StageName, state: RunState) -> Html:
    """The card of a text stage of the run's recipe."""
    own = CARDS.get(name)
    return own(state) if own is not None else general_card(name, state)
