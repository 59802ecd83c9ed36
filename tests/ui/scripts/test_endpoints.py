"""The endpoints for scripts, called by `gradio_client` and over HTTP, without a password.

The models are stand-ins. Other tests run the real ones.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from services.studio import Studio
from tests.support.called import FILE, answer, client_of, of_page, picture, refused, told, watched
from tests.support.explorer import held_drawing, text_run
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.set_cases import run_of
from ui.scripts.endpoints import OF_PAGES
from ui.security.guard import MCP

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("open") / "workspace", ScriptedModels()) as there:
        yield there


@pytest.fixture(scope="module")
def client(served: tuple[str, Studio]) -> Client:
    return client_of(served[0])


def test_every_command_is_an_endpoint_with_its_words_types_and_bounds(served: tuple[str, Studio]) -> None:
    url, studio = served
    known = httpx.get(f"{url}gradio_api/info").json()["named_endpoints"]
    for name, command in studio.commands.known().items():
        endpoint = "/" + name.replace("-", "_")
        if name in OF_PAGES:
            assert endpoint not in known
            continue
        assert (command.__doc__ or "").split()[0] in known[endpoint]["description"]
        required = {field for field, held in command.model_fields.items() if held.is_required()}
        assert required <= {parameter["parameter_name"] for parameter in known[endpoint]["parameters"]}, name
        for parameter in known[endpoint]["parameters"]:
            assert parameter["type"]["description"], (name, parameter)
    (limit,) = (each for each in known["/list_runs"]["parameters"] if each["parameter_name"] == "limit")
    assert (limit["type"]["minimum"], limit["type"]["maximum"], limit["parameter_default"]) == (1, 200, 50)
    (edit_type,) = (each for each in known["/keyword_add"]["parameters"] if each["parameter_name"] == "edit_type")
    assert "weather" in edit_type["type"]["enum"]


def test_the_page_does_not_load_what_describes_the_endpoints(served: tuple[str, Studio]) -> None:
    assert "keyword_add" not in httpx.get(served[0]).text


def test_a_script_takes_a_picture_to_an_accepted_test_case(
    served: tuple[str, Studio], client: Client, tmp_path: Path
) -> None:
    source = tmp_path / "my bird.png"
    source.write_bytes(picture())
    run = client.predict(file=handle_file(str(source)), api_name="/upload_picture")["run"]
    client.predict(run=run, kind="classification", label="bird", api_name="/task")
    client.predict(run=run, setting="counterfactuals.captions", value=2, api_name="/setting")
    begun = client.predict(run=run, api_name="/run_all")
    ended = watched(client, begun["job"]["job"])
    assert (ended["state"], ended["run"]) == ("done", run)

    caption = "A bird in sunny weather by day. The ground is grassy."
    client.predict(run=run, text=caption, api_name="/caption")
    said = client.predict(run=run, api_name="/show_run")
    stages = {stage["stage"]: stage for stage in said["stages"]}
    assert (said["name"], stages["caption"]["value"], stages["caption"]["author"]) == (
        "my bird",
        {"text": caption},
        "person",
    )
    assert stages["keywords"]["stale"] and said["gate"]["closed"]
    watched(client, client.predict(run=run, stage="keywords", api_name="/run_from")["job"]["job"])

    gate = client.predict(run=run, api_name="/show_run")["gate"]
    assert gate["closed"] == "" and len(gate["images"]) == 2
    job = client.predict(run=run, shown=gate["shown"], api_name="/generate")["job"]["job"]
    ended = watched(client, job)
    assert (ended["state"], [part["state"] for part in ended["parts"]]) == ("done", ["done", "done"])
    assert client.predict(job=job, api_name="/show_job") == ended

    first = client.predict(run=run, limit=1, api_name="/list_images")
    second = client.predict(run=run, limit=1, after=first["next"], api_name="/list_images")
    images = first["images"] + second["images"]
    assert second["next"] == 0 and [image["caption"] for image in images] == [one["caption"] for one in gate["images"]]
    assert all(image["checks"] for image in images)

    client.predict(run=run, case=images[0]["case"], verdict="accepted", api_name="/review")
    client.predict(run=run, case=images[1]["case"], verdict="rejected", reason="No bird.", api_name="/review")
    said = client.predict(run=run, case=images[1]["case"], api_name="/show_image")
    assert (said["review"], said["reason"], said["lineage"]["seed"]) == ("rejected", "No bird.", images[1]["seed"])
    saved = Path(client.predict(case=images[0]["case"], api_name="/download_image"))
    assert saved.name.startswith("my-bird") and saved.suffix == ".png"
    assert client.predict(file=handle_file(str(saved)), api_name="/upload_picture")["case"] == images[0]["case"]
    (line,) = client.predict(find="MY BIRD", api_name="/list_runs")["runs"]
    assert (line["run"], line["images"], line["accepted"]) == (run, 2, 1)
    with zipfile.ZipFile(client.predict(runs=[run], api_name="/download_accepted")) as archive:
        assert archive.read(f"images/{saved.name}") == saved.read_bytes()


def test_lists_come_in_pages(served: tuple[str, Studio]) -> None:
    url, _ = served
    runs = [answer(url, "run_from_sample", "balloon")["run"] for _ in range(3)]
    for run in runs:
        answer(url, "rename", run, f"page {run}")
    found, after = [], ""
    for _ in itertools.count():
        page = answer(url, "list_runs", "page", after, 2)
        found += [line["run"] for line in page["runs"]]
        after = page["next"]
        if not after:
            break
    assert found == list(reversed(runs))


def test_a_script_drafts_a_study_and_another_one_like_it(served: tuple[str, Studio]) -> None:
    url = served[0]
    study = answer(url, "create_study", "Moods", "classification")["study"]
    assert answer(url, "show_study", study)["state"] == "draft"
    like_it = answer(url, "copy_rules", study)["study"]
    assert {study, like_it} <= {each["study"] for each in answer(url, "list_studies")["studies"]}


def test_a_script_makes_and_compares_versions_of_a_test_set(served: tuple[str, Studio]) -> None:
    url, studio = served
    cases = run_of(studio.workspace, 1, [10, 11], label="gull")
    made = answer(url, "create_test_set", title="Gulls")["test_set"]
    filled = answer(url, "add_to_test_set", test_set=made, cases=[cases[0]])
    assert filled == {"test_set": made, "result": {"added": 1, "already": 0, "left_out": 0}}
    first = answer(url, "release_test_set", test_set=made, note="One.", thresholds={"score": 0.5})
    assert (first["place"], first["count"], len(first["version"])) == (1, 1, 64)
    assert answer(url, "draft_test_set", version="Gulls")["version"] == f"{made}@draft"
    answer(url, "add_to_test_set", test_set=made, cases=f"{cases[1]}")
    answer(url, "split_test_set", test_set=made, test=1)
    second = answer(url, "release_test_set", test_set=made)
    assert (second["parent"], second["splits"], second["warning"]) == (first["version"], {"test": 2}, "")
    found = answer(url, "compare_test_sets", old=first["version"], new="Gulls")
    assert found["counts"] == {"added": 1, "removed": 0, "relabelled": 0, "remasked": 0, "resplit": 1}
    assert answer(url, "verify_test_set", version="Gulls@1")["whole"]
    assert [image["case"] for image in answer(url, "show_test_set", version="Gulls")["images"]] == list(cases)
    assert [held["name"] for held in answer(url, "list_test_sets")["test_sets"]] == ["Gulls"]
    assert refused(url, "show_test_set", version="Boats", status=404) == (
        "There is no test set “Boats”; take one from the list.",
        "test_set",
    )
    assert refused(url, "add_to_test_set", test_set="Gulls", cases=[1])[1] == "test_set"


@pytest.mark.parametrize(
    ("name", "data", "sentence", "field"),
    [
        ("show_run", ["nope"], "This workspace has no run", "run"),
        ("list_runs", ["", "", 500], "“limit” is not valid", "limit"),
        ("list_runs", ["", "", "many"], "“limit” is not valid", "limit"),
        ("list_runs", [["x"], "", 5], "“find” is not valid", "find"),
        ("run_from_sample", ["zebra"], "There is no sample", "sample"),
        ("show_job", [10**9], "There is no job", "job"),
        ("show_job", ["one"], "“job” is not valid", "job"),
        ("download_image", [10**9], "This workspace has no test case", "case"),
        ("show_study", ["nope"], "", ""),
        ("download_study", ["nope", "../x"], "There is no file '../x'", "file"),
        ("upload_picture", ["text"], "“file” is not valid", "file"),
    ],
)
def test_bad_input_is_told_in_one_sentence_with_its_field(
    served: tuple[str, Studio], name: str, data: list[Any], sentence: str, field: str
) -> None:
    said, at = refused(served[0], name, *data)
    assert said.startswith(sentence) and at == field


def test_only_what_was_uploaded_is_taken_as_a_file(served: tuple[str, Studio], tmp_path: Path) -> None:
    """Files of this machine and web addresses are refused, by the endpoints and by Gradio's own paths."""
    url, studio = served
    lying_about = tmp_path / "lying about.png"
    lying_about.write_bytes(picture())
    before = len(studio.runs.latest())
    for path in (str(lying_about), "http://127.0.0.1:1/x.png", "../x.png", "/etc/passwd"):
        file = {"path": path, **FILE}
        assert refused(url, "upload_picture", file) == ("There is no such upload: send the file first.", "file")
        assert refused(url, "caption", "x", file, 0)[1] == "file"
        for name, more in (("take_picture", {}), ("take_run", {}), ("give_mask", {"run": "x"})):
            reply = of_page(url, name, {"path": path, **more})
            assert reply.json() == {"problem": "There is no such upload: send the file first."}
    assert len(studio.runs.latest()) == before


