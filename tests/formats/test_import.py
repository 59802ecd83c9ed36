"""Imports of test sets from other tools: each problem has a row in the report, and the good images come in once."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.images import png_of
from formats.exporting import export
from formats.in_place import open_data_set
from formats.reading import read
from formats.types import Imported, TestSet
from tests.formats.test_formats import SET, STREET, Maker, assert_same, mixed, pixels, same
from tests.support.colour_profiles import P3, in_colours_of

BIRD, BOAT = (200, 30, 30), (30, 30, 200)


def picture(colour: tuple[int, int, int] = BIRD, size: tuple[int, int] = (48, 32)) -> Image.Image:
    """Return a picture that differs from its turned and mirrored versions."""
    image = Image.new("RGB", size, colour)
    image.paste((255, 255, 255), (0, 0, size[0] // 4, size[1] // 2))
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def mask_of(image: Image.Image) -> Image.Image:
    """Return a mask that is 1 where the picture is white."""
    return Image.fromarray((np.asarray(image.convert("L")) > 250).astype(np.uint8))


def put(folder: Path, files: dict[str, bytes | Image.Image | str]) -> Path:
    for name, held in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = held.encode() if isinstance(held, str) else held if isinstance(held, bytes) else encoded(held)
        path.write_bytes(data)
    return folder


def told(found: Imported) -> dict[str, str]:
    return {row.file: row.reason for row in found.rows}


def names(found: Imported) -> list[str]:
    return [example.name for example in found.examples]


def test_a_plain_folder_of_images_labels_masks_and_splits(tmp_path: Path) -> None:
    one, two, three = picture(), picture(BOAT), picture((0, 90, 0))
    source = put(
        tmp_path / "birds",
        {
            "train/images/bird/one.png": one,
            "train/masks/bird/one.png": mask_of(one),
            "val/images/boat/two.jpg": encoded(two, "JPEG"),
            "val/masks/boat/two_mask.png": mask_of(two),
            "val/masks/boat/nobody.png": mask_of(two),
            "test/bird/three.png": three,
            "classes.txt": "0 sky\n1 house",
            "notes.pdf": b"%PDF",
            ".DS_Store": b"x",
        },
    )
    found = read(source, tmp_path / "in")
    assert [(e.name, e.label, e.split, e.mask is not None) for e in found.examples] == [
        ("one", "bird", "train", True),
        ("three", "bird", "test", False),
        ("two", "boat", "validation", True),
    ]
    assert found.examples[0].mask_classes == {0: "sky", 1: "house"}
    assert same(found.examples[0].image, one) and same(found.examples[0].mask, mask_of(one))
    assert told(found) == {
        "birds": "1 hidden file was left out.",
        "val/masks/boat/nobody.png": "It is a mask of no image here: give both the same name.",
        "notes.pdf": "It is no image: PNG, JPEG, WebP, GIF, BMP and TIFF can be read.",
    }
    for example in found.examples:
        data = example.image.read_bytes()
        assert example.sha == hashlib.sha256(data).hexdigest() and data == png_of(Image.open(io.BytesIO(data)))
    only = read(source, tmp_path / "in", labels=["bird"])
    assert names(only) == ["one", "three"]
    assert told(only)["val/images/boat/two.jpg"].startswith("Its label “boat” is not a known one")


def test_one_folder_around_all_is_no_label(tmp_path: Path) -> None:
    source = put(tmp_path / "x", {"holiday/one.png": picture(), "holiday/two.png": picture(BOAT)})
    assert [(e.name, e.label) for e in read(source, tmp_path / "in").examples] == [("one", ""), ("two", "")]
    put(source, {"work/three.png": picture((1, 2, 3))})
    assert {e.label for e in read(source, tmp_path / "in").examples} == {"holiday", "work"}
    flat = put(tmp_path / "y", {"cat/1.png": picture(), "train/dog/2.png": picture(BOAT)})
    assert {(e.label, e.split) for e in read(flat, tmp_path / "in").examples} == {("cat", ""), ("dog", "train")}


@pytest.mark.parametrize("size", [(48, 32), (512, 510)])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_picture_and_its_mask_stay_together(
    orientation: int, kind: str, size: tuple[int, int], tmp_path: Path
) -> None:
    """The mask is stored like the pixels or like the upright picture. Both come out upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    lying = picture(size=size)
    source = put(tmp_path / "x", {"images/a.png": encoded(lying, kind, exif=exif), "masks/a.png": mask_of(lying)})
    put(source, {"classes.txt": "0 sky, 1 house", "images/b.png": picture(BOAT), "masks/b.png": mask_of(picture(BOAT))})
    found = read(source, tmp_path / "in")
    if orientation < 5:  # the mask's size does not tell which way it is stored
        assert names(found) == ["b"] and "unclear if its mask" in told(found)["images/a.png"]
        return
    turned = found.examples[0]
    assert names(found) == ["a", "b"] and "turned upright" in told(found)["images/a.png"]
    upright = Image.open(turned.image)
    assert upright.size == size[::-1] and turned.mask is not None and same(turned.mask, mask_of(upright))
    put(source, {"masks/a.png": mask_of(upright)})
    shown = read(source, tmp_path / "in").examples[0]
    assert shown.mask is not None and same(shown.mask, mask_of(upright)) and shown.sha == turned.sha


