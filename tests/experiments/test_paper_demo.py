"""The paper's questions on the drawn world: the whole at a tiny size, whose report holds every part and claims no goal
without its figure; that it goes on where it was; that what it calls true and unseen is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.figures import Figure
from core.types import CounterfactualCaption, Edit
from demo.language import caption
from experiments.paper import __main__ as paper
from experiments.paper import world
from experiments.paper.annotators import CREW, vote
from experiments.paper.breaking import times_of
from experiments.paper.making import Made
from experiments.paper.reading import BROKEN, CANNOT_TELL, VALID, judged, slots_of
from experiments.paper.size import SMALL

ROOT = Path(__file__).resolve().parents[2]


def test_another_size_is_not_mixed_with_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper.Work(tmp_path, replace(SMALL, sources=5))
    assert paper.main(["--small", "--work", str(tmp_path)]) == 2
    assert "holds a run of another size" in capsys.readouterr().err


def test_what_a_stage_has_found_is_asked_for_once(tmp_path: Path) -> None:
    work, asked = paper.Work(tmp_path, SMALL), list[int]()

    def look() -> str:
        asked.append(1)
        return "found"

    assert [work.kept("figures", "one", look) for _ in range(2)] == ["found", "found"]
    assert asked == [1] and set(work.minutes) == {"figures"}


def test_sources_are_fair_days_that_stay_on_their_side() -> None:
    for family in world.FAMILIES:
        sources = [world.source(family, number) for number in range(200)]
        assert {one.scene.look.weather for one in sources} == {"sunny", "cloudy"}
        assert {one.scene.look.time for one in sources} == {"day"}
        sides = [world.side(one) for one in sources]
        assert sides[:20] == [world.side(world.source(family, number)) for number in range(20)]
        assert 0.5 < sides.count("train") / 200 < 0.7 and 0.15 < sides.count("test") / 200 < 0.35
        assert len({one.scene.seed for one in sources}) == 200


@pytest.mark.demo
@pytest.mark.slow
def test_truth_tells_the_ideal_image_from_one_without_its_edit(tmp_path: Path) -> None:
    """The judges of the truth on pictures of which nobody doubts what they show."""
    found = {"ideal": list[int](), "unedited": list[int]()}
    for number in range(6):
        one = world.source("object", number)
        told = CounterfactualCaption("at night", (Edit("by day", "at night", "time of day"),))
        for name, scene in (("ideal", world.under(one.scene, "at night")), ("unedited", one.scene)):
            file = tmp_path / f"{name}-{number}.png"
            Image.fromarray(world.picture_of(scene)).save(file)
            found[name].append(judged("object", Made(number, "dillema", str(file), caption(one.scene), told, {})).truth)
    assert found == {"ideal": [VALID] * 6, "unedited": [BROKEN] * 6}


def test_an_edit_that_the_world_does_not_know_is_of_no_slot() -> None:
    scene = world.source("object", 0).scene
    said = caption(scene)
    assert slots_of(scene, said, Edit("by day", "after dark", "time of day")) == [("time", "at night")]
    assert slots_of(scene, said, Edit(scene.look.colours[0], "lemon", "attribute")) == [("colour 0", "yellow")]
    assert slots_of(scene, said, Edit("by day", "in winter", "time of day")) is None
    assert slots_of(scene, said, Edit("sunny", "foggy", "attribute")) is None
    assert CANNOT_TELL not in (VALID, BROKEN)


def test_simulated_votes_are_as_good_as_the_crew() -> None:
    truth = np.arange(600) % 3 > 0
    cast = vote(truth, 1)
    agreed = (cast.valid == truth)[cast.known]
    assert agreed.mean() > 0.99 and 0.02 < 1 - cast.known.mean() < 0.2  # some are discarded
    assert (cast.votes[cast.known] == 5).all() and not cast.votes_for[~cast.known].any()
    again, other = vote(truth, 1), vote(truth, 2)
    assert (again.votes_for == cast.votes_for).all() and (other.votes_for != cast.votes_for).any()
    right = 1 - np.abs(cast.votes_for / 5 - truth)[cast.known].mean()
    assert right > np.mean([one.accuracy for one in CREW]) - 0.02


def test_a_factor_over_no_error_at_all_is_a_least_one() -> None:
    times, words = times_of(Figure(0.0, n=500, sources=500), 0.2)
    assert times == pytest.approx(0.2 / (1 - 0.025 ** (1 / 500)))  # Clopper and Pearson, worked out by hand
    assert words.startswith("at least 27.2 times: right about all 500 originals")
    assert times_of(Figure(0.05, n=100), 0.2)[0] == pytest.approx(4.0)
    assert times_of(Figure(None, why="there is nothing to count"), 0.2) == (
        None,
        "cannot tell: there is nothing to count",
    )
