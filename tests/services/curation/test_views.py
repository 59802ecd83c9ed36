"""Views of the gallery as addresses: each is written and read back unchanged."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from core.catalogue import Order
from core.errors import UserError
from core.image_filter import LONGEST_ADDRESS, Between, ImageFilter, ScoreBand
from services.curation.views import ShownColours, View, gallery_address

EVERYTHING_SAID = View(
    ImageFilter(
        facets={"class": ("bird", "a & b = c"), "edit type": ("weather",), "time of day": ("",)},
        without={"tag": ("boring",)},
        checks={"label seen": ("failed", "cannot tell")},
        models={"demo: the best:v2": ("newly wrong", "unread")},
        between=(Between("edges kept", 0.62, 1000.0), Between("odd:name", -1.0, 0.25)),
        scores=(ScoreBand(0.5), ScoreBand(0.1, 0.25), ScoreBand(None, 0.05), None),
        run="run-1",
        source="a" * 64,
        text='snow "or" rain',
        edited="día",
    ),
    Order("check", "edges kept", True),
    like="a red bird",
    region=((0.0, 0.5), (-1.25, 2.0), (3.0, 3.0)),
    colours=ShownColours("class", (("bird", True), ("others", False), ("+ & -", True)), none=True),
)


def test_all_that_a_view_says_comes_back_from_its_address() -> None:
    assert View.read(EVERYTHING_SAID.address) == EVERYTHING_SAID
    assert View.read(f"?{EVERYTHING_SAID.address}") == EVERYTHING_SAID
    assert View.read("") == View()
    assert View().address == ""
    assert gallery_address(View()) == "/curate/"


def test_the_same_view_has_one_address() -> None:
    again = View.read("class=bird&class=bird&sort=newest&text=a&text=b")
    assert again.filter.facets == {"class": ("bird",)}
    assert View.read(again.address).address == again.address == "class=bird&text=b"


@pytest.mark.parametrize(
    "text",
    ["colour=red", "check=passed", "check=x:maybe", "model=m:sometimes", "range=x:1", "range=x:nan:1", "near=-1",
     "near=9" * 30, "sort=loudest", "sort=check", "sort=newest:x", "region=1,2 3,4", "region=a,b c,d e,f",
     "colours=red", "colours=model:", "colours=tag&colours=bird", "colours=tag&colours=%2B",
     "colours=tag" + "&colours=-a" * 31, "picture=mine.png", "picture=" + "A" * 64,
     "__proto__=1", "score=0.5", "score=a:", "score=:nan", "score=1:2:3",
     "-run=x", "none=colour", "&".join(["class=a"] * 300), "text=" + "x" * LONGEST_ADDRESS],
)  # fmt: skip
def test_what_says_no_view_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"\.$") as refused:
        View.read(text)
    assert refused.value.field in ("filter", "order")


def test_colours_go_with_the_region_that_they_are_of() -> None:
    assert replace(EVERYTHING_SAID, region=()).address.count("colours") == 0


def test_a_stray_quote_is_a_quote() -> None:
    assert View.read(f"text={quote(chr(34))}").filter.text == '"'


def test_a_picture_of_ones_own_is_named_by_its_hash() -> None:
    view = View(picture="ab" * 32)
    assert View.read(view.address) == view and view.ranked and not view.is_filter


def test_near_duplicates_are_a_filter_that_has_any_order() -> None:
    grouped = View.read("alike=1&review=open")
    assert grouped.grouped and not grouped.is_filter and grouped.address == "review=open&alike=1"
    oldest = View.read("alike=1&sort=oldest")
    assert not oldest.grouped and oldest.order == Order("oldest") and oldest.address == "alike=1&sort=oldest"
    newest = View.read("alike=1&sort=newest")
    assert not newest.grouped and newest.address == "alike=1&sort=newest"
    assert newest.toggled("alike", "1") == grouped.without("review").toggled("alike", "1") == View()
    assert oldest.toggled("alike", "1") == View(order=Order("oldest"))
