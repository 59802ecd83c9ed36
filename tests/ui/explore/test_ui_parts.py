"""Small parts of the explore page: text differences, markup, forms of edits, and the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from core.errors import Cancelled, UserError
from core.settings import Settings
from services.jobs import JobHandle, JobQueue
from tests.support.scripted import over
from tests.support.serving import until
from ui.diff import Piece, shortened, word_diff
from ui.explore.forms import settings_form
from ui.explore.parts import about, differences, seconds
from ui.markup import Html, el, join, stamped

BEFORE = "A road with two cars in sunny weather by day. The near car is blue. Trees line the road."


def test_differences_are_told_word_by_word() -> None:
    pieces = word_diff(BEFORE, BEFORE.replace("sunny", "snowy").replace("by day", "at night"))
    changed = [(piece.kind, piece.text.strip()) for piece in pieces if piece.kind != "same"]
    assert changed == [("removed", "sunny"), ("added", "snowy"), ("removed", "by day"), ("added", "at night")]
    assert "".join(piece.text for piece in pieces if piece.kind != "added") == BEFORE


def test_sentences_without_a_change_are_left_out() -> None:
    pieces = shortened(word_diff(BEFORE, BEFORE.replace("blue", "red")))
    text = "".join(piece.text for piece in pieces)
    assert text == "… The near car is bluered. … "
    assert shortened(word_diff(BEFORE, BEFORE)) == word_diff(BEFORE, BEFORE)


def test_differences_are_marked_by_more_than_colour() -> None:
    markup = differences((Piece("same", "a "), Piece("removed", "sunny"), Piece("added", "<snowy>")))
    assert markup == "a <del>sunny</del> <ins>&lt;snowy&gt;</ins>"


def test_words_far_from_a_change_are_marked() -> None:
    after = BEFORE.replace("sunny", "snowy").replace("by day", "at night")
    said = differences(word_diff(BEFORE, after), near=2)
    assert said == (
        '<span class="far">A road with two </span>cars in <del>sunny</del> <ins>snowy</ins> weather '
        '<del>by day</del> <ins>at night</ins>. The <span class="far">near car is blue. Trees line the road.</span>'
    )
    assert "far" not in differences(word_diff(BEFORE, BEFORE), near=2), "where nothing was changed all of it is shown"


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("The ground is grassy.", "Snow covers the ground.", "<ins>Snow covers</ins> The ground <del>is grassy</del>."),
        ("It is by day. A.", "It is at night. A.", "It is <del>by day</del> <ins>at night</ins>. A."),
        ("A red car.", "A car.", "A <del>red</del> car."),
        ("A car.", "A red car.", "A <ins>red</ins> car."),
        ("A car", "A car.", "A car<ins>.</ins>"),
    ],
)
def test_differences_read_like_a_sentence(before: str, after: str, shown: str) -> None:
    assert differences(word_diff(before, after)).lower() == shown.lower()


def test_markup_escapes_all_but_markup() -> None:
    assert el("p", "<b>", Html("<i></i>"), None, [1, "&"], class_='a"b', hidden=False, data_x_y="'") == (
        '<p class="a&quot;b" data-x-y="&#x27;">&lt;b&gt;<i></i>1&amp;</p>'
    )
    assert el("input", value=0, checked=True) == '<input value="0" checked>'
    assert stamped(join("a")) != stamped(join("b"))


def test_a_form_has_every_setting_with_its_bounds() -> None:
    settings = Settings()
    form = settings_form({"generation": settings.generation, "conditioning": settings.conditioning})
    for name in (*type(settings.generation).model_fields, *type(settings.conditioning).model_fields):
        assert name.replace("_", " ") in form
    assert 'min="1" max="150"' in form and "Denoising steps" in form


@pytest.mark.parametrize(
    ("value", "shown"), [(0.036, "0.04 s"), (0.096, "0.1 s"), (0.31, "0.3 s"), (11.2, "11 s"), (125, "2 min 5 s")]
)
def test_times_are_as_exact_as_needed(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_an_estimate_is_rounded() -> None:
    assert (about(0.4), about(11.4), about(300)) == ("about a second", "about 11 s", "about 5 min")


def waits_for(event: threading.Event) -> Callable[[JobHandle], None]:
    def work(_handle: JobHandle) -> None:
        event.wait(60)

    return work


def test_the_worker_does_one_thing_at_a_time_and_outlives_mistakes() -> None:
    jobs, at_once, most, lock = JobQueue(), [0], [0], threading.Lock()

    def work(_handle: JobHandle) -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.02)
        with lock:
            at_once[0] -= 1

    def fails(_handle: JobHandle) -> None:
        raise UserError("Tick something.")

    def breaks(_handle: JobHandle) -> None:
        raise ZeroDivisionError("oh")

    jobs.submit("a", ("caption",), breaks)
    jobs.submit("b", ("caption",), fails)
    for name in ("c", "d", "e"):
        jobs.submit(name, ("caption",), work)
    over(jobs)
    states = {name: jobs.of_run(name) for name in "abcde"}
    assert most[0] == 1 and [view.state for view in states.values() if view] == ["failed"] * 2 + ["done"] * 3
    assert states["b"] is not None and states["b"].message == "Tick something."
    assert states["a"] is not None and "ZeroDivisionError" in states["a"].message
    jobs.close()


def test_a_job_that_waits_can_be_cancelled_before_it_begins() -> None:
    jobs, first, done = JobQueue(), threading.Event(), []
    jobs.submit("a", ("caption",), waits_for(first))
    jobs.submit("b", ("caption",), lambda _handle: done.append("b"))
    assert jobs.cancel("b") and not jobs.cancel("nothing")
    first.set()
    over(jobs)
    view = jobs.of_run("b")
    assert view is not None and view.state == "cancelled" and not done
    jobs.close()


def test_people_go_before_what_nobody_waits_for() -> None:
    jobs, order, gate = JobQueue(), [], threading.Event()
    jobs.submit("a", ("caption",), waits_for(gate))
    jobs.when_idle("nothing", lambda: order.append("idle"))
    jobs.submit("b", ("caption",), lambda _handle: order.append("b"))
    gate.set()
    until(lambda: len(order) == 2)
    assert order == ["b", "idle"]
    jobs.close()


def test_closing_stops_what_is_running() -> None:
    jobs, seen, begun = JobQueue(), [], threading.Event()

    def work(handle: JobHandle) -> None:
        handle.at("generation")
        begun.set()
        handle.cancelled.wait(60)
        seen.append(handle.closing)
        raise Cancelled

    jobs.submit("a", ("generation",), work)
    assert begun.wait(60)
    jobs.close()
    view = jobs.of_run("a")
    assert seen == [True] and view is not None and view.state == "cancelled" and view.stage == "generation"
