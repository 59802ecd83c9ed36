"""Draws a scene's picture and semantic mask. The same scene always gives the same pixels."""

from __future__ import annotations

import random

import numpy as np

from demo.canvas import Canvas
from demo.light import Light
from demo.objects import draw_object_scene
from demo.road import draw_road_scene
from demo.scene import Scene

SIZE = 128


def render(scene: Scene, size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Return picture (size, size, 3) RGB uint8 and mask (size, size) uint8 of indices into `SEMANTIC_CLASSES`."""
    canvas, light = Canvas(size), Light(scene.look)
    draw = draw_road_scene if scene.family == "road" else draw_object_scene
    draw(canvas, scene, light)
    light.air(canvas, random.Random(f"air {scene.seed}"))
    return canvas.picture(), canvas.semantic_mask()
