"""Images and votes from elsewhere are imported into a study. A whole study is exported as one zip and restored."""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import sqlite_utils
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cli.studies import main
from core.csv_tables import csv_text
from core.errors import UserError
from core.panel import Panel, PersonQuestion
from core.studies import ControlPolicy, Eligibility, NewItem, Question, Rules
from services.changes import Changes, Revisions
from services.commands import Commands
from services.studies import imports
from services.studies.exports import EXPORTS, ZIP, opened, parquet, restore_study, zipped
from services.studies.imports import files_of, import_items, import_votes, read_items
from services.studies.services import StudyServices
from services.studies.templates import TEMPLATES
from storage.studies.rows import log_change
from storage.workspace import Workspace
from study.results import analyse
from study.tables import ANSWER_COLUMNS, RESULT_COLUMNS
from tests.support.workspaces import workspace_in
from ui.study.routes import add_study_routes

pytestmark = pytest.mark.slow

OPEN = Eligibility(min_approval=0.0, min_finished=0)
BIRD = replace(TEMPLATES["classification"].rules(), eligibility=OPEN, votes=3, consensus=2)
LANCE = replace(TEMPLATES["lance"].rules(), eligibility=OPEN, votes=2, consensus=2)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def client_of(workspace: Workspace) -> TestClient:
    app = FastAPI()
    commands = Commands()
    services = StudyServices(workspace, commands, lambda run, model: None)
    add_study_routes(app, commands, services, Revisions(workspace.saved, Changes()))
    return TestClient(app)


def picture(number: int, kind: str = "PNG") -> bytes:
    file, text = io.BytesIO(), PngInfo()
    text.add_text("parameters", "secret prompt")
    image = Image.effect_noise((40, 30), 40 + number).convert("RGB")
    image.save(file, kind, **({"pnginfo": text} if kind == "PNG" else {}))
    return file.getvalue()


