"""A plan that fills a cell of a coverage table: its sources, the runs that it begins, and that it draws nothing."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from core.image_filter import ImageFilter
from core.types import CounterfactualCaption, Edit, EditType, Keywords, Task
from services.curation.plans import BegunPlan, CellPlan
from services.studio import Studio
from tests.support.cases import made_case
from tests.support.explorer import encoded, fill, text_run
from tests.support.scripted import perform

pytestmark = pytest.mark.slow

WEATHER = "weather x time of day"


def bird(studio: Studio, shade: int, images: int = 0, kind: EditType = "weather") -> str:
    """Create a labelled run of a new picture, with all texts and `images` images of one edit type. Return its id."""
    run = text_run(studio, Image.new("RGB", (40, 40), (shade, 60, 60)), f"bird {shade}.png")
    cases = [
        made_case(
            Image.new("RGB", (8, 8), (shade, number, 9)),
            counterfactual=CounterfactualCaption("A bird.", (Edit("sunny", "snowy", kind),)),
        )
        for number in range(images)
    ]
    studio.workspace.test_cases.extend(run, None, cases)
    return run


def describe(studio: Studio, line: str, place: str, sources: int = 5, **fields: Any) -> CellPlan:
    told: CellPlan = studio.commands.send(
        "describe-cell-plan", {"line": line, "place": place, "sources": sources, **fields}
    )
    return told


def begin(studio: Studio, line: str, place: str, sources: int = 5, **fields: Any) -> BegunPlan:
    begun: BegunPlan = studio.commands.send("plan-cell", {"line": line, "place": place, "sources": sources, **fields})
    return begun


def value_of(studio: Studio, run: str, stage: str) -> Any:
    return studio.workspace.runs.get(run).values[stage].value.value


def edits_of(studio: Studio, run: str) -> set[tuple[str, str]]:
    """Return the edits of a run's captions, by type and alternative."""
    return {(e.edit_type, e.alternative) for item in value_of(studio, run, "counterfactuals").items for e in item.edits}


def test_a_plan_takes_the_sources_with_the_fewest_images_of_the_cell(studio: Studio) -> None:
    many, few, none = bird(studio, 10, 3), bird(studio, 20, 1), bird(studio, 30)
    other = bird(studio, 40, 2, "attribute")
    told = describe(studio, "bird", "weather", 3)
    assert [one.run for one in told.sources] == [other, none, few], "of equal ones what was worked on last"
    assert [one.images for one in told.sources] == [0, 0, 1]
    assert told.available == 4
    assert [one.run for one in describe(studio, "bird", "weather", 20).sources][-1] == many
    assert (told.captions, told.images) == (12, 12), "four captions for each of three, one image each"


def test_what_is_told_before_begins_nothing(studio: Studio) -> None:
    bird(studio, 10)
    before = studio.workspace.runs.count()
    describe(studio, "bird", "weather")
    assert studio.workspace.runs.count() == before


def test_a_planned_run_makes_edits_of_that_type_only_and_draws_nothing_without_a_yes(studio: Studio) -> None:
    source = bird(studio, 10)
    studio.commands.send("caption", {"run": source, "text": "A red bird in sunny weather by day, as I say."})
    studio.commands.send("setting", {"run": source, "setting": "counterfactuals.captions", "value": 3})
    (run,) = begin(studio, "bird", "weather", 1).runs
    held, origin = studio.workspace.runs.get(run), studio.workspace.runs.get(source)
    assert (held.name, held.source_sha, held.task) == ("bird 10, weather", origin.source_sha, origin.task)
    assert list(held.values) == ["caption"], "the caption that a person corrected stays, all after it is asked for anew"
    assert value_of(studio, run, "caption").text.endswith("as I say.")
    assert "caption" not in studio.runs.stale(held, studio.runs.settings(held))
    assert held.settings["counterfactuals"]["captions"] == 3
    assert run in [one.id for one in studio.runs.latest()]

    fill(studio, run)
    keywords: Keywords = value_of(studio, run, "keywords")
    assert {one.text for one in keywords.items if one.used} == {"sunny"}
    assert {one.text for one in keywords.items if not one.used} == {"red", "by day"}, "a person sees them, and can tick"
    assert edits_of(studio, run) == {("weather", "snowy"), ("weather", "rainy"), ("weather", "foggy")}
    assert "edit types only: weather" in studio.workspace.runs.get(run).values["keywords"].value.trace.notes[0]
    assert studio.workspace.runs.get(run).test_cases == (), "nothing is drawn before a yes"
    assert studio.together.of([run]).images == 3, "which the gates of these runs wait for"


