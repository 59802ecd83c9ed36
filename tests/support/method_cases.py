"""A workspace in which three methods made images of the same sources by one plan. Stand-ins drew them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cli.batches
from core.image_filter import ImageFilter
from core.settings import GenerationSettings, UnderTestSettings
from pipeline.seams import OnStep
from services.batches.io_workers import Order
from services.batches.pools import HerePool, Pool
from services.batches.work import Worker
from services.evaluation.types import EvaluationQuestion, Subject
from storage.workspace import Workspace
from tests.support.made_once import MadeOnce
from tests.support.model_cases import onnx_of_steps
from tests.support.scripted import NoiseGenerator, ScriptedModels
from tests.support.workspaces import workspace_in

METHODS = "dillema:noise,dillema:inverted,aga"
SOURCES = 20


class Painter(NoiseGenerator):
    """Paints red pictures, but blue ones for captions with snow."""

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        noisy = super().generate(prompt, control, settings, seed, on_step)
        colour = (30, 30, 230) if "snowy" in prompt else (230, 30, 30)
        return Image.blend(Image.new("RGB", noisy.size, colour), noisy, 0.1)


def plan_in(folder: Path, sources: int = SOURCES) -> Path:
    """Write pictures of red things and a plan for them. Return the plan's file."""
    for place in range(sources):
        (folder / "data" / "test" / "red").mkdir(parents=True, exist_ok=True)
        picture = np.full((32, 32, 3), 20 + place, np.uint8)
        picture[..., 0] = 230
        Image.fromarray(picture).save(folder / "data" / "test" / "red" / f"{place}.png")
    plan = folder / "plan.toml"
    plan.write_text(
        'name = "Reds"\n[data]\nroot = "data"\nlayout = "imagefolder"\n[task]\nkind = "classification"\n'
        '[make]\nprofile = "demo"\nsettings = { "generation.steps" = 1, "counterfactuals.captions" = 4 }\n'
        "[edits]\ncaptions_a_source = 4\n"
    )
    return plan


def made_by_methods(made_once: MadeOnce, folder: Path) -> Path:
    """Copy a workspace with the images of `METHODS` and their control sets, as the command line makes them, to
    `folder`.
    """

    def make(at: Path) -> None:
        workspace_in(at / "workspace").close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli.batches, "pools", _stand_ins)
            of_workspace = ["--workspace", str(at / "workspace")]
            of_plan = [str(plan_in(at)), "--methods", METHODS, *of_workspace]
            assert cli.batches.main(["plan", *of_plan]) == 0
            assert cli.batches.main(["run", *of_plan, "--yes"]) == 0  # runs the batches that are planned

    return Path(shutil.copytree(made_once("made-by-methods", make) / "workspace", folder / "workspace"))


def question_on(workspace: Workspace, model: UnderTestSettings) -> EvaluationQuestion:
    """Return the question about the images of all methods."""
    batches = tuple(workspace.batches.get(number).facet for number in (1, 2, 3))
    return EvaluationQuestion(Subject(filter=ImageFilter(facets={"batch": batches})), model)


def colours(folder: Path) -> UnderTestSettings:
    """Write a model that says "red" or "blue" by the colour of a picture."""
    return onnx_of_steps(folder / "colours.onnx")


@contextmanager
def _stand_ins(*_: Any) -> Iterator[Callable[[Order], Pool]]:
    def worker(order: Order) -> Worker:
        models = ScriptedModels()
        models.generator = Painter()
        return Worker(order, models)  # type: ignore[arg-type]

    yield lambda order: HerePool(order, worker)
