"""ImageNet's variants, CUB-200-2011 and iWildCam in their published folders, read by a batch and by an import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from core.class_tables import IMAGENET, class_table
from core.errors import UserError
from evaluation.class_mapping import map_classes
from formats.in_place import DataSet, open_data_set
from formats.reading import read
from tests.support.data_set_files import jpeg, mask, write

V2 = "imagenetv2-matched-frequency-format-val"
BIRDS = (
    "001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111",
    "002.Laysan_Albatross/Laysan_Albatross_0002_1",
)


def labels(data_set: DataSet) -> dict[str, str]:
    return {item.key: item.label for item in data_set.items()}


def imported(root: Path, into: Path) -> tuple[str, dict[str, str], list[str]]:
    """Return the layout that an import detects, the label of each image by name, and the refused files."""
    found = read(root, into)
    refused = [row.file for row in found.rows if row.kind == "refused"]
    return found.layout, {one.name: one.label for one in found.examples}, refused


@pytest.mark.parametrize("folder", ["sketch", "imagenet-r", "imagenet-a", V2])
def test_imagenets_relatives_have_the_names_of_its_classes(folder: str, tmp_path: Path) -> None:
    names = ("1", "134") if folder == V2 else ("n01443537", "n02012849")
    root = write(tmp_path / folder, {f"{names[0]}/a.JPEG": jpeg(), f"{names[1]}/b.JPEG": jpeg(), "README.txt": "x"})
    data_set = open_data_set(root, "imagenet")
    wanted = {"a": "goldfish, Carassius auratus", "b": "crane, n02012849"}
    assert list(labels(data_set).values()) == [*wanted.values()]
    assert len(data_set.classes) == (1000 if folder == V2 else 2)
    layout, by_name, refused = imported(root, tmp_path / "in")
    assert (layout, by_name) == ("imagenet", wanted) and set(refused) <= {"README.txt"}
    classes = [one.name for one in class_table(IMAGENET).classes]
    mapped = map_classes([*wanted.values()], classes, beside=data_set.classes)
    assert folder != V2 or [one.classes for one in mapped.labels] == [(1,), (134,)]


def test_every_class_of_imagenet_v2_is_that_class_of_a_model(tmp_path: Path) -> None:
    data_set = open_data_set(write(tmp_path / V2, {"0/a.jpeg": jpeg()}), "imagenet")
    classes = [one.name for one in class_table(IMAGENET).classes]
    for some in (range(1000), range(0, 1000, 5)):  # ImageNet-R and -A have 200 of the classes
        mapped = map_classes([data_set.classes[number] for number in some], classes)
        assert [one.classes for one in mapped.labels] == [(number,) for number in some]


def test_imagenet_9_by_variant(tmp_path: Path) -> None:
    files: Mapping[str, bytes | str] = {
        "mixed_rand/val/00_dog/fg_n02089078_00004157_bg_n02814533_00026700.JPEG": jpeg(),
        "mixed_rand/val/02_wheeled vehicle/fg_n02701002_00000001_bg_n02814533_00000001.JPEG": jpeg(),
        "original/val/00_dog/n02089078_00004157.JPEG": jpeg(),
        "fg_mask/val/00_dog/n02089078_00004157.npy": b"numpy",
    }
    root = write(tmp_path / "bg_challenge", files)
    data_set = open_data_set(root, "imagenet9", "val")
    assert {item.attributes["variant"] for item in data_set.items()} == {"mixed_rand", "original"}
    assert set(labels(data_set).values()) == {"dog", "wheeled vehicle"} == {*data_set.classes}
    one = open_data_set(root / "mixed_rand", "imagenet9")
    assert {f"mixed_rand/{name}" for name in labels(one)} == {name for name in labels(data_set) if "mixed" in name}
    assert one.split == "validation"
    layout, by_name, _ = imported(root, tmp_path / "in")
    assert layout == "imagenet9" and by_name["n02089078_00004157"] == "dog" and len(by_name) == 3


def cub(root: Path, masks: str) -> Path:
    files: dict[str, bytes | str] = {f"CUB_200_2011/images/{bird}.jpg": jpeg() for bird in BIRDS}
    files |= {f"{masks}/{bird}.png": mask(inside=153, outside=102) for bird in BIRDS}
    files["CUB_200_2011/images.txt"] = "".join(f"{number} {bird}.jpg\n" for number, bird in enumerate(BIRDS, 1))
    files["CUB_200_2011/train_test_split.txt"] = "1 1\n2 0\n"
    files["CUB_200_2011/image_class_labels.txt"] = "1 1\n2 2\n"
    files["attributes.txt"] = "1 has_bill_shape::curved\n"
    return write(root, files)


@pytest.mark.parametrize("masks", ["segmentations", "CUB_200_2011/segmentations"])
def test_cub_with_its_splits_and_masks(masks: str, tmp_path: Path) -> None:
    root = cub(tmp_path / "birds", masks)
    for split, number, label in (("train", 0, "Black footed Albatross"), ("test", 1, "Laysan Albatross")):
        data_set = open_data_set(root, "cub", split)
        key = f"CUB_200_2011/images/{BIRDS[number]}.jpg"
        assert labels(data_set) == {key: label}
        assert data_set.classes == ("Black footed Albatross", "Laysan Albatross")
        assert data_set.mask_classes == {0: "background", 1: "bird"}
        seen = data_set.read(key).mask
        assert seen is not None and np.bincount(np.asarray(seen).ravel()).tolist() == [220, 36]
    found = read(root, tmp_path / "in")
    assert found.layout == "cub" and [row for row in found.rows if row.kind == "refused"] == []
    assert [(one.label, one.split, one.mask is not None) for one in found.examples] == [
        ("Black footed Albatross", "train", True),
        ("Laysan Albatross", "test", True),
    ]


def test_cub_without_masks_and_a_key_that_is_none(tmp_path: Path) -> None:
    root = cub(tmp_path / "birds", "elsewhere") / "CUB_200_2011"
    data_set = open_data_set(root, "cub", "test")
    assert data_set.mask_classes == {} and data_set.read(f"images/{BIRDS[1]}.jpg").mask is None
    with pytest.raises(UserError, match="no such item"):
        data_set.read("images/photo.jpg")


def test_iwildcam_of_wilds(tmp_path: Path) -> None:
    rows = ["split,filename,y,location_remapped,datetime"]
    rows += ["train,a.jpg,0,12,2013-01-08 05:48:00", "id_test,b.jpg,1,12,2013-01-09 05:48:00", "test,c.jpg,1,9,x"]
    files: dict[str, bytes | str] = {f"train/{name}.jpg": jpeg() for name in "abc"}
    files["metadata.csv"] = "\n".join(rows) + "\n"
    files["categories.csv"] = "category_id,name,y\n0,empty,0\n2,tayassu pecari,1\n7,homo sapiens,99999\n"
    root = write(tmp_path / "iwildcam_v2.0", files)
    data_set = open_data_set(root, "iwildcam", "id_test")
    assert labels(data_set) == {"train/b.jpg": "tayassu pecari"} and data_set.classes == ("empty", "tayassu pecari")
    assert next(data_set.items()).attributes["location_remapped"] == "12"
    assert data_set.read("train/b.jpg").image == files["train/b.jpg"]
    found = read(root, tmp_path / "in")
    assert found.layout == "iwildcam" and [row for row in found.rows if row.kind == "refused"] == []
    assert [(one.label, one.split) for one in found.examples] == [
        ("empty", "train"),
        ("tayassu pecari", ""),
        ("tayassu pecari", "test"),
    ]
    with pytest.raises(UserError, match=r"needs metadata\.csv, categories\.csv"):
        open_data_set(tmp_path / "in", "iwildcam")
