"""The page of one batch as markup, with all that is told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.batches import FailedGroup
from core.image_filter import ImageFilter
from core.words import count_of, duration
from services.batches.estimate import Estimate, amount
from services.batches.sample_look import SampleLook
from services.batches.service import BatchDetails, BatchStatus, CaptionSample, PassStatus, State
from services.curation.views import gallery_address
from ui.batches.words import BATCHES, NEW, SCRIPTS, SHEETS, about, counts_words, pass_bar, rate, state_words
from ui.diff import shortened, word_diff
from ui.evaluate.words import evaluate_address
from ui.explore.parts import (
    UNKNOWN_PICTURE,
    acts,
    button,
    differences,
    heading,
    muted,
    page_head,
    pill,
    problem,
    small,
    thumb_url,
    unknown_pictures,
)
from ui.frame import page
from ui.markup import Child, Html, el
from ui.study.fields import card

CHART_HEIGHT = 72
"""Pixels."""
REASONS = 3
"""Maximum number of reasons that are shown for pictures that cannot be used."""
EDIT_PLAN = "Edit and plan again"
EDITABLE: tuple[State, ...] = ("unplanned", "new", "cancelled")
"""States in which nothing goes on, so that the plan may be edited and planned as another batch."""


def batch_page(details: BatchDetails, signed_in: bool) -> str:
    """All that is told of one batch."""
    view = details.status
    shown = parts(details)
    content = el(
        "div",
        shown["part-head"],
        el("p", "", class_="wrong", data_problem="", role="alert", id="said"),
        shown["part-problem"],
        shown["part-look"],
        shown["part-approve"],
        el(
            "div",
            el("div", shown["part-progress"], shown["part-latest"], class_="column"),
            el("div", shown["part-figures"], shown["part-failures"], shown["part-notes"], _plan(view), class_="column"),
            class_="batch-columns",
        ),
        id="batch",
        data_batch=view.batch.id,
    )
    return page(view.batch.name, content, here="batches", signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def parts(details: BatchDetails) -> Mapping[str, Html]:
    """What changes on the page of a batch, by the ids of the parts."""
    view = details.status
    return {
        "part-head": _head(view),
        "part-problem": el("div", problem(view.problem) if view.problem else None, id="part-problem"),
        "part-look": _look(details),
        "part-approve": _approve(details),
        "part-progress": _progress(details),
        "part-latest": _latest(details),
        "part-figures": _figures(details),
        "part-failures": _failures(view, details.failures),
        "part-notes": _notes(view),
    }


def _head(view: BatchStatus) -> Html:
    words, tone = state_words(view)
    return page_head(
        "All batches",
        BATCHES,
        [
            el("h1", view.batch.name),
            pill(words, tone, id="state", data_state=view.state),
            el("span", about(view), class_="mut"),
            el("span", class_="grow"),
            _acts(view),
        ],
        muted(_meaning(view)),
        id="part-head",
        class_="batch-head",
    )


def _acts(view: BatchStatus) -> list[Child]:
    """What can be done with it now."""
    begin = {"new": "Begin", "paused": "Go on", "stopped": "Go on", "cancelled": "Take it up again"}.get(view.state)
    cancels = view.state in ("new", "waiting", "running", "approval", "paused", "stopped")
    pause = {"running": "Pause", "waiting": "Take it out of the queue"}.get(view.state)
    return [
        _send(begin, "begin-batch", "p") if begin else None,
        _send(pause, "pause-batch") if pause else None,
        _edit_plan(view, "p" if view.state == "unplanned" else "") if view.state in EDITABLE else None,
        el(
            "details",
            el("summary", "Cancel …", class_="btn q", id="cancel"),
            el(
                "div",
                el("p", "Nothing more is made of it. What was made stays, and you can take it up again."),
                _send("Cancel the batch", "cancel-batch", "bad"),
                class_="card confirm",
            ),
            class_="cancel",
        )
        if cancels
        else None,
    ]


def _send(words: str, command: str, look: str = "", **data: str) -> Html:
    return button(words, look=look, data_send=command, id=command, **data)


def _meaning(view: BatchStatus) -> str:
    """What its state means, and what can be done now."""
    elsewhere = "" if view.here else " Another process on this machine works on it; Pause asks it to stop."
    return {
        "unplanned": "Its images were not all chosen. Plan it again, and it goes on.",
        "new": "Captions are written first; no image is drawn before you have seen some of them.",
        "waiting": "Another batch is at work here. This one begins when that one is done, or pauses.",
        "running": f"Pause stops it within seconds; what is not finished is made when it goes on.{elsewhere}",
        "stopping": f"What is not finished is made when it goes on.{elsewhere}",
        "approval": "All captions are written. No image is drawn before your yes.",
        "paused": "Go on takes it up where it was: nothing is made twice.",
        "stopped": "It stopped before its end, perhaps with the studio. Go on takes it up where it was.",
        "cancelled": "Nothing more is made of it. What was made stays.",
        "done": "All is made that could be made.",
    }[view.state]


def _look(details: BatchDetails) -> Html:
    """What a look at some source images tells before it begins: those that cannot be used, and unknown pictures."""
    look, total = details.look, details.status.sources
    if look is None:
        return el("div", id="part-look")
    of = f"{count_of(look.looked_at, 'picture')}{' looked at' if look.looked_at < total else ''}"
    shown: list[Child] = []
    for reason, number in list(look.problems.items())[:REASONS]:
        shown.append(
            el("p", el("b", f"{number} of {of} cannot be used."), f" {reason}", class_="problem", role="alert")
        )
    if look.unknown:
        shown.append(unknown_pictures(len(look.unknown), of))
    return el("div", shown, id="part-look")


def _edit_plan(view: BatchStatus, look: str = "s") -> Html:
    """The way back from a plan that did not do."""
    return el("a", EDIT_PLAN, href=f"{NEW}?like={view.batch.id}", class_=f"btn {look}")


def _approve(details: BatchDetails) -> Html:
    """A sample of the captions, and the person's yes."""
    view, found = details.status, details.estimate
    if view.state != "approval":
        return el("section", id="part-approve")
    if not view.images.left:
        words = "No caption was written that could be drawn: see what failed, then try it again or edit the plan."
        return el("section", el("p", words, class_="notice"), id="part-approve")
    images = count_of(view.images.left, "image")
    return card(
        None,
        "Look at some of the captions",
        el("div", [_sampled(one, details.look) for one in details.sample], class_="sampled"),
        muted(_drawing_takes(found)) if found is not None else None,
        acts(
            _send(f"Approve and draw {images}", "approve-batch", "p"),
            el(
                "span",
                "Edit one in Explore, and it is drawn as you leave it. If all of them are not what you want, cancel "
                "the batch and plan another one.",
                class_="mut small",
            ),
        ),
        lead=f"{images} would be drawn; these {len(details.sample)} captions were picked by lot. What is crossed out "
        "stood in the caption of the source image, what is marked is new.",
        id="part-approve",
    )


