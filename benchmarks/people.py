"""Simulated people who use all pages of a running studio at a human pace, for `benchmarks.hour`.

Each person is a function that visits its pages once, and yields the name of each act when it is done.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from PIL import Image

from tests.support.browser import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 300.0
"""Timeout of a request in seconds. It is much longer than requests take, since the machine may be busy."""
SELDOM = 4
"""Number of rounds after which a person repeats a slow act, such as drawing."""
IMPORTED, SIDE = 3, 64
"""Number of pictures that an import has, and their side in pixels."""
_ADJUDICATED = re.compile(r'data-item="(\d+)"\s+data-question="(\w+)"')
"""Pattern that finds items and their questions on the page where the lead decides open cases."""
NAMES, EXPLORED = itertools.count(), itertools.count()
"""Counters of names for imports and test sets, and of the explorer's rounds. Only some rounds draw an image."""


class Site:
    """Sends requests of one person to a studio. All methods raise an error if the studio refuses a request."""

    def __init__(self, url: str, study: str) -> None:
        """`study` is the id of the study on which the annotators work."""
        self.url, self.study = url, study
        self.http = httpx.Client(base_url=url, timeout=SECONDS, headers={"X-Studio": "1"}, follow_redirects=True)
        example = self.call("show_example")
        self.example_study = str(example["study"])
        self.evaluations = [{"version": one["version"], "key": one["model"]} for one in example["sets"]]
        """Test set version and model of each evaluation in the example: classification first, then segmentation."""

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        """Open a page or fetch a file."""
        return self.http.get(path, params=parameters or None).raise_for_status()

    def send(self, path: str, **fields: Any) -> Any:
        """Send JSON to a path, like the script of a page. Return the reply."""
        return self.http.post(path, json=fields).raise_for_status().json()

    def call(self, name: str, **fields: Any) -> Any:
        """Call an endpoint for scripts, and return its result."""
        reply = self.http.post(f"gradio_api/run/{name}", json={"data": fields})
        if not reply.is_success:
            raise ValueError(f"{name}: {reply.text[:500]}")
        return reply.json()["data"][0]

    def finish(self, begun: Mapping[str, Any]) -> None:
        """Wait until a job ends. `begun` is the reply that named the job. Raises ValueError if the job fails."""
        event = self.http.post("gradio_api/call/v2/watch_job", json={"job": begun["job"]["job"]}).json()["event_id"]
        events = self.get(f"gradio_api/call/watch_job/{event}").text
        if '"state": "done"' not in events:
            raise ValueError(events[-500:])


Person = Callable[[Site], Iterator[str]]


def explorer(site: Site) -> Iterator[str]:
    """Run the text stages on a sample, edit its caption, and undo the edit. Draw an image only in some rounds."""
    site.get("")
    sample = random.choice(site.call("list_samples")["samples"])["sample"]
    run = site.call("run_from_sample", sample=sample)["run"]
    yield "open a sample"
    site.finish(site.call("run_all", run=run))
    yield "run all text stages"
    caption = site.call("show_run", run=run)["stages"][0]["value"]["text"]
    site.call("caption", run=run, text=f"{caption} It is windy.")
    yield "edit a caption"
    site.call("undo", run=run)
    yield "undo an edit"
    if next(EXPLORED) % SELDOM == 0:
        for place, one in enumerate(_captions(site, run)[1:], start=1):
            site.call("counterfactual_use", run=run, place=place, text=one["text"], used=False)
        site.finish(site.call("generate", run=run, shown=site.call("show_run", run=run)["gate"]["shown"]))
        yield "draw an image"
        (image,) = site.call("list_images", run=run)["images"]
        site.call("review", run=run, case=image["case"], verdict="accepted")
        site.get(site.call("download_image", case=image["case"])["url"])
        yield "accept and download an image"
    else:
        site.finish(site.call("run", run=run, stage="keywords", force=True))
        yield "run a text stage again"
        site.call("delete_run", run=run)
        yield "delete a run"


def _captions(site: Site, run: str) -> Sequence[Mapping[str, Any]]:
    captions: Sequence[Mapping[str, Any]] = site.call("show_run", run=run)["stages"][-1]["value"]["items"]
    return captions


