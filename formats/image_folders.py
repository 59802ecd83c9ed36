"""Folders of images: one for each class, as torchvision's ImageFolder reads them, or plain ones with masks or captions.

A folder named like a split or “masks” still counts as a class if the folders beside it are classes.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from core.errors import UserError
from core.test_sets import split_to_load
from core.words import count_of
from formats.common import class_list_of, is_sheet, pair_of_files, read_classes, require_each, splits_of
from formats.draft import Draft
from formats.files import Files, images_in, is_image, joined
from formats.naming import SPLIT_OF, Names, split_folder, standard
from formats.pages import CARD, CLASSES, CROISSANT, RECORDS, TYPED, Description, description_of
from formats.source import Source, Survey, Tally, mask_opener, opener, stem_of
from formats.types import Example, Found, Report, Row

MASK_FOLDERS = ("masks", "mask", "segmentations", "segmentationclass", "labels", "annotations", "gtfine")
MASK_ENDINGS = ("_mask", ".mask", "-mask", "_gtFine_labelIds")
PICTURE_FOLDERS = ("images", "image", "img", "imgs", "leftimg8bit", "data", "jpegimages")
"""Lower-case names of folders that hold images and are no labels."""
_OURS = {
    CARD,
    CLASSES,
    CROISSANT,
    RECORDS,
    TYPED,
    *"manifest.json classes.txt _classes.csv README.txt LICENSE.txt".split(),
}
_CAPTIONS = (".txt", ".caption")
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".parquet", ".arrow", ".npy", ".npz", ".tar")
_NUMBERS = re.compile(r"\s*(-?\d+(\.\d+)?([,\s]+|$)){5,}")
"""Pattern of a line with five or more numbers, as in text files with boxes."""


def write_torchvision(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write torchvision's ImageFolder: SPLIT/LABEL/NAME.png, masks elsewhere. Raises UserError without labels."""
    require_each(
        examples, [example for example in examples if not example.label], "label", "ImageFolder of torchvision"
    )
    names = Names()  # a fixed order gives the same labels the same folders
    folders = {label: names.take(label) for label in sorted({example.label for example in examples})}
    details = ("labels", "splits", *(["classes of masks"] if draft.classes["masks"] is not None else []))

    def named(example: Example) -> tuple[str, str | None]:
        place = f"{split_folder(example.split)}/{folders[example.label]}"
        return pair_of_files(example, place, f"masks/{place}")

    for picture in draft.pictures(examples, named):
        draft.record(picture, *named(picture.example), details)
    draft.classes["folders"] = {folder: label for label, folder in folders.items()}
    first = split_folder(split_to_load(splits_of(examples)))
    return description_of("torchvision", first, draft.masks)


