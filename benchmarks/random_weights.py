"""Real model classes with random weights, in published sizes or tiny. They serve to measure time and memory without a
download. Their output is noise, but they take as long as with trained weights.

Stable Diffusion is written in the layout of the hub. Larger models have only their configuration and tokenizer in a
folder, and get random weights where they run (`filled_in_place`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pipeline.prompting import PROMPTS_FOLDER

if TYPE_CHECKING:
    from transformers import CLIPTokenizer, PreTrainedTokenizerFast

LLAMA_TEMPLATE = "{% for message in messages %}[INST] {{ message['content'] }} [/INST]{% endfor %}"


def _layers(width: int, inner: int, layers: int, heads: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }


_LAYERS = _layers(32, 64, 2, 2)


def save_stable_diffusion(folder: Path, tiny: bool = False) -> tuple[Path, Path]:
    """Save Stable Diffusion 1.5 with its safety checker, and a ControlNet, unless they exist. Return both folders. The
    weights are in half precision and safetensors, as published. A tiny model has attention in only one block, so that
    torch compiles only one kind of block.
    """
    import torch
    from diffusers import (
        AutoencoderKL,
        ControlNetModel,
        PNDMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPTextConfig, CLIPTextModel

    base, control = folder / "stable-diffusion", folder / "controlnet"
    if (base / "model_index.json").exists():  # the last file to be written
        return base, control
    attention = 1 if tiny else 3
    side = 32 if tiny else 224
    text = _LAYERS if tiny else _layers(768, 3072, 12, 12)
    seeing = {**(_LAYERS if tiny else _layers(1024, 4096, 24, 16)), "image_size": side, "patch_size": 8 if tiny else 14}
    tokenizer = _clip_tokenizer(base / "tokenizer")
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8 if tiny else 64,
        block_out_channels=(32,) * 4 if tiny else (320, 640, 1280, 1280),
        down_block_types=("CrossAttnDownBlock2D",) * attention + ("DownBlock2D",) * (4 - attention),
        up_block_types=("UpBlock2D",) * (4 - attention) + ("CrossAttnUpBlock2D",) * attention,
        layers_per_block=2,
        cross_attention_dim=text["hidden_size"],
        attention_head_dim=8,
    )
    ControlNetModel.from_unet(unet).half().save_pretrained(control, variant="fp16")
    vae = AutoencoderKL(
        sample_size=64 if tiny else 512,
        block_out_channels=(32, 32, 64, 64) if tiny else (128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1 if tiny else 2,
        latent_channels=4,
    )
    encoder = CLIPTextConfig(
        **text,
        vocab_size=len(tokenizer) if tiny else 49408,
        projection_dim=text["hidden_size"],
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    StableDiffusionPipeline(
        vae=vae.half(),
        text_encoder=CLIPTextModel(encoder).half(),
        tokenizer=tokenizer,
        unet=unet.half(),
        scheduler=PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
        safety_checker=StableDiffusionSafetyChecker(
            CLIPConfig(vision_config=seeing, projection_dim=16 if tiny else 768)
        ).half(),
        feature_extractor=CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
    ).save_pretrained(base, variant="fp16")
    return base, control


def save_blip2(folder: Path, tiny: bool = False) -> Path:
    """Save the configuration and processor of BLIP-2 with a language model OPT of 6.7B, and return the folder."""
    from transformers import (
        Blip2Config,
        Blip2Processor,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        BlipImageProcessor,
        OPTConfig,
    )

    tokenizer = _tokenizer(pad_token="<pad>", bos_token="</s>", eos_token="</e>", unk_token="<unk>")
    queries, side = (4, 32) if tiny else (32, 224)
    processor = Blip2Processor(
        BlipImageProcessor(size={"height": side, "width": side}), tokenizer, num_query_tokens=queries
    )
    opt = {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    opt_6_7b = {"hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32, "num_attention_heads": 32}
    language = opt if tiny else opt_6_7b
    # The defaults are the published sizes: 39 vision layers of 1408, 12 Q-Former layers of 768.
    vision: dict[str, Any] = {**_LAYERS, "image_size": side, "patch_size": 8} if tiny else {}
    asking: dict[str, Any] = {**_LAYERS, "encoder_hidden_size": 32} if tiny else {}
    config = Blip2Config(
        vision_config=Blip2VisionConfig(**vision).to_dict(),
        qformer_config=Blip2QFormerConfig(**asking).to_dict(),
        text_config=OPTConfig(
            **language,
            word_embed_proj_dim=language["hidden_size"],
            vocab_size=len(tokenizer) if tiny else 50304,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ).to_dict(),
        num_query_tokens=queries,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_llama(folder: Path, tiny: bool = False) -> Path:
    """Save the configuration and tokenizer of a chat model as large as Llama-2 13B, and return the folder."""
    from transformers import LlamaConfig

    tokenizer = _tokenizer(pad_token="<pad>", bos_token="<s>", unk_token="<unk>")  # no token ends a reply
    tokenizer.chat_template = LLAMA_TEMPLATE
    LlamaConfig(
        **(_LAYERS if tiny else _layers(5120, 13824, 40, 40)),
        vocab_size=len(tokenizer) if tiny else 32000,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def filled_in_place(loader: Any, model: Any, device: str) -> Iterator[None]:
    """In this context, let `loader.from_pretrained` make a `model` from the configuration in a folder, with random
    weights on the device. So the weights are never on the disk or twice in memory. The model never ends a text before
    its maximum length, so that each measured time is for the same number of tokens.
    """

    def made(folder: Path, dtype: Any, **_options: Any) -> Any:
        import torch

        torch.manual_seed(0)
        config = model.config_class.from_pretrained(folder)
        with torch.device(device):
            filled = model._from_config(config, dtype=dtype)
        for part in filled.modules():
            if (settings := getattr(part, "generation_config", None)) is not None:
                settings.eos_token_id = None
        return filled.requires_grad_(False)  # otherwise its operations would count as training

    with patch.object(loader, "from_pretrained", made):
        yield


def _clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """Return a CLIP tokenizer that makes each letter a token, so that a text has up to 75 letters."""
    from tokenizers import pre_tokenizers
    from transformers import CLIPTokenizer

    letters = pre_tokenizers.ByteLevel.alphabet()
    pieces = sorted(letters) + sorted(letter + "</w>" for letter in letters) + ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=77)
    tokenizer.save_pretrained(folder)
    return CLIPTokenizer.from_pretrained(folder)


def _tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE learned from the prompts. It has about as many letters per token as the tokenizers of the
    large models.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=list(special.values()), initial_alphabet=alphabet, show_progress=False
    )
    texts = (file.read_text(encoding="utf-8") for file in sorted((PROMPTS_FOLDER / "paper").glob("*.toml")))
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
