"""Data sets as other tools and people write them, imported and, where a batch supports them, read in place.

Most cases come from a public report on a tool of the field. The files are our own.
"""

from __future__ import annotations

import codecs
import datetime
import decimal
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from formats.in_place import open_data_set
from services.curation.import_source import bring_in
from storage.workspace import Workspace
from tests.support.data_set_files import jpeg, mask, png, tar_file, write, write_zip

CLASSES = "0 background, 1 polyp"
Files = Mapping[str, bytes | str]


class Seen(NamedTuple):
    """Facts that a reader reports of an image."""

    label: str = ""
    split: str = ""
    mask: tuple[str, ...] | None = None
    """Sorted names of the classes in the mask. None without a mask."""
    words: str = ""
    """The caption, or the image's fact `text` or `edit_prompt`. A batch does not report it."""


@dataclass(frozen=True)
class Plan:
    """Options with which a batch opens the data set in place."""

    layout: str
    split: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    seen: tuple[Seen, ...] | None = None
    """Expected images in a batch, if they differ from the import's."""
    or_told: str = ""
    """If a batch's images differ from `seen`, words that the refusal or the report must contain. "" allows no
    difference.
    """


@dataclass(frozen=True)
class Case:
    """Files of a data set, with the expected images and messages."""

    files: Files | Callable[[Path], object]
    seen: tuple[Seen, ...]
    told: tuple[str, ...] | None = ()
    """Words of which each must be in a row of the report. () for an empty report, None for any report."""
    or_told: str = ""
    """If the images differ from `seen`, words that the report must contain. "" allows no difference."""
    source: str = ""
    classes: str = ""
    layouts: tuple[str, ...] = ("",)
    """Layouts to try in the import. "" detects the layout."""
    plan: Plan | None = None


# Files of several cases


def yolo(lines: bytes | str, names: str = "[cat, dog]") -> Files:
    return {
        "data.yaml": f"train: images/train\nval: images/train\nnames: {names}\n",
        "images/train/a.jpg": jpeg(),
        "labels/train/a.txt": lines,
    }


def yolo_words(*words: str) -> Files:
    files: dict[str, bytes | str] = {
        "data.yaml": "names:\n" + "".join(f"  {n}: {word}\n" for n, word in enumerate(words))
    }
    for number in range(len(words)):
        files[f"images/train/i{number}.jpg"] = jpeg()
        files[f"labels/train/i{number}.txt"] = f"{number} 0.5 0.5 1 1\n"
    return files


def whole_boxes(*stems: str) -> dict[str, bytes | str]:
    """Return pictures of a cat and a dog in turn, each with its label file."""
    files: dict[str, bytes | str] = {}
    for number, stem in enumerate(stems):
        files[f"{stem}.jpg"], files[f"{stem}.txt"] = jpeg(), f"{number % 2} 0.5 0.5 1 1\n"
    return files


SQUARE = {"segmentation": [[4, 4, 10, 4, 10, 10, 4, 10]], "area": 36, "bbox": [4, 4, 6, 6]}


def coco_table(
    images: Sequence[Mapping[str, Any]], annotations: Any, categories: Any = ({"id": 1, "name": "cat"},)
) -> str:
    return json.dumps({"images": images, "annotations": annotations, "categories": categories})


def coco_image(name: str = "a.jpg", number: Any = 1) -> dict[str, Any]:
    return {"id": number, "file_name": name, "width": 16, "height": 16}


def coco(image_id: Any = 1, points_to: Any = 1, category: Any = 1, listed: Any = 1, start: str = "") -> Files:
    annotation = {"id": 1, "image_id": points_to, "category_id": category, **SQUARE}
    text = coco_table([coco_image(number=image_id)], [annotation], [{"id": listed, "name": "cat"}])
    return {"train/a.jpg": jpeg(), "annotations/instances_train.json": start + text}


def coco_twins() -> Files:
    images = [coco_image("a.jpg"), coco_image("b.jpg")]
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, **SQUARE}]
    return {
        **{f"train/{image['file_name']}": jpeg() for image in images},
        "annotations/instances_train.json": coco_table(images, annotations),
    }