def test_deep_and_printed_pictures_are_converted_and_said(tmp_path: Path) -> None:
    deep = Image.fromarray((np.linspace(0, 65535, 48 * 32).reshape(32, 48)).astype(np.uint16))
    source = put(
        tmp_path / "x",
        {"deep.png": deep, "print.jpg": encoded(picture().convert("CMYK"), "JPEG"), "cut.png": encoded(picture())[:60]},
    )
    put(
        source,
        {"text.png": "no image", "empty.png": b"", "narrow.png": Image.new("RGB", (900, 20)), "good.png": picture()},
    )
    found = read(source, tmp_path / "in")
    assert names(found) == ["deep", "good", "print"]
    assert all(Image.open(example.image).mode == "RGB" for example in found.examples)
    kinds = {row.file: row.kind for row in found.rows}
    assert kinds == {
        **dict.fromkeys(("deep.png", "print.jpg"), "changed"),
        **dict.fromkeys(("cut.png", "text.png", "empty.png", "narrow.png"), "refused"),
    }
    assert "16 bits" in told(found)["deep.png"] and "CMYK" in told(found)["print.jpg"]


def test_colours_of_a_profile_are_converted_and_said_in_an_import_and_in_place(tmp_path: Path) -> None:
    wide, damaged = picture(), picture(BOAT)
    files: dict[str, bytes | Image.Image | str] = {
        "wide.png": encoded(in_colours_of(P3, wide), icc_profile=P3),
        "damaged.png": encoded(damaged, icc_profile=P3[:300]),
        "plain.png": picture((9, 9, 9)),
    }
    source = put(tmp_path / "x", {f"one/{name}": data for name, data in files.items()})
    found = read(source, tmp_path / "in")
    assert {Path(name).name for name in told(found)} == {"wide.png", "damaged.png"}
    in_place = open_data_set(source, "imagefolder")
    for key, shown in (("wide.png", wide), ("damaged.png", damaged)):
        (row,) = (row for row in found.rows if row.file.endswith(key))
        (example,) = (example for example in found.examples if example.name == Path(key).stem)
        (item,) = (item for item in in_place.items() if item.key.endswith(key))
        content = in_place.read(item.key)
        with Image.open(example.image) as stored:
            assert np.abs(np.asarray(stored, int) - np.asarray(shown, int)).max() <= 2
            assert same(content.picture.image, stored) and content.picture.notes == (row.reason,)
        assert ("from “like P3” to sRGB" if key == "wide.png" else "colour profile") in row.reason


