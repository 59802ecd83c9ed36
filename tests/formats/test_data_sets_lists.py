"""Data sets with lists of images: Hugging Face's files, WebDataset tars, CSV, and the studio's exports."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from formats.exporting import export
from formats.in_place import open_data_set
from tests.formats.test_data_sets import jpeg, labels, number_of_items, png, put, refusal, tar_of, why
from tests.formats.test_data_sets_scenes import classes_at, mask, numbers
from tests.formats.test_formats import SET, Maker, mixed

NAMES = ("tench", "goldfish", "shark")


def features(**more: Any) -> bytes:
    about = {"image": {"_type": "Image"}, "label": {"names": list(NAMES), "_type": "ClassLabel"}, **more}
    return json.dumps({"info": {"features": about}}).encode()


def parquet(rows: list[dict[str, Any]], group: int = 2, metadata: bytes | None = None) -> bytes:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(rows)
    table = table.replace_schema_metadata({b"huggingface": metadata or features()})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file, row_group_size=group)
    return file.getvalue()


def row(number: int, label: Any) -> dict[str, Any]:
    return {"image": {"bytes": jpeg(number), "path": f"{number}.jpg"}, "label": label}


@pytest.mark.parametrize("layout", ["huggingface", "imagenet"])
def test_parquet_of_hugging_face(tmp_path: Path, layout: str) -> None:
    files = {
        "data/train-00000-of-00002.parquet": parquet([row(0, 0), row(1, 2), row(2, 1)]),
        "data/train-00001-of-00002.parquet": parquet([row(3, 1), row(1, 2)]),
        "data/validation-00000-of-00001.parquet": parquet([row(5, 0)]),
        "README.md": b"---\nlicense: other\n---\n",
    }
    root = put(tmp_path, files)
    assert "train, validation" in refusal(root, layout)
    data_set = open_data_set(root, layout, "train")
    items = list(data_set.items())
    assert [item.label for item in items] == ["tench", "shark", "goldfish", "goldfish", "shark"]
    assert (data_set.classes, number_of_items(data_set), data_set.split) == (NAMES, 5, "train")
    assert items[2].key == "data/train-00000-of-00002.parquet/2"
    assert [data_set.read(item.key).image for item in reversed(items)] == [jpeg(n) for n in (1, 3, 2, 1, 0)]
    assert len({item.key for item in items}) == 5, "the same image twice is two items"
    assert number_of_items(open_data_set(root, layout, "val")) == 1


def test_rows_that_cannot_be_read_fail_alone(tmp_path: Path) -> None:
    rows = [row(0, 0), row(1, 7), row(2, -1), {"image": {"bytes": None, "path": None}, "label": 1}, row(4, None)]
    rows.append({"image": {"bytes": jpeg(5)[:300], "path": "5.jpg"}, "label": 1})
    name = "train-00000-of-00001.parquet"
    root = put(tmp_path, {name: parquet(rows)})
    data_set = open_data_set(root, "huggingface")
    assert list(labels(data_set).values()) == ["tench", "7", "", "goldfish", "", "goldfish"]
    assert "The label “7” is none of the 3 classes" in why(data_set, f"{name}/1")
    assert data_set.read(f"{name}/2").image == jpeg(2)
    assert "does not hold the bytes" in why(data_set, f"{name}/3")
    assert "damaged" in why(data_set, f"{name}/5")
    assert "no such item" in why(data_set, f"{name}/6") and "no such item" in why(data_set, "other.parquet/0")
    stamp = next(data_set.items()).stamp
    put(root, {name: parquet(rows[:1])})
    assert "was changed since" in why(data_set, f"{name}/0", stamp)
    put(root, {name: b"PAR1"})
    assert "damaged or no Parquet file" in refusal(root, "huggingface")


def test_parquet_with_several_labels_folders_and_masks(tmp_path: Path) -> None:
    about = features(fine={"names": ["a", "b"], "_type": "ClassLabel"}, coarse={"names": ["x"], "_type": "ClassLabel"})
    rows = [{"image": {"bytes": png(1, (48, 32)), "path": ""}, "fine": 1, "coarse": 0, "seg": {"bytes": mask(0, 3)}}]
    root = put(tmp_path, {"one/0.parquet": parquet(rows, metadata=about)})
    assert "Choose a label by the option label: there is fine, coarse" in refusal(root, "huggingface")
    assert "There is no column “rough”" in refusal(root, "huggingface", label="rough")
    more = {"label": "fine", "mask": "seg", "mask_classes": "0 sky, 3 road"}
    data_set = open_data_set(root, "huggingface", **more)
    assert labels(data_set) == {"one/0.parquet/0": "b"}
    assert classes_at(data_set, "one/0.parquet/0") == ("sky", "road")
    assert "without a name: 3" in why(
        open_data_set(root, "huggingface", **{**more, "mask_classes": "0 sky"}), "one/0.parquet/0"
    )
    put(root, {"two/0.parquet": parquet(rows, metadata=about)})
    assert "name one with the option “config”, such as one" in refusal(root, "huggingface", label="fine")
    assert number_of_items(open_data_set(root, "huggingface", label="fine", config="two")) == 1


@pytest.mark.slow
def test_what_save_to_disk_writes_is_what_load_from_disk_reads(tmp_path: Path) -> None:
    import datasets

    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(NAMES))})
    made = {
        split: datasets.Dataset.from_dict(
            {"image": [{"bytes": jpeg(n), "path": None} for n in range(first, first + 5)], "label": [0, 1, 2, 1, 0]},
            kinds,
        )
        for split, first in (("train", 0), ("test", 10))
    }
    for dataset in made.values():
        dataset.info.license = "CC BY 4.0"
    datasets.DatasetDict(made).save_to_disk(tmp_path / "all", num_shards={"train": 2, "test": 1})
    assert "Choose a split" in refusal(tmp_path / "all", "huggingface")
    data_set = open_data_set(tmp_path / "all", "huggingface", "train")
    published = datasets.load_from_disk(str(tmp_path / "all"))["train"].cast_column(
        "image", datasets.Image(decode=False)
    )
    assert [(data_set.read(item.key).image, item.label) for item in data_set.items()] == [
        (one["image"]["bytes"], NAMES[one["label"]]) for one in published
    ]
    assert number_of_items(data_set) == 5
    made["test"].save_to_disk(tmp_path / "one")
    alone = open_data_set(tmp_path / "one", "huggingface")
    assert [alone.read(key).image for key in labels(alone)] == [jpeg(n) for n in range(10, 15)]


def shards(root: Path) -> Path:
    def sample(number: int, label: int) -> dict[str, bytes]:
        return {f"{number:06d}.jpg": jpeg(number), f"{number:06d}.cls": str(label).encode()}

    return put(
        root,
        {
            "imagenet-train-000000.tar": tar_of({**sample(0, 0), **sample(1, 2)}),
            "imagenet-train-000001.tar": tar_of({**sample(2, 1), **sample(0, 5)}),
            "imagenet-val-000000.tar": tar_of(sample(4, 1)),
            "names.txt": "\n".join(NAMES).encode(),
        },
    )


def test_webdataset(tmp_path: Path) -> None:
    root = shards(tmp_path)
    assert "train, val" in refusal(root, "webdataset")
    plain = open_data_set(root, "webdataset", "train")
    assert list(labels(plain).values()) == ["0", "2", "5", "1"] and plain.classes == ()
    data_set = open_data_set(root, "webdataset", "train", classes="names.txt")
    found = labels(data_set)
    assert found == {
        "imagenet-train-000000.tar/000000.jpg": "tench",
        "imagenet-train-000000.tar/000001.jpg": "shark",
        "imagenet-train-000001.tar/000002.jpg": "goldfish",
        "imagenet-train-000001.tar/000000.jpg": "5",
    }
    read = [data_set.read(key).image for key, label in found.items() if label != "5"]
    assert read == [jpeg(0), jpeg(1), jpeg(2)]
    assert "The label “5” is none of the 3 classes" in why(data_set, "imagenet-train-000001.tar/000000.jpg")
    assert number_of_items(open_data_set(root / "imagenet-val-000000.tar", "webdataset")) == 1
    assert "cannot be read" in refusal(root, "webdataset", "train", classes="nowhere.txt")


def test_webdataset_says_which_shards_and_samples_are_left_out(tmp_path: Path) -> None:
    root = put(tmp_path, {"a-000.tar": tar_of({"1.jpg": jpeg(1), "2.cls": b"3"}), "a-001.tar": b"no tar" * 200})
    with tarfile.open(root / "a-002.tar.gz", "w:gz"):
        pass
    data_set = open_data_set(root, "webdataset")
    assert list(labels(data_set)) == ["a-000.tar/1.jpg"]
    told = {row.file: row.reason for row in data_set.left_out}
    assert "make a plain tar of it" in told["a-002.tar.gz"]
    assert "no images" in told["a-000.tar/2"] and "not a readable tar archive" in told["a-001.tar"]


def test_csv(tmp_path: Path) -> None:
    table = (
        "file_name,label,split,weather,mask\n"
        'images/a.png,car,train,"rain, heavy",masks/a.png\n'
        "\n"
        "images/b.png,bike,train,,masks/b.png\n"
        "images/a.png,bike,train,dry,masks/a.png\n"
        "images/c.png,car,test,dry,masks/c.png\n"
        "../secret.png,car,train,dry,masks/c.png\n"
        "images/d.png,car,train\n"
        "images/gone.png,car,train,dry,\n"
    )
    size = (48, 32)
    files = {
        "list.csv": table.encode(),
        **{f"images/{name}.png": png(number, size) for number, name in enumerate("abc")},
        "masks/a.png": mask(0, 3),
        "masks/b.png": mask(0, 3, (24, 32)),
        "masks/c.png": mask(0, 9),
    }
    root = put(tmp_path, files)
    assert "test, train" in refusal(root, "csv")
    data_set = open_data_set(root, "csv", "train", mask_classes="0 sky, 3 road")
    items = list(data_set.items())
    assert [(item.key, item.label) for item in items] == [
        ("images/a.png", "car"),
        ("images/b.png", "bike"),
        ("images/a.png#3", "bike"),
        ("images/gone.png", "car"),
    ]
    assert [dict(item.attributes) for item in items[:2]] == [{"weather": "rain, heavy"}, {}]
    assert data_set.classes == ("bike", "car")
    assert classes_at(data_set, "images/a.png") == ("sky", "road")
    assert data_set.read("images/a.png#3").image == png(0, size)
    assert "The mask has 24x32 pixels" in why(data_set, "images/b.png")
    assert "not there" in why(data_set, "images/gone.png")
    assert "no such item" in why(data_set, "images/z.png") and "no such item" in why(data_set, "images/a.png#2")
    told = " ".join(f"{row.file}: {row.reason}" for row in data_set.left_out)
    assert "list.csv, line 7: Its image lies outside" in told and "list.csv, line 8: It has 3 cells" in told
    test = open_data_set(root / "list.csv", "csv", "test", mask_classes="0 sky, 3 road")
    assert "without a name: 9" in why(test, "images/c.png")
    put(root, {"list.csv": b"file_name,label,split\n" + table.encode()})
    assert "The table was changed since the data set was opened" in why(data_set, "images/a.png")
    (root / "list.csv").unlink()
    assert "list.csv: No such file" in why(data_set, "images/a.png")
    with pytest.raises(UserError, match=r"cannot be listed: .*list\.csv: No such file"):
        list(data_set.items())


def test_a_csv_with_classes_of_its_own_or_in_need_of_a_word(tmp_path: Path) -> None:
    root = put(
        tmp_path, {"a.csv": b"path,class\na.png,1\nb.png,9\n", "a.png": png(1), "b.png": png(2), "n.txt": b"x\ny\n"}
    )
    data_set = open_data_set(root, "csv", label="class", classes="n.txt")
    assert labels(data_set) == {"a.png": "y", "b.png": "9"}
    assert data_set.read("a.png").image == png(1)
    assert "The label “9” is none of the 2 classes" in why(data_set, "b.png")
    assert "There is no column “kind” for the label, only path, class" in refusal(root, "csv", label="kind")
    put(root, {"b.csv": b"path\na.png\n", "c.csv": "path\nä.png\n".encode("latin-1")})
    assert "Choose a table by the option table: there is a.csv, b.csv, c.csv" in refusal(root, "csv")
    assert "not in UTF-8" in refusal(root, "csv", table="c.csv")
    assert number_of_items(open_data_set(root, "csv", table="b.csv")) == 1


@pytest.mark.parametrize("form", ["imagefolder", "torchvision", "coco", "yolo", "csv"])
def test_our_own_test_sets(tmp_path: Path, form: str) -> None:
    examples = [example for example in mixed(Maker(tmp_path / "made")) if form != "torchvision" or example.label]
    export(SET, examples, tmp_path / "out", form)
    splits = sorted({example.split or "unsplit" for example in examples})
    assert len(splits) == 1 or "Choose a split" in refusal(tmp_path / "out", "studio")
    for split in {example.split for example in examples}:
        data_set = open_data_set(tmp_path / "out", "studio", split or "unsplit")
        wanted = sorted((e for e in examples if e.split == split), key=lambda e: e.name)
        items = sorted(data_set.items(), key=lambda item: Path(item.key).stem)
        assert [(Path(item.key).stem, item.label, item.split) for item in items] == [
            (e.name, e.label, split) for e in wanted
        ]
        for item, example in zip(items, wanted, strict=True):
            content = data_set.read(item.key)
            with Image.open(io.BytesIO(content.image)) as image, Image.open(example.image) as source:
                assert (np.asarray(image) == np.asarray(source)).all()
            if example.mask is not None:
                found = numbers(content)
                with Image.open(example.mask) as source:
                    own = np.asarray(source)
                named = {n: name for n, name in example.mask_classes.items() if n in np.unique(own) and n != 255}
                for number, name in named.items():
                    assert {data_set.mask_classes[n] for n in np.unique(found[own == number]).tolist()} == {name}


def test_a_folder_with_masks_beside_the_images(tmp_path: Path) -> None:
    files = {
        "images/a.png": png(1, (48, 32)),
        "images/b.png": png(2, (48, 32)),
        "masks/a.png": mask(0, 3),
        "masks/b.png": mask(0, 4),
        "classes.txt": b"0 sky\n3 road\n",
    }
    root = put(tmp_path, files)
    data_set = open_data_set(root, "folder")
    assert labels(data_set) == {"images/a.png": "", "images/b.png": ""}
    assert classes_at(data_set, "images/a.png") == ("sky", "road")
    assert "without a name: 4" in why(data_set, "images/b.png")
    (root / "classes.txt").unlink()
    assert "class numbers without a name: 0, 3" in why(open_data_set(root, "folder"), "images/a.png")
    assert "holds no test set that the studio exported" in refusal(root, "studio")
    (root / "images/a.png").unlink()
    assert "The file is not there" in why(data_set, "images/a.png")


def test_a_test_set_within_shards_is_opened_by_either_name(tmp_path: Path) -> None:
    export(SET, mixed(Maker(tmp_path / "made")), tmp_path / "out", "webdataset")
    data_set = open_data_set(tmp_path / "out", "webdataset", "train")
    assert {item.label for item in data_set.items()} <= {*data_set.classes, ""}
    assert number_of_items(data_set) > 0
    assert labels(open_data_set(tmp_path / "out", "studio", "train")) == labels(data_set)
