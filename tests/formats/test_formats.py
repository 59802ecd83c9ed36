"""Exports of test sets: the library of each format loads its export, and an import gives the same set."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core import rle
from core.errors import Cancelled, UserError
from core.images import png_of
from core.png import XMP_KEYWORD, bare, read_texts
from core.test_sets import Role, Split
from core.types import Edit
from formats import draft as drafts
from formats.exporting import export
from formats.layouts import LAYOUTS
from formats.reading import read
from formats.types import Example, TestSet

WRITTEN = [name for name, layout in LAYOUTS.items() if layout.write is not None]
WITHOUT_MASKS = [name for name in WRITTEN if name != "cityscapes"]
NASTY = "=1+1 <img src=x> \"'& 鳥\n../"
STREET = {0: "sky", 1: "road", 7: "car"}
OTHER = {1: "cat", 2: "sky"}
SET = TestSet(
    "Birds & <b>streets</b>",
    "ab12",
    "For the *paper*.",
    "2025-01-02T03:04:05+00:00",
    {"SD 1.5": "openrail"},
)


class Maker:
    """Makes examples with files in `folder`, which are named by their hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.count = 0

    def file(self, image: Image.Image) -> tuple[Path, str]:
        data = png_of(image)
        sha = hashlib.sha256(data).hexdigest()
        path = self.folder / f"{sha}.png"
        path.write_bytes(data)
        return path, sha

    def example(
        self,
        name: str,
        label: str = "",
        split: Split = "",
        classes: dict[int, str] | None = None,
        role: Role = "generated",
        size: tuple[int, int] = (40, 24),
    ) -> Example:
        self.count += 1
        random = np.random.default_rng(self.count)
        path, sha = self.file(Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), np.uint8)))
        mask, mask_sha = None, ""
        if classes is not None:
            numbers = np.asarray([*classes, 255], np.uint8)[
                random.integers(0, len(classes) + 1, (size[1] // 4, size[0] // 4))
            ]
            mask, mask_sha = self.file(Image.fromarray(np.kron(numbers, np.ones((4, 4), np.uint8))))
        made = role == "generated"
        return Example(
            name,
            path,
            sha,
            mask,
            mask_sha,
            "<x:xmpmeta>drawn by a model</x:xmpmeta>" if made else "",
            label=label,
            split=split,
            mask_classes=classes or {},
            source="ab" * 32,
            role=role,
            caption="A bird.",
            new_caption=NASTY if made else "",
            edits=(Edit("sunny", "snowy, or =so", "weather"),) if made else (),
            edit_types=("weather",) if made else (),
            facts={"lineage": {"method": "controlnet", "seed": 2**53 + 1, "prompt": NASTY}, "votes": [1, None]}
            if made
            else {},
        )


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "images")


def masked(maker: Maker) -> list[Example]:
    """Return examples of every split and of none. Masks use numbers differently, and two numbers have the same name."""
    return [
        maker.example("a-street", "bird", "train", STREET),
        maker.example("b.street", "a boat/ship", "validation", STREET),
        maker.example("c-cat", "Bird", "test", OTHER),
        maker.example("d-source", "bird", "test", {3: "sky", 4: "sky"}, "source", (24, 40)),
        maker.example("é-none", "bird", "", STREET),
    ]


def mixed(maker: Maker) -> list[Example]:
    """Return examples, some of them without a mask."""
    return [
        *masked(maker),
        maker.example("f-plain", "bird", "train"),
        maker.example("g-plain", "=cmd", "", role="source"),
        maker.example("h-plain", "a boat/ship", "test"),
    ]


def examples_for(layout: str, maker: Maker) -> list[Example]:
    return masked(maker) if layout == "cityscapes" else mixed(maker)


def pixels(path: Path | str | bytes | Image.Image) -> np.ndarray:
    image = path if isinstance(path, Image.Image) else Image.open(io.BytesIO(path) if isinstance(path, bytes) else path)
    return np.asarray(image)


def same(left: Any, right: Any) -> bool:
    return bool(np.array_equal(pixels(left), pixels(right)))


def split_of(examples: Sequence[Example], split: Split) -> list[Example]:
    return sorted((example for example in examples if example.split == split), key=lambda example: example.name)


def assert_same(found: Sequence[Example], wanted: Sequence[Example], facts: bool = True) -> None:
    assert [example.name for example in found] == sorted(example.name for example in wanted)
    known = {example.name: example for example in wanted}
    for example in found:
        like = known[example.name]
        assert (example.label, example.split, example.sha) == (like.label, like.split, like.sha), example.name
        assert same(example.image, like.image)
        assert (example.mask is None) == (like.mask is None), example.name
        if example.mask is not None and like.mask is not None:
            assert same(example.mask, like.mask), example.name
            assert example.mask_classes == like.mask_classes
        if facts:
            assert replace(example, image=like.image, mask=like.mask, xmp=like.xmp) == like


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layout", WRITTEN)
def test_what_is_exported_comes_back_and_twice_the_same_bytes(layout: str, maker: Maker, tmp_path: Path) -> None:
    wanted = examples_for(layout, maker)
    folder = export(SET, reversed(wanted), tmp_path / "out", layout)
    found = read(folder, tmp_path / "in")
    assert found.layout == layout and found.header == SET
    assert [row for row in found.rows if row.kind == "refused"] == []
    assert found.rows == ()
    assert_same(found.examples, wanted)
    export(SET, wanted, tmp_path / "again", layout)
    assert contents(folder) == contents(tmp_path / "again")
    assert read(folder, tmp_path / "in").examples == found.examples, "a second import changes nothing"
    held = {path.name for path in (tmp_path / "in").iterdir()}
    assert held == {f"{e.sha}.png" for e in found.examples} | {e.mask.name for e in found.examples if e.mask}


@pytest.mark.parametrize("layout", WRITTEN)
def test_the_manifest_names_every_file_with_its_hash(layout: str, maker: Maker, tmp_path: Path) -> None:
    held = contents(export(SET, examples_for(layout, maker), tmp_path / "out", layout))
    manifest = json.loads(held.pop("manifest.json"))
    assert {file["name"]: file["sha256"] for file in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in held.items()
    }
    assert all(file["bytes"] == len(held[file["name"]]) for file in manifest["files"])
    card = held["README.md"].decode()
    assert "<b>" not in card.partition("---\n#")[2].replace("\\<b\\>", "") and "SD 1.5 | openrail" in card
    assert Image.open(io.BytesIO(held["sheet.jpg"])).size[0] > 200


@pytest.mark.parametrize("layout", WRITTEN)
def test_the_format_alone_says_what_it_can(layout: str, maker: Maker, tmp_path: Path) -> None:
    """Remove the files that only the studio writes, as if another program had written the export."""
    wanted = examples_for(layout, maker)
    if layout == "torchvision":  # a single list names the classes of all masks
        wanted = [example for example in wanted if example.mask is None or example.mask_classes == STREET]
    folder = export(SET, wanted, tmp_path / "out", layout)
    for name in ("records.jsonl", "records.parquet", "manifest.json", "croissant.json", "README.md", "sheet.jpg"):
        (folder / name).unlink()
    found = read(folder, tmp_path / "in")
    assert not [row for row in found.rows if row.kind == "refused"]
    if layout in ("imagefolder", "csv", "parquet", "webdataset"):
        assert_same(found.examples, wanted)
        return
    known = {example.name: example for example in wanted}
    assert len(found.examples) == len(wanted)
    for example in found.examples:
        like = known[example.name]
        assert example.sha == like.sha and example.split == (like.split or ("test" if layout == "cityscapes" else ""))
        if layout == "torchvision" or layout == "coco" or (layout == "yolo" and like.mask is None):
            assert example.label == like.label
        if like.mask is not None and layout == "coco":
            assert (
                example.mask is not None and same(example.mask, like.mask) and example.mask_classes == like.mask_classes
            )


@pytest.mark.parametrize("packed", ["zip", "gztar", "tar"])
def test_an_export_is_read_from_an_archive(packed: str, maker: Maker, tmp_path: Path) -> None:
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out" / "birds", "coco")
    file = Path(shutil.make_archive(str(tmp_path / "packed"), packed, folder.parent, "birds"))
    found = read(file, tmp_path / "in")
    assert found.rows == () and found.layout == "coco"
    assert_same(found.examples, wanted)
    assert not [path for path in (tmp_path / "in").iterdir() if path.is_dir()], "nothing is left of unpacking"


@pytest.mark.parametrize("layout", ["imagefolder", "coco", "webdataset", "parquet"])
def test_exported_files_carry_the_xmp_packet_of_their_example(layout: str, maker: Maker, tmp_path: Path) -> None:
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", layout)
    for example in wanted:
        data = _exported(layout, folder, example)
        assert read_texts(data, [XMP_KEYWORD]).get(XMP_KEYWORD, "") == example.xmp
        assert bare(data) == example.image.read_bytes()


def _exported(layout: str, folder: Path, example: Example) -> bytes:
    row = next(
        row
        for row in map(json.loads, (folder / "records.jsonl").read_text(encoding="utf-8").splitlines())
        if row["name"] == example.name
    )
    if layout == "webdataset":
        import tarfile

        shard, _, member = row["file"].partition("/")
        with tarfile.open(folder / shard) as archive:
            file = archive.extractfile(member)
            assert file is not None
            return file.read()
    if layout == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(folder / row["file"].partition("#")[0]).to_pylist()
        return next(bytes(held["image"]["bytes"]) for held in table if held["name"] == example.name)
    return (folder / row["file"]).read_bytes()


# Loading by the libraries of the formats


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["imagefolder", "parquet"])
def test_datasets_loads_it(layout: str, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = import_module("datasets")
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", layout)
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert set(loaded) == {"train", "validation", "test", "unsplit"}
    splits: dict[str, Split] = {"train": "train", "validation": "validation", "test": "test", "unsplit": ""}
    for name, split in splits.items():
        rows = sorted(loaded[name], key=lambda row: row["name"])
        like = split_of(wanted, split)
        assert [row["name"] for row in rows] == [example.name for example in like]
        for row, example in zip(rows, like, strict=True):
            assert row["label"] == example.label and row["edit_types"] == list(example.edit_types)
            assert same(row["image"], example.image)
            mask = row["mask"]
            assert (mask is None) == (example.mask is None)
            assert mask is None or (mask.mode == "L" and example.mask is not None and same(mask, example.mask))
            assert json.loads(row["facts"]) == example.facts and row["new_caption"] == example.new_caption


@pytest.mark.slow
def test_torchvision_loads_its_folders(maker: Maker, tmp_path: Path) -> None:
    from torchvision.datasets import Cityscapes, ImageFolder

    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "torchvision")
    labels = json.loads((folder / "classes.json").read_text(encoding="utf-8"))["folders"]
    for name, split in (("train", "train"), ("validation", "validation"), ("test", "test"), ("unsplit", "")):
        loaded = ImageFolder(str(folder / name))
        seen = {
            Path(path).stem: (image, labels[loaded.classes[number]])
            for (path, number), (image, _) in zip(loaded.samples, loaded, strict=True)
        }
        like = split_of(wanted, split)  # type: ignore[arg-type]
        assert sorted(seen) == [example.name for example in like]
        for example in like:
            image, label = seen[example.name]
            assert same(image, example.image) and label == example.label
            mask = next((folder / "masks").rglob(f"{example.name}.png"), None)
            assert (mask is None) == (example.mask is None)
            assert mask is None or (example.mask is not None and same(mask, example.mask))

    streets = [example for example in wanted if example.mask is not None]
    folder = export(SET, streets, tmp_path / "streets", "cityscapes")
    names = json.loads((folder / "classes.json").read_text(encoding="utf-8"))["masks"]
    for name, splits in (("train", ["train"]), ("val", ["validation"]), ("test", ["test", ""])):
        city = Cityscapes(str(folder), split=name, mode="fine", target_type="semantic")
        seen = {
            Path(path).name.removesuffix("_leftImg8bit.png"): pair for path, pair in zip(city.images, city, strict=True)
        }
        like = [example for example in streets if example.split in splits]
        assert sorted(seen) == sorted(example.name for example in like)
        for example in like:
            image, mask = seen[example.name]
            assert same(image, example.image)
            assert np.array_equal(
                _named(pixels(mask), names), _named(pixels(example.mask or b""), example.mask_classes)
            )


