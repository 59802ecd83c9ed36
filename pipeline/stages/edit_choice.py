"""Lets the language model choose which edits go together, before the captions of stage 4 are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import UnreadableReply
from core.settings import CounterfactualSettings
from core.types import Edit, PromptSlot
from pipeline.stages.asking import Answer, Inquiry, ask
from pipeline.stages.base import StageInputs
from pipeline.stages.parsing import Unreadable, read_edits
from pipeline.stages.reply_schema import edits_schema

EDITS_PROMPT = PromptSlot(
    "edits",
    ("task", "caption", "alternatives"),
    ("captions", "most"),
    needed=False,
    title="which edits go together",
)
"""Prompt that asks for the choice. `$alternatives` are the ticked alternatives by keyword, `$captions` is the maximum
number of captions, and `$most` the maximum number of edits in a caption."""


@dataclass(frozen=True)
class Choice:
    """The edits that the model chose."""

    edits: tuple[tuple[Edit, ...], ...] = ()
    """Edits of each caption, in caption order. Empty if none could be used; `note` then says why."""
    note: str = ""
    sent: tuple[Answer[Any] | UnreadableReply, ...] = ()
    """The request, with its prompt and reply; empty if nothing was asked."""


def read_combinations(reply: str, pools: Sequence[Sequence[Edit]], at_once: int) -> list[tuple[Edit, ...]]:
    """Return the combinations of edits that a reply names, each in the order of `pools` (edits by keyword). Leave out a
    combination if it has more than `at_once` edits or two edits of a keyword. Raises Unreadable if the reply has none.
    """
    offered = {(edit.keyword, edit.alternative): edit for pool in pools for edit in pool}
    places = {edit: place for place, edit in enumerate(offered.values())}
    combinations = [
        tuple(sorted((offered[pair] for pair in pairs), key=lambda edit: places[edit]))
        for pairs in read_edits(reply, list(offered))
    ]
    return [edits for edits in combinations if len({edit.keyword for edit in edits}) == len(edits) <= at_once]


def choose_by_model(inputs: StageInputs, pools: Sequence[Sequence[Edit]], at_once: int) -> Choice:
    """Ask the model which edits go together. It chooses at most `settings.captions` combinations. A combination has at
    most `at_once` edits, each of a different keyword. `pools` has the edits by keyword in caption order. If a reply has
    no usable combination, the model is asked again with the next seed. Raises the model's errors, and Cancelled.
    """
    settings: CounterfactualSettings = inputs.settings
    prompt = inputs.others.get(EDITS_PROMPT.name)
    if prompt is None:
        return Choice(
            note="The edits were spread evenly: the language model was to choose them, but the prompts of this profile "
            f"do not ask it to ({EDITS_PROMPT.name}.toml is missing)."
        )
    offered = [(edit.keyword, edit.alternative) for pool in pools for edit in pool]

    def read(reply: str) -> tuple[tuple[Edit, ...], ...]:
        chosen = tuple(dict.fromkeys(read_combinations(reply, pools, at_once)))[: settings.captions]
        if not chosen:
            raise Unreadable(f"no line had only offered edits, at most {at_once}, each of another keyword")
        return chosen

    values: dict[str, str | int] = {
        "task": inputs.task.describe(),
        "caption": inputs.values["caption"].text,
        "alternatives": "; ".join(f"{pool[0].keyword}: {', '.join(e.alternative for e in pool)}" for pool in pools),
        "captions": settings.captions,
        "most": at_once,
    }
    schema = edits_schema(offered, settings.captions, at_once)
    try:
        inquiry, what = Inquiry(values, read, inputs.seed, schema=schema), "the edits that go together"
        answer = ask(what, inputs.models.language, prompt, inquiry, settings, inputs.cancelled)
    except UnreadableReply as error:
        if not error.attempts:  # the model gave no reply at all: it would write no caption either
            raise
        return Choice((), f"The edits were spread evenly. {error}", (error,))
    return Choice(answer.value, " ".join(answer.notes), (answer,))
