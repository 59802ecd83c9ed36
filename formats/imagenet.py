"""Read ImageNet-1K in each of its published forms: the two tars, folders of WordNet ids, Kaggle's archive, Parquet.

Related sets are read too: ImageNet-R, -A and -Sketch with folders of WordNet ids, and ImageNet-V2 with folders of class
numbers. A label holds all names of the class ("goldfinch, Carduelis carduelis"). The names come from the devkit, from
Kaggle's list of synsets, or else from the studio's table of classes. An id without names is its own label. If two
classes have the same names ("crane"), the id is added.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.class_tables import imagenet_labels
from core.errors import UserError
from core.images import MAX_BYTES
from formats.files import BROKEN_ARCHIVE, Files, images_in, is_image, joined, lines_in, open_files, stamp_of, tar_places
from formats.huggingface import RowSource
from formats.image_folders import ClassFolders, wrapper_of
from formats.naming import standard
from formats.source import UNKNOWN, Latest, Source, Survey
from formats.types import Found, Report

# File names of the challenge, which torchvision.datasets.ImageNet requires.
TRAIN_TAR, VAL_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12"
_META, _TRUTH = f"{DEVKIT}/data/meta.mat", f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt"
KAGGLE = "ILSVRC/Data/CLS-LOC"
_SYNSETS, _SOLUTION = "LOC_synset_mapping.txt", "LOC_val_solution.csv"
_WNID = re.compile(r"n\d{8}")
_VAL_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)
_OPEN_TARS = 8
"""Number of class tars whose file lists stay in memory. A list has about a thousand names."""


class _Names:
    def __init__(self, synsets: Mapping[str, str], truth: tuple[str, ...] = ()) -> None:
        shared = Counter(synsets.values())
        self.labels = {wnid: words if shared[words] == 1 else f"{words}, {wnid}" for wnid, words in synsets.items()}
        self.truth = truth
        """WordNet ids of the validation images, in the order of the images' numbers."""

    def true_class(self, name: str) -> str:
        """Return the WordNet id of a validation image, found by the number in its file name; "" if unknown."""
        match = _VAL_NAME.search(name)
        number = int(match[1]) if match else 0
        return self.truth[number - 1] if 1 <= number <= len(self.truth) else ""

    def classes(self, wnids: Iterable[str]) -> tuple[str, ...]:
        """Return all labels, sorted by WordNet id, as torchvision numbers the classes."""
        return tuple(self.labels[wnid] for wnid in sorted(self.labels or {})) or tuple(sorted(set(wnids)))


