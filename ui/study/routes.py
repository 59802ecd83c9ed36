"""All routes of the lead's pages. /study/{id}/ shows the set-up of a draft, or the results of a started study. All
results of a study come from one cached analysis. `requests` has the routes to which pages send commands and files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from core.studies import Item, Study
from services.changes import Revisions
from services.commands import Commands, Missing
from services.studies.analyses import Analyses, Analysis
from services.studies.exports import EXPORTS, ZIP, stem
from services.studies.services import StudyServices
from services.studies.templates import TEMPLATES
from ui.annotate.application import POLICY, annotate_page
from ui.explore.parts import Size
from ui.frame import page
from ui.markup import Child, Html, el
from ui.replies import FRESH, attached, fetched_at, file_at, page_at, page_number, watched
from ui.study import setup
from ui.study.disagreements import DisagreementFilter, adjudication_page, all_disagreements, image_page
from ui.study.requests import add_requests
from ui.study.result_page import layout, parts, sent
from ui.study.words import study_address
from ui.study.workers import all_workers, control_items_box, worker_page
from ui.templating import render

ALL_STUDIES = ("All studies", "/study/")
SHEETS, SCRIPTS = ("results-study.css",), ("results-study.js",)
LOG_LIMIT = 500


def add_study_routes(app: FastAPI, commands: Commands, services: StudyServices, revisions: Revisions) -> None:
    """Add the pages below /study/, their data and their actions."""
    add_requests(app, commands, services)
    _add_pages(app, services)
    _add_result_pages(app, services)
    _add_watched(app, services, revisions)
    _add_fetched(app, services)


def _add_pages(app: FastAPI, services: StudyServices) -> None:
    studies, drafts, life, analyses = services.stored, services.drafts, services.life_cycle, services.analyses

    @page_at(app, "/study/", ALL_STUDIES)
    def all_studies() -> str:
        every = studies.all()
        here, away = ([study for study in every if study.archived == archived] for archived in (False, True))
        content = render("study/list.html", here=here, away=away, states=setup.STATE_WORDS)
        return page("Studies", content)

    @page_at(app, "/study/new", ALL_STUDIES)
    def new() -> str:
        return page("New study", render("study/new.html", templates=TEMPLATES.values()))

    @page_at(app, "/study/{study_id}", ALL_STUDIES)
    def to_study(study_id: str) -> Response:
        return RedirectResponse(study_address(studies.get(study_id).id), status_code=308)

    @page_at(app, "/study/{study_id}/", ALL_STUDIES)
    def one(study_id: str) -> str:
        study = studies.get(study_id)
        if study.state != "draft":
            return _results_page(analyses, study)
        return setup.setup_page(drafts.state(study.id), setup.Assumptions())

    @page_at(app, "/study/{study_id}/run", ALL_STUDIES)
    def run(study_id: str) -> str | Response:
        study = studies.get(study_id)
        if study.state == "draft":
            return RedirectResponse(study_address(study.id), status_code=303)
        here, others = len(studies.workers.of_study(study.id)), life.can_be_invited(study.id)
        history, panel = studies.rules_history(study.id), studies.panels.get(study.id)
        models, recipes = drafts.models(), drafts.recipes()
        people = analyses.of(study.id).report.further_people
        lost = studies.assignments.without_picture(study.id)
        return setup.run_page(study, here, others, history, models, recipes, panel, people, lost)

    @page_at(app, "/study/{study_id}/preview", ALL_STUDIES)
    def preview(study_id: str) -> Response:
        headers = FRESH | {"Content-Security-Policy": POLICY}
        return HTMLResponse(annotate_page(preview=studies.get(study_id).id), headers=headers)


def _add_result_pages(app: FastAPI, services: StudyServices) -> None:
    studies, analyses = services.stored, services.analyses

    def analysed(study_id: str, tab: str, content: Callable[[Analysis], Child]) -> str | Response:
        """Return a page from the analysis of a study. A draft has no analysis and redirects to its set-up."""
        study = studies.get(study_id)
        if study.state == "draft":
            return RedirectResponse(study_address(study.id), status_code=303)
        return _document(study, tab, content(analyses.of(study.id)))

    @page_at(app, "/study/{study_id}/workers", ALL_STUDIES)
    def workers(study_id: str) -> str | Response:
        def content(found: Analysis) -> Child:
            return el("div", layout(workers_parts(found)), **_live(found.report.study, "workers"))

        return analysed(study_id, "workers", content)

    @page_at(app, "/study/{study_id}/workers/{name:path}", ALL_STUDIES)
    def one_worker(study_id: str, name: str, page: str = "1") -> str | Response:
        def content(found: Analysis) -> Child:
            worker = next((figures for figures in found.report.workers if figures.worker == name), None)
            if worker is None:
                raise Missing("There is no such worker in this study.")
            return worker_page(found.report, found.data, worker, page_number(page))

        return analysed(study_id, "workers", content)

    @page_at(app, "/study/{study_id}/adjudication", ALL_STUDIES)
    def adjudication(study_id: str, item: str = "", question: str = "") -> str | Response:
        def content(found: Analysis) -> Child:
            sizes = _sizes(services, found.data.items)
            return adjudication_page(found.report, found.data, page_number(item) if item else None, question, sizes)

        return analysed(study_id, "adjudication", content)

    @page_at(app, "/study/{study_id}/disagreements", ALL_STUDIES)
    def disagreements(study_id: str, question: str = "", status: str = "", page: str = "1") -> str | Response:
        chosen = DisagreementFilter(question[:40], status[:40], page_number(page))
        return analysed(study_id, "results", lambda found: all_disagreements(found.report, found.data, chosen))

    @page_at(app, "/study/{study_id}/items/{public}", ALL_STUDIES)
    def image(study_id: str, public: str) -> str | Response:
        def content(found: Analysis) -> Child:
            item = next((candidate for candidate in found.data.items if candidate.public == public), None)
            if item is None:
                raise Missing("There is no such image in this study.")
            return image_page(found.report, found.data, item, _sizes(services, [item]))

        return analysed(study_id, "results", content)

    @page_at(app, "/study/{study_id}/log", ALL_STUDIES)
    def log(study_id: str, all: str = "") -> str | Response:
        def content(found: Analysis) -> Child:
            study = found.report.study
            names = {other.id: other.name for other in studies.all()} if all else None
            entries = studies.log("" if all else study.id, LOG_LIMIT)
            return render("study/log.html", study=study, entries=entries, limit=LOG_LIMIT, names=names)

        return analysed(study_id, "log", content)

    @file_at(app, "/study/{study_id}/export/{file}")
    def export(study_id: str, file: str) -> Response:
        if file == ZIP:
            name, chunks = services.export_zip(study_id)
            return StreamingResponse(chunks, media_type="application/zip", headers=attached(name))
        if file not in EXPORTS:
            raise Missing("There is no such export: choose one on the page of results.")
        media_type, make = EXPORTS[file]
        study = services.export(study_id)
        return Response(make(study), media_type=media_type, headers=attached(f"{stem(study.data)}-{file}"))


def _add_watched(app: FastAPI, services: StudyServices, revisions: Revisions) -> None:
    """Add the routes that a page polls while open. If the page shows the current `revision`, no study is read."""
    studies, analyses = services.stored, services.analyses

    def changed(study_id: str, revision: str, show: Callable[[Study, Analysis], Mapping[str, Any]]) -> Response:
        def make() -> Mapping[str, Any]:
            study, found = studies.get(study_id), analyses.of(study_id)
            late = {} if analyses.is_current(found) else {"revision": ""}
            return {"state": study.state, "parts": show(study, found), **late}

        return watched(revisions, revision, make, without_field=404)

    @app.get("/study/api/{study_id}/live", include_in_schema=False)
    def live(study_id: str, view: str = "results", revision: str = "") -> Response:
        def show(_: Study, found: Analysis) -> Mapping[str, Any]:
            name = "workers" if view == "workers" else "results"
            if name not in found.shown:
                current = workers_parts(found) if name == "workers" else parts(found.report, found.data, found.methods)
                found.shown[name] = sent(current)
            return found.shown[name]

        return changed(study_id, revision, show)

    @app.get("/study/api/{study_id}/progress", include_in_schema=False)
    def progress(study_id: str, revision: str = "") -> Response:
        def show(study: Study, found: Analysis) -> Mapping[str, Any]:
            lost = studies.assignments.without_picture(study_id)
            return {"part-progress": setup.progress_part(study, found.report.further_people, lost)}

        return changed(study_id, revision, show)


def _add_fetched(app: FastAPI, services: StudyServices) -> None:
    studies, drafts = services.stored, services.drafts

    @fetched_at(app, "/study/api/{study_id}/plan", without_field=404)
    def plan(request: Request, study_id: str) -> Mapping[str, Any]:
        assumed = setup.read_assumptions(request.query_params)
        rules = studies.get(study_id).rules
        return {"parts": {"part-plan": setup.plan_figures(rules, setup.plain(drafts.items(study_id)), assumed)}}

    @fetched_at(app, "/study/api/{study_id}/item", without_field=404)
    def item(study_id: str, item: int) -> Mapping[str, Any]:
        study = studies.get(study_id)
        shown = drafts.item(study_id, item)
        return {"html": setup.item_window(shown, study.rules, study.state == "draft", _sizes(services, [shown]))}

    @fetched_at(app, "/study/api/{study_id}/thumbs", without_field=404)
    def more(study_id: str, start: Annotated[int, Query(ge=0)]) -> Mapping[str, Any]:
        items = drafts.items(studies.get(study_id).id)
        return {"html": setup.thumbs([item for item in items if item.kind == "item"], start)}

    @fetched_at(app, "/study/api/{study_id}/examples", without_field=404)
    def examples(study_id: str) -> Mapping[str, Any]:
        groups = [group for group in drafts.possible_examples(studies.get(study_id).id) if group[1]]
        return {"html": render("study/example_window.html", groups=groups)}


def _sizes(services: StudyServices, items: Iterable[Item]) -> Mapping[str, Size]:
    return services.picture_sizes(sha for item in items for sha in (item.image_sha, item.source_sha))


def workers_parts(found: Analysis) -> Mapping[str, Html | None]:
    """Return the parts of the page of workers."""
    return {"all-workers": all_workers(found.report), "controls": control_items_box(found.report, found.data)}


def _results_page(analyses: Analyses, study: Study) -> str:
    found = analyses.of(study.id)
    shown = layout(parts(found.report, found.data, found.methods))
    content = el("div", shown, data_study=study.id, **_live(study, "results"))
    buttons = render("study/result_buttons.html", study=study, away=False)
    # The script for pause and close comes before the page's own, and needs the window of `dialogs.html`.
    return _document(study, "results", [content, render("study/dialogs.html")], buttons, ("study-acts.js",))


def _document(study: Study, tab: str, content: Child, acts: Child = None, scripts: Sequence[str] = ()) -> str:
    head = setup.study_head(study, tab, acts)
    return page(study.name, head, content, sheets=SHEETS, scripts=(*scripts, *SCRIPTS))


def _live(study: Study, view: str) -> dict[str, str | None]:
    """Return HTML attributes for a part that the page refreshes every few seconds until the study is closed."""
    return {
        "class_": "live",
        "data_live": f"/study/api/{study.id}/live",
        "data_view": view,
        "data_state": study.state,
        "data_every": "4000" if study.state != "closed" else None,
    }