def _drawing_takes(found: Estimate) -> str:
    """What the images are likely to take: time, disk and money."""
    _, _, *further = found.words()
    if (hours := found.hours_by_stage["images"]) is None:
        return "How long it takes, nobody can tell: no image was drawn with these models and settings here before."
    workers = count_of(found.workers, "worker")
    return f"It takes about {duration(3600 * hours)} with {workers}. {' '.join(further)}"


def _sampled(one: CaptionSample, look: SampleLook | None) -> Html:
    shown = differences(shortened(word_diff(one.caption, one.new_caption))) if one.caption else Html("")
    unknown = look is not None and one.key in look.unknown
    return el(
        "div",
        el("img", src=thumb_url(one.source_sha), alt=f"Source image {one.key}", width=64, height=64, loading="lazy"),
        el("p", shown or one.new_caption),
        el(
            "small",
            el(
                "span",
                one.key,
                f" · {one.edits}" if one.edits else "",
                pill(UNKNOWN_PICTURE, "warn") if unknown else None,
            ),
            el("a", "Edit", href=f"/?run={one.run}", title="Open it in Explore: what you change there is drawn"),
            class_="mut",
        ),
        class_="sample-line",
    )


def _progress(details: BatchDetails) -> Html:
    view = details.status
    rows = [_pass_row(view, one) for one in view.passes]
    return card(None, "Progress", el("div", rows, class_="passes"), _chart(details), id="part-progress")


def _pass_row(view: BatchStatus, one: PassStatus) -> Html:
    here = one.stage == view.batch.stage
    told = [counts_words(one)]
    if here and view.state == "running":
        if one.seconds_left is not None:
            told.append(f"about {duration(one.seconds_left)} left")
        elif one.left:
            begun = one.number("done") or one.number("failed")
            told.append("time left: measuring" if begun else "starting: workers load their models")
    return el(
        "div",
        el("b", one.title),
        el("span", " · ".join(told), class_="mut told"),
        pass_bar(one),
        class_="pass on" if here else "pass",
        data_pass=one.stage,
    )


def _chart(details: BatchDetails) -> Html | None:
    """How much was done in each minute of the last hour."""
    hour, current = details.hour, details.status.current
    most = max(hour)
    if not most:
        return None
    said = f"{current.title} in the last hour: {sum(hour):,} done, at most {most:,} in a minute"
    columns = [
        el(
            "rect",
            el("title", f"{59 - place} min ago: {number:,}" if place < 59 else f"this minute: {number:,}"),
            x=f"{100 * place / 60:.3f}%",
            y=f"{CHART_HEIGHT * (1 - number / most):.1f}",
            width="1.3%",
            height=f"{CHART_HEIGHT * number / most:.1f}",
            rx=1,
        )
        for place, number in enumerate(hour)
        if number
    ]
    now = rate(current.a_minute) if current.a_minute and details.status.state == "running" else None
    return el(
        "figure",
        el(
            "figcaption",
            el("span", "Done a minute, the last hour"),
            el("b", now) if now is not None else None,
            el("span", f"at most {most:,} in a minute", class_="mut"),
        ),
        el("svg", el("title", said), columns, height=CHART_HEIGHT, role="img", aria_label=said, class_="throughput"),
        el("div", el("span", "an hour ago"), el("span", "now"), class_="axis mut small"),
        class_="chart",
    )


