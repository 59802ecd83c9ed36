"""Unusual replies of models: thoughts, marks of chat templates, refusals, and JSON in another form than requested."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from PIL import Image

from core.errors import UnreadableReply
from core.settings import AlternativeSettings, CaptionSettings, CounterfactualSettings, KeywordSettings
from core.types import Alternative, Alternatives, Caption, KeywordAlternatives, Task
from pipeline.prompting import Prompt
from pipeline.replies import REPAIRED, read_reply, with_json_repaired, with_thoughts
from tests.support.scripted import SUNNY_BIRD, ScriptedCaptioner, ScriptedLanguageModel
from tests.support.stages import run_alternatives, run_caption, run_counterfactuals, run_keywords

BIRD = Task("classification", label="bird")
PROMPT = Prompt("x", "$task: $caption", ())
THOUGHT = "Let me see: a red bird, a blue house."
THOUGHTS: dict[str, Callable[[str], str]] = {
    "think": lambda answer: f"<think>\n{THOUGHT}\n</think>\n\n{answer}",
    "thinking": lambda answer: f"<thinking>{THOUGHT}</thinking>{answer}",
    "thought": lambda answer: f"<thought>\n{THOUGHT}\n</thought>\n{answer}",
    "reasoning": lambda answer: f"<Reasoning>{THOUGHT}</Reasoning>\n{answer}",
    "seed": lambda answer: f"<seed:think>{THOUGHT}</seed:think>{answer}",
    "brackets": lambda answer: f"[THINK]{THOUGHT}[/THINK]{answer}",
    "triangles": lambda answer: f"◁think▷{THOUGHT}◁/think▷{answer}",
    "begin of thought": lambda answer: (
        f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|><|begin_of_solution|>{answer}<|end_of_solution|>"
    ),
    "gemma": lambda answer: f"<|channel>thought\n{THOUGHT}<channel|>{answer}<turn|>",
    "harmony": lambda answer: (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{answer}<|return|>"
    ),
    "harmony, begun by its template": lambda answer: (
        f"{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{answer}"
    ),
    "harmony without its tokens": lambda answer: f"analysis{THOUGHT}assistantfinal{answer}",
    "without a beginning": lambda answer: f"{THOUGHT}</think>{answer}",
    "without an end": lambda answer: f"{answer}<think>{THOUGHT}",
    "wrapped answer": lambda answer: f"<think>{THOUGHT}</think><answer>{answer}</answer>",
}
MARKS = (
    "<end_of_turn>",
    "<|im_end|>\n",
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nAnd another turn.",
    "<|endoftext|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "<eos>",
    "[/INST]",
)


@pytest.mark.parametrize("form", THOUGHTS)
def test_thoughts_stay_out_of_the_caption_and_in_the_trace(form: str) -> None:
    said = THOUGHTS[form](SUNNY_BIRD)
    made = run_caption(Image.new("RGB", (8, 8)), BIRD, ScriptedCaptioner(said), CaptionSettings(), 0)
    assert made.value.text == SUNNY_BIRD and made.trace.raw_reply == said
    assert read_reply(said).thoughts.removesuffix("assistant") == THOUGHT


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_a_chat_template_reach_no_value(mark: str) -> None:
    bird, held = Caption(SUNNY_BIRD), ScriptedCaptioner(f"<|im_start|>assistant\n{SUNNY_BIRD}{mark}")
    assert run_caption(Image.new("RGB", (8, 8)), BIRD, held, CaptionSettings(), 0).value == bird
    found = run_keywords(
        bird, BIRD, ScriptedLanguageModel(f"red | attribute\nsunny | weather{mark}"), PROMPT, KeywordSettings(), 0
    )
    assert [item.text for item in found.value.items] == ["red", "sunny"]
    others = run_alternatives(
        bird,
        found.value,
        BIRD,
        ScriptedLanguageModel(f"red: blue\nsunny: foggy{mark}"),
        PROMPT,
        AlternativeSettings(),
        0,
    )
    assert [[option.text for option in item.options] for item in others.value.items] == [["blue"], ["foggy"]]
    one = Alternatives((KeywordAlternatives("red", "attribute", (Alternative("blue"),)),))
    new = SUNNY_BIRD.replace("red", "blue")
    written = run_counterfactuals(
        bird, one, BIRD, ScriptedLanguageModel(f"{new}{mark}"), PROMPT, CounterfactualSettings(captions=1), 0
    )
    assert [(item.text, item.used) for item in written.value.items] == [(new, True)]


@pytest.mark.parametrize(
    ("text", "answer", "thoughts"),
    [
        ("<think>a</think>red<think>b</think>, blue", "red, blue", "ab"),
        (" red ", "red", ""),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nmodel trains run", "model trains run", ""),
        ("<think>only this", "", "only this"),
        ("whi\u200bte\ufeff", "white", ""),
        ("a cat \ud83d\ude00 \ud83d", "a cat \U0001f600", ""),
        ("Analysis of the picture: a red bird", "Analysis of the picture: a red bird", ""),
        ("3 < 4 | and 5 > 4", "3 < 4 | and 5 > 4", ""),
        (with_thoughts("hm </thinking> hm", "red"), "red", "hm \n hm"),
        (with_thoughts(" ", "red"), "red", ""),
    ],
)
def test_a_reply_is_taken_apart(text: str, answer: str, thoughts: str) -> None:
    read = read_reply(text)
    assert (read.answer, " ".join(read.thoughts.split())) == (answer, " ".join(thoughts.split()))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I'm sorry, but I can’t help with that.", "refused to describe the image"),
        ("<think>I should not.</think>As an AI model, I cannot.", "refused to describe the image"),
        ("<think>A bird, I think", "replied with thoughts alone"),
        ("<end_of_turn>", "said nothing"),
    ],
)
def test_a_reply_without_a_caption_is_one_sentence(said: str, told: str) -> None:
    with pytest.raises(UnreadableReply, match=f"The captioner {told}: run it again, or write") as caught:
        run_caption(Image.new("RGB", (8, 8)), BIRD, ScriptedCaptioner(said), CaptionSettings(), 0)
    assert caught.value.raw_reply == said


@pytest.mark.parametrize(
    ("said", "told"),
    [("I cannot help with that.", "it refused"), ("[THINK]red | attribute", "it replied with thoughts alone")],
)
def test_a_refusal_of_a_language_model_is_told_as_one(said: str, told: str) -> None:
    with pytest.raises(UnreadableReply, match=f"asked once for keywords, but {told}") as caught:
        model = ScriptedLanguageModel(said)
        run_keywords(Caption(SUNNY_BIRD), BIRD, model, PROMPT, KeywordSettings(attempts=1), 0)
    assert caught.value.raw_reply == said


WANTED = {"keywords": [{"keyword": "red", "edit_type": "attribute"}, {"keyword": "sunny", "edit_type": "weather"}]}
AS_ASKED = json.dumps(WANTED)
BROKEN = {
    "commas": AS_ASKED.replace("}", ",}").replace("]", ",]"),
    "typographic quotes": AS_ASKED.replace('"', "”"),
    "quotes in pairs": AS_ASKED.replace('{"', "{“").replace('": ', "”: ").replace(': "', ": “").replace('"', "”"),
    "Python": str(WANTED),
    "no quotes at the names": AS_ASKED.replace('"keyword"', "keyword").replace('"edit_type"', "edit_type"),
    "a comment": AS_ASKED.replace("]", "] // these two\n"),
    "in a fence, with talk": f"Sure, here it is:\n```json\n{AS_ASKED.replace(']', ',]')}\n```\nI hope this helps.",
    "within an object": json.dumps({"result": WANTED}),
    "within two": json.dumps({"data": [{"result": WANTED}]}),
}


@pytest.mark.parametrize("form", BROKEN)
def test_json_in_another_form_is_repaired_and_said(form: str) -> None:
    model = ScriptedLanguageModel(BROKEN[form])
    made = run_keywords(Caption(SUNNY_BIRD), BIRD, model, PROMPT, KeywordSettings(), 0)
    assert [(item.text, item.edit_type) for item in made.value.items] == [("red", "attribute"), ("sunny", "weather")]
    assert (made.trace.notes, made.trace.attempts, made.trace.raw_reply) == ((REPAIRED,), 1, BROKEN[form])


def test_repaired_json_is_said_at_every_stage() -> None:
    bird = Caption(SUNNY_BIRD)
    found = run_keywords(bird, BIRD, ScriptedLanguageModel(AS_ASKED), PROMPT, KeywordSettings(), 0)
    assert found.trace.notes == (), "nothing is said of what was in form"
    settings = KeywordSettings(edit_types="attribute, weather")
    noted = run_keywords(bird, BIRD, ScriptedLanguageModel(BROKEN["commas"]), PROMPT, settings, 0)
    assert noted.trace.notes[0] == REPAIRED and len(noted.trace.notes) == 2
    model = ScriptedLanguageModel("[{'red': ['blue',]}, {'sunny': ['foggy']}]")
    others = run_alternatives(bird, found.value, BIRD, model, PROMPT, AlternativeSettings(), 0)
    assert [[option.text for option in item.options] for item in others.value.items] == [["blue"], ["foggy"]]
    assert others.trace.notes == (REPAIRED,)
    one = Alternatives((KeywordAlternatives("red", "attribute", (Alternative("blue"), Alternative("white"))),))
    model = ScriptedLanguageModel(
        *(f'{{"caption": "{SUNNY_BIRD.replace("red", colour)}",}}' for colour in ("blue", "white"))
    )
    written = run_counterfactuals(bird, one, BIRD, model, PROMPT, CounterfactualSettings(captions=2), 0)
    assert all(item.used for item in written.value.items) and written.trace.notes == (REPAIRED,)


@pytest.mark.parametrize(
    "answer",
    [
        AS_ASKED,
        f"[{AS_ASKED}]",
        AS_ASKED[:-3],  # ends in the middle
        AS_ASKED[:60],
        '{"other": 1,}',
        "red | attribute {sunny}",
        "{" * 5_000,
        "{" * 5_000 + "}" * 5_000,
        "{'keywords': " + "[" * 5_000 + "]" * 5_000 + "}",
        "red | attribute",
    ],
)
def test_what_needs_no_repair_or_cannot_be_repaired_stays(answer: str) -> None:
    assert with_json_repaired(answer, ("keywords",)) == answer
