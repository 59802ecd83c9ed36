"""Conditioning, gate, generation and queue in Chromium: the page before and while images are drawn."""

from __future__ import annotations

import io
import re
import threading
import urllib.request

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from core.settings import ConditioningSettings
from services.studio import Studio
from tests.support.browser import settled
from tests.support.explorer import Served, held_drawing, look, one_server, open_run, text_run
from tests.support.scripted import InvertingDetector, perform
from tests.support.serving import until

served = one_server()


@pytest.fixture
def studio(served: Served, request: pytest.FixtureRequest) -> Studio:
    """Start page of a studio with stand-ins for its models. The control images are real."""
    return served.begin(request)


def at_the_gate(page: Page, studio: Studio) -> str:
    """Bring a run of a noisy upload, in which edges can be found, to the gate. Return the run's id."""
    run_id = noisy_run(studio)
    open_run(page, run_id)
    return run_id


def noisy_run(studio: Studio, name: str = "bird.png") -> str:
    return text_run(studio, Image.effect_noise((96, 64), 90).convert("RGB"), name)


def control(page: Page) -> np.ndarray:
    """Return the pixels of the control image on the page."""
    with urllib.request.urlopen(page.eval_on_selector("#control-preview", "image => image.src"), timeout=60) as reply:
        return np.asarray(Image.open(io.BytesIO(reply.read())).convert("L"))


def slide(page: Page, name: str, value: int, let_go: bool) -> None:
    """Move a slider as a hand does: each value on the way is an input event, and letting go is a change event."""
    page.eval_on_selector(
        f"#control-{name}",
        """(field, [value, letGo]) => {
          field.focus(); field.value = value;
          field.dispatchEvent(new Event("input", { bubbles: true }));
          if (letGo) field.dispatchEvent(new Event("change", { bubbles: true }));
        }""",
        [value, let_go],
    )


def shown(page: Page, part: str) -> None:
    """Wait until the control image for these settings is on the page."""
    page.wait_for_function(
        "part => (document.querySelector('#control-preview')?.dataset.shown ?? '').includes(part)", arg=part
    )


def test_the_control_image_follows_the_sliders(studio: Studio, page: Page) -> None:
    run_id = at_the_gate(page, studio)
    assert page.locator("#control-preview").is_hidden()
    page.click("#toggle-conditioning")
    expect(page.locator("#control-kind")).to_contain_text("Canny edges: the only kind")
    shown(page, "low=40")
    first = control(page)
    assert first.shape == (128, 192) and set(np.unique(first)) == {0, 255}
    expect(page.locator(".conditioning figcaption").nth(0)).to_have_text("original")
    expect(page.locator(".conditioning figcaption").nth(1)).to_have_text("control")

    # While the slider moves, the control image follows and its label shows the value. Nothing is saved.
    slide(page, "high", 400, let_go=False)
    shown(page, "high=400")
    assert (control(page) > 0).sum() < (first > 0).sum()
    expect(page.locator("label[for=control-high] output")).to_have_text("400")
    assert studio.workspace.runs.get(run_id).settings["conditioning"]["high"] == 100
    # After many quick moves, the page shows the last value.
    for value in range(100, 300, 10):
        slide(page, "low", value, let_go=False)
    # A lower threshold above the upper one is refused at its field until the upper one is raised.
    slide(page, "low", 300, let_go=True)
    shown(page, "low=300")
    expect(page.locator("label[for=control-low] .refusal")).to_contain_text(
        "threshold (300) is above the upper one (100)"
    )
    expect(page.locator("#control-low")).to_have_attribute("aria-invalid", "true")
    assert studio.workspace.runs.get(run_id).settings["conditioning"]["low"] == 40
    slide(page, "high", 400, let_go=True)
    expect(page.locator(".refusal")).to_have_count(0)
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 300 / 400")
    held = studio.workspace.runs.get(run_id).settings["conditioning"]
    assert (held["low"], held["high"]) == (300, 400)

    # The median filter has an odd size or is off. A reload shows the saved value.
    slide(page, "median", 1, let_go=True)
    expect(page.locator("label[for=control-median] output")).to_have_text("off")
    page.uncheck("#control-stretch")
    shown(page, "stretch=false")
    settled(page)
    before = control(page)
    page.reload()
    page.wait_for_selector("#generate")
    page.click("#toggle-conditioning")
    shown(page, "low=300")
    assert np.array_equal(control(page), before)
    expect(page.locator("label[for=control-median] output")).to_have_text("off")

    # The image is drawn on the control image that is shown.
    page.click(".conditioning button:has-text('Back to the profile')")
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 40 / 100")
    shown(page, "low=40")
    assert np.array_equal(control(page), first)