def coco_trio(*kinds: str) -> Files:
    """Return the files of annotations_trainval2017.zip for one image."""
    images, classes = [coco_image("000000000007.jpg", 7)], [{"id": 1, "name": "person"}]
    region = {"image_id": 7, "category_id": 1, **SQUARE}
    tables = {
        "instances": coco_table(images, [{"id": 1, **region}], classes),
        "captions": json.dumps(
            {"images": images, "annotations": [{"id": 5, "image_id": 7, "caption": "A person on a road."}]}
        ),
        "person_keypoints": coco_table(
            images, [{"id": 9, **region, "keypoints": [0] * 51, "num_keypoints": 0}], classes
        ),
    }
    return {
        "val2017/000000000007.jpg": jpeg(),
        **{f"annotations/{kind}_val2017.json": tables[kind] for kind in kinds},
    }


def folders(*labels: str) -> dict[str, bytes | str]:
    """Return two pictures of each class, in a folder with the name of the class."""
    return {f"{label}/{label.rpartition('/')[2]}{n}.jpg": jpeg() for label in labels for n in range(2)}


def csv(text: bytes | str, *names: str) -> Files:
    return {**{name: jpeg() for name in names or ("a.jpg", "b.jpg")}, "labels.csv": text}


def jsonl(*rows: Mapping[str, Any], start: str = "") -> Files:
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return {"train/a.jpg": jpeg(), "train/b.jpg": jpeg(), "train/metadata.jsonl": f"{start}{lines}\n"}


CAT: Mapping[str, Any] = {"file_name": "a.jpg", "label": "cat"}
DOG: Mapping[str, Any] = {"file_name": "b.jpg", "label": "dog"}
LABELS = ["cat", "dog"]


def cells() -> list[dict[str, Any]]:
    return [{"bytes": png(), "path": f"p{n}.png"} for n in range(2)]


def parquet(features: Mapping[str, Any] | None = None, **columns: Any) -> Files:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"image": cells(), **columns})
    if features:
        about = {"info": {"features": {"image": {"_type": "Image"}, **features}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return {"data/train-00000-of-00001.parquet": file.getvalue()}


def scores() -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "score": [0.5]}), file)
    return file.getvalue()


def shard(name: str, files: Callable[[], Files]) -> Callable[[Path], object]:
    return lambda folder: write(folder, {name: tar_file(files())})


def packed(marked: bool, *names: str) -> Callable[[Path], None]:
    return lambda folder: write_zip(folder / "set.zip", {name: png() for name in names}, marked)


def beside_a_tar(folder: Path) -> None:
    write(folder, {**folders("bus", "car"), "backup.tar": tar_file({"notes.txt": "x"})})


def img2dataset() -> Files:
    files: dict[str, bytes | str] = {}
    for number in range(2):
        facts = {"caption": CAPTION, "url": "http://x.test/a.jpg", "key": f"{number:09}", "status": "success"}
        files[f"{number:09}.jpg"] = jpeg()
        files[f"{number:09}.txt"], files[f"{number:09}.json"] = CAPTION, json.dumps(facts)
    return files


CAPTION = "A dog runs over the wet grass, seen from the side"


def cats_and_dogs(split: str = "") -> tuple[Seen, ...]:
    return (Seen("cat", split), Seen("dog", split))


def both(*labels: str, split: str = "") -> tuple[Seen, ...]:
    return tuple(Seen(label, split) for label in labels for _ in range(2))


BUS_AND_CAR = both("bus", "car")
LARGEST = {"label": "largest"}
CAT_MASK = Seen("", "train", ("cat",))
NFD, NFC = "cafe\u0301", "caf\u00e9"

