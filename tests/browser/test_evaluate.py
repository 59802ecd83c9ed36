"""The page Evaluate in Chromium: begin, cancel and resume; figures that open their images; two models; reports."""

from __future__ import annotations

import csv
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin, urlsplit

import httpx
import pyarrow.parquet
import pytest
from playwright.sync_api import expect

from core.settings import UnderTestSettings
from core.test_sets import SetEntry
from services.curation.views import View
from services.evaluation.commands import OnModel
from services.evaluation.service import model_choice_key
from services.evaluation.types import Cell, EditRow, EvaluationQuestion
from services.runs.predictions import Predictor
from tests.services.evaluation.test_predictions import Counted
from tests.support.evaluation_cases import fill
from tests.support.explorer import encoded
from tests.support.model_cases import CLASSES, MEAN, STD, onnx_file
from tests.support.scripted import HeldGenerator, ScriptedModels, over, perform
from tests.support.serving import serving_here, until
from tests.support.set_cases import picture, run_of
from ui.evaluate.page import report_html
from ui.frame import NAVIGATION

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Download, Locator, Page

    from services.studio import Studio

Server = tuple[str, "Studio"]
SCENES, ROADS = 12, 4
OBJECTS, STREETS = "kind=classification", "kind=segmentation"
HOSTILE = "<img src=x onerror=window.broken=1>"
WIDTHS = (390, 1280, 1920)
REFUSED = "the server responded with a status of 400"
"""Browser console message for a request that the studio refuses with an explanation."""
SPILT = """[...document.querySelectorAll('.studio .confusion td, .studio .value, .studio .pill')]
    .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""
"""JavaScript: figures that do not fit into their cells."""
CURRENT = """(() => {
    const bar = document.querySelector('.top nav'), link = bar.querySelector('[aria-current=page]');
    const a = bar.getBoundingClientRect(), b = link.getBoundingClientRect();
    return b.left >= a.left - 1 && b.right <= a.right + 1 ? link.textContent : 'out of sight'; })()"""
"""JavaScript: name of the current page in the header, or "out of sight" if the link cannot be seen."""


UNEXPLAINED = """[...document.querySelectorAll(`.card.figure h3, #flips dt, #flips .mut, #validity tbody th,
    #edits [data-table] > table thead th.n, #classes thead th:nth-last-child(2), #confusion h2,
    #calibration p:not(.mut), #orders thead th:nth-child(2), #orders tbody th`)].filter((one) =>
    !one.querySelector('.why[data-explain]') && one.textContent !== 'n').map((one) => one.textContent)"""
"""JavaScript: names of figures without a button that explains them."""
UNLIKE_LINKS = """(() => {
    const style = (one) => getComputedStyle(one);
    const dotted = (one) => /^underline .*dotted/.test(style(one).textDecoration);
    const looks = (one) => [one, ...one.children].some(dotted) && one.title && style(one).cursor === 'pointer';
    const picture = (one) => one.querySelector('img');
    const opens = (one) => (one.matches('[href*="/evaluate/images"]') || one.closest('#orders td')) && !picture(one);
    const links = [...document.querySelectorAll('main a')].filter(opens);
    const others = [...document.querySelectorAll('main *')].filter((one) => !links.includes(one.closest('a')));
    const unlike = [...links.filter((one) => !looks(one)), ...others.filter(dotted)];
    return { links: links.length, unlike: unlike.map((one) => one.outerHTML.slice(0, 120)) }; })()"""
"""JavaScript: number of figures that open images, those that do not look like links, and lookalikes that open nothing.
"""
PAPER = 703, 1037
"""Width and height in CSS pixels of the printable area of an A4 page with the style sheet's margins."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server on classification and segmentation scenes. The model of the demo reads the objects in the first test."""
    with serving_here(tmp_path_factory.mktemp("evaluate") / "workspace", ScriptedModels()) as (url, studio):
        fill(studio.workspace, SCENES)
        fill(studio.workspace, ROADS, road=True)
        yield url, studio


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Studio on an empty workspace, to which each test adds images."""
    with serving_here(tmp_path_factory.mktemp("odd") / "workspace", ScriptedModels()) as served:
        yield served


@pytest.fixture(autouse=True)
def no_errors(page: Page) -> Iterator[None]:
    """Fail the test if the console of the browser reports an error."""
    said: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and REFUSED not in message.text:
            said.append(message.text)

    page.on("console", heard)
    yield
    page.remove_listener("console", heard)
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.emulate_media(color_scheme="light")
    assert not said


def address(server: Server, view: str, **more: str) -> str:
    return f"{server[0]}evaluate/?{urlencode({'filter': view, **more})}"


def asked(studio: Studio, view: str, **more: str) -> EvaluationQuestion:
    """Return the page's question about the profile's model."""
    return studio.evaluations.asked(OnModel(filter=view, **more))  # type: ignore[arg-type]


def answered(page: Page, server: Server, view: str, **more: str) -> Page:
    """Open the results of the profile's model for `view`. The model reads the images first where necessary."""
    page.goto(address(server, view, key=model_choice_key(asked(server[1], view).model), **more))
    begin = page.locator("#begin")
    expect(begin.or_(page.locator("#answer"))).to_be_visible()
    if begin.count():
        begin.click()
    expect(page.locator("#answer")).to_be_visible(timeout=READ)
    expect(page.locator("#report")).to_be_visible()
    ranked(page)
    return page


