"""The explore page put together: which parts it has, and how what is done in the browser gets to `ui.actions` and back.

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
from datetime import datetime
from pathlib import Path
from typing import Any

import gradio as gr

from pipeline.errors import UserError
from storage.types import RunSummary
from ui.actions import Outcome, perform
from ui.exchange import take_picture
from ui.listing import listing
from ui.readings import Seen
from ui.run_state import RunState
from ui.studio import Studio
from ui.views.counterfactuals import counterfactuals_card
from ui.views.frame import header, source_card, start_page, upload_note
from ui.views.generation import generation_card
from ui.views.keys import keys_window
from ui.views.markup import Html, stamped
from ui.views.pictures import View, picture_column
from ui.views.queue import queue_part
from ui.views.runs import run_list
from ui.views.text_stages import alternatives_card, caption_card, keywords_card

PARTS = (
    "top",
    "runs",
    "start",
    "upload-note",
    "source",
    "caption",
    "keywords",
    "alternatives",
    "counterfactuals",
    "generation",
    "pictures",
    "queue",
    "keys",
)
"""The parts of the page."""
LARGEST_UPLOAD = "200mb"
LONGEST_SEARCH = 200

_CONNECT = """
const go = () => window.studio.{method}(element, props, watch, trigger);
if (window.studio) go(); else window.addEventListener('studio-ready', go, {{once: true}});
"""
log = logging.getLogger(__name__)
_replies = itertools.count(1)


def explore_page(studio: Studio) -> gr.Blocks:
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
                for name in ("source", "caption", "keywords", "alternatives", "counterfactuals", "generation"):
                    _slot(name)
            with gr.Column(elem_id="column-pictures", min_width=0):
                _slot("pictures")
                _slot("queue")
        _slot("keys")

        def on_action(event: gr.EventData) -> str:
            return answer(studio, event._data)

        def on_upload(path: str | None) -> list[Any]:
            return [None, take_upload(studio, path)]

        # Nothing here takes long, and a batch is sent only after the reply to the one before: no queue is needed.
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
        bus.click(on_action, None, bus, trigger_mode="multiple", **quiet)
        # An upload only says what became of it: opening its run takes its turn among the batches.
        upload.upload(on_upload, upload, [upload, inbox], **quiet)
    return page


def answer(studio: Studio, data: Mapping[str, Any]) -> str:
    """Do what a batch of the page says, up to the first thing that fails, and give the reply with what changed."""
    outcome = Outcome(str(data.get("run") or ""))
    view = View(data["view"].get("case"), str(data["view"].get("mode") or "result"))
    try:
        for action in data.get("do", ()):
            outcome = perform(studio, outcome.run_id, action)
            if outcome.problem:
                break
    except Exception as error:  # the page must get a reply, or it would wait for it
        log.exception("an action failed")
        text = f"The studio itself failed ({type(error).__name__}): the terminal says more. Reload the page."
        outcome = Outcome(outcome.run_id, text, "source" if outcome.run_id else "start")
    return _reply(studio, outcome, view, data)


def take_upload(studio: Studio, path: str | None) -> str:
    """The run that an uploaded file carries, or a new one; the file is removed. Says the run, or why there is none."""
    said: dict[str, Any] = {"reply": next(_replies), "problem": ""}
    if path is not None:
        file = Path(path)
        try:
            said |= vars(take_picture(studio, file.read_bytes(), file.name))
        except UserError as error:
            said["problem"] = str(error)
        finally:
            file.unlink(missing_ok=True)
    return json.dumps(said)


def _reply(studio: Studio, outcome: Outcome, view: View, data: Mapping[str, Any]) -> str:
    # Asked for before the state is read: a job that ends in between is then asked for once more, and never missed.
    active = bool(studio.jobs.active())
    try:
        state = studio.state(outcome.run_id) if outcome.run_id else None
    except UserError as error:  # such as a run of another workspace in the address
        outcome, state = Outcome("", str(error), "start"), None
    seen = studio.readings.seen(state.run, state.settings) if state is not None else None
    parts = render(studio, state, view, seen, str(data.get("find") or "")[:LONGEST_SEARCH])
    shown = data.get("seen") or {}
    reply = {
        "reply": next(_replies),
        "ticket": data.get("ticket"),
        "parts": {name: part for name, part in parts.items() if shown.get(name) != _stamp(part)},
        "run": outcome.run_id,
        "problem": outcome.problem,
        "where": outcome.where,
        "active": active or studio.likenesses.waiting,  # lined up, perhaps, by what was just rendered
        "state": state.run.state if state is not None else 0,
        "reading": seen is not None and seen.waiting,
        "cases": [case.id for case in state.run.test_cases] if state is not None else [],
    }
    return json.dumps(reply)


def render(
    studio: Studio, state: RunState | None, view: View, seen: Seen | None = None, find: str = ""
) -> dict[str, str]:
    """The markup of every part, each behind its stamp. Parts of a run are empty on the start page."""
    listed = listing(studio, find)
    runs = studio.runs() if listed.find else listed.runs
    run_id = state.run.id if state is not None else ""
    parts: dict[str, Html] = dict.fromkeys(PARTS, Html(""))
    jobs, waiting_for = studio.jobs.active(), studio.jobs.waiting_for()
    parts["top"] = header(studio.profile, jobs, waiting_for, run_id, _saved(runs, run_id))
    parts["runs"] = run_list(listed, run_id)
    if state is None:
        parts["start"] = start_page(studio.profile, studio.samples)
        parts["upload-note"] = upload_note(studio.profile)
    else:
        parts["source"] = source_card(state, studio.profile, studio.samples)
        parts["caption"] = caption_card(state)
        parts["keywords"] = keywords_card(state)
        parts["alternatives"] = alternatives_card(state)
        parts["counterfactuals"] = counterfactuals_card(state)
        parts["generation"] = generation_card(state, studio.profile)
        parts["pictures"] = picture_column(state, view, seen or Seen(None))
        names = {run.id: run.name for run in runs}
        parts["queue"] = queue_part(jobs, names, run_id, waiting_for)
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
