"""Check that the models still have the internal names that the benchmarks time.

`make soak` runs the benchmarks themselves, at their smallest size.
"""

from __future__ import annotations

import pytest
from PIL import Image

from benchmarks import lots, reference
from pipeline.driver import Driver
from pipeline.profiles.profile import load_profile
from pipeline.seams import DrawRequest
from tests.support.demo_server import demo_models

pytestmark = [pytest.mark.demo, pytest.mark.slow]


def test_benchmarks_time_and_count_a_drawing_and_make_the_models_forget_it() -> None:
    models, profile = demo_models(), load_profile("demo")
    driver, spent = Driver(profile, models), reference.Spent()
    settings = profile.settings.generation.model_copy(update={"steps": 1})
    with lots.parts_of(models, spent), reference.counting(models) as counted:
        models.generator.draw(
            [DrawRequest("a red bird", 1, 0)], 1, [Image.new("RGB", (128, 128))], settings, lambda _done, _of: None
        )
    assert counted == [1]
    assert 0 < spent.parts["of which decoding"] < spent.parts["drawing"]
    lots.forget(driver)
