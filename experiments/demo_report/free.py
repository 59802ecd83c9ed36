"""Test the generator's UNet alone, without a control image: it must draw everything that a caption names, and nothing
else.

Two recipes rely on this: one draws from words alone, and one draws backgrounds for a subject.
"""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from demo.judges import Judges
from demo.language import caption
from demo.scene import SEMANTIC_CLASSES, random_scene
from experiments.demo_report.images import THINGS
from experiments.demo_report.rows import Row, percent, share
from experiments.demo_report.walk import FIRST_SEED
from pipeline.models.weights import loading
from pipeline.profiles.profile import Profile

SCENES = 60
"""Number of captions of each kind."""
LESS = 0.5
"""Maximum of a ratio: object pixels in the image without a subject, divided by object pixels in the image with the
subject. The maximum is not 0, since the judge models take some clouds for objects."""


def rows(profile: Profile, judges: Judges) -> list[Row]:
    """Measure how often the judges see a caption's class, weather and time of day in its image. For captions without a
    subject, measure how often they see few objects (see `LESS`).
    """
    import torch
    from diffusers import StableDiffusionPipeline

    with loading():
        pipe = StableDiffusionPipeline.from_pretrained(
            profile.generator.local(), safety_checker=None, dtype=torch.float32, local_files_only=True
        )
    pipe.set_progress_bar_config(disable=True)
    settings = profile.settings.generation

    def draw(text: str, seed: int) -> np.ndarray:
        image = pipe(
            text,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance,
            generator=torch.Generator().manual_seed(seed),
            height=settings.short_side,
            width=settings.short_side,
        ).images[0]
        return np.asarray(image)

    things = [SEMANTIC_CLASSES.index(name) for name in THINGS]
    named, air, full, empty = list[bool](), list[bool](), list[float](), list[float]()
    for number in tqdm(range(SCENES), "without control image", mininterval=2):
        scene = random_scene(FIRST_SEED + number)
        seen = judges.read(draw(caption(scene), number))
        named.append(seen.label == (scene.label or "road"))
        air.append((seen.weather, seen.time) == (scene.look.weather, scene.look.time))
        full.append(float(np.isin(seen.mask, things).mean()))
        without_subject = judges.read(draw(caption(scene.without_subject()), number))
        empty.append(float(np.isin(without_subject.mask, things).mean()))
    note = f"read as {', '.join(THINGS)}: {np.mean(empty):.1%} of a picture; with the subject {np.mean(full):.1%}"
    return [
        share(
            "without a control image, what the caption names is drawn",
            named,
            0.50,
            f"one of eleven classes; weather and hour {percent(air)}",
        ),
        share(
            "without its subject, a scene shows less than half of such things",
            [part <= LESS * before for part, before in zip(empty, full, strict=True)],
            0.80,
            note,
        ),
    ]
