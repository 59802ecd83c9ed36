"""The routes of the part of the page Evaluate on retraining: how far it is, what is sent, and reports.

Called once by `app.py`, after those of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from core.errors import UserError
from services.commands import Commands
from services.curation.views import list_address
from services.edit_conflicts import LARGEST_ID
from services.evaluation.commands import BeginRetraining, CancelRetraining, OnModel, ShowRetraining
from services.evaluation.facts import json_text
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.retraining.results import RetrainingResult, result_facts, result_markdown
from services.evaluation.service import EvaluationService, about
from services.evaluation.types import EvaluationQuestion
from ui.evaluate.retraining import PART, retraining_part
from ui.evaluate.routes import API, FRESH, At
from ui.evaluate.words import EVALUATE, Place
from ui.frame import not_there, signed_in
from ui.security.request_limits import answered, refusal

KeptNumber = Annotated[int, Query(ge=1, le=LARGEST_ID)]
"""Of which result."""


class _Parts:
    """What the routes give, of the services."""

    def __init__(self, evaluations: EvaluationService, retrainings: Retrainings) -> None:
        self._evaluations, self._retrainings = evaluations, retrainings

    def asked(self, sent: OnModel) -> EvaluationQuestion:
        return self._evaluations.asked(sent)

    def latest(self, place: Place) -> RetrainingResult:
        kept = self._retrainings.kept(self.asked(OnModel.of(place.fields)))
        if not kept:
            raise UserError("This model has not been trained further with these images.")
        return kept[0].found

    def said(self, sent: OnModel) -> dict[str, Any]:
        asked, place = self.asked(sent), Place(sent.version, sent.filter.address, sent.split, sent.key, sent.mapping)
        work = next(iter(self._retrainings.work.of(about(asked))), None)
        kept, choices = self._retrainings.kept(asked), self._retrainings.choices(asked)
        active = work is not None and work.active
        # While a model is trained this is asked each second: the disk is looked through before and after.
        disk = 0 if active else self._retrainings.disk()
        weights = self._retrainings.weights(kept[0]) if kept else ()
        part = retraining_part(place, choices, kept, work, self._retrainings.doing(asked), weights, disk)
        return {"at_work": active, "parts": {PART: part}}


def add_retraining_routes(
    app: FastAPI, commands: Commands, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    """Serve the part, and take what it sends."""
    parts = _Parts(evaluations, retrainings)

    @app.get(f"{API}retraining", include_in_schema=False)
    def retraining(place: At) -> Response:
        try:
            return JSONResponse(parts.said(OnModel.of(place.fields)), headers=FRESH)
        except UserError as error:
            return refusal(error)

    @app.get(f"{EVALUATE}retraining/images", include_in_schema=False)
    def images(request: Request, place: At, kept: KeptNumber, on: str, arm: str = "") -> Response:
        try:
            to = list_address(retrainings.opens(parts.asked(OnModel.of(place.fields)), kept, on, arm))
        except UserError as error:
            back = ("The evaluation", place.to())
            return HTMLResponse(not_there(str(error), signed_in(request), back), status_code=404)
        return RedirectResponse(to, status_code=303)

    @app.get(f"{EVALUATE}retraining/weights", include_in_schema=False)
    def weights(request: Request, place: At, kept: KeptNumber, arm: str) -> Response:
        try:
            name, file = retrainings.weights_file(parts.asked(OnModel.of(place.fields)), kept, arm)
        except UserError as error:
            back = ("The evaluation", place.to())
            return HTMLResponse(not_there(str(error), signed_in(request), back), status_code=404)
        return FileResponse(file, media_type="application/octet-stream", filename=name, headers=FRESH)

    @app.get(f"{EVALUATE}retraining/{{kind}}", include_in_schema=False)
    def report(request: Request, place: At, kind: Literal["markdown", "json"]) -> Response:
        try:
            found = parts.latest(place)
        except UserError as error:
            back = ("The evaluation", place.to())
            return HTMLResponse(not_there(str(error), signed_in(request), back), status_code=404)
        data = result_markdown(found) + "\n" if kind == "markdown" else json_text(result_facts(found))
        plain = re.sub(r"[^A-Za-z0-9]+", "-", f"retraining {found.title} {found.model}").strip("-").lower()[:80]
        end = "md" if kind == "markdown" else "json"
        headers = {**FRESH, "Content-Disposition": f'attachment; filename="{plain}.{end}"'}
        form = "text/markdown; charset=utf-8" if kind == "markdown" else "application/json"
        return Response(data.encode(), media_type=form, headers=headers)

    @app.post(f"{API}{BeginRetraining.name}", include_in_schema=False)
    async def begin(request: Request) -> Response:
        def act(data: dict[str, Any]) -> dict[str, Any]:
            sent = BeginRetraining.of(_known(data))
            commands.do(sent)
            return parts.said(sent)

        return await answered(request, act)

    @app.post(f"{API}{CancelRetraining.name}", include_in_schema=False)
    async def cancel(request: Request) -> Response:
        def act(data: dict[str, Any]) -> dict[str, Any]:
            commands.do(CancelRetraining.of({"work": data.pop("work", None)}))
            return parts.said(ShowRetraining.of(_known(data)))

        return await answered(request, act)


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what an address says of comparisons."""
    return {name: value for name, value in data.items() if name not in ("beside", "other")}