def ranked(page: Page) -> None:
    """Wait until the page shows the order of the test cases, which it loads last."""
    page.wait_for_load_state()  # until then, a part of the page may be missing
    expect(page.locator("#part-ranking[data-wanted]")).to_have_count(0)


def opened(page: Page, link: Locator) -> int:
    """Return the number of images that Curate shows after a figure's link is clicked."""
    with page.expect_navigation(url=re.compile("/curate/")):
        link.click()
    page.wait_for_function("window.gallery && gallery.idle")
    return int(page.locator("#count").inner_text().replace(",", ""))


def images_behind(server: Server, link: Locator) -> list[int]:
    """Return the entries of the images that a figure's link opens, without leaving the page."""
    reply = httpx.get(urljoin(server[0], link.get_attribute("href") or ""), timeout=60)
    to = urlsplit(reply.headers["location"])
    assert to.path == "/curate/"
    return sorted(server[1].gallery.ids(View.read(to.query)))


READ = 180_000
"""Maximum number of milliseconds for loading a model and reading all images, on a machine with other work."""
NARROW = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


def wide(page: Page) -> bool:
    """Return True if the page is wider than its window."""
    return not page.evaluate(NARROW)


def test_choose_begin_cancel_go_on_and_the_answer(page: Page, server: Server) -> None:
    url, studio = server
    let, at = threading.Event(), threading.Event()
    loaded: list[Counted] = []

    def load(wanted: UnderTestSettings) -> Predictor:
        def hold() -> None:
            if model.asked >= 40:
                at.set()
                assert let.wait(300)

        model = Counted(wanted)
        model.after_batch = hold
        loaded.append(model)
        return model

    plain, studio.evaluations.predicting.load = studio.evaluations.predicting.load, load
    try:
        page.goto(f"{url}curate/?{OBJECTS}")
        page.locator("#to-evaluate").click()
        expect(page.locator("#part-models")).to_contain_text("has read none of the images yet")
        page.locator("#part-models .model-line").first.click()
        expect(page.locator("#mapping")).to_contain_text("all mapped")
        images = 12 * SCENES
        expect(page.locator("#progress")).to_contain_text(f"{images} images to read")
        page.locator("#begin").click()
        assert at.wait(300)
        expect(page.locator("#progress")).to_contain_text(re.compile(rf"\d+ of {images} images"))
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#progress")).to_have_text("Stopping: finished predictions are kept.")
        let.set()
        expect(page.locator("#progress")).to_contain_text("Cancelled: finished predictions are kept.")
        read = studio.evaluations.pending(asked(studio, OBJECTS)).read
        assert 0 < read < images
        expect(page.locator("#progress")).to_contain_text(f"{read} of {images} images are read")
        expect(page.locator("#part-result .notes")).to_contain_text(f"{images - read} of {images} images are not read")
        expect(page.locator("#report")).to_be_visible()  # the page reloaded, and the report stays
        expect(page.locator("#begin")).to_have_text("Go on")
        page.locator("#begin").click()
        expect(page.locator("#part-result ~ #part-work")).to_be_visible()  # after another reload, results come first
        expect(page.locator("#part-result")).not_to_contain_text("are not read yet")
        assert sum(one.asked for one in loaded) == images, "what was read is not read again"
    finally:
        let.set()
        studio.evaluations.predicting.load = plain
    found = studio.evaluations.evaluate(asked(studio, OBJECTS))
    expect(page.locator("#answer")).to_have_text(found.answer.replace("(-", "(\N{MINUS SIGN}"))
    held = found.effectiveness
    assert held is not None and held.error_original.value is not None and held.error_generated.value is not None
    before, after = f"{100 * held.error_original.value:.1f}", f"{100 * held.error_generated.value:.1f}"
    expect(page.locator("#card-error .value")).to_have_text(f"{before} → {after} %")
    assert held.clustering.effective is not None
    expect(page.locator("#card-worth .value")).to_have_text(f"{held.clustering.effective:,.0f}")
    shown = page.locator("#edits [data-table]:visible")
    assert shown.count() == 1 and shown.locator("svg").count() > 0, "the first table is one with figures"
    page.locator("#edits [data-tab=alternative]").click()
    expect(page.locator("#edits [data-table]:visible")).to_contain_text("fewer than 20 test cases")