CASES: dict[str, Callable[[], Case]] = {
    # YOLO
    "yolo_yaml_words": lambda: Case(
        yolo_words("yes", "no", "on", "1e3", "2024-01-01", "car"),
        tuple(Seen(word, "train") for word in ("yes", "no", "on", "1e3", "2024-01-01", "car")),
    ),
    "yolo_yaml_more_words": lambda: Case(
        yolo_words("null", "0x1F", "12:30:00", "010", "1_000", "~", "1.50", "off"),
        tuple(Seen(word, "train") for word in ("null", "0x1F", "12:30:00", "010", "1_000", "~", "1.50", "off")),
    ),
    "yolo_bom_label": lambda: Case(yolo(codecs.BOM_UTF8 + b"1 0.5 0.5 1 1\r\n"), (Seen("dog", "train"),)),
    "yolo_with_confidence": lambda: Case(yolo("1 0.5 0.5 1 1 0.93\n"), (), told=("a.txt: Line 1",)),
    "yolo_commas": lambda: Case(yolo("1, 0.5, 0.5, 1, 1\n"), (), told=("a.txt: Line 1",)),
    "yolo_names_with_a_gap": lambda: Case(yolo("2 0.5 0.5 1 1\n", "{'0': cat, 2: dog}"), (Seen("dog", "train"),)),
    "yolo_flat_labelimg": lambda: Case(
        {"classes.txt": "cat\ndog\n", **whole_boxes("p0", "p1")}, cats_and_dogs(), or_told=".txt"
    ),
    "yolo_cvat11": lambda: Case(
        {
            "obj.names": "cat\ndog\n",
            "obj.data": "classes = 2\nnames = obj.names\ntrain = train.txt\n",
            "train.txt": "obj_train_data/p0.jpg\nobj_train_data/p1.jpg\n",
            **whole_boxes("obj_train_data/p0", "obj_train_data/p1"),
        },
        (Seen("cat", ANY), Seen("dog", ANY)),
        told=None,
        or_told="p0.txt",
    ),
    "yolo_flat_yaml": lambda: Case(
        {"data.yaml": "train: train\nval: train\nnames: [cat, dog]\n", **whole_boxes("train/p0", "train/p1")},
        cats_and_dogs("train"),
    ),
    "yolo_capital_folders": lambda: Case(
        {
            "data.yaml": "train: Images/train\nval: Images/train\nnames: [cat, dog]\n",
            "Images/train/a.jpg": jpeg(),
            "Labels/train/a.txt": "1 0.5 0.5 1 1\n",
        },
        (Seen("dog", "train"),),
    ),
    # COCO
    "coco_plain": lambda: Case(coco(), (CAT_MASK,), plan=Plan("coco", "train")),
    "coco_text_image_id": lambda: Case(
        coco(27, "27"),
        (CAT_MASK,),
        or_told="27",
        plan=Plan("coco", "train", LARGEST, (Seen("cat", "train", ("cat",)),), or_told="27"),
    ),
    "coco_text_category_id": lambda: Case(
        coco(category="1"),
        (CAT_MASK,),
        plan=Plan("coco", "train", LARGEST, (Seen("cat", "train", ("cat",)),)),
    ),
    "coco_listed_text_category_id": lambda: Case(
        coco(listed="1"),
        (CAT_MASK,),
        plan=Plan("coco", "train", LARGEST, (Seen("cat", "train", ("cat",)),)),
    ),
    "coco_bom": lambda: Case(coco(start="\ufeff"), (CAT_MASK,), plan=Plan("coco", "train")),
    "coco_same_image_id_twice": lambda: Case(
        coco_twins(), ANY, told=(" id",), plan=Plan("coco", "train", LARGEST, ANY, or_told=" id")
    ),
    "coco_category_id_twice": lambda: Case(
        {
            **coco(),
            "annotations/instances_train.json": coco_table(
                [coco_image()],
                [{"id": 1, "image_id": 1, "category_id": 1, **SQUARE}],
                [{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}],
            ),
        },
        (CAT_MASK,),
        told=("“dog”",),
        plan=Plan("coco", "train", seen=ANY, or_told="“dog”"),
    ),
    "coco_2017_trio": lambda: Case(
        coco_trio("instances", "captions", "person_keypoints"),
        (Seen("", "validation", ("person",), "A person on a road."),),
        told=None,
        plan=Plan("coco", "val", LARGEST, (Seen("person", "validation", ("person",)),)),
    ),
    "coco_captions_alone": lambda: Case(
        coco_trio("captions"), (Seen("", "validation", None, "A person on a road."),), told=None
    ),
    # Folders
    "folder_plain": lambda: Case(folders("bus", "car"), BUS_AND_CAR, plan=Plan("imagefolder")),
    "folder_class_called_train": lambda: Case(
        folders("bus", "car", "train"),
        both("bus", "car", "train"),
        layouts=("", "folder", "torchvision"),
        plan=Plan("imagefolder"),
    ),
    "folder_class_called_test": lambda: Case(
        folders("fever", "rash", "test", "val"), both("fever", "rash", "test", "val"), plan=Plan("imagefolder")
    ),
    "folder_face_masks": lambda: Case(
        folders("mask", "no_mask"),
        both("mask", "no_mask"),
        layouts=("", "folder", "torchvision"),
        plan=Plan("imagefolder"),
    ),
    "folder_classes_of_format_names": lambda: Case(
        folders("gloves", "masks", "labels", "images", "data"),
        both("gloves", "masks", "labels", "images", "data"),
        plan=Plan("imagefolder"),
    ),
    "folder_one_split_alone": lambda: Case(
        folders("train/bus", "train/car"), both("bus", "car", split="train"), plan=Plan("imagefolder", "train")
    ),
    "folder_stray_csv": lambda: Case(
        {**folders("bus", "car"), "class_counts.csv": "class,count\nbus,2\ncar,2\n"},
        BUS_AND_CAR,
        told=None,
        plan=Plan("imagefolder"),
    ),
    "folder_with_a_list_of_one": lambda: Case(
        {**folders("bus", "car"), "labels.csv": "file_name,label\nbus/bus0.jpg,tram\n"},
        BUS_AND_CAR,
        told=("CSV or lines of JSON it has 1 image: choose the format “csv”",),
    ),
    "folder_with_a_list_that_is_chosen": lambda: Case(
        {**folders("bus", "car"), "labels.csv": "file_name,label\nbus/bus0.jpg,tram\n"},
        (Seen("tram"),),
        told=("car1.jpg: No row names it",),
        layouts=("csv",),
    ),
    "folder_stray_parquet": lambda: Case(
        {**folders("bus", "car"), "predictions.parquet": scores()}, BUS_AND_CAR, told=None, plan=Plan("imagefolder")
    ),
    "folder_stray_yaml": lambda: Case(
        {**folders("bus", "car"), "config.yaml": "names: 3\n"}, BUS_AND_CAR, told=None, plan=Plan("imagefolder")
    ),
    "folder_stray_tar": lambda: Case(beside_a_tar, BUS_AND_CAR, told=None, plan=Plan("imagefolder")),
    "folder_stray_json": lambda: Case(
        {**folders("bus", "car"), "annotations/notes.json": '{"images": []}'},
        BUS_AND_CAR,
        told=None,
    ),
    "folder_binary_masks": lambda: Case(
        {"images/a.png": png(), "masks/a.png": mask(255)},
        (Seen("", "", ("background", "polyp")),),
        told=("255",),
        classes="0 background, 255 polyp",
        plan=Plan("folder", options={"mask_classes": "0 background, 255 polyp"}),
    ),
    "folder_binary_masks_of_a_list": lambda: Case(
        {"images/a.png": png(), "masks/a.png": mask(255), "classes.txt": "0 background\n255 polyp"},
        (Seen("", "", ("background", "polyp")),),
        told=("255",),
        plan=Plan("folder"),
    ),
    "folder_binary_masks_without_a_name": lambda: Case(
        {"images/a.png": png(), "masks/a.png": mask(255)},
        (Seen("", "", ("background",)),),
        told=("255",),
        classes="0 background",
    ),
    "folder_voc": lambda: Case(
        {
            "VOC2012/JPEGImages/2007_000032.jpg": jpeg(),
            "VOC2012/SegmentationClass/2007_000032.png": mask(),
            "VOC2012/ImageSets/Segmentation/train.txt": "2007_000032\n",
            "VOC2012/Annotations/2007_000032.xml": "<annotation/>",
        },
        (Seen("", ANY, ("background", "polyp")),),
        told=None,
        classes=CLASSES,
        plan=Plan("folder", options={"mask_classes": CLASSES}),
    ),
    "folder_roboflow_masks": lambda: Case(
        {
            **{f"train/p{n}.jpg": jpeg() for n in range(2)},
            **{f"train/p{n}_mask.png": mask() for n in range(2)},
            "train/_classes.csv": "Pixel Value, Class\n0, background\n1, cat\n",
        },
        (Seen("", "train", ("background", "cat")),) * 2,
        told=None,
    ),
    "folder_roboflow_multiclass": lambda: Case(
        {
            **{f"train/p{n}.jpg": jpeg() for n in range(2)},
            "train/_classes.csv": "filename, cat, dog\np0.jpg, 1, 0\np1.jpg, 0, 1\n",
        },
        cats_and_dogs("train"),
        or_told="_classes.csv",
    ),
    "folder_kohya_captions": lambda: Case(
        {f"10_dog/p{n}.{kind}": png() if kind == "png" else CAPTION for n in range(2) for kind in ("png", "txt")},
        (Seen(ANY, "", None, CAPTION),) * 2,
        told=None,
        or_told=".txt",
    ),
    "folder_nfd_and_nfc": lambda: Case(
        {f"train/{NFC}/a.jpg": jpeg(), f"test/{NFD}/b.jpg": jpeg()},
        (Seen(NFC, "train"), Seen(NFC, "test")),
        told=None,
        plan=Plan("imagefolder", "test", seen=(Seen(NFC, "test"),)),
    ),
    "csv_nfd_and_nfc": lambda: Case(
        csv(f"file_name,label\na.jpg,{NFC}\nb.jpg,{NFD}\n"), (Seen(NFC), Seen(NFC)), told=None, plan=Plan("csv")
    ),
    "jsonl_nfd_and_nfc": lambda: Case(
        jsonl({**CAT, "label": NFC}, {**DOG, "label": NFD}), (Seen(NFC, "train"), Seen(NFC, "train")), told=None
    ),
    "parquet_nfd_and_nfc": lambda: Case(
        parquet(label=[NFC, NFD]),
        (Seen(NFC, "train"), Seen(NFC, "train")),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    # Archives
    "zip_mac_utf8_without_mark": lambda: Case(
        packed(False, f"{NFC}/a.png", "猫/b.png", "dog/c.png"),
        (Seen(NFC), Seen("dog"), Seen("猫")),
        told=None,
        source="set.zip",
        plan=Plan("imagefolder"),
    ),
    "zip_of_macos_names": lambda: Case(
        packed(True, f"{NFD}/a.png", "dog/b.png"), (Seen(NFC), Seen("dog")), source="set.zip", plan=Plan("torchvision")
    ),
    "zip_with_mark": lambda: Case(
        packed(True, f"{NFC}/a.png", "猫/b.png"), (Seen(NFC), Seen("猫")), source="set.zip", plan=Plan("imagefolder")
    ),
    # WebDataset
    "wds_img2dataset": lambda: Case(
        shard("00000.tar", img2dataset),
        (Seen("", "", None, CAPTION),) * 2,
        told=None,
        plan=Plan("webdataset"),
    ),
    "wds_caption_alone": lambda: Case(
        shard("00000.tar", lambda: {"a.jpg": jpeg(), "a.txt": CAPTION}),
        (Seen("", "", None, CAPTION),),
        told=None,
        plan=Plan("webdataset"),
    ),
    "wds_dotted_key_alone": lambda: Case(
        shard("train-000000.tar", lambda: {"a.b.jpg": jpeg(), "a.b.cls": "dog", "a.b.json": "{}"}),
        (Seen("dog", "train"),),
        or_told="a.b",
        plan=Plan("webdataset", "train", or_told="a.b"),
    ),
    "wds_split_in_middle": lambda: Case(
        shard("imagenet1k-validation-00.tar", lambda: {"a.jpg": jpeg(), "a.cls": "3"}),
        (Seen("3", "validation"),),
        plan=Plan("webdataset", "validation"),
    ),
    # CSV
    "csv_plain": lambda: Case(csv("file_name,label\na.jpg,cat\nb.jpg,dog\n"), cats_and_dogs(), plan=Plan("csv")),
    "csv_spaces": lambda: Case(
        csv("file_name, label\na.jpg, cat\nb.jpg ,cat \n"), (Seen("cat"), Seen("cat")), plan=Plan("csv")
    ),
    "csv_capital_label_only": lambda: Case(
        csv("filename,Label\na.jpg,cat\nb.jpg,dog\n"), cats_and_dogs(), plan=Plan("csv")
    ),
    "csv_capital_columns": lambda: Case(
        csv("Filename,LABEL,Split\na.jpg,cat,train\nb.jpg,dog,train\n"), cats_and_dogs("train"), plan=Plan("csv")
    ),
    "csv_same_columns": lambda: Case(
        csv("file_name,label,label\na.jpg,cat,animal\nb.jpg,dog,animal\n"),
        ANY,
        told=("label",),
        plan=Plan("csv", seen=ANY, or_told="label"),
    ),
    "csv_cr_only": lambda: Case(csv("file_name,label\ra.jpg,cat\rb.jpg,dog\r"), cats_and_dogs(), plan=Plan("csv")),
    "csv_sep_line": lambda: Case(
        csv("sep=;\r\nfile_name;label\r\na.jpg;cat\r\nb.jpg;dog\r\n"), cats_and_dogs(), plan=Plan("csv")
    ),
    "csv_utf16": lambda: Case(csv("file_name,label\na.jpg,cat\n".encode("utf-16")), (), told=("not in UTF-8",)),
    "csv_of_other_files": lambda: Case(
        csv("image,label\n/home/ada/a.jpg,cat\n"), (), told=("labels.csv, line 2: It names an image",)
    ),
    "csv_own_columns": lambda: Case(
        csv("file_name,label,role,edits,facts\na.jpg,cat,user,cropped twice,x\nb.jpg,dog,assistant,,3\n"),
        cats_and_dogs(),
        told=None,
        plan=Plan("csv"),
    ),
    # Parquet and lines of JSON
    "parquet_plain": lambda: Case(parquet(label=LABELS), cats_and_dogs("train"), plan=Plan("huggingface", "train")),
    "parquet_capital_label": lambda: Case(
        parquet(Label=LABELS), cats_and_dogs("train"), plan=Plan("huggingface", "train")
    ),
    "parquet_controlnet": lambda: Case(
        parquet(
            {"conditioning_image": {"_type": "Image"}, "text": {"dtype": "string", "_type": "Value"}},
            conditioning_image=cells(),
            text=["a", "b"],
        ),
        (Seen("", "train", None, "a"), Seen("", "train", None, "b")),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    "parquet_edit_pairs": lambda: Case(
        parquet(edited_image=cells(), original_image=cells(), edit_prompt=["a", "b"]),
        (Seen("", "train", None, "a"), Seen("", "train", None, "b")),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    "parquet_decimal": lambda: Case(
        parquet(label=LABELS, price=[decimal.Decimal("1.5"), decimal.Decimal("2.5")]),
        cats_and_dogs("train"),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    "parquet_dates": lambda: Case(
        parquet(label=LABELS, taken=[datetime.date(2024, 1, 1)] * 2, at=[datetime.datetime(2024, 1, 1)] * 2),
        cats_and_dogs("train"),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    "parquet_nan": lambda: Case(
        parquet(label=LABELS, score=[1.5, float("nan")]),
        cats_and_dogs("train"),
        told=None,
        or_told="NaN",
        plan=Plan("huggingface", "train"),
    ),
    "parquet_caption_list": lambda: Case(
        parquet(caption=[["one", "two"], ["three", "four"]]),
        (Seen("", "train", None, "one"), Seen("", "train", None, "three")),
        told=None,
        or_told="caption",
        plan=Plan("huggingface", "train"),
    ),
    "parquet_labels_list": lambda: Case(
        parquet(label=[["cat"], ["dog", "cat"]]),
        ANY,
        told=("label",),
        plan=Plan("huggingface", "train", seen=(), or_told="label"),
    ),
    "parquet_role_column": lambda: Case(
        parquet(label=LABELS, role=["user", "assistant"]),
        cats_and_dogs("train"),
        told=None,
        plan=Plan("huggingface", "train"),
    ),
    "jsonl_role_column": lambda: Case(
        jsonl({**CAT, "role": "user"}, {**DOG, "role": "assistant"}), cats_and_dogs("train"), told=None
    ),
    "jsonl_bom": lambda: Case(jsonl(CAT, DOG, start="\ufeff"), cats_and_dogs("train")),
    "jsonl_one_split_alone": lambda: Case(jsonl(CAT, DOG), cats_and_dogs("train")),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Workspace for all cases. No picture occurs twice."""
    with Workspace(tmp_path_factory.mktemp("workspace")) as opened:
        yield opened


def written(case: Case, folder: Path) -> Path:
    """Write the files of a case. Return the path to import."""
    if callable(case.files):
        case.files(folder)
    else:
        write(folder, case.files)
    return folder / case.source if case.source else folder


def classes_in(image: Image.Image, names: Mapping[int, str]) -> tuple[str, ...]:
    numbers = np.unique(np.asarray(image)).tolist()
    return tuple(sorted(names[number] for number in numbers if number in names))


def imported(workspace: Workspace, source: Path, case: Case, layout: str) -> tuple[list[Seen], list[str]]:
    """Import the files. Return the images, and the rows of the report as texts."""
    done = bring_in(workspace, source, layout=layout, classes=case.classes)
    assert not done.already
    number = done.imported.id
    seen = []
    for image in workspace.imports.images(number):
        drawn = None
        if image.mask is not None:
            drawn = classes_in(Image.open(workspace.images.path(image.mask)), image.mask_classes)
        words = image.caption or next(
            (str(image.facts[key]) for key in ("text", "edit_prompt") if key in image.facts), ""
        )
        seen.append(Seen(image.label, image.split, drawn, words))
    return seen, [f"{row.file}: {row.reason}" for _, row in workspace.imports.rows(number, limit=1000)]


def planned(source: Path, plan: Plan) -> tuple[list[Seen], list[str]]:
    """Read the data set in place as a batch does. Return the images and the messages about them."""
    try:
        data_set = open_data_set(source, plan.layout, plan.split, **plan.options)
        seen, told = [], []
        for item in data_set.items():
            try:
                content = data_set.read(item.key, item.stamp)
            except UserError as error:
                told.append(f"{item.key}: {error}")
                continue
            drawn = content.mask and classes_in(content.mask, data_set.mask_classes)
            seen.append(Seen(item.label, item.split, drawn or None))
        return seen, [*told, *(f"{row.file}: {row.reason}" for row in data_set.left_out)]
    except UserError as error:
        return [], [str(error)]


def parts(seen: Sequence[Seen], words: bool) -> list[Seen]:
    """Return the images sorted by label and split. Without `words`, their captions are dropped."""
    images = [image if words else image._replace(words="") for image in seen]
    return sorted(images, key=lambda image: [str(part) if part is not ANY else "" for part in image[:2]])


def same(found: Sequence[Seen], expected: Sequence[Seen], words: bool) -> bool:
    if expected is ANY:
        return True
    left = parts(found, words)
    return len(left) == len(expected) and all(
        tuple(one) == tuple(other) for one, other in zip(left, parts(expected, words), strict=True)
    )


IMPORTED = [f"{name}:{layout}" if layout else name for name, case in CASES.items() for layout in case().layouts]
PLANNED = [name for name, case in CASES.items() if case().plan is not None]


@pytest.mark.parametrize("name", IMPORTED)
def test_the_import_takes_what_is_there_and_tells_what_is_not_taken(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    case, layout = CASES[name.partition(":")[0]](), name.partition(":")[2]
    seen, told = imported(workspace, written(case, tmp_path), case, layout)
    whole = same(seen, case.seen, words=True) and (
        case.told is None or (all(any(words in row for row in told) for words in case.told) if case.told else not told)
    )
    assert whole or (case.or_told and any(case.or_told in row for row in told)), (seen, told)


@pytest.mark.parametrize("name", PLANNED)
def test_a_batch_reads_the_same_in_place(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    plan = case.plan
    assert plan is not None
    seen, told = planned(written(case, tmp_path), plan)
    expected = case.seen if plan.seen is None else plan.seen
    whole = same(seen, expected, words=False) and expected is not ANY
    assert whole or (plan.or_told and any(plan.or_told in row for row in told)), (seen, told)
