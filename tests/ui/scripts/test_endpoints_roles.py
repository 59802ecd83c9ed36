"""Permissions with a password: every endpoint for every role, by every HTTP method and every path of Gradio."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from gradio_client.exceptions import AppError

from services.commands import Command, Missing
from services.studio import Studio
from tests.support.annotating import running
from tests.support.called import call, callers, client_of, made_token, picture, sent, shown
from tests.support.explorer import held_drawing, text_run
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from ui.scripts.endpoints import OF_PAGES, endpoint_of, fields_of, offered
from ui.security.guard import COOKIE

pytestmark = pytest.mark.slow
PASSWORD = "a long password"
OUTSIDE = ("nobody", "a wrong token", "a withdrawn token", "an ended token", "annotator", "annotator with our cookie")
"""Roles that may use no endpoint."""
INSIDE = ("reading", "full", "lead")
METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW")
"""HTTP methods that call no endpoint."""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("locked") / "workspace", ScriptedModels(), PASSWORD) as there:
        yield there


@pytest.fixture(scope="module")
def tokens(locked: tuple[str, Studio]) -> dict[str, str]:
    """Texts of the tokens by name."""
    studio, known = locked[1], {}
    for name, reads in (("full", False), ("reading", True), ("withdrawn", False), ("ended", False)):
        made = made_token(studio, name, reads)
        known[name] = made.text
        if name == "withdrawn":
            studio.commands.send("withdraw-token", {"token": made.token.id})
        if name == "ended":
            with sqlite3.connect(studio.workspace.folder / "studio.db") as database:
                database.execute("UPDATE tokens SET expires = ? WHERE name = ?", [made.token.created.isoformat(), name])
    return known


@pytest.fixture(scope="module")
def roles(locked: tuple[str, Studio], tokens: dict[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Headers that each role sends with every request."""
    over = {f"{how} token": shown(tokens[name]) for how, name in (("a withdrawn", "withdrawn"), ("an ended", "ended"))}
    return callers(locked[1], tokens["full"], tokens["reading"]) | over


@dataclass
class Reply:
    """Status and body of a response."""

    status: int
    body: bytes

    @property
    def error(self) -> str:
        """Return the sentence of a refusal, "" for any other reply."""
        return str(json.loads(self.body).get("error", "")) if self.body else ""


class Asking:
    """A caller with one connection."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._connection = http.client.HTTPConnection(httpx.URL(url).netloc.decode(), timeout=60)
        self._headers = {**headers, "content-type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, self._headers)
            reply = self._connection.getresponse()
        except ConnectionError:  # a server closes a connection after some idle seconds
            self._connection.close()
            self._connection.request(method, path, data, self._headers)
            reply = self._connection.getresponse()
        return Reply(reply.status, reply.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def asking(locked: tuple[str, Studio], roles: Mapping[str, Mapping[str, str]]) -> Iterator[Mapping[str, Asking]]:
    callers = {role: Asking(locked[0], headers) for role, headers in roles.items()}
    yield callers
    for caller in callers.values():
        caller.close()


@pytest.fixture(scope="module")
def numbers(locked: tuple[str, Studio], roles: Mapping[str, Mapping[str, str]]) -> Mapping[str, int]:
    """Gradio's function number of each endpoint."""
    config = httpx.get(f"{locked[0]}config", headers=roles["lead"]).json()
    known = {each["api_name"]: each["id"] for each in config["dependencies"]}
    return {endpoint_of(command): known[endpoint_of(command)] for command in offered(locked[1])}


def ways_in(command: type[Command], number: int) -> Mapping[str, Any]:
    """Return the path and body of every way to call a command, with values that no command accepts."""
    name, named = endpoint_of(command), {field: {"no": "such"} for field in fields_of(command)}
    data = list(named.values())
    return {
        f"/gradio_api/run/{name}": {"data": data},
        f"/gradio_api/api/{name}/": {"data": named},
        f"/gradio_api/call/{name}": {"data": data},
        f"/gradio_api/call/v2/{name}": named,
        "/gradio_api/queue/join": {"data": data, "fn_index": number, "session_hash": name},
        "/gradio_api/run/predict": {"data": data, "fn_index": number},
        "/gradio_api/run/list_jobs?": {"data": data, "fn_index": number, "batched": True, "event_id": "x"},
    }


