"""An odd line or file of an import has a row in its report, and the good images beside it come in."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.test_sets import Split
from formats import files as reading_files
from formats import naming
from formats import source as reading_source
from formats.exporting import export
from formats.naming import Names, folded
from formats.reading import read
from tests.formats.test_formats import SET, STREET, Maker, assert_same
from tests.formats.test_import import BOAT, encoded, names, picture, put, told

SQUARE = [[0, 0, 24, 0, 24, 32, 0, 32]]


def coco(folder: Path, entry: dict[str, Any], annotation: dict[str, Any], categories: Any = ()) -> Path:
    """Write a COCO set with the good image 1 and the odd image 2."""
    images = [{"id": n, "file_name": f"{n}.png", "width": 48, "height": 32} for n in (1, 2)]
    held = {
        "images": [images[0], {**images[1], **entry}],
        "annotations": [
            {"image_id": 1, "category_id": 5, "segmentation": SQUARE, "area": 768},
            {"image_id": 2, "category_id": 5, "segmentation": SQUARE, "area": 768, **annotation},
            {"image_id": 2, "category_id": 5, "segmentation": SQUARE, "area": 1},
        ],
        "categories": [*categories, {"id": 5, "name": "dog"}],
    }
    put(folder, {"1.png": picture(), "2.png": picture(BOAT)})
    return put(folder, {"instances.json": json.dumps(held)})


@pytest.mark.parametrize(
    ("entry", "annotation", "came", "said"),
    [
        ({}, {"area": "big"}, ["1", "2"], ""),
        ({}, {"area": [1]}, ["1", "2"], ""),
        ({}, {"area": float("nan")}, ["1", "2"], ""),
        ({}, {"area": 10**400}, ["1", "2"], ""),
        ({}, {"category_id": [1]}, ["1"], "a category that “categories” does not list"),
        ({}, {"category_id": {"a": 1}}, ["1"], "a category that “categories” does not list"),
        ({}, {"image_id": [2]}, ["1", "2"], ""),
        ({"id": [2]}, {}, ["1", "2"], ""),
        ({"width": float("inf")}, {}, ["1"], "width, height and mask_classes keys must be numbers"),
        ({"height": "9" * 5000}, {}, ["1"], "width, height and mask_classes keys must be numbers"),
        ({"mask_classes": {"300": "x"}}, {}, ["1"], "a number outside of 0 to 255"),
        ({"file_name": ["2.png"]}, {}, ["1"], "an image that is not there"),
    ],
)
def test_an_odd_entry_of_coco(
    entry: dict[str, Any], annotation: dict[str, Any], came: list[str], said: str, tmp_path: Path
) -> None:
    found = read(coco(tmp_path / "x", entry, annotation), tmp_path / "in")
    assert names(found) == came and found.examples[0].mask is not None
    assert said in told(found).get("instances.json, image 2", "")


def test_an_odd_category_of_coco(tmp_path: Path) -> None:
    found = read(coco(tmp_path / "x", {}, {"category_id": None}, [{"id": [1], "name": "cat"}]), tmp_path / "in")
    assert names(found) == ["1"] and "does not list" in told(found)["instances.json, image 2"]


@pytest.mark.parametrize("odd", [{"file": ["a"]}, {"file": {"a": 1}}, {"file": None}, {"mask_file": ["a"]}])
def test_an_odd_line_of_records(odd: dict[str, Any], tmp_path: Path) -> None:
    maker = Maker(tmp_path / "images")
    folder = export(SET, [maker.example("a", "bird"), maker.example("b", "bird")], tmp_path / "out", "torchvision")
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    put(folder, {"records.jsonl": f"{json.dumps({**lines[0], **odd})}\n{json.dumps(lines[1])}\n"})
    found = read(folder, tmp_path / "in")
    assert names(found) == ["a", "b"] and found.examples[1].facts


def noted(orientation: Any, kind: int) -> bytes:
    """Return EXIF data whose orientation has the TIFF type `kind`: 1 BYTE, 2 text, 7 UNDEFINED, 12 DOUBLE. Cameras
    write it.
    """
    data = struct.pack("<d", orientation) if isinstance(orientation, float) else orientation
    inside = len(data) <= 4
    entry = struct.pack("<HHI", 0x0112, kind, len(data) if kind != 12 else 1)
    place = data.ljust(4, b"\0") if inside else struct.pack("<I", 26)
    return b"Exif\0\0II*\0\x08\0\0\0\x01\0" + entry + place + bytes(4) + (b"" if inside else data)


@pytest.mark.parametrize(
    ("orientation", "kind"), [(b"\x06", 1), (b"\x06\0\0\0", 7), (b"abc\0", 2), (float("nan"), 12), (6.5, 12)]
)
def test_an_odd_orientation_is_none(orientation: bytes | float, kind: int, tmp_path: Path) -> None:
    odd = encoded(picture(BOAT), "JPEG", exif=noted(orientation, kind), quality=95)
    assert 0x0112 in Image.open(put(tmp_path / "y", {"odd.jpg": odd}) / "odd.jpg").getexif()
    found = read(put(tmp_path / "x", {"good.png": picture(), "odd.jpg": odd}), tmp_path / "in")
    assert names(found) == ["good", "odd"] and found.rows == ()
    assert [Image.open(example.image).size for example in found.examples] == [(48, 32), (48, 32)]


@pytest.mark.parametrize("mode", ["P", "LA", "1", "RGB", "L"])
def test_a_list_with_the_true_hash_of_its_file(mode: str, tmp_path: Path) -> None:
    """The list's facts are imported, whether the file is stored unchanged or not. The result can be exported again."""
    image = picture().convert(mode)
    data = encoded(image)
    line = {"file_name": "a.png", "sha256": hashlib.sha256(data).hexdigest(), "caption": "A bird.", "weather": "snow"}
    source = put(tmp_path / "x", {"a.png": data, "b.png": picture(BOAT)})
    put(source, {"metadata.jsonl": f'{json.dumps(line)}\n{{"file_name": "b.png"}}\n'})
    found = read(source, tmp_path / "in")
    assert names(found) == ["a", "b"] and found.rows == ()
    first = found.examples[0]
    assert first.caption == "A bird." and first.facts == {"weather": "snow"}
    assert Image.open(first.image).mode in ("L", "RGB")
    assert first.sha == hashlib.sha256(first.image.read_bytes()).hexdigest()