def _named(numbers: np.ndarray, names: Any) -> np.ndarray:
    """Return the class name of each pixel."""
    table = np.asarray([names.get(n, names.get(str(n), "")) for n in range(256)])
    return table[numbers]


@pytest.mark.slow
def test_pycocotools_loads_it(maker: Maker, tmp_path: Path) -> None:
    coco = import_module("pycocotools.coco")
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "coco")
    for name, split in (("train", "train"), ("val", "validation"), ("test", "test"), ("unsplit", "")):
        loaded = coco.COCO(str(folder / "annotations" / f"instances_{name}.json"))
        like = {example.name: example for example in split_of(wanted, split)}  # type: ignore[arg-type]
        entries = loaded.loadImgs(loaded.getImgIds())
        assert sorted(Path(entry["file_name"]).stem for entry in entries) == sorted(like)
        for entry in entries:
            example = like[Path(entry["file_name"]).stem]
            assert same(folder / name / entry["file_name"], example.image)
            seen = np.full((entry["height"], entry["width"]), "", object)
            for annotation in loaded.loadAnns(loaded.getAnnIds(imgIds=[entry["id"]])):
                region = loaded.annToMask(annotation).astype(bool)
                left, top, width, height = annotation["bbox"]
                assert region[top : top + height, left : left + width].sum() == region.sum() == annotation["area"]
                assert (seen[region] == "").all(), "no pixel is of two regions"
                seen[region] = loaded.loadCats([annotation["category_id"]])[0]["name"]
            if example.mask is None:
                assert (seen == example.label).all() and entry["label"] == example.label
            else:
                assert np.array_equal(seen.astype(str), _named(pixels(example.mask), example.mask_classes))


