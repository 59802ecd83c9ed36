"""Takes the pictures of the validity study, as a part of `make screenshots`.

A lead sets up a study on the page, an annotator judges images on a desktop and on a phone, simulated annotators judge
the rest over HTTP, and the lead reads the results. The images are rendered scenes in another weather or at another
time. The predictions of the model under test and the votes are invented, so the pictures show no finding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize

from core.studies import asked, wording
from docs.camera import Camera
from storage.workspace import Workspace
from study.behaviour import Behaviour
from study.simulate import Simulation, run
from study.truth import AnswerKey, pixels_of, sight
from tests.support.browser import browsing
from tests.support.server_process import ServerProcess
from tests.support.study_cases import object_runs

NAME = "Objects in other weather"
RUNS = 15
MISTAKEN = (3, 7, 12, 20, 33, 41, 50, 55)
"""Numbers of the test cases that the model under test gets wrong, by its invented predictions."""
HARD = 7
"""Every `HARD`th image counts as invalid, as if its object could no longer be recognized."""
CREW = (
    Behaviour(accuracy=0.6, lazy=0.9),
    *(Behaviour(accuracy=accuracy) for accuracy in (0.97, 0.96, 0.95, 0.93, 0.98, 0.94)),
)
PHONE: ViewportSize = {"width": 390, "height": 844}


def take(page: Page, server: ServerProcess, folder: Path) -> Iterator[Path]:
    """Take the pictures of the study, and yield their files one after another."""
    camera = Camera(page, folder)
    study_id, link = _set_up(page, server, camera)
    yield from camera.taken()
    browser = page.context.browser
    assert browser is not None
    yield from _annotate(browser, server, link, folder)
    crew = [Behaviour(one.accuracy, one.bias, 0.3, one.lazy) for one in CREW]
    plan = Simulation(server.url, crew, link=link, truth=_truth(server.workspace, study_id), patience=5)
    with ThreadPoolExecutor(1) as other:  # this thread already has playwright's event loop
        other.submit(run, plan).result()
    _results(page, server, camera, study_id)
    yield from camera.taken()


def _set_up(page: Page, server: ServerProcess, camera: Camera) -> tuple[str, str]:
    """Set up and start a study on the page. Return its id and the link of its invitation."""
    page.goto(f"{server.url}study/")
    camera.states("study-1-none")
    page.click("#new-study")
    page.fill("[name=title]", NAME)
    camera.states("study-2-new")
    page.click("#create")
    page.wait_for_selector("#draw-now")
    study_id = page.url.rstrip("/").rsplit("/", 1)[-1]
    # The annotators have no earlier work and take no quiz.
    for name, value in {"min_finished": "0", "quiz": "0", "share": "15", "draw.count": "40"}.items():
        page.fill(f"[name='{name}']", value)
        page.keyboard.press("Tab")
    page.click("#draw-now")
    page.wait_for_selector("#start:enabled")
    page.wait_for_timeout(1500)
    camera.states("study-3-set-up")
    camera.page("study-set-up", 1440)
    page.goto(f"{server.url}study/{study_id}/preview")
    page.wait_for_selector(".answer:enabled, .btn")
    camera.states("study-4-preview")
    page.goto(f"{server.url}study/{study_id}/")
    page.click("#start")
    page.wait_for_selector("#confirm-go")
    camera.states("study-5-start")
    page.click("#confirm-go")
    page.wait_for_selector("#link-on")
    page.click("#link-on")
    page.click("#confirm-go")
    page.wait_for_selector("#link")
    page.wait_for_timeout(800)
    camera.states("study-6-invite")
    camera.page("study-invite", 1440)
    return study_id, page.inner_text("#link")


def _annotate(browser: Browser, server: ServerProcess, link: str, folder: Path) -> Iterator[Path]:
    """Join as an annotator, and judge the first images on a desktop and on a phone. Yield the pictures' files."""
    for place, wide in (("desktop", None), ("phone", PHONE)):
        context = browser.new_context(viewport=wide or ViewportSize(width=1280, height=860), has_touch=wide is not None)
        page = context.new_page()
        camera = Camera(page, folder, sizes=(PHONE,) if wide else None)
        page.goto(f"{server.url}annotate/#{link.split('#', 1)[1]}")
        page.click("#join")
        page.wait_for_selector("#code-kept")
        camera.states(f"annotate-1-code-{place}")
        page.click("#code-kept")
        page.wait_for_selector("#agree")
        camera.states(f"annotate-2-consent-{place}")
        page.click("#agree")
        for _ in range(2):
            page.wait_for_selector(".answer:enabled")
            page.wait_for_timeout(500)
            page.click(".answer >> nth=0")
            page.wait_for_timeout(700)
        page.wait_for_selector("#saved:has-text('saved')")
        camera.states(f"annotate-3-item-{place}")
        camera.page(f"annotate-{place}", (wide or {"width": 1280})["width"])
        page.keyboard.press("?")
        page.wait_for_timeout(500)
        camera.states(f"annotate-4-help-{place}")
        page.keyboard.press("Escape")
        page.click("button:has-text('Pause')")  # gives the image back
        page.wait_for_selector("h1")
        yield from camera.taken()
        context.close()


def _truth(folder: Path, study_id: str) -> AnswerKey:
    """Return the true answers for the simulated annotators. Control items have their expected answers. Of the other
    images, every `HARD`th has "no" and the rest "yes".
    """
    known: dict[str, str] = {}
    with Workspace(folder) as workspace:
        rules = workspace.studies.get(study_id).rules
        for number, item in enumerate(workspace.studies.items(study_id)):
            for question in asked(rules.questions, item, {}):
                answer = item.expected.get(question.id) or ("no" if number % HARD == 0 else "yes")
                known[sight(pixels_of(workspace.images.load(item.image_sha)), "", wording(question, item))] = answer
    return AnswerKey(known)


def _results(page: Page, server: ServerProcess, camera: Camera, study_id: str) -> None:
    for name, end in (
        ("7-results", ""),
        ("8-workers", "workers"),
        ("9-adjudication", "adjudication"),
        ("10-log", "log"),
    ):
        page.goto(f"{server.url}study/{study_id}/{end}")
        page.wait_for_selector(".study-head")
        page.wait_for_timeout(800)
        camera.states(f"study-{name}")
    page.goto(f"{server.url}study/")
    camera.states("study-11-list")


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """Start a server, take all pictures of the study, and yield their files."""
    with tempfile.TemporaryDirectory() as place:
        with Workspace(Path(place) / "workspace") as workspace:
            object_runs(workspace, RUNS, wrong=MISTAKEN)
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from take(page, server, folder)
        finally:
            server.stop()
