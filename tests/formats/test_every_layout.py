"""Pictures in every layout get the same sources, labels, masks and splits from an import and from a batch."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from core.images import png_of
from core.test_sets import Split
from formats.exporting import export
from formats.in_place import open_data_set
from formats.layouts import LAYOUTS
from formats.reading import read
from formats.types import Example, TestSet
from tests.support.data_set_files import SIDE, jpeg, tar_file, write

NAMES = {0: "road", 10: "sky"}
"""Classes of the masks by Cityscapes' training numbers."""


class Scene(NamedTuple):
    """A picture with its label, split and mask, which not every layout can hold."""

    name: str
    label: str
    split: Split
    image: bytes
    """JPEG file of the picture."""
    horizon: int
    """Number of rows of sky at the top of the mask."""

    def mask(self, road: int = 0, sky: int = 10) -> bytes:
        return png_of(self.numbers(road, sky))

    def numbers(self, road: int = 0, sky: int = 10) -> Image.Image:
        numbers = np.full((SIDE, SIDE), road, np.uint8)
        numbers[: self.horizon] = sky
        return Image.fromarray(numbers)

    def png(self) -> bytes:
        return png_of(Image.open(io.BytesIO(self.image)))


SPLITS: tuple[Split, ...] = ("train", "validation")
SCENES = tuple(
    Scene(f"{split}-{label}", label, split, jpeg(), 4 + number)
    for number, (split, label) in enumerate((split, label) for split in SPLITS for label in ("cat", "dog"))
)
VAL = {"train": "train", "validation": "val"}

Seen = tuple[str, str, str, str]
"""Hash of the pixels, label, split, and hash of the mask's class names. "" for facts that the layout does not hold."""


def seen(image: Image.Image, label: str, split: str, mask: Image.Image | None, names: Mapping[int, str]) -> Seen:
    drawn = ""
    if mask is not None:
        words = [names.get(number, "") for number in np.asarray(mask).ravel().tolist()]
        drawn = hashlib.sha256("|".join(words).encode()).hexdigest()[:8]
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()[:8], label, split, drawn


