"""The table of several runs on the start page: what each shows and how far it is, and what is done with all of them."""

from __future__ import annotations

from core.types import GENERATION, TaskKind, stage_doing, stage_title
from core.words import count_of
from services.runs.accepted import accepted_of
from services.runs.bulk_runs import TogetherState
from services.runs.life_cycle import task_problem
from services.runs.state import ProfileOptions, RunState
from ui.explore.bulk_settings import common, settings_of_all
from ui.explore.large import image_url
from ui.explore.parts import (
    UNKNOWN_PICTURE,
    about,
    acts,
    bar,
    button,
    head_table,
    heading,
    icon,
    left,
    pill,
    save_link,
    text_line,
    toggle,
    unknown_pictures,
)
from ui.markup import Child, Html, el


def together_part(together: TogetherState, profile: ProfileOptions) -> Html:
    """The table with its head; nothing where no run is selected."""
    if not together.runs:
        return Html("")
    runs = ",".join(together.ids)
    number = len(together.runs)
    head = heading(
        f"{number} pictures together" if number > 1 else "One picture",
        button("Close", look="s q", data_close_together=True, title="The runs stay in the list"),
    )
    rows = [_row(state) for state in together.runs]
    names = ("", "picture", "label", "how far", "", "")
    table = head_table(names, rows, class_="together-runs")
    return el(
        "section",
        head,
        el("div", id="together-refused", data_own=True, role="alert"),
        el("div", id="start-problem", data_own=True, role="alert"),
        _unknown(together),
        _for_all(together, profile, runs),
        el("div", table, class_="scroll"),
        class_="card together",
        id="together",
    )


def _unknown(together: TogetherState) -> Html | None:
    """Tell how many of the pictures the models of the profile were not made for."""
    number, total = sum(bool(state.unknown_picture) for state in together.runs), len(together.runs)
    of = f"{'these ' if total > 1 else ''}{count_of(total, 'picture')}"
    return unknown_pictures(number, of) if number else None


def _for_all(together: TogetherState, profile: ProfileOptions, runs: str) -> Html:
    """Task and settings of all, and what can be begun."""
    ready, active = together.ready(), sum(state.active for state in together.runs)
    lacking = sum(bool(task_problem(state.run.task)) for state in together.runs)
    writing = any(state.active and GENERATION not in (state.job.stages if state.job else ()) for state in together.runs)
    drawn = all(_drawn(state) for state in together.runs)
    accepted = sum(len(accepted_of(state.run)) for state in together.runs)
    start = len([state for state in ready if not task_problem(state.run.task)])
    run = button(
        f"Run all {start}" if start > 1 else "Run all",
        "together-run",
        "p" if start else "",
        id="together-run",
        data_runs=runs,
        disabled=not start,
        title="Caption, keywords, alternatives and counterfactual captions of each; no image is drawn yet",
    )
    images = count_of(together.images, "more image" if drawn else "image")
    draw = button(
        f"Generate {images}" if together.images else "Generate",
        "together-generate",
        "p" if together.images and not start and not drawn and not writing else "",
        id="together-generate",
        data_runs=runs,
        data_shown=together.shown,
        disabled=not together.images or writing,
        title="Once the stages of all are done" if writing else None,
    )
    save = save_link(
        f"Save {accepted} accepted",
        "download/accepted.zip?" + "&".join(f"run={run_id}" for run_id in together.ids),
        look="",
        id="together-save",
    )
    said: list[Child] = []
    if together.images:
        said.append(f"{about(together.seconds)} of drawing" if together.seconds else "how long is not known yet")
    if lacking:
        said.append(f"{lacking} {'lack' if lacking > 1 else 'lacks'} a label or protected classes")
    words = el("span", " · ".join(str(one) for one in said), class_="mut small")
    stop = button("Stop all", "cancel-all", "", id="together-stop") if active else None
    return el(
        "div",
        _task(together, profile, runs),
        settings_of_all(together.runs, profile, runs),
        acts(run, draw, stop, save if accepted else None, words),
        class_="for-all",
    )