def test_what_no_page_sends_is_refused_in_a_sentence(served: tuple[str, Studio]) -> None:
    for name, sent in (("answer", {"do": 3}), ("answer", None), ("answer", {"who": 1}), ("give_mask", {"path": "x"})):
        told(of_page(served[0], name, sent))
    told(of_page(served[0], "_sent", {}), 404)


def test_an_image_over_the_limits_is_refused(client: Client, tmp_path: Path) -> None:
    tiny = tmp_path / "tiny.png"
    tiny.write_bytes(picture((8, 8)))
    with pytest.raises(AppError, match="too small"):
        client.predict(file=handle_file(str(tiny)), api_name="/upload_picture")


def test_two_scripts_and_their_versions(served: tuple[str, Studio]) -> None:
    """A script with an older version of a value gets a notice, and both edits are in the history."""
    url, studio = served
    run = answer(url, "run_from_sample", "balloon")["run"]
    answer(url, "caption", run, "A balloon.", 0)
    version = answer(url, "show_run", run)["stages"][0]["version"]
    answer(url, "caption", run, "A red balloon.", version)
    answer(url, "caption", run, "A blue balloon.", version)
    texts = [held.value.value.text for held in studio.workspace.runs.history(run, "caption")]
    assert {"A red balloon.", "A blue balloon."} <= set(texts)


def test_a_client_that_goes_away_leaves_the_job_at_work(served: tuple[str, Studio], client: Client) -> None:
    """Another job waits, is cancelled by its number, and the first job continues."""
    url, studio = served
    runs = [text_run(studio), text_run(studio)]
    with held_drawing(studio) as generator:
        first, second = (answer(url, "generate", run, "")["job"]["job"] for run in runs)
        watching = client.submit(job=first, api_name="/watch_job")
        next(iter(watching))
        watching.cancel()
        assert [job["job"] for job in answer(url, "list_jobs")["jobs"]] == [first, second]
        answer(url, "queue_cancel", second)
        assert answer(url, "show_job", second)["state"] == "cancelled"
        generator.let_all()
        assert watched(client_of(url), first)["state"] == "done"
    images = [answer(url, "list_images", run, 0, 50)["images"] for run in runs]
    assert len(images[0]) == 4 and images[1] == []


def test_without_the_flag_agents_find_no_tool(served: tuple[str, Studio]) -> None:
    """`test_mcp.py` tests the server with the flag."""
    url, _ = served
    assert httpx.post(f"{url}{MCP.strip('/')}/", json={}).status_code in (404, 405)
    assert "--mcp" in httpx.get(f"{url}scripts").text