def zip_of(files: Mapping[str, bytes | str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


class Brought(NamedTuple):
    items: tuple[NewItem, ...]
    notes: tuple[str, ...]


def brought(workspace: Workspace, files: Mapping[str, bytes | str], rules: Rules = BIRD) -> Brought:
    return Brought(*read_items(workspace, rules, files_of("images.zip", zip_of(files))))


# Images


def test_a_zip_of_images_becomes_items_without_their_metadata(workspace: Workspace) -> None:
    found = brought(
        workspace, {"a.png": picture(1), "b.jpg": picture(2, "JPEG"), "__MACOSX/._a.png": b"x", "n.txt": "x"}
    )
    assert [item.origin["file"] for item in found.items] == ["a.png", "b.jpg"]
    assert {item.label for item in found.items} == {""}
    stored = workspace.images.path(found.items[0].image_sha).read_bytes()
    assert b"secret" not in stored


def test_folders_are_labels_if_there_are_several(workspace: Workspace) -> None:
    found = brought(workspace, {"set/bird/1.png": picture(1), "set/owl/1.png": picture(2)})
    assert [(item.label, item.origin["file"]) for item in found.items] == [
        ("bird", "set/bird/1.png"),
        ("owl", "set/owl/1.png"),
    ]
    assert found.notes == ("The label is the name of the folder: bird, owl.",)
    assert brought(workspace, {"mine/1.png": picture(1)}).items[0].label == ""


def test_names_in_lists_and_archives_are_the_same_in_both_forms_of_unicode(workspace: Workspace) -> None:
    """macOS writes é as two characters, other systems as one."""
    whole, parted = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    for file, named in ((whole, parted), (parted, whole)):
        listed = f"image,source,label\n{named}.png,{named}/s.png,{parted}\n"
        for folder in ("", f"{file}s/"):
            files: dict[str, bytes | str] = {f"{folder}l.csv": listed}
            files |= {f"{folder}{file}.png": picture(1), f"{folder}{file}/s.png": picture(2)}
            (found,) = brought(workspace, files).items
            assert found.label == whole and found.source_sha
    folders = {f"{parted}/1.png": picture(1), "dog/2.png": picture(2)}
    assert [item.label for item in brought(workspace, folders).items] == [whole, "dog"]


def test_a_zip_that_macos_packed_keeps_its_names(workspace: Workspace) -> None:
    """The zip's names are in UTF-8, but the flag that says so is not set."""
    data = zip_of({"caf\u00e9/a.png": picture(1), "dog/b.png": picture(2)})
    for start, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for at in [found.start() for found in re.finditer(re.escape(start), data)]:
            flags = int.from_bytes(data[at + place : at + place + 2], "little") & ~0x800
            data = data[: at + place] + flags.to_bytes(2, "little") + data[at + place + 2 :]
    found = Brought(*read_items(workspace, BIRD, files_of("images.zip", data)))
    assert [item.label for item in found.items] == ["café", "dog"]
    assert found.items[0].origin["file"] == "café/a.png"


def test_a_draft_that_images_come_into_has_its_control_and_quiz_items(workspace: Workspace) -> None:
    rules = replace(BIRD, controls=ControlPolicy(share=0.2), eligibility=replace(OPEN, quiz=2))
    study_id = workspace.studies.create("Birds", rules)
    rows = "".join(f"{n}.png,s{n}.png,{'bird' if n % 2 else 'owl'}\n" for n in range(4))
    files: dict[str, bytes | str] = {"items.csv": f"image,source,label\n{rows}"}
    files |= {f"{n}.png": picture(n) for n in range(4)} | {f"s{n}.png": picture(9 + n) for n in range(4)}
    assert import_items(workspace, study_id, files_of("a.zip", zip_of(files))) == (4, "4 images added.")
    held = workspace.studies.get(study_id)
    assert (held.items, held.controls, held.quiz) == (4, 1, 2)


LIST = """image,source,label,classes,edit_types,kind,group,model,model_right,expected.valid,caption,counterfactual,mood
one.png,s/source.png,bird,"bird; sky",weather,item,random,resnet,no,,A bird.,A bird in snow.,x
two.png,,owl,,,control,,,,Yes,,,x
"""


def test_a_list_says_what_the_images_are(workspace: Workspace) -> None:
    files: dict[str, bytes | str] = {
        "p/list.csv": LIST,
        "p/one.png": picture(1),
        "p/two.png": picture(2),
        "p/s/source.png": picture(3),
    }
    found = brought(workspace, {**files, "p/three.png": picture(4)})
    first, second = found.items
    assert (first.label, first.classes, first.edit_types, first.group) == (
        "bird",
        ("bird", "sky"),
        ("weather",),
        "random",
    )
    assert (first.model, first.model_right, first.counterfactual) == ("resnet", False, "A bird in snow.")
    assert first.source_sha is not None and first.source_sha != first.image_sha
    assert (second.kind, second.expected, second.source_sha) == ("control", {"valid": "yes"}, None)
    assert found.notes == ("Columns that are not used: mood.", "1 image is not in the list, and left out.")


def test_a_list_alone_names_images_of_the_workspace(workspace: Workspace) -> None:
    sha = workspace.images.add(Image.effect_noise((40, 30), 40).convert("RGB"))
    found = Brought(*read_items(workspace, BIRD, files_of("list.csv", f"image,label\n{sha},bird\n".encode())))
    assert [(item.image_sha, item.label) for item in found.items] == [(sha, "bird")]
    assert found.notes == (), "the list itself is no image"


def test_a_column_that_no_question_is_called_is_named_though_no_vote_comes_in(workspace: Workspace) -> None:
    study_id = workspace.studies.create("Birds", BIRD)
    import_items(workspace, study_id, files_of("a.zip", zip_of({"bird_1.png": picture(1)})))
    workspace.studies.start(study_id)
    time = "Tue Nov 18 13:06:51 PST 2025"
    table = f"WorkerId,SubmitTime,Input.image,Answer.is_valid\nW1,{time},bird_1.png,yes\n"
    with pytest.raises(
        UserError, match=r"belongs to “Answer\.is_valid”: its question is “valid”\. Row 1: Please answer"
    ):
        import_votes(workspace, study_id, table.encode())
    assert not workspace.studies.data(study_id).votes


def test_a_single_image_is_an_item(workspace: Workspace) -> None:
    assert len(read_items(workspace, BIRD, files_of("one.webp", picture(1, "WEBP")))[0]) == 1


@pytest.mark.parametrize(
    "files, said",
    [
        ({"readme.txt": "x"}, "There is no image among the files"),
        ({"a.png": b"no picture"}, "“a.png”: The file is not an image"),
        ({"l.csv": "name\nx\n"}, "no column “image”"),
        ({"l.csv": "image\n"}, "The list has no images"),
        ({"l.csv": "image\nx.png\n"}, "Row 1 of the list names “x.png”"),
        ({"l.csv": "image\n../../etc/passwd\n"}, "which is not among the images"),
        ({"l.csv": f"image\n{'0' * 64}\n"}, "is missing from"),
        ({"l.csv": "image,kind\nx.png,spy\n"}, "“spy” is no kind"),
        ({"l.csv": "image,kind\nx.png,control\n"}, "needs a right answer to a question that it gets"),
        ({"l.csv": "image,expected.valid\nx.png,perhaps\n"}, "“perhaps” is no answer to the question valid"),
        ({"l.csv": "image,model_right\nx.png,2\n"}, "has to be true, false or empty"),
        ({"l.csv": f"image,label\nx.png,{'a' * 201}\n"}, "its label has 201 characters"),
        ({"a.csv": "image\n", "b.csv": "image\n"}, "several CSV files"),
    ],
)
def test_what_cannot_be_items_is_refused_in_one_sentence(
    workspace: Workspace, files: Mapping[str, bytes | str], said: str
) -> None:
    study_id = workspace.studies.create("Birds", BIRD)
    with pytest.raises(UserError) as refused:
        import_items(workspace, study_id, files_of("images.zip", zip_of(files)))
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert workspace.studies.items(study_id) == ()


@pytest.mark.parametrize(
    "origin",
    ['{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": ' + "[" * 900 + "]" * 900 + "}"],
    ids=["nan", "infinity", "half a letter", "half a letter as a name", "deep"],
)
def test_an_origin_that_no_export_could_hold_is_kept_as_a_note(workspace: Workspace, origin: str) -> None:
    study_id = workspace.studies.create("Birds", BIRD)
    rows = csv_text([{"image": "a.png", "origin": origin}], ["image", "origin"])
    files = files_of("images.zip", zip_of({"items.csv": rows, "a.png": picture(1)}))
    assert import_items(workspace, study_id, files)[0] == 1
    (item,) = workspace.studies.items(study_id)
    assert item.origin["earlier"] == origin
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zipped(workspace, study_id)[1])))
    items = pd.read_csv(io.BytesIO(archive.read("items.csv")), keep_default_na=False)
    assert json.loads(items.iloc[0]["origin"])["earlier"] == origin


