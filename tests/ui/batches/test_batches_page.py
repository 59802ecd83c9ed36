"""Batches on a server: queue, pause, approval, retry and cost, and the text of the pages and of /metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.errors import Cancelled, UserError
from core.studies import NewItem
from core.types import Task
from core.words import duration
from demo.data_set import write_scenes
from pipeline.profiles.profile import PROFILES
from services.batches.plan_file import PLANS, plan_from_text, read_plan
from services.batches.running import BatchCommand, BatchRuns
from services.batches.service import BatchService
from services.batches.shipped import shipped_plans
from services.changes import Changes
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.batch_cases import NO_IDEA, Doubtful, Gate, comes_to, pictures, plan_text, planned, work_here
from tests.support.called import call, made_token, shown
from tests.support.photographs import TWO_PHOTOGRAPHS
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from tests.support.voted import CREW, NO, YES, cast, study_of
from ui.batches.routes import SEARCHES, SENT, add_batch_routes
from ui.explore.runs import run_list
from ui.scripts.endpoints import OF_PAGES

HOSTILE = '<script>alert(1)</script> & "co"'
COST = '[cost]\nprice_an_hour = 3600.0\ncurrency = "EUR"\n'


@pytest.fixture
def gate(studio: Studio) -> Gate:
    return work_here(studio.batches)


@pytest.fixture
def client(studio: Studio, gate: Gate) -> Iterator[TestClient]:
    app = FastAPI()
    add_batch_routes(app, studio)
    with TestClient(app) as made:
        yield made


def page(client: TestClient, path: str, status: int = 200) -> str:
    """Return the text of a page without its markup."""
    reply = client.get(path)
    assert reply.status_code == status, reply.text
    body = reply.text[reply.text.index("<main") :]
    assert "<script" not in body, "no markup of a name"
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def send(client: TestClient, name: str, **data: Any) -> Any:
    return client.post(f"/batches/api/{name}", json=data, headers={"x-studio": "1"})


def run(studio: Studio, number: int, state: str = "approval") -> None:
    studio.commands.send("begin-batch", {"batch": number})
    comes_to(studio, number, state)


def whole(studio: Studio, number: int) -> None:
    """Run a batch from its plan to all its images."""
    run(studio, number)
    studio.commands.send("approve-batch", {"batch": number})
    comes_to(studio, number, "done")


# Work on batches


def test_captions_come_first_and_images_after_a_yes(studio: Studio, gate: Gate, tmp_path: Path) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data"), more=COST))
    new = studio.batches.details(number)
    assert new.status.state == "new" and new.estimate is not None
    assert new.estimate.images == 6 and new.estimate.hours is None, "nothing was measured here yet"

    run(studio, number)
    waiting = studio.batches.details(number)
    assert {one.key for one in waiting.sample} == {f"bird/{place}.png" for place in range(3)}
    assert not waiting.latest and waiting.status.images.left == 6
    with pytest.raises(UserError, match="wait for your approval"):
        studio.batches.begin(number)

    studio.commands.send("approve-batch", {"batch": number})
    comes_to(studio, number, "done")
    done = studio.batches.details(number)
    assert len({case for case, _, _ in done.latest}) == 6 and done.status.images.number("done") == 6
    assert sum(done.hour) == 6 and not done.sample and done.estimate is None
    with pytest.raises(UserError, match="nothing is left"):
        studio.batches.begin(number)


def test_an_estimate_goes_by_batches_with_the_same_models_and_settings(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    whole(studio, planned(studio, plan_text(pictures(tmp_path / "data"), more=COST)))
    other = pictures(tmp_path / "other", 5)
    same = studio.batches.details(planned(studio, plan_text(other, "More", COST))).estimate
    assert same is not None and same.images == 10 and same.hours and same.bytes and same.money
    steps = plan_text(other, "Slower", COST).replace('"generation.steps" = 3', '"generation.steps" = 9')
    slower = studio.batches.details(planned(studio, steps)).estimate
    assert slower is not None and slower.hours is None and slower.bytes is None


def test_a_batch_that_waits_comes_after_the_one_at_work_or_leaves_the_queue(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    root = pictures(tmp_path / "data")
    first, second, third = (
        planned(studio, plan_text(root, name, f"[choose]\nnumber = {n}\n"))
        for name, n in (("A", 3), ("B", 2), ("C", 1))
    )
    gate.shut()
    run(studio, first, "running")
    for number in (second, third):
        run(studio, number, "waiting")
    studio.commands.send("pause-batch", {"batch": second})
    assert studio.batches.status(second).state != "waiting"
    gate.open()
    comes_to(studio, third, "approval")
    assert studio.batches.status(first).state == "approval"
    assert not studio.batches.status(second).passes[0].number("done"), "it was taken out of the queue"


@pytest.mark.slow
def test_a_pause_gives_back_what_is_not_done_and_it_goes_on_to_the_same_images(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data", 12)))
    run(studio, number)
    gate.shut()
    studio.commands.send("approve-batch", {"batch": number})
    gate.let()
    until(lambda: studio.batches.status(number).images.number("done") == 8)
    studio.commands.send("pause-batch", {"batch": number})
    comes_to(studio, number, "paused")
    paused = studio.batches.status(number)
    assert paused.images.number("leased") == 0 and paused.images.number("planned") == 16
    with pytest.raises(UserError, match="nothing to pause"):
        studio.batches.pause(number)
    gate.open()
    run(studio, number, "done")
    assert studio.batches.status(number).images.number("done") == 24


def test_a_batch_that_was_cancelled_keeps_what_was_made_and_can_be_taken_up_again(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data", 12)))
    gate.shut()
    run(studio, number, "running")
    gate.let()
    until(lambda: studio.batches.status(number).passes[0].number("done") == 8)
    studio.commands.send("cancel-batch", {"batch": number})
    comes_to(studio, number, "cancelled")
    assert studio.batches.status(number).passes[0].number("done") == 8
    with pytest.raises(UserError, match="cancelled already"):
        studio.batches.cancel(number)
    gate.open()
    run(studio, number)
    assert studio.batches.status(number).passes[0].number("done") == 12


def test_what_failed_is_grouped_by_reason_and_tried_again(studio: Studio, tmp_path: Path) -> None:
    models = ScriptedModels()
    models.captioner = Doubtful()
    work_here(studio.batches, models)
    number = planned(studio, plan_text(pictures(tmp_path / "data", 3, broken=True)))
    studio.commands.send("begin-batch", {"batch": number})
    until(lambda: studio.batches.status(number).failed == 4 and not studio.batches.status(number).at_work)
    groups = {group.reason: group.number for group in studio.batches.details(number).failures}
    assert groups[NO_IDEA] == 3 and len(groups) == 2
    with pytest.raises(UserError, match="for this reason"):
        studio.batches.retry(number, "Another one.")
    assert studio.batches.status(number).state == "done" and not studio.batches.status(number).images.total
    models.captioner.sure = True
    assert studio.commands.send("retry-batch", {"batch": number, "reason": NO_IDEA})["again"] == 3
    comes_to(studio, number, "approval")
    assert [group.number for group in studio.batches.details(number).failures] == [1], "the broken file stays"


def test_what_is_tried_again_while_it_works_is_done_before_it_ends(studio: Studio, tmp_path: Path) -> None:
    models = ScriptedModels()
    models.captioner = Doubtful()
    gate = work_here(studio.batches, models)
    number = planned(studio, plan_text(pictures(tmp_path / "data", 9)))
    gate.shut()
    run(studio, number, "running")
    gate.let()  # the first lot fails, and the second one is held back
    until(lambda: studio.batches.status(number).failed == 8)
    models.captioner.sure = True
    assert studio.batches.retry(number)["again"] == 8
    gate.open()
    comes_to(studio, number, "approval")
    assert studio.batches.status(number).passes[0].number("done") == 9 and not studio.batches.status(number).failed


def test_a_valid_test_case_costs_what_all_images_cost_shared_among_those_accepted(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data"), more=COST))
    whole(studio, number)
    none = studio.batches.status(number)
    assert none.cost and none.cost_of_valid is None, "nobody has judged one yet"
    cases = [case for case, _, _ in studio.batches.details(number).latest]
    for case, verdict in zip(cases, ("accepted", "accepted", "rejected"), strict=False):
        run_id = next(run for found, _, run in studio.batches.details(number).latest if found == case)
        studio.commands.send("review", {"run": run_id, "case": case, "verdict": verdict, "reason": "other"})
    view = studio.batches.status(number)
    assert (view.accepted, view.rejected) == (2, 1)
    assert view.cost and view.cost_of_valid == pytest.approx(view.cost / 2)

    shas = {case: sha for case, sha, _ in studio.batches.details(number).latest}
    items = [NewItem(shas[case], label="bird", test_case=case) for case in cases[:3]]
    study = study_of(studio.workspace, items)
    judged = studio.workspace.studies.items(study)
    answers = dict(zip(shas.values(), (YES, NO, YES), strict=False))
    votes = [
        cast(item, worker, {"valid": answer}, place)
        for item in judged
        for place, (worker, answer) in enumerate(zip(CREW, answers[item.image_sha], strict=True))
    ]
    studio.workspace.studies.import_votes(study, votes)
    studied = studio.batches.status(number)
    assert (studied.valid, studied.invalid) == (1, 1), "the third one was rejected before"
    assert studied.cost_of_valid == pytest.approx(view.cost), "two accepted, half of them valid"


def test_a_batch_of_another_process_is_shown_live_and_asked_to_pause(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data")))
    with Workspace(studio.workspace.folder) as elsewhere:
        elsewhere.batches.hold(number)
        view = studio.batches.status(number)
        assert view.state == "running" and not view.place
        with pytest.raises(UserError, match="Another process works"):
            studio.batches.begin(number)
        studio.batches.pause(number)
        assert elsewhere.batches.get(number).wish == "pause"
        assert studio.batches.status(number).state == "stopping"
        elsewhere.batches.let_go(number)
    run(studio, number)


def test_the_end_of_the_server_stops_a_batch_that_goes_on_with_the_next_one(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data")))
    gate.shut()
    run(studio, number, "running")
    studio.batches.close()
    assert studio.batches.status(number).state == "stopped"
    again = BatchRuns(studio.workspace, Changes())
    work_here(again)
    again.begin(number)
    until(lambda: again.status(number).state == "approval")
    again.close()


def test_work_that_fails_as_a_whole_is_told_at_the_batch(studio: Studio, tmp_path: Path) -> None:
    def pool(_order: object) -> Any:
        raise UserError("There is too little memory for a worker.")

    studio.batches.pool = pool
    number = planned(studio, plan_text(pictures(tmp_path / "data")))
    studio.commands.send("begin-batch", {"batch": number})
    until(lambda: studio.batches.status(number).problem)
    assert studio.batches.status(number).state == "stopped"
    work_here(studio.batches)
    run(studio, number)
    assert not studio.batches.status(number).problem


def test_a_batch_whose_profile_is_gone_is_shown_and_says_so_when_it_begins(
    studio: Studio, client: TestClient, tmp_path: Path
) -> None:
    profile = tmp_path / "own.toml"
    profile.write_bytes((PROFILES / "demo.toml").read_bytes())
    text = plan_text(pictures(tmp_path / "data"), more=COST).replace('"demo"', f'"{profile}"')
    number = planned(studio, text)
    profile.unlink()
    assert "Birds" in page(client, "/batches/") and "ready to begin" in page(client, f"/batches/{number}")
    studio.batches.begin(number)
    until(lambda: studio.batches.status(number).problem)
    assert "own.toml" in page(client, f"/batches/{number}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("root = ", 'root = "birds" # ', "data.root is 'birds': write an absolute path"),
        ('profile = "demo"', 'profile = "my.toml"', "make.profile is 'my.toml'"),
        ('layout = "imagefolder"', 'layout = "imagefolders"', "There is no layout"),
        ("[task]", "[taks]", "unknown key: taks"),
        ("kind =", "kind", "not valid TOML"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_in_a_sentence(
    studio: Studio, tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = plan_text(pictures(tmp_path / "data")).replace(old, new)
    with pytest.raises(UserError) as refused:
        studio.commands.send("plan-any-batch", {"plan": text})
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_shipped_plans_are_offered_whole_but_for_the_place_of_their_data(client: TestClient) -> None:
    offered = unescape(client.get("/batches/new").text)
    assert {one.name for one in shipped_plans()} == {file.stem for file in PLANS.glob("*.toml")}
    for one in shipped_plans():
        assert one.text in offered and one.note in offered
        filled = one.text.replace('root = ""', 'root = "/sets/mine"')
        assert plan_from_text(filled, Path("plan.toml")) == read_plan(PLANS / f"{one.name}.toml").with_root(
            Path("/sets/mine")
        )
        reply = send(client, "plan-batch", plan=one.text)
        assert reply.status_code == 400 and "data.root is empty" in reply.json()["error"]


def test_a_data_set_that_is_not_there_is_told_when_it_is_planned(client: TestClient, tmp_path: Path) -> None:
    reply = send(client, "plan-batch", plan=plan_text(tmp_path / "nowhere"))
    assert reply.status_code == 400 and reply.json()["field"] == "plan"
    assert "does not exist" in reply.json()["error"]


# Text of the pages


def test_the_list_and_the_page_of_a_batch_say_all_of_it(studio: Studio, client: TestClient, tmp_path: Path) -> None:
    assert "Plan the first batch" in page(client, "/batches/")
    assert client.get("/batches", follow_redirects=False).headers["location"] == "/batches/"
    text = plan_text(pictures(tmp_path / "data", 3, broken=True), "Birds", COST)
    said = send(client, "plan-batch", plan=text).json()
    assert said == {"go": "/batches/1"}
    assert "ready to begin" in page(client, "/batches/1") and "at most 8 test cases" in page(client, "/batches/1")
    run(studio, 1)
    waits = page(client, "/batches/1")
    assert "Approve and draw 6 images" in waits and "sunny" in waits and "3 of 4 done, 1 failed" in waits
    assert "Try again" in waits and "bird/broken.png" in waits
    send(client, "approve-batch", batch=1)
    comes_to(studio, 1, "done")
    over = page(client, "/batches/1")
    assert "done, 1 failed" in over and "6 of 6 done" in over and "cannot tell yet" in over and "EUR" in over
    assert "Latest images" in over and "Approve" not in over
    assert "6 of 6 images" in page(client, "/batches/")


@pytest.mark.slow
def test_a_hostile_name_stays_a_name(studio: Studio, client: TestClient, tmp_path: Path) -> None:
    text = plan_text(pictures(tmp_path / "data"), HOSTILE.replace('"', '\\"'))
    number = planned(studio, text)
    assert HOSTILE in page(client, f"/batches/{number}") and HOSTILE in page(client, "/batches/")
    assert f'name="{HOSTILE}"'.replace('"co"', '\\"co\\"') in client.get("/metrics").text


def test_a_page_gets_only_what_is_new(studio: Studio, client: TestClient, tmp_path: Path) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data")))
    first = client.get(f"/batches/api/state?batch={number}").json()
    assert set(first["parts"]) >= {"part-head", "part-progress", "part-figures"} and not first["at_work"]
    asked = f"/batches/api/state?batch={number}&revision={first['revision']}"
    assert client.get(asked).json() == {"same": True}
    run(studio, number)
    assert "waits for your yes" in client.get(asked).json()["parts"]["part-head"]


def test_a_plan_that_was_interrupted_is_planned_again_from_its_text(
    studio: Studio, client: TestClient, tmp_path: Path
) -> None:
    text = plan_text(pictures(tmp_path / "data", 300), "Interrupted")

    def stop(done: int) -> None:
        if done:
            raise Cancelled

    with pytest.raises(Cancelled):
        BatchService(studio.workspace).plan(plan_from_text(text, Path("plan.toml")), stop)
    assert "planning was interrupted" in page(client, "/batches/1")
    assert send(client, "begin-batch", batch=1).status_code == 400
    again = unescape(client.get("/batches/new?like=1").text)
    written = again[again.index('name = "Interrupted"') : again.index("</textarea>")]
    assert send(client, "plan-batch", plan=written).json() == {"go": "/batches/1"}
    assert studio.batches.status(1).state == "new" and studio.batches.status(1).sources == 300
    assert client.get("/batches/new?like=9").status_code == 404


@pytest.mark.parametrize("path", ["/batches/7", "/batches/api/state?batch=7"])
def test_a_batch_that_there_is_not(client: TestClient, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code in (400, 404) and "There is no batch 7" in reply.text


def test_every_command_of_batches_is_on_their_pages(studio: Studio) -> None:
    known = studio.commands.known()
    theirs = {
        name for name, model in known.items() if model.__module__ == "services.batches.running" and not model.looks
    }
    assert {*theirs, *SEARCHES} == {*SENT, "plan-any-batch"}
    assert all(issubclass(known[name], BatchCommand) for name in SENT)
    assert "plan-any-batch" in OF_PAGES, "it names any folder of this machine: no token may"


def test_metrics_are_what_prometheus_reads(studio: Studio, client: TestClient, tmp_path: Path) -> None:
    number = planned(studio, plan_text(pictures(tmp_path / "data", 3, broken=True), more=COST))
    whole(studio, number)
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = reply.text.splitlines()
    named = f'batch="{number}",name="Birds"'
    assert f'dillema_batch_work{{{named},pass="images",state="done"}} 6' in lines
    assert f'dillema_batch_work{{{named},pass="captions",state="failed"}} 1' in lines
    assert "dillema_batches_at_work 0" in lines
    values = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line) for line in values)
    for name in {line.partition("{")[0].partition(" ")[0] for line in values}:
        assert f"# HELP {name} " in reply.text and f"# TYPE {name} " in reply.text


@pytest.mark.slow
def test_scripts_watch_and_steer_batches_and_a_token_opens_the_metrics(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password") as (url, studio):
        work_here(studio.batches)
        number = planned(studio, plan_text(pictures(tmp_path / "data")))
        full, reading = (shown(made_token(studio, name, name == "reads").text) for name in ("works", "reads"))
        assert call(url, "begin_batch", headers=reading, batch=number).status_code == 403
        assert call(url, "begin_batch", headers=full, batch=number).status_code == 200
        comes_to(studio, number, "approval")
        seen = call(url, "show_batch", headers=reading, batch=number).json()["data"][0]
        assert seen["state"] == "approval" and len(seen["captions"]) == 6
        assert seen["passes"][0] | {"a_minute": 0} == {
            "pass": "captions",
            "planned": 3,
            "done": 3,
            "failed": 0,
            "skipped": 0,
            "waiting": 0,
            "left": 0,
            "a_minute": 0,
            "seconds_left": None,
        }
        assert call(url, "approve_batch", headers=full, batch=number).status_code == 200
        comes_to(studio, number, "done")
        listed = call(url, "list_batches", headers=reading).json()["data"][0]["batches"]
        assert [one["state"] for one in listed] == ["done"]
        import httpx

        assert httpx.get(f"{url}metrics").status_code == 401
        for headers in (full, reading):
            assert "dillema_batch_work" in httpx.get(f"{url}metrics", headers=headers).text
            assert httpx.get(f"{url}batches/", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (7200, "2 h"), (12_000, "3 h 20 min"), (180_000, "2 days 2 h")],
)
def test_time_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert duration(seconds) == said


# Estimates before a batch begins


def streets(root: Path, number: int = 2) -> Path:
    """Write images with masks of the classes 0 and 3. The list of classes names only 0."""
    (root / "masks").mkdir(parents=True)
    (root / "images").mkdir()
    for place in range(number):
        Image.new("RGB", (64, 64), (40 * place, 90, 200)).save(root / "images" / f"{place}.png")
        mask = Image.new("L", (64, 64), 0)
        mask.paste(3, (0, 32, 64, 64))
        mask.save(root / "masks" / f"{place}.png")
    (root / "classes.txt").write_text("0 sky")
    return root


def street_plan(root: Path) -> str:
    text = plan_text(root, "Streets").replace("imagefolder", "folder")
    return text.replace('kind = "classification"', 'kind = "segmentation"\nprotected = ["road"]')


def test_a_plan_that_would_fail_says_so_before_it_begins_and_leads_back(
    studio: Studio, gate: Gate, client: TestClient, tmp_path: Path
) -> None:
    root = streets(tmp_path / "data")
    number = planned(studio, street_plan(root))
    shown = page(client, f"/batches/{number}")
    assert (
        "2 of 2 pictures cannot be used. The mask has a class number without a name: 3. Add it to classes.txt" in shown
    )
    assert shown.count("Edit and plan again") >= 2 and "data.root" not in shown
    form = client.get(f"/batches/new?like={number}").text
    assert "protected = [&#34;road&#34;]" in form or 'protected = ["road"]' in unescape(form)

    (root / "classes.txt").write_text("0 sky\n3 road")
    assert planned(studio, street_plan(root)) == number, "the plan is the same"
    assert "cannot be used" not in page(client, f"/batches/{number}")
    run(studio, number)


def test_a_list_of_classes_that_cannot_be_read_is_told_with_its_line(
    studio: Studio, gate: Gate, client: TestClient, tmp_path: Path
) -> None:
    root = streets(tmp_path / "data")
    (root / "classes.txt").write_text("0 sky\nroad\n")
    number = planned(studio, street_plan(root))
    assert "classes.txt: It is no list of classes" in page(client, f"/batches/{number}")
    assert "Line 2: “road” is no class" in page(client, f"/batches/{number}")


def test_a_batch_of_which_all_failed_leads_back_to_its_plan(studio: Studio, client: TestClient, tmp_path: Path) -> None:
    models = ScriptedModels()
    models.captioner = Doubtful()
    work_here(studio.batches, models)
    number = planned(studio, plan_text(pictures(tmp_path / "data")))
    studio.batches.begin(number)
    until(lambda: studio.batches.status(number).failed == 3 and not studio.batches.status(number).at_work)
    failures = client.get(f"/batches/{number}").text.partition('id="part-failures"')[2]
    assert f"/batches/new?like={number}" in failures.partition("</section>")[0]


def test_photographs_are_counted_before_it_begins_and_at_the_yes_beside_their_pictures(
    studio: Studio, gate: Gate, client: TestClient, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    write_scenes(root, "classification", 3, 1)
    for place, file in enumerate(TWO_PHOTOGRAPHS):
        Image.open(file).resize((160, 106)).save(root / "images" / f"{place:04}.png")  # replace two drawn images
    number = planned(studio, plan_text(root).replace("imagefolder", "csv"))
    told = "2 of 3 pictures look like photographs , which the embedded models do not know"
    shown = page(client, f"/batches/{number}")
    assert told in shown and "make run PROFILE=cpu" in shown
    run(studio, number)
    assert told in page(client, f"/batches/{number}")
    approve = client.get(f"/batches/{number}").text.partition('id="part-approve"')[2]
    lines = approve.split('class="sample-line"')[1:]
    samples = studio.batches.details(number).sample
    assert len(lines) == len(samples) == 6
    for line, one in zip(lines, samples, strict=True):
        assert f"/thumbs/{one.source_sha}.webp" in line
        assert ("not a drawn scene" in line) == (one.key in ("images/0000.png", "images/0001.png"))


def test_a_batch_of_drawn_scenes_says_nothing_of_photographs(
    studio: Studio, gate: Gate, client: TestClient, tmp_path: Path
) -> None:
    write_scenes(tmp_path / "data", "classification", 3, 2)
    number = planned(studio, plan_text(tmp_path / "data").replace("imagefolder", "csv"))
    run(studio, number)
    assert "photographs" not in page(client, f"/batches/{number}")


def test_a_new_batch_of_the_demo_begins_with_drawn_scenes(client: TestClient) -> None:
    form = client.get("/batches/new").text
    assert form.index("Drawn scenes (demo)") < form.index("A folder of pictures")
    assert re.search(r'aria-pressed="true"[^>]*>Drawn scenes \(demo\)', form)


def test_the_runs_of_a_batch_are_one_line_in_the_list_of_runs_and_each_is_found_by_its_name(
    studio: Studio, gate: Gate, tmp_path: Path
) -> None:
    before = studio.workspace.runs.create(Image.new("RGB", (64, 64), "red"), Task("classification"), "demo", "Mine", {})
    number = planned(studio, plan_text(pictures(tmp_path / "data", 5), "Birds of ours"))
    run(studio, number)
    last = studio.workspace.runs.create(Image.new("RGB", (64, 64), "blue"), Task("classification"), "demo", "Later", {})
    listing = studio.runs.listing()
    line = listing.runs[1]
    assert [run.id for run in listing.runs] == [last, line.id, before]
    assert line.batch is not None and (line.batch.number, line.batch.runs) == (number, 5)
    markup = run_list(listing, "")
    assert f'href="/batches/{number}"' in markup and "batch of 5 pictures" in markup
    assert markup.count('class="card run-item') == 3 and "are shown" not in markup
    found = studio.runs.listing("birds of ours")
    assert len(found.runs) == 5 and all(run.batch is None for run in found.runs)
    studio.runs.delete_all(tuple(run.id for run in found.runs))
    assert [run.id for run in studio.runs.listing().runs] == [last, before]
