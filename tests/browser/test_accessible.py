"""Check every page with axe, light and dark: no serious or critical finding. Text that is cut off has a tooltip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from core.image_filter import ImageFilter
from tests.support.annotating import BIRD_RULES, running
from tests.support.drawn import fill
from tests.support.explorer import draw, serving_stand_ins, text_run
from tests.support.serving import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow
SHOWN = """() => (window.studio ? studio.idle && !studio.active && !studio.predicting : !window.gradio_config)
  && (!window.gallery || gallery.idle) && (!window.annotate || document.querySelector('#join'))
  && [window.map, window.batches, window.sets, window.imports, window.evaluate].every((one) => one?.ready !== false)"""
"""JavaScript condition: everything that the page requested has loaded."""
FOUND = """async () => {
  const still = document.head.appendChild(document.createElement('style'));
  still.textContent = '* { transition: none !important; animation: none !important; }';
  const grave = async (theme, options) => (await axe.run({ resultTypes: ['violations'], ...options })).violations
    .filter((one) => ['serious', 'critical'].includes(one.impact))
    .flatMap((one) => one.nodes.map((node) => `${theme}: ${one.id}: ${node.html.slice(0, 160)}`));
  const light = await grave('light', {});
  for (const one of [document.documentElement, document.body]) one.classList.add('dark');
  return [...light, ...await grave('dark', { runOnly: ['color-contrast'] })];
}"""
"""JavaScript: serious or critical findings of axe in the light theme, and colour findings in the dark theme."""

CUT = """() => [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() && !one.closest('.unseen')
    && one.textContent.trim() && one.clientWidth > 2 && one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).textOverflow === 'ellipsis' && getComputedStyle(one).overflowX !== 'visible'
    && !one.title && !one.closest('[title]')).map((one) => one.textContent.trim())"""
"""JavaScript: texts that end in an ellipsis and have no tooltip with the whole text."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the address of each page by name. Every page has content."""
    with serving_stand_ins(tmp_path_factory.mktemp("accessible")) as (url, studio):
        yield {name: f"{url}{path}" for name, path in _filled(studio).items()}


def _filled(studio: Studio) -> dict[str, str]:
    workspace = studio.workspace
    fill(workspace, 4, 4, pixels=32)
    run = text_run(studio)
    draw(studio, run)
    images = workspace.catalogue.ids(ImageFilter.read("review=accepted"))
    test_set = workspace.test_sets.create("Birds by night")
    studio.test_sets.drafts.add(test_set, workspace.catalogue.test_cases(images)[:4])
    study, link = running(workspace)
    draft = workspace.studies.create("A draft", BIRD_RULES)
    until(lambda: not studio.jobs.active() and not studio.meaning.filling().working)
    return {
        "start": "?run=",
        "run": f"?run={run}",
        "gallery": "curate/",
        "coverage": "curate/coverage",
        "map": "curate/map",
        "test sets": "curate/sets",
        "test set": f"curate/sets/{test_set}",
        "import": "curate/import",
        "batches": "batches/",
        "new batch": "batches/new",
        "studies": "study/",
        "new study": "study/new",
        "set up": f"study/{draft}/",
        "study": f"study/{study}/",
        "workers": f"study/{study}/workers",
        "evaluate": "evaluate/",
        "scripts": "scripts",
        "annotate": f"annotate/#join={link}",
    }


PAGES = (
    "start", "run", "gallery", "coverage", "map", "test sets", "test set", "import", "batches", "new batch", "studies",
    "new study", "set up", "study", "workers", "evaluate", "scripts", "annotate",
)  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_nobody_out(page: Page, pages: dict[str, str], name: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("about:blank")
    page.goto(pages[name])
    page.wait_for_function(SHOWN)
    page.evaluate(Axe().axe_script)
    assert page.evaluate(FOUND) == []
    for width in (390, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(CUT) == [], f"at {width} pixels"
    page.goto("about:blank")