def test_a_study_that_runs_takes_no_image_that_would_be_asked_nothing(workspace: Workspace) -> None:
    rules = replace(TEMPLATES["preservation"].rules(), eligibility=OPEN)
    study_id = workspace.studies.create("Roads", rules)
    files: dict[str, bytes | str] = {
        "l.csv": "image,classes\na.png,road\nb.png,sky\n",
        "a.png": picture(1),
        "b.png": picture(2),
    }
    assert import_items(workspace, study_id, files_of("a.zip", zip_of(files)))[0] == 2, "a draft can still be changed"
    workspace.studies.start(study_id)
    with pytest.raises(UserError, match=r"^1 image would be asked nothing, .*: leave such images out"):
        import_items(workspace, study_id, files_of("a.zip", zip_of(files)))
    files["l.csv"] = "image,classes\na.png,road\nb.png,road; sky\n"
    import_items(workspace, study_id, files_of("a.zip", zip_of(files)))
    assert len(workspace.studies.items(study_id)) == 4


def test_a_zip_that_is_a_trap_is_refused_before_it_is_unpacked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MOST_FILES", 3)
    with pytest.raises(UserError, match="4 files"):
        brought(workspace, {f"{n}.png": b"" for n in range(4)})
    monkeypatch.setattr(imports, "MOST_UNPACKED", 1000)
    with pytest.raises(UserError, match="unpacks to more"):
        brought(workspace, {"a.png": bytes(2000)})
    with pytest.raises(UserError, match="damaged"):
        files_of("a.zip", zip_of({"a.png": picture(1)})[:-30])


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_is_damaged_inside_is_refused(workspace: Workspace, kind: int) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr("a.png", picture(1) * 20)
    data = bytearray(file.getvalue())
    for place in range(50, 70):
        data[place] ^= 0xFF
    with pytest.raises(UserError, match=r"“a\.png” in the zip is damaged"):
        read_items(workspace, BIRD, files_of("a.zip", bytes(data)))


