"""Compare images drawn from noise with images drawn from the inverted source: `python -m experiments.demo_report.starts
--results FILE`.

The real pipeline with the demo profile writes the counterfactual captions of each road scene. With `--true-captions`,
up to four captions are made from the known content of the scene instead. Each caption is drawn from noise and from the
inverted source. Judge models read the images. The file gets a line per scene, so that a stopped run can resume.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UnreadableReply
from core.figures import Figure, Floats
from core.settings import GenerationSettings, Settings
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Edit, Task
from demo.check_truth import edited_scene, truth_of
from demo.data_set import fair_scene
from demo.judges import Judges
from demo.language import caption, keywords
from demo.render import render
from demo.scene import Scene
from evaluation.by_source import MeansOfSources
from evaluation.report import with_interval
from experiments.demo_report.speed import processor_seconds
from experiments.demo_report.walk import PLANNED, Walk, can_be_judged, edited_slots
from experiments.resumable import measure_each
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA
from pipeline.request import MemoryStore, Request
from pipeline.stages import generation

WAYS = ("start=noise", "start=inverted")
FIRST_SEED = 2_400_000
FIGURES = ("valid", "unbroken", "shows")
"""Names of the figures. Valid: the edit shows and nothing is lost. Unbroken: nothing is lost. Shows: the edit shows."""
Ways = Mapping[str, Settings]
Made = list[tuple[CounterfactualCaption, list[tuple[str, str]]]]
"""Counterfactual captions, each with the changed parts of the scene (such as "weather") and their new words."""


def ways_of(settings: Settings, ways: Sequence[str]) -> Ways:
    """Return the drawing settings of each way of drawing. Keys are the given texts, `NAME=VALUE;NAME=VALUE`, which name
    the settings to change.
    """
    changed_settings = {}
    for way in ways:
        changed = settings.generation.model_dump() | dict(part.split("=") for part in way.split(";"))
        changed_settings[way] = settings.model_copy(update={"generation": GenerationSettings.model_validate(changed)})
    return changed_settings


def source(number: int, profile: Profile) -> Walk:
    """Return a road scene of a sunny or cloudy day, with its mask and task. No check was tuned on these scenes."""
    scene = fair_scene(FIRST_SEED + number, "road", number)
    pixels, mask = render(scene)
    task = Task("segmentation", protected=profile.tasks.protected)
    return Walk(number, scene, Image.fromarray(pixels), mask, task)


def with_true_captions(walk: Walk) -> Made:
    """Give a scene its true caption. Return an edited caption for each edit type in `PLANNED` that the scene allows."""
    walk.caption, rng, made = caption(walk.scene), random.Random(walk.number), Made()
    for kind in PLANNED:
        if words := [word for word in keywords(walk.scene) if word.edit_type == kind]:
            word = rng.choice(words)
            slots = [(word.slot, rng.choice(word.alternatives))]
            edits = (Edit(word.text, slots[0][1], kind),)  # type: ignore[arg-type]
            made.append((CounterfactualCaption(caption(edited_scene(walk.scene, slots)), edits), slots))
    return made


def with_captions(walk: Walk, driver: Driver) -> Made:
    """Let the pipeline write captions. Return captions whose edits can be judged, or [] if a reply is unreadable."""
    store = MemoryStore(walk.image)
    try:
        driver.run(Request(walk.task, DILLEMA.settings_in(driver.profile), seed=walk.number, images=()), store)
    except UnreadableReply:
        return []
    walk.caption = store.held["caption"].value.text
    captions: CounterfactualCaptions = store.held["counterfactuals"].value
    with_slots = []
    for item in captions.items:
        if item.used and all(map(can_be_judged, item.edits)):
            slots = [slot for edit in item.edits for slot in edited_slots(walk, edit)]
            with_slots += [(item, slots)] if slots else []
    return with_slots


def judged(scene: Scene, slots: list[tuple[str, str]], image: np.ndarray, judges: Judges) -> dict[str, float]:
    """Return, by name, the judges' findings on an image of an edited scene, and its distance to the ideal image."""
    truth = truth_of(scene, slots, image, judges)
    names = ("label_lost", "class_lost", "thing_lost", "surroundings_lost", "form_lost")
    ideal = render(edited_scene(scene, slots))[0]
    return {
        "valid": not truth.broken,
        "unbroken": not any(getattr(truth, name) for name in names),
        "shows": not truth.edit_missing,
        "distance": float(np.abs(image.astype(float) - ideal).mean()),
    }