def _costs(view: BatchStatus) -> tuple[tuple[str, str, str], ...]:
    """Name, figure and remark of what a batch costs; () if its plan names no price."""
    if view.cost is None:
        return ()
    each, share = view.cost_of_valid, view.share_valid
    if each is None:
        of_each = "cannot tell yet"
        why = "studies find none of them valid" if share is not None else "no image was accepted yet"
    else:
        of_each, why = amount(each, view.currency), f"by {count_of(view.accepted, 'image')} that people accepted"
        if share is not None:
            why += f", of which studies find {100 * share:.0f} % valid ({view.valid} of {view.valid + view.invalid})"
    return (
        ("Cost so far", amount(view.cost, view.currency), "the hours of work so far, by the clock"),
        ("Per valid test case", of_each, why),
    )


def _figures(details: BatchDetails) -> Html:
    view = details.status
    reviewed = view.accepted + view.rejected
    figures = (
        ("Images", f"{view.images.number('done'):,}", f"of {view.images.total:,} planned" if view.images.total else ""),
        ("Accepted", f"{view.accepted:,}", f"of {reviewed:,} judged" if reviewed else "none was judged yet"),
        *_costs(view),
    )
    return card(
        None,
        "Figures",
        el(
            "div",
            [
                el("div", el("small", name, class_="mut"), el("b", value), el("small", more, class_="mut"))
                for name, value, more in figures
            ],
            class_="figures",
        ),
        _estimate(details.estimate) if details.estimate is not None and view.state != "approval" else None,
        id="part-figures",
    )


def _estimate(found: Estimate) -> Html:
    return el("div", el("h3", "What is left takes"), [el("p", words) for words in found.words()], class_="estimate")


def _failures(view: BatchStatus, groups: Sequence[FailedGroup]) -> Html:
    """What failed, by reason, to be tried again; then what was left out, and why."""
    if not groups:
        return el("section", id="part-failures")
    failed = [group for group in groups if group.state == "failed"]
    out = [group for group in groups if group.state != "failed"]
    again = view.here or not view.at_work
    every = _send("Try all again", "retry-batch", "s") if again and len(failed) > 1 else None
    return card(
        None,
        "What failed" if failed else "What was left out",
        [_group(group, again) for group in failed],
        acts(every, _edit_plan(view)) if failed else None,
        el("h3", "Left out") if failed and out else None,
        [_group(group, again=False) for group in out],
        id="part-failures",
    )


def _group(group: FailedGroup, again: bool) -> Html:
    examples = ", ".join(group.examples)
    more = " and others" if group.number > len(group.examples) else ""
    return el(
        "div",
        el("b", f"{group.number:,}"),
        el("div", el("p", group.reason), el("small", f"{examples}{more}", class_="mut")),
        button("Try again", look="s", data_send="retry-batch", data_reason=group.reason) if again else None,
        class_="failed-group" if group.state == "failed" else "failed-group out",
    )


def _latest(details: BatchDetails) -> Html:
    if not details.latest:
        return el("section", id="part-latest")
    shots = [
        el(
            "a",
            el("img", src=thumb_url(sha), width=160, height=160, alt=f"Test case {case}", loading="lazy"),
            href=f"/?run={run}&image={case}",
            title="Open in Explore",
            data_case=case,
        )
        for case, sha, run in details.latest
    ]
    return el(
        "section",
        heading(
            "Latest images",
            el("a", "See all of them in Curate", href=_in_curate(details.status), class_="btn s", id="to-curate"),
            el("a", "Evaluate a model on them", href=_in_evaluate(details.status), class_="btn s", id="to-evaluate"),
            class_="card-head",
        ),
        el("div", shots, class_="latest"),
        small("Each opens in Explore with its whole history."),
        class_="card part",
        id="part-latest",
    )


def _in_curate(view: BatchStatus) -> str:
    """Where the gallery shows what this batch has made, and nothing else."""
    return gallery_address(ImageFilter(facets={"batch": (view.batch.facet,)}))


def _in_evaluate(view: BatchStatus) -> str:
    """Where a model under test is asked about what this batch has made, and nothing else."""
    return evaluate_address(filter=ImageFilter(facets={"batch": (view.batch.facet,)}).address)


def _notes(view: BatchStatus) -> Html:
    if not view.batch.notes:
        return el("section", id="part-notes")
    return card(None, "How it was chosen", el("ul", [el("li", note) for note in view.batch.notes]), id="part-notes")


def _plan(view: BatchStatus) -> Html:
    return el(
        "details",
        el("summary", "The plan"),
        el("pre", el("code", view.batch.plan), class_="code-block"),
        _edit_plan(view),
        class_="card part more-line",
        id="plan",
    )
