"""Search by text and near-duplicates with the embedded CLIP, on scenes of the drawn world."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from PIL import Image, ImageEnhance

from core.types import Task
from demo.render import render
from demo.scene import OBJECT_CLASSES, WEATHERS, Scene, random_scene
from pipeline.profiles.profile import load_profile
from services.studio import Studio
from storage.curation import entry_sets
from tests.support.cases import made_case
from tests.support.demo_server import demo_models
from tests.support.serving import until
from tests.support.workspaces import workspace_in

pytestmark = [pytest.mark.demo, pytest.mark.slow]
MARGIN = 0.03
"""Half of the measured difference."""
SCENES = 72
"""Number of scenes of objects. Each has its own source."""


def drawn(scene: Scene) -> Image.Image:
    return Image.fromarray(render(scene, 256)[0])


def as_jpeg(image: Image.Image) -> Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=60)
    return Image.open(data).convert("RGB")


def add(studio: Studio, source: Image.Image, *images: Image.Image, label: str = "bird") -> list[int]:
    """Add a new source with images. Return their entries."""
    known = set(studio.workspace.catalogue.ids())
    run = studio.workspace.runs.create(source, Task("classification", label), "demo", "A run", {})
    for image in images:
        studio.workspace.test_cases.append(run, None, made_case(image, source))
    return sorted(set(studio.workspace.catalogue.ids()) - known)


def scene_of(number: int) -> Scene:
    """Return the scene of a number. The first 24 are sunny by day: red birds, blue and green birds, and other red
    things. The rest are random.
    """
    scene = random_scene(500 + number, "object", "bird" if number < 12 else None)
    if number >= 24:
        return scene
    if number >= 12:
        scene = random_scene(500 + number, "object", OBJECT_CLASSES[1 + number % (len(OBJECT_CLASSES) - 1)])
    colour = ("blue", "green")[number % 2] if 6 <= number < 12 else "red"
    return scene.with_look(colours=(colour,), weather="sunny", time="day")


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Studio, dict[int, Scene]]]:
    """Studio with `SCENES` embedded scenes, and the scene of each entry."""
    with workspace_in(tmp_path_factory.mktemp("meaning")) as workspace:
        made = Studio(load_profile("demo"), demo_models(), workspace)
        scenes = {}
        for number in range(SCENES):
            scene = scene_of(number)
            (entry,) = add(made, Image.new("RGB", (64, 64), (number, 100, 50)), drawn(scene), label=scene.label)
            scenes[entry] = scene
        embedded(made)
        yield made, scenes
        made.close()


def embedded(studio: Studio) -> None:
    studio.meaning.begin()
    until(lambda: not studio.meaning.filling().working)
    filling = studio.meaning.filling()
    assert (filling.done, filling.problem) == (filling.total, "")


def test_a_red_bird_finds_red_birds_first(studio: tuple[Studio, dict[int, Scene]]) -> None:
    """They come before birds of other colours and other red things in the same light."""
    made, scenes = studio
    alike = list(scenes)[:24]
    red = {entry for entry in alike if (scenes[entry].label, scenes[entry].look.colours) == ("bird", ("red",))}
    allowed = entry_sets.of_entries(alike, len(made.workspace.catalogue.bits()) // entry_sets.BYTES)
    found = made.meaning.ranked("a red bird", allowed)
    assert len(red) == 6 and {scenes[entry].label for entry in found.entries[:12]} == {"bird"}
    assert set(found.entries[:3]) <= red and len(red & set(found.entries[:6])) == 5
    figures = dict(zip(found.entries, found.similarities, strict=True))
    assert figures[found.entries[2]] > max(figures[entry] for entry in alike if entry not in red) + MARGIN


def test_every_label_and_weather_is_found_by_its_words(studio: tuple[Studio, dict[int, Scene]]) -> None:
    made, scenes = studio
    allowed = made.workspace.catalogue.bits()
    for label in sorted({scene.label for scene in scenes.values()}):
        labels = [scenes[entry].label for entry in made.meaning.ranked(f"a {label}", allowed, 5).entries]
        assert labels.count(label) >= min(4, sum(scene.label == label for scene in scenes.values())), label
    for weather in (one for one in WEATHERS if one != "cloudy"):  # a picture of an object hardly shows clouds
        found = made.meaning.ranked(f"{weather} weather", allowed, 5).entries
        assert [scenes[entry].look.weather for entry in found].count(weather) >= 3, weather


def test_an_image_is_like_others_of_its_class(studio: tuple[Studio, dict[int, Scene]]) -> None:
    made, scenes = studio
    allowed = made.workspace.catalogue.bits()
    first = {entry: made.meaning.ranked(entry, allowed, 1).entries[0] for entry in scenes}
    assert all(entry != nearest for entry, nearest in first.items())
    right = sum(scenes[entry].label == scenes[nearest].label for entry, nearest in first.items())
    assert right >= 0.4 * SCENES, "63 of 100: weather, time of day and ground make two pictures alike as well"


def test_copies_are_near_duplicates_and_other_scenes_are_not(studio: tuple[Studio, dict[int, Scene]]) -> None:
    made, scenes = studio
    entry, scene = list(scenes.items())[30]
    image = drawn(scene)
    copies = [
        *add(made, Image.new("RGB", (64, 64)), as_jpeg(image)),
        *add(made, Image.new("RGB", (64, 64), "white"), ImageEnhance.Brightness(image).enhance(1.1)),
        *add(made, Image.new("RGB", (64, 64), "red"), image),
        *add(made, Image.new("RGB", (64, 64), "blue"), image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
    ]
    embedded(made)
    try:
        alike = made.commands.send("near-duplicates", {"entry": entry})["test_cases"]
        assert {row["entry"] for row in alike} == set(copies)
        assert (alike[0]["entry"], alike[0]["distance"]) == (copies[2], 0) and not alike[0]["same_source"]
        everything = made.workspace.catalogue.bits()
        found = made.near_duplicates.groups(everything)
        assert found.groups == (tuple(sorted((entry, *copies))),)
        assert (found.compared, found.waiting, found.complete) == (SCENES + 4, 0, True)
        sent = made.commands.send("near-duplicate-groups", {"filter": {"class": scene.label}})
        assert entry not in {one for group in sent["groups"] for one in group} or scene.label == "bird"
    finally:
        for copy in copies:
            made.workspace.runs.remove(made.workspace.catalogue.get(copy).run)
    assert made.near_duplicates.of(entry) == ()


def test_images_of_one_source_are_not_near_duplicates_for_their_geometry(
    studio: tuple[Studio, dict[int, Scene]],
) -> None:
    """The images differ in the requested edit: another weather, another time of day."""
    made, _ = studio
    scene = random_scene(77, "road").with_look(weather="sunny", time="day")
    looks = [scene, *(scene.with_look(weather=one) for one in WEATHERS[1:]), scene.with_look(time="night")]
    siblings = add(made, drawn(scene), *map(drawn, looks), as_jpeg(drawn(looks[3])))
    embedded(made)
    try:
        chunks = len(made.workspace.catalogue.bits()) // entry_sets.BYTES
        found = made.near_duplicates.groups(entry_sets.of_entries(siblings, chunks))
        assert found.groups == ((siblings[3], siblings[-1]),)
        (same,) = made.near_duplicates.of(siblings[3])
        assert (same.entry, same.same_source) == (siblings[-1], True)
    finally:
        made.workspace.runs.remove(made.workspace.catalogue.get(siblings[0]).run)