class ImagenetSource(Source):
    """Reads ImageNet in the first form found: folders of WordNet ids, tars or Parquet. Each split has a reader."""

    def prepare(self) -> None:
        self._names = _names(self.files)
        self._parts = {split: part for split, part in self._found_parts() if part is not None}

    def _found_parts(self) -> Iterator[tuple[str, Source | None]]:
        files = self.files
        for base in ("", KAGGLE, f"imagenet/{KAGGLE}"):
            split_folders = [
                name
                for name in (files.folders(base) if files.has(base) or not base else ())
                if name in ("train", "val") and next(images_in(files, joined(base, name)), None) is not None
            ]
            if split_folders:
                yield from ((name, self._classes(files, joined(base, name), standard(name))) for name in split_folders)
                return
        if any(_WNID.fullmatch(name) for name in files.folders()):
            yield "", self._classes(files, "", "")
            return
        base = wrapper_of(files)
        if _numbered(files.folders(base)):
            names = {str(number): label for number, label in enumerate(imagenet_labels().values())}
            own = files, self.report, self.options, self.in_place
            yield "", ClassFolders(*own, base=base, classes=names.values(), names=names)
            return
        tars = {name: file for name, file in (("train", TRAIN_TAR), ("val", VAL_TAR)) if files.has(file)}
        if tars and not self._names.labels:
            raise UserError(
                f"{DEVKIT}.tar.gz is not beside {next(iter(tars.values()))}: put it there. It contains the class "
                "names and the labels of the validation images.",
                field="root",
            )
        if "train" in tars:
            yield "train", self._classes(_ClassTars(files.path(TRAIN_TAR), self.report), "", "train")
        if "val" in tars:
            packed = open_files(files.path(VAL_TAR), self.report, follow_links=True)
            yield "val", self._classes(packed, "", "validation")
        if not tars:
            rows = RowSource(files, self.report, self.options, self.in_place)
            yield from ((split, rows) for split in rows.splits())

    def _classes(self, files: Files, base: str, split: str) -> Source:
        """Return the reader of a split: a folder for each class, or one folder with a list of classes."""
        folders, names = files.folders(base), self._names
        if not names.labels:
            names = _Names({wnid: imagenet_labels().get(wnid, wnid) for wnid in folders})
        flat = not folders and split == "validation"
        return ClassFolders(
            *(files, self.report, self.options, self.in_place),
            base=base,
            split=split,
            classes=names.classes(names.truth if flat else folders),
            names=names.labels,
            attribute="wnid",
            class_of=names.true_class if flat else None,
        )

    @classmethod
    def explained(cls, files: Files) -> int:
        if any(name in (TRAIN_TAR, VAL_TAR) for name in files.names):
            return 1_000_000
        ids = {part for name in files.names for part in name.split("/")[:-1] if _WNID.fullmatch(part)}
        listed = any(posixpath.basename(name) in (_SYNSETS, "meta.mat", f"{DEVKIT}.tar.gz") for name in files.names)
        top = files.folders(wrapper_of(files))
        single = top and (
            all(map(_WNID.fullmatch, top))
            or (_numbered(top) and "imagenetv2" in f"{files.name}/{files.names[0]}".lower())
        )
        return sum(map(is_image, files.names)) if (ids and listed) or single else 0

    def splits(self) -> list[str]:
        return list(self._parts)

    def _chosen(self, split: str | None) -> Iterator[tuple[Source, str | None]]:
        for name, part in self._parts.items():
            if split is None or name == split:
                yield part, name if isinstance(part, RowSource) else None

    def survey(self, split: str) -> Survey:
        return next((part.survey(inside or "") for part, inside in self._chosen(split)), Survey())

    def count(self) -> int:
        return sum(part.count() for part in {*self._parts.values()})

    def find(self, split: str | None = None) -> Iterator[Found]:
        for part, inside in self._chosen(split):
            yield from part.find(inside)

    def stamp(self, key: str, file: str = "") -> str:
        part = self._part_of(key)
        return part.stamp(key, file) if part is not None else ""

    def at(self, key: str) -> Found:
        part = self._part_of(key)
        if part is None:
            raise UserError(UNKNOWN)
        return part.at(key)

    def _part_of(self, key: str) -> Source | None:
        return next((part for part in self._parts.values() if part.holds(key)), None)


