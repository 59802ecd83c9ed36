"""Compare images edited from the inverted source with images drawn from noise.

`python -m experiments.demo_report.edits --results FILE` writes the file and prints a table.

Each edit changes one word in the true caption of a drawn scene, so the renderer knows what the image should show. Both
ways of drawing make the same edits, and judge models read the images. The file gets a line per edit, so that a stopped
run can resume. With `--costs`, the program measures CPU times instead, and compares images drawn in a batch and singly.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from scipy.stats import binomtest

from core.settings import EditSettings, Settings, SettingsWithEdit
from core.types import CounterfactualCaption, Edit, Task
from demo.check_truth import edited_scene, painted_pixels, truth_of
from demo.judges import Judges
from demo.language import caption, keywords
from demo.render import render
from demo.scene import Scene, random_scene
from experiments.demo_report.images import lost_and_added
from experiments.demo_report.rows import Row, share, table
from experiments.resumable import measure_each
from pipeline.methods.base import MethodDescription
from pipeline.methods.controlnet import CONTROLNET
from pipeline.methods.edit import EDIT, SELF_REPLACEMENTS
from pipeline.models import load_models
from pipeline.models.inverting import Inverts
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA
from pipeline.seams import CaseRequest, InversionStore, Method, Prepared, Source

if TYPE_CHECKING:
    from experiments.demo_report.ledits import Ledits

FIRST_SEED = 7_000_000
"""First seed of the scenes. Neither training nor calibration uses these seeds."""
KINDS = ("weather", "time", "colour", "car", "ground", "trees", "walls", "hills", "water")
"""Kinds of edits, named after the property of the scene that changes. “colour” is the colour of a single object, and
“car” is the colour of a car."""
VISIBLE = 0.01
"""Minimum share of the renderer's picture that an edit must change by more than `CHANGED` grey values."""
CHANGED = 20
CEILING, NOISE, EDITED, LEDITS = "ideal through the VAE", "from noise", "edited", "LEDITS++"
FLOORS = {"shows": 0.92, "whole": 0.95, "good": 0.80}
OF_A_KIND, OF_HILLS, L1, NEARER = 0.85, 0.70, 4.5, 0.85
Drawing = tuple[MethodDescription, Settings]


@dataclass(frozen=True)
class Asked:
    """A scene with one edit to make, and the caption after the edit."""

    kind: str
    number: int
    scene: Scene
    slot: str
    counterfactual: CounterfactualCaption

    @property
    def goal(self) -> Scene:
        """The scene after the edit."""
        return edited_scene(self.scene, [(self.slot, self.counterfactual.edits[0].alternative)])

    @property
    def source(self) -> Source:
        """The source picture with its task and its true caption."""
        task = Task("segmentation", protected=load_profile("demo").tasks.protected)
        task = Task("classification", label=self.scene.label) if self.scene.family == "object" else task
        return Source(Image.fromarray(render(self.scene)[0]), task, caption(self.scene))


def asked(kind: str, count: int, first_seed: int = FIRST_SEED) -> Iterator[Asked]:
    """Yield `count` edits of a kind. Each is in a different scene and visible in the renderer's own picture."""
    family, count_found = {"colour": "object", "car": "road"}.get(kind), 0
    for number in range(100 * count):
        scene = random_scene(first_seed + 10_000 * KINDS.index(kind) + number, family)
        slot_kind = "colour" if kind == "car" else kind
        words = [word for word in keywords(scene) if word.slot.split()[0] == slot_kind]
        if not words:
            continue
        rng = random.Random(number)
        word = rng.choice(words)
        new = rng.choice(word.alternatives)
        goal = edited_scene(scene, [(word.slot, new)])
        edit = Edit(word.text, new, word.edit_type)  # type: ignore[arg-type]
        one = Asked(kind, number, scene, word.slot, CounterfactualCaption(caption(goal), (edit,)))
        apart = np.abs(render(goal)[0].astype(int) - render(scene)[0]).max(2) > CHANGED
        if apart.mean() >= VISIBLE:
            yield one
            count_found += 1
        if count_found == count:
            return


