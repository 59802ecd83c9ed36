"""The control set of an evaluation: missing reconstructions are drawn once, like the test cases, with progress and
cancel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UserError
from core.figures import Figure
from core.image_filter import ImageFilter
from core.lineage import Lineage
from core.settings import UnderTestSettings
from pipeline.methods.controlnet import ControlNetSettings
from pipeline.recipes import RECONSTRUCTION
from services.evaluation.commands import OnModel, OnSubject
from services.evaluation.control import READING
from services.evaluation.service import about_control
from services.evaluation.types import EvaluationQuestion, Subject
from services.runs.predictions import Predictor
from services.studio import Studio
from services.work_queue import WorkView
from tests.support.evaluation_cases import read_all
from tests.support.explorer import encoded
from tests.support.scripted import SUNNY_BIRD, HeldGenerator, NoiseGenerator, over, perform, studio_in
from tests.support.serving import until
from tests.support.set_cases import picture, run_of

ALL = Subject(filter=ImageFilter())
SECONDS = 60


def runs_of(studio: Studio, number: int, first: int = 0) -> list[str]:
    """Create `number` runs with test cases drawn in three steps. Then change the settings of the runs."""
    runs = []
    for place in range(first, first + number):
        run = studio.runs.from_upload(encoded(picture(place)), f"{place}.png")
        studio.commands.send("task", {"run": run, "kind": "classification", "label": "bird"})
        own = {"generation.steps": 3, "generation.seed_mode": "fixed", "generation.seed": 10 + place}
        for setting, value in {**own, "counterfactuals.captions": 1}.items():
            studio.commands.send("setting", {"run": run, "setting": setting, "value": value})
        perform(studio, run, "run-all")
        over(studio.jobs)
        perform(studio, run, "generate")
        over(studio.jobs)
        studio.commands.send("setting", {"run": run, "setting": "generation.steps", "value": 4})
        runs.append(run)
    return runs


def drawn_again(studio: Studio, run: str) -> list[Lineage]:
    """Return the lineages of a run's reconstructions."""
    cases = studio.workspace.runs.get(run).test_cases
    return [case.lineage for case in cases if case.lineage.recipe == RECONSTRUCTION.name]


def excess(studio: Studio, asked: EvaluationQuestion) -> Figure:
    found = studio.evaluations.evaluate(asked).effectiveness
    assert found is not None
    return found.excess


def ended(studio: Studio, work: WorkView) -> WorkView:
    assert studio.evaluations.controls is not None
    return studio.evaluations.controls.work.wait(work.id, SECONDS)


def test_each_source_is_drawn_once_as_its_test_cases_were(studio: Studio) -> None:
    runs = runs_of(studio, 3)
    evaluations = studio.evaluations
    before = evaluations.view(ALL)
    assert (before.sources, before.controls, before.can_make_control) == (3, 0, True)

    done = ended(studio, evaluations.make_control(ALL))
    assert (done.state, done.done, done.total, done.result.drawn, done.result.note) == ("done", 3, 3, 3, "")
    after = evaluations.view(ALL)
    assert (after.sources, after.cases, after.controls) == (3, before.cases, 3) and not after.can_make_control
    for run in runs:
        (control,) = drawn_again(studio, run)
        first = studio.workspace.runs.get(run).test_cases[0].lineage
        assert control.counterfactual.text == SUNNY_BIRD and not control.counterfactual.edits
        assert isinstance(control.settings, ControlNetSettings) and control.settings.steps == 3, "not those of now"
        alike = (control.seed, control.model, control.method, control.task, control.settings)
        assert alike == (first.seed, first.model, first.method, first.task, first.settings)
    with pytest.raises(UserError, match="Each source has a reconstruction already"):
        evaluations.make_control(ALL)

    # Only the new run lacks a reconstruction.
    (fourth,) = runs_of(studio, 1, first=3)
    done = ended(studio, evaluations.make_control(ALL))
    assert done.result.drawn == 1 and [len(drawn_again(studio, run)) for run in (*runs, fourth)] == [1, 1, 1, 1]


@pytest.mark.slow  # torch is loaded
def test_the_model_reads_what_was_drawn_for_it_in_the_same_work(studio: Studio) -> None:
    runs_of(studio, 1)
    asked = studio.evaluations.asked(OnModel())
    (model,) = studio.evaluations.models(ALL)
    read_all(studio.evaluations, asked)
    assert excess(studio, asked).why == "there are no reconstructions of these sources"
    # Reconstructions without a caller wait until they are read, and no message says that none exist.
    ended(studio, studio.evaluations.make_control(ALL))
    found = studio.evaluations.evaluate(asked)
    assert excess(studio, asked).why == "no reconstruction is read yet" and found.subject.controls == 1
    assert "1 of 3 images are not read yet: the figures leave them out." in found.notes
    assert not any("no reconstructions" in note for note in found.notes)

    runs_of(studio, 1, first=1)
    sent = studio.commands.send("make-control-set", {"filter": "", "key": model.key})
    assert studio.evaluations.controls is not None
    done = studio.evaluations.controls.work.wait(sent["work"], SECONDS)
    assert (done.state, done.doing, done.result.drawn, done.result.note) == ("done", READING, 1, "")
    found = studio.evaluations.evaluate(asked)
    assert found.subject.controls == 2 and found.pending.left == 0
    assert excess(studio, asked).value is not None and not any("read" in note for note in found.notes)


