"""What stands around the stages: the header, the list of runs, the start page, the card of the source and its task."""

from __future__ import annotations

from datetime import datetime

from core.run_steps import RunSteps, UndoStep
from core.types import Task, stage_doing, stage_title
from core.words import count_of
from services.edit_conflicts import clock
from services.jobs import JobView
from services.runs.life_cycle import task_problem
from services.runs.samples import Sample
from services.runs.state import ProfileOptions, RunState
from services.runs.undoing import words_of
from ui import frame
from ui.explore.keys import keys_button
from ui.explore.large import image_url
from ui.explore.masks import mask_row
from ui.explore.parts import CONTROL, button, icon, key, left, muted, notice, pill, press, problem, text_line
from ui.explore.stage import more_toggle
from ui.explore.words import COUNTERFACTUAL_TESTING, EXPLAINED, PLAIN
from ui.markup import Child, Html, el


def header(
    profile: ProfileOptions,
    jobs: tuple[JobView, ...],
    waiting_for: str,
    run_id: str,
    saved: datetime | None,
    steps: RunSteps | None = None,
) -> Html:
    """The header: the job at work, the profile, the last save, undo and redo from `steps` of the run."""
    job = next((job for job in jobs if job.run_id == run_id), jobs[0] if jobs else None)
    return frame.header(
        "explore",
        el("div", id="said", data_own=True, role="status"),
        _job(job, waiting_for, run_id) if job is not None else None,
        pill(["profile ", el("b", profile.name)], id="profile", title=profile.title),
        pill(f"saved {clock(saved)}", "ok", id="saved") if saved is not None else None,
        _turn("undo", "Undo", "Ctrl+Z", steps.next_undo) if steps is not None else None,
        _turn("redo", "Redo", "Ctrl+Shift+Z", steps.next_redo) if steps is not None else None,
        button(
            icon("rows"),
            look="s q icon-only tool",
            id="tool-open",
            data_tool="open",
            aria_label="Everything in the open",
            title="Every setting in the open, or only what is often needed",
        ),
        keys_button(),
        tools=button([icon("list"), "Runs"], look="s runs-toggle", data_toggle_runs=True),
        data_go="new",
    )


def _turn(do: str, word: str, keys: str, step: UndoStep | None) -> Html:
    """The button of undo or redo, which says what it is about."""
    about = words_of(step) if step is not None else "nothing"
    words = f"{word}: {about}"
    return button(
        icon(do), do, "s q icon-only", id=do, disabled=step is None, aria_label=words, title=f"{words} ({keys})"
    )


def _job(job: JobView, waiting_for: str, run_id: str) -> Html:
    doing = CONTROL if job.stage is None else stage_doing(job.stage)
    if job.state == "waiting" or (job.stage is None and job.stages):
        doing = f"waiting: {waiting_for}"
    if job.progress is not None and job.progress.note:
        doing = f"{doing} · {job.progress.note}"
    doing += left(job.progress.seconds_left) if job.progress is not None else ""
    if job.run_id != run_id:
        doing = f"{'another' if run_id else 'a'} run: {doing}"
    if job.stopping:
        doing = "stopping"
    cancel = button("Cancel", "cancel", "s", data_run=job.run_id, id="cancel-top", disabled=job.stopping)
    return el("span", pill(doing, "acc", id="doing", role="status", title=doing), cancel, class_="job")


def start_page(samples: tuple[Sample, ...], below: bool = False, example: Child = None) -> Html:
    """Where a run begins: the `example`, and the samples. The field for an upload stands below it."""
    cards = [
        press(
            el("img", src=f"samples/{sample.name}.png", alt=sample.caption, loading="lazy"),
            el("span", el("b", sample.name.replace("-", " ")), el("small", _kind(sample.task))),
            class_="sample",
            data_do="run-from-sample",
            data_sample=sample.name,
            data_listed="false",
            data_key=f"sample-{sample.name}",
            title=sample.caption,
        )
        for sample in samples
    ]
    words = "Pick a sample, or give pictures of your own below." if cards else "Give pictures of your own below."
    stages = [
        el("li", el("b", stage_title(name)), el("span", plain, class_="mut"), title=EXPLAINED[name])
        for name, plain in PLAIN.items()
    ]
    return el(
        "div",
        el("h1", "Start with a picture"),
        el("p", " ".join(COUNTERFACTUAL_TESTING), class_="lead", id="what-it-is"),
        el("ol", stages, class_="five", aria_label="The five stages"),
        example,
        el("p", words),
        None if below else el("div", id="start-problem", data_own=True, role="alert"),  # else the table has it
        el("div", cards, class_="samples") if cards else None,
        class_="start",
    )


def _kind(task: Task) -> str:
    return f"label {task.label}" if task.kind == "classification" else "segmentation"


def upload_note(profile: ProfileOptions) -> Html:
    """Below the field for an upload."""
    formats = "PNG, JPEG, WebP, GIF, BMP or TIFF, up to 50 million pixels. Pictures stay on this machine."
    known = f"{profile.title}. They know pictures like the samples only." if profile.notice else ""
    picker = el(
        "input",
        type="file",
        webkitdirectory=True,
        multiple=True,
        data_file="folder",
        id="folder-file",
        aria_label="A folder",
    )
    folder = el("label", "A whole folder", picker, class_="btn s file", title="Each picture in it is a run of its own")
    paste = el("span", "or paste one with ", key("Ctrl V"), class_="mut")
    return el(
        "div",
        el("div", id="upload-problem", data_own=True, role="alert"),
        el("p", folder, " ", paste, class_="ways"),
        muted(formats, " ", known),
        class_="upload-note",
    )


