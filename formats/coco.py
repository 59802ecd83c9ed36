"""COCO: images, and a JSON file with regions as run lengths or outlines. The studio's masks have classes but no
objects, so each connected region of a class is written as an object. If a class has very many pieces in an image, they
become one region marked as a crowd.
"""

from __future__ import annotations

import json
import posixpath
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from core import rle
from core.errors import UserError
from core.masks import UNLABELLED
from core.test_sets import Split, split_to_load
from formats.draft import Draft, Picture
from formats.files import Files, by_form, is_image, joined, names_by_form, stamp_of
from formats.naming import SPLIT_OF, split_folder, standard
from formats.pages import CLASSES, CROISSANT, SHEET, Description, description_of
from formats.regions import area_of, class_names, mask_numbers, painted, pieces
from formats.source import UNKNOWN, Latest, Places, Source, Survey, Tally, digest, opener, stem_of
from formats.types import Example, Found, Report, Row

_BLOCK = 4_000_000
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_OUR_LISTS = (CLASSES, CROISSANT, "manifest.json")
_NO_FORM = "It is no list of COCO's form: download it again."
_CHANGED = "The list of annotations was changed since the data set was opened: open it again."
Record = Mapping[str, Any]
_KINDS = re.compile(r"_?(instances|captions|person_keypoints|keypoints|annotations|stuff|image_info)_?(\.coco)?_?")


