"""Tiny models of the real classes with random weights, saved like the real ones, for tests of the loading code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.made_once import MadeOnce

if TYPE_CHECKING:
    from transformers import CLIPTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

CORPUS = [
    "a red bird sits on a twig in sunny weather at night",
    "Question: What is the weather like in the picture? Answer: snowy and cold",
    "image classification with the label bird",
    "[INST] <<SYS>> You reply in one line. <</SYS>> Name the colours of the bird. [/INST] red, blue",
]
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SIZE, "image_size": 32, "patch_size": 8}


def paper_models(made_once: MadeOnce) -> Path:
    """Return a folder with a small model for each section of the paper's profile, and a "controlnet"."""

    def make(folder: Path) -> None:
        save_blip2(folder / "captioner")
        save_llama(folder / "language" / "llama-2-13b-chat.Q5_K_M.gguf")
        save_stable_diffusion(folder / "generator", folder / "controlnet")
        save_clip(folder / "embedder")

    return made_once("paper-models", make)


def words_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer learned from a few lines."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(special.values()), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def save_blip2(folder: Path, places: int = 4) -> None:
    """Save a BLIP-2 with an OPT, whose processor puts `places` image tokens before the text."""
    import torch
    from transformers import (
        Blip2Config,
        Blip2ForConditionalGeneration,
        Blip2Processor,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        BlipImageProcessor,
        OPTConfig,
    )

    tokenizer = words_tokenizer(pad_token="<pad>", bos_token="</s>", eos_token="</e>", unk_token="<unk>")
    processor = Blip2Processor(BlipImageProcessor(size={"height": 32, "width": 32}), tokenizer, num_query_tokens=places)
    config = Blip2Config(
        vision_config=Blip2VisionConfig(**VISION, initializer_range=0.3).to_dict(),
        qformer_config=Blip2QFormerConfig(
            **SIZE, encoder_hidden_size=32, cross_attention_frequency=1, initializer_range=0.3
        ).to_dict(),
        text_config=OPTConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            word_embed_proj_dim=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=256,
            init_std=0.3,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ).to_dict(),
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    torch.manual_seed(0)
    model = Blip2ForConditionalGeneration(config)
    # A fresh model ignores the picture: its query tokens are zero and its projections small.
    torch.nn.init.normal_(model.query_tokens)
    torch.nn.init.normal_(model.language_projection.weight)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def save_clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """Save a CLIP tokenizer of single letters, whose 77 tokens are soon used up. Return it."""
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


