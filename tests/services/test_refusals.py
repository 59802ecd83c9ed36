"""Messages for refused values: in our own words, at their field, and removed once they no longer apply."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from core.settings import GenerationSettings, Settings
from core.validation_messages import reason
from services.queries import ShowJob
from services.studio import Studio
from services.test_sets.drafts import SplitTestSet
from tests.support.explorer import draw, text_run
from tests.support.scripted import perform


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (GenerationSettings, {"steps": 1000}, "it has to be a whole number from 1 to 150"),
        (GenerationSettings, {"steps": "many"}, "it has to be a whole number from 1 to 150"),
        (GenerationSettings, {"steps": ""}, "it has to be a whole number from 1 to 150"),
        (GenerationSettings, {"steps": 1.5}, "it has to be a whole number from 1 to 150"),
        (GenerationSettings, {"guidance": 0}, "it has to be a number from 1 to 20"),
        (GenerationSettings, {"guidance": float("nan")}, "it has to be a number from 1 to 20"),
        (GenerationSettings, {"short_side": 100}, "it has to be a whole number from 64 to 1024 that 8 divides"),
        (GenerationSettings, {"seed": -1}, "it has to be a whole number from 0 to 2147483647"),
        (GenerationSettings, {"seed_mode": "last"}, "choose next, fixed or random"),
        (GenerationSettings, {"negative_prompt": "x" * 501}, "it has to be a text of at most 500 characters"),
        (GenerationSettings, {"negative_prompt": 5}, "it has to be a text"),
        (GenerationSettings, {"colour": 5}, "there is no such field here"),
        (Settings, {"keywords": {"top_p": 0}}, "it has to be a number above 0, of at most 1"),
        (Settings, {"conditioning": {"median": 4}}, "the median filter takes 0 (off) or an odd number of pixels"),
        (Settings, {"conditioning": {"stretch": "perhaps"}}, "it has to be yes or no"),
        (Settings, {"conditioning": 5}, "it has to be an object"),
        (SplitTestSet, {"test_set": "x", "train": "many"}, "it has to be a number from 0 to 1"),
        (ShowJob, {}, "it is missing"),
    ],
)
def test_every_refusal_says_what_the_field_takes(model: type[BaseModel], given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(given)
    assert reason(refused.value, model) == said


def test_a_refusal_at_a_card_is_gone_when_its_cause_is(studio: Studio) -> None:
    run = text_run(studio)
    perform(studio, run, "task", kind="classification", label="")
    assert perform(studio, run, "run", stage="keywords").problem
    assert "needs a label" in studio.states.of(run).problems["keywords"].text
    perform(studio, run, "task", kind="classification", label="bird")
    assert not studio.states.of(run).problems
    with studio.runs.changing:
        perform(studio, run, "generate", shown="something else")
    assert studio.states.of(run).problems
    draw(studio, run)
    assert not studio.states.of(run).problems


def test_what_a_field_says_itself_is_not_said_at_its_card(studio: Studio) -> None:
    from ui.explore.page import Action, Explorer

    run = text_run(studio)
    fields = {"setting": "generation.steps", "value": "1000"}
    done = Explorer(studio).perform(run, Action(name="setting", fields=fields, own=True))
    assert (done.where, done.field) == ("field", "value") and "from 1 to 150" in done.problem
    assert not studio.states.of(run).problems
    # If the user may insist, the card shows the button for it.
    fields = {"new": "bird", "edit_type": "subject"}
    done = Explorer(studio).perform(run, Action(name="keyword-add", fields=fields, own=True))
    assert done.where == "keywords" and studio.states.of(run).problems["keywords"].insist
