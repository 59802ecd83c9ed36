"""The picture column put together: the large picture with its review, all results below, then what is known of it."""

from __future__ import annotations

from core.stored_runs import StoredTestCase
from core.types import StageName, failed
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.checks import checks_list, verdict_line
from ui.explore.drawing import MODE as DRAWING
from ui.explore.drawing import drawing_figure, drawing_thumb
from ui.explore.large import View, large_picture, mode_bar, source_picture, usable_mode
from ui.explore.parts import button, differences, seconds, short_model, small
from ui.explore.review import review_bar
from ui.explore.saving import save_links
from ui.explore.strip import strip, strip_of
from ui.explore.under_test import under_test_card
from ui.markup import Child, Html, el

STAGE: StageName = "generation"


def picture_column(state: RunState, view: View, comparison: ModelComparison) -> Html:
    """Everything in it."""
    held = strip_of(state, comparison, view.only)
    case = next((made for made in held.all if made.id == view.case), held.first)
    if case is None:
        return el("div", _source_only(state), under_test_card(state, None, comparison), class_="pictures")
    mode = usable_mode(view.mode, state, case, comparison)
    drawn = drawing_figure(state) if view.follow or view.mode == DRAWING else None
    # What is not there yet can be neither checked nor judged.
    viewer: list[Child] = [mode_bar(state, case, comparison, DRAWING), drawn]
    if drawn is None:
        viewer = [
            mode_bar(state, case, comparison, mode),
            large_picture(state, case, comparison, mode),
            verdict_line(case, comparison),
            checks_list(state, case, comparison),
            review_bar(state.run, case, held.next_unreviewed(case)),
        ]
    parts: list[Child] = [
        el("div", viewer, class_="card viewer", id="viewer"),
        strip(state, held, case, comparison, drawn is not None),
        under_test_card(state, case, comparison),
        _facts(state, case, comparison),
    ]
    return el("div", parts, class_="pictures", data_case=case.id)


def _source_only(state: RunState) -> Html:
    note = "Results will stand here, beside the source image."
    waiting = drawing_thumb(state)
    return el(
        "div",
        drawing_figure(state) or source_picture(state),
        el("p", note, class_="mut pad") if waiting is None else el("div", waiting, class_="thumbs pad"),
        class_="card",
    )


def _facts(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    pieces = word_diff(state.caption, case.lineage.counterfactual.text)
    lineage = case.lineage
    model, steps = short_model(lineage.model, state.model_names), lineage.settings.steps
    pace = "" if steps is None else f"{steps} steps · "
    made = f"{model} · {pace}seed {lineage.seed} · {seconds(lineage.seconds)}"
    reuse = button(
        "Reuse seed",
        "reuse-seed",
        "s q",
        id="reuse-seed",
        title=f"Generate the next images with the seed of this one ({lineage.seed})",
        data_case=case.id,
    )
    notes = [small(check.note) for check in failed(comparison.checks(case)) if check.note]
    return el(
        "div",
        el("p", differences(shortened(pieces)), class_="diff"),
        notes,
        el(
            "div",
            el("span", made, class_="mut small"),
            el("span", class_="grow"),
            reuse,
            save_links(state.run, case),
            class_="line-end",
        ),
        class_="card facts",
    )
