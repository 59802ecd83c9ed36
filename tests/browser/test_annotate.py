"""The annotators' page in Chromium: two people finish a study with keys alone, and no fault loses a vote."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from core.panel import Panel
from core.studies import ControlPolicy, Eligibility, InstructionExample, Question, StudyData
from services.studio import Studio
from study.behaviour import Behaviour
from study.simulate import Simulation, run
from tests.support.annotating import (
    BIRD_RULES,
    LANCE_RULES,
    SERVE_ALONE,
    TEXT_QUESTION,
    controls_of,
    items_of,
    keep_image,
    picture,
    running,
)
from tests.support.routing import routed
from tests.support.scripted import ScriptedModels
from tests.support.server_process import ServerProcess
from tests.support.serving import serving_here, until
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow
NASTY = "<img src=x onerror=\"document.title='hacked'\">&amp;"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@dataclass
class Place:
    """Server and browser page for all tests of this file."""

    studio: Studio
    url: str
    page: Page

    def running(self, *arguments: Any, **more: Any) -> tuple[str, str]:
        return running(self.studio.workspace, *arguments, **more)

    def data(self, study_id: str) -> StudyData:
        return self.studio.workspace.studies.data(study_id)

    @contextmanager
    def annotator(self, link: str = "", agree: bool = True, **options: Any) -> Iterator[Page]:
        """Open an invitation at its first item in a new browser context. Fails if a script on the page fails."""
        browser = self.page.context.browser
        assert browser is not None
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        context.set_default_timeout(60_000)
        broken: list[str] = []
        context.on("weberror", lambda error: broken.append(str(error.error)))
        page = context.new_page()
        if link:
            self.join(page, link, agree)
        else:
            page.goto(f"{self.url}annotate/")
        yield page
        context.close()
        assert not broken, f"a script of the page failed: {broken}"

    def join(self, page: Page, link: str, agree: bool = True) -> str:
        """Follow an invitation as a new worker, and go to the first item if `agree`. Return the worker's code."""
        page.goto(f"{self.url}annotate/#join={link}")
        page.click("#join")
        code = page.inner_text("#own-code")
        page.click("#code-kept")
        if agree:
            page.click("#agree")
            at(page, 1)
        return code


