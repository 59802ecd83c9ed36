"""Trains the embedded CLIP, with which the checks compare pictures and captions of the demo's scenes.

Training compares each picture with its caption and with a near miss: the caption after one edit. The checks need a CLIP
that tells these captions apart. Half of the true texts are short, so that a bare "A red bird." works too. If there is a
trained captioner, the training starts from the captioner's vision transformer. A few minutes then suffice instead of an
hour. The result is saved in the format of a transformers CLIP, with its processor.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import (
    BlipForConditionalGeneration,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
)

from demo.language import CANONICAL, TIME_PHRASES, Wording, article, caption, keywords, random_wording
from demo.render import SIZE, render
from demo.scene import OBJECT_CLASSES, Scene, random_scene
from demo.train.batches import Batches, hits
from demo.train.captioner import PATCH, VISION, scaled
from demo.train.common import Run, arguments, device, half_precision
from demo.train.dataset import open_scenes
from demo.train.sight import Lessons, grid_positions, start_from_pictures
from demo.train.tokenizer import MAX_TOKENS, clip_tokenizer

CHECK_SEEDS = range(3_002_000, 3_002_200)
TEXT, SHARED = 128, 128
BATCH = 32


def new_clip(words: CLIPTokenizer) -> CLIPModel:
    """Return an untrained CLIP of about 3 million weights for 128 x 128 pictures."""
    text = {
        "vocab_size": len(words),
        "hidden_size": TEXT,
        "intermediate_size": TEXT * 4,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_TOKENS,
        "hidden_act": "gelu",
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    vision = {
        "hidden_size": VISION,
        "intermediate_size": VISION * 4,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "image_size": SIZE,
        "patch_size": PATCH,
        "hidden_act": "gelu",
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=SHARED))


def new_processor(words: CLIPTokenizer) -> CLIPProcessor:
    """Return a processor that scales pictures to -1..1 at 128 x 128 without cropping."""
    side = {"height": SIZE, "width": SIZE}
    half = [0.5] * 3
    return CLIPProcessor(CLIPImageProcessor(size=side, do_center_crop=False, image_mean=half, image_std=half), words)


@torch.no_grad()
def take_over_eyes(model: CLIPModel, captioner: Path, pictures: torch.Tensor) -> None:
    """Copy the vision transformer of a trained captioner of the same size. `pictures` is (count, 3, 128, 128).

    The networks differ in three ways. CLIP's patch filters have no bias, so the captioner's bias is added to the
    positions. CLIP normalises the patches before the first layer, with a gain that is set so that patches keep their
    usual length. BLIP stores queries, keys and values in one matrix, CLIP in three.
    """
    theirs = BlipForConditionalGeneration.from_pretrained(captioner, dtype=torch.float32).vision_model
    ours = model.vision_model
    ours.embeddings.patch_embedding.weight.copy_(theirs.embeddings.patch_embedding.weight)
    ours.embeddings.class_embedding.copy_(theirs.embeddings.class_embedding[0, 0])
    ours.embeddings.position_embedding.weight.copy_(theirs.embeddings.position_embedding[0])
    ours.embeddings.position_embedding.weight[1:] += theirs.embeddings.patch_embedding.bias
    ours.pre_layrnorm.weight.fill_(float(theirs.embeddings(pictures).std(-1).mean()))
    ours.post_layernorm.load_state_dict(theirs.post_layernorm.state_dict())
    for to, of in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        for name in ("layer_norm1", "layer_norm2", "mlp"):
            getattr(to, name).load_state_dict(getattr(of, name).state_dict())
        to.self_attn.out_proj.load_state_dict(of.self_attn.projection.state_dict())
        projections = (to.self_attn.q_proj, to.self_attn.k_proj, to.self_attn.v_proj)
        weights, biases = of.self_attn.qkv.weight.chunk(3), of.self_attn.qkv.bias.chunk(3)
        for projection, weight, bias in zip(projections, weights, biases, strict=True):
            projection.weight.copy_(weight)
            projection.bias.copy_(bias)


def short_texts(scene: Scene, wording: Wording = CANONICAL) -> list[str]:
    """Return short texts that are true of a scene, such as "A red bird." and single sentences."""
    look, thing, name = scene.look, scene.label or "road", wording.name
    weather, when = name(look.weather), name(TIME_PHRASES[look.time])
    texts = [f"A {thing}.", f"A {thing} {when}.", f"A {thing} in {weather} weather."]
    texts += [f"{weather.capitalize()} weather.", f"{when.capitalize()}."]
    if scene.family == "object":
        colour = name(look.colours[0])
        texts.append(f"{article(colour)} {colour} {thing}.")
    return [*texts, *(f"{sentence.rstrip('.')}." for sentence in caption(scene, wording).split(". "))]


def near_miss(scene: Scene, wording: Wording, rng: random.Random) -> str:
    """Return the scene's caption after one edit of something that the caption mentions."""
    keyword = rng.choice(keywords(scene))
    new = rng.choice(keyword.alternatives)
    slot, _, place = keyword.slot.partition(" ")
    if slot == "colour":
        colours = list(scene.look.colours)
        colours[int(place)] = new
        return caption(scene.with_look(colours=tuple(colours)), wording)
    if slot == "time":
        new = next(time for time, phrase in TIME_PHRASES.items() if phrase == new)
    return caption(scene.with_look(**{slot: new}), wording)


