"""Requests of the lead's pages: commands as JSON, and files. A reply is JSON. An error is a sentence and the name of
the wrong field. A command goes to /study/api/STUDY/NAME. The address /study/api/STUDY/before/NAME only describes the
command's effect. The key "page" of a command holds the state of the page, and the reply fits this state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response

from core.csv_tables import facts
from core.errors import UserError
from services.commands import Command, Commands, UnknownCommand
from services.studies import decisions, drafts, life_cycle
from services.studies.imports import files_of
from services.studies.preview import Previewed, PreviewStep
from services.studies.services import StudyServices
from ui.annotate.shown import shown_feedback, shown_item, shown_study
from ui.explore.parts import image_url
from ui.markup import Html
from ui.replies import add_posted, with_file
from ui.security.request_limits import ITEM_FILES, RESTORED, VOTE_FILES, answered
from ui.study import setup
from ui.study.words import decide_address, study_address
from ui.templating import render

EVEN_SO, LOOK = "even-so", "look"
Reply = dict[str, Any]
Part = Literal["questions", "texts"]


@dataclass(frozen=True)
class Shown:
    """State of a study's page, sent together with each command."""

    plan: setup.Assumptions
    redraw: str

    @classmethod
    def of(cls, sent: object) -> Shown:
        """Parse the state of a page. A default replaces an invalid value, since the state is never saved."""
        page: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {}
        plan = page.get("plan")
        try:
            assumed = setup.read_assumptions(plan if isinstance(plan, Mapping) else {})
        except UserError:
            assumed = setup.Assumptions()
        return cls(assumed, str(page.get("redraw")))


Show = Callable[[Any, Any, Shown], Reply]
"""Function from (command, its result, state of the page) to the JSON of the reply."""


def add_requests(app: FastAPI, commands: Commands, services: StudyServices) -> None:
    """Add the routes for commands and files of the lead's pages."""

    def parsed(name: str, data: Mapping[str, Any]) -> Command:
        known = commands.known().get(name)
        if name != "create-study" and (known is None or not issubclass(known, drafts.StudyCommand)):
            raise UnknownCommand(f"There is no command {name[:80]!r} for a study: reload the page.")
        return commands.parse(name, data)

    def reply(sent: Mapping[str, Any], name: str) -> Reply:
        data = dict(sent)
        page = Shown.of(data.pop("page", {}))
        command = parsed(name, data)
        done = commands.do(command)
        return SHOW[name](command, done, page) if name in SHOW else {"reload": True}

    def before(sent: Mapping[str, Any], name: str) -> Reply:
        command = parsed(name, sent)
        if not isinstance(command, drafts.StudyCommand) or not services.life_cycle.knows(command):
            raise UnknownCommand(f"The effect of the command {name!r} cannot be described: reload the page.")
        ahead = services.life_cycle.before(command)
        return {"title": ahead.title, "words": list(ahead.words), "button": ahead.button, "bad": ahead.final}

    add_posted(app, "/study/api/create-study", lambda data: reply(data, "create-study"))

    @app.post("/study/api/{study_id}/before/{name}", include_in_schema=False)
    async def tell(request: Request, study_id: str, name: str) -> Response:
        return await answered(request, lambda data: before({**data, "study": study_id}, name))

    @app.post("/study/api/{study_id}/{name}", include_in_schema=False)
    async def send(request: Request, study_id: str, name: str) -> Response:
        return await answered(request, lambda data: reply({**data, "study": study_id}, name))

    @app.post(f"{ITEM_FILES}{{study_id}}", include_in_schema=False)
    async def items(request: Request, study_id: str, name: str = "") -> Response:
        def take(file: Path) -> Reply:
            count, message = services.import_items(study_id, files_of(name[:200], file))
            return {"count": count, "said": message}

        return await with_file(request, take)

    @app.post(RESTORED, include_in_schema=False)
    async def restored(request: Request) -> Response:
        def take(file: Path) -> Reply:
            study_id, message = services.restore(file)
            return {"said": message, "go": study_address(study_id)}

        return await with_file(request, take)

    @app.post(f"{VOTE_FILES}{{study_id}}", include_in_schema=False)
    async def votes(request: Request, study_id: str, name: str = "") -> Response:
        """Import a file of votes. If `name` is "look", only describe it; if "even-so", skip rows without a vote."""

        def take(file: Path) -> Reply:
            if name == LOOK:
                count, message, problems = services.preview_votes(study_id, file.read_bytes())
                return {"count": count, "said": message, "problems": problems}
            count, message = services.import_votes(study_id, file.read_bytes(), name == EVEN_SO)
            return {"count": count, "said": message}

        return await with_file(request, take)


