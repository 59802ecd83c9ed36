"""The picture column put together: the large picture with its review, all results below, then what is known of it."""

from __future__ import annotations

from evaluation.metrics import MASK_KEPT
from pipeline.check_words import words_of
from pipeline.checks import failed
from pipeline.types import Check, Outcome, StageName
from services.predictions import ModelComparison
from services.run_state import RunState
from storage.types import StoredTestCase
from ui.diff import shortened, word_diff
from ui.views.drawing import MODE as DRAWING
from ui.views.drawing import drawing_figure, drawing_thumb
from ui.views.large import View, edit_words, image_url, large_picture, mode_bar, source_picture, usable_mode
from ui.views.markup import Child, Html, el
from ui.views.parts import Tone, button, differences, icon, key, pill, seconds, short_model
from ui.views.review import review_badge, review_bar
from ui.views.saving import save_accepted, save_links
from ui.views.text_stages import caption_text
from ui.views.under_test import under_test_card, verdict_pill

__all__ = ["View", "edit_words", "image_url", "picture_column"]

STAGE: StageName = "generation"
OUTCOMES: dict[Outcome, tuple[Tone, str]] = {
    "passed": ("ok", "check"),
    "failed": ("bad", "cross"),
    "cannot tell": ("", "question"),
}
"""The tone and the icon of what a check found: a tick says that the image is right in this, and nothing else."""
OUTCOME_WORDS: dict[Outcome, str] = {
    "passed": "Passed",
    "failed": "Failed",
    "cannot tell": "Cannot tell here",
}


def picture_column(state: RunState, view: View, comparison: ModelComparison) -> Html:
    """Everything in it."""
    cases = state.run.test_cases
    case = next((held for held in cases if held.id == view.case), cases[-1] if cases else None)
    if case is None:
        return el("div", _source_only(state), class_="pictures")
    mode = usable_mode(view.mode, state, case, comparison)
    drawn = drawing_figure(state) if view.mode == DRAWING else None
    # What is not there yet can be neither checked nor judged.
    viewer: list[Child] = [mode_bar(state, case, comparison, DRAWING), drawn]
    if drawn is None:
        viewer = [
            mode_bar(state, case, comparison, mode),
            large_picture(state, case, comparison, mode),
            _checks(state, case, comparison),
            review_bar(state.run, case),
        ]
    parts: list[Child] = [
        el("div", viewer, class_="card viewer", id="viewer"),
        _thumbnails(state, case, comparison, drawn is not None),
        under_test_card(state, case, comparison),
        _facts(state, case, comparison),
    ]
    return el("div", parts, class_="pictures", data_case=case.id)


def _source_only(state: RunState) -> Html:
    note = "Results will stand here, beside the source image and its control image."
    waiting = drawing_thumb(state)
    return el(
        "div",
        drawing_figure(state) or source_picture(state),
        el("p", note, class_="mut pad") if waiting is None else el("div", waiting, class_="thumbs pad"),
        class_="card",
    )


def _checks(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    """What the checks found, a pill each; told apart by their mark and not by colour alone."""
    pills: list[Child] = []
    if case.id in state.outdated:
        pills.append(pill(state.outdated[case.id], "warn", id="outdated"))
    for check in comparison.checks(case):
        tone, sign = OUTCOMES[check.outcome]
        figure = "" if check.value is None else f" {check.value:.2f}"
        pills.append(
            pill(
                [icon(sign), f"{words_of(check).title}{figure}"],
                tone,
                title=_explained(check),
                data_outcome=check.outcome,
            )
        )
    if unmeasured := comparison.unmeasured(case):
        pills.append(pill(f"{MASK_KEPT}: {unmeasured}", title="How well a segmenter under test still finds the mask"))
    pills.append(verdict_pill(case, comparison))
    return el("div", pills, class_="tags checks", id="checks")


def _explained(check: Check) -> str:
    """The outcome with its reason, what had to be reached, and what the check looks at."""
    wanted = "" if check.threshold is None else f"At least {check.threshold:.2f} passes."
    outcome = f"{OUTCOME_WORDS[check.outcome]}."
    return " ".join(part for part in (outcome, check.note, wanted, words_of(check).explanation) if part)


def _facts(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    pieces = word_diff(caption_text(state), case.lineage.counterfactual.text)
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
    notes = [el("p", check.note, class_="mut small") for check in failed(comparison.checks(case)) if check.note]
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


def _thumbnails(state: RunState, shown: StoredTestCase, comparison: ModelComparison, following: bool) -> Html:
    thumbs: list[Child] = [drawing_thumb(state, following)]
    for case in reversed(state.run.test_cases):
        verdict = case.review.verdict if case.review is not None else ""
        on = " on" if case.id == shown.id and not following else ""
        looks = f"thumb{on}{' old' if case.id in state.outdated else ''} {verdict}"
        failure = None
        if case.id in comparison.newly_misclassified:
            words = "The model under test fails here"
            failure = el("span", icon("alert"), class_="model-fails", title=words, role="img", aria_label=words)
        thumbs.append(
            el(
                "button",
                el("img", src=image_url(case.image_sha), alt=f"Generated image: {case.lineage.counterfactual.text}"),
                review_badge(case, state.run.task),
                failure,
                el("span", edit_words(case), class_="words"),
                type="button",
                class_=looks.strip(),
                data_view_case=case.id,
                data_key=f"case-{case.id}",
                title=case.lineage.counterfactual.text,
            )
        )
    number = len(state.run.test_cases)
    head = el(
        "header",
        el("h2", _count(state), id="results-count"),
        el("span", class_="grow"),
        save_accepted(state.run),
        el("span", key("←"), " ", key("→"), class_="mut") if number > 1 else None,
    )
    return el("section", head, el("div", thumbs, class_="thumbs", id="results"), class_="results")


def _count(state: RunState) -> str:
    """Such as: 6 results, 3 accepted, 1 rejected."""
    cases = state.run.test_cases
    words = [f"{len(cases)} result" if len(cases) == 1 else f"{len(cases)} results"]
    ours = [case for case in cases if case.task == state.run.task]
    for verdict in ("accepted", "rejected"):
        number = sum(case.review is not None and case.review.verdict == verdict for case in ours)
        words += [f"{number} {verdict}"] if number else []
    if len(ours) < len(cases):
        words.append(f"{len(cases) - len(ours)} made for another task")
    return ", ".join(words)
