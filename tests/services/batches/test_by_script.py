"""Plans by scripts: they can use only the folders given at the studio's start, wherever a plan or its links lead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from core.batches import Item
from core.errors import UserError
from pipeline.profiles.profile import PROFILES, load_profile
from services.batches import running, service
from services.batches.data_roots import DataRoots
from services.batches.plan_file import BatchPlan, plan_from_text
from services.batches.running import PLAN, PlanByScript
from services.studio import Studio
from tests.support.batch_cases import comes_to, pictures, plan_text, planned, work_here
from tests.support.called import answer, call, made_token, shown, told
from tests.support.explorer import RED, encoded
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.workspaces import workspace_in
from ui.scripts import long_requests as awaited
from ui.scripts.long_requests import Waiter
from ui.scripts.mcp import tool_of

SECRET = "a line that nobody may read"
CSV = "image,label\nbird/0.png,bird\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Folder with a data set that scripts may use. The folders beside it are forbidden."""
    allowed = tmp_path / "data"
    pictures(allowed / "birds")
    (allowed / "keys.txt").write_text("bird/1.png\n", encoding="utf-8")
    (allowed / "birds" / "list.csv").write_text(CSV, encoding="utf-8")
    (allowed / "birds" / "names.txt").write_text("bird\n", encoding="utf-8")
    pictures(tmp_path / "data-of-others")
    pictures(tmp_path / "secret")
    (tmp_path / "secret" / "keys.txt").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "secret" / "mine.toml").write_text((PROFILES / "demo.toml").read_text("utf-8"), encoding="utf-8")
    (allowed / "out").symlink_to(tmp_path / "secret")
    (allowed / "in").symlink_to(allowed / "birds")
    (allowed / "circle").symlink_to(allowed / "circle")
    (allowed / "birds" / "out.txt").symlink_to(tmp_path / "secret" / "keys.txt")
    return allowed


@pytest.fixture
def by_script(tmp_path: Path, data: Path) -> Iterator[Callable[[str], BatchPlan]]:
    """Function that sends a plan as a script to a studio that allows this folder, and returns the batch's plan."""
    with workspace_in(tmp_path / "workspace") as workspace:
        studio = Studio(load_profile("demo"), ScriptedModels(), workspace, [data])

        def send(text: str) -> BatchPlan:
            view = studio.batches.plan(PlanByScript(plan=text))
            done = studio.batches.planning.wait(view.id, 60)
            if done.state == "failed":
                raise UserError(done.error)
            return plan_from_text(workspace.batches.get(done.result).plan, PLAN)

        yield send
        assert len(studio.batches.all()) <= 1
        studio.close()


def test_a_plan_below_the_folder_is_taken_with_the_place_where_its_data_really_lie(
    by_script: Callable[[str], BatchPlan], data: Path
) -> None:
    more = f'[choose]\nkeys = "{data / "keys.txt"}"\n'
    plan = by_script(plan_text(data / "in", more=more))
    assert plan.data.root == str((data / "birds").resolve()) and plan.choose.keys == ("bird/1.png",)


@pytest.mark.parametrize("root", ["birds", "birds/list.csv"])
def test_a_table_is_read_with_the_files_beside_it(by_script: Callable[[str], BatchPlan], data: Path, root: str) -> None:
    text = plan_text(data / root).replace(
        'layout = "imagefolder"', 'layout = "csv"\noptions = { table = "list.csv", classes = "names.txt" }'
    )
    assert by_script(text).data.options == {"table": "list.csv", "classes": "names.txt"}


