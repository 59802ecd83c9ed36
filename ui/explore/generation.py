"""The card of stage 5. Before the drawing: its settings, control image and approval. After that: its progress."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from core.data_files import DataTable
from core.settings import SEED_MODES, STARTS, ControlKind, GenerationSettings, SeedMode, Start
from core.types import StageName, stage_title
from services.jobs import JobView
from services.runs.gate import EARLIER_MASK, EARLIER_SOURCE_CAPTION, EARLIER_TASK
from services.runs.state import Presets, ProfileOptions, RunState
from ui.diff import shortened, word_diff
from ui.explore.forms import settings_form
from ui.explore.parts import Tone, left
from ui.explore.stage import FIRST_TIME, running_stage, state_pill, title
from ui.markup import Html
from ui.templating import render

STAGE: StageName = "generation"
DOUBTS_NAMED = 3
"""Maximum length of the list of ticked captions that fail a check. A last line counts the captions not listed."""
LISTED = 40
"""Maximum number of planned images that are listed; the others are counted."""
SEEDS: Mapping[SeedMode, tuple[str, str]] = DataTable(__file__, tuple[str, str], "seeds")
START_WORDS: Mapping[Start, tuple[str, str]] = DataTable(__file__, tuple[str, str], "starts")
FIELDS: Mapping[str, str] = DataTable(__file__, str, "fields")
OF_INVERTED = ("fresh_noise", "fresh_noise_by_type", "inversion_evaluations")
"""Settings that matter only if images are drawn from the inverted source, not from noise."""
NOT_READ = "negative prompt (not read at guidance 1)"
OPEN_SECTIONS = ("generation", "conditioning")
"""Sections of settings with their own form on the card. All other sections of a method share a general form."""
NAMES: Mapping[ControlKind, str] = DataTable(__file__, str, "names")
MEANINGS: Mapping[ControlKind, str] = DataTable(__file__, str, "meanings")
SLIDERS = {"low": (0, 500, 1), "high": (0, 500, 1), "median": (1, 15, 2)}
"""Minimum, maximum and step of each slider. The slider of the median filter has odd numbers; 1 turns the filter off."""


def generation_card(state: RunState, profile: ProfileOptions) -> Html:
    """Return the card of stage 5. The card shows the planned images and their cost, or the progress of the drawing."""
    running = running_stage(state.job) == STAGE or _waits(state)
    word, tone = _state_word(state, running)
    drawing, method, plan = state.settings.generation, state.recipe.drawing_method, state.gate.plan
    conditioned, diffuses = "conditioning" in method.sections, "generation" in method.sections
    method_settings = {name: getattr(state.settings, name) for name in method.sections if name not in OPEN_SECTIONS}
    steps = method.settings_of(state.settings).steps or (drawing.steps if diffuses else None)
    how = f"{method.title} · {steps} steps" if steps is not None else method.title
    control = state.settings.conditioning
    fixed = control.kind == "canny" and control.high
    control_words = f"Canny {control.low} / {control.high}" if fixed else NAMES[control.kind]
    progress = state.job.progress if state.job is not None else None
    negative = "negative prompt" if drawing.guidance > 1 else NOT_READ
    return render(
        "explore/generation.html",
        state=state,
        title=title(stage_title(STAGE)),
        state_pill=state_pill(word, tone, id="state-generation"),
        how=f"{control_words} · {how}" if conditioned else how,
        conditioning=conditioning_panel(state, profile) if conditioned else None,
        settings=settings_form(method_settings) if method_settings else None,
        running=running,
        waits=not running and plan is not None,
        drawing=drawing,
        info=type(drawing).model_fields,
        fields=[
            (name, words)
            for name, words in FIELDS.items()
            if state.recipe.reads(f"generation.{name}")
            and (name not in OF_INVERTED or drawing.inverted or "start" in method.decided)
        ],
        starts=[(start, *START_WORDS[start]) for start in STARTS] if state.recipe.reads("generation.start") else None,
        presets=preset_chips((drawing,), profile.presets) if diffuses else None,
        seeds=[(mode, *SEEDS[mode]) for mode in SEED_MODES],
        negative=negative if state.recipe.reads("generation.negative_prompt") else None,
        again=sum(image.failed is not None for image in state.gate.plan.images) if state.gate.plan is not None else 0,
        equal=method.equal_images(method.settings_of(state.settings)) if drawing.images_per_caption > 1 else "",
        doubts_named=DOUBTS_NAMED,
        planned=[
            (image, shortened(word_diff(state.caption, image.counterfactual.text)))
            for image in (plan.images[:LISTED] if plan is not None and not running else ())
        ],
        where=f"Drawn {state.generator_runs}." if state.generator_runs else None,
        share=None if progress is None else progress.done / max(1, progress.total),
        doing=_doing(state),
    )


def _waits(state: RunState) -> bool:
    return state.job is not None and state.job.state == "waiting" and state.job.stages == (STAGE,)


def _state_word(state: RunState, running: bool) -> tuple[str, Tone]:
    last = state.run.jobs[-1] if state.run.jobs else None
    if running:
        if state.job is not None and state.job.stopping:
            return "stopping", "warn"
        return ("waiting", "acc") if _waits(state) else ("running", "acc")
    if last is not None and last.state == "failed":
        return "failed", "bad"
    if last is not None and last.state in ("interrupted", "cancelled"):
        return f"{last.state}: {last.done} of {last.total} images are saved", "warn"
    if not state.run.test_cases:
        return ("waiting for your yes", "acc") if state.gate.plan is not None else ("empty", "")
    if len(state.outdated) == len(state.run.test_cases):
        why = "the images show earlier captions"
        if EARLIER_MASK in state.outdated.values():
            why = "the mask was changed after these images were drawn"
        elif EARLIER_SOURCE_CAPTION in state.outdated.values():
            why = "the caption of the source was changed after these images were drawn from it"
        elif any(reason.startswith(EARLIER_TASK) for reason in state.outdated.values()):
            why = "the task was changed after these images were drawn"
        return f"stale: {why}", "warn"
    return "ready", "ok"


def preset_chips(
    drawings: Sequence[GenerationSettings], presets: Presets, do: str = "preset", **data: str
) -> Html | None:
    """Return a chip for each preset, marked if all `drawings` have its values. Pressing it does the action `do`."""
    settings = [drawing.model_dump(mode="json") for drawing in drawings]
    chips = [
        (
            name,
            all(values[field] == value for values in settings for field, value in sets.items()),
            ", ".join(f"{FIELDS.get(field, field.replace('_', ' '))} {value}" for field, value in sets.items()),
        )
        for name, sets in presets.items()
    ]
    custom = len(drawings) == 1 and not any(on for _, on, _ in chips)
    return render("explore/presets.html", chips=chips, do=do, own=custom, data=data) if presets else None


def _doing(state: RunState) -> str:
    progress = state.job.progress if state.job is not None else None
    if progress is not None:
        return f"{progress.note} · step {progress.done} of {progress.total}{left(progress.seconds_left)}"
    return "waiting for its turn" if _waits(state) else f"starting{FIRST_TIME}"


def conditioning_panel(state: RunState, profile: ProfileOptions) -> Html:
    """Return the panel with the control image. A button opens the panel, and the panel's pictures load then."""
    settings = state.settings.conditioning
    fields = type(settings).model_fields
    return render(
        "explore/conditioning.html",
        state=state,
        settings=settings,
        kinds=profile.control_kinds,
        names=NAMES,
        meanings=MEANINGS,
        control=control_url(state),
        drawn=_being_drawn(state.job),
        controls=[(name, getattr(settings, name), fields[name].description) for name in settings.own_fields()],
        sliders=SLIDERS,
        changed=settings != profile.conditioning,
    )


def control_url(state: RunState) -> str:
    """Return the address of the control image for the current settings."""
    settings = state.settings.conditioning
    # In lower case, since scripts write True as "true".
    query = {name: str(getattr(settings, name)).lower() for name in ("kind", *settings.own_fields())}
    query["short_side"] = str(state.settings.generation.short_side)
    if settings.kind == "segmentation":
        query["v"] = (state.run.mask_sha or "")[:12]
    return f"control/{state.run.id}.png?{urlencode(query)}"


def _being_drawn(job: JobView | None) -> str:
    """Return the progress of a job that only draws a control image; "" for any other."""
    if job is None or not job.active or job.stages:
        return ""
    if job.state == "waiting":
        return "It waits for its turn."
    # Whole seconds, so that the markup does not change faster than a person can read.
    return f"It is being drawn · {int(time.monotonic() - job.since)} s"
