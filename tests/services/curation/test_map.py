"""The map of images: equal vectors give equal places, a region selects the images in it, and the page's binary data."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.errors import UserError
from core.image_filter import ImageFilter
from services.curation.map import FEWEST, ImageMap
from services.curation.views import ShownColours, View
from services.studio import Studio
from storage.curation import entry_sets
from tests.services.curation.test_meaning import BLUE, GREEN, RED, ColourEmbedder, add, filled
from tests.support.serving import until
from tests.support.workspaces import workspace_in
from ui.curate.map import packed

pytestmark = pytest.mark.slow  # torch is loaded
EVERYTHING = ImageFilter()


@pytest.fixture
def embedder(studio: Studio) -> ColourEmbedder:
    made = ColourEmbedder()
    studio.driver.models.embedder = made  # type: ignore[misc]
    return made


@pytest.fixture
def mapped(studio: Studio, embedder: ColourEmbedder) -> Iterator[tuple[Studio, dict[str, list[int]]]]:
    """Birds in shades of red and green, and boats in shades of blue. Entries by colour."""
    shades = range(0, 40, 5)
    entries = {
        "red": add(studio, *((RED[0], RED[1] + shade, RED[2]) for shade in shades)),
        "green": add(studio, *((GREEN[0], GREEN[1] - shade, GREEN[2]) for shade in shades)),
        "blue": add(studio, *((BLUE[0], BLUE[1] + shade, BLUE[2]) for shade in shades), label="boat"),
    }
    filled(studio)
    yield studio, entries


def places(studio: Studio) -> dict[int, tuple[float, float]]:
    layout = studio.image_map.layout("pca")
    assert layout is not None
    return {int(entry): (float(x), float(y)) for entry, (x, y) in zip(layout.entries, layout.places, strict=True)}


def around(held: list[tuple[float, float]], by: float = 0.02) -> tuple[tuple[float, float], ...]:
    low, high = np.min(held, axis=0) - by, np.max(held, axis=0) + by
    return (low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])


def test_what_looks_alike_lies_together_and_always_at_the_same_place(
    mapped: tuple[Studio, dict[str, list[int]]],
) -> None:
    studio, entries = mapped
    found = places(studio)
    middles = {colour: np.mean([found[entry] for entry in held], axis=0) for colour, held in entries.items()}
    for colour, held in entries.items():
        for entry in held:
            away = {other: np.linalg.norm(np.array(found[entry]) - middle) for other, middle in middles.items()}
            assert min(away, key=lambda other: float(away[other])) == colour
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in found.values())
    again = ImageMap(studio.workspace, studio.meaning).layout("pca")
    assert (
        again is not None and dict(zip(again.entries.tolist(), map(tuple, again.places.tolist()), strict=True)) == found
    )


def test_places_stay_while_a_few_images_are_added(mapped: tuple[Studio, dict[str, list[int]]]) -> None:
    studio, _ = mapped
    before = places(studio)
    (added,) = add(studio, (120, 120, 20))
    filled(studio)
    after = places(studio)
    assert added in after and {entry: after[entry] for entry in before} == before


def test_a_region_means_the_images_in_it(mapped: tuple[Studio, dict[str, list[int]]]) -> None:
    studio, entries = mapped
    found = places(studio)
    allowed = studio.workspace.catalogue.bits()
    region = around([found[entry] for entry in entries["red"]])
    assert entry_sets.entries_of(studio.image_map.inside(region, allowed)).tolist() == entries["red"]
    boats = studio.workspace.catalogue.bits(ImageFilter(facets={"class": ("boat",)}))
    assert not studio.image_map.inside(region, boats).any()
    whole = around(list(found.values()))
    assert (studio.image_map.inside(whole, boats) == boats).all()
    assert (studio.image_map.inside((), boats) == boats).all()
    # A diagonal cuts the map into two triangles. Each image is in one of them.
    (a, b, c, d) = whole
    halves = [studio.image_map.inside(half, allowed) for half in ((a, b, c), (a, c, d))]
    assert (halves[0] ^ halves[1] == allowed).all()
    to_the_right = tuple((x + 2, y) for x, y in whole)
    assert not studio.image_map.inside(to_the_right, allowed).any(), "there is no UMAP map"


def test_the_gallery_shows_a_region_and_what_was_looked_for(mapped: tuple[Studio, dict[str, list[int]]]) -> None:
    studio, entries = mapped
    gallery, found = studio.gallery, places(studio)
    view = View(region=around([found[entry] for entry in entries["red"]]))
    assert [entry.id for entry in gallery.page(view).entries] == entries["red"][::-1]
    assert gallery.count(view).number == 8 and gallery.ids(view) == tuple(entries["red"])
    assert gallery.totals(view).facets["class"] == {"bird": 8, "boat": 0}
    assert gallery.place(view, entries["red"][-1]) == 0 and gallery.place(view, entries["blue"][0]) is None
    red = View(like="red")
    ranked = studio.meaning.ranked("red", studio.workspace.catalogue.bits()).entries
    shown = gallery.page(red, at=3, limit=5)
    assert tuple(entry.id for entry in shown.entries) == ranked[3:8] and shown.more
    assert gallery.place(red, ranked[4]) == 4 and gallery.count(red).number == 24
    near = View(near=entries["blue"][2], filter=ImageFilter(facets={"class": ("boat",)}))
    shown_near = [entry.id for entry in gallery.page(near).entries]
    assert shown_near[0] == entries["blue"][2] and {*shown_near} == {*entries["blue"]}


def test_points_have_the_colour_of_their_value(mapped: tuple[Studio, dict[str, list[int]]]) -> None:
    studio, entries = mapped
    workspace = studio.workspace
    workspace.test_cases.review(workspace.catalogue.get(entries["red"][0]).test_case or 0, "accepted")
    points = studio.image_map.points("pca", EVERYTHING, "class")
    named = {one.name: one for one in points.legend}
    assert (named["bird"].count, named["boat"].count, named["others"].count, named["none"].count) == (16, 8, 0, 0)
    assert (named["boat"].value, named["none"].value) == ("boat", "")
    place = [one.name for one in points.legend].index("boat")
    assert sorted(points.entries[points.categories == place].tolist()) == entries["blue"]
    reviewed = studio.image_map.points("pca", EVERYTHING, "review")
    assert {one.name: one.count for one in reviewed.legend if one.count} == {"open": 23, "accepted": 1}
    tagged = studio.image_map.points("pca", EVERYTHING, "tag")
    assert {one.name: one.count for one in tagged.legend} == {"others": 0, "none": 24}
    model = studio.image_map.points("pca", EVERYTHING, "model:a model")
    assert {one.name: one.count for one in model.legend if one.count} == {"unread": 24}
    boats = studio.image_map.points("pca", ImageFilter(facets={"class": ("boat",)}), "class")
    assert sorted(boats.entries.tolist()) == entries["blue"] and boats.missing == 0


@pytest.mark.parametrize("colour", ["tag", "class", "model:a model"])
def test_a_region_means_the_points_whose_colours_were_shown(
    mapped: tuple[Studio, dict[str, list[int]]], monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    """An image with several tags has one colour. Images with rare tags or none have a colour too."""
    monkeypatch.setattr("services.curation.map.COLOURED", 2)
    studio, entries = mapped
    red, blue = entries["red"], entries["blue"]
    for tag, those in {"common": red[:6], "less": red[4:] + blue[:1], "rare": red[:1] + blue[:2]}.items():
        studio.commands.send("tag-images", {"entries": those, "tag": tag})
    points = studio.image_map.points("pca", EVERYTHING, colour)
    if colour == "tag":
        counts = {one.name: one.count for one in points.legend}
        assert counts == {"common": 6, "less": 3, "others": 1, "none": 14}
    whole = around(list(places(studio).values()))
    for hidden in range(1 << min(4, len(points.legend))):
        shown = [not hidden >> place & 1 for place in range(len(points.legend))]
        values = tuple((one.value, on) for one, on in zip(points.legend, shown, strict=True) if one.value)
        view = View(region=whole, colours=ShownColours(colour, values, *shown[-2:]))
        drawn = {int(entry) for entry, place in zip(points.entries, points.categories, strict=True) if shown[place]}
        assert {*studio.gallery.ids(View.read(view.address))} == drawn
        assert studio.gallery.count(view).number == len(drawn)
        boats = View(ImageFilter(facets={"class": ("boat",)}), region=whole, colours=view.colours)
        assert {*studio.gallery.ids(boats)} == drawn & {*blue}


def test_the_bytes_for_the_page_say_the_points(mapped: tuple[Studio, dict[str, list[int]]]) -> None:
    studio, _ = mapped
    points = studio.image_map.points("pca", EVERYTHING, "class")
    data = packed(points)
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    count, at = header["count"], 4 + length
    assert at % 4 == 0 and len(data) == at + 9 * count == at + 9 * 24
    assert [one["name"] for one in header["legend"]] == [one.name for one in points.legend]
    assert np.frombuffer(data, "<u4", count, at).tolist() == points.entries.tolist()
    drawn = np.frombuffer(data, "<u2", 2 * count, at + 4 * count).reshape(-1, 2) / 65535
    found = places(studio)
    assert np.allclose(drawn, [found[int(entry)] for entry in points.entries], atol=1e-4)


def test_without_images_there_is_an_empty_map(studio: Studio) -> None:
    points = studio.image_map.points("pca", EVERYTHING, "class")
    assert (len(points.entries), points.missing) == (0, 0)
    add(studio, RED)
    assert studio.image_map.points("pca", EVERYTHING, "class").missing == 1
    with pytest.raises(UserError, match="no UMAP map yet"):
        studio.image_map.points("umap", EVERYTHING, "class")


def test_one_image_and_equal_images_have_a_place(studio: Studio, embedder: ColourEmbedder) -> None:
    add(studio, RED)
    filled(studio)
    assert list(places(studio).values()) == [(0.5, 0.5)]
    add(studio, RED, RED)
    filled(studio)
    assert set(places(studio).values()) == {(0.5, 0.5)}


def test_umap_refuses_too_few_images(mapped: tuple[Studio, dict[str, list[int]]], tmp_path: Path) -> None:
    with workspace_in(tmp_path / "other") as workspace:
        meaning = type(mapped[0].meaning)(mapped[0].profile, mapped[0].driver.models, workspace, mapped[0].jobs)
        with pytest.raises(UserError, match=f"UMAP needs {FEWEST} to"):
            ImageMap(workspace, meaning).make()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_umap_is_made_in_the_background_kept_and_stopped(
    mapped: tuple[Studio, dict[str, list[int]]], compiled: bool
) -> None:
    """For few images, UMAP spends most of its time compiling, so the test also runs without compiling."""
    assert (os.environ["NUMBA_DISABLE_JIT"] == "0") == compiled
    studio, entries = mapped
    studio.commands.send("make-map", {})
    with pytest.raises(UserError, match="already"):
        studio.commands.send("make-map", {})
    studio.commands.send("stop-map", {})
    assert studio.image_map.making() is None and studio.image_map.layout("umap") is None
    studio.commands.send("make-map", {})
    until(lambda: (made := studio.image_map.making()) is not None and not made.active, 300)
    assert (made := studio.image_map.making()) is not None and (made.state, made.error) == ("done", "")
    again = ImageMap(studio.workspace, studio.meaning)
    layout = again.layout("umap")
    assert layout is not None and sorted(layout.entries.tolist()) == sorted(
        entry for held in entries.values() for entry in held
    )
    assert layout.places[:, 0].min() >= 2 and layout.places[:, 0].max() <= 3
    held = {int(entry): (float(x), float(y)) for entry, (x, y) in zip(layout.entries, layout.places, strict=True)}
    inside = again.inside(around(list(held.values())), studio.workspace.catalogue.bits())
    assert entry_sets.size(inside) == 24
    assert again.points("umap", EVERYTHING, "class").places.max() <= 65535