def curator(site: Site) -> Iterator[str]:
    """Filter, scroll, decide and undo. Look at the map, coverage and near duplicates. Import a small zip file."""
    site.get("curate/")
    for view in ("review=open", "kind=classification&sort=newest", "text=snowy"):
        site.get("curate/api/totals", view=view)
        for at in range(0, 120, 30):
            site.get("curate/api/cells", view=view, at=at, n=30, thumbs=30)
        yield "filter and scroll the gallery"
    site.call("search_images", meaning="a red bird in snow")
    yield "search by meaning"
    found = site.call("list_test_cases", filter="review=open", limit=20)["test_cases"]
    for image in found[:3]:
        site.get("curate/api/detail", entry=image["entry"])
        site.get("curate/api/origin", entry=image["entry"])
        done = site.send("curate/api/decide", entries=[image["entry"]], verdict="rejected", author="Ada")["result"]
        site.send("curate/api/undo-decision", decision=done["decision"], author="Ada")
        yield "reject an image and undo it"
    site.call("near_duplicates", entry=found[0]["entry"])
    site.call("near_duplicate_groups")
    yield "look for near duplicates"
    site.get("curate/map")
    for colour in ("class", "review"):
        site.get("curate/api/map-points", colour=colour)
    yield "look at the map"
    site.get("curate/coverage")
    site.get("curate/coverage", table="weather", by="accepted")
    yield "look at the coverage"
    site.get("curate/import")
    name = f"import {next(NAMES)}.zip"
    site.http.post("curate/files/import", params={"file": name}, content=_archive()).raise_for_status()
    while site.get("curate/api/import").json()["active"]:
        yield "watch an import"
    site.get("curate/", **{"import": name.removesuffix(".zip")})
    yield "import a zip"


