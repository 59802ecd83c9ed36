"""The card of stage 5: the gate with its settings in the open, and the work behind it."""

from __future__ import annotations

from collections.abc import Sequence

from core.settings import SEED_MODES, GenerationSettings, SeedMode
from core.stored_runs import Job
from core.types import StageName, stage_title
from core.words import count_of
from services.runs.gate import Gate
from services.runs.outdated import EARLIER_MASK, EARLIER_TASK
from services.runs.state import Presets, ProfileOptions, RunState
from ui.diff import shortened, word_diff
from ui.explore.conditioning import conditioning_panel, what_it_is
from ui.explore.forms import setting_input, settings_form
from ui.explore.parts import (
    Tone,
    about,
    bar,
    button,
    differences,
    icon,
    key,
    left,
    muted,
    notice,
    press,
    problem,
    toggle,
)
from ui.explore.stage import more_toggle, panel, panel_toggle, running_stage, state_pill, title
from ui.explore.words import FIRST_TIME
from ui.markup import Child, Html, el

STAGE: StageName = "generation"
DOUBTS_NAMED = 3
"""Ticked captions that fail a check are named one by one up to here; the others are counted."""
LISTED = 40
"""Images that the gate lists one by one; the others are counted."""
SEEDS: dict[SeedMode, tuple[str, str]] = {
    "next": ("next", "The next seeds of this run: pressing again makes other images, and the same ones in every copy."),
    "fixed": ("fixed", "The same seed for every caption: only the words differ between the images."),
    "random": ("random", "New seeds at every yes."),
}
FIELDS = {
    "images_per_caption": "images per caption",
    "steps": "steps",
    "guidance": "guidance",
    "control_strength": "control strength",
    "control_until": "control until",
    "short_side": "short side",
    "batch": "drawn at once",
}

NOT_READ = "negative prompt (not read at guidance 1)"
ANY_METHOD = ("images_per_caption",)
"""Of these fields, those that plan the images of any method."""
OPEN_SECTIONS = ("generation", "conditioning")
"""Sections of the settings that stand on the card in a form of their own; a method's others get a general one."""


def generation_card(state: RunState, profile: ProfileOptions) -> Html:
    """What a yes would start and what it would cost; while it runs, how far it is."""
    running = running_stage(state.job) == STAGE or _waits(state)
    word, tone = _state_word(state, running)
    drawing, method = state.settings.generation, state.recipe.drawing_method
    conditioned, diffuses = "conditioning" in method.sections, "generation" in method.sections
    own = {name: getattr(state.settings, name) for name in method.sections if name not in OPEN_SECTIONS}
    steps = method.settings_of(state.settings).steps or (drawing.steps if diffuses else None)
    how = f"{method.title} · {steps} steps" if steps is not None else method.title
    if conditioned:
        how = f"{what_it_is(state.settings.conditioning)} · {how}"
    toggle = button(
        "Conditioning",
        look="s q",
        data_panel_of="conditioning",
        aria_expanded="false",
        id="toggle-conditioning",
        title="What the generator is held to: see it, and set how much of the source it keeps",
    )
    head = el(
        "header",
        el("span", len(state.recipe.cards), class_="num"),
        title(stage_title(STAGE), STAGE),
        state_pill(word, tone, id="state-generation"),
        el("span", class_="grow"),
        el("span", how, class_="meta rare"),
        el(
            "span",
            toggle if conditioned else None,
            panel_toggle("Settings", "settings") if own else None,
            more_toggle("the images"),
            class_="actions",
        ),
    )
    held, said = state.problems.get(STAGE), state.notices.get(STAGE)
    waits = not running and state.gate.plan is not None
    parts: list[Child] = [
        head,
        problem(held.text, "problem-generation") if held is not None else None,
        notice([icon("alert"), el("span", said)], "notice-generation") if said is not None else None,
        conditioning_panel(state, profile) if conditioned else None,
        panel("settings", "Of this run only.", settings_form(own)) if own else None,
        el("div", _settings(drawing, profile, diffuses), class_="body rare"),
        _progress(state) if running else _gate(state),
        _planned(state) if waits else None,
    ]
    return el(
        "section",
        parts,
        class_=f"card stage foldable{' is-gate' if waits else ''}",
        id="stage-generation",
        data_stage=STAGE,
    )


def _waits(state: RunState) -> bool:
    return (
        state.job is not None
        and state.job.state == "waiting"
        and STAGE in state.job.stages
        and len(state.job.stages) == 1
    )