def test_two_files_of_one_content_come_once(tmp_path: Path) -> None:
    source = put(
        tmp_path / "x",
        {
            "train/bird/a.png": picture(),
            "train/bird/b.bmp": encoded(picture(), "BMP"),
            "train/boat/c.png": picture(),
            "test/bird/d.png": picture(),
        },
    )
    found = read(source, tmp_path / "in")
    assert [(e.name, e.split) for e in found.examples] == [("d", "test")]
    other_split = "It shows the same as test/bird/d.png, which is in another split: a set must not have it in both."
    assert told(found) == {
        "train/bird/a.png": other_split,
        "train/bird/b.bmp": other_split,
        "train/boat/c.png": "It shows the same as test/bird/d.png, which has the label “bird” and not “boat”.",
    }


def test_names_that_differ_by_case_or_unicode_form_only_both_come(tmp_path: Path) -> None:
    """The files are in a zip, since a file system may hold only one of two such names."""
    colours = iter([(n, 60, 90) for n in range(0, 200, 20)])
    packed = tmp_path / "x.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("Bird.png", "bird.png", "\u00e9.png", "e\u0301.png"):
            archive.writestr(f"images/{name}", encoded(picture(next(colours))))
    found = read(packed, tmp_path / "in")
    assert len(found.examples) == 4 and len({name.casefold() for name in names(found)}) == 4
    assert [row.kind for row in found.rows] == ["changed", "changed"]
    assert all("case or Unicode form only" in row.reason for row in found.rows)