def test_a_zip_with_a_name_that_is_no_text_is_refused() -> None:
    data = zip_of({"é.png": picture(1)}).replace("é".encode(), b"\xff\xfe")
    with pytest.raises(UserError, match="The zip is damaged"):
        files_of("a.zip", data)


# The whole study


def voted(
    workspace: Workspace, rules: Rules, answers: Mapping[str, Mapping[str, str]], items: int = 4, out: str = ""
) -> str:
    """Create a study in which each worker gave these answers to all items and a control item. Then exclude worker
    `out`.
    """
    studies = workspace.studies
    study_id = studies.create("Bïrds/“1”", replace(rules, controls=ControlPolicy(0.2, 1, 0.5)))
    source = workspace.images.add(Image.effect_noise((40, 30), 20).convert("RGB"))
    made = [
        NewItem(
            workspace.images.add(Image.effect_noise((40, 30), 40 + n).convert("RGB")),
            source,
            label="bird",
            group="random" if n % 2 else "misclassified",
            origin={"prompt": "a bird", "seed": n},
            caption="=A bird.",
            counterfactual="=A red bird.",
        )
        for n in range(items)
    ]
    first = rules.questions[-3 if len(rules.questions) > 3 else 0].id
    studies.add_items(study_id, [*made, NewItem(source, kind="control", label="bird", expected={first: "yes"})])
    studies.start(study_id)
    for name, given in answers.items():
        worker, _ = studies.workers.add()
        studies.workers.enrol(study_id, worker.id)
        studies.workers.consent(study_id, worker.id)
        kinds = ["item"] * items + ["control"]
        for kind in kinds:
            assignment = studies.assignments.claim(study_id, worker.id, kind)  # type: ignore[arg-type]
            assert assignment is not None
            studies.assignments.submit(
                assignment.public,
                worker.id,
                given,
                f"=said by {name}",
                2.5,
                "key",
                None if kind == "item" else given[first] == "yes",
            )
        if name == out:
            studies.workers.exclude(study_id, worker.id, "asked to be left out", "person")
    return study_id


YES = {"valid": "yes"}
NO = {"valid": "no"}


def test_the_zip_holds_everything_and_its_manifest_says_so(workspace: Workspace) -> None:
    study_id = voted(workspace, BIRD, {"a": YES, "b": YES, "c": NO})
    workspace.studies.set_link(study_id, True)
    name, parts = zipped(workspace, study_id)
    data = b"".join(parts)
    assert name == "Bïrds-1.zip"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1] == "manifest.json"
        manifest = json.loads(archive.read("manifest.json"))
        assert {file["name"] for file in manifest["files"]} == set(archive.namelist()) - {"manifest.json"}
        for file in manifest["files"]:
            held = archive.read(file["name"])
            assert (len(held), hashlib.sha256(held).hexdigest()) == (file["bytes"], file["sha256"])
        assert sum(name.startswith("images/") for name in archive.namelist()) == 5
        assert sum(name.startswith("sources/") for name in archive.namelist()) == 1
        study = json.loads(archive.read("study.json"))
        assert study["rules_history"][0]["rules"]["consensus"] == 2
        items = pd.read_csv(io.BytesIO(archive.read("items.csv")), keep_default_na=False)
        assert json.loads(items.iloc[0]["origin"])["prompt"] == "a bird"
        assert "3 workers" in archive.read("methods.txt").decode()
        whole = b"".join(archive.read(name) for name in archive.namelist())
    assert workspace.studies.get(study_id).link.encode() not in whole


