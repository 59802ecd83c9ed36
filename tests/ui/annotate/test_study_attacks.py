"""Attacks by invited annotators and by strangers are refused and logged, and disclose nothing.

The real application runs behind the real server, with a password as for other machines. `attack_list.py` has the cases.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

import app
from core.studies import NewItem
from tests.support.annotating import BIRD_RULES, keep_image, picture
from tests.support.attack_list import ATTACKS, FORM
from tests.support.attacked import World, build_world
from tests.support.scripted import ScriptedModels
from tests.support.server_process import free_port
from tests.support.serving import serving_application
from ui.security.guard import COOKIE

PASSWORD = "a password of the lead"
SECRETS = (
    "secret",
    "Hidden",
    "expected",
    "control",
    "Traceback",
    'File "',
    ".py",
    "studio.db",
    "sqlite",
    "misclassified",
)
"""Words that no reply to an annotator may contain: origins, other studies, known answers, and internals."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    port = free_port()
    folder = tmp_path_factory.mktemp("attacked") / "workspace"
    settings = app.ServerSettings("demo", folder, port=port, password=PASSWORD)
    application, studio = app.build(settings, ScriptedModels())
    with serving_application(application, studio, port):
        yield build_world(application, studio, port)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_refused_written_down_and_nothing_learnt(world: World, name: str) -> None:
    status, attack = ATTACKS[name]
    votes, latest = world.votes(), world.studies.log(limit=1)[0].id
    reply = attack(world)
    assert reply.status == status, reply.text
    assert "set-cookie" not in reply.headers
    inside = (
        *SECRETS,
        *world.shas,
        world.other.worker,
        world.other.id,
        world.other.image,
        world.folder,
    )
    for word in inside:
        assert word not in reply.text, f"{word!r} is told"
    assert world.votes() == votes, "a vote was counted"
    entry = world.studies.log(limit=1)[0]
    assert entry.id > latest, "nothing was written down"
    assert entry.event in ("refused", "wrong password")
    assert not entry.worker or "198.51." not in entry.detail, "annotators are promised that no address is kept"
    for word in (world.me.token, world.me.code, PASSWORD, world.held["lead"]):
        assert word not in entry.detail, "the log tells what opens a door"


