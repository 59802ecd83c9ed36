"""What the buttons and fields of the page do: a name and its data in, the run to show and what went wrong out.

Knows no Gradio and no HTML. The data come from a browser: nothing in them is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.types import Alternatives, Caption, CounterfactualCaptions, Keyword, Keywords, StageName, Task, TaskKind
from storage.types import Run
from ui import edits, work
from ui.studio import Studio, task_problem

Data = Mapping[str, Any]
LONGEST_TEXT = 4000
"""Characters in anything that is typed; the longest caption is far shorter."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action."""

    run_id: str
    """The run to show; "" for the start page."""
    problem: str = ""
    where: str = ""
    """The card that the problem belongs to: a stage, "source" or "start"."""


def perform(studio: Studio, run_id: str, action: Data) -> Outcome:
    """Do one thing. A person's mistake comes back as the problem of its card, and everything stays as it was."""
    name = _text(action, "name")
    if name not in ACTIONS:
        raise ValueError(f"the page knows no action {name!r}")
    try:
        elsewhere = ACTIONS[name](studio, run_id, action)
        return Outcome(run_id if elsewhere is None else elsewhere)
    except UserError as error:
        where = _card(name, action)
        if where in get_args(StageName) and run_id:
            studio.failed(run_id, where, error)  # type: ignore[arg-type]
        return Outcome(run_id, str(error), where)


def _card(name: str, action: Data) -> str:
    if name in ("run", "keep"):
        return _text(action, "stage")
    if name == "setting":
        stage = _text(action, "setting").split(".")[0]
        return "generation" if stage == "conditioning" else stage
    prefixes = {"caption": "caption", "keyword": "keywords", "alternative": "alternatives", "generate": "generation"}
    prefixes |= {"counterfactual": "counterfactuals", "sample": "start", "open": "start"}
    return prefixes.get(name.split("-")[0], "source")


# Runs


def _open(studio: Studio, _run_id: str, data: Data) -> str:
    """A run, or the start page for "". The first page that is opened has the models loaded."""
    wanted = _text(data, "run")
    if wanted:
        studio.workspace.run(wanted)
    work.warm_up(studio)
    return wanted


def _sample(studio: Studio, _run_id: str, data: Data) -> str:
    return studio.run_from_sample(_text(data, "sample"))


def _rename(studio: Studio, run_id: str, data: Data) -> None:
    studio.workspace.rename(run_id, _text(data, "value"))


def _task(studio: Studio, run_id: str, data: Data) -> None:
    """What is still missing is saved too: the page says so, and the stages refuse to run."""
    kind: TaskKind = "segmentation" if _text(data, "kind") == "segmentation" else "classification"
    held = studio.workspace.run(run_id).task
    if kind == "classification":
        task = Task(kind, label=" ".join(_text(data, "label").split()))
    else:
        names = [" ".join(name.split()) for name in _text(data, "protected").split(",")]
        if held.kind != kind and not any(names):
            names = list(studio.profile.tasks.protected)
        task = Task(kind, protected=tuple(dict.fromkeys(name for name in names if name)))
    studio.workspace.set_task(run_id, task)


def _setting(studio: Studio, run_id: str, data: Data) -> None:
    run = studio.workspace.run(run_id)
    stage, _, field = _text(data, "setting").partition(".")
    plain = studio.settings(run).model_dump(mode="json")
    if field not in plain.get(stage, {}):
        raise UserError(f"There is no setting {stage}.{field}.")
    plain[stage][field] = data.get("value")
    try:
        settings = Settings.model_validate(plain)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        name = field.replace("_", " ")
        raise UserError(f"The setting “{name}” was not changed: {reason[0].lower()}{reason[1:]}.") from error
    studio.workspace.set_settings(run_id, settings.model_dump(mode="json"))
    studio.solved(run_id, "generation" if stage == "conditioning" else stage)  # type: ignore[arg-type]


def _default_settings(studio: Studio, run_id: str, data: Data) -> None:
    """Those of the profile again, for one stage."""
    plain = studio.settings(studio.workspace.run(run_id)).model_dump(mode="json")
    defaults = studio.profile.settings.model_dump(mode="json")
    for stage in _text(data, "stages").split(","):
        plain[stage] = defaults[stage]
    studio.workspace.set_settings(run_id, plain)


# Values of the text stages


def _caption(studio: Studio, run_id: str, data: Data) -> None:
    run = studio.workspace.run(run_id)
    studio.save_by_person(run, "caption", edits.write_caption(_text(data, "value"), run.task))


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
            run, "alternatives", change(value, _keyword(run, value, _text(data, "keyword")), run, data)
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


