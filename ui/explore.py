"""The explore page put together: which parts it has, and how what is done in the browser gets to the services and back.

Every part has a `gr.HTML` as its place and its markup from `ui.views`. The script in `assets/` sends what a person
does, one batch at a time, as data of one event; the reply holds the parts that changed, and the script fits them in
without touching a field that is being typed in. What a page looks at lives in its browser, everything else here.

The reply is one output: with the parts as outputs of their own Gradio makes each component anew for every reply, also
of the parts that are skipped, which took as long as all that the studio does.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import UserError
from pipeline.profile import Profile
from pipeline.recipes import known_stages
from pipeline.types import GENERATION
from services.commands import Command, Commands, RunCommand, UnknownCommand
from services.estimates import Estimates
from services.exchange import Exchange
from services.jobs import JobQueue, JobView
from services.predictions import ModelComparison, PredictionService
from services.run_state import RunState, RunStates, StageNotes
from services.runs import Listing, OpenedRun, RemoveRun, RunService
from services.samples import Sample
from services.similarity import Similarities
from storage.types import RunSummary
from ui.endpoints import refuse_tokens
from ui.uploads import keep_to_uploads
from ui.views.frame import header, source_card, start_page, upload_note
from ui.views.generation import generation_card
from ui.views.keys import keys_window
from ui.views.markup import Html, stamped
from ui.views.pictures import View, picture_column
from ui.views.queue import queue_part
from ui.views.runs import run_list
from ui.views.stage_cards import card_of

PARTS = ("top", "runs", "start", "upload-note", "source", GENERATION, "pictures", "queue", "keys")
"""The parts of the page, beside one for each stage of any recipe."""
LARGEST_UPLOAD = "200mb"
LONGEST_SEARCH = 200

_CONNECT = """
const go = () => window.studio.{method}(element, props, watch, trigger);
if (window.studio) go(); else window.addEventListener('studio-ready', go, {{once: true}});
"""
log = logging.getLogger(__name__)
_replies = itertools.count(1)


class Action(BaseModel):
    """One thing that a person did: the name of a command with its fields, and what the person saw when it began.

    "open", "new" and "poll" are no commands: they only look.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=80)
    fields: dict[str, Any] = {}
    version: int = 0
    """The version of the value that the card showed; 0 outside the cards of the stages."""
    state: int = 0
    """The state of the run that the page showed."""


