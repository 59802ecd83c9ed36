"""Tests for near-duplicates: pictures that look alike are found, and no others."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from PIL import Image, ImageEnhance
from scipy.cluster.hierarchy import DisjointSet

from benchmarks.twins import drawn, flipped
from core import perceptual_hashes as near_duplicates
from core.perceptual_hashes import BITS, DISTANCE, NearHashes, join_alike, mirrored, near_any, perceptual_hash
from demo.scene import random_scene
from tests.support.set_cases import as_jpeg, picture


def clusters(seed: int) -> list[int]:
    """Return random hashes; many differ from another by at most six bits."""
    fate = random.Random(seed)
    found = [fate.getrandbits(BITS) for _ in range(60)]
    for _ in range(240):
        value = fate.choice(found)
        for bit in fate.sample(range(BITS), fate.randrange(7)):
            value ^= 1 << bit
        found.append(value)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_bands_find_what_looking_at_all_finds(seed: int) -> None:
    hashes = clusters(seed)
    near = NearHashes()
    for value in hashes:
        near.add(value)
    for value in hashes:
        away = {other: (other ^ value).bit_count() for other in hashes}
        assert near.near(value) == {other: bits for other, bits in away.items() if bits <= DISTANCE}


@pytest.mark.parametrize("seed", range(5))
def test_all_at_once_are_near_what_each_is_near_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "_PAIRS", 50)  # compare in small blocks
    values, others = clusters(seed), clusters(seed)[::3] + clusters(seed + 1)
    both = [*others, *map(mirrored, others)]
    expected = [any((one ^ other).bit_count() <= DISTANCE for other in both) for one in values]
    assert near_any(values, others).tolist() == expected and {True, False} == set(expected)
    assert near_any(values, []).tolist() == [False] * len(values) and not len(near_any([], others))
    whole = (1 << BITS) - 1
    assert near_any([whole, whole ^ 0b111, whole ^ (0b1111 << 60)], [whole]).tolist() == [True, True, False]
    assert near_any([mirrored(whole) ^ 0b111], [whole]).tolist() == [True], "of a mirrored picture"


@pytest.mark.parametrize("seed", range(5))
def test_what_is_near_through_others_is_one_group(seed: int) -> None:
    hashes = dict(enumerate(clusters(seed)))
    groups = DisjointSet()
    join_alike(groups, hashes)
    near = {pair for pair in combinations(hashes, 2) if (hashes[pair[0]] ^ hashes[pair[1]]).bit_count() <= DISTANCE}
    expected = {number: {number} for number in hashes}
    for one, other in near:
        if expected[one] is not expected[other]:
            expected[one] |= expected[other]
            for member in expected[one]:
                expected[member] = expected[one]
    for one, other in combinations(hashes, 2):
        assert (groups[one] == groups[other]) == (other in expected[one])


def test_a_picture_looks_like_itself_in_another_file() -> None:
    for number in range(40):
        image = picture(number, (200, 120))
        value = perceptual_hash(image)
        for other in (as_jpeg(image), image.resize((100, 60)), ImageEnhance.Brightness(image).enhance(0.9)):
            assert (perceptual_hash(other) ^ value).bit_count() <= DISTANCE


def test_the_hash_of_a_mirrored_picture_is_known_but_for_a_few_bits() -> None:
    images = [drawn(random_scene(600 + number), 96) for number in range(60)]
    hashes = [perceptual_hash(image) for image in images]
    away = [
        (mirrored(value) ^ perceptual_hash(flipped(image))).bit_count()
        for value, image in zip(hashes, images, strict=True)
    ]
    assert sum(bits <= 10 for bits in away) >= 59 and sum(bits <= DISTANCE for bits in away) >= 24
    assert all(
        (one ^ perceptual_hash(flipped(image))).bit_count() > 10 for one, image in zip(hashes, images, strict=True)
    )
    assert all(mirrored(mirrored(value)) == value for value in hashes)
    groups = DisjointSet()
    join_alike(groups, {"one": hashes[0], "other": hashes[1], "mirrored": mirrored(hashes[0]) ^ 0b101})
    assert groups["one"] == groups["mirrored"] != groups["other"]


def test_different_pictures_do_not_look_alike() -> None:
    hashes = {number: perceptual_hash(picture(number)) for number in range(200)}
    groups = DisjointSet()
    join_alike(groups, hashes)
    assert len({groups[number] for number in hashes}) == 200


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_a_picture_of_one_colour_has_a_hash(mode: str) -> None:
    shades = {perceptual_hash(Image.new(mode, (31, 17), shade)) for shade in ("white", "gray")}
    assert len(shades) == 1, "the noise of floats is no look"
