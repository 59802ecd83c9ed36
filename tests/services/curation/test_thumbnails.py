"""Thumbnails: made with the image, made on request if missing, and filled in while nothing else runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.errors import UserError
from core.run_record import RunRecord
from core.types import Task
from services.curation.thumbnails import ThumbnailFill
from services.curation.views import View
from services.pictures import StoredPictures
from services.studio import Studio
from storage.backup import backup, restore
from storage.runs.runs import ImportedRun
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.scripted import performed
from tests.support.serving import until
from tests.support.workspaces import workspace_in
from tests.ui.explore.test_ui_studio import new_run
from ui.explore.parts import thumb_url
from ui.routes import add_routes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
BIRD = Task("classification", "bird")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


@pytest.fixture
def fillers() -> Callable[[], set[threading.Thread]]:
    """Function that returns the thumbnail threads started since the test began."""

    def running() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "thumbnails"}

    before = running()
    return lambda: running() - before


def picture(shade: int = 0, size: tuple[int, int] = (512, 384), mode: str = "RGB") -> Image.Image:
    """Return a gradient. Each shade gives a different picture."""
    across, down = np.meshgrid(np.linspace(0, 200, size[0]), np.linspace(0, 255, size[1]))
    planes = [across + shade % 50, down, np.full_like(across, 5.0 * (shade // 50))]
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8)).convert(mode)


def filled(workspace: Workspace, number: int, first: int = 0, size: tuple[int, int] = (24, 16)) -> list[str]:
    """Create a run with this number of test cases and return the hashes of their images in order."""
    run_id = workspace.runs.create(picture(first + 249, size), BIRD, "demo", "A bird", {})
    cases = [made_case(picture(first + place, size), Image.new("L", size, place)) for place in range(number)]
    workspace.test_cases.extend(run_id, None, cases)
    return [case.image_sha for case in workspace.runs.get(run_id).test_cases]


def file_of(workspace: Workspace, sha: str) -> Path:
    return workspace.folder / "thumbs" / sha[:2] / sha[2:4] / f"{sha}.webp"


def there(workspace: Workspace) -> set[str]:
    return {path.stem for path in (workspace.folder / "thumbs").rglob("*.webp")}


def shown(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data), formats=["WEBP"])
    image.load()
    return image


def apart(one: Image.Image, other: Image.Image) -> float:
    """Return the mean difference of two images of the same size, from 0 to 255."""
    return float(np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32)).mean())


def left(workspace: Workspace) -> int:
    """Return the number of entries of the catalogue that may lack thumbnails."""
    return workspace.thumbnails.latest_entry() - workspace.thumbnails.checked()


def filling(workspace: Workspace, most: int | None = None) -> ThumbnailFill:
    """Return a fill that works while nobody uses the gallery, or for at most `most` checks of that."""
    asked = iter(range(10**9))
    return ThumbnailFill(workspace.thumbnails, workspace.saved, lambda: most is None or next(asked) < most)


def test_a_result_and_its_source_have_thumbnails_as_soon_as_they_are_saved(workspace: Workspace) -> None:
    source, result, control = picture(1), picture(2, (384, 512)), picture(3, mode="L")
    run_id = workspace.runs.create(source, BIRD, "demo", "A bird", {})
    workspace.test_cases.append(run_id, None, made_case(result, control))
    run = workspace.runs.get(run_id)
    (case,) = run.test_cases
    assert there(workspace) == {run.source_sha, case.image_sha}, "and the control image has none"
    for sha, image, size in ((run.source_sha, source, (256, 192)), (case.image_sha, result, (192, 256))):
        small = shown(file_of(workspace, sha).read_bytes())
        assert (small.size, small.mode) == (size, "RGB")
        assert apart(small, image.resize(size, Image.Resampling.BOX)) < 3
    assert not list((workspace.folder / "thumbs").glob(".*")), "nothing temporary is left"


def test_what_comes_in_with_a_run_file_has_thumbnails_too(workspace: Workspace) -> None:
    record = RunRecord("", "A bird", "demo", BIRD, {}, {})
    imported = ImportedRun(record, picture(1), None, [made_case(picture(2), picture(3, mode="L"))], [None])
    (run_id,) = workspace.runs.import_runs([imported])
    run = workspace.runs.get(run_id)
    assert there(workspace) == {run.source_sha, run.test_cases[0].image_sha}


@pytest.mark.parametrize(
    ("size", "small"), [((512, 512), (256, 256)), ((200, 100), (200, 100)), ((1000, 3), (256, 1)), ((1, 1), (1, 1))]
)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_every_stored_image_has_one(
    workspace: Workspace, mode: str, size: tuple[int, int], small: tuple[int, int]
) -> None:
    sha = workspace.images.add(picture(4, size, mode))
    made = shown(workspace.thumbnails.webp(sha))
    assert made.size == small
    assert apart(made.convert("RGB"), picture(4, size, mode).convert("RGB").resize(small)) < 6


def test_what_is_transparent_stays_so_and_has_no_dark_rim(workspace: Workspace) -> None:
    image = Image.new("RGBA", (512, 512), (0, 0, 0, 0))
    image.paste((250, 250, 250, 255), (100, 100, 401, 401))
    made = shown(workspace.thumbnails.webp(workspace.images.add(image)))
    assert made.mode == "RGBA" and made.getpixel((5, 5))[3] == 0 and made.getpixel((128, 128))[3] == 255  # type: ignore[index]
    on_white = Image.new("RGBA", made.size, "white")
    on_white.alpha_composite(made)
    assert np.asarray(on_white.convert("L")).min() > 235


def test_no_profile_and_no_text_travels_on(workspace: Workspace) -> None:
    image = picture(1)
    image.info = {"icc_profile": b"x" * 500, "exif": b"Exif\0\0secret", "comment": "secret"}
    run_id = workspace.runs.create(image, BIRD, "demo", "A bird", {})
    data = file_of(workspace, workspace.runs.get(run_id).source_sha).read_bytes()
    assert b"secret" not in data and b"ICCP" not in data and b"EXIF" not in data


def test_an_image_is_saved_whatever_becomes_of_its_thumbnail(workspace: Workspace) -> None:
    (workspace.folder / "thumbs").write_text("somebody's file")
    run_id = workspace.runs.create(picture(1), BIRD, "demo", "A bird", {})
    workspace.test_cases.append(run_id, None, made_case(picture(2)))
    run = workspace.runs.get(run_id)
    for sha in (run.source_sha, run.test_cases[0].image_sha):
        assert workspace.images.load(sha).size == (512, 384)
        assert shown(workspace.thumbnails.webp(sha)).size == (256, 192), "and it is shown, made for each request"
    (workspace.folder / "thumbs").unlink()
    workspace.thumbnails.webp(run.source_sha)
    assert there(workspace) == {run.source_sha}


@pytest.mark.parametrize("left", [0, 11, 0.5, -1])
def test_one_that_was_cut_short_is_made_again(workspace: Workspace, left: float) -> None:
    """A power failure leaves a thumbnail that is only partly written."""
    (sha,) = filled(workspace, 1, size=(512, 384))
    file, whole = file_of(workspace, sha), file_of(workspace, sha).read_bytes()
    file.write_bytes(whole[: int(len(whole) * left) if left == 0.5 else int(left)])
    assert workspace.thumbnails.webp(sha) == whole == file.read_bytes()


VICTIM = """
import os, signal, sys
from storage.workspace import Workspace
workspace = Workspace(sys.argv[1]).open()
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
workspace.thumbnails.webp(sys.argv[2])
"""


def test_a_process_killed_while_it_writes_leaves_no_thumbnail_and_the_next_start_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    with Workspace(folder) as workspace:
        (sha,) = filled(workspace, 1, size=(512, 384))
        whole = file_of(workspace, sha).read_bytes()
        file_of(workspace, sha).unlink()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", VICTIM, str(folder), sha], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((folder / "thumbs").glob(".*.tmp"))) == 1
    with Workspace(folder) as workspace:
        assert not list((folder / "thumbs").glob(".*.tmp")) and sha not in there(workspace)
        living = folder / "thumbs" / f".{workspace.images.process}-{'0' * 16}.tmp"
        living.write_bytes(b"half")
        with Workspace(folder):
            assert living.exists(), "what a living process writes stays"
        assert workspace.thumbnails.webp(sha) == whole


def test_many_who_ask_at_once_all_get_the_whole_of_it(workspace: Workspace) -> None:
    shas = filled(workspace, 6, size=(300, 200))
    wholes = {sha: file_of(workspace, sha).read_bytes() for sha in shas}
    shutil.rmtree(workspace.folder / "thumbs")
    with Workspace(workspace.folder) as other, ThreadPoolExecutor(16) as pool:  # as if by another process
        asked = [(opened, sha) for _ in range(8) for sha in shas for opened in (workspace, other)]
        got = list(pool.map(lambda each: (each[1], each[0].thumbnails.webp(each[1])), asked))
    assert len(got) == 96 and all(data == wholes[sha] for sha, data in got)
    assert there(workspace) == set(shas)
    assert not list((workspace.folder / "thumbs").glob(".*"))


@pytest.fixture
def client(studio: Studio) -> TestClient:
    app = FastAPI()
    add_routes(app, StoredPictures(studio.workspace), studio.runs.samples, studio.exchange)
    return TestClient(app)


def test_they_are_served_for_ever_and_made_where_they_are_missing(studio: Studio, client: TestClient) -> None:
    workspace = studio.workspace
    (sha,) = filled(workspace, 1, size=(512, 384))
    whole = file_of(workspace, sha).read_bytes()
    file_of(workspace, sha).unlink()
    for _ in range(2):
        reply = client.get(thumb_url(sha))
        assert (reply.status_code, reply.content) == (200, whole)
        assert reply.headers["content-type"] == "image/webp"
        assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file_of(workspace, sha).read_bytes() == whole


def test_what_is_generated_on_the_page_has_its_thumbnails(studio: Studio, client: TestClient) -> None:
    run_id = new_run(studio)
    performed(studio, run_id, "run-all")
    performed(studio, run_id, "generate")
    run = studio.workspace.runs.get(run_id)
    assert run.test_cases
    assert there(studio.workspace) == {run.source_sha, *(case.image_sha for case in run.test_cases)}


def test_what_is_not_there_or_damaged_is_told_in_a_sentence(studio: Studio, client: TestClient) -> None:
    workspace = studio.workspace
    sha = workspace.images.add(picture(1))
    file = workspace.folder / "images" / f"{sha}.png"
    file.write_bytes(file.read_bytes()[:-20])
    for name, words in (
        (sha, "is damaged"),
        ("0" * 64, "is missing"),
        (sha.upper(), "is not the name of an image"),
        (sha[:-1], "is not the name of an image"),
        ("..%2f..%2fstudio", ""),
        (f"%2e%2e/images/{sha}", ""),
    ):
        reply = client.get(f"/thumbs/{name}.webp")
        assert reply.status_code == 404 and words in reply.text, name
    assert not (workspace.folder / "thumbs").exists()


def test_an_older_workspace_is_filled_in_the_newest_first_and_goes_on_where_it_stopped(workspace: Workspace) -> None:
    shas = filled(workspace, 30)
    source = workspace.runs.search()[0].source_sha
    shutil.rmtree(workspace.folder / "thumbs")
    stopped = filling(workspace, most=10)
    assert not stopped.fill()
    assert there(workspace) == {source, *shas[20:]}

    newer = filled(workspace, 5, first=100)
    newer_source = workspace.runs.search()[0].source_sha
    for sha in newer:
        file_of(workspace, sha).unlink()
    again = filling(workspace, most=17)
    assert not again.fill()
    assert there(workspace) == {source, newer_source, *newer, *shas[18:]}
    assert left(workspace) == 35

    last = filling(workspace)
    assert last.fill() and last.fill()
    assert there(workspace) == {source, newer_source, *newer, *shas}
    assert left(workspace) == 0


def test_one_fill_goes_on_where_it_stopped(workspace: Workspace) -> None:
    shas = filled(workspace, 30)
    shutil.rmtree(workspace.folder / "thumbs")
    asked = iter([*[True] * 10, False, *[True] * 40])
    fill = ThumbnailFill(workspace.thumbnails, workspace.saved, lambda: next(asked))
    assert not fill.fill()
    assert fill.fill() and len(list(asked)) == 20
    assert set(shas) <= there(workspace) and left(workspace) == 0


def test_where_all_was_looked_through_nothing_is_looked_at_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(workspace, 12)
    assert filling(workspace).fill()
    looked: list[tuple[int, int]] = []
    pictures = type(workspace.thumbnails).pictures

    def counted(self: object, first: int, last: int, most: int) -> object:
        looked.append((first, last))
        return pictures(workspace.thumbnails, first, last, most)

    monkeypatch.setattr(type(workspace.thumbnails), "pictures", counted)
    assert filling(workspace).fill() and not looked
    filled(workspace, 3, first=60)
    assert filling(workspace).fill() and looked == [(13, 15)]
    looked.clear()
    shutil.rmtree(workspace.folder / "thumbs")  # this also removes the record of finished thumbnails
    assert filling(workspace).fill() and looked == [(1, 15)]


def test_more_than_are_asked_for_together_are_all_filled_in(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.curation.thumbnails._AT_ONCE", 4)
    for number in (4, 5, 1):
        shas = filled(workspace, number, first=10 * number)
        shutil.rmtree(workspace.folder / "thumbs")
        assert filling(workspace).fill()
        assert set(shas) <= there(workspace)
        assert left(workspace) == 0


def test_a_damaged_image_stops_nothing_and_a_deleted_run_is_left_out(workspace: Workspace) -> None:
    deleted = filled(workspace, 2, first=50)
    workspace.runs.remove(workspace.runs.search()[0].id)
    shas = filled(workspace, 3)
    shutil.rmtree(workspace.folder / "thumbs")
    (workspace.folder / "images" / f"{shas[2]}.png").write_bytes(b"no picture")
    (workspace.folder / "images" / f"{shas[1]}.png").unlink()
    assert filling(workspace).fill()
    assert shas[0] in there(workspace) and not there(workspace) & {*shas[1:], *deleted}
    with pytest.raises(UserError, match="damaged"):
        workspace.thumbnails.webp(shas[2])


def test_a_disk_that_takes_nothing_ends_it_and_nothing_counts_as_done(workspace: Workspace) -> None:
    shas = filled(workspace, 3)
    shutil.rmtree(workspace.folder / "thumbs")
    (workspace.folder / "thumbs").write_text("somebody's file")
    with pytest.raises(OSError):
        filling(workspace).fill()
    (workspace.folder / "thumbs").unlink()
    assert filling(workspace).fill() and set(shas) <= there(workspace)


@pytest.mark.parametrize("held", [b"", b"\x00" * 40, b"x", b"1.5"])
def test_a_note_of_what_was_seen_that_cannot_be_read_means_nothing_was(workspace: Workspace, held: bytes) -> None:
    shas = filled(workspace, 3)
    file_of(workspace, shas[1]).unlink()
    assert left(workspace) == 3
    (workspace.folder / "thumbs" / "checked.txt").write_bytes(held)
    assert filling(workspace).fill() and shas[1] in there(workspace)


def test_the_studio_fills_them_in_by_itself_and_makes_way_for_a_job(
    studio: Studio, fillers: Callable[[], set[threading.Thread]]
) -> None:
    shas = filled(studio.workspace, 8)
    shutil.rmtree(studio.workspace.folder / "thumbs")
    begun, go_on = threading.Event(), threading.Event()

    def work(_handle: object) -> None:
        begun.set()
        assert go_on.wait(60)

    studio.jobs.submit("some run", (), work)
    assert begun.wait(60)
    assert not studio.thumbnails.fill(), "somebody waits for the job"
    assert not there(studio.workspace)
    go_on.set()
    until(studio.jobs.idle)
    studio.thumbnails.start()
    assert len(fillers()) == 1
    until(lambda: left(studio.workspace) == 0)
    assert set(shas) <= there(studio.workspace)
    studio.thumbnails.close()
    assert not fillers()


def test_it_goes_on_beside_what_no_person_waits_for(studio: Studio) -> None:
    shas = filled(studio.workspace, 4)
    shutil.rmtree(studio.workspace.folder / "thumbs")
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(60)

    studio.jobs.when_idle("looking at images", work)  # like a large import that takes hours
    assert begun.wait(60)
    assert studio.thumbnails.fill()
    assert set(shas) <= there(studio.workspace)
    go_on.set()


def test_it_rests_while_somebody_looks_at_the_gallery(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    shas = filled(studio.workspace, 4)
    shutil.rmtree(studio.workspace.folder / "thumbs")
    studio.gallery.page(View())
    rests = list[float]()

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        assert not there(studio.workspace), "nothing is made before"
        studio.thumbnails._rests_until = 0.0  # as if the rest were over
        return False

    monkeypatch.setattr(studio.thumbnails._closing, "wait", rest)
    assert studio.thumbnails.fill()
    assert len(rests) == 1 and set(shas) <= there(studio.workspace)


def test_closing_stops_it_between_two_thumbnails(
    workspace: Workspace, fillers: Callable[[], set[threading.Thread]]
) -> None:
    shas = filled(workspace, 8)
    shutil.rmtree(workspace.folder / "thumbs")
    asked = iter(range(10**9))

    def idle() -> bool:
        if next(asked) == 3:
            made.close()
        return True

    made = ThumbnailFill(workspace.thumbnails, workspace.saved, idle)
    assert not made.fill()
    assert {sha for sha in shas if sha in there(workspace)} == set(shas[4:])
    made.start()
    assert not fillers(), "closed is closed"


def test_backups_leave_them_out_and_a_restored_workspace_makes_them_again(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "before") as before:
        shas = filled(before, 3)
        wholes = {sha: file_of(before, sha).read_bytes() for sha in shas}
    backup(tmp_path / "before", tmp_path / "backup.zip")
    assert b".webp" not in (tmp_path / "backup.zip").read_bytes()
    restore(tmp_path / "backup.zip", tmp_path / "after")
    with workspace_in(tmp_path / "after") as after:
        assert not (after.folder / "thumbs").exists()
        assert after.thumbnails.webp(shas[0]) == wholes[shas[0]]
        assert filling(after).fill() and set(shas) <= there(after)
