"""Fills in the templates of Evaluate."""

from __future__ import annotations

from core import evaluation_results
from core.masks import colour
from core.model_sections import in_bytes
from services.evaluation.types import Cell
from ui import templating
from ui.evaluate import plots, words
from ui.evaluate.explained import explained
from ui.markup import Html

_NAMED = {
    **templating.functions(plots),
    **templating.functions(words),
    **{name: value for name, value in {**vars(evaluation_results), **vars(words)}.items() if name.isupper()},
    "Cell": Cell,
    "colour": colour,
    "explained": explained,
    "in_bytes": in_bytes,
    "zip": zip,
}


def render(name: str, /, **values: object) -> Html:
    """Fill in `templates/NAME.html`, which may use the names in `_NAMED`."""
    return templating.render(f"evaluate/{name}.html", **{**_NAMED, **values})