@pytest.mark.slow
def test_run_lengths_are_those_of_pycocotools() -> None:
    theirs = import_module("pycocotools.mask")
    random = np.random.default_rng(3)
    for density in (0.0, 0.001, 0.1, 0.5, 0.999, 1.0):
        for size in ((1, 1), (7, 300), (640, 480)):
            region = random.random((size[1], size[0])) < density
            counts = rle.counts_of(region)
            made = theirs.encode(np.asfortranarray(region.astype(np.uint8)))
            assert rle.packed(counts).encode() == made["counts"]
            assert rle.unpacked(rle.packed(counts)) == counts
            assert np.array_equal(rle.region_of(counts, size), region)
    piece = np.ones((3, 2), bool)
    whole = np.zeros((9, 8), bool)
    whole[4:7, 5:7] = True
    assert rle.counts_of(piece, 5, 4, (8, 9)) == rle.counts_of(whole)


@pytest.mark.slow
def test_webdataset_loads_it(maker: Maker, tmp_path: Path) -> None:
    webdataset = import_module("webdataset")
    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "webdataset")
    labels = json.loads((folder / "classes.json").read_text(encoding="utf-8"))["labels"]
    for name, split in (("train", "train"), ("validation", "validation"), ("test", "test"), ("unsplit", "")):
        loaded = webdataset.WebDataset(str(folder / f"{name}-000000.tar"), shardshuffle=False).decode("pil")
        seen = {sample["json"]["name"]: sample for sample in loaded}
        like = split_of(wanted, split)  # type: ignore[arg-type]
        assert sorted(seen) == [example.name for example in like]
        for example in like:
            sample = seen[example.name]
            assert same(sample["png"], example.image) and labels[sample["cls"]] == example.label
            assert json.loads(sample["json"]["facts"]) == example.facts
            assert ("mask.png" in sample) == (example.mask is not None)
            if example.mask is not None:
                assert same(sample["mask.png"].convert("L"), example.mask)