def text_config(tokenizer: CLIPTokenizer) -> dict[str, int]:
    return {
        **SIZE,
        "vocab_size": len(tokenizer),
        "projection_dim": 16,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def save_clip(folder: Path, width: int = 32, layers: int = 2) -> int:
    """Save a CLIP. Return the size of its weights in bytes."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    tokenizer = save_clip_tokenizer(folder)
    torch.manual_seed(0)
    size = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    config = CLIPConfig(text_config=text_config(tokenizer) | size, vision_config=VISION | size, projection_dim=16)
    model = CLIPModel(config)
    model.save_pretrained(folder)
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return sum(weights.numel() * weights.element_size() for weights in model.parameters())


def save_stable_diffusion(base: Path, control: Path, safety_checker: bool = False, attention: int = 3) -> None:
    """Save a small SD 1.5 with its ControlNet in fp16: four blocks, attention in three of them. With `attention` 1 a
    single block has attention, and all have the same width.
    """
    import torch
    from diffusers import (
        AutoencoderKL,
        ControlNetModel,
        PNDMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPImageProcessor, CLIPTextConfig, CLIPTextModel

    tokenizer = save_clip_tokenizer(base / "tokenizer")
    torch.manual_seed(0)
    widths = (32, 32, 64, 64)
    plain = 4 - attention
    vae = AutoencoderKL(
        block_out_channels=widths,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=4,
    )
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=widths if attention > 1 else (32,) * 4,
        down_block_types=("CrossAttnDownBlock2D",) * attention + ("DownBlock2D",) * plain,
        up_block_types=("UpBlock2D",) * plain + ("CrossAttnUpBlock2D",) * attention,
        layers_per_block=1,
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    scheduler = PNDMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
    )
    text_encoder = CLIPTextModel(CLIPTextConfig(**text_config(tokenizer)))
    pipe = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=_checker() if safety_checker else None,
        feature_extractor=CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        requires_safety_checker=safety_checker,
    )
    pipe.to(torch.float16).save_pretrained(base, variant="fp16")
    controlnet = ControlNetModel.from_unet(unet.float())
    entry = controlnet.controlnet_cond_embedding.conv_out
    for layer in (entry, *controlnet.controlnet_down_blocks, controlnet.controlnet_mid_block):
        torch.nn.init.normal_(layer.weight, std=0.3)  # zero in a fresh model, so that the edges would have no effect
    controlnet.half().save_pretrained(control, variant="fp16")


def _checker() -> object:
    """Return a safety checker that refuses every image."""
    import torch
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig

    checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config=VISION, projection_dim=16))
    torch.nn.init.constant_(checker.concept_embeds_weights, -10.0)
    return checker


def save_llama(file: Path, positions: int = 4096, width: int = 64, layers: int = 2) -> LlamaForCausalLM:
    """Save a LLaMA with random weights as GGUF, with a sentencepiece tokenizer with byte fallback. Return the LLaMA."""
    import sentencepiece
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from demo.train.gguf_export import export

    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.parent / "lines.txt"
    lines.write_text("\n".join(CORPUS * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines),
        model_prefix=str(file.parent / "pieces"),
        model_type="bpe",
        vocab_size=360,
        byte_fallback=True,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(file.parent / "pieces.model"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=pieces.vocab_size(),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=positions,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config)
    export(model, pieces, file, "tiny")
    return model


THINKING = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Chat template like Qwen 3's."""
NO_SYSTEM = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}[INST] {{ message['content'] }} [/INST]{% endfor %}"
)
"""Chat template without a system role, like those of older Mistral and Google models."""