# Pairs of attacks whose replies must be equal: on another's object, and on an object that does not exist.
ALIKE = {
    "assignments": ("another's assignment", "an invented assignment"),
    "assignments, answered wrongly": (
        "another's assignment, answered wrongly",
        "an invented assignment, answered wrongly",
    ),
    "pictures": ("another's picture", "an invented picture"),
    "pictures by their hash": ("a picture by its hash", "an invented picture"),
    "studies": ("a study I am not part of", "an invented study"),
    "examples": ("an example of another study", "an example that is none"),
    "links": ("a link of a closed study", "a wrong link"),
    "links and links that were": ("a link that was switched off", "a wrong link"),
    "codes": ("a code that was replaced", "a wrong code"),
    "studies of the lead": ("the result of my study", "a study that there is not"),
    "images of the workspace": ("an image of the workspace", "an image that there is not"),
    "sessions": ("a session that was signed out", "an invented session"),
    "sessions of others": ("the lead's session as a worker's", "an invented session"),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_anothers_looks_like_what_there_is_not(world: World, name: str) -> None:
    one, other = (ATTACKS[attack][1](world) for attack in ALIKE[name])
    changing = ("date",)
    headers = [{key: value for key, value in reply.headers.items() if key not in changing} for reply in (one, other)]
    assert (one.status, headers[0], one.body) == (other.status, headers[1], other.body)


def test_behind_a_proxy_with_https_all_works_and_cookies_are_for_https_only(world: World) -> None:
    """The requests are like those of a proxy in docs/serving.md."""
    proxied = {"host": "study.example.org", "origin": "https://study.example.org", "x_forwarded_proto": "https"}
    form = f"password={PASSWORD}".encode()
    lead = world.ask("POST", "/sign-in", form, "", **{**proxied, "content_type": FORM})
    worker = world.post("sign-in", {"code": world.me.code}, cookie="", **proxied)
    assert (lead.status, worker.status) == (303, 200)
    for reply, path in ((lead, "/"), (worker, "/annotate")):
        cookie = reply.headers["set-cookie"]
        assert re.search("; Secure", cookie), cookie
        assert f"Path={path};" in cookie + ";"
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie


# Every endpoint


def endpoints(routes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the method and path of every route, including those of mounted applications."""
    for route in routes:
        path = before + str(getattr(route, "path", ""))
        inner = getattr(getattr(route, "app", None), "routes", None) or getattr(
            getattr(route, "original_router", None), "routes", None
        )
        if getattr(route, "methods", None):
            yield from ((method, path) for method in sorted(route.methods))
        elif inner:
            yield from endpoints(inner, path)
        else:
            raise AssertionError(f"{route} is served, and this test cannot say what it is")


@pytest.mark.slow
def test_every_endpoint_of_the_studio_is_closed_to_annotators(world: World) -> None:
    found = sorted(set(endpoints(world.application.routes)))
    filled = {"study_id": world.study, "sha": world.shas[0], "case_id": "1", "name": world.other.worker}
    mine = [(method, path) for method, path in found if not path.startswith(("/annotate/", "/sign-", "/healthz"))]
    assert len(mine) > 100, "the studio, its studies and Gradio are all in it"
    assert {"/config", "/gradio_api/queue/join", "/gradio_api/upload", "/study/{study_id}/"} <= {
        path for _, path in mine
    }
    wrong = []
    for method, path in mine:
        real = re.sub(r"\{(\w+)(?::\w+)?\}", lambda part: filled.get(part[1], "x"), path)
        for cookie in (f"annotator={world.me.token}", f"{COOKIE}={world.me.token}", ""):
            reply = world.ask(method, real, {}, cookie=cookie)
            said = reply.text if method != "HEAD" else '{"error":"Sign in first."}'
            if (reply.status, said) != (401, '{"error":"Sign in first."}'):
                wrong.append((method, real, cookie, reply.status, reply.text[:80]))
    assert not wrong


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", "/study/", "/ui/studio.js"])
def test_the_lead_gets_what_annotators_do_not(world: World, path: str) -> None:
    assert world.ask("GET", path, cookie=f"{COOKIE}={world.held['lead']}").status == 200


def test_what_is_open_says_nothing(world: World) -> None:
    for path in ("/healthz", "/sign-in", "/sign-in/theme.js", "/annotate/", "/annotate/assets/annotate.js"):
        reply = world.ask("GET", path, cookie="")
        assert reply.status == 200
        for word in (
            *world.shas,
            world.study,
            world.me.worker,
            "Birds, November",
            world.link,
            world.folder,
        ):
            assert word not in reply.text


# Pictures


def test_a_picture_tells_nothing_but_its_pixels(world: World) -> None:
    reply = world.ask("GET", f"/annotate/image/{world.me.image}")
    assert reply.status == 200
    chunks = re.findall(rb"IHDR|PLTE|tRNS|IDAT|IEND|tEXt|iTXt|zTXt|eXIf|iCCP|tIME|pHYs|gAMA|sRGB|cHRM", reply.body)
    assert set(chunks) == {b"IHDR", b"IDAT", b"IEND"}
    shown = Image.open(io.BytesIO(reply.body))
    assert shown.info == {}
    item = world.studies.assignments.get(world.me.id)
    assert item is not None
    stored = world.studio.workspace.images.load(item.item.image_sha)
    assert shown.tobytes() == stored.tobytes()
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["cache-control"].startswith("private")
    for name in ("content-disposition", "etag", "last-modified", "location", "link", "server-timing"):
        assert name not in reply.headers
    everything = json.dumps(world.me.step) + json.dumps(dict(reply.headers)) + reply.body.decode("latin-1")
    for word in (*world.shas, "secret", "4711", item.item.public):
        assert word not in everything
    assert not re.search(r"(?i)run|seed|prompt|model", json.dumps(world.me.step["assignment"]))


def test_names_of_one_item_differ_between_annotators(world: World) -> None:
    mine, theirs = (world.studies.assignments.get(person.id) for person in (world.me, world.other))
    assert mine is not None and theirs is not None
    given = [mine.public, mine.image_token, theirs.public, theirs.image_token]
    assert len(set(given)) == 4
    assert all(len(token) >= 16 and not token.isdecimal() for token in given)


def test_a_control_item_looks_like_any_other(world: World) -> None:
    studies, workspace = world.studies, world.studio.workspace
    shas = [keep_image(workspace, picture(number)) for number in (201, 202)]
    study_id = studies.create("Blind", BIRD_RULES)
    known = NewItem(shas[1], kind="control", expected={"valid": "no"}, label="bird")
    studies.add_items(study_id, [NewItem(shas[0], label="bird"), known])
    studies.start(study_id)
    worker, _ = studies.workers.add()
    studies.workers.enrol(study_id, worker.id)
    studies.workers.consent(study_id, worker.id)
    cookie = f"annotator={studies.sessions.open('worker', worker.id)}"
    studies.assignments.claim(study_id, worker.id, "control")
    control = world.post("next", {"study": study_id}, cookie=cookie).json()
    answered = world.post("submit", world.vote(control["assignment"]["id"]), cookie=cookie).json()
    item = answered["next"]
    held = [studies.assignments.get(step["assignment"]["id"]) for step in (control, item)]
    assert [assignment and assignment.item.kind for assignment in held] == ["control", "item"]

    def without_names(step: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in step["assignment"].items() if key not in ("id", "image", "side")}
        return {**step, "assignment": given, "done": 0, "left": 0, "undo": True, "ahead": []}

    assert without_names(control) == without_names(item)
    assert set(answered) == {"saved", "next"}, "that it was wrong is not told"
    assert len(control["assignment"]["id"]) == len(item["assignment"]["id"])


# Repeated requests


def test_a_vote_that_is_sent_again_counts_once(world: World) -> None:
    study_id, body, cookie = one_more(world)
    before = world.votes()
    replies = [world.post("submit", body, cookie=cookie) for _ in range(5)]
    assert [reply.status for reply in replies] == [200] * 5, "a retry after a lost reply is told that it is saved"
    assert world.votes() == before + 1
    again = world.post("submit", {**body, "key": secrets.token_hex(8), "answers": {"valid": "no"}}, cookie=cookie)
    assert again.status == 409
    stolen = world.post("submit", body)
    assert stolen.status == 404, "the key of another opens nothing"
    assert world.votes() == before + 1
    votes = world.studies.data(study_id).votes
    assert [vote.answers for vote in votes] == [{"valid": "yes"}]


def test_a_saved_vote_sent_again_after_the_end_changes_nothing(world: World) -> None:
    study_id, body, cookie = one_more(world)
    assert world.post("submit", body, cookie=cookie).status == 200
    world.studies.close(study_id)
    again = world.post("submit", body, cookie=cookie)
    assert again.json()["saved"] is True
    assert world.post("submit", {**body, "key": "another key"}, cookie=cookie).status in (409, 410)
    assert len(world.studies.data(study_id).votes) == 1


def one_more(world: World) -> tuple[str, dict[str, Any], str]:
    """Create a study. Return its id, a vote that was not sent yet, and the cookie of its worker."""
    studies = world.studies
    study_id = studies.create("One more", BIRD_RULES)
    studies.add_items(study_id, [NewItem(world.shas[0], label="bird"), NewItem(world.shas[1], label="bird")])
    studies.start(study_id)
    worker, _ = studies.workers.add()
    studies.workers.enrol(study_id, worker.id)
    studies.workers.consent(study_id, worker.id)
    cookie = f"annotator={studies.sessions.open('worker', worker.id)}"
    step = world.post("next", {"study": study_id}, cookie=cookie).json()
    return study_id, world.vote(step["assignment"]["id"]), cookie


def test_markup_in_a_comment_stays_text(world: World) -> None:
    study_id, body, cookie = one_more(world)
    hostile = "<script>alert(1)</script>\u202e'; DROP TABLE votes; -- \x00\x1b[31m"
    assert world.post("submit", {**body, "comment": hostile}, cookie=cookie).status == 200
    kept = world.studies.data(study_id).votes[0].comment
    assert kept.startswith("<script>alert(1)</script>")
    assert "\x00" not in kept and "\x1b" not in kept
    lead = f"{COOKIE}={world.held['lead']}"
    for page in ("", "workers", "log", "adjudication", "disagreements"):
        shown = world.ask("GET", f"/study/{study_id}/{page}", cookie=lead)
        assert shown.status == 200
        assert "<script>alert(1)" not in shown.text


# Guessing comes last, since it fills this minute's share of the log


@pytest.mark.parametrize(
    ("name", "body", "right"),
    [
        ("sign-in", lambda n: {"code": f"{n:04}-0000-0000-0000"}, lambda w: {"code": w.me.code}),
        ("join", lambda n: {"link": f"{n:043}"}, lambda w: {"link": w.link}),
    ],
    ids=["codes", "links"],
)
@pytest.mark.slow
def test_four_hundred_guesses_come_to_nothing(world: World, name: str, body: Any, right: Any) -> None:
    found = [world.post(name, body(number), cookie="", address="203.0.113.7") for number in range(400)]
    tried = [reply for reply in found if reply.status == 401]
    assert 1 <= len(tried) <= 200, "not all of them were looked at"
    assert {reply.status for reply in found} == {401, 429}
    barred = world.post(name, right(world), cookie="", address="203.0.113.7")
    assert barred.status == 429, "the right one is not told from a wrong one any more"
    assert int(barred.headers["retry-after"]) > 0
    assert "set-cookie" not in barred.headers
    assert world.post(name, right(world), cookie="", address="203.0.113.8").status == 200, "others are let in"
    written = [entry for entry in world.studies.log(limit=2000) if "203.0.113.7" in entry.detail]
    assert 1 <= len(written) <= 200, "a flood does not fill the log"