def _task(together: TogetherState, profile: ProfileOptions, runs: str) -> Html:
    kind: TaskKind = together.runs[0].run.task.kind
    kinds: tuple[TaskKind, ...] = ("classification", "segmentation")
    chips = [
        toggle(
            name,
            "together-task",
            all(state.run.task.kind == name for state in together.runs),
            data_runs=runs,
            data_kind=name,
            disabled=all(state.run.task.kind == name for state in together.runs),
            data_key=f"together-{name}",
        )
        for name in kinds
    ]
    field = "label" if kind == "classification" else "protected"
    held = common(
        together.runs,
        lambda state: state.run.task.label if kind == "classification" else ", ".join(state.run.task.protected),
    )
    given = text_line(
        name=field,
        value=held or "",
        id=f"together-{field}",
        data_do="together-task",
        data_runs=runs,
        data_kind=kind,
        list="together-labels" if kind == "classification" else None,
        placeholder="differs"
        if held is None
        else ("the label of all" if kind == "classification" else "classes that must stay"),
        maxlength=400,
        data_key=f"together-{field}",
    )
    labels = el("datalist", [el("option", value=label) for label in profile.labels], id="together-labels")
    words = "label of all" if kind == "classification" else "protected in all"
    return el(
        "div",
        el("span", "task", class_="mut"),
        el("span", chips, class_="choice"),
        el("label", el("span", words, class_="mut"), given, class_="field"),
        labels,
        class_="task",
        role="group",
        aria_label="Task of all",
    )


def _row(state: RunState) -> Html:
    run = state.run
    label: Child = "segmentation"
    if run.task.kind == "classification":
        label = text_line(
            name="label",
            value=run.task.label,
            id=f"label-{run.id}",
            data_do="task",
            data_run=run.id,
            data_kind="classification",
            list="together-labels",
            placeholder="what it shows",
            maxlength=100,
            aria_label=f"Label of {run.name}",
        )
    link = el("a", run.name, href=f"?run={run.id}", data_go="open", data_run=run.id)
    away = button(
        icon("cross"),
        look="s q icon-only",
        data_unpick=run.id,
        aria_label=f"Take {run.name} out of this table",
        title="Take it out of this table",
    )
    return el(
        "tr",
        el("td", el("img", src=image_url(run.source_sha), alt="", loading="lazy")),
        el("td", link, _unlike(state), class_="name"),
        el("td", label),
        el("td", _far(state), class_="far"),
        el("td", _results(state), class_="num"),
        el("td", away),
        data_key=f"together-{run.id}",
    )


def _unlike(state: RunState) -> Html | None:
    return pill(UNKNOWN_PICTURE, "warn", title=state.unknown_picture) if state.unknown_picture else None


def _far(state: RunState) -> list[Child]:
    """How far a run is, or why it cannot go on."""
    job = state.job
    if job is not None and job.active:
        if job.state == "waiting" or job.stage is None:
            return [pill("in the queue")]
        progress = job.progress
        share = progress.done / progress.total if progress is not None and progress.total > 1 else None
        rest = left(progress.seconds_left) if progress is not None else ""
        return [pill(f"{stage_doing(job.stage)}{rest}", "acc"), bar(share)]
    if missing := task_problem(state.run.task):
        return [
            pill(
                "needs a label" if state.run.task.kind == "classification" else "needs protected classes",
                "warn",
                title=missing,
            )
        ]
    if state.problems:
        stage, problem = next(iter(state.problems.items()))
        return [pill(f"{stage_title(stage).lower()}: failed", "bad"), el("small", problem.text)]
    if _drawn(state):
        return [pill([icon("check"), "drawn"], "ok")]
    if state.gate.plan is not None:
        number = len(state.gate.plan.images)
        return [pill(f"{count_of(number, 'image')} to draw", "acc")]
    done = [name for name in state.recipe.names if name in state.run.values and name not in state.stale]
    return [pill(f"{len(done)} of {len(state.recipe.names)} stages" if done else "not begun")]


def _results(state: RunState) -> Child:
    number, accepted = len(state.run.test_cases), len(accepted_of(state.run))
    if not number:
        return None
    words = count_of(number, "result")
    words = f"{words}, {accepted} accepted" if accepted else words
    return el("a", words, href=f"?run={state.run.id}", data_go="open", data_run=state.run.id)


def _drawn(state: RunState) -> bool:
    """Whether it has images that fit what it shows: a further yes draws others of them."""
    return len(state.outdated) < len(state.run.test_cases)
