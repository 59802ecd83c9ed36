"""Trains the text encoder, UNet and Canny ControlNet of the embedded Stable Diffusion, together and from nothing.

This needs the trained autoencoder. Each example has a scene's latents and caption, and edges: of the scene itself or,
more often, of its twin (same geometry, another look). The models use v-prediction on a schedule rescaled to zero
terminal SNR (Lin et al., "Common Diffusion Noise Schedules and Sample Steps are Flawed", 2024), so that day can become
night in a few steps: an epsilon model cannot change the mean brightness. Thin and small objects weigh more in the loss.
Otherwise they would vanish in their surroundings, although captions name their colours.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    AutoencoderTiny,
    ControlNetModel,
    DDIMScheduler,
    StableDiffusionControlNetPipeline,
    UNet2DConditionModel,
)
from diffusers.models.attention_processor import AttnProcessor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from demo.language import OTHER_NAMES, caption, random_wording
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, Scene
from demo.train.autoencoder import LATENT_CHANNELS, to_tensor
from demo.train.common import Run, arguments, carried_over, device, half_precision
from demo.train.dataset import SceneSet, open_scenes
from demo.train.tokenizer import clip_tokenizer
from pipeline.conditioning import edges
from pipeline.profiles.profile import load_profile
from pipeline.prompting import Prompt
from pipeline.recipes import DILLEMA

BATCH = 8
CAPTION_DROPOUT = 0.1
EDGE_DROPOUT = 0.05
"""Share of the examples with an empty control image."""
ALONE = 0.1
"""Share of the examples without the ControlNet's output, so that the UNet learns to draw without a control image."""
WITHOUT_SUBJECT = 0.12
"""Share of the examples that show a scene without its subject."""
TWIN_EDGES = 0.65
"""Share of the examples whose control image has the edges of the twin (same geometry, another look)."""
EXTRA_WEIGHT = {
    "road": {"vehicle": 2.5, "pedestrian": 8.0, "lane marking": 8.0, "pavement": 1.5},
    "object": {"object": 2.0, "vegetation": 5.0},
}
"""Additional weight of a pixel in the loss, by family of scenes and class. Pixels of other classes have none.
Pedestrians and lane markings are only two to five pixels wide in the image, and four times narrower in the latents. So
they have high weights. In object scenes, vegetation means hazy hills. It has a high weight, since the colours of hills
differ only a quarter as much as the colours of cars."""
LARGE = {"vehicle": 900, "pedestrian": 300}
"""Number of pixels from which a car or person counts as large. Pixels of smaller ones have up to `MOST` times the
`EXTRA_WEIGHT`, so that all cars count equally. Otherwise, the colours of small cars would hardly be learnt."""
MOST = 6.0
OFTEN = {0: 1.0, 1: 1.0, 2: 1.5, 3: 3.0}
"""Relative frequency of road scenes in training, by number of cars. Object scenes have 1: they are learnt sooner."""
GOING_ON = 4e-4
"""Learning rate to train a finished model further. The higher rate of a new training would make the model forget."""
EMA_DECAY = 0.999