# Parts of the page after a command


def draft_reply(draft: drafts.DraftState, page: Shown, redraw: Collection[Part] = ()) -> Reply:
    """Return new parts of a draft's page, and problems with what a person typed. Also return the parts in `redraw`."""
    study, items = draft.study, draft.items
    parts: dict[str, Html] = {
        "part-plan": setup.plan_figures(study.rules, setup.plain(items), page.plan),
        "part-missing": setup.missing_part(study, draft.troubles, draft.findings),
        "part-items": setup.items_shown(items),
        **{f"part-{name}": part for name, part in setup.given_parts(study.rules, items).items()},
    }
    if "questions" in {*redraw, page.redraw}:
        parts["part-questions"] = setup.questions_card(study.rules, draft.problems, draft.classes)
    if "texts" in {*redraw, page.redraw}:
        parts["part-texts"] = render("study/texts.html", rules=study.rules, problems=draft.problems)
    problems = dict(draft.problems)
    return {"state": draft.form_state, "problems": problems, "unread": draft.unread, "parts": parts}


def _draft(*redraw: Part) -> Show:
    return lambda command, draft, page: draft_reply(draft, page, redraw)


def _new_code(command: drafts.StudyCommand, made: life_cycle.NewCode, page: Shown) -> Reply:
    words = f"The new code of {made.worker}. It is shown only once: write it down or copy it now."
    return {"code": made.code, "words": words}


def _adjudicated(command: drafts.StudyCommand, done: decisions.Adjudicated, page: Shown) -> Reply:
    after = done.next
    return {"next": decide_address(command.study, after) if after else study_address(command.study, "adjudication")}


def _previewed(command: PreviewStep, step: Previewed, page: Shown) -> Reply:
    """Return a step of a preview in the form for the annotators' page, with plain addresses of pictures."""
    study, item = step.study, step.item
    assignment: Reply | None = None
    if item is not None:
        source = image_url(item.source_sha) if item.source_sha else None
        shown = shown_item(study.rules, item, image_url(item.image_sha), source, step.side)
        assignment = {"id": f"preview-{step.number}", **shown, "answers": {}, "comment": ""}
    return {
        **facts(step, "status text done left undo"),
        "study": shown_study(study, lambda place: image_url(study.rules.examples[place].sha)),
        "assignment": assignment,
        "feedback": None if step.feedback is None else shown_feedback(step.feedback),
    }


SHOW: Mapping[str, Show] = {
    **dict.fromkeys(("create-study", "copy-rules"), lambda command, study_id, page: {"go": study_address(study_id)}),
    **dict.fromkeys(("save-draft", "refresh-draft", "delete-item", "delete-sample", "mark-item"), _draft()),
    "edit-questions": _draft("questions"),
    "take-template": _draft("questions", "texts"),
    **dict.fromkeys(("add-example", "delete-example"), _draft("texts")),
    "draw-items": lambda command, drawn, page: {**draft_reply(drawn.draft, page), "said": drawn.words},
    "describe-filter": lambda command, note, page: {"note": note.words, "unread": note.unread, "free": note.free},
    "ask-model": lambda command, answer, page: {"asked": answer},
    "delete-draft": lambda command, _, page: {"go": "/study/"},
    "start-study": lambda command, _, page: {"go": study_address(command.study, "run")},
    "make-codes": lambda command, made, page: {"parts": {"part-codes": render("study/codes.html", made=made)}},
    **dict.fromkeys(
        ("decide-assignments", "approve-all", "exclude-worker", "readmit-worker", "block-worker"),
        lambda command, _, page: {"done": True},
    ),
    "renew-code": _new_code,
    "adjudicate": _adjudicated,
    "preview-step": _previewed,
}
"""Functions that make replies to commands, by name of the command. After any other command the page reloads."""