def test_a_planned_run_draws_no_image_that_its_source_has(studio: Studio) -> None:
    source = bird(studio, 10)
    (run,) = begin(studio, "bird", "weather", 1).runs
    fill(studio, run)
    for one in (source, run):
        gate = studio.states.of(one).gate
        assert gate.plan is not None
        drawn = {(image.counterfactual.text, image.seed) for image in gate.plan.images}
        assert drawn
        if one == source:
            before = drawn
    assert not before & drawn


def test_runs_that_wait_from_an_earlier_plan_are_told_and_their_sources_come_later(studio: Studio) -> None:
    bird(studio, 10)
    bird(studio, 20)
    first = begin(studio, "bird", "weather", 1)
    told = describe(studio, "bird", "weather", 2)
    assert [one.waiting for one in told.sources] == [0, 1]
    assert told.sources[1].source_sha == first.plan.sources[0].source_sha
    assert [one.waiting for one in describe(studio, "bird", "attribute").sources] == [0, 0]


def test_a_plan_begins_from_a_run_of_a_person_and_not_from_that_of_another_plan(studio: Studio) -> None:
    source = bird(studio, 10)
    (first,) = begin(studio, "snowy", "at night", 1, grid=WEATHER).runs
    (second,) = begin(studio, "bird", "attribute", 1).runs
    held = studio.workspace.runs.get(second)
    assert held.name == "bird 10, attribute"
    assert held.settings["counterfactuals"] == studio.workspace.runs.get(source).settings["counterfactuals"]
    studio.commands.send("delete-run", {"run": source})
    assert describe(studio, "bird", "object").sources[0].run == second, "where there is no other, it is taken"
    assert first != second


def test_a_weather_and_a_time_of_day_are_a_persons_edit(studio: Studio) -> None:
    bird(studio, 10)
    (run,) = begin(studio, "snowy", "at night", 1, grid=WEATHER).runs
    assert {one.text for one in value_of(studio, run, "keywords").items if one.used} == {"sunny", "by day"}
    authors = {stage: held.author for stage, held in studio.workspace.runs.get(run).values.items()}
    assert authors == {"caption": "model", "keywords": "person", "alternatives": "person"}
    held = studio.workspace.runs.get(run)
    assert set(studio.runs.stale(held, studio.runs.settings(held))) == set()
    fill(studio, run)
    (made,) = value_of(studio, run, "counterfactuals").items
    assert {(edit.edit_type, edit.alternative) for edit in made.edits} == {
        ("weather", "snowy"),
        ("time of day", "at night"),
    }
    assert "snowy" in made.text and "at night" in made.text


def test_planned_words_are_made_though_the_caption_was_stale(studio: Studio) -> None:
    source = bird(studio, 10)
    studio.commands.send("setting", {"run": source, "setting": "caption.max_new_tokens", "value": 40})
    held = studio.workspace.runs.get(source)
    assert "caption" in studio.runs.stale(held, studio.runs.settings(held))
    (run,) = begin(studio, "snowy", "at night", 1, grid=WEATHER).runs
    fill(studio, run)
    assert edits_of(studio, run) == {("weather", "snowy"), ("time of day", "at night")}


def test_a_weather_alone_changes_nothing_else(studio: Studio) -> None:
    bird(studio, 10)
    (run,) = begin(studio, "snowy", "", 1, grid=WEATHER).runs
    fill(studio, run)
    assert edits_of(studio, run) == {("weather", "snowy")}


def test_a_picture_that_shows_the_weather_already_is_not_taken(studio: Studio) -> None:
    bird(studio, 10)
    with pytest.raises(UserError, match="No run has a keyword for a weather other than “sunny”"):
        begin(studio, "sunny", "", grid=WEATHER)


