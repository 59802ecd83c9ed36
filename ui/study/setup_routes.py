"""The routes of list, new study, set-up, preview, and of running a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from pipeline.errors import UserError
from study.types import Study
from ui.annotate.page import POLICY, annotate_page
from ui.studio import Studio
from ui.study.frame import page, study_address
from ui.study.invitations import Invited, progress_part, run_page
from ui.study.life import Life
from ui.study.listing import list_page, new_page
from ui.study.plan_part import Assumptions
from ui.study.posting import add_post
from ui.study.preview import preview_next
from ui.study.results import results_page
from ui.study.setting_up import SettingUp
from ui.study.setup import setup_page
from ui.views.markup import el

FRESH = {"Cache-Control": "no-store"}


def add_set_up_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages and what they send."""
    studies = studio.workspace.studies
    setting_up = SettingUp(studio)
    life = Life(studies, setting_up)

    @app.get("/study", include_in_schema=False)
    def to_list() -> Response:
        return RedirectResponse("/study/", status_code=308)

    @app.get("/study/", include_in_schema=False)
    def all_studies(request: Request) -> Response:
        return HTMLResponse(list_page(studies.studies(), signed_in(request)), headers=FRESH)

    @app.get("/study/new", include_in_schema=False)
    def new(request: Request) -> Response:
        return HTMLResponse(new_page(signed_in(request)), headers=FRESH)

    @app.get("/study/{study_id}", include_in_schema=False)
    def to_study(study_id: str) -> Response:
        return _shown(study_id, lambda study: RedirectResponse(study_address(study.id), status_code=308))

    @app.get("/study/{study_id}/", include_in_schema=False)
    def one(request: Request, study_id: str) -> Response:
        signed = signed_in(request)

        def make(study: Study) -> Response:
            if study.state != "draft":
                return HTMLResponse(results_page(studio, study, signed_in=signed), headers=FRESH)
            return HTMLResponse(setup_page(setting_up.shown(study.id), Assumptions(), signed), headers=FRESH)

        return _shown(study_id, make, signed)

    @app.get("/study/{study_id}/run", include_in_schema=False)
    def run(request: Request, study_id: str) -> Response:
        signed = signed_in(request)

        def make(study: Study) -> Response:
            if study.state == "draft":
                return RedirectResponse(study_address(study.id), status_code=303)
            here = {worker.id for worker in studies.workers(study.id)}
            others = [worker for worker in setting_up.known_workers() if worker.id not in here]
            shown = Invited(len(here), life.can_be_invited(others))
            made = run_page(study, shown, studies.rules_history(study.id), setting_up.models(), signed)
            return HTMLResponse(made, headers=FRESH)

        return _shown(study_id, make, signed)

    @app.get("/study/{study_id}/preview", include_in_schema=False)
    def preview(request: Request, study_id: str) -> Response:
        headers = FRESH | {"Content-Security-Policy": POLICY}
        return _shown(
            study_id,
            lambda study: HTMLResponse(annotate_page(preview=study.id), headers=headers),
            signed_in(request),
        )

    def _shown(study_id: str, make: Callable[[Study], Response], signed: bool = False) -> Response:
        """A page of a study, or a page that says that there is none."""
        try:
            return make(studies.study(study_id))
        except UserError as error:
            return HTMLResponse(_not_there(str(error), signed), status_code=404)

    def progress(data: Mapping[str, Any], study_id: str) -> Mapping[str, Any]:
        study = studies.study(study_id)
        return {"state": study.state, "parts": {"part-progress": progress_part(study)}}

    def of_preview(data: Mapping[str, Any]) -> Mapping[str, Any]:
        return preview_next(studio, data)

    add_post(app, "/study/api/preview/next", of_preview)
    add_post(app, "/study/api/create", setting_up.create)
    for name, act in {
        "save": setting_up.save,
        "plan": setting_up.plan,
        "draw-note": setting_up.draw_note,
        "draw": setting_up.draw,
        "ask-model": setting_up.ask_model,
        "refresh": setting_up.refresh,
        "remove": setting_up.remove,
        "known": setting_up.known,
        "window": setting_up.window,
        "more": setting_up.more,
        "examples": setting_up.examples,
        "before": life.before,
        "act": life.act,
        "progress": progress,
    }.items():
        add_post(app, f"/study/api/{{study_id}}/{name}", act)


def signed_in(request: Request) -> bool:
    """Whether the lead has signed in, so that pages show a way out: the guard says so."""
    return bool(getattr(request.state, "signed_in", False))


def _not_there(words: str, signed: bool) -> str:
    """What there is to say instead of a page."""
    back = el("p", el("a", "All studies", href="/study/"))
    return page(
        "Not there", el("section", el("h1", "Not there"), el("p", words), back, class_="card part"), signed_in=signed
    )
