"""Make the files beside the images of every export: card (README.md), sheet of pictures, Croissant, class list."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from core.masks import UNLABELLED
from core.version import version
from formats.naming import split_folder
from formats.types import Example, TestSet, compact

CARD, SHEET, CROISSANT, CLASSES, RECORDS = "README.md", "sheet.jpg", "croissant.json", "classes.json", "records.jsonl"
TYPED = "records.parquet"
"""The records for Croissant, whose readers take labels such as 007 in lines of JSON for numbers."""
_PICTURES, _SIDE, _COLUMNS, _GAP = 12, 192, 6, 6
"""Pictures on the sheet: number at most, longer side in pixels, number a line, and space between in pixels."""
_MOST_LISTED = 40
"""Rows of a table in the card at most. The others are counted."""


@dataclass(frozen=True)
class Description:
    """Description of the files of a format, for card and Croissant."""

    loads: str
    """Lines of Python that load the set from the folder SET."""
    holds: tuple[tuple[str, str], ...]
    """Files and their content, for the card."""
    images: str = ""
    """A glob of the image files; "" where they are inside others."""
    masks: str = ""
    shards: str = ""
    """A glob of the files that images are inside of."""
    configs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Splits and their files, for `datasets`; empty where `datasets` has no reader."""
    notes: tuple[str, ...] = field(default=())
    """Sentences that a user of the format should know."""


def classes_of(examples: Sequence[Example]) -> dict[str, Any]:
    """Return the labels in their order, and the numbers of masks if they mean the same in all examples."""
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
    """Return the page that a person reads first. Its head tells the hub and `datasets` what the files are.

    `left_out` is the number of images by kind of detail that stands in `records.jsonl` alone.
    """
    title = _plain(test_set.name)
    lines = [
        "---",
        f"pretty_name: {compact(test_set.name)}",
        "license: other",
        "tags:",
        *(["- synthetic", "- counterfactual"] if any(example.xmp for example in examples) else []),
        "- dillema-studio",
        *_configs(description),
        "---",
        f"# {title}",
        "",
        *([_plain(test_set.note), ""] if test_set.note else []),
        f"A test set for vision models, made with DILLEMA Studio {version()}, as {layout_title}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| version | `{_plain(test_set.version or 'none')}` |",
        *([f"| released | {_plain(test_set.created)} |"] if test_set.created else []),
        f"| images | {len(examples):,} |",
        f"| with a mask | {sum(example.mask is not None for example in examples):,} |",
        f"| source images | {len({example.source_sha for example in examples if example.source_sha}):,} |",
        "",
        f"![Some of the images]({SHEET})",
        "",
        *_table("Splits", Counter(split_folder(example.split) for example in examples)),
        *_table("Labels", Counter(example.label for example in examples if example.label)),
        *_table("Edit types", Counter(kind for example in examples for kind in dict.fromkeys(example.edit_types))),
        *_table("What they are", Counter(map(_kind, examples))),
        "## Load it",
        "",
        "```python",
        description.loads,
        "```",
        "",
        *(f"- {note}" for note in description.notes),
        *(f"- The {what} of {count:,} images stand in `{RECORDS}` alone." for what, count in sorted(left_out.items())),
        *([""] if description.notes or left_out else []),
        "| file | what it holds |",
        "| --- | --- |",
        *(f"| `{file}` | {holds} |" for file, holds in description.holds),
        f"| `{RECORDS}` | a line an image: label, captions, edits; in `facts` how it was made, checked and judged |",
        f"| `{CLASSES}` | the labels, and the class numbers of the masks |",
        f"| `{CROISSANT}`, `{TYPED}` | the same for machines, as Croissant 1.1 |",
        "| `manifest.json` | every file with its sha256; written last, so a folder without it is not whole |",
        "",
        "## Where the images come from",
        "",
        "A machine drew the generated images; each of their files says so in the words of IPTC (DigitalSourceType in "
        "its XMP). Imported images came from files of which nothing says that a machine drew them. Images of the role "
        "“source” are what others were made from. What is known of how an image was made, checked and reviewed stands "
        f"in `facts` of `{RECORDS}`.",
        "",
        *_licences(test_set),
    ]
    return "\n".join(lines)


def _kind(example: Example) -> str:
    if example.role == "source":
        return "source"
    return "generated" if example.xmp else "imported"


def croissant(
    test_set: TestSet, description: Description, files: Iterable[Mapping[str, Any]], columns: Mapping[str, str]
) -> bytes:
    """Return the set as Croissant 1.1. `files` are the files so far (name, sha256); `columns` describe the records by
    the names of their columns.
    """
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
        "@context": _CONTEXT,
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
    """Return some of the files of a set's pictures, spread over it."""
    return [files[number] for number in sorted({number * len(files) // _PICTURES for number in range(_PICTURES)})]


def picture_of_sheet(file: Path) -> Image.Image:
    """Read a picture, as small as the sheet shows it."""
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    image.thumbnail((_SIDE, _SIDE))
    return image


def sheet_of(pictures: Sequence[Image.Image]) -> bytes:
    """Return the sheet, a JPEG file on which the pictures stand side by side."""
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


def _configs(description: Description) -> list[str]:
    if not description.configs:
        return []
    lines = ["configs:", "- config_name: default", "  data_files:"]
    for split, patterns in description.configs:
        lines += [f"  - split: {split}", "    path:", *(f'    - "{pattern}"' for pattern in patterns)]
    return lines


def _table(title: str, counted: Counter[str]) -> list[str]:
    if not counted:
        return []
    rows = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    more = len(rows) - _MOST_LISTED
    return [
        f"## {title}",
        "",
        "| | images |",
        "| --- | --- |",
        *(f"| {_plain(name)} | {count:,} |" for name, count in rows[:_MOST_LISTED]),
        *([f"| {more:,} more | {sum(count for _, count in rows[_MOST_LISTED:]):,} |"] if more > 0 else []),
        "",
    ]


def _licences(test_set: TestSet) -> list[str]:
    if not test_set.licences:
        return []
    return [
        "## Licences of the models that made it",
        "",
        "| model | licence |",
        "| --- | --- |",
        *(
            f"| {_plain(title)} | {_plain(licence or 'not known')} |"
            for title, licence in sorted(test_set.licences.items())
        ),
        "",
    ]


def _plain(text: str) -> str:
    escaped = " ".join(text.split())
    for mark in "\\`*_[]<>#|":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileProperty fileObject fileSet "
    "format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex "
    "repeated replace samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""Beginning of a Croissant file of version 1.1."""