def contrast(logits: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of logits (rows, columns). `true` marks the right columns of each row, maybe several."""
    return -(logits.log_softmax(1).masked_fill(~true, 0).sum(1) / true.sum(1).clamp(min=1)).mean()


def main() -> None:
    options = arguments("clip", 45)
    folder: Path = options.out / "clip"
    words = clip_tokenizer(options.work / "clip-words")
    batches = Batches(open_scenes(options.work), seed=3)
    model = new_clip(words)
    pictures, seen = scaled(batches.draw(400).images), model.vision_model.embeddings
    taught = (options.out / "captioner").exists()
    if taught:
        take_over_eyes(model, options.out / "captioner", pictures[:50])
    else:
        start_from_pictures(seen.patch_embedding, pictures)
        seen.position_embedding.weight.data.copy_(0.5 * grid_positions(SIZE // PATCH, VISION))
    model.to(device())
    lessons = Lessons(VISION, PATCH).to(device())
    eyes = list(model.vision_model.parameters())
    others = [p for name, p in model.named_parameters() if not name.startswith("vision_model.")]
    others += lessons.parameters()
    parameters = [*eyes, *others]
    # A trained vision transformer must not lose its training, and needs no additional tasks.
    groups = [{"params": eyes, "lr": 2e-4 if taught else 8e-4}, {"params": others, "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.02, betas=(0.9, 0.98))
    run = Run("clip", options, optimizer, model=model, lessons=lessons)
    rng = random.Random(run.step)
    for _ in run:
        batch = batches.draw(BATCH)
        wordings = [random_wording(rng) for _ in batch.scenes]
        described = list(zip(batch.scenes, wordings, strict=True))
        texts = [rng.choice((caption(scene, how), rng.choice(short_texts(scene, how)))) for scene, how in described]
        texts += [near_miss(scene, how, rng) for scene, how in described]
        # A text in the wording of another picture may also be true of this one.
        known = [
            {t for how in wordings for t in (caption(scene, how), *short_texts(scene, how))} for scene in batch.scenes
        ]
        true = torch.tensor([[text in facts for text in texts] for facts in known], device=device())
        tokens = words(texts, padding=True, return_tensors="pt").to(device())
        pixels = scaled(batch.images).to(device())
        with half_precision():
            output = model(pixel_values=pixels, **tokens)
        logits = output.logits_per_image.float()
        matched = contrast(logits, true) + contrast(logits.T[:BATCH], true.T[:BATCH])
        loss = matched
        if not taught:
            lesson, figures = lessons(output.vision_model_output.last_hidden_state, batch)
            loss = matched + 0.5 * lesson
            run.report(lesson=lesson.item(), weather=figures["weather"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        model.logit_scale.data.clamp_(max=4.0)
        right = true.gather(1, logits.argmax(1, keepdim=True)).float().mean().item()
        run.report(matched=matched.item(), right=right)
    model.half().save_pretrained(folder)
    new_processor(words).save_pretrained(folder)
    check(folder)


@torch.inference_mode()
def check(folder: Path) -> None:
    """Print how often the saved CLIP prefers the right text, on scenes that no training saw."""
    processor = CLIPProcessor.from_pretrained(folder)
    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    rng = random.Random(0)
    scenes = [random_scene(seed) for seed in CHECK_SEEDS]

    def logits(pictures: list[Scene], texts: list[str]) -> torch.Tensor:
        images = [render(scene)[0] for scene in pictures]
        inputs = processor(images=images, text=texts, padding=True, return_tensors="pt")
        return model(**inputs).logits_per_image

    caption_logits = logits(scenes, [caption(scene) for scene in scenes])
    misses = torch.stack([logits([scene], [caption(scene), near_miss(scene, CANONICAL, rng)])[0] for scene in scenes])
    objects = [scene for scene in scenes if scene.family == "object"]
    named = logits(objects, [f"A {label}." for label in OBJECT_CLASSES])
    labels = torch.tensor([OBJECT_CLASSES.index(scene.label) for scene in objects])
    hit = hits(caption_logits, torch.arange(len(scenes)))
    preferred, label = hits(misses, torch.zeros(len(scenes))), hits(named, labels)
    print(f"clip: finds its caption among {len(scenes)} {hit:.1%}, prefers it to an edited one {preferred:.1%},")
    print(f"clip: names the object {label:.1%}, all on unseen scenes")


if __name__ == "__main__":
    main()
