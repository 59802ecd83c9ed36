"""An import or export keeps only the name and label of each image in memory, and no other facts from its files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from formats import draft as drafts
from formats.exporting import export
from formats.reading import read
from formats.types import Example
from services import test_sets
from services.curation.import_source import bring_in
from services.curation.imports import into_set
from services.test_sets.drafts import ReleaseTestSet, TestSetDrafts
from services.test_sets.examples import export_version
from storage.workspace import Workspace
from tests.formats.test_formats import SET, Maker
from tests.support.memory import Peaks, measuring_process
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

LONG = "Snow falls on a bird. " * 1000
"""Caption of every image: 22,000 characters."""


@pytest.fixture(scope="module")
def peaks() -> Iterator[Peaks]:
    with measuring_process() as found:
        yield found


def examples(maker: Maker, number: int, size: int, said: str = "") -> list[Example]:
    """Return `number` images of noise with the prompt `said`."""
    made = []
    for place in range(number):
        noise = np.random.default_rng(place).integers(0, 256, (size, size, 3), np.uint8)
        path, sha = maker.file(Image.fromarray(noise))
        facts = {"prompt": said}
        made.append(Example(f"image-{place}", path, sha, label="bird", split="test", role="source", facts=facts))
    return made


def take_in(source: Path, into: Path) -> None:
    """Read all images of a set, then delete them."""
    read(source, into, each=lambda example: True)
    shutil.rmtree(into)


def write_out(workspace: Path, version: int, layout: str) -> None:
    """Export a version, 20 images at a time."""
    test_sets.examples._AT_ONCE = drafts._DETAILED_AT_ONCE = 20
    with Workspace(workspace) as opened:
        held = opened.test_sets.version(version)
        export_version(opened, held, workspace / "out", layout, replace=True)


OTHERS = [pytest.param(layout, marks=pytest.mark.soak) for layout in ("torchvision", "csv", "yolo", "webdataset")]


@pytest.mark.parametrize("layout", ["imagefolder", "parquet", *OTHERS])
def test_what_files_say_of_an_image_is_not_kept(layout: str, tmp_path: Path, peaks: Peaks) -> None:
    maker = Maker(tmp_path / "images")
    held = examples(maker, 240, 16, LONG)
    folders = [export(SET, held[:number], tmp_path / str(number), layout) for number in (120, 240)]
    few, many = peaks(take_in, *((folder, tmp_path / "in") for folder in folders))
    each = (many - few) / 120
    assert each < len(LONG) / 4, f"{each:.0f} bytes an image"
    assert many < 50_000_000, "no more was asked for than there is"


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("layout", ["parquet", pytest.param("webdataset", marks=pytest.mark.soak)])
def test_the_images_within_a_table_are_not_kept(layout: str, packed: bool, tmp_path: Path, peaks: Peaks) -> None:
    """Rows of a table are read in groups of 64, and some more are processed at the same time."""
    maker = Maker(tmp_path / "images")
    held = examples(maker, 450, 64)
    size = held[0].image.stat().st_size
    folders = [export(SET, held[:number], tmp_path / str(number), layout) for number in (150, 450)]
    if packed:
        folders = [Path(shutil.make_archive(str(folder), "zip", folder)) for folder in folders]
    few, many = peaks(take_in, *((folder, tmp_path / "in") for folder in folders))
    assert many - few < 300 * size / 3, f"{few:,} bytes became {many:,}"


@pytest.mark.parametrize(
    "layout", ["imagefolder", *(pytest.param(name, marks=pytest.mark.soak) for name in ("parquet", "yolo"))]
)
def test_what_is_said_of_an_image_is_not_kept_while_a_version_is_exported(
    layout: str, tmp_path: Path, peaks: Peaks
) -> None:
    held = examples(Maker(tmp_path / "images"), 200, 16, LONG)
    given = []
    for number in (80, 200):
        with workspace_in(tmp_path / f"workspace-{number}") as workspace:
            done = bring_in(workspace, export(SET, held[:number], tmp_path / f"held-{number}", "csv"))
            into_set(workspace, done.imported.id, "Birds")
            version = TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Birds", unreviewed=True))
            given.append((workspace.folder, version.number, layout))
    few, many = peaks(write_out, *given)
    each = (many - few) / 120
    assert each < len(LONG) / 3, f"{each:.0f} bytes an image"
    out = tmp_path / "workspace-200" / "out"
    assert {example.facts["prompt"] for example in read(out, tmp_path / "in").examples} == {LONG}
