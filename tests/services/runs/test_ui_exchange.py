"""Exported files come back into the same workspace, into another one, or from another tool. Masks come from files."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.png import with_texts
from core.types import Task
from services.pictures import StoredPictures
from services.runs import exchange
from services.runs.predictions import ModelComparison
from services.studio import Studio
from storage.runs.runs import ImportedRun
from tests.services.runs.test_predictions import Bright
from tests.support.scripted import perform, studio_in
from tests.support.serving import until
from tests.ui.explore.test_ui_studio import do, new_run
from ui.explore.page import Explorer, GivenFile, GivenMask, GivenPicture
from ui.explore.page_frame import mask_row
from ui.routes import add_routes

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=alert(1)> \"'& 鳥/../"
BIRD = Task("classification", "bird")
ROAD = Task("segmentation", protected=("road", "vehicle", "dragon"))
CLASSES = "0 sky, 1 road, 2 <b>vehicle</b>"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Studio]:
    """Another workspace."""
    with studio_in(tmp_path / "there") as made:
        yield made


def encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def mask_file(size: tuple[int, int] = (48, 32), values: tuple[int, ...] = (0, 1, 2)) -> bytes:
    grid = np.repeat(np.array(values, np.uint8), size[0] // len(values) + 1)[: size[0]]
    return encoded(Image.fromarray(np.tile(grid, (size[1], 1))))


def finished(studio: Studio, name: str = NASTY, task: Task = BIRD) -> str:
    """Run with four images and a mask."""
    settings = studio.profile.settings.model_dump(mode="json")
    source = Image.effect_noise((48, 32), 90).convert("RGB")
    run_id = studio.workspace.runs.create(source, task, "demo", name, settings)
    assert not do(studio, run_id, "run-all").problem
    assert not do(studio, run_id, "generate").problem
    studio.workspace.runs.set_prompts(run_id, {"keywords": f"$task $caption {NASTY}"})
    studio.runs.give_mask(run_id, mask_file(), CLASSES)
    return run_id


def test_a_saved_image_brings_its_run_back_in_another_workspace(studio: Studio, elsewhere: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    case = run.test_cases[1]
    name, data = studio.exchange.saved_image(case.id)
    assert name.endswith(f"-{case.id}.png") and not set(name) & set("/<>\"'& ")
    assert Image.open(io.BytesIO(data)).tobytes() == Image.open(case.image_path).tobytes()

    taken = elsewhere.exchange.take_picture(data, "whatever.png")
    there = elsewhere.workspace.runs.get(taken.run_id)
    assert taken.run_id == run.id and "was restored from the file" in taken.said
    for part in ("name", "task", "profile", "settings", "prompts", "source_sha", "mask_sha", "mask_classes"):
        assert getattr(there, part) == getattr(run, part), part
    assert {s: v.value for s, v in there.values.items()} == {s: v.value for s, v in run.values.items()}
    (restored,) = there.test_cases
    assert (restored.id, restored.image_sha) == (taken.case_id, case.image_sha)
    assert (restored.lineage, restored.checks) == (case.lineage, case.checks)
    assert {name: one.sha for name, one in restored.artifacts.items()} == {
        name: one.sha for name, one in case.artifacts.items()
    }
    assert elsewhere.states.of(run.id).stale == studio.states.of(run.id).stale, "what is fresh here is fresh there"
    assert set(elsewhere.states.of(run.id).stale) == {"keywords", "alternatives", "counterfactuals"}, "another prompt"

    # The same file opens the run again. Another image of the run is added to it.
    assert elsewhere.exchange.take_run(data).case_id == taken.case_id
    second = elsewhere.exchange.take_run(studio.exchange.saved_image(run.test_cases[2].id)[1])
    assert second.run_id == run.id and len(elsewhere.workspace.runs.get(run.id).test_cases) == 2
    assert len(elsewhere.runs.latest()) == 1


def test_the_check_of_the_mask_travels_and_is_not_doubled(studio: Studio, elsewhere: Studio) -> None:
    run_id = finished(studio, task=Task("segmentation", protected=("road",)))
    case_id = studio.workspace.runs.get(run_id).test_cases[0].id
    without = studio.exchange.saved_image(case_id)[1]
    seen = read_all(studio, run_id)
    data = studio.exchange.saved_image(case_id)[1]
    assert data != without, "what was measured since is in the file"
    taken = elsewhere.exchange.take_run(data)
    assert elsewhere.exchange.saved_image(taken.case_id or 0)[1] == data, "before the model was asked there"
    there = read_all(elsewhere, run_id)
    (case,) = elsewhere.workspace.runs.get(run_id).test_cases
    assert there.checks(case) == case.checks == seen.checks(studio.workspace.test_cases.get(case_id))
    assert [check.name for check in case.checks].count("mask kept") == 1
    assert elsewhere.exchange.saved_image(case.id)[1] == data, "and after"
    do(elsewhere, run_id, "delete-mask")
    assert "mask kept" not in [check.name for check in read_all(elsewhere, run_id).checks(case)]


def read_all(studio: Studio, run_id: str) -> ModelComparison:
    """Return the comparison by a segmenter that sees road on the left."""
    studio.predictions.load = lambda wanted: Bright("segmentation", wanted.title)

    def compared() -> ModelComparison:
        run = studio.workspace.runs.get(run_id)
        return studio.predictions.compare(run, studio.runs.settings(run))

    until(lambda: not compared().waiting)
    return compared()


def test_what_people_decided_travels_with_the_image(studio: Studio, elsewhere: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    first, second, third = run.test_cases[:3]
    studio.workspace.test_cases.review(first.id, "rejected", NASTY)
    studio.workspace.test_cases.review(second.id, "accepted")
    files = [studio.exchange.saved_image(case.id)[1] for case in (first, second, third)]
    cases = [elsewhere.workspace.test_cases.get(elsewhere.exchange.take_run(data).case_id or 0) for data in files]
    assert [(case.review.verdict, case.review.reason) if case.review else None for case in cases] == [
        ("rejected", " ".join(NASTY.split())),
        ("accepted", ""),
        None,
    ]
    assert elsewhere.exchange.saved_image(cases[0].id)[1] == files[0]
    # A decision made in this workspace outranks the file's.
    elsewhere.workspace.test_cases.review(cases[0].id, "open")
    elsewhere.exchange.take_run(files[0])
    assert elsewhere.workspace.test_cases.get(cases[0].id).review is None


def test_a_file_opens_the_run_that_it_came_from(studio: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    case = run.test_cases[0]
    data = studio.exchange.saved_image(case.id)[1]
    do(studio, run.id, "caption", text="A red bird in cloudy weather by day.")
    before = studio.workspace.runs.get(run.id)
    assert studio.exchange.take_picture(data, "x.png") == exchange.Taken(run.id, case.id)
    assert studio.workspace.runs.get(run.id) == before, "what was done since is untouched"
    studio.workspace.runs.remove(run.id)
    assert "had been deleted" in studio.exchange.take_run(data).said
    assert [item.id for item in studio.runs.latest()] == [run.id]


def test_a_run_of_another_picture_with_the_same_id_is_left_alone(studio: Studio, elsewhere: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    data = studio.exchange.saved_image(run.test_cases[0].id)[1]
    record = exchange.run_record(run)
    (other,) = elsewhere.workspace.runs.import_runs([ImportedRun(record, Image.new("RGB", (48, 32), (9, 9, 9)))])
    assert other == run.id
    taken = elsewhere.exchange.take_run(data)
    assert taken.run_id != run.id and len(elsewhere.runs.latest()) == 2
    assert elsewhere.workspace.runs.get(other).test_cases == ()


def test_a_picture_without_a_run_begins_one_or_is_refused_when_a_run_was_wanted(studio: Studio) -> None:
    foreign = with_texts(encoded(Image.new("RGB", (64, 64))), {"parameters": NASTY, "dillema": "{}"})
    with pytest.raises(UserError, match="There is no run in this file"):
        studio.exchange.take_run(foreign)
    assert studio.runs.latest() == ()
    taken = studio.exchange.take_picture(foreign, f"{NASTY}.png")
    assert (taken.case_id, taken.said) == (None, "")
    assert len(studio.runs.latest()) == 1


def test_a_run_without_its_source_is_refused_elsewhere(
    studio: Studio, elsewhere: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = studio.workspace.runs.get(finished(studio))
    monkeypatch.setattr("pipeline.run_files.embedded.LARGEST_PICTURE", 10)
    data = studio.exchange.saved_image(run.test_cases[0].id)[1]
    with pytest.raises(UserError, match="does not contain its source image"):
        elsewhere.exchange.take_run(data)
    assert elsewhere.runs.latest() == ()
    assert studio.exchange.take_run(data).run_id == run.id


def test_an_image_is_exported_with_its_mask_at_its_size(studio: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    case = run.test_cases[0]
    name, data = studio.exchange.saved_with_mask(case.id)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        image, mask, classes = archive.namelist()
        assert (image, mask) == (name.replace(".zip", ".png"), name.replace(".zip", ".mask.png"))
        assert archive.read(image) == studio.exchange.saved_image(case.id)[1]
        numbers = Image.open(io.BytesIO(archive.read(mask)))
        assert numbers.mode == "L" and numbers.size == Image.open(case.image_path).size
        assert encoded(numbers) == mask_file()
        assert json.loads(archive.read(classes))["classes"] == {"0": "sky", "1": "road", "2": "<b>vehicle</b>"}
    studio.workspace.runs.set_mask(run.id, None)
    with pytest.raises(UserError, match="has no mask"):
        studio.exchange.saved_with_mask(case.id)


def test_masks_are_judged_against_the_source_and_its_classes(studio: Studio) -> None:
    run_id = finished(studio)
    held = studio.workspace.runs.get(run_id)
    for data, classes, said in (
        (mask_file((32, 48)), CLASSES, "32x48 pixels and the source image 48x32"),
        (mask_file(values=(0, 5)), CLASSES, "without a name: 5"),
        (mask_file(), "sky", "“sky” is no class"),
        (b"GIF89a", CLASSES, "damaged"),
    ):
        with pytest.raises(UserError, match=said):
            studio.runs.give_mask(run_id, data, classes)
    assert studio.workspace.runs.get(run_id) == held
    notes = studio.runs.give_mask(run_id, mask_file((96, 64), (0, 7)), "0 sky, 7 car")
    assert "brought from 96x64 to the 48x32" in notes[0]
    outcome = perform(studio, run_id, "mask-classes", classes="0 sky")
    assert outcome.where == "source" and "without a name: 7" in outcome.problem
    assert not perform(studio, run_id, "mask-classes", classes="0 sky, 7 bus").problem
    assert studio.workspace.runs.get(run_id).mask_classes == {0: "sky", 7: "bus"}
    perform(studio, run_id, "delete-mask")
    assert studio.workspace.runs.get(run_id).mask_sha is None
    assert "no mask yet" in perform(studio, run_id, "mask-classes", classes="0 sky").problem


def test_a_sample_brings_its_mask(studio: Studio) -> None:
    run_id = perform(studio, "", "run-from-sample", sample="street-two-cars").run_id
    run = studio.workspace.runs.get(run_id)
    images = studio.workspace.images
    assert run.mask_sha is not None and images.load(run.mask_sha).size == images.load(run.source_sha).size
    assert set(run.task.protected) <= set(run.mask_classes.values())
    bird = perform(studio, "", "run-from-sample", sample="bird-on-a-twig").run_id
    assert studio.workspace.runs.get(bird).mask_sha is None
    assert "mask-sample" in mask_row(studio.states.of(bird), studio.runs.samples)
    assert not perform(studio, bird, "mask-sample").problem
    assert "object" in studio.workspace.runs.get(bird).mask_classes.values()
    upload = studio.runs.from_upload(encoded(Image.new("RGB", (64, 64))), "mine.png")
    assert "no mask for this picture" in perform(studio, upload, "mask-sample").problem


def test_names_of_classes_are_shown_as_text_and_protected_ones_are_marked(studio: Studio) -> None:
    run_id = finished(studio)
    studio.workspace.runs.set_task(run_id, Task("segmentation", protected=("Road", "vehicle", "dragon")))
    markup = mask_row(studio.states.of(run_id), studio.runs.samples)
    assert "<b>vehicle" not in markup and "&lt;b&gt;vehicle" in markup
    assert "The mask has no class “vehicle”, “dragon”" in markup
    assert markup.count("<svg") == 1, "the lock of the road"


def test_the_accepted_images_of_runs_are_one_file(studio: Studio, client: TestClient) -> None:
    """The file loads in `datasets`: a row per image in metadata.parquet, with its file, its mask and its label.

    Tried with datasets 5.2.0. If README.md does not name the data files, `datasets` takes a folder of one image for a
    folder of tables.
    """
    masked, plain, empty = finished(studio), new_run(studio, "boat"), new_run(studio)
    do(studio, plain, "run-all")
    do(studio, plain, "generate")
    cases = {run: studio.workspace.runs.get(run).test_cases for run in (masked, plain)}
    studio.workspace.test_cases.review(cases[masked][0].id, "accepted")
    studio.workspace.test_cases.review(cases[masked][1].id, "rejected", "No bird.")
    for case in cases[plain][2:]:
        studio.workspace.test_cases.review(case.id, "accepted")
    studio.workspace.runs.set_task(plain, Task("classification", "house"))  # accepted images keep their label
    reply = client.get("/download/accepted.zip", params={"run": [plain, masked, masked, empty]})
    assert "3-runs-accepted-" in reply.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        lines = pyarrow.parquet.read_table(io.BytesIO(archive.read("metadata.parquet"))).to_pylist()
        lines.sort(key=lambda line: str(line["label"]))
        assert [(line["case"], line["label"]) for line in lines] == [
            (cases[masked][0].id, "bird"),
            (cases[plain][2].id, "boat"),
            (cases[plain][3].id, "boat"),
        ]
        assert lines[0]["run_name"] == NASTY
        assert lines[0]["classes"][2] == {"number": 2, "name": "<b>vehicle</b>"}, "one type, whatever the classes are"
        assert lines[1]["caption"] == cases[plain][2].lineage.counterfactual.text and lines[1]["edits"]
        named = [line["file_name"] for line in lines]
        assert archive.read(named[0]) == studio.exchange.saved_image(cases[masked][0].id)[1]
        with Image.open(io.BytesIO(archive.read(lines[0]["mask_file_name"]))) as mask:
            assert (mask.mode, mask.size) == ("L", Image.open(cases[masked][0].image_path).size)
        beside = {"metadata.parquet", "README.md", "edited_values.csv"}
        assert set(archive.namelist()) == {*named, lines[0]["mask_file_name"], *beside}
        card = archive.read("README.md").decode()
        assert card.startswith(
            "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n"
            '    - "metadata.parquet"\n    - "images/*"\n    - "masks/*"\n---\n'
        )
        assert re.search(r'load_dataset\("imagefolder", data_files="3-runs-accepted-.*\.zip"', card)
    assert client.get("/download/accepted.zip", params={"run": empty}).status_code == 404
    assert client.get("/download/accepted.zip", params={"run": "../x"}).status_code == 404
    assert client.get("/download/accepted.zip").status_code == 422


def test_the_accepted_images_load_by_the_lines_of_their_card(
    studio: Studio, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked, plain = finished(studio), new_run(studio, "boat")
    do(studio, plain, "run-all")
    do(studio, plain, "generate")
    for number, run in enumerate((masked, plain)):
        studio.workspace.runs.rename(run, f"2024-11-2{number}")
        studio.workspace.test_cases.review(studio.workspace.runs.get(run).test_cases[0].id, "accepted")
    reply = client.get("/download/accepted.zip", params={"run": [masked, plain]})
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        lines = re.findall(r"```python\n(.*?)```", archive.read("README.md").decode(), re.DOTALL)[0]
    named = re.findall(r'data_files="(.*?)"', lines)[0]
    (tmp_path / named).write_bytes(reply.content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {}
    exec(lines, names)
    rows = sorted(names["images"], key=lambda row: row["run_name"])
    assert [row["run_name"] for row in rows] == ["2024-11-20", "2024-11-21"], "names, and not points in time"
    assert [row["label"] for row in rows] == ["bird", "boat"] and rows[0]["image"].mode == "RGB"
    assert rows[0]["mask"].size == rows[0]["image"].size and rows[1]["mask"] is None


@pytest.fixture
def client(studio: Studio) -> TestClient:
    app = FastAPI()
    workspace = studio.workspace
    add_routes(app, StoredPictures(workspace), studio.runs.samples, studio.exchange)
    return TestClient(app)


def test_files_come_and_go_over_http(studio: Studio, client: TestClient) -> None:
    run_id = finished(studio)
    run = studio.workspace.runs.get(run_id)
    case = run.test_cases[0].id
    reply = client.get(f"/download/{case}.png")
    assert reply.content == studio.exchange.saved_image(case)[1] and reply.headers["content-type"] == "image/png"
    assert reply.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert client.get(f"/download/{case}.zip").content[:2] == b"PK"
    assert client.get("/download/999.png").status_code == 404
    assert client.get("/download/x.png").status_code == 422

    assert not studio.runs.give_mask(run_id, mask_file(), "0 sky, 1 road, 2 car")
    sha = studio.workspace.runs.get(run_id).mask_sha
    shown = Image.open(io.BytesIO(client.get(f"/masks/{sha}.png").content))
    assert (shown.mode, shown.size) == ("RGBA", (48, 32))
    assert client.get(f"/masks/{run.source_sha}.png").status_code == 404
    assert client.get("/masks/..%2fstudio.png").status_code == 404


def test_a_page_gives_files_that_were_uploaded(studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    (tmp_path / "uploads").mkdir()
    explorer, run_id = Explorer(studio), finished(studio)
    case = studio.workspace.runs.get(run_id).test_cases[0].id

    def sent(data: bytes) -> str:
        file = tmp_path / "uploads" / "sent"
        file.write_bytes(data)
        return str(file)

    saved = studio.exchange.saved_image(case)[1]
    taken = explorer.take_run(GivenFile(path=sent(saved)))
    assert (taken["problem"], taken["run_id"], taken["case_id"]) == ("", run_id, case)
    refused = explorer.take_run(GivenFile(path=sent(encoded(Image.new("RGB", (64, 64))))))
    assert refused["problem"].startswith("There is no run in this file.")
    assert refused["offer"] == "new", "what has no run can begin one"
    nothing = GivenPicture(path=sent(b""), name="a.png")
    for refused in (explorer.take_run(nothing), explorer.take_picture(nothing)):
        assert refused["problem"].startswith("The file is empty") and "offer" not in refused
    mask = GivenMask(run=run_id, path=sent(mask_file()), classes="0 sky, 1 road, 2 car")
    assert explorer.give_mask(mask) == {"problem": "", "said": ()}
    assert "has no run" in explorer.give_mask(GivenMask(run="none", path=sent(mask_file())))["problem"]

    lying_about = tmp_path / "mine.png"
    lying_about.write_bytes(saved)
    for path in (
        str(lying_about),
        f"{tmp_path}/uploads/../mine.png",
        "/etc/passwd",
        "",
        "a\0b",
        str(tmp_path / "uploads"),
    ):
        reply = explorer.take_run(GivenFile(path=path))
        assert reply == {"problem": "There is no such upload: send the file first."}
    assert lying_about.exists()


def test_the_stored_image_stays_without_texts(studio: Studio) -> None:
    run = studio.workspace.runs.get(finished(studio))
    studio.exchange.saved_image(run.test_cases[0].id)
    stored = Image.open(run.test_cases[0].image_path)
    assert stored.info == {} and image_sha(stored)


def test_a_run_that_comes_back_keeps_its_recipe(studio: Studio, elsewhere: Studio) -> None:
    run_id = finished(studio)
    studio.workspace.runs.set_recipe(run_id, "reconstruction")
    data = studio.exchange.saved_image(studio.workspace.runs.get(run_id).test_cases[0].id)[1]
    there = elsewhere.workspace.runs.get(elsewhere.exchange.take_picture(data, "whatever.png").run_id)
    assert there.recipe == "reconstruction"
    assert there.test_cases[0].lineage == studio.workspace.runs.get(run_id).test_cases[0].lineage
