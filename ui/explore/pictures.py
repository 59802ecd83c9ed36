"""The picture column put together: the large picture with its review, all results below, then what is known of it."""

from __future__ import annotations

from core.stored_runs import StoredTestCase
from core.types import failed
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.checks import findings
from ui.explore.drawing import MODE as DRAWING
from ui.explore.drawing import drawing_figure, drawing_thumb
from ui.explore.large import View, large_picture, mode_bar, source_picture, usable_mode
from ui.explore.parts import seconds, short_model
from ui.explore.review import review_bar
from ui.explore.strip import strip, strip_of
from ui.explore.under_test import under_test_card
from ui.markup import Html
from ui.templating import render


def picture_column(state: RunState, view: View, comparison: ModelComparison) -> Html:
    """Show a result, or what is being drawn, with all that is known of it; the source while there is no result."""
    held = strip_of(state, comparison, view.only)
    case = next((made for made in held.all if made.id == view.case), held.first)
    if case is None:
        return render(
            "explore/source_only.html",
            figure=drawing_figure(state) or source_picture(state),
            drawing=drawing_thumb(state),
            under_test=under_test_card(state, None, comparison),
        )
    mode = usable_mode(view.mode, state, case, comparison)
    drawn = drawing_figure(state) if view.follow or view.mode == DRAWING else None
    # What is not there yet can be neither checked nor judged.
    viewer = [mode_bar(state, case, comparison, DRAWING), drawn]
    if drawn is None:
        viewer = [
            mode_bar(state, case, comparison, mode),
            large_picture(state, case, comparison, mode),
            findings(state, case, comparison),
            review_bar(state.run, case, held.next_unreviewed(case)),
        ]
    return render(
        "explore/pictures.html",
        run=state.run,
        case=case,
        viewer=viewer,
        strip=strip(state, held, case, comparison, drawn is not None),
        under_test=under_test_card(state, case, comparison),
        pieces=shortened(word_diff(state.caption, case.lineage.counterfactual.text)),
        notes=[check.note for check in failed(comparison.checks(case)) if check.note],
        made=_made_by(state, case),
    )


def _made_by(state: RunState, case: StoredTestCase) -> str:
    """Model, steps, seed and seconds of an image."""
    lineage, steps = case.lineage, case.lineage.settings.steps
    pace = "" if steps is None else f"{steps} steps · "
    model = short_model(lineage.model, state.model_names)
    return f"{model} · {pace}seed {lineage.seed} · {seconds(lineage.seconds)}"