@pytest.mark.slow
@pytest.mark.parametrize("layout", WRITTEN)
def test_mlcroissant_loads_it(layout: str, maker: Maker, tmp_path: Path) -> None:
    croissant = import_module("mlcroissant")
    wanted = examples_for(layout, maker)
    folder = export(SET, wanted, tmp_path / "out", layout)
    loaded = croissant.Dataset(str(folder / "croissant.json"))
    issues = loaded.metadata.ctx.issues
    # A semantic version and a citation are recommended, but a set has neither.
    assert not issues.errors and all("citeAs" in said or "version" in said for said in issues.warnings)
    rows = {_text(row["examples/name"]): row for row in loaded.records("examples")}
    assert sorted(rows) == sorted(example.name for example in wanted)
    for example in wanted:
        row = rows[example.name]
        assert _text(row["examples/label"]) == example.label and _text(row["examples/sha256"]) == example.sha
        assert json.loads(_text(row["examples/facts"])) == example.facts
        if (folder / _text(row["examples/file"])).is_file():
            assert same(folder / _text(row["examples/file"]), example.image)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_csv_is_safe_in_a_spreadsheet_and_pandas_reads_it(maker: Maker, tmp_path: Path) -> None:
    import pandas

    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "csv")
    table = pandas.read_csv(folder / "examples.csv", keep_default_na=False).set_index("name")
    for example in wanted:
        row = table.loc[example.name]
        assert same(folder / row["file_name"], example.image) and row["label"].removeprefix("'") == example.label
        assert (row["mask_file_name"] == "") == (example.mask is None)
        assert json.loads(str(row["facts"])) == example.facts
        assert example.mask is None or same(folder / row["mask_file_name"], example.mask)
    assert table.loc["g-plain"]["label"] == "'=cmd"


