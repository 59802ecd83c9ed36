"""Unusual labels and masks, exported in every format and loaded by the code on the export's card."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from formats.exporting import export
from formats.layouts import LAYOUTS
from formats.reading import read
from formats.types import TestSet
from tests.formats.test_formats import Maker, masked
from tests.support.data_set_files import mask, png, write

LAYOUTS_WRITTEN = [name for name, layout in LAYOUTS.items() if layout.write is not None]
WITH_LABELS = [name for name in LAYOUTS_WRITTEN if name != "cityscapes"]
BLACK_AND_WHITE = {"images": png, "masks": lambda: mask(255)}
LABELS = {
    "zeros": ["007", "042", "100"],
    "dates": ["2024-01-01", "2024-02-01", "2024-03-01"],
    "moments": ["2024-01-01T08:15:00", "2024-01-01 08:15", "2024-01-01T08:15:00Z"],
    "times": ["08:15", "13:45", "10:00"],
    "numbers": ["1e5", "1_000", "0x1F", "1.50", ".5", "inf"],
    "missing_words": ["NA", "NaN", "n/a", "None", "null", "~"],
    "yes_and_no": ["yes", "no", "on", "true"],
    "folders": ["train", "test", "unsplit", "images", "masks", "labels", "mask"],
    "texts": [
        "Cat",
        "cat",
        "a.b",
        "cat.",
        "a/b",
        "a\\b",
        "a:b",
        "a*b",
        "a,b",
        "a;b",
        'a"b',
        "a\u200bb",
        "caf\u00e9",
        "🐱",
    ],
    "more_texts": ["مرحبا", "<b>x</b>", "a&b", "{{x}}", "%s", "x" * 200, "y" * 199],
}
SET = TestSet("Names")


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "images")


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the code on the card of an export. Return the names that it defines."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder.parent / "cache"))
    card = (folder / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(card.partition("```python\n")[2].partition("```")[0].replace("SET", str(folder)), names)
    return names


def rows_of_datasets(names: Mapping[str, Any], _: Path) -> list[str]:
    return list(names["images"]["label"])


def rows_of_pandas(names: Mapping[str, Any], _: Path) -> list[str]:
    return list(names["images"]["label"])


def classes_of_folders(names: Mapping[str, Any], folder: Path) -> list[str]:
    images = names["images"]
    labels = json.loads((folder / "classes.json").read_text(encoding="utf-8"))["folders"]
    return [labels[images.classes[number]] for _, number in images.samples]


def categories(names: Mapping[str, Any], _: Path) -> list[str]:
    images = names["images"]
    return [images.cats[annotation["category_id"]]["name"] for annotation in images.anns.values()]


def numbers_of_shards(names: Mapping[str, Any], folder: Path) -> list[str]:
    labels = json.loads((folder / "classes.json").read_text(encoding="utf-8"))["labels"]
    return [labels[int(sample["cls"])] for sample in names["images"]]


def names_of_yaml(folder: Path) -> list[str]:
    """Return the class names that a reader of YAML 1.1 gets, such as Ultralytics."""
    import yaml

    names = yaml.safe_load((folder / "data.yaml").read_text(encoding="utf-8"))["names"]
    return [names[int(file.read_text().split()[0])] for file in (folder / "labels/test").glob("*.txt")]


READERS: dict[str, Callable[[Mapping[str, Any], Path], list[str]]] = {
    "imagefolder": rows_of_datasets,
    "parquet": rows_of_datasets,
    "csv": rows_of_pandas,
    "torchvision": classes_of_folders,
    "coco": categories,
    "webdataset": numbers_of_shards,
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", WITH_LABELS)
@pytest.mark.parametrize("case", LABELS)
def test_labels_come_out_as_they_are_written(
    case: str, layout: str, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = LABELS[case]
    wanted = [maker.example(f"p{number:02}", label, "test", size=(16, 16)) for number, label in enumerate(labels)]
    folder = export(SET, wanted, tmp_path / "out", layout)
    found = names_of_yaml(folder) if layout == "yolo" else READERS[layout](loaded(folder, monkeypatch), folder)
    assert Counter(map(repr, found)) == Counter(map(repr, labels))
    again = read(folder, tmp_path / "in")
    assert again.rows == () and [example.label for example in again.examples] == labels


@pytest.mark.slow
@pytest.mark.parametrize("case", LABELS)
def test_labels_and_names_come_out_of_croissant_as_they_are_written(case: str, maker: Maker, tmp_path: Path) -> None:
    labels = LABELS[case]
    wanted = [maker.example(f"{number:03}", label, "test", size=(16, 16)) for number, label in enumerate(labels)]
    folder = export(SET, wanted, tmp_path / "out", "csv")
    found = import_module("mlcroissant").Dataset(str(folder / "croissant.json")).records("examples")
    rows = [(row["examples/name"].decode(), row["examples/label"].decode()) for row in found]
    assert rows == [(example.name, example.label) for example in wanted]


@pytest.mark.parametrize("layout", LAYOUTS_WRITTEN)
def test_foreground_of_black_and_white_masks_is_never_background(layout: str, tmp_path: Path) -> None:
    write(tmp_path / "set", {f"{kind}/{n}.png": data() for n in range(2) for kind, data in BLACK_AND_WHITE.items()})
    found = read(tmp_path / "set", tmp_path / "in", classes={0: "background", 255: "polyp"})
    assert len(found.rows) == 2 and all("255" in row.reason for row in found.rows)
    wanted = [replace(example, label="scan", split="test") for example in found.examples]
    folder = export(SET, wanted, tmp_path / "out", layout)
    classes = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
    assert classes["masks"] == {"0": "background", "1": "polyp"}
    for example in read(folder, tmp_path / "again").examples:
        assert example.mask is not None
        inside = {number for number, name in example.mask_classes.items() if name == "polyp"}
        assert np.isin(np.asarray(Image.open(example.mask)), list(inside)).sum() == 36
    if layout == "coco":
        table = json.loads((folder / "annotations/instances_test.json").read_text(encoding="utf-8"))
        names = {category["id"]: category["name"] for category in table["categories"]}
        areas = Counter((names[region["category_id"]], region["area"]) for region in table["annotations"])
        assert areas == {("background", 220): 2, ("polyp", 36): 2}
    if layout == "yolo":
        import yaml

        names = yaml.safe_load((folder / "data.yaml").read_text(encoding="utf-8"))["names"]
        for file in (folder / "labels/test").glob("*.txt"):
            assert sorted(names[int(line.split()[0])] for line in file.read_text().splitlines()) == [
                "background",
                "polyp",
            ]


LEFT_OUT = {
    "torchvision": {"captions": 5, "edits": 4, "classes of masks": 5},
    "coco": {"captions": 5, "edits": 4},
    "cityscapes": {"captions": 5, "edits": 4, "labels": 5, "splits": 1},
    "yolo": {"captions": 5, "edits": 4, "labels": 5, "splits": 1},
}


@pytest.mark.parametrize("layout", ("imagefolder", "torchvision", "coco", "cityscapes", "webdataset", "parquet"))
def test_the_card_loads_the_test_split_of_a_set_that_has_one(layout: str, maker: Maker, tmp_path: Path) -> None:
    folder = export(SET, masked(maker), tmp_path / "out", layout)
    lines = (folder / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert re.findall(r"\b(train|val|validation|test|unsplit)\b", lines.replace("_", " "))[:1] == ["test"], lines


@pytest.mark.parametrize("layout", LAYOUTS_WRITTEN)
def test_the_card_and_the_manifest_count_what_the_files_of_the_format_do_not_say(
    layout: str, maker: Maker, tmp_path: Path
) -> None:
    folder = export(SET, masked(maker), tmp_path / "out", layout)
    left_out = LEFT_OUT.get(layout, {})
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["left_out"] == left_out
    card = (folder / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"The (.+) of (\d+) images are only in `records.jsonl`", card)
    assert {what: int(count) for what, count in told} == left_out
