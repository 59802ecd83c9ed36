"""The report on the embedded models: how it reads captions and images, and how it names a missed minimum."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import cv2
import numpy as np
import pytest

from core.types import Alternative, Alternatives, Edit, KeywordAlternatives
from demo.calibrate import band_of, raised
from demo.check_truth import PARTS, Truth, edited_scene, painted_pixels, part_shows, truth_of
from demo.facts import facts_of, facts_of_scene
from demo.judges import Judges
from demo.language import caption, random_wording
from demo.render import render
from demo.scene import COLOURS, HILLS, PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, random_scene
from evaluation.metrics import MASK_BANDS
from experiments.demo_report.images import Overlap, lost_and_added
from experiments.demo_report.rows import Row, missed, share, table
from experiments.demo_report.walk import (
    ListeningModels,
    Walk,
    edited_slots,
    expected_facts,
    plan_edit,
    start_walk,
    walk_text,
)
from pipeline.checks.images import BACKGROUND_FREE, BANDS, INVERTED, SUBJECT_FOUND, SUBJECT_KEPT, SUBJECT_SIZE
from pipeline.driver import Driver
from pipeline.profiles.profile import load_profile
from tests.support.scripted import ScriptedLanguageModel, ScriptedModels

pytestmark = pytest.mark.slow

RED_AND_BLUE = (
    "A road with two cars in foggy weather at night. The near car is red and the far car is blue. "
    "A pedestrian walks on the pavement. The road is lined with leafy trees. The ground is sandy."
)


def walk_of(family: str) -> Walk:
    """Return the first unseen scene of a family, with its canonical caption."""
    profile = load_profile("demo")
    found = next(walk for number in range(50) if (walk := start_walk(number, profile)).scene.family == family)
    found.caption = caption(found.scene)
    return found


def test_a_caption_says_exactly_what_its_scene_shows_in_every_wording() -> None:
    for seed in range(400):
        scene = random_scene(seed)
        assert facts_of(caption(scene)) == facts_of_scene(scene)
        told = caption(scene, random_wording(random.Random(seed), plain=0.0))
        assert facts_of(told) == facts_of_scene(scene), told


def test_a_wrong_colour_order_and_a_missing_pedestrian_are_noticed() -> None:
    facts = facts_of(RED_AND_BLUE)
    assert facts.colours == ("red", "blue") and facts.vehicles == 2 and facts.pedestrians == 1
    swapped = RED_AND_BLUE.replace("near car is red and the far car is blue", "near car is blue and the far car is red")
    assert facts_of(swapped) != facts
    assert facts_of(RED_AND_BLUE.replace("A pedestrian walks on the pavement", "The pavement is empty")) != facts
    assert facts_of(RED_AND_BLUE.replace("foggy weather", "foggy and sunny weather")).weather == ""


def test_an_edit_of_one_colour_word_changes_every_car_that_has_it() -> None:
    facts = facts_of(RED_AND_BLUE.replace("blue", "red"))
    edit = Edit("red", "white", "attribute")
    assert expected_facts(facts, [edit]).colours == ("white", "white")
    assert expected_facts(facts_of(RED_AND_BLUE), [edit]).colours == ("white", "blue")


@pytest.mark.slow
def test_the_mask_tells_vehicles_apart_nearest_first() -> None:
    from demo.train.batches import coloured_things

    told = 0
    for seed in range(60):
        scene = random_scene(seed, family="road")
        _, mask = render(scene)
        things = coloured_things(mask, scene)
        if scene.vehicles and things:
            told += 1
            assert [COLOURS[colour] for _, colour in things] == list(scene.look.colours)
            for place, (pixels, _) in enumerate(things):
                paint = painted_pixels(scene, place)
                assert paint.any()
                assert (paint & pixels).sum() > 0.9 * paint.sum(), "the paint of a vehicle lies on that vehicle"
    assert told > 30


def test_the_overlap_of_a_shifted_mask_is_less_than_one() -> None:
    mask = np.zeros((128, 128), np.uint8)
    mask[40:80] = SEMANTIC_CLASSES.index("road")
    overlap = Overlap("road")
    overlap.add(mask, mask)
    assert overlap.value == 1
    overlap.add(mask, np.roll(mask, 20, axis=0))
    assert overlap.value == pytest.approx((40 + 20) / (40 + 60))


def test_what_is_lost_and_what_is_added_is_told_by_its_class() -> None:
    vehicle, pedestrian = SEMANTIC_CLASSES.index("vehicle"), SEMANTIC_CLASSES.index("pedestrian")
    truth = np.zeros((128, 128), np.uint8)
    truth[60:80, 10:40] = truth[60:80, 70:100] = vehicle
    assert lost_and_added(truth, truth) == ([], [])
    seen = truth.copy()
    seen[60:80, 70:98] = 0  # a twentieth of the second car is left
    seen[90:110, 100:106] = pedestrian
    seen[5:8, 5:8] = vehicle  # too small to count
    assert lost_and_added(truth, seen) == (["vehicle"], ["pedestrian"])
    assert lost_and_added(truth, np.roll(truth, 2, axis=1)) == ([], []), "a little aside is not lost"
    assert lost_and_added(truth, seen, ideal=seen) == ([], []), "what the judges misread anyway is held against nobody"
    assert lost_and_added(truth, truth, ideal=seen) == ([], [])


@pytest.mark.parametrize("slot", PARTS)
def test_an_edit_of_the_background_shows_in_the_edited_scene_and_not_in_the_source(slot: str) -> None:
    scene = random_scene(
        3, "road" if slot in ("trees", "walls") else "object", label="boat" if slot == "water" else None
    )
    scene = replace(scene.with_look(weather="cloudy"), background="trees and buildings")
    old, *_, new = PARTS[slot]
    scene, goal = scene.with_look(**{slot: old}), scene.with_look(**{slot: new})
    assert part_shows(scene, goal, slot, render(goal)[0])
    assert not part_shows(scene, goal, slot, render(scene)[0])
    snowed = scene.with_look(weather="snowy")
    if slot == "ground":
        assert part_shows(snowed, snowed.with_look(ground=new), slot, render(snowed)[0]), "snow covers it either way"


def test_a_missed_floor_is_named_and_a_reached_one_is_not() -> None:
    rows = [
        share("caption names the right class", [True] * 95 + [False] * 5, 0.90),
        share("caption names the right colour", [True] * 80 + [False] * 20, 0.90),
        Row("one image to 4 generated images", 21.0, 20.0, "s"),
        Row("road pixels kept", 0.9, 0.85, "IoU"),
        share("label still right in the generated image", [], 0.93),
    ]
    sentences = missed(rows)
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "caption names the right colour",
        "one image to 4 generated images",
        "label still right in the generated image",
    ]
    assert "80.0 %" in sentences[0] and "90 %" in sentences[0]
    assert "not measured" in table(rows)


def test_edits_are_planned_only_among_what_the_judges_can_recognise() -> None:
    walk = walk_of("object")
    colour = walk.scene.look.colours[0]
    unknown = KeywordAlternatives(colour, "attribute", (Alternative("tartan"),))
    assert plan_edit(walk, Alternatives((unknown,))) is None
    other = next(name for name in COLOURS if name != colour)
    edit = plan_edit(walk, Alternatives((KeywordAlternatives(colour, "attribute", (Alternative(other),)),)))
    assert edit == Edit(colour, other, "attribute")
    hills = walk.scene.look.hills
    asked = (Alternative("inky"), Alternative(next(name for name in HILLS if name != hills)))
    edit = plan_edit(walk, Alternatives((KeywordAlternatives(hills, "background", asked),)))
    assert edit == Edit(hills, asked[1].text, "background"), "hills are not inky"
    assert edited_slots(walk, edit) == [("hills", asked[1].text)]


def test_the_language_part_counts_a_first_reply_that_does_not_parse_and_a_protected_keyword() -> None:
    walk = walk_of("object")
    label, weather = walk.scene.label, walk.scene.look.weather
    other = "foggy" if weather != "foggy" else "sunny"
    replies = (
        "I like birds.",  # cannot be parsed, so the model is asked again
        f"{label} | object\n{weather} | weather",
        f"{weather}: {other}",
        walk.caption.replace(weather, other),
    )
    models = ListeningModels(ScriptedModels(ScriptedLanguageModel(*replies)))
    walk_text(walk, Driver(load_profile("demo"), models), models)
    assert walk.first_replies_read == [False, True, True]
    assert walk.keywords_free is None
    assert walk.planned is not None and walk.planned.edits == (Edit(weather, other, "weather"),)
    assert walk.edits_right == [True]


def test_a_counterfactual_caption_that_loses_the_label_does_not_count() -> None:
    walk = walk_of("object")
    label, weather = walk.scene.label, walk.scene.look.weather
    other = "foggy" if weather != "foggy" else "sunny"
    replies = (
        f"{label} | object\n{weather} | weather",
        f"{weather}: {other}",
        walk.caption.replace(weather, other).replace(label, "thing"),
    )
    models = ListeningModels(ScriptedModels(ScriptedLanguageModel(*replies)))
    walk_text(walk, Driver(load_profile("demo"), models), models)
    assert walk.keywords_free is False, "the label was named as a keyword"
    assert walk.edits_right == [False]


@pytest.mark.demo
def test_the_judges_read_untouched_scenes() -> None:
    from demo.judges import Judges

    judges, right, wrong = Judges(), 0, []
    for seed in range(2_000_000, 2_000_040):
        scene = random_scene(seed)
        image, _ = render(scene)
        reading = judges.read(image)
        told = [reading.label, reading.weather, reading.time]
        told += [reading.colour(painted_pixels(scene, place)) for place in range(len(scene.look.colours))]
        shown = [scene.label or "road", scene.look.weather, scene.look.time, *scene.look.colours]
        right += sum(a == b for a, b in zip(told, shown, strict=True))
        wrong += [(seed, a, b) for a, b in zip(told, shown, strict=True) if a != b]
    assert len(wrong) <= 0.02 * (right + len(wrong)), wrong


@pytest.mark.demo
def test_the_judges_refuse_another_size() -> None:
    from demo.judges import Judges

    with pytest.raises(ValueError, match="128"):
        Judges().read(np.zeros((64, 64, 3), np.uint8))


def test_the_truth_of_an_image_is_that_of_its_scene() -> None:
    """The ideal image of an edited street is good. The source lacks the edit. An image without its cars has lost
    things.
    """
    judges = Judges()
    scene = next(s for s in map(random_scene, range(900, 1000)) if s.vehicles == 2 and s.look.time == "day")
    edits = (("time", "at sunset"),)
    goal = edited_scene(scene, edits)
    ideal, mask = render(goal)
    assert not truth_of(scene, edits, ideal, judges).broken
    source = truth_of(scene, edits, render(scene)[0], judges)
    assert source.edit_missing and not source.thing_lost
    empty = ideal.copy()
    empty[mask == SEMANTIC_CLASSES.index("vehicle")] = np.median(ideal[mask == SEMANTIC_CLASSES.index("road")], axis=0)
    assert truth_of(scene, edits, empty, judges).thing_lost


def test_a_town_without_its_buildings_or_with_melted_ones_is_broken() -> None:
    judges = Judges()
    scene = replace(random_scene(107, "road").with_look(weather="sunny", time="day"), background="buildings")
    edits = (("time", "at sunset"),)
    ideal, mask = render(edited_scene(scene, edits))
    assert not truth_of(scene, edits, ideal, judges).broken
    gone, walls = ideal.copy(), mask == SEMANTIC_CLASSES.index("building")
    gone[walls] = ideal[10, 10]
    assert truth_of(scene, edits, gone, judges).surroundings_lost
    smooth = np.where(walls[..., None], cv2.GaussianBlur(ideal, (0, 0), 2.5), ideal)
    melted = truth_of(scene, edits, smooth, judges)
    assert melted.form_lost and not melted.thing_lost and not melted.edit_missing


def test_the_lines_of_a_check_lie_where_good_and_bad_ones_part() -> None:
    apart = band_of([0.5, 0.6, 0.7], [0.0, 0.1])
    assert 0.1 < apart[0] == apart[1] < 0.5
    mixed = band_of([number / 100 for number in range(20, 120)], [number / 100 for number in range(60)])
    assert 0.2 <= mixed[0] < 0.25 and 0.5 < mixed[1] < 0.6, "few good ones below, few bad ones above"


NAMES = [field.name for field in fields(Truth)]


def test_lines_are_raised_where_it_costs_fewest_good_images_until_few_broken_ones_pass_all() -> None:
    bands = {"edit shows": (-1.0, 0.0), "mask kept": (0.2, 0.5)}
    missing, lost, good = (Truth(*(name == wrong for name in NAMES)) for wrong in ("edit_missing", "class_lost", ""))
    images = [(missing, {"edit shows": 0.1, "mask kept": 0.9}), (lost, {"edit shows": 0.3, "mask kept": 0.3})]
    images += [(good, {"edit shows": 0.5, "mask kept": 0.6 + number / 100}) for number in range(30)]
    assert raised(bands, images) == {"edit shows": (-1.0, 0.101), "mask kept": (0.2, 0.5)}
    assert raised(bands, images[1:]) == bands


FOR_EVERY_MODEL = {INVERTED, SUBJECT_KEPT, BACKGROUND_FREE, SUBJECT_FOUND, SUBJECT_SIZE}
"""Checks of an inversion and of a pasted subject, whose thresholds are the same for every generator."""


def test_the_demo_profile_has_lines_for_every_check_of_an_image() -> None:
    checks = load_profile("demo").checks
    assert set(checks.bands) == {*BANDS, *MASK_BANDS} - FOR_EVERY_MODEL
    assert checks.segmenter is not None and set(checks.things) <= set(PROTECTED_ROAD_CLASSES)
