"""The tools for agents, called by the client of the package mcp over streamable HTTP, with and without a token.

The models are stand-ins, except in one test.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from gradio.utils import get_upload_folder
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from PIL import Image

from services.studio import Studio
from tests.support.called import callers, made_token, picture, shown
from tests.support.explorer import held_drawing, text_run
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from ui.scripts.endpoints import offered, watching
from ui.scripts.mcp import GUIDE, PROMPT
from ui.security.guard import MCP

pytestmark = pytest.mark.slow
PASSWORD = "a long password"
Served = tuple[str, Studio]
Work = Callable[[ClientSession], Coroutine[Any, Any, Any]]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("open")
    with serving_here(folder / "workspace", ScriptedModels(), mcp=True) as there:
        yield there


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("locked")
    with serving_here(folder / "workspace", ScriptedModels(), PASSWORD, mcp=True) as there:
        yield there


@pytest.fixture(scope="module")
def tokens(locked: Served) -> dict[str, str]:
    return {name: made_token(locked[1], name, name == "reading").text for name in ("full", "reading")}


@asynccontextmanager
async def agent(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[ClientSession]:
    """Open a session of an MCP client."""
    async with (
        httpx.AsyncClient(headers=headers, follow_redirects=True, timeout=60) as http,
        streamable_http_client(f"{url.rstrip('/')}{MCP}/", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def asked(url: str, work: Work, headers: dict[str, str] | None = None) -> Any:
    """Run `work` with a session of its own. Return its result."""

    async def whole() -> Any:
        async with agent(url, headers) as session:
            return await work(session)

    return anyio.run(whole)


async def call(session: ClientSession, name: str, **given: Any) -> Any:
    """Call a tool. Return its structured answer, which must be no error and must equal its text."""
    result = await session.call_tool(name, given)
    text = result.content[-1]
    assert isinstance(text, types.TextContent) and not result.isError, result
    assert json.loads(text.text) == result.structuredContent
    return result.structuredContent


def told(url: str, name: str, headers: dict[str, str] | None = None, **given: Any) -> Any:
    return asked(url, lambda session: call(session, name, **given), headers)


def refused(url: str, name: str, headers: dict[str, str] | None = None, **given: Any) -> tuple[str, str]:
    """Return the sentence and the field of a refused call."""

    async def work(session: ClientSession) -> Any:
        result = await session.call_tool(name, given)
        assert result.isError, result
        return result.structuredContent

    said = asked(url, work, headers)
    assert said["error"].endswith(".") and "\n" not in said["error"]
    return said["error"], said.get("field", "")


async def finish(session: ClientSession, begun: dict[str, Any]) -> None:
    ended = await call(session, "watch_job", job=begun["job"]["job"])
    assert ended["state"] == "done", ended


def seen(result: types.CallToolResult) -> Image.Image:
    """Return the picture in a tool's answer."""
    shows = result.content[0]
    assert isinstance(shows, types.ImageContent) and shows.mimeType == "image/png"
    return Image.open(io.BytesIO(base64.b64decode(shows.data)))


def data_url(size: tuple[int, int] = (64, 48)) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture(size)).decode()}"


async def to_accepted(session: ClientSession, file: str, captions: int, label: str = "bird") -> str:
    """Go from a picture to accepted images, and look at each. Return the run."""
    run = (await call(session, "upload_picture", file=file))["run"]
    await call(session, "task", run=run, kind="classification", label=label)
    await call(session, "setting", run=run, setting="counterfactuals.captions", value=captions)
    await finish(session, await call(session, "run_all", run=run))
    source = seen(await session.call_tool("download_source", {"run": run}))
    await call(session, "setting", run=run, setting="generation.steps", value=4)
    gate = (await call(session, "show_run", run=run))["gate"]
    assert gate["closed"] == "" and len(gate["images"]) == captions
    await finish(session, await call(session, "generate", run=run, shown=gate["shown"]))
    images = (await call(session, "list_images", run=run))["images"]
    for image in images:
        assert seen(await session.call_tool("download_image", {"case": image["case"]})).size == source.size
        await call(session, "review", run=run, case=image["case"], verdict="accepted")
    assert (await call(session, "show_run", run=run))["accepted"] == len(images) == captions
    return str(run)


# Descriptions for agents


