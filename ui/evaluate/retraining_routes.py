"""Routes of the retraining section of the page Evaluate: progress, actions, images and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from core.errors import UserError
from services.commands import Commands
from services.curation.views import list_address
from services.edit_conflicts import LARGEST_ID
from services.evaluation.commands import BeginRetraining, OnModel
from services.evaluation.facts import SUFFIXES, json_text
from services.evaluation.markdown import result_markdown
from services.evaluation.retraining.jobs import Retrainings, retraining_question
from services.evaluation.retraining.results import RetrainingResult, result_facts
from services.evaluation.retraining.training import RetrainingQuestion
from services.evaluation.service import EvaluationService, about
from ui.evaluate.retraining import PART, TIME, retraining_part, time_part
from ui.evaluate.routes import API, At, plain_name, to_evaluation
from ui.evaluate.words import EVALUATE, Place
from ui.replies import FRESH, add_posted, attached, fetched_at, page_at

KeptNumber = Annotated[int, Query(ge=1, le=LARGEST_ID)]


def add_retraining_routes(
    app: FastAPI, commands: Commands, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    """Add the routes of the retraining section."""

    def latest(place: Place) -> RetrainingResult:
        results = retrainings.kept(evaluations.asked(OnModel.of(place.fields)))
        if not results:
            raise UserError("This model has not been trained further with these images: train it first.")
        return results[0].found

    def part_of(sent: OnModel) -> dict[str, Any]:
        question = evaluations.asked(sent)
        place = Place(sent.version, sent.filter.address, sent.split, sent.key, sent.mapping)
        work = next(iter(retrainings.work.of(about(question))), None)
        results, choices = retrainings.kept(question), retrainings.choices(question)
        active = work is not None and work.active
        # While a model trains, the page asks every second, so the size on the disk is measured only before and after.
        disk = 0 if active else retrainings.disk()
        weights = retrainings.weights(results[0]) if results else ()
        time = None if active or choices.problem else retrainings.expected(RetrainingQuestion(question))
        part = retraining_part(place, choices, results, work, weights, disk, time)
        return {"at_work": active, "parts": {PART: part}}

    @fetched_at(app, f"{API}retraining")
    def retraining(place: At) -> Mapping[str, Any]:
        return part_of(OnModel.of(place.fields))

    @fetched_at(app, f"{API}{TIME}")
    def time(request: Request) -> Mapping[str, Any]:
        """Return how long the training in the form would take; empty if this training cannot begin."""
        try:
            sent = BeginRetraining.of(_known(request.query_params))
            expected = retrainings.expected(retraining_question(evaluations.asked(sent), sent))
        except UserError:
            return {"parts": {TIME: time_part(None)}}
        return {"parts": {TIME: time_part(expected)}}

    @page_at(app, f"{EVALUATE}retraining/images", to_evaluation)
    def images(place: At, kept: KeptNumber, on: str, arm: str = "") -> Response:
        question = evaluations.asked(OnModel.of(place.fields))
        return RedirectResponse(list_address(retrainings.opens(question, kept, on, arm)), status_code=303)

    @page_at(app, f"{EVALUATE}retraining/weights", to_evaluation)
    def weights(place: At, kept: KeptNumber, arm: str) -> Response:
        name, file = retrainings.weights_file(evaluations.asked(OnModel.of(place.fields)), kept, arm)
        return FileResponse(file, media_type="application/octet-stream", filename=name, headers=FRESH)

    @page_at(app, f"{EVALUATE}retraining/{{kind}}", to_evaluation)
    def report(place: At, kind: Literal["markdown", "json"]) -> Response:
        found = latest(place)
        headers = attached(f"{plain_name(f'retraining {found.title} {found.model}')}{SUFFIXES[kind]}")
        if kind == "json":
            return Response(json_text(result_facts(found)), media_type="application/json", headers=headers)
        return Response(result_markdown(found) + "\n", media_type="text/markdown; charset=utf-8", headers=headers)

    def begin(data: dict[str, Any]) -> dict[str, Any]:
        known = _known(data)
        commands.send("begin-retraining", known)
        return part_of(BeginRetraining.of(known))

    def cancel(data: dict[str, Any]) -> dict[str, Any]:
        commands.send("cancel-retraining", {"work": data.pop("work", None)})
        return part_of(OnModel.of(_known(data)))

    add_posted(app, API + "begin-retraining", begin)
    add_posted(app, API + "cancel-retraining", cancel)


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a page's address. The fields for a second model or version to compare with are left out."""
    return {name: value for name, value in data.items() if name not in ("beside", "other")}
