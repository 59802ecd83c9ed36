"""Measures the demo profile on scenes that no training saw: `python -m demo.report`, or `--part` for a part of it.

Prints a table and writes it to docs/demo-report.md. Exit code 1 when a floor is missed. The pipeline is the real one;
the truth is the drawn world's own, and judges trained on rendered scenes only say what a generated image shows.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from tqdm import tqdm

from demo.judges import WEIGHTS as JUDGES
from demo.report_facts import facts_of_scene
from demo.report_rows import Row, missed, percent, share, table
from demo.report_walk import FIRST_SEED, ListeningModels, Walk, start_walk, walk_text
from pipeline.driver import Driver
from pipeline.errors import UserError
from pipeline.lineage import TestCase
from pipeline.models import load_models
from pipeline.profile import load_profile
from pipeline.recipes import DILLEMA
from pipeline.types import CounterfactualCaptions

PARTS = ("captions", "language", "images", "speed")
SCENES = 240
SHOWN = 12
"""How many of the images the report shows."""
REPORT = Path(__file__).resolve().parent.parent / "docs" / "demo-report.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.report", description="Measure the embedded models.")
    parser.add_argument("--part", choices=PARTS, help="only this part; writes no file (default: all)")
    parser.add_argument("--scenes", type=int, default=SCENES, help="how many unseen scenes (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=REPORT, help="where the report goes (default: %(default)s)")
    options = parser.parse_args()
    start = time.monotonic()
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        sheet = None if options.part else options.out.with_suffix(".png")
        rows = measure((options.part,) if options.part else PARTS, options.scenes, sheet)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(rows))
    if not options.part:
        text = document(rows, options.scenes, time.monotonic() - start, options.out.with_suffix(".png").name)
        options.out.write_text(text, encoding="utf-8")
    for sentence in missed(rows):
        print(f"Floor missed: {sentence}", file=sys.stderr)
    return 1 if missed(rows) else 0


def measure(parts: tuple[str, ...], count: int, sheet: Path | None = None) -> list[Row]:
    """The rows of the parts; the first images go into the file `sheet`. Raises UserError when weights are missing."""
    profile = load_profile("demo")
    loaded = load_models(profile)
    if parts == PARTS:
        loaded.check()  # a single part loads what it needs, and says itself what is missing
    rows: list[Row] = []
    if parts != ("speed",):
        models = ListeningModels(loaded)
        driver = Driver(profile, models)
        walks = [start_walk(number, profile) for number in range(count)]
        for walk in tqdm(walks, "captions", mininterval=2):
            walk.caption = driver.produce(DILLEMA, "caption", walk.image, walk.task, {}, seed=walk.number).value.text
        if "captions" in parts:
            rows += caption_rows(walks)
        if "language" in parts or "images" in parts:
            for walk in tqdm(walks, "language", mininterval=2):
                walk_text(walk, driver, models)
        if "language" in parts:
            rows += language_rows(walks)
        if "images" in parts:
            rows += image_rows(walks, driver, sheet)
    if "speed" in parts:
        from demo import report_speed

        rows += report_speed.rows()
    return rows


def caption_rows(walks: list[Walk]) -> list[Row]:
    """Captions against the scenes."""
    pairs = [(walk.facts, facts_of_scene(walk.scene)) for walk in walks]
    roads = [(said, shown) for said, shown in pairs if shown.label == "road"]
    colours = [
        place < len(said.colours) and said.colours[place] == colour
        for said, shown in pairs
        for place, colour in enumerate(shown.colours)
    ]
    vehicles = [said.vehicles == shown.vehicles for said, shown in roads]
    pedestrians = [said.pedestrians == shown.pedestrians for said, shown in roads]
    both = [a and b for a, b in zip(vehicles, pedestrians, strict=True)]
    apart = f"vehicles {percent(vehicles)}, pedestrians {percent(pedestrians)}"
    return [
        share("caption names the right class", [said.label == shown.label for said, shown in pairs], 0.90),
        share("caption names the right colour", colours, 0.90, "of each object and each vehicle"),
        share("caption names the right weather", [said.weather == shown.weather for said, shown in pairs], 0.90),
        share("caption names the right time of day", [said.time == shown.time for said, shown in pairs], 0.90),
        share("caption gives the number of vehicles and whether pedestrians are there", both, 0.85, apart),
    ]


def language_rows(walks: list[Walk]) -> list[Row]:
    """Keywords and counterfactual captions against what the task protects."""
    parsed = [read for walk in walks for read in walk.first_replies_read]
    free = [bool(walk.keywords_free) for walk in walks if walk.keywords_free is not None]
    edits = [right for walk in walks for right in walk.edits_right]
    one_edit = [walk.edits_right[0] for walk in walks if walk.edits_right]
    return [
        share("language reply parses at the first try", parsed, 0.99),
        share("keywords leave out the label and the protected classes", free, 0.99, "first replies, nothing filtered"),
        share(
            "counterfactual caption carries the chosen edits and keeps everything protected",
            edits,
            0.97,
            f"one or two edits, all other facts kept too; one edit: {percent(one_edit)}",
        ),
    ]


def image_rows(walks: list[Walk], driver: Driver, sheet: Path | None) -> list[Row]:
    """One image for each planned edit, judged. The first ones, good or bad, are put into the file `sheet`."""
    from demo.judges import Judges
    from demo.report_images import ImageFindings, contact_sheet

    if not JUDGES.exists():
        raise UserError(f"The judges' weights are missing: {JUDGES}. Train them with python -m demo.train.judges.")
    judges, findings, shown = Judges(), ImageFindings(), list[tuple[Walk, TestCase]]()
    for walk in tqdm([walk for walk in walks if walk.planned], "images", mininterval=2):
        assert walk.planned is not None
        chosen = CounterfactualCaptions((walk.planned,))
        for case in driver.draw(walk.image, walk.task, chosen, seed=walk.number):
            findings.add(walk, case, judges)
            shown += [(walk, case)] if len(shown) < SHOWN else []
    if sheet is not None and shown:
        contact_sheet(shown).save(sheet)
    return findings.rows()


def document(rows: list[Row], count: int, seconds: float, sheet: str) -> str:
    """The report as Markdown; `sheet` is the name of the picture beside it."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = "Every floor is reached." if not missed(rows) else "Not reached: " + "; ".join(missed(rows)) + "."
    return f"""# What the embedded models reach

Written by `make demo-report`; every figure comes from a run on this machine. {result}

{table(rows)}

- {count} scenes of the drawn world, seeds {FIRST_SEED} and up. Training draws its scenes from larger seeds, so it saw
  none of them. Percentages carry their 95 % interval (Wilson).
- Each scene goes through the real pipeline with the demo profile: the captioner's own caption, the language model's
  own keywords and alternatives, one planned edit (weather, time of day and a colour in turns), one image from it.
- What a generated image shows is read by judges (`demo/judges.py`) that were trained on rendered scenes only and share
  nothing with the generator or its CLIP. Beside it stands what they make of the untouched scenes.
- A colour edit of a word that stands for several vehicles counts when all of them show it. IoU is over the pixels of
  all road scenes together, source mask against the judges' reading.
- The picture shows the first {SHOWN} scenes, not chosen by anyone: source, control image, generated image, edit.
- Machine: {machine}. The whole report took {seconds / 60:.0f} minutes.

![The first scenes of the report]({sheet})
"""


if __name__ == "__main__":
    sys.exit(main())