class ClassFolders(Source):
    """Reads images at CLASS/image, SPLIT/CLASS/image, or deeper. Fit for large sets, since no list of all names is
    kept. `names` maps folder names to labels if they differ. `attribute` is the attribute that stores the folder's
    name, or "". If images are not in class folders, `class_of` returns the name of an image's class.
    """

    def __init__(
        self,
        files: Files,
        report: Report,
        options: Mapping[str, str],
        in_place: bool = False,
        *,
        base: str | None = None,
        split: str = "",
        classes: Iterable[str] = (),
        names: Mapping[str, str] | None = None,
        attribute: str = "",
        class_of: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(files, report, options, in_place)
        self._base = wrapper_of(files) if base is None else base
        self._names, self._attribute, self._class_of, self._split = names or {}, attribute, class_of, split
        folders = files.folders(self._base)
        splits = [folder for folder in folders if folder.lower() in SPLIT_OF]
        deep = [folder for folder in splits if files.folders(joined(self._base, folder))]
        if deep and len(deep) < len(folders):
            others = [folder for folder in folders if folder not in deep]
            raise UserError(
                f"{files.name} holds folders of splits ({', '.join(deep)}) beside others ({', '.join(others[:4])}), "
                "so it is unclear which are classes: give the folder of one split.",
                field="root",
            )
        self._splits = deep or (splits if splits == folders and folders else [])
        # The class list covers the whole set, as a split may lack images of a class.
        every = {name for split in self._splits for name in files.folders(joined(self._base, split))}
        self._classes = tuple(classes) or tuple(
            sorted(self._label(each) for each in (every if self._splits else folders))
        )

    def splits(self) -> list[str]:
        return list(self._splits) or [""]

    def survey(self, split: str) -> Survey:
        return Survey(self._classes)

    def find(self, split: str | None = None) -> Iterator[Found]:
        for each in self.splits() if split is None else [split]:
            base = joined(self._base, each)
            extra = sum(is_image(path) for path in self.files.files(base, deep=False))
            classes = self.files.folders(base)
            if extra and classes:
                why = "beside the folders of classes: what is in none of them has no label, and was left out."
                self.report.refuse(base or self.files.name, f"{count_of(extra, 'image', 'lies')} {why}")
            for folder in classes or [""]:
                for path in images_in(self.files, joined(base, folder)):
                    yield self._found(path)

    def at(self, key: str) -> Found:
        return self._found(key)

    def holds(self, key: str) -> bool:
        return key.startswith(f"{self._base}/") if self._base else ("/" in key) == (self._class_of is None)

    def _label(self, folder: str) -> str:
        return self._names.get(folder, folder)

    def _found(self, path: str) -> Found:
        inside = path.removeprefix(f"{self._base}/") if self._base else path
        parts = inside.split("/")
        split = parts.pop(0) if self._splits and len(parts) > 1 else ""
        folder = self._class_of(path) if self._class_of else parts[0] if len(parts) > 1 else ""
        return Found(
            path,
            stem_of(path),
            opener(self.files, path),
            self._label(folder),
            standard(split) or self._split,
            attributes={self._attribute: folder} if self._attribute and folder else {},
        )


def wrapper_of(files: Files) -> str:
    """Return the only folder at the top if it contains everything, as in many archives; "" otherwise."""
    folders = files.folders()
    is_only = len(folders) == 1 and next(files.files(deep=False), None) is None
    return folders[0] if is_only and folders[0].lower() not in SPLIT_OF and files.folders(folders[0]) else ""


def class_folders(files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> Source:
    """Open a data set with a folder for each class. If the studio exported it, read its masks too."""
    lazily = in_place and not files.has(CLASSES)
    return (ClassFolders if lazily else PlainFolder)(files, report, options, in_place)


class PlainFolder(Source):
    """Reads images with labels and splits from folder names, with their masks and captions."""

    def prepare(self) -> None:
        self._labels = _folder_labels(self.files, self.report)
        self._classes = read_classes(self.files, self.report)
        self._classes_file = class_list_of(self.files) or ("" if self.options.get("mask_classes") else "classes.txt")
        pictures = [name for name in self.files.names if is_image(name) and not is_sheet(name)]
        self._roles = Roles(pictures, self._labels)
        masks = {name for name in pictures if self._roles.in_mask_folder(name)}
        ended = {name for name in pictures if name not in masks and stem_of(name).endswith(MASK_ENDINGS)}
        plain_keys = {_key(name) for name in pictures if name not in masks and name not in ended}
        # A picture whose name ends like a mask's is not always a mask.
        masks |= {name for name in ended if any(_key(other) in plain_keys for other in ended)}
        self._images = [name for name in pictures if name not in masks]
        self._masks = {_key(name): name for name in sorted(masks)}
        if not self._images:
            self._images, self._masks = sorted(masks), {}
        top = self._images[0].split("/")[0] if self._images else ""
        self._one_folder = all(name.startswith(f"{top}/") for name in self._images)

    @classmethod
    def explained(cls, files: Files) -> int:
        source = cls(files, Report(), {})
        return sum(bool(found.label) or mask is not None for found, mask in map(source._found, source._images))

    def count(self) -> int:
        return len(self._images)

    def find(self, split: str | None = None) -> Iterator[Found]:
        taken = set()
        tally = Tally(self.report)
        texts: set[str] = set()
        names = () if self.in_place else self.files.names
        captions = {posixpath.splitext(name)[0]: name for name in names if name.lower().endswith(_CAPTIONS)}
        for name in self._images:
            found, mask = self._found(name)
            taken.add(mask)
            if split is not None and found.split != split:
                continue
            if (text := captions.get(posixpath.splitext(name)[0])) is not None:
                texts.add(text)
                yield self._captioned(found, text, tally)
            else:
                yield found
        for name in sorted(set(self._masks.values()) - taken):
            self.report.refuse(name, "It is a mask of no image here: give both the same name.")
        if not self.in_place:
            self._tell_others(texts, tally)
        tally.tell()

    def _found(self, name: str) -> tuple[Found, str | None]:
        key = _key(name)
        mask = self._masks.get(key) or self._masks.get(("", key[1]))
        label, split = self._roles.of(name, self._one_folder)
        return Found(
            name,
            stem_of(name),
            opener(self.files, name),
            self._labels.get(label, label),
            split,
            mask_opener(self.files, mask) if mask else None,
            self._classes if mask else None,
            classes_file=self._classes_file,
        ), mask

    def _captioned(self, found: Found, text: str, tally: Tally) -> Found:
        try:
            words = self.files.read(text, 1_000_000).decode("utf-8-sig").strip()
        except (UnicodeDecodeError, UserError):
            tally.note(text, "It is no text in UTF-8: it was not read as a caption.")
            return found
        if _NUMBERS.match(words) or not words:
            tally.note(text, "It lies beside an image and holds numbers or nothing: it was not read as a caption.")
            return found
        return replace(found, row=Row(caption=words))

    def _tell_others(self, texts: set[str], tally: Tally) -> None:
        stems = {posixpath.splitext(name)[0] for name in self._images}
        keys = {_key(name) for name in self._images}
        for name in self.files.names:
            stem, ending = posixpath.splitext(name)
            ending = ending.lower()
            if is_image(name) or name in texts or posixpath.basename(name) in _OURS or ending == ".md":
                continue
            if ending == ".txt" and _key(name) in keys:
                tally.note(name, "It is called as an image and may describe it: it was not read.")
            elif ending in _TABLES and stem in stems:
                tally.note(name, f"It lies beside an image and may describe it: files with {ending} are not read here.")
            elif ending in _TABLES:
                tally.note(name, f"It is no image: files with {ending} are not read in a folder of images.")
            elif ending != ".txt":
                self.report.refuse(name, "It is no image: PNG, JPEG, WebP, GIF, BMP and TIFF can be read.")


class Roles:
    """Decides whether a folder of images is a class, a split, or holds masks. A folder with a name such as “cat” is a
    class. All folders beside a class are classes too, even “train”, “masks” and “images”. One exception: if files in
    “masks” have the same names as images beside “masks”, then “masks” holds masks, and “images” is no class. A folder
    “train” directly below a split is a class. An export of the studio has a list of classes, which decides.
    """

    def __init__(self, images: Sequence[str], labels: Mapping[str, str]) -> None:
        levels: dict[str, dict[str, set[tuple[str, str]]]] = {}
        for name in images:
            if place := self._level(name):
                level, folder, before = place
                levels.setdefault(level, {}).setdefault(folder, set()).add((before, _key(name)[1]))
        self._classes = {level: self._judged(level, folders) for level, folders in levels.items()}
        if labels:
            exported = {folder.lower() for folder in labels}
            self._classes = {level: exported if level.endswith("*") else set() for level in levels}

    @staticmethod
    def _judged(level: str, folders: Mapping[str, set[tuple[str, str]]]) -> set[str]:
        masks = {folder for folder in folders if folder in MASK_FOLDERS}
        pictures = folders.keys() & set(PICTURE_FOLDERS)
        splits = {folder for folder in folders if folder in SPLIT_OF and not level.endswith("*")}
        plain = folders.keys() - masks - pictures - splits
        if not plain:
            return set()
        elsewhere = {folder: set().union(*(folders[other] for other in folders if other != folder)) for folder in masks}
        paired = {folder for folder in masks if 2 * len(folders[folder] & elsewhere[folder]) >= len(folders[folder])}
        return plain | splits | (masks - paired) | (set() if paired else pictures)

    @staticmethod
    def _level(name: str) -> tuple[str, str, str] | None:
        """Return three texts about a file's folder: its level, its name in lower case, and its parent's path. Folders
        are on one level if they share a parent, or if their parents are splits of the set. Return None for a mask, and
        for a file without folder.
        """
        folders = name.split("/")[:-1]
        if not folders or any(part.lower() in MASK_FOLDERS for part in folders[:-1]):
            return None
        if stem_of(name).endswith(MASK_ENDINGS):
            return None
        return _level_of(folders, len(folders) - 1), folders[-1].lower(), "/".join(folders[:-1])

    def _is_class(self, folders: Sequence[str], at: int) -> bool:
        return folders[at].lower() in self._classes.get(_level_of(folders, at), ())

    def in_mask_folder(self, name: str) -> bool:
        """Return True if an image is in a folder of masks."""
        folders = name.split("/")[:-1]
        return any(part.lower() in MASK_FOLDERS and not self._is_class(folders, at) for at, part in enumerate(folders))

    def of(self, name: str, one_folder: bool) -> tuple[str, str]:
        """Return label and split of an image. `one_folder` is True if a single folder holds all images of the set."""
        folders = name.split("/")[:-1]
        label = split = ""
        for at, part in enumerate(folders):
            low, is_class = part.lower(), self._is_class(folders, at)
            if low in SPLIT_OF and not is_class and not split:
                split = SPLIT_OF[low] or ""
            elif low in PICTURE_FOLDERS and not is_class:
                continue
            elif not label and not (one_folder and at == 0 and (len(folders) > 1 or low not in SPLIT_OF)):
                label = part
        return label, split


def _level_of(folders: Sequence[str], at: int) -> str:
    if at and folders[at - 1].lower() in SPLIT_OF:
        return "/".join([*folders[: at - 1], "*"])
    return "/".join(folders[:at])


def _key(name: str) -> tuple[str, str]:
    """Return a file's folders and stem, without “masks”, “_mask” and the like: one key for an image and its mask."""
    stem = stem_of(name)
    for ending in MASK_ENDINGS:
        stem = stem.removesuffix(ending)
    parts = [part for part in name.split("/")[:-1] if part.lower() not in (*MASK_FOLDERS, *PICTURE_FOLDERS)]
    return "/".join(parts), stem


def _folder_labels(files: Files, report: Report) -> dict[str, str]:
    if CLASSES not in files.names:
        return {}
    try:
        content = json.loads(files.read(CLASSES, 10_000_000))
        return {str(folder): str(label) for folder, label in content.get("folders", {}).items()}
    except (ValueError, AttributeError, UserError, RecursionError):
        report.refuse(CLASSES, "It is no list of classes: labels are taken from the names of folders.")
        return {}