def new_models(tokenizer: CLIPTokenizer) -> tuple[CLIPTextModel, UNet2DConditionModel, ControlNetModel]:
    """Return the three untrained networks, of about 1, 9 and 4 million parameters."""
    width = 160
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=77,
            projection_dim=width,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    unet = UNet2DConditionModel(
        sample_size=32,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(48, 96, 192),
        layers_per_block=1,
        cross_attention_dim=width,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    controlnet = ControlNetModel.from_unet(
        unet, conditioning_channels=3, load_weights_from_unet=False, conditioning_embedding_out_channels=(16, 32, 64)
    )
    for model in (unet, controlnet):
        # The fused attention's backward pass on a CPU is four times slower than the plain one at these sizes.
        model.set_attn_processor(AttnProcessor())
    wake(controlnet)
    return text, unet, controlnet


def wake(controlnet: ControlNetModel) -> None:
    """Initialise the ControlNet so that edges influence the image from the first training step.

    Usually its outputs start at zero, to protect a trained UNet. Here both networks start from nothing, so zeros would
    only suppress the edges. The usual initialisation of the edge encoder also shrinks thin edges to a thousandth. So
    its convolutions use He's initialisation, which keeps the size of edges.
    """
    embedding = controlnet.controlnet_cond_embedding
    for layer in (embedding.conv_in, *embedding.blocks, embedding.conv_out):
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    for outlet in (*controlnet.controlnet_down_blocks, controlnet.controlnet_mid_block):
        outlet.reset_parameters()
        with torch.no_grad():
            outlet.weight.mul_(0.5)


def new_scheduler() -> DDIMScheduler:
    """Return the noise schedule, which is the same for training and drawing."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
    )


def prompt(scene: Scene, template: Prompt, rng: np.random.Generator) -> str:
    """Return the diffusion prompt of a scene. Sometimes sentences are missing or in another order."""
    text = caption(scene, random_wording(random.Random(int(rng.integers(1 << 30)))))
    if rng.random() < 0.15:
        first, *rest = text.removesuffix(".").split(". ")
        sentences = [sentence for sentence in rest if rng.random() < 0.7]
        rng.shuffle(sentences)
        text = ". ".join([first, *sentences]) + "."
    kept_words = scene.label if scene.family == "object" else ", ".join(PROTECTED_ROAD_CLASSES)
    names_task = rng.random() < 0.8 and scene.subject
    return template.evaluate(caption=text, kept=kept_words) if names_task else text


class Examples:
    """Draws training examples."""

    def __init__(self, scenes: SceneSet, tokenizer: CLIPTokenizer, seed: int) -> None:
        profile = load_profile("demo")
        self._template = DILLEMA.prompts(profile.prompts)["diffusion"]
        self._scenes, self._tokenizer = scenes, tokenizer
        self._settings = profile.settings.conditioning
        self._rng = np.random.default_rng(seed)
        weights = [1.0 if s.family == "object" else OFTEN[s.vehicles] for s in map(scenes.scene, range(scenes.count))]
        self._until = np.cumsum(weights) / sum(weights)

    def batch(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return pictures (n, 3, 128, 128) in -1..1, token ids (n, 77), control images (n, 3, 128, 128) in 0..1, and
        loss weights (n, 1, 32, 32).
        """
        rng = self._rng
        texts, controls, pictures, weights = [], [], [], []
        for index in sorted(np.searchsorted(self._until, rng.random(count), side="right").tolist()):
            which = int(rng.integers(2))
            scene = self._scenes.twin(index) if which else self._scenes.scene(index)
            if rng.random() < WITHOUT_SUBJECT:
                empty = scene.without_subject()
                picture, mask = render(empty)
                texts.append(prompt(empty, self._template, rng))
                controls.append(edges(picture, self._settings))
                pictures.append(picture)
                weights.append(extra_weights(mask, scene.family))
                continue
            texts.append("" if rng.random() < CAPTION_DROPOUT else prompt(scene, self._template, rng))
            source = (self._scenes.images, self._scenes.twins)[which ^ int(rng.random() < TWIN_EDGES)]
            drawn = edges(source[index], self._settings)
            controls.append(np.zeros_like(drawn) if rng.random() < EDGE_DROPOUT else drawn)
            pictures.append((self._scenes.images, self._scenes.twins)[which][index])
            weights.append(extra_weights(self._scenes.masks[index], scene.family))
        ids = self._tokenizer(
            texts, padding="max_length", truncation=True, max_length=77, return_tensors="pt"
        ).input_ids
        control = torch.from_numpy(np.stack(controls)).float()[:, None].expand(-1, 3, -1, -1) / 255
        extra = F.avg_pool2d(torch.from_numpy(np.stack(weights))[:, None], 4)
        return to_tensor(np.stack(pictures)), ids, control, 1 + extra


def extra_weights(mask: np.ndarray, family: str) -> np.ndarray:
    """Return each pixel's additional weight in the loss. `mask` has indices into `SEMANTIC_CLASSES`, uint8 (h, w)."""
    extra = np.array([EXTRA_WEIGHT[family].get(name, 0.0) for name in SEMANTIC_CLASSES], np.float32)[mask]
    for name, large in LARGE.items():
        pixels = (mask == SEMANTIC_CLASSES.index(name)).astype(np.uint8)
        count, numbered, stats, _ = cv2.connectedComponentsWithStats(pixels, connectivity=8)
        for number in range(1, count):
            extra[numbered == number] *= np.clip(large / stats[number, cv2.CC_STAT_AREA], 1.0, MOST)
    return extra


def noise_levels(count: int) -> torch.Tensor:
    """Return random time steps (count,), 0 to 999. Most are near 999 (pure noise), where geometry and colours are
    decided.

    Sampling in few steps hardly uses steps near 0, where the loss is largest but least informative.
    """
    return (1000 * (1 - torch.rand(count) ** 1.5)).long().clamp(0, 999)


def load_finished(out: Path, models: torch.nn.ModuleList, tokenizer: CLIPTokenizer) -> None:
    """Load saved weights (see `save`) into new models. If the vocabulary has changed, tokens in both vocabularies keep
    their embeddings, and a new synonym starts with the embedding of its standard word.
    """
    folders = (out / "stable-diffusion" / "text_encoder", out / "stable-diffusion" / "unet", out / "controlnet")
    states = [
        type(model).from_pretrained(folder, dtype=torch.float32).state_dict()
        for model, folder in zip(models, folders, strict=True)
    ]
    before = CLIPTokenizer.from_pretrained(out / "stable-diffusion" / "tokenizer").get_vocab()
    synonyms = {f"{name}</w>": f"{word}</w>" for word, names in OTHER_NAMES.items() for name in names}
    before |= {name: before[word] for name, word in synonyms.items() if name not in before and word in before}
    (table,) = [name for name in states[0] if name.endswith("token_embedding.weight")]
    fresh = models[0].state_dict()[table]
    states[0][table] = carried_over(fresh, tokenizer.get_vocab(), states[0][table], before)
    for model, state in zip(models, states, strict=True):
        model.load_state_dict(state)


def save(
    out: Path, text: CLIPTextModel, unet: UNet2DConditionModel, controlnet: ControlNetModel, tokenizer: CLIPTokenizer
) -> None:
    """Write the pipeline in the diffusers layout, and the ControlNet in its own folder, as fp16 safetensors."""
    vae = AutoencoderTiny.from_pretrained(out / "stable-diffusion" / "vae")
    pipe = StableDiffusionControlNetPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        controlnet=controlnet,
        scheduler=new_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).to(torch.float16)
    pipe.save_pretrained(out / "stable-diffusion", safe_serialization=True)
    shutil.rmtree(out / "controlnet", ignore_errors=True)
    (out / "stable-diffusion" / "controlnet").rename(out / "controlnet")
    index, vae_config = out / "stable-diffusion" / "model_index.json", out / "stable-diffusion" / "vae" / "config.json"
    layout, plain = json.loads(index.read_text()), json.loads(vae_config.read_text())
    layout.pop("controlnet")
    layout["_class_name"] = "StableDiffusionPipeline"
    plain.pop("_name_or_path", None)  # a path of the machine that trained it
    for file, content in ((index, layout), (vae_config, plain)):
        file.write_text(json.dumps(content, indent=2) + "\n")