def source_card(state: RunState, profile: ProfileOptions, samples: tuple[Sample, ...] = ()) -> Html:
    """The picture's name, what was put right in it, the task of the model under test and its mask."""
    run = state.run
    missing = task_problem(run.task)
    todo = any(stage not in run.values or stage in state.stale for stage in state.recipe.names)
    name = el(
        "input",
        type="text",
        value=run.name,
        id="run-name",
        name="title",
        data_do="rename",
        aria_label="Name of the run",
        maxlength=200,
        class_="plain",
    )
    # Once there are texts, a small screen has better use for the room that the task takes; one line says what it is.
    folded = bool(run.values) and not missing
    mask = mask_row(state, samples) if run.task.kind == "segmentation" else None
    short = _in_short(state)
    parts: list[Child] = [
        el("h1", run.name, class_="unseen"),
        *_interruptions(state),
        el(
            "header",
            el("img", src=image_url(run.source_sha), alt="", class_="mini"),
            el("span", name, el("small", short, class_="in-short", title=short), class_="who"),
            button(
                ["Run all", key("Ctrl ⇧ ↵")],
                "run-all",
                "p" if todo else "",
                id="run-all",
                disabled=state.active or bool(missing) or not todo,
                title="Run every stage of text; nothing is drawn before you say so",
            ),
            more_toggle("the task"),
        ),
        el("div", _task_form(run.task, profile), _recipe_choice(state), mask, class_="rare about"),
    ]
    if missing:
        parts.append(problem(missing, "problem-task"))
    parts.append(el("div", id="source-problem", data_own=True, role="alert"))
    if run.notes:
        parts.append(notice(" ".join(run.notes), "picture-notes"))
    if state.unknown_picture:
        parts.append(notice(el("span", state.unknown_picture, title=state.unknown_picture), "unknown-picture"))
    looks = f"card source{' foldable' if folded else ''}"
    return el("section", parts, class_=looks, id="source", data_key=f"source-{run.id}")


def _in_short(state: RunState) -> str:
    """The task in a few words, such as: segmentation, 5 protected classes, with a mask."""
    task, run = state.run.task, state.run
    if task.kind == "classification":
        words = [f"label {task.label}" if task.label else "no label yet"]
    else:
        number = len(task.protected)
        words = [task.kind, count_of(number, "protected class")]
        words += ["with its mask"] if run.mask_sha is not None else []
    return " · ".join([*words, state.recipe.title])


def _interruptions(state: RunState) -> list[Html]:
    """What a person should know before anything else: that the run is deleted, or that its work was cut off."""
    run, gate = state.run, state.gate
    found: list[Html] = []
    if run.removed:
        back = button("Put it back", "restore-run", "s", data_run=run.id)
        found.append(el("div", el("span", "This run was deleted."), back, class_="notice told", id="run-removed"))
    last = run.jobs[-1] if run.jobs else None
    if last is not None and last.state == "interrupted" and gate.plan is not None and not state.active:
        words = f"The studio was stopped while it generated: {last.done} of {last.total} images are saved."
        left = len(gate.plan.images)
        word = f"Make the other {left}" if left > 1 else "Make the last one"
        go_on = button(word, "generate", "s", id="go-on", data_shown=gate.shown)
        found.append(el("div", el("span", words), go_on, class_="notice told", id="run-interrupted"))
    return found


def _recipe_choice(state: RunState) -> Html:
    """Which recipe the run follows; its stages are the cards below."""
    chosen = state.recipe
    chips = [
        el(
            "label",
            el(
                "input",
                type="radio",
                name="recipe",
                value=recipe.name,
                checked=recipe.name == chosen.name,
                data_do="recipe",
            ),
            recipe.title,
            class_=f"chip{' on' if recipe.name == chosen.name else ''}",
            title=recipe.description,
            data_key=f"recipe-{recipe.name}",
        )
        for recipe in state.recipes
    ]
    return el(
        "div",
        el("span", "recipe", class_="mut"),
        el("span", chips, class_="choice"),
        el("span", chosen.description, class_="mut small"),
        class_="task",
        id="recipes",
        role="group",
        aria_label="Recipe",
    )


def _task_form(task: Task, profile: ProfileOptions) -> Html:
    labels = [el("option", value=label) for label in profile.labels]
    kinds = [
        el(
            "label",
            el("input", type="radio", name="kind", value=kind, checked=task.kind == kind, data_do="task"),
            kind,
            class_=f"chip{' on' if task.kind == kind else ''}",
            data_key=f"kind-{kind}",
        )
        for kind in ("classification", "segmentation")
    ]
    classes = ", ".join(task.protected)
    label, protected = (
        el(
            "label",
            el("span", name, class_="mut"),
            text_line(
                name=name,
                value=value,
                id=f"task-{name}",
                data_do="task",
                list="known-labels" if name == "label" else None,
                placeholder=hint,
                maxlength=longest,
            ),
            class_=look,
            hidden=task.kind != kind,
            data_key=f"field-{name}",
        )
        for name, kind, value, hint, longest, look in (
            ("label", "classification", task.label, "what the picture shows", 100, "field"),
            ("protected", "segmentation", classes, "classes that must stay, with commas", 400, "field wide"),
        )
    )
    return el(
        "div",
        el("span", "task", class_="mut"),
        el("span", kinds, class_="choice"),
        label,
        protected,
        el("datalist", labels, id="known-labels"),
        class_="task",
        data_task_form=True,
        role="group",
        aria_label="Task",
    )
