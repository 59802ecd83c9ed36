"""The card on which a person paints a region over the source image; `assets/brush.js` is the brush."""

from __future__ import annotations

from core.regions import WHOLE
from core.types import StageName
from services.runs.state import RunState
from ui.explore.large import image_url
from ui.explore.stage import stage_card
from ui.markup import Html
from ui.templating import render


def region_card(state: RunState) -> Html:
    """Where the source may change."""
    return brush_card("region", state, "may change")


def brush_card(name: StageName, state: RunState, words: str) -> Html:
    """The card of a stage whose value is a `Region`. `words` say what the painted part does, such as "may change"."""
    stored, undone = state.run.values.get(name), state.steps.next_redo
    shown = render(
        "explore/brush.html",
        name=name,
        state=state,
        title=state.recipe.stage(name).title,
        region=stored.value.value if stored is not None else WHOLE,
        words=words,
        source=image_url(state.run.source_sha),
        can_redo=undone is not None and undone.stages == (name,),
    )
    return stage_card(name, state, shown)
