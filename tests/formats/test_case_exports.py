"""Labels and masks as people have them, exported in every format and loaded by the lines that the card gives."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from formats.exporting import LAYOUTS, export
from formats.reading import read
from formats.types import TestSet
from tests.formats.test_formats import Maker

WITH_LABELS = [name for name, layout in LAYOUTS.items() if layout.write is not None and name != "cityscapes"]
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
    """Run the lines of the card. Return the names that they define."""
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
    """What a reader of YAML 1.1 has, as that of Ultralytics."""
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
