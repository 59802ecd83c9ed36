"""The shipped language model through ctransformers, on scenes outside its training and on texts by people."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from core.model_sections import ROOT
from core.types import EDIT_TYPES, Task
from demo.language import TIME_PHRASES, caption, keywords, protected_words
from demo.scene import COLOURS, GROUNDS, PROTECTED_ROAD_CLASSES, TIMES, WEATHERS, Scene, random_scene
from demo.train.corpus import (
    HIDDEN_GROUND,
    NO_EDIT,
    STAGES,
    Example,
    draft_of,
    edit_type_of,
    load_templates,
    options_of,
    perturbation_example,
)
from demo.train.llama_scores import MODEL, SAMPLING, load
from pipeline.checks.single_edit import changes
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA, LANCE

pytestmark = pytest.mark.demo
SCENES = [random_scene(seed) for seed in range(900_000, 900_020)]
ROAD = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
BIRD = Task("classification", label="bird")
Ask = Callable[[Example], str]


@pytest.fixture(scope="module")
def model() -> Any:
    return load(MODEL)


@pytest.fixture(scope="module")
def ask(model: Any) -> Ask:
    """Return a function that asks the model for an example's reply, sampling like the pipeline."""
    templates = load_templates()
    return lambda example: str(model(example.prompt(templates), seed=0, **SAMPLING)).strip()


def task_of(scene: Scene) -> Task:
    return ROAD if scene.family == "road" else Task("classification", label=scene.label)


def most(held: list[bool], least: float = 0.97) -> bool:
    """Return True if at least the share `least` holds. The pipeline asks again after a single error of the model."""
    return sum(held) >= least * len(held)


def rewritten(ask: Ask, task: Task, text: str, edits: dict[str, str]) -> str:
    return ask(Example("counterfactuals", task, text, "", edits=edits))


@pytest.mark.parametrize(
    "name",
    # The profile laptop does not use its language model.
    [path.stem for path in sorted((ROOT / "pipeline/profiles").glob("*.toml")) if path.stem != "laptop"],
)
def test_every_prompt_and_its_longest_reply_fit_the_context(model: Any, name: str) -> None:
    """Count tokens with this model, which needs many for words outside its world. Use the longest caption, all
    protected classes, and an edit of every keyword.
    """
    profile = load_profile(name)
    section, settings = profile.language, LANCE.settings_in(profile)
    prompts = {**DILLEMA.prompts(profile.prompts).prompts, **LANCE.prompts(profile.prompts).prompts}
    least = max((len(caption(scene)) for scene in SCENES), default=0) if name == "demo" else 1200
    text, words = "", tuple[str, ...]()
    for scene in sorted(SCENES, key=lambda scene: len(caption(scene)), reverse=True):
        if len(text) < least:
            text, words = f"{text} {caption(scene)}".strip(), (*words, *(each.text for each in keywords(scene)))
    filled: dict[str, str | int] = {
        "task": Task("segmentation", protected=profile.tasks.protected).describe(),
        "caption": text,
        "keywords": ", ".join(dict.fromkeys(words)),
        "edits": "; ".join(f"{word} -> another {word}" for word in dict.fromkeys(words)),
        "count": settings.alternatives.per_keyword,
        "type": "time of day",
    }
    for stage in STAGES:
        asked = f"{getattr(section, 'system', '')} {prompts[stage].evaluate(**filled)}"
        longest = getattr(settings, stage).max_new_tokens
        assert len(model.tokenize(asked)) + longest <= (getattr(section, "context_length", 0) or 4096), stage


def test_keywords_are_those_of_the_world_and_never_the_label(ask: Ask) -> None:
    right = []
    for scene in SCENES:
        lines = ask(Example("keywords", task_of(scene), caption(scene), "")).split("\n")
        pairs = [tuple(line.strip().split(" | ")) for line in lines]
        assert all(len(pair) == 2 and pair[1] in EDIT_TYPES for pair in pairs)
        assert not {word for pair in pairs for word in pair[0].split()} & set(protected_words(scene))
        right.append(pairs == list(dict.fromkeys((k.text, k.edit_type) for k in keywords(scene))))
    assert most(right)


def test_alternatives_are_as_many_as_asked_and_all_different(ask: Ask) -> None:
    right = []
    for i, scene in enumerate(SCENES):
        words = tuple(dict.fromkeys(k.text for k in keywords(scene)))
        count = 1 + i % 4
        asked = Example("alternatives", task_of(scene), caption(scene), "", keywords=words, count=count)
        lines = ask(asked).split("\n")
        found = {line.split(":")[0].strip(): line.split(":")[1].strip().split(", ") for line in lines}
        assert tuple(found) == words
        for word, options in found.items():
            possible = options_of(word)
            right.append(
                set(options) <= set(possible) and len(options) == len(set(options)) == min(count, len(possible))
            )
    assert most(right)


