"""What a person does to the values of the text stages, and to their history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.errors import UserError
from pipeline.types import Alternatives, Caption, CounterfactualCaptions, Keyword, Keywords, StageName
from storage.types import Run
from ui import edits
from ui.actions.data import Action, Data, place_of, stage_of, text_of
from ui.studio import Studio


def _caption(studio: Studio, run_id: str, data: Data) -> None:
    run = studio.workspace.run(run_id)
    studio.save_by_person(run, "caption", edits.write_caption(text_of(data, "value"), run.task))


def _keywords(change: Callable[[Keywords, Run, Data], Keywords]) -> Callable[[Studio, str, Data], None]:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        run = studio.workspace.run(run_id)
        studio.save_by_person(run, "keywords", change(_held(run, "keywords", Keywords(())), run, data))

    return act


def _alternatives(
    change: Callable[[Alternatives, Keyword, Run, Data], Alternatives],
) -> Callable[[Studio, str, Data], None]:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        run = studio.workspace.run(run_id)
        value = _held(run, "alternatives", Alternatives(()))
        studio.save_by_person(
            run, "alternatives", change(value, _keyword(run, value, text_of(data, "keyword")), run, data)
        )

    return act


def _counterfactuals(
    change: Callable[[CounterfactualCaptions, Run, Data], CounterfactualCaptions],
) -> Callable[[Studio, str, Data], None]:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        run = studio.workspace.run(run_id)
        value = _held(run, "counterfactuals", CounterfactualCaptions(()))
        studio.save_by_person(run, "counterfactuals", change(value, run, data))

    return act


def _keyword(run: Run, value: Alternatives, text: str) -> Keyword:
    """A keyword of the second or the third stage, by its text."""
    for item in value.items:
        if item.keyword == text:
            return Keyword(item.keyword, item.edit_type)
    for keyword in _held(run, "keywords", Keywords(())).items:
        if keyword.text == text:
            return keyword
    raise UserError(f"The keyword “{text}” is no longer there: the list was changed meanwhile.")


def _held(run: Run, stage: StageName, empty: Any) -> Any:
    return run.values[stage].value.value if stage in run.values else empty


def _caption_of(run: Run) -> str:
    return str(_held(run, "caption", Caption("")).text)


def _keep(studio: Studio, run_id: str, data: Data) -> None:
    studio.keep(studio.workspace.run(run_id), stage_of(data))


def _bring_back(studio: Studio, run_id: str, data: Data) -> None:
    version = int(text_of(data, "version"))
    stage = stage_of(data)
    if all(held.id != version for held in studio.workspace.history(run_id, stage)):
        raise UserError("This version belongs to another run: pick one from the history.")
    studio.workspace.bring_back(version)
    studio.solved(run_id, stage)


ACTIONS: dict[str, Action] = {
    "caption": _caption,
    "keyword-use": _keywords(
        lambda value, _run, data: edits.use_keyword(value, text_of(data, "text"), bool(data.get("used")))
    ),
    "keyword-add": _keywords(
        lambda value, run, data: edits.add_keyword(
            value, text_of(data, "value"), text_of(data, "type"), _caption_of(run), run.task
        )
    ),
    "keyword-reword": _keywords(
        lambda value, run, data: edits.reword_keyword(
            value, text_of(data, "text"), text_of(data, "value"), text_of(data, "type"), _caption_of(run), run.task
        )
    ),
    "keyword-drop": _keywords(lambda value, _run, data: edits.drop_keyword(value, text_of(data, "text"))),
    "alternative-use": _alternatives(
        lambda value, keyword, _run, data: edits.use_alternative(
            value, keyword, text_of(data, "text"), bool(data.get("used"))
        )
    ),
    "alternative-add": _alternatives(
        lambda value, keyword, run, data: edits.add_alternative(value, keyword, text_of(data, "value"), run.task)
    ),
    "alternative-reword": _alternatives(
        lambda value, keyword, run, data: edits.reword_alternative(
            value, keyword, text_of(data, "text"), text_of(data, "value"), run.task
        )
    ),
    "alternative-drop": _alternatives(
        lambda value, keyword, _run, data: edits.drop_alternative(value, keyword, text_of(data, "text"))
    ),
    "counterfactual-use": _counterfactuals(
        lambda value, _run, data: edits.use_counterfactual(
            value, place_of(data), text_of(data, "text"), bool(data.get("used"))
        )
    ),
    "counterfactual-write": _counterfactuals(
        lambda value, run, data: edits.write_counterfactual(
            value, place_of(data), text_of(data, "text"), text_of(data, "value"), _caption_of(run), run.task
        )
    ),
    "counterfactual-add": _counterfactuals(
        lambda value, run, data: edits.add_counterfactual(value, text_of(data, "value"), _caption_of(run), run.task)
    ),
    "counterfactual-drop": _counterfactuals(
        lambda value, _run, data: edits.drop_counterfactual(value, place_of(data), text_of(data, "text"))
    ),
    "keep": _keep,
    "bring-back": _bring_back,
}
