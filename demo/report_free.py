"""Asks the generator's UNet alone, without a control image: what a caption names is drawn, and an empty place is empty.

Later recipes stand on both: images from words alone, and scenes to put a subject into.
"""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from demo.judges import Judges
from demo.language import caption
from demo.report_images import THINGS, lost_and_added
from demo.report_rows import Row, percent, share
from demo.report_walk import FIRST_SEED
from demo.scene import random_scene
from pipeline.profile import Profile

SCENES = 60
"""How many captions of each kind."""


def rows(profile: Profile, judges: Judges) -> list[Row]:
    """Whether the judges see class, weather and time of day, and nothing where the caption names nothing."""
    import torch
    from diffusers import StableDiffusionPipeline

    generator = profile.generator
    pipe = StableDiffusionPipeline.from_pretrained(generator.path, safety_checker=None, local_files_only=True)
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

    named, air, empty = list[bool](), list[bool](), list[bool]()
    for number in tqdm(range(SCENES), "without control image", mininterval=2):
        scene = random_scene(FIRST_SEED + number)
        seen = judges.read(draw(caption(scene), number))
        named.append(seen.label == (scene.label or "road"))
        air.append((seen.weather, seen.time) == (scene.look.weather, scene.look.time))
        alone = judges.read(draw(caption(scene.without_subject()), number))
        empty.append(not lost_and_added(np.zeros_like(alone.mask), alone.mask)[1])
    return [
        share(
            "without a control image, what the caption names is drawn", named, 0.90, f"weather and hour {percent(air)}"
        ),
        share("without its subject, a scene shows none", empty, 0.90, f"no {', '.join(THINGS)}"),
    ]
