"""The training texts agree with the drawn world, and describe the consequences of an edit."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from core.types import Task
from demo.language import CANONICAL, TIME_PHRASES, caption, keywords, random_wording
from demo.scene import GROUNDS, Look, Scene, random_scene
from demo.train.corpus import (
    EDIT_TYPES,
    HIDDEN_GROUND,
    NO_EDIT,
    STAGES,
    Draft,
    apply,
    draft_of,
    edit_type_of,
    keywords_example,
    load_templates,
    open_span,
    perturbation_example,
    random_draft,
    random_example,
)
from pipeline.checks.single_edit import changes

BIRD = Scene("object", 3, Look("sunny", "day", ("red",), "sandy"), label="bird")


SEEDS = range(300)


def test_draft_says_what_the_world_says_in_every_wording() -> None:
    for seed in SEEDS:
        scene = random_scene(seed)
        for wording in (CANONICAL, *(random_wording(random.Random(seed + i), plain=0.0) for i in range(3))):
            shown = scene.with_look(ground=HIDDEN_GROUND) if scene.look.weather == "snowy" else scene
            assert draft_of(scene, wording).text() == caption(shown, wording), seed


def test_keywords_are_the_worlds_in_its_order() -> None:
    for seed in SEEDS:
        scene = random_scene(seed)
        draft = draft_of(scene)
        wanted = list(dict.fromkeys((k.text, k.edit_type) for k in keywords(scene)))
        example = keywords_example(random.Random(0), draft, Task("classification", label="zebra"))
        assert example is not None
        assert [tuple(line.strip().split(" | ")) for line in example.reply.split("\n")] == wanted, seed


def test_edits_have_the_consequences_that_the_world_knows() -> None:
    for seed in SEEDS:
        _an_edit_has_its_consequences(seed)


def _an_edit_has_its_consequences(seed: int) -> None:
    rng = random.Random(seed)
    scene = random_scene(seed)
    if scene.look.weather == "snowy":
        scene = scene.with_look(ground=HIDDEN_GROUND)
    edits: dict[str, str] = {}
    look: dict[str, Any] = {}
    for keyword in keywords(scene):
        if keyword.text in edits or rng.random() < 0.5:
            continue
        new = edits[keyword.text] = rng.choice(keyword.alternatives)
        if keyword.slot == "time":
            look["time"] = next(time for time, phrase in TIME_PHRASES.items() if phrase == new)
        elif not keyword.slot.startswith("colour"):
            look[keyword.slot] = new
    look["colours"] = tuple(edits.get(colour, colour) for colour in scene.look.colours)
    assert apply(draft_of(scene), edits) == caption(scene.with_look(**look)), seed


def test_an_unknown_weather_leaves_the_ground_dry() -> None:
    rainy = draft_of(BIRD.with_look(weather="rainy"))
    assert apply(rainy, {"rainy": "windy"}) == (
        "A red bird in windy weather by day. The bird sits on a twig. The ground is sandy. Behind it rise wooded hills."
    )


def test_the_article_follows_the_colour() -> None:
    assert apply(draft_of(BIRD), {"red": "orange"}).startswith("An orange bird")


def test_an_edit_changes_every_car_of_the_colour() -> None:
    scene = Scene("road", 1, Look("foggy", "night", ("red", "red"), "grassy"), vehicles=2, background="trees")
    draft = draft_of(scene)
    assert [draft.slots[name] for name in draft.open_slots()] == ["foggy", "at night", "red", "leafy", "grassy"]
    assert "The near car is blue and the far car is blue." in apply(draft, {"red": "blue"})


def test_what_lies_under_snow_is_said_to_be_one_thing() -> None:
    snowy = {apply(draft_of(BIRD.with_look(weather="snowy", ground=g)), {"snowy": "sunny"}) for g in GROUNDS}
    assert len(snowy) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_examples_hold_together(stage: str) -> None:
    templates = load_templates()
    for seed in range(1000):
        example = random_example(random.Random(seed), stage, seed)
        prompt = example.prompt(templates)
        assert example.task.describe() in prompt and example.caption in prompt
        assert "{" not in example.caption + example.reply
        if stage == "keywords":
            for line in example.reply.split("\n"):
                assert line.strip().split(" | ")[0] in example.caption
        elif stage == "alternatives":
            assert len(example.reply.split("\n")) == len(example.keywords)
            for keyword, line in zip(example.keywords, example.reply.split("\n"), strict=True):
                options = line.strip().removeprefix(f"{keyword}: ").split(", ")
                assert 1 <= len(options) <= example.count and keyword not in options
        elif stage == "perturbations":
            assert f"Type: {example.edit_type}\n" in prompt
            if example.reply == NO_EDIT:
                assert not example.edits
                continue
            said, _, text = example.reply.partition(" | ")
            (change,) = changes(example.caption, text)
            assert edit_type_of(change.gone, change.came) == example.edit_type not in ("subject", "domain")
            assert [said] == [f"{old} -> {new}" for old, new in example.edits.items()]
        else:
            for old, new in example.edits.items():
                assert old in example.caption
                covered = "Snow covers the ground." in example.reply
                assert new in example.reply or covered


def test_an_own_caption_has_a_perturbation_of_each_type_that_the_world_has_words_for() -> None:
    rng, scene = random.Random(0), random_scene(7, "road")
    for edit_type in EDIT_TYPES.values():
        for weather in ("snowy", "rainy", "sunny"):
            draft = draft_of(scene.with_look(weather=weather))
            example = perturbation_example(rng, draft, Task("segmentation", protected=("road",)), edit_type)
            assert (example.reply == NO_EDIT) == (edit_type == "object")
            if edit_type == "weather":
                (old, new) = next(iter(example.edits.items()))
                assert example.reply.endswith(example.caption.replace(old, new)), "what follows from it stays"


def test_keywords_leave_out_the_label_and_the_protected() -> None:
    for seed in range(2000):
        example = random_example(random.Random(seed), "keywords", seed)
        kept = set(" ".join(example.task.kept()).split())
        for line in example.reply.split("\n"):
            assert not kept & set(line.split(" | ")[0].split())


def test_a_word_that_a_person_picks_is_replaced_as_it_stands() -> None:
    opened = 0
    for seed in range(200):
        rng = random.Random(seed)
        draft, _ = random_draft(rng, random_scene(seed))
        wider = open_span(rng, draft)
        if wider is not draft:
            opened += 1
            (name,) = set(wider.slots) - set(draft.slots)
            text = wider.with_slots(**{name: "QQ"}).text()
            assert text == re.sub(rf"(?<!\S){re.escape(wider.slots[name])}(?![^\s.])", "QQ", draft.text())
    assert opened > 40


def test_changed_captions_vary() -> None:
    def changed(seed: int) -> Draft:
        return random_draft(random.Random(seed), random_scene(7), own=0.0)[0]

    assert len({changed(seed).text() for seed in range(300)}) > 250
