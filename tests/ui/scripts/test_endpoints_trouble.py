"""Faults while scripts call: bad values, large files, many calls at once, and callers that go away."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import itertools
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import httpx
import pytest
from fastapi import Request
from PIL import Image

import ui.explore.page
import ui.scripts.endpoints
import ui.scripts.uploads
from core.progress import Progress
from services.commands import Command
from services.jobs import JobHandle
from services.studio import Studio
from tests.support.called import FILE, answer, call, client_of, made_token, of_page, picture, refused, sent, told
from tests.support.explorer import held_drawing, text_run
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from ui.scripts.endpoints import MOST_OF_A_TOKEN, SAID_IN_A_SECOND, endpoint_of, fields_of, offered

pytestmark = pytest.mark.slow
LARGEST = 300_000
"""Maximum size in bytes of a file on this server."""
WATCHERS = 42
"""Number of watching calls, which is more than the number of threads that answer calls."""
NASTY: tuple[Any, ...] = (
    "../../../etc/passwd",
    "..\\..\\studio.db",
    "' OR 1=1; DROP TABLE runs; --",
    "<script>alert(1)</script>",
    "a\x00b",
    "a\r\nset-cookie: a=b",
    "\ud800",
    "x" * 100_000,
    "{{7*7}} ${7*7} %s %n",
    -1,
    2**63,
    1e308,
    float("nan"),
    float("inf"),
    True,
    [],
    [[[]]],
    {"__class__": "x"},
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"path": "http://127.0.0.1:1/x", "url": "http://127.0.0.1:1/x", "meta": {"_type": "gradio.FileData"}},
)
"""Bad values that are tried for every field."""
WATCHING: WeakSet[AsyncGenerator[Any, None]] = WeakSet()
"""Generators that watch jobs for scripts and still exist."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Server with its own folder of uploads, since old files are removed from it."""
    folder, watching = tmp_path_factory.mktemp("trouble"), ui.scripts.endpoints.watching

    def noted(*given: Any) -> AsyncGenerator[Any, None]:
        generator = watching(*given)
        WATCHING.add(generator)
        return generator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ui.scripts.endpoints, "watching", noted)
        patch.setenv("GRADIO_TEMP_DIR", str(folder / "given"))
        patch.setattr(ui.explore.page, "LARGEST_UPLOAD", LARGEST)
        patch.setattr(ui.scripts.uploads, "LOOK_SECONDS", 0.05)
        with serving_here(folder / "workspace", ScriptedModels()) as there:
            yield there


@pytest.fixture(scope="module")
def url(served: tuple[str, Studio]) -> str:
    return served[0]


def watchers() -> int:
    """Return the number of calls that watch a job now."""
    return sum(one.ag_frame is not None for one in WATCHING)  # type: ignore[attr-defined]


