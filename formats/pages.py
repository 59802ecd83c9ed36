"""Files that every export has besides images: card (README.md), sheet of pictures, Croissant metadata, class list."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from core.data_files import DataTable
from core.masks import UNLABELLED
from core.text_templates import TextTemplates
from core.version import version
from formats.naming import split_folder
from formats.types import Example, TestSet, compact

CARD, SHEET, CROISSANT, CLASSES, RECORDS = "README.md", "sheet.jpg", "croissant.json", "classes.json", "records.jsonl"
TYPED = "records.parquet"
"""File with the rows of `records.jsonl` as Parquet, for Croissant. From JSON, readers would take a label 007 as 7."""
_PICTURES, _SIDE, _COLUMNS, _GAP = 12, 192, 6, 6
"""Contact sheet: maximum number of pictures, longer side of a picture in pixels, pictures per row, gap in pixels."""
_MOST_LISTED = 40
"""Maximum number of rows of a table in the card. Further rows are counted, not shown."""


@dataclass(frozen=True)
class Description:
    """Description of the files of an export format, for the card and for Croissant."""

    loads: str
    """Python code that loads the test set from the folder SET."""
    holds: tuple[tuple[str, str], ...]
    """Pairs for the card: files of the format, and a description of their content."""
    images: str = ""
    """Glob pattern of the image files; "" if other files contain the images."""
    masks: str = ""
    shards: str = ""
    """Glob pattern of the files that contain the images; "" if images are files themselves."""
    configs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Splits with their files, for the library `datasets`; empty if it cannot read the format."""
    notes: tuple[str, ...] = ()
    """Notes for users of the format, one sentence each."""


_DESCRIPTIONS = DataTable(__file__, Description)


def description_of(
    layout: str, first: str = "", masks: bool = True, configs: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> Description:
    """Return the description of a format's files. `first` is the split that the example code loads."""
    known = _DESCRIPTIONS[layout]
    if not masks:
        known = replace(known, masks="", holds=tuple(detail for detail in known.holds if "masks/" not in detail[0]))
    return replace(known, loads=known.loads.format(first=first), configs=configs)


def classes_of(examples: Sequence[Example]) -> dict[str, Any]:
    """Return the content of the class list: labels, and names of mask numbers (None if they differ by mask)."""
    named: dict[int, str] = {}
    one_list = all(
        named.setdefault(number, name) == name
        for example in examples
        for number, name in example.mask_classes.items()
        if example.mask is not None
    )
    return {
        "labels": sorted({example.label for example in examples if example.label}),
        "masks": {str(number): name for number, name in sorted(named.items())} if one_list else None,
        "unlabelled": UNLABELLED,
    }


def card(
    test_set: TestSet,
    examples: Sequence[Example],
    layout_title: str,
    description: Description,
    left_out: Mapping[str, int],
) -> str:
    """Return the README of an export. Its YAML head tells the Hugging Face hub and `datasets` what the files are."""
    tables = {
        "Splits": Counter(split_folder(example.split) for example in examples),
        "Labels": Counter(example.label for example in examples if example.label),
        "Edit types": Counter(kind for example in examples for kind in dict.fromkeys(example.edit_types)),
        "What they are": Counter(
            "source" if one.role == "source" else "generated" if one.xmp else "imported" for one in examples
        ),
    }
    return _TEMPLATES.lines(
        "card.md",
        test_set=test_set,
        examples=examples,
        sources=len({example.source for example in examples if example.source}),
        is_drawn=any(example.xmp for example in examples),
        layout_title=layout_title,
        description=description,
        left_out=left_out,
        tables={
            title: sorted(counted.items(), key=lambda item: (-item[1], item[0]))
            for title, counted in tables.items()
            if counted
        },
    )


def croissant(
    test_set: TestSet, description: Description, files: Iterable[Mapping[str, Any]], columns: Mapping[str, str]
) -> bytes:
    """Return the set's metadata as Croissant 1.1 (JSON). `files` lists its files, `columns` each column's meaning."""
    hashes = {str(file["name"]): str(file["sha256"]) for file in files}
    shard_kind = "application/x-parquet" if description.shards.endswith("parquet") else "application/x-tar"
    sets = [
        {"@type": "cr:FileSet", "@id": name, "name": name, "encodingFormat": kind, "includes": pattern}
        for name, kind, pattern in (
            ("images", "image/png", description.images),
            ("masks", "image/png", description.masks),
            ("shards", shard_kind, description.shards),
        )
        if pattern
    ]
    records = {
        "@type": "cr:FileObject",
        "@id": TYPED,
        "name": TYPED,
        "contentUrl": TYPED,
        "encodingFormat": "application/x-parquet",
        "sha256": hashes[TYPED],
    }
    fields: list[dict[str, Any]] = [
        {
            "@type": "cr:Field",
            "@id": f"examples/{name}",
            "name": name,
            "description": meaning,
            "dataType": "sc:Text",
            **({"repeated": True} if name == "edit_types" else {}),
            "source": {"fileObject": {"@id": TYPED}, "extract": {"column": name}},
        }
        for name, meaning in columns.items()
    ]
    described: dict[str, Any] = {
        "@context": json.loads((_FOLDER / "croissant-context.json").read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": test_set.name,
        "description": test_set.note or f"{test_set.name}: a test set for vision models, made with DILLEMA Studio.",
        "creator": {"@type": "sc:Organization", "name": f"DILLEMA Studio {version()}"},
        "license": [f"{title}: {licence or 'not known'}" for title, licence in sorted(test_set.licences.items())]
        or ["not known"],
        "url": TYPED,
        **({"identifier": test_set.version} if test_set.version else {}),
        **({"datePublished": test_set.created} if test_set.created else {}),
        "distribution": [records, *sets],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "examples",
                "name": "examples",
                "description": "A record an image.",
                "field": fields,
            }
        ],
    }
    return (json.dumps(described, ensure_ascii=False, indent=1) + "\n").encode()


def pictures_of_sheet(files: Sequence[Path]) -> list[Path]:
    """Return image files of a set for the contact sheet, evenly spread over the set."""
    return [files[number] for number in sorted({number * len(files) // _PICTURES for number in range(_PICTURES)})]


def picture_of_sheet(file: Path) -> Image.Image:
    """Read a picture and scale it for the contact sheet."""
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    image.thumbnail((_SIDE, _SIDE))
    return image


def sheet_of(pictures: Sequence[Image.Image]) -> bytes:
    """Return the contact sheet, a JPEG file with the pictures in rows."""
    columns = min(_COLUMNS, len(pictures))
    lines = -(-len(pictures) // columns)
    step = _SIDE + _GAP
    sheet = Image.new("RGB", (columns * step + _GAP, lines * step + _GAP), (255, 255, 255))
    for number, image in enumerate(pictures):
        left, top = number % columns * step + _GAP, number // columns * step + _GAP
        sheet.paste(image, (left + (_SIDE - image.width) // 2, top + (_SIDE - image.height) // 2))
    file = io.BytesIO()
    sheet.save(file, "JPEG", quality=85)
    return file.getvalue()


def _plain(text: str) -> str:
    escaped = " ".join(text.split())
    for mark in "\\`*_[]<>#|":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


_FOLDER = Path(__file__).with_name("templates")
_TEMPLATES = TextTemplates(
    _FOLDER,
    classes=CLASSES,
    compact=compact,
    croissant=CROISSANT,
    most_listed=_MOST_LISTED,
    plain=_plain,
    records=RECORDS,
    sheet=SHEET,
    typed=TYPED,
    version=version,
)