@pytest.mark.parametrize("all_outside", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_every_endpoint_for_every_role(
    locked: tuple[str, Studio], asking: Mapping[str, Asking], numbers: Mapping[str, int], all_outside: bool
) -> None:
    """Each role uses the usual path and one method that calls nothing. Outsiders take turns, or all come with
    `all_outside`. The next test tries all outsiders, paths and methods.
    """
    wrong, others = list[object](), OUTSIDE[1:]
    for place, command in enumerate(offered(locked[1])):
        path, method = f"/gradio_api/run/{endpoint_of(command)}", METHODS[place % len(METHODS)]
        outside = OUTSIDE if all_outside else ("nobody", others[place % len(others)])
        roles = (*outside, *INSIDE)
        other = roles[place % len(roles)]
        reply = asking[other].ask(method, path)
        if reply.status != (401 if other in OUTSIDE else 405):
            wrong.append((other, method, path, reply))
        for role in roles:
            if role in ("full", "lead") and not fields_of(command):
                continue  # the call has no field that could be refused
            reply = asking[role].ask("POST", path, {"data": [{"no": "such"} for _ in fields_of(command)]})
            if role in OUTSIDE:
                right = reply.status == 401
            elif role == "reading" and not command.looks:
                right = reply.status == 403 and "only reads" in reply.error
            else:
                right = reply.status == (400 if fields_of(command) else 200) and "only reads" not in reply.error
            if not right:
                wrong.append((role, "POST", path, reply))
    assert not wrong


@pytest.mark.parametrize("known_as", ["show-run", "rename"])
def test_every_way_in_for_every_role(
    locked: tuple[str, Studio], asking: Mapping[str, Asking], numbers: Mapping[str, int], known_as: str
) -> None:
    """Each path leads to a command that reads and to one that changes something."""
    command = locked[1].commands.known()[known_as]
    name, wrong = endpoint_of(command), list[object]()
    for role in OUTSIDE:
        tries = [("POST", path, body) for path, body in ways_in(command, numbers[name]).items()]
        tries += [(method, f"/gradio_api/run/{name}", None) for method in METHODS]
        tries += [("GET", f"/gradio_api/call/{name}/x", None)]
        for method, path, body in tries:
            reply = asking[role].ask(method, path, body)
            if reply.status != 401:
                wrong.append((role, method, path, reply))
    for role in INSIDE:
        for path, body in ways_in(command, numbers[name]).items():
            if path.endswith("?"):
                continue  # the event belongs to another endpoint
            reply = asking[role].ask("POST", path, body)
            error = reply.error if "/run/" in path or "/api/" in path else _streamed(asking[role], path, name, reply)
            if ("only reads" in error) is not (role == "reading" and not command.looks):
                wrong.append((role, path, error))
        for method in METHODS:
            reply = asking[role].ask(method, f"/gradio_api/run/{name}")
            if reply.status != 405:
                wrong.append((role, method, reply))
    assert not wrong


def _streamed(caller: Asking, path: str, name: str, reply: Reply) -> str:
    """Return the error at the end of an event stream."""
    assert reply.status == 200, reply
    event = json.loads(reply.body)["event_id"]
    asked = f"/gradio_api/call/{name}/{event}" if "call" in path else f"/gradio_api/queue/data?session_hash={name}"
    return caller.ask("GET", asked).body.decode()


OF_EVALUATIONS: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
    "list-evaluation-subjects": (True, {}),
    "list-models-under-test": (True, {"filter": "kind=classification"}),
    "begin-predictions": (False, {"filter": "kind=classification"}),
    "cancel-predictions": (False, {"work": 1}),
    "show-predictions": (True, {"work": 1}),
    "show-evaluation": (True, {"filter": "kind=classification"}),
    "compare-methods": (True, {"filter": "kind=classification"}),
    "make-control-set": (False, {"filter": "kind=classification"}),
    "cancel-control-set": (False, {"work": 1}),
    "show-control-set": (True, {"work": 1}),
    "rank-test-cases": (True, {"filter": "kind=classification", "most": 5}),
    "show-likeness": (True, {"filter": "kind=classification"}),
    "begin-likeness": (False, {"filter": "kind=classification"}),
    "cancel-likeness": (False, {"work": 1}),
    "show-factors": (True, {"filter": "kind=classification"}),
    "show-focus": (True, {"filter": "kind=classification"}),
    "begin-focus": (False, {"filter": "kind=classification"}),
    "cancel-focus": (False, {"work": 1}),
    "begin-evidence": (False, {"version": 1}),
    "show-evidence": (True, {"work": 1}),
    "cancel-evidence": (False, {"work": 1}),
    "begin-search": (False, {"batch": 1}),
    "show-search": (True, {"batch": 1}),
    "ask-search": (False, {"batch": 1, "question": "birds at night"}),
    "forget-question": (False, {"batch": 1, "question": "birds at night"}),
    "propose-alternatives": (False, {"batch": 1, "cell": "a cell"}),
    "add-alternative": (False, {"batch": 1, "cell": "a cell", "alternative": "hazy"}),
    "foretell-faults": (True, {"filter": "kind=classification", "runs": ["a-run"]}),
    "begin-retraining": (False, {"filter": "kind=classification", "seeds": 1, "updates": 1}),
    "cancel-retraining": (False, {"work": 1}),
    "show-retraining": (True, {"filter": "kind=classification"}),
    "draft-evaluation-study": (False, {"filter": "kind=classification", "judged": 20}),
    "score-images": (False, {}),
    "check-agreement": (True, {}),
}
"""Each command of evaluations: whether it only reads, and valid fields."""


