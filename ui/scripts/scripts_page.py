"""The page Scripts: how to call the studio, and access tokens, which scripts use instead of the password."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import FastAPI, Request

from core.tokens import Token
from services.commands import Command
from services.studio import Studio
from services.tokens import NewToken
from ui.addresses import studio_address
from ui.frame import page
from ui.markup import Html
from ui.replies import add_posted, page_at
from ui.scripts.endpoints import endpoint_of, fields_of, offered, schema_of
from ui.security.guard import MCP, SIGNED_IN
from ui.templating import render

PAGE = "/scripts"
_EXAMPLE = """from gradio_client import Client

studio = Client("{address}"{token})
run = studio.predict(sample="lighthouse", api_name="/run_from_sample")["run"]
job = studio.predict(run=run, api_name="/run_all")["job"]["job"]
for told in studio.submit(job=job, api_name="/watch_job"):
    print(told["stage"], told["note"])
print(studio.predict(run=run, api_name="/show_run")["gate"])"""


def add_scripts_page(app: FastAPI, studio: Studio, mcp: bool = False) -> None:
    """Add the page Scripts and its actions, which no token can use. `mcp` is True if agents can call the studio."""

    @page_at(app, PAGE, ("Explore", "/"))
    def show(request: Request) -> str:
        here = studio_address(request.url.scheme, request.url.netloc)
        locked = SIGNED_IN.get()  # a password is set
        shown = ', headers={"Authorization": "Bearer TOKEN"}' if locked else ""
        content = render(
            "scripts/scripts.html",
            example=_EXAMPLE.format(address=here, token=shown),
            locked=locked,
            mcp=mcp,
            mcp_address=f"{here.rstrip('/')}{MCP}/",
            tokens=_tokens(studio.tokens.all()),
            endpoints=[_endpoint(command) for command in offered(studio)],
        )
        return page("Scripts", content, here="scripts")

    def act(data: dict[str, Any], name: str) -> Mapping[str, Any]:
        done = studio.commands.send(name, data)
        return {"parts": {"part-tokens": _tokens(studio.tokens.all(), done if isinstance(done, NewToken) else None)}}

    for name in ("make-token", "withdraw-token"):
        add_posted(app, f"{PAGE}/{name}", partial(act, name=name))


def _tokens(tokens: Sequence[Token], made: NewToken | None = None) -> Html:
    """Return the form to make a token, the token just `made` (or None), and the list of all tokens."""
    return render("scripts/tokens.html", tokens=tokens, made=made, now=datetime.now(UTC))


def _endpoint(command: type[Command]) -> tuple[str, bool, str, list[tuple[str, str, str, str]], str]:
    """Return an endpoint's name, True if it only reads, its description, its fields, and an example call."""
    schema, fields, name = schema_of(command), fields_of(command), endpoint_of(command)
    kinds = schema["properties"]
    needs = {one: "needed" if field.is_required() else f"else {field.get_default()!r}" for one, field in fields.items()}
    rows = [(one, _kind(kinds[one], schema), needs[one], field.description or "") for one, field in fields.items()]
    needed = [one for one, field in fields.items() if field.is_required()]
    example = "".join(f"{one}={_example(one, kinds[one], schema)}, " for one in needed)
    about = " ".join((command.__doc__ or "").split())
    return name, command.looks, about, rows, f'studio.predict({example}api_name="/{name}")'


def _kind(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return the type of a field and its bounds in words."""
    if "$ref" in schema:
        definition = whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        return "a file" if definition["title"] == "FileData" else f"object with {', '.join(definition['properties'])}"
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_kind(one, whole) for one in schema["anyOf"])
    kind = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}.get(
        schema.get("type", ""), str(schema.get("type", "any value"))
    )
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = [f"from {least}" if least is not None else "", f"to {most:,}" if most is not None and most < 1e12 else ""]
    longest = schema.get("maxLength")
    return " ".join([kind, *filter(None, bounds), f"of at most {longest} characters" if longest else ""]).strip()


def _example(name: str, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return 'handle_file("picture.png")' if _kind(schema, whole) == "a file" else "{}"
    if "enum" in schema:
        return repr(schema["enum"][0])
    by_kind = {"integer": "1", "boolean": "True", "array": "[]", "number": "0.5"}
    return name if name in ("run", "study") else by_kind.get(schema.get("type", ""), '"…"')