def test_a_model_that_cannot_read_keeps_what_was_drawn(studio: Studio) -> None:
    runs_of(studio, 1)
    (model,) = studio.evaluations.models(ALL)

    def load(wanted: UnderTestSettings) -> Predictor:
        raise UserError("The weights are gone.")

    studio.evaluations.predicting.load = load
    done = ended(studio, studio.evaluations.make_control(ALL, model.key))
    assert done.state == "done" and done.result.drawn == 1
    assert done.result.note == "The reconstructions are drawn, but could not be read: The weights are gone."
    with pytest.raises(UserError, match="There is no such model any more"):
        studio.evaluations.make_control(ALL, "none")


def test_it_is_cancelled_at_once_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with studio_in(tmp_path) as studio:
        runs = runs_of(studio, 3)
        held = HeldGenerator()
        studio.driver.models.generator = held  # type: ignore[misc]
        sent = studio.commands.send("make-control-set", {"filter": "kind=classification"})
        subject = OnSubject(filter="kind=classification").subject
        assert studio.evaluations.make_control(subject).id == sent["work"], "one at a time"
        held.let_go()
        shown = {"work": sent["work"]}
        until(lambda: studio.commands.send("show-control-set", shown)["done"] == 1)
        until(lambda: bool(studio.jobs.active()))
        studio.commands.send("cancel-control-set", shown)
        assert studio.evaluations.controls is not None
        assert studio.evaluations.controls.work.of(about_control(subject))[0].stopping
        work = studio.evaluations.controls.work.wait(sent["work"], SECONDS)
        assert work.state == "cancelled" and not studio.jobs.active(), "nothing is drawn after it has stopped"
        assert sum(len(drawn_again(studio, run)) for run in runs) == 1
        held.let_all()
        done = ended(studio, studio.evaluations.make_control(subject))
        assert done.result.drawn == 2 and [len(drawn_again(studio, run)) for run in runs] == [1, 1, 1]


def test_what_cannot_be_drawn_is_said(studio: Studio) -> None:
    with pytest.raises(UserError, match="It has no test case"):
        studio.evaluations.make_control(ALL)
    run_of(studio.workspace, 77, [78])  # a run by an unknown method
    assert not studio.evaluations.view(ALL).can_make_control
    with pytest.raises(UserError, match="their method draws no reconstructions"):
        studio.evaluations.make_control(ALL)
    (run,) = runs_of(studio, 1)
    done = ended(studio, studio.evaluations.make_control(ALL))
    assert done.result.drawn == 1 and studio.evaluations.view(ALL).controls == 1

    control = studio.workspace.runs.get(run).test_cases[-1]
    assert control.lineage.recipe == RECONSTRUCTION.name
    studio.workspace.test_cases.review(control.id, "rejected")
    assert not studio.evaluations.view(ALL).can_make_control, "the same one would come again"
    with pytest.raises(UserError, match="a person rejected"):
        studio.evaluations.make_control(ALL)


def test_another_model_draws_no_control(studio: Studio) -> None:
    runs_of(studio, 1)
    other = NoiseGenerator()
    other.name = "another generator"
    studio.driver.models.generator = other  # type: ignore[misc]
    with pytest.raises(UserError, match="drawn by noise generator, and the profile “demo” draws by another generator"):
        studio.evaluations.make_control(ALL)
    assert not other.made


def test_a_source_that_cannot_be_drawn_keeps_no_other_one(studio: Studio) -> None:
    runs = runs_of(studio, 3)
    refused = studio.workspace.runs.get(runs[1]).test_cases[0].lineage.seed

    class Refusing(NoiseGenerator):
        def generate(self, prompt, control, settings, seed, on_step):  # type: ignore[no-untyped-def]
            if seed == refused:
                raise UserError("The safety checker refused this image.")
            return super().generate(prompt, control, settings, seed, on_step)

    studio.driver.models.generator = Refusing()  # type: ignore[misc]
    done = ended(studio, studio.evaluations.make_control(ALL))
    assert (done.state, done.result.drawn) == ("done", 2)
    assert done.result.note == "1 reconstruction could not be drawn: The safety checker refused this image."
    assert [len(drawn_again(studio, run)) for run in runs] == [1, 0, 1]
    with pytest.raises(UserError, match="safety checker"):
        _raise(ended(studio, studio.evaluations.make_control(ALL)))


def _raise(work: WorkView) -> None:
    assert work.state == "failed"
    raise UserError(work.error)
