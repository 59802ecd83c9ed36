"""Schemas of the stages' replies, as lines and as JSON, and the embedded language model held to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from core.errors import UnreadableReply
from core.settings import AlternativeSettings, CounterfactualSettings, KeywordSettings, LanguageSettings
from core.types import Caption, Task
from pipeline.models.language_forms import Forms
from pipeline.prompting import PromptSet
from pipeline.recipes import DILLEMA
from pipeline.seams import LanguageRequest
from pipeline.stages.reply_schema import (
    Schema,
    alternatives_schema,
    as_lines,
    caption_schema,
    edits_schema,
    grammar,
    keywords_schema,
)
from tests.support.scripted import SUNNY_BIRD
from tests.support.stages import run_alternatives, run_counterfactuals, run_keywords

BIRD = Task("classification", label="bird")
KEYWORDS = keywords_schema(SUNNY_BIRD, BIRD)
ALTERNATIVES = alternatives_schema(("red", "by day"), 3)
CAPTION = caption_schema(SUNNY_BIRD)
OFFERED = (("red", "blue"), ("sunny", "snowy"), ("by  day", 'at 5; or "later"'))
EDITS = edits_schema(OFFERED, 2, 2)


# In words


def test_keywords_are_runs_of_words_of_the_caption_that_may_change() -> None:
    assert KEYWORDS is not None
    words = KEYWORDS["properties"]["keywords"]["items"]["properties"]["keyword"]["enum"]
    assert {"red", "sunny", "by day", "twig", "grassy"} <= set(words)
    assert not {"bird", "The bird", "blue", "day The"} & set(words)
    assert keywords_schema("Bird, birds.", BIRD) is None, "nothing of it may change"


@pytest.mark.parametrize(
    ("schema", "data", "lines"),
    [
        (KEYWORDS, {"keywords": [{"keyword": "red", "edit_type": "attribute"}]}, "red | attribute"),
        (ALTERNATIVES, {"red": ["blue", "green"], "by day": ["at night"]}, "red: blue, green\nby day: at night"),
        (CAPTION, {"caption": "A blue bird.\n It sits."}, "A blue bird. It sits."),
        (
            EDITS,
            {"captions": [["red -> blue", "sunny -> snowy"], ["red -> blue"]]},
            "red -> blue; sunny -> snowy\nred -> blue",
        ),
    ],
)
def test_json_that_a_server_held_is_read_as_lines_are(schema: Schema, data: dict[str, Any], lines: str) -> None:
    assert as_lines(json.dumps(data), schema) == lines
    assert as_lines(f"Here you are:\n```json\n{json.dumps(data, indent=1)}\n```", schema) == lines


@pytest.mark.parametrize(
    "reply", ["red | attribute", "{half", "{}", '["red"]', '{"other": 1}', "{red}: blue", '{"caption": 3}']
)
def test_what_is_no_json_of_the_form_stays_as_it_is(reply: str) -> None:
    assert as_lines(reply, CAPTION) == reply and as_lines(reply, None) == reply


# As a grammar


def taken(schema: Schema, text: str) -> bool:
    """Return True if a model that is held to the schema could reply with `text` and end there."""
    form, said = letters().start(schema), text.encode()
    assert form is not None
    for byte in said:
        if not form.validate_tokens([byte]):
            return False
        form.consume_token(byte)
    return bool(form.is_accepting())


@cache
def letters() -> Forms:
    """Return the grammars for a vocabulary of single bytes."""
    return Forms.of_pieces([bytes([byte]) for byte in range(256)] + [b""], 256, list)


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        (KEYWORDS, "red | attribute\n sunny | weather\n by day | time of day", True),
        (KEYWORDS, " \nred | attribute\nred bird | object", True),
        (KEYWORDS, "bird | object", False),
        (KEYWORDS, "red | colour", False),
        (KEYWORDS, "red", False),
        (KEYWORDS, "Sure! Here is the list:\nred | attribute", False),
        (ALTERNATIVES, "red: blue, dark green\n by day: at night, 5 o'clock", True),
        (ALTERNATIVES, "red: blue", False),
        (ALTERNATIVES, "red: red\nby day: at night", False),
        (ALTERNATIVES, "red: or Red\nby day: at night", False),
        (ALTERNATIVES, "red: none\nby day: at night", False),
        (ALTERNATIVES, "red: reddish\nby day: at night", False),
        (ALTERNATIVES, "red: blue, red, green\nby day: at night", True),  # the parser drops the second alternative
        (ALTERNATIVES, "red: blue, green, white, black\nby day: at night", False),
        (EDITS, 'red -> blue; sunny -> snowy\nby day -> at 5; or "later"', True),
        (EDITS, "sunny -> snowy", True),
        (EDITS, "red -> green", False),
        (EDITS, 'red -> blue; sunny -> snowy; by day -> at 5; or "later"', False),
        (EDITS, "red -> blue\nsunny -> snowy\nred -> blue", False),
        (EDITS, "Sure: red -> blue", False),
        (EDITS, "red -> blue;", False),
        (CAPTION, "A blue bird in snowy weather: cold.", True),
        (CAPTION, "Okapis graze by day.", True),
        (CAPTION, "Ein schöner Vogel, 鳥 x.", True),
        (CAPTION, "Bird", False),
        (CAPTION, "Sure! A blue bird.", False),
        (CAPTION, "Okay: a blue bird.", False),
        (CAPTION, "Hereabouts a blue bird sits.", False),  # replies beginning with "Here" are excluded
        (CAPTION, "New caption: A blue bird.", False),
        (CAPTION, "I am sorry, I cannot.", False),
        (CAPTION, "A blue bird.\nNote: it is blue.", False),
    ],
)
def test_the_grammar_takes_what_can_be_read_and_nothing_else(schema: Schema, text: str, fits: bool) -> None:
    assert taken(schema, text) is fits


def test_a_schema_that_stands_for_no_lines_is_held_as_json() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "year": {"type": "integer"}},
        "required": ["city", "year"],
        "additionalProperties": False,
    }
    assert grammar(schema) is None
    assert taken(schema, '{"city": "Rome", "year": 2}') and not taken(schema, "Rome, 2")


def test_the_largest_choice_of_edits_is_held_too() -> None:
    many = [(f"keyword {k}", f"alternative {a}") for k in range(16) for a in range(10)]
    line = "; ".join(f"keyword {k} -> alternative {k % 10}" for k in range(10))
    schema = edits_schema(many, 32, 10)
    assert taken(schema, "\n".join([line] * 32)) and not taken(schema, "\n".join([line] * 33))
    assert not taken(schema, f"{line}; keyword 1 -> alternative 1")


def test_a_list_of_lists_of_free_texts_is_held_as_json() -> None:
    free = edits_schema(OFFERED, 2, 2)["properties"]["captions"] | {
        "items": {"type": "array", "items": {"type": "string"}}
    }
    assert grammar({"type": "object", "properties": {"captions": free}}) is None


# The embedded model, held to the schemas


class FirstReplies:
    """Embedded language model that records its replies. Without `hold`, it ignores schemas."""

    def __init__(self, model: Any, hold: bool = True) -> None:
        self.name, self.model, self.hold = model.name, model, hold
        self.said: list[str] = []

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        asked = request if self.hold else replace(request, schema=None)
        self.said.append(self.model.complete(asked, settings))
        return self.said[-1]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Any]:
    from tests.support.demo_server import demo_models

    yield demo_models().language


@pytest.fixture(scope="module")
def prompts() -> PromptSet:
    return DILLEMA.prompts("demo")


def walk(model: FirstReplies, prompts: PromptSet, number: int, temperature: float) -> None:
    """Run the three stages on a scene outside the training, with one request each. Raises UnreadableReply."""
    from demo.language import caption
    from demo.scene import PROTECTED_ROAD_CLASSES, random_scene

    scene = random_scene(700_000 + number)
    road = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
    task = road if scene.family == "road" else Task("classification", label=scene.label)
    text, once = Caption(caption(scene)), {"attempts": 1, "temperature": temperature}
    found = run_keywords(text, task, model, prompts["keywords"], KeywordSettings(**once), number)
    some = run_alternatives(
        text, found.value, task, model, prompts["alternatives"], AlternativeSettings(**once), number
    )
    free = CounterfactualSettings(**once, captions=1, edits_at_once=1 + number % 2)
    run_counterfactuals(text, some.value, task, model, prompts["counterfactuals"], free, number)


@pytest.mark.demo
@pytest.mark.parametrize("replies", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_every_first_reply_of_the_embedded_model_can_be_read_at_temperature_1(
    embedded: Any, prompts: PromptSet, replies: int
) -> None:
    model, unread = FirstReplies(embedded), []
    for number in range(replies):
        try:
            walk(model, prompts, number, 1.0)
        except UnreadableReply as error:
            unread.append((number, str(error), model.said[-1]))
        if len(model.said) >= replies:
            break
    assert not unread and len(model.said) >= replies


@pytest.mark.demo
def test_a_reply_that_fits_by_itself_is_the_same_when_it_is_held(embedded: Any, prompts: PromptSet) -> None:
    for number in range(3):
        free, held = FirstReplies(embedded, hold=False), FirstReplies(embedded)
        walk(free, prompts, number, 0.2)
        walk(held, prompts, number, 0.2)
        assert held.said == free.said
