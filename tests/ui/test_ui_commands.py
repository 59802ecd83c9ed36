"""Each button, field and form of the explore page sends a command with fields that the command has."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI
from PIL import Image

from core.errors import UserError
from core.settings import UnderTestSettings
from core.types import Task
from services.commands import Command, RunCommand
from services.example.service import ExampleView
from services.runs.predictions import Predictor
from services.studio import Studio
from tests.support.scripted import parts_of, perform, studio_in
from tests.ui.explore.test_ui_studio import new_run, wait
from ui.curate.imports import add_imports
from ui.curate.sets import add_test_sets
from ui.curate.sets_page import WORK_WORDS
from ui.explore.page_frame import example_card

NO_FIELDS = {"do", "draft", "key", "edit", "form", "own", "server", "fresh", "lines", "control"}
"""Attributes that are no fields, since `gestures.js` does not send them."""


class Senders(HTMLParser):
    """Collects the command and the field names that each element of a page would send."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, frozenset[str]]] = set()
        self._form: tuple[str, set[str], int] | None = None
        self._depth = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag not in ("input", "img", "br"):
            self._depth += 1
        fields = {name[5:].replace("-", "_") for name in given if name.startswith("data-")} - NO_FIELDS
        if self._form is not None and given.get("name"):
            self._form[1].add(str(given["name"]))
        if "data-form" in given:
            self._form = (str(given["data-form"]), fields, self._depth)
        elif given.get("data-do"):
            if tag != "button":
                fields.add(given.get("name") or "value")
            self.found.add((str(given["data-do"]), frozenset(fields)))

    def handle_endtag(self, tag: str) -> None:
        if self._form is not None and self._form[2] == self._depth:
            self.found.add((self._form[0], frozenset(self._form[1])))
            self._form = None
        self._depth -= 1


def sent_by(parts: dict[str, str]) -> set[tuple[str, frozenset[str]]]:
    """Return the commands that the elements of all parts would send."""
    senders = Senders()
    for part in parts.values():
        senders.feed(part.replace('type="file"', 'type="file" '))
    return senders.found


def _of_others(model: type[Command]) -> bool:
    """Return True for commands of the pages of studies, of Curate, of batches and of evaluations."""
    others = (
        "services.studies.",
        "services.test_sets.",
        "services.curation.",
        "services.batches.",
        "services.evaluation.",
    )
    return model.__module__.startswith(others)


def _no_model(wanted: UnderTestSettings) -> Predictor:
    raise UserError("There is none here.")


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """Studio for all tests of this file, which change nothing in it."""
    with studio_in(tmp_path_factory.mktemp("commands")) as made:
        yield made


@pytest.fixture(scope="module")
def shown(studio: Studio) -> set[tuple[str, frozenset[str]]]:
    """Return the commands that a run's pages would send, over all states that show different elements."""
    studio.predictions.load = _no_model
    run_id = new_run(studio)
    found = sent_by(parts_of(studio, "")) | sent_by(parts_of(studio, run_id))

    def look(name: str, of: str = run_id, **fields: object) -> None:
        perform(studio, of, name, **fields)
        found.update(sent_by(parts_of(studio, of)))
        wait(studio)
        found.update(sent_by(parts_of(studio, of)))

    look("run-all")
    look("keyword-add", new="bird", edit_type="subject")
    look("caption", text="A red bird in rainy weather by day. The ground is grassy.")
    look("run", stage="caption")
    look("prompt-save", stage="keywords", template="Name what may change ($task): $caption")
    look("prompt-back", stage="keywords")
    look("setting", setting="generation.seed_mode", value="fixed")
    look("run-all")
    look("generate")
    case = studio.workspace.runs.get(run_id).test_cases[0].id
    look("review", case=case, verdict="rejected", reason="other")
    look("review", case=case, verdict="accepted")
    found.update(sent_by(parts_of(studio, "", (run_id,))))
    for view in (ExampleView("none"), ExampleView("making"), ExampleView("unfinished"), ExampleView("made")):
        found.update(sent_by({"example": str(example_card(view, True))}))
    studio.workspace.runs.set_task(run_id, Task("segmentation", protected=("road",)))
    studio.workspace.runs.set_mask(run_id, Image.new("L", (32, 32)), {0: "road"})
    look("setting", setting="conditioning.low", value=41)
    street = perform(studio, "", "run-from-sample", sample="street-two-cars").run_id
    look("delete-mask", street)
    look("delete-run", street)
    return found


@pytest.mark.slow
def test_what_the_page_sends_fits_its_commands(studio: Studio, shown: set[tuple[str, frozenset[str]]]) -> None:
    known = studio.commands.known()
    for name, fields in sorted(shown):
        assert name in known, name
        model = known[name]
        if name != "task":  # its script reads the whole form
            assert fields <= set(model.model_fields), f"{name} sends {sorted(fields - set(model.model_fields))}"
        given = {"run", "tab", "state", "version"} | fields
        missing = {field for field, about in model.model_fields.items() if about.is_required()} - given
        assert not missing or name == "task", f"{name} does not send {sorted(missing)}"


@pytest.mark.slow
def test_every_command_is_on_the_page_and_says_what_it_does(
    studio: Studio, shown: set[tuple[str, frozenset[str]]]
) -> None:
    sent = {name for name, _ in shown}
    by_script = {
        "delete-runs",
        "restore-runs",
        "undo",
        "delete-run",
        "bring-back",
        "queue-cancel",
        "delete-job-part",
        "queue-up",
        "cancel-all",
        "cancel",
    }
    elsewhere = {"draw-control", "under-test-again", "value"}
    """Commands on the cards of other profiles, models and recipes."""
    of_scripts = {"make-token", "withdraw-token"}
    """Commands on the page of scripts. Only scripts send commands that read."""
    on_this_page = {
        name for name, model in studio.commands.known().items() if not _of_others(model) and not model.looks
    }
    assert on_this_page - sent <= by_script | elsewhere | of_scripts
    for name, model in studio.commands.known().items():
        assert issubclass(model, Command) and (model.__doc__ or "").strip(), name
        a_filter = model.looks and "run" in model.model_fields and not model.model_fields["run"].is_required()
        assert issubclass(model, RunCommand) or "run" not in model.model_fields or a_filter, name
        for field, about in model.model_fields.items():
            assert about.description, f"{name}.{field} has no description"


def test_every_command_of_test_sets_and_imports_is_on_their_pages(studio: Studio) -> None:
    app = FastAPI()
    add_test_sets(app, studio.commands, studio.test_sets)
    add_imports(app, studio.commands, studio.imports)
    sent = {getattr(route, "path", "").removeprefix("/curate/api/") for route in app.routes} | set(WORK_WORDS)
    theirs = {
        name
        for name, model in studio.commands.known().items()
        if model.__module__.startswith(("services.test_sets.", "services.curation.imports")) and not model.looks
    }
    assert len(theirs) > 8 and not theirs - sent
