"""Beside the set-up: what the plan will be able to say, what is missing before the start, and the start itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study.power import Plan, items_for, plan
from study.readiness import Finding
from study.types import Rules, Study
from ui.study.drafts import NumberField, Trouble, read_number
from ui.study.fields import field, number_input
from ui.study.frame import study_address
from ui.study.posting import FieldError
from ui.views.markup import Child, Html, el
from ui.views.parts import button, icon


@dataclass(frozen=True)
class Assumptions:
    """What a person expects before the first vote. Shares 0 to 1, minutes of an annotator, width 0 to 1."""

    valid: float = 0.95
    accuracy: float = 0.95
    minutes: float = 30.0
    width: float = 0.05


_FIELDS = (
    NumberField("valid", 0, 100, whole=False, percent=True),
    NumberField("accuracy", 50, 100, whole=False, percent=True),
    NumberField("minutes", 0.5, 600, whole=False),
    NumberField("width", 0.5, 99, whole=False, percent=True),
)


def read_assumptions(data: Mapping[str, Any]) -> Assumptions:
    """What was typed. Raises FieldError."""
    read: dict[str, float] = {}
    for held in _FIELDS:
        if held.name in data:
            try:
                read[held.name] = float(read_number(data[held.name], held))
            except ValueError as error:
                raise FieldError(f"plan.{held.name}", str(error)) from error
    return Assumptions(**read)


def assumptions_form(assumed: Assumptions) -> Html:
    """The fields whose values the figures go by; nothing of them is part of the study."""
    own: dict[str, str | int | bool | None] = {"data_no_save": True, "data_plan": True}
    return el(
        "div",
        field("plan.valid", "Expected valid", number_input("plan.valid", 100 * assumed.valid, "%", **own), {}),
        field(
            "plan.accuracy", "A vote is right", number_input("plan.accuracy", 100 * assumed.accuracy, "%", **own), {}
        ),
        field("plan.minutes", "A person gives", number_input("plan.minutes", assumed.minutes, "min", **own), {}),
        field("plan.width", "Interval wanted", number_input("plan.width", 100 * assumed.width, "points", **own), {}),
        class_="assumed",
    )


def plan_figures(rules: Rules, items: int, assumed: Assumptions) -> Html:
    """The figures of a plan, or in words why there are none."""
    try:
        wanted = items_for(assumed.width, rules, assumed.valid, assumed.accuracy)
        told = f"An interval of {100 * assumed.width:g} points takes {wanted:,} images."
        if not items:
            return _plan_part(el("p", "Add images to see what they will be able to say. ", told, class_="mut"))
        planned = plan(items, rules, assumed.valid, assumed.accuracy, assumed.minutes)
    except ValueError as error:
        return _plan_part(el("p", str(error), class_="mut"))
    tiles = [
        _tile(f"{100 * planned.width:.1f} points", "width of the 95 % interval"),
        _tile(f"{100 * planned.low:.1f} to {100 * planned.high:.1f} %", "the interval to expect"),
        _tile(str(planned.annotators), "annotators"),
        _tile(_minutes(planned.minutes_each), f"each, for {planned.items_each} images"),
    ]
    return _plan_part(
        _scale(planned),
        el("div", tiles, class_="figures"),
        el("p", planned.words, class_="mut small"),
        el("p", told, class_="mut small"),
    )


def _plan_part(*content: Child) -> Html:
    return el("div", content, id="part-plan", class_="plan")


def _tile(figure: str, words: str) -> Html:
    return el("div", el("b", figure), el("span", words, class_="mut small"))


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def _scale(planned: Plan) -> Html:
    """The expected interval on a line from 0 to 100 %."""
    low, high, rate = (100 * share for share in (planned.low, planned.high, planned.rate))
    words = f"expected: {rate:.1f} %, interval {low:.1f} to {high:.1f} %"
    line = (
        f'<svg viewBox="0 0 400 34" class="interval" role="img" aria-label="{words}">'
        '<line x1="8" y1="12" x2="392" y2="12" class="base"/>'
        f'<line x1="{_x(low)}" y1="12" x2="{_x(high)}" y2="12" class="span"/>'
        f'<circle cx="{_x(rate)}" cy="12" r="5" class="point"/>'
    )
    marks = "".join(
        f'<text x="{_x(at)}" y="31" text-anchor="{place}">{at} %</text>'
        for at, place in ((0, "start"), (50, "middle"), (100, "end"))
    )
    return Html(f"{line}{marks}</svg>")


def _x(percent: float) -> str:
    return f"{8 + 3.84 * percent:.1f}"


def missing_part(study: Study, troubles: Sequence[Trouble], found: Sequence[Finding]) -> Html:
    """What stops the start, what a lead should know, and the buttons."""
    stops: list[Trouble | Finding] = [*troubles, *(finding for finding in found if finding.stops)]
    notes = [finding for finding in found if not finding.stops]
    lines = [
        _line(entry.field, entry.words if isinstance(entry, Trouble) else entry.text, "cross", "stop")
        for entry in stops
    ]
    lines += [_line(entry.field, entry.text, "alert", "note") for entry in notes]
    if not stops:
        lines.insert(0, el("li", icon("check"), el("span", "Everything that a start needs is there."), class_="fine"))
    return el(
        "div",
        el("h2", "Before the start"),
        el("ul", lines, class_="missing"),
        el(
            "div",
            el("a", "Preview", href=study_address(study.id, "preview"), class_="btn", target="_blank", id="preview"),
            button("Start the study …", look="p", data_act="start", id="start", disabled=bool(stops)),
            class_="acts",
        ),
        id="part-missing",
        class_="before",
    )


def _line(name: str, text: str, sign: str, look: str) -> Html:
    link = el("button", text, type="button", class_="linked", data_go_to=name)
    return el("li", icon(sign), link, class_=look)
