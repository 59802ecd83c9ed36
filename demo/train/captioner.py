"""Trains the embedded captioner: a small BLIP that writes `demo.language.caption` of a drawn scene.

First the vision transformer learns to see (`demo.train.sight`). Then the text decoder joins and learns to write. The
result is saved in the format of a transformers BLIP with its processor, and is loaded like the real captioner.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
from PIL import Image
from torch.nn import functional
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipImageProcessor, BlipProcessor

from demo.facts import facts_of, facts_of_scene
from demo.language import caption, random_wording
from demo.render import SIZE, render
from demo.scene import random_scene
from demo.train.batches import Batches
from demo.train.common import Run, arguments, carried_over, device, half_precision
from demo.train.dataset import open_scenes
from demo.train.sight import Lessons, grid_positions, start_from_pictures
from demo.train.tokenizer import MAX_TOKENS, bert_tokenizer

CHECK_SEEDS = range(3_001_000, 3_001_300)
PATCH, VISION, TEXT = 8, 192, 128
SEEING = 0.4
"""Share of the time in which only the vision transformer learns. Without the decoder, steps take half as long."""
BATCH = 16


def new_captioner(words: BertTokenizer) -> BlipForConditionalGeneration:
    """Return an untrained BLIP of about 4 million weights for 128 x 128 pictures."""
    text = {
        "vocab_size": len(words),
        "hidden_size": TEXT,
        "intermediate_size": TEXT * 4,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": words.cls_token_id,
        "eos_token_id": words.sep_token_id,
        "sep_token_id": words.sep_token_id,
        "pad_token_id": words.pad_token_id,
    }
    vision = {
        "hidden_size": VISION,
        "intermediate_size": VISION * 4,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "image_size": SIZE,
        "patch_size": PATCH,
        "initializer_range": 0.02,  # transformers' default for this one is 1e-10, meant for loaded weights
    }
    return BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision))


def new_processor(words: BertTokenizer) -> BlipProcessor:
    """Return a processor that scales pictures to -1..1 at 128 x 128."""
    return BlipProcessor(
        BlipImageProcessor(size={"height": SIZE, "width": SIZE}, image_mean=[0.5] * 3, image_std=[0.5] * 3), words
    )


def main() -> None:
    options = arguments("captioner", 60, can_go_on=True)
    folder: Path = options.out / "captioner"
    words = bert_tokenizer(options.work / "captioner-words")
    batches = Batches(open_scenes(options.work), seed=2, roads=0.7)  # roads have more to describe than single objects
    model = new_captioner(words)
    if options.go_on:
        load_finished(folder, model, words)
    else:
        start_from_pictures(model.vision_model.embeddings.patch_embedding, scaled(batches.draw(400).images))
        model.vision_model.embeddings.position_embedding.data.copy_(0.5 * grid_positions(SIZE // PATCH, VISION))
    model.to(device())
    lessons = Lessons(VISION, PATCH).to(device())
    parameters = [*model.parameters(), *lessons.parameters()]
    speed = 3e-4 if options.go_on else 8e-4  # a high rate would destroy what was learnt
    optimizer = torch.optim.AdamW(parameters, lr=speed, weight_decay=0.02, betas=(0.9, 0.98))
    wordings = random.Random(4)
    run = Run("captioner", options, optimizer, model=model, lessons=lessons)
    for _ in run:
        batch = batches.draw(BATCH)
        pixels = scaled(batch.images).to(device())
        with half_precision():
            states = model.vision_model(pixels).last_hidden_state
            caption_loss = torch.zeros((), device=device())
            if options.go_on or run.share >= SEEING:
                texts = [caption(scene, random_wording(wordings)) for scene in batch.scenes]
                tokens = words(texts, padding=True, return_tensors="pt").to(device())
                targets = tokens.input_ids.masked_fill(tokens.attention_mask == 0, -100)
                caption_loss = model.text_decoder(
                    tokens.input_ids, tokens.attention_mask, encoder_hidden_states=states, labels=targets
                ).loss
        seen, figures = lessons(states, batch)
        loss = seen + 3 * caption_loss.float()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        run.report(seen=seen.item(), told=caption_loss.item(), **figures)
    model.half().save_pretrained(folder)
    new_processor(words).save_pretrained(folder)
    check(folder)


def load_finished(folder: Path, model: BlipForConditionalGeneration, words: BertTokenizer) -> None:
    """Load the finished model's weights into a new model, which may have another vocabulary and patch size.

    For smaller patches, old filters are resized by interpolation (simpler than "FlexiViT", Beyer et al., 2023).
    """
    state = BlipForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict()
    vocabulary, before = words.get_vocab(), BertTokenizer.from_pretrained(folder).get_vocab()
    for name, fresh in model.state_dict().items():
        old = state[name]
        if name.endswith("patch_embedding.weight"):
            side = fresh.shape[-1]
            state[name] = functional.interpolate(old, (side, side), mode="area") * (old.shape[-1] / side) ** 2
        elif name.endswith("position_embedding"):
            cells, old_cells = (math.isqrt(places.shape[1] - 1) for places in (fresh, old))
            grid = old[:, 1:].transpose(1, 2).unflatten(2, (old_cells, old_cells))
            grid = functional.interpolate(grid, (cells, cells), mode="bilinear")
            state[name] = torch.cat([old[:, :1], grid.flatten(2).transpose(1, 2)], 1)
        elif fresh.shape[0] == len(vocabulary) and old.shape[0] == len(before):
            state[name] = carried_over(fresh, vocabulary, old, before)
    model.load_state_dict(state)


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Convert pixels from 0..255 to -1..1."""
    return images.float() / 127.5 - 1


def check(folder: Path) -> None:
    """Print how often the saved captioner is right on scenes that no training saw."""
    processor = BlipProcessor.from_pretrained(folder)
    model = BlipForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    names = ("label", "colours", "weather", "time", "vehicles", "pedestrians")
    right: dict[str, list[bool]] = {name: [] for name in (*names, "whole caption")}
    seeds = list(CHECK_SEEDS)
    for start in range(0, len(seeds), BATCH):
        scenes = [random_scene(seed) for seed in seeds[start : start + BATCH]]
        pictures = [Image.fromarray(render(scene)[0]) for scene in scenes]
        inputs = processor(images=pictures, return_tensors="pt")
        tokens = model.generate(**inputs, max_new_tokens=MAX_TOKENS - 2)
        written = processor.batch_decode(tokens, skip_special_tokens=True)
        for scene, text in zip(scenes, written, strict=True):
            right["whole caption"].append(text == caption(scene))
            stated, shown = facts_of(text), facts_of_scene(scene)
            for name in names:
                if getattr(shown, name) is not None:  # vehicles and pedestrians are counted on roads only
                    right[name].append(getattr(stated, name) == getattr(shown, name))
    figures = ", ".join(f"{name} {sum(hits) / len(hits):.1%}" for name, hits in right.items())
    print(f"captioner: {figures} right on unseen scenes")


if __name__ == "__main__":
    main()
