"""WebDataset: tars of samples, each of them files of one key."""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from core.errors import UserError
from formats.common import (
    found_of_row,
    in_shards,
    split_in,
)
from formats.draft import Draft
from formats.files import Files, is_image, tar_members
from formats.naming import Names
from formats.pages import Kept
from formats.tables import LONGEST_CELL
from formats.types import Example, Found, Report, Row

if TYPE_CHECKING:
    pass

_MASK_PARTS = ("mask.", "seg.")


def write_webdataset(draft: Draft, examples: Sequence[Example]) -> Kept:
    """WebDataset: SPLIT-NUMBER.tar with KEY.png, KEY.json, KEY.cls and KEY.mask.png for each example."""
    numbers = {label: number for number, label in enumerate(draft.classes["labels"])}
    names = Names()
    first = ""
    for split, number, group in in_shards(draft.pictures(examples)):
        shard = f"{split}-{number:06d}.tar"
        first = first or shard
        with draft.stream(shard) as file, tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for picture in group:
                example = picture.example
                # What comes before the first dot is the key, so it has none.
                key = names.take(example.name.replace(".", "-"))
                _put(archive, f"{key}.png", picture.data)
                if picture.mask is not None:
                    _put(archive, f"{key}.mask.png", picture.mask)
                if example.label:
                    _put(archive, f"{key}.cls", str(numbers[example.label]).encode())
                _put(archive, f"{key}.json", json.dumps(picture.row, ensure_ascii=False).encode())
                draft.record(
                    picture, f"{shard}/{key}.png", f"{shard}/{key}.mask.png" if picture.mask is not None else None
                )
    return Kept(
        f'import webdataset\n\nimages = webdataset.WebDataset("SET/{first}", shardshuffle=False).decode("pil")',
        (("SPLIT-NUMBER.tar", "of each example .png, .json, .cls (the number of its label) and .mask.png"),),
        shards="*.tar",
        notes=(
            "`edits`, `mask_classes` and `facts` of the `.json` are JSON texts.",
            "The numbers of the labels are their places in `labels` of `classes.json`.",
        ),
    )


def find_webdataset(files: Files, report: Report) -> Iterator[Found]:
    """The samples of every tar; of one tar, the samples that it holds itself."""
    shards = [name for name in files.names if name.endswith(".tar")]
    if not shards:
        yield from _samples(files, "", report)
    for shard in shards:
        try:
            inner = Report()
            members = tar_members(files.path(shard), inner)
        except UserError as error:
            report.refuse(shard, str(error))
            continue
        for row in inner.rows:
            report.rows.append(row.__class__(f"{shard}/{row.file}", row.reason, row.kind))
        yield from _samples(members, shard, report)


def count_webdataset(files: Files) -> int:
    """About how many samples there are."""
    shards = [name for name in files.names if name.endswith(".tar")]
    count = 0 if shards else sum(_is_sample(name) for name in files.names)
    for shard in shards:
        with suppress(UserError):  # `find_webdataset` tells of it
            count += sum(_is_sample(name) for name in tar_members(files.path(shard), Report()).names)
    return count


def _is_sample(name: str) -> bool:
    return is_image(name) and not _ending(name).startswith(_MASK_PARTS)


def _ending(name: str) -> str:
    """All behind the first dot, which is what part of its sample a file is."""
    return posixpath.basename(name).partition(".")[2].lower()


def _samples(files: Files, shard: str, report: Report) -> Iterator[Found]:
    """Files that share all before the first dot of their name are a sample."""
    samples: dict[str, dict[str, str]] = {}
    for name in files.names:
        folder, _, base = name.rpartition("/")
        key = base.partition(".")[0]
        samples.setdefault(f"{folder}/{key}" if folder else key, {})[_ending(name)] = name
    for key, parts in samples.items():
        masks = [ending for ending in parts if ending.startswith(_MASK_PARTS) and is_image(f"x.{ending}")]
        images = [ending for ending in parts if is_image(f"x.{ending}") and ending not in masks]
        where = f"{shard}/{key}" if shard else key
        if len(images) != 1:
            report.refuse(where, f"The sample has {len(images) or 'no'} images: it needs one.")
            continue
        image = parts[images[0]]
        try:
            row = Row()
            if "json" in parts:
                row = Row.model_validate(json.loads(files.read(parts["json"], LONGEST_CELL)))
            label = row.label or _label_text(files, parts)
        except (ValidationError, ValueError, RecursionError, UserError) as error:
            why = str(error) if isinstance(error, UserError) else "its .json is no object that can be read"
            report.refuse(where, f"The sample cannot be read: {why}.")
            continue
        found = found_of_row(files, image, parts[masks[0]] if masks else None, row.model_copy(update={"label": label}))
        yield Found(
            **{
                **vars(found),
                "file": f"{shard}/{image}" if shard else image,
                "name": row.name or posixpath.basename(key),
                "split": split_in(row.split or shard.rpartition("/")[2].rpartition("-")[0] or key),
            }
        )


def _label_text(files: Files, parts: Mapping[str, str]) -> str:
    """The label of a sample without one in its .json: as text, or the number of a class."""
    for ending in ("cls", "txt"):
        if ending in parts:
            return files.read(parts[ending], 10_000).decode("utf-8", "replace").strip()
    return ""


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A file of no time and no owner, so that the same set gives the same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    archive.addfile(member, io.BytesIO(data))