def _archive() -> bytes:
    """Return a zip file with new pictures in a folder that is named after a class."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(IMPORTED):
            picture = io.BytesIO()
            Image.effect_noise((SIDE, SIDE), random.uniform(20, 80)).convert("RGB").save(picture, "PNG")
            archive.writestr(f"bird/{number}.png", picture.getvalue())
    return file.getvalue()


def releaser(site: Site) -> Iterator[str]:
    """Make a test set, split and release it, export it and look at the next draft."""
    site.get("curate/sets")
    test_set = site.call("create_test_set", title=f"Things of round {next(NAMES)}")["test_set"]
    site.call("add_to_test_set", test_set=test_set, filter="review=accepted&kind=classification")
    yield "make a test set"
    site.get(f"curate/sets/{test_set}")
    site.get("curate/api/set-split", test_set=test_set, train=50, test=50)
    site.call("split_test_set", test_set=test_set, train=0.5, test=0.5)
    yield "split a test set"
    version = site.call("release_test_set", test_set=test_set, note="Of a round.")["version"]
    yield "release a test set"
    site.get(site.call("download_test_set", version=version, format=random.choice(("imagefolder", "csv")))["url"])
    yield "download a test set"
    site.call("verify_test_set", version=version)
    site.call("draft_test_set", version=version)
    image = site.call("show_test_set", version=version)["images"][0]["image"]
    site.call("remove_from_test_set", test_set=test_set, images=[image])
    site.get(f"curate/sets/{test_set}/compare")
    yield "compare a draft with its version"
    site.call("delete_test_set_draft", test_set=test_set)
    yield "delete a draft"


def evaluator(site: Site) -> Iterator[str]:
    """Look at batches and evaluations, filter and compare them, and download their reports."""
    site.get("batches/")
    for batch in site.call("list_batches")["batches"]:
        site.get(f"batches/{batch['batch']}")
    site.get("batches/api/list")
    site.get("metrics")
    yield "look at batches"
    site.get("evaluate/")
    yield "look at evaluations"
    for kind, query in zip(("classification", "segmentation"), site.evaluations, strict=True):
        site.get("evaluate/", **query)
        while not site.get("evaluate/api/state", **query).json()["ready"]:
            site.send("evaluate/api/look", **query)  # the page does this too if the server has not loaded the model
            yield "have a model loaded"
        site.get("evaluate/api/ranking", **query)
        yield "open an evaluation"
        site.get("evaluate/", key=query["key"], filter=f"kind={kind}&review=accepted")
        site.get("evaluate/", **query, beside=query["key"], other=query["version"])
        yield "filter and compare an evaluation"
        for form in ("html", "markdown", "latex", "csv", "parquet"):
            site.get(f"evaluate/report/{form}", **query)
            yield "download a report"


def lead(site: Site) -> Iterator[str]:
    """Read results, workers, disagreements and files of two studies. Decide open cases and undo the decisions."""
    site.get("study/")
    for study in (site.study, site.example_study):
        here = f"study/{study}"
        for page in ("", "workers", "adjudication", "disagreements", "run", "log"):
            site.get(f"{here}/{page}")
            yield "look at a study"
        if case := _ADJUDICATED.search(site.get(f"{here}/adjudication").text):
            for answer in ("yes", ""):
                site.call("adjudicate", study=study, item=int(case[1]), question=case[2], answer=answer)
            yield "adjudicate and take it back"
        site.call("study_outcomes", study=study)
        for file in ("answers.csv", "outcomes.csv", "study.zip"):
            site.get(f"{here}/export/{file}")
        yield "download the files of a study"


def follower(site: Site) -> Iterator[str]:
    """Request news of a running study every few seconds, as open pages of the study do."""
    revision = {"results": "", "workers": ""}
    for _ in range(10):
        for view, seen in revision.items():
            reply = site.get(f"study/api/{site.study}/live", view=view, revision=seen).json()
            revision[view] = reply.get("revision", seen)
        site.get(f"study/api/{site.study}/progress")
        yield "follow a study"


def agent(site: Site) -> Iterator[str]:
    """Open the page on writing scripts for the studio. Call tools by MCP, then call endpoints."""
    site.get("scripts")
    site.get("gradio_api/info")
    yield "look at the endpoints"
    anyio.run(_by_mcp, f"{site.url}gradio_api/mcp/")
    yield "call tools by MCP"
    for name in ("list_runs", "list_jobs", "list_studies", "edited_values", "coverage"):
        site.call(name)
        yield "call an endpoint"


async def _by_mcp(address: str) -> None:
    async with streamable_http_client(address) as (read, write, _), ClientSession(read, write) as studio:
        await studio.initialize()
        await studio.list_tools()
        for name in ("list_runs", "count_test_cases"):
            result = await studio.call_tool(name, {})
            if result.isError:
                raise ValueError(str(result.content)[:500])


PEOPLE: Sequence[Person] = (explorer, curator, releaser, evaluator, lead, follower, agent)


def addresses(site: Site) -> list[str]:
    """Return one address for each page of the studio, such as those of a run, a batch and a test set."""
    batch = site.call("list_batches")["batches"][0]["batch"]
    test_set = site.call("list_test_sets")["test_sets"][0]["test_set"]
    query = "&".join(f"{name}={value}" for name, value in site.evaluations[0].items())
    studies = [f"study/{one}/{page}" for one in (site.study, site.example_study) for page in ("", "workers", "run")]
    run = site.call("list_runs", limit=1)["runs"][0]["run"]
    curate = ["curate/", "curate/map", "curate/coverage", "curate/sets", f"curate/sets/{test_set}", "curate/import"]
    others = ["batches/", f"batches/{batch}", "evaluate/", f"evaluate/?{query}", "study/", "scripts", "annotate/"]
    return [f"{site.url}{path}" for path in ("?run=", f"?run={run}", *curate, *others, *studies)]


def visitor(page: Page, site: Site) -> Iterator[str]:
    """Run a sample's text stages in a browser, edit its caption, accept an image by a key, and look at all pages."""
    page.goto(f"{site.url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)
    page.click(f".sample >> nth={random.randrange(3)}")
    page.wait_for_selector("#run-all:enabled")
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    yield "run all text stages in a browser"
    page.fill("#caption-text", f"{page.input_value('#caption-text')} It is windy.")
    page.press("#caption-text", "Enter")
    settled(page)
    page.click("#undo")
    settled(page)
    yield "edit a caption in a browser and undo it"
    page.goto(f"{site.url}curate/?review=open")
    page.wait_for_function("window.gallery?.review && gallery.idle")
    page.evaluate("document.getElementById('grid').scrollTop = 2000")
    page.wait_for_function("gallery.idle")
    for key in ("a", "u"):
        page.keyboard.press(key)
        page.wait_for_function("!gallery.review.waiting.length")
    yield "accept an image in a browser and undo it"
    for address in addresses(site):
        page.goto(address)
        page.wait_for_load_state("load")
        yield "look at a page in a browser"
