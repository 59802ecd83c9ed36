"""Undo and redo of every change to a run, and a person's values when stages run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from core.stored_runs import Run
from core.types import to_plain
from services.runs.state import CanBeInsistedOn
from services.runs.words import edited_csv
from services.studio import Studio
from tests.support.explorer import draw, fill, text_run
from tests.support.serving import until
from ui.explore.runs import run_list

WET = "A red bird in rainy weather by day. The bird sits on a twig. The ground is grassy."


@pytest.fixture
def run(studio: Studio) -> str:
    """Run at the gate."""
    return text_run(studio)


def send(studio: Studio, run_id: str, name: str, **fields: Any) -> Any:
    done = studio.commands.send(name, {"run": run_id, **fields})
    until(lambda: not studio.jobs.active())
    return done


def facts(studio: Studio, run_id: str) -> dict[str, Any]:
    """Return everything in a run that a person may change."""
    run: Run = studio.workspace.runs.get(run_id)
    reviews = [case.review and (case.review.verdict, case.review.reason) for case in run.test_cases]
    values = {name: to_plain(held.value.value) for name, held in run.values.items()}
    about = {"name": run.name, "task": run.task, "recipe": run.recipe, "prompts": run.prompts}
    return {**about, "settings": run.settings, "mask": (run.mask_sha, run.mask_classes), "of": values, "said": reviews}


def test_every_kind_of_thing_is_taken_back_and_done_again_in_its_order(studio: Studio, run: str) -> None:
    draw(studio, run)
    case = studio.workspace.runs.get(run).test_cases[0].id
    given = studio.workspace.runs.get(run).source_sha

    def mask() -> None:
        size = studio.runs.size(given)
        studio.workspace.runs.set_mask(run, Image.new("L", size), {0: "road"})

    things: list[tuple[str, Callable[[], Any]]] = [
        ("the name", lambda: send(studio, run, "rename", title="Robin")),
        ("the label", lambda: send(studio, run, "task", kind="classification", label="robin")),
        ("the mask", mask),
        ("the setting “steps”", lambda: send(studio, run, "setting", setting="generation.steps", value=7)),
        ("the settings", lambda: send(studio, run, "reuse-seed", case=case)),
        (
            "the prompt of “Keywords”",
            lambda: send(studio, run, "prompt-save", stage="keywords", template="$task, $caption"),
        ),
        ("the edit of “Caption”", lambda: send(studio, run, "caption", text=WET)),
        ("the edit of “Keywords”", lambda: send(studio, run, "keyword-add", new="twig", edit_type="object")),
        ("the edit of “Alternatives”", lambda: send(studio, run, "keep", stage="alternatives")),
        ("the edit of “Counterfactual captions”", lambda: send(studio, run, "keep", stage="counterfactuals")),
        (
            "the verdict on an image",
            lambda: send(studio, run, "review", case=case, verdict="rejected", reason="blurred"),
        ),
        ("the verdict on an image", lambda: send(studio, run, "review", case=case, verdict="accepted")),
        ("the recipe", lambda: send(studio, run, "recipe", recipe="reconstruction")),
    ]
    were = [facts(studio, run)]
    for _, does in things:
        does()
        were.append(facts(studio, run))
    rows = sum(len(studio.workspace.runs.history(run, stage)) for stage in studio.states.of(run).recipe.names)
    for (words, _), was in list(zip(things, were, strict=False))[::-1]:
        assert send(studio, run, "undo").said == f"Taken back: {words}."
        assert facts(studio, run) == was, words
    for (words, _), then in zip(things, were[1:], strict=True):
        assert send(studio, run, "redo").said == f"Done again: {words}."
        assert facts(studio, run) == then, words
    with pytest.raises(UserError, match="nothing to redo"):
        send(studio, run, "redo")
    later = sum(len(studio.workspace.runs.history(run, stage)) for stage in studio.states.of(run).recipe.names)
    assert later > rows, "to undo and redo adds to the history"


def test_a_run_of_stages_is_one_step_and_before_the_first_the_stages_are_empty(studio: Studio, run: str) -> None:
    whole = facts(studio, run)
    assert send(studio, run, "undo").said == "Taken back: the run of “Caption” to “Counterfactual captions”."
    (line,) = studio.workspace.runs.search()
    assert not studio.workspace.runs.get(run).values and not line.stages
    assert len(studio.states.of(run).histories["caption"]) == 1, "it can still be brought back"
    send(studio, run, "redo")
    assert facts(studio, run) == whole and not studio.states.of(run).stale
    assert len(studio.workspace.runs.search()[0].stages) == 4

    # Running a single stage over an edit is a step that can be undone.
    send(studio, run, "caption", text=WET)
    send(studio, run, "run", stage="caption", force=True)
    assert studio.workspace.runs.get(run).values["caption"].author == "model"
    send(studio, run, "undo")
    assert facts(studio, run)["of"]["caption"]["text"] == WET
    send(studio, run, "undo", stage="caption")
    assert facts(studio, run) == whole


def test_a_run_begins_with_what_came_with_it(studio: Studio, run: str) -> None:
    """The mask of a sample and the texts of a copy are no user's changes, so they cannot be undone."""
    street = studio.commands.send("run-from-sample", {"sample": "street-two-cars"}).run_id
    copy = send(studio, run, "run-duplicate").run_id
    for fresh in (street, copy):
        with pytest.raises(UserError, match="nothing to undo"):
            send(studio, fresh, "undo")
        assert not studio.states.of(fresh).steps.done
    send(studio, copy, "rename", title="Another")
    send(studio, copy, "delete-run")
    send(studio, copy, "restore-run")
    assert send(studio, copy, "undo").said == "Taken back: the name."