def judged(one: Asked, image: np.ndarray, judges: Judges) -> dict[str, float]:
    """Return the judges' findings on an edited image, by name. `good`: the edit shows, and nothing else changed."""
    scene, goal, edits = one.scene, one.goal, [(one.slot, one.counterfactual.edits[0].alternative)]
    truth, (ideal, mask) = truth_of(scene, edits, image, judges), render(goal)
    seen, expected = judges.read(image), judges.read(ideal)
    look, colours = goal.look, True
    for place, colour in enumerate(look.colours):
        pixels = painted_pixels(scene, place)
        if one.slot != f"colour {place}" and pixels.any() and expected.colour(pixels) == colour:
            colours &= seen.colour(pixels) == colour
    findings: dict[str, float] = {
        "shows": not truth.edit_missing,
        "unbroken": not replace(truth, edit_missing=False).broken,
        "whole": not any(lost_and_added(mask, seen.mask, expected.mask)),
        "colours": colours,
        "air": (one.slot == "weather" or seen.weather == look.weather or expected.weather != look.weather)
        and (one.slot == "time" or seen.time == look.time or expected.time != look.time),
    }
    good = all(findings.values())
    return findings | {"good": good, "distance": float(np.abs(image.astype(float) - ideal).mean())}


def edit_settings(profile: Profile, **changes: Any) -> SettingsWithEdit:
    """Return the profile's settings for edits. `changes` replace values in its sections `generation` and `edit`."""
    lance = profile.recipes.get("lance", {})
    edit = EditSettings.model_validate(lance.get("edit", {}) | changes.pop("edit", {}))
    shared = {name: getattr(profile.settings, name) for name in type(profile.settings).model_fields}
    base = profile.settings.generation.model_dump() | lance.get("generation", {}) | changes
    return SettingsWithEdit.model_validate(shared | {"generation": base, "edit": edit})


def drawings(profile: Profile, extra: Sequence[str]) -> dict[str, Drawing]:
    """Return the ways of drawing to compare, by name. `NOISE` draws from noise. `EDITED` edits the source. Each entry
    of `extra` adds a way that edits with other settings. The entry is the way's name, and has the settings as JSON.
    """
    drawing = profile.settings.generation.model_copy(update={"start": "noise"})
    from_noise = profile.settings.model_copy(update={"generation": drawing})
    drawings_by_name: dict[str, Drawing] = {NOISE: (CONTROLNET, from_noise), EDITED: (EDIT, edit_settings(profile))}
    drawings_by_name |= {one: (EDIT, edit_settings(profile, **json.loads(one))) for one in extra}
    return drawings_by_name


class Ways:
    """Draws images in all compared ways, with the models of a profile."""

    def __init__(self, profile: Profile, inversions: InversionStore | None = None) -> None:
        self.profile, self.models = profile, load_models(profile)
        self._prompts, self._inversions = DILLEMA.prompts(profile.prompts), inversions
        generator: object = self.models.generator
        assert isinstance(generator, Inverts)
        self.generator = generator

    def prepared(self, drawing: Drawing, source: Source) -> tuple[Method[Any], Prepared]:
        """Return the method of the pair `drawing` (method, settings), and the source as prepared by this method."""
        method, settings = drawing
        drawing_method = method.with_models(self.models, self._prompts, self.profile.tasks.labels, self._inversions)
        return drawing_method, drawing_method.prepare(source, method.settings_of(settings, source.caption))

    def draw(self, drawing: Drawing, source: Source, *captions: CounterfactualCaption, seed: int = 0) -> list[Any]:
        """Return the test cases of all captions, drawn as one batch."""
        method, prepared = self.prepared(drawing, source)
        requests = [CaseRequest(one, seed, place) for place, one in enumerate(captions)]
        return [finish() for finish in method.make([prepared] * len(requests), requests, len(requests), unheard)]

    def through_vae(self, image: np.ndarray) -> np.ndarray:
        """Encode an image with the VAE, and return the decoded image."""
        with self.generator.inverting(edit_settings(self.profile).generation.inversion()) as inverter:
            return np.asarray(inverter.images(inverter.encode(Image.fromarray(image)))[0][0])


def unheard(_done: int, _total: int) -> None:
    """Ignore the progress of drawing."""


