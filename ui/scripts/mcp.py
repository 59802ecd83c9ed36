"""The endpoints as MCP tools for agents, in the server that Gradio mounts with `mcp_server=True`.

Gradio mounts the server and handles its transport and sessions. This module answers the requests, instead of Gradio's
own handlers. Gradio's handlers would call the studio over HTTP, at an address that the caller names (X-Forwarded-Host),
so a token could reach a stranger. If the studio has a password, these calls would fail for prompts and for streamed
results. Gradio's handlers would also occupy a thread while a job is watched, write results in Python's notation, not
say which field an error is about, and save a file before they check the token.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import mimetypes
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import gradio as gr
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from gradio.data_classes import FileData
from mcp import types
from PIL import Image

from core.errors import UserError
from core.version import version
from services.batches.running import PlanByScript
from services.commands import Command
from ui.addresses import studio_address
from ui.scripts import endpoints
from ui.scripts.endpoints import Do, DoAwaited, Plain, Services
from ui.scripts.long_requests import DownloadTestSet, ImportImages, Waiter
from ui.scripts.uploads import file_data, new_upload

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
"""File with instructions for agents about the stages."""
PROMPT = "walk_an_image"
WATCH_SECONDS = 45.0
"""Maximum seconds until an answer, since agents give up on a tool after a minute."""
LONGEST_SIDE = 1536
"""Maximum pixels of the longer side of a picture for an agent. Models reduce larger pictures anyway."""
MOST_TEXT = 200_000
"""Maximum bytes of a text file to be sent as part of an answer."""
_FILE = (
    "{} A data URL (data:image/png;base64,...) of up to 2.5 MB, or the path that a POST of the file to "
    "/gradio_api/upload (form field “files”) returned. Other paths and web addresses are refused."
)
_WATCHED = f" Waits {WATCH_SECONDS:g} seconds at most: call it again while “state” is waiting or running."
_WAITS: Mapping[type[Command], str] = {
    endpoints.WatchJob: _WATCHED,
    DownloadTestSet: f" Waits {WATCH_SECONDS:g} seconds at most: call it again while the answer has a “state” instead "
    "of an “address”.",
    ImportImages: f" Waits {WATCH_SECONDS:g} seconds at most for the number. If the number is 0, list_imports shows it "
    "later.",
    PlanByScript: f" Waits {WATCH_SECONDS:g} seconds at most: call it again with the same plan while “batch” is 0.",
}
_UPLOADED = "/gradio_api/file="


def serve_agents(page: gr.Blocks, services: Services) -> None:
    """Answer the requests of agents to the MCP server that Gradio has mounted with `page`."""
    mounted = page.mcp_server_obj
    assert mounted is not None, page.mcp_error
    # An answer is one JSON object, not a stream of events. Caddy and other proxies that use Go's library break off a
    # stream that begins before they have read the end of the request: one agent in ten got no answer.
    mounted.manager.json_response = True
    server: Server[Any, Request] = mounted.mcp_server
    server.name, server.version, server.instructions = "DILLEMA Studio", version(), GUIDE.read_text(encoding="utf-8")
    # Remove all of Gradio's handlers except the ping, including handlers that later versions may add.
    for kind in [known for known in server.request_handlers if known is not types.PingRequest]:
        del server.request_handlers[kind]
    known = {endpoints.endpoint_of(command): (command, do) for command, do in endpoints.answering(services.studio)}
    slow = {endpoints.endpoint_of(command): (command, do) for command, do in endpoints.awaited(services.studio)}
    tools = [tool_of(command) for command in endpoints.offered(services.studio)]

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        names = _request(server).query_params.get("tools", "")  # the same parameter as in Gradio
        return [tool for tool in tools if not names or tool.name in names.split(",")]

    @server.call_tool(validate_input=False)  # the command itself checks the values, with plainer messages
    async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            with endpoints.in_sentences(_request(server)):
                if name == endpoints.endpoint_of(endpoints.WatchJob):
                    return _plain(await _watch(arguments, _request(server), services))
                if name in slow:
                    return await _call_awaited(*slow[name], arguments, _request(server), services)
                if name not in known:
                    raise UserError(f"There is no tool {name[:80]!r}.")
                command, do = known[name]
                return await run_in_threadpool(_call, command, do, arguments, _request(server), services)
        except gr.Error as error:
            field = {} if error.title == endpoints.NO_FIELD else {"field": error.title}
            return _plain({"error": error.message, **field}, failed=True)

    @server.list_prompts()
    async def list_prompts() -> list[types.Prompt]:
        return [types.Prompt(name=PROMPT, description="How a picture becomes test cases: stages, gate, reviews.")]

    @server.get_prompt()
    async def get_prompt(name: str, _: Mapping[str, str] | None) -> types.GetPromptResult:
        if name != PROMPT:
            raise ValueError(f"There is no prompt {name[:80]!r}.")
        text = types.TextContent(type="text", text=GUIDE.read_text(encoding="utf-8"))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


def tool_of(command: type[Command]) -> types.Tool:
    """Return the description of an endpoint for agents."""
    schema = endpoints.schema_of(command)
    fields = endpoints.fields_of(command)
    properties = {name: dict(schema["properties"][name]) for name in fields}
    for name, field in fields.items():
        properties[name].pop("title", None)
        if field.annotation is FileData:
            properties[name] = {"type": "string", "description": _FILE.format(f"{field.description}.")}
    shaped: Plain = {"type": "object", "properties": properties, "additionalProperties": False}
    shaped["required"] = [name for name, field in fields.items() if field.is_required()]
    if "#/$defs/" in json.dumps(properties):
        shaped["$defs"] = schema["$defs"]
    description = " ".join((command.__doc__ or "").split())
    return types.Tool(
        name=endpoints.endpoint_of(command),
        description=description + _WAITS.get(command, ""),
        inputSchema=shaped,
        annotations=types.ToolAnnotations(
            readOnlyHint=command.looks,
            destructiveHint=not command.looks and not command.keeps,
            openWorldHint=False,
        ),
    )


def _request(server: Server[Any, Request]) -> Request:
    request = server.request_context.request
    assert request is not None  # requests over HTTP always have it
    return request


def _call(
    command: type[Command], do: Do, arguments: Mapping[str, Any], request: Request, services: Services
) -> types.CallToolResult:
    endpoints.let_in(command, request)  # before a file is saved
    with _files_of(command, arguments) as data:
        done = endpoints.perform(command, do, data, request, services.studio.tokens)
    return _result(done, request)


async def _call_awaited(
    command: type[Command], do: DoAwaited, arguments: Mapping[str, Any], request: Request, services: Services
) -> types.CallToolResult:
    """Perform slow work for an agent, like `_call`. If the agent stops waiting, its next call can wait again."""

    async def listens() -> bool:
        return True

    endpoints.let_in(command, request)
    with _files_of(command, arguments) as data:
        waiter = Waiter(listens, WATCH_SECONDS)
        done = await endpoints.perform_awaited(command, do, data, request, services.studio.tokens, waiter)
    return await run_in_threadpool(_result, done, request)


def _result(done: Plain, request: Request) -> types.CallToolResult:
    if done.get("meta") == {"_type": "gradio.FileData"}:
        return _file(Path(done["path"]), studio_address(request.url.scheme, request.url.netloc))
    return _plain(done)


async def _watch(arguments: Mapping[str, Any], request: Request, services: Services) -> Plain:
    """Return the state of a job at its end, or after `WATCH_SECONDS`. The job continues in any case."""
    end = time.monotonic() + WATCH_SECONDS
    async with aclosing(endpoints.watching(arguments, request, services)) as looks:
        async for facts in looks:
            known = facts
            if time.monotonic() >= end:
                break
    return known


def _plain(data: Plain, failed: bool = False) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(data, ensure_ascii=False))
    return types.CallToolResult(content=[text], structuredContent=data, isError=failed)


def _file(path: Path, address: str) -> types.CallToolResult:
    """Return name, type, size and address of a file. Add the content of a picture or a small text."""
    size, kind = path.stat().st_size, mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    facts: Plain = {"name": path.name, "kind": kind, "bytes": size, "address": f"{address}{_UPLOADED}{path}"}
    shown: list[types.ContentBlock] = []
    if kind.startswith("image/"):
        shown.append(types.ImageContent(type="image", data=_picture(path.read_bytes()), mimeType="image/png"))
    elif kind in ("text/csv", "application/json") and size <= MOST_TEXT:
        shown.append(types.TextContent(type="text", text=path.read_text(encoding="utf-8")))
    text = types.TextContent(type="text", text=json.dumps(facts, ensure_ascii=False))
    return types.CallToolResult(content=[*shown, text], structuredContent=facts)


def _picture(data: bytes) -> str:
    """Return a picture as PNG in base64. The run stored in it is removed, as it would double the size."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@contextmanager
def _files_of(command: type[Command], arguments: Mapping[str, Any]) -> Iterator[Plain]:
    """Yield the arguments of a call with its files as uploads. Uploads made from data URLs are removed at the end."""
    data, saved = dict(arguments), list[Path]()
    try:
        for name, field in endpoints.fields_of(command).items():
            if field.annotation is FileData and isinstance(text := data.get(name), str):
                if text.startswith("data:"):
                    saved.append(_save(text, name))
                    text = str(saved[-1])
                elif _UPLOADED in text:
                    text = unquote(text.partition(_UPLOADED)[2])
                data[name] = file_data(text)
        yield data
    finally:
        for file in saved:
            file.unlink()
            file.parent.rmdir()


def _save(text: str, name: str) -> Path:
    head, _, body = text.partition(",")
    kind, *options = head.removeprefix("data:").split(";")
    try:
        data = base64.b64decode(body, validate=True) if "base64" in options else b""
    except binascii.Error:
        data = b""
    if not data:
        words = "This is no data URL: give “data:image/png;base64,” followed by the file in base64."
        raise UserError(words, field=name)
    file = new_upload(f"picture{mimetypes.guess_extension(kind) or ''}")
    file.write_bytes(data)
    return file