@pytest.mark.parametrize(
    "root",
    [
        "{data}/../secret",
        "{data}/out",
        "{data}/out/bird",
        "{data}-of-others",
        "{data}/circle",
        "{data}/..",
        "{data}/birds/../../secret/nothing-there",
        "/",
        "/etc/passwd",
        "/nothing-there",
        "{data}/birds\\u0000",
    ],
)
def test_data_elsewhere_are_refused_whether_they_are_there_or_not(
    by_script: Callable[[str], BatchPlan], data: Path, root: str
) -> None:
    with pytest.raises(UserError, match=r"^data\.root is .*: a plan by a script may only read below .*/data\. Plan it"):
        by_script(plan_text(Path("ROOT")).replace("ROOT", root.format(data=data)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('layout = "imagefolder"', 'layout = "imagefolder"\nsplit = "../../secret"', "data.split is"),
        ('"imagefolder"', '"csv"\noptions = { table = "../../secret/keys.txt" }', "data.options.table is"),
        ('"imagefolder"', '"csv"\noptions = { classes = "/etc/passwd" }', "data.options.classes is"),
        ('"imagefolder"', '"csv"\noptions = { classes = "..\\\\keys.txt" }', "data.options.classes is"),
        ('"imagefolder"', '"csv"\noptions = { classes = "out.txt" }', "data.options.classes is"),
        ('birds"\nlayout = "imagefolder"', 'birds/list.csv"\nlayout = "csv"\noptions = { classes = "out.txt" }',
         "data.options.classes is"),
        ('"imagefolder"', '"huggingface"\noptions = { config = "../../secret" }', "data.options.config is"),
        ("[edits]", '[choose]\nkeys = "{out}/keys.txt"\n[edits]', "choose.keys is"),
        ("[edits]", '[choose]\nkeys = "{secret}/keys.txt"\n[edits]', "choose.keys is"),
        ("[edits]", '[choose]\nkeys = "{secret}/none.txt"\n[edits]', "choose.keys is"),
        ('profile = "demo"', 'profile = "{secret}/mine.toml"', "make.profile is"),
        ('profile = "demo"', 'profile = "{birds}/mine.toml"', "make.profile is"),
        ('"generation.steps" = 3', '"under_test.file" = "{secret}/keys.txt"', "under_test.file in make.settings is"),
        ('settings = { "generation.steps" = 3', 'recipe = "aga"\nsettings = { "backgrounds.folder" = "{secret}"',
         "backgrounds.folder in make.settings is"),
        ('"generation.steps" = 3', '"under_test.address" = "http://10.0.0.1"', "under_test.address in"),
        ('"generation.steps" = 3', 'under_test = { file = "net.pt" }', "under_test.file in make.settings is"),
    ],
)  # fmt: skip
def test_no_other_place_in_a_plan_leads_elsewhere(
    by_script: Callable[[str], BatchPlan], data: Path, old: str, new: str, said: str
) -> None:
    text = plan_text(data / "birds")
    assert old in text
    places = {"{secret}": data.parent / "secret", "{out}": data / "out", "{birds}": data / "birds"}
    for name, place in places.items():
        new = new.replace(name, str(place))
    with pytest.raises(UserError) as refused:
        by_script(text.replace(old, new))
    assert str(refused.value).startswith(said) and "a plan by a script" in str(refused.value)
    assert refused.value.field == "plan" and SECRET not in str(refused.value)


def test_without_such_a_folder_no_script_plans_and_the_page_does(studio: Studio, tmp_path: Path) -> None:
    text = plan_text(pictures(tmp_path / "data"))
    with pytest.raises(UserError, match="takes no plan from a script: plan it on the page Batches"):
        studio.batches.plan(PlanByScript(plan=text))
    assert planned(studio, text) == 1


def test_a_folder_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "nowhere"):
        with pytest.raises(UserError, match=f"{place} is no folder: .*--data-roots"):
            DataRoots([tmp_path, tmp_path / place])


@pytest.mark.slow
def test_a_token_that_may_change_things_plans_and_begins_a_batch(data: Path, tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password", data_roots=(data,)) as (url, studio):
        work_here(studio.batches)
        text = plan_text(data / "birds")
        full, reading = (shown(made_token(studio, name, name == "reads").text) for name in ("works", "reads"))
        assert call(url, "plan_batch", plan=text).status_code == 401
        assert call(url, "plan_batch", headers=reading, plan=text).status_code == 403 and not studio.batches.all()
        made = answer(url, "plan_batch", headers=full, plan=text)
        assert (made["batch"], made["name"], made["state"], made["sources"]) == (1, "Birds", "new", 3)
        assert answer(url, "plan_batch", headers=full, plan=text)["batch"] == 1, "the same plan is the same batch"
        said, field = told(call(url, "plan_batch", headers=full, plan=plan_text(tmp_path / "secret")))
        assert field == "plan" and "may only read below" in said
        assert call(url, "begin_batch", headers=full, batch=1).status_code == 200
        comes_to(studio, 1, "approval")
        notes = [entry.detail for entry in studio.workspace.studies.log() if entry.event == "script"]
        assert "works: plan-batch" in notes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["show_evaluation", "begin_predictions"])
