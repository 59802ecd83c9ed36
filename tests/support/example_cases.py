"""A studio that makes examples in the process of a test, and the actions of a user on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import data_set
from pipeline.profiles.profile import load_profile
from pipeline.seams import Models
from services.batches.io_workers import Order
from services.batches.pools import HerePool, Pool
from services.batches.work import Worker
from services.example.service import ExampleSize, ExampleView
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.scripted import ScriptedModels
from tests.support.workspaces import workspace_in

SMALL = ExampleSize(scenes=4, captions=2, steps=2, judged=10)
"""Smallest size of an example that shows each part."""
SEED = 7
SECONDS = 300


@contextmanager
def example_studio(folder: Path, models: Models | None = None) -> Iterator[Studio]:
    """Open a studio on the workspace in `folder`. Its batches run in this process, with stand-ins for the models."""
    with workspace_in(folder) as workspace:
        studio = studio_on(workspace, models)
        yield studio
        studio.close()


def studio_on(workspace: Workspace, models: Models | None = None) -> Studio:
    """Return the studio of `example_studio` on an open workspace."""
    own: Models = models or ScriptedModels()
    studio = Studio(load_profile("demo"), own, workspace, scenes=data_set)
    studio.example.size = SMALL
    studio.example.new_seed = lambda: SEED

    def pool(order: Order) -> Pool:
        return HerePool(order, lambda order: Worker(order, own))

    studio.batches.pool = pool
    return studio


def made(studio: Studio) -> ExampleView:
    """Make the example of a studio, and wait for it."""
    studio.commands.send("make-example", {})
    view = studio.example.wait(SECONDS)
    assert view.state == "made", view
    return view


def removed(studio: Studio) -> ExampleView:
    """Remove the example of a studio."""
    studio.commands.send("remove-example", {})
    view = studio.example.wait(SECONDS)
    assert view.state == "none", view
    return view
