"""The Explore page: its parts, and the requests between browser and services. Each part is a `gr.HTML` element with
markup from `ui.explore`. The script in `assets/` calls the functions of `page_functions` (Gradio's `server_functions`)
and sends a batch of actions, or the path of an uploaded file. The reply has the parts that changed. The script inserts
these parts without touching a field in which a person is typing. The browser keeps the `View` of its page. The server
keeps everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import gradio as gr
from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.csv_tables import facts
from core.errors import NoRun, UserError
from core.stored_runs import EditedShare, RunSummary
from core.types import GENERATION, stage_kinds
from services.commands import LONGEST_TEXT, Command, RunCommand, UnknownCommand, parts_of, refused
from services.example.service import ExampleView
from services.jobs import JobView
from services.runs.bulk_runs import MOST_TOGETHER, DoneTogether, TogetherState
from services.runs.life_cycle import Listing, OpenedRun
from services.runs.predictions import ModelComparison
from services.runs.samples import Sample
from services.runs.state import CanBeInsistedOn, ProfileOptions, RunState, profile_options
from services.runs.undoing import Undone
from services.studio import Studio
from ui import templating
from ui.explore.generation import generation_card
from ui.explore.page_frame import example_card, header, keys_window, source_card, start_page
from ui.explore.runs import queue_part, run_list, together_part
from ui.explore.stage_cards import card_of
from ui.explore.strip import View, picture_column, strip_of
from ui.markup import Html, fingerprint, stamped
from ui.scripts.endpoints import token_of
from ui.scripts.uploads import keep_to_uploads, uploaded

PARTS = ("top", "runs", "together", "start", "upload-note", "source", GENERATION, "pictures", "queue", "keys")
"""Names of the fixed parts of the page. Each stage of a recipe adds another part."""
LARGEST_UPLOAD = "200mb"
OWN = "field"
"""Value of `Performed.where` if the page shows the problem at the field that caused the problem."""
LONGEST_SEARCH = 200
NAMED = 3
"""Maximum number of refused runs that a message names; the others are counted."""

_WHEN_READY = "if (window.studio) go(); else window.addEventListener('studio-ready', go, {once: true});"
_CONNECT = f"const go = () => window.studio.connect(server, upload); {_WHEN_READY}"
_PLACE = f"const go = () => window.studio.part(element); {_WHEN_READY}"
_CHOSEN = "(files) => { if (files?.length) window.studio.chosen(files); return null; }"
Reply = dict[str, Any]
T = TypeVar("T", bound=BaseModel)
log = logging.getLogger(__name__)


class Action(BaseModel):
    """One command from the page, with the versions of data that the page showed. "open", "new", "poll" only read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=80)
    fields: dict[str, Any] = {}
    version: int = 0
    """Version of the stage's value that the card showed; 0 for a command from elsewhere."""
    state: int = 0
    """Version number of the run's state that the page last showed."""
    own: bool = False
    """True if a field sent the command. The field then shows an error itself."""


class Batch(BaseModel):
    """One message from the page's script: actions, and what the page shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: tuple[Action, ...] = ()
    run: str = ""
    """Id of the run that the page shows; "" for the start page."""
    tab: str = ""
    """Name of the browser tab, different in each tab."""
    view: View = View()
    find: str = ""
    picked: tuple[Annotated[str, Field(max_length=80)], ...] = Field((), max_length=MOST_TOGETHER)
    """Ids of the runs that are selected on the start page, which shows them in one table."""
    seen: dict[str, str] = {}
    """Hash of each part of the page as it is shown, by the part's name."""
    revision: str = ""
    """Revision that the last reply contained; "" before the first reply."""


