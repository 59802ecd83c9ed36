"""Tiny segmenters of the real classes with random weights, saved like those on the hub."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from tests.support.tiny import SIZE, VISION, save_clip_tokenizer, text_config

SPREAD = 0.25
"""Standard deviation of the random weights. With a fresh model's, the output would not depend on the input."""


def _save(folder: Path, model: Any, processor: Any) -> None:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def save_grounding_dino(folder: Path) -> None:
    """Save a GroundingDINO whose tokenizer reads letters. Its special tokens have the ids that the model expects."""
    import torch
    from transformers import (
        BertConfig,
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
        SwinConfig,
    )

    pieces = [f"[unused{number}]" for number in range(1030)]
    fixed = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]", 1012: ".", 1029: "?"}
    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    for number, piece in {**fixed, **dict(enumerate(letters, 200))}.items():
        pieces[number] = piece
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(pieces))
    config = GroundingDinoConfig(
        backbone_config=SwinConfig(
            image_size=64,
            embed_dim=8,
            depths=[1, 1, 1, 1],
            num_heads=[1, 1, 2, 2],
            window_size=2,
            out_indices=[2, 3, 4],
        ),
        text_config=BertConfig(vocab_size=len(pieces), **SIZE),
        d_model=32,
        num_queries=10,
        encoder_layers=1,
        encoder_ffn_dim=64,
        encoder_attention_heads=2,
        decoder_layers=2,
        decoder_ffn_dim=64,
        decoder_attention_heads=2,
    )
    torch.manual_seed(0)
    images = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 128})
    processor = GroundingDinoProcessor(images, BertTokenizer(str(folder / "vocab.txt")))
    _save(folder, GroundingDinoForObjectDetection(config), processor)


def save_sam2(folder: Path) -> None:
    """Save a SAM 2.1 for pictures of 64 x 64."""
    import torch
    from transformers import (
        Sam2Config,
        Sam2HieraDetConfig,
        Sam2ImageProcessor,
        Sam2MaskDecoderConfig,
        Sam2Model,
        Sam2Processor,
        Sam2PromptEncoderConfig,
        Sam2VisionConfig,
    )

    backbone = Sam2HieraDetConfig(
        hidden_size=8,
        image_size=[64, 64],
        blocks_per_stage=[1, 1, 2, 1],
        embed_dim_per_stage=[8, 16, 32, 64],
        num_attention_heads_per_stage=[1, 1, 2, 2],
        window_size_per_stage=[4, 4, 4, 2],
        global_attention_blocks=[3],
    )
    vision = Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=[64, 32, 16, 8],
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
        fpn_hidden_size=32,
    )
    config = Sam2Config(
        vision_config=vision,
        prompt_encoder_config=Sam2PromptEncoderConfig(hidden_size=32, image_size=64),
        mask_decoder_config=Sam2MaskDecoderConfig(
            hidden_size=32, mlp_dim=64, num_attention_heads=2, iou_head_hidden_dim=32
        ),
        initializer_range=SPREAD,
    )
    torch.manual_seed(0)
    images = Sam2ImageProcessor(size={"height": 64, "width": 64}, mask_size={"height": 16, "width": 16})
    _save(folder, Sam2Model(config), Sam2Processor(images))


def save_sam3(folder: Path) -> None:
    """Save a SAM 3 for pictures of 112 x 112."""
    import torch
    from transformers import CLIPTextConfig, Sam3Config, Sam3ImageProcessor, Sam3Model, Sam3Processor

    tokenizer = save_clip_tokenizer(folder)
    part = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_layers": 1}
    config = Sam3Config(
        vision_config={
            "backbone_config": {
                **SIZE,
                "model_type": "sam3_vit_model",
                "image_size": 112,
                "patch_size": 14,
                "pretrain_image_size": 56,
                "window_size": 4,
                "global_attn_indexes": [1],
            },
            "fpn_hidden_size": 32,
            "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        },
        text_config=CLIPTextConfig(**text_config(tokenizer), max_position_embeddings=32).to_dict(),
        geometry_encoder_config=part,
        detr_encoder_config=part,
        detr_decoder_config={**part, "num_queries": 5},
        mask_decoder_config={"hidden_size": 32, "num_attention_heads": 2},
        initializer_range=SPREAD,
    )
    torch.manual_seed(0)
    images = Sam3ImageProcessor(size={"height": 112, "width": 112})
    _save(folder, Sam3Model(config), Sam3Processor(images, tokenizer))


def save_clipseg(folder: Path) -> None:
    """Save a CLIPSeg for pictures of 32 x 32."""
    import torch
    from transformers import CLIPSegConfig, CLIPSegForImageSegmentation, CLIPSegProcessor, ViTImageProcessor

    tokenizer = save_clip_tokenizer(folder)
    config = CLIPSegConfig(
        text_config=text_config(tokenizer),
        vision_config=VISION,
        projection_dim=16,
        extract_layers=[0, 1],
        reduce_dim=16,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    )
    torch.manual_seed(0)
    images = ViTImageProcessor(size={"height": 32, "width": 32})
    _save(folder, CLIPSegForImageSegmentation(config), CLIPSegProcessor(images, tokenizer))