def test_what_is_done_after_an_undo_ends_the_redo_and_only_what_a_step_changed_is_put_back(
    studio: Studio, run: str
) -> None:
    send(studio, run, "setting", setting="generation.steps", value=7)
    send(studio, run, "caption", text=WET)
    send(studio, run, "setting", setting="generation.guidance", value=3)
    send(studio, run, "undo", stage="caption")
    assert studio.workspace.runs.get(run).settings["generation"]["guidance"] == 3, "it was not the last, but asked for"
    send(studio, run, "undo")
    send(studio, run, "rename", title="Robin")
    with pytest.raises(UserError, match="nothing to redo"):
        send(studio, run, "redo")
    with pytest.raises(UserError, match="no edit of yours to undo here"):
        send(studio, run, "undo", stage="caption")


def test_what_a_person_wrote_is_run_over_only_where_they_insist_or_it_is_outdated(studio: Studio, run: str) -> None:
    send(studio, run, "caption", text=WET)
    send(studio, run, "run-from", stage="caption")
    state = studio.states.of(run)
    assert facts(studio, run)["of"]["caption"]["text"] == WET, "“Run from here” keeps the edit"
    assert state.run.values["keywords"].author == "model" and not state.stale
    with pytest.raises(CanBeInsistedOn, match="You edited this") as refused:
        send(studio, run, "run", stage="caption")
    assert facts(studio, run)["of"]["caption"]["text"] == WET
    studio.commands.do(refused.value.insist)
    until(lambda: not studio.jobs.active())
    assert studio.workspace.runs.get(run).values["caption"].author == "model"

    # An outdated value by a person is run again with the stages before it, and a notice says so.
    fill(studio, run)
    send(studio, run, "keyword-use", text="red", used=False)
    send(studio, run, "run-from", stage="caption")
    assert studio.workspace.runs.get(run).values["keywords"].author == "person", "still fits"
    send(studio, run, "caption", text=WET)
    fill(studio, run)
    assert studio.workspace.runs.get(run).values["keywords"].author == "model"
    assert "restores your edit" in studio.states.of(run).notices["keywords"]
    send(studio, run, "undo")
    assert studio.workspace.runs.get(run).values["keywords"].author == "person"
    assert "keywords" not in studio.states.of(run).notices


def test_how_much_people_changed_is_told_by_profile_and_stage(studio: Studio, run: str) -> None:
    other = text_run(studio, name="other.png")
    send(studio, run, "caption", text=WET)
    send(studio, run, "keep", stage="keywords")
    for used in (False, True):
        send(studio, other, "keyword-use", text="red", used=used)
    rows = studio.commands.send("edited-values", {})["stages"]
    assert [(row["profile"], row["stage"], row["changed"], row["values"], row["share"]) for row in rows] == [
        ("demo", "caption", 1, 2, 0.5),
        ("demo", "keywords", 0, 2, 0.0),
        ("demo", "alternatives", 0, 2, 0.0),
        ("demo", "counterfactuals", 0, 2, 0.0),
    ], "what was kept, or put back as it was, is the model's"
    shown = str(run_list(studio.runs.listing(), run, edited=studio.runs.edited()))
    assert "1 of 2" in shown and "50 %" in shown and "<caption>demo</caption>" in shown
    assert edited_csv(studio.workspace, [other]).decode().splitlines()[:2] == [
        "profile,stage,values,changed,share",
        "demo,caption,1,0,0.0",
    ]
    send(studio, run, "undo", stage="caption")
    send(studio, other, "delete-run")
    assert {row["changed"] for row in studio.commands.send("edited-values", {})["stages"]} == {0}