class _ClassTars:
    """A tar that contains a tar for each class, read like folders. Only headers are read until an image is needed."""

    name = TRAIN_TAR

    def __init__(self, path: Path, report: Report) -> None:
        self._path, self._report = path, report
        try:
            with path.open("rb") as file:
                outer = tar_places(file, TRAIN_TAR, report)
        except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
            raise UserError(f"{TRAIN_TAR} is no tar that can be read: download it again.", field="root") from error
        self._starts = {
            name.removesuffix(".tar"): start for name, (start, _) in sorted(outer.items()) if name.endswith(".tar")
        }
        self._lists = Latest(lambda wnid: self._list(wnid, Report()), _OPEN_TARS)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files())

    def folders(self, inside: str = "") -> list[str]:
        return [] if inside else list(self._starts)

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        for wnid in [inside] if inside else self._starts if deep else ():
            # Not from the cache `_lists`, as unreadable files have to be reported each time.
            yield from (f"{wnid}/{name}" for name in self._list(wnid, self._report))

    def has(self, path: str) -> bool:
        wnid, _, name = path.partition("/")
        return wnid in self._starts and (not name or name in self._lists.get(wnid))

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        if not self.has(name):
            raise UserError(UNKNOWN)
        wnid, _, image = name.partition("/")
        start, size = self._lists.get(wnid)[image]
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(min(size, most))

    def path(self, name: str) -> Path:
        raise UserError(f"{name} lies in an archive: unpack {self.name}, and give the folder.", field="root")

    def stamp(self, name: str) -> str:
        return stamp_of(self._path)

    def _list(self, wnid: str, report: Report) -> Mapping[str, tuple[int, int]]:
        inner = Report()
        try:
            with self._path.open("rb") as file:
                places = tar_places(file, f"{wnid}.tar", inner, start=self._starts[wnid])
        except (*BROKEN_ARCHIVE, tarfile.TarError):
            inner.refuse(f"{wnid}.tar", "It is no tar that can be read: download the archive again.")
            places = {}
        report.rows += [row for row in inner.rows if row not in report.rows]
        return dict(sorted((name, place) for name, place in places.items() if is_image(name)))


def _numbered(folders: Sequence[str]) -> bool:
    """Return True if the name of each folder is the number of a class of ImageNet."""
    return bool(folders) and all(name.isdecimal() and int(name) < len(imagenet_labels()) for name in folders)


def _names(files: Files) -> _Names:
    """Return the class names from ImageNet's devkit (folder or archive) or Kaggle's lists; empty without these."""
    packed = f"{DEVKIT}.tar.gz"
    if files.has(_META):
        return _of_devkit(files.read(_META), files.read(_TRUTH))
    if files.has(packed):
        try:
            # Two megabytes, compressed as a whole, so unpack them in memory.
            with tarfile.open(fileobj=io.BytesIO(files.read(packed)), mode="r:gz") as archive:
                lists = [archive.extractfile(name) for name in (_META, _TRUTH)]
                contents = [file.read() for file in lists if file is not None]
        except (KeyError, *BROKEN_ARCHIVE, tarfile.TarError) as error:
            raise UserError(f"{packed} cannot be read: download it again.", field="root") from error
        return _of_devkit(*contents)
    if files.has(_SYNSETS):
        lines = (line.partition(" ") for line in lines_in(files, _SYNSETS))
        synsets = {wnid: words.strip() for wnid, _, words in lines if words}
        return _Names(synsets, _of_solution(files) if files.has(_SOLUTION) else ())
    return _Names({})


def _of_devkit(meta: bytes, truth: bytes) -> _Names:
    from scipy.io import loadmat

    try:
        rows: list[Any] = list(loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        # Synsets with children are no classes of the challenge.
        leaves = [row for row in rows if int(row["num_children"]) == 0]
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
        synsets = {str(row["WNID"]): str(row["words"]) for row in leaves}
        # A number without a class becomes a label outside the class list. It is reported when its image is read.
        numbers = [int(line) for line in truth.split()]
        return _Names(synsets, tuple(wnids.get(number, f"class {number}") for number in numbers))
    except (ValueError, TypeError, KeyError, IndexError, OSError, NotImplementedError) as error:
        raise UserError(f"The lists of {DEVKIT} cannot be read: download it again.", field="root") from error


def _of_solution(files: Files) -> tuple[str, ...]:
    """Return the WordNet id of each validation image, from Kaggle's list of the objects in the images."""
    class_by_number: dict[int, str] = {}
    for row in csv.DictReader(lines_in(files, _SOLUTION)):
        match = _VAL_NAME.search(f"{row.get('ImageId')}.JPEG")
        if match and (row.get("PredictionString") or "").split():
            class_by_number[int(match[1])] = (row["PredictionString"] or "").split()[0]
    return tuple(class_by_number.get(number, "") for number in range(1, max(class_by_number, default=0) + 1))
