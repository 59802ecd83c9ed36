"""Compare what the demo's classifier learns from images of each recipe: `python -m experiments.arms --work FOLDER`.

An arm is a way to train. Every arm learns from the same drawn source scenes, which show a sunny or cloudy day. Some
also learn from 1, 3 or 10 images that a recipe makes of each source; others use an augmentation. All have equally many
optimiser updates and keep the weights that are best on held-out scenes. The networks are tested on unseen scenes: on
such a day, under other weather, at other times, and with other backgrounds behind the subjects. The goals are in
`arms.toml`. FOLDER keeps all results, so that a stopped run can resume; `--out FILE` writes the report as Markdown, and
`--small` shows that every part works.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.figures import Figure, Floats
from core.types import Task, failed
from demo.data_set import fair_scene, write_scene
from demo.render import SIZE, render
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES, Scene, random_look, random_scene
from demo.under_test.fair import CONDITIONS
from demo.under_test.train_classifier import ARCHITECTURE
from evaluation.focus import MASS, GradCam
from evaluation.report import with_interval
from evaluation.retraining.arm_statistics import Arms, Measured
from evaluation.retraining.training import (
    BEST,
    Arm,
    Augmentation,
    Example,
    TrainingRecipe,
    replace_file,
    train,
)
from experiments.demo_report.speed import processor_seconds
from experiments.paper.goals import Goal, Stated, commit_of, stated
from experiments.paper.intervals import share_of
from experiments.resumable import measure_each
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import recipe_of
from pipeline.request import MemoryStore, Request

GOALS = Path(__file__).with_name("arms.toml")
SOURCES, TUNING, TESTS, PLACES = 2_800_000, 2_830_000, 2_840_000, 2_860_000
"""First seeds of source, tuning and test scenes, and of scenes that lend backgrounds. Nothing else uses their seeds."""
PLAIN, RANDAUGMENT, AUGMIX, MIXED = "plain", "RandAugment", "AugMix", "mixed"
RECIPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "dillema": {"counterfactuals": {"captions": 10}, "alternatives": {"per_keyword": 5}},
    "lance": {"perturbations": {"per_type": 4}},
    "aga": {"backgrounds": {"captions": 10}, "composite": {"scale": 1.2, "rotation": 15.0}},
}
"""Recipes with the settings that give ten images per source."""
ON_FAIR, ON_MIXED, ON_SHIFTS, ON_MAPS = "fair day", "mixed backgrounds", "all shifts", "relevance mass"
SETS = (*CONDITIONS, ON_MIXED)
FINE = 4
"""Factor by which pictures are enlarged before a subject is pasted onto a background. Scaling down again smooths the
edge of the subject."""
SUBJECT = SEMANTIC_CLASSES.index("object")
BASELINES = (PLAIN, RANDAUGMENT, "DILLEMA 10x", "LANCE 10x", "AGA 1x")
"""Names of the arms (ways to train) that all other arms are compared with."""


@dataclass(frozen=True)
class Size:
    """Numbers of scenes, images, updates and trainings of a run."""

    sources: int = 200
    tune: int = 100
    tests: int = 500
    """Number of scenes in each test set."""
    maps: int = 60
    """Number of scenes with mixed backgrounds whose Grad-CAM maps are measured."""
    multiples: tuple[int, ...] = (1, 3, 10)
    updates: int = 400
    batch: int = 32
    seeds: int = 5


SMALL = Size(sources=4, tune=4, tests=6, maps=2, multiples=(1, 2), updates=4, batch=4, seeds=2)


# Scenes


def source(number: int) -> Scene:
    """Return the source scene with this number: a sunny or cloudy day."""
    return fair_scene(SOURCES + number, "object", number)


def tested(number: int, on: str) -> Scene:
    """Return an unseen scene with the weather and time of day of the test set named `on`."""
    return fair_scene(TESTS + number, "object", number).with_look(**CONDITIONS[on])


def mixed(number: int) -> tuple[Image.Image, Image.Image]:
    """Return the picture of an unseen subject in front of another scene's background, and the subject's mask (white).

    Subject and background are combined at a larger size, so that no rim of the old background remains.
    """
    scene, chance = tested(number, ON_FAIR), random.Random(f"place {number}")
    label = OBJECT_CLASSES[(number + chance.randrange(1, len(OBJECT_CLASSES))) % len(OBJECT_CLASSES)]
    place = dataclasses.replace(random_scene(PLACES + number, "object", label), look=random_look(chance, 1))
    subject, numbers = render(scene, FINE * SIZE)
    behind, _ = render(place.without_subject(), FINE * SIZE)
    both = Image.fromarray(np.where((numbers == SUBJECT)[:, :, None], subject, behind))
    mask = Image.fromarray((numbers == SUBJECT).astype(np.uint8) * 255)
    return both.resize((SIZE, SIZE), Image.Resampling.BOX), mask.resize((SIZE, SIZE), Image.Resampling.BOX)


def target(scene: Scene) -> int:
    return OBJECT_CLASSES.index(scene.label)


# Images of recipes


def kept_images(driver: Driver, name: str, number: int) -> list[Image.Image]:
    """Make images of the source `number` with the recipe `name`. Return, in order, the images that fail no check."""
    own, scene = recipe_of(name), source(number)
    settings = own.settings_in(driver.profile)
    for section, values in RECIPES[name].items():
        settings = settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})
    store = MemoryStore(Image.fromarray(render(scene)[0]))
    task = Task("classification", label=scene.label)
    with suppress(UserError):  # a source without a caption or a subject has no images, which the report counts
        driver.run(Request(task, settings, name, number, watched=False), store)
    return [case.image for case in store.cases if not failed(case.checks)]


def make(size: Size, folder: Path) -> dict[str, list[list[Path]]]:
    """Make or reuse images of all sources with each recipe. Return, for each recipe, one list of files per source."""
    profile, driver = load_profile("demo"), None
    files: dict[str, list[list[Path]]] = {}
    for name in RECIPES:
        files[name] = []
        for number in range(size.sources):
            about = folder / name / f"{number:04}.json"
            if not about.exists():
                driver, begun = driver or Driver(profile, load_models(profile)), processor_seconds()
                images = kept_images(driver, name, number)[: max(size.multiples)]
                about.parent.mkdir(parents=True, exist_ok=True)
                for copy, image in enumerate(images):
                    image.convert("RGB").save(about.with_name(f"{number:04}-{copy}.png"))
                line = json.dumps({"images": len(images), "seconds": processor_seconds() - begun})
                replace_file(about, lambda half, line=line: half.write_text(line, encoding="utf-8"))  # type: ignore[misc]
            count = json.loads(about.read_text(encoding="utf-8"))["images"]
            files[name].append([about.with_name(f"{number:04}-{copy}.png") for copy in range(count)])
    return files


def arms_of(size: Size, files: Mapping[str, Sequence[Sequence[Path]]], folder: Path) -> tuple[Arm, ...]:
    """Return all arms with their training images. The arm "mixed" takes images from the recipes in turn."""
    originals = [
        Example(drawn(source(number), folder / f"{number:04}.png"), target(source(number)))
        for number in range(size.sources)
    ]
    arms = [Arm(PLAIN, tuple(originals))]
    augmented: tuple[tuple[str, Augmentation], ...] = ((RANDAUGMENT, "randaugment"), (AUGMIX, "augmix"))
    arms += [Arm(name, tuple(originals), own) for name, own in augmented]
    of_source = {name.upper(): own for name, own in files.items()}
    in_turn = [
        [file for files_of_copy in zip(*_padded(each), strict=True) for file in files_of_copy if file is not None]
        for each in zip(*files.values(), strict=True)
    ]
    for name, own in (*of_source.items(), (MIXED, in_turn)):
        for times in size.multiples:
            more = [
                Example(file, example.target)
                for example, images in zip(originals, own, strict=True)
                for file in images[:times]
            ]
            arms.append(Arm(f"{name} {times}x", (*originals, *more)))
    return tuple(arms)


def _padded(each: Sequence[Sequence[Path]]) -> list[list[Path | None]]:
    longest = max(map(len, each))
    return [[*own, *[None] * (longest - len(own))] for own in each]


def drawn(scene: Scene, file: Path) -> Path:
    """Draw a scene into a file, unless it exists, and return the file."""
    if not file.exists():
        write_scene(scene, file, file)
    return file


# Training and measuring


def pixels(image: Image.Image) -> Any:
    """Return an image as the network's input (3, h, w), -1 to 1."""
    import torch

    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 127.5 - 1


