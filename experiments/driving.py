"""Functions for experiments and tests that run one stage, or draw given captions, with a driver but no workspace."""

from __future__ import annotations

import threading
from typing import Any

from PIL import Image

from core.lineage import DEFAULT_RECIPE, TestCase
from core.settings import Settings
from core.types import CounterfactualCaptions, StageName, StageValue, Task, Values
from pipeline.driver import Driver, ignore
from pipeline.recipes import Recipe, recipe_of
from pipeline.request import Emit, Event, ImageFailed, MemoryStore, Request
from pipeline.stages import generation


def produce(
    driver: Driver,
    recipe: Recipe,
    name: StageName,
    source: Image.Image,
    task: Task,
    values: Values,
    settings: Settings | None = None,
    seed: int = 0,
    cancelled: threading.Event | None = None,
) -> StageValue[Any]:
    """Run one stage, given the values of earlier stages, and return its value. `settings` defaults to the profile's."""
    store = MemoryStore(source, values)
    settings = settings or recipe.settings_in(driver.profile)
    driver.run(Request(task, settings, recipe.name, seed, stages=(name,), images=()), store, cancelled=cancelled)
    return store.held[name]


def draw(
    driver: Driver,
    source: Image.Image,
    task: Task,
    captions: CounterfactualCaptions,
    settings: Settings | None = None,
    seed: int = 0,
    emit: Emit = ignore,
    cancelled: threading.Event | None = None,
    recipe: str = DEFAULT_RECIPE,
) -> list[TestCase]:
    """Draw captions and return the test cases. Raises the error of the first image that fails."""
    settings = settings or recipe_of(recipe).settings_in(driver.profile)
    images = generation.plan(captions, recipe_of(recipe).drawing_method.planning(settings), seed).images
    store = MemoryStore(source)

    def tell(event: Event) -> None:
        if isinstance(event, ImageFailed):
            raise event.error
        emit(event)

    driver.run(Request(task, settings, recipe, seed, stages=(), images=images), store, tell, cancelled)
    return store.cases