def _state_word(state: RunState, running: bool) -> tuple[str, Tone]:
    last = state.run.jobs[-1] if state.run.jobs else None
    if running:
        if state.job is not None and state.job.stopping:
            return "stopping", "warn"
        return ("waiting", "acc") if _waits(state) else ("running", "acc")
    if last is not None and last.state == "failed":
        return "failed", "bad"
    if last is not None and last.state in ("interrupted", "cancelled"):
        return f"{last.state}: {_saved(last)}", "warn"
    if not state.run.test_cases:
        return ("waiting for your yes", "acc") if state.gate.plan is not None else ("empty", "")
    if len(state.outdated) == len(state.run.test_cases):
        why = "the images show earlier captions"
        if EARLIER_MASK in state.outdated.values():
            why = "the mask was changed after these images were drawn"
        elif any(reason.startswith(EARLIER_TASK) for reason in state.outdated.values()):
            why = "the task was changed after these images were drawn"
        return f"stale: {why}", "warn"
    return "ready", "ok"


def _saved(job: Job) -> str:
    return f"{job.done} of {job.total} images are saved"


def _settings(drawing: GenerationSettings, profile: ProfileOptions, diffuses: bool) -> Html:
    """How many images of which seeds; how they are denoised only where the method reads these settings."""
    negative = "negative prompt" if drawing.guidance > 1 else NOT_READ
    rows: list[Child] = [
        el("div", preset_chips((drawing,), profile.presets) if diffuses else None, _seeds(drawing), class_="choices"),
        el(
            "div",
            [_field(name, words, drawing) for name, words in FIELDS.items() if diffuses or name in ANY_METHOD],
            _field("negative_prompt", negative, drawing, "negative") if diffuses else None,
            class_="fields",
        ),
    ]
    return el("div", rows, class_="drawing-settings")


def preset_chips(drawings: Sequence[GenerationSettings], presets: Presets, do: str = "preset", **data: str) -> Child:
    """The presets of a profile; that is chosen which all the `drawings` have. A press on one does `do`."""
    if not presets:
        return None
    held = [drawing.model_dump(mode="json") for drawing in drawings]
    chips: list[Child] = []
    chosen = False
    for name, sets in presets.items():
        on = all(one[field] == value for one in held for field, value in sets.items())
        chosen = chosen or on
        told = ", ".join(f"{FIELDS.get(field, field.replace('_', ' '))} {value}" for field, value in sets.items())
        chips.append(toggle(name, do, on, data_preset=name, title=told, data_key=f"{do}-{name}", **data))
    if not chosen and len(drawings) == 1:
        chips.append(el("span", "own", class_="chip on own", data_key="preset-own", title="Settings of your own"))
    return el("span", el("span", "preset", class_="mut"), chips, class_="choice", role="group", aria_label="Preset")


def _seeds(drawing: GenerationSettings) -> Html:
    chips: list[Child] = [
        toggle(
            SEEDS[mode][0],
            "setting",
            mode == drawing.seed_mode,
            data_setting="generation.seed_mode",
            data_value=mode,
            title=SEEDS[mode][1],
            data_key=f"seed-{mode}",
        )
        for mode in SEED_MODES
    ]
    field = None
    if drawing.seed_mode == "fixed":
        info = type(drawing).model_fields["seed"]
        field = el(
            "label",
            el("span", "Seed", class_="unseen"),
            setting_input(STAGE, "seed", info, drawing.seed, "setting-generation-seed"),
            title=info.description,
            data_key="seed-number",
        )
    return el(
        "span", el("span", "seeds", class_="mut"), chips, field, class_="choice", role="group", aria_label="Seeds"
    )


def _field(name: str, words: str, drawing: GenerationSettings, look: str | None = None) -> Html:
    info, field_id = type(drawing).model_fields[name], f"setting-generation-{name}"
    return el(
        "label",
        el("span", words, class_="mut"),
        setting_input(STAGE, name, info, getattr(drawing, name), field_id),
        for_=field_id,
        class_=look,
        title=info.description,
        data_key=field_id,
    )


