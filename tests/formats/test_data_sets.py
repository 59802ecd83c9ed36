"""Data sets read in place: folders of classes, ImageNet-1K, and the handling of bad input in each layout."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.images import png_of
from formats.in_place import DataSet, open_data_set
from formats.layouts import LAYOUTS
from tests.support.set_cases import picture

SYNSETS = {
    "n01440764": "tench, Tinca tinca",
    "n02012849": "crane",
    "n03126707": "crane",
}


def png(number: int, size: tuple[int, int] = (32, 32)) -> bytes:
    return png_of(picture(number, size))


def jpeg(number: int) -> bytes:
    file = io.BytesIO()
    picture(number).save(file, "JPEG")
    return file.getvalue()


def number_of_items(data_set: DataSet) -> int:
    return sum(1 for _ in data_set.items())


def put(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def tar_of(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def labels(data_set: DataSet) -> dict[str, str]:
    return {item.key: item.label for item in data_set.items()}


def why(data_set: DataSet, key: str, stamp: str = "") -> str:
    """Return the message with which reading an item is refused."""
    with pytest.raises(UserError) as refused:
        data_set.read(key, stamp)
    return str(refused.value)


def refusal(root: Path, layout: str, split: str = "", **more: str) -> str:
    """Return the message with which opening a data set is refused."""
    with pytest.raises(UserError) as refused:
        open_data_set(root, layout, split, **more)
    return str(refused.value)


_opened: list[str] | None = None
_hooked = False


@pytest.fixture
def opened_files() -> Iterator[list[str]]:
    """Paths of all files that this process opens during the test."""
    global _opened, _hooked

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _opened is not None and isinstance(arguments[0], str | bytes | os.PathLike):
            _opened.append(os.fsdecode(arguments[0]))

    if not _hooked:  # Python cannot remove an audit hook
        sys.addaudithook(note)
        _hooked = True
    _opened = []
    yield _opened
    _opened = None


def test_a_folder_of_classes(tmp_path: Path) -> None:
    files = {"cat/b.png": png(1), "cat/deep/a.jpg": jpeg(2), "dog/c.png": png(3), "README.md": b"hello"}
    data_set = open_data_set(put(tmp_path, files), "imagefolder")
    assert labels(data_set) == {"cat/b.png": "cat", "cat/deep/a.jpg": "cat", "dog/c.png": "dog"}
    assert (data_set.classes, data_set.split, number_of_items(data_set)) == (("cat", "dog"), "", 3)
    assert data_set.read("cat/deep/a.jpg").image == files["cat/deep/a.jpg"]
    assert data_set.read("cat/b.png").mask is None
    assert list(data_set.items()) == list(open_data_set(tmp_path, "imagefolder").items())


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_folder_of_classes_in_an_archive_has_the_same_items(tmp_path: Path, pack: Any) -> None:
    files = {"train/cat/a.png": png(1), "train/dog/b.png": png(2), "val/cat/c.png": png(3)}
    folder = open_data_set(put(tmp_path / "set", files), "imagefolder", "train")
    archive = put(tmp_path, {"set.archive": pack(files)}) / "set.archive"
    before = sorted(os.listdir(tmp_path))
    packed = open_data_set(archive, "imagefolder", "train")
    assert labels(packed) == labels(folder)
    assert [packed.read(key).image for key in labels(packed)] == [png(1), png(2)]
    assert sorted(os.listdir(tmp_path)) == before, "nothing is unpacked beside it"


def test_a_compressed_tar_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as archive:
        archive.add(put(tmp_path / "set", {"cat/a.png": png(1)}), "set")
    assert "make a plain tar of it" in refusal(tmp_path / "set.tar.gz", "imagefolder")


def test_the_split_is_never_guessed(tmp_path: Path) -> None:
    root = put(tmp_path, {"train/cat/a.png": png(1), "val/cat/b.png": png(2), "val/dog/c.png": png(3)})
    said = refusal(root, "imagefolder")
    assert said.startswith("Choose a split") and "train, val" in said
    data_set = open_data_set(root, "imagefolder", "val")
    assert {item.split for item in data_set.items()} == {"validation"}
    assert data_set.split == "validation"
    assert labels(open_data_set(root, "imagefolder", "validation")) == labels(data_set)
    assert open_data_set(root, "imagefolder", "train").classes == ("cat", "dog"), "the class list is that of the set"
    assert "it has train, val" in refusal(root, "imagefolder", "test")


def test_a_class_may_be_called_as_a_split_and_a_mixture_is_asked_about(tmp_path: Path) -> None:
    wheels = put(tmp_path / "wheels", {"car/a.png": png(1), "train/b.png": png(2)})
    assert labels(open_data_set(wheels, "imagefolder")) == {"car/a.png": "car", "train/b.png": "train"}
    mixed = put(tmp_path / "mixed", {"train/cat/a.png": png(1), "extra/b.png": png(2)})
    assert "give the folder of one split" in refusal(mixed, "imagefolder")
    assert "leave the split out" in refusal(wheels, "imagefolder", "train")


def test_what_is_in_no_class_is_told(tmp_path: Path) -> None:
    data_set = open_data_set(put(tmp_path, {"cat/a.png": png(1), "b.png": png(2)}), "imagefolder")
    for _ in range(2):  # one row, however often the items are listed
        assert list(labels(data_set)) == ["cat/a.png"]
        assert ["has no label" in row.reason for row in data_set.left_out] == [True]


def test_bad_images_are_refused_one_by_one(tmp_path: Path) -> None:
    whole = jpeg(1)
    files = {
        "cat/broken.jpg": whole[: len(whole) // 2],
        "cat/empty.png": b"",
        "cat/good.jpg": whole,
        "cat/text.png": b"<html>not found</html>",
        "cat/tiny.png": png_of(Image.new("RGB", (4, 4))),
        "dog/again.jpg": whole,
    }
    data_set = open_data_set(put(tmp_path, files), "imagefolder")
    assert number_of_items(data_set) == 6
    assert why(data_set, "cat/broken.jpg").startswith("The image is damaged")
    assert why(data_set, "cat/empty.png").startswith("The file is empty")
    assert "a web page" in why(data_set, "cat/text.png")
    assert "too small" in why(data_set, "cat/tiny.png")
    assert data_set.read("cat/good.jpg") == data_set.read("dog/again.jpg"), "an image that is there twice is two items"
    assert "no such item" in why(data_set, "cat/other.png") or "not there" in why(data_set, "cat/other.png")
    assert "leads out" in why(data_set, "cat/../../secret.png")


def test_a_file_that_goes_or_changes_meanwhile_is_said_to(tmp_path: Path) -> None:
    root = put(tmp_path, {f"cat/{name}.png": png(1) for name in "abc"})
    data_set = open_data_set(root, "imagefolder")
    stamps = {item.key: item.stamp for item in data_set.items()}
    (root / "cat/a.png").unlink()
    (root / "cat/b.png").write_bytes(png(2, (48, 32)))
    assert "The file is not there" in why(data_set, "cat/a.png", stamps["cat/a.png"])
    assert "was changed since" in why(data_set, "cat/b.png", stamps["cat/b.png"])
    assert data_set.read("cat/b.png").image == png(2, (48, 32)), "without the stamp it is what lies there"
    assert data_set.read("cat/c.png", stamps["cat/c.png"]).image == png(1)


def test_a_link_is_followed_and_a_dangling_one_fails_when_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "far", {"a.png": png(1)})
    root = put(tmp_path / "set", {"cat/b.png": png(2)})
    (root / "dog").symlink_to(tmp_path / "far")
    (root / "cat/gone.png").symlink_to(tmp_path / "nowhere.png")
    (root / "cat/round").symlink_to(root / "cat")
    data_set = open_data_set(root, "imagefolder")
    assert labels(data_set) == {"cat/b.png": "cat", "cat/gone.png": "cat", "dog/a.png": "dog"}
    assert any("link to a folder that it lies in" in row.reason for row in data_set.left_out)
    assert data_set.read("dog/a.png").image == png(1)
    assert "not there" in why(data_set, "cat/gone.png")


@pytest.mark.slow
def test_listing_ten_thousand_images_opens_none(tmp_path: Path, opened_files: list[str]) -> None:
    for folder in range(10):
        (tmp_path / f"c{folder:02d}").mkdir()
        for number in range(1000):
            os.mknod(tmp_path / f"c{folder:02d}" / f"{number:04d}.png")
    data_set = open_data_set(tmp_path, "imagefolder")
    assert number_of_items(data_set) == 10_000
    assert [name for name in opened_files if name.endswith(".png")] == []
    assert why(data_set, "c00/0000.png").startswith("The file is empty")
    assert [name for name in opened_files if name.endswith(".png")] == [str(tmp_path / "c00/0000.png")]


def test_what_cannot_be_opened_is_told_with_what_was_looked_for(tmp_path: Path) -> None:
    put(tmp_path, {"notes.txt": b"nothing here"})
    for layout, known in LAYOUTS.items():
        said = refusal(tmp_path, layout)
        assert " needs " in said or "it has neither" in said or "no image" in said, (layout, said)
        assert known.title and known.expected
    assert "choose one of imagefolder, torchvision" in refusal(tmp_path, "imagenet1k")
    assert "is no option of the layout shift: there is part, view" in refusal(tmp_path, "shift", veiw="front")
    assert "does not exist" in refusal(tmp_path / "nowhere", "coco")


def devkit(truth: list[int]) -> dict[str, bytes]:
    """Return the files of the ImageNet devkit, for three classes and a synset above them."""
    from scipy.io import savemat

    fields = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height")
    rows = [(number, wnid, words, "", 0, 0, 0) for number, (wnid, words) in enumerate(SYNSETS.items(), start=1)]
    rows.append((4, "n00001740", "entity", "", 3, 0, 9))
    synsets = np.array([(*row, 0) for row in rows], dtype=[(name, object) for name in (*fields, "num_train_images")])
    file = io.BytesIO()
    savemat(file, {"synsets": synsets.reshape(-1, 1)})
    top = "ILSVRC2012_devkit_t12/data"
    return {
        f"{top}/meta.mat": file.getvalue(),
        f"{top}/ILSVRC2012_validation_ground_truth.txt": "".join(f"{number}\n" for number in truth).encode(),
    }


def imagenet_tars(root: Path) -> Path:
    classes = {wnid: {f"{wnid}_{n}.JPEG": jpeg(n + 10 * at) for n in (2, 10)} for at, wnid in enumerate(SYNSETS)}
    put(
        root,
        {
            "ILSVRC2012_img_train.tar": tar_of({f"{wnid}.tar": tar_of(files) for wnid, files in classes.items()}),
            "ILSVRC2012_img_val.tar": tar_of({f"ILSVRC2012_val_{n:08d}.JPEG": jpeg(n + 50) for n in (1, 2, 3, 4)}),
        },
    )
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as archive:
        for name, data in devkit([3, 1, 2, 1]).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "val"])
def test_the_tars_of_imagenet_are_what_torchvision_makes_of_them(
    tmp_path: Path, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import ImageNet, imagenet

    ours, theirs = imagenet_tars(tmp_path / "ours"), imagenet_tars(tmp_path / "theirs")
    before = sorted(path.name for path in ours.rglob("*"))
    data_set = open_data_set(ours, "imagenet", split)
    # The sums that it compares are those of the published files.
    monkeypatch.setattr(
        imagenet, "ARCHIVE_META", {key: (file, None) for key, (file, _) in imagenet.ARCHIVE_META.items()}
    )
    published = ImageNet(theirs, split)
    wanted = {(Path(file).read_bytes(), published.wnids[number]) for file, number in published.samples}
    assert {(data_set.read(item.key).image, item.attributes["wnid"]) for item in data_set.items()} == wanted
    assert number_of_items(data_set) == len(published)
    names = [", ".join(names) for names in published.classes]
    assert names == ["tench, Tinca tinca", "crane", "crane"]
    assert data_set.classes == ("tench, Tinca tinca", "crane, n02012849", "crane, n03126707")
    assert sorted(path.name for path in ours.rglob("*")) == before, "nothing is unpacked beside the tars"
    # torchvision's unpacked folders are the other published form, with the same images and labels.
    folders = open_data_set(put(theirs, devkit([3, 1, 2, 1])), "imagenet", split)
    assert {(folders.read(item.key).image, item.label) for item in folders.items()} == {
        (data_set.read(item.key).image, item.label) for item in data_set.items()
    }


def test_imagenet_says_what_is_missing(tmp_path: Path) -> None:
    root = imagenet_tars(tmp_path)
    assert "train, val" in refusal(root, "imagenet"), "torchvision would take train"
    data_set = open_data_set(root, "imagenet", "val")
    os.remove(root / "ILSVRC2012_devkit_t12.tar.gz")
    assert "put it there" in refusal(root, "imagenet", "val")
    assert number_of_items(data_set) == 4
    (root / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(b"no archive")
    assert "cannot be read: download it again" in refusal(root, "imagenet", "val")


def test_imagenet_folders_without_names_and_with_a_class_that_the_devkit_does_not_have(tmp_path: Path) -> None:
    root = put(tmp_path, {"train/n01440764/n01440764_1.JPEG": jpeg(1), "train/n99999999/n99999999_1.JPEG": jpeg(2)})
    plain = open_data_set(root, "imagenet")
    both = ("tench, Tinca tinca", "n99999999")
    assert (set(labels(plain).values()), plain.classes) == (set(both), both)
    named = open_data_set(put(root, devkit([1])), "imagenet", "train")
    assert sorted(labels(named).values()) == ["n99999999", "tench, Tinca tinca"]
    assert named.read("train/n01440764/n01440764_1.JPEG").image == jpeg(1)
    assert "none of the 3 classes" in why(named, "train/n99999999/n99999999_1.JPEG")


def test_kaggles_archive_of_imagenet(tmp_path: Path) -> None:
    top = "ILSVRC/Data/CLS-LOC"
    files = {
        f"{top}/train/n01440764/n01440764_1.JPEG": jpeg(1),
        f"{top}/val/ILSVRC2012_val_00000001.JPEG": jpeg(2),
        f"{top}/val/ILSVRC2012_val_00000002.JPEG": jpeg(3),
        f"{top}/test/ILSVRC2012_test_00000001.JPEG": jpeg(4),
        "LOC_synset_mapping.txt": "".join(f"{wnid} {words}\n" for wnid, words in SYNSETS.items()).encode(),
        "LOC_val_solution.csv": b"ImageId,PredictionString\n"
        b"ILSVRC2012_val_00000002,n01440764 1 2 3 4 n01440764 5 6 7 8 \n"
        b"ILSVRC2012_val_00000001,n03126707 1 2 3 4 \n",
    }
    packed = put(tmp_path, {"imagenet.zip": zip_of(files)}) / "imagenet.zip"
    for root in (put(tmp_path / "set", files), packed):
        data_set = open_data_set(root, "imagenet", "validation")
        assert list(labels(data_set).values()) == ["crane, n03126707", "tench, Tinca tinca"]
        assert data_set.read(f"{top}/val/ILSVRC2012_val_00000001.JPEG").image == jpeg(2)
        assert list(labels(open_data_set(root, "imagenet", "train")).values()) == ["tench, Tinca tinca"]


def test_a_damaged_class_tar_of_imagenet_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    root = imagenet_tars(tmp_path)
    classes = {wnid: tar_of({f"{wnid}_1.JPEG": jpeg(1)}) for wnid in SYNSETS}
    classes["n02012849"] = b"damaged" * 300
    (root / "ILSVRC2012_img_train.tar").write_bytes(tar_of({f"{wnid}.tar": data for wnid, data in classes.items()}))
    data_set = open_data_set(root, "imagenet", "train")
    assert list(labels(data_set)) == ["n01440764/n01440764_1.JPEG", "n03126707/n03126707_1.JPEG"]
    assert [row.file for row in data_set.left_out] == ["n02012849.tar"]
    stamp = next(data_set.items()).stamp
    (root / "ILSVRC2012_img_train.tar").write_bytes(b"another one")
    assert "was changed since" in why(data_set, "n01440764/n01440764_1.JPEG", stamp)


def test_a_picture_that_was_turned_by_its_camera_is_read(tmp_path: Path) -> None:
    image = picture(1, (48, 32))
    about = image.getexif()
    about[0x0112] = 6
    (tmp_path / "cat").mkdir()
    image.save(tmp_path / "cat/a.jpg", exif=about)
    assert open_data_set(tmp_path, "imagefolder").read("cat/a.jpg").image == (tmp_path / "cat/a.jpg").read_bytes()
