"""Check the shipped prompts: variables, worked examples, words and length."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from tokenizers import Tokenizer

from core.model_sections import ROOT
from core.settings import AlternativeSettings, CounterfactualSettings, KeywordSettings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    CounterfactualCaption,
    Edit,
    KeywordAlternatives,
    Keywords,
    PromptSlot,
    Task,
    failed,
)
from core.types import Keyword as Key
from pipeline.checks.single_edit import changes
from pipeline.checks.texts import alternative_checks, caption_checks, counterfactual_checks, keyword_checks
from pipeline.profiles.profile import load_profile
from pipeline.prompting import PROMPTS_FOLDER, Prompt
from pipeline.recipes import AGA, DILLEMA, DRAWING_PROMPT, LANCE, known_recipes
from pipeline.stages import counterfactuals, keywords
from pipeline.stages.edit_choice import EDITS_PROMPT
from pipeline.stages.parsing import read_perturbation
from pipeline.stages.reply_schema import (
    alternatives_schema,
    caption_schema,
    edits_schema,
    keywords_schema,
    perturbation_schema,
    together_schema,
)
from tests.pipeline.test_reply_schema import taken
from tests.support.scripted import ScriptedLanguageModel
from tests.support.stages import (
    chosen_by_model,
    run_alternatives,
    run_counterfactuals,
    run_keywords,
    run_together,
)

SETS = sorted(path.name for path in PROMPTS_FOLDER.iterdir() if path.is_dir())
PROFILES = [load_profile(path.stem) for path in sorted((ROOT / "pipeline/profiles").glob("*.toml"))]
SENT = {
    name: {slot: prompt for one in (DILLEMA, LANCE, AGA) for slot, prompt in one.prompts(name).prompts.items()}
    for name in SETS
}
"""Prompts of all shipped text stages, by set."""
PROMPTS = [pytest.param(name, slot, id=f"{name}/{slot}") for name in SETS for slot in SENT[name]]
WORKED = [name for name in SETS if "\nExample\n" in DILLEMA.prompts(name)["keywords"].template]
"""Prompt sets with worked examples, for models that were not trained on these prompts."""
MODELS = (
    "alpaca blip chatgpt claude clip controlnet deepseek falcon florence gemini gemma glm gpt granite idefics inst "
    "internvl llama llava mistral mixtral olmo openai opt phi pixart qwen sd sdxl smollm stable t5 vicuna yi z-image"
).split()
"""Names of models, and parts of their chat templates, which no prompt may contain."""
RELEASED = frozenset(
    "1ce2bf179859 1eeac65bd1c0 26db50a5734a 3a30157ec7fd 4d713c1b9b5c 4f147402e54b 59f5089349da 69db91d84b2c "
    "6eb3b824435e 6fba7419e1cf 788826c662d9 7fde15174b1f 8077e031d6c2 81778d5cb1be 8675c85d71a2 88578d65e32e "
    "9dac3a198cd9 a10dd886294a a3fffd382bf7 ac5f20e5423c b4e8898ed0c7 bb8e2b246ea0 c03c9209f46e cb825477cf41 "
    "df568a6181c6 ed6d9cb15f8a f4bbdb86037f f8bb1b6b5332 fe6d54e4c656 fece1d2dedb4".split()
)
"""Sentences of the prompts that the paper's authors released without a licence, which no prompt may copy. Each is
the start of a sha256 of its words.
"""


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def sentences(text: str) -> set[str]:
    """Return the sentences of a text in the form of `RELEASED`: four words or more, split at variables too."""
    pieces = (words_of(piece) for piece in re.split(r"\$\{?\w+\}?|[.!?;](?=\s|$)|\n", text))
    return {hashlib.sha256(" ".join(words).encode()).hexdigest()[:12] for words in pieces if len(words) >= 4}


def models_in(text: str) -> list[str]:
    """Return the names of models in a text, also with a number behind, such as Qwen3."""
    return [name for name in MODELS if re.search(rf"\b{name}[\d.]*\b", text, re.IGNORECASE)]


def template(name: str, stage: str) -> str:
    return SENT[name][stage].template


def example(name: str, stage: str) -> dict[str, str]:
    """Return the worked example of a prompt: the value of each variable, and the "reply".

    The example must have the form of the prompt's end, since a model continues in the form that it was shown.
    """
    text = template(name, stage)
    shown = text.partition("\nExample\n")[2].partition("\n\n")[0]
    asked = text.rstrip("\n").rpartition("\n\n")[2].partition("\n")[2]
    form = re.sub(r"\\\$(\w+)", r"(?P<\1>[^\\n]+)", re.escape(asked))
    found = re.fullmatch(rf"{form}\s(?P<reply>.+)", shown, re.DOTALL)
    assert found is not None, f"the example of {stage} has another form than its end"
    return found.groupdict()


def task_in(words: str) -> Task:
    """Return the task that a prompt describes."""
    label = words.removeprefix("image classification with the label ")
    named = tuple(words.removeprefix("semantic segmentation of ").split(", "))
    task = Task("classification", label) if label != words else Task("segmentation", protected=named)
    assert task.describe() == words, "a task is described as the pipeline does it"
    return task


def kinds(name: str) -> dict[str, str]:
    """Return the edit type of each keyword in the example for keywords."""
    return dict(line.split(" | ") for line in example(name, "keywords")["reply"].splitlines())


# Variables


@pytest.mark.parametrize(("name", "stage"), PROMPTS)
def test_a_shipped_prompt_uses_what_its_stage_fills_and_nothing_else(name: str, stage: str) -> None:
    slot = next(slot for slot in (*DILLEMA.prompt_slots, *LANCE.prompt_slots, *AGA.prompt_slots) if slot.name == stage)
    used = SENT[name][stage].variables()
    assert set(slot.required) <= set(used) <= {*slot.required, *slot.optional}
    assert "count" in used or "count" not in slot.optional, "so many alternatives are asked for"
    assert len(used) == len(set(used)), "each stands once"


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_all_prompts_of_all_recipes_and_no_more(name: str) -> None:
    slots = {slot for recipe in known_recipes() for slot in recipe.prompt_slots}
    there = {path.stem for path in (PROMPTS_FOLDER / name).iterdir()}
    assert {slot.name for slot in slots if slot.needed and not slot.default} <= there <= {slot.name for slot in slots}


@pytest.mark.parametrize("slot", [EDITS_PROMPT, keywords.TOGETHER_PROMPT])
def test_only_the_demo_s_own_model_is_not_asked_what_it_was_not_trained_for(slot: PromptSlot) -> None:
    assert [name for name in SETS if DILLEMA.prompts(name).get(slot.name) is None] == ["demo"]


@pytest.mark.parametrize("name", SETS)
def test_the_diffusion_prompt_names_the_caption_and_what_must_not_get_lost(name: str) -> None:
    used = DILLEMA.prompts(name)[DRAWING_PROMPT.name].variables()
    assert "caption" in used and len({"shown", "kept"} & set(used)) == 1


def test_only_the_demo_s_own_model_is_told_of_what_a_picture_may_not_hold() -> None:
    assert [name for name in SETS if "kept" in DILLEMA.prompts(name)[DRAWING_PROMPT.name].variables()] == ["demo"]


# Worked examples


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_keywords_is_a_reply_that_we_take_whole(name: str) -> None:
    shown = example(name, "keywords")
    task, caption, reply = task_in(shown["task"]), shown["caption"], shown["reply"]
    assert not failed(caption_checks(caption, task))
    schema = keywords_schema(caption, task)
    assert schema is not None and taken(schema, reply)
    model = ScriptedLanguageModel(reply)
    found = run_keywords(Caption(caption), task, model, Prompt("x", "$task $caption"), KeywordSettings(attempts=1), 0)
    assert [f"{item.text} | {item.edit_type}" for item in found.value.items] == reply.splitlines()
    assert len(model.prompts) == 1


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_alternatives_is_a_reply_that_we_take_whole(name: str) -> None:
    shown, count = example(name, "alternatives"), AlternativeSettings().per_keyword
    task, caption, reply = task_in(shown["task"]), shown["caption"], shown["reply"]
    asked = Keywords(tuple(Key(word, kinds(name).get(word, "attribute")) for word in shown["keywords"].split(", ")))  # type: ignore[arg-type]
    assert not any(failed(keyword_checks(item.text, caption, task)) for item in asked.items)
    assert taken(alternatives_schema([item.text for item in asked.items], count), reply)
    model, prompt = ScriptedLanguageModel(reply), Prompt("x", "$task $caption $keywords")
    found = run_alternatives(
        Caption(caption), asked, task, model, prompt, AlternativeSettings(attempts=1), 0
    ).value.items
    assert [f"{item.keyword}: {', '.join(option.text for option in item.options)}" for item in found] == (
        reply.splitlines()
    )
    assert all(option.used for item in found for option in item.options), "each one passes the checks"
    assert {len(item.options) for item in found} == {count}, "as many as are asked for"


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_counterfactual_captions_makes_its_edits_and_keeps_its_label(name: str) -> None:
    shown = example(name, "counterfactuals")
    task, source, reply = task_in(shown["task"]), Caption(shown["caption"]), shown["reply"]
    edits = dict(each.split(" -> ") for each in shown["edits"].split("; "))
    assert not any(failed(alternative_checks(old, new, task)) for old, new in edits.items())
    assert taken(caption_schema(source.text), reply)
    weathers = {"sunny", "rainy", "foggy", "snowy"}
    asked = Alternatives(
        tuple(
            KeywordAlternatives(old, "weather" if old in weathers else kinds(name)[old], (Alternative(new),))  # type: ignore[arg-type]
            for old, new in edits.items()
        )
    )
    settings, prompt = CounterfactualSettings(attempts=1, captions=1, edits_at_once=0), Prompt("x", "$task $edits")
    model = ScriptedLanguageModel(reply)
    (item,) = run_counterfactuals(source, asked, task, model, prompt, settings, 0).value.items
    assert item.text == reply and item.used and len(item.edits) == len(edits)
    assert not failed(counterfactual_checks(source.text, item, task))
    assert {"dry", "wet"} <= set(words_of(source.text + reply)), "and shows what follows from an edit"


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_edits_is_a_reply_that_we_take_whole(name: str) -> None:
    shown = example(name, "edits")
    task, caption, reply = task_in(shown["task"]), shown["caption"], shown["reply"]
    words = [each.split(": ") for each in shown["alternatives"].split("; ")]
    offered = {keyword: options.split(", ") for keyword, options in words}
    assert offered == {
        key: options.split(", ")
        for key, options in (line.split(": ") for line in example(name, "alternatives")["reply"].splitlines())
    }, "the alternatives of the example before"
    types = kinds(name)
    asked = Alternatives(
        tuple(
            KeywordAlternatives(key, types[key], tuple(map(Alternative, options)))  # type: ignore[arg-type]
            for key, options in offered.items()
        )
    )
    captions, most = int(shown["captions"]), int(shown["most"])
    settings = CounterfactualSettings(attempts=1, combinations="model", captions=captions, edits_at_once=most)
    pairs = [(key, option) for key, options in offered.items() for option in options]
    assert taken(edits_schema(pairs, captions, most), reply)
    pools, at_once = counterfactuals.edit_pools(Caption(caption), asked, settings)
    model, prompt = ScriptedLanguageModel(reply), DILLEMA.prompts(name)["edits"]
    found = chosen_by_model(Caption(caption), pools, at_once, task, model, prompt, settings, 0)
    said = ["; ".join(f"{edit.keyword} -> {edit.alternative}" for edit in edits) for edits in found.edits]
    assert said == reply.splitlines() and {len(edits) for edits in found.edits} == {1, 2}
    assert len(found.edits) == captions, "as many as are allowed"


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_one_request_is_a_reply_that_we_take_whole(name: str) -> None:
    shown = example(name, "together")
    task, caption, reply = task_in(shown["task"]), Caption(shown["caption"]), shown["reply"]
    count, captions, most = (int(shown[variable]) for variable in ("count", "captions", "most"))
    schema = together_schema(caption.text, task, count, captions, most)
    assert schema is not None and taken(schema, reply)
    settings = CounterfactualSettings(attempts=1, captions=captions, edits_at_once=most)
    model, prompt, data = ScriptedLanguageModel(reply), Prompt("x", "$task $caption"), json.loads(reply)
    own = AlternativeSettings(attempts=1, per_keyword=count)
    made = run_together(caption, task, model, prompt, KeywordSettings(attempts=1), (own, settings))
    words = made.value.value
    assert [(item.text, item.edit_type) for item in words.items] == [
        (each["keyword"], each["edit_type"]) for each in data["keywords"]
    ]
    found = run_alternatives(
        caption, words, task, model, prompt, own, 0, early_reply=made.early_replies["alternatives"]
    ).value
    assert [[option.text for option in item.options if option.used] for item in found.items] == [
        each["alternatives"] for each in data["keywords"]
    ]
    assert {len(item.options) for item in found.items} == {count}, "as many as are allowed"
    new = run_counterfactuals(
        caption, found, task, model, prompt, settings, 0, early_reply=made.early_replies["counterfactuals"]
    )
    assert [item.text for item in new.value.items] == [each["caption"] for each in data["captions"]]
    assert [[f"{edit.keyword} -> {edit.alternative}" for edit in item.edits] for item in new.value.items] == [
        each["edits"] for each in data["captions"]
    ]
    assert all(item.used for item in new.value.items) and len(new.value.items) == captions
    assert len(model.prompts) == 1, "nothing is left to be asked for"
    assert kinds(name) == {each["keyword"]: each["edit_type"] for each in data["keywords"]}


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_perturbations_changes_one_place_and_keeps_its_label(name: str) -> None:
    shown = example(name, "perturbations")
    old, new = shown["reply"].partition(" | ")[0].split(" -> ")
    text = read_perturbation(shown["reply"])
    assert [(change.gone, change.came) for change in changes(shown["caption"], text)] == [(old, new)]
    made = CounterfactualCaption(text, (Edit(old, new, "weather"),))
    task = task_in(shown["task"])
    assert shown["type"] == "weather" and not failed(counterfactual_checks(shown["caption"], made, task))
    assert taken(perturbation_schema(shown["caption"], task, "weather"), shown["reply"])


@pytest.mark.parametrize("name", WORKED)
def test_the_example_of_the_backgrounds_has_its_place_and_time_and_no_subject(name: str) -> None:
    shown = example(name, "backgrounds")
    edits = (Edit("place", shown["place"], "background"), Edit("time", shown["time"], "time of day"))
    described = CounterfactualCaption(shown["reply"], edits)
    assert not failed(counterfactual_checks("", described, task_in(shown["task"])))
    assert shown["reply"].lower().startswith(shown["instruction"]) and shown["avoid"] in shown["task"]


@pytest.mark.parametrize("name", WORKED)
def test_the_examples_speak_of_one_picture_and_of_a_label_that_they_keep(name: str) -> None:
    stages = ("keywords", "alternatives", "counterfactuals", "edits", "together", "perturbations")
    shown = [example(name, stage) for stage in stages]
    (task,) = {task_in(each["task"]) for each in shown}
    assert all(task.label in each["caption"] for each in shown)
    assert task.label in shown[2]["reply"] and task.label not in shown[0]["reply"] + shown[1]["reply"]


# Words


@pytest.mark.parametrize(("name", "stage"), PROMPTS)
def test_no_shipped_prompt_names_a_model_or_copies_a_released_one(name: str, stage: str) -> None:
    text = template(name, stage)
    assert not models_in(text)
    assert not sentences(text) & RELEASED


def test_nor_does_what_a_profile_says_to_a_language_model() -> None:
    for profile in PROFILES:
        told = str(getattr(profile.language, "system", ""))
        assert not sentences(told) & RELEASED and not models_in(told)


def test_the_models_of_every_profile_are_among_the_names_that_are_looked_for() -> None:
    for profile in PROFILES:
        for section in (profile.language, profile.captioner, profile.generator):
            hub = getattr(section, "hub", "")
            assert not hub or any(name in hub.lower() for name in MODELS), f"add the name of {hub}"


def test_a_model_and_a_released_sentence_would_be_found() -> None:
    assert models_in("[INST] You are Qwen3-VL.") == ["inst", "qwen"] and models_in("Many options instead.") == []
    assert sentences("Rules:\n- Do not compare the revised result with the original one.\n") & RELEASED
    assert sentences("This is a list of image captions: $caption.") & RELEASED


# Length


def test_the_example_s_caption_fits_one_window_of_the_text_encoder_behind_every_diffusion_prompt() -> None:
    tokenizer = Tokenizer.from_file(str(ROOT / "demo/weights/stable-diffusion/tokenizer/tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    caption = example("paper", "counterfactuals")["reply"]
    for name in SETS:
        prompt = DILLEMA.prompts(name)[DRAWING_PROMPT.name]
        text = prompt.evaluate(caption=caption, shown="bicycle", kept="bicycle")
        assert len(tokenizer.encode(text).ids) <= 77 and text.count(caption) == 1