def measured(
    one: Asked, ways: Ways, drawn_ways: Mapping[str, Drawing], judges: Judges, ledits: Ledits | None = None
) -> dict[str, Any]:
    """Draw an edit in each way. Return one line of the results: the judges' findings and CPU seconds of each image."""
    line: dict[str, Any] = {"kind": one.kind, "number": one.number, "ways": {}}
    line["ways"][CEILING] = judged(one, ways.through_vae(render(one.goal)[0]), judges)
    for name, drawing in drawn_ways.items():
        begun = time.process_time()
        (case,) = ways.draw(drawing, one.source, one.counterfactual, seed=one.number)
        seconds = time.process_time() - begun
        failed = [check.name for check in case.checks if check.passed is False]
        findings = judged(one, np.asarray(case.image), judges)
        line["ways"][name] = findings | {
            "seconds": seconds,
            "failed": failed,
            "taken": getattr(case.lineage.settings, "taken", None),
        }
    if ledits is not None:
        begun = time.process_time()
        ledits.invert(one.source.image, one.number)
        image = ledits.edited(one.source.caption, one.counterfactual.text)
        seconds = time.process_time() - begun
        line["ways"][LEDITS] = judged(one, image, judges) | {"seconds": seconds}
    return line


def report(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures of each way of drawing and each kind of edit as Markdown, with the required minima."""
    names = [name for name in lines[0]["ways"] if all(name in line["ways"] for line in lines)]
    figures = ("shows", "unbroken", "whole", "colours", "air", "good")
    text = [f"| n = {len(lines)} | " + " | ".join((*figures, "L1", "nearer than from noise", "CPU s")) + " |"]
    text.append("|---" * (len(figures) + 4) + "|")
    for name in names:
        findings = [line["ways"][name] for line in lines]
        nearer = [line["ways"][name]["distance"] < line["ways"][NOISE]["distance"] for line in lines]
        cells = [f"{np.mean([one[figure] for one in findings]):.3f}" for figure in figures]
        cells += [f"{np.mean([one['distance'] for one in findings]):.2f}", f"{np.mean(nearer):.3f}"]
        cells.append(f"{statistics.mean(one.get('seconds', 0.0) for one in findings):.2f}")
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    kinds = [kind for kind in KINDS if any(line["kind"] == kind for line in lines)]
    text += ["", "| shows / good | " + " | ".join(f"{kind} ({_count(lines, kind)})" for kind in kinds) + " |"]
    text.append("|---" * (len(kinds) + 1) + "|")
    for name in names:
        cells = []
        for kind in kinds:
            findings = [line["ways"][name] for line in lines if line["kind"] == kind]
            cells.append(
                " / ".join(f"{np.mean([one[figure] for one in findings]):.2f}" for figure in ("shows", "good"))
            )
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*text, "", table(floors(lines, kinds))])


def floors(lines: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> list[Row]:
    """Return the report's rows on edits, each with a figure and its required minimum."""
    edited, noise = ([line["ways"][name] for line in lines] for name in (EDITED, NOISE))
    rows = [share(f"edits: {figure}", [bool(one[figure]) for one in edited], floor) for figure, floor in FLOORS.items()]
    for kind in kinds:
        hits = [bool(line["ways"][EDITED]["shows"]) for line in lines if line["kind"] == kind]
        rows.append(share(f"edits show: {kind}", hits, OF_HILLS if kind == "hills" else OF_A_KIND))
    only = [
        sum(bool(a["good"]) > bool(b["good"]) for a, b in zip(*pair, strict=True))
        for pair in ((edited, noise), (noise, edited))
    ]
    p = binomtest(only[0], sum(only), alternative="greater").pvalue if sum(only) else 1.0
    only_in_words = f"good only so {only[0]}, only from noise {only[1]} of {len(lines)}: p = {p:.2g}"
    rows.append(Row("edits are good more often than images from noise", only[0] - only[1], 1, "", beside=only_in_words))
    nearer = [a["distance"] < b["distance"] for a, b in zip(edited, noise, strict=True)]
    rows.append(share("edits are nearer to the true counterfactual than images from noise", nearer, NEARER))
    distance = statistics.mean(one["distance"] for one in edited)
    rows.append(
        Row(
            "grey values to the true counterfactual, below the line",
            L1 - distance,
            0,
            "",
            beside=f"{distance:.2f}, at most {L1}",
        )
    )
    return rows


def costs(ways: Ways, store: Kept, count: int) -> str:
    """Return lines of text: ratios of CPU times, and the maximum difference between batch images and single images."""
    text = []
    for guidance, most in ((1.0, 0.6), (2.0, 0.8)):
        measured_costs = [_costs(one, ways, store, guidance) for one in asked("weather", count)]
        sweep, second, inversions, apart = (list(values) for values in zip(*measured_costs, strict=True))
        text += [
            f"guidance {guidance:g}, {count} sources, 10 steps:",
            f"a sweep of six takes {statistics.mean(sweep):.2f} of its six values drawn singly (at most {most})",
            f"a second caption takes {statistics.mean(second):.2f} of the first (at most 0.45)",
            f"inversions for it: {sum(inversions):g} (0)",
            f"a batch and its single images differ by at most {max(apart):g} grey values (1)",
        ]
        store.clear()
    return "\n".join(text)


def _costs(one: Asked, ways: Ways, store: Kept, guidance: float) -> tuple[float, float, float, float]:
    def way(**edit: Any) -> Drawing:
        return EDIT, edit_settings(ways.profile, steps=10, guidance=guidance, edit=edit)

    single, sweep = way(), way(sweep="self-replacement", full_sweep=True)
    word = next(word for word in keywords(one.scene) if word.slot == "weather")
    texts = [caption(edited_scene(one.scene, [("weather", new)])) for new in word.alternatives]
    word = next(word for word in keywords(one.scene) if word.slot == "time")
    texts += [caption(edited_scene(one.scene, [("time", new)])) for new in word.alternatives]
    captions = [CounterfactualCaption(text, ()) for text in texts[:6]]

    def seconds(drawing: Drawing, text: CounterfactualCaption) -> tuple[float, np.ndarray]:
        begun = time.process_time()
        (case,) = ways.draw(drawing, one.source, text)
        return time.process_time() - begun, np.asarray(case.image, int)

    first, before = seconds(single, captions[0])[0], len(store)
    singles = [seconds(single, text) for text in captions]
    spent = sum(taken for taken, _ in singles)
    together = [np.asarray(case.image, int) for case in ways.draw(single, one.source, *captions)]
    apart = max(int(np.abs(a - b).max()) for a, (_, b) in zip(together, singles, strict=True))
    swept = sum(seconds(way(self_replace=value), captions[0])[0] for value in SELF_REPLACEMENTS)
    return seconds(sweep, captions[0])[0] / swept, spent / 6 / first, len(store) - before, apart


class Kept(dict[str, bytes]):
    """A store of inversions in memory."""

    def read(self, key: str) -> bytes | None:
        """Return the inversion that was saved under a key, or None."""
        return self.get(key)

    def save(self, key: str, data: bytes) -> None:
        """Store an inversion under a key."""
        self[key] = data


def _count(lines: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(line["kind"] == kind for line in lines)


def main() -> None:
    """Measure edits or their costs, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="file of the results, a line an edit")
    parser.add_argument("--each", type=int, default=60, help="edits of a kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument(
        "--also", nargs="*", default=[], help='more ways, such as {"steps": 10, "edit": {"cross_replace": 0}}'
    )
    parser.add_argument("--ledits", action="store_true", help="LEDITS++ too, with the demo's weights")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="seed of the first scene")
    parser.add_argument("--costs", type=int, default=0, help="measure time on so many sources instead")
    options = parser.parse_args()
    profile = load_profile("demo")
    if options.costs:
        print(costs(Ways(profile, inversions := Kept()), inversions, options.costs))
        return
    inversions = Kept()
    ways, judges, drawn_ways = Ways(profile, inversions), Judges(), drawings(profile, options.also)
    ledits = None
    if options.ledits:
        from experiments.demo_report.ledits import Ledits

        ledits = Ledits(profile)

    def measure(one: Asked) -> dict[str, Any]:
        inversions.clear()  # shared by all ways of drawing an edit: its time counts for the first
        return measured(one, ways, drawn_ways, judges, ledits)

    edits = {
        (one.kind, one.number): one
        for several in zip(*(asked(kind, options.each, options.first_seed) for kind in options.kinds), strict=True)
        for one in several
    }
    print(report(measure_each(edits, measure, options.results, ("kind", "number"))))


if __name__ == "__main__":
    main()