class GivenFile(BaseModel):
    """A file that a person chose or dropped, stored by Gradio's `upload`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(max_length=4096)
    """Path of the file in the folder of uploads."""
    name: str = Field("", max_length=1000)


class GivenPicture(GivenFile):
    """A picture to begin a run with."""

    label: str = Field("", max_length=1000)
    """Label of the picture, taken from the name of its folder."""


class GivenMask(GivenFile):
    """A mask for a run, as a file."""

    run: str = Field(max_length=80)
    classes: str = Field("", max_length=LONGEST_TEXT)
    """Class numbers and names as text, such as "0 sky, 1 road"."""


@dataclass(frozen=True)
class PageValues:
    """All values that the page shows, read once for each reply."""

    profile: ProfileOptions
    samples: tuple[Sample, ...]
    listing: Listing
    latest: tuple[RunSummary, ...]
    """The latest runs, whether or not the search finds them."""
    jobs: tuple[JobView, ...]
    """Running and waiting jobs, in order."""
    waiting_for: str
    """Text that says what the waiting jobs wait for."""
    view: View
    state: RunState | None
    """The open run, or None on the start page."""
    comparison: ModelComparison
    """Results of the model under test on the images of the open run."""
    edited: tuple[EditedShare, ...] | None
    """Shares of values that people changed, by profile and stage; None while the page hides the list of the shares."""
    together: TogetherState
    """The selected runs; empty while a run is open."""
    example: ExampleView | None
    """The state of the example workspace, or None while a run is open."""
    example_offered: bool
    """True if the studio can create the example."""


@dataclass(frozen=True)
class Performed:
    """The outcome of one action on the page."""

    run_id: str
    problem: str = ""
    where: str = ""
    """Name of the card that shows the problem: a stage, "source" or "start"; or OWN."""
    field: str = ""
    """Field of the command that caused the problem; "" for none."""
    undone: Undone | None = None


@dataclass(frozen=True)
class Explorer:
    """Answers the requests of the page. Any thread may call its methods."""

    studio: Studio

    def answer(self, batch: Batch) -> Reply:
        """Perform the actions that a page sends, until one fails. Return the parts of the page that changed."""
        if batch.revision == self._revision(batch) and all(action.name == "poll" for action in batch.do):
            return {"same": True}
        done, ended = Performed(batch.run), 0
        try:
            for action in batch.do:
                done = self.perform(done.run_id, action, batch.tab)
                if done.problem:
                    break
                ended += 1
        except Exception as error:  # without a reply the page would wait
            log.exception("an action failed")
            text = f"The studio itself failed ({type(error).__name__}): the terminal says more. Reload the page."
            done = Performed(done.run_id, text, "source" if done.run_id else "start")
        return {**self._reply(done, batch), "ended": ended}

    def perform(self, run_id: str, action: Action, tab: str = "") -> Performed:
        """Perform one action on the page of run `run_id`. On UserError, return its message and the card to show it."""
        name, fields = action.name, action.fields
        if name == "poll":
            return Performed(run_id)
        if name in ("open", "new"):
            self.studio.estimates.warm_up()
            return Performed(str(fields.get("run") or ""))
        command_type = self.studio.commands.known().get(name)
        if command_type is None:
            raise UnknownCommand(f"There is no command {name!r}: reload the page.")
        shown = {"run": run_id, "tab": tab, "version": action.version, "state": action.state}
        values = {field: value for field, value in shown.items() if field in command_type.model_fields} | fields
        try:
            result = self.studio.commands.send(name, values)
        except UserError as error:
            shown_by_field = action.own and not isinstance(error, CanBeInsistedOn)
            where = OWN if shown_by_field else self._note(command_type, values, run_id, error)
            return Performed(run_id, str(error), where, error.field)
        if isinstance(result, OpenedRun):
            return Performed(result.run_id)
        if isinstance(result, Undone):
            return Performed(run_id, undone=result)
        if isinstance(result, DoneTogether) and result.refused:
            return Performed(run_id, self._refused(result), "start")
        gone = name == "delete-run" and values["run"] == run_id
        gone = gone or (name == "delete-runs" and run_id in parts_of(values["runs"]))
        return Performed("" if gone else run_id)

    def _refused(self, done: DoneTogether) -> str:
        names = {state.run.id: state.run.name for state in self.studio.together.of(tuple(done.refused)).runs}
        messages = [f"“{names.get(run_id, run_id)}”: {reason}" for run_id, reason in done.refused.items()]
        more = f" And {len(messages) - NAMED} more." if len(messages) > NAMED else ""
        return f"Not done for {len(messages)} of {len(messages) + len(done.done)}. {' '.join(messages[:NAMED])}{more}"

    def _note(self, command: type[Command], fields: Mapping[str, Any], run_id: str, error: UserError) -> str:
        """Return the name of the card that shows an error. A stage's card shows it until the person tries again."""
        if not issubclass(command, RunCommand) or not run_id:
            return "source" if run_id else "start"
        stage = command.about(fields)
        if stage != GENERATION and stage not in stage_kinds():
            return "source"
        self.studio.states.refused(run_id, stage, error)
        return stage

    def take_picture(self, body: GivenPicture) -> Reply:
        """Open the run stored in an uploaded picture, or begin a new run with the picture and its label."""
        return self._take(body, lambda data: vars(self.studio.exchange.take_picture(data, body.name, body.label)))

    def take_run(self, body: GivenFile) -> Reply:
        """Open the run stored in an uploaded file."""
        return self._take(body, lambda data: vars(self.studio.exchange.take_run(data)))

    def give_mask(self, body: GivenMask) -> Reply:
        """Set the mask of a run from an uploaded file."""
        return self._take(body, lambda data: {"said": self.studio.runs.give_mask(body.run, data, body.classes)})

    def _take(self, body: GivenFile, take: Callable[[bytes], Reply]) -> Reply:
        """Read an uploaded file. The reply's "problem" is an error or "". If an image has no run, "offer" is "new"."""
        try:
            return {"problem": "", **take(uploaded(body.path).read_bytes())}
        except NoRun as error:
            return {"problem": str(error), "offer": "new"}
        except UserError as error:
            return {"problem": str(error)}
        except Exception as error:  # the page must get a reply that it can show
            log.exception("a file could not be taken")
            return {"problem": f"The studio itself failed ({type(error).__name__}): the terminal says more."}

    def read(self, run_id: str, view: View, find: str = "", picked: tuple[str, ...] = ()) -> PageValues:
        """Read all that the page of a run shows ("" for the start page). Raises UserError for an unknown run."""
        state = self.studio.states.of(run_id) if run_id else None
        listing = self.studio.runs.listing(find)
        return PageValues(
            profile=profile_options(self.studio.runs.profile),
            samples=self.studio.runs.samples,
            listing=listing,
            latest=self.studio.runs.latest(),
            jobs=self.studio.jobs.active(),
            waiting_for=self.studio.jobs.waiting_for(),
            view=view,
            state=state,
            comparison=self.studio.predictions.compare(state.run, state.settings) if state else ModelComparison(None),
            together=self.studio.together.of(() if run_id else picked),
            edited=self.studio.runs.edited() if view.edited else None,
            example=None if run_id else self.studio.example.view(),
            example_offered=self.studio.example.offered,
        )

    def _revision(self, batch: Batch) -> str:
        """Return a text that changes when the page may be outdated: after each change of the data, every half second
        while there is work, and else every minute.
        """
        shown = fingerprint(repr((batch.run, batch.view, batch.find, batch.picked)))
        return f"{self.studio.revisions.now(0.5 if self._works(batch.run) else 60)}.{shown}"

    def _works(self, run_id: str) -> bool:
        """Return True while the page may change without a person's action."""
        return bool(self.studio.jobs.active()) or (not run_id and self.studio.example.active)

    def _reply(self, done: Performed, batch: Batch) -> Reply:
        # Read the revision before the state, so that a change in between is fetched twice and never missed.
        revision = self._revision(batch.model_copy(update={"run": done.run_id}))
        active, measured = self._works(done.run_id), self.studio.similarities.measured
        find = batch.find[:LONGEST_SEARCH]
        try:
            values = self.read(done.run_id, batch.view, find, batch.picked)
        except UserError as error:  # such as a run of another workspace in the address
            done = Performed("", str(error), "start")
            values = self.read("", batch.view, find, batch.picked)
        parts, state = render(values), values.state
        in_strip = strip_of(state, values.comparison, batch.view.only).cases if state is not None else ()
        return {
            "start": self.studio.revisions.start,
            "revision": revision,
            "parts": {name: part for name, part in parts.items() if batch.seen.get(name) != _stamp(part)},
            **facts(done, "problem where field", run=done.run_id),
            "undone": facts(done.undone, "said again") if done.undone is not None else None,
            # Reading the state may have queued or finished measurements of similarity.
            "active": active or self.studio.similarities.waiting or self.studio.similarities.measured != measured,
            "state": state.run.state if state is not None else 0,
            "predicting": values.comparison.waiting,
            "cases": [case.id for case in state.run.test_cases] if state is not None else [],
            "strip": [case.id for case in in_strip],  # the arrow keys step through them
        }