@pytest.mark.parametrize("at_once", [1, 2, 99])
def test_counterfactual_is_the_worlds_own_caption_after_the_edits(ask: Ask, at_once: int) -> None:
    rng, right = random.Random(at_once), []
    for scene in SCENES:
        if scene.look.weather == "snowy":
            scene = scene.with_look(ground=HIDDEN_GROUND)
        known = list({k.text: k for k in keywords(scene)}.values())
        edits: dict[str, str] = {}
        look: dict[str, Any] = {}
        for keyword in known if at_once >= len(known) else rng.sample(known, at_once):
            new = edits[keyword.text] = rng.choice(keyword.alternatives)
            if keyword.slot == "time":
                look["time"] = next(time for time in TIMES if TIME_PHRASES[time] == new)
            elif not keyword.slot.startswith("colour"):
                look[keyword.slot] = new
        look["colours"] = tuple(edits.get(colour, colour) for colour in scene.look.colours)
        wanted = caption(scene.with_look(**look))
        right.append(rewritten(ask, task_of(scene), caption(scene), edits) == wanted)
    # The shares measured for the shipped model are 0.98, 0.95 and 0.95.
    assert most(right, 0.97 if at_once == 1 else 0.90)


def test_a_perturbation_is_one_edit_of_the_type_and_none_where_the_world_has_no_words(ask: Ask) -> None:
    right, refused = [], []
    for number, scene in enumerate(SCENES):
        for edit_type in EDIT_TYPES:
            wanted = perturbation_example(random.Random(number), draft_of(scene), task_of(scene), edit_type)
            reply = ask(wanted)
            if wanted.reply == NO_EDIT:
                refused.append(reply == NO_EDIT)
                continue
            found = changes(wanted.caption, reply.partition(" | ")[2])
            right.append(len(found) == 1 and edit_type_of(found[0].gone, found[0].came) == edit_type)
    assert len(right) > 60 and most(right, 0.95)
    assert len(refused) > 40 and most(refused, 0.95)


@pytest.mark.parametrize("weather", [w for w in WEATHERS if w != "rainy"])
def test_the_weather_takes_the_ground_and_the_water_with_it(ask: Ask, weather: str) -> None:
    for label in ("bird", "boat"):
        scene = random_scene(4, "object", label).with_look(weather="rainy")
        text = rewritten(ask, Task("classification", label=label), caption(scene), {"rainy": weather})
        assert text == caption(scene.with_look(weather=weather))


@pytest.mark.parametrize("new", ["purple with stripes", "gilded", "very old", "turquoise"])
def test_a_colour_of_a_persons_own_is_taken_word_for_word(ask: Ask, new: str) -> None:
    scene = random_scene(12, "object", "bird").with_look(weather="sunny", colours=("red",), ground="grassy")
    text = rewritten(ask, BIRD, caption(scene), {"red": new})
    assert text == caption(scene).replace("red", new)


@pytest.mark.parametrize(("slot", "new"), [("weather", "windy"), ("time", "in the morning"), ("ground", "mossy")])
def test_other_words_of_a_persons_own_are_taken_word_for_word(ask: Ask, slot: str, new: str) -> None:
    scene = random_scene(13, "road").with_look(weather="cloudy", time="night", ground=GROUNDS[1])
    old = {"weather": "cloudy", "time": "at night", "ground": GROUNDS[1]}[slot]
    assert rewritten(ask, ROAD, caption(scene), {old: new}) == caption(scene).replace(old, new)


def test_unknown_weather_dries_the_ground(ask: Ask) -> None:
    scene = random_scene(21, "road").with_look(weather="rainy", ground="sandy")
    text = rewritten(ask, ROAD, caption(scene), {"rainy": "windy"})
    assert text == caption(scene.with_look(weather="windy"))


def test_a_sentence_that_a_person_added_stays(ask: Ask) -> None:
    scene = random_scene(12, "object", "bird").with_look(weather="sunny", time="day", colours=("red",))
    text = caption(scene) + " A small bench is nearby."
    assert rewritten(ask, BIRD, text, {"by day": "at night"}) == text.replace("by day", "at night")
    assert "bench" in ask(Example("keywords", BIRD, text, ""))


def test_a_dropped_sentence_stays_away(ask: Ask) -> None:
    text = "A yellow bird in cloudy weather by day. The bird sits on a twig."
    reply = rewritten(ask, BIRD, text, {"cloudy": "snowy"})
    assert reply == text.replace("cloudy", "snowy")


def test_a_keyword_that_a_person_picked_is_mostly_replaced(ask: Ask) -> None:
    picked = [("bird", "twig", "fence"), ("bird", "twig", "branch"), ("bird", "twig", "wire")]
    picked += [("house", "alone", "proudly"), ("flower", "tall", "wild"), ("kite", "high", "low")]
    right = []
    for label, old, new in picked:
        scene = random_scene(12, "object", label).with_look(weather="sunny", ground="grassy")
        reply = rewritten(ask, Task("classification", label=label), caption(scene), {old: new})
        right.append(reply == caption(scene).replace(old, new))
    assert sum(right) >= 4, "it knows such words less well than the world's own; the check tells where it fails"


def test_same_seed_same_reply(ask: Ask) -> None:
    words = (COLOURS[0], "sunny")
    example = Example("alternatives", BIRD, "A red bird in sunny weather by day.", "", keywords=words, count=3)
    assert ask(example) == ask(example)