class Batch(BaseModel):
    """What the script of the page sends at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: tuple[Action, ...] = ()
    run: str = ""
    """The run that the page shows; "" for the start page."""
    tab: str = ""
    """Which page it is, by a name of its own."""
    view: View = View()
    find: str = ""
    """What the list of runs is searched for."""
    seen: dict[str, str] = {}
    """The stamps of the parts that the page shows."""
    ticket: int = 0
    """Comes back with the reply."""


@dataclass(frozen=True)
class PageValues:
    """All that the page shows, read once for a reply."""

    profile: Profile
    samples: tuple[Sample, ...]
    listing: Listing
    latest: tuple[RunSummary, ...]
    """The latest runs, whatever is searched for."""
    jobs: tuple[JobView, ...]
    """What runs or waits, in its order."""
    waiting_for: str
    """What a job that waits now waits for, in words."""
    view: View
    state: RunState | None
    """The run that is looked at; None for the start page."""
    comparison: ModelComparison
    """The model under test on the run that is looked at."""


@dataclass(frozen=True)
class Performed:
    """What became of one thing that a person did on the page."""

    run_id: str
    """The run to show; "" for the start page."""
    problem: str = ""
    where: str = ""
    """The card that the problem belongs to: a stage, "source" or "start"."""
    field: str = ""
    """The field of the command that the problem belongs to; "" for none."""


@dataclass(frozen=True)
class Explorer:
    """The services that this page calls, and how it calls them. All methods may be called from any thread."""

    commands: Commands
    runs: RunService
    states: RunStates
    notes: StageNotes
    jobs: JobQueue
    estimates: Estimates
    predictions: PredictionService
    similarities: Similarities
    exchange: Exchange

    def answer(self, data: Mapping[str, Any]) -> str:
        """Do what a `Batch` of the page says, up to the first thing that fails, and reply with what changed."""
        batch = Batch.model_validate(data)
        done = Performed(batch.run)
        try:
            for action in batch.do:
                done = self.perform(done.run_id, action, batch.tab)
                if done.problem:
                    break
        except Exception as error:  # the page must get a reply, or it would wait for it
            log.exception("an action failed")
            text = f"The studio itself failed ({type(error).__name__}): the terminal says more. Reload the page."
            done = Performed(done.run_id, text, "source" if done.run_id else "start")
        return self._reply(done, batch)

    def perform(self, run_id: str, action: Action, tab: str = "") -> Performed:
        """Do one thing on the page that shows `run_id`. A person's mistake comes back as the problem of its card."""
        name, fields = action.name, action.fields
        if name == "poll":
            return Performed(run_id)
        if name in ("open", "new"):
            self.estimates.warm_up()
            return Performed(str(fields.get("run") or ""))
        command_type = self.commands.known().get(name)
        if command_type is None:
            raise UnknownCommand(f"there is no command {name!r}")
        seen = {"run": run_id, "tab": tab, "version": action.version, "state": action.state}
        given = {field: value for field, value in seen.items() if field in command_type.model_fields} | fields
        try:
            result = self.commands.send(name, given)
        except UserError as error:
            return Performed(run_id, str(error), self._note(command_type, given, run_id, error), error.field)
        if isinstance(result, OpenedRun):
            return Performed(result.run_id)
        removed = command_type is RemoveRun and given["run"] == run_id
        return Performed("" if removed else run_id)

    def _note(self, command: type[Command], given: Mapping[str, Any], run_id: str, error: UserError) -> str:
        """The card that a problem belongs to; that of a stage keeps it until the person tries again."""
        if not issubclass(command, RunCommand) or not run_id:
            return "source" if run_id else "start"
        stage = command.about(given)
        if stage != GENERATION and all(stage != known.name for known in known_stages()):
            return "source"
        self.notes.failed(run_id, stage, error)
        return stage

    def take_upload(self, path: str | None) -> str:
        """The run that an uploaded file carries, or a new one; the file is removed. Says the run, or why there is
        none.
        """
        said: dict[str, Any] = {"reply": next(_replies), "problem": ""}
        if path is not None:
            file = Path(path)
            try:
                said |= vars(self.exchange.take_picture(file.read_bytes(), file.name))
            except UserError as error:
                said["problem"] = str(error)
            finally:
                file.unlink(missing_ok=True)
        return json.dumps(said)

    def read(self, run_id: str, view: View, find: str = "") -> PageValues:
        """All that a page shows that looks at a run ("" for the start page). Raises UserError for an unknown run."""
        state = self.states.of(run_id) if run_id else None
        listing = self.runs.listing(find)
        return PageValues(
            profile=self.runs.profile,
            samples=self.runs.samples,
            listing=listing,
            latest=self.runs.latest() if listing.find else listing.runs,
            jobs=self.jobs.active(),
            waiting_for=self.jobs.waiting_for(),
            view=view,
            state=state,
            comparison=self.predictions.compare(state.run, state.settings) if state else ModelComparison(None),
        )

    def _reply(self, done: Performed, batch: Batch) -> str:
        # Asked for before the state is read: a job that ends in between is then asked for once more, and never missed.
        active, measured = bool(self.jobs.active()), self.similarities.measured
        find = batch.find[:LONGEST_SEARCH]
        try:
            values = self.read(done.run_id, batch.view, find)
        except UserError as error:  # such as a run of another workspace in the address
            done = Performed("", str(error), "start")
            values = self.read("", batch.view, find)
        parts, state = render(values), values.state
        reply = {
            "reply": next(_replies),
            "ticket": batch.ticket,
            "parts": {name: part for name, part in parts.items() if batch.seen.get(name) != _stamp(part)},
            "run": done.run_id,
            "problem": done.problem,
            "where": done.where,
            "field": done.field,
            # Lined up, perhaps, by what was just read, and measured before it was drawn.
            "active": active or self.similarities.waiting or self.similarities.measured != measured,
            "state": state.run.state if state is not None else 0,
            "predicting": values.comparison.waiting,
            "cases": [case.id for case in state.run.test_cases] if state is not None else [],
        }
        return json.dumps(reply)


