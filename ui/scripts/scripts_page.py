"""The lead's page of scripts: how one calls the studio, and the tokens that it shows instead of the password."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from core.errors import UserError
from core.tokens import Token
from services.commands import Command, Commands
from services.tokens import MakeToken, NewToken, ScriptTokens, WithdrawToken
from ui.addresses import studio_address
from ui.explore.parts import Tone, button, head_table, muted, pill
from ui.frame import page
from ui.markup import Child, Html, el
from ui.replies import FRESH
from ui.scripts.endpoints import endpoint_of, fields_of, offered, schema_of
from ui.security.guard import MCP
from ui.security.request_limits import answered
from ui.study.fields import card, field, number_input, select, text_input
from ui.study.words import when

PAGE = "/scripts"
_EXAMPLE = """from gradio_client import Client

studio = Client("{address}"{token})
run = studio.predict(sample="lighthouse", api_name="/run_from_sample")["run"]
job = studio.predict(run=run, api_name="/run_all")["job"]["job"]
for told in studio.submit(job=job, api_name="/watch_job"):
    print(told["stage"], told["note"])
print(studio.predict(run=run, api_name="/show_run")["gate"])"""


def add_scripts_page(app: FastAPI, commands: Commands, tokens: ScriptTokens, mcp: bool = False) -> None:
    """Add the page, and what it sends. The guard lets a lead alone in: a token opens neither. `mcp` as below."""

    @app.get(PAGE, include_in_schema=False)
    def show(request: Request) -> Response:
        signed_in, here = bool(request.state.signed_in), studio_address(request.url.scheme, request.url.netloc)
        return HTMLResponse(scripts_page(commands, tokens.all(), here, signed_in, mcp), headers=FRESH)

    @app.post(f"{PAGE}/{{name}}", include_in_schema=False)
    async def send(request: Request, name: str) -> Response:
        def act(data: dict[str, Any]) -> dict[str, Any]:
            if name == MakeToken.name:
                made: NewToken = commands.send(name, data)
                return {"parts": {"part-tokens": _tokens(tokens.all(), made)}}
            if name == WithdrawToken.name:
                commands.send(name, data)
                return {"parts": {"part-tokens": _tokens(tokens.all())}}
            raise UserError("There is no such thing to do. Please reload the page.")

        return await answered(request, act)


def scripts_page(commands: Commands, tokens: Sequence[Token], here: str, locked: bool, mcp: bool = False) -> str:
    """`here` is the address of the studio; `locked` says that a password is set, `mcp` that agents may call."""
    shown = ', headers={"Authorization": "Bearer TOKEN"}' if locked else ""
    call = card(
        None,
        "Call the studio from a script",
        el(
            "p",
            "Whatever can be done on a page has a name, and a script calls it by that: with gradio_client for Python, "
            "@gradio/client for JavaScript, or plain HTTP. It gets the same checks and the same sentences.",
        ),
        el("pre", el("code", _EXAMPLE.format(address=here, token=shown)), class_="code-block"),
        muted(
            "What is answered is plain data. A mistake comes back as one sentence, and the title of the error is the "
            "field that it belongs to. Work that takes time gives a job, which is watched, shown and cancelled by its "
            "number; it goes on when the script ends."
        ),
    )
    head = el("div", el("h1", "Scripts"), class_="study-head")
    parts = (call, _agents(here, locked, mcp), _tokens(tokens) if locked else _open(), _endpoints(commands))
    return page("Scripts", head, *parts, here="scripts", signed_in=locked, scripts=("scripts.js",))


def _agents(here: str, locked: bool, mcp: bool) -> Html:
    """Where an agent finds the tools."""
    if not mcp:
        words = "Agents cannot call this studio: start it with app.py --mcp, and its endpoints are MCP tools as well."
        return card(None, "Agents", muted(words), id="part-agents")
    address = f"{here.rstrip('/')}{MCP}/"
    header = " Its requests carry the header “Authorization: Bearer TOKEN”." if locked else ""
    return card(
        None,
        "Agents",
        el("p", "The endpoints are tools of MCP (streamable HTTP) as well. Give your agent this address:"),
        el("p", el("code", address, id="mcp-address", class_="link-text")),
        muted(f"The studio explains its stages to the agent that connects.{header}"),
        id="part-agents",
    )


def _open() -> Html:
    words = (
        "No password is set, so the studio opens on this machine only, and its scripts need no token. Set a password "
        "(app.py --set-password) to let scripts of other machines in."
    )
    return card(None, "Tokens", muted(words), id="part-tokens")


def _tokens(tokens: Sequence[Token], made: NewToken | None = None) -> Html:
    """The form, the token that was just made, and all that there are."""
    return card(
        None,
        "Tokens",
        muted("A script shows a token instead of the password. The log says under its name what it did."),
        _made(made) if made is not None else None,
        _form(),
        _table(tokens) if tokens else muted("There is none yet."),
        id="part-tokens",
    )


def _made(made: NewToken) -> Html:
    copy = button("Copy", look="p s", data_copy_from="#token-text", id="copy-token")
    return el(
        "div",
        el("p", f"The token “{made.token.name}” is shown this once: copy it now, and keep it as you keep a password."),
        el("p", el("code", made.text, id="token-text", class_="link-text")),
        copy,
        class_="notice stack",
        id="token-made",
        role="status",
    )


def _form() -> Html:
    may = select("reads_only", (("yes", "only look"), ("no", "look and change")), "yes")
    return el(
        "form",
        field("title", "Name", text_input("title", "", maxlength=80, placeholder="notebook"), {}),
        field("reads_only", "It may", may, {}),
        field("days", "It lasts", number_input("days", 30, "days"), {}),
        el("button", "Make a token", type="submit", class_="btn p", id="make-token"),
        id="token-form",
        class_="line-end",
        novalidate=True,
    )


def _table(tokens: Sequence[Token]) -> Html:
    columns = ("name", "may", "made", "ends", "", "")
    return el("div", head_table(columns, [_row(token) for token in tokens], class_="tokens"), class_="scroll")


def _row(token: Token) -> Html:
    words, tone = _state(token)
    withdraw = (
        el(
            "details",
            el("summary", "Withdraw …", class_="btn s q", id=f"withdraw-{token.id}"),
            el("span", "It stops at once, for good. ", class_="mut small"),
            button("Withdraw it", look="s bad", data_withdraw=token.id),
            class_="withdraw",
        )
        if words == "in use"
        else None
    )
    may = "only look" if token.reads_only else "look and change"
    cells: Sequence[Child] = (token.name, may, when(token.created), when(token.expires), pill(words, tone), withdraw)
    return el("tr", [el("td", cell) for cell in cells])


def _state(token: Token) -> tuple[str, Tone]:
    if token.withdrawn is not None:
        return f"withdrawn {when(token.withdrawn)}", "bad"
    return ("ended", "") if token.expires <= datetime.now(UTC) else ("in use", "ok")


def _endpoints(commands: Commands) -> Html:
    """Every endpoint; what only looks and what changes something apart."""
    known = offered(commands)
    groups = (
        ("They only look", [command for command in known if command.looks]),
        ("They change something", [command for command in known if not command.looks]),
    )
    lists = [[el("h3", words), [_endpoint(command) for command in group]] for words, group in groups]
    return card(None, "Endpoints", lists, id="part-endpoints")


def _endpoint(command: type[Command]) -> Html:
    schema, fields = schema_of(command), fields_of(command)
    rows = [
        el(
            "tr",
            el("td", el("code", name)),
            el("td", _kind(schema["properties"][name], schema)),
            el("td", "needed" if field.is_required() else f"else {field.get_default()!r}", class_="mut"),
            el("td", field.description or "", class_="mut"),
        )
        for name, field in fields.items()
    ]
    example = "".join(
        f"{name}={_example(name, schema['properties'][name], schema)}, "
        for name, field in fields.items()
        if field.is_required()
    )
    call = f'studio.predict({example}api_name="/{endpoint_of(command)}")'
    said = " ".join((command.__doc__ or "").split())
    return el(
        "details",
        el("summary", el("code", endpoint_of(command)), el("span", said, class_="mut small")),
        el("div", el("table", el("tbody", rows)), class_="scroll") if rows else None,
        el("pre", el("code", call), class_="code-block"),
        class_="endpoint",
        id=f"endpoint-{endpoint_of(command)}",
    )


def _kind(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """The type of a field with its bounds, in words."""
    if "$ref" in schema:
        held = whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        return "a file" if held["title"] == "FileData" else f"object with {', '.join(held['properties'])}"
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
    return " ".join([kind, *filter(None, bounds), f"of at most {longest} letters" if longest else ""]).strip()


def _example(name: str, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return 'handle_file("picture.png")' if _kind(schema, whole) == "a file" else "{}"
    if "enum" in schema:
        return repr(schema["enum"][0])
    by_kind = {"integer": "1", "boolean": "True", "array": "[]", "number": "0.5"}
    return name if name in ("run", "study") else by_kind.get(schema.get("type", ""), '"…"')
