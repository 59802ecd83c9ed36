"""A file of MiDaS weights with random numbers, with the names and shapes of the published `dpt_hybrid`."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

FILE = "dpt_hybrid-midas-501f0c75.pt"
WIDTH, TOKENS = 768, 24 * 24 + 1
"""Width of the transformer, and its positions for a picture of 384 by 384 pixels."""
Shape = tuple[int, ...]


def save_midas(folder: Path) -> None:
    """Save the weights. Large ones share their numbers, so that the file has 21 MB and not 490."""
    import torch

    shapes = dict(_shapes())
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(max(map(prod, shapes.values())) + 1000, generator=generator) * 0.02
    state: dict[str, torch.Tensor] = {}
    for place, (name, shape) in enumerate(shapes.items()):
        if len(shape) > 1:
            begin = 37 * place % 1000
            state[name] = numbers[begin : begin + prod(shape)].view(shape)
        else:
            # Depths stay above 0, where the last layer would cut them off.
            normalises = ".norm" in name and name.endswith(".weight")
            state[name] = torch.full(shape, float(normalises or name == "scratch.output_conv.4.bias"))
    torch.save(state, folder / FILE)


def _shapes() -> Iterator[tuple[str, Shape]]:
    for name, shape in _layers():
        yield f"{name}.weight", shape
        convolves = len(shape) > 1 and (".backbone." in name or name.endswith("_rn"))
        if not convolves:
            yield f"{name}.bias", shape[:1]
    yield "pretrained.model.cls_token", (1, 1, WIDTH)
    yield "pretrained.model.pos_embed", (1, TOKENS, WIDTH)


def _layers() -> Iterator[tuple[str, Shape]]:
    """Yield each layer with the shape of its weights."""
    model = "pretrained.model"
    backbone = f"{model}.patch_embed.backbone"
    yield f"{backbone}.stem.conv", (64, 3, 7, 7)
    yield f"{backbone}.stem.norm", (64,)
    before = 64
    for stage, count in enumerate((3, 4, 9)):
        wide = 256 * 2**stage
        narrow = wide // 4
        for number in range(count):
            block = f"{backbone}.stages.{stage}.blocks.{number}"
            if number == 0:
                yield f"{block}.downsample.conv", (wide, before, 1, 1)
                yield f"{block}.downsample.norm", (wide,)
            shapes = ((narrow, before, 1, 1), (narrow, narrow, 3, 3), (wide, narrow, 1, 1))
            for place, shape in enumerate(shapes, 1):
                yield f"{block}.conv{place}", shape
                yield f"{block}.norm{place}", shape[:1]
            before = wide
    yield f"{model}.patch_embed.proj", (WIDTH, before, 1, 1)
    for number in range(12):
        block = f"{model}.blocks.{number}"
        yield f"{block}.norm1", (WIDTH,)
        yield f"{block}.attn.qkv", (3 * WIDTH, WIDTH)
        yield f"{block}.attn.proj", (WIDTH, WIDTH)
        yield f"{block}.norm2", (WIDTH,)
        yield f"{block}.mlp.fc1", (4 * WIDTH, WIDTH)
        yield f"{block}.mlp.fc2", (WIDTH, 4 * WIDTH)
    yield f"{model}.norm", (WIDTH,)
    yield f"{model}.head", (1000, WIDTH)
    for place in (3, 4):
        yield f"pretrained.act_postprocess{place}.0.project.0", (WIDTH, 2 * WIDTH)
        yield f"pretrained.act_postprocess{place}.3", (WIDTH, WIDTH, 1, 1)
    yield "pretrained.act_postprocess4.4", (WIDTH, WIDTH, 3, 3)
    for place, wide in enumerate((256, 512, WIDTH, WIDTH), 1):
        yield f"scratch.layer{place}_rn", (256, wide, 3, 3)
    for place in (1, 2, 3, 4):
        yield f"scratch.refinenet{place}.out_conv", (256, 256, 1, 1)
        for unit in (1, 2):
            for conv in (1, 2):
                yield f"scratch.refinenet{place}.resConfUnit{unit}.conv{conv}", (256, 256, 3, 3)
    yield "scratch.output_conv.0", (128, 256, 3, 3)
    yield "scratch.output_conv.2", (32, 128, 3, 3)
    yield "scratch.output_conv.4", (1, 32, 1, 1)