def save_chat(folder: Path, kind: str, template: str) -> None:
    """Save a causal language model with random weights, "qwen3" or "llama", with a chat template ("" for none)."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = words_tokenizer(pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = template or None
    config = AutoConfig.for_model(
        kind,
        **SIZE,
        vocab_size=len(tokenizer) + 8,  # large models have more rows than tokens too
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        initializer_range=0.3,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")],
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.update(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_sdxl(base: Path, union: Path) -> None:
    """Save a small Stable Diffusion XL with a union ControlNet, with the parts that differ from SD 1.5: two text
    encoders with different padding, pooled texts, and sizes as conditions.
    """
    import torch
    from diffusers import (
        AutoencoderKL,
        ControlNetUnionModel,
        EulerDiscreteScheduler,
        StableDiffusionXLPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    tokenizer = save_clip_tokenizer(base / "tokenizer")
    second = save_clip_tokenizer(base / "tokenizer_2")
    second.add_special_tokens({"pad_token": "!"})
    torch.manual_seed(0)
    blocks: dict[str, Any] = {
        "block_out_channels": (32, 64),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "layers_per_block": 1,
        "attention_head_dim": (2, 4),
        "transformer_layers_per_block": (1, 2),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + 16,
        "cross_attention_dim": 64,
    }
    unet = UNet2DConditionModel(sample_size=8, up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **blocks)
    vae = AutoencoderKL(
        block_out_channels=(32, 32, 64, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
    )
    pipe = StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(CLIPTextConfig(**text_config(tokenizer))),
        text_encoder_2=CLIPTextModelWithProjection(CLIPTextConfig(**text_config(tokenizer))),
        tokenizer=tokenizer,
        tokenizer_2=second,
        unet=unet,
        scheduler=EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        add_watermarker=False,
    )
    pipe.to(torch.float16).save_pretrained(base, variant="fp16")
    net = ControlNetUnionModel(
        conditioning_embedding_out_channels=(8, 16, 16, 16),
        num_trans_channel=32,
        num_proj_channel=32,
        num_trans_head=2,
        **blocks,
    )
    torch.nn.init.normal_(net.task_embedding, std=1.0)
    layers = (*net.controlnet_down_blocks, net.controlnet_mid_block, net.spatial_ch_projs)
    for layer in (net.controlnet_cond_embedding.conv_out, *layers):
        torch.nn.init.normal_(layer.weight, std=0.3)  # zero in a fresh model, so that the edges would have no effect
    net.half().save_pretrained(union)


def save_preview_vae(folder: Path, channels: int = 4) -> None:
    """Save a small AutoencoderTiny that turns everything into a white picture."""
    import torch
    from diffusers import AutoencoderTiny

    widths = (8,) * 4
    tiny = AutoencoderTiny(
        encoder_block_out_channels=widths,
        decoder_block_out_channels=widths,
        num_encoder_blocks=(1,) * 4,
        num_decoder_blocks=(1,) * 4,
        latent_channels=channels,
    )
    last = [part for part in tiny.decoder.modules() if isinstance(part, torch.nn.Conv2d)][-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.ones_(last.bias)
    tiny.save_pretrained(folder)


def save_lora(file: Path, width: int = 32) -> None:
    """Save a LoRA for two layers of the small Stable Diffusion, named like the files of LCM, with rank 4 and alpha
    2.
    """
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    shapes = {
        "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q": ((4, width), (width, 4)),
        "down_blocks_0_resnets_0_conv1": ((4, width, 3, 3), (width, 4, 1, 1)),
    }
    state: dict[str, torch.Tensor] = {}
    for name, (down, up) in shapes.items():
        state[f"lora_unet_{name}.lora_down.weight"] = torch.randn(down) * 0.3
        state[f"lora_unet_{name}.lora_up.weight"] = torch.randn(up) * 0.3
        state[f"lora_unet_{name}.alpha"] = torch.tensor(2.0)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(state, file)


def save_z_image(base: Path, union: Path) -> None:
    """Save a small Z-Image, and in `union` its ControlNet as a single file beside its configuration."""
    import torch
    from diffusers import (
        AutoencoderKL,
        FlowMatchEulerDiscreteScheduler,
        ZImageControlNetModel,
        ZImagePipeline,
        ZImageTransformer2DModel,
    )
    from safetensors.torch import save_file
    from transformers import Qwen3Config, Qwen3Model

    tokenizer = words_tokenizer(pad_token="<pad>", eos_token="</e>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}</e>{% endfor %}"
    torch.manual_seed(0)
    text = Qwen3Config(**SIZE, vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=16, initializer_range=0.3)
    sizes: dict[str, Any] = {"dim": 32, "n_heads": 2, "n_kv_heads": 2, "n_refiner_layers": 1}
    transformer = ZImageTransformer2DModel(
        n_layers=2, cap_feat_dim=32, axes_dims=[8, 4, 4], axes_lens=[256, 32, 32], in_channels=16, **sizes
    )
    vae = AutoencoderKL(
        block_out_channels=(32, 32, 64, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=16,
        shift_factor=0.1,
    )
    for pad in (transformer.x_pad_token, transformer.cap_pad_token):
        torch.nn.init.normal_(pad, std=0.1)  # otherwise the values of uninitialised memory
    ZImagePipeline(
        FlowMatchEulerDiscreteScheduler(shift=3.0), vae, Qwen3Model(text), tokenizer, transformer
    ).save_pretrained(base)
    net = ZImageControlNetModel(control_layers_places=[0], control_refiner_layers_places=[], control_in_dim=16, **sizes)
    for name, weights in net.named_parameters():
        if "before_proj" in name or "after_proj" in name:
            torch.nn.init.normal_(weights, std=0.3)  # zero in a fresh model, so that the edges would have no effect
    union.mkdir(parents=True, exist_ok=True)
    net.save_config(union)
    save_file(net.state_dict(), union / "Controlnet-Union.safetensors")


def save_flux2_klein(base: Path, distilled: bool = True) -> None:
    """Save a small FLUX.2 klein. The pipeline reads three layers of its text encoder."""
    import torch
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
    )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = words_tokenizer(pad_token="<pad>", eos_token="</e>")
    tokenizer.chat_template = THINKING
    torch.manual_seed(0)
    text = {**SIZE, "hidden_size": 16, "num_hidden_layers": 28, "num_key_value_heads": 2, "head_dim": 8}
    transformer = Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=3 * 16,
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = AutoencoderKLFlux2(
        block_out_channels=(16, 16, 16, 16),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
    )
    Flux2KleinPipeline(
        FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae,
        Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.3, **text)),
        tokenizer,
        transformer,
        is_distilled=distilled,
    ).save_pretrained(base)