def test_masks_that_nobody_checked_are_checked_from_the_answer(page: Page, tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as served:
        _, studio = served
        fill(studio.workspace, 2, road=True)
        question = asked(studio, STREETS)
        cases = studio.evaluations.cases(question.subject)
        studio.evaluations.predicting.read(question.model, cases, lambda done, total: None)
        answered(page, served, STREETS)
        check, facts = page.locator("#check-masks"), page.locator("#flips")
        expect(facts).to_contain_text("cannot tell: no check confirms that a mask holds")
        expect(page.locator("#part-result")).to_contain_text("20 masks of test cases are not checked yet")
        check.click()
        expect(check).to_have_count(0, timeout=READ)
        expect(page.locator("#part-ranking")).to_be_visible(timeout=READ)  # the page reloaded when all work was done
        ranked(page)
        expect(facts).to_contain_text(re.compile(r"mask holds\s*\d+\.\d %.* of 20 test cases"))
        found = studio.evaluations.evaluate(question)
        assert found.segmentation is not None and found.segmentation.kept > 0 and found.unchecked == 0
        link = facts.get_by_role("link", name=re.compile(r"of 20 test cases"))
        assert opened(page, link) == found.segmentation.kept
        page.goto("about:blank")


def test_every_number_opens_its_images(page: Page, server: Server) -> None:
    _, studio = server
    answered(page, server, OBJECTS)
    here, question = page.url, asked(studio, OBJECTS)
    cells = page.locator("#confusion figure").last.locator("td.miss a")
    label = cells.first.locator("xpath=ancestor::tr/th").inner_text()
    said = re.sub(r".* is said to be ", "", cells.first.get_attribute("aria-label") or "").replace("none of these", "")
    wanted = studio.evaluations.entries(question, Cell("confusion", label, said))
    assert wanted and opened(page, cells.first) == len(wanted)
    shown = page.locator(".cell:not([hidden])").evaluate_all("all => all.map((one) => Number(one.dataset.entry))")
    assert sorted(shown) == list(wanted)
    page.goto(here)
    here_before = page.locator("#confusion figure").first.locator("td.hit a").first
    label = here_before.locator("xpath=ancestor::tr/th").inner_text()
    wanted = studio.evaluations.entries(question, Cell("confusion before", label, label))
    assert wanted and images_behind(server, here_before) == sorted(wanted), "of an original, its test cases"
    for link, cell in (
        (page.locator("#card-error .value a"), Cell("wrong")),
        (page.locator("#card-excess .value a"), Cell("controls")),
        (page.locator("#flips dd a").first, Cell("newly wrong")),
        (page.locator("#classes tbody th a").first, None),
    ):
        if cell is None:
            cell = Cell("class", link.inner_text())
        assert images_behind(server, link) == sorted(studio.evaluations.entries(question, cell))
    page.locator("#edits [data-table]:visible .worst a").first.click()
    page.wait_for_selector("#large-result")
    assert page.url.endswith("&large=1")


def test_what_to_look_at_first(page: Page, server: Server) -> None:
    _, studio = server
    answered(page, server, OBJECTS)
    ranking = studio.evaluations.rank(asked(studio, OBJECTS), 100)
    ours = ranking.orders[0]
    row = page.locator("#orders [data-order=ours] td")
    faults = [str(ours.faults[budget]) for budget in sorted(ours.faults)]
    expect(row).to_have_text([f"{ours.apfd:.3f}", *faults])
    expect(page.locator("#ranking-said")).to_contain_text(f"of the {ours.all_faults} different faults")
    assert page.locator("#orders tbody tr").count() == page.locator(".eval-plot.found polyline").count() == 4
    first = page.locator(".first-ones > a").first
    assert f"image={ranking.first[0].entry}" in (first.get_attribute("href") or "")
    here = page.url
    assert opened(page, page.locator("#open-first")) == 100
    page.goto(here)
    assert opened(page, row.locator("a").last) == ours.images[0.1] == 12
    assert {one.entry for one in ranking.first[:12]} == set(
        page.locator(".cell:not([hidden])").evaluate_all("all => all.map((one) => Number(one.dataset.entry))")
    )


def test_every_number_of_a_segmenter_opens_its_images(page: Page, server: Server) -> None:
    _, studio = server
    answered(page, server, STREETS)
    question = asked(studio, STREETS)
    found = studio.evaluations.evaluate(question)
    effect, losses = found.segmentation, found.losses
    assert effect is not None and losses is not None and losses.generated.value is not None
    assert losses.reconstructed.value is not None and effect.miou_generated.value is not None
    share = f"{100 * losses.reconstructed.value:.1f} → {100 * losses.generated.value:.1f} %"
    expect(page.locator("#card-lost .value")).to_have_text(share)
    expect(page.locator("#card-error .value")).to_contain_text(f"→ {100 * effect.miou_generated.value:.1f}")
    expect(page.locator("#edits .mut").first).to_contain_text("change of the share of right pixels")
    expect(page.locator("#draft")).to_be_visible()

    def entries(cell: Cell) -> list[int]:
        return sorted(studio.evaluations.entries(question, cell))

    for place, kind in ((0, "confusion before"), (1, "confusion")):
        cell = page.locator("#confusion figure").nth(place).locator("td.hit a").last
        label = cell.locator("xpath=ancestor::tr/th").inner_text()
        wanted = entries(Cell(kind, label, label))  # type: ignore[arg-type]
        assert wanted and len(wanted) < 10 * ROADS, "not all of them"
        assert images_behind(server, cell) == wanted
    miss = page.locator("#confusion figure").last.locator("td.miss a").first
    label = miss.locator("xpath=ancestor::tr/th").inner_text()
    said = re.sub(r".* is said to be ", "", miss.get_attribute("aria-label") or "").replace("none of these", "")
    wanted = entries(Cell("confusion", label, said))
    assert wanted and images_behind(server, miss) == wanted

    edits = page.locator("#edits [data-table]:visible tbody tr")
    page.locator("#edits [data-tab='edit type']").click()
    name = edits.first.locator("th").inner_text()
    wanted = entries(Cell("edit type", name))
    assert wanted and images_behind(server, edits.first.locator("th a")) == wanted
    lost = next(one for one in found.edits["edit type"] if one.row.newly_wrong)
    row = edits.filter(has=page.get_by_role("link", name=lost.row.name, exact=True))
    wanted = entries(Cell("edit type", lost.row.name, only_wrong=True))
    assert set(wanted) <= set(entries(Cell("wrong")))
    assert images_behind(server, row.locator("td[data-what='loses a class'] a")) == wanted

    most = max(losses.classes, key=lambda one: one.lost)
    row = page.locator("#classes tbody tr").filter(has=page.get_by_role("link", name=most.name, exact=True))
    for width in (1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        (lost_in, of_cases) = (
            row.locator("td[data-what='lost in']").locator(one).bounding_box() for one in ("a", "small")
        )
        assert lost_in and of_cases and of_cases["y"] < lost_in["y"] + lost_in["height"] / 2, "both stand on one line"
    for link, behind in (
        (page.locator("#card-lost .value a"), Cell("wrong")),
        (page.locator("#card-error .value a"), Cell("generated")),
        (page.locator("#card-excess .value a"), Cell("controls")),
        (row.locator("th a"), Cell("class", most.name)),
        (row.locator("td[data-what='lost in'] a"), Cell("class", most.name, only_wrong=True)),
        (page.locator("#flips .piece.warn"), Cell("some wrong")),
    ):
        wanted = entries(behind)
        assert wanted and images_behind(server, link) == wanted, behind
    expect(page.locator("#ranking-said")).to_contain_text("A fault is the class that is lost and the edit.")
    assert page.locator("#orders tbody tr").count() == page.locator(".eval-plot.found polyline").count() == 4
    page.locator("#report summary").click()
    with page.expect_download() as waiting:
        page.locator("#report [data-file=html]").click()
    report = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert share in report and "A fault is the class that is lost" in report and "evaluate/images" not in report
    page.keyboard.press("Escape")
    with page.expect_navigation(url=re.compile("/study/")):
        page.locator("#draft").click()
    expect(page.locator("main")).to_contain_text("Does the road run where it runs in the original image?")


def test_another_model_is_looked_at_and_stands_beside_the_first(page: Page, server: Server, tmp_path: Path) -> None:
    _, studio = server
    file = tmp_path / "small.onnx"
    onnx_file(file)
    answered(page, server, OBJECTS)
    page.goto(address(server, OBJECTS))
    page.locator("#other-model summary").click()
    expect(page.locator("#model-form [name=file]")).to_be_hidden()
    page.locator("#model-form [name=source]").select_option("onnx")
    expect(page.locator("#model-form [name=model]")).to_be_hidden()
    page.locator("#model-form [name=file]").fill(str(tmp_path / "nothing.onnx"))
    page.locator("#look").click()
    expect(page.locator("#wrong-model")).not_to_be_empty()
    page.locator("#model-form [name=file]").fill(str(file))
    page.locator("#model-form [name=classes]").fill(", ".join(CLASSES))
    page.locator("#look").click()
    expect(page.locator("#wrong-model")).to_contain_text(
        "the mean of the three channels, such as 0.485, 0.456, 0.406, and their standard deviation"
    )
    page.locator("#model-form [name=mean]").fill(MEAN)
    page.locator("#model-form [name=std]").fill(STD)
    page.locator("#look").click()
    expect(page.locator("#model")).to_contain_text("small.onnx")
    expect(page.locator("#unmapped")).to_be_visible()
    assumed = page.locator("#assumptions")
    expect(assumed).to_contain_text("scaled to 32 × 32 pixels, whatever its shape")
    expect(assumed).to_contain_text("raw scores (logits)")
    expect(assumed).to_contain_text("3, from the list that was given")
    expect(assumed.locator("img")).to_have_count(2)
    page.wait_for_function("[...document.querySelectorAll('#assumptions img')].every((one) => one.naturalWidth > 0)")
    assert assumed.locator("img").last.evaluate("(one) => [one.naturalWidth, one.naturalHeight]") == [32, 32]
    page.locator("#begin").click()
    expect(page.locator("#answer")).to_be_visible(timeout=READ)
    expect(page.locator("#report")).to_be_visible()
    page.locator("#compare summary").click()
    page.locator("#compare a").first.click()
    part = page.locator("#part-compared")
    expect(part.locator("thead th a")).to_have_count(2)
    expect(part.locator(".side-by-side tbody th").filter(has_not=page.locator(".why"))).to_have_count(0)
    rows = {
        row.locator("th").inner_text(): row.locator("td b").all_inner_texts()
        for row in part.locator(".side-by-side tbody tr").all()
    }
    keys = [one.key for one in studio.evaluations.models(asked(studio, OBJECTS).subject)]
    figures = [studio.evaluations.evaluate(asked(studio, OBJECTS, key=key)).effectiveness for key in keys]
    ours, other = figures
    assert ours is not None and other is not None
    errors = [f"{100 * one.error_generated.value:.1f} %" for one in (other, ours) if one.error_generated.value]
    assert rows["error on generated images"] == errors and len(errors) == 2
    expect(page.locator("#same-sources")).to_contain_text(f"small.onnx: {other.cases} test cases")
    expect(part.locator("#which-is-better")).to_contain_text(re.compile("classifier.* is better|may be chance"))
    expect(page.locator("#not-mapped")).to_contain_text("Not mapped, and so not compared")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert not wide(page), width
    page.get_by_role("link", name="Show one alone").click()
    expect(page.locator("#part-compared")).to_be_hidden()
    ranked(page)


def test_the_report_holds_the_same_figures_in_every_form(page: Page, server: Server) -> None:
    _, studio = server
    answered(page, server, OBJECTS)
    said = page.locator("#answer").inner_text()
    files: dict[str, Download] = {}
    for kind in ("html", "markdown", "latex", "csv", "parquet"):
        page.locator("#report summary").click()
        with page.expect_download() as waiting:
            page.locator(f"#report [data-file={kind}]").click()
        files[kind] = waiting.value
        page.keyboard.press("Escape")
        expect(page.locator("#report .menu")).to_be_hidden()
    data = {kind: Path(one.path()).read_bytes() for kind, one in files.items()}
    names = {one.suggested_filename.rpartition(".")[0] for one in files.values()}
    assert names == {"images-of-a-filter-kind-classification-classifier-safetensors"}
    found = studio.evaluations.evaluate(asked(studio, OBJECTS)).effectiveness
    assert found is not None and found.error_generated.value is not None
    percent = f"{100 * found.error_generated.value:.1f}"
    assert f"{percent} %" in data["markdown"].decode()
    assert f"{100 * found.error_generated.value:.2f} [" in data["latex"].decode()
    table = pyarrow.parquet.read_table(io.BytesIO(data["parquet"])).to_pylist()
    rows = list(csv.DictReader(io.StringIO(data["csv"].decode("utf-8-sig"))))
    assert [set(one) for one in rows] == [set(one) for one in table] and len(rows) == len(table) > 10
    assert any(found.error_generated.value in one.values() for one in table)
    numbers = [[value for value in one.values() if isinstance(value, float)] for one in table]
    assert any(numbers)
    for row, one in zip(rows, table, strict=True):
        for name, value in one.items():
            if isinstance(value, float):
                assert float(row[name]) == pytest.approx(value)
    page.goto("about:blank")
    page.set_content(data["html"].decode())
    expect(page.locator("#answer")).to_have_text(said)
    assert page.locator("script").count() == 0
    assert page.locator("a[href]:not(.why)").count() == 0 and page.locator("link").count() == 0, "it stands alone"
    assert page.locator("#orders tbody tr").count() == 4
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert not wide(page)


def test_the_question_mark_explains_every_figure(page: Page, server: Server) -> None:
    for view in (STREETS, OBJECTS):
        answered(page, server, view)
        assert page.locator(".why").count() > 15 and page.evaluate(UNEXPLAINED) == []
    window = page.locator("#keys-window")
    page.keyboard.press("?")
    expect(window).to_be_visible()
    for words in (
        *("APFD", "DeepGini", "Entropy", "Design effect", "Effective number of images", "Intra-class correlation"),
        *(
            "Expected calibration error",
            "Interval",
            "Bootstrap",
            "Excess",
            "Factor",
            "Flips",
            "mIoU",
            "Wrong and valid",
        ),
        "Validity score",
    ):
        line = window.locator("p").filter(has=page.locator("b", has_text=re.compile(f"^{words}$")))
        expect(line).to_contain_text("Example: ")
    page.keyboard.press("?")
    expect(window).to_be_hidden()
    page.locator("#keys-button").click()
    window.get_by_role("button", name="Ranking").click()
    expect(window.locator("#explains-apfd")).to_be_in_viewport()
    page.keyboard.press("Escape")
    here = page.url
    page.locator("#card-excess .why").click()
    expect(window.locator("#explains-excess")).to_be_in_viewport()
    expect(window.locator(".sought")).to_have_count(1)
    assert page.url == here, "the page stays"
    window.locator("[data-close-window]").click()
    page.goto(address(server, OBJECTS))
    page.locator("#other-model summary").click()
    page.locator("#model-form [name=model]").press_sequentially("a?")
    expect(page.locator("#model-form [name=model]")).to_have_value("a?")
    expect(window).to_be_hidden()


def test_a_number_that_opens_images_looks_like_it_and_no_other_does(page: Page, server: Server) -> None:
    for view, least in ((OBJECTS, 40), (STREETS, 40)):
        answered(page, server, view)
        found = page.evaluate(UNLIKE_LINKS)
        assert found["links"] > least and found["unlike"] == [], view
    page.keyboard.press("Tab")
    page.locator("#card-error .value a").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_it_prints_on_three_pages_with_the_answer_first(page: Page, server: Server) -> None:
    def prints() -> None:
        data = page.pdf(prefer_css_page_size=True)
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 3
        page.set_viewport_size({"width": PAPER[0], "height": PAPER[1]})
        page.emulate_media(media="print")
        answer = page.locator("#answer").bounding_box()
        assert answer is not None and answer["y"] + answer["height"] < PAPER[1] / 4
        assert page.evaluate(SPILT) == [] and not wide(page)
        for other in page.locator("header.top, .btn, .why, dialog, #explanations").all():
            expect(other).to_be_hidden()
        page.emulate_media(media="null")

    for view in (OBJECTS, STREETS):
        answered(page, server, view)
        found = server[1].evaluations.evaluate(asked(server[1], view))
        ranking = server[1].evaluations.rank(asked(server[1], view))
        prints()
        page.goto("about:blank")
        one = found.edits["edit type"][0]
        many: list[EditRow] = [replace(one, row=replace(one.row, name=f"word {number}", n=50)) for number in range(100)]
        many += [replace(one, row=replace(one.row, name=f"rare {number}", n=5)) for number in range(100)]
        for edits in (found.edits, {name: tuple(many) for name in found.edits}):
            page.set_content(report_html(replace(found, edits=edits), ranking, lambda sha: b""))
            prints()
        page.set_content(report_html(found, ranking, lambda sha: b""))
        hrefs = page.locator("a[href]").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
        assert hrefs and all(page.locator(href).count() == 1 for href in hrefs), "each leads to its explanation"
        page.locator("#card-error .why").click()
        expect(page.locator(str(page.locator("#card-error .why").get_attribute("href")))).to_be_in_viewport()


def test_pages_hold_at_any_width_light_and_dark(page: Page, server: Server) -> None:
    answered(page, server, OBJECTS)
    whole = page.url
    answered(page, server, STREETS)
    streets = page.url

    def is_dark() -> bool:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return max(map(int, re.findall(r"\d+", ground)[:3])) < 128

    for here in (f"{server[0]}evaluate/", address(server, OBJECTS), whole, streets):
        page.goto(here)
        if here == whole:
            expect(page.locator("#orders")).to_be_visible()
        assert not is_dark()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert not wide(page), f"{here} at {width}"
            assert page.evaluate(SPILT) == [], f"{here} at {width}"
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert is_dark() and not wide(page)


def test_menus_lie_within_a_phone(page: Page, server: Server) -> None:
    answered(page, server, OBJECTS)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#report summary").click()
    page.locator("#report a").last.click(trial=True)
    box = page.locator("#report .menu").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    expect(page.locator("#report .menu")).to_be_hidden()


def test_a_menu_lies_within_the_page_where_its_button_stands_on_a_second_line(page: Page, server: Server) -> None:
    answered(page, server, OBJECTS)
    page.locator("#report summary").click()
    rows = set()
    for width in range(620, 1300, 40):
        page.set_viewport_size({"width": width, "height": 800})
        box, title = page.locator("#report .menu").bounding_box(), page.locator(".eval-head h1").bounding_box()
        assert box is not None and title is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, width
        rows.add(box["y"] > title["y"] + title["height"] + 50)
    assert rows == {True, False}, "the button stands beside the title, and below it"


def test_the_header_names_every_page_on_a_phone(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for _, words, at in NAVIGATION:
        page.goto(server[0] + at.removeprefix("/"))
        page.wait_for_selector(".start h1" if at == "/" else ".studio .top nav")
        assert page.evaluate(CURRENT) == words
        assert not wide(page), at
        expect(page.locator(".top nav").first.locator("a")).to_have_text([one for _, one, _ in NAVIGATION])


def test_a_model_of_ones_own_is_chosen_before_there_is_an_image(page: Page, odd: Server, tmp_path: Path) -> None:
    url, studio = odd
    own = tmp_path / "My own.onnx"
    onnx_file(own)
    page.goto(f"{url}evaluate/")
    expect(page.locator("#part-subjects")).to_contain_text("Nothing to evaluate yet")
    page.locator("#other-model summary").click()
    picker = page.locator("#model-form [data-model-file]")
    (tmp_path / "notes.txt").write_text("no model")
    picker.set_input_files(tmp_path / "notes.txt")
    expect(page.locator("[data-sent]")).to_contain_text("'notes.txt' is no model that can be read")
    picker.set_input_files(own)
    expect(page.locator("[data-sent]")).to_have_text("My own.onnx is in the workspace.")
    expect(page.locator("#model-form [name=source]")).to_have_value("onnx")
    for name, typed in (("classes", ", ".join(CLASSES)), ("mean", MEAN), ("std", STD)):
        page.locator(f"#model-form [name={name}]").fill(typed)
    page.locator("#look").click()
    chosen = page.locator("#part-chosen")
    expect(chosen).to_contain_text("My-own.onnx")
    expect(chosen).to_contain_text(f"A classifier of 3 classes: {', '.join(CLASSES)}.")
    expect(page.locator("#part-subjects")).to_contain_text("Your choice of a model is kept until then.")

    run_of(studio.workspace, 900, [901, 902], label="boat")
    page.reload()
    page.locator(".subject-line a").first.click()
    expect(page.locator("#model")).to_have_text("My-own.onnx")
    page.locator("#begin").click()
    expect(page.locator("#report")).to_be_visible(timeout=READ)  # the page reloads with the results
    page.goto(f"{url}evaluate/")
    expect(page.locator(".model-line").filter(has_text="My-own.onnx")).to_be_visible()


def test_the_header_of_explore_holds_a_message_at_any_width(page: Page, odd: Server) -> None:
    url, studio = odd
    run = studio.runs.from_upload(encoded(picture(600)), "A bird.png")
    page.goto(f"{url}?run={run}")
    page.wait_for_selector("#run-all")
    page.evaluate("studio.say('What was said here is so long that it takes all the room that there is. '.repeat(3))")
    expect(page.locator("#said")).to_contain_text("What was said")
    for width in (390, 761, 901, 960, 1001, 1151, 1231, 1501):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(NARROW)  # the parts adapt to the window one after the other


def test_a_hostile_class_is_text_everywhere(page: Page, odd: Server) -> None:
    _, studio = odd
    for place in range(3):
        run_of(studio.workspace, 100 + place, range(200 + 10 * place, 208 + 10 * place), label=HOSTILE)
    view = urlencode({"class": HOSTILE})
    page.goto(address(odd, view))
    page.locator("#part-models .model-line").first.click()
    expect(page.locator("#unmapped")).to_contain_text(HOSTILE)
    expect(page.locator("#begin")).to_have_count(0)
    expect(page.locator("#part-result")).to_be_hidden()
    page.locator("#own-mapping textarea").fill(f'label,model class\n"{HOSTILE}",bird')
    page.locator("#map").click()
    page.locator("#begin").click()
    expect(page.locator("#answer")).to_be_visible(timeout=READ)
    expect(page.locator("#report")).to_be_visible()
    expect(page.locator("#classes tbody th").first).to_have_text(HOSTILE)
    expect(page.locator("#confusion figure").last.locator("tbody th").first).to_have_text(HOSTILE)
    expect(page.locator(".first-ones small").first).to_contain_text(HOSTILE)
    page.locator("#report summary").click()
    with page.expect_download() as waiting:
        page.locator("#report [data-file=html]").click()
    here = page.url
    assert opened(page, page.locator("#classes tbody th a").first) == 24
    assert page.evaluate("window.broken") is None
    page.goto("about:blank")  # stops the scripts of the gallery, which would otherwise run on in the report
    page.set_content(Path(waiting.value.path()).read_text(encoding="utf-8"))
    expect(page.locator("#classes tbody th").first).to_have_text(HOSTILE)
    page.goto(here)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("window.broken") is None and not wide(page)


def test_what_cannot_be_evaluated_says_so(page: Page, odd: Server) -> None:
    _, studio = odd
    workspace = studio.workspace
    page.goto(address(odd, "class=nothing-like-it"))
    expect(page.locator("#part-problem")).to_have_text("It has no test case.")
    run_of(workspace, 300, [301, 302], label="")
    page.goto(address(odd, "none=class"))
    expect(page.locator("#part-problem")).to_contain_text("None of its images has a label")
    expect(page.locator("#part-models")).to_have_count(0)
    run_of(workspace, 310, [311], label="bird")
    answered(page, odd, "class=bird")
    expect(page.locator("#card-error")).to_contain_text("no interval, since there is one source only")
    expect(page.locator("#card-excess .value")).to_have_text("cannot tell")
    expect(page.locator("#edits [data-table]:visible")).to_contain_text("fewer than 20 test cases")
    expect(page.locator("#ranking-said")).to_contain_text("too few to compare orders")
    expect(page.locator("main")).not_to_contain_text("NaN")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#edits [data-table]:visible [data-what='newly wrong']").first).to_be_visible()
    expect(page.locator("#classes [data-what=generated]").first).to_contain_text("of 1")
    expect(page.locator("#classes [data-what=generated]").first).to_be_visible()


def test_splits_are_never_mixed(page: Page, odd: Server) -> None:
    url, studio = odd
    sets = studio.workspace.test_sets
    run_of(studio.workspace, 400, [401], label="barge")
    run_of(studio.workspace, 410, [411, 412], label="barge")
    entries = studio.workspace.catalogue.ids()
    cases = [one for one in sets.cases(studio.workspace.catalogue.test_cases(entries)) if one.label == "barge"]
    set_id = sets.create("Boats")
    version = sets.get(set_id).versions[-1].number
    sets.add(version, [SetEntry(one.image, source=one.source, label=one.label, test_case=one.id) for one in cases])
    sets.set_splits(version, {one.image: "train" if place == 0 else "test" for place, one in enumerate(cases)})
    page.goto(f"{url}evaluate/")
    line = page.locator(f"[data-version='{version}']")
    expect(line.get_by_role("link")).to_have_text(["Boats@draft", "test", "train"])
    page.goto(f"{url}evaluate/?version={version}")
    expect(page.locator("#part-splits")).to_contain_text("never mixed")
    expect(page.locator("#part-models")).to_have_count(0)
    page.locator("#part-splits").get_by_role("link", name="test").click()
    expect(page.locator(".eval-head")).to_contain_text("split test · 2 test cases")
    expect(page.locator("#part-models")).to_be_visible()


def test_a_control_set_is_watched_as_it_is_drawn(page: Page, odd: Server) -> None:
    _, studio = odd
    for place in range(2):
        run = studio.runs.from_upload(encoded(picture(500 + place)), f"{place}.png")
        studio.commands.send("task", {"run": run, "kind": "classification", "label": "kite"})
        for setting, value in {"generation.steps": 3, "counterfactuals.captions": 1}.items():
            studio.commands.send("setting", {"run": run, "setting": setting, "value": value})
        for act in ("run-all", "generate"):
            perform(studio, run, act)
            over(studio.jobs)
    held = HeldGenerator()
    studio.driver.models.generator = held  # type: ignore[misc]
    answered(page, odd, "class=kite")
    expect(page.locator("#card-excess .value")).to_have_text("cannot tell")
    page.locator("#make-control").click()
    expect(page.locator("#control")).to_contain_text("0 of 2 reconstructions drawn")
    held.let_go()
    expect(page.locator("#control")).to_contain_text("1 of 2 reconstructions drawn")
    page.locator("#control").get_by_role("button", name="Cancel").click()
    expect(page.locator("#make-control")).to_be_visible()
    until(lambda: not studio.jobs.active())
    held.let_all()
    page.locator("#make-control").click()
    expect(page.locator(".eval-head")).to_contain_text("2 reconstructions")
    expect(page.locator("#control")).to_have_count(0)
    # The same job draws the images and has the model read them: no second press is needed.
    expect(page.locator("#begin")).to_have_count(0)
    expect(page.locator("#card-excess .value")).not_to_have_text("cannot tell")
    expect(page.locator("main")).not_to_contain_text("There are no reconstructions")


def test_the_evidence_of_a_released_version_is_written_and_downloaded(page: Page, odd: Server) -> None:
    url, studio = odd
    fill(studio.workspace, 3, label="flower", most=(2, 2))
    answered(page, odd, "class=flower")
    expect(page.locator("#evidence-said")).to_contain_text("a released version of a test set")
    expect(page.locator("#begin-evidence")).to_have_count(0)

    made = studio.commands.send("create-test-set", {"title": "Flowers"})["test_set"]
    studio.commands.send("add-to-test-set", {"test_set": made, "filter": "class=flower", "sources": True})
    studio.commands.send("release-test-set", {"test_set": made, "unreviewed": True})
    version = studio.workspace.test_sets.get(made).versions[-1].number
    key = model_choice_key(asked(studio, "class=flower").model)
    page.goto(f"{url}evaluate/?version={version}&key={key}")
    ranked(page)
    page.locator("#begin-evidence").click()
    link = page.locator("#evidence-said").get_by_role("link", name="flowers-v1-evidence.zip")
    expect(link).to_be_visible(timeout=READ)
    with page.expect_download() as waiting:
        link.click()
    with zipfile.ZipFile(waiting.value.path()) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert names[-1] == "flowers-v1-evidence/manifest.json" and "flowers-v1-evidence/recompute.py" in names
    expect(page.locator("#begin-evidence")).to_have_text("Write it again")
