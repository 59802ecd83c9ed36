"""Tests for reading replies of language models: tidy, decorated, chatty and useless replies."""

from __future__ import annotations

import pytest

from pipeline.stages.parsing import Unreadable, read_alternatives, read_caption, read_edits, read_keywords

WEATHER = (("sunny", "weather"), ("red", "attribute"))
SUNNY_RED = (("sunny", ("snowy", "foggy")), ("red", ("blue", "green")))


@pytest.mark.parametrize(
    "reply",
    [
        "sunny | weather\nred | attribute",
        " sunny|weather \n\n red |  Attribute\n",
        "Sure, here are the elements:\n\n1. sunny | weather\n2. red | attribute\n\nI hope this helps!",
        '- "sunny" | weather\n- "red" | color',
        "```\n* sunny | weather\n* red | attribute\n```",
        "• sunny (weather)\n• red (colour)",
        "sunny: weather\nred: attribute",
        "**sunny** | weather\n**red** | attribute",
        "sunny | weather\nred | attribute\nred | object",
        "sunny | weather\nthe car | none of the types\nred | attribute",
        "| Element | Type |\n|---|---|\n| sunny | weather |\n| red | attribute |",
    ],
)
def test_keywords(reply: str) -> None:
    assert read_keywords(reply) == WEATHER


def test_keywords_of_several_words_and_with_an_apostrophe_or_a_hyphen() -> None:
    reply = "by day | time of day\nchildren's park | background\nblue-grey | attribute\nat dusk | time-of-day"
    assert read_keywords(reply) == (
        ("by day", "time of day"),
        ("children's park", "background"),
        ("blue-grey", "attribute"),
        ("at dusk", "time of day"),
    )


@pytest.mark.parametrize(
    "reply", ["", "\n\n", "Sure, here are the elements:", "I cannot do that.", "sunny", "| weather"]
)
def test_keywords_that_cannot_be_read(reply: str) -> None:
    with pytest.raises(Unreadable):
        read_keywords(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "sunny: snowy, foggy\nred: blue, green",
        "Here are the alternatives:\n\n1. sunny: snowy, foggy\n2. red: blue, green.",
        '- "sunny": "snowy", "foggy"\n- "red": "blue" or "green"'.replace(" or ", ", or "),
        '{\n  "sunny": ["snowy", "foggy"],\n  "red": ["blue", "green"]\n}',
        "```json\n{\n'sunny': ['snowy', 'foggy'],\n'red': ['blue', 'green']\n}\n```",
        "sunny -> snowy; foggy\nred -> blue; green",
        "sunny | snowy, foggy\nred | blue, green",
        "| sunny | snowy, foggy |\n| red | blue, green |",
        "**sunny:** snowy, foggy\n**red:** blue, green",
        "Here you are:\nsunny:\n- snowy\n- foggy\n\nred:\n- blue\n- green",
        "sunny: snowy, foggy, snowy\nred: blue, green, etc.",
    ],
)
def test_alternatives(reply: str) -> None:
    assert read_alternatives(reply) == SUNNY_RED


@pytest.mark.parametrize("reply", ["", "Sure!", "snowy, foggy", "sunny:", "Here are the alternatives for you:\n"])
def test_alternatives_that_cannot_be_read(reply: str) -> None:
    with pytest.raises(Unreadable):
        read_alternatives(reply)


CAPTION = "A red bird at night. It's on a twig."


@pytest.mark.parametrize(
    "reply",
    [
        CAPTION,
        f"  {CAPTION}\n",
        f"New caption: {CAPTION}",
        f'"{CAPTION}"',
        f"```\n{CAPTION}\n```",
        f"Sure! Here is the modified caption:\n\n{CAPTION}\n\nI changed the colour.",
        f"Sure, here is the caption: {CAPTION}",
        f"**New caption:** {CAPTION}",
        f'Here is the new caption:\n\n"{CAPTION}"\n\nNote: the bird is kept.',
        f'"{CAPTION}" (I replaced blue by red)',
        f"1. {CAPTION}",
        CAPTION.replace(" at", "  at"),
    ],
)
def test_captions(reply: str) -> None:
    assert read_caption(reply) == CAPTION


def test_a_caption_may_hold_quotes_and_colons() -> None:
    assert read_caption('A sign says "stop" in red: it is night.') == 'A sign says "stop" in red: it is night.'


@pytest.mark.parametrize(
    "reply", ["", "...", "Caption:", "Sure!", "I'm sorry, but I cannot help with that.", "```\n```"]
)
def test_captions_that_cannot_be_read(reply: str) -> None:
    with pytest.raises(Unreadable):
        read_caption(reply)


OFFERED = [
    ("red", "blue"),
    ("red", "dark blue"),
    ("sunny", "snowy"),
    ("by day", "at 5 o'clock"),
    ("to go", "black and tan"),
]
PAIRED = ((("red", "dark blue"), ("sunny", "snowy")), (("by day", "at 5 o'clock"),))


@pytest.mark.parametrize(
    "reply",
    [
        "red -> dark blue; sunny -> snowy\nby day -> at 5 o'clock",
        "Sure! Here are the captions:\n1. red -> dark blue; sunny -> snowy\n2. by day -> at 5 o’clock\nEnjoy!",
        "- Red → Dark Blue, Sunny → Snowy\n- By day → At 5 o'clock.",
        "Caption 1: red => dark blue and sunny => snowy\nCaption 2: by day => at 5 o'clock",
        "**red** -> **dark blue**; **sunny** -> **snowy**;\n**by day** -> **at 5 o'clock**",
        "(red to dark blue; sunny to snowy)\n(by day becomes at 5 o'clock)",
        '{"captions": [["red -> dark blue", "sunny -> snowy"], ["by day -> at 5 o\'clock"], ["red -> bl',
        "red -> purple; sunny -> snowy\nred -> dark blue; sunny -> snowy\nred -> blueish\nby day -> at 5 o'clock",
    ],
)
def test_edits(reply: str) -> None:
    assert read_edits(reply, OFFERED) == PAIRED


def test_edits_that_hold_what_stands_between_them() -> None:
    assert read_edits("to go -> black and tan and red -> blue", OFFERED) == ((OFFERED[4], OFFERED[0]),)
    assert read_edits("caption: 3 -> red; edit -> it", [("caption: 3", "red"), ("edit", "it")]) == (
        (("caption: 3", "red"), ("edit", "it")),
    )


@pytest.mark.parametrize("reply", ["", "Sure!", "red", "red -> purple", "I would make the red bird blue.", "red; blue"])
def test_edits_that_cannot_be_read(reply: str) -> None:
    with pytest.raises(Unreadable, match="keyword -> alternative; keyword -> alternative"):
        read_edits(reply, OFFERED)