# Work and history


def _run_stage(studio: Studio, run_id: str, data: Data) -> None:
    stage = _stage(data)
    if stage == "generation":
        raise UserError("Images are generated at the gate only.")
    task = studio.workspace.run(run_id).task
    if missing := task_problem(task):
        raise UserError(missing)
    studio.solved(run_id, stage)
    work.start_stage(studio, run_id, stage)


def _run_all(studio: Studio, run_id: str, _data: Data) -> None:
    work.start_up_to_gate(studio, run_id)


def _generate(studio: Studio, run_id: str, _data: Data) -> None:
    work.start_generation(studio, run_id)


def _cancel(studio: Studio, run_id: str, data: Data) -> None:
    studio.jobs.cancel(_text(data, "of") or run_id)


def _keep(studio: Studio, run_id: str, data: Data) -> None:
    studio.keep(studio.workspace.run(run_id), _stage(data))


def _bring_back(studio: Studio, run_id: str, data: Data) -> None:
    version = int(_text(data, "version"))
    stage = _stage(data)
    if all(held.id != version for held in studio.workspace.history(run_id, stage)):
        raise UserError("This version belongs to another run: pick one from the history.")
    studio.workspace.bring_back(version)
    studio.solved(run_id, stage)


def _stage(data: Data) -> StageName:
    for known in get_args(StageName):
        if data.get("stage") == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"there is no stage {data.get('stage')!r}")


def _text(data: Data, name: str) -> str:
    text = str(data.get(name) or "")
    if len(text) > LONGEST_TEXT:
        raise UserError(f"The text is too long: at most {LONGEST_TEXT} characters are taken.")
    return text


def _place(data: Data) -> int:
    return int(data.get("place") or 0)


ACTIONS: dict[str, Callable[[Studio, str, Data], str | None]] = {
    "poll": lambda _studio, run_id, _data: run_id,
    "new": lambda _studio, _run_id, _data: "",
    "open": _open,
    "sample": _sample,
    "rename": _rename,
    "task": _task,
    "setting": _setting,
    "default-settings": _default_settings,
    "caption": _caption,
    "keyword-use": _keywords(
        lambda value, _run, data: edits.use_keyword(value, _text(data, "text"), bool(data.get("used")))
    ),
    "keyword-add": _keywords(
        lambda value, run, data: edits.add_keyword(
            value, _text(data, "value"), _text(data, "type"), _caption_of(run), run.task
        )
    ),
    "keyword-reword": _keywords(
        lambda value, run, data: edits.reword_keyword(
            value, _text(data, "text"), _text(data, "value"), _text(data, "type"), _caption_of(run), run.task
        )
    ),
    "keyword-drop": _keywords(lambda value, _run, data: edits.drop_keyword(value, _text(data, "text"))),
    "alternative-use": _alternatives(
        lambda value, keyword, _run, data: edits.use_alternative(
            value, keyword, _text(data, "text"), bool(data.get("used"))
        )
    ),
    "alternative-add": _alternatives(
        lambda value, keyword, run, data: edits.add_alternative(value, keyword, _text(data, "value"), run.task)
    ),
    "alternative-reword": _alternatives(
        lambda value, keyword, run, data: edits.reword_alternative(
            value, keyword, _text(data, "text"), _text(data, "value"), run.task
        )
    ),
    "alternative-drop": _alternatives(
        lambda value, keyword, _run, data: edits.drop_alternative(value, keyword, _text(data, "text"))
    ),
    "counterfactual-use": _counterfactuals(
        lambda value, _run, data: edits.use_counterfactual(
            value, _place(data), _text(data, "text"), bool(data.get("used"))
        )
    ),
    "counterfactual-write": _counterfactuals(
        lambda value, run, data: edits.write_counterfactual(
            value, _place(data), _text(data, "text"), _text(data, "value"), _caption_of(run), run.task
        )
    ),
    "counterfactual-add": _counterfactuals(
        lambda value, run, data: edits.add_counterfactual(value, _text(data, "value"), _caption_of(run), run.task)
    ),
    "counterfactual-drop": _counterfactuals(
        lambda value, _run, data: edits.drop_counterfactual(value, _place(data), _text(data, "text"))
    ),
    "run": _run_stage,
    "run-all": _run_all,
    "generate": _generate,
    "cancel": _cancel,
    "keep": _keep,
    "bring-back": _bring_back,
}
"""Every action of the page: takes the studio, the run that is shown and the data; gives the run to show, if another."""
