"""What a person decides about a result: accept it, reject it with a reason, take that back, or try again."""

from __future__ import annotations

from core.stored_runs import Review, Run, StoredTestCase
from core.types import Task
from ui.explore.parts import button, icon, key, pill, press
from ui.markup import Child, Html, el

REASONS: dict[str, tuple[str, ...]] = {
    "classification": ("label no longer right", "edit does not show", "not realistic", "other"),
    "segmentation": ("protected class lost", "edit does not show", "not realistic", "other"),
}
"""The usual reasons for a rejection, by the kind of task; the keys 1 to 4 stand for them while they are shown."""


def review_bar(run: Run, case: StoredTestCase, following: StoredTestCase | None = None) -> Html:
    """What was decided, and the buttons. `following` is the next result to be judged, where there is one."""
    review = case.review
    data = {"data_case": case.id}
    parts: list[Child] = [] if review is None else [_decided(review, case.task, run.task)]
    if review is None or review.verdict != "accepted":
        parts.append(
            button(
                [icon("check"), "Accept", key("A")],
                "review",
                "p" if review is None else "s",
                id="accept",
                data_verdict="accepted",
                title="A valid test case: the edit shows and what the task needs is still there",
                **data,
            )
        )
    if review is None or review.verdict != "rejected":
        parts.append(
            press(
                "Reject",
                key("R"),
                class_="btn" if review is None else "btn s",
                id="reject",
                data_reject=True,
                aria_expanded="false",
                title="Say why it is no valid test case",
            )
        )
    if review is not None:
        parts.append(button(["Take back", key("U")], "review", "s", id="take-back", data_verdict="open", **data))
    parts += [
        button(
            ["New seed", key("S")],
            "regenerate",
            "s",
            id="regenerate",
            title="Draw the same caption again with another seed",
            **data,
        ),
        button(
            ["Edit caption", key("E")],
            look="s",
            id="edit-caption",
            data_again=case.lineage.counterfactual.text,
            title="Change the caption that it was drawn from and go round again",
        ),
    ]
    return el(
        "div",
        el("div", parts, _go_on(), class_="buttons"),
        _reject_form(case.task, case),
        class_="review",
        id="review",
        data_key=f"review-{case.id}",
        data_next=following.id if following is not None else None,
    )


def _go_on() -> Html:
    """The switch that has a verdict lead on; the browser keeps it."""
    return el(
        "label",
        el("span", "then on to the", class_="word"),
        "next",
        el("input", type="checkbox", id="go-on-next", data_own=True),
        class_="go-on mut",
        title="After a verdict, go on to the next result that is not reviewed",
    )


def review_badge(case: StoredTestCase, now: Task) -> Child:
    """The mark on a thumbnail: a word and a sign, not a colour alone. `now` is the task of the run by now."""
    review = case.review
    if review is None:
        return None
    accepted = review.verdict == "accepted"
    sign = icon("check" if accepted else "cross")
    words = _verdict_words(review, case.task, now)
    title = f"{words}: {review.reason}" if review.reason else words
    return el("span", sign, words, class_=f"badge {review.verdict}", title=title)


def _verdict_words(review: Review, task: Task, now: Task) -> str:
    """The verdict, with what it was given for where the run has another task by now."""
    if task == now:
        return review.verdict
    return f"{review.verdict} for {task.label if task.kind == 'classification' else 'other classes'}"


def _decided(review: Review, task: Task, now: Task) -> Html:
    accepted = review.verdict == "accepted"
    reason = f": {review.reason}" if review.reason and not accepted else ""
    words = f"{_verdict_words(review, task, now)}{reason}"
    sign = icon("check" if accepted else "cross")
    return pill([sign, el("span", words)], "ok" if accepted else "bad", id="verdict", role="status", title=words)


def _reject_form(task: Task, case: StoredTestCase) -> Html:
    chips = [
        button(
            [reason, key(str(number))],
            "review",
            "chip reason",
            data_case=case.id,
            data_verdict="rejected",
            data_reason=reason,
        )
        for number, reason in enumerate(REASONS[task.kind], 1)
    ]
    own = el(
        "span",
        el(
            "input",
            type="text",
            name="reason",
            placeholder="or in your own words",
            maxlength=300,
            aria_label="Why it is rejected",
            data_fresh=True,
        ),
        button("Reject", "", "s p", data_submit=True),
        class_="own-words",
    )
    return el(
        "div",
        el("span", "Why?", class_="mut"),
        chips,
        own,
        class_="pop wide why",
        data_form="review",
        data_case=case.id,
        data_verdict="rejected",
        role="group",
        aria_label="Why it is rejected",
    )