def test_yolo_outlines_are_the_masks(maker: Maker, tmp_path: Path) -> None:
    """The files are as YOLO's readers expect: a text file for each image, classes in data.yaml, points as shares of
    the size.
    """
    import yaml

    wanted = mixed(maker)
    folder = export(SET, wanted, tmp_path / "out", "yolo")
    data = yaml.safe_load((folder / "data.yaml").read_text(encoding="utf-8"))
    assert [data[name] for name in ("train", "val", "test")] == ["images/train", "images/val", "images/test"]
    assert all((folder / data[name]).is_dir() for name in ("train", "val", "test"))
    for example in wanted:
        (image,) = (folder / "images").rglob(f"{example.name}.png")
        lines = (
            Path(str(image).replace("/images/", "/labels/")).with_name(f"{example.name}.txt").read_text().splitlines()
        )
        names = {data["names"][int(line.split()[0])] for line in lines}
        if example.mask is None:
            assert names == {example.label} and lines[0].split()[1:] == ["0.5", "0.5", "1", "1"]
        else:
            there = {example.mask_classes[int(n)] for n in np.unique(pixels(example.mask)) if n != 255}
            assert names == there
            assert all(0 <= float(share) <= 1 for line in lines for share in line.split()[1:])
    shutil.rmtree(folder / "masks")
    drawn = {example.name: example for example in read(folder, tmp_path / "in").examples}
    mask = drawn["a-street"].mask
    assert mask is not None and wanted[0].mask is not None
    assert (_named(pixels(mask), drawn["a-street"].mask_classes) == _named(pixels(wanted[0].mask), STREET)).mean() > 0.7


# An export is complete, or absent


def test_a_folder_that_is_not_empty_is_refused_unless_it_is_an_export_to_be_replaced(
    maker: Maker, tmp_path: Path
) -> None:
    wanted, into = mixed(maker), tmp_path / "out"
    into.mkdir()
    export(SET, wanted, into, "coco")
    before = contents(into)
    with pytest.raises(UserError, match="is not empty"):
        export(SET, wanted[:2], into, "csv")
    assert contents(into) == before
    (into / "my notes.txt").write_text("precious")
    with pytest.raises(UserError, match=r"my notes\.txt"):
        export(SET, wanted[:2], into, "csv", replace=True)
    (into / "my notes.txt").unlink()
    assert contents(into) == before
    export(SET, wanted[:2], into, "csv", replace=True)
    assert (into / "examples.csv").is_file() and not (into / "annotations").exists()
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        export(SET, wanted, tmp_path / "file", "csv")