def test_files_of_one_name_in_two_folders_both_come(tmp_path: Path) -> None:
    for number, folder in enumerate(("bird", "owl")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        picture((90 * number, 60, 90)).save(tmp_path / "in" / folder / "one.png")
    found = read(tmp_path / "in", tmp_path / "out")
    assert [(example.name, example.label) for example in found.examples] == [("one", "bird"), ("one-2", "owl")]
    assert [row.reason for row in found.rows] == ["Its name is that of another image too: it is called “one-2” here."]


def test_a_list_with_bad_lines(tmp_path: Path) -> None:
    lines = [
        {"file_name": "one.png", "label": "bird", "weather": "snow"},
        {"file_name": "gone.png", "label": "bird"},
        {"file_name": "../../../etc/passwd"},
        {"label": "bird"},
        {"file_name": "two.png", "mask_file_name": "gone-mask.png"},
        {"file_name": "three.png", "edits": "not json"},
        {"file_name": "four.png", "label": 3, "split": "val"},
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines) + '{"file_name": \n[1]\n\n' + "[" * 100_000
    colours = iter([(n, 60, 90) for n in range(0, 200, 20)])
    source = put(
        tmp_path / "x", {f"{name}.png": picture(next(colours)) for name in ("one", "two", "three", "four", "five")}
    )
    put(source, {"metadata.jsonl": text})
    found = read(source, tmp_path / "in")
    assert [(e.name, e.label, e.split, dict(e.facts)) for e in found.examples] == [
        ("four", "3", "validation", {}),
        ("one", "bird", "", {"weather": "snow"}),
        ("three", "", "", {"edits": "not json"}),
    ]
    assert found.layout == "imagefolder"
    assert [row.file for row in found.rows if row.kind == "refused"] == [
        *(f"metadata.jsonl, line {line}" for line in (2, 3, 4, 5, 8, 9, 11)),
        "five.png",
    ] and len(found.rows) == 9
    assert told(found)["metadata.jsonl, line 2"] == "It names an image that is not there (“gone.png”): add the file."


def test_a_csv_with_bad_lines(tmp_path: Path) -> None:
    source = put(
        tmp_path / "x",
        {
            "one.png": picture(),
            "two.png": picture(BOAT),
            "labels.csv": "image;label;weather\none.png;'=bird;snow\ngone.png;bird;\ntwo.png;boat\ntwo.png;boat;;;\n",
        },
    )
    found = read(source, tmp_path / "in")
    assert [(e.name, e.label, dict(e.facts)) for e in found.examples] == [("one", "=bird", {"weather": "snow"})]
    assert list(told(found)) == ["labels.csv, line 3", "labels.csv, line 4", "labels.csv, line 5", "two.png"]


def test_a_zip_that_means_harm(tmp_path: Path) -> None:
    packed, outside = tmp_path / "x.zip", tmp_path / "outside.png"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("good.png", encoded(picture()))
        archive.writestr("/abs.png", encoded(picture(BOAT)))
        archive.writestr("C:/windows.png", encoded(picture(BOAT)))
        archive.writestr("a/../../outside.png", encoded(picture(BOAT)))
        archive.writestr("bell\x07.png", encoded(picture(BOAT)))
        link = zipfile.ZipInfo("link.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("bomb.png", bytes(60_000_000), zipfile.ZIP_DEFLATED)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("good.png", encoded(picture(BOAT)))
    found = read(packed, tmp_path / "in")
    assert names(found) == ["good"] and same(found.examples[0].image, picture())
    reasons = told(found)
    assert set(reasons) == {
        *("/abs.png", "C:/windows.png", "a/../../outside.png", "bell�.png", "link.png", "bomb.png", "good.png")
    }
    assert "absolute path" in reasons["/abs.png"] and "leads out" in reasons["a/../../outside.png"]
    assert "link" in reasons["link.png"] and "far more" in reasons["bomb.png"] and "two files" in reasons["good.png"]
    assert not outside.exists()
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == [f"{found.examples[0].sha}.png"]


def test_a_tar_that_means_harm(tmp_path: Path) -> None:
    packed = tmp_path / "x.tar"
    with tarfile.open(packed, "w") as archive:

        def add(name: str, data: bytes = b"", **about: Any) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for field, value in about.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(data))

        add("good.png", encoded(picture()))
        add("/abs.png", encoded(picture(BOAT)))
        add("../up.png", encoded(picture(BOAT)))
        add("soft.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add("hard.png", type=tarfile.LNKTYPE, linkname="good.png")
        add("pipe.png", type=tarfile.FIFOTYPE)
        add("late.png", encoded(picture((9, 99, 9))))
    found = read(packed, tmp_path / "in")
    assert names(found) == ["good", "late"]
    assert set(told(found)) == {"/abs.png", "../up.png", "soft.png", "hard.png", "pipe.png"}
    cut = tmp_path / "cut.tar"
    cut.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    assert read(cut, tmp_path / "in").rows
    bomb = tmp_path / "bomb.tar.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(40):
            file.write(bytes(1_000_000))
    with pytest.raises(UserError, match="may be a zip bomb"):
        read(bomb, tmp_path / "in")
    assert not [path for path in (tmp_path / "in").iterdir() if path.name.startswith(".")]


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret", {"photo.png": picture(BOAT)})
    source = put(tmp_path / "x", {"good.png": picture()})
    os.symlink(secret / "photo.png", source / "link.png")
    os.symlink(secret, source / "folder")
    os.mkfifo(source / "pipe.png")
    found = read(source, tmp_path / "in")
    assert names(found) == ["good"] and set(told(found)) == {"link.png", "folder", "pipe.png"}


@pytest.mark.parametrize("source", ["missing", "text.txt", "cut.zip"])
def test_what_cannot_be_read_at_all_is_said(source: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(UserError, match=r"does not exist|that can be read"):
        read(tmp_path / source, tmp_path / "in")
    with pytest.raises(UserError, match="is no format"):
        read(put(tmp_path / "x", {"a.png": picture()}), tmp_path / "in", "tiff")
    (tmp_path / "empty").mkdir()
    assert "no image in it" in read(tmp_path / "empty", tmp_path / "in").rows[0].reason


def test_masks_that_do_not_fit_are_refused_with_their_image(tmp_path: Path) -> None:
    source = put(
        tmp_path / "x",
        {
            "images/a.png": picture(),
            "masks/a.png": Image.new("L", (48, 32), 9),
            "images/b.png": picture(BOAT),
            "masks/b.png": Image.new("L", (32, 48), 1),
            "images/c.png": picture((1, 2, 3)),
            "masks/c.png": Image.new("RGB", (48, 32), (200, 0, 0)),
            "images/d.png": picture((7, 8, 9)),
            "masks/d.png": Image.new("L", (48, 32), 1),
        },
    )
    found = read(source, tmp_path / "in", classes={1: "road"})
    assert names(found) == ["d"] and found.examples[0].mask_classes == {1: "road"}
    reasons = told(found)
    assert "without a name: 9" in reasons["images/a.png"] and "in colours" in reasons["images/c.png"]
    assert "32x48 pixels" in reasons["images/b.png"]


def test_a_foreign_coco_file(tmp_path: Path) -> None:
    """The file has outlines, run lengths as a list, boxes, an unknown category, a missing file and a damaged region."""
    entries = [{"id": n, "file_name": f"{n}.png", "width": 48, "height": 32} for n in range(1, 8)]
    counts = [0, 32 * 12, 32 * 36]  # the left quarter
    annotations = [
        {"image_id": 1, "category_id": 18, "segmentation": [[0, 0, 24, 0, 24, 32, 0, 32]], "area": 768},
        {"image_id": 1, "category_id": 3, "segmentation": {"size": [32, 48], "counts": counts}, "area": 384},
        {"image_id": 2, "category_id": 18, "bbox": [0, 0, 5, 5]},
        {"image_id": 3, "category_id": 99, "segmentation": [[0, 0, 9, 0, 9, 9]]},
        {"image_id": 5, "category_id": 3, "segmentation": {"size": [32, 48], "counts": "~~"}},
        {"image_id": 6, "category_id": 3, "segmentation": [[0, 0, 9, 0, 9, 9]], "area": 40},
        {"image_id": 6, "category_id": 18, "bbox": [0, 0, 5, 5]},
    ]
    held = {
        "images": [*entries, {"id": 8, "file_name": "8.png"}],
        "annotations": annotations,
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    }
    colours = iter([(n, 60, 90) for n in range(0, 200, 20)])
    images = {f"val2017/{n}.png": picture(next(colours)) for n in (1, 2, 3, 5, 6, 7, 8)}
    source = put(tmp_path / "x", {**images, "annotations/instances_val2017.json": json.dumps(held)})
    found = read(source, tmp_path / "in")
    assert found.layout == "coco"
    by_name = {example.name: example for example in found.examples}
    assert list(by_name) == ["1", "2", "6", "7"] and {e.split for e in found.examples} == {"validation"}
    assert by_name["2"].label == "dog" and by_name["7"].mask is None
    numbers = pixels(by_name["1"].mask or "")
    named = {name: number for number, name in by_name["1"].mask_classes.items()}
    assert (numbers[:, :12] == named["car"]).all() and (numbers[:, 13:23] == named["dog"]).all()
    assert (numbers[:, 25:] == 255).all()
    table = "annotations/instances_val2017.json"
    assert set(told(found)) == {f"{table}, image {n}" for n in (3, 4, 6, 8)} | {"val2017/5.png"}
    assert "99" in told(found)[f"{table}, image 3"] and "a box and no region" in told(found)[f"{table}, image 6"]


def test_a_foreign_yolo_set(tmp_path: Path) -> None:
    colours = iter([(n, 60, 90) for n in range(0, 200, 20)])
    images = {f"images/train/{n}.png": picture(next(colours)) for n in range(1, 6)}
    texts = {
        "labels/train/1.txt": "1 0 0 0.5 0 0.5 1 0 1\n",
        "labels/train/2.txt": "0 0.5 0.5 0.2 0.2\n",
        "labels/train/3.txt": "7 0 0 0.5 0 0.5 1\n",
        "labels/train/4.txt": "road\n",
    }
    source = put(tmp_path / "x", {**images, **texts, "data.yaml": "train: images/train\nnames: [sky, road]\n"})
    found = read(source, tmp_path / "in")
    assert names(found) == ["1", "2", "5"] and {e.split for e in found.examples} == {"train"}
    numbers = pixels(found.examples[0].mask or "")
    assert (numbers[:, :24] == 1).all() and (numbers[:, 25:] == 255).all(), "filled with its edge"
    assert set(told(found)) == {f"labels/train/{n}.txt" for n in (2, 3, 4)}
    put(source, {"data.yaml": "names: 3\n"})
    assert "data.yaml" in told(read(source, tmp_path / "in", "yolo"))


def test_shards_and_tables_that_are_damaged(tmp_path: Path) -> None:
    shard = tmp_path / "x" / "train-000000.tar"
    shard.parent.mkdir()
    with tarfile.open(shard, "w") as archive:
        for name, data in {
            "1.png": encoded(picture()),
            "1.cls": b"3",
            "2.png": encoded(picture(BOAT)),
            "2.jpg": encoded(picture(BOAT), "JPEG"),
            "3.cls": b"1",
            "4.png": encoded(picture((4, 4, 4))),
            "4.json": b"[",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    put(tmp_path / "x", {"val-000000.tar": b"no tar at all" * 100})
    found = read(tmp_path / "x", tmp_path / "in")
    assert [(e.name, e.label, e.split) for e in found.examples] == [("1", "3", "train")]
    assert set(told(found)) == {*(f"train-000000.tar/{n}" for n in (2, 3, 4)), "val-000000.tar"}
    tables = put(tmp_path / "y", {"data/train-00000.parquet": b"PAR1 no table"})
    assert "no Parquet file" in read(tables, tmp_path / "in").rows[0].reason


def test_what_was_changed_since_the_export_is_said(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "images")
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "torchvision")
    first = next((folder / "train").rglob("f-plain.png"))
    first.write_bytes(encoded(picture()))
    gone = next((folder / "test").rglob("h-plain.png"))
    gone.unlink()
    found = read(folder, tmp_path / "in")
    by_name = {example.name: example for example in found.examples}
    assert same(by_name["f-plain"].image, picture()) and by_name["f-plain"].facts == {}
    reasons = told(found)
    assert "not the one that its record tells of" in reasons[first.relative_to(folder).as_posix()]
    assert "it is not there" in reasons[gone.relative_to(folder).as_posix()]
    assert "h-plain" not in by_name and len(by_name) == len(wanted) - 1


def test_a_stopped_import_goes_on_and_a_second_one_changes_nothing(tmp_path: Path) -> None:
    wanted = mixed(Maker(tmp_path / "images"))
    folder = export(TestSet("x"), wanted, tmp_path / "out", "csv")

    def stop(_: Any) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        read(folder, tmp_path / "in", progress=stop)
    first = read(folder, tmp_path / "in")
    held = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "in").iterdir()}
    assert_same(first.examples, wanted)
    assert read(folder, tmp_path / "in") == first
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "in").iterdir()} == held


def test_a_hostile_record_is_bounded(tmp_path: Path) -> None:
    """A record has class numbers out of range, and the record after it is good."""
    maker = Maker(tmp_path / "images")
    folder = export(SET, [maker.example("a", "bird", "", STREET), maker.example("b", "bird")], tmp_path / "out", "coco")
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()
    bad = {**json.loads(lines[0]), "mask_classes": '{"300": "x"}', "mask_numbers": {"1": 999}}
    (folder / "records.jsonl").write_text(f"{json.dumps(bad)}\n{lines[1]}\n", encoding="utf-8")
    found = read(folder, tmp_path / "in")
    assert names(found) == ["a", "b"] and list(told(found)) == ["records.jsonl, line 1"]
    assert told(found)["records.jsonl, line 1"].startswith("The line cannot be read at its “mask_classes”: ")
    assert found.examples[0].mask_classes == STREET and found.examples[1].facts
