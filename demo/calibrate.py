"""Sets the thresholds of the checks of images, from demo scenes whose content is known: `python -m demo.calibrate`.

Run this module again after each training of the generator, the CLIP or the checking segmenter. The demo profile draws
images of edited scenes. A second run is fast, since a folder keeps these images. Each check measures good and broken
images. The module prints the thresholds as the table `[checks.bands]`; `--write` stores the table in the profile. Some
defects are rare. So the checks also measure pairs that do not fit: a source with the edited caption, an image with a
wrong label, and an image with another scene.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from core.errors import UserError
from core.lineage import DEFAULT_RECIPE
from core.masks import NamedMask
from core.types import Caption, Check, CounterfactualCaption, CounterfactualCaptions, Edit, Task, from_plain, to_plain
from demo.check_truth import Truth, edited_scene, truth_of
from demo.judges import Judges
from demo.language import caption, keywords
from demo.mask_checker import ABOUT, MaskChecker
from demo.render import render
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES, Scene, random_scene
from pipeline.checks.images import image_checks
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import PROFILES, Profile, load_profile
from pipeline.recipes import recipe_of
from pipeline.request import MemoryStore, Request
from pipeline.seams import Embedder
from pipeline.stages import generation

Bands = dict[str, tuple[float, float]]
"""Two thresholds for each check: it fails below the first value, and passes from the second."""
FIRST_SEED = 2_000_000
"""First seed of the scenes. Neither training nor the report uses these seeds."""
COUNT = 300
"""Number of scenes that set the thresholds. The report tests the thresholds on other scenes."""
BLAMED, THROUGH = 0.015, 0.06
"""Maximum share of good images that fail a check; maximum share of broken images that pass. The second value is used
twice: for each check alone, and for all checks together."""
BLAMED_FOR_NOTHING = 0.004
"""Maximum share of good images that fail a general check. A general check only detects images of another scene."""
NEARER = ("edit shows", "label seen")
"""Checks that compare a right text with a wrong one. Their value is above 0 if the image is nearer to the right text,
so no lower value may pass."""
WANTED = ("attribute", "weather", "time of day", "attribute", "weather", "time of day", "background", "attribute")
"""Edit types to use for the scenes, in turn."""


@dataclass(frozen=True)
class Drawn:
    """One edited scene, and the image that the demo's models made of it."""

    scene: Scene
    edits: tuple[tuple[str, str], ...]
    counterfactual: CounterfactualCaption
    source: Image.Image
    mask: np.ndarray
    image: Image.Image
    control: Image.Image
    task: Task


def draw(number: int, folder: Path, driver: Driver) -> Drawn:
    """Return the edited scene `number` with its image, which is drawn unless the folder already has it."""
    scene, rng, profile = random_scene(FIRST_SEED + number), random.Random(number), driver.profile
    pixels, mask = render(scene)
    source, file = Image.fromarray(pixels), folder / f"{number}.json"
    task = Task("segmentation", protected=profile.tasks.protected)
    task = Task("classification", label=scene.label) if scene.family == "object" else task
    if not file.exists():
        words = keywords(scene)
        chosen = [rng.choice([word for word in words if word.edit_type == WANTED[number % 8]] or words)]
        rest = [word for word in words if word.slot != chosen[0].slot]
        chosen += [rng.choice(rest)] if rest and rng.random() < 0.2 else []
        choices = [(word, rng.choice(word.alternatives)) for word in chosen]
        goal = edited_scene(scene, [(word.slot, new) for word, new in choices])
        edits = tuple(Edit(word.text, new, word.edit_type) for word, new in choices)  # type: ignore[arg-type]
        changed = CounterfactualCaption(caption(goal), edits)
        settings = recipe_of(DEFAULT_RECIPE).settings_in(profile)
        images = generation.plan(CounterfactualCaptions((changed,)), settings.generation, number).images
        store = MemoryStore(source, {"caption": Caption(caption(scene))})
        driver.run(Request(task, settings, DEFAULT_RECIPE, number, stages=(), images=images), store)
        store.cases[0].image.save(folder / f"{number}.png")
        store.cases[0].artifacts["control image"].save(folder / f"{number}-control.png")
        file.write_text(json.dumps({"slots": [(word.slot, new) for word, new in choices], "cf": to_plain(changed)}))
    saved = json.loads(file.read_text())
    image, control = (Image.open(folder / f"{number}{end}.png") for end in ("", "-control"))
    edits_by_slot = tuple((slot, new) for slot, new in saved["slots"])
    counterfactual = from_plain(CounterfactualCaption, saved["cf"])
    return Drawn(scene, edits_by_slot, counterfactual, source, mask, image.convert("RGB"), control.convert("RGB"), task)


def checks_of(
    drawn: Drawn,
    clip: Embedder,
    image: Image.Image | None = None,
    made: CounterfactualCaption | None = None,
    label: str = "",
    labels: Sequence[str] = OBJECT_CLASSES,
) -> tuple[Check, ...]:
    """Check an edited scene's image. `image`, `made` and `label`, if given, replace its image, caption and label."""
    task = Task("classification", label=label) if label else drawn.task
    conditioning, source_caption = load_profile("demo").settings.conditioning, caption(drawn.scene)
    shown, expected = image or drawn.image, made or drawn.counterfactual
    mask = NamedMask(Image.fromarray(drawn.mask), dict(enumerate(SEMANTIC_CLASSES)))
    return image_checks(
        drawn.source,
        shown,
        drawn.control,
        source_caption,
        expected,
        task,
        clip,
        labels,
        conditioning,
        mask=mask,
    )