def measured(number: int, driver: Driver, ways: Ways, judges: Judges, true_captions: bool) -> dict[str, Any]:
    """Draw and judge the images of a scene in each way of drawing. Return one line of the results."""
    walk, begun = source(number, driver.profile), processor_seconds()
    made = with_true_captions(walk) if true_captions else with_captions(walk, driver)
    text = processor_seconds() - begun
    captions = CounterfactualCaptions(tuple(item for item, _ in made))
    line: dict[str, Any] = {"number": number, "text": text, "images": []}
    line["kinds"] = [item.edits[0].edit_type for item, _ in made]
    line["seconds"] = {}
    for way, settings in ways.items():
        if not made:
            break
        begun = processor_seconds()
        images = generation.plan(captions, settings.generation, number).images
        store = MemoryStore(walk.image, {"caption": Caption(walk.caption), "counterfactuals": captions})
        driver.run(Request(walk.task, settings, seed=number, stages=(), images=images), store)
        line["seconds"][way] = processor_seconds() - begun
        for place, (case, (_, slots)) in enumerate(zip(store.cases, made, strict=True)):
            findings = judged(walk.scene, slots, np.asarray(case.image), judges)
            line["images"].append({"way": way, "edit": place, **findings})
    return line


def table(lines: Sequence[dict[str, Any]], ways: Sequence[str]) -> str:
    """Return a table of each way's figures by edit type, and their differences from the first way. Each source has the
    same weight.
    """
    text = ["| edit type | n | figure | " + " | ".join(ways) + " |", "|---" * (3 + len(ways)) + "|"]
    for kind in (None, *PLANNED):
        for figure in (*FIGURES, "distance"):
            rows, n = _shares(lines, ways, kind, figure)
            if not rows:
                continue
            means = MeansOfSources(np.array(rows), None)
            cells = []
            for place in range(len(ways)):
                own = means.figure(partial(_of, place), n)
                apart = means.figure(partial(_apart, place), n)
                cells.append(_cell(own, apart if place else None, figure))
            text.append(f"| {kind or 'all'} | {n} | {figure} | " + " | ".join(cells) + " |")
    drawn = [line for line in lines if line["kinds"]]
    images = sum(len(line["kinds"]) for line in drawn)
    seconds = {way: sum(line["seconds"][way] for line in drawn) / images for way in ways}
    words = sum(line["text"] for line in lines) / images
    text.append("")
    text.append(f"{len(lines)} scenes, {images} captions; CPU seconds of text for each image: {words:.2f}")
    for way, own in seconds.items():
        times = (own + words) / (seconds[ways[0]] + words)
        text.append(f"CPU seconds of drawing an image, {way}: {own:.2f}; with its text {times:.2f} times the first way")
    return "\n".join(text)


def _of(place: int, means: Floats) -> Floats:
    return means[..., place]


def _apart(place: int, means: Floats) -> Floats:
    return means[..., place] - means[..., 0]


def _shares(
    lines: Sequence[dict[str, Any]], ways: Sequence[str], kind: str | None, figure: str
) -> tuple[list[list[float]], int]:
    rows, n = [], 0
    for line in lines:
        of_ways = []
        for way in ways:
            own = [
                float(image[figure])
                for image in line["images"]
                if image["way"] == way and kind in (None, line["kinds"][image["edit"]])
            ]
            of_ways.append(own)
        if all(of_ways):
            rows.append([float(np.mean(own)) for own in of_ways])
            n += len(of_ways[0])
    return rows, n


def _cell(own: Figure, apart: Figure | None, figure: str) -> str:
    if figure == "distance":
        return f"{own.value:.2f}" if own.value is not None else own.why
    value = with_interval(own)
    return value if apart is None else f"{value}; {with_interval(apart, points=True)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True, help="file of the results, one line per scene")
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--true-captions", action="store_true")
    parser.add_argument(
        "--ways",
        nargs="+",
        default=WAYS,
        help="settings of the drawing of each way, such as start=inverted;fresh_noise=0.1",
    )
    options = parser.parse_args()
    profile = load_profile("demo")
    driver, judges = Driver(profile, load_models(profile)), Judges()
    ways = ways_of(DILLEMA.settings_in(profile), options.ways)

    def measure(number: int) -> dict[str, Any]:
        return measured(number, driver, ways, judges, options.true_captions)

    lines = measure_each({(number,): number for number in range(options.scenes)}, measure, options.results)
    print(table(lines, options.ways))


if __name__ == "__main__":
    main()
