"""The model under test before and after: its five likeliest classes, or how well it still finds what is protected."""

from __future__ import annotations

import hashlib

from core.predictions import ClassFigures, Prediction, Standing
from core.settings import UnderTestSettings
from core.stored_runs import StoredTestCase
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.explore.model_form import model_fields
from ui.explore.parts import Tone, button, icon, muted, pill, problem, small, value_row
from ui.markup import Child, Html, el

STANDINGS: dict[Standing, tuple[Tone, str]] = {
    "right": ("", "check"),
    "fails here": ("acc", "target"),
    "wrong before too": ("", ""),
    "right only here": ("", ""),
    "cannot tell": ("", "question"),
}
"""The tone and the icon of how the model stands. A tick says that it is right, not that it is no worse than before."""


def under_test_card(state: RunState, case: StoredTestCase | None, comparison: ModelComparison) -> Html:
    """The table, and the form that takes another model. It can be chosen before there is an image."""
    head = el(
        "header",
        el("h2", "Model under test"),
        el("span", _short(comparison.wanted), class_="mut small", id="under-test-name"),
        el("span", class_="grow"),
    )
    return el(
        "section",
        head,
        _body(case, comparison),
        _chooser(state),
        class_="card facts under-test",
        id="under-test",
    )


def verdict_pill(case: StoredTestCase, comparison: ModelComparison) -> Child:
    """The standing of the model under test in a few words. Its signs differ from those of the checks of images."""
    outcome = comparison.outcomes.get(case.id)
    if outcome is None:
        return None
    tone, sign = STANDINGS[outcome.standing]
    words: list[Child] = [icon(sign) if sign else None, el("span", outcome.words)]
    return pill(words, tone, id="model-verdict", title=outcome.explanation, data_standing=outcome.standing)


def _body(case: StoredTestCase | None, comparison: ModelComparison) -> Child:
    if comparison.wanted is None:
        return muted("None is chosen for this task: pick one to see what your test cases do to it.")
    if comparison.problem:
        return [problem(comparison.problem, "under-test-problem"), button("Try again", "under-test-again", "s")]
    if case is None:
        return muted("It reads the source and each image that you generate.")
    before, after = comparison.source, comparison.results.get(case.id)
    if before is None or after is None:
        return muted("It is being asked.", role="status", id="under-test-waits")
    if before.kind == "segmentation":
        return _classes(comparison.figures.get(case.id, ()), comparison.masked)
    label = case.task.label if case.task.kind == "classification" else ""
    untold = comparison.no_class_for(label)
    bars = [_bars(found, name, label, comparison) for found, name in ((before, "source"), (after, "generated"))]
    return [el("div", bars, class_="guesses", id="guesses"), small(untold, id="no-class") if untold else None]


def _bars(found: Prediction, name: str, label: str, comparison: ModelComparison) -> Html:
    rows: list[Child] = []
    for place, guess in enumerate(found.top):
        right = comparison.is_right(guess.label, label) if label else None
        wrong = place == 0 and right is False
        sign = icon("check") if right else None
        rows.append(
            el(
                "li",
                el("span", sign, guess.label, class_="label"),
                el("span", el("i", style=f"width:{round(100 * guess.probability)}%"), class_="track"),
                el("span", f"{guess.probability:.2f}", class_="figure"),
                class_=f"{'right' if right else ''}{'wrong' if wrong else ''}" or None,
            )
        )
    return el("div", el("h3", name), el("ol", rows), data_side=name)


def _classes(figures: tuple[ClassFigures, ...], masked: bool) -> Child:
    if not figures:
        return muted("It knows none of the protected classes of this task.")
    rows = [
        value_row(
            figure.name,
            _figure(figure.source),
            el("b", _figure(figure.generated), " ", icon("target"), class_="dropped", title="Lost here")
            if figure.dropped
            else _figure(figure.generated),
        )
        for figure in figures
    ]
    note = (
        "How well its class map covers the mask: intersection over union, 1 is perfect."
        if masked
        else "There is no mask: how well its map of the generated image agrees with its map of the source."
    )
    table = el("table", el("tr", el("th", "class"), el("th", "source"), el("th", "generated")), rows, id="class-table")
    return [table, small(note)]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _short(wanted: UnderTestSettings | None) -> str:
    if wanted is None:
        return ""
    if wanted.source == "http":
        return wanted.address
    if wanted.file:
        file = wanted.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{wanted.name} · {file}" if wanted.name else file
    return f"{wanted.name} of {wanted.source}"


def _chooser(state: RunState) -> Html:
    chosen, kind = state.settings.under_test, state.run.task.kind
    hint = (
        "Any classifier of torchvision, timm or the hub, and any segmenter of torchvision or the hub; weights are "
        "fetched at first use. A file (.safetensors, .pt, .pth, .onnx, or a folder of transformers) is read on the "
        "machine that serves this page; the name of a checkpoint is its architecture, unless the file says it. "
        "An ONNX file needs its mean and std, unless the file says them."
    )
    form = el(
        "div",
        el("div", id=f"trained-of-{kind}", data_trained_of=kind, data_own=True, class_="trained-of"),
        model_fields(chosen, with_profile=True),
        small(hint),
        button("Use it", "", "s p", data_submit=True),
        class_="choose",
        data_form="under-test",
    )
    said = hashlib.sha256(chosen.model_dump_json().encode()).hexdigest()[:12]
    return el(
        "details",
        el("summary", "Choose another"),
        form,
        class_="choose-model",
        id="choose-model",
        data_key=f"choose-{state.run.id}-{said}",
    )