def test_evaluations_are_looked_at_by_who_may_look_and_begun_by_who_may_change_things(
    locked: tuple[str, Studio], asking: Mapping[str, Asking]
) -> None:
    studio = locked[1]
    known = studio.commands.known()
    named = {name for name, one in known.items() if one.__module__.startswith("services.evaluation.")}
    assert named == set(OF_EVALUATIONS), "say of a new command who may send it"
    wrong = []
    for name, (looks, fields) in OF_EVALUATIONS.items():
        command = known[name]
        assert command.looks is looks and command in offered(studio), name
        path = f"/gradio_api/run/{endpoint_of(command)}"
        for role in (*OUTSIDE, "reading"):
            reply = asking[role].ask("POST", path, {"data": fields})
            refused = 401 if role in OUTSIDE else 403
            if (reply.status == refused) is not (role in OUTSIDE or not looks):
                wrong.append((role, name, reply))
    assert not wrong
    assert studio.workspace.studies.all() == () and studio.workspace.scores.latest() == ()
    with pytest.raises(Missing):
        studio.evaluations.work.view(1)  # no work was begun
    with pytest.raises(Missing):
        studio.retrainings.work.view(1)
    for name, (_, fields) in OF_EVALUATIONS.items():
        for role in ("full", "lead"):
            reply = asking[role].ask("POST", f"/gradio_api/run/{endpoint_of(known[name])}", {"data": fields})
            if reply.status not in (200, 400, 404):  # the workspace is still empty
                wrong.append((role, name, reply))
    assert not wrong


