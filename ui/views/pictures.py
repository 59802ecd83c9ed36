"""The picture column: one picture as large as it can be, source and control image beside it, all results below."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.types import StageName
from storage.types import StoredTestCase
from ui.diff import shortened, word_diff
from ui.studio import RunState
from ui.views.markup import Child, Html, el
from ui.views.parts import differences, icon, key, pill, seconds, short_model
from ui.views.stage import running_stage
from ui.views.text_stages import caption_text

MODES = ("result", "slider", "source", "edges")
STAGE: StageName = "generation"


@dataclass(frozen=True)
class View:
    """What this page looks at; it lives in the browser."""

    case: int | None = None
    """The test case that was picked; None for the newest."""
    mode: str = "result"


def picture_column(state: RunState, view: View) -> Html:
    """Everything in it."""
    cases = state.run.test_cases
    case = next((held for held in cases if held.id == view.case), cases[-1] if cases else None)
    if case is None:
        return el("div", _source_only(state), class_="pictures")
    mode = view.mode if view.mode in MODES else "result"
    parts: list[Child] = [
        el("div", _large(state, case, mode), _tiles(state, case, mode), class_="card"),
        _thumbnails(state, case),
        _facts(state, case),
    ]
    return el("div", parts, class_="pictures", data_case=case.id)


def image_url(sha: str) -> str:
    """Where an image of the workspace is served."""
    return f"images/{sha}.png"


def edit_words(case: StoredTestCase) -> str:
    """What was changed in a test case, in a few words."""
    return ", ".join(edit.alternative for edit in case.counterfactual.edits) or "by hand"


def _source_only(state: RunState) -> Html:
    figure = el(
        "figure",
        el(
            "img",
            src=image_url(state.run.source_sha),
            alt=f"Source image: {caption_text(state) or state.run.name}",
            id="big-source",
        ),
        el("figcaption", el("span", "source")),
        class_="large",
    )
    note = "Results will stand here, beside the source image and its edges."
    waiting = _placeholder(state)
    return el(
        "div",
        figure,
        el("p", note, class_="mut pad") if waiting is None else el("div", waiting, class_="thumbs pad"),
        class_="card",
    )


def _large(state: RunState, case: StoredTestCase, mode: str) -> Html:
    source, result, control = (image_url(sha) for sha in (state.run.source_sha, case.image_sha, case.control_sha))
    label = edit_words(case)
    if mode == "slider":
        inside: list[Child] = [
            el("img", src=result, alt=f"Generated image: {case.counterfactual.text}"),
            el("img", src=source, alt="Source image", class_="over"),
            el(
                "input",
                type="range",
                min=0,
                max=100,
                value=50,
                class_="wipe",
                aria_label="How much of the source is shown",
                data_own=True,
            ),
            el("i", class_="line"),
            el("figcaption", el("span", "source"), el("span", label)),
        ]
        return el("figure", inside, class_="large slider", data_key="slider", id="big-slider")
    pictures = {
        "result": (result, f"Generated image: {case.counterfactual.text}", label),
        "source": (source, "Source image", "source"),
        "edges": (control, "Control image: the edges that were kept", "edges"),
    }
    address, words, shown = pictures[mode]
    return el(
        "figure",
        el("img", src=address, alt=words, id=f"big-{mode}"),
        el("figcaption", el("span", shown)),
        class_="large",
        data_key=f"large-{mode}",
    )


def _tiles(state: RunState, case: StoredTestCase, mode: str) -> Html:
    source, result, control = (image_url(sha) for sha in (state.run.source_sha, case.image_sha, case.control_sha))
    halves = el("span", el("img", src=result, alt=""), el("img", src=source, alt="", class_="half"), class_="both")
    tiles: tuple[tuple[str, str, Html], ...] = (
        ("result", "Result", el("img", src=result, alt="")),
        ("slider", "Slider", halves),
        ("source", "Source", el("img", src=source, alt="")),
        ("edges", "Edges", el("img", src=control, alt="")),
    )
    buttons = [
        el(
            "button",
            picture,
            el("span", name),
            type="button",
            class_=f"tile{' on' if value == mode else ''}",
            data_view_mode=value,
            id=f"tile-{value}",
            aria_pressed="true" if value == mode else "false",
        )
        for value, name, picture in tiles
    ]
    return el("div", buttons, class_="tiles")


def _facts(state: RunState, case: StoredTestCase) -> Html:
    pieces = word_diff(caption_text(state), case.counterfactual.text)
    checks = [
        pill(
            _check_words(check.name, check.passed, check.value),
            "ok" if check.passed else "warn",
            title=check.note or None,
        )
        for check in case.checks
    ]
    if case.id not in state.current:
        checks.append(pill("of an earlier caption", "warn"))
    steps = case.settings.get("steps", "?")
    made = f"{short_model(case.model, state.model_names)} · {steps} steps · seed {case.seed} · {seconds(case.seconds)}"
    save = el(
        "a",
        icon("down"),
        "Save image",
        href=image_url(case.image_sha),
        class_="btn s",
        download=f"{state.run.name}-{edit_words(case)}-{case.id}.png".replace(" ", "-").replace("/", "-"),
    )
    notes = [el("p", check.note, class_="mut small") for check in case.checks if not check.passed and check.note]
    return el(
        "div",
        el("p", differences(shortened(pieces)), class_="diff"),
        el("div", checks, class_="tags"),
        notes,
        el("div", el("span", made, class_="mut small"), el("span", class_="grow"), save, class_="line-end"),
        class_="card facts",
    )


def _check_words(name: str, passed: bool, value: float | None) -> str:
    figure = "" if value is None else f" · {value:.2f}"
    return f"{name}: {'yes' if passed else 'no'}{figure}"


def _thumbnails(state: RunState, shown: StoredTestCase) -> Html:
    thumbs: list[Child] = [_placeholder(state)]
    for case in reversed(state.run.test_cases):
        looks = f"thumb{' on' if case.id == shown.id else ''}{'' if case.id in state.current else ' old'}"
        thumbs.append(
            el(
                "button",
                el("img", src=image_url(case.image_sha), alt=f"Generated image: {case.counterfactual.text}"),
                el("span", edit_words(case)),
                type="button",
                class_=looks,
                data_view_case=case.id,
                data_key=f"case-{case.id}",
                title=case.counterfactual.text,
            )
        )
    number = len(state.run.test_cases)
    head = el(
        "header",
        el("h2", f"{number} result" if number == 1 else f"{number} results", id="results-count"),
        el("span", class_="grow"),
        el("span", key("←"), " ", key("→"), class_="mut") if number > 1 else None,
    )
    return el("section", head, el("div", thumbs, class_="thumbs", id="results"), class_="results")


def _placeholder(state: RunState) -> Child:
    """The image that is being drawn."""
    job = state.job
    if running_stage(job) != STAGE or job is None or job.progress is None:
        return None
    steps = state.settings.generation.steps
    progress = job.progress
    step = progress.done % steps
    return el(
        "div",
        el("img", src=image_url(state.run.source_sha), alt=""),
        el("b", f"{step}/{steps}"),
        class_="thumb drawing",
        data_key="drawing",
    )