def page_functions(explorer: Explorer) -> list[Callable[..., Reply]]:
    """Return the functions that the page's script calls, with one argument each. They raise HTTPException for
    requests that the studio's own pages did not send, such as those of programs with an access token.
    """

    def function(act: Callable[[T], Reply], kind: type[T]) -> Callable[..., Reply]:
        def called(sent: Any, request: gr.Request) -> Reply:
            if token_of(request) is not None:
                raise HTTPException(403, "This is for the page: a script calls an endpoint by its name.")
            try:
                parsed = kind.model_validate(sent)
            except ValidationError as error:
                raise HTTPException(400, str(refused(error, kind))) from error
            return act(parsed)

        called.__name__ = act.__name__  # by which the script calls it
        return called

    picture, mask = function(explorer.take_picture, GivenPicture), function(explorer.give_mask, GivenMask)
    return [function(explorer.answer, Batch), picture, function(explorer.take_run, GivenFile), mask]


def explore_page(explorer: Explorer) -> gr.Blocks:
    """Build the page Explore."""
    with gr.Blocks(title="DILLEMA Studio", fill_width=True, analytics_enabled=False) as page:
        functions = page_functions(explorer)
        # This element shows nothing. It gives the script the server's functions and Gradio's function for uploads.
        gr.HTML("", js_on_load=_CONNECT, server_functions=functions, apply_default_css=False, elem_id="wire")
        _slot("top")
        with gr.Row(elem_id="layout"):
            with gr.Column(elem_id="column-runs", min_width=0):
                _slot("runs")
            with gr.Column(elem_id="column-start", min_width=0):
                _slot("together")
                _slot("start")
                label = "Pictures of your own: each begins a run"
                upload = gr.File(label=label, elem_id="upload", type="filepath", file_count="multiple", height=150)
                _slot("upload-note")
            with gr.Column(elem_id="column-stages", min_width=0):
                for name in ("source", *stage_kinds(), GENERATION):
                    _slot(name)
            with gr.Column(elem_id="column-pictures", min_width=0):
                _slot("pictures")
                _slot("queue")
        _slot("keys")

        keep_to_uploads(upload)
        upload.upload(None, upload, upload, js=_CHOSEN, show_progress="hidden", api_visibility="private")
    return page