def test_a_stopped_export_and_a_full_disk_leave_nothing(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def progress(step: Any) -> None:
        told.append((step.done, step.total))
        if step.done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        export(SET, mixed(maker), tmp_path / "out", "imagefolder", progress=progress)
    assert told[:3] == [(1, 8), (2, 8), (3, 8)] and len(told) < 8
    assert [path.name for path in tmp_path.iterdir()] == ["images"]

    put, count = drafts.Draft.put, 0

    def full(self: Any, name: str, data: bytes, sha: str = "") -> None:
        nonlocal count
        count += 1
        if count > 4:
            raise OSError(28, "No space left on device")
        put(self, name, data, sha)

    monkeypatch.setattr(drafts.Draft, "put", full)
    with pytest.raises(UserError, match="No space left on device"):
        export(SET, mixed(maker), tmp_path / "out", "imagefolder")
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


@pytest.mark.slow
def test_a_killed_export_leaves_no_folder_that_looks_whole(maker: Maker, tmp_path: Path) -> None:
    """The export is killed in the middle. The leftover is named unfinished, has no manifest, and the next export
    removes it.
    """
    wanted = mixed(maker)
    code = (
        "import os, sys, pickle; from pathlib import Path; from formats.exporting import export;"
        "held = pickle.load(sys.stdin.buffer);"
        "export(*held, progress=lambda step: os.kill(os.getpid(), 9) if step.done == 5 else None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((SET, wanted, tmp_path / "out", "coco")),
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    assert done.returncode == -9
    left, lock = sorted(path for path in tmp_path.iterdir() if path.name != "images")
    assert left.name.startswith("out.unfinished-") and contents(left) and not list(left.rglob("manifest.json"))
    export(SET, wanted, tmp_path / "out", "coco")
    assert not left.exists() and not lock.exists()
    assert_same(read(tmp_path / "out", tmp_path / "in").examples, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_an_export_that_was_about_to_be_replaced_comes_back(again: bool, maker: Maker, tmp_path: Path) -> None:
    """The export is killed between its two renames: the old folder has another name, and the new one is not in place
    yet.
    """
    wanted, into = mixed(maker), tmp_path / "out"
    old = contents(export(SET, wanted, into, "coco"))
    code = (
        "import os, sys, pickle; from pathlib import Path; from formats.exporting import export;"
        "held = pickle.load(sys.stdin.buffer); real = os.rename;"
        "os.rename = lambda a, b: real(a, b) if str(b).endswith('.before') else os.kill(os.getpid(), 9);"
        "export(*held, replace=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((SET, wanted[:2], into, "csv")),
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    assert done.returncode == -9 and not into.exists()
    if again:
        export(SET, wanted[:2], into, "csv", replace=True)
        assert (into / "examples.csv").is_file()
    else:
        with pytest.raises(UserError, match="is not empty"):
            export(SET, wanted[:2], into, "csv")
        assert contents(into) == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "out"]


def test_what_an_export_writes_is_swept_only_when_nobody_writes_it(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running export keeps its files, also if all processes have the same process id, as in containers."""
    wanted = mixed(maker)
    dead = [tmp_path / f"out.unfinished-0123456{n}" for n in range(2)]
    other = tmp_path / "out.unfinished-notes"
    for folder in (*dead, other):
        folder.mkdir()
        (folder / "a.png").write_bytes(b"x")
    for folder in dead:
        folder.with_suffix(f"{folder.suffix}.in-use").touch()
    inner: list[set[Path]] = []

    def progress(step: Any) -> None:
        if step.done == 1:
            monkeypatch.setattr(os, "getpid", lambda: 99_999_999)
            inner.append(set(tmp_path.glob("out.unfinished-*")))
            with pytest.raises(UserError, match="no label"):
                export(SET, [wanted[0], replace(wanted[1], label="")], tmp_path / "out", "torchvision")
            inner.append(set(tmp_path.glob("out.unfinished-*")))

    export(SET, wanted, tmp_path / "out", "csv", progress=progress)
    assert inner[0] == inner[1] and len(inner[0]) == 3 and other in inner[0]
    assert not any(folder.exists() for folder in dead) and other.exists()
    assert_same(read(tmp_path / "out", tmp_path / "in").examples, wanted)


def test_a_damaged_image_is_not_exported(maker: Maker, tmp_path: Path) -> None:
    wanted = mixed(maker)
    data = bytearray(wanted[2].image.read_bytes())
    data[-20] ^= 1
    wanted[2].image.write_bytes(data)
    with pytest.raises(UserError, match="“c-cat” was changed or is damaged"):
        export(SET, wanted, tmp_path / "out", "csv")
    wanted[2].image.unlink()
    with pytest.raises(UserError, match="A file of “c-cat” cannot be read"):
        export(SET, wanted, tmp_path / "out", "csv")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layout", WRITTEN)
def test_a_mask_that_was_replaced_is_not_exported(layout: str, maker: Maker, tmp_path: Path) -> None:
    wanted = masked(maker)
    assert wanted[2].mask is not None
    with Image.open(wanted[2].mask) as mask:
        other = Image.new("L", mask.size, 1)
    wanted[2].mask.write_bytes(png_of(other))
    with pytest.raises(UserError, match="mask of “c-cat” was changed or is damaged"):
        export(SET, wanted, tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("layout", "spoil", "said"),
    [
        ("torchvision", lambda e: replace(e, label=""), "have no label, such as “a-street”"),
        ("cityscapes", lambda e: replace(e, mask=None), "have no mask, such as “a-street”"),
        (
            "coco",
            lambda e: replace(e, mask_classes={0: "sky"}),
            "“a-street”: The mask has class numbers without a name",
        ),
        ("folder", lambda e: e, "is no format to write"),
    ],
)
def test_what_a_format_cannot_hold_is_said(
    layout: str, spoil: Callable[[Example], Example], said: str, maker: Maker, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        export(SET, [spoil(maker.example("a-street", "bird", "", STREET))], tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_names_that_would_be_one_file_are_a_mistake_of_ours(maker: Maker, tmp_path: Path) -> None:
    one = maker.example("bird")
    for other in (replace(one, name="Bird"), replace(one, name="a/b"), replace(one, name="")):
        with pytest.raises(ValueError):
            export(SET, [one, other], tmp_path / "out", "csv")
    with pytest.raises(UserError, match="empty"):
        export(SET, [], tmp_path / "out", "csv")


def test_a_mask_of_another_size_comes_at_the_size_of_its_image(maker: Maker, tmp_path: Path) -> None:
    path, sha = maker.file(Image.new("L", (80, 48), 1))
    example = replace(maker.example("a"), mask=path, mask_sha=sha, mask_classes=STREET)
    folder = export(SET, [example], tmp_path / "out", "csv")
    with Image.open(folder / "masks" / "unsplit" / "a.png") as mask:
        assert mask.size == (40, 24) and mask.mode == "L" and set(np.unique(np.asarray(mask))) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["imagefolder", "webdataset"])
def test_large_and_small_images_in_turns_come_whole(layout: str, maker: Maker, tmp_path: Path) -> None:
    sizes = [(700, 600), (16, 16), (40, 24), (600, 700), (20, 32), (16, 16), (700, 600)]
    wanted = [
        maker.example(f"image-{place}", "bird", "test", STREET, "generated" if place % 3 else "source", size)
        for place, size in enumerate(sizes)
    ]
    assert max(example.image.stat().st_size for example in wanted) > 1 << 20
    folder = export(SET, wanted, tmp_path / "out", layout)
    for example in wanted:
        assert bare(_exported(layout, folder, example)) == example.image.read_bytes()
    held = contents(folder)
    manifest = json.loads(held.pop("manifest.json"))
    assert {file["name"]: file["sha256"] for file in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in held.items()
    }
    assert_same(read(folder, tmp_path / "in").examples, wanted)


def test_shards_are_cut(maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formats.common.SHARD_EXAMPLES", 2)
    wanted = mixed(maker)
    for layout, ending in (("webdataset", "*.tar"), ("parquet", "data/*.parquet")):
        folder = export(SET, wanted, tmp_path / layout, layout)
        assert len(list(folder.glob(ending))) == 5, "two of train, two of test, one of the others"
        assert_same(read(folder, tmp_path / "in").examples, wanted)


def test_zip_of_the_studio_opens_from_any_folder(maker: Maker, tmp_path: Path) -> None:
    folder = export(SET, mixed(maker), tmp_path / "deep" / "er" / "out", "csv")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for name, data in contents(folder).items():
            archive.writestr(name, data)
    os.rename(folder, tmp_path / "moved")
    assert read(tmp_path / "moved", tmp_path / "in").examples == read(tmp_path / "set.zip", tmp_path / "in").examples
