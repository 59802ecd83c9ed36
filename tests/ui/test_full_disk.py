"""A full, read-only or damaged disk: everyone gets a message, only the lead sees paths, and work continues later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

import app
from cli.storage import main
from core.errors import DiskTrouble
from services.studio import Studio
from tests.support.annotating import Annotator, running
from tests.support.disks import SmallDisk, faulty_disk, small_disk
from tests.support.scripted import ScriptedModels
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow
PASSWORD = "a password of the lead"
HERE = "http://127.0.0.1"


@dataclass(frozen=True)
class InUse:
    """Studio in use: the lead has signed in, and an annotator holds an item."""

    studio: Studio
    lead: TestClient
    annotator: Annotator
    stranger: TestClient
    study: str
    link: str

    def sign_in(self) -> tuple[int, str]:
        given = {"password": PASSWORD, "next": "/"}
        headers = {"Origin": HERE, "Accept": "text/html"}
        reply = self.stranger.post("/sign-in", data=given, headers=headers, follow_redirects=False)
        return reply.status_code, reply.text


@contextmanager
def in_use(folder: Path) -> Iterator[InUse]:
    """Start a studio on the workspace `w` in the folder."""
    with ExitStack() as stack:
        with workspace_in(folder / "w") as workspace:
            study, link = running(workspace, 5)
        application, studio = app.build(app.ServerSettings("demo", folder / "w", password=PASSWORD), ScriptedModels())
        stack.callback(studio.workspace.close)
        stack.callback(studio.close)
        browsers = [stack.enter_context(TestClient(application, HERE, raise_server_exceptions=False)) for _ in range(3)]
        found = InUse(studio, browsers[0], Annotator(browsers[1]).join(link), browsers[2], study, link)
        headers = {"Origin": HERE}
        signed = found.lead.post("/sign-in", data={"password": PASSWORD}, headers=headers, follow_redirects=False)
        assert signed.status_code == 303
        yield found


@dataclass(frozen=True)
class Full(InUse):
    """Studio whose disk can be filled."""

    disk: SmallDisk


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Full]:
    with small_disk(tmp_path / "disk") as disk, in_use(disk.folder) as found:
        yield Full(**vars(found), disk=disk)


def test_annotators_hear_that_it_is_not_them_and_go_on_once_there_is_room(full: Full) -> None:
    item = full.annotator.next()
    full.disk.fill()
    refused = [
        full.annotator.answer(item, status=503, key="0" * 16),
        full.annotator.post("next", {"study": full.study}, 503),
        Annotator(full.stranger).post("join", {"link": full.link}, 503),
        Annotator(full.stranger).post("sign-in", {"code": full.annotator.code}, 503),
    ]
    assert refused == [{"error": DiskTrouble.FOR_OTHERS}] * 4
    full.disk.make_room()
    assert full.annotator.answer(item, key="0" * 16)["saved"]
    assert Annotator(full.stranger).join(full.link).worker
    assert len(full.studio.workspace.studies.data(full.study).votes) == 1


def test_the_lead_can_look_is_told_and_signs_in_once_there_is_room(full: Full) -> None:
    full.disk.fill()
    for path in ("/study/", f"/study/{full.study}/", "/curate/", "/batches/", "/evaluate/", "/scripts"):
        assert full.lead.get(path).status_code == 200, path
    words = f"Nothing was saved: the disk of {full.disk.folder / 'w' / 'studio.db'} is full; make room and try again."
    sent = full.lead.post(f"/study/api/{full.study}/pause-study", json={}, headers={"Origin": HERE, "x-studio": "1"})
    assert (sent.status_code, sent.json()) == (400, {"error": words})
    status, page = full.sign_in()
    assert status == 503 and DiskTrouble.FOR_OTHERS in page and str(full.disk.folder) not in page
    left = full.lead.post("/sign-out", headers={"Origin": HERE, "Accept": "text/html"}, follow_redirects=False)
    assert left.status_code == 503 and DiskTrouble.FOR_OTHERS in left.text
    full.disk.make_room()
    assert full.sign_in()[0] == 303


def test_a_backup_onto_a_full_disk_blames_that_disk(
    full: Full, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with workspace_in(tmp_path / "roomy") as workspace:
        workspace.images.add(Image.effect_noise((64, 64), 30).convert("RGB"))
    full.disk.fill()
    assert main(["backup", str(tmp_path / "roomy"), str(full.disk.folder / "backup.zip")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"Nothing was written in {full.disk.folder}" in said, said
    assert not (full.disk.folder / "backup.zip").exists()
    assert main(["backup", str(full.disk.folder / "w"), str(tmp_path / "backup.zip")]) == 0, "a full one can be saved"


def test_a_disk_that_turns_read_only_is_told_and_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    with faulty_disk(tmp_path / "disk") as disk, in_use(disk.folder) as studio:
        assert studio.annotator.answer(studio.annotator.next(), key="0" * 16)["saved"]
        item = studio.annotator.next()
        disk.fail()
        refused = [
            studio.annotator.answer(item, status=503, key="1" * 16),
            studio.annotator.post("next", {"study": studio.study}, 503),
            Annotator(studio.stranger).post("join", {"link": studio.link}, 503),
        ]
        assert refused == [{"error": DiskTrouble.FOR_OTHERS}] * 3
        for path in PAGES:
            assert studio.lead.get(path).status_code == 200, path
        headers = {"Origin": HERE, "x-studio": "1"}
        sent = studio.lead.post(f"/study/api/{studio.study}/pause-study", json={}, headers=headers)
        said = f"The disk of {disk.folder / 'w' / 'studio.db'} failed (disk I/O error); check it and try again."
        assert (sent.status_code, sent.json()) == (400, {"error": said})
        with pytest.raises(DiskTrouble, match="Read-only file system: have a look at that disk"):
            studio.studio.workspace.images.add(Image.effect_noise((64, 64), 30).convert("RGB"))
        status, page = studio.sign_in()
        assert status == 503 and DiskTrouble.FOR_OTHERS in page and str(disk.folder) not in page
        assert len(studio.studio.workspace.studies.data(studio.study).votes) == 1, "what was saved can be read"


PAGES = ("/study/", "/curate/", "/batches/", "/evaluate/", "/scripts")
BROWSER = {"Accept": "text/html"}


def overwrite(database: Path) -> None:
    with open(database, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (database.stat().st_size - 4096))


def test_with_a_damaged_database_nobody_is_let_in_and_no_place_is_told(full: Full) -> None:
    overwrite(full.disk.folder / "w" / "studio.db")
    for path in PAGES:
        reply = full.lead.get(path, headers=BROWSER)
        assert (reply.status_code, reply.text) == (503, DiskTrouble.FOR_OTHERS), path
    told = Annotator(full.stranger).post("join", {"link": full.link}, 503)
    assert told == {"error": DiskTrouble.FOR_OTHERS}


def test_a_person_alone_at_a_machine_is_told_that_the_database_is_damaged(tmp_path: Path) -> None:
    workspace_in(tmp_path / "w")
    application, studio = app.build(app.ServerSettings("demo", tmp_path / "w"), ScriptedModels())
    try:
        overwrite(tmp_path / "w" / "studio.db")
        with TestClient(application, HERE, raise_server_exceptions=False) as browser:
            for path in PAGES:
                reply = browser.get(path, headers=BROWSER)
                assert reply.status_code == 503 and f"{tmp_path / 'w' / 'studio.db'} is damaged" in reply.text, path
    finally:
        studio.close()
        studio.workspace.close()