def figures(checks: Sequence[Check]) -> dict[str, float]:
    """Return the value that each check measured, by the check's name."""
    return {check.name: check.value for check in checks if check.value is not None}


def band_of(good: Sequence[float], bad: Sequence[float], blamed: float = BLAMED) -> tuple[float, float]:
    """Return a check's two thresholds. The check fails below the first and passes from the second. A share `blamed` of
    the `good` values is below the first threshold. If the second threshold is lower, the mean of the two replaces both.
    """
    failed_below = float(np.quantile(good, blamed))
    passed_from = float(np.quantile(bad, 1 - THROUGH)) if bad else failed_below
    if passed_from < failed_below:
        passed_from = failed_below = (passed_from + failed_below) / 2
    return round(failed_below, 3), round(passed_from, 3)


@dataclass
class Measured:
    """The values that checks measured."""

    by_check: dict[str, tuple[list[float], list[float]]]
    """Values of each check in two lists: for images without the defect that it should find, and for images with it."""
    images: list[tuple[Truth, dict[str, float]]]
    """True defects of each generated image, with the value of each check."""


def raised(bands: Bands, images: Sequence[tuple[Truth, dict[str, float]]]) -> Bands:
    """Raise the second thresholds of checks until few broken images pass all checks. Each step raises the
    threshold of one check just enough to reject one broken image whose defect the check should find. The function takes
    the step after which the most good images still pass.
    """
    raised_bands = dict(bands)

    def passes(measured: dict[str, float]) -> bool:
        return all(value >= raised_bands[name][1] for name, value in measured.items())

    most = THROUGH * sum(truth.broken for truth, _ in images)
    while len(through := [(truth, found) for truth, found in images if truth.broken and passes(found)]) > most:
        good = [found for truth, found in images if not truth.broken and passes(found)]
        costs = [
            (sum(one.get(name, math.inf) <= value for one in good), name, value)
            for truth, found in through
            for name, value in found.items()
            if name in ABOUT and getattr(truth, ABOUT[name])
        ]
        if not costs:  # no check should find the defects that remain
            break
        _, name, line = min(costs)
        raised_bands[name] = raised_bands[name][0], round(line + 0.001, 3)
    return raised_bands


def collect(drawn: Sequence[Drawn], profile: Profile, clip: Embedder) -> Measured:
    """Measure the checks on drawn images, and on images with captions or labels that do not belong to them."""
    images = list[tuple[Truth, dict[str, float]]]()
    good, bad = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    judges, checker = Judges(), MaskChecker(profile)

    def add(truth: Truth, measured: dict[str, float]) -> None:
        for name, value in measured.items():
            wrong = getattr(truth, ABOUT.get(name, "broken"))
            if wrong or not truth.broken:
                (bad if wrong and name in ABOUT else good)[name].append(value)

    for one, other in tqdm(list(zip(drawn, [*drawn[1:], drawn[0]], strict=True)), "measuring", mininterval=2):
        truth = truth_of(one.scene, one.edits, np.asarray(one.image), judges)
        measured = figures(checks_of(one, clip))
        add(truth, measured)
        images.append((truth, measured))
        unedited = figures(checks_of(one, clip, one.source, labels=()))
        for name in ("edit shows", "edit direction"):
            bad[name].append(unedited[name])
        elsewhere = figures(checks_of(one, clip, other.image, labels=()))
        for name in ("edges kept", "like the source", "fits its caption"):
            bad[name].append(elsewhere[name])
        if one.scene.family == "object":
            wrong = random.Random(one.scene.seed).choice([name for name in OBJECT_CLASSES if name != one.scene.label])
            text = re.sub(rf"\b{one.scene.label}\b", wrong, one.counterfactual.text)
            mislabelled = CounterfactualCaption(text, one.counterfactual.edits)
            bad["label seen"].append(figures(checks_of(one, clip, made=mislabelled, label=wrong))["label seen"])
            continue
        masked = figures(checker.checks(one.source, one.image, one.mask, one.counterfactual.edits))
        add(truth, masked)
        measured |= masked
    return Measured({name: (good[name], bad[name]) for name in good}, images)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.calibrate", description="Set the thresholds of the checks.")
    parser.add_argument("--images", type=Path, default=Path("build/checks"), help="drawn images (default: %(default)s)")
    parser.add_argument("--count", type=int, default=COUNT, help="how many edited scenes (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="put the thresholds into the demo profile")
    options = parser.parse_args()
    options.images.mkdir(parents=True, exist_ok=True)
    profile = load_profile("demo")
    models = load_models(profile)
    driver = Driver(profile, models)
    try:
        drawn = [draw(n, options.images, driver) for n in tqdm(range(options.count), "drawing", mininterval=2)]
        measured = collect(drawn, profile, models.embedder)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    lines = ["[checks.bands] # set by python -m demo.calibrate"]
    bands: Bands = {}
    for name, (good, bad) in measured.by_check.items():
        low, high = band_of(good, bad, BLAMED if name in ABOUT else BLAMED_FOR_NOTHING)
        bands[name] = low, max(high, 0.0) if name in NEARER else high
        print(f"{name}: {len(good)} good, {len(bad)} not", file=sys.stderr)
    for name, (low, high) in raised(bands, measured.images).items():
        lines.append(f'"{name}" = {{ failed_below = {low}, passed_from = {high} }}')
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        file = PROFILES / "demo.toml"
        rest = re.sub(r"\[checks\.bands\][^\[]*", "", file.read_text(encoding="utf-8"))
        file.write_text(rest.replace("[checks.segmenter]", f"{text}\n[checks.segmenter]", 1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
