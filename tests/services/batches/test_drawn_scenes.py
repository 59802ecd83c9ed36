"""Drawn scenes for users without data: a plan's data set is drawn before it is read, and no other folder is filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UserError
from services.batches.drawn_scenes import KINDS, DrawnScenes
from services.batches.running import PlanBatch
from services.studio import Studio
from tests.support.serving import until


def scenes_of(studio: Studio) -> DrawnScenes:
    assert studio.batches.scenes is not None
    return studio.batches.scenes


@pytest.mark.parametrize("kind", KINDS)
def test_the_scenes_that_a_plan_names_are_drawn_when_it_is_planned(studio: Studio, kind: str) -> None:
    scenes = scenes_of(studio)
    text = scenes.plan_text(kind).replace(f"{kind}-60-", f"{kind}-3-")  # type: ignore[arg-type]
    assert not scenes.folder.exists(), "a look at the page writes nothing"
    work = studio.batches.plan(PlanBatch(plan=text)).id
    until(lambda: not studio.batches.planning.view(work).active)
    view = studio.batches.planning.view(work)
    assert view.state == "done", view.error
    assert studio.batches.status(view.result).sources == 3
    look = studio.batches.details(view.result).look
    assert look is not None and look.looked_at == 3 and not look.unknown and not look.problems


def test_each_look_at_the_page_offers_other_scenes(studio: Studio) -> None:
    scenes = scenes_of(studio)
    assert len({scenes.plan_text("classification") for _ in range(5)}) > 1


def test_a_plan_cannot_ask_for_a_million_scenes(studio: Studio, tmp_path: Path) -> None:
    scenes = scenes_of(studio)
    with pytest.raises(UserError, match="1 to 10,000"):
        scenes.draw(scenes.folder / "classification-999999-1", lambda done, total: None)
    assert not scenes.folder.exists()


@pytest.mark.parametrize("name", ["mine", "classification-3", "classification-3-1/deeper", "../classification-3-1"])
def test_nothing_is_drawn_into_a_folder_of_another_name(studio: Studio, name: str) -> None:
    scenes = scenes_of(studio)
    scenes.draw(scenes.folder / name, lambda done, total: None)
    assert not scenes.folder.exists()


def test_who_stops_the_planning_stops_the_drawing(studio: Studio) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert total == 9
        if done == 1:
            raise Stopped

    scenes = scenes_of(studio)
    with pytest.raises(Stopped):
        scenes.draw(scenes.folder / "classification-9-1", stop)
    assert len(list((scenes.folder / "classification-9-1" / "images").iterdir())) == 1
