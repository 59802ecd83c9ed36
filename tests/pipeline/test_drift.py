"""Drift of edited images: planted drifts are found and undone, none is invented, and a lost border is reported."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pipeline.checks.drift import (
    IN_PLACE,
    LEAST_COVERED,
    Drift,
    can_move_back,
    drift_of,
    framing_kept,
    moved_back,
)
from tests.support.drifted import drifted, found

SEEDS = range(41_000, 41_006)


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "zoom"), [(0.01, 1.0), (0.05, 1.0), (0.2, 1.0), (0.0, 0.9), (0.0, 1.1)])
def test_a_planted_drift_is_found_and_masks_fit_once_it_is_undone(shift: float, zoom: float) -> None:
    """`python -m tests.support.drifted` measures many more scenes."""
    measured = found(SEEDS, 1, shift, zoom)
    assert measured.moved == 1 and np.mean(measured.overlaps) >= 0.95


@pytest.mark.slow
def test_of_an_edit_that_stayed_in_its_place_no_drift_is_told() -> None:
    for edits in (1, 2):
        assert found(SEEDS, edits).moved == 0
    assert found(SEEDS[:2], 1, side=128).moved == 0


@pytest.mark.parametrize("size", [(300, 200), (130, 410)])
def test_an_oblong_image_comes_back_to_its_pixels(size: tuple[int, int]) -> None:
    source = drifted(41_001, 1, side=512).source.resize(size)
    planted = Drift(zoom=0.94, right=0.02, down=-0.015)
    undo = Drift(zoom=1 / planted.zoom, right=-planted.right / planted.zoom, down=-planted.down / planted.zoom)
    measured = drift_of(source, moved_back(source, undo))
    assert measured is not None
    assert abs(measured.zoom - planted.zoom) < 0.004
    assert abs(measured.right - planted.right) < 0.004 and abs(measured.down - planted.down) < 0.004


def test_the_matrix_takes_the_centre_and_a_corner_to_their_places() -> None:
    drift = Drift(zoom=1.1, right=0.1, down=0)
    matrix = drift.matrix((101, 51))
    assert matrix @ (50, 25, 1) == pytest.approx((50 + 10.1, 25))
    assert matrix @ (0, 0, 1) == pytest.approx((50 - 55 + 10.1, 25 - 27.5))
    assert drift.moved == pytest.approx(np.hypot(0.15, 0.05))
    assert Drift(zoom=1, right=0.1, down=-0.2).covered == pytest.approx(0.9 * 0.8)
    assert Drift(zoom=0.9, right=0.05, down=0).covered == pytest.approx(1)
    assert Drift(zoom=1.25, right=0, down=0).covered == pytest.approx(0.64)


def test_what_has_nothing_in_common_with_the_source_cannot_be_told() -> None:
    source = drifted(41_001, 1).source
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (256, 256, 3), np.uint8))
    for image in (noise, Image.new("RGB", (256, 256))):
        assert drift_of(source, image) is None and drift_of(image, source) is None
    check = framing_kept(None, (256, 256))
    assert (check.passed, check.value) == (None, None) and "tell" in check.note
    tiny = Image.new("RGB", (16, 64))
    assert drift_of(tiny, tiny) is None and not can_move_back(None)


def test_what_the_check_says() -> None:
    still, little, far, away = (
        Drift(zoom=zoom, right=right, down=0) for zoom, right in ((1, IN_PLACE / 2), (1, 0.03), (1, -0.1), (0.8, 0))
    )
    assert [can_move_back(one) for one in (still, little, far, away)] == [False, True, False, True]
    checks = [framing_kept(one, (200, 100)) for one in (still, little, far, away)]
    assert [one.passed for one in checks] == [True, True, False, True]
    assert [one.value for one in checks] == pytest.approx([1 - IN_PLACE / 2, 0.97, 0.9, 1])
    assert {one.threshold for one in checks} == {LEAST_COVERED}
    assert [one.note for one in checks] == [
        "",
        "The picture was shifted by 6 px (3.0 %) to the right and has been moved back; the border, 3.0 % of it, "
        "repeats the pixels beside it.",
        "The picture was shifted by 20 px (10.0 %) to the left: it shows 90 % of the source's frame, so masks and "
        "boxes do not fit it.",
        "The picture was zoomed to 80.0 % and has been moved back.",
    ]
