"""Formats that are folders of images: Hugging Face's with `metadata.jsonl`, torchvision's, Cityscapes', a plain one."""

from __future__ import annotations

import io
import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from PIL import Image
from pydantic import ValidationError

from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED, parse_classes
from core.validation_messages import reason
from formats.draft import Draft, HashedFile, Picture
from formats.naming import SPLIT_OF, folder_names, split_folder
from formats.pages import CLASSES, Kept
from formats.sources import Files, Found, Report, by_form, is_image, lines_of, names_by_form
from formats.types import Example, Row, Split, json_lines

METADATA = "metadata.jsonl"
_MASKS = ("masks", "mask", "segmentations", "labels", "annotations", "gtfine")
"""Folders of masks, in lower case."""
_PICTURES = ("images", "image", "img", "imgs", "leftimg8bit", "data")
"""Folders that say nothing of a label."""
_MASK_ENDINGS = ("_mask", ".mask", "-mask", "_gtFine_labelIds")


def write_imagefolder(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Hugging Face ImageFolder: SPLIT/metadata.jsonl beside SPLIT/images/ and SPLIT/masks/."""
    masks = any(example.mask is not None for example in examples)
    splits = splits_of(examples)

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split)
        return _pair(example, f"{split}/images", f"{split}/masks")

    with ExitStack() as open_files:
        tables: dict[str, HashedFile] = {}
        for picture in draft.pictures(_telling_first(examples), named):
            example, split = picture.example, split_folder(picture.example.split)
            if split not in tables:
                tables[split] = open_files.enter_context(draft.stream(f"{split}/{METADATA}"))
            image, mask = named(example)
            # The image comes first, or `datasets` has its column last; a column is there in every line or in none.
            files = {"file_name": f"images/{example.name}.png"}
            if masks:
                files["mask_file_name"] = f"masks/{example.name}.png" if mask else None  # type: ignore[assignment]
            tables[split].write(json_lines([{**files, **picture.row}]))
            draft.record(picture, image, mask)
    kinds = ("images", "masks") if masks else ("images",)
    first = split_folder(splits[0])
    return Kept(
        f'from datasets import load_dataset\n\nimages = load_dataset("SET", split="{first}")',
        (
            ("SPLIT/images/", "the images"),
            *([("SPLIT/masks/", "a class number a pixel, of the image of the same name")] if masks else []),
            (f"SPLIT/{METADATA}", "a line an image, as `datasets` reads it"),
        ),
        images="*/images/*.png",
        masks="*/masks/*.png" if masks else "",
        configs=tuple(
            (split, (f"{split}/{METADATA}", *(f"{split}/{kind}/*" for kind in kinds)))
            for split in map(split_folder, splits)
        ),
        notes=(
            '`edits`, `mask_classes` and `facts` are JSON texts: `json.loads(row["facts"])`.',
            'Labels are texts; `images.class_encode_column("label")` numbers them.',
        ),
    )


def find_imagefolder(files: Files, report: Report) -> Iterator[Found]:
    """The examples of every `metadata.jsonl`; images that no line names are told."""
    known = names_by_form(files.names)
    used: set[str] = set()
    tables = [name for name in files.names if posixpath.basename(name) == METADATA]
    for table in tables:
        folder = posixpath.dirname(table)
        for line, row in rows_of_lines(files, table, report):
            where, extra = f"{table}, line {line}", row.model_extra or {}
            named = extra.get("file_name")
            mask_named = extra.get("mask_file_name")
            image = beside(named, folder, known)
            if image is None:
                report.refuse(where, _missing("an image", named))
                continue
            mask = beside(mask_named, folder, known) if mask_named else None
            used.update(name for name in (image, mask) if name)
            if mask_named and mask is None:
                report.refuse(where, _missing("a mask", mask_named))
                continue
            split = split_in(row.split or posixpath.dirname(image))
            yield Found(
                image,
                row.name or posixpath.splitext(posixpath.basename(image))[0],
                _reader(files, image),
                row.label,
                split,
                _mask_reader(files, mask) if mask else None,
                row.mask_classes or None,
                without(row, "file_name", "mask_file_name"),
            )
    for name in files.names:
        if is_image(name) and name not in used and _within(name, tables):
            report.refuse(name, f"No line of {METADATA} names it: add one, or take the file away.")


def write_torchvision(draft: Draft, examples: Sequence[Example]) -> Kept:
    """torchvision ImageFolder: SPLIT/LABEL/NAME.png; masks lie in a tree of their own.

    Raises UserError without labels.
    """
    _require(examples, [example for example in examples if not example.label], "label", "ImageFolder of torchvision")
    folders = folder_names(example.label for example in examples)
    masks = any(example.mask is not None for example in examples)

    def named(example: Example) -> tuple[str, str | None]:
        place = f"{split_folder(example.split)}/{folders[example.label]}"
        return _pair(example, place, f"masks/{place}")

    for picture in draft.pictures(examples, named):
        draft.record(picture, *named(picture.example))
    draft.classes["folders"] = {folder: label for label, folder in folders.items()}
    first = split_folder(splits_of(examples)[0])
    return Kept(
        f'from torchvision.datasets import ImageFolder\n\nimages = ImageFolder("SET/{first}")',
        (
            ("SPLIT/LABEL/", "the images of a label"),
            *([("masks/SPLIT/LABEL/", "a class number a pixel, of the image of the same name")] if masks else []),
        ),
        images="*/*/*.png",
        masks="masks/*/*/*.png" if masks else "",
        notes=("`ImageFolder` numbers the labels that a split has: compare by `images.classes`, not by number.",),
    )


def write_cityscapes(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Cityscapes' folders, its masks with one list of class numbers for all. Raises UserError without masks."""
    _require(examples, [example for example in examples if example.mask is None], "mask", "Cityscapes")
    common, number_of = _common_numbers(examples)

    def named(example: Example) -> tuple[str, None]:
        return f"leftImg8bit/{city(example)}/{example.name}_leftImg8bit.png", None

    def city(example: Example) -> str:
        # Three splits are all that its readers know; records.jsonl says which examples are of none.
        return f"{split_folder(example.split or 'test', 'val')}/studio"

    for picture in draft.pictures(examples, named):
        example = picture.example
        assert picture.mask is not None
        numbers = number_of(example)
        image, mask = named(example)[0], f"gtFine/{city(example)}/{example.name}_gtFine_labelIds.png"
        draft.put(mask, picture.mask if all(old == new for old, new in numbers.items()) else _mapped(picture, numbers))
        draft.record(picture, image, mask, mask_numbers={str(new): old for old, new in numbers.items()})
    draft.classes["masks"] = {str(number): name for number, name in common.items()}
    first = split_folder(splits_of(examples)[0] or "test", "val")
    return Kept(
        "from torchvision.datasets import Cityscapes\n\n"
        f'images = Cityscapes("SET", split="{first}", mode="fine", target_type="semantic")',
        (
            ("leftImg8bit/SPLIT/studio/", "the images"),
            ("gtFine/SPLIT/studio/", f"their masks: the numbers of `{CLASSES}`, {UNLABELLED} for no class"),
        ),
        images="leftImg8bit/*/*/*.png",
        masks="gtFine/*/*/*.png",
        notes=(
            f"The class numbers are this set's own, in `{CLASSES}`: they are not the numbers of Cityscapes.",
            "Images of no split lie in `test`, since Cityscapes has three splits and no other.",
        ),
    )


def find_cityscapes(files: Files, report: Report) -> Iterator[Found]:
    """The images of leftImg8bit with the masks of gtFine."""
    masks = {_stem_of_mask(name): name for name in files.names if name.endswith("_gtFine_labelIds.png")}
    listed = read_classes(files, report)
    for name in files.names:
        if not is_image(name) or "leftImg8bit/" not in f"/{name}":
            continue
        stem = posixpath.splitext(posixpath.basename(name))[0].removesuffix("_leftImg8bit")
        split = split_in(posixpath.dirname(name))
        mask = masks.get((posixpath.basename(posixpath.dirname(name)), stem))
        if mask is None:
            report.refuse(name, "It has no mask in gtFine: add one, or import the images as a plain folder.")
            continue
        yield Found(name, stem, _reader(files, name), "", split, _mask_reader(files, mask), listed)


def find_plain(files: Files, report: Report) -> Iterator[Found]:
    """Images with their folder as label, a folder called as a split as split, and masks beside them or in a tree of
    their own: ImageFolder of torchvision, and what people have.
    """
    labels = _folder_labels(files, report)
    classes = _Classes(files.names, labels)
    listed = read_classes(files, report)
    pictures = [name for name in files.names if is_image(name) and not _sheet(name)]
    masks: dict[tuple[str, str], str] = {}
    images: list[str] = []
    for name in pictures:
        if _is_mask(name) and not classes.hold(name):
            masks[_mask_key(name)] = name
        else:
            images.append(name)
    if not images and masks:
        images, masks = sorted(masks.values()), {}
    taken = set()
    top = images[0].split("/")[0] if images else ""
    one_folder = all(name.startswith(f"{top}/") for name in images)
    for name in images:
        key = _image_key(name)
        mask = masks.get(key) or masks.get(("", key[1]))
        if mask is not None:
            taken.add(mask)
        said = _label_of(name, classes, one_folder)
        label = labels.get(said, said)
        yield Found(
            name,
            posixpath.splitext(posixpath.basename(name))[0],
            _reader(files, name),
            label,
            split_in(posixpath.dirname(name)),
            _mask_reader(files, mask) if mask else None,
            listed,
        )
    for name in sorted(set(masks.values()) - taken):
        report.refuse(name, "It is a mask of no image here: give both the same name.")
    for name in files.names:
        if not is_image(name) and posixpath.splitext(name)[1].lower() not in (".json", ".jsonl", ".md", ".txt", ".csv"):
            report.refuse(name, "It is no image: PNG, JPEG, WebP, GIF, BMP and TIFF are taken.")


def rows_of_lines(files: Files, table: str, report: Report) -> Iterator[tuple[int, Row]]:
    """The rows of a file with a JSON object a line, with their lines from 1; bad lines are told."""
    try:
        for line in lines_of(files, table):
            row = row_of_line(line.text, f"{table}, line {line.number}", report)
            if row is not None:
                yield line.number, row
    except UserError as error:
        report.refuse(table, str(error))


def row_of_line(text: bytes, where: str, report: Report) -> Row | None:
    """The row of a line with a JSON object; None, told, for what is none."""
    try:
        held = json.loads(text)
        if not isinstance(held, dict):
            raise ValueError("it is no object")
        return Row.model_validate(held)
    except (ValidationError, ValueError, RecursionError) as error:
        why = reason(error) if isinstance(error, ValidationError) else "it is no JSON object"
        report.refuse(where, f"The line cannot be read: {why}.")
        return None


def count_images(files: Files) -> int:
    """About how many examples there are, by the names of the files."""
    return sum(is_image(name) and not _sheet(name) and not _is_mask(name) for name in files.names)


def without(row: Row, *names: str) -> Row:
    """The row without columns that are no facts of the example."""
    extra = {name: value for name, value in (row.model_extra or {}).items() if name not in names}
    return Row.model_validate({**{name: getattr(row, name) for name in Row.model_fields}, **extra})


def split_in(folder: str) -> Split:
    """The split that a path or a word names; "" for none."""
    for part in folder.split("/"):
        if part.lower() in SPLIT_OF:
            return SPLIT_OF[part.lower()]
    return ""


def read_classes(files: Files, report: Report) -> dict[int, str] | None:
    """The class numbers that a `classes.json` or `classes.txt` of the set names; None without one."""
    name = next((name for name in files.names if posixpath.basename(name) in (CLASSES, "classes.txt")), None)
    if name is None:
        return None
    try:
        text = files.read(name, 1_000_000).decode("utf-8-sig")
        if name.endswith(".txt"):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return parse_classes(text) if text.strip()[:1].isdigit() else dict(enumerate(lines[:UNLABELLED]))
        held = json.loads(text)
        numbers = held.get("masks", held.get("classes", held)) if isinstance(held, dict) else held
        if isinstance(numbers, list):
            numbers = dict(enumerate(numbers))
        if numbers is None:
            return None
        return {int(number): str(called) for number, called in numbers.items() if 0 <= int(number) <= UNLABELLED}
    except (ValueError, TypeError, AttributeError, UserError, RecursionError):
        report.refuse(name, "It is no list of classes: write one as “0 sky, 1 road” in classes.txt.")
        return None


def read_bytes(files: Files, name: str) -> Callable[[], bytes]:
    """What reads a file of the set when it is needed."""
    return _reader(files, name)


def _reader(files: Files, name: str) -> Callable[[], bytes]:
    return lambda: files.read(name)


def _mask_reader(files: Files, name: str) -> Callable[[tuple[int, int]], bytes]:
    return lambda _size: files.read(name)


def _pair(example: Example, images: str, masks: str) -> tuple[str, str | None]:
    """The names of image and mask in their folders."""
    return f"{images}/{example.name}.png", None if example.mask is None else f"{masks}/{example.name}.png"


def _telling_first(examples: Sequence[Example]) -> list[Example]:
    """Those in front that are the first of their split to fill a column: `datasets` takes the types of columns from the
    first ten megabytes, and cannot read what comes after them if it does not fit.
    """
    known: set[tuple[str, str]] = set()
    telling: list[Example] = []
    others: list[Example] = []
    for example in examples:
        filled = {(example.split, name) for name in ("edit_types", "mask") if getattr(example, name)}
        (others if filled <= known else telling).append(example)
        known |= filled
    return [*telling, *others]


def splits_of(examples: Sequence[Example]) -> list[Split]:
    """The splits that there are, in their order."""
    return sorted({example.split for example in examples}, key=("train", "validation", "test", "").index)


def _require(examples: Sequence[Example], lacking: Sequence[Example], what: str, where: str) -> None:
    if lacking:
        raise UserError(
            f"{len(lacking):,} of {len(examples):,} images have no {what}, such as “{lacking[0].name}”, and {where} "
            f"needs one of each: choose another format, or take them out of the set.",
            field="layout",
        )


def _common_numbers(
    examples: Sequence[Example],
) -> tuple[dict[int, str], Callable[[Example], dict[int, int]]]:
    """One list of class numbers for all masks: an example's own number where it is free, else the next free one."""
    placed: dict[tuple[str, int], int] = {}

    def keys(example: Example) -> list[tuple[int, tuple[str, int]]]:
        seen: dict[str, int] = {}
        found = []
        for number, name in sorted(example.mask_classes.items()):
            if number != UNLABELLED:
                found.append((number, (name, seen.get(name, 0))))
                seen[name] = seen.get(name, 0) + 1
        return found

    for example in examples:
        for number, key in keys(example):
            if key not in placed:
                taken = set(placed.values())
                free = number if number not in taken else next((n for n in range(UNLABELLED) if n not in taken), None)
                if free is None:
                    raise UserError("The masks have more than 255 classes, which Cityscapes' cannot hold: choose COCO.")
                placed[key] = free
    common = {number: name for (name, _), number in sorted(placed.items(), key=lambda item: item[1])}
    return common, lambda example: {number: placed[key] for number, key in keys(example)}


def _mapped(picture: Picture, numbers: Mapping[int, int]) -> bytes:
    table = np.full(256, UNLABELLED, np.uint8)
    for old, new in numbers.items():
        table[old] = new
    with Image.open(io.BytesIO(picture.mask or b"")) as mask:
        return png_of(Image.fromarray(table[np.asarray(mask.convert("L"))]))


def beside(named: object, folder: str, known: Mapping[str, str]) -> str | None:
    """The file that a table in `folder` names, of those that `names_by_form` gives; None for none of them."""
    if not isinstance(named, str):
        return None
    path = posixpath.normpath(posixpath.join(folder, named.replace("\\", "/")))
    return by_form(known, path)


def _missing(what: str, named: object) -> str:
    return f"It names {what} that is not there (“{named}”): add the file." if named else f"It names no {what[3:]}."


def _within(name: str, tables: Sequence[str]) -> bool:
    """Whether an image lies beside or below one of the tables."""
    folders = [posixpath.dirname(table) for table in tables]
    return not _sheet(name) and any(not folder or name.startswith(f"{folder}/") for folder in folders)


def _sheet(name: str) -> bool:
    return posixpath.basename(name) == "sheet.jpg"


def _is_mask(name: str) -> bool:
    stem = posixpath.splitext(posixpath.basename(name))[0]
    return any(part.lower() in _MASKS for part in name.split("/")[:-1]) or stem.endswith(_MASK_ENDINGS)


def _split_at(folders: Sequence[str]) -> int | None:
    """The place of the first folder that names a split."""
    return next((at for at, part in enumerate(folders) if part.lower() in SPLIT_OF), None)


class _Classes:
    """Which folders directly below a split are labels, though they are called as folders of images or masks are.

    A class list of an export says it. Else such a folder is a label where labels of other names lie beside it, unless
    it holds the masks of images beside it, or the images that these masks are of.
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, str]) -> None:
        below: dict[str, set[tuple[str, str]]] = {}
        for name in names:
            before, folder = self._place(name)
            if folder and is_image(name):
                below.setdefault(folder, set()).add((before, _mask_key(name)[1]))
        if labels:
            self._words = {folder.lower() for folder in labels}
            return
        masks = {folder for folder in below if folder in _MASKS}
        plain = below.keys() - masks - set(_PICTURES)
        beside = {folder: set().union(*(below[other] for other in below if other != folder)) for folder in masks}
        paired = {folder for folder in masks if 2 * len(below[folder] & beside[folder]) >= len(below[folder])}
        self._words = set(plain)
        if plain:
            self._words |= masks - paired
            self._words |= set() if paired else below.keys() & set(_PICTURES)

    def hold(self, name: str) -> bool:
        """Whether a file lies directly in the folder of a label, and that directly below a split."""
        return self._place(name)[1] in self._words

    @staticmethod
    def _place(name: str) -> tuple[str, str]:
        """Where the split lies, and the folder below it, in lower case, that holds the file itself; "" for none."""
        folders = name.split("/")[:-1]
        at = _split_at(folders)
        if at is None or len(folders) != at + 2 or any(part.lower() in _MASKS for part in folders[:at]):
            return "", ""
        if posixpath.splitext(name)[0].endswith(_MASK_ENDINGS):
            return "", ""
        return "/".join(folders[: at + 1]), folders[-1].lower()


def _label_of(name: str, classes: _Classes, one_folder: bool) -> str:
    """The folder that is the label of an image; "" for none. `one_folder`: all images lie in one, which is the set."""
    folders = name.split("/")[:-1]
    if classes.hold(name):
        return folders[-1]
    said = [at for at, part in enumerate(folders) if at != _split_at(folders) and part.lower() not in _PICTURES]
    if one_folder and said[:1] == [0]:
        said = said[1:]
    return folders[said[-1]] if said else ""


def _mask_key(name: str) -> tuple[str, str]:
    """Folder and stem of the image that a mask is of."""
    stem = posixpath.splitext(posixpath.basename(name))[0]
    for ending in _MASK_ENDINGS:
        stem = stem.removesuffix(ending)
    return _plain_folder(name), stem


def _image_key(name: str) -> tuple[str, str]:
    return _plain_folder(name), posixpath.splitext(posixpath.basename(name))[0]


def _plain_folder(name: str) -> str:
    parts = [part for part in name.split("/")[:-1] if part.lower() not in (*_MASKS, *_PICTURES)]
    return "/".join(parts)


def _stem_of_mask(name: str) -> tuple[str, str]:
    return posixpath.basename(posixpath.dirname(name)), posixpath.basename(name).removesuffix("_gtFine_labelIds.png")


def _folder_labels(files: Files, report: Report) -> dict[str, str]:
    """The labels that an export's folders stand for."""
    if CLASSES not in files.names:
        return {}
    try:
        held = json.loads(files.read(CLASSES, 10_000_000))
        return {str(folder): str(label) for folder, label in held.get("folders", {}).items()}
    except (ValueError, AttributeError, UserError, RecursionError):
        report.refuse(CLASSES, "It is no list of classes: labels are taken from the names of folders.")
        return {}
