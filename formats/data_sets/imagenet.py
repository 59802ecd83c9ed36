"""ImageNet-1K in each of its published forms: the two tars, folders of WordNet ids, Kaggle's archive, Parquet.

A label is the class with all its names ("goldfinch, Carduelis carduelis"), from the devkit or Kaggle's list of synsets;
without them it is the WordNet id. Two classes that are called the same ("crane") have their id as one more name.
"""

from __future__ import annotations

import csv
import io
import re
import tarfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from core.batches import Item
from core.errors import UserError
from formats.data_sets.class_folders import ClassFolders
from formats.data_sets.reader import UNKNOWN, Latest, Reader, content_of, seen
from formats.data_sets.rows import open_huggingface
from formats.data_sets.types import Content, DataSet, Layout
from formats.files import BROKEN_ARCHIVE, Files, images_in, is_image, joined, open_files, stamp_of, tar_places
from formats.naming import choose, standard
from formats.types import Report

TITLE = "ImageNet-1K"
LICENCE = (
    "ImageNet terms of access: for research and teaching that is not commercial. https://www.image-net.org/download.php"
)
# The names of the files are those that the challenge published and torchvision.datasets.ImageNet asks for.
TRAIN_TAR, VAL_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12"
_META, _TRUTH = f"{DEVKIT}/data/meta.mat", f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt"
KAGGLE = "ILSVRC/Data/CLS-LOC"
_SYNSETS, _SOLUTION = "LOC_synset_mapping.txt", "LOC_val_solution.csv"
_WNID = re.compile(r"n\d{8}")
_VAL_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)
_OPEN_TARS = 8
"""Lists of class tars that are kept: some thousand names each."""


class _Names:
    """What the classes are called, and which of them the validation images are of."""

    def __init__(self, synsets: Mapping[str, str], truth: tuple[str, ...] = ()) -> None:
        shared = Counter(synsets.values())
        self.labels = {wnid: words if shared[words] == 1 else f"{words}, {wnid}" for wnid, words in synsets.items()}
        self.attributes = {wnid: {"wnid": wnid} for wnid in synsets}
        self.truth = truth
        """The WordNet ids of the validation images, by their number from 1."""

    def label(self, wnid: str) -> str:
        return self.labels.get(wnid, wnid)

    def classes(self, wnids: Iterable[str]) -> tuple[str, ...]:
        """The labels in the order of their WordNet ids, which is that of torchvision."""
        return tuple(self.labels[wnid] for wnid in sorted(self.labels or {})) or tuple(sorted(set(wnids)))


