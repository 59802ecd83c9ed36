"""Tests for the experiments on the paper's questions in the drawn world, at a tiny size. The report has every part
and claims no goal without its figure. A stopped run resumes. The truth and the unseen scenes are right.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
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
from experiments.paper.annotators import CREW, VOTES, control_answers, hard_images, kept_workers, vote
from experiments.paper.goals import GOALS, Goal, Rule, commit_of, stated
from experiments.paper.intervals import over_sources
from experiments.paper.making import Made
from experiments.paper.prioritising import WRONG_FIRST, Cell, _found, _wrong_first
from experiments.paper.reading import BROKEN, CANNOT_TELL, VALID, judged, slots_of
from experiments.paper.size import FAMILIES, SMALL

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
    for family in FAMILIES:
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
    """Compare the judges of the truth with pictures whose content is known."""
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


def test_annotators_err_together_on_hard_images_and_control_items_find_only_those_who_always_say_yes() -> None:
    broken = np.zeros(600, bool)
    nowhere, everywhere = np.zeros(600, bool), np.ones(600, bool)
    easy, fooled = vote(broken, nowhere, 1), vote(broken, everywhere, 1)
    assert (easy.known & easy.valid).mean() < 0.01
    assert (fooled.known & fooled.valid).mean() > 0.5  # the voters agree and are wrong, so more votes would not help
    kept = [[CREW[one] for one in kept_workers(control_answers(random.Random(seed)))] for seed in range(50)]
    assert min(len(one) for one in kept) >= VOTES
    share = {one: sum(crew.count(one) for crew in kept) / (50 * CREW.count(one)) for one in (CREW[0], CREW[-1])}
    assert share[CREW[0]] > 0.95 and share[CREW[-1]] < 0.65  # a worker who always says yes sometimes passes
    again, other = vote(broken, nowhere, 1), vote(broken, nowhere, 2)
    assert (again.votes_for == easy.votes_for).all() and (again.votes == easy.votes).all()
    assert (other.votes != easy.votes).any()


def test_hard_images_are_mostly_broken_ones_and_stay_the_same() -> None:
    valid = np.arange(4000) % 2 > 0
    hard = hard_images(valid)
    assert 0.3 < hard[~valid].mean() < 0.4 and 0.03 < hard[valid].mean() < 0.07
    assert (hard == hard_images(valid)).all()


def test_sources_have_unequal_quotas_in_every_class() -> None:
    by_class: dict[int, Counter[int]] = {}
    for number in range(500):
        by_class.setdefault(number % 10, Counter())[world.source("object", number).quota.captions] += 1
    assert {tuple(sorted(one.items())) for one in by_class.values()} == {((3, 20), (4, 20), (8, 10))}


def test_lessons_are_fair_days_and_teach_wrongly_what_is_planted() -> None:
    for family in FAMILIES:
        lessons = [world.lesson(family, number) for number in range(1500)]
        assert {scene.look.weather for scene, _ in lessons} == {"sunny", "cloudy"}
        assert {scene.look.time for scene, _ in lessons} == {"day"}
        assert all(wrong is None or wrong.shown_by(scene) for scene, wrong in lessons)
        for one in world.TAUGHT_WRONG[family]:
            if one.share == world.ALWAYS:
                assert all(wrong == one for scene, wrong in lessons if one.shown_by(scene))
            else:
                shown = [wrong == one for scene, wrong in lessons if one.shown_by(scene)]
                assert 0 < sum(shown) < len(shown)


RULES = stated(GOALS.read_text(encoding="utf-8"), "abc of today").rules


@pytest.mark.parametrize("rule", RULES, ids=[rule.figure for rule in RULES])
def test_a_goal_is_judged_by_the_worse_end_of_its_interval(rule: Rule) -> None:
    """Every goal can be reached or missed. Without an interval the result is unknown."""
    least = rule.at_least if rule.at_least is not None else rule.above
    low = least + 0.01 if least is not None else (rule.at_most or 0) - 0.2
    high = rule.at_most - 0.01 if rule.at_most is not None else low + 0.1
    if rule.unit == "minutes":
        assert rule.reached_by(Figure(high)) is True and rule.reached_by(Figure(high + 0.02)) is False
        return
    middle = (low + high) / 2
    assert rule.reached_by(Figure(middle, low, high)) is True
    assert rule.reached_by(Figure(middle)) is None
    if least is not None:
        assert rule.reached_by(Figure(middle, least - 0.001, high)) is False
    if rule.at_most is not None:
        assert rule.reached_by(Figure(middle, low, rule.at_most + 0.001)) is False
    if rule.above is not None:
        assert rule.reached_by(Figure(rule.above, rule.above, rule.above + 0.1)) is False
    assert rule.reached_by(Figure(middle, middle, middle)) is None  # the interval is a point when all images are alike


def test_a_goal_without_a_bound_is_refused() -> None:
    text = '[[goals]]\nquestion = "RQ1"\ngoal = "AUC"\nfigure = "AUC"\nmissed_by = "nothing at all"\n'
    with pytest.raises(ValueError, match="nothing could miss it"):
        stated(text, "")


def test_a_run_keeps_the_goals_that_it_began_with_and_says_whether_they_were_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    file = repository / "goals.toml"
    repository.mkdir()
    file.write_bytes(GOALS.read_bytes())

    def git(*command: str) -> None:
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
        subprocess.run(["git", *who, *command], cwd=repository, check=True, capture_output=True)

    assert commit_of(file) == ""  # not in a repository
    git("init")
    assert commit_of(file) == ""  # not in a commit
    git("add", "goals.toml")
    git("commit", "-m", "State the goals")
    assert re.fullmatch(r"[0-9a-f]{7,} of \d{4}-\d\d-\d\d", commit_of(file))
    monkeypatch.setattr(paper, "GOALS", file)
    work = paper.Work(tmp_path / "work", SMALL)
    assert work.goals.commit and "before this run began" in work.goals.words
    file.write_text(file.read_text(encoding="utf-8").replace("at_least = 0.9\n", "at_least = 0.1\n"), encoding="utf-8")
    assert commit_of(file) == ""  # changed since the commit
    assert paper.Work(tmp_path / "work", SMALL).goals == work.goals, "the bar was lowered after the run began"
    late = paper.Work(tmp_path / "late", SMALL).goals
    assert "they judge nothing" in late.words
    goal = Goal(RULES[0], "classifier", Figure(0.95, 0.94, 0.96), None, judged=bool(late.commit))
    assert goal.reached is None and goal.words == "cannot tell"


def test_over_sources_counts_a_source_as_one() -> None:
    """Ten sources with a hundred equal images each have the interval of ten images."""
    values = np.repeat(np.arange(10) % 2, 100).astype(float)
    found = over_sources(np.repeat(np.arange(10), 100), lambda rows: float(values[rows].mean()))
    assert found.value == 0.5 and found.low is not None and found.high is not None
    assert found.high - found.low > 0.4


def test_an_order_by_chance_stands_for_the_mean_of_many() -> None:
    wrong = np.arange(100) < 40
    first = _wrong_first(wrong, np.random.default_rng(0))
    assert set(first[:40]) == set(range(40)) and sorted(first) == list(range(100))
    fault: list[Cell | None] = [("bird", "red")] * 2 + [("kite", "foggy")] * 20 + [None] * 78
    found = _found(WRONG_FIRST, lambda chance: _wrong_first(wrong, chance), fault, [("bird", "red"), ("kite", "foggy")])
    rare, common = found.cells[0.05]
    assert rare == pytest.approx(1 - 38 * 37 * 36 * 35 * 34 / (40 * 39 * 38 * 37 * 36), abs=0.12)  # hypergeometric
    assert common > 0.9 and found.images[0.05] == 5