def explore_page(explorer: Explorer) -> gr.Blocks:
    """The page, not served yet."""
    with gr.Blocks(title="DILLEMA Studio", fill_width=True, analytics_enabled=False) as page:
        bus, inbox = _wire("bus"), _wire("inbox")
        _slot("top")
        with gr.Row(elem_id="layout"):
            with gr.Column(elem_id="column-runs", min_width=0):
                _slot("runs")
            with gr.Column(elem_id="column-start", min_width=0):
                _slot("start")
                upload = gr.File(label="A picture of your own", elem_id="upload", type="filepath", height=150)
                _slot("upload-note")
            with gr.Column(elem_id="column-stages", min_width=0):
                for name in ("source", *(stage.name for stage in known_stages()), GENERATION):
                    _slot(name)
            with gr.Column(elem_id="column-pictures", min_width=0):
                _slot("pictures")
                _slot("queue")
        _slot("keys")

        def on_action(event: gr.EventData, request: gr.Request) -> str:
            refuse_tokens(request)
            return explorer.answer(event._data)

        def on_upload(path: str | None, request: gr.Request) -> list[Any]:
            refuse_tokens(request)
            return [None, explorer.take_upload(path)]

        # Nothing here takes long, and a batch is sent only after the reply to the one before: no queue is needed.
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
        bus.click(on_action, None, bus, trigger_mode="multiple", **quiet)
        keep_to_uploads(upload)
        # An upload only says what became of it: opening its run takes its turn among the batches.
        upload.upload(on_upload, upload, [upload, inbox], **quiet)
    return page


def render(values: PageValues) -> dict[str, str]:
    """The markup of every part, each behind its stamp. Parts of a run are empty on the start page."""
    profile, samples, state, jobs = values.profile, values.samples, values.state, values.jobs
    run_id = state.run.id if state is not None else ""
    parts: dict[str, Html] = dict.fromkeys((*PARTS, *(stage.name for stage in known_stages())), Html(""))
    parts["top"] = header(profile, jobs, values.waiting_for, run_id, _saved(values.latest, run_id))
    parts["runs"] = run_list(values.listing, run_id)
    if state is None:
        parts["start"] = start_page(profile, samples)
        parts["upload-note"] = upload_note(profile)
    else:
        parts["source"] = source_card(state, profile, samples)
        parts |= {stage.name: card_of(stage, state) for stage in state.recipe.stages}
        parts[GENERATION] = generation_card(state, profile)
        parts["pictures"] = picture_column(state, values.view, values.comparison)
        names = {run.id: run.name for run in values.latest}
        parts["queue"] = queue_part(jobs, names, run_id, values.waiting_for)
    parts["keys"] = keys_window()
    return {name: stamped(markup) for name, markup in parts.items()}


def _saved(runs: tuple[RunSummary, ...], run_id: str) -> datetime | None:
    return next((run.changed for run in runs if run.id == run_id), None)


def _stamp(part: str) -> str:
    return part[4 : part.index("-->")]


def _wire(method: str) -> gr.HTML:
    """Shows nothing; the script's `method` listens to its value and may trigger its event."""
    connect = _CONNECT.format(method=method)
    return gr.HTML("", html_template="<i></i>", js_on_load=connect, apply_default_css=False, elem_id=method)


def _slot(name: str) -> None:
    """The place of a part; the script's `part` is told of it."""
    gr.HTML(
        "",
        html_template=f'<div class="studio" data-part="{name}"></div>',
        js_on_load=_CONNECT.format(method="part"),
        apply_default_css=False,
        elem_id=f"part-{name}",
    )