def test_every_endpoint_is_a_tool_with_its_words_types_and_bounds(served: Served) -> None:
    url, studio = served
    tools = {tool.name: tool for tool in asked(url, lambda session: session.list_tools()).tools}
    endpoints = httpx.get(f"{url}gradio_api/info").json()["named_endpoints"]
    assert {f"/{name}" for name in tools} == set(endpoints)
    for command in offered(studio):
        tool = tools[command.name.replace("-", "_")]
        assert tool.description and tool.annotations.readOnlyHint == command.looks
        for name, field in tool.inputSchema["properties"].items():
            assert field["description"], (tool.name, name)
        assert "$ref" not in json.dumps(tool.inputSchema) or "$defs" in tool.inputSchema
    limit = tools["list_runs"].inputSchema["properties"]["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 200, 50)
    assert "weather" in tools["keyword_add"].inputSchema["properties"]["edit_type"]["enum"]
    assert tools["keyword_add"].inputSchema["required"] == ["run", "new", "edit_type"]
    may_lose = {name for name, tool in tools.items() if tool.annotations.destructiveHint}
    assert {"delete_draft", "close_study", "delete_test_set_draft", "remove_example"} <= may_lose
    assert not {"delete_run", "upload_picture", "add_to_test_set", "make_example", "stop_example"} & may_lose
    picture = tools["upload_picture"].inputSchema["properties"]["file"]
    assert picture["type"] == "string" and "data:image/png;base64" in picture["description"]
    drafts = {"delete_draft", "draft_test_set", "delete_test_set_draft", "draft_evaluation_study"}
    assert {name for name, tool in tools.items() if "token" in name or "draft" in name} == drafts


def test_the_guide_names_tools_that_there_are(served: Served) -> None:
    url, _ = served

    async def work(session: ClientSession) -> Any:
        (prompt,) = (await session.list_prompts()).prompts
        assert prompt.name == PROMPT
        words = (await session.get_prompt(PROMPT)).messages[0].content
        assert isinstance(words, types.TextContent)
        return words.text, await session.list_tools()

    text, listed = asked(url, work)
    assert text == GUIDE.read_text(encoding="utf-8")
    names = {tool.name for tool in listed.tools}
    fields = {name for tool in listed.tools for name in tool.inputSchema["properties"]}
    answers = {"gate", "closed", "shown", "state", "next", "error", "field", "job"}
    upload = {"data:image/png;base64,...", "/gradio_api/upload", "files"}
    for word in text.split("`")[1::2]:
        begins = word.removesuffix("*")
        assert word in names | fields | answers | upload or any(name.startswith(begins) for name in names), word

    reply = httpx.post(f"{url}gradio_api/mcp/", json=INITIALIZE, headers=ACCEPT).text
    said = json.loads(reply)["result"]
    assert (said["instructions"], said["serverInfo"]["name"]) == (text, "DILLEMA Studio")


def test_an_agent_may_ask_for_a_few_tools(served: Served) -> None:
    async def listed() -> list[str]:
        address = f"{served[0]}gradio_api/mcp/?tools=show_run,review"
        async with (
            streamable_http_client(address) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return [tool.name for tool in (await session.list_tools()).tools]

    assert set(anyio.run(listed)) == {"show_run", "review"}


# Work of an agent


def test_an_agent_takes_a_picture_to_accepted_images(served: Served) -> None:
    url, studio = served
    run = asked(url, lambda session: to_accepted(session, data_url(), 2))
    (held,) = (one for one in studio.runs.latest() if one.id == run)
    assert held.accepted == held.test_cases == 2
    assert not list(Path(get_upload_folder()).rglob("picture.*"))


def test_an_upload_by_its_path_or_address_and_no_other_file(served: Served, tmp_path: Path) -> None:
    url, _ = served
    (path,) = httpx.post(f"{url}gradio_api/upload", files={"files": ("my bird.png", picture())}).json()
    first = told(url, "upload_picture", file=path)["run"]
    assert told(url, "upload_picture", file=f"{url}gradio_api/file={path}")["run"] != first
    (tmp_path / "lying about.png").write_bytes(picture())
    for other in (str(tmp_path / "lying about.png"), "http://127.0.0.1:1/x.png", "../x.png", "/etc/passwd", ""):
        assert refused(url, "upload_picture", file=other) == ("There is no such upload: send the file first.", "file")
    for broken in ("data:image/png;base64,#", "data:image/png,abc", "data:", "data:;base64,"):
        assert refused(url, "upload_picture", file=broken)[1] == "file"
    assert "too small" in refused(url, "upload_picture", file=data_url((8, 8)))[0]


def test_a_file_lies_where_the_answer_says(served: Served) -> None:
    url, studio = served
    run = text_run(studio)
    said = told(url, "download_source", run=run)
    assert said["bytes"] == len(httpx.get(said["address"]).content)


@pytest.mark.parametrize(
    ("name", "given", "sentence", "field"),
    [
        ("show_run", {"run": "nope"}, "This workspace has no run", "run"),
        ("show_run", {}, "“run” is missing", "run"),
        ("show_run", {"run": "x", "nope": 1}, "“nope” is not valid", "nope"),
        ("list_runs", {"limit": 500}, "“limit” is not valid", "limit"),
        ("list_runs", {"find": ["x"]}, "“find” is not valid", "find"),
        ("show_job", {"job": 10**9}, "There is no job", "job"),
        ("watch_job", {"job": 10**9}, "There is no job", "job"),
        ("watch_job", {"job": "one"}, "“job” is not valid", "job"),
        ("upload_picture", {"file": 5}, "“file” is not valid", "file"),
        ("make_token", {}, "There is no tool 'make_token'", ""),
        ("predict", {}, "There is no tool 'predict'", ""),
    ],
)
def test_a_mistake_is_told_in_one_sentence_with_its_field(
    served: Served, name: str, given: dict[str, Any], sentence: str, field: str
) -> None:
    said, at = refused(served[0], name, **given)
    assert said.startswith(sentence) and at == field


def after_the_first_look(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` in the server after `watch_job` has reported its job for the first time."""

    async def watched(*given: Any) -> AsyncIterator[Any]:
        async with aclosing(watching(*given)) as looks:
            async for facts in looks:
                act()
                yield facts

    monkeypatch.setattr("ui.scripts.endpoints.watching", watched)


def test_an_agent_that_goes_away_leaves_the_job_at_work(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another agent cancels the next job, and sees the end of the first."""
    url, studio = served
    runs = [text_run(studio), text_run(studio)]
    looked = threading.Event()

    async def watch_a_little(session: ClientSession) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call_tool, "watch_job", {"job": first})
            assert await anyio.to_thread.run_sync(looked.wait, 60)
            tasks.cancel_scope.cancel()

    with held_drawing(studio) as generator:
        first, second = (told(url, "generate", run=run)["job"]["job"] for run in runs)
        with monkeypatch.context() as patch:
            after_the_first_look(patch, looked.set)
            asked(url, watch_a_little)
        assert [job["job"] for job in told(url, "list_jobs")["jobs"]] == [first, second]
        told(url, "queue_cancel", job=second)
        assert told(url, "show_job", job=second)["state"] == "cancelled"
        generator.let_all()
        assert told(url, "watch_job", job=first)["state"] == "done"
    assert [len(told(url, "list_images", run=run)["images"]) for run in runs] == [4, 0]


def test_many_that_watch_keep_nobody_out(served: Served) -> None:
    """More calls than there are threads wait for the end of the job, and other calls are answered in that time."""
    url, studio = served
    run = text_run(studio)

    async def watch_all() -> list[Any]:
        ends: list[Any] = []

        async def watch() -> None:
            async with agent(url) as session:
                ends.append(await call(session, "watch_job", job=job))

        async with anyio.create_task_group() as watchers:
            for _ in range(42):
                watchers.start_soon(watch)
            async with agent(url) as session:
                while (await call(session, "show_job", job=job))["state"] != "running":
                    pass
            generator.let_all()
        return ends

    with held_drawing(studio) as generator:
        job = told(url, "generate", run=run)["job"]["job"]
        assert [end["state"] for end in anyio.run(watch_all)] == ["done"] * 42


def test_watching_ends_before_an_agent_gives_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    url, studio = served
    monkeypatch.setattr("ui.scripts.mcp.WATCH_SECONDS", 0.3)
    run = text_run(studio)
    with held_drawing(studio) as generator:
        job = told(url, "generate", run=run)["job"]["job"]
        assert told(url, "watch_job", job=job)["state"] == "running"
        generator.let_all()
        until(lambda: told(url, "watch_job", job=job)["state"] == "done")


# Permissions


async def refuse(session: ClientSession, every: int) -> dict[str, tuple[bool, str]]:
    """Call one tool out of `every` with a field that no tool accepts, so that nothing is done. Return for each tool
    whether it only reads, and its answer.
    """
    said = {}
    for tool in (await session.list_tools()).tools[::every]:
        result = await session.call_tool(tool.name, {"nothing": "such"})
        assert result.isError and result.structuredContent and tool.annotations
        said[tool.name] = (bool(tool.annotations.readOnlyHint), result.structuredContent["error"])
    return said


@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_every_role_and_what_it_may(locked: Served, tokens: dict[str, str], share: int) -> None:
    """A reading token is tried on every tool. Other roles may use all tools, and are tried on one out of `share`."""
    url, studio = locked
    for role, headers in callers(studio, **tokens).items():
        reply = httpx.post(f"{url}gradio_api/mcp/", json=INITIALIZE, headers={**headers, **ACCEPT})
        if role not in ("reading", "full", "lead"):
            assert reply.status_code == 401, role
            continue
        assert reply.status_code == 200, role
        every = 1 if role == "reading" else share
        refusals = asked(url, lambda session, every=every: refuse(session, every), headers)  # type: ignore[misc]
        assert len(refusals) > 10
        for name, (looks, said) in refusals.items():
            assert ("only reads" in said) == (role == "reading" and not looks), (role, name)
        assert asked(url, lambda session: session.get_prompt(PROMPT), headers).messages
    assert not studio.workspace.runs.search(1)


def test_a_token_takes_a_picture_to_an_accepted_image_and_is_named_in_the_log(
    locked: Served, tokens: dict[str, str]
) -> None:
    url, studio = locked
    run = asked(url, lambda session: to_accepted(session, data_url(), 1), shown(tokens["full"]))
    lines = [entry.detail for entry in studio.workspace.studies.log() if entry.event == "script"]
    assert "full: upload-picture" in lines and any(line.startswith(f"full: review run {run} case") for line in lines)
    assert told(url, "show_run", shown(tokens["reading"]), run=run)["accepted"] == 1


def test_a_token_that_only_looks_leaves_no_file(locked: Served, tokens: dict[str, str]) -> None:
    def files() -> int:
        return sum(path.is_file() for path in Path(get_upload_folder()).rglob("*"))

    before = files()
    assert "only reads" in refused(locked[0], "upload_picture", shown(tokens["reading"]), file=data_url())[0]
    assert files() == before


def test_a_token_that_is_withdrawn_while_it_watches_leaves_the_job_at_work(
    locked: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, studio = locked
    made = made_token(studio, "watcher")
    run = text_run(studio)

    after_the_first_look(monkeypatch, lambda: studio.commands.send("withdraw-token", {"token": made.token.id}))
    with held_drawing(studio) as generator:
        job = told(url, "generate", shown(made.text), run=run)["job"]["job"]
        ended = asked(url, lambda session: session.call_tool("watch_job", {"job": job}), shown(made.text))
        assert ended.isError and "continues, but is not watched" in ended.structuredContent["error"]
        generator.let_all()
        until(lambda: not studio.jobs.active())
    assert len(studio.workspace.runs.get(run).test_cases) == 4
    reply = httpx.post(f"{url}gradio_api/mcp/", json=INITIALIZE, headers={**shown(made.text), **ACCEPT})
    assert reply.status_code == 401


def test_other_sites_and_other_names_of_this_machine_are_refused(served: Served) -> None:
    for headers in (
        {"host": "studio.example"},
        {"origin": "http://example.com"},
        {"sec-fetch-site": "cross-site"},
        {"x-forwarded-host": "example.com"},
    ):
        reply = httpx.post(f"{served[0]}gradio_api/mcp/", json=INITIALIZE, headers={**headers, **ACCEPT})
        assert reply.status_code == 403, headers


def test_the_studio_calls_no_host_that_a_caller_names(locked: Served, tokens: dict[str, str]) -> None:
    """Gradio's own code would call that host, with the token of the next caller."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        named = f"127.0.0.1:{listening.getsockname()[1]}"
        headers = {**shown(tokens["full"]), "x-forwarded-host": named}
        assert refused(locked[0], "watch_job", headers, job=10**9)[1] == "job"
        assert asked(locked[0], lambda session: session.get_prompt(PROMPT), headers).messages
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("path", ["sse", "messages/?session_id=x", "schema", "http", "x/gradio_api/mcp"])
def test_nothing_else_of_gradios_server_is_open(
    served: Served, locked: Served, tokens: dict[str, str], path: str
) -> None:
    for url, headers in ((served[0], {}), (locked[0], shown(tokens["full"]))):
        for method in ("GET", "POST"):
            reply = httpx.request(method, f"{url}gradio_api/mcp/{path}", headers={**headers, **ACCEPT})
            assert reply.status_code == 404, (method, url)
        for method in ("GET", "DELETE", "PUT"):
            assert httpx.request(method, f"{url}gradio_api/mcp/", headers=headers).status_code == 405


def test_a_large_message_is_refused_before_it_is_read(served: Served) -> None:
    huge = {**INITIALIZE, "params": {"x": "x" * 5_000_000}}
    reply = httpx.post(f"{served[0]}gradio_api/mcp/", json=huge, headers=ACCEPT)
    assert 400 <= reply.status_code < 500


def test_the_page_of_scripts_says_where_agents_go(served: Served) -> None:
    assert f"{served[0].rstrip('/')}{MCP}/" in httpx.get(f"{served[0]}scripts").text