@dataclass(frozen=True)
class Tests:
    """The images that each network is measured on."""

    pictures: Mapping[str, Any]
    """Pictures of each test set: a tensor (scenes, 3, 128, 128), by the name of the set."""
    targets: NDArray[np.int64]
    """Class of each scene, the same in all sets."""
    mixed: Sequence[tuple[Image.Image, Image.Image]]
    """Pictures with mixed backgrounds and their masks, for Grad-CAM maps."""
    tuning: tuple[Any, NDArray[np.int64]]
    """Pictures and classes of the held-out scenes that choose the best weights."""


def tests_of(size: Size) -> Tests:
    """Draw all test sets."""
    import torch

    numbers, both = range(size.tests), [mixed(number) for number in range(size.tests)]
    pictures = {
        on: torch.stack([pixels(Image.fromarray(render(tested(number, on))[0])) for number in numbers])
        for on in CONDITIONS
    }
    pictures[ON_MIXED] = torch.stack([pixels(picture) for picture, _ in both])
    held_out = [fair_scene(TUNING + number, "object", number) for number in range(size.tune)]
    tuning = torch.stack([pixels(Image.fromarray(render(scene)[0])) for scene in held_out])
    targets = np.array([target(tested(number, ON_FAIR)) for number in numbers])
    return Tests(pictures, targets, both[: size.maps], (tuning, np.array([target(one) for one in held_out])))


