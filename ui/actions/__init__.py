"""What the buttons and fields of the page do: a name and its data in, the run to show and what went wrong out.

A module for each kind of thing, with a table of its actions at its end. Knows no Gradio and no HTML. The data come
from a browser: nothing in them is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from pipeline.errors import UserError
from pipeline.types import StageName
from ui.actions import masks, prompts, reviews, runs, settings, values, work
from ui.actions.data import Action, Data, text_of
from ui.studio import Studio

__all__ = ["ACTIONS", "Outcome", "perform"]

ACTIONS: dict[str, Action] = {
    **masks.ACTIONS,
    **prompts.ACTIONS,
    **reviews.ACTIONS,
    **runs.ACTIONS,
    **settings.ACTIONS,
    **values.ACTIONS,
    **work.ACTIONS,
}
"""Every action of the page by its name."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action."""

    run_id: str
    """The run to show; "" for the start page."""
    problem: str = ""
    where: str = ""
    """The card that the problem belongs to: a stage, "source" or "start"."""


def perform(studio: Studio, run_id: str, action: Data) -> Outcome:
    """Do one thing. A person's mistake comes back as the problem of its card, and everything stays as it was."""
    name = text_of(action, "name")
    if name not in ACTIONS:
        raise ValueError(f"the page knows no action {name!r}")
    try:
        elsewhere = ACTIONS[name](studio, run_id, action)
        return Outcome(run_id if elsewhere is None else elsewhere)
    except UserError as error:
        where = _card(name, action)
        if where in get_args(StageName) and run_id:
            studio.failed(run_id, where, error)  # type: ignore[arg-type]
        return Outcome(run_id, str(error), where)


def _card(name: str, action: Data) -> str:
    if name in ("run", "run-from", "keep", "undo", "bring-back", "prompt-save", "prompt-back"):
        return text_of(action, "stage") or "source"
    if name == "setting":
        stage = text_of(action, "setting").split(".")[0]
        return "generation" if stage == "conditioning" else stage
    prefixes = {
        "caption": "caption",
        "keyword": "keywords",
        "alternative": "alternatives",
        "generate": "generation",
        "regenerate": "generation",
        "preset": "generation",
        "reuse": "generation",
        "draw": "generation",
        "queue": "generation",
    }
    prefixes |= {"counterfactual": "counterfactuals", "sample": "start", "open": "start"}
    return prefixes.get(name.split("-")[0], "source")