def train(options: argparse.Namespace) -> None:
    tokenizer = clip_tokenizer(options.work / "tokenizer")
    vae = AutoencoderTiny.from_pretrained(options.out / "stable-diffusion" / "vae").to(
        device(), torch.float32, memory_format=torch.channels_last
    )
    scenes = open_scenes(options.work)
    models = torch.nn.ModuleList(new_models(tokenizer)).to(device(), memory_format=torch.channels_last)
    text, unet, controlnet = models
    if options.go_on:
        load_finished(options.out, models, tokenizer)
    average = copy.deepcopy(models).requires_grad_(False)
    speed = GOING_ON if options.go_on else 5e-4
    optimizer = torch.optim.AdamW(models.parameters(), lr=speed, weight_decay=1e-2, betas=(0.9, 0.99), fused=True)
    run = Run("diffusion", options, optimizer, models=models, average=average)
    examples = Examples(scenes, tokenizer, run.step)
    scheduler = new_scheduler()

    def velocity(
        noisy: torch.Tensor, times: torch.Tensor, ids: torch.Tensor, control: torch.Tensor, heard: torch.Tensor
    ) -> torch.Tensor:
        states = text(ids).last_hidden_state
        down, middle = controlnet(noisy, times, states, control, return_dict=False)
        down, middle = [part * heard for part in down], middle * heard
        predicted: torch.Tensor = unet(
            noisy, times, states, down_block_additional_residuals=down, mid_block_additional_residual=middle
        ).sample
        return predicted

    # `torch.compile` is an eighth faster and needs a compiler; the first step then takes some minutes.
    predict = torch.compile(velocity) if shutil.which("g++") else velocity
    models.train()
    for step in run:
        pictures, ids, control, weights = (part.to(device()) for part in examples.batch(BATCH))
        with torch.no_grad(), half_precision():
            latents = vae.encode(pictures.contiguous(memory_format=torch.channels_last)).latents
        clean = latents.float() * vae.config.scaling_factor
        noise = torch.randn_like(clean)
        times = noise_levels(len(clean)).to(clean.device)
        noisy = scheduler.add_noise(clean, noise, times)
        target = scheduler.get_velocity(clean, noise, times)
        heard = (torch.rand(len(clean), 1, 1, 1, device=clean.device) >= ALONE).to(clean.dtype)
        with half_precision():
            predicted = predict(noisy, times, ids, control, heard)
        loss = ((predicted.float() - target).square() * weights).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(models.parameters(), 1.0)
        optimizer.step()
        decay = min(EMA_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(models.parameters()), 1 - decay)
        run.report(loss=loss.item())
    average.eval()
    save(options.out, average[0], average[1], average[2], tokenizer)


def main() -> None:
    train(arguments("diffusion model", 230, can_go_on=True))


if __name__ == "__main__":
    main()
