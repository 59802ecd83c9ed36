"""WebDataset: tar files (shards) of samples. A sample's files share a key: KEY.jpg, KEY.cls, KEY.json, KEY.mask.png."""

from __future__ import annotations

import io
import json
import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from core.errors import UserError
from core.images import MAX_BYTES
from core.imports import ImportRow
from core.test_sets import split_to_load
from formats.common import in_shards, read_row, split_in, splits_of
from formats.draft import Draft
from formats.files import Files, is_image, tar_members
from formats.naming import SPLIT_OF, Names, split_folder, standard
from formats.pages import CLASSES, Description, description_of
from formats.source import UNKNOWN, Latest, Source, Survey, Tally, mask_opener, numbered, opener
from formats.tables import class_list
from formats.types import Example, Found, Report, Row

_MASK_PARTS = ("mask.", "seg.")
_READ = ("json", "cls", "txt", "caption")
_SHARDS = 2
"""Maximum number of shards whose file lists are in memory. A list takes a kilobyte per sample."""
PACKED = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst")


def write_webdataset(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as WebDataset: SPLIT-NUMBER.tar with KEY.png, KEY.json, KEY.cls and KEY.mask.png per example."""
    numbers = {label: number for number, label in enumerate(draft.classes["labels"])}
    names = Names()
    for split, number, group in in_shards(draft.pictures(examples)):
        shard = f"{split}-{number:06d}.tar"
        with draft.stream(shard) as file, tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for picture in group:
                example = picture.example
                # The key ends at the first dot, so it must not contain one.
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
    first = f"{split_folder(split_to_load(splits_of(examples)))}-000000.tar"
    return description_of("webdataset", first)


class ShardSource(Source):
    """Reads the samples of all tars of a data set, or of a single tar."""

    def prepare(self) -> None:
        paths = list(self.files.files())
        self._shards = [path for path in paths if path.endswith(".tar")]
        for path in paths:
            if path.endswith(PACKED):
                self.report.refuse(
                    path, "It is compressed as a whole, so that no sample can be read alone: make a plain tar of it."
                )
        file = self.options.get("classes", "") or (CLASSES if self.files.has(CLASSES) and self.in_place else "")
        self._classes = class_list(self.files, file) if file else ()
        self._lists = Latest(lambda shard: {found.key: found for found in self._samples(shard, Report())}, _SHARDS)

    @classmethod
    def explained(cls, files: Files) -> int:
        if any(name.endswith(".tar") for name in files.names):
            return cls(files, Report(), {}).count()
        return sum(
            any(is_image(f"x.{ending}") for ending in parts) and bool(parts.keys() & {"cls", "json"})
            for _, parts in _grouped(files.names)
        )

    def count(self) -> int:
        """Return the number of images, from the file names in the shards."""
        names = list(self.files.names) if not self._shards else []
        for shard in self._shards:
            with suppress(UserError, OSError):  # the reader reports the error
                names += tar_members(self.files.path(shard), Report()).names
        return sum(is_image(name) and ".mask." not in name for name in names)

    def splits(self) -> list[str]:
        if not self._shards:
            return [_split_of(self.files.name)]
        return sorted({_split_of(shard) for shard in self._shards})

    def survey(self, split: str) -> Survey:
        first = next(self.find(split), None)
        return Survey(self._classes, (first.classes if first is not None and first.mask else None) or {})

    def find(self, split: str | None = None) -> Iterator[Found]:
        for shard in self._shards or [""]:
            if split is None or _split_of(shard or self.files.name) == split:
                yield from self._samples(shard, self.report)

    def stamp(self, key: str, file: str = "") -> str:
        return self.files.stamp(self._shard_of(key) or key)

    def _shard_of(self, key: str) -> str:
        return next((shard for shard in self._shards if key.startswith(f"{shard}/")), "")

    def at(self, key: str) -> Found:
        shard = self._shard_of(key)
        found = self._lists.get(shard).get(key) if shard or not self._shards else None
        if found is None:
            raise UserError(UNKNOWN)
        return found

    def _samples(self, shard: str, report: Report) -> Iterator[Found]:
        members: Files = self.files
        if shard:
            inner = Report()
            try:
                members = tar_members(self.files.path(shard), inner)
            except (UserError, OSError) as error:
                report.refuse(shard, str(error) if isinstance(error, UserError) else f"It cannot be read: {error}.")
                return
            report.rows += [ImportRow(f"{shard}/{row.file}", row.reason, row.kind) for row in inner.rows]
        tally = Tally(report)
        for key, parts in _grouped([name for name in members.names if not name.endswith(PACKED)]):
            if (found := self._sample(members, shard, key, parts, report, tally)) is not None:
                yield found
        tally.tell()

    def _sample(
        self, members: Files, shard: str, key: str, parts: Mapping[str, str], report: Report, tally: Tally
    ) -> Found | None:
        masks = [ending for ending in parts if ending.startswith(_MASK_PARTS) and is_image(f"x.{ending}")]
        images = [ending for ending in parts if is_image(f"x.{ending}") and ending not in masks]
        where = f"{shard}/{key}" if shard else key
        if len(images) != 1:
            if parts.keys() - {"json", "md"} or shard:  # other files are lists beside the shards
                report.refuse(where, f"The sample has {len(images) or 'no'} images: it needs one.")
            return None
        image = parts[images[0]]
        try:
            row = self._row(members, parts, where, tally)
        except (ValueError, RecursionError, UserError) as error:
            why = str(error) if isinstance(error, UserError) else "its .json is no object that can be read."
            report.refuse(where, f"The sample cannot be read: {why}")
            return None
        for ending in parts.keys() - {*_READ, *masks, *images}:
            tally.note(f"{shard}/{parts[ending]}" if shard else parts[ending], f"Files .{ending} are not read.")
        file = f"{shard}/{image}" if shard else image
        return Found(
            file,
            row.name or posixpath.basename(key),
            opener(members, image),
            numbered(row.label, self._classes),
            split_in(row.split) or standard(_split_of(shard or self.files.name)) or split_in(key),
            mask_opener(members, parts[masks[0]]) if masks else None,
            row.mask_classes or None,
            row,
            where=where,
        )

    @staticmethod
    def _row(members: Files, parts: Mapping[str, str], where: str, tally: Tally) -> Row:
        values = json.loads(members.read(parts["json"], MAX_BYTES)) if "json" in parts else {}
        if not isinstance(values, dict):
            raise ValueError("it is no object")
        row = read_row(values, where, tally)
        more: dict[str, str] = {}
        label, caption = parts.get("cls"), parts.get("txt", parts.get("caption"))
        if not row.label and label is not None:
            more["label"] = members.read(label, 10_000).decode("utf-8", "replace").strip()
        if not row.caption and caption is not None:
            more["caption"] = members.read(caption, 1_000_000).decode("utf-8", "replace").strip()
        return row.model_copy(update=more)


def _grouped(names: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (key, file names by ending) of each sample. The key is usually the file name up to the first dot. If file
    names have more dots, the key can be the file name up to the last dot: 1.5.jpg and 1.5.json have the key “1.5”.
    """
    samples: dict[str, dict[str, str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        key, _, ending = base.partition(".")
        samples.setdefault(f"{folder}/{key}" if folder else key, {})[ending.lower()] = name
    for key, parts in samples.items():
        before = {ending.rpartition(".")[0] for ending in parts}
        groups = {
            each: {e.rpartition(".")[2]: name for e, name in parts.items() if e.rpartition(".")[0] == each}
            for each in sorted(before)
        }
        dotted = all(before) and not any(f"{each}." in _MASK_PARTS for each in before)
        if dotted and (len(groups) == 1 or all(len(group) > 1 for group in groups.values())):
            yield from ((f"{key}.{each}", group) for each, group in groups.items())
        else:
            yield key, parts


def _split_of(shard: str) -> str:
    """Return the split in a shard's path, such as imagenet-train-000012.tar or train/000012.tar."""
    words = re.split(r"[-_/.]", shard.removesuffix(".tar"))
    return next((word for word in words if SPLIT_OF.get(word.lower())), "")


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file to a tar. Time and owner are left out, so that the same set gives the same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    archive.addfile(member, io.BytesIO(data))
