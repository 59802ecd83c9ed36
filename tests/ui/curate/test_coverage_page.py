"""The coverage page shows the workspace's figures and no others, and shows other people's text as text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markupsafe import escape
from PIL import Image

from core.catalogue import GRIDS, Cell
from core.predictions import Guess, Prediction
from core.types import CounterfactualCaption, Edit, EditType, Task
from services.curation.coverage import CoverageTable, Head, coverage_table, figures_of, gaps
from storage.workspace import Workspace
from study.intervals import wilson
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in
from ui.curate.coverage import Look, coverage_page

HOSTILE = '"><script>alert(1)</script>'
MODEL = "demo/a-model"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def add(
    workspace: Workspace,
    label: str,
    *edits: tuple[EditType, str],
    accepted: int = 0,
    rejected: int = 0,
    still_open: int = 0,
    wrong: int = 0,
    right: int = 0,
) -> None:
    """Add a run with images of these edits. The model under test is wrong on `wrong` and right on `right` of them."""
    shade = workspace.runs.count()
    run = workspace.runs.create(Image.new("RGB", (8, 8), (shade, 1, 1)), Task("classification", label), "demo", "R", {})
    caption = CounterfactualCaption("x", tuple(Edit(kind, words, kind) for kind, words in edits))
    number = accepted + rejected + still_open
    pictures = [Image.new("RGB", (8, 8), (shade, place % 256, 100 + place // 256)) for place in range(number)]
    cases = workspace.test_cases.extend(run, None, [made_case(one, counterfactual=caption) for one in pictures])
    for case in cases[:accepted]:
        workspace.test_cases.review(case, "accepted")
    for case in cases[accepted : accepted + rejected]:
        workspace.test_cases.review(case, "rejected")
    source = workspace.runs.get(run).source_sha
    for place, sha in enumerate(
        [source, *(workspace.test_cases.get(case).image_sha for case in cases[: wrong + right])]
    ):
        said = label if place == 0 or place > wrong else "something else"
        workspace.predictions.append(sha, MODEL, Prediction("classification", MODEL, (Guess(said, 0.9),)))


def page(workspace: Workspace, **query: str) -> str:
    look = Look.of(query)
    return coverage_page(look, coverage_table(workspace.catalogue, look.grid, look.find))


def cell(markup: str, line: str, column: int) -> str:
    """Return the markup of a cell, by the name of its row and the index of its column."""
    row = re.search(rf'<tr data-line="{re.escape(html.escape(line))}">(.*?)</tr>', markup, re.DOTALL)
    assert row is not None, f"there is no line {line!r}"
    return re.findall(r"<td.*?</td>", row[1], re.DOTALL)[column]


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def columns(markup: str) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'<th scope="col"[^>]*data-place="([^"]*)"', markup)]


def lines(markup: str) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'<tr data-line="([^"]*)"', markup)]


def test_a_cell_says_what_the_workspace_has(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), accepted=7, rejected=3, still_open=4, wrong=2, right=6)
    markup = page(workspace)
    assert columns(markup)[0] == "weather"
    found = cell(markup, "bird", 0)
    assert words(found) == "14 4 open 70 % accepted 25 % newly wrong +"
    assert "7 of 10; 95 % Wilson interval 39.7 to 89.2 %" in found
    assert "2 of 8; 95 % Wilson interval" in found
    assert 'href="/curate/?class=bird&amp;edit+type=weather"' in found


def test_few_images_are_told_as_they_are_counted(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), accepted=3, rejected=1, wrong=1)
    markup = page(workspace, by="accepted")
    found = cell(markup, "bird", 0)
    assert words(found) == "4 3 of 4 accepted 1 of 1 newly wrong +"
    assert 'class="unsure"' in found and "75 %</i>" not in found
    add(workspace, "owl", ("weather", "snowy"), accepted=5)
    assert "unsure" not in cell(page(workspace, by="accepted"), "owl", 0)


def test_no_data_is_never_a_rate_of_zero(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), still_open=6)
    found = cell(page(workspace), "bird", 0)
    assert words(found) == "6 6 open none decided +", "of no model there is nothing to say"
    add(workspace, "owl", ("weather", "snowy"), still_open=2, right=2)
    markup = page(workspace, by="wrong")
    assert words(cell(markup, "bird", 0)) == "6 6 open none decided not read +"
    assert words(cell(markup, "owl", 0)) == "2 2 open none decided 0 of 2 newly wrong +"
    assert 'data-level="0"' in cell(markup, "bird", 0)
    assert "0 %" not in words(markup)
    told = figures_of(Cell("bird", "weather", {"open": 3}, {MODEL: {"cannot tell": 2, "wrong": 1}}), MODEL)
    assert (told.read, told.wrong.value) == (3, None), "wrong before, or not to be told: no rate follows"


def test_a_rate_is_never_rounded_to_none_or_all() -> None:
    cells = (
        Cell("bird", "weather", {"accepted": 1, "rejected": 1999}, {}),
        Cell("owl", "weather", {"accepted": 1999, "rejected": 1}, {}),
    )
    heads = tuple(Head(held.line, 2000) for held in cells)
    held = {(one.line, one.place): one for one in cells}
    table = CoverageTable(GRIDS[0], heads, (Head("weather", 4000),), held, (), 2, 1, 4000, 0)
    markup = coverage_page(Look(), table)
    assert words(cell(markup, "bird", 0)) == "2,000 1 % accepted +"
    assert words(cell(markup, "owl", 0)) == "2,000 99 % accepted +"


def test_an_image_with_two_edit_types_counts_in_each_and_once_at_the_names(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), ("attribute", "blue"), accepted=6)
    table = coverage_table(workspace.catalogue)
    assert [(head.value, head.images) for head in table.lines] == [("bird", 6)]
    both = {("bird", "weather"): 6, ("bird", "attribute"): 6}
    assert {spot: held.entries for spot, held in table.cells.items()} == both
    assert "cells do not add up" in words(page(workspace))


def test_what_is_missing_is_seen_and_can_be_made(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), accepted=6)
    add(workspace, "owl", ("attribute", "blue"), still_open=9)
    found = gaps(coverage_table(workspace.catalogue))
    assert [(gap.line.value, gap.place.value, gap.lacks) for gap in found] == [
        ("owl", "attribute", "accepted images"),
        ("owl", "weather", "images"),
        ("bird", "attribute", "images"),
    ], "first where one would expect most; nothing of edit types that there are no images of"
    markup = page(workspace)
    places = columns(markup)
    assert set(places) == {"weather", "attribute", "subject", "object", "background", "time of day", "domain"}
    empty = cell(markup, "bird", places.index("attribute"))
    assert words(empty) == "none" and "data-plan" in empty
    assert "none accepted of 9, 9 open" in words(markup)


def test_one_is_said_as_one(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), accepted=1)
    said = words(page(workspace))
    assert "1 images" not in said and ": 1 image, 0 open." in page(workspace)
    add(workspace, "bird", ("weather", "snowy"), accepted=5)
    add(workspace, "owl", ("weather", "snowy"), accepted=5)
    add(workspace, "owl", ("attribute", "blue"), accepted=5)
    assert "Of the cells listed here, 1 has no image." in words(page(workspace))


def test_nothing_lacks_accepted_images_before_anything_was_decided(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), still_open=6)
    assert gaps(coverage_table(workspace.catalogue)) == ()
    assert "What is missing" not in page(workspace)


def test_images_without_an_edit_or_a_class_have_their_place_and_no_plan(workspace: Workspace) -> None:
    add(workspace, "bird", accepted=5)
    add(workspace, "", ("weather", "snowy"), accepted=2)
    markup = page(workspace)
    assert columns(markup)[-1] == "" and lines(markup)[-1] == ""
    without = cell(markup, "bird", len(columns(markup)) - 1)
    assert 'href="/curate/?class=bird&amp;none=edit+type"' in without and "data-plan" not in without
    assert "data-plan" not in cell(markup, "", 0) and "none=class" in cell(markup, "", 0)
    assert "no edit" in markup and "no class" in markup


def test_weather_and_time_of_day_have_a_table_too(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), ("time of day", "night"), accepted=5)
    add(workspace, "bird", ("weather", "snowy"), accepted=1)
    add(workspace, "bird", ("attribute", "blue"), accepted=3)
    markup = page(workspace, table="weather")
    assert (lines(markup), columns(markup)) == (["snowy"], ["night", ""])
    assert words(cell(markup, "snowy", 0)).startswith("5 100 % accepted")
    assert "weather=snowy&amp;none=time+of+day" in cell(markup, "snowy", 1)
    assert "The table leaves out 3 images with neither edit." in words(markup)
    table = coverage_table(workspace.catalogue, GRIDS[1])
    assert [(head.value, head.images) for head in table.places] == [("night", 5), ("", 1)]


def test_lines_are_ordered_by_number_by_name_and_by_a_column(workspace: Workspace) -> None:
    add(workspace, "owl", ("weather", "snowy"), accepted=3, rejected=3)
    add(workspace, "bird", ("weather", "snowy"), accepted=4)
    add(workspace, "ape", ("attribute", "blue"), accepted=8)
    assert lines(page(workspace)) == ["ape", "owl", "bird"]
    assert lines(page(workspace, sort="name")) == ["ape", "bird", "owl"]
    assert lines(page(workspace, sort="in weather")) == ["owl", "bird", "ape"]
    by_rate = page(workspace, sort="in weather", by="accepted")
    assert lines(by_rate) == ["bird", "owl", "ape"], "what has no rate stands last"
    assert 'aria-sort="descending"' in by_rate
    assert lines(page(workspace, sort="in weather", by="accepted", rising="1")) == ["owl", "bird", "ape"]
    assert lines(page(workspace, sort="in nothing")) == ["ape", "owl", "bird"]


@pytest.mark.slow
def test_of_many_classes_the_most_common_are_shown_and_any_is_found(workspace: Workspace) -> None:
    for number in range(103):
        add(workspace, f"class {number:03}", ("weather", "snowy"), still_open=1 + (number == 102))
    markup = page(workspace)
    assert len(lines(markup)) == 100 and lines(markup)[0] == "class 102"
    assert "Shown are the 100 most common of 103 classes. Find any class by its name" in words(markup)
    assert "class 101" not in lines(markup)
    assert lines(page(workspace, find="CLASS  101")) == ["class 101"]
    assert "No class has “zebra” in its name." in words(page(workspace, find="zebra"))


def test_what_strangers_wrote_is_text(workspace: Workspace) -> None:
    add(workspace, HOSTILE, ("weather", HOSTILE), accepted=1)
    add(workspace, "bird", ("attribute", "x"), accepted=1)
    for markup in (page(workspace), page(workspace, table="weather"), page(workspace, find=HOSTILE, sort=HOSTILE)):
        assert "<script>alert" not in markup
        assert escape(HOSTILE) in markup
    assert page(workspace, table="nonsense", by="nonsense", model=HOSTILE).count("<script>alert") == 0


def test_an_empty_workspace_says_where_images_come_from(workspace: Workspace) -> None:
    markup = page(workspace)
    assert "There are no images yet" in markup and 'href="/"' in markup and "<table" not in markup


def test_its_intervals_are_those_of_studies(workspace: Workspace) -> None:
    add(workspace, "bird", ("weather", "snowy"), accepted=8, rejected=3)
    assert html.escape(wilson(8, 11).words) in page(workspace)
