"""Tests for the split of sources before a training: a source's part depends on nothing else, and no parts share
pictures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from PIL import Image, ImageEnhance

from core.images import image_sha
from core.perceptual_hashes import perceptual_hash
from demo.render import render
from demo.scene import random_scene
from evaluation.retraining.data_split import Side, side_of
from experiments.paper.shared_images import Pictured, shared


def picture(image: Image.Image, name: str, source: str) -> Pictured:
    """Return an image with its name, source and hashes."""
    return Pictured(name, source, image_sha(image), perceptual_hash(image))


def drawn(number: int) -> Image.Image:
    """Return a drawn scene as an image of its own source."""
    return Image.fromarray(render(random_scene(9_100_000 + number, "object"), 64)[0])


def test_a_side_hangs_on_the_source_and_the_seed_alone() -> None:
    sources = [f"{number:064x}" for number in range(4000)]
    sides = {source: side_of(source, 7) for source in sources}
    number = Counter(sides.values())
    assert abs(number["train"] / 4000 - 0.6) < 0.03 and abs(number["tune"] / 4000 - 0.15) < 0.03
    assert {source: side_of(source, 7) for source in reversed(sources)} == sides
    assert {source: side_of(source, 8) for source in sources} != sides


def test_pictures_on_two_sides_are_found_also_where_they_only_look_alike() -> None:
    images = [drawn(number) for number in range(12)]
    sides: dict[Side, list[Pictured]] = {"train": [], "tune": [], "test": []}
    for number, image in enumerate(images):
        side: Side = ("train", "tune", "test")[number % 3]  # type: ignore[assignment]
        sides[side].append(picture(image, f"scene {number}", f"{number}"))
    assert shared(sides) == []
    again = replace(sides["train"][0], name="again", source="99")
    brighter = picture(ImageEnhance.Brightness(images[1]).enhance(1.03), "brighter", "98")
    sides["test"] += [again, brighter]
    found = {(one.one.name, one.other.name): (one.sides, one.bits is None) for one in shared(sides)}
    assert found[("scene 0", "again")] == (("train", "test"), True)
    assert found[("scene 1", "brighter")] == (("tune", "test"), False)
    assert len(found) == 2 and len(shared(sides, most=1)) == 1
