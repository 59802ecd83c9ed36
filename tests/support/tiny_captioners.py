"""Tiny captioners and a tiny chat model of the real classes with random weights, saved like those on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.tiny import words_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}PICTURE{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Chat template like Qwen's, in which PICTURE marks each model's image token."""
SPREAD = 0.25
"""Standard deviation of the random weights. With a fresh model's, the output would not depend on the input."""


def _tokenizer(*tokens: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with these special tokens."""
    tokenizer = words_tokenizer(pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    return tokenizer


def _text(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "initializer_range": SPREAD,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _save(folder: Path, model: Any, processor: Any) -> None:
    """Save a model with the sampling settings of the real ones, which greedy decoding must ignore. It never
    generates tokens that occur only in prompts, as the real ones have learned.
    """
    tokenizer = processor.tokenizer
    unsaid = sorted({*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()} - {tokenizer.eos_token_id})
    model.generation_config.update(do_sample=True, temperature=0.7, top_k=20, top_p=0.8, suppress_tokens=unsaid)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def save_qwen3_vl(folder: Path, template: str = CHATML) -> None:
    """Save a Qwen3-VL. In `template`, PICTURE marks the picture."""
    import torch
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = _tokenizer("<|im_start|>", "<|im_end|>", *marks)
    start, end, image, video = (tokenizer.convert_tokens_to_ids(mark) for mark in marks)
    size = {"shortest_edge": 32 * 32, "longest_edge": 256 * 256}
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=8, merge_size=2, size=size),
        tokenizer,
        Qwen3VLVideoProcessor(patch_size=8, merge_size=2),
        chat_template=template.replace("PICTURE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 8,
        "out_hidden_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "initializer_range": SPREAD,
    }
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config={**_text(tokenizer), "rope_parameters": rope},
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    _save(folder, Qwen3VLForConditionalGeneration(config), processor)


def save_idefics3(folder: Path) -> None:
    """Save an Idefics3, as in the small SmolVLM: the picture is cut into parts, which are encoded separately."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
    )

    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = _tokenizer("<|im_start|>", "<|im_end|>", "<global-img>", *places)
    images = Idefics3ImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = Idefics3Processor(
        images, tokenizer, image_seq_len=4, chat_template=CHATML.replace("PICTURE", "<image>")
    )
    torch.manual_seed(0)
    config = Idefics3Config(
        text_config={"model_type": "llama", **_text(tokenizer)},
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "initializer_range": SPREAD,
        },
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    _save(folder, Idefics3ForConditionalGeneration(config), processor)


def save_florence2(folder: Path) -> None:
    """Save a Florence-2 with two stages in its picture encoder, and a BART."""
    import torch
    from transformers import (
        CLIPImageProcessor,
        Florence2Config,
        Florence2ForConditionalGeneration,
        Florence2Processor,
        PreTrainedTokenizerFast,
    )

    pieces = _tokenizer(*(f"<loc_{place}>" for place in range(8)))
    tokenizer = PreTrainedTokenizerFast(  # its processor needs the image token by this name
        tokenizer_object=pieces.backend_tokenizer,
        extra_special_tokens={"image_token": "<image>"},
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    images = CLIPImageProcessor(
        size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32}, do_center_crop=False
    )
    images.image_seq_length = 5
    processor = Florence2Processor(images, tokenizer)
    bart = {
        "model_type": "bart",
        "vocab_size": len(tokenizer),
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 256,
        "init_std": SPREAD,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depths": [1, 1],
        "patch_size": [7, 3],
        "patch_stride": [4, 4],
        "patch_padding": [3, 1],
        "patch_prenorm": [False, True],
        "embed_dim": [16, 32],
        "num_heads": [2, 2],
        "num_groups": [2, 2],
        "window_size": 4,
        "projection_dim": 32,
        "initializer_range": SPREAD,
    }
    torch.manual_seed(0)
    config = Florence2Config(
        text_config=bart, vision_config=vision, image_token_id=tokenizer.convert_tokens_to_ids("<image>")
    )
    model = Florence2ForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if "encoder_attn" in name and weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.5)  # otherwise each token repeats the one before
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def save_chat_llama(folder: Path) -> None:
    """Save a chat LLaMA for servers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer("<|im_start|>", "<|im_end|>")
    tokenizer.chat_template = CHATML
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**_text(tokenizer)))
    model.generation_config.update(do_sample=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