def test_a_zip_names_the_pictures_that_are_lost_and_holds_all_else(workspace: Workspace, tmp_path: Path) -> None:
    study_id = voted(workspace, BIRD, {"a": YES, "b": YES})
    first, second, *_ = workspace.studies.items(study_id)
    pictures = {f"images/{item.public}.png": workspace.images.load(item.image_sha) for item in (first, second)}
    workspace.images.path(first.image_sha).unlink()
    workspace.images.path(second.image_sha).write_bytes(b"other bytes")
    data = b"".join(zipped(workspace, study_id)[1])
    archive = zipfile.ZipFile(io.BytesIO(data))
    lost = {f"images/{item.public}.png": item.image_sha for item in (first, second)}
    assert lost.keys().isdisjoint(archive.namelist())
    assert sum(name.startswith("images/") for name in archive.namelist()) == 3
    assert json.loads(archive.read("manifest.json"))["left_out"] == lost
    told = pd.read_csv(io.BytesIO(archive.read("left_out.csv")))
    assert set(told["file"]) == set(lost) and ["missing" in told["why"][0], "damaged" in told["why"][1]] == [True, True]
    assert len(pd.read_csv(io.BytesIO(archive.read("answers.csv")))) == 10
    with workspace_in(tmp_path / "other") as other:
        for file in lost:
            with pytest.raises(UserError, match=f"lacks the picture “{re.escape(file)}”: its file was lost"):
                restore_study(other, data)
            assert other.images.add(pictures[file]) == lost[file]
        restore_study(other, data)
        assert len(other.studies.items(study_id)) == 5


def test_a_zip_comes_back_as_the_same_study(workspace: Workspace, tmp_path: Path) -> None:
    """Images with controls and provenance come from the zip, votes from Turk's file. The figures are the same."""
    study_id = voted(workspace, BIRD, {"a": YES, "b": NO, "c": NO, "d": YES}, out="b")
    worker = workspace.studies.workers.of_study(study_id)[1].id
    workspace.studies.workers.decide(study_id, workspace.studies.workers.of_study(study_id)[0].id, "approved", "")
    data = b"".join(zipped(workspace, study_id)[1])
    turk = zipfile.ZipFile(io.BytesIO(data)).read("turk.csv")
    with workspace_in(tmp_path / "other") as other:
        rules = replace(workspace.studies.get(study_id).rules, version=0)
        again = other.studies.create("Again", rules)
        count, said = import_items(other, again, files_of("study.zip", data))
        assert (count, said) == (5, "5 images added.")
        other.studies.start(again)
        count, said = import_votes(other, again, turk)
        assert (count, said) == (20, "20 votes of 4 workers brought in.")
        was, now = analyse(workspace.studies.data(study_id)), analyse(other.studies.data(again))
        assert now.images == was.images
        assert now.images_before == was.images_before
        assert now.image_slices == was.image_slices
        assert now.agreement == was.agreement
        assert now.controls == was.controls
        assert now.votes_excluded == was.votes_excluded == 4
        assert sorted(remark.text for remark in now.comments) == sorted(remark.text for remark in was.comments)
        (excluded,) = other.studies.data(again).exclusions
        assert (excluded.worker, excluded.reason, excluded.by) == (
            f"imported-{worker}",
            "asked to be left out",
            "person",
        )
        first = other.studies.workers.get(f"imported-{workspace.studies.workers.of_study(study_id)[0].id}")
        assert (first.approved, first.pending) == (5, 0)
        origins = [item.origin for item in other.studies.items(again)]
        assert origins[0]["earlier"]["prompt"] == "a bird"
        assert other.studies.items(again)[0].caption == "=A bird."
        with pytest.raises(UserError, match="has a vote on"):
            import_votes(other, again, turk)


