"""Measures how many twins (changed copies of a picture) are found, and how many other pictures are taken for twins. The
methods are `core.twins`, the perceptual hash, and both together, as data splits use them.

`python -m benchmarks.twins` prints the rates, and how long the search takes among 10,000 sources (two minutes, mostly
for drawing scenes). The other pictures are random scenes and two hard kinds: scenes of the same objects, light and
colours with another layout, and scenes of the same layout with another look.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from benchmarks.figures import Figure, reported
from core.perceptual_hashes import DISTANCE, mirrored, perceptual_hash
from core.twins import Looks, look_of, twins_among, twins_between
from demo.render import render
from demo.scene import Scene, random_look, random_scene

FIRST, SIZE = 70_000_000, 256
SCENES, SOURCES = 150, 10_000
SEARCHED = 20_000.0
"""Maximum milliseconds of the search on two cores, since a person waits for the data split."""
Change = Callable[[Image.Image], Image.Image]


def flipped(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def cropped(image: Image.Image, share: float) -> Image.Image:
    """Return the image without its border: at each edge, `share` (0 to 0.5) of its width or height is cut off."""
    across, down = round(share * image.width), round(share * image.height)
    return image.crop((across, down, image.width - across, image.height - down))


def shifted(image: Image.Image, share: float) -> Image.Image:
    """Return the image shifted to the right by `share` of its width. The gap gets the colours of the left edge."""
    pixels = np.asarray(image)
    by = round(share * image.width)
    return Image.fromarray(np.concatenate([np.repeat(pixels[:, :1], by, axis=1), pixels[:, :-by]], axis=1))


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def marked(image: Image.Image) -> Image.Image:
    """Return the picture with a half-transparent word across it, a fifth as high as the picture."""
    layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
    font = ImageFont.load_default(size=image.height // 5)
    ImageDraw.Draw(layer).text((0.08 * image.width, 0.4 * image.height), "SAMPLE", (255, 255, 255, 128), font)
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


def halved(image: Image.Image) -> Image.Image:
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


CHANGES: Mapping[str, Change] = {
    "flip": flipped,
    "crop of 5 % at each edge": lambda image: cropped(image, 0.05),
    "crop of 10 % at each edge": lambda image: cropped(image, 0.1),
    "shift by 3 % of the width": lambda image: shifted(image, 0.03),
    "JPEG of quality 60": lambda image: as_jpeg(image, 60),
    "JPEG of quality 30": lambda image: as_jpeg(image, 30),
    "watermark": marked,
    "half the size": halved,
    "flip and crop of 5 %": lambda image: cropped(flipped(image), 0.05),
    "10 % brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "10 % brighter and flip": lambda image: flipped(ImageEnhance.Brightness(image).enhance(1.1)),
    "10 % brighter and crop of 5 %": lambda image: cropped(ImageEnhance.Brightness(image).enhance(1.1), 0.05),
    "rotation by 5 degrees": lambda image: cropped(image.rotate(5, Image.Resampling.BICUBIC), 0.1),
    "crop of 20 % at each edge": lambda image: cropped(image, 0.2),
}


@dataclass(frozen=True)
class Rate:
    """Number of pairs of pictures of one kind, and how many of them each method takes for twins."""

    what: str
    pairs: int
    by_look: int
    by_hash: int
    either: int


def drawn(scene: Scene, size: int = SIZE) -> Image.Image:
    return Image.fromarray(render(scene, size)[0])


def rates(number: int = SCENES) -> list[Rate]:
    """Return how many pairs of each kind are taken for twins, with `number` object scenes and `number` road scenes."""
    scenes = [random_scene(FIRST + one, family) for family in ("object", "road") for one in range(number)]
    images = [drawn(scene) for scene in scenes]
    looks, hashes = _looks(images), [perceptual_hash(image) for image in images]
    found = []
    for what, change in CHANGES.items():
        changed = [change(image) for image in images]
        # The original comes first in half of the pairs: the order of copy and original must not matter.
        half, others = len(images) // 2, _looks(changed)
        one = np.concatenate([looks[:half], others[half:]])
        pairs = {
            at
            for at, other in twins_between(one, np.concatenate([others[:half], looks[half:]])).tolist()
            if at == other
        }
        same = {at for at, image in enumerate(changed) if _near(perceptual_hash(image), hashes[at])}
        found.append(Rate(what, len(images), len(pairs), len(same), len(pairs | same)))
    for family, kind in (("objects", scenes[:number]), ("roads", scenes[number:])):
        moved = [replace(scene, seed=scene.seed + 10_000_000) for scene in kind]
        chance = random.Random(number)
        other = [replace(scene, look=random_look(chance, len(scene.look.colours))) for scene in kind]
        for words, twins in (
            ("of the same things and light, in other places", moved),
            ("of one layout in another light", other),
        ):
            found.append(_kin(f"{family} {words}", [drawn(one) for one in kind], [drawn(one) for one in twins]))
    among = {(one, other) for one, other in twins_among(looks).tolist()}
    near = {
        (one, other)
        for one in range(len(hashes))
        for other in range(one + 1, len(hashes))
        if _near(hashes[one], hashes[other])
    }
    every = len(images) * (len(images) - 1) // 2
    return [*found, Rate("scenes of chance", every, len(among), len(near), len(among | near))]


def _kin(what: str, images: Sequence[Image.Image], others: Sequence[Image.Image]) -> Rate:
    """Return how many pairs (an image and the one at the same index in `others`) are wrongly taken for twins."""
    looks = {at for at, other in twins_between(_looks(images), _looks(others)).tolist() if at == other}
    pairs = enumerate(zip(images, others, strict=True))
    near = {at for at, (one, other) in pairs if _near(perceptual_hash(one), perceptual_hash(other))}
    return Rate(what, len(images), len(looks), len(near), len(looks | near))


def _near(one: int, other: int) -> bool:
    return min((one ^ other).bit_count(), (mirrored(one) ^ other).bit_count()) <= DISTANCE


def _looks(images: Sequence[Image.Image]) -> Looks:
    return np.stack([look_of(image) for image in images])


def measure(sources: int = SOURCES) -> list[Figure]:
    """Measure the time to find twins among `sources` scenes, without the time to draw and shrink the scenes."""
    looks = np.stack([look_of(drawn(random_scene(FIRST + one), 64)) for one in range(sources)])
    began = time.perf_counter()
    twins_among(looks)
    return [Figure(f"twins among {sources:,} sources", (1000 * (time.perf_counter() - began),), SEARCHED)]


def table(found: Sequence[Rate]) -> str:
    """Return the rates as Markdown."""
    lines = ["| pictures | pairs | by look | by hash | by either |", "| --- | --: | --: | --: | --: |"]
    for one in found:
        shares = " | ".join(_per_cent(count, one.pairs) for count in (one.by_look, one.by_hash, one.either))
        lines.append(f"| {one.what} | {one.pairs:,} | {shares} |")
    return "\n".join(lines)


def _per_cent(count: int, pairs: int) -> str:
    share = 100 * count / pairs
    return f"{share:.4f} %" if 0 < share < 0.05 else f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print rates of found copies and the time of a search. Return the exit code: 1 if the search took too long."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.twins", description=__doc__)
    parser.add_argument("--scenes", type=int, default=SCENES, help="of each family")
    parser.add_argument("--sources", type=int, default=SOURCES, help="among which the search is timed; 0: it is not")
    options = parser.parse_args(arguments)
    print(table(rates(options.scenes)), flush=True)
    return reported(measure(options.sources)) if options.sources else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