@dataclass(frozen=True)
class Form:
    """A layout of files: how to write it, the facts that it holds, and how to open it."""

    write: Callable[[Path], object]
    says: Sequence[str] = ("label", "split", "mask")
    layout: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options that a batch needs to open it."""
    classes: Mapping[int, str] | None = None
    """Class names by number that an import needs."""


def expected(form: Form) -> list[Seen]:
    return sorted(
        seen(
            Image.open(io.BytesIO(scene.image)),
            scene.label if "label" in form.says else "",
            scene.split if "split" in form.says else "",
            scene.numbers() if "mask" in form.says else None,
            NAMES,
        )
        for scene in SCENES
    )


def exported(layout: str, plain: bool) -> Callable[[Path], object]:
    """Return a function that writes an export of the studio. `plain` leaves out the files that only the studio
    writes.
    """

    def write_it(root: Path) -> None:
        files = root.parent / "pictures"
        examples = []
        for scene in SCENES:
            image, mask = scene.png(), scene.mask()
            write(files, {f"{scene.name}.png": image, f"{scene.name}-mask.png": mask})
            sha, mask_sha = hashlib.sha256(image).hexdigest(), hashlib.sha256(mask).hexdigest()
            examples.append(
                Example(
                    scene.name,
                    files / f"{scene.name}.png",
                    sha,
                    files / f"{scene.name}-mask.png",
                    mask_sha,
                    label=scene.label,
                    split=scene.split,
                    mask_classes=NAMES,
                )
            )
        export(TestSet("Streets"), examples, root, layout)
        for name in (
            ("records.jsonl", "records.parquet", "manifest.json", "croissant.json", "README.md", "sheet.jpg")
            if plain
            else ()
        ):
            (root / name).unlink()

    return write_it


def files_of(make: Callable[[Scene], Mapping[str, bytes | str]], **more: bytes | str) -> Callable[[Path], object]:
    """Return a function that writes the files of each scene, and `more` files. "__" in their names means "/"."""

    def write_it(root: Path) -> None:
        for scene in SCENES:
            write(root, make(scene))
        write(root, {name.replace("__", "/"): data for name, data in more.items()})

    return write_it


def by_lines(make: Callable[[Scene], str], first: str = "") -> str:
    return first + "".join(f"{make(scene)}\n" for scene in SCENES)


def coco_tables(root: Path) -> None:
    for split in SPLITS:
        images: list[dict[str, object]] = []
        annotations: list[dict[str, object]] = []
        for number, scene in enumerate((scene for scene in SCENES if scene.split == split), start=1):
            images.append({"id": number, "file_name": f"{scene.name}.jpg", "width": SIDE, "height": SIDE})
            write(root, {f"{VAL[split]}2017/{scene.name}.jpg": scene.image})
            for category, top, bottom in ((1, scene.horizon, SIDE), (2, 0, scene.horizon)):
                counts = [top, *[bottom - top, SIDE - bottom + top] * SIDE]
                counts[-1] -= top
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": category,
                        "iscrowd": 1,
                        "area": (bottom - top) * SIDE,
                        "segmentation": {"size": [SIDE, SIDE], "counts": counts},
                    }
                )
        categories = [{"id": 1, "name": "road"}, {"id": 2, "name": "sky"}]
        table = {"images": images, "annotations": annotations, "categories": categories}
        write(root, {f"annotations/instances_{VAL[split]}2017.json": json.dumps(table)})


def parquet_tables(root: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    for split in SPLITS:
        scenes = [scene for scene in SCENES if scene.split == split]
        table = pyarrow.table(
            {
                "image": [{"bytes": scene.image, "path": f"{scene.name}.jpg"} for scene in scenes],
                "mask": [{"bytes": scene.mask(), "path": f"{scene.name}.png"} for scene in scenes],
                "label": [scene.label for scene in scenes],
            }
        )
        (root / "data").mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table, root / f"data/{split}-00000-of-00001.parquet")


def saved_to_disk(root: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    splits = {
        split: datasets.Dataset.from_dict(
            {
                "image": [{"bytes": scene.image, "path": None} for scene in SCENES if scene.split == split],
                "mask": [{"bytes": scene.mask(), "path": None} for scene in SCENES if scene.split == split],
                "label": [scene.label for scene in SCENES if scene.split == split],
            }
        )
        .cast_column("image", datasets.Image())
        .cast_column("mask", datasets.Image())
        for split in SPLITS
    }
    datasets.DatasetDict(splits).save_to_disk(str(root))


def shards(root: Path) -> None:
    for split in SPLITS:
        files: dict[str, bytes | str] = {}
        for scene in SCENES:
            if scene.split == split:
                classes = json.dumps({"mask_classes": NAMES})
                files |= {f"{scene.name}.jpg": scene.image, f"{scene.name}.mask.png": scene.mask()}
                files |= {f"{scene.name}.cls": scene.label, f"{scene.name}.json": classes}
        write(root, {f"{split}-000000.tar": tar_file(files)})


def yolo(scene: Scene) -> Mapping[str, bytes | str]:
    place = f"{VAL[scene.split]}/{scene.name}"
    number = ("cat", "dog").index(scene.label)
    return {f"images/{place}.jpg": scene.image, f"labels/{place}.txt": f"{number} 0.5 0.5 1 1\n"}


def acdc(scene: Scene) -> Mapping[str, bytes | str]:
    place, stem = f"fog/{VAL[scene.split]}/GOPR0475", f"{scene.name.replace('-', '_')}_frame_000041"
    return {
        f"rgb_anon/{place}/{stem}_rgb_anon.png": scene.png(),
        f"gt/{place}/{stem}_gt_labelTrainIds.png": scene.mask(),
    }


def shift(scene: Scene) -> Mapping[str, bytes | str]:
    place, stem = f"discrete/images/{VAL[scene.split]}/front", f"0a1b-000{scene.horizon}/00000000"
    numbers = np.asarray(scene.numbers(7, 13))
    channels = [numbers, np.full_like(numbers, 9), np.full_like(numbers, 200), np.full_like(numbers, 255)]
    return {
        f"{place}/img/{stem}_img_front.jpg": scene.image,
        f"{place}/semseg/{stem}_semseg_front.png": png_of(Image.fromarray(np.stack(channels, axis=-1))),
    }


MASKED = ("split", "mask")
OPTIONS = {"mask_classes": "0 road, 10 sky"}
WRITTEN = [name for name, layout in LAYOUTS.items() if layout.write is not None]
FORMS: dict[str, Form] = {
    **{f"{layout} of the studio": Form(exported(layout, plain=False), layout="studio") for layout in WRITTEN},
    **{
        f"{layout} of the studio alone": Form(
            exported(layout, plain=True),
            {"cityscapes": MASKED, "yolo": MASKED}.get(layout, ("label", "split", "mask")),
            layout,
            options={"mask": "mask", **OPTIONS} if layout == "parquet" else OPTIONS if layout == "csv" else {},
        )
        for layout in WRITTEN
    },
    "table of Parquet": Form(parquet_tables, layout="parquet", options={"mask": "mask", **OPTIONS}, classes=NAMES),
    "save_to_disk": Form(
        saved_to_disk,
        layout="huggingface",
        options={"mask": "mask", **OPTIONS},
        classes=NAMES,
    ),
    "folders of classes": Form(
        files_of(lambda scene: {f"{VAL[scene.split]}/{scene.label}/{scene.name}.jpg": scene.image}),
        ("label", "split"),
        layout="torchvision",
    ),
    "imagenet": Form(
        files_of(lambda scene: {f"{VAL[scene.split]}/{scene.label}/{scene.name}.JPEG": scene.image}),
        ("label", "split"),
        layout="imagenet",
    ),
    "imagenet9": Form(
        files_of(lambda scene: {f"mixed_rand/{VAL[scene.split]}/00_{scene.label}/{scene.name}.JPEG": scene.image}),
        ("label", "split"),
        layout="imagenet9",
    ),
    "iwildcam": Form(
        files_of(
            lambda scene: {f"train/{scene.name}.jpg": scene.image},
            **{
                "metadata.csv": by_lines(
                    lambda scene: f"{scene.name}.jpg,{('cat', 'dog').index(scene.label)},{VAL[scene.split]}",
                    "filename,y,split\n",
                ),
                "categories.csv": "category_id,name,y\n10,cat,0\n11,dog,1\n",
            },
        ),
        ("label", "split"),
        layout="iwildcam",
    ),
    "folder": Form(
        files_of(
            lambda scene: {
                f"images/{VAL[scene.split]}/{scene.label}/{scene.name}.jpg": scene.image,
                f"masks/{VAL[scene.split]}/{scene.label}/{scene.name}.png": scene.mask(),
            },
            **{"classes.txt": "0 road, 10 sky"},
        ),
        layout="folder",
    ),
    "coco": Form(coco_tables, MASKED, layout="coco"),
    "yolo": Form(files_of(yolo, **{"data.yaml": "names: [cat, dog]\n"}), ("label", "split"), layout="yolo"),
    "webdataset": Form(shards, layout="webdataset", options=OPTIONS),
    "csv": Form(
        files_of(
            lambda scene: {f"{scene.name}.jpg": scene.image, f"masks/{scene.name}.png": scene.mask()},
            **{
                "list.csv": by_lines(
                    lambda scene: f"{scene.name}.jpg,masks/{scene.name}.png,{scene.label},{scene.split}",
                    "file_name,mask_file_name,label,split\n",
                )
            },
        ),
        layout="csv",
        options=OPTIONS,
        classes=NAMES,
    ),
    "jsonl": Form(
        files_of(
            lambda scene: {f"{scene.name}.jpg": scene.image, f"masks/{scene.name}.png": scene.mask()},
            **{
                "metadata.jsonl": by_lines(
                    lambda scene: json.dumps(
                        {
                            "file_name": f"{scene.name}.jpg",
                            "mask_file_name": f"masks/{scene.name}.png",
                            "label": scene.label,
                            "split": scene.split,
                            "mask_classes": NAMES,
                        }
                    )
                )
            },
        ),
        layout="imagefolder",
    ),
    "cityscapes": Form(
        files_of(
            lambda scene: {
                f"leftImg8bit/{VAL[scene.split]}/ulm/{scene.name}_leftImg8bit.png": scene.png(),
                f"gtFine/{VAL[scene.split]}/ulm/{scene.name}_gtFine_labelIds.png": scene.mask(7, 23),
            }
        ),
        MASKED,
        layout="cityscapes",
    ),
    "acdc": Form(files_of(acdc), MASKED, layout="acdc"),
    "bdd100k": Form(
        files_of(
            lambda scene: {
                f"images/10k/{VAL[scene.split]}/{scene.name}.jpg": scene.image,
                f"labels/sem_seg/masks/{VAL[scene.split]}/{scene.name}.png": scene.mask(),
            }
        ),
        MASKED,
        layout="bdd100k",
    ),
    "shift": Form(files_of(shift), MASKED, layout="shift"),
    "voc": Form(
        files_of(
            lambda scene: {
                f"VOC2012/JPEGImages/{scene.name}.jpg": scene.image,
                f"VOC2012/SegmentationClass/{scene.name}.png": scene.mask(),
            },
            **{
                f"VOC2012__ImageSets__Segmentation__{VAL[split]}.txt": "".join(
                    f"{scene.name}\n" for scene in SCENES if scene.split == split
                )
                for split in SPLITS
            },
        ),
        MASKED,
        layout="voc",
        options=OPTIONS,
        classes=NAMES,
    ),
}


def by_import(form: Form, root: Path, into: Path, layout: str) -> Iterator[Seen]:
    found = read(root, into, layout, classes=form.classes)
    assert [row for row in found.rows if row.kind == "refused"] == []
    for example in found.examples:
        mask = Image.open(example.mask) if example.mask is not None else None
        yield seen(Image.open(example.image), example.label, example.split, mask, example.mask_classes)


def by_batch(form: Form, root: Path) -> Iterator[Seen]:
    for split in SPLITS:
        data_set = open_data_set(root, form.layout, split, **form.options)
        for item in data_set.items():
            content = data_set.read(item.key, item.stamp)
            image = Image.open(io.BytesIO(content.image))
            yield seen(image, item.label, item.split, content.mask, data_set.mask_classes)


SLOW = ("save_to_disk",)
"""Forms whose writer loads a large package."""


@pytest.mark.parametrize("way", ["import", "import, found out", "batch"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FORMS])
def test_every_layout_shows_the_same_by_every_way(name: str, way: str, tmp_path: Path) -> None:
    form, root = FORMS[name], tmp_path / "set"
    form.write(root)
    if way == "batch":
        found = by_batch(form, root)
    else:
        found = by_import(form, root, tmp_path / "in", form.layout if way == "import" else "")
    assert sorted(found) == expected(form)


@pytest.mark.parametrize("layout", ["named", "found out"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FORMS])
def test_an_archive_with_a_folder_around_all_shows_the_same(name: str, layout: str, tmp_path: Path) -> None:
    form = FORMS[name]
    (tmp_path / "archived").mkdir()
    form.write(tmp_path / "archived" / "my-data-set")
    archive = shutil.make_archive(str(tmp_path / "set"), "zip", tmp_path / "archived", "my-data-set")
    found = by_import(form, Path(archive), tmp_path / "in", form.layout if layout == "named" else "")
    assert sorted(found) == expected(form)


def test_no_layout_is_forgotten() -> None:
    # CUB-200-2011 has no validation: see test_published.py.
    assert {form.layout for form in FORMS.values()} == set(LAYOUTS) - {"cub"}