class HeldDetector(InvertingDetector):
    """Detector that draws once the test lets it, like a detector that must load first."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        assert self.let_go.wait(60)
        return super().draw(image, settings)


def test_a_control_image_that_a_model_draws_is_seen_to_come(
    studio: Studio, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = studio.profile.model_dump()
    nets = data["generator"]["controlnets"]
    nets["depth"] = {**nets["canny"], "detector": {"path": "demo/weights/clip"}}
    changed = type(studio.profile).model_validate(data)
    detector = HeldDetector()
    for kind, net in changed.generator.controlnets.items():
        monkeypatch.setitem(studio.profile.generator.controlnets, kind, net)
    monkeypatch.setattr(studio.driver.models, "detector", lambda _kind: detector)
    at_the_gate(page, studio)
    page.click("#toggle-conditioning")
    page.click("#control-kind button:has-text('Depth')")
    page.click("#draw-control")
    expect(page.locator("#control-drawing")).to_contain_text(re.compile(r"being drawn · [1-9]\d* s"))
    expect(page.locator("#doing")).to_have_text("drawing the control image")
    expect(page.locator("#queue li.job.running")).to_contain_text("this run drawing the control image")
    expect(page.locator("#generate")).to_be_disabled()
    detector.let_go.set()
    shown(page, "kind=depth")
    assert control(page).shape == (128, 192)
    expect(page.locator("#queue")).to_have_count(0)
    expect(page.locator("#generate")).to_be_enabled()

    # The kind of control image decides which one is used. For edges, nothing has to be drawn first.
    page.click("#control-kind button:has-text('Canny')")
    shown(page, "kind=canny")
    page.click("#control-kind button:has-text('Depth')")
    shown(page, "kind=depth")
    page.click(".top [data-go=new]")  # leave the run before the profile loses this kind
    page.wait_for_selector(".start h1")


def test_the_gate_says_what_a_yes_makes(studio: Studio, page: Page) -> None:
    run_id = at_the_gate(page, studio)
    expect(page.locator("#gate-count")).to_have_text("4 images from 4 captions")
    page.click("#planned summary")
    rows = page.locator("#planned li")
    assert rows.count() == 4
    expect(rows.first.locator("ins")).to_have_count(1)
    expect(rows.first).to_contain_text("seed ")
    page.fill("#setting-generation-images_per_caption", "2")
    page.press("#setting-generation-images_per_caption", "Enter")
    expect(page.locator("#gate-count")).to_have_text("8 images from 4 captions")
    expect(page.locator("#generate")).to_contain_text("Generate 8 images")
    assert page.locator("#planned").get_attribute("open") is not None and rows.count() == 8

    # Presets, and the label that the page shows for other settings.
    expect(page.locator("[data-key=preset-balanced]")).to_have_attribute("aria-pressed", "true")
    page.click("[data-key=preset-draft]")
    expect(page.locator("#setting-generation-steps")).to_have_value("3")
    expect(page.locator("[data-key=preset-draft]")).to_have_attribute("aria-pressed", "true")
    page.fill("#setting-generation-steps", "4")
    page.press("#setting-generation-steps", "Enter")
    expect(page.locator("[data-key=preset-own]")).to_be_visible()
    page.fill("#setting-generation-steps", "0")
    page.press("#setting-generation-steps", "Enter")
    said = "“steps” was not changed: it has to be a whole number from 1 to 150. It stays at 4."
    expect(page.locator("label:has(#setting-generation-steps) .refusal")).to_have_text(said)
    assert page.locator("#stage-generation .problem").count() == 0, "it is said once"
    look(page)
    settled(page)
    expect(page.locator("#setting-generation-steps")).to_have_value("0")
    page.fill("#setting-generation-steps", "6")
    expect(page.locator(".refusal")).to_have_count(0)

    # A fixed seed is the same for every caption.
    page.click("[data-key=seed-fixed]")
    page.fill("#setting-generation-seed", "4711")
    page.press("#setting-generation-seed", "Enter")
    expect(rows.nth(0)).to_contain_text("seed 4711")
    expect(rows.nth(1)).to_contain_text("seed 4712")
    expect(rows.nth(2)).to_contain_text("seed 4711")
    page.fill("#setting-generation-images_per_caption", "1")
    page.press("#setting-generation-images_per_caption", "Enter")
    negative = page.locator("label:has(#setting-generation-negative_prompt)")
    expect(negative).to_contain_text("not read at guidance 1")
    page.fill("#setting-generation-guidance", "3")
    page.press("#setting-generation-guidance", "Enter")
    expect(negative).not_to_contain_text("not read")
    page.fill("#setting-generation-negative_prompt", "<b>blurred</b>")
    page.press("#setting-generation-negative_prompt", "Enter")
    expect(page.locator("#gate-count")).to_have_text("4 images from 4 captions")
    assert not studio.jobs.active() and not studio.workspace.runs.get(run_id).jobs, "nothing is made without a yes"
    with held_drawing(studio) as generator:
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#cancel")
        generator.let_all()
        settled(page)
    cases = studio.workspace.runs.get(run_id).test_cases
    assert [case.lineage.seed for case in cases] == [4711] * 4
    assert {case.lineage.negative_prompt for case in cases} == {"<b>blurred</b>"}
    expect(page.locator("#gate")).to_contain_text("All images of the seed 4711 are made")
    page.click("[data-key=seed-random]")
    expect(page.locator("#gate-seconds")).to_contain_text("on this machine")
    page.click("#reuse-seed")
    expect(page.locator("[data-key=seed-fixed]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#gate")).to_contain_text("All images of the seed 4711 are made")


def test_a_yes_covers_what_was_seen_and_what_its_person_just_typed(studio: Studio, page: Page) -> None:
    run_id = at_the_gate(page, studio)
    expect(page.locator("#generate")).to_contain_text("Generate 4 images")

    def jobs() -> list[int]:
        return [job.total for job in studio.workspace.runs.get(run_id).jobs]

    # Another page changes a setting while the button is pressed, so this page cannot show the change before the yes.
    page.hover("#generate")
    page.mouse.down()
    perform(studio, run_id, "setting", tab="another", setting="generation.images_per_caption", value="3")
    page.mouse.up()
    expect(page.locator("#problem-generation")).to_contain_text("check them and approve again")
    expect(page.locator("#generate")).to_contain_text("Generate 12 images")
    assert jobs() == []

    # The yes includes a value that was typed but not answered yet, by key and by the button.
    for images, say_yes in (
        ("2", lambda: page.press("#setting-generation-images_per_caption", "Control+Enter")),
        ("4", lambda: page.click("#generate")),
    ):
        before = jobs()
        with held_drawing(studio) as generator:
            page.fill("#setting-generation-images_per_caption", images)
            say_yes()
            page.wait_for_selector("#cancel")
            generator.let_all()
            settled(page)
        assert jobs()[:-1] == before
    assert jobs() == [8, 8]
    assert page.locator("#problem-generation").count() == 0


def test_the_queue_is_in_sight_and_does_what_it_is_told(studio: Studio, page: Page) -> None:
    other, run_id = noisy_run(studio, "other.png"), at_the_gate(page, studio)
    assert page.locator("#queue").count() == 0
    with held_drawing(studio):
        queue_of_two(studio, page, run_id, other)


def queue_of_two(studio: Studio, page: Page, run_id: str, other: str) -> None:
    page.click("#generate")
    page.wait_for_selector("#queue li.running")
    waiting = page.locator("#queue li.part.waiting")
    expect(waiting).to_have_count(3)
    expect(page.locator("#queue-words")).to_contain_text("4 running or waiting")
    expect(page.locator(".thumb.drawing.seen img")).to_be_visible()
    names = [text.split(" ·")[0] for text in waiting.locator(".what").all_inner_texts()]

    # Move up, remove, and cancel the image that is being drawn.
    waiting.nth(2).locator("[data-do=queue-up]").click()
    expect(waiting.nth(1).locator(".what")).to_contain_text(names[2])
    waiting.nth(0).locator("[data-do=delete-job-part]").click()
    expect(waiting).to_have_count(2)
    page.click("#queue li.running [data-do=delete-job-part]")
    expect(page.locator("#queue li.running .what")).to_contain_text(names[2])
    expect(waiting).to_have_count(1)
    expect(page.locator("#state-generation")).to_have_text("running")

    # The images of another run wait behind the running job. The page of that run shows both.
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", other)
    page.wait_for_function("run => studio.run === run", arg=other)
    page.click("#generate")
    expect(page.locator("#state-generation")).to_have_text("waiting")
    expect(page.locator("#queue li.job.waiting")).to_contain_text("this run")
    expect(page.locator("#queue li.job.running a")).to_have_text("bird")
    page.reload()
    expect(page.locator("#queue li.job.waiting")).to_contain_text("4 images")

    page.wait_for_function("document.querySelectorAll('#queue li.part.running').length === 1")
    page.click("#cancel-all")
    until(lambda: not studio.jobs.active())
    expect(page.locator("#queue")).to_have_count(0)
    assert not any(studio.workspace.runs.get(one).test_cases for one in (run_id, other)), "none was let to its end"


def test_ticks_made_faster_than_they_are_answered_stay(studio: Studio, page: Page) -> None:
    run_id = at_the_gate(page, studio)
    boxes = page.locator("#stage-counterfactuals .line input[type=checkbox]")
    for _ in range(3):
        for box in boxes.all():
            box.uncheck()  # fails if the checkbox is ticked again, even for a moment
        for box in boxes.all():
            box.check()
    settled(page)
    assert all(item.used for item in studio.workspace.runs.get(run_id).values["counterfactuals"].value.value.items)

    # With no caption ticked, the gate is closed and says why. No key opens it.
    for box in boxes.all():
        box.uncheck()
    expect(page.locator("#gate")).to_contain_text("No counterfactual caption is ticked: tick at least one.")
    expect(page.locator("#generate")).to_have_count(0)
    page.keyboard.press("Control+Enter")
    page.evaluate("studio.send({ name: 'generate' })")  # a request from another client is refused as well
    expect(page.locator("#problem-generation")).to_contain_text("tick at least one")
    assert not studio.workspace.runs.get(run_id).jobs