def _gate(state: RunState) -> Html:
    gate = state.gate
    if gate.plan is None:
        return el("div", muted(gate.closed), class_="gate closed", id="gate")
    number, captions = len(gate.plan.images), gate.plan.captions
    words = f"{count_of(number, 'image')} from {count_of(captions, 'caption')}"
    return el(
        "div",
        el(
            "div",
            el("b", words, id="gate-count"),
            el("span", _cost(gate), class_="mut", id="gate-seconds", title=_where(state)),
            el("span", _where(state), class_="mut note rare", id="gate-where") if state.generator_runs else None,
            el("span", _explained(gate, state), class_=f"mut note{'' if _again(gate) else ' rare'}"),
            _doubts(gate),
            class_="what",
        ),
        button(
            [f"Generate {count_of(number, 'image')}", key("Ctrl ↵")],
            "generate",
            "p",
            id="generate",
            disabled=state.active,
            data_shown=gate.shown,
            data_key="generate",
        ),
        class_="gate",
        id="gate",
    )


def _doubts(gate: Gate) -> Child:
    """The ticked captions that fail a check, named before they are drawn."""
    if not gate.doubts:
        return None
    number = len(gate.doubts)
    ticked = el("span", "ticked caption " if number == 1 else "ticked captions ", class_="word")
    head = el("span", f"{number} ", ticked, "fails a check" if number == 1 else "fail a check")
    named: list[Child] = [
        el("li", f"“{_short(doubt.caption)}” ", el("span", doubt.reasons[0], class_="mut"), title=doubt.caption)
        for doubt in gate.doubts[:DOUBTS_NAMED]
    ]
    if number > DOUBTS_NAMED:
        named.append(el("li", f"and {number - DOUBTS_NAMED} more", class_="mut"))
    opener = press(icon("alert"), head, icon("unfold"), class_="unfold bad", data_more_of=True, aria_expanded="false")
    return el("div", opener, el("ul", named), class_="doubts unfolds", id="gate-doubts")


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} …"


def _planned(state: RunState) -> Html:
    """What a yes would make, image by image: what differs from the caption, and the seed."""
    plan = state.gate.plan
    assert plan is not None
    source = state.caption
    rows: list[Child] = [
        el(
            "li",
            el("span", differences(shortened(word_diff(source, image.counterfactual.text)))),
            el("span", f"seed {image.seed}", class_="seed"),
            title=image.counterfactual.text,
        )
        for image in plan.images[:LISTED]
    ]
    if len(plan.images) > LISTED:
        rows.append(el("li", f"and {len(plan.images) - LISTED} more", class_="mut"))
    return el(
        "details",
        el("summary", "What will be made"),
        el("ol", rows),
        class_="planned rare",
        id="planned",
        data_key="planned",
    )


def _cost(gate: Gate) -> str:
    if gate.plan is None or gate.plan.seconds is None:
        return "measuring the time" if gate.measuring else "the time is known after the first image on this machine"
    return f"{about(gate.plan.seconds)} on this machine"


def _where(state: RunState) -> str | None:
    """Where images are drawn, once it is known."""
    return f"Drawn {state.generator_runs}." if state.generator_runs else None


def _explained(gate: Gate, state: RunState) -> str:
    again = _again(gate)
    if again:
        return f"{count_of(again, 'image', 'is')} tried again with another seed."
    if gate.made:
        return f"{count_of(gate.made, 'image')} of them made before and kept."
    if gate.seed and state.settings.generation.seed_mode == "next":
        return f"All images of these captions are made; these would be others (seed {gate.seed})."
    if state.run.test_cases:
        return "The captions or settings were changed; earlier images stay."
    return "Nothing is generated before your yes."


def _again(gate: Gate) -> int:
    """How many images could not be made before."""
    return sum(image.failed is not None for image in gate.plan.images) if gate.plan is not None else 0


def _progress(state: RunState) -> Html:
    job = state.job
    progress = job.progress if job is not None else None
    if progress is None:
        words = "waiting for its turn" if _waits(state) else f"starting{FIRST_TIME}"
        shown: Child = [bar(None), el("span", words, id="progress-words", title=_where(state))]
    else:
        words = f"{progress.note} · step {progress.done} of {progress.total}{left(progress.seconds_left)}"
        shown = [
            bar(progress.done / max(1, progress.total)),
            el("span", words, id="progress-words", title=_where(state)),
        ]
    stopping = job is not None and job.stopping
    return el(
        "div",
        el("div", shown, class_="working"),
        button("Stopping" if stopping else "Cancel", "cancel", "", id="cancel", disabled=stopping),
        class_="gate",
        id="gate",
    )