A_FILE = "/gradio_api/file={file}"
# Other addresses: method, path, and the status for a reading token, a full token and the lead. Others get 401.
PLACES: tuple[tuple[str, str, tuple[int, int, int]], ...] = (
    ("GET", "/config", (200, 200, 200)),
    ("GET", "/gradio_api/info", (200, 200, 200)),
    ("GET", "/gradio_api/openapi.json", (200, 200, 200)),
    ("GET", "/gradio_api/startup-events", (200, 200, 200)),
    ("GET", "/gradio_api/queue/status", (200, 200, 200)),
    ("GET", A_FILE, (200, 200, 200)),
    ("HEAD", A_FILE, (200, 200, 200)),
    ("GET", "/gradio_api/file=/etc/passwd", (403, 403, 403)),
    ("GET", "/gradio_api/file={folder}/studio.db", (403, 403, 403)),
    ("GET", A_FILE + "/../../../../../../etc/passwd", (403, 403, 403)),
    ("GET", "/gradio_api/file=..%2f..%2fstudio.db", (403, 403, 403)),
    ("GET", "/gradio_api/file=file%3A%2F%2F/etc/passwd", (403, 403, 403)),
    ("POST", "/gradio_api/stream/x", (403, 403, 422)),
    ("GET", "/gradio_api/stream/x/1/1/playlist-file", (403, 403, 404)),
    ("POST", "/gradio_api/component_server", (403, 403, 400)),
    ("POST", "/gradio_api/component_server/", (403, 403, 400)),
    ("GET", "/gradio_api/component_server", (403, 403, 405)),
    # Addresses that nobody needs
    ("GET", "/gradio_api/file=http://127.0.0.1:1/x", (403, 403, 404)),
    ("GET", "/gradio_api/file=HTTPS://example.org/x", (403, 403, 404)),
    ("GET", "/gradio_api/file/http://example.org/x", (403, 403, 404)),
    ("GET", "/gradio_api/proxy=http://127.0.0.1:1/x", (403, 403, 404)),
    ("POST", "/gradio_api/vibe-edit", (403, 403, 404)),
    ("POST", "/gradio_api/process_recording", (403, 403, 404)),
    ("GET", "/gradio_api/deep_link?session_hash=x", (403, 403, 404)),
    ("GET", "/gradio_api/dev/reload", (403, 403, 404)),
    ("GET", "/monitoring", (403, 403, 404)),
    # Pages
    ("GET", "/", (403, 403, 200)),
    ("GET", "/endpoints", (403, 403, 200)),
    ("GET", "/scripts", (403, 403, 200)),
    ("POST", "/scripts/make-token", (403, 403, 403)),
    ("GET", "/study/", (403, 403, 200)),
    ("GET", "/curate/", (403, 403, 200)),
    ("GET", "/curate/api/cells", (403, 403, 200)),
    ("GET", "/curate/api/totals?view=colour%3Dred", (403, 403, 400)),
    ("POST", "/curate/api/decide", (403, 403, 403)),
    ("POST", "/curate/api/score-images", (403, 403, 403)),
    ("POST", "/curate/api/judge-images", (403, 403, 403)),
    ("POST", "/curate/api/stop-judging", (403, 403, 403)),
    ("GET", "/evaluate/", (403, 403, 200)),
    ("GET", "/evaluate/?version=1", (403, 403, 404)),
    ("GET", "/evaluate/api/state?version=1", (403, 403, 400)),
    ("GET", "/evaluate/api/work?number=1", (403, 403, 404)),
    ("GET", "/evaluate/api/ranking?version=1", (403, 403, 200)),
    ("GET", "/evaluate/api/drawing?number=1", (403, 403, 404)),
    ("GET", "/evaluate/images?version=1&kind=wrong", (403, 403, 404)),
    ("GET", "/evaluate/report/csv?version=1", (403, 403, 404)),
    ("GET", "/evaluate/api/evidence?version=1", (403, 403, 400)),
    ("GET", "/evaluate/evidence/1/evidence.zip", (403, 403, 404)),
    ("POST", "/evaluate/api/begin-predictions", (403, 403, 403)),
    ("POST", "/evaluate/api/check-masks", (403, 403, 403)),
    ("POST", "/evaluate/api/cancel-predictions", (403, 403, 403)),
    ("POST", "/evaluate/api/make-control-set", (403, 403, 403)),
    ("POST", "/evaluate/api/cancel-control-set", (403, 403, 403)),
    ("POST", "/evaluate/api/draft-evaluation-study", (403, 403, 403)),
    ("POST", "/evaluate/api/look", (403, 403, 403)),
    ("POST", "/evaluate/files/model?name=x.onnx", (403, 403, 403)),
    ("GET", "/evaluate/api/retraining?version=1", (403, 403, 400)),
    ("GET", "/evaluate/api/retraining-time?version=1", (403, 403, 200)),
    ("GET", "/evaluate/retraining/markdown?version=1", (403, 403, 404)),
    ("GET", "/evaluate/retraining/weights?version=1&kept=1&arm=original", (403, 403, 404)),
    ("GET", "/evaluate/retraining/images?version=1&kept=1&on=original", (403, 403, 404)),
    ("POST", "/evaluate/api/begin-retraining", (403, 403, 403)),
    ("POST", "/evaluate/api/cancel-retraining", (403, 403, 403)),
    ("POST", "/curate/api/hold", (403, 403, 403)),
    ("GET", "/ui/studio.js", (403, 403, 200)),
    ("GET", "/images/x.png", (403, 403, 404)),
    ("GET", "/thumbs/x.webp", (403, 403, 404)),
    ("GET", "/theme.css", (403, 403, 200)),
    ("POST", "/login", (403, 403, 422)),
)


