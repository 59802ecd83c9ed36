"""Data sets with masks, each in its published layout: SHIFT, Cityscapes, ACDC, BDD100K and COCO."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.images import png_of
from formats.in_place import Content, DataSet, open_data_set
from tests.formats.test_data_sets import jpeg, labels, number_of_items, png, put, refusal, tar_of, why, zip_of

SIZE = (48, 32)


def halves(left: int, right: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Return class numbers (h, w), with `left` in the left half and `right` in the right half."""
    numbers = np.full((size[1], size[0]), left, np.uint8)
    numbers[:, size[0] // 2 :] = right
    return numbers


def mask(left: int, right: int, size: tuple[int, int] = SIZE) -> bytes:
    return png_of(Image.fromarray(halves(left, right, size)))


def numbers(content: Content) -> np.ndarray:
    assert content.mask is not None
    assert content.mask.mode == "L"
    return np.asarray(content.mask)


def classes_at(data_set: DataSet, key: str) -> tuple[str, str]:
    """Return the names of the classes at the left and right edges of an item's mask."""
    found = numbers(data_set.read(key))
    return tuple(data_set.mask_classes.get(int(number), "none") for number in (found[0, 0], found[0, -1]))  # type: ignore[return-value]


def shift_mask(left: int, right: int) -> bytes:
    """Return a mask like the simulator's: the class in the red channel, object ids in the others."""
    numbers = halves(left, right)
    rgba = np.stack(
        [numbers, np.full_like(numbers, 9), np.full_like(numbers, 200), np.full_like(numbers, 255)], axis=-1
    )
    return png_of(Image.fromarray(rgba))


SEQUENCES = (
    b"town,start_weather_fine,start_timeofday_coarse,video,shift_type,start_weather_coarse\n"
    b"Town10HD,heavy rain,night,0a1b-0001,weather,rainy\n"
    b"Town03,clear,daytime,ffff-0002,time,clear\n"
)


def shift(root: Path, part: str = "discrete/images", split: str = "train", packed: Any = None) -> Path:
    images = {f"{seq}/{n:08d}_img_front.jpg": jpeg(n) for seq in ("0a1b-0001", "ffff-0002") for n in (0, 400)}
    masks = {
        f"{seq}/{n:08d}_semseg_front.png": shift_mask(7, 10) for seq in ("0a1b-0001", "ffff-0002") for n in (0, 400)
    }
    # jpeg() draws 32x32 pixels
    masks = {
        name: png_of(Image.open(io.BytesIO(data)).resize((32, 32), Image.Resampling.NEAREST))
        for name, data in masks.items()
    }
    place = f"{part}/{split}/front"
    files = {f"{place}/seq.csv": SEQUENCES, f"{place}/det_2d.json": b"{}"}
    for group, held in (("img", images), ("semseg", masks)):
        if packed is None:
            files |= {f"{place}/{group}/{name}": data for name, data in held.items()}
        else:
            files[f"{place}/{group}.{'zip' if packed is zip_of else 'tar'}"] = packed(held)
    return put(root, files)


@pytest.mark.parametrize("packed", [None, zip_of, tar_of])
@pytest.mark.parametrize("part", ["discrete/images", "continuous/videos/1x", "continuous/1x/images"])
def test_shift_in_each_of_its_forms_has_the_same_items(tmp_path: Path, part: str, packed: Any) -> None:
    data_set = open_data_set(shift(tmp_path, part, packed=packed), "shift")
    items = list(data_set.items())
    place = f"{part}/train/front/img"
    assert [item.key for item in items] == [
        f"{place}/{seq}/{n:08d}_img_front.jpg" for seq in ("0a1b-0001", "ffff-0002") for n in (0, 400)
    ]
    assert dict(items[0].attributes) == {
        "weather": "rainy",
        "time of day": "night",
        "sequence": "0a1b-0001",
        "town": "Town10HD",
        "shift_type": "weather",
        "start_weather_fine": "heavy rain",
        "start_weather_coarse": "rainy",
        "start_timeofday_coarse": "night",
    }
    assert items[2].attributes["weather"] == "clear" and items[2].attributes["time of day"] == "daytime"
    assert (data_set.split, len(data_set.mask_classes)) == ("train", 23)
    assert data_set.read(items[1].key).image == jpeg(400)
    assert classes_at(data_set, items[0].key) == ("road", "vehicle")


def test_shift_asks_for_part_split_and_view(tmp_path: Path) -> None:
    shift(shift(tmp_path), "continuous/videos/1x")
    words = "Choose a part by the option part: there is discrete/images, continuous/videos/1x"
    assert words in refusal(tmp_path, "shift")
    shift(tmp_path, split="val")
    assert "Choose a split" in refusal(tmp_path, "shift", part="discrete/images")
    shutil.copytree(tmp_path / "discrete/images/val/front", tmp_path / "discrete/images/val/left_45")
    assert "Choose a view" in refusal(tmp_path, "shift", "val", part="discrete/images")
    data_set = open_data_set(tmp_path, "shift", "val", part="discrete/images", view="front")
    assert {item.split for item in data_set.items()} == {"validation"}


def test_shift_without_masks_without_weather_and_with_videos(tmp_path: Path) -> None:
    root = shift(tmp_path, split="test")
    place = root / "discrete/images/test/front"
    shutil.rmtree(place / "semseg")
    (place / "seq.csv").unlink()
    data_set = open_data_set(root, "shift")
    item = next(data_set.items())
    assert (data_set.read(item.key).mask, dict(data_set.mask_classes)) == (None, {})
    assert dict(item.attributes) == {"sequence": "0a1b-0001"}
    assert {"There are no masks of this split: its images are read without."} < {
        row.reason for row in data_set.left_out
    }
    shutil.rmtree(place / "img")
    (place / "img.tar").write_bytes(tar_of({"0a1b-0001.mp4": b"film"}))
    assert "holds videos" in refusal(root, "shift")
    (place / "img.tar").rename(place / "img.hdf5")
    assert "HDF5 files are not read" in refusal(root, "shift")


def cityscapes(root: Path) -> Path:
    files = {}
    for split, city, left, right in (("train", "ulm", 7, 26), ("train", "aachen", 4, 33), ("val", "lindau", 23, 24)):
        stem = f"{city}_000000_000019"
        files[f"leftImg8bit/{split}/{city}/{stem}_leftImg8bit.png"] = png(left, SIZE)
        files[f"gtFine/{split}/{city}/{stem}_gtFine_labelIds.png"] = mask(left, right)
        files[f"gtFine/{split}/{city}/{stem}_gtFine_color.png"] = png(1, SIZE)
        files[f"gtFine/{split}/{city}/{stem}_gtFine_instanceIds.png"] = mask(left, right)
    return put(root, files)


def test_cityscapes(tmp_path: Path) -> None:
    root = cityscapes(tmp_path)
    assert "train, val" in refusal(root, "cityscapes")
    data_set = open_data_set(root, "cityscapes", "train")
    keys = [item.key for item in data_set.items()]
    assert keys == [
        "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png",
        "leftImg8bit/train/ulm/ulm_000000_000019_leftImg8bit.png",
    ]
    assert [item.attributes["city"] for item in data_set.items()] == ["aachen", "ulm"]
    assert classes_at(data_set, keys[1]) == ("road", "car")
    assert numbers(data_set.read(keys[0]))[0].tolist() == [255] * 24 + [18] * 24, "4 is static, which is not evaluated"
    assert (len(data_set.mask_classes), data_set.mask_classes[18]) == (19, "bicycle")
    assert classes_at(open_data_set(root, "cityscapes", "val"), keys_of(root, "val")[0]) == ("sky", "person")


def keys_of(root: Path, split: str) -> list[str]:
    return list(labels(open_data_set(root, "cityscapes", split)))


def test_masks_that_do_not_fit_are_refused_one_by_one(tmp_path: Path) -> None:
    root = cityscapes(tmp_path)
    data_set = open_data_set(root, "cityscapes", "train")
    first, second = labels(data_set)
    place = root / "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png"
    for data, told in (
        (mask(7, 26, (96, 64)), "The mask has 96x64 pixels and the image 48x32"),
        (mask(7, 77), "a class number without a name: 77"),
        (mask(7, 26)[:60], "damaged or cut short"),
    ):
        place.write_bytes(data)
        assert told in why(data_set, first)
    place.unlink()
    assert "The image has no mask, but the data set has masks" in why(data_set, first)
    assert classes_at(data_set, second) == ("road", "car")


def test_acdc(tmp_path: Path) -> None:
    files = {}
    for condition in ("fog", "night", "rain", "snow"):
        for split, stem in (
            ("train", "GOPR0475_frame_000041"),
            ("val", "GP010476_frame_000054"),
            ("test", "GOPR1_frame_1"),
        ):
            sequence = stem.partition("_")[0]
            files[f"rgb_anon/{condition}/{split}/{sequence}/{stem}_rgb_anon.png"] = png(1, SIZE)
            if split != "test":
                files[f"gt/{condition}/{split}/{sequence}/{stem}_gt_labelTrainIds.png"] = mask(0, 255)
        files[f"rgb_anon/{condition}/train_ref/GOPR0475/GOPR0475_frame_000041_rgb_ref_anon.png"] = png(2, SIZE)
    root = put(tmp_path, files)
    assert ": test, train, val." in refusal(root, "acdc")
    data_set = open_data_set(root, "acdc", "val")
    items = list(data_set.items())
    assert [item.attributes["condition"] for item in items] == ["fog", "night", "rain", "snow"]
    assert items[0].attributes["weather"] == "foggy" and items[1].attributes["time of day"] == "night"
    assert classes_at(data_set, items[2].key) == ("road", "none")
    hidden = open_data_set(root, "acdc", "test")
    assert (number_of_items(hidden), hidden.read(next(hidden.items()).key).mask) == (4, None)


def test_bdd100k(tmp_path: Path) -> None:
    files = {
        "bdd100k/images/10k/train/0a0a0b1a-7c39d841.jpg": jpeg(1),
        "bdd100k/images/10k/val/7d2f7975-e0c1c5a7.jpg": jpeg(2),
        "bdd100k/labels/sem_seg/masks/train/0a0a0b1a-7c39d841.png": mask(13, 10, (32, 32)),
        "bdd100k/labels/sem_seg/colormaps/train/0a0a0b1a-7c39d841.png": png(1),
    }
    root = put(tmp_path, files)
    for place in (root, root / "bdd100k"):
        data_set = open_data_set(place, "bdd100k", "train")
        (key,) = labels(data_set)
        assert key.endswith("images/10k/train/0a0a0b1a-7c39d841.jpg")
        assert classes_at(data_set, key) == ("car", "sky")
    assert number_of_items(open_data_set(root, "bdd100k", "val")) == 1


def instances(split: str, license_name: str = "Attribution License") -> dict[str, Any]:
    """Return annotations like COCO's: ids with gaps, an outline, a crowd with uncompressed run lengths, a name
    beyond ASCII.
    """
    left = [[0, 0, 24, 0, 24, 32, 0, 32]]
    right_column = {"size": [32, 48], "counts": [47 * 32, 32]}  # the last column
    return {
        "info": {"description": "COCO 2017", "year": 2017},
        "licenses": [{"url": "http://creativecommons.org/licenses/by/2.0/", "id": 4, "name": license_name}],
        "images": [
            {"license": 4, "file_name": "000000000139.jpg", "height": 32, "width": 48, "id": 139},
            {"license": 9, "file_name": "000000000285.jpg", "height": 32, "width": 48, "id": 285},
            {"license": 4, "file_name": "äöü.jpg", "height": 32, "width": 48, "id": 632},
        ],
        "annotations": [
            {"segmentation": left, "area": 768, "iscrowd": 0, "image_id": 139, "category_id": 90, "id": 1},
            {"segmentation": right_column, "area": 900, "iscrowd": 1, "image_id": 139, "category_id": 1, "id": 2},
            {"segmentation": left, "area": 768, "iscrowd": 0, "image_id": 285, "category_id": 77, "id": 3},
        ],
        "categories": [
            {"supercategory": "person", "id": 1, "name": "person"},
            {"supercategory": "indoor", "id": 90, "name": "Zahnbürste"},
        ],
    }


def coco(root: Path, **layout: Any) -> Path:
    image = Image.open(io.BytesIO(png(1, SIZE)))
    file = io.BytesIO()
    image.save(file, "JPEG")
    names = [entry["file_name"] for entry in instances("val")["images"]]
    files = {f"{folder}2017/{name}": file.getvalue() for folder in ("train", "val") for name in names}
    for split in ("train2017", "val2017"):
        data = json.dumps(instances(split), ensure_ascii=split == "train2017", **layout).encode()
        files[f"annotations/instances_{split}.json"] = data
        files[f"annotations/captions_{split}.json"] = b"{}"
    return put(root, files)


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}])
def test_coco(tmp_path: Path, layout: Any) -> None:
    root = coco(tmp_path, **layout)
    assert "train2017, val2017" in refusal(root, "coco")
    for split in ("train", "val2017"):
        data_set = open_data_set(root, "coco", split)
        items = list(data_set.items())
        folder = "train2017" if split == "train" else "val2017"
        assert [item.key for item in items] == [
            f"{folder}/{n}" for n in ("000000000139.jpg", "000000000285.jpg", "äöü.jpg")
        ]
        assert {item.label for item in items} == {""}
        assert items[0].attributes["licence"].startswith("Attribution License, http") and not items[1].attributes
        assert data_set.mask_classes == {0: "person", 1: "Zahnbürste"}
        found = numbers(data_set.read(items[0].key))
        assert found[5].tolist() == [1] * 25 + [255] * 22 + [0], "a category's number is its place in the list"
        assert (numbers(data_set.read(items[2].key)) == 255).all()
        assert "a category that “categories” does not list: 77" in why(data_set, items[1].key)
        assert data_set.split == ("train" if split == "train" else "validation")


