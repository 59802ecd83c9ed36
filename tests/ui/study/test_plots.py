"""The plots of a study's results: each mark in its place, and the figures in words."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from core.studies import SCALE
from core.study_report import Slice
from study.agreement import agreement
from study.intervals import bounds, wilson
from study.results import analyse
from tests.support.study_data import START, excluded, simple
from ui import templating
from ui.study.plots import AGREEMENT, Axis, share_axis, votes_over_time, worker_scatter


def plot(name: str, *values: object) -> str:
    """Return a plot as the pages of a study show it."""
    template = templating._environment().get_template("study/plots.html")
    return str(getattr(template.module, name)(*values))


def interval(part: Slice, axis: Axis, before: Slice | None = None) -> str:
    return plot("interval", part, axis, before)


def part(valid: int, decided: int, missing: int = 0) -> Slice:
    return Slice("", decided + missing, wilson(valid, decided), missing, 0, 0, bounds(valid, decided, missing))


def places(markup: str, name: str) -> list[float]:
    return [float(found) for found in re.findall(rf'{name}="([\d.]+)%?"', markup)]


@pytest.mark.parametrize(
    ("parts", "low"),
    [([part(300, 300)], 0.95), ([part(92, 93)], 0.9), ([part(92, 93, 7)], 0.9), ([part(11, 13)], 0.4), ([], 0.0)],
)
def test_an_axis_is_as_short_as_what_it_shows(parts: list[Slice], low: float) -> None:
    axis = share_axis(parts)
    assert (axis.low, axis.high) == (low, 1.0) and axis.ticks[0] == low and axis.ticks[-1] == 1.0
    for one in parts:
        assert one.rate.low is not None and one.rate.low >= low


def test_an_interval_lies_where_its_figures_say() -> None:
    one = part(80, 100)
    axis = share_axis([one])
    drawn = interval(one, axis)
    assert axis.low == 0.6 and places(drawn, "cx") == [50.0]
    [[low, high]] = re.findall(r'<line x1="([\d.]+)%" x2="([\d.]+)%"[^>]* class="dot">', drawn)
    assert one.rate.low is not None and one.rate.high is not None
    assert float(low) == pytest.approx(250 * (one.rate.low - 0.6), abs=0.01)
    assert float(high) == pytest.approx(250 * (one.rate.high - 0.6), abs=0.01)
    assert 'aria-label="80.0 % (80 of 100; 95 % Wilson interval 71.1 to 86.7 %)"' in drawn
    assert 'class="bounds"' not in drawn and 'class="ring"' not in drawn


def test_bounds_and_the_share_before_exclusions_are_drawn_where_there_are_any() -> None:
    after, before = part(80, 90, 10), part(85, 100)
    drawn = interval(after, share_axis([after, before]), before)
    assert 'class="bounds"' in drawn and 'class="ring"' in drawn
    assert "80.0 % if all 10 discarded images were invalid" in drawn and "before exclusions 85.0 %" in drawn
    assert 'class="ring"' not in interval(after, share_axis([after]), after)
    assert interval(part(0, 0), share_axis([])).startswith("<span"), "what is undefined is said in words"


def test_a_bar_of_answers_is_filled_whole() -> None:
    drawn = plot("answer_bar", {"yes": 3, "no": 1, "maybe": 2}, ("yes",))
    assert sum(places(drawn, " width")) == pytest.approx(100, abs=0.05)
    assert drawn.count('class="no"') == 2 and 'aria-label="3 yes, 1 no, 2 maybe"' in drawn
    assert "<rect" not in plot("answer_bar", {})
    assert "&lt;b&gt;" in plot("answer_bar", {"<b>": 1}) and "<b>" not in plot("answer_bar", {"<b>": 1})


def test_columns_of_a_scale_are_as_high_as_their_votes() -> None:
    drawn = plot("histogram", {"1": 2, "5": 4})
    heights = places(drawn, " height")[1:]
    assert heights == [17.0, 0.8, 0.8, 0.8, 34.0]
    assert plot("histogram", {}).count("<rect") == 5


def test_measures_that_are_undefined_have_no_dot() -> None:
    drawn = plot("agreement_scale", agreement([["yes"] * 3] * 4, ("yes", "no")), AGREEMENT)
    assert drawn.count("<circle") == 2 and "alpha: undefined" in drawn and "kappa: undefined" in drawn
    scale = plot("agreement_scale", agreement([["1", "2"], ["4", "5"], ["3", "3"]], SCALE, True), AGREEMENT)
    assert scale.count("<circle") == 5 and "ordinal alpha" in scale
    # The coloured areas are levels of agreement beyond chance. Raw agreement has its own line above them.
    raw, *beyond = places(scale, "cy")
    top = min(float(y) for y in re.findall(r'<rect [^>]*y="(\d+)"[^>]*class="ground', scale))
    assert raw < top < min(beyond) and "0 % of pairs equal" in scale


def test_votes_over_time_rise_to_the_last() -> None:
    drawn = votes_over_time([START + timedelta(seconds=second) for second in range(500)], 1000)
    assert drawn is not None
    line, needed = drawn
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert needed == "4.00", "all that are needed are the top"
    assert len(points) <= 252 and points[0][0] == 0 and points[-1] == (100.0, 24.0)
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    assert votes_over_time([START], 5) is None and votes_over_time([START, START], 5) is None


def test_workers_are_placed_by_speed_and_agreement() -> None:
    answers = {n: ["yes", "yes", "yes", "yes", "no", "yes"] for n in range(10)}
    data = simple(answers, exclusions=[excluded("worker-4")])
    placed = worker_scatter(analyse(data).workers, 1.0)
    assert placed is not None
    drawn = plot("worker_scatter", placed)
    assert drawn.count("<circle") == 6 and drawn.count('class="out"') == 1
    assert "worker-4: 4.0 s, 0 % with the consensus, 10 votes, excluded" in drawn
    heights = [float(found) for found in re.findall(r'cy="([\d.]+)"', drawn)]
    assert sorted(heights)[-1] > sorted(heights)[0] + 100, "who disagrees with all stands low"
    assert worker_scatter(analyse(simple({1: ["yes"]})).workers, 1.0) is None
