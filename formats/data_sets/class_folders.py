"""Folders of classes, as torchvision's ImageFolder reads them: CLASS/image or SPLIT/CLASS/image, and deeper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core.batches import Item
from core.errors import UserError
from core.words import count_of
from formats.data_sets.reader import Reader, content_of, seen
from formats.data_sets.types import Content, DataSet, Layout
from formats.files import Files, images_in, is_image, joined, open_files
from formats.naming import SPLIT_OF, choose, standard
from formats.types import Report

_NO_CLASSES = ("masks",)
"""A folder beside those of the splits in our own exports."""


class ClassFolders(Reader):
    """The images of a folder of classes. `names` gives the label of a folder that is not called as its label is, and
    `attributes` what else is known of a folder.
    """

    def __init__(
        self,
        layout: str,
        title: str,
        tree: Files,
        base: str,
        report: Report,
        *,
        classes: Sequence[str],
        licence: str = "",
        split: str = "",
        names: Mapping[str, str] | None = None,
        attributes: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(layout, title, report, licence=licence, split=split, classes=classes)
        self._tree, self._base = tree, base
        self._names, self._attributes = names or {}, attributes or {}

    def _items(self) -> Iterator[Item]:
        beside = sum(is_image(path) for path in self._tree.files(self._base, deep=False))
        if beside:
            self._report.refuse(
                self._base or self._tree.name,
                f"{count_of(beside, 'image', 'lies')} beside the folders of classes: what is in none "
                "of them has no label, and was left out.",
            )
        for folder in self._tree.folders(self._base):
            label, attributes = self._names.get(folder, folder), self._attributes.get(folder, {})
            for path in images_in(self._tree, joined(self._base, folder)):
                yield Item(path, label, self.split, attributes, seen(self._tree, path))

    def _stamp(self, key: str) -> str:
        return self._tree.stamp(key)

    def _read(self, key: str) -> Content:
        inside = key.removeprefix(f"{self._base}/") if self._base else key
        folder = inside.partition("/")[0]
        self._require_label(self._names.get(folder, folder))
        return content_of(self._tree.read(key))


def open_class_folders(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """The data set of a folder, zip or plain tar. Raises UserError for one without folders of images."""
    tree = open_files(root, report, follow_links=True)
    base = _wrapper(tree)
    folders = [folder for folder in tree.folders(base) if folder not in _NO_CLASSES]
    splits = [folder for folder in folders if folder.lower() in SPLIT_OF and tree.folders(joined(base, folder))]
    if splits and len(splits) < len(folders):
        others = [folder for folder in folders if folder not in splits]
        raise UserError(
            f"{tree.name} holds folders of splits ({', '.join(splits)}) beside others ({', '.join(others[:4])}), so "
            "that nothing tells which are classes: give the folder of one split.",
            field="root",
        )
    if splits:
        chosen = choose(split, splits, tree.name)
        # The class list is that of the set: a split may lack images of a class.
        classes = sorted({name for each in splits for name in tree.folders(joined(base, each))})
        base, split = joined(base, chosen), standard(chosen)
    else:
        if split:
            raise UserError(f"{tree.name} has no folders of splits: leave the split out.", field="split")
        classes = folders
    reader = ClassFolders("imagefolder", CLASS_FOLDERS.title, tree, base, report, classes=classes, split=split)
    if not classes or next(reader.items(), None) is None:
        raise UserError(
            f"{tree.name} holds no images in folders of classes: CLASS/image or SPLIT/CLASS/image was looked for, with "
            "PNG, JPEG, WebP, GIF, BMP or TIFF images.",
            field="root",
        )
    return reader


def _wrapper(tree: Files) -> str:
    """The one folder around all that an archive often has; "" where there is none."""
    folders = tree.folders()
    alone = len(folders) == 1 and next(tree.files(deep=False), None) is None
    return folders[0] if alone and folders[0].lower() not in SPLIT_OF and tree.folders(folders[0]) else ""


CLASS_FOLDERS = Layout(
    "Folder of classes (ImageFolder)",
    "CLASS/image or SPLIT/CLASS/image, in a folder, a zip or a plain tar.",
    open_class_folders,
)