def test_a_zip_is_restored_as_the_study_it_was(workspace: Workspace, tmp_path: Path) -> None:
    """Rules, items, changed votes, exclusions and decisions: every table is the same in another workspace."""
    studies, study_id = workspace.studies, voted(workspace, BIRD, {"a": YES, "b": NO, "c": NO, "d": YES}, out="b")
    workers = studies.workers.of_study(study_id)
    studies.workers.decide(study_id, workers[0].id, "rejected", "asleep")
    studies.set_votes(study_id, 5, 3)
    late, _ = studies.workers.add()
    studies.workers.enrol(study_id, late.id)
    for key, answer in (("one", "yes"), ("two", "no")):
        given = studies.assignments.claim(study_id, late.id, "item")
        assert given is not None
        studies.assignments.submit(given.public, late.id, {"valid": answer}, "=hm", 2.5, key)
        studies.assignments.undo(study_id, late.id)
    studies.workers.readmit(study_id, workers[1].id, "after all")
    studies.adjudicate(study_id, studies.items(study_id)[0].id, "valid", "yes", "I looked")
    panel = Panel("PID", "C1", "https://x.example/?p={participant}", (PersonQuestion("How old?", ("young", "old")),))
    studies.panels.set(study_id, panel)
    data = b"".join(zipped(workspace, study_id)[1])
    with pytest.raises(UserError, match="has this study already, as “Bïrds"):
        restore_study(workspace, data)

    def told(of: Workspace) -> dict[str, Any]:
        held = opened(of, study_id)
        tables = {name: make(held).decode() for name, (_, make) in EXPORTS.items() if name.endswith(".csv")}
        del tables["people.csv"]  # no exported file holds people's own data
        for name in ("answers.csv", "turk.csv"):  # every workspace numbers its assignments from 1
            frame = pd.read_csv(io.StringIO(tables[name]), keep_default_na=False)
            tables[name] = frame.drop(columns=[c for c in ("assignment", "AssignmentId") if c in frame]).to_csv()
        log = [(entry.created, entry.event, entry.detail, entry.worker) for entry in of.studies.log(study_id)]
        known = of.studies.workers.of_study(study_id)
        enrolled = [of.studies.workers.enrolment(study_id, worker.id) for worker in known]
        history = of.studies.rules_history(study_id)
        return {**tables, "history": history, "log": log, "workers": known, "enrolled": enrolled}

    was = told(workspace)
    with workspace_in(tmp_path / "other") as other:
        again, said = restore_study(other, data)
        assert again == study_id and "It is paused" in said and "people of a panel are taken for new ones" in said
        assert other.studies.panels.get(again) == Panel("PID"), "its link still takes only whom the panel names"
        now = told(other)
        assert now["log"].pop(0)[1] == "restored"
        for name, value in was.items():
            assert now[name] == value, name
        # The restored study can go on. An undone answer comes first.
        other.studies.resume(again)
        given = other.studies.assignments.claim(again, late.id, "item")
        assert given is not None and given.answers == {"valid": "no"}
        assert other.studies.assignments.submit(given.public, late.id, YES, "", 1.0, "three") == "saved"


def test_how_a_link_let_people_in_does_not_hang_on_the_words_of_the_log(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_other_words(db: sqlite_utils.Database, event: str, detail: str, study_id: str) -> None:
        log_change(db, event, f"in other words: {detail}", study_id)

    monkeypatch.setattr("storage.studies.panels.log_change", in_other_words)
    studies, study_id = workspace.studies, voted(workspace, BIRD, {"a": YES}, items=2)
    studies.panels.set(study_id, Panel(code="C1"))
    studies.set_link(study_id, True)
    late, _ = studies.workers.add()
    studies.workers.enrol(study_id, late.id)
    studies.panels.set(study_id, Panel("PID", code="C1"))
    studies.panels.set(study_id, Panel("PID", code="C2"))
    data = studies.data(study_id)
    assert data.linked and data.panelled, "first it took anybody, then only people whom a panel named"
    file = b"".join(zipped(workspace, study_id)[1])
    with workspace_in(tmp_path / "other") as other:
        restore_study(other, file)
        data = other.studies.data(study_id)
        assert data.linked and data.panelled
        assert other.studies.panels.get(study_id) == Panel("PID")


def test_a_worker_of_a_restored_study_is_never_taken_for_somebody_else(workspace: Workspace, tmp_path: Path) -> None:
    study_id = voted(workspace, BIRD, {"a": YES}, items=2)
    (worker,) = workspace.studies.workers.of_study(study_id)
    data = b"".join(zipped(workspace, study_id)[1])
    with workspace_in(tmp_path / "other") as other:
        other._database.write(lambda db: db.table("workers").insert({"id": worker.id, "created": "2020-01-01"}))
        restore_study(other, data)
        (restored,) = other.studies.workers.of_study(study_id)
        assert restored.id == f"{worker.id}-2" and other.studies.workers.enrolled(worker.id) == ()


def test_a_zip_that_was_changed_is_not_restored(workspace: Workspace, tmp_path: Path) -> None:
    study_id = voted(workspace, BIRD, {"a": YES}, items=2)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zipped(workspace, study_id)[1])))
    files: dict[str, bytes] = {name: archive.read(name) for name in archive.namelist()}
    manifest, records = json.loads(files["manifest.json"]), json.loads(files["records.json"])

    def changed(change: Any) -> bytes:
        """Return a changed zip with correct checksums, as an attacker who knows the format would write it."""
        new = json.loads(json.dumps(records))
        change(new)
        text = json.dumps(new).encode()
        sums = [entry for entry in manifest["files"] if entry["name"] != "records.json"]
        sums.append({"name": "records.json", "sha256": hashlib.sha256(text).hexdigest()})
        listed = json.dumps({**manifest, "files": sums}).encode()
        return zip_of({**files, "records.json": text, "manifest.json": listed})

    together = "contradict each other"
    wrong: list[tuple[bytes, str]] = [
        (zip_of({name: data for name, data in files.items() if name != "records.json"}), "no records.json"),
        (zip_of({**files, "records.json": files["records.json"] + b" "}), "is not as it was exported"),
        (changed(lambda held: held["votes"][0].update(answers="[1]")), together),
        (changed(lambda held: held["votes"][0].update(assignment=99999)), together),
        (changed(lambda held: held["items"][0].update(image="0" * 64)), together),
        (changed(lambda held: held["items"][0].update(content='{"label": {"a": 1}}')), together),
        (changed(lambda held: held["workers"][0].update(id="<script>")), together),
        (changed(lambda held: held["study"].update(rules="{}")), together),
        (changed(lambda held: held["study"].update(id="../../x")), together),
        (changed(lambda held: held["enrolments"][0].update(created="yesterday")), together),
        (changed(lambda held: held.pop("log")), together),
        (changed(lambda held: held["panels"].append({"settings": "{}", "created": "now"})), together),
        (
            changed(
                lambda held: held["panels"].append(
                    {"settings": '{"address": "javascript:1"}', "created": held["study"]["created"]}
                )
            ),
            together,
        ),
    ]
    with workspace_in(tmp_path / "other") as other:
        for data, said in wrong:
            with pytest.raises(UserError, match=said):
                restore_study(other, data)
        assert other.studies.all() == ()
        reply = client_of(other).post("/study/restored", content=changed(lambda held: None), headers={"x-studio": "1"})
        assert reply.status_code == 200 and reply.json()["go"] == f"/study/{study_id}/"
        assert other.studies.get(study_id).votes == 2