@pytest.mark.parametrize("error", [ValueError("odd"), TypeError("odd"), ZeroDivisionError(), SyntaxError("odd")])
def test_whatever_a_decoder_raises_is_said_of_the_file(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode: Callable[..., Any] = reading_source.read_mask

    def raising(data: bytes, *about: Any) -> Any:
        if Image.open(io.BytesIO(data)).mode == "P":
            raise error
        return decode(data, *about)

    monkeypatch.setattr(reading_source, "read_mask", raising)
    mask = Image.new("L", (48, 32), 1)
    source = put(tmp_path / "x", {"images/a.png": picture(), "masks/a.png": mask, "classes.txt": "0 sky, 1 road"})
    put(source, {"images/b.png": picture(BOAT), "masks/b.png": mask.convert("P")})
    found = read(source, tmp_path / "in")
    assert names(found) == ["a"] and "cannot be read" in told(found)["images/b.png"]


COMPOSED, APART = "\u00e9.png", "e\u0301.png"


@pytest.mark.parametrize("layout", ["imagefolder", "csv", "coco"])
def test_two_names_that_differ_by_their_unicode_form_keep_their_labels(layout: str, tmp_path: Path) -> None:
    """The files are in a zip, since a file system may hold only one of two such names."""
    images = {COMPOSED: picture(), APART: picture(BOAT)}
    labels = {COMPOSED: "bird", APART: "boat"}
    if layout == "imagefolder":
        lines = [json.dumps({"file_name": name, "label": label}, ensure_ascii=False) for name, label in labels.items()]
        table = {"metadata.jsonl": "\n".join(lines)}
    elif layout == "csv":
        table = {"labels.csv": "\n".join(["image,label", *(f"{name},{label}" for name, label in labels.items())])}
    else:
        entries = [{"file_name": name, "width": 48, "height": 32, "label": label} for name, label in labels.items()]
        table = {"a.json": json.dumps({"images": entries, "annotations": []})}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, image in images.items():
            archive.writestr(name, encoded(image))
        for name, text in table.items():
            archive.writestr(name, text)
    found = read(tmp_path / "x.zip", tmp_path / "in", layout)
    shown = {example.label: np.asarray(Image.open(example.image)) for example in found.examples}
    assert set(shown) == {"bird", "boat"}
    assert (shown["bird"] == np.asarray(picture())).all() and (shown["boat"] == np.asarray(picture(BOAT))).all()


@pytest.mark.parametrize(("file", "listed"), [(COMPOSED, APART), (APART, COMPOSED), (APART, APART)])
def test_a_name_is_found_in_its_other_unicode_form(file: str, listed: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(file, encoded(picture()))
        archive.writestr("metadata.jsonl", json.dumps({"file_name": listed, "label": "bird"}))
    assert [example.label for example in read(tmp_path / "x.zip", tmp_path / "in").examples] == ["bird"]


WORDS = ("train", "test", "val", "data", "images", "mask", "masks", "labels", "annotations", "bird")
"""Labels that are also names of folders with other content."""


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("classes", [None, STREET])
def test_labels_that_are_called_as_folders_come_back(
    classes: dict[int, str] | None, bare: bool, tmp_path: Path
) -> None:
    maker = Maker(tmp_path / "images")
    splits: tuple[Split, ...] = ("train", "validation", "test", "")
    wanted = [maker.example(f"{word}-in-{split or 'none'}", word, split, classes) for word in WORDS for split in splits]
    folder = export(SET, wanted, tmp_path / "out", "torchvision")
    if bare:  # as if another program had written it
        for name in ("records.jsonl", "records.parquet", "manifest.json", "croissant.json", "README.md", "sheet.jpg"):
            (folder / name).unlink()
    found = read(folder, tmp_path / "in")
    assert found.rows == ()
    assert_same(found.examples, wanted, facts=not bare)


@pytest.mark.parametrize("top", ["", "birds/"])
def test_classes_of_a_foreign_folder_that_are_called_as_folders(top: str, tmp_path: Path) -> None:
    labels = {"train/train": 3, "train/cat": 3, "train/data": 2, "val/mask": 2, "val/cat": 1, "test/test": 1}
    wanted = [(label, number) for label, count in labels.items() for number in range(count)]
    source = put(
        tmp_path / "x",
        {
            f"{top}{label}/{label.replace('/', '-')}-{number}.png": picture((place * 10, 9, 9))
            for place, (label, number) in enumerate(wanted)
        },
    )
    found = read(source, tmp_path / "in")
    assert found.rows == ()
    assert {example.name: example.label for example in found.examples} == {
        f"{label.replace('/', '-')}-{number}": label.partition("/")[2] for label, number in wanted
    }


def test_one_class_called_as_a_split_is_a_label(tmp_path: Path) -> None:
    found = read(put(tmp_path / "x", {"train/train/a.png": picture()}), tmp_path / "in")
    assert [(example.label, example.split) for example in found.examples] == [("train", "train")]


@pytest.mark.parametrize("images", ["images", "data"])
@pytest.mark.parametrize("masks", ["masks", "labels"])
def test_folders_of_images_and_masks_below_a_split_are_no_labels(images: str, masks: str, tmp_path: Path) -> None:
    files: dict[str, bytes | Image.Image | str] = {"classes.txt": "0 sky, 1 road"}
    for number, split in enumerate(("train", "train", "val")):
        files[f"{split}/{images}/{number}.png"] = picture((number * 20, 9, 9))
        files[f"{split}/{masks}/{number}.png"] = Image.new("L", (48, 32), 1)
    files["train/cat/9.png"] = picture(BOAT)
    found = read(put(tmp_path / "x", files), tmp_path / "in")
    assert found.rows == ()
    assert [(example.name, example.label, example.mask is not None) for example in found.examples] == [
        *((str(number), "", True) for number in range(3)),
        ("9", "cat", False),
    ]


def test_masks_beside_classes_that_are_of_no_image_are_not_taken_for_a_class(tmp_path: Path) -> None:
    files: dict[str, bytes | Image.Image | str] = {f"train/cat/{n}.png": picture((n * 20, 9, 9)) for n in range(3)}
    files |= {f"train/masks/{n}.png": Image.new("L", (48, 32), n) for n in range(3)}
    found = read(put(tmp_path / "x", files), tmp_path / "in")
    assert {example.label for example in found.examples} == {"cat"}
    assert all("mask of no image" in said for said in told(found).values()) and len(found.rows) == 3


@pytest.mark.slow
def test_numbered_labels_of_datasets_come_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = import_module("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["bird", "a boat", "cat"]),
            "weather": datasets.ClassLabel(names=["sun", "snow"]),
            "count": datasets.Value("int64"),
        }
    )
    columns = {"label": [2, 0, -1, 1], "weather": [0, 1, 1, -1], "count": [0, 1, 2, 3]}
    images = [{"bytes": encoded(picture((n * 20, 9, 9))), "path": None} for n in range(4)]
    made = datasets.Dataset.from_dict({"image": images, **columns}, features=features)
    (tmp_path / "x").mkdir()
    made.to_parquet(str(tmp_path / "x" / "train-00000.parquet"))
    found = read(tmp_path / "x", tmp_path / "in")
    by_count = {example.facts["count"]: example for example in found.examples}
    assert [by_count[n].label for n in range(4)] == ["cat", "bird", "", "a boat"] and found.rows == ()
    assert [by_count[n].facts.get("weather") for n in range(4)] == ["sun", "snow", "snow", None]


NAMED = b'{"info": {"features": {"label": {"names": ["bird"]}, "b": 3}}}'


@pytest.mark.parametrize("about", [b"[", b"[]", b"{}", NAMED])
def test_what_a_table_says_of_its_columns_may_be_odd(about: bytes, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    images = [{"bytes": encoded(picture((n, 9, 9)))} for n in (9, 99)]
    table = pyarrow.table({"image": images, "label": [0, 7]}).replace_schema_metadata({b"huggingface": about})
    (tmp_path / "x").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "x" / "a.parquet")
    found = read(tmp_path / "x", tmp_path / "in")
    if about == NAMED:
        assert [example.label for example in found.examples] == ["bird"]
        assert told(found) == {"a.parquet, row 2": "Its label is class 7, which the table does not name."}
    else:
        assert sorted(example.label for example in found.examples) == ["0", "7"]


def test_many_equal_names_are_numbered_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def counted(name: str) -> str:
        nonlocal tries
        tries += 1
        return folded(name)

    monkeypatch.setattr(naming, "folded", counted)
    names = Names()
    long = "x" * 150
    given = [names.take(words) for _ in range(2000) for words in ("image", "IMAGE", long, f"{long}y")]
    assert tries < 20 * len(given)
    assert len({folded(name) for name in given}) == len(given) and max(map(len, given)) <= naming.LONGEST
    assert given[0] == "image" and given[1] == "IMAGE-2" and given[4] == "image-3"
    assert Names().take("image-2") == "image-2"


@pytest.mark.parametrize("before", ["./", "././", ".\\"])
def test_an_archive_that_was_packed_from_within_its_folder(before: str, tmp_path: Path) -> None:
    files = {"cat/a.png": encoded(picture()), "dog/b.png": encoded(picture(BOAT)), ".DS_Store": b"x", "..": b"x"}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for name, data in files.items():
            packed.writestr(f"{before}{name}", data)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{before}{name}".replace("\\", "/"))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    for source in ("x.zip", "x.tar"):
        found = read(tmp_path / source, tmp_path / "in")
        assert [(example.name, example.label) for example in found.examples] == [("a", "cat"), ("b", "dog")]
        assert told(found) == {
            source: "1 hidden file was left out.",
            "..": "Its name leads out of the archive: pack it again.",
        }


def test_a_manifest_may_be_longer_than_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(tmp_path / "images")
    wanted = [maker.example(f"image-{number}", "bird", size=(16, 16), role="source") for number in range(20)]
    folder = export(SET, wanted, tmp_path / "out", "torchvision")
    (folder / "sheet.jpg").unlink()
    most = max(path.stat().st_size for path in folder.rglob("*.png"))
    assert (folder / "manifest.json").stat().st_size > most
    monkeypatch.setattr(reading_files.Folder.read, "__defaults__", (most,))
    found = read(folder, tmp_path / "in")
    assert found.header == SET and set(told(found)) == {"sheet.jpg"}
    assert_same(found.examples, wanted)


@pytest.mark.parametrize("name", ["manifest.json", "notes.json", "records.jsonl", "classes.json"])
def test_a_damaged_list_does_not_end_the_import(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("cat/a.png", encoded(picture()))
        archive.writestr("dog/b.png", encoded(picture(BOAT)))
        archive.writestr(name, b"{}" * 100)
        place = archive.getinfo(name).header_offset + 30 + len(name)
    data = bytearray((tmp_path / "x.zip").read_bytes())
    data[place + 5] ^= 1
    (tmp_path / "x.zip").write_bytes(data)
    found = read(tmp_path / "x.zip", tmp_path / "in")
    assert names(found) == ["a", "b"]
    assert name == "notes.json" or name in told(found)