@pytest.mark.parametrize("share", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_no_value_of_any_field_gets_further_than_a_sentence(served: tuple[str, Studio], share: int) -> None:
    """Each endpoint gets one value out of `share`, and each value goes to an equal part of the endpoints."""
    url, studio = served
    wrong = list[object]()
    with httpx.Client(base_url=url, timeout=60, headers={"content-type": "application/json"}) as asking:

        def tried(command: type[Command], values: dict[str, Any]) -> None:
            fields = {name: values[name] for name in fields_of(command) if name in values}
            reply = asking.post(f"gradio_api/run/{endpoint_of(command)}", content=json.dumps({"data": fields}))
            said = reply.json()["error"] if reply.status_code != 200 else "."
            if reply.status_code >= 500 or "\n" in said or not said.endswith(".") or "Traceback" in said:
                wrong.append((command.name, fields, reply.status_code, said[:200]))

        for number, command in enumerate(offered(studio)):
            ids = {"stage": "caption", "job": 0, "case": 0}
            for place, value in enumerate(NASTY):
                if (number + place) % share:
                    continue
                if "run" in fields_of(command):
                    ids["run"] = next((run.id for run in studio.runs.latest()), "") or text_run(studio)
                if "study" in fields_of(command):
                    ids["study"] = next((study.id for study in studio.workspace.studies.all()), "") or drafted(url)
                every = dict.fromkeys(fields_of(command), value)
                tried(command, {**every, **ids})
                if place < 8:
                    tried(command, every)
    until(lambda: not studio.jobs.active())
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("name", ["../../x.png", "..\\..\\x.png", "a\x00b.png", "x" * 5000, "a\nb.png", ".", "<b>.png"])
def test_the_name_of_an_upload_leads_nowhere(url: str, name: str) -> None:
    reply = httpx.post(f"{url}gradio_api/upload", files={"files": (name, picture())})
    if reply.status_code == 200:
        (path,) = reply.json()
        assert ui.scripts.uploads.uploaded(path) == Path(path).resolve()
    else:
        told(reply, reply.status_code)
        assert reply.status_code < 500


def test_a_file_over_the_limits_is_refused_in_a_sentence(url: str) -> None:
    too_many_bytes = httpx.post(f"{url}gradio_api/upload", files={"files": ("x.png", b"x" * (LARGEST + 1))})
    assert told(too_many_bytes, 413)[0] == "The file is too large: save it smaller."
    # No byte of such a body is sent or read.
    asking = http.client.HTTPConnection(httpx.URL(url).netloc.decode(), timeout=60)
    asking.putrequest("POST", "/gradio_api/upload")
    asking.putheader("content-type", "multipart/form-data; boundary=x")
    asking.putheader("content-length", str(10**10))
    asking.endheaders()
    reply = asking.getresponse()
    assert (reply.status, json.load(reply)["error"]) == (400, "The file is larger than 400 MB: save it smaller.")
    asking.close()
    for size, words in (((10_000, 6_000), "The image is too large"), ((8, 8), "The image is too small")):
        file = io.BytesIO()
        Image.new("1", size).save(file, "PNG")
        said, field = refused(url, "upload_picture", {"path": sent(url, file.getvalue()), **FILE})
        assert said.startswith(words) and field == "file"
    assert refused(url, "upload_picture", {"path": sent(url, b"no picture"), **FILE})[1] == "file"


def test_two_scripts_and_a_page_on_one_run_who_comes_second_is_told(served: tuple[str, Studio]) -> None:
    url, studio = served
    run = answer(url, "run_from_sample", sample="balloon")["run"]
    assert answer(url, "caption", run=run, text="A balloon.")["notices"] == {}
    version = answer(url, "show_run", run=run)["stages"][0]["version"]
    assert answer(url, "caption", run=run, text="A red balloon.", version=version)["notices"] == {}
    second = answer(url, "caption", run=run, text="A blue balloon.", version=version)
    assert "changed elsewhere in the meantime" in second["notices"]["caption"]
    assert answer(url, "show_run", run=run)["notices"] == second["notices"]
    typed = {"name": "caption", "fields": {"run": run, "text": "A green balloon.", "version": version}}
    page = of_page(url, "answer", {"run": run, "do": [typed]}).json()
    assert "changed elsewhere in the meantime" in page["parts"]["caption"]
    texts = [held.value.value.text for held in studio.workspace.runs.history(run, "caption")]
    assert {"A balloon.", "A red balloon.", "A blue balloon.", "A green balloon."} <= set(texts)


def test_who_watches_and_goes_away_is_let_go_and_the_job_goes_on(served: tuple[str, Studio]) -> None:
    url, studio = served
    runs = [text_run(studio), text_run(studio)]
    with held_drawing(studio) as generator:
        first, second = (answer(url, "generate", run=run)["job"]["job"] for run in runs)
        for job in (first, second):
            event = httpx.post(f"{url}gradio_api/call/v2/watch_job", json={"job": job}).json()["event_id"]
            with httpx.stream("GET", f"{url}gradio_api/call/watch_job/{event}") as stream:
                assert next(stream.iter_lines()) == "event: generating"
        until(lambda: not watchers())
        generator.let_all()
        until(lambda: not studio.jobs.active())
    assert [len(studio.workspace.runs.get(run).test_cases) for run in runs] == [4, 4]


def test_many_watchers_keep_nobody_out(served: tuple[str, Studio]) -> None:
    url, studio = served
    client = client_of(url)

    async def watch(asking: httpx.AsyncClient, job: int, begun: asyncio.Semaphore) -> str:
        reply = await asking.post("gradio_api/call/v2/watch_job", json={"job": job})
        last = ""
        async with asking.stream("GET", f"gradio_api/call/watch_job/{reply.json()['event_id']}") as stream:
            async for line in stream.aiter_lines():
                if line == "event: generating":
                    begun.release()
                last = line or last
        return last

    async def all_at_once(job: int) -> list[str]:
        begun = asyncio.Semaphore(0)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as asking:
            every = [asyncio.create_task(watch(asking, job, begun)) for _ in range(WATCHERS)]
            while watchers() < WATCHERS:
                await asyncio.wait_for(begun.acquire(), 300)
            # The page, a plain call, and a call in Gradio's queue.
            assert (await asking.get("")).status_code == 200
            assert (await asking.post("gradio_api/run/list_jobs")).json()["data"][0]["jobs"][0]["job"] == job
            assert (await asyncio.to_thread(client.predict, api_name="/list_jobs"))["jobs"]
            generator.let_all()
            return await asyncio.gather(*every)

    with held_drawing(studio) as generator:
        job = answer(url, "generate", run=text_run(studio))["job"]["job"]
        ends = asyncio.run(all_at_once(job))
    assert len(ends) == WATCHERS and all('"state": "done"' in end for end in ends)


def test_many_watchers_take_no_more_of_the_machine_than_few(served: tuple[str, Studio]) -> None:
    """A job reports a hundred steps a second. Each watcher hears of its end at once."""
    studio = served[1]
    over = threading.Event()

    def get_on(job: JobHandle) -> None:
        done = itertools.count()
        while not over.wait(0.01):
            job.progress(Progress("caption", next(done), 10**6))

    services, request = ui.scripts.endpoints.Services(studio), Request({"type": "http", "state": {"token": None}})
    job = studio.jobs.submit("a run", ("caption",), get_on)

    async def watch(heard: list[str]) -> None:
        async for facts in ui.scripts.endpoints.watching({"job": job}, request, services):
            heard.append(facts["state"])

    async def all_at_once() -> tuple[list[str], float]:
        heard, begun = list[str](), time.monotonic()
        every = [asyncio.create_task(watch(heard)) for _ in range(WATCHERS)]
        while len(heard) < 2 * WATCHERS:
            await asyncio.sleep(0.1)
        took = time.monotonic() - begun
        told = list(heard)
        over.set()
        await asyncio.gather(*every)
        assert heard.count("done") == WATCHERS
        return told, took

    try:
        told, took = asyncio.run(all_at_once())
    finally:
        over.set()
    assert len(told) <= 2 * WATCHERS + took * SAID_IN_A_SECOND  # each also gets the state at the start
    assert not services.watchers.total()


def test_a_token_watches_so_many_jobs_and_no_more(served: tuple[str, Studio]) -> None:
    url, studio = served
    token = {"authorization": f"Bearer {made_token(studio, 'watching').text}"}
    streams = list[Iterator[str]]()  # a generator that is dropped is closed
    with held_drawing(studio) as generator, contextlib.ExitStack() as open_ones:
        job = answer(url, "generate", run=text_run(studio))["job"]["job"]
        with httpx.Client(base_url=url, headers=token, timeout=60, limits=httpx.Limits(max_connections=None)) as asking:
            for _ in range(MOST_OF_A_TOKEN):
                event = asking.post("gradio_api/call/v2/watch_job", json={"job": job}).json()["event_id"]
                stream = open_ones.enter_context(asking.stream("GET", f"gradio_api/call/watch_job/{event}"))
                streams.append(stream.iter_lines())
                assert next(streams[-1]) == "event: generating"
            reply = asking.post("gradio_api/run/watch_job", json={"data": {"job": job}})
            assert "watches 20 jobs already" in told(reply, 403)[0]
            assert answer(url, "show_job", headers=token, job=job)["job"] == job
        generator.let_all()


def test_files_that_were_sent_or_fetched_are_removed(
    served: tuple[str, Studio], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are used, never used, or only partly uploaded, and files for download are removed with their
    folders.
    """
    url, studio = served
    folder = ui.scripts.uploads.uploaded(sent(url, picture(), "never used.png")).parent.parent
    run = answer(url, "upload_picture", {"path": sent(url, picture(), "used.png"), **FILE})["run"]
    broken_off(url, folder)
    case = made(studio)
    given = answer(url, "download_image", case=case)
    assert httpx.get(given["url"]).content == Path(given["path"]).read_bytes()
    assert len([file for file in folder.rglob("*") if file.is_file()]) >= 4
    monkeypatch.setattr(ui.scripts.uploads, "KEPT_SECONDS", -1.0)
    until(lambda: not list(folder.iterdir()))
    assert httpx.get(given["url"]).status_code == 403
    assert refused(url, "upload_picture", {"path": given["path"], **FILE})[1] == "file"
    assert call(url, "show_run", run=run).status_code == 200


def broken_off(url: str, folder: Path) -> None:
    """Break off an upload in the middle of a file."""
    before = len(list(folder.iterdir()))
    head = b"POST /gradio_api/upload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000\r\n"
    part = b'--x\r\ncontent-disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    with socket.create_connection((httpx.URL(url).host, int(httpx.URL(url).port or 0)), 60) as asking:
        asking.sendall(head + b"content-type: multipart/form-data; boundary=x\r\n\r\n" + part + b"y" * 50_000)
        until(lambda: len(list(folder.iterdir())) > before)


def drafted(url: str) -> str:
    """Create a study. Return its id."""
    return str(answer(url, "create_study", "Moods", "classification")["study"])


def made(studio: Studio) -> int:
    """Create a run with a test case. Return the test case's id."""
    run = text_run(studio)
    studio.commands.send("generate", {"run": run})
    until(lambda: not studio.jobs.active())
    return studio.workspace.runs.get(run).test_cases[0].id