def test_answers_that_look_like_formulas_come_back(workspace: Workspace) -> None:
    question = Question("seen", "Which?", "choice", options=("-none", "=some"), valid=("=some",))
    rules = replace(BIRD, questions=(question,))
    study_id = workspace.studies.create("Birds", rules)
    sha = workspace.images.add(Image.effect_noise((40, 30), 40).convert("RGB"))
    expected = {"seen": "-none"}
    workspace.studies.add_items(study_id, [NewItem(sha), NewItem(sha, kind="control", expected=expected)])
    data = b"".join(zipped(workspace, study_id)[1])
    again = workspace.studies.create("Again", rules)
    import_items(workspace, again, files_of("study.zip", data))
    assert [item.expected for item in workspace.studies.items(again)] == [{}, expected]


def test_a_row_that_is_no_vote_stops_all_unless_told_otherwise(workspace: Workspace) -> None:
    study_id = voted(workspace, BIRD, {})
    item = workspace.studies.items(study_id)[0].public
    head = "HITId,WorkerId,SubmitTime,Answer.valid\n"
    file = f"{head}{item},A,2026-01-02 10:00,yes\n{item},B,2026-01-02 10:00,perhaps\n".encode()
    with pytest.raises(UserError, match=r"Nothing was imported\. Row 2: Please choose"):
        import_votes(workspace, study_id, file)
    assert workspace.studies.data(study_id).votes == ()
    count, said = import_votes(workspace, study_id, file, even_so=True)
    assert count == 1 and "Row 2" in said


