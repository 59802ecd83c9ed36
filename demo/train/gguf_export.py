"""Writes a LlamaForCausalLM and its sentencepiece BPE model as one GGUF file in fp16, as llama.cpp reads it.

Works for any such model.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from sentencepiece import SentencePieceProcessor
from transformers import LlamaForCausalLM

ARCHITECTURE = "llama"
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a parameter of transformers' Llama. Raises KeyError for an unknown one."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"
    return f"{OUTER_NAMES[stem]}.weight"


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder q or k rows: `transformers` rotates a head's two halves together, llama.cpp rotates neighbouring rows."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def export(model: LlamaForCausalLM, pieces: SentencePieceProcessor, path: Path, name: str) -> None:
    """Write a model and its tokenizer `pieces` into a GGUF file, atomically. Both must have the same vocabulary."""
    config = model.config
    if pieces.vocab_size() != config.vocab_size:
        raise ValueError(f"the tokenizer has {pieces.vocab_size()} pieces, the model {config.vocab_size}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    writer = gguf.GGUFWriter(str(partial), ARCHITECTURE)
    _write_description(writer, model, name)
    _write_tokenizer(writer, pieces)
    for key, tensor in model.state_dict().items():
        weight = tensor.detach().float().cpu()
        if "q_proj" in key:
            weight = interleaved(weight, config.num_attention_heads)
        elif "k_proj" in key:
            weight = interleaved(weight, config.num_key_value_heads)
        # llama.cpp wants the vectors (norms) in fp32
        writer.add_tensor(gguf_name(key), weight.numpy().astype(np.float32 if weight.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def _write_description(writer: gguf.GGUFWriter, model: LlamaForCausalLM, name: str) -> None:
    config = model.config
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _write_tokenizer(writer: gguf.GGUFWriter, pieces: SentencePieceProcessor) -> None:
    kinds = []
    for i in range(pieces.vocab_size()):
        if pieces.is_unknown(i):
            kinds.append(gguf.TokenType.UNKNOWN)
        elif pieces.is_control(i):
            kinds.append(gguf.TokenType.CONTROL)
        elif pieces.is_byte(i):
            kinds.append(gguf.TokenType.BYTE)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(i) for i in range(pieces.vocab_size())])
    writer.add_token_scores([pieces.get_score(i) for i in range(pieces.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    writer.add_unk_token_id(pieces.unk_id())