def test_every_other_place_for_every_role(
    locked: tuple[str, Studio], asking: Mapping[str, Asking], roles: Mapping[str, Mapping[str, str]]
) -> None:
    url, studio = locked
    held = {"file": quote(sent(url, picture(), headers=roles["full"])), "folder": str(studio.workspace.folder)}
    wrong = []
    for method, path, allowed in PLACES:
        wanted = {**dict.fromkeys(OUTSIDE, 401), **dict(zip(INSIDE, allowed, strict=True))}
        for role, status in wanted.items():
            reply = asking[role].ask(method, path.format(**held), {} if method == "POST" else None)
            if reply.status != status:
                wrong.append((role, method, path, status, reply))
    assert not wrong


def test_the_functions_of_the_page_are_for_the_lead(
    locked: tuple[str, Studio], asking: Mapping[str, Asking], roles: Mapping[str, Mapping[str, str]]
) -> None:
    """The functions accept no file except an upload."""
    url, studio = locked
    components = httpx.get(f"{url}config", headers=roles["lead"]).json()["components"]
    functions = {each["id"]: each["props"]["server_fns"] for each in components if each["props"].get("server_fns")}
    ((wire, names),) = functions.items()
    assert set(names) == {"answer", "take_picture", "take_run", "give_mask"}
    stolen = {"path": str(studio.workspace.folder / "studio.db"), "name": "x"}
    sending: dict[str, Any] = {"answer": {}, "give_mask": {**stolen, "run": "x"}}
    for name in names:
        asked = {"component_id": wire, "fn_name": name, "session_hash": "x", "data": sending.get(name, stolen)}
        for role in (*OUTSIDE, *INSIDE):
            reply = asking[role].ask("POST", "/gradio_api/component_server", asked)
            assert reply.status == (401 if role in OUTSIDE else 200 if role == "lead" else 403), (role, name, reply)
        if name != "answer":
            assert json.loads(reply.body)["problem"].startswith("There is no such upload"), reply
    for name in ("__init__", "postprocess", "constructor_args", "render"):
        asked = {"component_id": wire, "fn_name": name, "session_hash": "x", "data": {}}
        assert asking["lead"].ask("POST", "/gradio_api/component_server", asked).status == 404


def test_a_file_is_sent_by_who_may_change_things(
    locked: tuple[str, Studio], roles: Mapping[str, Mapping[str, str]]
) -> None:
    wanted = {**dict.fromkeys(OUTSIDE, 401), "reading": 403, "full": 200, "lead": 200}
    for role, status in wanted.items():
        reply = httpx.post(
            f"{locked[0]}gradio_api/upload", files={"files": ("a.png", picture())}, headers=dict(roles[role])
        )
        assert reply.status_code == status, (role, reply.text)


