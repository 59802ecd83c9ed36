"""With several source images and a memory that holds one large model at a time, each model is loaded once. The classes
are the real ones at small size; the test sets their sizes and the memory.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import cli.pipeline as cli
from core.model_sections import Weights
from demo.render import render
from demo.scene import random_scene
from pipeline.models import Models
from pipeline.models.model_memory import WORK
from pipeline.profiles.profile import Profile, load_profile
from pipeline.run_files import run_file
from tests.pipeline.models.test_real_classes import paper_at, photo
from tests.support import tiny
from tests.support.made_once import MadeOnce

pytestmark = pytest.mark.slow
GB = 1_000_000_000


class Counted(Models):
    """Models on a machine whose memory holds the models of the profile and `room` more bytes. It counts the loads of
    each class.
    """

    def __init__(self, profile: Profile, room: int) -> None:
        self.loads = Counter[str]()
        super().__init__(profile, lambda _place: room + WORK - self.used())

    def used(self) -> int:
        weights = self.profile.weights()
        return sum(self._needed(role, weights)[1] for role in self.loaded)

    def load(self, role: str) -> Any:
        made = super().load(role)
        self.loads[type(made).__name__] += 1
        return made


def sized(section: Weights) -> Weights:
    return section.model_copy(update={"memory_half": 10 * GB, "memory_full": 10 * GB})


def demo_profile() -> Profile:
    """Return the demo's profile with three large models."""
    demo = load_profile("demo")
    return demo.model_copy(update={name: sized(getattr(demo, name)) for name in ("captioner", "language", "generator")})


def augment(
    profile: Profile, room: int, sources: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *more: str
) -> Counted:
    models = Counted(profile, room)
    monkeypatch.setattr(cli, "load_profile", lambda _name: profile)
    monkeypatch.setattr(cli, "load_models", lambda _profile: models)
    command = ["augment", str(sources), "--task", "classification", "--label", "bird", "--out", str(out)]
    assert cli.main([*command, "--steps", "2", "--set", "generation.short_side=64", *more]) == 0
    models.release_all()
    return models


def pixels(out: Path) -> dict[str, list[str]]:
    return {
        file.parent.name: [image.record.sha256 for image in run_file.read(file).images]
        for file in out.glob("*/run.json")
    }


@pytest.mark.demo
def test_each_model_is_loaded_once_for_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources := tmp_path / "scenes").mkdir()
    for number in range(3):
        scene = random_scene(2_100_000 + number, "object", "bird")
        Image.fromarray(render(scene)[0]).save(sources / f"{number}.png")
    profile, few = demo_profile(), ("--captions", "2")
    small = augment(profile, 10 * GB, sources, tmp_path / "small", monkeypatch, *few)
    assert {name: small.loads[name] for name in ("Blip", "GgufProcess", "StableDiffusion")} == {
        "Blip": 1,
        "GgufProcess": 1,
        "StableDiffusion": 1,
    }
    augment(profile, 100 * GB, sources, tmp_path / "large", monkeypatch, *few)
    assert pixels(tmp_path / "small") == pixels(tmp_path / "large")
    assert [len(images) for images in pixels(tmp_path / "small").values()] == [2, 2, 2]


def test_the_papers_models_are_loaded_once_for_all_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_once: MadeOnce
) -> None:
    (sources := tmp_path / "photos").mkdir()
    for number in range(3):
        photo(number).save(sources / f"{number}.png")
    profile = paper_at(tiny.paper_models(made_once), generator={"safety_checker": False})
    more = ("--recipe", "reconstruction")
    small = augment(profile, 31 * GB, sources, tmp_path / "small", monkeypatch, *more)
    assert (small.loads["Blip2"], small.loads["StableDiffusion"]) == (1, 1)
    augment(profile, 100 * GB, sources, tmp_path / "large", monkeypatch, *more)
    assert pixels(tmp_path / "small") == pixels(tmp_path / "large")
    assert [len(images) for images in pixels(tmp_path / "small").values()] == [1, 1, 1]
