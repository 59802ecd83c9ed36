"""Tests for the training experiment of recipes: its scenes and its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from demo.render import render
from demo.scene import FAIR_TIMES, FAIR_WEATHERS, OBJECT_CLASSES
from experiments import arms
from experiments.arms import BASELINES, GOALS, ON_FAIR, ON_SHIFTS, SETS, SMALL, Size
from experiments.paper.goals import stated


def test_every_goal_is_a_figure_of_the_full_run() -> None:
    size = Size()
    names = [arms.PLAIN, arms.RANDAUGMENT, arms.AUGMIX]
    names += [f"{name} {times}x" for name in ("DILLEMA", "LANCE", "AGA", arms.MIXED) for times in size.multiples]
    sets = (*SETS, ON_SHIFTS, arms.ON_MAPS)
    possible = {f"{name} over {one}: {on}" for name in names for one in BASELINES for on in sets}
    rules = stated(GOALS.read_text(encoding="utf-8"), "").rules
    assert len(rules) >= 10 and {rule.figure for rule in rules} <= possible


def test_sets_have_other_looks_and_no_subject_stands_in_its_own_place() -> None:
    for number in range(12):
        assert arms.source(number).look.weather in FAIR_WEATHERS and arms.source(number).look.time in FAIR_TIMES
        assert arms.tested(number, "night").look.time == "night"
        assert arms.tested(number, "night").seed == arms.tested(number, ON_FAIR).seed
        picture, mask = arms.mixed(number)
        inside = np.asarray(mask) == 255
        fair, numbers = render(arms.tested(number, ON_FAIR))
        off = np.abs(np.asarray(picture).astype(int) - fair)
        whole = inside & (numbers == arms.SUBJECT)
        assert whole.sum() > 0.8 * inside.sum() and np.median(off[whole]) <= 8, "the subject is that of the fair day"
        assert off[np.asarray(mask) == 0].mean() > 10, "and nothing else"
    assert len({arms.source(number).label for number in range(10)}) == len(OBJECT_CLASSES)


def test_a_subject_is_put_in_place_without_a_rim() -> None:
    """A subject pasted at its own place gives the renderer's picture, except for the softness of its edge."""
    scene = arms.tested(3, ON_FAIR)
    subject, numbers = render(scene, arms.FINE * 128)
    behind, _ = render(scene.without_subject(), arms.FINE * 128)
    both = Image.fromarray(np.where((numbers == arms.SUBJECT)[:, :, None], subject, behind))
    small = np.asarray(both.resize((128, 128), Image.Resampling.BOX)).astype(int)
    whole = np.asarray(Image.fromarray(subject).resize((128, 128), Image.Resampling.BOX)).astype(int)
    assert np.abs(small - whole).max() <= 96 and np.abs(small - whole).mean() < 0.5


def test_a_mixed_arm_takes_turns_between_the_recipes() -> None:
    one, other, third = (
        [Path(f"{name}{number}") for number in range(count)] for name, count in (("a", 3), ("b", 1), ("c", 2))
    )
    assert arms._padded([one, other, third])[1] == [Path("b0"), None, None]


def test_figures_are_those_of_the_written_answers() -> None:
    chance, lines = np.random.default_rng(0), list[dict[str, Any]]()
    for name, share in ((arms.PLAIN, 0.3), (arms.RANDAUGMENT, 0.4), ("AGA 1x", 0.8)):
        for seed in range(5):
            right = {on: (chance.random(200) < share).astype(int).tolist() for on in SETS}
            lines.append({"arm": name, "seed": seed, "images": 10, "right": {**right, arms.ON_MAPS: [share] * 20}})
    accuracy, over = arms.figures(lines)
    plain = np.mean([line["right"]["night"] for line in lines if line["arm"] == arms.PLAIN])
    assert accuracy[arms.PLAIN, "night"].value == pytest.approx(plain)
    gain = over["AGA 1x over plain: night"]
    assert gain.value == pytest.approx(np.mean([line["right"]["night"] for line in lines[10:]]) - plain)
    assert gain.low is not None and gain.high is not None and gain.low < 0.5 < gain.high and gain.low > 0.35
    assert accuracy["AGA 1x", ON_SHIFTS].n == 200 * (len(SETS) - 1) and accuracy["AGA 1x", ON_SHIFTS].sources == 200
    assert "AGA 1x over DILLEMA 10x: night" not in over and over[
        "AGA 1x over plain: relevance mass"
    ].value == pytest.approx(0.5)


def test_another_size_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text(json.dumps({"size": {}, "goals": "", "commit": ""}))
    with pytest.raises(UserError, match="another size"):
        arms.run(SMALL, tmp_path)
