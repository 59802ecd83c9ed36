"""What a person does to the values of the text stages, and to their history.

A page says which version it showed (`version`, or `based` where its person began to type on an earlier one) and which
page it is (`tab`). A change is always made to the latest version: whoever comes second is told, and both are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.errors import UserError
from pipeline.types import (
    Alternatives,
    Caption,
    CounterfactualCaptions,
    Keyword,
    Keywords,
    StageName,
)
from storage.types import Run, StoredValue
from ui import edits
from ui.actions.data import Action, Data, number_of, place_of, stage_of, tab_of, text_of
from ui.run_state import Problem, Refused
from ui.studio import Studio, clock
from ui.versions import last_edited, undo_target


def _change(studio: Studio, run_id: str, stage: StageName, data: Data, change: Callable[[Run], Any]) -> None:
    """Save what `change` makes of the latest version; the lock keeps a second page from doing so in between."""
    with studio.editing:
        run = studio.workspace.run(run_id)
        other = studio.writers.elsewhere(studio.workspace.history(run_id, stage), _based(data), tab_of(data))
        version = studio.save_by_person(run, stage, change(run))
        if version is not None:
            studio.writers.note(version, tab_of(data))
        if version is not None and other is not None:
            studio.tell(run_id, stage, _both_kept(stage, other))


def _both_kept(stage: StageName, other: StoredValue) -> str:
    when = f"changed elsewhere meanwhile ({clock(other.created)})"
    if stage == "caption":
        return f"The caption was {when}. Yours was saved on top; the other one is in the history."
    return f"This list was {when}. Your change was made to the newer list; earlier ones are in the history."


def _caption(studio: Studio, run_id: str, data: Data) -> None:
    _change(studio, run_id, "caption", data, lambda run: edits.write_caption(text_of(data, "value"), run.task))


def _keywords(change: Callable[[Keywords, Run, Data], Keywords]) -> Action:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        def changed(run: Run) -> Keywords:
            return change(_held(run, "keywords", Keywords(())), run, data)

        try:
            _change(studio, run_id, "keywords", data, changed)
        except edits.ProtectedKeyword as error:
            name = text_of(data, "name")
            again = {key: text_of(data, key) for key in ("text", "value", "type") if key in data}
            do = {"do": name, "force": "true", **again}
            raise Refused(Problem(str(error), again=do, again_words="Use it all the same")) from error

    return act


def _alternatives(change: Callable[[Alternatives, Keyword, Run, Data], Alternatives]) -> Action:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        def changed(run: Run) -> Alternatives:
            value = _held(run, "alternatives", Alternatives(()))
            return change(value, keyword_of(run, text_of(data, "keyword")), run, data)

        _change(studio, run_id, "alternatives", data, changed)

    return act


def _counterfactuals(change: Callable[[CounterfactualCaptions, Run, Data], CounterfactualCaptions]) -> Action:
    def act(studio: Studio, run_id: str, data: Data) -> None:
        def changed(run: Run) -> CounterfactualCaptions:
            return change(_held(run, "counterfactuals", CounterfactualCaptions(())), run, data)

        _change(studio, run_id, "counterfactuals", data, changed)

    return act


def keyword_of(run: Run, text: str) -> Keyword:
    """A keyword of the third or the second stage, by its text. Raises UserError when it is in neither."""
    for item in _held(run, "alternatives", Alternatives(())).items:
        if item.keyword == text:
            return Keyword(item.keyword, item.edit_type, forced=item.forced)
    for keyword in _held(run, "keywords", Keywords(())).items:
        if keyword.text == text:
            return Keyword(keyword.text, keyword.edit_type, forced=keyword.forced)
    raise UserError(f"The keyword “{text}” is no longer there: the list was changed meanwhile.")


def _held(run: Run, stage: StageName, empty: Any) -> Any:
    return run.values[stage].value.value if stage in run.values else empty


def _caption_of(run: Run) -> str:
    return str(_held(run, "caption", Caption("")).text)


def _based(data: Data) -> int:
    return number_of(text_of(data, "based") or text_of(data, "version"))


def _keep(studio: Studio, run_id: str, data: Data) -> None:
    with studio.editing:
        studio.keep(studio.workspace.run(run_id), stage_of(data))


def _bring_back(studio: Studio, run_id: str, data: Data) -> None:
    version = text_of(data, "of") or text_of(data, "version")
    stage = stage_of(data)
    found = [held for held in studio.workspace.history(run_id, stage) if str(held.id) == version]
    if not found:
        raise UserError("This version belongs to another run: pick one from the history.")
    _repeat(studio, run_id, found[0], data)


def _undo(studio: Studio, run_id: str, data: Data) -> None:
    """The version before a person's edit again, of one stage or of the one that was edited last."""
    run = studio.workspace.run(run_id)
    histories = {stage: studio.workspace.history(run_id, stage) for stage in run.values}
    stage = stage_of(data) if data.get("stage") else last_edited(histories)
    target = undo_target(histories.get(stage, ())) if stage is not None else None
    if target is None:
        raise UserError("There is no edit of yours to undo. Earlier values are in the history of each stage.")
    _repeat(studio, run_id, target, data)


def _repeat(studio: Studio, run_id: str, version: StoredValue, data: Data) -> None:
    with studio.editing:
        studio.writers.note(studio.workspace.bring_back(version.id), tab_of(data))
    studio.solved(run_id, version.stage)


ACTIONS: dict[str, Action] = {
    "caption": _caption,
    "keyword-use": _keywords(
        lambda value, _run, data: edits.use_keyword(value, text_of(data, "text"), bool(data.get("used")))
    ),
    "keyword-add": _keywords(
        lambda value, run, data: edits.add_keyword(
            value, text_of(data, "value"), text_of(data, "type"), _caption_of(run), run.task, bool(data.get("force"))
        )
    ),
    "keyword-reword": _keywords(
        lambda value, run, data: edits.reword_keyword(
            value,
            text_of(data, "text"),
            text_of(data, "value"),
            text_of(data, "type"),
            _caption_of(run),
            run.task,
            bool(data.get("force")),
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
    "undo": _undo,
}