def test_cocos_label_is_the_largest_object_if_that_is_asked_for(tmp_path: Path) -> None:
    data_set = open_data_set(coco(tmp_path), "coco", "val", label="largest")
    assert list(labels(data_set).values()) == ["Zahnbürste", "", ""]
    assert data_set.classes == ("person", "Zahnbürste")
    assert "write “largest”, or leave the option out" in refusal(tmp_path, "coco", "val", label="smallest")


def test_coco_that_is_damaged_or_changed_is_said_to_be(tmp_path: Path) -> None:
    root = coco(tmp_path)
    table = root / "annotations/instances_val2017.json"
    data_set = open_data_set(root, "coco", "val")
    whole = table.read_bytes()
    table.write_bytes(whole + b"\n")
    assert "list of annotations was changed" in why(data_set, "val2017/000000000139.jpg")
    for broken in (whole[: len(whole) // 2], b"[1, 2]", b"{}x", b"", b'{"images": [1'):
        table.write_bytes(broken)
        said = refusal(root, "coco", "val")
        assert "no list of COCO's form" in said or "lists no image" in said
    table.write_bytes(whole.replace(b'"width": 48, "id": 139', b'"width": 40, "id": 139'))
    data_set = open_data_set(root, "coco", "val")
    reason = why(data_set, "val2017/000000000139.jpg")
    assert "pixels and the image 48x32" in reason or "cannot be drawn" in reason
    shutil.rmtree(root / "val2017")
    assert "was not found in val2017/, images/val2017/" in refusal(root, "coco", "val")


def test_a_list_of_coco_that_is_larger_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from formats import coco as module

    root = coco(tmp_path)
    items = list(open_data_set(root, "coco", "val").items())
    for block in (1, 7, 100):
        monkeypatch.setattr(module, "_BLOCK", block)
        data_set = open_data_set(root, "coco", "val")
        assert list(data_set.items()) == items
        assert numbers(data_set.read("val2017/000000000139.jpg"))[0, 0] == 1


@pytest.mark.slow
def test_cocos_masks_are_those_of_pycocotools(tmp_path: Path) -> None:
    from pycocotools.coco import COCO

    root = coco(tmp_path)
    published = COCO(str(root / "annotations/instances_val2017.json"))
    found = numbers(open_data_set(root, "coco", "val").read("val2017/000000000139.jpg"))
    wanted = np.full((32, 48), 255)
    for one in sorted(published.loadAnns(published.getAnnIds(139)), key=lambda one: -one["area"]):
        wanted[published.annToMask(one) == 1] = {90: 1, 1: 0}[one["category_id"]]
    # Here, the pixels on an outline's edge belong to the region.
    assert {int(column) for _, column in np.argwhere(found != wanted)} <= {24}