def test_a_token_names_a_model_only_below_the_folders(data: Path, tmp_path: Path, name: str) -> None:
    """The reply does not tell whether a file elsewhere exists."""
    (tmp_path / "secret.onnx").write_bytes(b"not a model")
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password", data_roots=(data,)) as (url, studio):
        full = shown(made_token(studio, "works").text)

        def refused(file: Path | str) -> str:
            said, field = told(call(url, name, headers=full, source="onnx", file=str(file)))
            assert field == "file"
            return said.replace(str(file), "FILE")

        there = refused(tmp_path / "secret.onnx")
        assert f", only files below {data}" in there
        for file in (tmp_path / "missing.onnx", data / ".." / "secret.onnx", "secret.onnx", "/etc/passwd"):
            assert refused(file) == there
        kept = studio.workspace.model_files / ("0" * 24) / "model.onnx"
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"not a model")
        for file in (data / "missing.onnx", kept):
            said = call(url, name, headers=full, source="onnx", file=str(file)).text
            assert ", only files below" not in said, said


def folder_of(studio: Studio, run: str) -> str:
    return str(studio.workspace.runs.get(run).settings.get("backgrounds", {}).get("folder", ""))


@pytest.mark.slow
def test_a_token_names_backgrounds_only_below_the_folders(data: Path, tmp_path: Path) -> None:
    """The reply does not tell whether a folder elsewhere exists."""
    secret = pictures(tmp_path / "pictures of others")
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password", data_roots=(data,)) as (url, studio):
        full, run = shown(made_token(studio, "works").text), studio.runs.from_upload(encoded(RED), "bird.png", "bird")
        studio.commands.send("recipe", {"run": run, "recipe": "aga"})
        setting = {"setting": "backgrounds.folder"}

        def refused(name: str, folder: Path, **runs: object) -> str:
            said, field = told(call(url, name, headers=full, value=str(folder), **setting, **runs))
            assert field == "value"
            return said.replace(str(folder), "FOLDER")

        for name, runs in (("setting", {"run": run}), ("together_setting", {"runs": [run]})):
            there = refused(name, secret, **runs)
            assert f", only files below {data}" in there
            assert refused(name, tmp_path / "missing", **runs) == there == refused(name, data / ".." / "x", **runs)
            assert not folder_of(studio, run)
        assert call(url, "setting", headers=full, value=str(data / "birds"), run=run, **setting).status_code == 200
        assert folder_of(studio, run) == str(data / "birds")


def test_a_long_planning_is_waited_for_once_more(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    through, plain = threading.Event(), service.data_set_of

    class Slow:
        """Data set that waits before its first image."""

        def __init__(self, plan: BatchPlan) -> None:
            self._data = plain(plan)

        def items(self) -> Iterator[Item]:
            assert through.wait(120)
            yield from self._data.items()

        def __getattr__(self, name: str) -> object:
            return getattr(self._data, name)

    async def listens() -> bool:
        return True

    monkeypatch.setattr(service, "data_set_of", Slow)
    monkeypatch.setattr(running, "PLANNING_SECONDS", 0.0)
    with workspace_in(tmp_path / "workspace") as workspace:
        studio = Studio(load_profile("demo"), ScriptedModels(), workspace, [data])
        sent = PlanByScript(plan=plan_text(data / "birds"))
        for _ in range(2):
            assert anyio.run(awaited.planned, sent, studio.batches, Waiter(listens, 0)) == {
                "batch": 0,
                "state": "planning",
                "looked_through": 0,
            }
        digest = DataRoots([data]).require_plan(plan_from_text(sent.plan, PLAN)).digest
        assert len(studio.batches.planning.of(digest)) == 1, "the second call waited for the work of the first"
        through.set()
        assert anyio.run(awaited.planned, sent, studio.batches, Waiter(listens))["batch"] == 1
        studio.close()


def test_agents_have_it_as_a_tool_that_destroys_nothing() -> None:
    tool = tool_of(PlanByScript)
    assert tool.name == "plan_batch" and tool.inputSchema["required"] == ["plan"]
    assert tool.annotations is not None and not tool.annotations.readOnlyHint and not tool.annotations.destructiveHint
    assert "call it again with the same plan" in (tool.description or "")
