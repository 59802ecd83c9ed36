"""Compare models under test on drawn sources and on their reconstructions: `python -m experiments.reconstructions`.

A reconstruction redraws a source without an edit, here with LANCE's recipe and the demo profile. Each source has two
reconstructions. "Corrected" is the image of the recipe, which corrects each drawing step by the steps stored in the
inversion. "Uncorrected" is drawn from the inverted noise alone, with the same caption and control image. `--results
FILE` gets a line per source, so that a stopped run can resume. `--out FILE` writes the report as Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import UserError
from core.figures import Floats
from evaluation.by_source import MeansOfSources, Unseen
from evaluation.report import with_interval
from experiments.compare_recipes import ModelsUnderTest, source
from experiments.demo_report.edits import Kept
from experiments.demo_report.walk import Walk
from experiments.resumable import measure_each
from pipeline.driver import Driver
from pipeline.methods.edit import EDIT, EditedSettings
from pipeline.models import load_models
from pipeline.models.inverting import Control, Inverts
from pipeline.profiles.profile import load_profile
from pipeline.recipes import LANCE_RECONSTRUCTION
from pipeline.request import MemoryStore, Request
from pipeline.seams import Models, Source

FIRST_SEED = 2_900_000
"""First seed of the scenes. Neither training nor calibration nor another report uses these seeds."""
WITHIN = 0.005
"""Goal: maximum difference (of shares, 0 to 1) between the accuracies on reconstructions and on originals."""
WAYS = ("corrected", "uncorrected")


def measured(
    driver: Driver, inversions: Kept, models: Models, walk: Walk, under_test: ModelsUnderTest
) -> dict[str, Any]:
    """Measure a source and its reconstructions. Return one line of the results, without accuracies if drawing fails."""
    inversions.clear()
    recipe, store = LANCE_RECONSTRUCTION, MemoryStore(walk.image)
    line: dict[str, Any] = {"number": walk.number, "task": walk.task.kind}
    try:
        driver.run(Request(walk.task, recipe.settings_in(driver.profile), recipe.name, walk.number), store)
        (case,) = store.cases
    except (UserError, ValueError):
        return line
    settings = case.lineage.settings
    assert isinstance(settings, EditedSettings)
    method = EDIT.with_models(models, driver.prompts(recipe), inversions=inversions)
    prepared = method.prepare(Source(walk.image, walk.task, store.held["caption"].value.text), settings)
    found, generator, drawing = prepared.inversion, models.generator.on(settings.conditioning.kind), settings.generation
    assert found is not None and isinstance(generator, Inverts) and len(inversions) == 1
    control = Control(prepared.control, drawing.control_strength, drawing.control_until)
    with generator.inverting(drawing.inversion(), control) as inverter:
        latents = inverter.redraw(found, [found.caption], settings.guidance, corrected=False)
        uncorrected = inverter.images(latents)[0][0].resize(walk.image.size)
    pictures = {"original": walk.image, "corrected": case.image, "uncorrected": uncorrected}
    accuracy = {name: under_test.accuracy(walk.task, image, walk.mask) for name, image in pictures.items()}
    return line | {"dB": round(found.psnr, 2), "accuracy": accuracy}


def report(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown report on the accuracies and their differences."""
    text = [
        f"Goal: within {100 * WITHIN:g} points of originals. Intervals are 95 % over sources, differences are paired. "
        "“Shown” means that the whole interval lies within the goal, “met” that the figure does.",
        "",
        "| models under test | sources | originals | reconstructions | difference | goal |",
        "|---" * 6 + "|",
    ]
    for task, what in (("classification", "label right"), ("segmentation", "pixels right")):
        accuracies = [line["accuracy"] for line in lines if line["task"] == task and "accuracy" in line]
        for way in WAYS:
            rows = np.array([[one["original"], one[way], one[way] - one["original"]] for one in accuracies])
            # A label is right or wrong; the share of right pixels stays in the range that was seen.
            worst, best = rows.min(0), rows.max(0)
            if task == "classification":
                worst, best = np.array([0.0, 0, -1]), np.ones(3)
            means = MeansOfSources(rows, None, Unseen(worst, best, np.arange(3)))
            figures = [means.figure(partial(_column, place), len(rows)) for place in range(3)]
            ends = [
                abs(end) <= WITHIN for end in (figures[2].low, figures[2].high, figures[2].value) if end is not None
            ]
            goal = "shown" if all(ends) and len(ends) == 3 else "met" if ends[-1] else "missed"
            cells = [f"{task}, {what}, {way}", str(len(rows)), *map(with_interval, figures[:2])]
            text.append(f"| {' | '.join([*cells, with_interval(figures[2], points=True), goal])} |")
    refused = sum("accuracy" not in line for line in lines)
    return "\n".join([*text, "", f"{refused} of {len(lines)} sources were refused and are left out."])


def _column(place: int, means: Floats) -> Floats:
    return means[..., place]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.reconstructions")
    parser.add_argument("--results", type=Path, required=True, help="file of the results, one line per source")
    parser.add_argument("--sources", type=int, default=2000, help="how many (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file of the report")
    options = parser.parse_args()
    profile = load_profile("demo")
    models, under_test, inversions = load_models(profile), ModelsUnderTest(profile), Kept()
    driver = Driver(profile, models, inversions=inversions)

    def measure(number: int) -> dict[str, Any]:
        return measured(driver, inversions, models, source(number, FIRST_SEED)[0], under_test)

    text = report(measure_each({(number,): number for number in range(options.sources)}, measure, options.results))
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