FOREIGN: tuple[Mapping[str, str], ...] = (
    {"origin": "https://example.org"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_nothing_is_taken_from_another_site_whoever_sends_it(
    locked: tuple[str, Studio],
    numbers: Mapping[str, int],
    roles: Mapping[str, Mapping[str, str]],
    headers: Mapping[str, str],
) -> None:
    for role in (*OUTSIDE, *INSIDE):
        asking = Asking(locked[0], {**roles[role], **headers})
        refused = 401 if "token" in role else 403
        for path, body in ways_in(locked[1].commands.known()["list-runs"], numbers["list_runs"]).items():
            assert asking.ask("POST", path, body).status == refused, (role, path)
        for path in ("upload", "component_server", "cancel", "reset"):
            assert asking.ask("POST", f"/gradio_api/{path}", {}).status == refused, (role, path)
        asking.close()


def test_a_token_is_shown_in_one_way_only(locked: tuple[str, Studio], tokens: dict[str, str]) -> None:
    """Logs and histories keep addresses, and browsers send cookies without being asked."""
    token = tokens["full"]
    for headers in (
        {"authorization": token},
        {"authorization": f"Basic {token}"},
        {"authorization": f"Bearer {token[:-1]}"},
        {"authorization": f"Bearer {token}x"},
        {"authorization": f"Bearer {token.upper()}"},
        {"cookie": f"{COOKIE}={token}"},
        {"cookie": f"annotator={token}"},
        {"x-authorization": f"Bearer {token}"},
        {"x-gradio-user": "lead", "x-forwarded-user": "lead"},
    ):
        assert call(locked[0], "list_jobs", headers=headers).status_code == 401, headers
    for asked in (f"token={token}", f"access_token={token}", f"__sign={token}"):
        assert httpx.post(f"{locked[0]}gradio_api/run/list_jobs?{asked}").status_code == 401


def test_a_token_that_only_looks_gets_no_file_about_people(locked: tuple[str, Studio], tokens: dict[str, str]) -> None:
    url, studio = locked
    study, _ = running(studio.workspace, 2, name="Of people")
    for file in ("payment.csv", "people.csv"):
        reply = call(url, "download_study", study, file, headers=shown(tokens["reading"]))
        assert reply.status_code == 403 and "holds personal data" in reply.json()["error"], file
        assert call(url, "download_study", study, file, headers=shown(tokens["full"])).status_code == 200
    assert call(url, "download_study", study, "outcomes.csv", headers=shown(tokens["reading"])).status_code == 200


def test_what_a_token_did_is_in_the_log_until_it_is_withdrawn(locked: tuple[str, Studio]) -> None:
    url, studio = locked
    made = made_token(studio, "notebook", days=30)
    with pytest.raises(Exception, match="already"):
        studio.commands.send("make-token", {"title": "notebook", "reads_only": True, "days": 30})
    client = client_of(url, headers=shown(made.text))
    run = client.predict(sample="balloon", api_name="/run_from_sample")["run"]
    client.predict(run=run, title="by a script", api_name="/rename")
    lines = [entry.detail for entry in studio.workspace.studies.log() if entry.event == "script"]
    assert lines == [f"notebook: rename run {run}", "notebook: run-from-sample"]

    studio.commands.send("withdraw-token", {"token": made.token.id})
    assert call(url, "rename", run, "again", headers=shown(made.text)).status_code == 401
    assert made.text not in (studio.workspace.folder / "studio.db").read_bytes().decode("latin-1")
    assert studio.workspace.runs.get(run).name == "by a script"


def test_a_token_that_is_withdrawn_while_it_watches_leaves_the_job_at_work(locked: tuple[str, Studio]) -> None:
    url, studio = locked
    made = made_token(studio, "watcher")
    client = client_of(url, headers=shown(made.text))
    run = text_run(studio)
    with held_drawing(studio) as generator:
        job = client.predict(run=run, api_name="/generate")["job"]["job"]
        watching = client.submit(job=job, api_name="/watch_job")
        assert next(iter(watching))["state"] in ("waiting", "running")
        studio.commands.send("withdraw-token", {"token": made.token.id})
        with pytest.raises(AppError, match="continues, but is not watched"):
            watching.result()
        generator.let_all()
        until(lambda: not studio.jobs.active())
    assert len(studio.workspace.runs.get(run).test_cases) == 4


def test_commands_of_tokens_are_no_endpoints(locked: tuple[str, Studio]) -> None:
    assert {"make-token", "withdraw-token"} <= OF_PAGES <= set(locked[1].commands.known())
    assert all(issubclass(command, Command) for command in locked[1].commands.known().values())
