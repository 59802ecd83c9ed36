"""The table of several runs on the start page: what each shows and how far it is, and what is done with all of them."""

from __future__ import annotations

from core.types import GENERATION, stage_doing, stage_title
from core.words import count_of
from services.runs.accepted import accepted_of
from services.runs.bulk_runs import TogetherState
from services.runs.life_cycle import task_problem
from services.runs.state import ProfileOptions, RunState
from ui.explore.bulk_settings import common, settings_of_all
from ui.explore.large import image_url
from ui.explore.parts import UNKNOWN_PICTURE, Tone, about, bar, left, unknown_pictures
from ui.markup import Html
from ui.templating import render

TASKS = ("classification", "segmentation")
Far = tuple[str, Tone, str, str, Html | None]
"""How far a run is: words with their tone and a hint, a sentence below, and a progress bar."""


def together_part(together: TogetherState, profile: ProfileOptions) -> Html:
    """The table with its head; nothing where no run is selected."""
    if not together.runs:
        return Html("")
    runs, states = ",".join(together.ids), together.runs
    return render(
        "explore/together.html",
        runs=runs,
        rows=[(state, state.run, _far(state), _results(state)) for state in states],
        together=together,
        unknown=_unknown(together),
        kind=states[0].run.task.kind,
        of_kind={kind: all(state.run.task.kind == kind for state in states) for kind in TASKS},
        label=common(states, lambda state: state.run.task.label),
        protected=common(states, lambda state: ", ".join(state.run.task.protected)),
        profile=profile,
        settings=settings_of_all(states, profile, runs),
        start=sum(not task_problem(state.run.task) for state in together.ready()),
        active=any(state.active for state in states),
        writing=any(state.active and GENERATION not in (state.job.stages if state.job else ()) for state in states),
        drawn=all(_drawn(state) for state in states),
        accepted=sum(len(accepted_of(state.run)) for state in states),
        facts=_facts(together),
        image_url=image_url,
        unknown_picture=UNKNOWN_PICTURE,
    )


def _unknown(together: TogetherState) -> Html | None:
    """Tell how many of the pictures the models of the profile were not made for."""
    number, total = sum(bool(state.unknown_picture) for state in together.runs), len(together.runs)
    of = f"{'these ' if total > 1 else ''}{count_of(total, 'picture')}"
    return unknown_pictures(number, of) if number else None


def _facts(together: TogetherState) -> str:
    """How long the images take, and how many runs cannot begin."""
    lacking = sum(bool(task_problem(state.run.task)) for state in together.runs)
    said = []
    if together.images:
        said.append(f"{about(together.seconds)} of drawing" if together.seconds else "how long is not known yet")
    if lacking:
        said.append(f"{lacking} {'lack' if lacking > 1 else 'lacks'} a label or protected classes")
    return " · ".join(said)


def _far(state: RunState) -> Far:
    """How far a run is, or why it cannot go on."""
    job = state.job
    if job is not None and job.active:
        if job.state == "waiting" or job.stage is None:
            return "in the queue", "", "", "", None
        progress = job.progress
        share = progress.done / progress.total if progress is not None and progress.total > 1 else None
        rest = left(progress.seconds_left) if progress is not None else ""
        return f"{stage_doing(job.stage)}{rest}", "acc", "", "", bar(share)
    if missing := task_problem(state.run.task):
        words = "needs a label" if state.run.task.kind == "classification" else "needs protected classes"
        return words, "warn", missing, "", None
    if state.problems:
        stage, problem = next(iter(state.problems.items()))
        return f"{stage_title(stage).lower()}: failed", "bad", "", problem.text, None
    if _drawn(state):
        return "drawn", "ok", "", "", None
    if state.gate.plan is not None:
        return f"{count_of(len(state.gate.plan.images), 'image')} to draw", "acc", "", "", None
    done = sum(name in state.run.values and name not in state.stale for name in state.recipe.names)
    return f"{done} of {len(state.recipe.names)} stages" if done else "not begun", "", "", "", None


def _results(state: RunState) -> str:
    number, accepted = len(state.run.test_cases), len(accepted_of(state.run))
    words = count_of(number, "result") if number else ""
    return f"{words}, {accepted} accepted" if accepted else words


def _drawn(state: RunState) -> bool:
    """Whether it has images that fit what it shows: a further yes draws others of them."""
    return len(state.outdated) < len(state.run.test_cases)