@pytest.fixture(scope="module")
def place(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("annotate")
    with serving_here(folder / "workspace", ScriptedModels()) as (url, studio):
        yield Place(studio, url, page)


def at(page: Page, number: int, of: int | None = None) -> None:
    """Wait until item `number` and its picture are shown and can be answered. No answer is chosen yet."""
    words = f"Image {number} of" + (f" {of}" if of else "")
    page.wait_for_selector(f"#place:has-text('{words}')")
    page.wait_for_selector(".judge[aria-busy=false]")  # until then, keys do nothing


def end(page: Page, title: str) -> None:
    expect(page.locator("h1")).to_have_text(title)


def look_again(page: Page) -> None:
    """Press the button that checks for new items, unless the page has checked by itself and the button is gone."""
    page.evaluate("document.getElementById('look-again')?.click()")


def votes(place: Place, study_id: str) -> list[tuple[str, dict[str, str]]]:
    return [(vote.worker, dict(vote.answers)) for vote in place.data(study_id).votes]


def test_two_annotators_finish_a_study_with_keys_alone(place: Place) -> None:
    items = [*items_of(place.studio.workspace, 4), *controls_of(place.studio.workspace, 2)]
    study_id, link = place.running(items, replace(BIRD_RULES, controls=ControlPolicy(share=0.5, min_seen=3)))
    browser = place.page.context.browser
    assert browser is not None
    contexts = [browser.new_context(viewport={"width": 1280, "height": 860}) for _ in range(2)]
    pages = [context.new_page() for context in contexts]
    for page in pages:
        page.goto(f"{place.url}annotate/#join={link}")
        page.wait_for_selector("#join:focus")
        page.keyboard.press("Enter")
        page.wait_for_selector("#code-kept:focus")
        assert link not in page.url and "#" not in page.url
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Birds, November")
        page.keyboard.press("Enter")
    for number in range(1, 7):
        for page in pages:
            at(page, number, 6)
            assert page.locator(".chosen, [aria-checked=true], :checked, .earlier").count() == 0
            assert (page.locator("#saved").inner_text() == "saved") is (number > 1)
            page.keyboard.press("y" if number % 2 else "n")
    for page in pages:
        end(page, "All done: thank you")
        expect(page.locator("#why")).to_have_text("You have judged 6 images. There are no more for you in this study.")
        expect(page.locator("#saved")).to_have_text("Your last answer is saved")
    found = [vote for vote in place.data(study_id).votes if vote.kind == "item"]
    assert len(found) == 8 and len({(vote.item, vote.worker) for vote in found}) == 8
    assert all(0 < vote.seconds < 60 for vote in found)
    for context in contexts:
        context.close()


def test_a_double_click_joins_once(place: Place) -> None:
    study_id, link = place.running(1)
    with place.annotator() as page:
        joined: list[str] = []
        page.on("request", lambda request: joined.append(request.url) if request.url.endswith("/join") else None)
        page.goto(f"{place.url}annotate/#join={link}")
        page.dblclick("#join")
        page.click("#code-kept")
        page.dblclick("#agree")
        at(page, 1)
        assert len(joined) == 1 and len(place.data(study_id).workers) == 1


def test_the_next_picture_loads_while_one_judges(place: Place) -> None:
    _, link = place.running(3)
    with place.annotator() as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/image/" in request.url else None)
        page.goto(f"{place.url}annotate/#join={link}")
        page.click("#join")
        page.click("#code-kept")
        page.click("#agree")
        for number in (1, 2, 3):
            at(page, number)
            assert len(asked) == len(set(asked)) == min(number + 1, 3), "one ahead, and none twice"
            page.keyboard.press("y")
        end(page, "All done: thank you")


def test_a_picture_that_does_not_come_is_told_and_asked_for_again(place: Place) -> None:
    study_id, link = place.running(2)
    with place.annotator() as page:
        asked: list[str] = []

        def refuse_twice(route: Route) -> None:
            asked.append(route.request.url)
            if len(asked) > 2:
                route.continue_()
            else:
                route.abort()

        with routed(page, "**/image/*", refuse_twice):
            page.clock.install()
            page.goto(f"{place.url}annotate/#join={link}")
            page.click("#join")
            page.click("#code-kept")
            page.click("#agree")
            expect(page.locator(".picture .loading")).to_contain_text("The image did not load")
            page.keyboard.press("y")
            assert not votes(place, study_id), "nobody judges what they have not seen"
            # The page requests the image twice more, three seconds apart. The clock of the test skips both waits.
            page.clock.run_for(3000)
            until(lambda: page.evaluate("true") and len(asked) > 1)
            page.clock.run_for(3000)
            at(page, 1)
            page.keyboard.press("y")
            at(page, 2)


def test_training_tells_after_each_answer_and_goes_on_with_a_key(place: Place) -> None:
    workspace = place.studio.workspace
    why = f"It has no beak. {NASTY}"
    told = [replace(item, kind="training", why=why) for item in controls_of(workspace, 2, "training", "no")]
    study_id, link = place.running([*items_of(workspace, 1), *told], replace(BIRD_RULES, training=2))

    def verdict(words: str) -> None:
        expect(page.locator("#verdict")).to_have_text(words)
        page.wait_for_selector(".judge[aria-busy=false]")

    with place.annotator(link, agree=False) as page:
        page.click("#agree")
        page.wait_for_selector("#place:has-text('Training 1 of 2')")
        expect(page.locator(".quiz-note")).to_contain_text("Nothing of it counts")
        page.wait_for_selector(".judge[aria-busy=false]")
        assert "no beak" not in page.content()
        page.keyboard.press("y")
        verdict("Not right")
        # The answer and its reason are shown as text, also if they contain markup. Only the button's own key continues.
        expect(page.locator(".feedback")).to_contain_text("Your answer: YesRight is: No")
        expect(page.locator(".why")).to_have_text(f"Why: {why}")
        for pressed in ("y", "n", "u", "c", "ArrowRight"):
            page.keyboard.press(pressed)
        page.reload()
        verdict("Not right")
        expect(page.locator("#place")).to_have_text("Training 1 of 2")
        page.wait_for_selector(".picture:not(.loading)")
        page.keyboard.press("Enter")
        page.wait_for_selector("#place:has-text('Training 2 of 2')")
        page.wait_for_selector(".judge[aria-busy=false]")
        page.keyboard.press("n")
        verdict("Right")
        page.keyboard.press("p")
        page.click("#go-on")
        verdict("Right")
        page.click("#send")
        at(page, 1, of=1)
        expect(page.locator(".quiz-note")).to_have_text("The training is over: from here on your answers count.")
        expect(page.locator("#undo")).to_be_disabled()
        page.keyboard.press("y")
        end(page, "All done: thank you")
    assert [(vote.kind, vote.answers["valid"]) for vote in place.data(study_id).votes] == [
        ("training", "yes"),
        ("training", "no"),
        ("item", "yes"),
    ]
    # A simulated worker gets the feedback too, and continues.
    plan = Simulation(place.url, [Behaviour(seconds=0.0)], link=link)
    with ThreadPoolExecutor(1) as other:  # playwright runs an event loop on this thread
        (ended,) = other.submit(run, plan).result()
    assert (ended.end, len(ended.votes)) == ("done", 3), ended.text


def test_undo_changes_the_last_answer(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator(link) as page:
        page.keyboard.press("y")
        at(page, 2)
        page.keyboard.press("u")
        at(page, 1)
        expect(page.locator("[data-answer=yes] .earlier")).to_have_text("your answer before")
        assert page.locator(".chosen").count() == 0
        page.keyboard.press("n")
        at(page, 2)
        page.keyboard.press("n")
        at(page, 3)
        page.keyboard.press("y")
        end(page, "All done: thank you")
        page.keyboard.press("u")
        at(page, 3)
        page.click("[data-answer=no]")
        end(page, "All done: thank you")
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["no", "no", "no"]


def test_a_reload_in_the_middle_keeps_place_answers_and_comment(place: Place) -> None:
    study_id, link = place.running(items_of(place.studio.workspace, 2), LANCE_RULES)
    with place.annotator(link) as page:
        for key in ("4", "2"):
            page.keyboard.press(key)
        page.keyboard.press("c")
        page.keyboard.type("y n u: looks odd")
        page.reload()
        at(page, 1, 2)
        assert page.locator("#comment").input_value() == "y n u: looks odd"
        chosen = page.locator(".chosen").evaluate_all("all => all.map(one => one.dataset.answer)")
        assert chosen == ["4", "2"]
        for key in ("5", "y", "n", "Enter"):
            page.keyboard.press(key)
        at(page, 2, 2)
        assert page.locator(".chosen").count() == 0 and not page.locator("#comment").is_visible()
    (vote,) = place.data(study_id).votes
    wanted = {"realism": "4", "edit-success": "2", "fidelity": "5", "label-consistency": "yes", "ethical-concern": "no"}
    assert vote.answers == wanted and vote.comment == "y n u: looks odd"


def test_what_was_filled_in_survives_a_pause_a_sign_in_that_ends_and_another_browser(place: Place) -> None:
    studies = place.studio.workspace.studies
    study_id, link = place.running(items_of(place.studio.workspace, 2), LANCE_RULES)
    given = ["4", "2", "5", "yes", "no"]

    def chosen(page: Page) -> None:
        expect(page.locator(".chosen")).to_have_count(5)
        found = page.locator(".chosen").evaluate_all("all => all.map(one => one.dataset.answer)")
        assert found == given

    with place.annotator() as page:
        code = place.join(page, link)
        studies.pause(study_id)
        for key in ("4", "2", "5", "y", "n", "Enter"):
            page.keyboard.press(key)
        end(page, "This study is paused")
        expect(page.locator(".told")).to_contain_text("What you have filled in is kept")
        studies.resume(study_id)
        page.click("#look-again")
        at(page, 1)
        chosen(page)
        studies.sessions.close_all("worker")
        page.reload()
        end(page, "Sign in")
        page.fill("#code", code)
        page.keyboard.press("Enter")
        at(page, 1)
        chosen(page)
        page.keyboard.press("c")
        with page.expect_response(lambda reply: reply.url.endswith("/api/draft")):
            page.keyboard.type("odd")
    with place.annotator() as page:
        page.goto(f"{place.url}annotate/#code={code}")
        at(page, 1)
        chosen(page)
        assert page.locator("#comment").input_value() == "odd"
        page.focus("#send")
        page.keyboard.press("Enter")
        at(page, 2)
    (vote,) = place.data(study_id).votes
    assert list(vote.answers.values()) == given and vote.comment == "odd"


def test_several_questions_with_arrows_and_a_question_that_follows(place: Place) -> None:
    study_id, link = place.running(items_of(place.studio.workspace, 2), LANCE_RULES)
    with place.annotator(link) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        beyond = page.locator(".panel-card").evaluate("card => card.scrollWidth - card.clientWidth")
        assert beyond == 0, "a narrow window of a desktop, which names its keys, cuts no question"
        page.set_viewport_size({"width": 1280, "height": 860})
        assert page.locator("[data-question=concern]").is_hidden()
        page.keyboard.press("Enter")
        assert page.locator("#send").is_disabled() and not votes(place, study_id), "not before all is answered"
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowDown", "3", "n", "y"):
            page.keyboard.press(key)
        expect(page.locator("[data-question=concern] textarea")).to_be_focused()
        page.keyboard.type("It shows y and n.")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowUp")
        expect(page.locator(".question.current")).to_have_attribute("data-question", "ethical-concern")
        page.keyboard.press("n")
        assert page.locator("[data-question=concern]").is_hidden()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("y")
        page.keyboard.press("Control+Enter")
        at(page, 2)
    (vote,) = place.data(study_id).votes
    assert vote.answers == {
        "realism": "2", "edit-success": "1", "fidelity": "3", "label-consistency": "no", "ethical-concern": "yes",
        "concern": "It shows y and n.",
    }  # fmt: skip


def test_a_lost_connection_is_told_and_the_answer_sent_again(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator(link) as page:
        page.context.set_offline(True)
        page.keyboard.press("y")
        expect(page.locator(".lost")).to_contain_text("Your answer is kept on this device and sent again")
        expect(page.locator("#saved")).to_have_text("saving…")
        page.keyboard.press("n")
        page.click(".lost button")
        page.context.set_offline(False)
        at(page, 2)
        expect(page.locator(".lost")).to_be_hidden()
        expect(page.locator("#saved")).to_have_text("saved")
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["yes"]


def test_the_focus_stays_on_trying_again_while_the_seconds_go_by(place: Place) -> None:
    _, link = place.running(3)
    with place.annotator(link) as page:
        page.context.set_offline(True)
        page.keyboard.press("y")
        page.wait_for_selector(".lost:visible")
        page.evaluate("() => { document.querySelector('.lost button').focus(); }")
        said = page.locator(".lost span")
        expect(said).not_to_have_text(said.inner_text())
        expect(page.locator(".lost button")).to_be_focused()
        page.context.set_offline(False)
        page.keyboard.press("Enter")
        at(page, 2)


def test_a_reply_that_is_lost_after_saving_gives_one_vote(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator(link) as page:
        lost = iter([True, True])

        def answer(route: Any) -> None:
            if next(lost, False):
                route.fetch()  # the server saves it, and its reply never comes
                route.abort()
            else:
                route.continue_()

        with routed(page, "**/api/submit", answer):
            page.keyboard.press("n")
            at(page, 2)
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["no"]


def test_an_answer_under_way_survives_that_the_page_is_left(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator(link) as page:
        with routed(page, "**/api/submit", lambda route: route.abort()):
            page.keyboard.press("n")
            page.wait_for_selector(".lost:visible")
            page.goto("about:blank")
        assert not votes(place, study_id)
        page.goto(f"{place.url}annotate/")
        at(page, 2)
        expect(page.locator("#saved")).to_have_text("saved")
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["no"]


def test_a_server_that_is_killed_loses_nothing(page: Page, tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        study_id, link = running(workspace, 3)
    server = ServerProcess(tmp_path / "workspace", tmp_path / "log", SERVE_ALONE).start()
    try:
        page.goto(f"{server.url}annotate/#join={link}")
        page.click("#join")
        page.click("#code-kept")
        page.click("#agree")
        at(page, 1, 3)
        page.keyboard.press("y")
        at(page, 2, 3)
        server.stop(signal.SIGKILL)
        page.keyboard.press("n")
        expect(page.locator(".lost")).to_contain_text("Your answer is kept on this device")
        server.start()
        page.wait_for_selector("#place:has-text('Image 3')", timeout=60_000)
        at(page, 3, 3)
        page.keyboard.press("y")
        end(page, "All done: thank you")
        page.goto("about:blank")
    finally:
        server.stop()
    with workspace_in(tmp_path / "workspace") as workspace:
        found = workspace.studies.data(study_id).votes
    assert [vote.answers["valid"] for vote in found] == ["yes", "no", "yes"]


def test_an_answer_waits_for_a_new_sign_in(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator() as page:
        code = place.join(page, link)
        place.studio.workspace.studies.sessions.close_all("worker")
        page.keyboard.press("n")
        end(page, "Sign in")
        expect(page.locator(".problem")).to_contain_text("your answer is kept and sent then")
        page.fill("#code", "ABCD-0000-0000-0000")
        page.keyboard.press("Enter")
        expect(page.locator(".problem")).to_contain_text("There is no such code")
        page.fill("#code", code.lower())
        page.keyboard.press("Enter")
        at(page, 2)
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["no"]


@pytest.mark.parametrize("questions", ["one", "several"])
def test_a_phone_needs_no_scrolling(place: Place, questions: str) -> None:
    items = items_of(place.studio.workspace, 2, caption="A red bird.", counterfactual="A blue bird.")
    study_id, link = place.running(items, BIRD_RULES if questions == "one" else LANCE_RULES)
    with place.annotator(link, **PHONE) as page:
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        assert size == [390, 844]
        for name in (".picture img", ".question.current .words", "#pause", "#undo", ".question.current .answer"):
            for one in page.locator(name).all():
                box = one.bounding_box()
                assert box and box["x"] >= 0 and box["y"] >= 0, name
                assert box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844, name
                assert "answer" not in name or box["height"] >= 44, "large enough for a thumb"
        if questions == "one":
            spot = page.locator("[data-answer=no]").bounding_box()
            assert spot is not None
            page.clock.install()
            page.clock.pause_at(datetime.now() + timedelta(minutes=1))
            page.touchscreen.tap(spot["x"] + 20, spot["y"] + 20)
            page.wait_for_selector("#place:has-text('Image 2 of 2')")
            page.wait_for_selector(".picture:not(.loading)")
            page.clock.run_for(500)
            for _ in range(2):
                page.touchscreen.tap(spot["x"] + 20, spot["y"] + 20)
            assert page.locator(".judge[aria-busy=true]").count() == 1, "a third tap so late is none"
            page.clock.run_for(200)
            at(page, 2, 2)
        else:
            assert page.locator(".question:visible").count() == 1
            for question, answer in [("realism", "3"), ("edit-success", "4"), ("fidelity", "5")]:
                page.tap(f"[data-question={question}] [data-answer='{answer}']")
            page.tap("[data-question=label-consistency] [data-answer=yes]")
            page.tap("[data-question=ethical-concern] [data-answer=no]")
            page.tap("#send")
        at(page, 2, 2)
    assert len(votes(place, study_id)) == 1


def test_the_picture_makes_room_and_takes_it_back(place: Place) -> None:
    workspace = place.studio.workspace
    nine = tuple(f"Answer number {number} with words enough for a second line" for number in range(1, 10))
    rules = replace(BIRD_RULES, questions=(Question("what", "Which of these is it? " * 8, "choice", nine),))
    _, link = place.running(items_of(workspace, 2), rules)
    with place.annotator(link, **PHONE) as page:
        assert page.evaluate("document.documentElement.scrollHeight") == 844, "the questions scroll, not the page"
        before = page.locator(".picture img").bounding_box()
        assert before and before["height"] > 200, "however many answers there are"
        page.locator("[data-answer]").last.scroll_into_view_if_needed()
        assert page.locator(".picture img").bounding_box() == before
        page.set_viewport_size({"width": 844, "height": 390})
        page.wait_for_function("document.querySelector('.picture img').getBoundingClientRect().bottom <= 390")
    _, link = place.running(2)
    with place.annotator(link) as page:
        large = page.locator(".picture img").bounding_box()
        page.keyboard.press("c")
        page.wait_for_function(
            "height => document.querySelector('.picture img').getBoundingClientRect().height < height - 20",
            arg=large and large["height"],
        )


def test_texts_are_texts_whatever_stands_in_them(place: Place) -> None:
    workspace = place.studio.workspace
    example = InstructionExample(keep_image(workspace, picture(77)), NASTY, NASTY)
    question = Question("kind", f"What is it? {NASTY}", "choice", (NASTY, "b"), valid=("b",))
    items = items_of(workspace, 2, label=NASTY, caption=f"a {NASTY}", counterfactual=f"b {NASTY}")
    rules = replace(
        LANCE_RULES,
        questions=(question, *LANCE_RULES.questions),
        instructions=NASTY,
        consent=NASTY,
        examples=(example,),
    )
    study_id, link = place.running(items, rules, name=f"Name {NASTY}")
    with place.annotator(link, agree=False) as page:
        expect(page.locator("h1")).to_have_text(f"Name {NASTY}")
        expect(page.locator("figcaption b")).to_have_text(NASTY)
        page.click("#agree")
        at(page, 1)
        expect(page.locator("[data-question=kind] .words")).to_have_text(f"What is it? {NASTY}")
        assert page.locator("[data-question=kind] .answer span").first.inner_text() == NASTY
        page.keyboard.press("?")
        assert page.locator("dialog p").first.inner_text() == NASTY
        assert page.locator("img[src=x]").count() == 0 and page.title() == "Judging images"
    assert study_id


def test_keys_comment_help_and_pause(place: Place) -> None:
    study_id, link = place.running(3)
    with place.annotator(link) as page:
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_contain_text("take back the last answer")
        page.keyboard.press("y")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
        page.keyboard.press("c")
        page.keyboard.type("yes no up")
        page.keyboard.press("Escape")
        page.keyboard.press("p")
        end(page, "Paused")
        expect(page.locator("#why")).to_contain_text("Your place is kept (Image 1 of 3)")
        assert not votes(place, study_id)
        page.keyboard.press("Enter")
        at(page, 1, 3)
        assert page.locator("#comment").input_value() == "yes no up"
        page.keyboard.press("ArrowRight")
        expect(page.locator("[data-answer=yes]")).to_be_focused()
        assert page.locator(".chosen").count() == 0
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        at(page, 2, 3)
    (vote,) = place.data(study_id).votes
    assert vote.answers == {"valid": "no"} and vote.comment == "yes no up"


def test_a_link_that_says_who_is_coming_promises_nobody_elses_name(place: Place) -> None:
    study_id, link = place.running(2, name="Of a panel")
    place.studio.workspace.studies.panels.set(study_id, Panel("PID"))
    with place.annotator(place.running(1)[1]) as page:
        name = page.evaluate("annotate.worker")
        page.goto("about:blank")
        page.goto(f"{place.url}annotate/?PID=p1#join={link}")
        expect(page.locator("#join")).to_have_text("Take part")
        expect(page.locator("main .card")).not_to_contain_text(name)
        page.click("#join")
        end(page, "Of a panel")
        assert page.inner_text("#worker") != name and "p1" not in page.url


def test_keys_that_are_held_send_one_answer(place: Place) -> None:
    study_id, link = place.running(3, replace(BIRD_RULES, questions=(TEXT_QUESTION,)))
    with place.annotator(link) as page:
        page.keyboard.down("Control")
        page.keyboard.down("Enter")
        at(page, 2, 3)
        page.keyboard.down("Enter")  # repeated keydown: the key is held down
        page.keyboard.up("Enter")
        page.keyboard.up("Control")
        page.fill("[data-question=note] textarea", "a bird")
        page.keyboard.press("Control+Enter")
        at(page, 3, 3)
    assert [answers for _, answers in votes(place, study_id)] == [{}, {"note": "a bird"}]


def test_what_there_is_to_say_when_there_is_no_item(place: Place) -> None:
    studies = place.studio.workspace.studies
    study_id, link = place.running(1, replace(BIRD_RULES, votes=1, consensus=1))
    with place.annotator(link) as page, place.annotator(link, agree=False) as waiting:
        waiting.click("#agree")
        end(waiting, "Waiting for others")
        page.keyboard.press("p")
        end(page, "Paused")
        look_again(waiting)
        at(waiting, 1)
        studies.pause(study_id)
        waiting.keyboard.press("y")
        expect(waiting.locator(".told")).to_contain_text("paused")
        end(waiting, "This study is paused")
        studies.resume(study_id)
        look_again(waiting)
        at(waiting, 1)
        studies.close(study_id)
        waiting.keyboard.press("y")
        end(waiting, "This study is closed")
    _, link = place.running(1, replace(BIRD_RULES, eligibility=Eligibility()))
    with place.annotator(link, agree=False) as page:
        end(page, "You cannot take part in this study")
        expect(page.locator("#why")).to_contain_text("at least 50 finished assignments")
    with place.annotator() as page:
        page.goto(f"{place.url}annotate/#join=not-a-link")
        page.click("#join")
        end(page, "Sign in")
        expect(page.locator(".problem")).to_contain_text("This invitation is not open")


def test_an_invitation_that_is_opened_on_an_open_page_stays(place: Place) -> None:
    """Replies to the page's earlier requests arrive after the invitation is shown. They change nothing."""
    study_id, first = place.running(2)
    _, second = place.running(1, name="Boats")

    def late(page: Page, address: str, invitation: str, ask: Callable[[], object]) -> None:
        """Call `ask`, and delay the reply to its first request for `address` until the invitation is open."""
        held: list[Route] = []

        def hold(route: Route) -> None:
            if held:
                route.continue_()
            else:
                held.append(route)

        with routed(page, address, hold):
            with page.expect_request(address):
                ask()
            page.goto(f"{place.url}annotate/#join={invitation}")
            page.wait_for_selector("#join")
            with page.expect_response(address) as replied:
                held[0].continue_()
            replied.value.finished()
        # When this later request is answered, the page has handled the reply that was held back.
        page.evaluate("fetch('/annotate/api/state').then((reply) => reply.text())")

    with place.annotator() as page:
        late(page, "**/api/state", first, page.reload)
        page.click("#join")
        page.click("#code-kept")
        page.click("#agree")
        at(page, 1)
        late(page, "**/api/submit", second, lambda: page.keyboard.press("y"))
        page.click("#join")
        page.click("#agree")
        at(page, 1, 1)
        page.keyboard.press("n")
        end(page, "All done: thank you")
    assert [answers["valid"] for _, answers in votes(place, study_id)] == ["yes"]


def test_a_late_reply_of_one_study_does_not_take_the_place_of_another(place: Place) -> None:
    first, link = place.running(2)
    second, other = place.running(2, name="Boats")
    with place.annotator(link) as page:
        place.studio.workspace.studies.pause(first)
        page.goto(f"{place.url}annotate/#join={other}")
        page.click("#join")
        page.click("#agree")
        at(page, 1)
        page.keyboard.press("p")
        page.click("#others")
        page.click(".study-line:has-text('Birds')")
        end(page, "This study is paused")
        held: list[Route] = []

        def hold(route: Route) -> None:
            if first in (route.request.post_data or ""):
                held.append(route)
            else:
                route.continue_()

        with routed(page, "**/api/next", hold):
            with page.expect_request("**/api/next"):
                page.click("#look-again")
            page.click("#others")
            page.click(".study-line:has-text('Boats')")
            at(page, 1)
            with page.expect_response("**/api/next") as replied:
                held[0].continue_()
            replied.value.finished()
        # When this later request is answered, the page has handled the reply that was held back.
        page.evaluate("fetch('/annotate/api/state').then((reply) => reply.text())")
        page.keyboard.press("y")
        at(page, 2)
    assert [answers["valid"] for _, answers in votes(place, second)] == ["yes"] and not votes(place, first)


def test_who_fails_the_controls_is_told_so(place: Place) -> None:
    items = [*items_of(place.studio.workspace, 4), *controls_of(place.studio.workspace, 3)]
    rules = replace(BIRD_RULES, controls=ControlPolicy(share=0.5, min_seen=2))
    _, link = place.running(items, rules)
    with place.annotator(link) as page:
        for number in range(1, 8):
            page.wait_for_selector(f"#why, #place:has-text('Image {number} of')")
            if page.locator("#why").count():
                break
            at(page, number)
            page.keyboard.press("n")
        end(page, "This study ends here for you")
        expect(page.locator("#why")).to_contain_text("you answered 0 of 2 of these as expected")


def test_two_studies_one_name_and_the_way_out(place: Place) -> None:
    _, first = place.running(2)
    _, second = place.running(2, name="Boats")
    with place.annotator(first) as page:
        page.goto(f"{place.url}annotate/#join={second}")  # open already: only the part after the # changes
        page.click("#join")
        page.click("#agree")
        at(page, 1)
        page.keyboard.press("p")
        page.click("#others")
        expect(page.locator(".study-line")).to_have_count(2)
        page.click(".study-line:has-text('Birds')")
        at(page, 1)
        page.keyboard.press("p")
        page.click("#sign-out")
        end(page, "Sign in")
        page.reload()
        end(page, "Sign in")
