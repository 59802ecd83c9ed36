"""Routes of the pages of batches, of their data and actions, and of /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import PlainTextResponse, Response

from core.errors import UserError
from core.text_templates import TextTemplates
from services.batches.drawn_scenes import KINDS
from services.batches.shipped import layouts_in_words, shipped_plans
from services.evaluation.service import model_choice_key
from services.studio import Studio
from services.work_queue import WorkView
from ui.batches.pages import batch_page, list_page, list_part, new_page, parts, planning_part, starts
from ui.batches.words import BATCHES, batch_address
from ui.replies import FRESH, add_posted, fetched_at, page_at, watched

API = f"{BATCHES}api/"
ALL_BATCHES = ("All batches", BATCHES)
SEARCHES = ("begin-search", "ask-search", "forget-question", "propose-alternatives", "add-alternative")
SENT = ("begin-batch", "pause-batch", "cancel-batch", "approve-batch", "retry-batch", *SEARCHES)
"""Commands that the page of a batch sends. Each reply holds the updated page."""


def add_batch_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages below /batches/, and /metrics."""
    runs, searches, revisions = studio.batches, studio.searches, studio.revisions
    _add_sent(app, studio)

    @page_at(app, BATCHES, ALL_BATCHES)
    def all_batches() -> str:
        return list_page(runs.all())

    @page_at(app, f"{BATCHES}new", ALL_BATCHES)
    def new(like: Annotated[int, Query(ge=0)] = 0) -> str:
        scenes = {kind: runs.scenes.plan_text(kind) for kind in KINDS} if runs.scenes is not None else {}
        offered = starts(studio.profile.name, shipped_plans(), scenes)
        text = runs.status(like).batch.plan if like else offered[0].text
        return new_page(text, offered, layouts_in_words())

    @page_at(app, f"{BATCHES}{{number:int}}", ALL_BATCHES)
    def one(number: int) -> str:
        return batch_page(runs.details(number), searches.state(number))

    @app.get(f"{API}list", include_in_schema=False)
    def listed(revision: str = "") -> Response:
        return watched(revisions, revision, lambda: {"parts": {"part-list": list_part(runs.all())}})

    @app.get(f"{API}state", include_in_schema=False)
    def state(batch: Annotated[int, Query(ge=0)], revision: str = "") -> Response:
        return watched(revisions, revision, lambda: _shown(studio, batch))

    @fetched_at(app, f"{API}planning")
    def planning(work: Annotated[int, Query(ge=0)]) -> Mapping[str, Any]:
        return _planning(runs.planning.view(work))

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        text = _TEXTS.lines("metrics.txt", views=runs.all())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=FRESH)


def _add_sent(app: FastAPI, studio: Studio) -> None:
    commands = studio.commands

    def act(data: dict[str, Any], name: str) -> dict[str, Any]:
        command: Any = commands.parse(name, data)
        commands.do(command)
        return {"revision": "", **_shown(studio, command.batch)}

    for name in SENT:
        add_posted(app, f"{API}{name}", partial(act, name=name))
    add_posted(app, f"{API}plan-batch", lambda data: _planning(commands.send("plan-any-batch", data)))

    def study(data: dict[str, Any]) -> dict[str, Any]:
        """Draft a study of images in the cells where the model fails most, and return the study's address."""
        query: Any = commands.parse("show-search", {"batch": data.get("batch")})
        state = studio.searches.state(query.batch)
        if state.settings is None or state.view is None or not state.view.weak_filter:
            raise UserError(state.problem or "No cell is called weak yet: continue the search first.")
        fields = {"key": model_choice_key(state.settings.model), "mapping": state.settings.mapping}
        drafted = commands.send("draft-evaluation-study", {"filter": state.view.weak_filter, **fields})
        return {"go": f"/study/{drafted['study']}"}

    add_posted(app, f"{API}draft-evaluation-study", study)

    def stop(data: dict[str, Any]) -> dict[str, Any]:
        work = data.get("work")
        if not isinstance(work, int):
            raise UserError("The request does not say which planning job to stop: reload the page.")
        studio.batches.planning.cancel(work)
        return {"done": True}

    add_posted(app, f"{API}stop-planning", stop)


def _shown(studio: Studio, number: int) -> Mapping[str, Any]:
    details = studio.batches.details(number)
    return {"at_work": details.status.at_work, "parts": dict(parts(details, studio.searches.state(number)))}


def _planning(view: WorkView) -> Mapping[str, Any]:
    """Return the progress of planning, or at its end the batch's address. Raises UserError if planning failed."""
    if view.state == "failed":
        raise UserError(view.error, field="plan")
    if view.state == "done":
        return {"go": batch_address(view.result)}
    return {"work": view.id, "active": view.active, "parts": {"part-planning": planning_part(view)}}


def _label(text: str) -> str:
    """Escape a label's value for the text format of Prometheus."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), label=_label)
