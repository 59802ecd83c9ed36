"""Makes the pictures of Evaluate for `docs/`: what can be evaluated, a model that reads, the answer, two models beside.

The images are scenes of the drawn world on sunny days and the same scenes in other weather and at other times; the
demo's models read them. The votes are made up, and the pictures show no finding.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

from cli.test_sets import main as test_sets
from core.image_filter import ImageFilter
from core.studies import NewItem
from docs.camera import Camera
from services.evaluation.study_votes import DRAWN
from storage.workspace import Workspace
from tests.support.browser import browsing
from tests.support.evaluation_cases import fill
from tests.support.server_process import ServerProcess
from tests.support.study_desk import crew, rules, vote

SCENES, STREETS = 90, 12
NAME = "Other weather"
JUDGED = 160
"""Test cases that somebody has judged."""
VALID = 0.88
SLOWEST = 600_000
"""Milliseconds that reading may take on a busy machine."""


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """All of them, on a server of their own."""
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "workspace"
        with Workspace(workspace) as opened:
            fill(opened, SCENES, fair=True)
            of_objects = opened.catalogue.test_cases(
                opened.catalogue.ids(ImageFilter(facets={"kind": ("classification",), "recipe": ("dillema",)}))
            )
            for case in of_objects:
                opened.test_cases.review(case, "accepted")
            _judge(opened, of_objects)
            fill(opened, STREETS, road=True, fair=True)
        for arguments in (("create", NAME), ("add", NAME, "--filter", "review=accepted", "--sources")):
            test_sets(["--workspace", str(workspace), *arguments])
        server = ServerProcess(workspace, Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from _take(page, server.url, folder)
        finally:
            server.stop()


def _judge(workspace: Workspace, cases: tuple[int, ...]) -> None:
    """A study of some test cases, drawn at random, that two people have judged."""
    chance, studies = random.Random(3), workspace.studies
    drawn = chance.sample(cases, JUDGED)
    study = studies.create("Is the label still right?", rules())
    items = [NewItem(workspace.test_cases.get(one).image_sha, label="label", test_case=one) for one in drawn]
    studies.add_items(study, items)
    studies.note(DRAWN, f"{JUDGED} of {len(cases)} test cases at random", study)
    studies.start(study)
    valid = {one: chance.random() < VALID for one in drawn}
    for worker in crew(studies, study, 2):
        for number in range(JUDGED):
            held = studies.assignments.claim(study, worker, "item")
            assert held is not None and held.item.test_case is not None
            vote(studies, held, "yes" if valid[held.item.test_case] else "no", f"{worker} {number}")


def _take(page: Page, url: str, folder: Path) -> Iterator[Path]:
    camera = Camera(page, folder)
    page.goto(f"{url}evaluate/")
    camera.states("evaluate-1-list")
    page.locator(".subject-line a").first.click()
    page.wait_for_selector("#part-models")
    camera.states("evaluate-2-models")
    page.locator("#part-models .model-line").first.click()
    page.click("#begin")
    page.wait_for_selector("#part-result ~ #part-work", timeout=SLOWEST)
    page.wait_for_selector("#orders")
    _pictures(page)
    camera.page("evaluate", 1920)
    camera.states("evaluate-3-answer")
    camera.states("evaluate-4-first", at="#part-ranking")
    page.goto(f"{url}evaluate/?filter=kind%3Dsegmentation")
    page.locator("#part-models .model-line").first.click()
    page.click("#begin")
    page.wait_for_selector("#part-result ~ #part-work", timeout=SLOWEST)
    page.wait_for_selector("#orders")
    _pictures(page)
    camera.states("evaluate-5-segmenter")
    yield from camera.taken()


def _pictures(page: Page) -> None:
    page.evaluate("for (const one of document.images) one.loading = 'eager'")
    page.wait_for_function("[...document.images].every((one) => one.complete)")
