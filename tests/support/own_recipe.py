"""A recipe that the program does not know, with its own types of values, prompts, settings and stages.

Nothing in the program knows these names. A fixture registers `postcard` for a test. A test in another process must
register it itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from core.errors import UserError
from core.settings import LanguageSettings, Settings
from core.types import (
    CounterfactualCaption,
    CounterfactualCaptions,
    PromptSlot,
    StageValue,
    Trace,
    set_stages,
    stage_kinds,
)
from pipeline import recipes
from pipeline.checks.texts import caption_checks, require
from pipeline.recipes import Recipe, register
from pipeline.seams import LanguageRequest
from pipeline.stages.asking import Inquiry, ask
from pipeline.stages.base import Stage, StageInputs
from pipeline.stages.caption import CAPTION
from pipeline.stages.parsing import Unreadable
from tests.support.scripted import ScriptedLanguageModel, ScriptedModels, answer


@dataclass(frozen=True)
class Greeting:
    """One line of text."""

    text: str


@dataclass(frozen=True)
class Stamps:
    """Several texts with a number each. A plain text field cannot hold this value."""

    items: tuple[tuple[str, int], ...]


class GreetingSettings(LanguageSettings):
    """Settings of the stage "greeting"."""

    later: ClassVar[frozenset[str]] = frozenset(("farewell",))

    shout: bool = Field(False, description="Write it in capital letters")
    farewell: bool = Field(False, description="Ask for a farewell too")


class PostcardSettings(Settings):
    """Settings of every recipe, and the recipe's own section."""

    greeting: GreetingSettings = GreetingSettings()


def greet(inputs: StageInputs) -> StageValue[Greeting]:
    """Ask the language model for a greeting."""
    require(caption_checks(inputs.values["caption"].text, inputs.task)[:1])
    assert inputs.prompt is not None

    def read(reply: str) -> str:
        if not reply.startswith("Greetings"):
            raise Unreadable("it does not greet")
        return reply.upper() if inputs.settings.shout else reply

    result = ask(
        "a greeting",
        inputs.models.language,
        inputs.prompt,
        Inquiry({"task": inputs.task.describe(), "caption": inputs.values["caption"].text}, read, inputs.seed),
        inputs.settings,
        inputs.cancelled,
    )
    text, notes = result.value, list[str]()
    if inputs.settings.farewell and (farewell := inputs.others.get("farewell")) is not None:
        text += " " + inputs.models.language.complete(LanguageRequest(farewell.evaluate(), 0), inputs.settings)
    elif inputs.settings.farewell:
        notes.append("There is no prompt for a farewell.")
    trace = Trace(
        "model",
        inputs.models.language.name,
        result.prompt,
        result.raw_reply,
        seed=result.seed,
        notes=tuple(notes),
    )
    return StageValue(Greeting(text), trace)


def stamp(inputs: StageInputs) -> StageValue[Stamps]:
    """Make two stamps without a model."""
    text = inputs.values["greeting"].text
    if not text:
        raise UserError("There is no greeting to stamp: write one.")
    return StageValue(Stamps(((f"{text} From the sea.", 1), (f"{text} From the hills.", 2))), Trace("model"))


def captions(values: Mapping[str, Any]) -> CounterfactualCaptions | None:
    """Return a counterfactual caption for each stamp."""
    stamps = values.get("stamps")
    return stamps and CounterfactualCaptions(tuple(CounterfactualCaption(text, ()) for text, _ in stamps.items))


POSTCARD = Recipe(
    name="postcard",
    title="Postcard",
    description="Draws a greeting instead of the caption.",
    stages=(
        CAPTION,
        Stage(
            name="greeting",
            title="Greeting",
            value=Greeting,
            run=greet,
            reads=("caption",),
            prompt=PromptSlot("greeting", ("task", "caption"), default="$task: greet from $caption"),
            other_prompts=(PromptSlot("farewell", (), needed=False, title="how to end"),),
            sends=lambda settings: ("farewell",) * settings.farewell,
            settings="greeting",
            summary=lambda value: value.text,
            doing="writing a greeting",
            plural=False,
        ),
        Stage(
            name="stamps",
            title="Stamps",
            value=Stamps,
            run=stamp,
            reads=("greeting",),
            producer="nothing",
            summary=lambda value: ", ".join(text for text, _ in value.items),
            doing="stamping",
        ),
    ),
    captions=captions,
    settings=PostcardSettings,
    unedited="postcard",
)


@contextmanager
def registered(recipe: Recipe) -> Iterator[Recipe]:
    """Register a recipe until the context ends, as if the program had it."""
    stages = stage_kinds()
    register(recipe)
    try:
        yield recipe
    finally:
        del recipes._known[recipe.name]
        set_stages(stages)


def greeting_models() -> ScriptedModels:
    """Return stand-ins whose language model can write greetings."""
    return ScriptedModels(
        ScriptedLanguageModel(lambda prompt: "Greetings, bird!" if "greet from" in prompt else answer(prompt))
    )