def test_halves_of_letters_in_a_file_of_votes_spoil_no_export(workspace: Workspace) -> None:
    rules = replace(BIRD, questions=(*BIRD.questions, Question("why", "Why?", "text", required=False)))
    study_id = voted(workspace, rules, {})
    item = workspace.studies.items(study_id)[0].public
    answers = '[{"valid": "yes", "why": "a beak \\ud83d"}]'
    row = {"HITId": item, "WorkerId": "A", "SubmitTime": "2026-01-02 10:00", "Answer.taskAnswers": answers}
    assert import_votes(workspace, study_id, csv_text([row], row).encode())[0] == 1
    (vote,) = workspace.studies.data(study_id).votes
    assert vote.answers == {"valid": "yes", "why": "a beak ?"}
    for name, (_, make) in EXPORTS.items():
        assert make(opened(workspace, study_id)), name


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_every_table_of_every_template_is_served(workspace: Workspace, name: str) -> None:
    given = {"realism": "4", "edit-success": "5", "fidelity": "3", "label-consistency": "yes", "ethical-concern": "no"}
    for rules, answers in ((BIRD, YES), (LANCE, given)):
        study_id = voted(workspace, rules, {"a": answers, "b": answers}, items=2)
        reply = client_of(workspace).get(f"/study/{study_id}/export/{name}")
        assert reply.status_code == 200
        assert reply.headers["content-disposition"].endswith(f"B%C3%AFrds-1-{name}")
        if name.endswith(".csv"):
            assert len(pd.read_csv(io.BytesIO(reply.content))) > 0
        elif name.endswith(".json"):
            json.loads(reply.content, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_parquet_has_types_also_without_a_row(workspace: Workspace) -> None:
    import pyarrow.parquet

    study_id = voted(workspace, BIRD, {"a": YES})
    file = client_of(workspace).get(f"/study/{study_id}/export/outcomes.parquet").content
    table = pyarrow.parquet.read_table(io.BytesIO(file))
    assert table.column_names == list(RESULT_COLUMNS)
    assert str(table.schema.field("votes").type) == "int64"
    assert table.num_rows == 4
    empty = pyarrow.parquet.read_table(io.BytesIO(parquet([], ANSWER_COLUMNS)))
    assert str(empty.schema.field("submitted").type) == "timestamp[us, tz=UTC]"
    assert empty.num_rows == 0


def test_the_routes_refuse_what_is_not_there_or_not_from_the_page(workspace: Workspace) -> None:
    client = client_of(workspace)
    study_id = workspace.studies.create("Birds", BIRD)
    assert client.get("/study/nothing/export/votes.csv").status_code == 404
    assert client.get("/study/nothing/export/study.zip").status_code == 404
    assert client.get(f"/study/{study_id}/export/secret.csv").status_code == 404
    assert client.get(f"/study/{study_id}/export/{ZIP}").status_code == 200  # a draft can be exported, without votes
    place = f"/study/files/{study_id}"
    assert client.post(place, content=picture(1)).status_code == 403
    headers = {"x-studio": "1"}
    assert client.post(place, content=b"", headers=headers).json() == {
        "error": "The file is empty: choose another one."
    }
    reply = client.post(f"{place}?name=one.png", content=picture(1), headers=headers)
    assert reply.json() == {"count": 1, "said": "1 image added."}
    refused = client.post(f"/study/votes/{study_id}", content=b"a,b\n", headers=headers)
    assert refused.status_code == 400 and "no column WorkerId" in refused.json()["error"]


# Without a browser


def test_a_folder_comes_in_and_a_study_goes_out_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--workspace", str(tmp_path / "workspace")]
    with workspace_in(tmp_path / "workspace") as workspace:
        study_id = workspace.studies.create("Birds", BIRD)
    folder = tmp_path / "made"
    (folder / "bird").mkdir(parents=True)
    for number in (1, 2):
        (folder / "bird" / f"{number}.png").write_bytes(picture(number))
    (folder / "list.csv").write_text("image,label\nbird/1.png,bird\n")
    (folder / "other.csv").write_text("x\n")
    assert main([*place, "images", study_id, str(folder / "list.csv")]) == 0
    assert main([*place, "images", study_id, str(folder)]) == 2
    assert main([*place, "export", study_id, str(tmp_path / "out.zip")]) == 0
    assert main([*place, "export", study_id, str(tmp_path / "out.zip")]) == 2
    assert main([*place, "list"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 image added. 1 image is not in the list, and left out.\n")
    assert f"{study_id}  draft     Birds" in said.out
    assert said.err.splitlines() == [
        "There are several CSV files. Rename the CSV file with the list of images to items.csv.",
        f"{tmp_path / 'out.zip'} exists already: choose another file name.",
    ]
    assert zipfile.ZipFile(tmp_path / "out.zip").testzip() is None
    assert main(["--workspace", str(tmp_path), "list"]) == 2