def write_coco(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as COCO: SPLIT/NAME.png, and annotations/instances_SPLIT.json with masks as run lengths."""
    ids = {name: number for number, name in enumerate(class_names(examples), start=1)}
    splits: dict[Split, dict[str, Any]] = {}

    def named(example: Example) -> tuple[str, None]:
        return f"{split_folder(example.split, 'val')}/{example.name}.png", None

    for picture in draft.pictures(examples, named):
        example = picture.example
        content = splits.setdefault(example.split, {"images": [], "annotations": []})
        draft.record(picture, *named(example), ("labels", "classes of masks", "splits"))
        number, (width, height) = len(content["images"]) + 1, picture.size
        image = {"id": number, "file_name": f"{example.name}.png", "width": width, "height": height}
        image["label"] = example.label
        if picture.mask is not None:  # an addition to COCO, so that reading restores the mask's numbers
            image["mask_classes"] = dict(sorted(example.mask_classes.items()))
        content["images"].append(image)
        new_annotations = _regions(picture, ids) if picture.mask is not None else _whole(picture, ids)
        for annotation in new_annotations:
            first = len(content["annotations"]) + 1
            content["annotations"].append({"id": first, "image_id": number, **annotation})
    categories = [{"id": number, "name": name, "supercategory": ""} for name, number in ids.items()]
    for split, content in sorted(splits.items()):
        info = {"description": "DILLEMA Studio test set"}
        about = {"info": info, "licenses": [], **content, "categories": categories}
        data = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
        draft.put(f"annotations/instances_{split_folder(split, 'val')}.json", data)
    first_split = split_folder(split_to_load(splits), "val")
    return description_of("coco", first_split)


def _regions(picture: Picture, ids: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    numbers = mask_numbers(picture)
    for number, name in sorted(picture.example.mask_classes.items()):
        if number == UNLABELLED:
            continue
        for left, top, region, crowd in pieces(numbers, number):
            height, width = region.shape
            counts = rle.counts_of(region, left, top, picture.size)
            yield {
                "category_id": ids[name],
                "iscrowd": int(crowd),
                "area": int(region.sum()),
                "bbox": [left, top, width, height],
                "segmentation": {"size": [picture.size[1], picture.size[0]], "counts": rle.packed(counts)},
                "mask_number": number,
            }


def _whole(picture: Picture, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    if not picture.example.label:
        return []
    width, height = picture.size
    box, outline = [0, 0, width, height], [0, 0, width, 0, width, height, 0, height]
    whole = {"category_id": ids[picture.example.label], "iscrowd": 0, "area": width * height, "bbox": box}
    return [{**whole, "segmentation": [outline]}]


class CocoSource(Source):
    """Reads the images that COCO's JSON files list. Only the byte range of each entry stays in memory."""

    def prepare(self) -> None:
        label = self.options.get("label", "")
        if label not in ("", "largest"):
            raise UserError(
                f"The option “label” of COCO is “{label}”: write “largest”, or leave the option out.", field="label"
            )
        self._largest = label == "largest"
        near = (path for folder in ("annotations", "") for path in self.files.files(folder, deep=False))
        names = list(near) if self.in_place else list(self.files.names)
        lists = [name for name in names if name.endswith(".json") and posixpath.basename(name) not in _OUR_LISTS]
        instances = [name for name in lists if posixpath.basename(name).startswith("instances_")]
        self._lists: dict[str, list[str]] = {}
        for name in (instances or lists) if self.in_place else lists:
            self._lists.setdefault(_split_of(name), []).append(name)
        self._tables = Latest(self._scanned, len(lists) + 1)
        self._known = {} if self.in_place else names_by_form(names)
        self._by_base: dict[str, list[str]] = {}
        for name in () if self.in_place else filter(is_image, names):
            self._by_base.setdefault(posixpath.basename(name), []).append(name)

    @classmethod
    def may_be(cls, files: Files) -> bool:
        """Return True if a JSON file looks like COCO."""
        return any(_is_list(files, name) for name in files.names if name.endswith(".json"))

    def splits(self) -> list[str]:
        return list(self._lists)

    def survey(self, split: str) -> Survey:
        names = dict.fromkeys(name for table in self._images_of(split)[0] for name in table.categories.values())
        classes = dict(enumerate(names)) if len(names) <= UNLABELLED else {}
        return Survey(tuple(names) if self._largest else (), classes)

    def count(self) -> int:
        return sum(len(table.places) for split in self._lists for table in self._images_of(split)[0])

    def find(self, split: str | None = None) -> Iterator[Found]:
        used = set()
        for each in self.chosen(split):
            tables, captions = self._images_of(each)
            for name in self._lists[each]:
                if problem := self._tables.get(name).problem:
                    self.report.refuse(name, problem)
            for table in tables:
                for row in table.remarks:
                    self.report.changed(table.name, row)
                tally = Tally(self.report)
                with self.files.path(table.name).open("rb") as file:
                    for place in range(len(table.places)):
                        found = self._found(table, file, place, captions, tally)
                        used.add(found.file)
                        yield found
                tally.tell()
        for name in () if self.in_place else filter(is_image, self.files.names):
            if name not in used and posixpath.basename(name) != SHEET:
                self.report.refuse(name, "No list of images names it: add it there, or take the file away.")

    def at(self, key: str) -> Found:
        for split in self._lists:
            for table in self._images_of(split)[0]:
                if (place := table.keys.find(key)) is not None:
                    if stamp_of(self.files.path(table.name)) != table.stamp:
                        raise UserError(_CHANGED)
                    with self.files.path(table.name).open("rb") as file:
                        return self._found(table, file, place, [], Tally(Report()))
        raise UserError(UNKNOWN)

    def stamp(self, key: str, file: str = "") -> str:
        return self.files.stamp(file) if file else ""

    def _images_of(self, split: str) -> tuple[list[_Table], list[_Table]]:
        tables = [self._tables.get(name) for name in self._lists.get(split, ())]
        tables = [table for table in tables if table.places]
        of_kind = {kind: [table for table in tables if table.kind == kind] for kind in ("", "keypoints", "caption")}
        taken = next((found for found in of_kind.values() if found), [])
        for table in of_kind["keypoints"] if taken is not of_kind["keypoints"] else ():
            remark = f"It holds keypoints of images that another list has: {table.annotations:,} left out."
            if remark not in taken[0].remarks:
                taken[0].remarks.append(remark)
        return taken, of_kind["caption"]

    def _scanned(self, name: str) -> _Table:
        table, names, image_ids = _Table(name), list[str](), list[str]()
        try:
            with self.files.path(name).open("rb") as file:
                for what, entry, place, size in entries(file):
                    if isinstance(entry, dict):
                        table.note(what, entry, place, size, names, image_ids)
        except ValueError:
            return _Table(name, _NO_FORM)
        except OSError as error:
            return _Table(name, f"It cannot be read: {error.strerror or error}.")
        if not names:
            return _Table(name, "It lists no image: download it again." if self.in_place else "")
        table.finish(image_ids)
        table.stamp = stamp_of(self.files.path(name))
        table.folder = self._folder_of(name, names)
        table.keys = Places(digest(self._place_of(table, each) or each) for each in names)
        return table

    def _folder_of(self, name: str, images: Sequence[str]) -> str:
        """Return the folder with the images of a JSON file: SPLIT/, images/SPLIT/, images/ or the file's own folder."""
        split, own_folder = _split_of(name), posixpath.dirname(name)
        above = posixpath.dirname(own_folder)
        kinds = dict.fromkeys((split, split_folder(standard(split), "val"), standard(split)))  # type: ignore[arg-type]
        inside = [joined(*parts) for kind in kinds for parts in ((kind,), ("images", kind))]
        folders = dict.fromkeys(joined(base, each) for base in (above, own_folder) for each in (*inside, "images", ""))
        for folder in folders:
            if any(self._is_there(joined(folder, _path(image))) for image in images[:20] if image):
                return folder
        if self.in_place:
            looked = ", ".join(f"{folder}/" if folder else "the folder itself" for folder in folders)
            raise UserError(
                f"The images that {name} lists are missing: {images[0]} was not found in {looked}.", field="root"
            )
        return ""

    def _is_there(self, path: str) -> bool:
        return self.files.has(path) if self.in_place else by_form(self._known, path) is not None

    def _place_of(self, table: _Table, named: str) -> str | None:
        """Return the path of image `named`: in the JSON file's folder, in the top folder, or unique in any folder."""
        path = joined(table.folder, _path(named))
        if self.in_place:
            return path
        found = by_form(self._known, posixpath.normpath(path)) or by_form(self._known, posixpath.normpath(_path(named)))
        same = self._by_base.get(posixpath.basename(path), [])
        return found or (same[0] if len(same) == 1 and named else None)

    def _found(self, table: _Table, file: BinaryIO, place: int, captions: Sequence[_Table], tally: Tally) -> Found:
        entry = _read_at(file, table.places[place], table.sizes[place])
        named, where = _text(entry.get("file_name")), f"{table.name}, image {place + 1}"
        path, split = self._place_of(table, named), standard(_split_of(table.name))
        identity = _id(entry.get("id"))
        key = table.keys.key(path or named, place)
        found = Found(path or named, stem_of(path or named), opener(self.files, path or named), key=key, where=where)
        if path is None:
            problem = f"It names an image that is not there (“{entry.get('file_name')}”): add the file."
            return replace(found, problem=problem)
        licence = table.licences.get(_id(entry.get("license")), "")
        folder = next((part for part in path.split("/")[:-1] if standard(part) in ("train", "validation", "test")), "")
        found = replace(found, split=split or standard(folder), attributes={"licence": licence} if licence else {})
        annotations: list[dict[str, Any]] = []
        words: list[str] = []
        if identity and len(table.ids.all(identity)) > 1:
            tally.note(
                where, f"Another image has its id {identity}, so that nothing tells whose annotations are whose."
            )
        else:
            annotations = [_read_at(file, *part) for part in table.of_image(identity)]
            words = [_text(each.get("caption")) for each in annotations if each.get("caption")]
            for other in captions:
                with self.files.path(other.name).open("rb") as second:
                    words += [_text(_read_at(second, *part).get("caption")) for part in other.of_image(identity)]
        if len(words) > 1:
            tally.note(where, f"It has {len(words)} captions: the first one was taken.")
        if words:
            found = replace(found, row=Row(caption=words[0]))
        if table.kind == "caption":
            return found
        objects = [a for a in annotations if not a.get("iscrowd") and _id(a.get("category_id")) in table.categories]
        if self._largest and objects:
            largest = max(objects, key=area_of)
            found = replace(found, label=table.categories[_id(largest.get("category_id"))])
        try:
            return self._drawn(found, table, entry, annotations, tally)
        except UserError as error:
            return replace(found, problem=str(error))

    def _drawn(self, found: Found, table: _Table, entry: Record, annotations: Sequence[Record], tally: Tally) -> Found:
        """Return the item with its label and the mask of its regions. Raises UserError for an unreadable entry."""
        named = table.categories
        kinds = [_id(annotation.get("category_id")) for annotation in annotations]
        if not named.keys() >= set(kinds):
            ids = [str(a.get("category_id"))[:80] for a in annotations if _id(a.get("category_id")) not in named]
            listed = ", ".join(sorted(set(ids))[:6])
            raise UserError(f"Annotations of this image have a category that “categories” does not list: {listed}.")
        mask_classes, label = entry.get("mask_classes"), entry.get("label")
        try:
            classes = {int(n): str(name) for n, name in mask_classes.items()} if isinstance(mask_classes, dict) else {}
            size = int(entry["width"]), int(entry["height"])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise UserError("The image's width, height and mask_classes keys must be numbers: correct them.") from error
        if any(not 0 <= number <= UNLABELLED for number in classes):
            raise UserError("The image's mask_classes have a number outside of 0 to 255: correct this number.")
        if not (0 < size[0] <= 1 << 15 and 0 < size[1] <= 1 << 15):
            raise UserError("The image's width and height are not both from 1 to 32,768 pixels: correct them.")
        if isinstance(label, str) and not self._largest:
            found = replace(found, label=label)
        if isinstance(label, str) and not isinstance(mask_classes, dict):
            return found
        shaped = [annotation for annotation in annotations if annotation.get("segmentation")]
        if len(shaped) < len(annotations):
            labels = {named[kind] for kind in kinds}
            if len(labels) == 1 and not shaped:
                return found if self._largest else replace(found, label=next(iter(labels)))
            tally.note(
                found.where,
                f"{len(annotations) - len(shaped)} of its annotations have a box and no region: they were left out.",
            )
        numbers = {name: number for number, name in classes.items()} or table.numbers
        if not numbers and named:
            return found
        shapes = []
        for annotation in sorted(shaped, key=area_of, reverse=True):  # smaller regions go over larger ones
            number = annotation.get("mask_number", numbers.get(named[_id(annotation.get("category_id"))]))
            if not isinstance(number, int) or not 0 <= number < UNLABELLED:
                raise UserError("It has more than 255 classes, which a mask cannot hold.")
            shapes.append((number, annotation["segmentation"]))
        without_mask = annotations or not table.has_regions or not self.in_place
        if not shapes and not isinstance(mask_classes, dict) and without_mask:
            return found
        return replace(found, mask=painted(shapes, size), classes=classes or {n: name for name, n in numbers.items()})


class _Table:
    def __init__(self, name: str, problem: str = "") -> None:
        self.name, self.problem, self.stamp, self.folder = name, problem, "", ""
        self.kind = ""
        """“caption” or “keypoints” if the annotations of the JSON file are of this kind; otherwise ""."""
        self.places, self.sizes, self._ids, self._at, self._bytes = (array("Q") for _ in range(5))
        self.keys = self.ids = self._by_image = Places()
        self.categories: dict[str, str] = {}
        self.licences: dict[str, str] = {}
        self.remarks: list[str] = []
        self.has_regions = False

    def note(self, what: str, entry: Record, place: int, size: int, names: list[str], ids: list[str]) -> None:
        """Store an entry, which begins at byte `place` of the file. Add an image's name and id to `names` and `ids`."""
        if what == "images":
            names.append(_text(entry.get("file_name")))
            ids.append(_id(entry.get("id")))
            self.places.append(place)
            self.sizes.append(size)
        elif what == "annotations":
            if not self._ids:
                self.kind = next((kind for kind in ("caption", "keypoints") if kind in entry), "")
            self.has_regions = self.has_regions or bool(entry.get("segmentation"))
            self._ids.append(digest(_id(entry.get("image_id"))))
            self._at.append(place)
            self._bytes.append(size)
        elif what == "categories" and isinstance(entry.get("name"), str) and _id(entry.get("id")):
            identity, name = _id(entry.get("id")), entry["name"]
            if self.categories.setdefault(identity, name) != name:
                first = self.categories[identity]
                self.remarks.append(
                    f"Its categories “{first}” and “{name}” have one id, {identity}: the first was taken."
                )
        elif what == "licenses":
            parts = [_text(entry.get(part)) for part in ("name", "url")]
            self.licences[_id(entry.get("id"))] = ", ".join(part for part in parts if part)

    @property
    def annotations(self) -> int:
        return len(self._ids)

    @property
    def numbers(self) -> dict[str, int]:
        """Number of each class in masks, by class name. Empty if there are too many classes for a mask."""
        names = dict.fromkeys(self.categories.values())
        return {name: number for number, name in enumerate(names)} if len(names) <= UNLABELLED else {}

    def finish(self, ids: Sequence[str]) -> None:
        """Index images and annotations by image id. `ids` are the ids of the images, in order."""
        self.ids, self._by_image = Places(map(digest, ids)), Places(self._ids)
        if len(set(self.categories.values())) > UNLABELLED:
            self.remarks.append("It has more categories than a mask can hold: masks are left out.")

    def of_image(self, identity: str) -> list[tuple[int, int]]:
        return [(self._at[at], self._bytes[at]) for at in self._by_image.all(identity)]


def _is_list(files: Files, name: str) -> bool:
    if posixpath.basename(name) in _OUR_LISTS:
        return False
    try:
        with files.path(name).open("rb") as file:
            return any(what == "images" for what, *_ in entries(file))
    except (ValueError, OSError, UserError):
        return False


def _split_of(table: str) -> str:
    """Return the split that the path of a JSON file names, such as instances_train2017.json or train/."""
    own_name = _KINDS.sub("", stem_of(table).removesuffix(".coco")).strip("_")
    folders = [part for part in table.split("/")[:-1] if part.lower() in SPLIT_OF]
    named = [
        part for part in (own_name, *re.split(r"[_\W]", own_name)) if standard(part) in ("train", "validation", "test")
    ]
    return named[0] if named else folders[-1] if folders else ""


def _path(named: str) -> str:
    return posixpath.normpath(named.replace("\\", "/")) if named else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _id(value: object) -> str:
    """Return an id as text, so that 27 and "27" are equal; "" if the value cannot be an id, such as a list."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int | float | str) else ""


def _read_at(file: BinaryIO, place: int, size: int) -> dict[str, Any]:
    file.seek(place)
    try:
        entry = json.loads(file.read(size))
    except ValueError as error:
        raise UserError(_CHANGED) from error
    return entry if isinstance(entry, dict) else {}


class _Text:
    """Reads a JSON file once from front to back. Each byte counts as one character."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0
        """Number of bytes in the file before the buffered text."""
        self._more()
        if self._text.startswith("\xef\xbb\xbf"):  # byte order mark of UTF-8
            self._at = 3

    def sign(self) -> str:
        """Return the next character that is not blank, without consuming it. Raises ValueError at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise ValueError(_NO_FORM)

    def take(self, signs: str) -> str:
        """Consume the next character if it is one of `signs`. Raises ValueError for any other character."""
        if (sign := self.sign()) not in signs:
            raise ValueError(_NO_FORM)
        self._at += 1
        return sign

    def parts(self, begin: str, end: str) -> Iterator[None]:
        """Consume brackets and commas of a list or an object. Yield before each element, which the caller consumes."""
        self.take(begin)
        mark = self.take(end) if self.sign() == end else ","
        while mark == ",":
            yield
            mark = self.take(f",{end}")

    def value(self) -> tuple[Any, int, int]:
        """Consume the next value. Return it with its offset and its size in bytes. Raises ValueError if invalid."""
        self.sign()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or not self._more():  # a number may continue in the next block
                    break
            except ValueError as error:
                if not self._more():
                    raise ValueError(_NO_FORM) from error
            except RecursionError as error:
                raise ValueError(_NO_FORM) from error
        start, size = self._before + self._at, end - self._at
        piece = self._text[self._at : end]
        if not piece.isascii():  # the file is read as one character for each byte, so decode texts here
            value = json.loads(piece.encode("latin-1"))
        self._at = end
        return value, start, size

    def _more(self) -> bool:
        data = self._file.read(max(_BLOCK, len(self._text) - self._at))
        if not data:
            return False
        self._before += self._at
        self._text = self._text[self._at :] + data.decode("latin-1")
        self._at = 0
        return True


def entries(file: BinaryIO) -> Iterator[tuple[str, Any, int, int]]:
    """Yield (list name, entry, offset, size) for each entry of a JSON object's lists. Raises ValueError if invalid."""
    text = _Text(file)
    for _ in text.parts("{", "}"):
        name, _, _ = text.value()
        text.take(":")
        if text.sign() == "[":
            for _ in text.parts("[", "]"):
                yield (str(name), *text.value())
        else:
            text.value()
