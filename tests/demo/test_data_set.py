"""Drawn scenes as a data set: a batch reads them, a seed repeats them, and a command writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.types import TaskKind
from demo.data_set import main, plan_text, write_scenes
from demo.scene import OBJECT_CLASSES, PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES
from formats.in_place import open_data_set
from services.batches.plan_file import plan_from_text, read_plan
from services.batches.service import BatchService
from tests.support.workspaces import workspace_in


def test_things_come_with_their_labels_in_turns(tmp_path: Path) -> None:
    write_scenes(tmp_path / "things", "classification", 12, 5)
    data = open_data_set(tmp_path / "things", "csv")
    items = list(data.items())
    assert [item.label for item in items] == [*OBJECT_CLASSES, *OBJECT_CLASSES[:2]]
    content = data.read(items[0].key, items[0].stamp)
    assert content.mask is None and content.picture.image.size == (128, 128)
    assert not data.left_out


def test_streets_come_with_masks_whose_classes_need_no_option(tmp_path: Path) -> None:
    write_scenes(tmp_path / "streets", "segmentation", 2, 5)
    data = open_data_set(tmp_path / "streets", "csv")
    content = data.read(next(data.items()).key)
    assert data.mask_classes == dict(enumerate(SEMANTIC_CLASSES))
    assert content.mask is not None
    numbers = set(np.unique(np.asarray(content.mask)).tolist())
    assert SEMANTIC_CLASSES.index("road") in numbers and 255 not in numbers


def test_the_same_seed_writes_the_same_scenes_and_another_seed_others(tmp_path: Path) -> None:
    def written(name: str, seed: int) -> list[bytes]:
        write_scenes(tmp_path / name, "classification", 3, seed)
        return [Image.open(file).tobytes() for file in sorted((tmp_path / name / "images").iterdir())]

    first = written("first", 1)
    assert first == written("again", 1)
    assert not set(first) & set(written("other", 2))


def test_writing_goes_on_where_it_was_stopped_and_leaves_no_half_table(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop_at_two(done: int, total: int) -> None:
        assert total == 4
        if done == 2:
            raise Stop

    folder = tmp_path / "stopped"
    with pytest.raises(Stop):
        write_scenes(folder, "classification", 4, 7, stop_at_two)
    assert not (folder / "sources.csv").exists() and len(list((folder / "images").iterdir())) == 2
    write_scenes(folder, "classification", 4, 7)
    assert len(list(open_data_set(folder, "csv").items())) == 4


@pytest.mark.parametrize("kind", ["classification", "segmentation"])
def test_a_batch_takes_all_scenes_by_the_plan_that_comes_with_them(kind: TaskKind, tmp_path: Path) -> None:
    write_scenes(tmp_path / "data", kind, 3, 11)
    plan = plan_from_text(plan_text(str(tmp_path / "data"), kind), tmp_path / "plan.toml")
    assert plan.task.protected == (PROTECTED_ROAD_CLASSES if kind == "segmentation" else ())
    with workspace_in(tmp_path / "workspace") as workspace:
        service = BatchService(workspace)
        assert service.status(service.plan(plan)).sources == 3


def test_the_command_says_where_it_wrote_and_takes_a_fresh_seed_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--count", "2"])
    main(["--count", "2", "--kind", "segmentation"])
    said = capsys.readouterr().out
    folders = sorted((tmp_path / "demo-data").iterdir())
    assert [folder.name.split("-")[0] for folder in folders] == ["classification", "segmentation"]
    for folder in folders:
        assert str(folder) in said and read_plan(folder / "plan.toml").data.root == str(folder)
        # A page gets the text of the plan without its folder, so the plan has an absolute path.
        text = (folder / "plan.toml").read_text(encoding="utf-8")
        assert plan_from_text(text, tmp_path / "elsewhere" / "plan.toml").data.root == str(folder)
    with pytest.raises(SystemExit):
        main(["--count", "0"])
    assert "whole number" in capsys.readouterr().err
