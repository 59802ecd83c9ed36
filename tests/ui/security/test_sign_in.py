"""The password as a user meets it: on the command line, at the start, and on the page in Chromium."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import app
from services.passwords import SECRET, matches
from tests.support.annotating import BIRD_RULES, running
from tests.support.browser import CHROMIUM_ARGUMENTS
from tests.support.scripted import ScriptedModels
from tests.support.server_process import ROOT, SET_BY_TESTS, free_port
from tests.support.serving import serving_here
from tests.support.workspaces import workspace_in
from ui.security.guard import COOKIE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from services.studio import Studio

PASSWORD = "a password of the lead"


# The command line


def test_the_password_comes_from_the_environment_and_is_not_printed() -> None:
    settings = app.read_settings([], {"STUDIO_PASSWORD": PASSWORD})
    assert settings.password == PASSWORD
    assert PASSWORD not in repr(settings)
    assert app.read_settings([], {}).password == ""
    assert app.read_settings(["--set-password"], {}).set_password


def test_a_password_is_set_from_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with workspace_in(tmp_path) as workspace:
        token = workspace.studies.sessions.open("lead")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    assert app.main(["--set-password", "--workspace", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "is set" in said.out and not said.err
    assert PASSWORD not in said.out
    with workspace_in(tmp_path) as workspace:
        kept = workspace.studies.sessions.secret(SECRET)
        assert kept is not None
        assert matches(PASSWORD, kept)
        assert workspace.studies.sessions.get(token) is None, "who was signed in has to sign in again"
    assert PASSWORD.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.parametrize("typed", ["short\n", "", "\n"])
def test_a_password_that_will_not_do_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert app.main(["--set-password", "--workspace", str(tmp_path / "w")]) == 2
    said = capsys.readouterr().err.strip()
    assert "at least 8" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals that a test can open")
def test_at_a_terminal_it_is_typed_twice_and_not_seen(tmp_path: Path) -> None:
    """The command runs in a process of its own. `test_passwords.py` tests a different second entry."""
    ours, theirs = os.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in SET_BY_TESTS}
    process = subprocess.Popen(
        [sys.executable, "app.py", "--set-password", "--workspace", str(tmp_path / "w")],
        cwd=ROOT, env=clean, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    for prompt in (b"new password: ", b"same again: "):
        while not shown.endswith(prompt):
            shown += os.read(ours, 1000)
        os.write(ours, f"{PASSWORD}\n".encode())
    with suppress(OSError):  # a terminal reports its closed end in this way
        while more := os.read(ours, 1000):
            shown += more
    os.close(ours)
    assert process.wait(60) == 0
    assert PASSWORD.encode() not in shown and b"is set" in shown
    with workspace_in(tmp_path / "w") as workspace:
        assert matches(PASSWORD, workspace.studies.sessions.secret(SECRET) or "")


@pytest.mark.demo
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_does_not_listen_beyond_this_machine_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    monkeypatch.delenv("STUDIO_PASSWORD", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # otherwise the start would set the variable for later tests
    assert app.main(["--host", host, "--port", str(free_port()), "--workspace", str(tmp_path / "w")]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1, said
    for words in (host, "other machines", "STUDIO_PASSWORD", "--set-password"):
        assert words in said


# The page


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("locked") / "workspace", ScriptedModels(), PASSWORD) as served:
        yield served


@pytest.fixture(scope="module")
def served(behind: tuple[str, Studio]) -> str:
    return behind[0]


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium_path, args=list(CHROMIUM_ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(params=[True, False], ids=["with script", "without script"])
def visitor(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(java_script_enabled=request.param, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def test_signing_in_with_keys_alone_leads_where_one_wanted_to_go(visitor: Page, served: str) -> None:
    visitor.goto(f"{served}study/?x=1")
    assert visitor.title() == "Sign in · DILLEMA Studio"
    visitor.wait_for_selector("#password:focus")
    visitor.keyboard.type("not the password")
    visitor.keyboard.press("Enter")
    visitor.wait_for_selector("#problem")
    assert visitor.inner_text("#problem") == "This is not the password."
    assert visitor.input_value("#password") == ""
    visitor.wait_for_selector("#password:focus")
    visitor.keyboard.type(PASSWORD)
    visitor.keyboard.press("Enter")
    visitor.wait_for_url(f"{served}study/?x=1")
    assert visitor.inner_text("header nav .on") == "Study"
    visitor.click("#sign-out button")
    visitor.wait_for_selector("#password")
    visitor.goto(f"{served}study/")
    assert visitor.is_visible("#password")


def test_the_whole_studio_works_behind_the_sign_in_and_says_when_it_has_ended(
    browser: Browser, behind: tuple[str, Studio]
) -> None:
    from tests.support.browser import settled

    url, studio = behind
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("response", lambda reply: problems.append(f"{reply.status} {reply.url}") if reply.status >= 400 else None)
    page.goto(url)
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_selector(".start h1")
    settled(page)
    page.click(".sample")
    page.wait_for_selector("#part-source img")
    settled(page)
    page.wait_for_function("document.querySelector('#part-source img').naturalWidth > 0")
    assert not problems
    assert not page.is_visible("#signed-out")
    studio.workspace.studies.sessions.close_all("lead")
    page.click("#run-all")
    page.wait_for_selector("#signed-out")
    assert page.inner_text("#signed-out").startswith("You are signed out, so nothing here is saved any more.")
    page.click("#signed-out a")
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_selector("#run-all:enabled")
    settled(page)
    page.click("#run-all")
    page.wait_for_selector("#generate")
    assert not page.is_visible("#signed-out")
    page.click("#sign-out button")
    page.wait_for_selector("#password")
    page.goto(url)
    assert page.is_visible("#password")
    context.close()


def test_pages_of_studies_keep_to_their_policy_and_a_hostile_text_runs_nothing(
    browser: Browser, behind: tuple[str, Studio]
) -> None:
    url, studio = behind
    studies = studio.workspace.studies
    hostile = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    draft = studies.create(f"Draft {hostile}", BIRD_RULES)
    study_id, _ = running(studio.workspace, name=f"Running {hostile}")
    worker, _ = studies.workers.add()
    studies.workers.enrol(study_id, worker.id)
    given = studies.assignments.claim(study_id, worker.id, "item")
    assert given is not None
    studies.assignments.submit(given.public, worker.id, {"valid": "yes"}, hostile, 2.0, "key")
    studies.note("refused", hostile, study_id)
    context = browser.new_context(color_scheme="dark")
    context.set_default_timeout(60_000)
    token = studies.sessions.open("lead")
    context.add_cookies([{"name": COOKIE, "value": token, "url": url}])
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    started = ("", "workers", f"workers/{worker.id}", "adjudication", "disagreements", "log", "run", "preview")
    for end in ("", "new", f"{draft}/", f"{draft}/preview", *(f"{study_id}/{name}" for name in started)):
        page.goto(f"{url}study/{end}")
        if end.endswith("preview"):
            page.wait_for_selector("#agree")  # loaded by the page's script
        assert "taken" not in page.title().split("<")[0]
        assert page.evaluate("document.documentElement.classList.contains('dark')") is True, "by a script in the page"
    # Hostile text in the page's markup runs nothing.
    page.goto(f"{url}study/")
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.evaluate("text => { document.body.innerHTML = text; }", hostile.replace("src=x", "src='data:,'"))
    assert page.title() != "taken"
    assert any("Content Security Policy" in text for text in said[-2:])
    before = [text for text in said if "Content Security Policy" in text]
    assert len(before) == 1, before
    assert said[:-1] == []
    context.close()


def test_the_card_stands_in_the_middle_of_every_screen(browser: Browser, served: str) -> None:
    for width, height in ((390, 844), (1280, 800), (1920, 1080)):
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(f"{served}sign-in")
        box = page.locator("form.card").bounding_box()
        assert box is not None
        assert abs(box["x"] + box["width"] / 2 - width / 2) < 2
        assert box["width"] <= 432
        assert page.evaluate("document.documentElement.scrollHeight") <= height, "nothing has to be scrolled"
        context.close()


def test_a_page_that_the_server_renders_works_behind_its_policy_and_says_when_the_sign_in_has_ended(
    browser: Browser, behind: tuple[str, Studio]
) -> None:
    url, studio = behind
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    broken: list[str] = []
    page.on("console", lambda said: broken.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(f"{url}scripts")
    page.click("[data-theme-switch]")
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.fill("#f-title", "notebook")
    page.click("#make-token")
    page.wait_for_selector("#token-made")  # a script inserts this element
    assert page.is_visible("#sign-out") and not broken
    studio.workspace.studies.sessions.close_all("lead")
    page.fill("#f-title", "another")
    page.click("#make-token")
    page.wait_for_selector("#signed-out")
    assert page.input_value("#f-title") == "another"
    page.click("#signed-out a")
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_selector("#token-form")
    assert page.url == f"{url}scripts" and not broken
    context.close()