def open_imagenet(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """The first of these that lies at `root`: folders of WordNet ids, the tars, Parquet. Raises UserError for neither,
    and where several splits are there and none is said.
    """
    tree = open_files(root, report, follow_links=True)
    names = _names(root, tree)
    for base in ("", KAGGLE, f"imagenet/{KAGGLE}"):
        folders = (
            [name for name in tree.folders(base) if name in ("train", "val")] if tree.has(base) or not base else []
        )
        folders = [name for name in folders if next(images_in(tree, joined(base, name)), None) is not None]
        if folders:
            chosen = choose(split, folders, tree.name)
            return _of_folders(tree, joined(base, chosen), standard(chosen), names, report)
    if any(_WNID.fullmatch(name) for name in tree.folders()):
        if split:
            raise UserError(f"{tree.name} has no folders of splits: leave the split out.", field="split")
        return _of_folders(tree, "", "", names, report)
    tars = {name: root / file for name, file in (("train", TRAIN_TAR), ("val", VAL_TAR)) if tree.has(file)}
    if tars:
        return _of_tars(tars, choose(split, sorted(tars), tree.name), names, report)
    if any(name.endswith((".parquet", ".arrow")) for name in tree.files()):
        rows = open_huggingface(root, split, options, report)
        rows.layout, rows.title, rows.licence = "imagenet", TITLE, LICENCE
        return rows
    raise UserError(
        f"{tree.name} holds no ImageNet-1K: the folders train/ and val/ of WordNet ids (n01440764), {TRAIN_TAR} and "
        f"{VAL_TAR}, {KAGGLE}, and Parquet files were looked for.",
        field="root",
    )


def _of_folders(tree: Files, base: str, split: str, names: _Names, report: Report) -> DataSet:
    folders = tree.folders(base)
    if not folders and split == "validation":
        return _FlatValidation(tree, base, names, report)
    return ClassFolders(
        "imagenet",
        TITLE,
        tree,
        base,
        report,
        classes=names.classes(folders),
        licence=LICENCE,
        split=split,
        names=names.labels,
        attributes=names.attributes or {folder: {"wnid": folder} for folder in folders},
    )


class _FlatValidation(Reader):
    """The validation images in one folder, as the tar and Kaggle's archive have them: their labels are in a list."""

    def __init__(self, tree: Files, base: str, names: _Names, report: Report) -> None:
        classes = names.classes(names.truth)
        super().__init__("imagenet", TITLE, report, licence=LICENCE, split="validation", classes=classes)
        self._tree, self._base, self._names = tree, base, names

    def _items(self) -> Iterator[Item]:
        for path in images_in(self._tree, self._base, deep=False):
            wnid = _true_class(path, self._names)
            attributes = {"wnid": wnid} if wnid else {}
            yield Item(path, self._names.label(wnid), self.split, attributes, seen(self._tree, path))

    def _stamp(self, key: str) -> str:
        return self._tree.stamp(key)

    def _read(self, key: str) -> Content:
        self._require_label(self._names.label(_true_class(key, self._names)))
        return content_of(self._tree.read(key))


def _true_class(name: str, names: _Names) -> str:
    """The WordNet id of a validation image, by the number in its name; "" where nobody says it."""
    match = _VAL_NAME.search(name)
    number = int(match[1]) if match else 0
    return names.truth[number - 1] if 1 <= number <= len(names.truth) else ""


def _of_tars(tars: Mapping[str, Path], split: str, names: _Names, report: Report) -> DataSet:
    if not names.labels:
        raise UserError(
            f"{DEVKIT}.tar.gz is not beside {tars[split].name}: put it there, as it holds the names of the classes and "
            "the labels of the validation images.",
            field="root",
        )
    if split == "val":
        return _FlatValidation(open_files(tars["val"], report, follow_links=True), "", names, report)
    return _TrainTar(tars["train"], names, report)


class _TrainTar(Reader):
    """The tar of the tars of the classes. Only their headers are read until an image's turn comes."""

    def __init__(self, file: Path, names: _Names, report: Report) -> None:
        super().__init__("imagenet", TITLE, report, licence=LICENCE, split="train", classes=names.classes(()))
        self._path, self._names = file, names
        try:
            self._file: BinaryIO = file.open("rb")
            outer = tar_places(self._file, file.name, report)
        except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
            raise UserError(f"{file.name} is no tar that can be read: download it again.", field="root") from error
        self._tars = {
            name.removesuffix(".tar"): place for name, place in sorted(outer.items()) if name.endswith(".tar")
        }
        self._lists = Latest(self._list, _OPEN_TARS)
        self._lock = threading.Lock()
        self._count: int | None = None

    def count(self) -> int:
        if self._count is None:  # the headers of 1.3 million images: they are read once
            self._count = super().count()
        return self._count

    def _list(self, wnid: str) -> Mapping[str, tuple[int, int]]:
        """Where the images of a class lie, in the order of their names."""
        told = Report()
        try:
            with self._path.open("rb") as file:
                places = tar_places(file, f"{wnid}.tar", told, part=self._tars[wnid])
        except (*BROKEN_ARCHIVE, tarfile.TarError):
            told.refuse(f"{wnid}.tar", "It is no tar that can be read: download the archive again.")
            places = {}
        for row in told.rows:
            if row not in self._report.rows:
                self._report.rows.append(row)
        return dict(sorted((name, place) for name, place in places.items() if is_image(name)))

    def _items(self) -> Iterator[Item]:
        stamp = stamp_of(self._path)
        for wnid in self._tars:
            label, attributes = self._names.label(wnid), {"wnid": wnid}
            # Not by `_lists`: what the rows that cannot be read say has to be told in each run.
            for name in self._list(wnid):
                yield Item(f"{wnid}/{name}", label, self.split, attributes, stamp)

    def _stamp(self, key: str) -> str:
        return stamp_of(self._path)

    def _read(self, key: str) -> Content:
        wnid, _, name = key.partition("/")
        if wnid not in self._tars or name not in self._lists.get(wnid):
            raise UserError(UNKNOWN)
        self._require_label(self._names.label(wnid))
        place, size = self._lists.get(wnid)[name]
        with self._lock:
            self._file.seek(place)
            data = self._file.read(size)
        return content_of(data)


def _names(root: Path, tree: Files) -> _Names:
    """The names of the classes, from the devkit (a folder or the archive) or Kaggle's lists; none where neither is."""
    packed = f"{DEVKIT}.tar.gz"
    if tree.has(_META):
        return _of_devkit(tree.read(_META), tree.read(_TRUTH))
    if tree.has(packed):
        try:
            # Two megabytes, and compressed as a whole: it is read into memory, not onto the disk.
            with tarfile.open(fileobj=io.BytesIO(tree.read(packed)), mode="r:gz") as archive:
                files = [archive.extractfile(name) for name in (_META, _TRUTH)]
                held = [file.read() for file in files if file is not None]
        except (KeyError, *BROKEN_ARCHIVE, tarfile.TarError) as error:
            raise UserError(f"{packed} cannot be read: download it again.", field="root") from error
        return _of_devkit(*held)
    if tree.has(_SYNSETS):
        lines = tree.read(_SYNSETS).decode("utf-8", "replace").splitlines()
        synsets = {wnid: words.strip() for wnid, _, words in (line.partition(" ") for line in lines) if words}
        return _Names(synsets, _of_solution(tree) if tree.has(_SOLUTION) else ())
    return _Names({})


def _of_devkit(meta: bytes, truth: bytes) -> _Names:
    from scipy.io import loadmat

    try:
        rows: list[Any] = list(loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        # A synset with children is no class of the challenge.
        leaves = [row for row in rows if int(row["num_children"]) == 0]
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
        synsets = {str(row["WNID"]): str(row["words"]) for row in leaves}
        # A number that no class has becomes a label outside the class list, which is told when its image is read.
        numbers = [int(line) for line in truth.split()]
        return _Names(synsets, tuple(wnids.get(number, f"class {number}") for number in numbers))
    except (ValueError, TypeError, KeyError, IndexError, OSError, NotImplementedError) as error:
        raise UserError(f"The lists of {DEVKIT} cannot be read: download it again.", field="root") from error


def _of_solution(tree: Files) -> tuple[str, ...]:
    """The classes of the validation images in Kaggle's list: ImageId, and class and box of each object in it."""
    found: dict[int, str] = {}
    for row in csv.DictReader(tree.read(_SOLUTION).decode("utf-8", "replace").splitlines()):
        match = _VAL_NAME.search(f"{row.get('ImageId')}.JPEG")
        if match and (row.get("PredictionString") or "").split():
            found[int(match[1])] = (row["PredictionString"] or "").split()[0]
    return tuple(found.get(number, "") for number in range(1, max(found, default=0) + 1))


IMAGENET = Layout(
    TITLE,
    f"train/ and val/ with a folder for each WordNet id; or {TRAIN_TAR} and {VAL_TAR} with {DEVKIT}.tar.gz; or "
    f"{KAGGLE} with {_SYNSETS}; or the Parquet files of Hugging Face.",
    open_imagenet,
    {"label": "For Parquet: the column of the label.", "image": "For Parquet: the column of the image."},
)