@pytest.mark.parametrize(
    ("line", "place", "grid", "words"),
    [
        ("owl", "weather", "class x edit type", "No run has a picture of the class “owl”: add one in Explore"),
        ("", "weather", "class x edit type", "no class"),
        ("bird", "", "class x edit type", "no edit"),
        ("bird", "mood", "class x edit type", "There is no edit type “mood”: choose subject, object"),
        ("", "", WEATHER, "Name a weather or a time of day"),
        ("<b>", "weather", "class x edit type", "the class “<b>”"),
    ],
)
def test_a_cell_that_no_plan_can_fill_is_refused_in_a_sentence(
    studio: Studio, line: str, place: str, grid: str, words: str
) -> None:
    bird(studio, 10)
    before = studio.workspace.runs.count()
    for send in (describe, begin):
        with pytest.raises(UserError, match=words) as refused:
            send(studio, line, place, grid=grid)
        assert str(refused.value).endswith(".")
    assert studio.workspace.runs.count() == before, "nothing is begun"


def test_a_deleted_run_is_no_source_and_more_than_twenty_are_refused(studio: Studio) -> None:
    run = bird(studio, 10)
    studio.commands.send("delete-run", {"run": run})
    with pytest.raises(UserError, match="No run has a picture"):
        begin(studio, "bird", "weather")
    with pytest.raises(UserError, match="from 1 to 20"):
        begin(studio, "bird", "weather", 21)


def test_a_source_of_a_protected_class_is_found_and_keeps_its_mask(studio: Studio) -> None:
    run = studio.runs.from_upload(encoded(Image.new("RGB", (40, 40), (9, 9, 9))), "street.png")
    studio.workspace.runs.set_task(run, Task("segmentation", protected=("road", "bird")))
    studio.workspace.runs.set_mask(run, Image.new("L", (40, 40)), {0: "road"})
    (begun,) = begin(studio, "road", "weather", 1).runs
    held = studio.workspace.runs.get(begun)
    assert held.mask_sha == studio.workspace.runs.get(run).mask_sha and held.mask_sha


def test_edits_that_were_chosen_one_by_one_are_not_wanted_in_a_planned_run(studio: Studio) -> None:
    source = bird(studio, 10)
    studio.workspace.runs.set_settings(
        source,
        {
            **studio.workspace.runs.get(source).settings,
            "counterfactuals": {"combinations": "chosen", "chosen": [[["red", "blue"]]], "captions": 2},
        },
    )
    (run,) = begin(studio, "bird", "weather", 1).runs
    fill(studio, run)
    assert {kind for kind, _ in edits_of(studio, run)} == {"weather"}
    assert len(value_of(studio, run, "counterfactuals").items) == 2


def test_the_edit_types_are_a_setting_that_a_person_can_change(studio: Studio) -> None:
    run = bird(studio, 10)
    done = perform(studio, run, "setting", setting="keywords.edit_types", value="Weather,  time of day")
    assert not done.problem
    assert studio.workspace.runs.get(run).settings["keywords"]["edit_types"] == "weather, time of day"
    held = studio.workspace.runs.get(run)
    assert "keywords" in studio.runs.stale(held, studio.runs.settings(held))
    refused = perform(studio, run, "setting", setting="keywords.edit_types", value="mood")
    assert "there is no edit type “mood”: choose subject" in refused.problem
    studio.commands.send("setting", {"run": run, "setting": "keywords.edit_types", "value": ""})
    held = studio.workspace.runs.get(run)
    assert studio.runs.stale(held, studio.runs.settings(held)) == {}, "with all of them nothing is as it was not before"


def test_images_without_a_value_of_a_facet_are_found(studio: Studio) -> None:
    bird(studio, 10, 2)
    run = bird(studio, 20, 1, "attribute")
    catalogue = studio.workspace.catalogue
    assert catalogue.count(ImageFilter(facets={"weather": ("",)})).number == 1
    assert catalogue.count(ImageFilter(facets={"weather": ("", "snowy")})).number == 3
    assert catalogue.count(ImageFilter(without={"weather": ("",)})).number == 2
    assert dict(catalogue.by_source(ImageFilter(facets={"weather": ("",)}))) == {
        studio.workspace.runs.get(run).source_sha: 1
    }
