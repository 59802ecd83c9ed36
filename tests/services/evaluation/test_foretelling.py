"""Order of captions before their images are drawn: edits like those that failed in the past come first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.evaluation import main
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Edit, EditType, StageValue, Task, Trace
from evaluation.effectiveness import UNKNOWN, WRONG
from services.evaluation.caption_ranking import BEFORE, caption_ranking_facts
from services.evaluation.commands import OnModel
from services.evaluation.ranking import kinds_of
from services.evaluation.service import EvaluationService
from storage.workspace import Workspace
from tests.support.evaluation_cases import BIRDS, READ_OBJECTS, ROADS, scenes_that_are_read, service_of
from tests.support.made_once import MadeOnce
from tests.support.set_cases import picture

pytestmark = pytest.mark.slow

Kind = tuple[EditType, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Path:
    return scenes_that_are_read(made_once, tmp_path_factory.mktemp("foretold"))


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[EvaluationService]:
    """Service whose models have read all images."""
    with Workspace(folder) as workspace:
        made = service_of(workspace)
        yield made
        made.close()


def run_with(workspace: Workspace, label: str, captions: list[CounterfactualCaption]) -> str:
    """Create a run with counterfactual captions and no images. Return its id."""
    task = Task("classification", label)
    run = workspace.runs.create(picture(len(captions)), task, "demo", "Waiting", {})
    for stage, value in (
        ("caption", Caption("A scene.")),
        ("counterfactuals", CounterfactualCaptions(tuple(captions))),
    ):
        workspace.runs.append_value(run, stage, StageValue(value, Trace("person"), "k"))
    return run


def best_and_worst(service: EvaluationService) -> tuple[Kind, Kind]:
    """Return the edit type, alternative and label with most wrong test cases, and with fewest."""
    found = service.result(BIRDS)
    kinds, kind, _ = kinds_of(found.cases)
    wrong = {name: (found.right[kind == number] == WRONG).mean() for number, name in enumerate(kinds)}
    ordered = sorted(wrong, key=lambda name: wrong[name])
    assert wrong[ordered[0]] == 0 and wrong[ordered[-1]] == 1
    return tuple(  # type: ignore[return-value]
        (edit, word, found.cases.labels[int(label)]) for edit, word, label in (ordered[0], ordered[-1])
    )


def caption(kind: Kind, text: str, used: bool = True) -> CounterfactualCaption:
    return CounterfactualCaption(text, (Edit("what was there", kind[1], kind[0]),), used)


def test_a_caption_whose_like_has_failed_is_drawn_before_one_whose_like_has_not(service: EvaluationService) -> None:
    good, bad = best_and_worst(service)
    workspace = service._workspace
    one = run_with(workspace, good[2], [caption(good, "nothing happens"), caption(good, "not ticked", used=False)])
    other = run_with(workspace, bad[2], [caption(bad, "it fails here")])
    empty = workspace.runs.create(picture(9), Task("classification", "bird"), "demo", "Empty", {})
    found = service.rank_captions(BIRDS, [one, other, empty])
    assert [(held.run, held.place, held.text) for held in found.captions] == [
        (other, 0, "it fails here"),
        (one, 0, "nothing happens"),
    ]
    first, last = found.captions
    assert 1 >= first.chance > last.chance >= 0 and first.alike > 0 and last.alike > 0
    assert found.learnt == 10 * READ_OBJECTS
    assert "Left out: 1 × caption is not ticked." in found.notes
    assert "Left out: 1 × run has no counterfactual captions yet." in found.notes

    ours, random = found.orders
    assert (ours.name, random.name) == (BEFORE, "random")
    assert ours.apfd is not None and random.apfd is not None and ours.apfd > random.apfd

    # For a label without a class of the model, nothing is predicted, since no error could be seen.
    without = replace(BIRDS, mapping=f"label,model class\n{bad[2]},\n")
    left = service.rank_captions(without, [other])
    assert not left.captions
    assert "Left out: 1 × caption is of a label that the model has no class for." in left.notes

    # An edit without a similar past test case gets the prediction of a more general group.
    new = run_with(workspace, bad[2], [CounterfactualCaption("never seen", (Edit("a", "no such word", bad[0]),))])
    (told,) = service.rank_captions(BIRDS, [new, new]).captions
    assert told.alike == 0 and 0 < told.chance < 1


def test_what_is_drawn_already_is_left_out(service: EvaluationService) -> None:
    held = service._workspace.runs.get(service.cases(BIRDS.subject).table.runs.values[0])
    texts = [one.lineage.counterfactual for one in held.test_cases[:2]]
    value = StageValue(CounterfactualCaptions(tuple(texts)), Trace("person"), "k")
    service._workspace.runs.append_value(held.id, "counterfactuals", value)
    found = service.rank_captions(BIRDS, [held.id])
    assert not found.captions and "Left out: 2 × caption is drawn already." in found.notes


def test_a_script_and_the_command_line_get_the_same(
    service: EvaluationService, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, bad = best_and_worst(service)
    run = run_with(service._workspace, bad[2], [caption(bad, "a | b")])
    facts = service.foretell_faults(OnModel(filter="kind=classification"), (run,))
    asked = ["foretell", "--filter", "kind=classification", "--workspace", str(folder), "--run", run]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(facts))
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "| 1 | " in shown and "a \\| b" in shown and run in shown
    assert main([*asked[:-1], "nobody"]) == 2
    assert capsys.readouterr().err.endswith("This workspace has no run 'nobody'; pick one from the list of runs.\n")


def test_captions_of_a_segmentation_are_foretold_by_what_was_lost(
    service: EvaluationService, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = service.result(ROADS)
    kinds, kind, _ = kinds_of(found.cases)
    known = found.right != UNKNOWN
    there = [number for number in range(len(kinds)) if known[kind == number].any()]
    share = {number: (found.right[(kind == number) & known] == WRONG).mean() for number in there}
    good, bad = min(there, key=lambda one: share[one]), max(there, key=lambda one: share[one])
    assert share[good] < share[bad]
    workspace = service._workspace
    street = Task("segmentation", protected=("road", "vehicle"))

    def waiting(number: int, text: str) -> str:
        run = workspace.runs.create(picture(number), street, "demo", "Waiting", {})
        held = CounterfactualCaptions((caption((*kinds[number][:2], ""), text),))  # type: ignore[arg-type]
        for stage, value in (("caption", Caption("A street.")), ("counterfactuals", held)):
            workspace.runs.append_value(run, stage, StageValue(value, Trace("person"), "k"))
        return run

    calm, storm = waiting(good, "nothing happens"), waiting(bad, "it is lost here")
    bird = run_with(workspace, "bird", [caption(("weather", "foggy", "bird"), "of another task")])
    told = service.rank_captions(ROADS, [calm, storm, bird])
    assert [(one.run, one.label) for one in told.captions] == [(storm, ""), (calm, "")]
    first, last = told.captions
    assert 1 >= first.chance > last.chance >= 0 and first.alike > 0 and last.alike > 0
    assert told.learnt == int(known.sum())
    ours, random = told.orders
    assert ours.apfd is not None and random.apfd is not None and ours.apfd > random.apfd
    assert ours.faults[0.1] > random.faults[0.1]
    assert any(
        "run is of a classification: these test cases can only rank captions of a segmentation" in note
        for note in told.notes
    )
    assert told.notes[-1].startswith("A fault is an image that the model loses a class of")
    assert not service.rank_captions(ROADS, []).captions
    arguments = ["foretell", "--filter", "kind=segmentation", "--workspace", str(folder), "--run", calm, "--run", storm]
    assert main([*arguments, "--json"]) == 0
    facts = caption_ranking_facts(service.rank_captions(ROADS, [calm, storm]))
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(facts))