def right(net: Any, images: Any, targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for each image that a network classifies right."""
    import torch

    device = next(net.parameters()).device
    with torch.inference_mode():
        answers = torch.cat([net(some.to(device)).argmax(1).cpu() for some in images.split(100)]).numpy()
    found: NDArray[np.bool_] = answers == targets
    return found


def trained(arm: Arm, seed: int, size: Size, tests: Tests, folder: Path) -> dict[str, Any]:
    """Train a network as `arm` says, test it, and return one line of the results."""
    import timm
    import torch
    from safetensors.torch import load_file

    recipe = TrainingRecipe("from scratch", size.updates, size.batch, "adam", 3e-3, falls=1)
    torch.manual_seed(seed)
    net = timm.create_model(ARCHITECTURE, pretrained=False, num_classes=len(OBJECT_CLASSES))
    train(net, "classification", pixels, arm, recipe, seed, lambda own: float(right(own, *tests.tuning).mean()), folder)
    net.load_state_dict(load_file(folder / BEST))
    net = net.cpu().eval()
    answers = {on: right(net, images, tests.targets).astype(int).tolist() for on, images in tests.pictures.items()}
    cam = GradCam(arm.name, net, pixels, at_once=128)
    looks = [
        cam.look(picture, [int(own)], mask) for (picture, mask), own in zip(tests.mixed, tests.targets, strict=False)
    ]
    # A map without a positive value counts as 0 on the subject.
    answers[ON_MAPS] = [look.figures.get(MASS, 0.0) for look in looks]
    return {"arm": arm.name, "seed": seed, "images": len(arm.examples), "right": answers}


def figures(lines: Sequence[Mapping[str, Any]]) -> tuple[dict[tuple[str, str], Figure], dict[str, Figure]]:
    """Return the accuracy of each arm on each test set, and the differences of arms, named "ARM over ARM: SET"."""
    answers: dict[str, dict[str, list[Floats]]] = {}
    for line in sorted(lines, key=lambda line: line["seed"]):
        for on, values in line["right"].items():
            answers.setdefault(line["arm"], {}).setdefault(on, []).append(np.array(values, float))
    measured = {
        arm: {on: Measured(np.arange(len(own[0])), np.stack(own)) for on, own in sets.items()}
        for arm, sets in answers.items()
    }
    for sets in measured.values():
        shifted = [sets[on] for on in SETS if on != ON_FAIR]
        sets[ON_SHIFTS] = Measured(
            np.concatenate([one.source for one in shifted]), np.concatenate([one.right for one in shifted], axis=1)
        )
    accuracy, over = dict[tuple[str, str], Figure](), dict[str, Figure]()
    for baseline in (one for one in BASELINES if one in measured):
        for row in Arms(measured, baseline).rows():
            accuracy[row.arm, row.set] = row.accuracy
            over[f"{row.arm} over {baseline}: {row.set}"] = row.gain
    return accuracy, over


# The report


def report(lines: Sequence[Mapping[str, Any]], goals: Sequence[Goal], source_of_goals: Stated, cost: str) -> str:
    """Return the report as Markdown. `cost` describes the images and the time of each recipe."""
    accuracy, over = figures(lines)
    arms, seeds = list(dict.fromkeys(line["arm"] for line in lines)), len({line["seed"] for line in lines})
    images = {line["arm"]: line["images"] for line in lines}
    sets = (*SETS, ON_SHIFTS, ON_MAPS)
    text = [f"# Arms at equal updates, {seeds} trainings each", ""]
    if source_of_goals.commit:
        commit = f"last changed in commit {source_of_goals.commit}, before this run began"
        text += [f"The goals are those of `experiments/{GOALS.name}` ({commit}).", ""]
    else:
        text += ["**The goals were in no commit when this run began, so they judge nothing.**", ""]
    text += ["| goal | wanted | measured | |", "| --- | --- | --- | --- |"]
    text += [f"| {one.rule.question}: {one.what} | {one.rule.wanted} | {one.measured} | {one.words} |" for one in goals]
    text += ["", "Per cent right (95 % interval over scenes and trainings); relevance mass in per cent of the map.", ""]
    text += [f"| arm | images | {' | '.join(sets)} |", "| --- | ---: |" + " --- |" * len(sets)]
    for arm in arms:
        cells = " | ".join(with_interval(accuracy[arm, on]) for on in sets)
        text.append(f"| {arm} | {images[arm]:,} | {cells} |")
    for baseline in (PLAIN, RANDAUGMENT):
        text += ["", f"Points over {baseline}.", "", f"| arm | {' | '.join(sets)} |", "| --- |" + " --- |" * len(sets)]
        for arm in (one for one in arms if one != baseline):
            cells = " | ".join(with_interval(over[f"{arm} over {baseline}: {on}"], points=True) for on in sets)
            text.append(f"| {arm} | {cells} |")
    return "\n".join([*text, "", cost, "", *_of_the_paper()])


def _of_the_paper() -> Iterator[str]:
    yield "The paper's own figures (Table 1; ResNet-18, -50, -101, -152), with Wilson's intervals for their images:"
    yield ""
    yield "| set | n | one image | originals alone | AGA |"
    yield "| --- | ---: | ---: | --- | --- |"
    for row in tomllib.loads(GOALS.read_text(encoding="utf-8"))["paper"]:
        n = row["n"]
        cells = [
            "; ".join(with_interval(share_of(round(own * n), n)) for own in row[name]) for name in ("baseline", "aga")
        ]
        yield f"| {row['set']} | {n} | {100 / n:.1f} points | {cells[0]} | {cells[1]} |"


def cost_of(folder: Path) -> str:
    """Return the number of images and the processor time of each recipe, in words."""
    words = []
    for name in RECIPES:
        about = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / name).glob("*.json"))]
        images, seconds = (sum(one[what] for one in about) for what in ("images", "seconds"))
        few = sum(not one["images"] for one in about)
        words.append(f"{name}: {images:,} images in {seconds / 60:.0f} minutes of one core, {few} sources without one")
    return f"Images of recipes: {'; '.join(words)}."


def run(size: Size, work: Path) -> tuple[str, list[Goal]]:
    """Make all images, train and test all networks, and return the report and the goals."""
    work.mkdir(parents=True, exist_ok=True)
    about, plain = work / "about.json", {"size": asdict(size) | {"multiples": list(size.multiples)}}
    if not about.exists():
        begun = {**plain, "goals": GOALS.read_text(encoding="utf-8"), "commit": commit_of(GOALS)}
        replace_file(about, lambda half: half.write_text(json.dumps(begun), encoding="utf-8"))
    begun = json.loads(about.read_text(encoding="utf-8"))
    if begun["size"] != plain["size"]:
        raise UserError(f"The folder {work} holds a run of another size: choose another folder with --work.")
    arms = {arm.name: arm for arm in arms_of(size, make(size, work / "images"), work / "sources")}
    tests = tests_of(size)
    lines = measure_each(
        {(name, seed): (name, seed) for seed in range(size.seeds) for name in arms},
        lambda own: trained(arms[own[0]], own[1], size, tests, work / "trainings" / f"{own[0]}-{own[1]}"),
        work / "results.jsonl",
        ("arm", "seed"),
    )
    own = stated(begun["goals"], begun["commit"])
    _, over = figures(lines)
    missing = Figure(None, why="it was not measured")
    goals = [Goal(rule, "", over.get(rule.figure, missing), None, bool(own.commit)) for rule in own.rules]
    return report(lines, goals, own, cost_of(work / "images")), goals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment. Return 0, or 1 if a goal is missed, or 2 after an error. Small runs cannot miss a goal."""
    parser = argparse.ArgumentParser(prog="python -m experiments.arms", description="Train arms at equal updates.")
    parser.add_argument("--work", type=Path, required=True, help="folder of all results, outside of the repository")
    parser.add_argument("--out", type=Path, help="file of the report")
    parser.add_argument("--small", action="store_true", help="few images and updates: shows that every part works")
    options = parser.parse_args(arguments)
    try:
        text, goals = run(SMALL if options.small else Size(), options.work.absolute())
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 1 if not options.small and not all(goal.reached for goal in goals) else 0


if __name__ == "__main__":
    sys.exit(main())