def render(values: PageValues) -> dict[str, str]:
    """Return the HTML of every part by name, each with its hash. Parts of a run are empty on the start page."""
    profile, samples, state, jobs = values.profile, values.samples, values.state, values.jobs
    run_id = state.run.id if state is not None else ""
    parts: dict[str, Html] = dict.fromkeys((*PARTS, *stage_kinds()), Html(""))
    saved = next((run.changed for run in values.latest if run.id == run_id), None)
    steps = state.steps if state is not None else None
    parts["top"] = header(profile, jobs, values.waiting_for, run_id, saved, steps)
    parts["runs"] = run_list(values.listing, run_id, edited=values.edited)
    if state is None:
        parts["together"] = together_part(values.together, profile)
        example = example_card(values.example, values.example_offered) if values.example is not None else None
        parts["start"] = start_page(samples, profile.stages, bool(values.together.runs), example)
        parts["upload-note"] = templating.render("explore/upload_note.html", profile=profile)
    else:
        parts["source"] = source_card(state, profile, samples)
        parts |= {name: card_of(name, state) for name in state.recipe.names}
        parts[GENERATION] = generation_card(state, profile)
        parts["pictures"] = picture_column(state, values.view, values.comparison)
        names = {run.id: run.name for run in values.latest}
        parts["queue"] = queue_part(jobs, names, run_id, values.waiting_for)
    cases = state.run.test_cases if state is not None else ()
    checks = (check for case in cases for check in values.comparison.checks(case))
    parts["keys"] = keys_window({one.name: one.threshold for one in checks if one.threshold is not None})
    return {name: stamped(markup) for name, markup in parts.items()}


def _stamp(part: str) -> str:
    return part[4 : part.index("-->")]


def _slot(name: str) -> None:
    """Add an empty element for a part of the page. The script's function `part` then fills it."""
    place = f'<div class="studio" data-part="{name}"></div>'
    gr.HTML("", html_template=place, js_on_load=_PLACE, apply_default_css=False, elem_id=f"part-{name}")
