"""Authors of values, a run's own prompts, merged captions, and another caption."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from PIL import Image

from core.settings import AlternativeSettings, CaptionSettings, Settings
from core.stored_runs import Run, StoredValue
from core.types import (
    Author,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    Keyword,
    Keywords,
    StageValue,
    Task,
    Trace,
)
from pipeline.freshness import Producer, changed_inputs, inputs_key, stale_stages, with_producer
from pipeline.prompting import PromptError, edited_prompts
from pipeline.recipes import DILLEMA
from pipeline.stages.counterfactuals import merged
from services.edit_conflicts import PageWrites
from services.runs.edits import ProtectedKeyword, add_keyword, reword_keyword
from tests.support.scripted import ScriptedCaptioner
from tests.support.stages import run_caption

BIRD = Task("classification", label="bird")
SOURCE = "A red bird in sunny weather by day."


def version(number: int, author: Author, brought_back: int | None = None) -> StoredValue:
    value = StageValue(Caption(f"text {number}"), Trace(author), "key")
    return StoredValue(number, "run", "caption", value, datetime.now(UTC), brought_back)


def test_only_what_another_page_wrote_after_the_version_that_was_shown_counts() -> None:
    writers = PageWrites()
    writers.note(2, "mine")
    versions = [version(1, "model"), version(2, "person")]
    assert writers.by_others(versions, 1, "mine") is None
    found = writers.by_others(versions, 1, "other")
    assert found is not None and found.id == 2
    assert writers.by_others(versions, 2, "other") is None
    assert writers.by_others(versions, 0, "other") is None, "a page that says nothing is not told"


def test_templates_of_a_run_are_checked() -> None:
    prompts = DILLEMA.prompts("demo")
    edited = edited_prompts(prompts, DILLEMA.prompt_slots, {"keywords": "Task $task: $caption"})
    assert edited["keywords"].template == "Task $task: $caption" and edited["keywords"].stop == prompts["keywords"].stop
    assert edited["alternatives"] == prompts["alternatives"]
    for template, said in (
        ("$task $caption $colour", r"\$colour, which nothing fills"),
        ("$task only", r"does not use \$caption"),
        ("  ", "empty"),
        ("$task $caption costs 5$", "stray"),
    ):
        with pytest.raises(PromptError, match=said):
            edited_prompts(prompts, DILLEMA.prompt_slots, {"keywords": template})
    with pytest.raises(PromptError, match="no prompt named 'caption'"):
        edited_prompts(prompts, DILLEMA.prompt_slots, {"caption": "$task"})


def test_another_model_or_prompt_makes_a_value_stale_that_was_saved_with_its_producer() -> None:
    settings, values = Settings(), {"caption": Caption(SOURCE)}
    key = inputs_key(DILLEMA, "keywords", BIRD, "", values, settings)
    keywords = Keywords((Keyword("red", "attribute"),))
    was, now = Producer("model a", "prompt"), Producer("model a", "another prompt")
    made = StageValue(keywords, Trace("model", "a"), with_producer(key, was))
    held = {
        "caption": StageValue(Caption(SOURCE), Trace("person"), inputs_key(DILLEMA, "caption", BIRD, "", {}, settings))
    }

    def why(value: StageValue[Keywords], producer: Producer) -> str:
        found = stale_stages(DILLEMA, BIRD, "", {**held, "keywords": value}, settings, {"keywords": producer})
        return found.get("keywords", "")

    assert why(made, was) == ""
    assert "prompt was changed" in why(made, now)
    assert "model was changed" in why(made, Producer("model b", "prompt"))
    assert why(StageValue(keywords, Trace("model", "a"), key), now) == "", "saved before producers were: not looked at"
    assert why(StageValue(keywords, Trace("person"), with_producer(key, was)), now) == ""


def test_a_moved_threshold_outdates_nothing() -> None:
    values = {"caption": Caption(SOURCE), "keywords": Keywords((Keyword("red", "attribute"),))}
    keys = {
        inputs_key(
            DILLEMA, "alternatives", BIRD, "", values, Settings(alternatives=AlternativeSettings(too_close=close))
        )
        for close in (0.1, 0.9)
    }
    assert len(keys) == 1


def test_a_forced_keyword_is_another_input_and_one_that_is_not_keeps_its_key() -> None:
    def key(keyword: Keyword) -> str:
        values = {"caption": Caption(SOURCE), "keywords": Keywords((keyword,))}
        return inputs_key(DILLEMA, "alternatives", BIRD, "", values, Settings())

    assert key(Keyword("bird", "subject")) != key(Keyword("bird", "subject", forced=True))
    value = StageValue(Keywords(()), Trace("model"), "")
    assert changed_inputs(DILLEMA, "keywords", value, BIRD, "", {"caption": Caption(SOURCE)}, Settings())


def test_captions_that_came_out_alike_become_one_with_the_edits_that_show() -> None:
    red, sunny = Edit("red", "blue", "attribute"), Edit("sunny", "snowy", "weather")
    day = Edit("by day", "at night", "time of day")
    both = "A blue bird in snowy weather by day."
    value = CounterfactualCaptions(
        (
            CounterfactualCaption(both, (red,), used=False),
            CounterfactualCaption("A red bird in sunny weather at night.", (day,)),
            CounterfactualCaption(both.lower(), (sunny, day)),
        )
    )
    one, other = merged(value, SOURCE).items
    assert one.text == both and one.edits == (red, sunny) and one.used
    assert other == value.items[1]


def test_another_caption_is_sampled_until_it_differs() -> None:
    class Stubborn(ScriptedCaptioner):
        def caption(self, image: object, task: object, settings: CaptionSettings, seed: int) -> tuple[str, str]:  # type: ignore[override]
            self.calls += 1
            assert settings.temperature > 0
            return (SOURCE if seed < 7 else "A bird."), ""

    image = Image.new("RGB", (8, 8))
    settings = CaptionSettings()
    made = run_caption(image, BIRD, Stubborn(), settings, 5, unlike=SOURCE)
    assert made.value.text == "A bird." and made.trace.seed == 7 and made.trace.attempts == 3
    same = run_caption(image, BIRD, ScriptedCaptioner(SOURCE), settings, 5, unlike=SOURCE)
    assert same.value.text == SOURCE and same.trace.seed == 5
    assert same.inputs_key == run_caption(image, BIRD, ScriptedCaptioner(SOURCE), settings, 0).inputs_key


def test_another_caption_still_names_the_label() -> None:
    class Wandering(ScriptedCaptioner):
        def caption(self, image: object, task: object, settings: CaptionSettings, seed: int) -> tuple[str, str]:  # type: ignore[override]
            return {1: "A red kite.", 2: "", 3: SOURCE, 4: "A bird." if self.text else "A red kite."}[seed], ""

    image, settings = Image.new("RGB", (8, 8)), CaptionSettings()
    made = run_caption(image, BIRD, Wandering(), settings, 1, unlike=SOURCE)
    assert made.value.text == "A bird." and made.trace.attempts == 4
    lost = run_caption(image, BIRD, Wandering(""), settings, 1, unlike=SOURCE)
    assert lost.value.text == SOURCE, "rather the same again than one that lost its label"
    free = run_caption(image, BIRD, Wandering(), settings, 1, unlike="A twig.")
    assert free.value.text == "A red kite.", "where it was not named before, it need not be"


def test_a_protected_keyword_needs_a_person_who_insists() -> None:
    now, empty = datetime.now(UTC), Keywords(())
    caption = StoredValue(1, "run", "caption", StageValue(Caption(SOURCE), Trace("model"), "key"), now, None)
    run = Run("run", "bird", BIRD, "demo", {}, "", (), "0", now, {"caption": caption}, (), ())
    with pytest.raises(ProtectedKeyword, match="protected by the task"):
        add_keyword(empty, run, "bird", "subject")
    forced = add_keyword(empty, run, "bird", "subject", force=True)
    assert forced.items == (Keyword("bird", "subject", forced=True),)
    assert reword_keyword(forced, run, "bird", "bird", "object").items[0].forced
    assert not reword_keyword(forced, run, "bird", "red", "attribute").items[0].forced
    assert not add_keyword(empty, run, "red", "attribute", force=True).items[0].forced
