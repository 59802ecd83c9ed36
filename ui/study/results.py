"""What a lead sees of a study that has started: results (live), workers, adjudication, single images, the log.

`results_page` is the page of /study/{id}/; `add_result_routes` adds the others. All are made of one analysis a study,
which `Reports` keeps until the study's revision changes. What the pages send is in `deciding`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from pipeline.errors import UserError
from study.types import Study
from ui.studio import Studio
from ui.study.adjudication import adjudication_page
from ui.study.controls_box import controls_box
from ui.study.deciding import add_deciding
from ui.study.divided import Wish, all_divided
from ui.study.frame import page, study_address, study_head
from ui.study.invitations import actions
from ui.study.log_page import log_page
from ui.study.one_image import image_page
from ui.study.one_worker import worker_page
from ui.study.posting import Missing
from ui.study.reports import Analysed, reports_of
from ui.study.result_page import copy_methods, export_menu, layout, parts, sent
from ui.study.setup import dialogs
from ui.study.workers_page import all_workers
from ui.views.markup import Child, Html, el

SHEETS, SCRIPTS = ("results-study.css",), ("results-study.js",)
LOG_LIMIT = 500
_FRESH = {"Cache-Control": "no-store"}


def results_page(studio: Studio, study: Study, signed_in: bool = False) -> str:
    """The page of results of a study that has started, as a document."""
    found = reports_of(studio).of(study.id)
    content = el("div", layout(parts(found.report, found.data)), data_study=study.id, **_live(study, "results"))
    acts = (el("span", actions(study), copy_methods(), export_menu(study), class_="r-acts"),)
    # The script for pause and close stands before ours, with the window in which it asks.
    return _document(study, "results", signed_in, [content, dialogs()], acts, ("study-acts.js",))


def add_result_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages of a study that has started, the parts that they fetch again, and what they send."""
    add_deciding(app, studio)

    def shown(request: Request, study_id: str, tab: str, make: Callable[[Analysed], Child]) -> Response:
        """A page made of the analysis; a draft has none, and goes to its set-up."""
        try:
            study = studio.workspace.studies.study(study_id)
            if study.state == "draft":
                return RedirectResponse(study_address(study.id), status_code=303)
            content = make(reports_of(studio).of(study.id))
        except UserError as error:
            return HTMLResponse(_refusal(str(error), signed_in(request)), status_code=404)
        return HTMLResponse(_document(study, tab, signed_in(request), content), headers=_FRESH)

    @app.get("/study/{study_id}/workers", include_in_schema=False)
    def workers(request: Request, study_id: str) -> Response:
        def make(found: Analysed) -> Child:
            return el("div", layout(workers_parts(found)), **_live(found.report.study, "workers"))

        return shown(request, study_id, "workers", make)

    @app.get("/study/{study_id}/workers/{name:path}", include_in_schema=False)
    def one_worker(request: Request, study_id: str, name: str, page: str = "1") -> Response:
        def make(found: Analysed) -> Child:
            worker = next((one for one in found.report.workers if one.worker == name), None)
            if worker is None:
                raise Missing("There is no such worker in this study.")
            return worker_page(found.report, found.data, worker, _number(page))

        return shown(request, study_id, "workers", make)

    @app.get("/study/{study_id}/adjudication", include_in_schema=False)
    def adjudication(request: Request, study_id: str, item: str = "", question: str = "") -> Response:
        def make(found: Analysed) -> Child:
            return adjudication_page(found.report, found.data, _number(item) if item else None, question)

        return shown(request, study_id, "adjudication", make)

    @app.get("/study/{study_id}/disagreements", include_in_schema=False)
    def disagreements(
        request: Request, study_id: str, question: str = "", status: str = "", page: str = "1"
    ) -> Response:
        wish = Wish(question[:40], status[:40], _number(page))
        return shown(request, study_id, "results", lambda found: all_divided(found.report, found.data, wish))

    @app.get("/study/{study_id}/items/{public}", include_in_schema=False)
    def image(request: Request, study_id: str, public: str) -> Response:
        def make(found: Analysed) -> Child:
            item = next((one for one in found.data.items if one.public == public), None)
            if item is None:
                raise Missing("There is no such image in this study.")
            return image_page(found.report, found.data, item)

        return shown(request, study_id, "results", make)

    @app.get("/study/{study_id}/log", include_in_schema=False)
    def log(request: Request, study_id: str, all: str = "") -> Response:
        studies = studio.workspace.studies

        def make(found: Analysed) -> Child:
            study = found.report.study
            names = {one.id: one.name for one in studies.studies()} if all else None
            return log_page(study, studies.log("" if all else study.id, LOG_LIMIT), LOG_LIMIT, names)

        return shown(request, study_id, "log", make)

    @app.get("/study/api/{study_id}/live", include_in_schema=False)
    def live(study_id: str, view: str = "results") -> Response:
        try:
            found = reports_of(studio).of(study_id)
            state = studio.workspace.studies.study(study_id).state
        except UserError as error:
            return JSONResponse({"error": str(error)}, status_code=404)
        made = workers_parts(found) if view == "workers" else parts(found.report, found.data)
        return JSONResponse({"state": state, "parts": sent(made)}, headers=_FRESH)


def workers_parts(found: Analysed) -> Mapping[str, Html | None]:
    """The parts of the page of workers."""
    return {"all-workers": all_workers(found.report), "controls": controls_box(found.report, found.data)}


def signed_in(request: Request) -> bool:
    """Whether the lead has signed in, so that pages show a way out."""
    return bool(getattr(request.state, "signed_in", False))


def _document(
    study: Study, tab: str, signed: bool, content: Child, acts: Sequence[Child] = (), scripts: Sequence[str] = ()
) -> str:
    return page(
        study.name,
        study_head(study, tab, *acts),
        content,
        signed_in=signed,
        sheets=SHEETS,
        scripts=(*scripts, *SCRIPTS),
    )


def _refusal(words: str, signed: bool) -> str:
    """What there is to say instead of a page."""
    back = el("p", el("a", "All studies", href="/study/"))
    return page(
        "Not there", el("section", el("h1", "Not there"), el("p", words), back, class_="card box"), signed_in=signed
    )


def _live(study: Study, view: str) -> dict[str, str | None]:
    """The attributes that let a page fetch its parts again; not of a closed study, which only the lead changes."""
    return {
        "class_": "live",
        "data_live": f"/study/api/{study.id}/live?view={view}",
        "data_state": study.state,
        "data_every": "4000" if study.state != "closed" else None,
    }


def _number(text: str) -> int:
    """A number from an address; 1 for anything else, as for one that is out of any range."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
